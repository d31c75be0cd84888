//! A daemon that runs, as whoever talks to it sees it: the API, and the signals.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cowhand_core::id::JobId;
use cowhand_core::roster::Roster;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::attempt::Wish;
use super::engine::Engine;
use super::{StartError, Stop, load};
use crate::clock::Clock;
use crate::run::growth::Growth;
use crate::state::StateFolder;
use crate::store::{Cancel, Store, StoreError};

#[derive(Debug, Clone)]
pub struct Handle {
    engine: Arc<Engine>,
    config: PathBuf,
    stop: watch::Sender<Stop>,
    started_at: Timestamp,
}

/// More than anybody means, and little enough to reckon with.
const LONGEST_PATIENCE: Duration = Duration::from_hours(365 * 24);

/// What a config that was read again came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    pub agents: usize,
    pub schedules: usize,
}

impl Handle {
    pub(super) fn new(engine: Arc<Engine>, config: PathBuf, stop: watch::Sender<Stop>) -> Self {
        let started_at = engine.clock.now();
        Self { engine, config, stop, started_at }
    }

    pub fn store(&self) -> &Store {
        &self.engine.store
    }

    pub fn state(&self) -> &StateFolder {
        &self.engine.state
    }

    pub fn clock(&self) -> &Clock {
        &self.engine.clock
    }

    /// For whoever listens to a job.
    pub fn growth(&self) -> &Growth {
        &self.engine.growth
    }

    pub fn node(&self) -> &str {
        &self.engine.node
    }

    pub fn started_at(&self) -> Timestamp {
        self.started_at
    }

    pub fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.engine.loaded().roster)
    }

    /// Something was written that may change the plan.
    pub fn nudge(&self) {
        self.engine.nudge.notify_one();
    }

    pub async fn cancel(&self, job: JobId) -> Result<Cancel, StoreError> {
        let answer = self.engine.store.cancel(job.clone(), self.engine.clock.now()).await?;
        // Told directly as well: a daemon that drains makes no more plans.
        self.engine.wish(&job, Wish::Cancel);
        self.nudge();
        Ok(answer)
    }

    /// Reads the config again. A bad one is refused whole, and the old one stays.
    pub async fn reload(&self) -> Result<Reloaded, StartError> {
        let loaded = load(&self.config)?;
        if loaded.roster.store != self.roster().store {
            warn!("`store` has changed; it stays as it is until a restart");
        }
        self.engine.store.load_schedules(Roster::clone(&loaded.roster), self.engine.clock.now()).await?;
        let schedules = loaded.roster.agents.iter().map(|agent| agent.schedules.len()).sum();
        let reloaded = Reloaded { agents: loaded.roster.agents.len(), schedules };
        self.engine.set_roster(loaded);
        self.nudge();
        info!(agents = reloaded.agents, schedules, "config loaded again");
        Ok(reloaded)
    }

    pub fn is_stopping(&self) -> bool {
        *self.stop.borrow() != Stop::No
    }

    /// The first time lets jobs finish, the second cancels them, the third kills them.
    pub fn stop(&self, patience: Duration) {
        let until = Instant::now() + patience.min(LONGEST_PATIENCE);
        self.stop.send_modify(|stop| {
            *stop = match *stop {
                Stop::No => Stop::Drain { until },
                _ => Stop::Now,
            };
        });
    }

    /// Goes at once and leaves the agents to their keepers.
    pub fn leave(&self) {
        self.stop.send_replace(Stop::KeepAgents);
    }
}
