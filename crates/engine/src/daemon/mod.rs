//! The daemon loop: wait, plan, act.

mod containers;
mod ending;
mod firing;
mod health;
mod heartbeat;
pub(crate) mod home;
mod hooks;
mod incidents;
pub mod nodes;
mod notifications;
mod outbox;
mod prune;
mod recover;
mod spread;
pub mod tick;
mod triggers;
mod uptime;
mod view_writer;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cowhand_core::config::ShownConfig;
use cowhand_core::config::report;
use cowhand_core::id::{AgentName, JobId, ScheduleId};
use cowhand_core::job::Job;
use cowhand_core::roster::Roster;
use cowhand_core::uptime::Uptime;
use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{error, warn};

pub use self::uptime::refuse_taken_node;
use crate::attempt::AttemptTask;
pub use crate::attempt::other_store::{
    UnsettledAttempt, former_store, refuse_other_store, unsettled_attempts, unsettled_jobs,
    unsettled_sentence,
};
pub use crate::attempt::outcomes::termination;
pub use crate::attempt::paused_agents;
use crate::backup;
use crate::config;
use crate::context::{Engine, Home, StopRequest};
use crate::error::FleetError;
use crate::herdctl::Import;
use crate::job_limits::limits_of_job;
use crate::job_token::JobKey;
use crate::lease::{JobLease, on_lost_lease};
use crate::lifecycle::Lifecycle;
use crate::loaded::Loaded;
use crate::nodes::{NodeOptions, shared_limits};
use crate::secrets::{self, kept, redactor_over};
use crate::state::{StateFolder, StateLock, StoreMark};
use crate::trace::Traces;
use crate::trigger::Registry;
use cowhand_run::spawner;
use cowhand_store::{Claim, NodePresence, Starter, Store, StoreError};
use cowhand_system::blocking::run_blocking;
use cowhand_system::clock::Clock;
use cowhand_system::fault;
use cowhand_system::memory::return_free_memory;
use cowhand_system::panic;
use nodes::NodeWatch;
use spread::LeftJobs;
use tick::{Agenda, ImmediateStarter, Startable};
use triggers::Triggers;
use view_writer::ViewWriter;

#[derive(Debug)]
pub struct Daemon {
    engine: Arc<Engine>,
    tasks: JoinSet<()>,
    /// Tasks that can be stopped and started again at any time: the outbox, the preparation of firings, hooks, sweeps.
    background: JoinSet<()>,
    /// Periods in which a daemon could fire due times.
    uptime: Uptime,
    presence: NodePresence,
    agenda: Agenda,
    /// The task that writes the views; `None` before the recovery.
    views: Option<ViewWriter>,
    triggers: Triggers,
    left_jobs: LeftJobs,
    pruning: prune::Pruning,
    sweeping: prune::Sweeping,
    traces: Traces,
}

impl Daemon {
    /// Locks the state folder, opens the store and recovers running attempts.
    pub async fn open(
        mut loaded: Loaded,
        state: StateFolder,
        clock: Clock,
        program: PathBuf,
        registry: Registry,
        (import, node_options): (Import, NodeOptions),
    ) -> Result<Self, FleetError> {
        let folder = state.path().display().to_string();
        let state_error = |source| FleetError::State { folder: folder.clone(), source };
        state.create().map_err(state_error)?;
        let lock = lock(&state).await.map_err(state_error)?;
        let lock = lock.ok_or_else(|| FleetError::AlreadyRunning(folder.clone()))?;
        spawner::end_left_over(state.path()).map_err(state_error)?;
        import.refuse_if_running()?;
        backup::remove_scratch(&state).map_err(state_error)?;
        let node = state.node().map_err(state_error)?;
        let job_key = JobKey::new(&state.job_key().map_err(state_error)?);
        refuse_other_store(&state, loaded.roster.store.as_deref()).await?;
        let url = loaded.roster.store.clone().unwrap_or_else(|| state.database().display().to_string());
        let store = Store::open(&url).await?.with_clock(clock.clone());
        // The mode of a new database file depends on the umask.
        state.close_to_others().map_err(state_error)?;
        let mark = StoreMark { id: store.identity().await?, location: store.address() };
        let event_before_start = store.last_event().await?;
        let started = clock.reading();
        let (uptime, presence) = uptime::begin(&store, &node, state.path(), started).await?;
        state.write_store_mark(&mark).map_err(state_error)?;
        for empty in store.load_schedules(Arc::clone(&loaded.roster), clock.now()).await? {
            warn!("{empty}");
        }
        loaded.add_earlier_secrets(kept::of_attempts(&state));
        let redactor = redactor_over(&loaded, None);
        import.run(&store, &state, &node, redactor, clock.now()).await?;
        store.take_up_items(node.clone(), clock.now()).await?;
        let home =
            Home { state, node, store_mark: mark, job_key, event_before_start, lock: Mutex::new(lock) };
        let engine = Arc::new(Engine::new(store, home, clock, program, registry, loaded, node_options));
        let node_watch = Mutex::new(Some(NodeWatch::start(&engine).await?));
        let agenda = Agenda::new(event_before_start);
        let (tasks, mut background, pruning) = (JoinSet::new(), JoinSet::new(), prune::Pruning::default());
        let (outbox_engine, hook_engine) = (Arc::clone(&engine), Arc::clone(&engine));
        let node_engine = Arc::clone(&engine);
        background.spawn(panic::restart_on_panic("following the nodes", move || {
            let watch = node_watch.lock().unwrap_or_else(PoisonError::into_inner).take();
            watch.unwrap_or_else(|| NodeWatch::new(Arc::clone(&node_engine))).follow()
        }));
        let lease_engine = Arc::clone(&engine);
        background.spawn(panic::restart_on_panic("renewing leases", move || {
            heartbeat::renew_leases(Arc::clone(&lease_engine))
        }));
        background.spawn(panic::restart_on_panic("delivering results to work sources", move || {
            outbox::deliver_outbox(Arc::clone(&outbox_engine))
        }));
        background.spawn(panic::restart_on_panic("running hooks", move || {
            hooks::run_hooks(Arc::clone(&hook_engine))
        }));
        spawn_notifications(&engine, &mut background);
        let (triggers, traces) = (Triggers::default(), Traces::start(&engine).await?);
        let sweeping = prune::Sweeping::default();
        let mut daemon = Self {
            engine,
            tasks,
            background,
            uptime,
            presence,
            agenda,
            views: None,
            triggers,
            left_jobs: LeftJobs::default(),
            pruning,
            sweeping,
            traces,
        };
        daemon.recover().await?;
        daemon.views = Some(ViewWriter::start(&daemon.engine, started.now.wall).await);
        // Loading the config needed more memory than the config itself.
        run_blocking(return_free_memory).await;
        Ok(daemon)
    }

    /// Returns the state that the daemon shares with callers while it runs.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Runs until the daemon has stopped, because a caller requested this or because the state folder is lost.
    pub async fn run(
        mut self,
        mut lifecycle: watch::Receiver<Lifecycle>,
        lifecycle_sender: &watch::Sender<Lifecycle>,
    ) {
        let mut folder_lost = Box::pin(home::wait_until_lost(Arc::clone(&self.engine)));
        let limiter = tokio::spawn(ending::limit_store_wait(Arc::clone(&self.engine), lifecycle.clone()));
        loop {
            let reading = self.engine.clock.reading();
            let now = reading.now.wall;
            self.watch_clock(reading).await;
            let state = *lifecycle.borrow_and_update();
            let wake_at = match state {
                Lifecycle::Running => self.tick_and_start(now).await,
                Lifecycle::Draining { until } if !self.engine.running_jobs().is_empty() => {
                    self.triggers.stop().await;
                    if until <= Instant::now() {
                        self.give_up_waiting(lifecycle_sender);
                        break;
                    }
                    Some(self.engine.clock.now() + DRAIN_POLL_EVERY)
                }
                _ => break,
            };
            self.prune_if_due();
            self.sweep_if_due();
            let retry_at = self.retry_unfinished_if_due();
            self.engine.view_changes.notify_one();
            if state == Lifecycle::Running {
                self.triggers.follow(&self.engine).await;
            }
            let wake_at = wake_at.into_iter().chain(retry_at).min();
            tokio::select! {
                () = self.engine.clock.wait_until(wake_at) => {}
                () = self.engine.nudge.notified() => {}
                _ = lifecycle.changed() => {}
                loss = &mut folder_lost, if !self.engine.is_state_folder_lost() => home::give_up(&self.engine, loss, lifecycle_sender),
                Some(ended) = self.tasks.join_next() => panic::log_panic("a task", ended),
                Some(ended) = self.background.join_next() => panic::log_panic("a background task", ended),
            }
        }
        self.end(lifecycle).await;
        limiter.abort();
        // The task shares the lock of the state folder until it is dropped. The next daemon needs that lock.
        let _ = limiter.await;
    }

    /// Records that the time to finish is over, with the number of jobs that will be cancelled. Each caller that waits
    /// until the daemon has stopped then reports this number.
    fn give_up_waiting(&self, lifecycle_sender: &watch::Sender<Lifecycle>) {
        let overdue = self.engine.running_jobs().len();
        lifecycle_sender.send_if_modified(|lifecycle| {
            let is_draining = matches!(lifecycle, Lifecycle::Draining { .. });
            if is_draining {
                let jobs = if overdue == 1 { "1 job".to_owned() } else { format!("{overdue} jobs") };
                warn!("{jobs} did not finish in time and will be cancelled");
                *lifecycle = Lifecycle::Cancelling { overdue };
            }
            is_draining
        });
    }

    /// Plans the agents of the agenda and starts their jobs. Returns the time of the next tick. After an error of the
    /// store, the next tick is soon.
    async fn tick_and_start(&mut self, now: Timestamp) -> Option<Timestamp> {
        let loaded = self.engine.loaded();
        let groups = match self.groups_to_plan(&loaded.roster, now).await {
            Ok(groups) => groups,
            Err(error) => {
                error!("cannot plan: {error}");
                return Some(now + PLAN_RETRY_AFTER);
            }
        };
        let mut fired = 0;
        for group in groups {
            match self.tick_group(&loaded.roster, group.clone(), now).await {
                Ok(jobs) => fired += jobs,
                Err(error) => {
                    error!("cannot plan: {error}");
                    for agent in group {
                        self.agenda.set_wake(agent, Some(now + PLAN_RETRY_AFTER));
                    }
                }
            }
        }
        self.engine.count_check(now, fired);
        self.agenda.next()
    }

    /// Returns the agents that have to be planned now. Agents whose plans depend on each other are in the same group.
    async fn groups_to_plan(
        &mut self,
        roster: &Roster,
        now: Timestamp,
    ) -> Result<Vec<Vec<AgentName>>, StoreError> {
        let changed = self.engine.store.changed_agents(self.agenda.cursor).await?;
        self.engine.wake_messages_of(&changed.with_messages);
        self.agenda.note(changed, &self.engine.plan_requests);
        if self.agenda.take_all() {
            let agents = tick::all_agents(&self.engine.store, roster).await;
            return agents.map(|agents| tick::groups(roster, agents)).inspect_err(|_| self.agenda.plan_all());
        }
        Ok(self.agenda.take_due(roster, now))
    }

    /// Runs a tick for a group of agents, stops attempts, begins to prepare firings, and starts the jobs that have a
    /// place. Returns the number of jobs that the firings created.
    async fn tick_group(
        &mut self,
        roster: &Roster,
        agents: Vec<AgentName>,
        now: Timestamp,
    ) -> Result<u64, StoreError> {
        let (engine, tasks) = (&self.engine, Mutex::new(&mut self.tasks));
        let sent = engine.clock.boot();
        let begin_at_once = |job: Job, epoch| {
            let mut tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
            let lease = JobLease { epoch, on_lost: on_lost_lease(roster, job.agent()), sent };
            begin(engine, &mut tasks, job, lease, None);
        };
        let (node, supervises) = (&engine.home.node, |job: &JobId| engine.supervises(job));
        let here = engine.nodes.planning_node(node, roster);
        let leaves = |agent: &AgentName| spread::may_be_left(engine, roster, agent);
        let at_once = ImmediateStarter {
            node,
            lease: roster.leases.length,
            shared: shared_limits(roster),
            here: here.clone(),
            supervises: &supervises,
            leaves: &leaves,
            begin: &begin_at_once,
        };
        let tick =
            tick::tick_agents(&engine.store, roster, agents, now, &self.uptime, Some(&at_once)).await?;
        let fired = tick.fired;
        for (agent, wake_at) in tick.wakes {
            self.agenda.set_wake(agent, wake_at);
        }
        for job in tick.stop {
            self.engine.request_stop(&job, StopRequest::Cancel);
        }
        let is_here = |schedule: &ScheduleId| {
            roster.schedule(*schedule).is_none_or(|(agent, _)| here.takes_jobs_of(&agent.name))
        };
        let mut schedules: Vec<ScheduleId> =
            tick.prepare.into_iter().map(|(schedule, _)| schedule).filter(is_here).collect();
        schedules.dedup();
        for schedule in schedules {
            if let Some(more) = self.engine.prepare(schedule) {
                let engine = Arc::clone(&self.engine);
                self.background.spawn(firing::prepare_in_order(engine, schedule, more));
            }
        }
        // A job that is still supervised is not started now: the task of its previous attempt still cleans up, or an
        // orphan of the job is being ended. The end of either wakes the loop.
        let starts: Vec<Startable> =
            tick.start.into_iter().filter(|start| !self.engine.supervises(&start.job)).collect();
        let nodes = if starts.is_empty() { Vec::new() } else { spread::comparable_nodes(&self.engine).await };
        let divided = self.left_jobs.divide(&self.engine.home.node, nodes, roster, starts, now);
        for (start, until) in divided.elsewhere {
            self.agenda.wake_by(start.agent, until);
        }
        // Claims that are made at the same time share commits.
        let sent = self.engine.clock.boot();
        let claims = join_all(divided.here.into_iter().map(|start| self.claim(roster, start, now))).await;
        for (agent, fallback, claim) in claims {
            match claim {
                Ok(Claim::Claimed { job, epoch }) => {
                    let lease = JobLease { epoch, on_lost: on_lost_lease(roster, job.agent()), sent };
                    begin(&self.engine, &mut self.tasks, job, lease, fallback);
                }
                // The node was drained on request to another node.
                Ok(Claim::Drained) => self.engine.nodes.refresh.notify_one(),
                // The outbox renews the claim of the item, or finds that the claim is lost.
                Ok(Claim::ItemExpired) => self.engine.outbox.notify_one(),
                Ok(
                    Claim::Taken
                    | Claim::AtCapacity
                    | Claim::SessionBusy
                    | Claim::NoProviderSlot
                    | Claim::OverBudget(_),
                ) => {}
                Err(error) => {
                    error!("cannot start a job: {error}");
                    self.agenda.set_wake(agent, Some(now + PLAN_RETRY_AFTER));
                }
            }
        }
        Ok(fired)
    }

    /// Claims a job that has a place. Returns its agent and its fallback with the result.
    async fn claim(
        &self,
        roster: &Roster,
        start: Startable,
        now: Timestamp,
    ) -> (AgentName, Option<usize>, Result<Claim, StoreError>) {
        let Startable { job, agent: name, max_concurrent, session_key, fallback } = start;
        let agent = roster.agent(&name);
        let limits = match agent {
            Some(agent) => limits_of_job(&self.engine.store, roster, agent, &job, now).await,
            None => Ok(None),
        };
        let limits = match limits {
            Ok(limits) => limits,
            Err(error) => return (name, fallback, Err(error)),
        };
        let fallback_agent = agent.zip(fallback).and_then(|(agent, number)| agent.fallback(number));
        let slot = fallback_agent.as_ref().or(agent).and_then(|agent| roster.slot(agent));
        let node = self.engine.home.node.clone();
        let shared = shared_limits(roster);
        let (lease, on_lost) = (roster.leases.length, on_lost_lease(roster, &name));
        let starter = Starter { node, lease, on_lost, max_concurrent, shared, session_key, limits, slot };
        let claim = self.engine.store.claim_with_limits(job, starter, now).await;
        (name, fallback, claim)
    }
}

/// Starts the tasks that find incidents, and that send notifications about them.
fn spawn_notifications(engine: &Arc<Engine>, background: &mut JoinSet<()>) {
    let (follower, sender, watcher) = (Arc::clone(engine), Arc::clone(engine), Arc::clone(engine));
    background.spawn(panic::restart_on_panic("following events for notifications", move || {
        incidents::follow_log(Arc::clone(&follower))
    }));
    background.spawn(panic::restart_on_panic("sending notifications", move || {
        notifications::send_notifications(Arc::clone(&sender))
    }));
    background.spawn(panic::restart_on_panic("watching the disk and the nodes", move || {
        health::watch_health(Arc::clone(&watcher))
    }));
}

/// Locks the state folder. Returns `None` if another process uses the folder. Commands hold the lock for a moment when
/// they check whether a daemon runs, so a few tries are made. A daemon that answers on the socket uses the folder, even
/// if the lock is free: an older version locks only the lock file, which somebody may have removed.
async fn lock(state: &StateFolder) -> io::Result<Option<StateLock>> {
    for pause in LOCK_PAUSES {
        tokio::time::sleep(pause).await;
        if let Some(lock) = state.lock()? {
            let socket = fs::read_link(state.socket()).unwrap_or_else(|_| state.socket());
            if UnixStream::connect(socket).is_ok() {
                return Ok(None);
            }
            lock.write_starting();
            return Ok(Some(lock));
        }
    }
    Ok(None)
}

/// Pauses before the tries to lock the state folder.
const LOCK_PAUSES: [Duration; 3] = [Duration::ZERO, Duration::from_millis(20), Duration::from_millis(50)];

/// Spawns the attempt task of a job that has just been claimed.
fn begin(engine: &Arc<Engine>, tasks: &mut JoinSet<()>, job: Job, lease: JobLease, fallback: Option<usize>) {
    fault::point("claimed");
    if let Some(stop_requests) = engine.begin(&job, lease) {
        let task = AttemptTask::new(Arc::clone(engine), job, lease.epoch, stop_requests, fallback);
        tasks.spawn(task.supervise(true));
    }
}

/// Time between two checks while the daemon drains.
const DRAIN_POLL_EVERY: jiff::SignedDuration = jiff::SignedDuration::from_millis(200);
/// Time before a failed plan is retried.
const PLAN_RETRY_AFTER: jiff::SignedDuration = jiff::SignedDuration::from_secs(2);

/// Returns the contents of a config that was read, and logs its warnings. If there are errors, returns all of them as
/// one report. `file` is the root file.
pub fn contents(file: &std::path::Path, read: config::FromDisk) -> Result<ConfigContents, FleetError> {
    let config::FromDisk { loaded, variables, notes, files, named, .. } = read;
    for note in notes {
        warn!("{note}");
    }
    let base = file.parent().unwrap_or(std::path::Path::new(""));
    if loaded.errors() > 0 {
        let report = format!("{}\n{}", report::render(&loaded, base, false), report::summary(&loaded));
        return Err(FleetError::Config(report));
    }
    for warning in report::warnings(&loaded, base) {
        warn!("{warning}");
    }
    let digest = Some(loaded.digest());
    let shown = Some(loaded.shown);
    Ok(ConfigContents { roster: loaded.roster, variables, shown, digest, files, named })
}

/// The contents of a fleet's config.
#[derive(Debug)]
pub struct ConfigContents {
    pub roster: Roster,
    /// Variables of the `.env`.
    pub variables: HashMap<String, String>,
    /// The config as it is shown to people, without secrets; `None` if the fleet was not loaded from a file.
    pub shown: Option<ShownConfig>,
    /// Digest by which nodes compare their configs; `None` if the fleet was not loaded from a file.
    pub digest: Option<String>,
    /// Files that the loader tried to read, existing or not, and files that a command without `-c` would use instead of
    /// the root file if they existed.
    pub files: Vec<PathBuf>,
    /// Names of the variables that the config names as secrets.
    pub named: Vec<String>,
}

impl ConfigContents {
    /// Returns the contents of a config without files.
    pub fn of(roster: Roster, variables: HashMap<String, String>) -> Self {
        let named = secrets::named::variables(&roster, None);
        Self { roster, variables, shown: None, digest: None, files: Vec::new(), named }
    }
}
