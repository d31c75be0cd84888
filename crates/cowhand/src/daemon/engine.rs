//! What the daemon's parts share: the store, the fleet as it is now, the clock, and the attempts under way.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use cowhand_core::id::JobId;
use cowhand_core::roster::Roster;
use jiff::SignedDuration;
use tokio::sync::{Notify, watch};

use super::attempt::Wish;
use crate::clock::Clock;
use crate::run::growth::Growth;
use crate::run::watch::Watch;
use crate::state::StateFolder;
use crate::store::Store;

/// How long an attempt is ours without another word from us, and how often we say it.
pub(super) const LEASE: SignedDuration = SignedDuration::from_secs(30);
pub(super) const HEARTBEAT: SignedDuration = SignedDuration::from_secs(10);

#[derive(Debug)]
pub(super) struct Engine {
    pub(super) store: Store,
    pub(super) state: StateFolder,
    pub(super) node: String,
    pub(super) clock: Clock,
    /// This program, which is also the keeper.
    pub(super) program: PathBuf,
    pub(super) watch: Watch,
    pub(super) growth: Growth,
    /// Something happened that may change the plan.
    pub(super) nudge: Notify,
    roster: RwLock<Arc<Loaded>>,
    running: Mutex<HashMap<JobId, Running>>,
}

/// The fleet and what its `.env` names.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) roster: Arc<Roster>,
    pub(super) variables: HashMap<String, String>,
}

/// An attempt that some task of ours looks after.
#[derive(Debug)]
struct Running {
    epoch: i64,
    wish: watch::Sender<Wish>,
}

impl Engine {
    pub(super) fn new(
        store: Store,
        state: StateFolder,
        node: String,
        clock: Clock,
        program: PathBuf,
    ) -> Self {
        Self {
            store,
            state,
            node,
            clock,
            program,
            watch: Watch::new(),
            growth: Growth::default(),
            nudge: Notify::new(),
            roster: RwLock::default(),
            running: Mutex::default(),
        }
    }

    pub(super) fn loaded(&self) -> Arc<Loaded> {
        Arc::clone(&self.roster.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn set_roster(&self, loaded: Loaded) {
        *self.roster.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(loaded);
    }

    /// None if a task looks after this job already.
    pub(super) fn begin(&self, job: &JobId, epoch: i64) -> Option<watch::Receiver<Wish>> {
        let mut running = self.running();
        if running.contains_key(job) {
            return None;
        }
        let (wish, wishes) = watch::channel(Wish::GoOn);
        running.insert(job.clone(), Running { epoch, wish });
        Some(wishes)
    }

    pub(super) fn end(&self, job: &JobId) {
        self.running().remove(job);
        self.nudge.notify_one();
    }

    /// Tells the task of a job what is wanted of it, if there is one. A stronger wish stays.
    pub(super) fn wish(&self, job: &JobId, wish: Wish) {
        if let Some(running) = self.running().get(job) {
            running.wish.send_if_modified(|current| {
                let stronger = wish > *current;
                if stronger {
                    *current = wish;
                }
                stronger
            });
        }
    }

    /// Every job that is looked after, with its epoch.
    pub(super) fn held(&self) -> Vec<(JobId, i64)> {
        self.running().iter().map(|(job, running)| (job.clone(), running.epoch)).collect()
    }

    fn running(&self) -> MutexGuard<'_, HashMap<JobId, Running>> {
        // A task that panicked left nothing half done in the map.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
