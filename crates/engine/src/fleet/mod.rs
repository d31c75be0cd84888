//! A running fleet: the interface of the library, which the program itself uses. The crate `cowhand` has an example.

pub(crate) mod ask;
mod deliver;
mod enable;
mod events;
mod find_item;
mod hook_names;
mod jobs;
mod known;
mod nodes;
mod output;
mod prune;
mod ready;
mod report;
mod say;
mod schedules;
mod send_file;
mod sent_content;
mod source_inputs;
mod start_settings;
mod test_notification;
mod trigger;
mod wake;
mod web_chat;
mod webhook_problems;
mod work;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cowhand_core::config::{KeptFleets, ShownConfig};
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

use crate::config::{self, FromDisk, WatchedFile};
use crate::context::Engine;
use crate::daemon::{ConfigContents, Daemon, contents};
use crate::doctor::Subject;
use crate::herdctl::Import;
use crate::lifecycle::Lifecycle;
use crate::loaded::Loaded;
use crate::state::{LockState, StateFolder, StoreMark};
use crate::tls::Certificate;
use crate::trigger::Registry as Triggers;
use cowhand_store::{Store, audit};
use cowhand_system::blocking::run_blocking;
use cowhand_system::clock::Clock;
use cowhand_system::memory::return_free_memory;
use cowhand_work::{SourceRegistry, WorkSources};

pub use crate::error::{FleetError, Unready, WriteProblem};
pub use crate::lifecycle::Stop;
pub use crate::nodes::NodeOptions;
pub use crate::schedule_view::{ScheduleStatus, ScheduleView};
pub use ask::AskDecision;
pub use deliver::Delivered;
pub(crate) use deliver::DeliveryEdit;
pub use events::Subscription;
pub use find_item::find_item;
pub use jobs::{AcceptedFiring, accepted_firings};
pub use known::{known_agent, known_schedule, missing_agent, missing_schedule};
pub use output::{JobMessage, OutputStream};
pub use prune::{PruneRequest, PruneView, PrunedJob, prune, remove_job, remove_workspaces};
pub use say::{Said, SayRequest};
pub use send_file::FileToSend;
use source_inputs::SourceInputs;
use start_settings::StartSettings;
pub use trigger::{JobChanges, PreparingFiring, TriggerRequest, Triggered};
pub use web_chat::{ConversationStart, FirstWebMessage, SentWebMessage};

/// The parameters with which a fleet is started.
#[derive(Debug, Clone)]
pub struct Options {
    pub agents: AgentSource,
    pub state: StateFolder,
    pub clock: Clock,
    /// Path of the `cowhand` program, which is the keeper of each attempt.
    pub program: PathBuf,
    /// Kinds of work sources: the built-in kinds and those that the caller adds.
    pub work_sources: SourceRegistry,
    /// Trigger types that are not built in.
    pub triggers: Triggers,
    /// If true, the state that herdctl left beside a `herdctl.yaml` is not imported.
    pub fresh: bool,
    /// Labels and capacity of this node.
    pub node: NodeOptions,
}

/// The source of the agents of a fleet.
#[derive(Debug, Clone)]
pub enum AgentSource {
    /// Root file of the fleet, which can be read again.
    Config(PathBuf),
    Given(Roster),
}

/// A fleet that runs in this process. It holds the lock of the state folder until it has ended and is dropped. A fleet
/// that is dropped before its end leaves its agents to their keepers.
#[derive(Debug)]
pub struct Fleet {
    engine: Arc<Engine>,
    source_inputs: SourceInputs,
    config: Option<PathBuf>,
    /// Files of the config when it was last read.
    watched: watch::Sender<Arc<[WatchedFile]>>,
    lifecycle: watch::Sender<Lifecycle>,
    ended: watch::Receiver<bool>,
    /// Signal of requested reloads of the config.
    reloads: watch::Sender<()>,
    config_refused: watch::Sender<Option<RefusedConfig>>,
    /// Why the last reload kept the old certificate of the server.
    certificate_problem: watch::Sender<Option<String>>,
    /// Lock that is held from the read of a config until this config applies, so that an older config cannot replace a
    /// newer config. The lock contains the kept fleets of the last read.
    config_lock: Arc<Mutex<KeptFleets>>,
    started_at: Moment,
    start_settings: StartSettings,
    last_check: ready::LastCheck,
}

/// A read of the config that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RefusedConfig {
    pub at: Timestamp,
    /// True if the root file did not exist.
    pub is_missing: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetStatus {
    Running,
    Stopping,
    Stopped,
}

/// The status of a fleet with its counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetState {
    pub status: FleetStatus,
    /// Start of the fleet, on the wall clock as it is set now.
    pub started_at: Timestamp,
    /// Number of ticks.
    pub check_count: u64,
    /// Number of jobs that were requested by hand, or that firings created without a preparation.
    pub trigger_count: u64,
    /// Time of the last tick.
    pub last_check_at: Option<Timestamp>,
    pub running_jobs: usize,
}

/// The number of agents and schedules in a config that was read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reloaded {
    pub agents: usize,
    pub schedules: usize,
    /// Notes about schedules whose `adopt` names a schedule that the store does not know, about changes that take
    /// effect only at the next start, and about a certificate that cannot be used.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Options {
    /// Returns the usual options: the state folder is beside the root file.
    pub fn of(config: impl Into<PathBuf>, program: impl Into<PathBuf>) -> Self {
        let config = config.into();
        Self {
            state: StateFolder::beside(&config),
            agents: AgentSource::Config(config),
            clock: Clock::System,
            program: program.into(),
            work_sources: SourceRegistry::default(),
            triggers: Triggers::default(),
            fresh: false,
            node: NodeOptions::default(),
        }
    }
}

impl Fleet {
    /// Locks the state folder, opens the store, recovers running attempts and starts the daemon.
    pub async fn start(options: Options) -> Result<Self, FleetError> {
        // The config is loaded on this thread, because memory that a blocking thread frees stays with that thread's
        // allocator.
        let read = match &options.agents {
            AgentSource::Config(file) => Some(config::load(file)),
            AgentSource::Given(_) => None,
        };
        Self::start_with(options, read).await
    }

    /// Starts a fleet as `start` does. `read` is the config of its root file, if the caller has just read it.
    pub async fn start_with(options: Options, read: Option<FromDisk>) -> Result<Self, FleetError> {
        let Options { agents, state, clock, program, work_sources, triggers, fresh, node } = options;
        // Keepers run in another working directory.
        let state = StateFolder::at(absolute(state.path())?);
        let program = if is_bare(&program) { program } else { absolute(&program)? };
        let (config, base, contents, (watched, kept)) = match agents {
            AgentSource::Config(file) => {
                let base = file.parent().unwrap_or(Path::new("")).to_owned();
                let mut read = read.unwrap_or_else(|| config::load(&file));
                let watched = std::mem::take(&mut read.watched);
                let kept = std::mem::take(&mut read.loaded.kept);
                let contents = contents(&file, read)?;
                (Some(file), base, contents, (watched, kept))
            }
            AgentSource::Given(roster) => {
                let contents = ConfigContents::of(check_names(roster)?, HashMap::new());
                (None, PathBuf::new(), contents, (Vec::new(), KeptFleets::default()))
            }
        };
        let (registry, capacity) = (Arc::new(work_sources), node.capacity);
        let source_inputs = SourceInputs { base, clock: clock.clone(), registry, capacity };
        let loaded = source_inputs.loaded(contents);
        let import = Import::of(config.as_deref(), fresh);
        let daemon = Box::pin(Daemon::open(loaded, state, clock, program, triggers, (import, node))).await?;
        let engine = Arc::clone(daemon.engine());
        let started_at = engine.clock.moment();
        webhook_problems::note_webhook_problems(&engine).await?;
        let (lifecycle, lifecycle_receiver) = watch::channel(Lifecycle::Running);
        let (ended_sender, ended) = watch::channel(false);
        let lifecycle_sender = lifecycle.clone();
        tokio::spawn(async move {
            daemon.run(lifecycle_receiver, &lifecycle_sender).await;
            ended_sender.send_replace(true);
        });
        engine.home.mark_started();
        let reloads = watch::Sender::new(());
        let config_refused = watch::Sender::new(None);
        let config_lock = Arc::new(Mutex::new(kept));
        let start_settings = StartSettings::of(&engine.loaded().roster);
        Ok(Self {
            engine,
            source_inputs,
            config,
            watched: watch::Sender::new(watched.into()),
            lifecycle,
            ended,
            reloads,
            config_refused,
            certificate_problem: watch::Sender::new(None),
            config_lock,
            started_at,
            start_settings,
            last_check: ready::LastCheck::default(),
        })
    }

    /// Returns the store, for operations that `Fleet` does not have. The daemon notices writes of the caller only at
    /// its next tick.
    pub fn store(&self) -> &Store {
        &self.engine.store
    }

    /// Returns the state folder.
    pub fn state_folder(&self) -> &StateFolder {
        &self.engine.home.state
    }

    /// Returns the clock by which the fleet plans.
    pub fn clock(&self) -> &Clock {
        &self.engine.clock
    }

    /// Returns the id of this node among the nodes that share the store.
    pub fn node(&self) -> &str {
        &self.engine.home.node
    }

    /// Returns the current roster.
    pub fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.engine.loaded().roster)
    }

    /// Returns the loaded config.
    pub(crate) fn current(&self) -> Arc<Loaded> {
        self.engine.loaded()
    }

    /// Returns the config as it runs, merged and with masked secrets; `None` if the agents did not come from a file.
    pub fn config(&self) -> Option<Value> {
        self.engine.loaded().shown.as_ref().map(ShownConfig::value)
    }

    /// Returns the files of the config as they were at the last read, even if that read did not succeed.
    pub fn watched_files(&self) -> Arc<[WatchedFile]> {
        Arc::clone(&self.watched.borrow())
    }

    /// Returns the number of the last event before this fleet was started.
    pub fn event_before_start(&self) -> i64 {
        self.engine.home.event_before_start
    }

    pub fn seen_by_views(&self) -> i64 {
        self.engine.seen_by_views.load(std::sync::atomic::Ordering::Relaxed)
    }

    pub fn sources(&self) -> Arc<WorkSources> {
        Arc::clone(&self.engine.loaded().sources)
    }

    /// Returns the input of `doctor` for this process.
    pub fn doctor_subject(&self) -> Subject {
        let Loaded { roster, variables, sources, files, .. } = &*self.engine.loaded();
        Subject {
            roster: Arc::clone(roster),
            state: self.state_folder().clone(),
            variables: variables.clone(),
            files: files.clone(),
            sources: Arc::clone(sources),
            triggers: self.engine.triggers.clone(),
            outside: self.engine.listens_outside(),
        }
    }

    /// Returns the id of the store and its location.
    pub fn store_mark(&self) -> &StoreMark {
        &self.engine.home.store_mark
    }

    /// Records the address on which the server listens. This address decides whether unsigned webhooks are accepted.
    pub fn listens_at(&self, listen: SocketAddr) {
        // A second server of the same fleet does not change the address.
        if self.engine.listens_at.set(listen).is_ok() {
            let engine = Arc::clone(&self.engine);
            tokio::spawn(async move {
                if let Err(error) = webhook_problems::note_webhook_problems(&engine).await {
                    warn!("cannot note which webhooks are refused: {error}");
                }
            });
        }
    }

    /// Returns whether the fleet accepts new work.
    pub fn is_running(&self) -> bool {
        self.status() == FleetStatus::Running
    }

    pub fn status(&self) -> FleetStatus {
        // A daemon task that ended without a signal has also stopped.
        if *self.ended.borrow() || self.ended.has_changed().is_err() {
            FleetStatus::Stopped
        } else if *self.lifecycle.borrow() == Lifecycle::Running {
            FleetStatus::Running
        } else {
            FleetStatus::Stopping
        }
    }

    pub fn state(&self) -> FleetState {
        let counts = self.engine.counts();
        FleetState {
            status: self.status(),
            started_at: self.started_at.on_clock_of(self.engine.clock.moment()),
            check_count: counts.checks,
            trigger_count: counts.triggers,
            last_check_at: counts.last_check_at,
            running_jobs: self.engine.running_jobs().len(),
        }
    }

    /// Replaces the agents. Running attempts keep the rules with which they started. A schedule that is no longer in
    /// the roster does not fire. It keeps its history, because it may be added again.
    pub async fn set_agents(&self, agents: Vec<Agent>) -> Result<(), FleetError> {
        let guard = Arc::clone(&self.config_lock).lock_owned().await;
        let configured = Roster::clone(&self.engine.loaded().configured);
        let roster = check_names(Roster { agents: agents.into(), ..configured })?;
        let variables = self.engine.loaded().variables.clone();
        self.apply(ConfigContents::of(roster, variables), guard).await.map(drop)
    }

    /// Reads the config again. A config with errors is refused as a whole, and the old config stays in force.
    pub async fn reload(&self) -> Result<Reloaded, FleetError> {
        let Some(config) = &self.config else {
            return Err(FleetError::Config(
                "this fleet was built from agents in memory, so there is no config to reload".to_owned(),
            ));
        };
        // The signal is sent even if the config is refused, because the certificate does not depend on the config.
        self.reloads.send_replace(());
        self.certificate_problem.send_replace(self.check_certificate().await);
        let mut guard = Arc::clone(&self.config_lock).lock_owned().await;
        let (file, earlier) = (config.clone(), std::mem::take(&mut *guard));
        let (contents, watched, kept, is_missing) = run_blocking(move || {
            let mut read = config::load_again(&file, earlier);
            let watched = std::mem::take(&mut read.watched);
            let kept = std::mem::take(&mut read.loaded.kept);
            (contents(&file, read), watched, kept, !file.exists())
        })
        .await;
        *guard = kept;
        self.watched.send_replace(watched.into());
        let before = self.config_refused();
        // The time is that of the first refusal of this kind since the config was last accepted.
        let same = before.filter(|before| before.is_missing == is_missing);
        let at = same.map_or_else(|| self.engine.clock.now(), |same| same.at);
        let refused = contents.is_err().then_some(RefusedConfig { at, is_missing });
        self.config_refused.send_replace(refused);
        let was_refused = before.is_some();
        let contents = match contents {
            Ok(contents) => contents,
            Err(error) => {
                self.record_fact(Fact::FleetConfigRefused).await;
                return Err(error);
            }
        };
        let roster = &contents.roster;
        let later = self.start_settings.changes(roster);
        for note in &later {
            warn!("{note}");
        }
        let schedules = roster.agents.iter().map(|agent| agent.schedules.len()).sum();
        let agents = roster.agents.len();
        let mut notes = self.apply(contents, guard).await?;
        notes.extend(later);
        notes.extend(self.certificate_problem());
        let reloaded = Reloaded { agents, schedules, notes };
        info!(agents = reloaded.agents, schedules, "config loaded again");
        // Changes of schedules have their own events. This event also informs pages that an earlier refusal is over.
        if was_refused || audit::current().is_some() {
            self.record_fact(Fact::FleetReloaded { agents: reloaded.agents, schedules }).await;
        }
        Ok(reloaded)
    }

    /// Returns whether the current config names another store than the config at the start did.
    pub fn store_changed(&self) -> bool {
        self.start_settings.store_changes(&self.roster())
    }

    /// Returns why the last reload kept the old certificate of the server; `None` if it did not.
    pub fn certificate_problem(&self) -> Option<String> {
        self.certificate_problem.borrow().clone()
    }

    /// Returns a sentence if the server cannot use the certificate that is in its files now.
    async fn check_certificate(&self) -> Option<String> {
        self.engine.listens_at.get()?;
        let files = self.roster().server.tls.clone()?;
        let read = run_blocking(move || Certificate::read(&files).map(drop)).await;
        read.err().map(|error| format!("the server keeps its old certificate: {error}"))
    }

    /// Records an event about the whole fleet. A failed write is only logged, so that it does not block the caller.
    async fn record_fact(&self, fact: Fact) {
        let name = fact.type_name();
        if let Err(error) = self.store().record_fact(fact, self.engine.clock.now()).await {
            warn!("cannot store the event {name}: {error}");
        }
    }

    /// Returns since when the config on disk is refused, and whether its root file is missing; `None` if the last read
    /// accepted it.
    pub fn config_refused(&self) -> Option<RefusedConfig> {
        *self.config_refused.borrow()
    }

    /// Returns a signal of reloads, for other files that are read again together with the config.
    pub fn reloads(&self) -> watch::Receiver<()> {
        self.reloads.subscribe()
    }

    /// Applies a config in the store and in this process, or in neither, even if this future is dropped before its end.
    /// Returns a note about each `adopt` that names a schedule that the store does not know.
    async fn apply(
        &self,
        contents: ConfigContents,
        guard: OwnedMutexGuard<KeptFleets>,
    ) -> Result<Vec<String>, FleetError> {
        let (engine, loaded) = (Arc::clone(&self.engine), self.source_inputs.loaded(contents));
        let applied = tokio::spawn(async move {
            let _guard = guard;
            let empty = engine.store.load_schedules(Arc::clone(&loaded.roster), engine.clock.now()).await?;
            for empty in &empty {
                warn!("{empty}");
            }
            engine.set_roster(loaded);
            engine.replan_all();
            // The new config already applies, so a failure here must not look like a refused config.
            if let Err(error) = webhook_problems::note_webhook_problems(&engine).await {
                warn!("the problems of webhooks are not recorded until the next reload: {error}");
            }
            // The old config is no longer used. Nobody waits for this.
            tokio::task::spawn_blocking(return_free_memory);
            Ok(empty.iter().map(ToString::to_string).collect())
        });
        applied.await.map_err(|_| FleetError::Died)?
    }

    /// Returns the error for a verb that needs an agent in the config. The error does not suggest a removed agent,
    /// because the verb would refuse that agent, too.
    async fn missing_agent_error(&self, agent: &AgentName) -> FleetError {
        let roster = self.roster();
        match missing_agent(self.store(), &roster, agent).await {
            FleetError::NoAgent { .. } => FleetError::no_agent(&roster, agent),
            error => error,
        }
    }

    /// Forgets the sessions of the agent, and records the event `agent:cleared`, which fires the schedules that have
    /// this event as their trigger.
    pub async fn clear(&self, agent: &AgentName) -> Result<(), FleetError> {
        let roster = self.roster();
        if roster.agent(agent).is_none() {
            return Err(self.missing_agent_error(agent).await);
        }
        self.engine.store.clear_agent(agent.clone(), self.engine.clock.now()).await?;
        self.nudge();
        Ok(())
    }

    /// Wakes the daemon loop after a write that may change the plan.
    pub fn nudge(&self) {
        self.engine.nudge.notify_one();
    }

    /// Requests the stop of the fleet without waiting for its end. A repeated request makes the stop faster.
    pub fn begin_stop(&self, how: Stop) {
        self.lifecycle.send_if_modified(|lifecycle| {
            let next = lifecycle.after(how, Instant::now());
            let is_changed = next != *lifecycle;
            *lifecycle = next;
            is_changed
        });
    }

    /// Stops the fleet and waits for its end. If jobs exceed the timeout of `Finish`, returns an error at once, and the
    /// jobs are cancelled.
    pub async fn stop(&self, how: Stop) -> Result<(), FleetError> {
        self.begin_stop(how);
        let mut lifecycle = self.lifecycle.subscribe();
        let overdue = async {
            match lifecycle
                .wait_for(|lifecycle| !matches!(lifecycle, Lifecycle::Draining { .. }))
                .await
                .as_deref()
            {
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

    /// Waits until the fleet has ended. Returns an error if the daemon failed or lost its state folder.
    pub async fn ended(&self) -> Result<(), FleetError> {
        self.ended.clone().wait_for(|ended| *ended).await.map_err(|_| FleetError::Died)?;
        match self.engine.home_loss.get() {
            Some(loss) => Err(loss.error(self.state_folder().path().display().to_string())),
            None => Ok(()),
        }
    }

    /// Records that this fleet answers on the owner's socket. Verbs then name its process if the socket does not
    /// answer.
    pub fn record_socket(&self) {
        self.engine.home.write_pid();
    }

    /// Returns whether the state folder still belongs to this fleet.
    pub fn holds_state_folder(&self) -> bool {
        !self.engine.is_state_folder_lost() && self.engine.home.lock_state() == LockState::Held
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.begin_stop(Stop::KeepAgents);
    }
}

/// Makes a path absolute, because the working directory of this process may change.
fn absolute(path: &Path) -> Result<PathBuf, FleetError> {
    let folder = path.display().to_string();
    std::path::absolute(path).map_err(|source| FleetError::State { folder, source })
}

/// Returns whether the program is a name without a folder, which is searched in `PATH`.
fn is_bare(program: &Path) -> bool {
    program.components().count() == 1 && !program.has_root()
}

/// Checks that names of agents are unique, as the config loader does, for a roster that did not come from a file.
fn check_names(roster: Roster) -> Result<Roster, FleetError> {
    let mut names = std::collections::HashSet::new();
    let duplicate = roster.agents.iter().find(|agent| !names.insert(&agent.name));
    match duplicate {
        Some(duplicate) => Err(FleetError::Config(format!("two agents have the name {}", duplicate.name))),
        None => Ok(roster),
    }
}
