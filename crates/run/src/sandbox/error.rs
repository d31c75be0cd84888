//! Errors of sandboxes.

use std::io;
use std::path::PathBuf;

use cowhand_core::sandbox::SandboxKind;

use super::bwrap_status::failure;
use super::docker::DockerError;

/// Why the sandbox of the config cannot be set up, so that the agent is not started. The message is for people.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("`sandbox: {kind}` cannot be enforced: {why}")]
    NotEnforced { kind: SandboxKind, why: Box<Self> },
    /// The config asks for a restriction that this kind of sandbox does not support.
    #[error("{0}")]
    Contradiction(&'static str),
    #[error("Landlock is not available: it needs Linux 6.12 or later with Landlock enabled ({0})")]
    NoLandlock(landlock::RulesetError),
    #[error("the program bwrap was not found on PATH; install bubblewrap")]
    NoBubblewrap,
    #[error("bwrap cannot be run: {0}")]
    BubblewrapNotRun(io::Error),
    #[error("bwrap cannot make namespaces here: {message}{hint}")]
    NoNamespaces { message: String, hint: &'static str },
    /// Output of a `bwrap` that ended before it started the program.
    #[error("{}", failure(.0))]
    BubblewrapFailed(String),
    #[error(transparent)]
    Docker(#[from] DockerError),
    #[error("`runtime: acp` needs cowhand's ACP client, which images do not contain; use another sandbox")]
    AcpInContainer,
    #[error("cannot start {0:?}: it was not found; is it installed and on the PATH?")]
    ProgramNotFound(String),
    #[error("{volume} contains {}, which is always hidden from agents", hidden.display())]
    ContainsHidden { volume: String, hidden: PathBuf },
    #[error("{path} is in {}, which is always hidden from agents", hidden.display())]
    LiesInHidden { path: String, hidden: PathBuf },
    #[error(
        "{} is in {}, where the agent may write, and Landlock cannot protect it from the agent; give the agent another `working_directory`, `isolation: worktree`, or `sandbox: bubblewrap`",
        kept.display(),
        write.display()
    )]
    ProtectedInWritable { kept: PathBuf, write: PathBuf },
    #[error("{path} cannot be used: {error}")]
    NotUsable { path: String, error: io::Error },
    #[error("{} is now a link; its agent replaced the directory", .0.display())]
    ReplacedByLink(PathBuf),
    #[error(
        "the agent may write in {}, which is or contains the home of this user; the agent could then write all files of the user; choose a smaller directory",
        .0.display()
    )]
    ContainsHome(PathBuf),
    #[error("Landlock cannot give jobs with text of strangers a separate home; use `sandbox: bubblewrap`")]
    NoOtherHome,
    #[error("{} cannot be made: {error}", path.display())]
    NotMade { path: PathBuf, error: io::Error },
    #[error("HOME is not set")]
    NoHome,
    #[error(
        "{} is a link in a folder where the agent may write, so the agent could change it; write the target of the link in the config, replace the link by its target, or give the agent another `working_directory`",
        .0.display()
    )]
    Link(PathBuf),
    #[error("cannot protect the name {} from the agent: {error}", file.display())]
    NameNotProtected { file: PathBuf, error: io::Error },
}

impl SandboxError {
    /// Returns a function that adds the kind of sandbox to an error.
    pub(super) fn of(kind: SandboxKind) -> impl Fn(Self) -> Self {
        move |why| Self::NotEnforced { kind, why: Box::new(why) }
    }
}
