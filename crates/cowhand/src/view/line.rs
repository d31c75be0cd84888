//! Text from elsewhere as a person reads it: a line of a job's output, and words that are put beside our own.

use cowhand_core::output::OutputMessage;
use serde_json::Value;

use super::style::{BAD, BUSY, FAINT, GOOD, styled};

/// Text from elsewhere on one line: the first one that says something, without control characters.
pub(crate) fn one_line(text: &str, longest: usize) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    let mut short: String =
        line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(longest).collect();
    if line.chars().count() > longest {
        short.pop();
        short.push('…');
    }
    short
}

/// Text from elsewhere as it is, but for what would move the cursor or colour the screen.
pub(crate) fn harmless(text: &str) -> String {
    text.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

/// A line as a person reads it; none for what only programs need.
pub(crate) fn readable(line: &str) -> Option<String> {
    let Ok(message) = OutputMessage::read_line(line) else { return Some(harmless(line)) };
    match message? {
        OutputMessage::Assistant { partial: Some(true), .. } => None,
        OutputMessage::Assistant { content, .. } => content.map(|content| harmless(content.trim_end())),
        OutputMessage::System { subtype, content, .. } => {
            let text = content.map(|content| harmless(content.trim_end()));
            text.or_else(|| subtype.map(|word| format!("[{word}]"))).map(|text| styled(text, FAINT))
        }
        OutputMessage::ToolUse { tool_name, input, .. } => {
            let input = input.map(|input| one_line(&shown(&input), 120)).unwrap_or_default();
            Some(format!("{} {input}", styled(format!("→ {}", harmless(&tool_name)), BUSY)))
        }
        OutputMessage::ToolResult { result, success, error, .. } => {
            let (mark, style) = if success == Some(false) { ("✗", BAD) } else { ("←", GOOD) };
            let text = error.or_else(|| result.as_ref().map(shown)).unwrap_or_default();
            Some(format!("{} {}", styled(mark, style), one_line(&text, 120)))
        }
        OutputMessage::Error { message, .. } => {
            Some(format!("{} {}", styled("error:", BAD), harmless(&message)))
        }
    }
}

/// What somebody who follows sees: pieces of a message as they come, and not once more when it comes whole.
#[derive(Debug, Default)]
pub(crate) struct Growing {
    /// What is on the screen of a message that is not there yet.
    pieces: String,
}

impl Growing {
    /// What is to be put on the screen for a line, with the ends of lines in it.
    pub(crate) fn hear(&mut self, line: &str) -> String {
        if let Ok(Some(OutputMessage::Assistant { partial: Some(true), content, .. })) =
            OutputMessage::read_line(line)
        {
            let piece = harmless(&content.unwrap_or_default());
            self.pieces.push_str(&piece);
            return piece;
        }
        let Some(text) = readable(line) else { return String::new() };
        let pieces = std::mem::take(&mut self.pieces);
        let begun = if pieces.is_empty() || pieces.ends_with('\n') { "" } else { "\n" };
        if !pieces.is_empty() && pieces.trim_end() == text {
            return begun.to_owned();
        }
        format!("{begun}{text}\n")
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_of_message_has_its_form() {
        let plain = |line: &str| readable(line).map(|text| anstream::adapter::strip_str(&text).to_string());
        let table = [
            (r#"{"type":"assistant","content":"Hello\nyou\n"}"#, Some("Hello\nyou")),
            (r#"{"type":"assistant","content":"Hello","partial":true}"#, None),
            (r#"{"type":"system","subtype":"init"}"#, Some("[init]")),
            (r#"{"type":"system","content":"plain"}"#, Some("plain")),
            (
                r#"{"type":"tool_use","tool_name":"Bash","input":{"command":"ls"}}"#,
                Some(r#"→ Bash {"command":"ls"}"#),
            ),
            (r#"{"type":"tool_result","result":"a\nb","success":true}"#, Some("← a")),
            (r#"{"type":"tool_result","error":"denied","success":false}"#, Some("✗ denied")),
            (r#"{"type":"error","message":"boom"}"#, Some("error: boom")),
            ("no JSON", Some("no JSON")),
        ];
        for (line, text) in table {
            assert_eq!(plain(line).as_deref(), text, "{line}");
        }
    }

    #[test]
    fn pieces_grow_and_are_not_told_twice() {
        let piece = |text: &str| format!(r#"{{"type":"assistant","content":"{text}","partial":true}}"#);
        let whole = |text: &str| format!(r#"{{"type":"assistant","content":"{text}"}}"#);
        let tool = r#"{"type":"tool_result","result":"a"}"#.to_owned();
        let unsaid = r#"{"type":"assistant","partial":true,"line":{}}"#.to_owned();
        for (lines, expected) in [
            (
                vec![piece("Good "), unsaid.clone(), piece("day"), whole("Good day"), whole("again")],
                "Good day\nagain\n",
            ),
            (vec![piece("a\\n"), whole("a\\n"), tool.clone()], "a\n← a\n"),
            (vec![piece("One"), whole("Other")], "One\nOther\n"),
            (vec![piece("cut"), tool], "cut\n← a\n"),
            (vec![unsaid, whole("x")], "x\n"),
            (vec![piece("\\u001b[2Jx"), whole("\\u001b[2Jx")], "[2Jx\n"),
        ] {
            let mut growing = Growing::default();
            let seen: String = lines.iter().map(|line| growing.hear(line)).collect();
            assert_eq!(anstream::adapter::strip_str(&seen).to_string(), expected, "{lines:?}");
        }
    }

    #[test]
    fn text_from_elsewhere_is_kept_in_its_place() {
        assert_eq!(one_line("\n  first\u{1b}[31m \nsecond", 40), "first [31m");
        assert_eq!(one_line("0123456789", 5), "0123…");
        assert_eq!(harmless("a\u{1b}[2J\tb\r\n"), "a[2J\tb\n");
    }
}
