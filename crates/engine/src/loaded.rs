//! The loaded config of a fleet. A reload replaces it as a whole.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use cowhand_core::config::ShownConfig;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::work_source::ConfiguredSource;

use cowhand_run::redact::Redactor;
use cowhand_work::WorkSources;

/// The roster of a fleet, the variables of its `.env`, and the values that are made from them.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The roster that applies: that of the config, or with lower limits while another node runs another config.
    pub roster: Arc<Roster>,
    /// The roster of the config.
    pub configured: Arc<Roster>,
    /// Digest by which nodes compare their configs; none if the fleet was not loaded from a file.
    pub config_digest: Option<String>,
    pub variables: HashMap<String, String>,
    pub sources: Arc<WorkSources>,
    /// The config as it is shown to people, without secrets.
    pub shown: Option<ShownConfig>,
    /// Files that the loader tried to read, existing or not, and files that a command without `-c` would use instead if
    /// they existed. An agent in a sandbox cannot write to them.
    pub files: Vec<PathBuf>,
    /// Names of the variables that the config names as secrets.
    pub named: Vec<String>,
    /// Directories in which agents in a sandbox may write.
    pub writable: Vec<PathBuf>,
    /// Secrets of earlier configs of this daemon, and the kept secrets of attempts that an earlier daemon did not
    /// settle. Texts and running agents can still contain them. This list is not written to the disk.
    pub(crate) earlier_secrets: Vec<String>,
    /// The redactor for the secrets of the fleet, made at its first use by `secrets::redactor`.
    pub(crate) redactor: OnceLock<Arc<Redactor>>,
}

impl Loaded {
    /// Adds secrets of earlier configs or attempts. The redactor is made again at its next use.
    pub(crate) fn add_earlier_secrets(&mut self, secrets: Vec<String>) {
        self.earlier_secrets.extend(secrets);
        self.redactor = OnceLock::new();
    }

    /// Returns the files of the config and the folders of its work sources. A confined job must not write to these
    /// paths, because text in them is trusted.
    pub(crate) fn files_and_queues(&self) -> Vec<PathBuf> {
        let base = &self.sources.context().base;
        let folders_of = |agent: &Agent| {
            let schedules = agent.schedules.iter().filter_map(|schedule| schedule.work_source.as_deref());
            let sources = agent.work_source.iter().chain(schedules);
            sources
                .filter_map(|source| match source {
                    ConfiguredSource::Files { path, .. } => Some(base.join(path)),
                    ConfiguredSource::Github { .. } | ConfiguredSource::Custom { .. } => None,
                })
                .collect::<Vec<_>>()
        };
        self.files.iter().cloned().chain(self.roster.agents.iter().flat_map(folders_of)).collect()
    }
}

/// The config that applies now. All clones of this value share one config.
#[derive(Debug, Clone)]
pub struct Current(Arc<RwLock<Arc<Loaded>>>);

impl Current {
    pub fn new(loaded: Loaded) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(loaded))))
    }

    pub fn get(&self) -> Arc<Loaded> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the config, unless another config than `expected` applies meanwhile.
    pub(crate) fn replace(&self, expected: &Arc<Loaded>, loaded: Loaded) {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&current, expected) {
            *current = Arc::new(loaded);
        }
    }

    pub fn set(&self, loaded: Loaded) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
    }
}
