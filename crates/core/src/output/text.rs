//! Messages that consist of one text. Most lines of output are such messages, so they are formatted without building
//! the message first.

use jiff::Timestamp;
use serde_json::Map;

use super::{OutputError, OutputMessage};

/// Formats texts as lines of the JSONL.
#[derive(Debug, Default)]
pub struct TextFormat {
    /// Time of the last line, and the end of a line with this time.
    end: Option<(Timestamp, String)>,
}

impl TextFormat {
    /// Appends one line with a line end. The line is the same as that of a message that [`OutputMessage::text`] builds
    /// and [`OutputMessage::to_line`] formats.
    pub fn append(
        &mut self,
        out: &mut Vec<u8>,
        subtype: Option<&'static str>,
        content: &str,
        now: Timestamp,
        cap: usize,
    ) -> Result<(), OutputError> {
        // A text that is longer than `cap` cannot fit. It is not formatted here first, because escapes can make it many
        // times longer.
        let (start, cap) = (out.len(), cap.max(OutputMessage::MIN_CAP));
        if content.len() <= cap {
            let end = self.end(now)?;
            out.extend_from_slice(br#"{"type":"system","#);
            if let Some(subtype) = subtype {
                out.extend_from_slice(br#""subtype":"#);
                push_json(out, subtype)?;
                out.push(b',');
            }
            out.extend_from_slice(br#""content":"#);
            push_json(out, content)?;
            out.extend_from_slice(end.as_bytes());
            if out.len() - start - 1 <= cap {
                return Ok(());
            }
            out.truncate(start);
        }
        OutputMessage::text(subtype, content).stamped(now).append_line(out, cap)
    }

    /// Returns the end of a line with this time. Many lines have the same time, so the end is formatted only if the
    /// time changes.
    fn end(&mut self, now: Timestamp) -> Result<&str, OutputError> {
        let end = match self.end.take() {
            Some((time, end)) if time == now => end,
            _ => format!(
                ",\"timestamp\":{}}}\n",
                serde_json::to_string(&now).map_err(|error| not_written(&error))?
            ),
        };
        Ok(&self.end.insert((now, end)).1)
    }
}

impl OutputMessage {
    /// Creates a message that consists of a text.
    pub fn text(subtype: Option<&str>, content: &str) -> Self {
        Self::System {
            subtype: subtype.map(str::to_owned),
            content: Some(content.to_owned()),
            timestamp: None,
            extra: Map::new(),
        }
    }
}

/// Appends a text as a JSON string.
fn push_json(out: &mut Vec<u8>, text: &str) -> Result<(), OutputError> {
    // Without branches, so that the compiled code can check many bytes at once.
    let needs_escape = |byte: u8| u8::from(byte < b' ') | u8::from(byte == b'"') | u8::from(byte == b'\\');
    if text.bytes().fold(0, |found, byte| found | needs_escape(byte)) != 0 {
        return serde_json::to_writer(out, text).map_err(|error| not_written(&error));
    }
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
    Ok(())
}

fn not_written(error: &serde_json::Error) -> OutputError {
    OutputError::Field { kind: "system".to_owned(), problem: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_formatted_as_messages() {
        let mut format = TextFormat::default();
        let long = "é\"\0".repeat(2_000);
        for time in ["2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456Z"] {
            let now: Timestamp = time.parse().unwrap();
            for content in ["", "plain", "a \"quoted\" \\ and\ttab", "\0\u{1b}[1m\u{7f}\u{2028}é", &long] {
                for (subtype, cap) in [(None, 0), (Some("stderr"), 5_000), (None, 1 << 20)] {
                    let mut out = b"before\n".to_vec();
                    format.append(&mut out, subtype, content, now, cap).unwrap();
                    let message = OutputMessage::text(subtype, content).stamped(now);
                    let expected = format!("before\n{}\n", message.to_line(cap).unwrap());
                    assert_eq!(String::from_utf8(out).unwrap(), expected);
                }
            }
        }
    }
}
