//! A fleet that runs: the interface of the library, which the program itself uses. The crate `cowhand` has an example.

mod ask;
mod deliver;
mod events;
mod jobs;
mod known;
mod output;
mod prune;
mod ready;
mod report;
mod schedules;
mod switch;
mod trigger;
mod unset_secrets;
mod wake;
mod work;

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use cowhand_core::event::Fact;
use cowhand_core::id::AgentName;
use cowhand_core::moment::Moment;
use cowhand_core::roster::{Agent, Roster};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::{Mutex, OwnedMutexGuard, watch};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::context::Engine;
use crate::daemon::{Contents, Daemon, load};
use crate::doctor::Subject;
use crate::herdctl::Import;
use crate::lifecycle::Lifecycle;
use crate::loaded::Loaded;
use crate::secrets;
use crate::state::StateFolder;
use crate::trigger::Registry as Triggers;
use cowhand_run::sandbox;
use cowhand_store::Store;
use cowhand_store::audit;
use cowhand_system::blocking::run_blocking;
use cowhand_system::clock::Clock;
use cowhand_work::{SourceContext, SourceRegistry, WorkSources};

pub use crate::error::FleetError;
pub use crate::lifecycle::Stop;
pub use crate::schedule_view::{ScheduleStatus, ScheduleView};
pub use ask::Heard;
pub use deliver::Delivered;
pub use events::Subscription;
pub use known::{known_agent, known_schedule, missing_agent};
pub use output::{Output, Said};
pub use prune::{PruneAsked, PruneView, PrunedJob};
pub use prune::{prune, remove_job};
pub use ready::Unready;
pub use trigger::{Changes, Trigger, Triggered};

/// What a fleet is started with.
#[derive(Debug, Clone)]
pub struct Options {
    pub agents: Agents,
    pub state: StateFolder,
    pub clock: Clock,
    /// The `cowhand` program, which is the keeper of every attempt.
    pub program: PathBuf,
    /// Where work can come from: what is built in, and what this program adds.
    pub work_sources: SourceRegistry,
    /// Types of triggers that are not built in.
    pub triggers: Triggers,
    /// Start without the state that herdctl left beside a `herdctl.yaml`.
    pub fresh: bool,
}

/// Who is in the fleet.
#[derive(Debug, Clone)]
pub enum Agents {
    /// As the fleet's root file says, and whatever it says when it is read again.
    Config(PathBuf),
    Given(Roster),
}

/// A fleet that runs in this process. The state folder is its own until it has ended and is dropped; dropped before
/// that, it leaves its agents to their keepers.
#[derive(Debug)]
pub struct Fleet {
    engine: Arc<Engine>,
    surroundings: Surroundings,
    config: Option<PathBuf>,
    course: watch::Sender<Lifecycle>,
    ended: watch::Receiver<bool>,
    /// The config was asked for again.
    reloads: watch::Sender<()>,
    config_refused_at: watch::Sender<Option<Timestamp>>,
    /// Held from reading a config to taking it, so that nobody puts an older one in the place of a newer one.
    taking: Arc<Mutex<()>>,
    started_at: Moment,
    probed: ready::Probed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetStatus {
    Running,
    Stopping,
    Stopped,
}

/// How a fleet stands, in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetState {
    pub status: FleetStatus,
    /// On the wall clock as it is set now.
    pub started_at: Timestamp,
    /// How often it was decided what is due.
    pub check_count: u64,
    /// How many jobs that led to, and how many were asked for.
    pub trigger_count: u64,
    pub last_check_at: Option<Timestamp>,
    pub running_jobs: usize,
}

/// What a config that was read again came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reloaded {
    pub agents: usize,
    pub schedules: usize,
}

impl Options {
    /// A fleet as people have it: its state folder stands beside its root file.
    pub fn of(config: impl Into<PathBuf>, program: impl Into<PathBuf>) -> Self {
        let config = config.into();
        Self {
            state: StateFolder::beside(&config),
            agents: Agents::Config(config),
            clock: Clock::System,
            program: program.into(),
            work_sources: SourceRegistry::default(),
            triggers: Triggers::default(),
            fresh: false,
        }
    }
}

impl Fleet {
    /// Takes the state folder, opens the store, takes up what runs already, and goes on from there.
    pub async fn start(options: Options) -> Result<Self, FleetError> {
        let Options { agents, state, clock, program, work_sources, triggers, fresh } = options;
        // Keepers work elsewhere.
        let state = StateFolder::at(absolute(state.path())?);
        let program = if is_bare(&program) { program } else { absolute(&program)? };
        let (config, base, contents) = match agents {
            Agents::Config(file) => {
                let base = file.parent().unwrap_or(Path::new("")).to_owned();
                // On this thread: what a blocking thread frees would stay with that thread's allocator.
                let loaded = load(&file)?;
                (Some(file), base, loaded)
            }
            Agents::Given(roster) => {
                let contents = Contents { roster: checked(roster)?, ..Contents::default() };
                (None, PathBuf::new(), contents)
            }
        };
        let surroundings = Surroundings { base, clock: clock.clone(), registry: Arc::new(work_sources) };
        let loaded = surroundings.loaded(contents);
        let import = Import::of(config.as_deref(), fresh);
        let daemon = Daemon::open(loaded, state, clock, program, triggers, import).await?;
        let engine = Arc::clone(daemon.engine());
        let started_at = engine.clock.moment();
        unset_secrets::note(&engine).await?;
        let (course, way) = watch::channel(Lifecycle::Running);
        let (over, ended) = watch::channel(false);
        let steering = course.clone();
        tokio::spawn(async move {
            daemon.run(way, &steering).await;
            over.send_replace(true);
        });
        let reloads = watch::Sender::new(());
        let config_refused_at = watch::Sender::new(None);
        let taking = Arc::default();
        Ok(Self {
            engine,
            surroundings,
            config,
            course,
            ended,
            reloads,
            config_refused_at,
            taking,
            started_at,
            probed: ready::Probed::default(),
        })
    }

    /// For whatever this face has no word for. What is written here past it is seen at the next look only.
    pub fn store(&self) -> &Store {
        &self.engine.store
    }

    /// Where everything is kept that is not in the store.
    pub fn state_folder(&self) -> &StateFolder {
        &self.engine.home.state
    }

    /// The time by which it plans.
    pub fn clock(&self) -> &Clock {
        &self.engine.clock
    }

    /// Who we are to others that share the store.
    pub fn node(&self) -> &str {
        &self.engine.home.node
    }

    /// Who is in the fleet now.
    pub fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.engine.loaded().roster)
    }

    /// The config as it runs, merged and with secrets masked; none if the agents came from no file.
    pub fn config(&self) -> Option<Value> {
        self.engine.loaded().shown.clone()
    }

    /// The last event before this fleet was started.
    pub fn first_event(&self) -> i64 {
        self.engine.home.first_event
    }

    pub fn seen_by_views(&self) -> i64 {
        self.engine.seen_by_views.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub fn sources(&self) -> Arc<WorkSources> {
        Arc::clone(&self.engine.loaded().sources)
    }

    /// What `doctor` examines in this process.
    pub fn doctor_subject(&self) -> Subject {
        let Loaded { roster, variables, sources, files, .. } = &*self.engine.loaded();
        Subject {
            roster: Arc::clone(roster),
            state: self.state_folder().clone(),
            variables: variables.clone(),
            files: files.clone(),
            sources: Arc::clone(sources),
        }
    }

    /// Whether it takes new work.
    pub fn is_running(&self) -> bool {
        self.status() == FleetStatus::Running
    }

    /// Running, on its way to stop, or stopped.
    pub fn status(&self) -> FleetStatus {
        // A loop that is gone without a word is as stopped as one that said so.
        if *self.ended.borrow() || self.ended.has_changed().is_err() {
            FleetStatus::Stopped
        } else if *self.course.borrow() == Lifecycle::Running {
            FleetStatus::Running
        } else {
            FleetStatus::Stopping
        }
    }

    /// How it stands, in numbers.
    pub fn state(&self) -> FleetState {
        let counts = self.engine.counts();
        FleetState {
            status: self.status(),
            started_at: self.started_at.on_clock_of(self.engine.clock.moment()),
            check_count: counts.checks,
            trigger_count: counts.triggers,
            last_check_at: counts.last_check_at,
            running_jobs: self.engine.held().len(),
        }
    }

    /// Other agents from now on. What runs goes on under the rules it has; a schedule that is no longer there fires no
    /// more, and keeps its history in case it comes back.
    pub async fn set_agents(&self, agents: Vec<Agent>) -> Result<(), FleetError> {
        let alone = Arc::clone(&self.taking).lock_owned().await;
        let roster = checked(Roster { agents, ..Roster::clone(&self.roster()) })?;
        let variables = self.engine.loaded().variables.clone();
        self.take(Contents { roster, variables, ..Contents::default() }, alone).await
    }

    /// Reads the config again. A bad one is refused whole, and the old one stays.
    pub async fn reload(&self) -> Result<Reloaded, FleetError> {
        let Some(config) = &self.config else {
            return Err(FleetError::Config(
                "this fleet was given its agents; there is no file to read".to_owned(),
            ));
        };
        // Whatever the config is like: a certificate has nothing to do with that.
        self.reloads.send_replace(());
        let alone = Arc::clone(&self.taking).lock_owned().await;
        let file = config.clone();
        let contents = run_blocking(move || load(&file)).await;
        let at = self.engine.clock.now();
        let was_refused = self.config_refused_at.send_replace(contents.is_err().then_some(at)).is_some();
        let contents = match contents {
            Ok(contents) => contents,
            Err(error) => {
                self.note(Fact::FleetConfigRefused).await;
                return Err(error);
            }
        };
        let roster = &contents.roster;
        if roster.store != self.roster().store {
            warn!("`store` has changed; it stays as it is until a restart");
        }
        if roster.server != self.roster().server {
            warn!("`server` has changed; it stays as it is until a restart");
        }
        if roster.traces != self.roster().traces {
            warn!("`traces` has changed; it stays as it is until a restart");
        }
        let schedules = roster.agents.iter().map(|agent| agent.schedules.len()).sum();
        let reloaded = Reloaded { agents: roster.agents.len(), schedules };
        self.take(contents, alone).await?;
        info!(agents = reloaded.agents, schedules, "config loaded again");
        // What changed tells of itself; pages that show a refusal have to learn that it is over.
        if was_refused || audit::current().is_some() {
            self.note(Fact::FleetReloaded { agents: reloaded.agents, schedules }).await;
        }
        Ok(reloaded)
    }

    /// Records a fact about the whole fleet. A store that cannot be written keeps nothing else from being done.
    async fn note(&self, fact: Fact) {
        let name = fact.type_name();
        if let Err(error) = self.store().note(fact, self.engine.clock.now()).await {
            warn!("the event {name} is not written: {error}");
        }
    }

    /// When the config on disk was refused, if it was when it was last read.
    pub fn config_refused_at(&self) -> Option<Timestamp> {
        *self.config_refused_at.borrow()
    }

    /// For what is read anew with the config.
    pub fn reloads(&self) -> watch::Receiver<()> {
        self.reloads.subscribe()
    }

    /// In the store and here, or in neither, also if whoever asked for it goes away meanwhile.
    async fn take(&self, contents: Contents, alone: OwnedMutexGuard<()>) -> Result<(), FleetError> {
        let (engine, loaded) = (Arc::clone(&self.engine), self.surroundings.loaded(contents));
        let taken = tokio::spawn(async move {
            let _alone = alone;
            engine.store.load_schedules(Roster::clone(&loaded.roster), engine.clock.now()).await?;
            engine.set_roster(loaded);
            unset_secrets::note(&engine).await?;
            engine.nudge.notify_one();
            Ok(())
        });
        taken.await.map_err(|_| FleetError::Died)?
    }

    async fn missing(&self, agent: &AgentName) -> FleetError {
        missing_agent(self.store(), &self.roster(), agent).await
    }

    /// Says that the agent is to begin anew, for the schedules that wait for that.
    pub async fn clear(&self, agent: &AgentName) -> Result<(), FleetError> {
        let roster = self.roster();
        if roster.agent(agent).is_none() {
            return Err(self.missing(agent).await);
        }
        self.engine.store.clear_agent(agent.clone(), self.engine.clock.now()).await?;
        self.nudge();
        Ok(())
    }

    /// Something was written that may change the plan.
    pub fn nudge(&self) {
        self.engine.nudge.notify_one();
    }

    /// Asks for the end without waiting for it. Asked again, it hurries.
    pub fn begin_stop(&self, how: Stop) {
        self.course.send_if_modified(|course| {
            let after = course.after(how, Instant::now());
            let changed = after != *course;
            *course = after;
            changed
        });
    }

    /// Until it has ended, or until jobs have used up the time they were given to finish: then the caller knows first,
    /// and they are cancelled.
    pub async fn stop(&self, how: Stop) -> Result<(), FleetError> {
        self.begin_stop(how);
        let mut way = self.course.subscribe();
        let overdue = async {
            match way.wait_for(|course| !matches!(course, Lifecycle::Draining { .. })).await.as_deref() {
                Ok(Lifecycle::Cancelling { overdue: running_jobs @ 1.. }) => *running_jobs,
                _ => std::future::pending().await,
            }
        };
        match how {
            Stop::Finish { timeout } => tokio::select! {
                running_jobs = overdue => Err(FleetError::StopTimedOut { timeout, running_jobs }),
                ended = self.ended() => ended,
            },
            Stop::Cancel | Stop::KeepAgents => self.ended().await,
        }
    }

    /// When everything has ended that was to end.
    pub async fn ended(&self) -> Result<(), FleetError> {
        self.ended.clone().wait_for(|ended| *ended).await.map_err(|_| FleetError::Died)?;
        if self.engine.is_homeless() {
            let place = self.state_folder().path().display().to_string();
            return Err(FleetError::HomeGone { place });
        }
        Ok(())
    }
}

/// What does not change while the fleet runs, and what its sources are made with.
#[derive(Debug)]
struct Surroundings {
    base: PathBuf,
    clock: Clock,
    registry: Arc<SourceRegistry>,
}

impl Surroundings {
    /// With new sources: variables and folders may have changed.
    fn loaded(&self, contents: Contents) -> Loaded {
        let Contents { roster, variables, shown, files } = contents;
        let writable = sandbox::writable(&roster);
        let setting = SourceContext::of_base(&self.base, variables.clone()).clock(self.clock.clone());
        let setting = setting.written_by_agents(writable.clone()).named(roster.name.as_deref());
        let sources = Arc::new(WorkSources::new(Arc::clone(&self.registry), setting));
        let named = secrets::named::variables(&roster, shown.as_ref());
        let (roster, redactor) = (Arc::new(roster), OnceLock::new());
        Loaded { roster, variables, sources, shown, files, named, writable, redactor }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.begin_stop(Stop::KeepAgents);
    }
}

/// Of where this process works now, which may change.
fn absolute(path: &Path) -> Result<PathBuf, FleetError> {
    let place = path.display().to_string();
    std::path::absolute(path).map_err(|source| FleetError::State { place, source })
}

/// A name without a folder, which is looked for in `PATH`.
fn is_bare(program: &Path) -> bool {
    program.components().count() == 1 && !program.has_root()
}

/// What the config's checks would have said.
fn checked(roster: Roster) -> Result<Roster, FleetError> {
    let mut names = std::collections::HashSet::new();
    match roster.agents.iter().find(|agent| !names.insert(&agent.name)) {
        Some(twice) => Err(FleetError::Config(format!("two agents have the name {}", twice.name))),
        None => Ok(roster),
    }
}
