//! `cowhand confine FOLDER`, for Landlock: drops all rights that the sandbox plan of the attempt does not grant, and
//! executes the agent.
//!
//! The keeper starts this program instead of restricting its child between fork and exec, where little code is safe.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use super::EXIT_CANNOT_START;
use super::landlock;
use super::seccomp::{self, Confinement};
use crate::attempt::Attempt;
use crate::start::{SandboxPlan, StartSpec};
use cowhand_system::stderr;

pub(super) const CONFINE_VERB: &str = "confine";

/// Restricts the process and executes the agent. Returns only after an error; then the agent has not run.
pub fn confine(folder: &Path) -> ExitCode {
    let why = match prepared(folder) {
        Ok((start, sandbox)) => {
            let arguments = start.argv.get(1..).unwrap_or_default();
            let error = Command::new(&sandbox.program).args(arguments).exec();
            format!("cannot start {}: {error}", sandbox.program.display())
        }
        Err(why) => format!("the agent is not started, because its sandbox cannot be set up: {why}"),
    };
    stderr::write_line(format!("cowhand: {why}"));
    ExitCode::from(EXIT_CANNOT_START)
}

/// Why a process could not restrict itself.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConfineError {
    #[error(transparent)]
    Start(#[from] io::Error),
    #[error("start.json of the attempt has no sandbox")]
    NoSandbox,
    #[error("capabilities: {0}")]
    Capabilities(rustix::io::Errno),
    #[error("Landlock: {0}")]
    Landlock(#[from] ::landlock::RulesetError),
    #[error("seccomp: {0}")]
    Seccomp(#[from] seccompiler::Error),
}

fn prepared(folder: &Path) -> Result<(StartSpec, SandboxPlan), ConfineError> {
    let mut start = Attempt::at(folder).and_then(|attempt| attempt.start())?;
    let sandbox = start.sandbox.take().ok_or(ConfineError::NoSandbox)?;
    give_up_capabilities().map_err(ConfineError::Capabilities)?;
    landlock::restrict(&sandbox)?;
    seccomp::restrict(Confinement::Landlock(&sandbox.network))?;
    Ok((start, sandbox))
}

/// Drops all capabilities. Without them, root has special rights only for files that it owns, like any other user.
/// Other users usually have no capabilities.
fn give_up_capabilities() -> rustix::io::Result<()> {
    let own = capabilities(None)?;
    if own.effective.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().iter() {
            match remove_capability_from_bounding_set(capability) {
                // `EINVAL` means that this kernel does not know the capability.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(error),
            }
        }
    }
    clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
}
