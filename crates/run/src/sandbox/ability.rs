//! The kinds of sandbox that this machine supports.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use cowhand_core::sandbox::SandboxKind;

use super::SandboxError;
use super::landlock;

/// Returns why this kind of sandbox is not available on this machine; `None` if it is.
pub fn refusal(kind: SandboxKind) -> Option<SandboxError> {
    match kind {
        // The container engine and the image can change at any time, so they are checked before each attempt.
        SandboxKind::None | SandboxKind::Docker => None,
        SandboxKind::Landlock => landlock::refusal(),
        SandboxKind::Bubblewrap => bubblewrap().err(),
    }
}

/// Returns the kernel's version of Landlock, or why Landlock is not available.
pub fn landlock() -> Result<String, SandboxError> {
    let version = landlock::version();
    match landlock::refusal() {
        None => Ok(version.unwrap_or_else(|| "available".to_owned())),
        Some(refusal) => Err(refusal),
    }
}

/// Checks that bubblewrap can create the needed namespaces, and returns its version.
pub fn bubblewrap() -> Result<String, SandboxError> {
    // A successful check is kept, because the support does not disappear while the machine runs and a check takes some
    // milliseconds.
    static BWRAP_VERSION: OnceLock<String> = OnceLock::new();
    if let Some(version) = BWRAP_VERSION.get() {
        return Ok(version.clone());
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
    let trial = run(&namespaces)?;
    if !trial.status.success() {
        let message = String::from_utf8_lossy(&trial.stderr);
        let message = message.trim();
        let hint = if message.contains("uid map") || message.contains("namespace") {
            "; user namespaces may be turned off for ordinary users (sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces)"
        } else {
            ""
        };
        return Err(SandboxError::NoNamespaces { message: message.to_owned(), hint });
    }
    let version = run(&["--version"])?;
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    Ok(BWRAP_VERSION.get_or_init(|| version).clone())
}
