//! The daemon: wait, plan, act.

mod attempt;
mod begin;
mod containers;
pub(crate) mod credential_proxy;
mod expired;
mod home;
mod hooks;
mod job_channel;
mod orphans;
mod outbox;
mod outcome;
mod prepare;
mod preparing;
mod prune;
mod recover;
mod sandbox;
mod settle;
mod spending;
mod stop;
mod supervise;
mod take;
pub mod tick;
mod triggers;
mod trust;
mod unwritten;
mod uptime;
mod workspaces;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cowhand_core::budget::SpendLimits;
use cowhand_core::config::report;
use cowhand_core::id::{JobId, ScheduleId};
use cowhand_core::job::{CancelReason, Job};
use cowhand_core::moment::Moment;
use cowhand_core::roster::Roster;
use cowhand_core::uptime::Uptime;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::backup;
use crate::config;
use crate::context::{Engine, HEARTBEAT, Home, LEASE, StopRequest};
use crate::error::FleetError;
use crate::herdctl::Import;
use crate::job_token::JobKey;
use crate::lifecycle::Lifecycle;
use crate::loaded::Loaded;
use crate::secrets::redactor_over;
use crate::state::StateFolder;
use crate::trace::Traces;
use crate::trigger::Registry;
use crate::view::Views;
use attempt::AttemptTask;
use cowhand_run::cgroup;
use cowhand_store::{Claim, NodePresence, Starter, Store, StoreError};
use cowhand_system::clock::Clock;
use cowhand_system::fault;
use cowhand_system::panic;
pub use orphans::refuse_without_store;
use tick::{AtOnce, Startable};
use triggers::Triggers;

#[derive(Debug)]
pub struct Daemon {
    engine: Arc<Engine>,
    tasks: JoinSet<()>,
    /// What may be dropped at any time and begun again: work sources that are asked and told, hooks.
    errands: JoinSet<()>,
    heartbeat_at: Moment,
    /// When a due time could be fired, and when not.
    uptime: Uptime,
    presence: NodePresence,
    views: Views,
    triggers: Triggers,
    pruning: prune::Pruning,
    /// When workspaces were last looked through.
    swept_at: Option<Timestamp>,
    traces: Traces,
}

impl Daemon {
    /// Takes the state folder, opens the store and takes up what runs already.
    pub async fn open(
        loaded: Loaded,
        state: StateFolder,
        clock: Clock,
        program: PathBuf,
        registry: Registry,
        import: Import,
    ) -> Result<Self, FleetError> {
        let place = state.path().display().to_string();
        let cannot = |source| FleetError::State { place: place.clone(), source };
        state.create().map_err(cannot)?;
        let lock = state.lock().map_err(cannot)?.ok_or_else(|| FleetError::AlreadyRunning(place.clone()))?;
        import.refuse_if_running()?;
        backup::remove_scratch(&state).map_err(cannot)?;
        let node = state.node().map_err(cannot)?;
        let job_key = JobKey::new(&state.job_key().map_err(cannot)?);
        if loaded.roster.store.is_none() {
            refuse_without_store(&state)?;
        }
        let url = loaded.roster.store.clone().unwrap_or_else(|| state.database().display().to_string());
        let store = Store::open(&url).await?.with_clock(clock.clone());
        // A database that was just made has the rights that the umask left.
        state.close_to_others().map_err(cannot)?;
        let first_event = store.last_event().await?;
        let (uptime, presence) = uptime::begin(&store, &node, &clock).await?;
        store.load_schedules(Roster::clone(&loaded.roster), clock.now()).await?;
        let redactor = redactor_over(&loaded, None);
        import.run(&store, &state, &node, redactor, clock.now()).await?;
        store.take_up_items(node.clone(), clock.now()).await?;
        let home = Home { state, node, job_key, first_event, lock };
        let engine = Arc::new(Engine::new(store, home, clock, program, registry, loaded));
        let heartbeat_at = engine.clock.moment();
        let views = Views::new(engine.home.state.clone(), heartbeat_at.wall);
        let (tasks, mut errands, pruning) = (JoinSet::new(), JoinSet::new(), prune::Pruning::default());
        let (debts, hooks) = (Arc::clone(&engine), Arc::clone(&engine));
        errands.spawn(panic::again_and_again("paying what is owed to work sources", move || {
            outbox::deliver_outbox(Arc::clone(&debts))
        }));
        errands.spawn(panic::again_and_again("running hooks", move || hooks::run_hooks(Arc::clone(&hooks))));
        let (triggers, traces) = (Triggers::default(), Traces::start(&engine).await?);
        let swept_at = None;
        let mut daemon = Self {
            engine,
            tasks,
            errands,
            heartbeat_at,
            uptime,
            presence,
            views,
            triggers,
            pruning,
            swept_at,
            traces,
        };
        daemon.recover().await?;
        daemon.mend_views().await;
        Ok(daemon)
    }

    /// What it shares with whoever asks something of it while it runs.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Until it is told to stop, and then until that is done.
    pub async fn run(mut self, mut way: watch::Receiver<Lifecycle>, course: &watch::Sender<Lifecycle>) {
        let mut gone = Box::pin(home::gone(Arc::clone(&self.engine)));
        loop {
            // First, and at the same time as the plan: after a sleep of the machine, even between the two, a plan would
            // take our own jobs for those of a dead node.
            let reading = self.engine.clock.reading();
            let now = reading.now.wall;
            self.heartbeat(reading.now).await;
            self.watch_clock(reading).await;
            let going = *way.borrow_and_update();
            let wake_at = match going {
                Lifecycle::Running => self.tick_and_start(now).await,
                Lifecycle::Draining { until } if !self.engine.held().is_empty() => {
                    self.triggers.stop().await;
                    if until <= Instant::now() {
                        self.give_up_waiting(course);
                        break;
                    }
                    Some(self.engine.clock.now() + LOOK)
                }
                _ => break,
            };
            self.prune_if_due();
            self.sweep_if_due();
            self.write_views().await;
            if going == Lifecycle::Running {
                self.triggers.follow(&self.engine).await;
            }
            let held = !self.engine.held().is_empty();
            let heartbeat_at = self.heartbeat_at.on_clock_of(reading.now);
            let wake_at = wake_at.into_iter().chain(held.then_some(heartbeat_at)).min();
            tokio::select! {
                () = self.engine.clock.wait_until(wake_at) => {}
                () = self.engine.nudge.notified() => {}
                _ = way.changed() => {}
                () = &mut gone, if !self.engine.is_homeless() => home::give_up(&self.engine, course),
                Some(ended) = self.tasks.join_next() => panic::tell("a task", ended),
                Some(ended) = self.errands.join_next() => panic::tell("an errand", ended),
            }
        }
        self.end(way).await;
    }

    /// Whoever waits for the end hears first how many are about to be cancelled.
    fn give_up_waiting(&self, course: &watch::Sender<Lifecycle>) {
        let overdue = self.engine.held().len();
        course.send_if_modified(|course| {
            let draining = matches!(course, Lifecycle::Draining { .. });
            if draining {
                let jobs = if overdue == 1 { "1 job".to_owned() } else { format!("{overdue} jobs") };
                warn!("{jobs} did not finish in time and will be cancelled");
                *course = Lifecycle::Cancelling { overdue };
            }
            draining
        });
    }

    /// Decides what is due and starts what has a place. A store that is away for a while is asked again.
    async fn tick_and_start(&mut self, now: Timestamp) -> Option<Timestamp> {
        let loaded = self.engine.loaded();
        let (engine, tasks) = (&self.engine, &mut self.tasks);
        let mut begin = |job, epoch| begin(engine, tasks, job, epoch, None);
        let (node, holds) = (&engine.home.node, |job: &JobId| engine.holds(job));
        let at_once = AtOnce { node, lease: LEASE, expect: &expect, holds: &holds, begin: &mut begin };
        let tick = match tick::tick(&engine.store, &loaded.roster, now, &self.uptime, Some(at_once)).await {
            Ok(tick) => tick,
            Err(error) => {
                error!("cannot plan: {error}");
                return Some(now + RETRY);
            }
        };
        self.engine.count_check(now, tick.fired);
        for job in tick.stop {
            self.engine.wish(&job, StopRequest::Cancel);
        }
        let mut schedules: Vec<ScheduleId> = tick.prepare.into_iter().map(|(schedule, _)| schedule).collect();
        schedules.dedup();
        for schedule in schedules {
            if let Some(more) = self.engine.prepare(schedule) {
                let engine = Arc::clone(&self.engine);
                self.errands.spawn(preparing::prepare_in_order(engine, schedule, more));
            }
        }
        for start in tick.start {
            // Its last attempt is settled, but not yet tidied up after; whoever does that wakes us.
            if self.engine.holds(&start.job) {
                continue;
            }
            if let Err(error) = self.start(start, now).await {
                error!("cannot start a job: {error}");
                return Some(now + RETRY);
            }
        }
        tick.wake_at
    }

    async fn start(&mut self, start: Startable, now: Timestamp) -> Result<(), StoreError> {
        let Startable { job, agent, max_concurrent, session_key, fallback } = start;
        expect();
        let loaded = self.engine.loaded();
        let agent = loaded.roster.agent(&agent);
        let limits = agent.and_then(|agent| SpendLimits::of(&loaded.roster, agent, now));
        let other = agent.zip(fallback).and_then(|(agent, number)| agent.fallback(number));
        let slot = other.as_ref().or(agent).and_then(|agent| loaded.roster.slot(agent));
        let node = self.engine.home.node.clone();
        let starter = Starter { node, lease: LEASE, max_concurrent, session_key, limits, slot };
        let claim = self.engine.store.claim_in_turn(job, starter, now).await?;
        match claim {
            Claim::Claimed { job, epoch } => begin(&self.engine, &mut self.tasks, job, epoch, fallback),
            // Whoever pays our debts renews it, or finds that it is lost.
            Claim::ItemExpired => self.engine.owed.notify_one(),
            Claim::Taken
            | Claim::AtCapacity
            | Claim::SessionBusy
            | Claim::NoProviderSlot
            | Claim::OverBudget(_) => {}
        }
        Ok(())
    }

    /// While anything runs, says so in time; what is no longer ours is ended and left alone.
    async fn heartbeat(&mut self, now: Moment) {
        let held = self.engine.held();
        if now.since(self.heartbeat_at).is_negative() || held.is_empty() {
            return;
        }
        // Also those that ran out while the machine slept: as long as nobody has settled them, they are ours. Of a job that
        // nobody here looks after any more, whatever the reason, the lease runs out.
        let (node, jobs) = (self.engine.home.node.clone(), held.iter().map(|(job, _)| job.clone()).collect());
        match self.engine.store.renew(node, jobs, LEASE, now.wall).await {
            Ok(ours) => {
                fault::place("renewed");
                let lost = |(job, epoch): &(JobId, i64)| {
                    !ours.iter().any(|held| held.job == *job && held.epoch == *epoch)
                };
                for (job, epoch) in held.into_iter().filter(lost) {
                    self.engine.abandon(&job, epoch);
                }
                self.heartbeat_at = now.plus(HEARTBEAT);
            }
            Err(error) => {
                warn!("cannot renew the leases: {error}");
                self.heartbeat_at = now.plus(RETRY);
            }
        }
    }

    /// Views are for people: what cannot be written is said, and is no reason to stop.
    async fn write_views(&mut self) {
        let (loaded, now) = (self.engine.loaded(), self.engine.clock.now());
        if let Err(error) = self.views.catch_up(&self.engine.store, &loaded, now).await {
            warn!("the views are behind: {error:#}");
        }
        self.engine.seen_by_views.store(self.views.cursor(), Ordering::Relaxed);
        fault::place("viewed");
    }

    async fn mend_views(&mut self) {
        let (loaded, now) = (self.engine.loaded(), self.engine.clock.now());
        if let Err(error) = self.views.mend(&self.engine.store, &loaded, now).await {
            warn!("the views are behind: {error:#}");
        }
    }

    /// Sources hear what the end of the daemon made of their items, and hooks run, if they are quick; the rest is for the
    /// next start. A hook that is a process goes on under its keeper, for as long as it may.
    async fn deliver_outbox(&mut self) {
        let owed = async {
            self.engine.owed.notify_one();
            while matches!(self.engine.store.has_due_outbox_entry(self.engine.clock.now()).await, Ok(true)) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let hooks = async {
            self.engine.hooks.notify_one();
            let any = || self.engine.store.any_hook(self.engine.home.node.clone(), self.engine.clock.now());
            while matches!(any().await, Ok(true)) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let (owed, hooks) =
            tokio::join!(tokio::time::timeout(LAST_WORDS, owed), tokio::time::timeout(LAST_WORDS, hooks));
        if owed.is_err() {
            warn!("a work source could not be told everything; it will be at the next start");
        }
        if hooks.is_err() {
            warn!("not all hooks have come to their end; they are seen to at the next start");
        }
        self.errands.shutdown().await;
    }

    /// Writes down of each running job that the end of the daemon ends it. A store that does not answer holds up nothing.
    async fn say_why_they_end(&self) {
        let (store, now) = (&self.engine.store, self.engine.clock.now());
        let say = async {
            for (job, _) in self.engine.held() {
                if let Err(error) = store.note_cancelling(job.clone(), CancelReason::DaemonStopped, now).await
                {
                    warn!(%job, "why it is cancelled is not written: {error}");
                }
            }
        };
        if tokio::time::timeout(SAYING, say).await.is_err() {
            warn!("the store does not answer; why jobs are cancelled is not written");
        }
    }

    async fn end(mut self, mut way: watch::Receiver<Lifecycle>) {
        self.triggers.stop().await;
        self.pruning.stop();
        self.engine.ending.store(true, Ordering::Relaxed);
        let keep_agents = *way.borrow_and_update() == Lifecycle::Leaving;
        let wish = if keep_agents { StopRequest::Detach } else { StopRequest::Cancel };
        if !keep_agents {
            self.say_why_they_end().await;
        }
        for (job, _) in self.engine.held() {
            self.engine.wish(&job, wish);
        }
        while !self.tasks.is_empty() {
            tokio::select! {
                Some(ended) = self.tasks.join_next() => panic::tell("a task", ended),
                _ = way.changed(), if !keep_agents => {
                    for (job, _) in self.engine.held() {
                        self.engine.wish(&job, StopRequest::CancelNow);
                    }
                }
            }
        }
        if self.engine.is_homeless() {
            // What lies in its place may be another daemon's.
            self.errands.shutdown().await;
        } else {
            self.deliver_outbox().await;
            self.write_views().await;
        }
        self.traces.stop().await;
        info!("stopped");
    }
}

/// A keeper will be started soon.
fn expect() {
    // It has a thread of its own, and nobody waits for it.
    drop(tokio::task::spawn_blocking(cgroup::wait_ahead));
}

/// A job that has just been claimed gets a task that looks after it.
fn begin(engine: &Arc<Engine>, tasks: &mut JoinSet<()>, job: Job, epoch: i64, fallback: Option<usize>) {
    fault::place("claimed");
    if let Some(wishes) = engine.begin(&job, epoch) {
        let task = AttemptTask { engine: Arc::clone(engine), job, epoch, wishes, fallback, stopped: None };
        tasks.spawn(task.supervise(true));
    }
}

/// Between two looks while the daemon drains, and before a store that failed is asked again.
const LOOK: jiff::SignedDuration = jiff::SignedDuration::from_millis(200);
const RETRY: jiff::SignedDuration = jiff::SignedDuration::from_secs(2);
/// How long it may take to write down why jobs end.
const SAYING: Duration = Duration::from_secs(2);
const LAST_WORDS: Duration = Duration::from_secs(10);

/// A fleet's files with what its `.env` names, or the whole report of what is wrong with them.
pub fn load(file: &std::path::Path) -> Result<Contents, FleetError> {
    let config::FromDisk { loaded, variables, notes, files, .. } = config::load(file);
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
    Ok(Contents { roster: loaded.roster, variables, shown: Some(loaded.shown), files })
}

/// What a fleet is made of.
#[derive(Debug, Default)]
pub struct Contents {
    pub roster: Roster,
    /// Of the `.env`.
    pub variables: HashMap<String, String>,
    /// For people, without secrets; none if no file says it.
    pub shown: Option<Value>,
    /// All that were asked for, there or not.
    pub files: Vec<PathBuf>,
}
