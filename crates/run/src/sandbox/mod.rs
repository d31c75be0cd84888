//! Sandboxes: what holds an agent's processes, one file for each kind.
//!
//! The daemon works out what is allowed (`allow`) and whether this machine can enforce it (`ability`); all of it stands
//! in the attempt's `start.json`. The keeper then starts, in place of the agent, something that encloses itself and
//! becomes the agent: `cowhand confine` for Landlock, `bwrap` for bubblewrap; or `cowhand contain`, which stands for one in a
//! container.

pub mod ability;
mod allow;
mod bubblewrap;
pub mod confine;
pub mod docker;
pub mod forward;
mod git;
mod kept;
mod landlock;
mod making;
mod others;
pub mod proxy;
mod rights;
mod seccomp;
mod sockets;
mod writable;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use cowhand_core::sandbox::{Reaches, SandboxKind};

use super::attempt::Attempt;
use super::start::SandboxPlan;
pub use allow::{SandboxInput, enclose, temporary};
pub use making::{Making, failure, try_out};
pub use writable::writable;

impl SandboxPlan {
    /// Why it cannot be had at the moment, where that takes asking somebody.
    pub async fn ready(&self) -> Result<(), String> {
        let Some(container) = &self.container else { return Ok(()) };
        let ready = docker::ready(container).await;
        ready.map_err(|why| format!("`sandbox: {}` cannot be enforced: {why}", self.kind))
    }
}

/// What is started in place of the agent.
pub(super) fn argv(
    enclosure: &SandboxPlan,
    attempt: &Attempt,
    directory: &Path,
    argv: &[String],
) -> io::Result<Vec<OsString>> {
    let own = std::env::current_exe()?;
    match enclosure.kind {
        SandboxKind::None => Ok(argv.iter().map(Into::into).collect()),
        SandboxKind::Landlock => Ok(vec![own.into(), confine::CONFINE_VERB.into(), attempt.folder().into()]),
        SandboxKind::Bubblewrap => {
            let way_out = enclosure.has_proxy().then(|| way_out(enclosure, attempt)).transpose()?;
            Ok(bubblewrap::argv(enclosure, directory, argv, &own, way_out.as_deref()))
        }
        SandboxKind::Docker => {
            Ok(vec![own.into(), docker::contain::CONTAIN_VERB.into(), attempt.folder().into()])
        }
    }
}

/// Starts the proxy, with credentials that nobody finds afterwards.
fn way_out(enclosure: &SandboxPlan, attempt: &Attempt) -> io::Result<PathBuf> {
    let credentials = if enclosure.gateway { Some(attempt.take_credentials()?) } else { None };
    let hosts = match &enclosure.network {
        Reaches::Hosts(hosts) => hosts.clone(),
        Reaches::Nobody | Reaches::Ports(_) | Reaches::Everybody => Vec::new(),
    };
    proxy::start(attempt.folder(), attempt.append("stderr")?, hosts, credentials.as_ref())
}
