//! The output of a job on its page, line by line, with a form for each type of message.

use cowhand_core::id::JobId;
use cowhand_core::output::OutputMessage;
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::Pages;
use super::text::{Text, short};
use cowhand_web::api::ApiProblem;

/// Form in which the output is shown. In a query, no value or an empty one means the transcript.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(super) enum OutputForm {
    #[default]
    #[serde(rename = "")]
    Transcript,
    /// The lines of the JSONL unchanged.
    #[serde(rename = "raw")]
    Raw,
}

/// Number of lines on one page.
pub(super) const LINES_PER_PAGE: u64 = 1000;

/// Part of the output, with its position.
#[derive(Debug)]
pub(super) struct OutputWindow {
    /// Number of lines before this part.
    pub(super) after: u64,
    /// Number of lines of the whole output.
    pub(super) total: u64,
    pub(super) lines: Vec<String>,
}

impl Pages {
    /// Returns at most [`LINES_PER_PAGE`] lines: the lines after the first `after` lines, or the last lines if `after`
    /// is none.
    pub(super) async fn window(&self, job: &JobId, after: Option<u64>) -> Result<OutputWindow, ApiProblem> {
        let total = self.tail(job).await?.lines;
        let after = after.unwrap_or_else(|| total.saturating_sub(LINES_PER_PAGE)).min(total);
        self.window_of(job, after, LINES_PER_PAGE, total).await
    }

    /// Returns at most `limit` lines after the first `after` lines. `total` is the number of all lines.
    pub(super) async fn window_of(
        &self,
        job: &JobId,
        after: u64,
        limit: u64,
        total: u64,
    ) -> Result<OutputWindow, ApiProblem> {
        let mut lines = Vec::new();
        let address = format!("jobs/{job}/output?after={after}&limit={limit}");
        let Some(mut answer) = self.output_lines(&address).await? else {
            return Ok(OutputWindow { after, total, lines });
        };
        while let Some(line) = answer.next().await? {
            lines.push(line);
        }
        Ok(OutputWindow { after, total, lines })
    }
}

impl OutputWindow {
    pub(super) fn end(&self) -> u64 {
        self.after + self.lines.len() as u64
    }

    pub(super) fn render(&self, view: OutputForm) -> Markup {
        html! {
            @for (number, line) in (self.after + 1..).zip(&self.lines) { (render_line(number, line, view)) }
        }
    }

    /// Renders the lines of a running job. The pieces of an incomplete message at the end become one row.
    pub(super) fn render_partial(&self, view: OutputForm) -> Markup {
        let pieces: Vec<String> = self.lines.iter().rev().map_while(|line| piece(line)).collect();
        let text: String = pieces.iter().rev().map(String::as_str).collect();
        let number = self.end() + 1 - pieces.len() as u64;
        let has_partial = view == OutputForm::Transcript && !text.is_empty();
        html! {
            (self.render(view))
            @if has_partial { (row(number, "assistant l-partial", None, &html! { (Text(&text)) })) }
        }
    }
}

/// Renders a line as [`render_line`] does, but also shows pieces of a message that is not complete.
pub(super) fn render_partial(number: u64, line: &str, view: OutputForm) -> Markup {
    match (view, piece(line)) {
        (OutputForm::Transcript, Some(piece)) if !piece.is_empty() => {
            row(number, "assistant l-partial", None, &html! { (Text(&piece)) })
        }
        _ => render_line(number, line, view),
    }
}

/// Returns the text of a piece of an incomplete message; none for any other line.
fn piece(line: &str) -> Option<String> {
    match OutputMessage::read_line(line) {
        Ok(Some(OutputMessage::Assistant { partial: Some(true), content, .. })) => {
            Some(content.unwrap_or_default())
        }
        _ => None,
    }
}

pub(super) fn render_line(number: u64, line: &str, view: OutputForm) -> Markup {
    match view {
        OutputForm::Raw => row(number, "raw", None, &html! { (Text(line)) }),
        OutputForm::Transcript => message(number, line),
    }
}

fn message(number: u64, line: &str) -> Markup {
    let message = match OutputMessage::read_line(line) {
        Ok(Some(message)) => message,
        Ok(None) => return html! {},
        Err(_) => return row(number, "system", None, &html! { (Text(line)) }),
    };
    match message {
        OutputMessage::Assistant { partial: Some(true), .. }
        | OutputMessage::Assistant { content: None, .. } => html! {},
        OutputMessage::Assistant { content: Some(content), timestamp, .. } => {
            row(number, "assistant", timestamp, &html! { (Text(content.trim_end())) })
        }
        OutputMessage::System { subtype: Some(subtype), content: Some(attempt), timestamp, extra }
            if subtype == OutputMessage::ATTEMPT =>
        {
            let heading = OutputMessage::attempt_heading(&attempt, &extra);
            row(number, "note", timestamp, &html! { "── " (Text(&heading)) })
        }
        // A system message with content is a line of the agent's output that has no other type. A system message
        // without content is only a notification.
        OutputMessage::System { content: Some(content), timestamp, .. } => match result_line(&content) {
            Some(result) => row(number, "note", timestamp, &folded(&html! { "[result]" }, &result)),
            None => row(number, "system", timestamp, &html! { (Text(content.trim_end())) }),
        },
        OutputMessage::System { subtype, content: None, timestamp, .. } => {
            row(number, "note", timestamp, &html! { "[" (Text(&subtype.unwrap_or_default())) "]" })
        }
        OutputMessage::ToolUse { tool_name, input, timestamp, .. } => {
            let brief = input.as_ref().map(summarize_input).unwrap_or_default();
            let head = html! { b { "→ " (short(&tool_name, 80)) } " " span.muted { (brief) } };
            row(number, "tool", timestamp, &folded(&head, &input.as_ref().map(pretty).unwrap_or_default()))
        }
        OutputMessage::ToolResult { result, success, error, timestamp, .. } => {
            let failed = success == Some(false) || error.is_some();
            let text = error.or_else(|| result.as_ref().map(pretty)).unwrap_or_default();
            let mark = if failed { "✗ failed" } else { "← result" };
            let head = html! { span.result-mark { (mark) } " " span.muted { (short(&text, 160)) } };
            let kind = if failed { "result-bad" } else { "result" };
            row(number, kind, timestamp, &folded(&head, &text))
        }
        OutputMessage::Error { message, timestamp, .. } => {
            row(number, "error", timestamp, &html! { b { "error: " } (Text(&message)) })
        }
    }
}

/// Returns a line of output that is a JSON object of the type `result`, indented; none for any other line. The page
/// shows the result of the job above the output, so such a line is folded.
pub(super) fn result_line(content: &str) -> Option<String> {
    let value: Value = content.starts_with('{').then(|| serde_json::from_str(content).ok()).flatten()?;
    (value.get("type")? == "result").then(|| indented(&value))
}

fn row(number: u64, kind: &str, time: Option<Timestamp>, content: &Markup) -> Markup {
    let time = time.map(|time| time.to_string());
    html! {
        div class={ "l l-" (kind) } id={ "L" (number) } {
            a.n href={ "#L" (number) } title=[time] aria-label={ "line " (number) } tabindex="-1" { (number) }
            div.c { (content) }
        }
    }
}

/// Shows a heading and, unless it is empty, a text that is hidden until a reader opens it.
fn folded(head: &Markup, text: &str) -> Markup {
    html! {
        @if text.is_empty() {
            (head)
        } @else {
            details { summary { (head) } pre { (Text(text)) } }
        }
    }
}

/// Returns the most informative field of a tool's input, for example the command, as one short line. If no such field
/// is known, returns the whole input as one short line.
pub(super) fn summarize_input(input: &Value) -> String {
    let text = match input {
        Value::Object(fields) => {
            let preferred =
                ["command", "file_path", "path", "pattern", "query", "url", "description", "prompt"];
            let value = preferred.iter().find_map(|key| fields.get(*key)).and_then(Value::as_str);
            value.map_or_else(|| input.to_string(), ToOwned::to_owned)
        }
        other => pretty(other),
    };
    short(&text, 160)
}

pub(super) fn pretty(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => texts(blocks).unwrap_or_else(|| indented(value)),
        other => indented(other),
    }
}

/// Joins the texts of the blocks of a tool result. Returns none if there are no blocks, or a block has no text.
fn texts(blocks: &[Value]) -> Option<String> {
    let texts: Option<Vec<&str>> = blocks.iter().map(|block| block.get("text")?.as_str()).collect();
    texts.filter(|texts| !texts.is_empty()).map(|texts| texts.join("\n"))
}

fn indented(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// Shortens a line of output for a person. Returns none for a line without text, and for a result line.
pub(super) fn summarize_line(line: &str) -> Option<String> {
    let text = match OutputMessage::read_line(line) {
        Ok(None) => return None,
        Err(_) => line.to_owned(),
        Ok(Some(message)) => match message {
            OutputMessage::Assistant { content, .. } => content?,
            OutputMessage::System { content, .. } => {
                content.filter(|content| result_line(content).is_none())?
            }
            OutputMessage::ToolUse { tool_name, input, .. } => {
                format!("→ {tool_name} {}", input.as_ref().map(summarize_input).unwrap_or_default())
            }
            OutputMessage::ToolResult { result, error, .. } => {
                format!("← {}", error.or_else(|| result.as_ref().map(pretty))?)
            }
            OutputMessage::Error { message, .. } => format!("error: {message}"),
        },
    };
    // If the text has several lines, the last one is the newest.
    let last = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(short(last, 200))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_rendered_and_hostile_text_is_escaped() {
        let hostile = "<img src=x onerror=alert(1)>\u{1b}[31m\u{202e}";
        let escaped = "&lt;img src=x onerror=alert(1)&gt;‹U+202E›";
        for (message, expected) in [
            (serde_json::json!({"type": "assistant", "content": hostile}), "l-assistant"),
            (serde_json::json!({"type": "system", "content": hostile}), "l-system"),
            (
                serde_json::json!({"type": "tool_use", "tool_name": hostile, "input": {"command": hostile}}),
                "l-tool",
            ),
            (
                serde_json::json!({"type": "tool_result", "result": [{"type": "text", "text": hostile}]}),
                "l-result",
            ),
            (serde_json::json!({"type": "tool_result", "error": hostile, "success": false}), "l-result-bad"),
            (serde_json::json!({"type": "error", "message": hostile}), "l-error"),
        ] {
            let page = render_line(7, &message.to_string(), OutputForm::Transcript).into_string();
            assert!(
                page.contains(expected) && page.contains(escaped) && page.contains("id=\"L7\""),
                "{page}"
            );
            let raw = render_line(7, &message.to_string(), OutputForm::Raw).into_string();
            for page in [page, raw] {
                assert!(!page.contains("<img") && !page.contains(['\u{1b}', '\u{202e}']), "{page}");
            }
        }
        assert_eq!(message(1, r#"{"type":"assistant","content":"a","partial":true}"#).into_string(), "");
        assert!(message(1, "no JSON <b>").into_string().contains("no JSON &lt;b&gt;"));
    }

    #[test]
    fn lines_are_summarized() {
        for (line, expected) in [
            (r#"{"type":"assistant","content":"one\ntwo\n\n"}"#, Some("two")),
            (r#"{"type":"system","subtype":"init"}"#, None),
            (r#"{"type":"tool_use","tool_name":"Bash","input":{"command":"ls -l"}}"#, Some("→ Bash ls -l")),
            (r#"{"type":"tool_result","result":"ok"}"#, Some("← ok")),
            ("plain", Some("plain")),
        ] {
            assert_eq!(summarize_line(line).as_deref(), expected, "{line}");
        }
    }
}
