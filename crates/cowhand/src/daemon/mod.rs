//! The daemon: wait, plan, act.

mod attempt;
mod engine;
mod handle;
mod prune;
mod recover;
pub mod tick;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use cowhand_core::config::report;
use cowhand_core::id::JobId;
use cowhand_core::roster::Roster;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::clock::Clock;
use crate::config;
use crate::fault;
use crate::state::StateFolder;
use crate::store::{Claim, Store, StoreError};
use crate::view::Views;
use attempt::{Charge, Wish};
use engine::{Engine, HEARTBEAT, LEASE, Loaded};
pub use handle::{Handle, Reloaded};
use tick::Startable;

/// What a daemon is started with.
#[derive(Debug, Clone)]
pub struct Options {
    /// The fleet's root file.
    pub config: PathBuf,
    pub state: StateFolder,
    pub clock: Clock,
    /// This program, which keepers are started from.
    pub program: PathBuf,
}

/// How a daemon is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Not yet.
    No,
    /// Let what runs finish until then; what does not is cancelled.
    Drain { until: Instant },
    /// Cancel everything at once.
    Now,
    /// Leave the agents to their keepers.
    KeepAgents,
}

#[derive(Debug)]
pub struct Daemon {
    engine: Arc<Engine>,
    tasks: JoinSet<()>,
    heartbeat_at: Timestamp,
    views: Views,
    pruning: prune::Pruning,
    config: PathBuf,
    lock: File,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error("a daemon is running in {0} already; `cowhand stop` ends it")]
    AlreadyRunning(String),
    #[error("{0}")]
    Config(String),
    #[error("cannot use the state folder {place}: {source}")]
    State { place: String, source: io::Error },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Daemon {
    /// Takes the state folder, opens the store, loads the fleet and takes up what runs already.
    pub async fn open(options: Options) -> Result<Self, StartError> {
        let Options { config, state, clock, program } = options;
        let place = state.path().display().to_string();
        let cannot = |source| StartError::State { place: place.clone(), source };
        let loaded = load(&config)?;
        state.create().map_err(cannot)?;
        let lock = state.lock().map_err(cannot)?.ok_or_else(|| StartError::AlreadyRunning(place.clone()))?;
        let node = state.node().map_err(cannot)?;
        let url = loaded.roster.store.clone().unwrap_or_else(|| state.database().display().to_string());
        let store = Store::open(&url).await?;
        store.load_schedules(Roster::clone(&loaded.roster), clock.now()).await?;
        let engine = Arc::new(Engine::new(store, state, node, clock, program));
        engine.set_roster(loaded);
        let heartbeat_at = engine.clock.now();
        let views = Views::new(engine.state.clone(), heartbeat_at);
        let (tasks, pruning) = (JoinSet::new(), prune::Pruning::default());
        let mut daemon = Self { engine, tasks, heartbeat_at, views, pruning, config, lock };
        daemon.recover().await?;
        daemon.mend_views().await;
        Ok(daemon)
    }

    pub fn store(&self) -> &Store {
        &self.engine.store
    }

    /// For whoever asks something of it while it runs; `stop` is the other end of what `run` listens to.
    pub fn handle(&self, stop: watch::Sender<Stop>) -> Handle {
        Handle::new(Arc::clone(&self.engine), self.config.clone(), stop)
    }

    /// Until it is told to stop, and then until that is done. The state folder is locked as long as the answer
    /// lives, so that the caller can clear up before the next daemon comes.
    pub async fn run(mut self, mut stop: watch::Receiver<Stop>) -> File {
        loop {
            let wish = *stop.borrow_and_update();
            let wake_at = match wish {
                Stop::No => self.tick_and_start().await,
                Stop::Drain { until } if Instant::now() < until && !self.engine.held().is_empty() => {
                    Some(self.engine.clock.now() + LOOK)
                }
                _ => break,
            };
            self.heartbeat().await;
            self.prune_if_due();
            self.write_views().await;
            let held = !self.engine.held().is_empty();
            let wake_at = wake_at.into_iter().chain(held.then_some(self.heartbeat_at)).min();
            tokio::select! {
                () = self.engine.clock.wait_until(wake_at) => {}
                () = self.engine.nudge.notified() => {}
                _ = stop.changed() => {}
                Some(_) = self.tasks.join_next() => {}
            }
        }
        let keep = *stop.borrow() == Stop::KeepAgents;
        self.end(keep, stop).await
    }

    /// Decides what is due and starts what has a place. A store that is away for a while is asked again.
    async fn tick_and_start(&mut self) -> Option<Timestamp> {
        let now = self.engine.clock.now();
        let loaded = self.engine.loaded();
        let tick = match tick::tick(&self.engine.store, &loaded.roster, now).await {
            Ok(tick) => tick,
            Err(error) => {
                error!("cannot plan: {error}");
                return Some(now + RETRY);
            }
        };
        for job in tick.stop {
            self.engine.wish(&job, Wish::Cancel);
        }
        for start in tick.start {
            if let Err(error) = self.start(start, now).await {
                error!("cannot start a job: {error}");
                return Some(now + RETRY);
            }
        }
        tick.wake_at
    }

    async fn start(&mut self, start: Startable, now: Timestamp) -> Result<(), StoreError> {
        let Startable { job, max_concurrent, .. } = start;
        let claim =
            self.engine.store.claim(job, max_concurrent, self.engine.node.clone(), LEASE, now).await?;
        fault::place("claimed");
        if let Claim::Claimed { job, epoch } = claim
            && let Some(wishes) = self.engine.begin(job.id(), epoch)
        {
            let charge = Charge { engine: Arc::clone(&self.engine), job, epoch, wishes, stopped: None };
            self.tasks.spawn(charge.look_after(true));
        }
        Ok(())
    }

    /// While anything runs, says so in time; what is no longer ours is ended and left alone.
    async fn heartbeat(&mut self) {
        let now = self.engine.clock.now();
        let held = self.engine.held();
        if now < self.heartbeat_at || held.is_empty() {
            return;
        }
        match self.engine.store.renew(self.engine.node.clone(), LEASE, now).await {
            Ok(ours) => {
                fault::place("renewed");
                let lost = |(job, epoch): &(JobId, i64)| {
                    !ours.iter().any(|held| held.job == *job && held.epoch == *epoch)
                };
                for (job, _) in held.into_iter().filter(lost) {
                    self.lost(&job).await;
                }
                self.heartbeat_at = now + HEARTBEAT;
            }
            Err(error) => warn!("cannot renew the leases: {error}"),
        }
    }

    /// A job may have been settled a moment ago, with its task about to end; only a job that somebody else runs, or
    /// has pruned, is abandoned.
    async fn lost(&self, job: &JobId) {
        use cowhand_core::job::JobStatus;
        let running = self.engine.store.job(job.clone()).await;
        if running.is_ok_and(|job| job.is_none_or(|job| job.status() == JobStatus::Running)) {
            warn!(%job, "its lease is lost; ending it here");
            self.engine.wish(job, Wish::Abandon);
        }
    }

    /// Views are for people: what cannot be written is said, and is no reason to stop.
    async fn write_views(&mut self) {
        let (loaded, now) = (self.engine.loaded(), self.engine.clock.now());
        if let Err(error) = self.views.catch_up(&self.engine.store, &loaded.roster, now).await {
            warn!("the views are behind: {error:#}");
        }
        fault::place("viewed");
    }

    async fn mend_views(&mut self) {
        let (loaded, now) = (self.engine.loaded(), self.engine.clock.now());
        if let Err(error) = self.views.mend(&self.engine.store, &loaded.roster, now).await {
            warn!("the views are behind: {error:#}");
        }
    }

    async fn end(mut self, keep_agents: bool, mut stop: watch::Receiver<Stop>) -> File {
        self.pruning.stop();
        let wish = if keep_agents { Wish::Leave } else { Wish::Cancel };
        for (job, _) in self.engine.held() {
            self.engine.wish(&job, wish);
        }
        while !self.tasks.is_empty() {
            tokio::select! {
                _ = self.tasks.join_next() => {}
                _ = stop.changed(), if !keep_agents => {
                    for (job, _) in self.engine.held() {
                        self.engine.wish(&job, Wish::CancelNow);
                    }
                }
            }
        }
        self.write_views().await;
        info!("stopped");
        self.engine.store.clone().close().await;
        self.lock
    }
}

/// Between two looks while the daemon drains, and before a store that failed is asked again.
const LOOK: jiff::SignedDuration = jiff::SignedDuration::from_millis(200);
const RETRY: jiff::SignedDuration = jiff::SignedDuration::from_secs(2);

fn load(file: &std::path::Path) -> Result<Loaded, StartError> {
    let config::FromDisk { loaded, variables, notes, .. } = config::load(file);
    for note in notes {
        warn!("{note}");
    }
    if loaded.errors() > 0 {
        let base = file.parent().unwrap_or(std::path::Path::new(""));
        let report = format!("{}\n{}", report::render(&loaded, base, false), report::summary(&loaded));
        return Err(StartError::Config(report));
    }
    Ok(Loaded { roster: Arc::new(loaded.roster), variables })
}
