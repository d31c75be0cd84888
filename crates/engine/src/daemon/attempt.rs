//! Supervises one attempt, from its start (or from the point where an earlier daemon left it) to its settled end.

use std::sync::Arc;
use std::time::Duration;

use cowhand_core::ask::{self, MAX_PAUSED_TIME};
use cowhand_core::attempt::{Settlement, UsageLimit};
use cowhand_core::backoff::Backoff;
use cowhand_core::breaker::Breaker;
use cowhand_core::budget::Breach;
use cowhand_core::job::{
    ErrorKind, FailReason, Job, JobError, JobState, JobUsage, NotBegun, Outcome, Termination,
};
use cowhand_core::moment::{MIN_CLOCK_STEP, Moment};
use cowhand_core::policy::{Retry, Timeout};
use cowhand_core::provider::OnLimit;
use cowhand_core::roster::Agent;
use cowhand_core::runtime::Runtime;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use super::spending::ReportedUsage;
use super::stop::STOP_TIMEOUT;
use super::unwritten;
use super::workspaces;
use crate::context::{Engine, StopRequest};
use crate::hook::metadata;
use crate::loaded::Loaded;
use crate::secrets::redactor_over;
use crate::state::modes;
use crate::view::output::OutputLog;
use cowhand_run::attempt::Attempt;
use cowhand_run::ending::{Ending, ExitStatus};
use cowhand_run::launch;
use cowhand_run::redact::Redactor;
use cowhand_run::runtime::Finish;
use cowhand_run::shortage;
use cowhand_run::supervision::AttemptState;
use cowhand_run::tail::{TailFiles, Tailer};
use cowhand_system::blocking::run_blocking;
use cowhand_system::fault;
use cowhand_system::remove::is_missing;

/// Reason why the daemon stopped an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    Asked,
    Abandoned,
    TookTooLong(SignedDuration),
    SilentTooLong(SignedDuration),
    OverBudget(Breach),
}

#[derive(Clone)]
pub(super) struct AttemptTask {
    pub(super) engine: Arc<Engine>,
    pub(super) job: Job,
    pub(super) epoch: i64,
    pub(super) stop_requests: watch::Receiver<StopRequest>,
    /// Index of the fallback to start with.
    pub(super) fallback: Option<usize>,
    /// Reason of the stop, once the daemon has requested it.
    pub(super) stopped: Option<Reason>,
}

/// Result of following an attempt.
enum Followed {
    Over(Settlement),
    /// There is nothing to settle: the daemon detaches, or the job belongs to another node.
    NotOurs,
    /// The session to continue does not exist, so nothing has happened.
    NoSession,
    /// The agent was not started, and may be started later.
    NotBegun(NotBegun),
}

/// The rules of the config for this job at its start or recovery.
pub(super) struct Rules {
    pub(super) agent: Agent,
    pub(super) retry: Retry,
    pub(super) breaker: Option<Breaker>,
    timeout: Timeout,
    idle_timeout: Timeout,
    output_to_file: bool,
    /// Redactor for all output of the attempt.
    pub(super) redactor: Redactor,
}

impl Rules {
    pub(super) fn of(loaded: &Loaded, agent: &Agent, job: &Job) -> Self {
        let schedule = agent.restrictions(job).schedule();
        Self {
            retry: schedule.map_or_else(|| agent.retry.clone(), |schedule| schedule.retry.clone()),
            timeout: schedule.map_or(agent.timeout, |schedule| schedule.timeout),
            idle_timeout: schedule.map_or(agent.idle_timeout, |schedule| schedule.idle_timeout),
            // A stranger must not be able to pause a schedule.
            breaker: schedule.filter(|_| job.confined().is_none()).map(|schedule| schedule.breaker),
            output_to_file: schedule.is_some_and(|schedule| schedule.output_to_file),
            agent: Agent { isolation: agent.isolation_of(job.schedule()), ..agent.clone() },
            redactor: redactor_over(loaded, Some(agent)),
        }
    }
}

impl AttemptTask {
    pub(super) fn attempt(&self) -> Attempt {
        Attempt::new(self.engine.home.state.path(), self.job.id(), self.job.attempts())
    }

    pub(super) async fn run(&mut self, rules: &Rules, fresh: bool) {
        if !fresh && is_missing(self.attempt().folder()) && !self.end_strays().await {
            return self.requeue(NotBegun::Interrupted, rules).await;
        }
        if !fresh {
            if let Some(settlement) = self.settled_before().await {
                return self.settle(settlement, rules).await;
            }
            self.stopped = self.stopped_before().await;
        }
        let mut failures = 0;
        loop {
            // The output is a view and must not block the attempt.
            match self.follow(rules, failures >= MOST_FAILURES).await {
                Ok(Followed::Over(settlement)) => {
                    if unwritten::is_unwritten(&self.attempt()) {
                        self.write_up(rules).await;
                    }
                    workspaces::keep_diff(&self.engine, self.job.id(), &rules.redactor).await;
                    return self.settle(settlement, rules).await;
                }
                Ok(Followed::NotOurs) => return,
                Ok(Followed::NotBegun(why)) => return self.requeue(why, rules).await,
                Ok(Followed::NoSession) => {
                    if !Box::pin(self.launch_anew(rules)).await {
                        return;
                    }
                    continue;
                }
                Err(error) if is_missing(self.attempt().folder()) => {
                    self.end_strays().await;
                    let lost = self.lost(format!("lost: its folder is gone: {error:#}"));
                    return self.settle(lost, rules).await;
                }
                // A disk may be full for a while, or a folder closed. The agent continues to run, so the job has not ended.
                Err(error) => {
                    warn!(job = %self.job.id(), "cannot follow it at the moment: {error:#}");
                    modes::restore(&[self.attempt().folder()]);
                }
            }
            failures += 1;
            if *self.stop_requests.borrow() == StopRequest::Detach {
                return;
            }
            tokio::time::sleep(FOLLOW_BACKOFF.pause_after(failures)).await;
        }
    }

    /// Follows the attempt until it ends or the daemon detaches. With `in_attempt`, the job's output cannot be written to
    /// its file and is kept in the attempt's folder meanwhile.
    async fn follow(&mut self, rules: &Rules, in_attempt: bool) -> anyhow::Result<Followed> {
        let attempt = self.attempt();
        let wake = self.engine.watch.folder(attempt.folder());
        let files = if in_attempt {
            unwritten::files_in_attempt(&attempt)
        } else {
            unwritten::files(&attempt, &self.engine.home.state, self.job.id())
        };
        let files = TailFiles { before: self.before(files.attempt).await, ..files };
        let reader = attempt.start().ok().and_then(|start| start.reader);
        let reader = reader.unwrap_or_else(|| launch::reader(&rules.agent));
        let tail = Tailer::open(files, reader, rules.redactor.clone(), self.now())?;
        let log = rules.output_to_file.then(|| OutputLog::new(&self.engine.home.state, self.job.id()));
        let mut output = Output { tail, log };
        let mut session = self.job.session_id().map(str::to_owned);
        let mut reported = ReportedUsage::default();
        let began = self.began().await;
        let mut silence = Silence::begin(began, attempt.last_output(), self.engine.clock.moment());
        let mut kill_at = self.stopped.map(|_| Instant::now() + STOP_TIMEOUT);
        loop {
            // Read the state before the output, so that nothing that was written before the end is missed.
            let state = attempt.on_blocking_thread(Attempt::state).await?;
            if attempt.began()? {
                output.tail.begin(self.now())?;
            }
            output = self.advance(output).await?;
            fault::place("looked");
            self.tell_session(&output.tail, &mut session).await;
            let over = self.record_usage(&mut output.tail, &mut reported).await;
            let ending = match state {
                AttemptState::Ended(ending) => Some(ending),
                AttemptState::Gone if attempt.began()? => Some(vanished(self.now())),
                AttemptState::Gone => return Ok(Followed::NotBegun(self.why_no_keeper().await)),
                AttemptState::Kept => None,
                AttemptState::Unkept => {
                    attempt.on_blocking_thread(Attempt::end_leftovers).await?;
                    None
                }
            };
            if let Some(ending) = ending {
                fault::place("ended");
                if let Some(why) = not_begun(&ending).filter(|_| self.stopped.is_none()) {
                    return Ok(Followed::NotBegun(why));
                }
                if self.stopped.is_none() && self.lost_its_session(rules) {
                    return Ok(Followed::NoSession);
                }
                let finish = output.tail.finish(&ending, self.now(), &mut |_| {})?;
                output.log(&self.job);
                fault::place("read");
                if let Err(error) = attempt.forget_private() {
                    warn!(job = %self.job.id(), "its private files are still there: {error}");
                }
                let usage = finish.usage.clone().map(|usage| self.priced(usage));
                return Ok(self.ended(rules, &attempt, finish, usage, &ending, &mut output.tail).await);
            }
            let stop_request = *self.stop_requests.borrow_and_update();
            if stop_request == StopRequest::Detach {
                return Ok(Followed::NotOurs);
            }
            // An attempt over its budget can spend more during the grace period, so its grace period is short.
            let spends = self.stopped.filter(|stopped| matches!(stopped, Reason::OverBudget(_)));
            let mut reason = spends.or_else(|| Self::reason(stop_request, over));
            if reason.is_none() {
                let now = self.engine.clock.moment();
                silence.look(attempt.last_output(), now);
                reason = self.too_long(rules, began, silence.since, now).await;
            }
            if let Some(reason) = reason {
                let hurry = spends.is_some()
                    || (stop_request == StopRequest::CancelNow && self.stopped == Some(Reason::Asked));
                self.stop(reason, hurry, &attempt, &mut kill_at).await;
            }
            tokio::select! {
                () = wake.changed() => {}
                _ = self.stop_requests.changed() => {}
                () = tokio::time::sleep(IDLE_POLL_EVERY), if !output.tail.is_behind() => {}
                () = tokio::task::yield_now(), if output.tail.is_behind() => {}
            }
        }
    }

    async fn ended(
        &mut self,
        rules: &Rules,
        attempt: &Attempt,
        finish: Finish,
        usage: Option<JobUsage>,
        ending: &Ending,
        tail: &mut Tailer,
    ) -> Followed {
        // The program may have observed the limit that cowhand passed to it, or an earlier daemon stopped it.
        let budget = |error: &JobError| error.kind == ErrorKind::Budget;
        let for_money = matches!(&finish.outcome, Outcome::Failed { error, .. } if budget(error))
            || (ending.stopped.is_some() && self.stopped.is_none());
        if for_money && let Some(over) = self.over_in_the_end(usage.as_ref()).await {
            self.stopped = Some(Reason::OverBudget(Breach::Over(over)));
        }
        // If a command does not report its usage, nothing is known about its use of tools.
        let tells = usage.is_some() || rules.agent.runtime() != Runtime::Command;
        let used_no_tool = tells && tail.tool_calls() == 0;
        let metadata = self.metadata(rules, attempt);
        let resets_at = finish.resets_at;
        match self.outcome(finish, ending) {
            Some(mut outcome) => {
                if self.stopped.is_none() {
                    blame_full_disk(attempt, &mut outcome).await;
                }
                let limit = self.limit(rules, &outcome, resets_at);
                let silent = self.reports_usage_at_end() && !matches!(outcome, Outcome::Completed { .. });
                Followed::Over(Settlement {
                    outcome,
                    usage,
                    silent,
                    metadata,
                    breaker: None,
                    used_no_tool,
                    limit,
                    ended_at: (ending.status != ExitStatus::Lost).then_some(ending.at),
                })
            }
            None => Followed::NotOurs,
        }
    }

    /// Returns the usage limit for which the job has to wait, if its provider refused it for one.
    fn limit(&self, rules: &Rules, outcome: &Outcome, resets_at: Option<Timestamp>) -> Option<UsageLimit> {
        let provider = rules.agent.provider().filter(|_| outcome.is_limit())?;
        let loaded = self.engine.loaded();
        let on_limit = loaded.roster.providers.get(provider).map(|known| known.on_limit).unwrap_or_default();
        (on_limit == OnLimit::Park).then_some(UsageLimit { resets_at })
    }

    /// Reads the metadata that the agent left for its hooks, before the next agent can overwrite it.
    fn metadata(&self, rules: &Rules, attempt: &Attempt) -> Option<Value> {
        if rules.agent.hooks.is_empty() {
            return None;
        }
        let ran_in = attempt.start().ok().map(|start| start.directory);
        let ran_in = ran_in.unwrap_or_else(|| rules.agent.directory.clone());
        let place = metadata::MetadataPlaces {
            file: &rules.agent.metadata_file,
            directory: &ran_in,
            workspaces: &self.engine.home.state.workspaces(),
            writable: &self.engine.loaded().writable,
        };
        let mut metadata = metadata::read(&place, self.job.id())?;
        rules.redactor.redact_value(&mut metadata);
        Some(metadata)
    }

    /// Adds dollars from the table of prices if the runtime reported none.
    pub(super) fn priced(&self, mut usage: JobUsage) -> JobUsage {
        self.engine.loaded().roster.prices.fill_in(&mut usage);
        usage.bounded()
    }

    /// Reads new output on a blocking thread, because that may take a while.
    async fn advance(&self, mut output: Output) -> anyhow::Result<Output> {
        let (now, job, growth) = (self.now(), self.job.clone(), self.engine.growth.clone());
        run_blocking(move || {
            let mut grew = false;
            output.tail.advance(now, &mut |_| grew = true)?;
            if grew {
                growth.tell(job.id());
            }
            output.log(&job);
            Ok(output)
        })
        .await
    }

    /// Returns the reason to end the attempt now, apart from timeouts.
    fn reason(stop_request: StopRequest, over: Option<Breach>) -> Option<Reason> {
        match stop_request {
            StopRequest::Abandon => Some(Reason::Abandoned),
            StopRequest::Cancel | StopRequest::CancelNow => Some(Reason::Asked),
            StopRequest::Continue | StopRequest::Detach => over.map(Reason::OverBudget),
        }
    }

    /// Returns the timeout that the attempt has exceeded. Time in which it waits for a person does not count for either
    /// timeout. If the store is not available and the agent may be waiting for an answer, the attempt is not ended.
    async fn too_long(
        &self,
        rules: &Rules,
        began: Moment,
        silent_since: Moment,
        now: Moment,
    ) -> Option<Reason> {
        let over = |limit: Timeout, from| limit.duration().filter(|limit| now.since(from) > *limit);
        let took = over(rules.timeout, began);
        let silent = over(rules.idle_timeout, silent_since);
        took.or(silent)?;
        let asks = match self.engine.store.asks_of(self.job.id().clone()).await {
            Ok(asks) => asks,
            Err(_) if rules.agent.needs_job_channel() => return None,
            // The agent cannot ask, so it has no asks.
            Err(_) => Vec::new(),
        };
        let waited = ask::waited(&asks, began.on_clock_of(now), now.wall);
        let waited = waited.min(rules.agent.ask_timeout.max(MAX_PAUSED_TIME));
        let took = took.filter(|limit| now.since(began) - waited > *limit);
        let silent = silent.filter(|limit| {
            let lately = |answered| now.wall.duration_since(answered) <= *limit;
            !asks.iter().any(|ask| ask.state.since().is_none_or(lately))
        });
        took.map(Reason::TookTooLong).or(silent.map(Reason::SilentTooLong))
    }

    /// Returns the start of the attempt on both clocks.
    async fn began(&self) -> Moment {
        let JobState::Running { since } = *self.job.state() else { return self.engine.clock.moment() };
        match self.engine.store.attempt_began(self.job.id().clone(), self.job.attempts()).await {
            Ok(began) => began.unwrap_or_else(|| since.into()),
            Err(error) => {
                warn!(job = %self.job.id(), "only the wall clock tells when it was started: {error}");
                since.into()
            }
        }
    }

    /// Stores the runtime's session id as soon as it is known.
    async fn tell_session(&self, tail: &Tailer, reported: &mut Option<String>) {
        let Some(session) = tail.session_id().filter(|session| reported.as_deref() != Some(*session)) else {
            return;
        };
        let session = session.to_owned();
        match self
            .engine
            .store
            .set_session(self.job.id().clone(), self.epoch, session.clone(), self.now())
            .await
        {
            Ok(_) => *reported = Some(session),
            Err(error) => warn!(job = %self.job.id(), "its session is not written yet: {error}"),
        }
    }

    /// Returns the outcome; `None` if this node may not settle the job.
    fn outcome(&self, finish: Finish, ending: &Ending) -> Option<Outcome> {
        let how = ending.stopped.map_or("", |how| match how {
            Termination::Forced => " and had to be killed",
            Termination::Graceful | Termination::NotStarted | Termination::BetweenAttempts => "",
        });
        let too_long = |kind, message: String| {
            let error = JobError { kind, message: format!("{message}{how}") };
            Some(Outcome::Failed { reason: FailReason::Timeout, error, summary: None })
        };
        match self.stopped {
            Some(Reason::Abandoned) => None,
            Some(Reason::TookTooLong(limit)) => {
                too_long(ErrorKind::Timeout, format!("it ran longer than {limit:#}"))
            }
            Some(Reason::SilentTooLong(limit)) => {
                too_long(ErrorKind::Idle, format!("it was silent for {limit:#}"))
            }
            // The attempt had no time to end by itself, so its exit status has no meaning.
            Some(Reason::OverBudget(over)) => Some(self.stopped_for(&over, finish.usage)),
            // Without a keeper, nobody recorded the end that the daemon caused.
            Some(Reason::Asked) if ending.status == ExitStatus::Lost => {
                Some(Outcome::Cancelled { how: Termination::Forced })
            }
            Some(Reason::Asked) | None => Some(finish.outcome),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.engine.clock.now()
    }
}

/// The time since which an attempt is silent. The files give the time of the last output on the wall clock, which may
/// be set meanwhile, so only a change of that time counts.
struct Silence {
    last_output: Option<Timestamp>,
    since: Moment,
}

impl Silence {
    /// Starts the measurement. For a recovered attempt the time of the last output counts, unless the clock was set
    /// since the start of the attempt.
    fn begin(began: Moment, last_output: Option<Timestamp>, now: Moment) -> Self {
        let is_steady = now.step_since(began).is_some_and(|step| step.abs() < MIN_CLOCK_STEP);
        let since = match last_output.map(|at| now.wall.duration_since(at)) {
            Some(ago) if is_steady && !ago.is_negative() => now.plus(-ago),
            Some(_) => now,
            None => began,
        };
        let since = if since.since(began).is_negative() { began } else { since };
        Self { last_output, since }
    }

    fn look(&mut self, last_output: Option<Timestamp>, now: Moment) {
        if last_output != self.last_output {
            *self = Self { last_output, since: now };
        }
    }
}

/// The stored output of an attempt: the JSONL, and `output.log` if the schedule requests it.
struct Output {
    tail: Tailer,
    log: Option<OutputLog>,
}

impl Output {
    fn log(&mut self, job: &Job) {
        if let Some(Err(error)) = self.log.as_mut().map(OutputLog::catch_up) {
            warn!(job = %job.id(), "its output.log is behind: {error}");
        }
    }
}

/// Number of failed writes of a job's output after which the attempt is followed without them.
const MOST_FAILURES: u32 = 3;

/// Longest wait before something that failed is tried again.
pub(super) const MAX_RETRY_PAUSE: Duration = Duration::from_secs(30);
const FOLLOW_BACKOFF: Backoff =
    Backoff::doubling(SignedDuration::from_millis(200), SignedDuration::from_secs(30));

/// Interval between two looks at an attempt without activity.
const IDLE_POLL_EVERY: Duration = Duration::from_millis(500);

/// Returns the shortage of the machine that prevented the start of the agent, if there was one.
fn not_begun(ending: &Ending) -> Option<NotBegun> {
    match &ending.status {
        ExitStatus::StartFailed { message } if shortage::is_named_in(message) => {
            Some(NotBegun::Shortage(message.clone()))
        }
        _ => None,
    }
}

/// So long a disk may take to say how much space it has. One that does not answer, such as that of a server that is away, is
/// not blamed.
const DISK_TIMEOUT: Duration = Duration::from_secs(5);

/// Adds to a failure that the disk of the attempt's directory or folder is full, which its agent may not say.
async fn blame_full_disk(attempt: &Attempt, outcome: &mut Outcome) {
    if outcome.is_limit() {
        return;
    }
    let Outcome::Failed { error, .. } = outcome else { return };
    let asked = attempt.on_blocking_thread(|attempt| {
        let directory = attempt.start().ok().map(|start| start.directory);
        shortage::full_disk(&[directory.as_deref().unwrap_or(attempt.folder()), attempt.folder()])
    });
    if let Ok(Some(full)) = tokio::time::timeout(DISK_TIMEOUT, asked).await {
        error.message = format!("{}; {full}", error.message);
    }
}

/// Agent and keeper are gone without a word: what the agent said last has to tell.
fn vanished(at: Timestamp) -> Ending {
    Ending { at, status: ExitStatus::Lost, stopped: None, leftovers: 0 }
}
