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
    #[error("Landlock cannot be enforced here: it takes Linux 6.12 with Landlock turned on ({0})")]
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
    #[error("`runtime: acp` speaks through a client of cowhand's own, which is in no image")]
    AcpInContainer,
    #[error("cannot start {0:?}: it was not found; is it installed and on the PATH?")]
    ProgramNotFound(String),
    #[error("{volume} holds {}, which no agent is given", hidden.display())]
    HoldsHidden { volume: String, hidden: PathBuf },
    #[error("{path} lies in {}, which no agent is given", hidden.display())]
    LiesInHidden { path: String, hidden: PathBuf },
    #[error(
        "{} lies in {}, where the agent may write, and Landlock cannot keep it from the agent; give the agent another `working_directory`, `isolation: worktree`, or `sandbox: bubblewrap`",
        kept.display(),
        write.display()
    )]
    KeptInWritable { kept: PathBuf, write: PathBuf },
    #[error("{path} cannot be used: {error}")]
    NotUsable { path: String, error: io::Error },
    #[error("{} was led elsewhere by its agent", .0.display())]
    LedElsewhere(PathBuf),
    #[error(
        "the agent may write in {}, which is or holds the home of this user; nothing of it would be left to protect",
        .0.display()
    )]
    HoldsHome(PathBuf),
    #[error(
        "Landlock cannot give the program another home than the one that trusted jobs use, too; bubblewrap can"
    )]
    NoOtherHome,
    #[error("{} cannot be made: {error}", path.display())]
    NotMade { path: PathBuf, error: io::Error },
    #[error("HOME is not set")]
    NoHome,
    #[error(
        "{} is a link, and the agent may write where it lies and could lead it elsewhere; name what it leads to, put that in its place, or give the agent another `working_directory`",
        .0.display()
    )]
    Link(PathBuf),
    #[error("the name {} cannot be kept from the agent: {error}", file.display())]
    NameNotKept { file: PathBuf, error: io::Error },
}

impl SandboxError {
    /// Adds the kind of sandbox to an error.
    pub(super) fn of(kind: SandboxKind) -> impl Fn(Self) -> Self {
        move |why| Self::NotEnforced { kind, why: Box::new(why) }
    }
}
