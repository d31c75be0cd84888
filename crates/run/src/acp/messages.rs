//! The output of the ACP client on its stdout: the lines of the agent unchanged, and lines of the client, which have
//! the key `cowhand`. A line of the agent that has this key, and an update that is too long, become a note of the
//! client. Lines of the client contain no parameters of its requests, because parameters may be secret.

use std::io::{self, Write};

use cowhand_core::job::ErrorKind;
use serde_json::{Value, json};
use uuid::Uuid;

/// Key of the client's own lines. Its value is one of the words below.
pub const CLIENT_KEY: &str = "cowhand";
/// A request of the client, with `id` and `method`.
pub const REQUEST: &str = "asked";
/// The answer to a request of the agent for permission, with its reason.
pub const PERMISSION: &str = "permission";
/// A message that the client has sent to the agent, with its `uuid`.
pub const MESSAGE: &str = "message";
/// The end of a turn. The client then waits for messages, or for the end of its input.
pub const TURN_ENDED: &str = "turn_ended";
pub const NOTE: &str = "note";
/// The last line, if the exchange failed.
pub const FAILED: &str = "failed";

/// Destination of the lines. A query for an agent's name and version writes no lines.
#[derive(Debug, Clone, Copy)]
pub(super) enum MessageSink {
    Stdout,
    Nowhere,
}

impl MessageSink {
    pub(super) fn raw(self, line: &str) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(line.as_bytes())?;
                stdout.write_all(b"\n")?;
                stdout.flush()
            }
            Self::Nowhere => Ok(()),
        }
    }

    fn client_line(self, kind: &str, mut fields: Value) -> io::Result<()> {
        let mut line = json!({ CLIENT_KEY: kind });
        if let (Some(line), Some(fields)) = (line.as_object_mut(), fields.as_object_mut()) {
            line.append(fields);
        }
        self.raw(&line.to_string())
    }

    pub(super) fn request(self, id: u64, method: &str) -> io::Result<()> {
        self.client_line(REQUEST, json!({ "id": id, "method": method }))
    }

    pub(super) fn permission(self, id: &Value, answer: &Value, why: &str) -> io::Result<()> {
        self.client_line(PERMISSION, json!({ "id": id, "answer": answer, "why": why }))
    }

    pub(super) fn message(self, message: Uuid) -> io::Result<()> {
        self.client_line(MESSAGE, json!({ "uuid": message }))
    }

    pub(super) fn turn_ended(self) -> io::Result<()> {
        self.client_line(TURN_ENDED, json!({}))
    }

    pub(super) fn note(self, text: &str) -> io::Result<()> {
        self.client_line(NOTE, json!({ "text": text }))
    }

    pub(super) fn failed(self, kind: ErrorKind, message: &str) -> io::Result<()> {
        self.client_line(FAILED, json!({ "kind": kind, "message": message }))
    }
}
