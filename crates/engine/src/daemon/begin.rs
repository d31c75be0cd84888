//! The start of an attempt: its session, its directory, and its keeper.

use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cowhand_core::attempt::Settlement;
use cowhand_core::job::{ErrorKind, FailReason, JobError, NotBegun, Origin, Outcome, Termination};
use cowhand_core::policy::Timeout;
use cowhand_core::roster::{Agent, JobRestrictions};
use cowhand_core::runtime::Runtime;
use cowhand_core::workspace::IsolationKind;
use jiff::{SignedDuration, Timestamp};
use tracing::{info, warn};

use super::attempt::{AttemptTask, Rules};
use super::orphans;
use super::workspaces::{self, WorkDir};
use crate::context::StopRequest;
use cowhand_run::attempt::{Attempt, Prelude};
use cowhand_run::launch::{self, Launch};
use cowhand_run::redact::Redactor;
use cowhand_run::runtime::{SessionChoice, description};
use cowhand_run::shortage;
use cowhand_run::workspace::{Setup, SetupFailure, set_up};
use cowhand_store::{StoreError, StoredSession};
use cowhand_system::closed::{advice, closed_folder};
use cowhand_system::fault;
use cowhand_system::remove::is_missing;

/// The session, directory and notes with which an attempt begins.
#[derive(Debug, Default)]
struct Beginning {
    session: SessionChoice,
    /// Directory the session was started in, if the job has its own workspace.
    directory: Option<PathBuf>,
    /// Notes for people, written to the output.
    notes: Vec<String>,
    /// True if the session already contains the task, so that the agent only has to continue.
    goes_on: bool,
}

/// Prompt of an agent that a usage limit had stopped. It does not say that the limit has ended, because a fallback may
/// run, or a person may have ended the wait.
const CONTINUE_PROMPT: &str = "Your provider's usage limit stopped you here. You can go on now: continue your task where you \
    left off, and do not repeat what is done.";

impl AttemptTask {
    /// Starts the attempt, and returns whether there is now something to follow.
    pub(super) async fn launch(&mut self, rules: &Rules) -> bool {
        if let Err(error) = self.clear().await {
            self.not_started(format!("its folder cannot be cleared: {error}"), rules).await;
            return false;
        }
        match self.beginning(rules).await {
            Ok(beginning) => self.launch_with(rules, beginning).await,
            Err(error) => {
                // The job is not at fault if the store does not answer.
                let why = NotBegun::Shortage(format!("cannot look for its session: {error}"));
                self.requeue(why, rules).await;
                false
            }
        }
    }

    /// Ends and removes an attempt with the same number that the store does not know: one from after the backup that
    /// was restored.
    async fn clear(&self) -> io::Result<()> {
        let attempt = self.attempt();
        if is_missing(attempt.folder()) {
            return Ok(());
        }
        warn!(job = %self.job.id(), attempt = attempt.name(), "found an attempt with the same number that the store does not know; it is removed");
        orphans::end(&attempt).await;
        attempt.on_blocking_thread(Attempt::clear).await
    }

    /// Starts the attempt again with a fresh session, after the program did not find its session and did nothing.
    pub(super) async fn launch_anew(&mut self, rules: &Rules) -> bool {
        let attempt = self.attempt();
        let session = attempt.resumed().unwrap_or_default();
        let note = format!("the session {session} is not there any more; this is a fresh one");
        info!(job = %self.job.id(), "{note}");
        self.forget_session(&session).await;
        if let Err(error) = attempt.discard() {
            self.not_started(format!("{note}, but its folder cannot be cleared: {error}"), rules).await;
            return false;
        }
        self.launch_with(rules, Beginning { notes: vec![note], ..Beginning::default() }).await
    }

    async fn launch_with(&mut self, rules: &Rules, beginning: Beginning) -> bool {
        if let JobRestrictions::Removed(schedule) = rules.agent.restrictions(&self.job) {
            let why = format!(
                "its schedule `{schedule}` is not in the config any more, and with it what the job may not do"
            );
            self.not_started(why, rules).await;
            return false;
        }
        let mut agent = rules.agent.clone();
        let work_dir = match beginning.directory {
            Some(directory) => Ok(WorkDir { directory, fresh: false }),
            None => workspaces::work_dir(&self.engine, &self.job, &agent).await,
        };
        let work_dir = match work_dir {
            Ok(work_dir) => work_dir,
            Err(why) => {
                self.not_started(why, rules).await;
                return false;
            }
        };
        fault::place("workspace-made");
        agent.directory.clone_from(&work_dir.directory);
        agent.budget = self.allowance().await.unwrap_or_default();
        let launch = shown_to_all(&agent, &rules.redactor)
            .map_or_else(|| self.launch_spec(&agent, &beginning.session), Err);
        let launch = match launch.and_then(|launch| self.with_sandbox(&agent, &rules.agent.directory, launch))
        {
            Ok(launch) => launch.ready().await,
            refused => refused,
        };
        let launch = match launch {
            Ok(launch) => launch,
            Err(refusal) => {
                self.not_started(refusal, rules).await;
                return false;
            }
        };
        // `setup` gets the agent's environment, which contains the names of these files.
        if let Err(error) = self.attempt().write_private(&launch.files) {
            self.not_started(format!("its private files cannot be written: {error}"), rules).await;
            return false;
        }
        if work_dir.fresh && !self.set_up(&agent, &launch, rules).await {
            return false;
        }
        let mut notes = beginning.notes;
        if self.fallback.is_some() {
            let (runtime, model) = (agent.runtime().name(), &agent.program.model);
            let model = model.as_ref().map(|model| format!(" and {model}")).unwrap_or_default();
            let why = if beginning.goes_on { "" } else { "its provider is used up; " };
            notes.push(format!("{why}a fallback stands in, with {runtime}{model}"));
        }
        let prelude = Prelude {
            notes,
            resumed: match beginning.session {
                SessionChoice::Resume(id) | SessionChoice::Fork { of: id, .. } => Some(id),
                SessionChoice::Fresh | SessionChoice::FreshAs(_) => None,
            },
        };
        let prompt = if beginning.goes_on { Some(CONTINUE_PROMPT) } else { self.job.prompt() };
        self.start_keeper(&agent, &launch, &prelude, prompt.unwrap_or_default(), rules).await
    }

    fn launch_spec(&self, agent: &Agent, session: &SessionChoice) -> Result<Launch, String> {
        let own = launch::own_environment();
        let loaded = self.engine.loaded();
        let agent = self.with_job_channel(agent)?;
        let mut launch =
            Launch::of(&agent, &self.job, session, own, &loaded.variables, &self.attempt().private())?;
        launch.environment.extend(self.channel_env()?);
        Ok(launch)
    }

    async fn start_keeper(
        &self,
        agent: &Agent,
        launch: &Launch,
        prelude: &Prelude,
        prompt: &str,
        rules: &Rules,
    ) -> bool {
        let attempt = self.attempt();
        let runtime = agent.runtime().name();
        let (job, number) = (self.job.id().clone(), self.job.attempts());
        match self.engine.store.set_place(job, number, &agent.directory, runtime).await {
            Ok(true) => {}
            Ok(false) => {
                warn!(job = %self.job.id(), "it is not started: its lease is lost, and somebody else has settled it");
                self.forget_private();
                return false;
            }
            Err(error) => {
                warn!(job = %self.job.id(), "where it runs is not written, so nobody can go on with it: {error}");
            }
        }
        let program = &self.engine.program;
        let launched = attempt.launch_after(prelude, program, &launch.start, prompt, &launch.environment);
        match launched {
            Ok(mut keeper) => {
                fault::place("launched");
                // Reaped when it ends, however long that takes. This is not a task of the Tokio runtime, which would
                // wait for it at shutdown.
                let reaper = std::thread::Builder::new().spawn(move || keeper.wait());
                if let Err(error) = reaper {
                    warn!(job = %self.job.id(), "nobody waits for its keeper, which will be a zombie: {error}");
                }
                info!(job = %self.job.id(), agent = %self.job.agent(), attempt = number, "started");
                true
            }
            Err(error) => {
                let message = format!("cannot start a keeper in {}: {error}", attempt.folder().display());
                self.not_started(message, rules).await;
                false
            }
        }
    }

    /// Ends an attempt that could not be started. The job waits if the machine has run out of something, and fails otherwise.
    pub(super) async fn not_started(&self, message: String, rules: &Rules) {
        // A folder without access is not the job's fault either.
        let why = if shortage::is_named_in(&message) {
            Some(message.clone())
        } else {
            closed_folder(self.attempt().folder()).map(|closed| format!("{message}; {}", advice(&closed)))
        };
        if let Some(why) = why {
            return self.requeue(NotBegun::Shortage(why), rules).await;
        }
        self.start_failed(message, rules).await;
    }

    pub(super) async fn start_failed(&self, message: String, rules: &Rules) {
        let error = JobError { kind: ErrorKind::StartFailed, message };
        let outcome = Outcome::Failed { reason: FailReason::Error, error, summary: None };
        self.forget_private();
        self.settle(Settlement { used_no_tool: true, ..outcome.into() }, rules).await;
    }

    fn forget_private(&self) {
        if let Err(error) = self.attempt().forget_private() {
            warn!(job = %self.job.id(), "its private files are still there: {error}");
        }
    }

    /// Explains why the keeper ended before it started the agent.
    pub(super) async fn why_no_keeper(&self) -> NotBegun {
        let attempt = self.attempt();
        if let Err(error) = attempt.on_blocking_thread(Attempt::has_room).await
            && shortage::is_named_in(&error.to_string())
        {
            return NotBegun::Shortage(format!("cannot start a keeper: {error}"));
        }
        let program = self.engine.program.display();
        match attempt.keeper_said() {
            Some(said) if shortage::is_named_in(&said) => NotBegun::Shortage(said),
            Some(said) => NotBegun::Failed(format!("its keeper could not start the agent: {said}")),
            None => NotBegun::Failed(format!(
                "its keeper, {program}, ended without a word before it started the agent"
            )),
        }
    }

    /// Runs the setup command of a workspace, if there is one, and stops it when the job is stopped.
    async fn set_up(&mut self, agent: &Agent, launch: &Launch, rules: &Rules) -> bool {
        let isolation = &agent.isolation;
        let Some(command) = isolation.setup.clone() else { return true };
        let (attempt, stop) = (self.attempt(), Arc::new(AtomicBool::new(false)));
        let mut environment = launch.environment.clone();
        environment.push(attempt.mark());
        let (directory, stopping) = (agent.directory.clone(), Arc::clone(&stop));
        let patience = isolation.setup_timeout.unwrap_or(Timeout::SETUP).duration();
        let patience = patience.map(SignedDuration::unsigned_abs);
        let minder = self.engine.program.clone();
        let mut running = tokio::task::spawn_blocking(move || {
            let (command, directory, environment) = (&command, &directory, &environment);
            let done = set_up(&Setup {
                minder: &minder,
                command,
                directory,
                environment,
                patience,
                stop: &stopping,
            });
            // A process that made its own session has left the process group, but still carries the mark.
            if let Err(error) = attempt.end_strays() {
                warn!(attempt = attempt.name(), "what `setup` left running is not ended: {error}");
            }
            done
        });
        let done = loop {
            tokio::select! {
                done = &mut running => break done,
                _ = self.stop_requests.changed() => {}
            }
            if *self.stop_requests.borrow_and_update() != StopRequest::Continue {
                stop.store(true, Ordering::Relaxed);
                break running.await;
            }
        };
        match done {
            Ok(Ok(())) => return true,
            Ok(Err(SetupFailure::CannotStart(why))) => self.not_started(why, rules).await,
            // The output of the command is not examined for shortages, because any text can be in it.
            Ok(Err(SetupFailure::Failed(why))) => self.start_failed(why, rules).await,
            Ok(Err(SetupFailure::Stopped)) => self.stopped_before_its_start(rules).await,
            Err(error) => self.not_started(format!("`setup` cannot be run: {error}"), rules).await,
        }
        false
    }

    async fn stopped_before_its_start(&self, rules: &Rules) {
        if let Err(error) = self.attempt().forget_private() {
            warn!(job = %self.job.id(), "its private files are still there: {error}");
        }
        let stop_request = *self.stop_requests.borrow();
        match stop_request {
            StopRequest::Continue | StopRequest::Detach => self.requeue(NotBegun::Interrupted, rules).await,
            StopRequest::Cancel | StopRequest::CancelNow => {
                self.settle(Outcome::Cancelled { how: Termination::NotStarted }, rules).await;
            }
            StopRequest::Abandon => {}
        }
    }

    /// Chooses the session. A fork begins with a copy of its parent's session; other jobs follow the session policy of
    /// the agent. A session continues only in the directory to which it belongs.
    async fn beginning(&self, rules: &Rules) -> Result<Beginning, StoreError> {
        let (store, agent) = (&self.engine.store, &rules.agent);
        if let Some(beginning) = self.after_limit(agent).await? {
            return Ok(beginning);
        }
        let forked = match self.job.origin() {
            Some(Origin::ForkOf(parent)) => Some(parent.clone()),
            _ => None,
        };
        let stored = match (&forked, agent.session_key_of(&self.job)) {
            (Some(parent), _) => store.session_of(parent.clone()).await?,
            (None, Some(key)) => {
                let since = self.now().checked_sub(agent.session.expires).unwrap_or(Timestamp::MIN);
                let (agent, job) = (agent.name.clone(), self.job.id().clone());
                store.newest_session(agent, key, job, since).await?
            }
            (None, None) => None,
        };
        let Some(stored) = stored else { return Ok(Beginning::default()) };
        let of = stored.session_id.clone();
        let session = if forked.is_some() {
            SessionChoice::Fork { of, as_id: None }
        } else {
            let session = SessionChoice::Resume(of);
            let runtime = agent.runtime();
            if let Some(refusal) = description::refusal(runtime, &session) {
                return Ok(fresh(&stored, &refusal));
            }
            session
        };
        Ok(match self.place_of(&stored, agent).await? {
            Ok(directory) => Beginning { session, directory, ..Beginning::default() },
            Err(why) => fresh(&stored, &why),
        })
    }

    /// Continues the session of a job that a usage limit stopped. Returns `None` for all other jobs.
    async fn after_limit(&self, agent: &Agent) -> Result<Option<Beginning>, StoreError> {
        let (store, id) = (&self.engine.store, self.job.id());
        if self.job.parks() == 0 {
            return Ok(None);
        }
        // The session of the last attempt that began: an attempt that could not be started did nothing.
        let Some(stored) = store.session_of(id.clone()).await? else { return Ok(None) };
        if !stored.outcome.as_ref().is_some_and(Outcome::is_limit) {
            return Ok(None);
        }
        let session = SessionChoice::Resume(stored.session_id.clone());
        if let Some(refusal) = description::refusal(agent.runtime(), &session) {
            return Ok(Some(fresh(&stored, &refusal)));
        }
        let notes = vec!["a usage limit had stopped it; it goes on with its session".to_owned()];
        Ok(Some(match self.place_of(&stored, agent).await? {
            Ok(directory) => Beginning { session, directory, notes, goes_on: true },
            Err(why) => fresh(&stored, &why),
        }))
    }

    /// Returns the directory in which the session can continue, `None` for the agent's own directory, or a sentence on
    /// why it cannot continue.
    async fn place_of(
        &self,
        stored: &StoredSession,
        agent: &Agent,
    ) -> Result<Result<Option<PathBuf>, String>, StoreError> {
        let runtime = agent.runtime().name();
        if let Some(other) = stored.runtime.as_deref().filter(|other| *other != runtime) {
            return Ok(Err(format!("it is one of `runtime: {other}`")));
        }
        // Earlier versions did not store the directory and used the agent's own for all jobs.
        let Some(directory) = &stored.directory else { return Ok(Ok(None)) };
        if stored.node != self.engine.home.node {
            return Ok(Err("it is on another machine".to_owned()));
        }
        let own = agent.isolation.kind != IsolationKind::Shared;
        if !own && *directory == agent.directory {
            return Ok(Ok(None));
        }
        if own {
            return workspaces::take(&self.engine, directory, self.job.id()).await;
        }
        let (from, here) = (directory.display(), agent.directory.display());
        Ok(Err(format!("it belongs to {from}, and the agent works in {here}")))
    }

    /// Returns whether the program ended because the session to continue does not exist.
    pub(super) fn lost_its_session(&self, rules: &Rules) -> bool {
        let attempt = self.attempt();
        let runtime = rules.agent.runtime();
        let Some(session) = attempt.resumed() else { return false };
        let mut said = Vec::new();
        let stderr = File::open(attempt.stderr());
        // If stderr cannot be read, the attempt is not started again, and its outcome is reported as it is.
        if let Err(error) = stderr.and_then(|stderr| stderr.take(MAX_STDERR_SEARCHED).read_to_end(&mut said))
        {
            warn!(job = %self.job.id(), "whether its session is there cannot be read: {error}");
        }
        description::says_missing(runtime, &session, &String::from_utf8_lossy(&said))
    }

    async fn forget_session(&self, session: &str) {
        let Some(key) = self
            .engine
            .loaded()
            .roster
            .agent(self.job.agent())
            .and_then(|agent| agent.session_key_of(&self.job))
        else {
            return;
        };
        let (agent, job) = (self.job.agent().clone(), self.job.id().clone());
        let known = self.engine.store.newest_session(agent, key, job, Timestamp::MIN).await;
        let forgotten = match known {
            Ok(Some(known)) if known.session_id == session => {
                self.engine.store.forget_session(known.job).await
            }
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = forgotten {
            warn!(job = %self.job.id(), "that its session is gone is not written: {error}");
        }
    }
}

/// Number of bytes of stderr that are searched for the message about a missing session.
const MAX_STDERR_SEARCHED: u64 = 16 << 10;

fn fresh(stored: &StoredSession, why: &str) -> Beginning {
    let note = format!(
        "the session {} of {} does not go on: {why}; this is a fresh one",
        stored.session_id, stored.job
    );
    Beginning { notes: vec![note], ..Beginning::default() }
}

/// Explains which setting would put a secret into the arguments of the program; such an agent is not started.
fn shown_to_all(agent: &Agent, redactor: &Redactor) -> Option<String> {
    let prompt = agent.system_prompt.as_deref()?;
    let shown = agent.runtime() == Runtime::Codex && redactor.redact(prompt) != prompt;
    shown.then(|| {
        "`system_prompt` holds a secret, and Codex takes it only as an argument, for everyone on the machine to see; leave it in its variable, and let the prompt name that".to_owned()
    })
}
