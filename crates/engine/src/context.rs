//! What the daemon's parts share: the store, the fleet as it is now, the clock, and the attempts under way.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cowhand_core::id::{AgentName, JobId, ScheduleId};
use cowhand_core::job::Job;
use cowhand_core::shape::WorkSource;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, watch};

use crate::job_token::JobKey;
use crate::loaded::{Current, Loaded};
use crate::queues;
use crate::queues::noticed::SeenAgain;
use crate::state::StateFolder;
use crate::trigger::{Registry, Wakes};
use cowhand_run::growth::Growth;
use cowhand_run::watch::Watch;
use cowhand_store::Store;
use cowhand_system::clock::Clock;
use cowhand_work::{WorkSource as Source, WorkSourceError};

/// Time between two searches for expired claims in one queue.
const LAPSED_EVERY: SignedDuration = SignedDuration::from_mins(10);

/// How long an attempt is ours without another word from us, and how often we say it.
pub const LEASE: SignedDuration = SignedDuration::from_secs(30);
pub(crate) const HEARTBEAT: SignedDuration = SignedDuration::from_secs(10);

/// What is wanted of an attempt; the later, the stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopRequest {
    GoOn,
    /// The daemon goes and leaves the agent to its keeper.
    Detach,
    /// Stop it and settle it as cancelled.
    Cancel,
    /// As above, and now.
    CancelNow,
    /// The lease is somebody else's: stop it and write nothing.
    Abandon,
}

#[derive(Debug)]
pub struct Engine {
    pub store: Store,
    pub home: Home,
    pub clock: Clock,
    /// This program, which is also the keeper.
    pub program: PathBuf,
    pub watch: Watch,
    pub growth: Growth,
    /// Something happened that may change the plan.
    pub nudge: Notify,
    /// Types of triggers that are not built in.
    pub triggers: Registry,
    /// Repositories that something happened to.
    pub wakes: Wakes,
    /// Something is owed to a work source.
    pub owed: Notify,
    /// What could not be told to a work source, and may go well now.
    pub noticed: SeenAgain,
    /// A job may have ended that has hooks.
    pub hooks: Notify,
    /// The state folder is gone.
    pub homeless: AtomicBool,
    /// The daemon is on its way out.
    pub ending: AtomicBool,
    /// How far the views have come in the event log.
    pub seen_by_views: AtomicI64,
    /// Held while a workspace is handed on or removed.
    pub workspaces: tokio::sync::Mutex<()>,
    pub config: Current,
    running: Mutex<HashMap<JobId, Running>>,
    /// Jobs with attempts here that are not current any more and are being ended.
    orphaned: Mutex<Vec<JobId>>,
    /// Schedules whose firings a task of ours prepares, with what tells it that there are new ones.
    preparing: Mutex<HashMap<ScheduleId, Arc<Notify>>>,
    /// For each agent, held while its free places are counted and items are taken for them.
    taking: Mutex<HashMap<AgentName, Arc<tokio::sync::Mutex<()>>>>,
    /// When claims that ran out were last looked for.
    looked_for_expired: Mutex<Vec<(WorkSource, Timestamp)>>,
    counts: Mutex<Counts>,
}

/// Where the daemon lives, and that it lives there alone.
#[derive(Debug)]
pub struct Home {
    pub state: StateFolder,
    pub node: String,
    /// What the tokens of jobs are made with.
    pub(crate) job_key: JobKey,
    /// The last event before this daemon's own.
    pub first_event: i64,
    /// Ours as long as anything of us is left.
    pub lock: File,
}

impl Home {
    /// Says whether the lock that this daemon holds is the one that another would find. What cannot be looked at now is
    /// not gone.
    pub fn is_ours(&self) -> bool {
        let Ok(held) = self.lock.metadata() else { return true };
        match fs::metadata(self.state.lock_file()) {
            Ok(found) => (found.dev(), found.ino()) == (held.dev(), held.ino()),
            Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
        }
    }
}

/// What has happened since the start.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counts {
    pub checks: u64,
    pub triggers: u64,
    pub last_check_at: Option<Timestamp>,
}

/// An attempt that some task of ours looks after.
#[derive(Debug)]
struct Running {
    epoch: i64,
    attempt: u32,
    wish: watch::Sender<StopRequest>,
}

impl Engine {
    /// Has what is to be told about items of a queue tried soon, if it could not be told before and the items are there now.
    pub async fn notice(&self, queue: &str, source: &dyn Source) -> Result<(), WorkSourceError> {
        let loaded = self.loaded();
        for holder in queues::seen_again(queue, source, &loaded.sources, &self.store).await? {
            if self.noticed.see(holder, self.clock.now()) {
                self.owed.notify_one();
            }
        }
        Ok(())
    }

    /// Says whether the state folder is gone.
    pub(crate) fn is_homeless(&self) -> bool {
        self.homeless.load(Ordering::Relaxed)
    }

    pub fn new(
        store: Store,
        home: Home,
        clock: Clock,
        program: PathBuf,
        triggers: Registry,
        loaded: Loaded,
    ) -> Self {
        Self {
            store,
            home,
            clock,
            program,
            watch: Watch::new(),
            growth: Growth::default(),
            nudge: Notify::new(),
            triggers,
            wakes: Wakes::default(),
            owed: Notify::new(),
            noticed: SeenAgain::default(),
            hooks: Notify::new(),
            preparing: Mutex::default(),
            taking: Mutex::default(),
            homeless: AtomicBool::default(),
            ending: AtomicBool::default(),
            seen_by_views: AtomicI64::default(),
            workspaces: tokio::sync::Mutex::default(),
            config: Current::new(loaded),
            running: Mutex::default(),
            orphaned: Mutex::default(),
            looked_for_expired: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    pub fn loaded(&self) -> Arc<Loaded> {
        self.config.get()
    }

    pub(crate) fn set_roster(&self, loaded: Loaded) {
        self.config.set(loaded);
    }

    /// None if a task looks after this job already.
    pub fn begin(&self, job: &Job, epoch: i64) -> Option<watch::Receiver<StopRequest>> {
        let mut running = self.running();
        if running.contains_key(job.id()) {
            return None;
        }
        let (wish, wishes) = watch::channel(StopRequest::GoOn);
        running.insert(job.id().clone(), Running { epoch, attempt: job.attempts(), wish });
        Some(wishes)
    }

    pub fn end(&self, job: &JobId) {
        self.running().remove(job);
        self.nudge.notify_one();
        self.owed.notify_one();
        self.hooks.notify_one();
    }

    /// Tells the task of a job what is wanted of it, if there is one. A stronger wish stays.
    pub fn wish(&self, job: &JobId, wish: StopRequest) {
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

    /// Tells the task of an attempt whose lease is gone to end it. One that has settled its job by itself is past that.
    pub(crate) fn abandon(&self, job: &JobId, epoch: i64) {
        if self.running().get(job).is_some_and(|running| running.epoch == epoch) {
            self.wish(job, StopRequest::Abandon);
        }
    }

    /// Says whether a task looks after this attempt.
    pub(crate) fn is_current(&self, job: &JobId, attempt: u32) -> bool {
        self.running().get(job).is_some_and(|running| running.attempt == attempt)
    }

    /// Keeps the job's next attempt from being started here until [`Self::orphan_ended`].
    pub(crate) fn orphan_found(&self, job: JobId) {
        self.orphaned.lock().unwrap_or_else(PoisonError::into_inner).push(job);
    }

    pub(crate) fn orphan_ended(&self, job: &JobId) {
        let mut orphaned = self.orphaned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = orphaned.iter().position(|known| known == job) {
            orphaned.swap_remove(place);
        }
        self.nudge.notify_one();
    }

    /// Every job that is looked after, with its epoch.
    pub fn held(&self) -> Vec<(JobId, i64)> {
        self.running().iter().map(|(job, running)| (job.clone(), running.epoch)).collect()
    }

    /// Says whether something of the job still goes on here, so that its next attempt cannot be started yet.
    pub fn holds(&self, job: &JobId) -> bool {
        let orphaned = self.orphaned.lock().unwrap_or_else(PoisonError::into_inner).contains(job);
        orphaned || self.running().contains_key(job)
    }

    /// The schedule has firings to prepare. None if a task does that already; it is told to look again.
    pub fn prepare(&self, schedule: ScheduleId) -> Option<Arc<Notify>> {
        let mut preparing = self.preparing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = preparing.get(&schedule) {
            task.notify_one();
            return None;
        }
        Some(Arc::clone(preparing.entry(schedule).or_default()))
    }

    pub fn prepared(&self, schedule: ScheduleId) {
        self.preparing.lock().unwrap_or_else(PoisonError::into_inner).remove(&schedule);
        self.nudge.notify_one();
    }

    /// Waits until nobody else here takes items for the agent: two of its schedules must not count the same place.
    pub(crate) async fn taking_turn(&self, agent: &AgentName) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut taking = self.taking.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(taking.entry(agent.clone()).or_default())
        };
        turn.lock_owned().await
    }

    /// Whether it is time to; if so, it counts as done.
    pub(crate) fn looks_for_expired(&self, source: &WorkSource, now: Timestamp) -> bool {
        let mut looked = self.looked_for_expired.lock().unwrap_or_else(PoisonError::into_inner);
        // A look that lies ahead tells only that the clock was set back.
        looked.retain(|(_, at)| *at <= now && now.duration_since(*at) < LAPSED_EVERY);
        let is_time = !looked.iter().any(|(known, _)| known == source);
        if is_time {
            looked.push((source.clone(), now));
        }
        is_time
    }

    pub fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_check(&self, at: Timestamp, fired: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.checks += 1;
        counts.triggers += fired;
        counts.last_check_at = Some(at);
    }

    /// One that somebody asked for.
    pub(crate) fn count_trigger(&self) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).triggers += 1;
    }

    fn running(&self) -> MutexGuard<'_, HashMap<JobId, Running>> {
        // A task that panicked left nothing half done in the map.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
