//! State that the parts of the daemon share: the store, the loaded config, the clock, and the running attempts.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cowhand_core::id::{AgentName, JobId, ScheduleId};
use cowhand_core::job::Job;
use cowhand_core::moment::BootTime;
use cowhand_core::work_source::ConfiguredSource;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, Semaphore, watch};
use tracing::warn;

use crate::answer_waits::AnswerWaits;
use crate::job_token::JobKey;
use crate::lease::{AttemptDeadline, JobLease};
use crate::loaded::{Current, Loaded};
use crate::nodes::{KnownNodes, NodeOptions};
use crate::plan_requests::PlanRequests;
use crate::queues;
use crate::queues::seen_again::SeenAgain;
use crate::secrets::{self, redactor};
use crate::state::{LockState, StateFolder, StateLock, StoreMark};
use crate::trigger::{Registry, Wakes};
use crate::unfinished::Unfinished;
use cowhand_run::attempt::Attempt;
use cowhand_run::growth::OutputNotifier;
use cowhand_run::launcher::Launcher;
use cowhand_run::minder::LockedMinder;
use cowhand_run::watch::Watch;
use cowhand_store::{HeldLease, Store};
use cowhand_system::blocking::run_blocking;
use cowhand_system::clock::Clock;
use cowhand_work::{WorkSource, WorkSourceError};

/// Time between two searches for expired claims in one queue.
const EXPIRED_SEARCH_EVERY: SignedDuration = SignedDuration::from_mins(10);

/// A request of the daemon to an attempt task. A later variant is stronger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StopRequest {
    Continue,
    /// The daemon ends and leaves the agent to its keeper.
    Detach,
    /// The attempt is stopped and settled as cancelled.
    Cancel,
    /// As `Cancel`, without a grace period.
    CancelNow,
    /// This node has lost the lease: the attempt is stopped, and nothing is written.
    Abandon,
}

#[derive(Debug)]
pub struct Engine {
    pub store: Store,
    pub home: Home,
    pub clock: Clock,
    /// Path of this executable, which is also the keeper.
    pub program: PathBuf,
    /// Starts the keepers.
    pub launcher: Arc<Launcher>,
    /// The permits that the start of an agent needs. Their number limits how many agents start at the same time.
    pub(crate) start_permits: Semaphore,
    pub watch: Watch,
    pub output_notifier: OutputNotifier,
    /// Wakes the daemon loop after an event that may change a plan. After a change without an event, use
    /// [`Self::replan`] or [`Self::replan_all`].
    pub nudge: Notify,
    pub(crate) plan_requests: PlanRequests,
    /// Trigger types that are not built in.
    pub triggers: Registry,
    /// The signals that make triggers poll a repository before its next poll is due.
    pub wakes: Wakes,
    /// Wakes the outbox when a work source has something to receive.
    pub outbox: Notify,
    /// Undelivered results whose items are in their work source again.
    pub undelivered: SeenAgain,
    /// Wakes the heartbeat when an attempt begins.
    pub(crate) attempt_began: Notify,
    /// Wakes the hooks when a job with hooks may have ended.
    pub hooks: Notify,
    /// Wakes the follower of incidents after a change of the config.
    pub(crate) incidents: Notify,
    /// Wakes the sender of notifications when there may be a new one.
    pub(crate) notifications: Notify,
    /// Number of notifications that this node is sending.
    pub(crate) sending: AtomicU64,
    /// Wakes the checks of the disk and the nodes after a change of the config.
    pub(crate) health: Notify,
    /// Reason why this daemon has lost its state folder; empty while it has the folder.
    pub home_loss: OnceLock<HomeLoss>,
    /// True as soon as the daemon no longer waits for agents, but detaches or cancels its attempts and ends.
    pub is_ending: AtomicBool,
    /// Number of the last event that the views show.
    pub seen_by_views: AtomicI64,
    /// Notified when there may be new events for the views.
    pub view_changes: Notify,
    /// Address of the server, as soon as it listens.
    pub listens_at: OnceLock<SocketAddr>,
    /// Lock that is held while a worktree is made, and while a workspace is passed on or removed.
    pub workspace_lock: tokio::sync::Mutex<()>,
    /// Workspaces whose diff or removal is tried again.
    pub unfinished: Unfinished,
    pub config: Current,
    /// The nodes of the fleet.
    pub nodes: KnownNodes,
    /// The answer waits of the running agents.
    pub(crate) answer_waits: AnswerWaits,
    /// Number of files that agents on this node have sent since the start of the daemon.
    pub(crate) sent_files: AtomicU64,
    running: Mutex<HashMap<JobId, Running>>,
    /// Jobs that have an orphan on this node: an attempt that is no longer current. The daemon ends the orphan.
    orphaned: Mutex<Vec<JobId>>,
    /// Schedules with a task that prepares their firings; the `Notify` signals new firings to that task.
    preparing: Mutex<HashMap<ScheduleId, Arc<Notify>>>,
    /// One lock for each agent, held while its free places are counted and items are claimed for them.
    place_locks: Mutex<HashMap<AgentName, Arc<tokio::sync::Mutex<()>>>>,
    /// Work sources that were searched for expired claims, with the time of the last search.
    expired_searches: Mutex<Vec<(ConfiguredSource, Timestamp)>>,
    counts: Mutex<DaemonCounts>,
}

/// Why a daemon has lost its state folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HomeLoss {
    /// The folder was removed, moved or replaced.
    Gone,
    /// Another daemon uses the folder. It takes over the agents.
    Taken,
}

/// The state folder of the daemon, and the lock that excludes other daemons.
#[derive(Debug)]
pub struct Home {
    pub state: StateFolder,
    pub node: String,
    /// The store of the daemon, as it is recorded in the state folder.
    pub(crate) store_mark: StoreMark,
    /// Key from which the tokens of jobs are made.
    pub(crate) job_key: JobKey,
    /// Number of the last event before this daemon started.
    pub event_before_start: i64,
    /// Lock of the state folder, held until this value is dropped.
    pub(crate) lock: Mutex<StateLock>,
}

impl Home {
    pub(crate) fn lock_state(&self) -> LockState {
        self.held_lock().state(&self.state)
    }

    /// Creates the lock file and the folder of the attempts again if they were removed, and locks the new file and
    /// folder. Returns false if another process has locked them.
    pub(crate) fn lock_again(&self) -> io::Result<bool> {
        self.held_lock().lock_again(&self.state)
    }

    /// Records in the lock file that the fleet has started.
    pub(crate) fn mark_started(&self) {
        self.held_lock().mark_started();
    }

    /// Records in the lock file that this process answers on the owner's socket.
    pub(crate) fn write_pid(&self) {
        self.held_lock().write_pid();
    }

    fn held_lock(&self) -> MutexGuard<'_, StateLock> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counters since the start of the daemon.
#[derive(Debug, Clone, Copy, Default)]
pub struct DaemonCounts {
    /// Number of ticks.
    pub checks: u64,
    /// Number of requests by hand, and of jobs that firings created without a preparation.
    pub triggers: u64,
    /// Time of the last tick.
    pub last_check_at: Option<Timestamp>,
}

/// An attempt that has an attempt task on this node.
#[derive(Debug)]
struct Running {
    agent: AgentName,
    epoch: i64,
    attempt: u32,
    /// Deadline of the agent on a shared database; `None` if the agent has none.
    deadline: Option<Arc<AttemptDeadline>>,
    stop_request: watch::Sender<StopRequest>,
    /// Notified when the job may have new messages.
    messages: Arc<Notify>,
}

impl Engine {
    /// Finds the undelivered results of this queue whose items have come back to the source, and wakes the outbox, which
    /// tries to deliver them.
    pub async fn retry_undelivered(
        &self,
        queue: &str,
        source: &dyn WorkSource,
    ) -> Result<(), WorkSourceError> {
        let loaded = self.loaded();
        for holder in queues::seen_again(queue, source, &loaded.sources, &self.store).await? {
            if self.undelivered.report(holder, self.clock.now()) {
                self.outbox.notify_one();
            }
        }
        Ok(())
    }

    /// Returns the minder of the git commands that make, compare and remove workspaces.
    pub(crate) fn git_minder(&self) -> LockedMinder {
        LockedMinder { program: self.program.clone(), lock: self.home.state.git_lock() }
    }

    /// Returns whether this daemon has lost its state folder.
    pub(crate) fn is_state_folder_lost(&self) -> bool {
        self.home_loss.get().is_some()
    }

    pub fn new(
        store: Store,
        home: Home,
        clock: Clock,
        program: PathBuf,
        triggers: Registry,
        loaded: Loaded,
        node_options: NodeOptions,
    ) -> Self {
        secrets::process::remember(&redactor(&loaded));
        Self {
            launcher: Arc::new(Launcher::new(program.clone(), home.state.path().to_owned())),
            start_permits: Semaphore::new(max_starts()),
            store,
            home,
            clock,
            program,
            watch: Watch::new(),
            output_notifier: OutputNotifier::default(),
            nudge: Notify::new(),
            plan_requests: PlanRequests::default(),
            triggers,
            wakes: Wakes::default(),
            outbox: Notify::new(),
            undelivered: SeenAgain::default(),
            attempt_began: Notify::new(),
            hooks: Notify::new(),
            incidents: Notify::new(),
            notifications: Notify::new(),
            sending: AtomicU64::default(),
            health: Notify::new(),
            preparing: Mutex::default(),
            place_locks: Mutex::default(),
            home_loss: OnceLock::new(),
            is_ending: AtomicBool::default(),
            seen_by_views: AtomicI64::default(),
            view_changes: Notify::new(),
            listens_at: OnceLock::new(),
            workspace_lock: tokio::sync::Mutex::default(),
            unfinished: Unfinished::default(),
            config: Current::new(loaded),
            nodes: KnownNodes::new(node_options),
            answer_waits: AnswerWaits::default(),
            sent_files: AtomicU64::default(),
            running: Mutex::default(),
            orphaned: Mutex::default(),
            expired_searches: Mutex::default(),
            counts: Mutex::default(),
        }
    }

    pub fn loaded(&self) -> Arc<Loaded> {
        self.config.get()
    }

    /// Returns the address of the server if other machines can reach it. Before the server listens, this is the address
    /// of the config.
    pub fn listens_outside(&self) -> Option<SocketAddr> {
        match self.listens_at.get() {
            Some(listen) => Some(*listen).filter(|listen| !listen.ip().is_loopback()),
            None => self.loaded().roster.server.outside(),
        }
    }

    /// Replaces the config. Secrets of the old config stay known, because stored texts and running agents may contain
    /// them.
    pub(crate) fn set_roster(&self, mut loaded: Loaded) {
        loaded.add_earlier_secrets(redactor(&self.loaded()).secrets().to_vec());
        secrets::process::remember(&redactor(&loaded));
        loaded.roster = self.nodes.restrict(&loaded.configured);
        self.config.set(loaded);
        self.incidents.notify_one();
        self.health.notify_one();
        self.nodes.refresh.notify_one();
    }

    /// Applies the stricter limits of other configs, or their end, to the roster.
    pub(crate) fn restrict_roster(&self) {
        let loaded = self.loaded();
        let roster = self.nodes.restrict(&loaded.configured);
        self.config.replace(&loaded, Loaded { roster, ..Loaded::clone(&loaded) });
    }

    /// Registers the attempt task of a job. Returns `None` if the job has one already.
    pub fn begin(&self, job: &Job, lease: JobLease) -> Option<watch::Receiver<StopRequest>> {
        let mut running = self.running();
        if running.contains_key(job.id()) {
            return None;
        }
        let (stop_request, stop_requests) = watch::channel(StopRequest::Continue);
        let is_shared = self.store.is_postgres();
        let deadline = AttemptDeadline::of(lease, self.loaded().roster.leases).filter(|_| is_shared);
        let attempt_task = Running {
            agent: job.agent().clone(),
            epoch: lease.epoch,
            attempt: job.attempts(),
            deadline: deadline.map(Arc::new),
            stop_request,
            messages: Arc::default(),
        };
        running.insert(job.id().clone(), attempt_task);
        self.attempt_began.notify_one();
        Some(stop_requests)
    }

    /// Returns what is notified when a job with an attempt task may have new messages.
    pub(crate) fn message_notice(&self, job: &JobId) -> Arc<Notify> {
        self.running().get(job).map(|running| Arc::clone(&running.messages)).unwrap_or_default()
    }

    /// Tells the attempt task of a job, if there is one on this node, that the job may have new messages.
    pub(crate) fn wake_messages(&self, job: &JobId) {
        if let Some(running) = self.running().get(job) {
            running.messages.notify_one();
        }
    }

    /// Tells all attempt tasks of these agents that their jobs may have new messages.
    pub(crate) fn wake_messages_of(&self, agents: &BTreeSet<AgentName>) {
        for running in self.running().values().filter(|running| agents.contains(&running.agent)) {
            running.messages.notify_one();
        }
    }

    /// Requests a new plan of an agent, after a change without an event.
    pub(crate) fn replan(&self, agent: AgentName) {
        self.plan_requests.add(agent);
        self.nudge.notify_one();
    }

    /// Requests a new plan of all agents, after a change without an event.
    pub(crate) fn replan_all(&self) {
        self.plan_requests.add_all();
        self.nudge.notify_one();
    }

    pub fn end(&self, job: &JobId) {
        let ended = self.running().remove(job);
        self.answer_waits.forget(job);
        if let Some(ended) = ended {
            self.replan(ended.agent);
        }
        self.outbox.notify_one();
        self.hooks.notify_one();
    }

    /// Passes a stop request to the attempt task of a job, if there is one. A stronger earlier request stays.
    pub fn request_stop(&self, job: &JobId, stop_request: StopRequest) {
        if let Some(running) = self.running().get(job) {
            running.stop_request.send_if_modified(|current| {
                let is_stronger = stop_request > *current;
                if is_stronger {
                    *current = stop_request;
                }
                is_stronger
            });
        }
    }

    /// Requests that the attempt task with this epoch ends its attempt, because the lease is lost. If the task has
    /// settled the job already, nothing happens.
    pub(crate) fn abandon(&self, job: &JobId, epoch: i64) {
        if self.running().get(job).is_some_and(|running| running.epoch == epoch) {
            self.request_stop(job, StopRequest::Abandon);
        }
    }

    /// Returns the deadline of the running attempt of a job; `None` if its agent has none.
    pub(crate) fn deadline_of(&self, job: &JobId) -> Option<Arc<AttemptDeadline>> {
        self.running().get(job)?.deadline.clone()
    }

    /// Moves the deadlines of the attempts whose leases were renewed, and writes them for the keepers. `sent` is the boot
    /// clock before the renewal was sent. A deadline that cannot be written is written after the next renewal; until
    /// then the keeper may pause the agent.
    pub(crate) async fn move_deadlines(&self, renewed: &[HeldLease], sent: BootTime) {
        let times = self.loaded().roster.leases;
        let moved: Vec<(Attempt, Arc<AttemptDeadline>)> = {
            let (running, state) = (self.running(), self.home.state.path());
            let own = renewed.iter().filter_map(|lease| {
                let own = running.get(&lease.job).filter(|own| own.epoch == lease.epoch)?;
                Some((Attempt::new(state, &lease.job, own.attempt), Arc::clone(own.deadline.as_ref()?)))
            });
            own.collect()
        };
        if moved.is_empty() {
            return;
        }
        run_blocking(move || {
            for (attempt, deadline) in moved {
                deadline.renewed(sent, times);
                if let Err(error) = deadline.write(&attempt, times) {
                    warn!(attempt = attempt.name(), "cannot write the deadline of the attempt: {error}");
                }
            }
        })
        .await;
    }

    /// Returns the number of attempts whose deadline has passed.
    pub(crate) fn overdue_attempts(&self) -> usize {
        let now = self.clock.boot();
        let is_overdue =
            |own: &&Running| own.deadline.as_ref().is_some_and(|deadline| deadline.has_passed(now));
        self.running().values().filter(is_overdue).count()
    }

    /// Returns whether an attempt task supervises this attempt.
    pub(crate) fn is_current(&self, job: &JobId, attempt: u32) -> bool {
        self.running().get(job).is_some_and(|running| running.attempt == attempt)
    }

    /// Prevents the job's next attempt from starting on this node until [`Self::orphan_ended`].
    pub(crate) fn orphan_found(&self, job: JobId) {
        self.orphaned.lock().unwrap_or_else(PoisonError::into_inner).push(job);
    }

    pub(crate) fn orphan_ended(&self, job: &JobId) {
        let mut orphaned = self.orphaned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = orphaned.iter().position(|orphan| orphan == job) {
            orphaned.swap_remove(index);
        }
        self.replan_all();
    }

    /// Returns every job that has an attempt task, with its epoch.
    pub fn running_jobs(&self) -> Vec<(JobId, i64)> {
        self.running().iter().map(|(job, running)| (job.clone(), running.epoch)).collect()
    }

    /// Returns the attempts that have an attempt task.
    pub(crate) fn attempts(&self) -> Vec<Attempt> {
        let state = self.home.state.path();
        self.running().iter().map(|(job, running)| Attempt::new(state, job, running.attempt)).collect()
    }

    /// Returns whether this node has an attempt task or an orphan of the job. If so, the next attempt cannot start here
    /// yet.
    pub fn supervises(&self, job: &JobId) -> bool {
        let is_orphaned = self.orphaned.lock().unwrap_or_else(PoisonError::into_inner).contains(job);
        is_orphaned || self.running().contains_key(job)
    }

    /// Registers a task that prepares the firings of the schedule. If the schedule has such a task already, that task
    /// is notified, and `None` is returned.
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
        match self.loaded().roster.schedule(schedule) {
            Some((agent, _)) => self.replan(agent.name.clone()),
            None => self.replan_all(),
        }
    }

    /// Waits until no other task claims items for the agent: two of its schedules must not count the same free place.
    pub(crate) async fn lock_places(&self, agent: &AgentName) -> tokio::sync::OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.place_locks.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(locks.entry(agent.clone()).or_default())
        };
        lock.lock_owned().await
    }

    /// Returns whether a search for expired claims of this source is due. If so, the search counts as done.
    pub(crate) fn is_expired_search_due(&self, source: &ConfiguredSource, now: Timestamp) -> bool {
        let mut searches = self.expired_searches.lock().unwrap_or_else(PoisonError::into_inner);
        // The time of a search is in the future if the clock was set back. Such a search does not count.
        searches.retain(|(_, at)| *at <= now && now.duration_since(*at) < EXPIRED_SEARCH_EVERY);
        let is_due = !searches.iter().any(|(searched, _)| searched == source);
        if is_due {
            searches.push((source.clone(), now));
        }
        is_due
    }

    pub fn counts(&self) -> DaemonCounts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count_check(&self, at: Timestamp, fired: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.checks += 1;
        counts.triggers += fired;
        counts.last_check_at = Some(at);
    }

    /// Counts a job that a request, a delivery or a strategy has created, or a firing by hand that has no job yet.
    /// [`Self::count_check`] counts the jobs that firings by the clock have created.
    pub(crate) fn count_trigger(&self) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).triggers += 1;
    }

    fn running(&self) -> MutexGuard<'_, HashMap<JobId, Running>> {
        // A task that panicked has left no partial change in the map.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the number of agents that may start at the same time. If hundreds of agents started at once, their keepers
/// would take all processor time, and the daemon would not answer requests meanwhile.
fn max_starts() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get) * 2
}
