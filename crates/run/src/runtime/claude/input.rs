//! The input format `stream-json` of Claude Code. Claude repeats each message on stdout when it takes the message, and
//! ignores a message whose id it has seen in the session.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::input::{InputEvent, InputMessage};

/// Returns a line with a message of the user.
pub(in super::super) fn user_line(id: Uuid, text: &str) -> String {
    let message = json!({ "role": "user", "content": text });
    let line = json!({ "type": "user", "message": message, "parent_tool_use_id": null, "uuid": id });
    format!("{line}\n")
}

/// Returns the lines for a message: before a message that interrupts, a request to end the current turn.
pub(in super::super) fn message_lines(message: &InputMessage) -> String {
    // Claude would run a text that begins with a slash as a command.
    let text =
        if message.text.starts_with('/') { format!(" {}", message.text) } else { message.text.clone() };
    let line = user_line(message.uuid, &text);
    if !message.interrupt {
        return line;
    }
    let request = json!({ "subtype": "interrupt" });
    let control = json!({ "type": "control_request", "request_id": message.uuid, "request": request });
    format!("{control}\n{line}")
}

/// Reads a line of stdout: a result ends the turn, and a repeated message of the user confirms the message.
pub(in super::super) fn event(line: &str) -> Option<InputEvent> {
    let may_matter = line.contains("\"result\"") || line.contains("\"isReplay\"");
    if !may_matter {
        return None;
    }
    let Ok(Value::Object(fields)) = serde_json::from_str(line) else {
        // A result that is too long is cut, and its beginning shows its type.
        return line.starts_with(r#"{"type":"result""#).then_some(InputEvent::TurnEnded);
    };
    match fields.get("type").and_then(Value::as_str) {
        Some("result") => Some(InputEvent::TurnEnded),
        Some("user") if fields.get("isReplay") == Some(&Value::Bool(true)) => {
            let id = fields.get("uuid").and_then(Value::as_str)?;
            id.parse().ok().map(InputEvent::Confirmed)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_no_command_and_may_interrupt() {
        let id = Uuid::from_u128(7);
        let message = |text: &str, interrupt| InputMessage { uuid: id, text: text.to_owned(), interrupt };
        let lines = message_lines(&message("/clear", true));
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0]["request"]["subtype"], "interrupt");
        assert_eq!(lines[1]["message"]["content"], " /clear");
        assert_eq!(lines[1]["uuid"], id.to_string());
        let lines = message_lines(&message("two\nlines", false));
        assert_eq!(lines.lines().count(), 1);
        assert!(lines.ends_with('\n'));
    }

    #[test]
    fn results_and_repeated_messages_are_recognised() {
        let id = Uuid::from_u128(7);
        for (line, expected) in [
            (r#"{"type":"result","subtype":"success"}"#.to_owned(), Some(InputEvent::TurnEnded)),
            (r#"{"type":"result","result":"cut he"#.to_owned(), Some(InputEvent::TurnEnded)),
            (
                format!(r#"{{"type":"user","message":{{}},"uuid":"{id}","isReplay":true}}"#),
                Some(InputEvent::Confirmed(id)),
            ),
            (format!(r#"{{"type":"user","uuid":"{id}","isReplay":false}}"#), None),
            (r#"{"type":"user","message":{"content":"{\"type\":\"result\"}"}}"#.to_owned(), None),
            (r#"{"type":"assistant","message":{"content":[{"type":"result"}]}}"#.to_owned(), None),
            ("not JSON with \"result\"".to_owned(), None),
        ] {
            assert_eq!(event(&line), expected, "{line}");
        }
    }
}
