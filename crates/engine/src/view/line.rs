//! Prepares text from outside for display: lines of a job's output, and text that is shown beside cowhand's own text.

use std::borrow::Cow;
use std::fmt::Write as _;

use anstyle::Style;
use cowhand_core::output::OutputMessage;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::style::{BAD, BUSY, FAINT, GOOD, styled};

/// Returns the first non-empty line of a text as [`plain`] text, shortened to `longest` characters. If text is left
/// out, the line ends in `…`.
pub fn one_line(text: &str, longest: usize) -> String {
    let text = plain(text);
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default().replace('\t', " ");
    let has_more = lines.next().is_some();
    if !has_more && first.chars().count() <= longest {
        return first;
    }
    let mut short: String = first.chars().take(longest.saturating_sub(1)).collect();
    short.push('…');
    short
}

/// Joins the non-empty lines of a text into one line of [`plain`] text, with ` ⏎ ` between them.
pub fn joined_lines(text: &str) -> String {
    let text = plain(text).replace('\t', " ");
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ⏎ ")
}

/// Joins the lines of a text into one line, for a person who decides about the text. Line breaks and control characters
/// are shown, and several blanks become one. The line has at most `longest` characters, followed by the number of
/// omitted characters.
pub fn folded(text: &str, longest: usize) -> String {
    let mut visible = String::new();
    for c in text.chars() {
        if matches!(c, '\n' | '\r' | '\t') { visible.push(c) } else { push_visible(&mut visible, c) }
    }
    let lines = visible.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    let folded = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ⏎ ");
    let omitted = folded.chars().count().saturating_sub(longest);
    if omitted == 0 {
        return folded;
    }
    let short: String = folded.chars().take(longest).collect();
    format!("{short}… (+{omitted})")
}

/// Removes terminal escape sequences and control characters, except line ends and tabs, from a text. Characters that
/// change the writing direction are shown by their code point.
pub fn plain(text: &str) -> String {
    // Most text is plain already. The check has no branches, so that the compiled code checks many bytes at once.
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~' | b'\n' | b'\t');
    if text.bytes().fold(true, |all, byte| all & is_plain(byte)) {
        return text.to_owned();
    }
    let mut plain = String::with_capacity(text.len());
    for c in anstream::adapter::strip_str(text).to_string().chars() {
        if matches!(c, '\n' | '\t') {
            plain.push(c);
        } else if !c.is_control() {
            push_visible(&mut plain, c);
        }
    }
    plain
}

/// Shows the harmful characters of a finished text (see [`is_harmful`]) by their code point, except line ends, tabs and
/// sequences for styles. Callers make text from outside plain before they print it; this function covers text for which
/// a caller forgot that.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let is_harmful = |c: char| is_harmful(c) && !matches!(c, '\n' | '\t');
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let (mut harmless, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(is_harmful) {
        harmless.push_str(&rest[..at]);
        rest = &rest[at..];
        let length = style_length(rest);
        let Some(c) = rest.chars().next() else { break };
        match length {
            Some(length) => harmless.push_str(&rest[..length]),
            None => push_visible(&mut harmless, c),
        }
        rest = &rest[length.unwrap_or(c.len_utf8())..];
    }
    harmless.push_str(rest);
    Cow::Owned(harmless)
}

/// Returns the length in bytes of the escape sequence for a style (such as a colour) with which a text begins; `None`
/// if the text begins otherwise.
fn style_length(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    parameters[end..].starts_with('m').then_some("\u{1b}[".len() + end + 1)
}

/// Returns whether a terminal acts on this character instead of showing it: a control character, or a character that
/// changes the writing direction.
pub fn is_harmful(c: char) -> bool {
    let changes_direction =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    changes_direction || c.is_control()
}

/// Appends a character; control characters and characters that change the writing direction are shown by their code
/// point.
fn push_visible(text: &mut String, c: char) {
    if is_harmful(c) {
        let _ = write!(text, "‹U+{:04X}›", u32::from(c));
    } else {
        text.push(c);
    }
}

/// Returns the text that a person sees for a line of a job's JSONL, also for a line that is not a message. Returns
/// `None` if there is nothing to show, for example for a part of a message.
pub fn readable(line: &str) -> Option<String> {
    readable_in(line, styled)
}

/// Returns the same text as [`readable`], without styles.
pub fn readable_unstyled(line: &str) -> Option<String> {
    readable_in(line, |text, _| text)
}

fn readable_in(line: &str, styled: fn(String, Style) -> String) -> Option<String> {
    if let Some(text) = text_of(line) {
        return Some(styled(text, FAINT));
    }
    let Ok(message) = OutputMessage::read_line(line) else { return Some(plain(line)) };
    match message? {
        OutputMessage::Assistant { partial: Some(true), .. } => None,
        OutputMessage::Assistant { content, .. } => content.map(|content| plain(content.trim_end())),
        OutputMessage::System { subtype: Some(word), content: Some(which), extra, .. }
            if word == OutputMessage::ATTEMPT =>
        {
            let heading = OutputMessage::attempt_heading(which.trim_end(), &extra);
            Some(styled(format!("── {}", one_line(&heading, 600)), FAINT))
        }
        OutputMessage::System { subtype: Some(word), content: Some(text), extra, .. }
            if word == OutputMessage::STEERING =>
        {
            let by = extra.get("by").and_then(Value::as_str).unwrap_or_default();
            let heading = styled(format!("message from {}:", one_line(by, 200)), BUSY);
            Some(format!("{heading} {}", plain(text.trim_end())))
        }
        OutputMessage::System { subtype, content, .. } => {
            let text = content.map(|content| plain(content.trim_end()));
            text.or_else(|| subtype.map(|word| format!("[{word}]"))).map(|text| styled(text, FAINT))
        }
        OutputMessage::ToolUse { tool_name, input, .. } => {
            let input = input.map(|input| one_line(&to_text(&input), 120)).unwrap_or_default();
            Some(format!("{} {input}", styled(format!("→ {}", plain(&tool_name)), BUSY)))
        }
        OutputMessage::ToolResult { result, success, error, .. } => {
            let (mark, style) = if success == Some(false) { ("✗", BAD) } else { ("←", GOOD) };
            let text = error.or_else(|| result.as_ref().map(to_text)).unwrap_or_default();
            Some(format!("{} {}", styled(mark.to_owned(), style), one_line(&text, 120)))
        }
        OutputMessage::Error { message, .. } => {
            Some(format!("{} {}", styled("error:".to_owned(), BAD), plain(&message)))
        }
    }
}

/// Returns the text of a `system` message that has only a text, as most lines are. Reads the line without building an
/// [`OutputMessage`]. Returns `None` for any other line.
fn text_of(line: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Text<'a> {
        r#type: &'a str,
        subtype: Option<&'a str>,
        #[serde(borrow)]
        content: Cow<'a, str>,
        #[serde(rename = "timestamp")]
        _timestamp: Timestamp,
    }
    let text: Text<'_> = serde_json::from_str(line).ok()?;
    let is_text = text.r#type == "system" && text.subtype != Some(OutputMessage::ATTEMPT);
    is_text.then(|| plain(text.content.trim_end()))
}

/// The display of a followed job: parts of a message appear as they arrive, and are not repeated with the whole
/// message.
#[derive(Debug, Default)]
pub struct FollowedOutput {
    /// Displayed parts of a message that is not complete yet.
    pieces: String,
}

impl FollowedOutput {
    /// Returns whether the display ends in an incomplete line.
    pub fn is_in_a_line(&self) -> bool {
        !self.pieces.is_empty() && !self.pieces.ends_with('\n')
    }

    /// Returns the text to display for a line of the job's JSONL, including line ends.
    pub fn add(&mut self, line: &str) -> String {
        if let Ok(Some(OutputMessage::Assistant { partial: Some(true), content, .. })) =
            OutputMessage::read_line(line)
        {
            let piece = plain(&content.unwrap_or_default());
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

fn to_text(value: &Value) -> String {
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
        let displayed =
            |line: &str| readable(line).map(|text| anstream::adapter::strip_str(&text).to_string());
        let table = [
            (r#"{"type":"assistant","content":"Hello\nyou\n"}"#, Some("Hello\nyou")),
            (r#"{"type":"assistant","content":"Hello","partial":true}"#, None),
            (r#"{"type":"system","subtype":"init"}"#, Some("[init]")),
            (r#"{"type":"system","content":"plain"}"#, Some("plain")),
            (r#"{"type":"system","subtype":"stderr","content":"a\u001b[1m \"b\" é \n"}"#, Some("a \"b\" é")),
            (r#"{"type":"system","subtype":"attempt","content":"attempt 2"}"#, Some("── attempt 2")),
            (
                r#"{"type":"system","subtype":"attempt","content":"attempt 2","before":"attempt 1 failed: it\nbroke"}"#,
                Some("── attempt 2 (attempt 1 failed: it broke)"),
            ),
            (
                r#"{"type":"tool_use","tool_name":"Bash","input":{"command":"ls"}}"#,
                Some(r#"→ Bash {"command":"ls"}"#),
            ),
            (r#"{"type":"tool_result","result":"a\nb","success":true}"#, Some("← a…")),
            (r#"{"type":"tool_result","error":"denied","success":false}"#, Some("✗ denied")),
            (r#"{"type":"error","message":"boom"}"#, Some("error: boom")),
            ("no JSON", Some("no JSON")),
        ];
        for (line, text) in table {
            assert_eq!(displayed(line).as_deref(), text, "{line}");
            assert_eq!(readable_unstyled(line).as_deref(), text, "{line}");
            if let Some(fields) = line.strip_suffix('}') {
                let stamped = format!("{fields},\"timestamp\":\"2026-01-01T00:00:00Z\"}}");
                assert_eq!(readable_unstyled(&stamped).as_deref(), text, "{stamped}");
            }
        }
    }

    #[test]
    fn displayed_pieces_are_not_repeated() {
        let piece = |text: &str| format!(r#"{{"type":"assistant","content":"{text}","partial":true}}"#);
        let whole = |text: &str| format!(r#"{{"type":"assistant","content":"{text}"}}"#);
        let tool = r#"{"type":"tool_result","result":"a"}"#.to_owned();
        let empty = r#"{"type":"assistant","partial":true,"line":{}}"#.to_owned();
        for (lines, expected) in [
            (
                vec![piece("Good "), empty.clone(), piece("day"), whole("Good day"), whole("again")],
                "Good day\nagain\n",
            ),
            (vec![piece("a\\n"), whole("a\\n"), tool.clone()], "a\n← a\n"),
            (vec![piece("One"), whole("Other")], "One\nOther\n"),
            (vec![piece("cut"), tool], "cut\n← a\n"),
            (vec![empty, whole("x")], "x\n"),
            (vec![piece("\\u001b[2Jx"), whole("\\u001b[2Jx")], "x\n"),
        ] {
            let mut display = FollowedOutput::default();
            let displayed: String = lines.iter().map(|line| display.add(line)).collect();
            assert_eq!(anstream::adapter::strip_str(&displayed).to_string(), expected, "{lines:?}");
        }
    }

    #[test]
    fn control_characters_are_removed_and_lines_cut() {
        for (text, longest, expected) in [
            ("\n  first\u{1b}[31m \n\n", 40, "first"),
            ("\n  first\u{1b}[31m \nsecond", 40, "first…"),
            ("0123456789", 5, "0123…"),
            ("01234", 5, "01234"),
            ("0\t1", 5, "0 1"),
            ("", 5, ""),
        ] {
            assert_eq!(one_line(text, longest), expected, "{text:?}");
        }
        assert_eq!(plain("a\u{1b}[2J\tb\r\n"), "a\tb\n");
        assert_eq!(plain("\u{1b}]0;title\u{7}user\u{202e}txt.exe"), "user‹U+202E›txt.exe");
    }

    #[test]
    fn folded_text_hides_nothing() {
        for (text, expected) in [
            ("git status\nrm -rf ~", "git status ⏎ rm -rf ~"),
            ("git status                    \t  ; rm -rf ~", "git status ; rm -rf ~"),
            ("git status\r\n\n\n  rm\u{2003}x", "git status ⏎ rm x"),
            ("ls \u{202e}~/suoicerp fr- mr", "ls ‹U+202E›~/suoicerp fr- mr"),
            ("ls \u{1b}[8mrm -rf ~\u{8}", "ls ‹U+001B›[8mrm -rf ~‹U+0008›"),
            (&"a".repeat(33), &format!("{}… (+3)", "a".repeat(30))),
        ] {
            assert_eq!(folded(text, 30), expected, "{text:?}");
        }
    }
}
