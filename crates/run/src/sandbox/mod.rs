//! Sandboxes: restrictions on an agent's processes. The kinds are in `landlock`, `bubblewrap` and `docker`.
//!
//! The daemon builds the sandbox plan (`allow`) and checks that this machine can enforce it (`ability`). The plan is
//! part of the attempt's `start.json`. The keeper then starts another program instead of the agent. `cowhand confine`
//! (Landlock) and `bwrap` (bubblewrap) restrict themselves and execute the agent. `cowhand contain` (Docker) runs the
//! agent in a container, and forwards its input, output and signals.

pub mod ability;
mod allow;
mod bubblewrap;
mod bwrap_status;
pub mod confine;
pub mod docker;
mod error;
pub mod forward;
mod git;
mod hidden;
mod landlock;
mod other_processes;
mod protected;
pub mod proxy;
mod rights;
mod seccomp;
mod sockets;
mod writable;

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use cowhand_core::sandbox::{NetworkAccess, SandboxKind};

use super::attempt::Attempt;
use super::start::{SandboxPlan, StartSpec};
pub use allow::{SandboxInput, resolve_plan, temporary};
pub use bwrap_status::{BwrapStatus, failure, try_out};
pub use error::SandboxError;
pub use hidden::hidden_paths;
pub use writable::writable;

/// Exit code if the agent is not started. Shells use it for a command that cannot be run.
const EXIT_CANNOT_START: u8 = 126;

impl SandboxPlan {
    /// Checks that the sandbox is available now, for kinds that depend on a service.
    pub async fn ready(&self) -> Result<(), SandboxError> {
        let Some(container) = &self.container else { return Ok(()) };
        let ready = docker::ready(container).await;
        ready.map_err(|why| SandboxError::of(self.kind)(why.into()))
    }
}

/// Returns the command that is started instead of the agent; without a sandbox, the command of the agent. Starts the
/// proxy if the plan needs one.
pub(super) fn argv(sandbox: &SandboxPlan, attempt: &Attempt, start: &StartSpec) -> io::Result<Vec<OsString>> {
    let (directory, argv) = (&start.directory, &start.argv);
    let cowhand = start.program.clone().map_or_else(std::env::current_exe, Ok)?;
    match sandbox.kind {
        SandboxKind::None => Ok(argv.iter().map(Into::into).collect()),
        SandboxKind::Landlock => {
            Ok(vec![cowhand.into(), confine::CONFINE_VERB.into(), attempt.folder().into()])
        }
        SandboxKind::Bubblewrap => {
            let socket = sandbox.has_proxy().then(|| start_proxy(sandbox, attempt)).transpose()?;
            Ok(bubblewrap::argv(sandbox, directory, argv, &cowhand, socket.as_deref()))
        }
        SandboxKind::Docker => {
            Ok(vec![cowhand.into(), docker::contain::CONTAIN_VERB.into(), attempt.folder().into()])
        }
    }
}

/// Starts the proxy and returns the path of its socket. Removes the file with the credentials of the proxy.
fn start_proxy(sandbox: &SandboxPlan, attempt: &Attempt) -> io::Result<PathBuf> {
    let credentials = if sandbox.gateway { Some(attempt.take_credentials()?) } else { None };
    let hosts = match &sandbox.network {
        NetworkAccess::Hosts(hosts) => hosts.clone(),
        NetworkAccess::None | NetworkAccess::Ports(_) | NetworkAccess::All => Vec::new(),
    };
    proxy::start(attempt.folder(), attempt.append("stderr")?, hosts, credentials.as_ref())
}
