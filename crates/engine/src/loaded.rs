//! The fleet as its config was read, which a reload replaces as a whole.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use cowhand_core::roster::{Agent, Roster};
use cowhand_core::shape::WorkSource;
use serde_json::Value;

use cowhand_run::redact::Redactor;
use cowhand_work::WorkSources;

/// The fleet and what its `.env` names.
#[derive(Debug)]
pub struct Loaded {
    pub roster: Arc<Roster>,
    pub variables: HashMap<String, String>,
    pub sources: Arc<WorkSources>,
    /// The config for people, without secrets.
    pub shown: Option<Value>,
    /// What it was read from; an agent in a sandbox does not write there.
    pub files: Vec<PathBuf>,
    /// The variables that it names as secrets.
    pub named: Vec<String>,
    /// Directories in which agents in a sandbox may write.
    pub writable: Vec<PathBuf>,
    /// What hides its secrets, made when it is first needed: `secrets::redactor`.
    pub redactor: OnceLock<Arc<Redactor>>,
}

impl Loaded {
    /// With the folders that work is taken from: what a stranger's job could put there would be trusted.
    pub(crate) fn files_and_queues(&self) -> Vec<PathBuf> {
        let base = &self.sources.setting().base;
        let of_agent = |agent: &Agent| {
            let of_schedules = agent.schedules.iter().filter_map(|schedule| schedule.work_source.as_ref());
            let all = agent.settings.work_source.iter().chain(of_schedules);
            all.filter_map(|source| match source {
                WorkSource::Files { path, .. } => Some(base.join(path)),
                WorkSource::Github { .. } | WorkSource::Custom { .. } => None,
            })
            .collect::<Vec<_>>()
        };
        self.files.iter().cloned().chain(self.roster.agents.iter().flat_map(of_agent)).collect()
    }
}

/// The config that is in force. Clones share it.
#[derive(Debug, Clone)]
pub struct Current(Arc<RwLock<Arc<Loaded>>>);

impl Current {
    pub fn new(loaded: Loaded) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(loaded))))
    }

    pub fn get(&self) -> Arc<Loaded> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn set(&self, loaded: Loaded) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
    }
}
