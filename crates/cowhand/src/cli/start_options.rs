//! The options of the last start. They are stored in the state folder, so that `restart` starts the next daemon with
//! them.

use std::fmt::Display;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::listen::ListenArgs;
use super::log::LogFormat;
use super::node_args::NodeArgs;
use super::{Exit, Failure};
use cowhand_engine::fleet::Stop;
use cowhand_engine::state::StateFolder;
use cowhand_system::beneath::Root;

/// Name of the file in the state folder.
const OPTIONS_FILE: &str = "start.json";
const MAX_OPTIONS_BYTES: u64 = 64 << 10;
/// Default time for running jobs to finish after a signal or `cowhand stop`, in seconds.
pub(super) const DEFAULT_STOP_TIMEOUT: u64 = Stop::DEFAULT_TIMEOUT.as_secs();

/// Options of the command line of `start`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct StartOptions {
    pub(super) listen: ListenArgs,
    pub(super) stop_timeout: Option<u64>,
    pub(super) log_format: Option<LogFormat>,
    #[serde(default)]
    pub(super) node: NodeArgs,
    /// Config file of the daemon. `None` in options that an older version stored, and in options that are not stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) config: Option<PathBuf>,
}

impl StartOptions {
    /// Reads the options of the last start, or returns the defaults if there was none. Fails if the file cannot be
    /// read, because defaults could open a server that was turned off.
    pub(super) fn read(state: &StateFolder) -> Result<Self, Failure> {
        let file = state.path().join(OPTIONS_FILE);
        let unknown = |why: &dyn Display| {
            let first = if state.is_locked() { "`cowhand stop --keep-agents`, then " } else { "" };
            let message = format!(
                "cannot read the options of the last start from {}: {why}; run {first}`cowhand start -d` with the options \
                 that it needs (`--no-server` or `--listen`, `--stop-timeout`, `--log-format`, `--label`, `--capacity`)",
                file.display()
            );
            Failure::new(Exit::CannotRunHere, message)
        };
        if !file.try_exists().map_err(|error| unknown(&error))? {
            return Ok(Self::default());
        }
        let read =
            Root::open(state.path()).and_then(|root| root.read(Path::new(OPTIONS_FILE), MAX_OPTIONS_BYTES));
        serde_json::from_slice(&read.map_err(|error| unknown(&error))?).map_err(|error| unknown(&error))
    }

    /// Writes the options. The caller must hold the lock of the state folder.
    pub(super) fn write(&self, state: &StateFolder) -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(state.path())?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.write_all(b"\n")?;
        file.persist(state.path().join(OPTIONS_FILE))?;
        Ok(())
    }

    /// Returns the options of `newer`, and those of `self` for options that `newer` does not have.
    pub(super) fn overridden_by(self, newer: Self) -> Self {
        Self {
            listen: if newer.listen.is_given() { newer.listen } else { self.listen },
            stop_timeout: newer.stop_timeout.or(self.stop_timeout),
            log_format: newer.log_format.or(self.log_format),
            node: newer.node.or(self.node),
            config: newer.config.or(self.config),
        }
    }

    /// Returns the options, except the config file, as arguments for a background daemon.
    pub(super) fn arguments(&self) -> Vec<String> {
        let mut arguments = self.listen.arguments();
        if let Some(seconds) = self.stop_timeout {
            arguments.extend(["--stop-timeout".to_owned(), seconds.to_string()]);
        }
        if let Some(format) = self.log_format.and_then(|format| format.to_possible_value()) {
            arguments.extend(["--log-format".to_owned(), format.get_name().to_owned()]);
        }
        arguments.extend(self.node.arguments());
        arguments
    }
}
