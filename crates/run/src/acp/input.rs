//! The input of the ACP client: one JSON object for each line, first the prompt and then messages. The client sends
//! each as a prompt of the session, one after the other, and ends when its input is closed.

use std::io;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::messages::{CLIENT_KEY, MESSAGE, TURN_ENDED};
use crate::input::{InputEvent, InputMessage};

/// One line of the input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum InputLine {
    Prompt(String),
    Message(InputMessage),
}

pub(crate) fn prompt_line(text: &str) -> String {
    line(&InputLine::Prompt(text.to_owned()))
}

pub(crate) fn message_line(message: &InputMessage) -> String {
    line(&InputLine::Message(message.clone()))
}

fn line(input: &InputLine) -> String {
    // The input consists of texts, which can always be written as JSON.
    serde_json::to_string(input).unwrap_or_default() + "\n"
}

/// Reads a line of the client's stdout.
pub(crate) fn event(line: &str) -> Option<InputEvent> {
    if !line.contains(CLIENT_KEY) {
        return None;
    }
    let fields: Value = serde_json::from_str(line).ok()?;
    match fields.get(CLIENT_KEY)?.as_str()? {
        TURN_ENDED => Some(InputEvent::TurnEnded),
        MESSAGE => fields.get("uuid")?.as_str()?.parse::<Uuid>().ok().map(InputEvent::Confirmed),
        _ => None,
    }
}

/// The input of the client.
pub(super) struct ClientInput {
    pub(super) prompt: String,
    /// Messages until the end of the input; `None` if the input is only the prompt.
    pub(super) messages: Option<mpsc::UnboundedReceiver<InputMessage>>,
}

impl ClientInput {
    /// Reads the prompt from stdin.
    pub(super) async fn read(has_messages: bool) -> io::Result<Self> {
        if !has_messages {
            return Ok(Self { prompt: io::read_to_string(io::stdin())?, messages: None });
        }
        let mut lines = lines_of_stdin()?;
        let Some(InputLine::Prompt(prompt)) = lines.recv().await else {
            return Err(io::Error::other("the first line of the input is not a prompt"));
        };
        let (sender, messages) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                let InputLine::Message(message) = line else { continue };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        Ok(Self { prompt, messages: Some(messages) })
    }
}

/// Reads the lines of stdin. The receiver ends with the input.
fn lines_of_stdin() -> io::Result<mpsc::UnboundedReceiver<InputLine>> {
    let (sender, lines) = mpsc::unbounded_channel();
    // Not `tokio::io::stdin`, whose thread would block the end of the client.
    let stdin = std::os::fd::AsFd::as_fd(&io::stdin()).try_clone_to_owned()?;
    let stdin = tokio::net::unix::pipe::Receiver::from_owned_fd(stdin)?;
    tokio::spawn(async move {
        let mut input = BufReader::new(stdin).lines();
        while let Ok(Some(line)) = input.next_line().await {
            let Ok(line) = serde_json::from_str(&line) else { continue };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_client_are_recognised() {
        let id = Uuid::from_u128(7);
        let text = "a \"b\"\nc";
        let message = InputMessage { uuid: id, text: text.to_owned(), interrupt: true };
        for (line, expected) in [
            (prompt_line(text), InputLine::Prompt(text.to_owned())),
            (message_line(&message), InputLine::Message(message)),
        ] {
            assert_eq!(line.lines().count(), 1, "{line}");
            assert_eq!(serde_json::from_str::<InputLine>(&line).unwrap(), expected);
        }
        for (line, expected) in [
            (r#"{"cowhand":"turn_ended"}"#.to_owned(), Some(InputEvent::TurnEnded)),
            (format!(r#"{{"cowhand":"message","uuid":"{id}"}}"#), Some(InputEvent::Confirmed(id))),
            (r#"{"cowhand":"asked","id":3,"method":"session/prompt"}"#.to_owned(), None),
            (r#"{"jsonrpc":"2.0","params":{"text":"cowhand"}}"#.to_owned(), None),
        ] {
            assert_eq!(event(&line), expected, "{line}");
        }
    }
}
