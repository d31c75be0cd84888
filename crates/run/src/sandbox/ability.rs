//! What this machine can enforce.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use cowhand_core::sandbox::SandboxKind;

use super::landlock;

/// Why this kind cannot be had here, if it cannot.
pub fn refusal(kind: SandboxKind) -> Option<String> {
    match kind {
        // Whether there is an engine with the image changes from job to job, so it is asked before each.
        SandboxKind::None | SandboxKind::Docker => None,
        SandboxKind::Landlock => landlock::refusal(),
        SandboxKind::Bubblewrap => bubblewrap().err(),
    }
}

/// In a few words, for people.
pub fn landlock() -> Result<String, String> {
    let told = landlock::version();
    match landlock::refusal() {
        None => Ok(told.unwrap_or_else(|| "it works".to_owned())),
        Some(refusal) => Err(refusal),
    }
}

/// What the program says about itself, once it has made the namespaces that we ask it for.
pub fn bubblewrap() -> Result<String, String> {
    // A machine does not lose this while it runs, and asking takes some milliseconds.
    static BWRAP_VERSION: OnceLock<String> = OnceLock::new();
    if let Some(said) = BWRAP_VERSION.get() {
        return Ok(said.clone());
    }
    let run = |arguments: &[&str]| {
        Command::new("bwrap").args(arguments).stdin(Stdio::null()).output().map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                "the program bwrap was not found on PATH; install bubblewrap".to_owned()
            } else {
                format!("bwrap cannot be run: {error}")
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
        return Err(format!("bwrap cannot make namespaces here: {said}{hint}"));
    }
    let said = run(&["--version"])?;
    let said = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    Ok(BWRAP_VERSION.get_or_init(|| said).clone())
}
