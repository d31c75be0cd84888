//! One attempt: from the claim of its job to its settled end.
//!
//! [`AttemptTask`] is the task that supervises an attempt. `run_to_end` is the path of the attempt: it is prepared and
//! launched, or recovered if an earlier daemon has left it; then it is followed to its end, and settled.

mod channel;
mod chat_files;
pub(crate) mod credentials;
mod diff;
mod follow;
mod messages;
pub(crate) mod orphans;
pub(crate) mod other_store;
mod outcome;
pub(crate) mod outcomes;
mod paused;
mod prepare;
mod rules;
mod sandbox;
mod session;
mod settle;
mod spending;
mod start_error;
mod stop;
mod stoppable;
pub(crate) mod superseded;
mod supervise;
pub(crate) mod unwritten;
mod windows;
pub(crate) mod workspaces;

pub use paused::paused_agents;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cowhand_core::attempt::Settlement;
use cowhand_core::job::{ErrorKind, FailReason, Job, JobError, NotBegun, Outcome, Termination};
use jiff::Timestamp;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::context::{Engine, StopRequest};
use crate::secrets::kept::{self, GivenTexts};
use crate::secrets::redactor_over;
use cowhand_run::attempt::Attempt;
use cowhand_run::launcher::LaunchInput;
use cowhand_run::shortage;
use cowhand_system::closed::{advice, closed_folder};
use cowhand_system::fault;
use cowhand_system::remove::is_missing;
use prepare::LaunchSpec;
use rules::Rules;
use session::SessionStart;
use start_error::{CannotStart, StartError};
use stop::StopReason;
use stoppable::Stoppable;

/// The task that supervises one attempt of a job.
#[derive(Clone)]
pub(crate) struct AttemptTask {
    engine: Arc<Engine>,
    job: Job,
    epoch: i64,
    stop_requests: watch::Receiver<StopRequest>,
    /// Index of the fallback to start with.
    fallback: Option<usize>,
    /// Reason of the stop, once the daemon has requested it.
    stopped: Option<StopReason>,
}

/// Message of an attempt that ran when the restored backup was made, and of which no files and no processes are left.
const LOST_BY_RESTORE: &str = "lost: the store was restored from a backup that was made while the attempt ran, and its outcome is not known";

/// Longest time for which a start keeps its permit (`Engine::start_permits`) after the keeper was made.
const MAX_START_WAIT: Duration = Duration::from_millis(200);
const START_POLL: Duration = Duration::from_millis(1);

/// Position of an attempt on its path.
enum Stage {
    /// Nothing has been started.
    Start,
    /// The program ended at once, because the session to continue does not exist.
    StartWithoutSession,
    /// The keeper has been started.
    Follow,
    /// The attempt has ended.
    Settle(Settlement),
    /// The agent was not started, and may be started later.
    Requeue(NotBegun),
    /// This task settles nothing. Either the daemon detaches or stops, and the next start takes up the attempt, or the
    /// job belongs to another node.
    Leave,
}

impl AttemptTask {
    /// Returns the task of a job that this node has claimed with this epoch.
    pub(crate) fn new(
        engine: Arc<Engine>,
        job: Job,
        epoch: i64,
        stop_requests: watch::Receiver<StopRequest>,
        fallback: Option<usize>,
    ) -> Self {
        Self { engine, job, epoch, stop_requests, fallback, stopped: None }
    }

    async fn run_to_end(mut self, fresh: bool) {
        let rules = self.rules();
        // An attempt is not started if its agent was removed from the config; `recovered_stage` then requeues the job.
        // A recovered attempt continues even without its agent.
        let fresh = fresh && self.has_agent();
        let mut stage = if fresh { Stage::Start } else { self.recovered_stage().await };
        loop {
            stage = match stage {
                Stage::Start => {
                    let started = Box::pin(self.start(&rules)).await;
                    self.stage_after_start(started, &rules).await
                }
                Stage::StartWithoutSession => {
                    let started = Box::pin(self.start_without_session(&rules)).await;
                    self.stage_after_start(started, &rules).await
                }
                Stage::Follow => Box::pin(self.follow_to_end(&rules)).await,
                Stage::Settle(settlement) => return self.settle(settlement, &rules).await,
                Stage::Requeue(why) => return self.requeue(why, &rules).await,
                Stage::Leave => return,
            };
        }
    }

    /// Returns the stage of an attempt that an earlier daemon, or this task before a panic, has left.
    async fn recovered_stage(&mut self) -> Stage {
        if let Some(settlement) = self.earlier_settlement().await {
            return Stage::Settle(settlement);
        }
        if is_missing(self.attempt().folder()) && !self.kill_marked_processes().await {
            return match self.engine.home.state.restored_at() {
                Some(restored_at) if self.began().await.wall <= restored_at => {
                    Stage::Settle(self.lost_settlement(LOST_BY_RESTORE.to_owned()))
                }
                _ => Stage::Requeue(NotBegun::Interrupted),
            };
        }
        self.stopped = self.earlier_stop_reason().await;
        Stage::Follow
    }

    async fn start(&mut self, rules: &Rules) -> Result<(), StartError> {
        let stoppable = self.stoppable(rules).await?;
        stoppable.to_end(self.clear_folder(&stoppable)).await?;
        let session = stoppable.unless_stopped(self.choose_session(rules)).await??;
        self.start_with(rules, session, &stoppable).await
    }

    async fn start_without_session(&mut self, rules: &Rules) -> Result<(), StartError> {
        let session = self.replace_session().await?;
        let stoppable = self.stoppable(rules).await?;
        self.start_with(rules, session, &stoppable).await
    }

    async fn start_with(
        &self,
        rules: &Rules,
        session: SessionStart,
        stoppable: &Stoppable,
    ) -> Result<(), StartError> {
        let spec = stoppable.to_end(Box::pin(self.prepare(rules, session, stoppable))).await?;
        // Nobody closes the semaphore.
        let _permit = stoppable.unless_stopped(self.engine.start_permits.acquire()).await?.ok();
        self.launch(&spec).await?;
        self.wait_for_agent().await;
        Ok(())
    }

    /// Waits until the keeper has started the agent, as long as no permit to start is free, and for a limited time. The
    /// start keeps its own permit meanwhile.
    async fn wait_for_agent(&self) {
        let (attempt, until) = (self.attempt(), Instant::now() + MAX_START_WAIT);
        while self.engine.start_permits.available_permits() == 0
            && !attempt.has_agent()
            && Instant::now() < until
        {
            tokio::time::sleep(START_POLL).await;
        }
    }

    /// Returns the [`Stoppable`] that ends the preparation when the attempt is stopped or exceeds its timeout.
    async fn stoppable(&self, rules: &Rules) -> Result<Stoppable, StartError> {
        let stoppable = Stoppable::new(self.stop_requests.clone());
        let began = stoppable.unless_stopped(self.began()).await?;
        Ok(stoppable.with_timeout(&self.engine.clock, began, rules.of_attempt.timeout.duration()))
    }

    /// Starts the keeper, which starts the agent.
    async fn launch(&self, spec: &LaunchSpec) -> Result<(), StartError> {
        let (attempt, LaunchSpec { agent, launch, before_output, prompt }) = (self.attempt(), spec);
        let (job, number, runtime) = (self.job.id(), self.job.attempts(), agent.runtime().name());
        match self.engine.store.set_attempt_location(job.clone(), number, &agent.directory, runtime).await {
            Ok(true) => {}
            Ok(false) => return Err(StartError::LeaseLost),
            Err(error) => {
                warn!(%job, "cannot store the directory of the attempt, so no later job can continue its session: \
                             {error}");
            }
        }
        let given = GivenTexts {
            arguments: &launch.start.argv,
            environment: &launch.environment,
            files: &launch.files,
            input: prompt,
        };
        let secrets = redactor_over(&self.engine.loaded(), Some(agent));
        kept::keep(&attempt, &secrets, &given).map_err(CannotStart::PrivateFiles)?;
        if *self.stop_requests.borrow() != StopRequest::Continue {
            return Err(StartError::Stopped);
        }
        let input = LaunchInput {
            before_output: before_output.clone(),
            start: launch.start.clone(),
            prompt: prompt.clone(),
            environment: launch.environment.clone(),
        };
        let launcher = Arc::clone(&self.engine.launcher);
        let (deadline, times) = (self.engine.deadline_of(job), self.engine.loaded().roster.leases);
        let launch = move |attempt: &Attempt| {
            if let Some(deadline) = deadline {
                attempt.make_folder()?;
                deadline.write(attempt, times)?;
            }
            launcher.launch(attempt, &input)
        };
        let result = attempt.on_blocking_thread(launch).await;
        result.map_err(|error| CannotStart::Keeper { folder: attempt.folder().to_owned(), error })?;
        fault::point("launched");
        info!(%job, agent = %self.job.agent(), attempt = number, "started");
        Ok(())
    }

    /// Returns the next stage. An attempt that ends without a launch has no tailer, so the line that separates it from
    /// the previous attempt is written here.
    async fn stage_after_start(&self, started: Result<(), StartError>, rules: &Rules) -> Stage {
        let stage = self.after_start(started);
        if matches!(stage, Stage::Settle(_)) {
            self.mark_in_output(rules).await;
        }
        stage
    }

    /// Decides what the result of a start means for the job. Only this function decides it.
    fn after_start(&self, started: Result<(), StartError>) -> Stage {
        let error = match started {
            Ok(()) => return Stage::Follow,
            Err(error) => error,
        };
        let is_stopped = *self.stop_requests.borrow() != StopRequest::Continue;
        match error {
            // A step that fails while the attempt is stopped may fail because of the stop.
            StartError::CannotStart(_)
            | StartError::SetupFailed(_)
            | StartError::TookTooLong(_)
            | StartError::Stopped
                if is_stopped =>
            {
                self.stopped_before_start()
            }
            StartError::CannotStart(why) => match self.requeue_reason(&why) {
                Some(shortage) => Stage::Requeue(NotBegun::Shortage(shortage)),
                None => Stage::Settle(self.failed_start(why.to_string())),
            },
            // The output of `setup` is not examined for shortages, because any text can be in it.
            StartError::SetupFailed(why) => Stage::Settle(self.failed_start(why)),
            StartError::TookTooLong(_) => {
                let error = JobError { kind: ErrorKind::Timeout, message: error.to_string() };
                Stage::Settle(self.not_started(FailReason::Timeout, error))
            }
            // The job is not at fault if the store does not answer.
            StartError::SessionNotRead(_) | StartError::FilesNotRead(_) => {
                Stage::Requeue(NotBegun::Shortage(error.to_string()))
            }
            StartError::LeaseLost => {
                warn!(job = %self.job.id(), "{error}");
                self.remove_private_files();
                Stage::Leave
            }
            StartError::Stopped => self.stopped_before_start(),
        }
    }

    /// Explains why the attempt cannot be started, if the job is not at fault: the machine has run out of a resource,
    /// or access to the attempt's folder is denied.
    fn requeue_reason(&self, why: &CannotStart) -> Option<String> {
        let message = why.to_string();
        if shortage::is_shortage(&message) {
            return Some(message);
        }
        closed_folder(self.attempt().folder()).map(|closed| format!("{message}; {}", advice(&closed)))
    }

    fn stopped_before_start(&self) -> Stage {
        self.remove_private_files();
        match *self.stop_requests.borrow() {
            StopRequest::Continue | StopRequest::Detach => Stage::Requeue(NotBegun::Interrupted),
            StopRequest::Cancel | StopRequest::CancelNow => {
                Stage::Settle(Outcome::Cancelled { how: Termination::NotStarted }.into())
            }
            StopRequest::Abandon => Stage::Leave,
        }
    }

    /// Returns the settlement of an attempt that could not be started.
    fn failed_start(&self, message: String) -> Settlement {
        self.not_started(FailReason::Error, JobError { kind: ErrorKind::StartFailed, message })
    }

    /// Returns the settlement of an attempt that failed before its agent was started.
    fn not_started(&self, reason: FailReason, error: JobError) -> Settlement {
        self.remove_private_files();
        let outcome = Outcome::Failed { reason, error, summary: None };
        Settlement { used_no_tool: true, ..outcome.into() }
    }

    fn remove_private_files(&self) {
        if let Err(error) = self.attempt().remove_private_files() {
            warn!(job = %self.job.id(), "its private files are still there: {error}");
        }
    }

    fn attempt(&self) -> Attempt {
        Attempt::new(self.engine.home.state.path(), self.job.id(), self.job.attempts())
    }

    fn now(&self) -> Timestamp {
        self.engine.clock.now()
    }
}
