//! Sandboxes that this machine supports.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use cowhand_core::sandbox::SandboxKind;

use super::SandboxError;
use super::landlock;

/// Returns why this kind is not available here, if so.
pub fn refusal(kind: SandboxKind) -> Option<SandboxError> {
    match kind {
        // The engine and its image can change at any time, so they are checked before each job.
        SandboxKind::None | SandboxKind::Docker => None,
        SandboxKind::Landlock => landlock::refusal(),
        SandboxKind::Bubblewrap => bubblewrap().err(),
    }
}

/// Describes the support of Landlock.
pub fn landlock() -> Result<String, SandboxError> {
    let version = landlock::version();
    match landlock::refusal() {
        None => Ok(version.unwrap_or_else(|| "it works".to_owned())),
        Some(refusal) => Err(refusal),
    }
}

/// Returns the version of bubblewrap, after it has created the needed namespaces.
pub fn bubblewrap() -> Result<String, SandboxError> {
    // The support does not disappear while the machine runs, and the check takes some milliseconds.
    static BWRAP_VERSION: OnceLock<String> = OnceLock::new();
    if let Some(said) = BWRAP_VERSION.get() {
        return Ok(said.clone());
    }
    let run = |arguments: &[&str]| {
        Command::new("bwrap").args(arguments).stdin(Stdio::null()).output().map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                SandboxError::NoBubblewrap
            } else {
                SandboxError::BubblewrapNotRun(error)
            }
        })
    };
    let namespaces = [
        "--unshare-all",
        "--unshare-user",
        "--die-with-parent",
        "--cap-drop",
        "ALL",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--",
        "true",
    ];
    let tried = run(&namespaces)?;
    if !tried.status.success() {
        let said = String::from_utf8_lossy(&tried.stderr);
        let said = said.trim();
        let hint = if said.contains("uid map") || said.contains("namespace") {
            "; user namespaces may be turned off for ordinary users (sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces)"
        } else {
            ""
        };
        return Err(SandboxError::NoNamespaces { said: said.to_owned(), hint });
    }
    let said = run(&["--version"])?;
    let said = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    Ok(BWRAP_VERSION.get_or_init(|| said).clone())
}
