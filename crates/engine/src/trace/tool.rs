//! The tool calls of a job, read from its output, for the spans of its trace. A tool call lasts until its answer.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;

use cowhand_core::cut::cut;
use cowhand_core::output::OutputMessage;
use jiff::Timestamp;
use memchr::memmem;

use cowhand_run::jsonl::Jsonl;

/// Largest number of calls with a span; further calls are only counted.
const MAX_TOOL_SPANS: usize = 1000;
/// Longest name of a tool, in bytes. The agent chooses the name, so it can have any length.
const MAX_NAME: usize = 100;
/// Longest id of a call, in bytes; a longer id is treated as missing.
const MAX_ID: usize = 256;

/// Start and end of an attempt or of a span.
pub(super) type TimeSpan = (Timestamp, Timestamp);

#[derive(Debug, PartialEq)]
pub(super) struct Call {
    /// Index of its attempt in the list of the job's attempts.
    pub(super) attempt: usize,
    pub(super) name: String,
    pub(super) start: Timestamp,
    /// Time of the answer; `None` if there was no answer.
    pub(super) end: Option<Timestamp>,
    pub(super) failed: bool,
}

/// The tool calls of a job. Inputs and answers are not kept.
#[derive(Debug)]
pub(super) struct Calls {
    pub(super) all: Vec<Call>,
    /// Number of all calls, including those without a span.
    pub(super) count: u64,
    open: HashMap<Option<String>, usize>,
    attempts: Vec<TimeSpan>,
}

impl Calls {
    /// Creates an empty list for these attempts, in their order.
    pub(super) fn within(attempts: Vec<TimeSpan>) -> Self {
        Self { all: Vec::new(), count: 0, open: HashMap::new(), attempts }
    }

    /// Reads the output in parts on a blocking thread, so that a large output does not block other tasks, and the
    /// future can be dropped between two parts.
    pub(super) async fn read(&mut self, output: PathBuf) -> io::Result<()> {
        let mut jsonl = Jsonl::after(output, 0);
        loop {
            let (part, read_on) = tokio::task::spawn_blocking(move || (jsonl.next_lines(), jsonl))
                .await
                .map_err(io::Error::other)?;
            jsonl = read_on;
            let part = part?;
            if part.is_empty() {
                return Ok(());
            }
            self.add_lines(&part);
        }
    }

    fn add_lines(&mut self, part: &[u8]) {
        let finder = memmem::Finder::new(b"\"tool_");
        for line in part.split(|byte| *byte == b'\n') {
            // This check is fast. Most lines are long messages of other types.
            if finder.find(line).is_some()
                && let Ok(Some(message)) = OutputMessage::read_line(&String::from_utf8_lossy(line))
            {
                self.add(message);
            }
        }
    }

    fn add(&mut self, message: OutputMessage) {
        let at = message.timestamp();
        match message {
            OutputMessage::ToolUse { tool_name, tool_use_id, .. } => {
                self.count += 1;
                if let (Some(at), true) = (at, self.all.len() < MAX_TOOL_SPANS)
                    && let Some((attempt, at)) = self.attempt_at(at)
                {
                    self.open.insert(usable_id(tool_use_id), self.all.len());
                    let name = cut(&tool_name, 0, MAX_NAME);
                    self.all.push(Call { attempt, name, start: at, end: None, failed: false });
                }
            }
            OutputMessage::ToolResult { tool_use_id, success, error, .. } => {
                if let Some(at) = at
                    && let Some(index) = self.open.remove(&usable_id(tool_use_id))
                {
                    let call = &mut self.all[index];
                    let (_, latest) = self.attempts[call.attempt];
                    call.end = Some(at.min(latest).max(call.start));
                    call.failed = success == Some(false) || error.is_some();
                }
            }
            OutputMessage::System { .. } | OutputMessage::Assistant { .. } | OutputMessage::Error { .. } => {}
        }
    }

    /// Returns the index of the attempt of a call, and the time of the call within that attempt; `None` if the job has
    /// no attempt. Agents write their own times, so a time outside of the attempt is moved into it.
    fn attempt_at(&self, at: Timestamp) -> Option<(usize, Timestamp)> {
        let last = self.attempts.iter().rposition(|(start, _)| *start <= at).unwrap_or_default();
        let (earliest, latest) = *self.attempts.get(last)?;
        Some((last, at.min(latest).max(earliest)))
    }
}

fn usable_id(id: Option<String>) -> Option<String> {
    id.filter(|id| id.len() <= MAX_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn line(second: i64, rest: &str) -> String {
        format!("{{\"timestamp\":\"{}\",{rest}}}\n", at(second))
    }

    fn calls(attempts: &[(i64, i64)], lines: &[String]) -> Calls {
        let mut calls = Calls::within(attempts.iter().map(|(from, to)| (at(*from), at(*to))).collect());
        calls.add_lines(lines.concat().as_bytes());
        calls
    }

    #[test]
    fn answers_are_matched_to_their_calls() {
        let used =
            |id: &str| format!(r#""type":"tool_use","tool_name":"Bash","tool_use_id":"{id}","input":{{}}"#);
        let answered = |id: &str| format!(r#""type":"tool_result","tool_use_id":"{id}","result":1"#);
        let lines = [
            line(1, &used("a")),
            line(2, &used("b")),
            "no json, but \"tool_use\"\n".to_owned(),
            line(3, &(answered("b") + r#","success":false"#)),
            line(4, &answered("a")),
            line(5, &answered("never asked")),
            line(6, r#""type":"tool_use","tool_name":"Read""#),
            line(7, r#""type":"tool_result","result":null"#),
            // The same id in the next attempt is another call; times outside of the attempt are moved into it.
            line(12, &used("a")),
            line(99, &answered("a")),
            line(15, &used("c")),
        ];
        let calls = calls(&[(0, 8), (10, 20)], &lines);
        let seen: Vec<_> = calls.all.iter().map(|c| (c.attempt, c.start, c.end, c.failed)).collect();
        assert_eq!(
            seen,
            [
                (0, at(1), Some(at(4)), false),
                (0, at(2), Some(at(3)), true),
                (0, at(6), Some(at(7)), false),
                (1, at(12), Some(at(20)), false),
                (1, at(15), None, false),
            ]
        );
        assert_eq!(calls.count, 5);
    }

    #[test]
    fn spans_and_names_are_limited() {
        let long = "x".repeat(5000);
        let lines: Vec<_> =
            (0..3000).map(|n| line(n, &format!(r#""type":"tool_use","tool_name":"{long}""#))).collect();
        let calls = calls(&[(0, 9)], &lines);
        assert_eq!((calls.all.len(), calls.count), (MAX_TOOL_SPANS, 3000));
        assert!(calls.all.iter().all(|call| call.name.len() <= MAX_NAME && call.start <= at(9)));
        assert_eq!(super::tests::calls(&[], &lines).all, [], "without an attempt no call gets a span");
    }
}
