//! The `git` program for cowhand's own commands, without hooks, without prompts and with a small environment.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::error::WorkspaceError;
use crate::child::{self, Bounds, ChildError, ChildOutput};
use crate::minder::{LockedMinder, MindedCommand};

/// Timeout of commands that only read.
const SHORT_GIT_TIMEOUT: Duration = Duration::from_mins(1);
/// Timeout of commands that write a whole tree.
const LONG_GIT_TIMEOUT: Duration = Duration::from_mins(10);
/// Maximum size of kept output.
const MAX_GIT_OUTPUT_BYTES: usize = 1 << 20;
/// Maximum number of names in one command.
const MAX_NAMES: usize = 200;

/// Variables that git inherits, for paths and the user's config.
const GIT_VARIABLES: [&str; 7] = ["PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "XDG_CONFIG_HOME", "TZ"];

/// Overrides of the repository's config, which could otherwise run programs, use the network, or start maintenance.
const GIT_CONFIG_OVERRIDES: [&str; 8] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.splitIndex=false",
    "submodule.recurse=false",
    "protocol.file.allow=always",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
];

#[derive(Debug, Clone)]
pub(super) struct Git {
    directory: PathBuf,
    timeout: Duration,
    index: Option<PathBuf>,
    /// Repository and working tree, which replace those that git would find from the directory.
    repository_and_tree: Option<(PathBuf, PathBuf)>,
    /// Settings that override the repository's config.
    settings: Vec<(String, String)>,
    /// Minder that ends the commands when this process ends.
    minder: Option<LockedMinder>,
    /// Set to end the commands.
    stop: Arc<AtomicBool>,
}

impl Git {
    pub(super) fn at(directory: &Path) -> Self {
        let directory = directory.to_owned();
        Self {
            directory,
            timeout: SHORT_GIT_TIMEOUT,
            index: None,
            repository_and_tree: None,
            settings: Vec::new(),
            minder: None,
            stop: Arc::default(),
        }
    }

    /// Opens a directory in which an agent has worked. The filter programs of the repository's config are disabled,
    /// because they would run outside the agent's sandbox. Filters of the user's own config remain enabled.
    pub(super) fn after_agent(
        directory: &Path,
        minder: Option<&LockedMinder>,
    ) -> Result<Self, WorkspaceError> {
        let git = Self::at(directory).with_minder(minder);
        let answer = git.execute(
            &["config", "--includes", "--show-scope", "-z", "--get-regexp", "^filter\\."],
            MAX_GIT_OUTPUT_BYTES,
        )?;
        if answer.cut {
            return Err(WorkspaceError::ConfigTooLong(directory.to_owned()));
        }
        // Without a filter, the exit code is 1.
        if !matches!(answer.status.code(), Some(0 | 1)) {
            return Err(WorkspaceError::Git(error_message(&["config"], &answer)));
        }
        let settings = disabling_settings(&String::from_utf8_lossy(&answer.stdout));
        Ok(Self { settings, ..git })
    }

    /// Sets the long timeout.
    pub(super) fn with_long_timeout(self) -> Self {
        Self { timeout: LONG_GIT_TIMEOUT, ..self }
    }

    /// Ends the commands when this process ends, so that no git of this process still writes when a new daemon starts.
    pub(super) fn with_minder(self, minder: Option<&LockedMinder>) -> Self {
        Self { minder: minder.cloned(), ..self }
    }

    /// Ends the commands when the flag is set.
    pub(super) fn with_stop(self, stop: &Arc<AtomicBool>) -> Self {
        Self { stop: Arc::clone(stop), ..self }
    }

    /// Uses a separate index, so that the index of the repository is not changed.
    pub(super) fn with_index(self, index: PathBuf) -> Self {
        Self { index: Some(index), ..self }
    }

    /// Uses this repository and this working tree, even if the tree belongs to another repository. Git runs in the
    /// tree, because some commands of git look for the files of the index relative to their own directory.
    pub(super) fn with_repository(self, repository: PathBuf, tree: PathBuf) -> Self {
        Self { directory: tree.clone(), repository_and_tree: Some((repository, tree)), ..self }
    }

    /// Returns the working tree that `with_repository` set.
    pub(super) fn tree(&self) -> Option<&Path> {
        self.repository_and_tree.as_ref().map(|(_, tree)| tree.as_path())
    }

    /// Returns true if filters of the repository are disabled. Files with these filters then look changed.
    pub(super) fn has_disabled_filters(&self) -> bool {
        !self.settings.is_empty()
    }

    /// Runs git and returns its output without the line end, or its error message.
    pub(super) fn run(&self, arguments: &[impl AsRef<OsStr>]) -> Result<String, WorkspaceError> {
        let ran = self.execute(arguments, MAX_GIT_OUTPUT_BYTES)?;
        if ran.status.success() {
            return Ok(String::from_utf8_lossy(&ran.stdout).trim_end().to_owned());
        }
        Err(WorkspaceError::Git(error_message(arguments, &ran)))
    }

    /// Runs git and returns the beginning of its output, and whether there was more.
    pub(super) fn run_limited(
        &self,
        arguments: &[impl AsRef<OsStr>],
        max_bytes: usize,
    ) -> Result<(Vec<u8>, bool), WorkspaceError> {
        let ran = self.execute(arguments, max_bytes)?;
        if ran.status.success() {
            Ok((ran.stdout, ran.cut))
        } else {
            Err(WorkspaceError::Git(error_message(arguments, &ran)))
        }
    }

    /// Returns true if the exit code is 0, and false if it is 1. Any other exit status is an error.
    pub(super) fn succeeds(&self, arguments: &[impl AsRef<OsStr>]) -> Result<bool, WorkspaceError> {
        let ran = self.execute(arguments, MAX_GIT_OUTPUT_BYTES)?;
        match ran.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => Err(WorkspaceError::Git(error_message(arguments, &ran))),
        }
    }

    /// Returns the output of a query; `None` if git clearly answers that there is nothing: exit code 1 without a
    /// message. Every other failure is an error.
    pub(super) fn find(&self, arguments: &[&str]) -> Result<Option<String>, WorkspaceError> {
        let ran = self.execute(arguments, MAX_GIT_OUTPUT_BYTES)?;
        match ran.status.code() {
            Some(0) => Ok(Some(String::from_utf8_lossy(&ran.stdout).trim_end().to_owned())),
            Some(1) if ran.stderr_end.trim().is_empty() => Ok(None),
            _ => Err(WorkspaceError::Git(error_message(arguments, &ran))),
        }
    }

    /// Sets or clears a flag of these files in the index, with an option of `git update-index`.
    pub(super) fn flag(&self, option: &str, names: &[&OsStr]) -> Result<(), WorkspaceError> {
        for some in names.chunks(MAX_NAMES) {
            self.run(&[["update-index", option, "--"].map(OsStr::new).as_slice(), some].concat())?;
        }
        Ok(())
    }

    fn execute(
        &self,
        arguments: &[impl AsRef<OsStr>],
        max_stdout_bytes: usize,
    ) -> Result<ChildOutput, WorkspaceError> {
        let bounds = Bounds { timeout: Some(self.timeout), max_stdout_bytes, stop: &self.stop };
        let options = GIT_CONFIG_OVERRIDES.iter().flat_map(|setting| ["-c", setting]).map(OsStr::new);
        let all: Vec<OsString> =
            options.chain(arguments.iter().map(AsRef::as_ref)).map(OsStr::to_owned).collect();
        let ran = self.run_by(&all, &bounds);
        let verb = || verb(arguments);
        let ran = ran.map_err(|why| match why {
            ChildError::CannotStart(error) | ChildError::Io(error) => {
                WorkspaceError::GitNotStarted { directory: self.directory.clone(), error }
            }
            ChildError::TimedOut(limit) => WorkspaceError::GitTookTooLong { command: verb(), limit },
            ChildError::Stopped => WorkspaceError::GitStopped,
        })?;
        if ran.unread { Err(WorkspaceError::GitUnread(verb())) } else { Ok(ran) }
    }

    /// Runs git, under a minder if there is one.
    fn run_by(&self, arguments: &[OsString], bounds: &Bounds<'_>) -> Result<ChildOutput, ChildError> {
        if let Some(minder) = &self.minder {
            let mut minded =
                MindedCommand::locked(minder, "git", arguments).map_err(ChildError::CannotStart)?;
            self.set_environment(&mut minded.command);
            return child::run_minded(minded, bounds);
        }
        let mut command = Command::new("git");
        self.set_environment(command.args(arguments));
        child::run(&mut command, bounds)
    }

    /// Sets the directory and the whole environment.
    fn set_environment(&self, command: &mut Command) {
        command
            .current_dir(&self.directory)
            .env_clear()
            .envs(GIT_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.envs([("LC_ALL", "C"), ("GIT_TERMINAL_PROMPT", "0"), ("GIT_OPTIONAL_LOCKS", "0")]);
        if let Some(index) = &self.index {
            command.env("GIT_INDEX_FILE", index);
        }
        if let Some((repository, tree)) = &self.repository_and_tree {
            command.env("GIT_DIR", repository).env("GIT_WORK_TREE", tree);
        }
        // Missing objects are not fetched.
        command.envs([("GIT_ALLOW_PROTOCOL", "file"), ("GIT_NO_LAZY_FETCH", "1")]);
        // Replacement objects are ignored.
        command.env("GIT_NO_REPLACE_OBJECTS", "1");
        // Paths are literal.
        command.env("GIT_LITERAL_PATHSPECS", "1");
        command.env("GIT_CONFIG_COUNT", self.settings.len().to_string());
        for (number, (key, value)) in self.settings.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{number}"), key);
            command.env(format!("GIT_CONFIG_VALUE_{number}"), value);
        }
    }
}

/// Returns the name of the git command in these arguments, without the options before it.
fn verb(arguments: &[impl AsRef<OsStr>]) -> String {
    let mut left = arguments.iter().map(|argument| argument.as_ref().to_string_lossy());
    while let Some(argument) = left.next() {
        match &*argument {
            // The next argument is the value of this option.
            "-c" => _ = left.next(),
            option if option.starts_with('-') => {}
            verb => return verb.to_owned(),
        }
    }
    String::new()
}

fn error_message(arguments: &[impl AsRef<OsStr>], ran: &ChildOutput) -> String {
    let verb = verb(arguments);
    let stderr = ran.stderr_end.trim();
    if stderr.is_empty() {
        format!("git {verb} ended with {}", ran.status)
    } else {
        format!("git {verb}: {stderr}")
    }
}

/// Returns settings that disable each filter of the repository's own config. The input has the form `scope NUL key LF
/// value NUL …`.
fn disabling_settings(answer: &str) -> Vec<(String, String)> {
    let mut words = answer.split('\0');
    let mut settings = Vec::new();
    while let (Some(scope), Some(entry)) = (words.next(), words.next()) {
        let key = entry.split('\n').next().unwrap_or_default();
        if matches!(scope, "system" | "global" | "command") || key.is_empty() {
            continue;
        }
        let value = if key.ends_with(".required") { "false" } else { "" };
        settings.push((key.to_owned(), value.to_owned()));
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_command_and_not_an_option() {
        for (arguments, expected) in [
            (vec!["rev-parse", "--verify"], "rev-parse"),
            (vec!["-c", "core.bigFileThreshold=512m", "--attr-source=abc", "diff", "--text"], "diff"),
            (vec!["--attr-source=abc", "version"], "version"),
            (vec![], ""),
        ] {
            assert_eq!(verb(&arguments), expected);
        }
    }

    #[test]
    fn only_filters_of_the_repository_are_disabled() {
        let answer = "global\0filter.lfs.clean\ngit-lfs clean\0local\0filter.a=b.clean\nrun\nme\0worktree\0filter.x.required\ntrue\0";
        let settings = disabling_settings(answer);
        let plain: Vec<(&str, &str)> =
            settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(plain, [("filter.a=b.clean", ""), ("filter.x.required", "false")]);
        assert!(disabling_settings("").is_empty());
    }
}
