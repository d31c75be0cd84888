//! herdctl's forms of the config, translated to cowhand's. Other names of a key are listed at the key, in
//! [`crate::shape`].

mod docker;
mod web;

use std::path::Path;

pub(super) use docker::sandbox;
pub(super) use web::apply as apply_web;

use crate::runtime::Runtime;
use crate::shape::{AgentConfig, RuntimeName};

/// Checks whether a config file is one of herdctl, which is read more leniently.
pub(super) fn is_herdctl(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == "herdctl")
}

/// Returns the runtime of a name. `sdk` and `cli` are herdctl's names of `claude`.
pub(super) const fn runtime(name: RuntimeName) -> Runtime {
    match name {
        RuntimeName::Claude | RuntimeName::Sdk | RuntimeName::Cli => Runtime::Claude,
        RuntimeName::Codex => Runtime::Codex,
        RuntimeName::Gemini => Runtime::Gemini,
        RuntimeName::Opencode => Runtime::Opencode,
        RuntimeName::Acp => Runtime::Acp,
        RuntimeName::Command => Runtime::Command,
    }
}

/// Checks whether the processes of an agent in a herdctl file inherit the environment of the daemon, as in herdctl. An
/// agent that lists variables no longer uses this behaviour.
pub(super) const fn inherits_environment(config: &AgentConfig) -> bool {
    config.inherited.pass_env.is_none()
}
