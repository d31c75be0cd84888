//! The answer to a message of the web chat: the output of its job, with texts in Markdown and folded tools.

use cowhand_core::chat::markdown::to_html;
use cowhand_core::output::OutputMessage;
use cowhand_core::shape::MessageGrouping;
use maud::{Markup, PreEscaped, html};

use super::output::{OutputWindow, pretty, result_line, summarize_input};
use super::text::{Text, plain, short};

/// Number of lines of a job that a conversation shows. The page of the job shows all.
pub(super) const LINES_PER_ANSWER: u64 = 400;
/// Number of characters of one text that a conversation shows.
const MAX_TEXT_CHARS: usize = 40_000;
/// Number of characters of the input or the result of a tool that a conversation shows.
const MAX_TOOL_CHARS: usize = 8_000;

/// How an answer is shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct AnswerDisplay {
    /// Whether the results of tools are shown. Failures are always marked.
    pub(super) tool_results: bool,
    pub(super) grouping: MessageGrouping,
}

/// A part of an answer, with the number of its first line.
#[derive(Debug, PartialEq)]
struct AnswerPart {
    line: u64,
    content: PartContent,
}

#[derive(Debug, PartialEq)]
enum PartContent {
    /// Text of the agent, in Markdown.
    Text(String),
    /// Output of a program that is not structured, as it is.
    Plain(String),
    /// Beginning of a text that is still being written.
    Growing(String),
    Tool(ToolCall),
    /// Message of a person that the agent got while it worked.
    Said(String),
    Error(String),
    Note(String),
}

#[derive(Debug, PartialEq)]
struct ToolCall {
    id: Option<String>,
    name: String,
    brief: String,
    input: String,
    result: Option<ToolOutcome>,
}

#[derive(Debug, PartialEq)]
struct ToolOutcome {
    text: String,
    failed: bool,
}

/// Renders the last lines of a job's output. `summary` is the result of an ended job, which is shown if no text of the
/// output contains it.
pub(super) fn render(job: &str, window: &OutputWindow, summary: Option<&str>, form: AnswerDisplay) -> Markup {
    let mut parts = Vec::new();
    for (number, line) in (window.after + 1..).zip(&window.lines) {
        add_line(&mut parts, number, line);
    }
    if let Some(summary) = summary.map(str::trim).filter(|summary| !summary.is_empty())
        && !parts.iter().any(|part| part.shows(summary))
    {
        parts.push(AnswerPart { line: window.end() + 1, content: PartContent::Text(summary.to_owned()) });
    }
    html! {
        @for group in parts.chunk_by(|one, other| one.is_tool() && other.is_tool()) {
            @if form.grouping == MessageGrouping::Grouped && group.len() > 1 { (tool_group(job, group, form)) }
            @else { @for part in group { (part.render(job, form)) } }
        }
    }
}

/// Renders one line of a running job, for the stream of its answer. Lines that are not shown are empty.
pub(super) fn render_line(job: &str, number: u64, line: &str, tool_results: bool) -> Markup {
    let mut parts = Vec::new();
    add_line(&mut parts, number, line);
    let form = AnswerDisplay { tool_results, grouping: MessageGrouping::Separate };
    html! { @for part in &parts { (part.render(job, form)) } }
}

fn add_line(parts: &mut Vec<AnswerPart>, line: u64, text: &str) {
    // A piece is replaced by the next piece or by the whole text.
    let growing = match parts.last() {
        Some(AnswerPart { content: PartContent::Growing(_), .. }) => parts.pop(),
        _ => None,
    };
    let content = match OutputMessage::read_line(text) {
        Err(_) => PartContent::Plain(text.to_owned()),
        Ok(None) => return parts.extend(growing),
        Ok(Some(message)) => match message {
            OutputMessage::Assistant { partial: Some(true), content, .. } => {
                let (line, before) = match growing {
                    Some(AnswerPart { line, content: PartContent::Growing(before) }) => (line, before),
                    _ => (line, String::new()),
                };
                let text = before + &content.unwrap_or_default();
                return parts.push(AnswerPart { line, content: PartContent::Growing(text) });
            }
            OutputMessage::Assistant { content: Some(text), .. } if !text.trim().is_empty() => {
                PartContent::Text(text)
            }
            OutputMessage::System { subtype: Some(subtype), content: Some(attempt), extra, .. }
                if subtype == OutputMessage::ATTEMPT =>
            {
                PartContent::Note(OutputMessage::attempt_heading(&attempt, &extra))
            }
            OutputMessage::System { subtype: Some(subtype), content: Some(text), .. }
                if subtype == OutputMessage::STEERING =>
            {
                PartContent::Said(text)
            }
            OutputMessage::System { content: Some(text), .. } if result_line(&text).is_none() => {
                PartContent::Plain(text)
            }
            OutputMessage::ToolUse { tool_name, tool_use_id, input, .. } => PartContent::Tool(ToolCall {
                id: tool_use_id,
                name: tool_name,
                brief: input.as_ref().map(summarize_input).unwrap_or_default(),
                input: input.as_ref().map(pretty).unwrap_or_default(),
                result: None,
            }),
            OutputMessage::ToolResult { tool_use_id, result, success, error, .. } => {
                let failed = success == Some(false) || error.is_some();
                let text = error.or_else(|| result.as_ref().map(pretty)).unwrap_or_default();
                return add_result(parts, line, tool_use_id, ToolOutcome { text, failed });
            }
            OutputMessage::Error { message, .. } => PartContent::Error(message),
            OutputMessage::Assistant { .. } | OutputMessage::System { .. } => return parts.extend(growing),
        },
    };
    match (parts.last_mut(), content) {
        (Some(AnswerPart { content: PartContent::Plain(before), .. }), PartContent::Plain(more)) => {
            before.push('\n');
            before.push_str(&more);
        }
        (_, content) => parts.push(AnswerPart { line, content }),
    }
}

/// Adds a result to its tool; to a tool of its own if the use is not in the output.
fn add_result(parts: &mut Vec<AnswerPart>, line: u64, id: Option<String>, outcome: ToolOutcome) {
    let open = parts.iter_mut().rev().find_map(|part| match &mut part.content {
        PartContent::Tool(call) if call.result.is_none() && call.id == id => Some(call),
        _ => None,
    });
    if let Some(call) = open {
        call.result = Some(outcome);
        return;
    }
    let (name, brief, input) = ("result".to_owned(), String::new(), String::new());
    let call = ToolCall { id, name, brief, input, result: Some(outcome) };
    parts.push(AnswerPart { line, content: PartContent::Tool(call) });
}

impl AnswerPart {
    const fn is_tool(&self) -> bool {
        matches!(self.content, PartContent::Tool(_))
    }

    fn shows(&self, text: &str) -> bool {
        match &self.content {
            PartContent::Text(shown) | PartContent::Plain(shown) | PartContent::Error(shown) => {
                shown.contains(text)
            }
            PartContent::Growing(_) | PartContent::Said(_) | PartContent::Tool(_) | PartContent::Note(_) => {
                false
            }
        }
    }

    fn render(&self, job: &str, form: AnswerDisplay) -> Markup {
        match &self.content {
            PartContent::Text(text) => {
                html! { div.say.md { (PreEscaped(to_html(&plain(&cut(text, MAX_TEXT_CHARS))))) } }
            }
            PartContent::Plain(text) => html! { div.say.pre { (Text(&cut(text, MAX_TEXT_CHARS))) } },
            PartContent::Growing(text) => html! { div.say.pre.l-partial { span.c { (Text(text)) } } },
            PartContent::Said(text) => {
                html! { div.asked { div.bubble.pre { (Text(&cut(text, MAX_TEXT_CHARS))) } } }
            }
            PartContent::Error(text) => {
                html! { p.say-error { b { "error: " } (Text(&cut(text, MAX_TOOL_CHARS))) } }
            }
            PartContent::Note(text) => html! { p.say-note { (Text(text)) } },
            PartContent::Tool(call) => tool(job, self.line, call, form),
        }
    }
}

fn tool(job: &str, line: u64, call: &ToolCall, form: AnswerDisplay) -> Markup {
    let failed = call.result.as_ref().is_some_and(|result| result.failed);
    let result = call.result.as_ref().filter(|result| form.tool_results || result.failed);
    html! {
        details.tool data-keep={ (job) "-" (line) } {
            summary {
                span.tool-mark.bad[failed] { @if failed { "✗" } @else if call.result.is_some() { "✓" } @else { "→" } }
                b { (short(&call.name, 60)) } " "
                span.muted { (call.brief) }
                @if failed { span.bad { " failed" } }
            }
            @if !call.input.is_empty() { pre tabindex="0" { (Text(&cut(&call.input, MAX_TOOL_CHARS))) } }
            @if let Some(result) = result.filter(|result| !result.text.is_empty()) {
                pre.bad[failed] tabindex="0" { (Text(&cut(&result.text, MAX_TOOL_CHARS))) }
            }
        }
    }
}

/// Renders successive uses of tools as one line that can be opened.
fn tool_group(job: &str, parts: &[AnswerPart], form: AnswerDisplay) -> Markup {
    let calls = || {
        parts.iter().filter_map(|part| match &part.content {
            PartContent::Tool(call) => Some((part.line, call)),
            _ => None,
        })
    };
    let first = parts.first().map_or(0, |part| part.line);
    let failed = calls().filter(|(_, call)| call.result.as_ref().is_some_and(|result| result.failed)).count();
    let mut names: Vec<&str> = Vec::new();
    for (_, call) in calls() {
        if !names.contains(&call.name.as_str()) {
            names.push(&call.name);
        }
    }
    html! {
        details.tools data-keep={ (job) "-group-" (first) } {
            summary {
                b { (parts.len()) " uses of tools" } " "
                span.muted { (short(&names.join(", "), 120)) }
                @if failed > 0 { span.bad { " " (failed) " failed" } }
            }
            @for (line, call) in calls() { (tool(job, line, call, form)) }
        }
    }
}

/// Cuts a long text, and says where the rest is.
fn cut(text: &str, max: usize) -> String {
    match text.char_indices().nth(max) {
        Some((end, _)) => format!("{}\n\n… (the page of the job shows the rest)", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SEPARATE: AnswerDisplay = AnswerDisplay { tool_results: true, grouping: MessageGrouping::Separate };

    fn shown(lines: &[serde_json::Value], summary: Option<&str>, form: AnswerDisplay) -> String {
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let window = OutputWindow { after: 0, total: lines.len() as u64, lines };
        render("job-1", &window, summary, form).into_string()
    }

    #[test]
    fn a_tool_is_shown_with_its_result() {
        let lines = [
            json!({"type": "assistant", "content": "I **look**."}),
            json!({"type": "tool_use", "tool_name": "Bash", "tool_use_id": "t1", "input": {"command": "ls"}}),
            json!({"type": "tool_use", "tool_name": "Read", "tool_use_id": "t2", "input": {"path": "a.rs"}}),
            json!({"type": "tool_result", "tool_use_id": "t2", "result": "fn main", "success": true}),
            json!({"type": "tool_result", "tool_use_id": "t1", "error": "denied", "success": false}),
        ];
        let html = shown(&lines, None, SEPARATE);
        assert!(html.contains("I <strong>look</strong>."), "{html}");
        assert_eq!(html.matches("<details class=\"tool\"").count(), 2, "{html}");
        assert!(html.contains("fn main") && html.contains("denied") && html.contains("✗"), "{html}");
        let html = shown(&lines, None, AnswerDisplay { tool_results: false, ..SEPARATE });
        assert!(!html.contains("fn main") && html.contains("denied"), "a failure is always shown: {html}");
        let html = shown(&lines, None, AnswerDisplay { grouping: MessageGrouping::Grouped, ..SEPARATE });
        assert!(html.contains("2 uses of tools") && html.contains("Bash, Read"), "{html}");
    }

    #[test]
    fn a_result_is_shown_once() {
        let said = json!({"type": "assistant", "content": "All is well."});
        let result =
            json!({"type": "system", "content": json!({"type": "result", "result": "x"}).to_string()});
        let html = shown(&[said, result.clone()], Some("All is well."), SEPARATE);
        assert_eq!((html.matches("All is well.").count(), html.contains("result")), (1, false), "{html}");
        let html = shown(&[result], Some("All is well."), SEPARATE);
        assert_eq!(html.matches("All is well.").count(), 1, "{html}");
    }

    #[test]
    fn pieces_grow_until_the_text_is_whole() {
        let piece = |text: &str| json!({"type": "assistant", "content": text, "partial": true});
        let html = shown(&[piece("one "), piece("two")], None, SEPARATE);
        assert!(html.contains("l-partial") && html.contains("one two"), "{html}");
        let whole = json!({"type": "assistant", "content": "one two three"});
        let html = shown(&[piece("one "), piece("two"), whole], None, SEPARATE);
        assert!(!html.contains("l-partial") && html.matches("one two").count() == 1, "{html}");
    }

    #[test]
    fn hostile_output_is_escaped() {
        let hostile = "<img src=x onerror=alert(1)>\u{1b}[31m\u{202e}";
        for line in [
            json!({"type": "assistant", "content": hostile}),
            json!({"type": "assistant", "content": hostile, "partial": true}),
            json!({"type": "system", "content": hostile}),
            json!({"type": "tool_use", "tool_name": hostile, "input": {"command": hostile}}),
            json!({"type": "tool_result", "result": hostile}),
            json!({"type": "error", "message": hostile}),
        ] {
            let html = shown(&[line], Some(hostile), SEPARATE);
            assert!(html.contains("&lt;img src=x onerror=alert(1)&gt;"), "{html}");
            assert!(!html.contains("<img") && !html.contains(['\u{1b}', '\u{202e}']), "{html}");
        }
    }

    #[test]
    fn long_texts_are_cut() {
        let html = shown(&[json!({"type": "tool_result", "result": "é".repeat(20_000)})], None, SEPARATE);
        assert!(
            html.matches('é').count() == MAX_TOOL_CHARS && html.contains("the page of the job"),
            "{}",
            html.len()
        );
    }
}
