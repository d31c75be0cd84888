//! `input.jsonl`: the messages that the daemon passes to a running agent, one JSON object for each line. Only the daemon
//! that runs the attempt appends lines. The keeper reads them and feeds the agent.

use std::collections::HashSet;
use std::io::{self, Read, Seek, SeekFrom, Write};

use uuid::Uuid;

use super::Attempt;
use crate::input::InputMessage;

pub(super) const INPUT_FILE: &str = "input.jsonl";

impl Attempt {
    /// Appends the messages that the file does not contain yet. An earlier daemon may have ended while it wrote a line.
    /// The keeper has not read such a part of a line, so it is removed.
    pub fn pass_on(&self, messages: &[InputMessage]) -> io::Result<()> {
        let mut file = self.open_to_append(INPUT_FILE)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |end| end + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64)?;
            bytes.truncate(whole);
        }
        let known: HashSet<Uuid> = messages_in(&bytes).map(|message| message.uuid).collect();
        let mut lines = Vec::new();
        for message in messages.iter().filter(|message| !known.contains(&message.uuid)) {
            serde_json::to_writer(&mut lines, message)?;
            lines.push(b'\n');
        }
        if lines.is_empty() { Ok(()) } else { file.write_all(&lines) }
    }
}

/// Reads the messages in whole lines. The daemon alone writes these lines, so a line that cannot be read is ignored.
fn messages_in(bytes: &[u8]) -> impl Iterator<Item = InputMessage> {
    bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}

/// Reads the messages of `input.jsonl` as they are appended.
#[derive(Debug, Default)]
pub(crate) struct InputReader {
    /// Number of bytes that are read: the file up to the end of a line.
    position: u64,
}

impl InputReader {
    /// Returns the new messages. The file need not exist.
    pub(crate) fn read(&mut self, attempt: &Attempt) -> io::Result<Vec<InputMessage>> {
        let mut file = match attempt.open(INPUT_FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            file => file?,
        };
        file.seek(SeekFrom::Start(self.position))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |end| end + 1);
        self.position += whole as u64;
        Ok(messages_in(&bytes[..whole]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(number: u128, text: &str) -> InputMessage {
        InputMessage { uuid: Uuid::from_u128(number), text: text.to_owned(), interrupt: number == 2 }
    }

    #[test]
    fn each_message_is_passed_on_once_in_whole_lines() {
        let folder = tempfile::tempdir().unwrap();
        let attempt = Attempt::new(folder.path(), &"job-2026-01-05-000001".parse().unwrap(), 1);
        attempt.make_folder().unwrap();
        let (one, two, three) = (message(1, "one"), message(2, "two\nlines"), message(3, "three"));
        let mut reader = InputReader::default();
        assert_eq!(reader.read(&attempt).unwrap(), []);
        attempt.pass_on(std::slice::from_ref(&one)).unwrap();
        assert_eq!(reader.read(&attempt).unwrap(), std::slice::from_ref(&one));
        // A daemon ended while it wrote the second message.
        let whole = serde_json::to_vec(&two).unwrap();
        attempt.append(INPUT_FILE).unwrap().write_all(&whole[..20]).unwrap();
        assert_eq!(reader.read(&attempt).unwrap(), []);
        attempt.pass_on(&[one, two.clone(), three.clone()]).unwrap();
        assert_eq!(reader.read(&attempt).unwrap(), [two.clone(), three]);
        attempt.pass_on(&[two]).unwrap();
        assert_eq!(reader.read(&attempt).unwrap(), []);
    }
}
