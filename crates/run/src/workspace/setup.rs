//! The `setup` command, which prepares a workspace before an attempt.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use cowhand_core::duration;

use crate::child::{self, Bounds, ChildError};
use crate::minder::MindedCommand;

#[derive(Debug)]
pub struct Setup<'a> {
    /// The `cowhand` program, which runs the minder.
    pub minder: &'a Path,
    pub command: &'a [String],
    pub directory: &'a Path,
    /// Complete environment.
    pub environment: &'a [(String, String)],
    /// Timeout; `None` for no limit.
    pub timeout: Option<Duration>,
    pub stop: &'a AtomicBool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum SetupFailure {
    /// A message for people.
    CannotStart(String),
    /// The command failed or took too long: a message for people, with the end of its output if the command failed.
    Failed(String),
    /// A stop was requested.
    Stopped,
}

pub fn set_up(setup: &Setup<'_>) -> Result<(), SetupFailure> {
    let Some((program, arguments)) = setup.command.split_first() else { return Ok(()) };
    let sentence = |why: String| format!("`setup` ({program}) {why}");
    let not_started = |error| SetupFailure::CannotStart(sentence(format!("cannot be started: {error}")));
    let mut minded = MindedCommand::new(setup.minder, program, arguments).map_err(not_started)?;
    minded.command.current_dir(setup.directory).env_clear();
    minded.command.envs(setup.environment.iter().map(|(name, value)| (name, value)));
    let timeout = setup.timeout;
    let failed = |why: String| SetupFailure::Failed(sentence(why));
    match child::run_minded(minded, &Bounds { timeout, max_stdout_bytes: 0, stop: setup.stop }) {
        Ok(ran) if ran.status.success() => Ok(()),
        Ok(ran) => {
            let printed = [ran.stdout_end.as_str(), ran.stderr_end.as_str()];
            let printed: Vec<&str> = printed.into_iter().filter(|text| !text.is_empty()).collect();
            let printed = match printed.join("\n") {
                text if text.is_empty() => text,
                text => format!(": {text}"),
            };
            Err(failed(format!("ended with {}{printed}", ran.status)))
        }
        Err(ChildError::CannotStart(error)) => Err(not_started(error)),
        Err(ChildError::Io(error)) => {
            Err(SetupFailure::CannotStart(sentence(format!("cannot be waited for: {error}"))))
        }
        Err(ChildError::TimedOut(limit)) => {
            Err(failed(format!("took longer than {}", duration::rounded_from_seconds(limit.as_secs()))))
        }
        Err(ChildError::Stopped) => Err(SetupFailure::Stopped),
    }
}
