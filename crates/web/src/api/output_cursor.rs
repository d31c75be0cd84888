//! The position of a client in the output of several jobs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use cowhand_core::event::{Event, Fact, JobOutput};
use cowhand_core::id::JobId;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;

/// Number of lines that a client has of each job that it follows. As text: `JOB:LINES`, separated by commas.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct OutputCursor(BTreeMap<JobId, u64>);

impl OutputCursor {
    /// Header of an answer with the position at which the answer begins.
    pub const HEADER: &str = "cowhand-output-after";

    pub(super) fn get(&self, job: &JobId) -> Option<u64> {
        self.0.get(job).copied()
    }

    pub(super) fn jobs(&self) -> impl Iterator<Item = (&JobId, u64)> {
        self.0.iter().map(|(job, lines)| (job, *lines))
    }

    /// Records that the client has the output of a job up to this line.
    pub fn on_output(&mut self, output: &JobOutput) {
        self.0.insert(output.job.clone(), output.line);
    }

    /// Adds the job of an event when its first attempt starts, and removes the job when it ends.
    pub fn on_event(&mut self, event: &Event) {
        let Some(job) = &event.job else { return };
        match event.fact {
            Fact::JobStarted { attempt: 1, .. } => {
                // In the answer, this event is followed by the output of the job from its first line, even if the job
                // already had output when the answer began.
                self.0.insert(job.clone(), 0);
            }
            Fact::JobCompleted { .. } | Fact::JobFailed { .. } | Fact::JobCancelled { .. } => {
                self.0.remove(job);
            }
            _ => {}
        }
    }
}

impl FromIterator<(JobId, u64)> for OutputCursor {
    fn from_iter<T: IntoIterator<Item = (JobId, u64)>>(positions: T) -> Self {
        Self(positions.into_iter().collect())
    }
}

impl fmt::Display for OutputCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (job, lines)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(formatter, "{comma}{job}:{lines}")?;
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not JOB:LINES")]
pub struct CursorError(String);

impl FromStr for OutputCursor {
    type Err = CursorError;

    fn from_str(text: &str) -> Result<Self, CursorError> {
        let position = |text: &str| {
            Some(text.split_once(':')?)
                .and_then(|(job, lines)| Some((job.parse().ok()?, lines.parse().ok()?)))
        };
        let parts = text.split(',').filter(|part| !part.is_empty());
        parts.map(|part| position(part).ok_or_else(|| CursorError(part.to_owned()))).collect()
    }
}

impl TryFrom<String> for OutputCursor {
    type Error = CursorError;

    fn try_from(text: String) -> Result<Self, CursorError> {
        text.parse()
    }
}

impl JsonSchema for OutputCursor {
    fn schema_name() -> Cow<'static, str> {
        "OutputCursor".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_read_as_it_is_written() {
        for text in ["", "job-2026-01-05-a1b2c3:7", "job-2026-01-05-a1b2c3:7,job-2026-01-05-a1b2c4:0"] {
            assert_eq!(text.parse::<OutputCursor>().unwrap().to_string(), text);
        }
        for wrong in ["7", "job-2026-01-05-a1b2c3", "job-2026-01-05-a1b2c3:-1", "job:1"] {
            assert!(wrong.parse::<OutputCursor>().is_err(), "{wrong}");
        }
    }
}
