//! Translation of the forms of the config that only herdctl has. If herdctl only has another name for a key, this name
//! is an alias of the key in [`crate::shape`].

mod chat;
mod docker;
mod web;

use std::path::Path;

pub(super) use chat::{admit_everyone, answer_threads};
pub(super) use docker::sandbox;
pub(super) use web::{apply as apply_web, web_as_defaults};

use crate::shape::AgentConfig;

/// Checks by its name whether a config file is a file of herdctl. The loader is more lenient with such a file.
pub(super) fn is_herdctl(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| stem == "herdctl")
}

/// Checks whether the processes of an agent in a herdctl file inherit the environment of the daemon, as in herdctl.
/// They inherit it unless `pass_env` is set.
pub(super) const fn inherits_environment(config: &AgentConfig) -> bool {
    config.inherited.pass_env.is_none()
}
