//! The position up to which the views have followed the event log. The file `views` in the state folder stores it for
//! the next daemon.
//!
//! The first line is the position in the event log. Each other line is a change that has failed, to be tried again:
//! `write JOB`, or `remove JOB N`, where N is the number of attempts of the job.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;

use cowhand_core::id::JobId;

use super::position::EventPosition;
use super::{Change, write_whole};
use crate::state::{StateFolder, read_small};

const PROGRESS_FILE: &str = "views";

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// The last event that the files show.
    pub(super) cursor: EventPosition,
    /// Changes that have failed.
    pub(super) behind: BTreeMap<JobId, Change>,
}

impl Progress {
    /// Reads the file. If it cannot be read, all events are processed again, which is harmless.
    pub(super) fn read(state: &StateFolder) -> Self {
        let text = read_small(&state.path().join(PROGRESS_FILE)).unwrap_or_default();
        let text = String::from_utf8(text).unwrap_or_default();
        Self::parse(&text).unwrap_or_default()
    }

    /// Parses the text of the file; `None` if a line is not valid.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let cursor = EventPosition::parse(lines.next()?)?;
        let behind = lines.map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            Some(match words[..] {
                ["write", job] => (job.parse().ok()?, Change::Write),
                ["remove", job, attempts] => (job.parse().ok()?, Change::Remove(attempts.parse().ok()?)),
                _ => return None,
            })
        });
        Some(Self { cursor, behind: behind.collect::<Option<_>>()? })
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", self.cursor);
        for (job, change) in &self.behind {
            // Writing to a string does not fail.
            let _ = match change {
                Change::Write => writeln!(text, "write {job}"),
                Change::Remove(attempts) => writeln!(text, "remove {job} {attempts}"),
            };
        }
        text
    }

    pub(super) fn write(&self, state: &StateFolder) -> io::Result<()> {
        write_whole(&state.path().join(PROGRESS_FILE), self.text().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_progress_is_read_as_it_was_written() {
        let jobs: [JobId; 2] =
            ["job-2026-01-05-aaaaaa", "job-2026-01-05-bbbbbb"].map(|id| id.parse().unwrap());
        let [one, other] = jobs;
        let behind = BTreeMap::from([(one, Change::Write), (other, Change::Remove(3))]);
        let cursor = EventPosition::parse("17 2026-01-05T08:00:00Z").unwrap();
        let progress = Progress { cursor, behind };
        let text = "17 2026-01-05T08:00:00Z\nwrite job-2026-01-05-aaaaaa\nremove job-2026-01-05-bbbbbb 3\n";
        assert_eq!(progress.text(), text);
        assert_eq!(Progress::parse(text), Some(progress));
        // Earlier versions wrote only the number.
        assert_eq!(
            Progress::parse("17"),
            EventPosition::parse("17").map(|cursor| Progress { cursor, behind: BTreeMap::new() })
        );
        for wrong in ["", "not a number", "17\nremove job-2026-01-05-bbbbbb", "17\nremove ../x 1", "17\nx"] {
            assert_eq!(Progress::parse(wrong), None, "{wrong:?}");
        }
    }
}
