//! The errors of files of herdctl that cannot be imported.

use std::io;

use cowhand_core::id::JobId;
use cowhand_core::job::RecordError;

/// Reason why a file of herdctl cannot be imported. The message is for people.
#[derive(Debug, thiserror::Error)]
pub(super) enum HerdctlFileError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it no longer exists")]
    Gone,
    #[error("line {line}: {message}")]
    Yaml { line: u32, message: String },
    #[error("it is not YAML")]
    NotYaml,
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("`{key}: {text}` cannot be read")]
    Field { key: String, text: String },
    #[error("it has no `{0}`, or its value has the wrong form")]
    Missing(String),
    #[error("it describes another job, {0}")]
    OtherJob(JobId),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("{0:?} is not a valid name of an agent")]
    InvalidAgentName(String),
    #[error("{0:?} is not a valid name of a schedule")]
    InvalidScheduleName(String),
    #[error("agents.{agent}.schedules.{name}: {why}")]
    InSchedule { agent: String, name: String, why: Box<Self> },
}
