//! Every reason to stop an attempt, and how an attempt is stopped. The reason is recorded for a later daemon.

use std::time::Duration;

use cowhand_core::ask::{self, Ask, MAX_PAUSED_TIME};
use cowhand_core::budget::Breach;
use cowhand_core::job::JobState;
use cowhand_core::moment::{MIN_CLOCK_STEP, Moment};
use cowhand_core::policy::Timeout;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use tracing::warn;

use super::AttemptTask;
use super::rules::Rules;
use crate::context::StopRequest;
use cowhand_run::attempt::Attempt;
use cowhand_run::stopped::Stopped;
use cowhand_run::supervision::StopOutcome;
use cowhand_system::remove::is_missing;

/// Time that a keeper has to end an attempt before the daemon kills the attempt: the grace periods of the agent and of
/// the processes that it leaves, and a margin.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(15);
/// Time in which killed processes have to end.
pub(super) const PROCESSES_END_TIMEOUT: Duration = Duration::from_secs(15);
/// Time between two checks of an attempt that is being ended.
pub(super) const END_POLL_EVERY: Duration = Duration::from_millis(100);
/// Value that replaces [`STOP_TIMEOUT`] for a stop without a grace period. It is also the time between two tries to
/// kill an attempt.
const CANCEL_NOW_TIMEOUT: Duration = Duration::from_secs(2);
/// Grace period of an attempt over its budget: enough for a last report, and short, because the attempt can spend more
/// in that time.
const BUDGET_STOP_GRACE: Duration = Duration::from_secs(1);
/// Pause before the next try to list the processes of an attempt.
const STOP_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Reason why the daemon stopped an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StopReason {
    Cancelled,
    /// Another node has the job.
    Abandoned,
    TookTooLong(SignedDuration),
    SilentTooLong(SignedDuration),
    OverBudget(Breach),
}

/// The times that decide whether an attempt is stopped or killed.
pub(super) struct Deadlines {
    began: Moment,
    idle: IdleTime,
    /// Time at which the attempt is killed, if it was asked to end.
    kill_at: Option<Instant>,
    /// End of the grace period of an attempt over its budget, if it was asked to end.
    grace_until: Option<Instant>,
}

impl AttemptTask {
    /// Returns the reason to end the attempt now, apart from timeouts.
    fn reason(stop_request: StopRequest, breach: Option<Breach>) -> Option<StopReason> {
        match stop_request {
            StopRequest::Abandon => Some(StopReason::Abandoned),
            StopRequest::Cancel | StopRequest::CancelNow => Some(StopReason::Cancelled),
            StopRequest::Continue | StopRequest::Detach => breach.map(StopReason::OverBudget),
        }
    }

    /// Returns the timeout that the attempt has exceeded, for its duration or for its silence. The time of answer waits
    /// does not count towards the duration, up to a maximum for all answer waits together: the longer of
    /// [`MAX_PAUSED_TIME`] and the agent's `ask_timeout`. Silence does not count during an answer wait, and is counted
    /// from zero when the ask has ended. If the store is not available and the agent may be waiting for an answer,
    /// returns `None`, so that the attempt is not ended.
    async fn exceeded_timeout(
        &self,
        rules: &Rules,
        began: Moment,
        idle_since: Moment,
        now: Moment,
    ) -> Option<StopReason> {
        let exceeded = |limit: Timeout, from| limit.duration().filter(|limit| now.since(from) > *limit);
        let total = exceeded(rules.of_attempt.timeout, began);
        let idle = exceeded(rules.of_attempt.idle_timeout, idle_since);
        total.or(idle)?;
        let (total, idle) = self.without_pauses(began, idle_since, now, (total, idle));
        total.or(idle)?;
        let mut asks = match self.engine.store.asks_of(self.job.id().clone()).await {
            Ok(asks) => asks,
            Err(_) if rules.of_attempt.agent.has_job_channel => return None,
            // The agent cannot ask, so it has no asks.
            Err(_) => Vec::new(),
        };
        let waits = &self.engine.answer_waits;
        for ask in &mut asks {
            let waited_since = ask.asked_at.checked_add(waits.time_away(ask, now));
            ask.asked_at = waited_since.unwrap_or(Timestamp::MAX);
        }
        let waited = ask::time_waited(&asks, began.on_clock_of(now), now.wall);
        let waited = waited.min(rules.of_attempt.agent.ask_timeout.max(MAX_PAUSED_TIME));
        let paused = self.paused_time(now);
        let total = total.filter(|limit| now.since(began) - waited - paused > *limit);
        let idle = idle.filter(|limit| {
            let is_recent = |answered| now.wall.duration_since(answered) <= *limit;
            let suspends = |ask: &Ask| match ask.state.since() {
                Some(answered) => is_recent(answered),
                None => waits.is_waiting(&ask.id, now),
            };
            !asks.iter().any(suspends)
        });
        total.map(StopReason::TookTooLong).or(idle.map(StopReason::SilentTooLong))
    }

    /// Returns the time for which the agent was paused, because its node could not renew the lease of the job.
    fn paused_time(&self, now: Moment) -> SignedDuration {
        if self.engine.deadline_of(self.job.id()).is_none() {
            return SignedDuration::ZERO;
        }
        now.boot.map(|now| self.attempt().pauses().total(now)).unwrap_or_default()
    }

    /// Returns the timeouts that the attempt has exceeded even without the time for which its agent was paused. Silence
    /// does not count during a pause, and is counted from zero when the pause has ended.
    fn without_pauses(
        &self,
        began: Moment,
        idle_since: Moment,
        now: Moment,
        (total, idle): (Option<SignedDuration>, Option<SignedDuration>),
    ) -> (Option<SignedDuration>, Option<SignedDuration>) {
        if self.engine.deadline_of(self.job.id()).is_none() {
            return (total, idle);
        }
        let state = self.attempt().pauses();
        let resumed = state.resumed.and_then(|resumed| now.boot?.since(resumed));
        let silent = resumed.map_or_else(|| now.since(idle_since), |ago| now.since(idle_since).min(ago));
        let paused = self.paused_time(now);
        let total = total.filter(|limit| now.since(began) - paused > *limit);
        (total, idle.filter(|limit| state.current.is_none() && silent > *limit))
    }

    /// Returns the deadlines of an attempt that is followed from now on.
    pub(super) async fn deadlines(&self) -> Deadlines {
        let began = self.began().await;
        let idle = IdleTime::begin(began, self.attempt().last_output(), self.engine.clock.moment());
        let now = Instant::now();
        Deadlines {
            began,
            idle,
            kill_at: self.stopped.map(|_| now + STOP_TIMEOUT),
            grace_until: self.stopped.map(|_| now + BUDGET_STOP_GRACE),
        }
    }

    /// Returns the start of the attempt: on both clocks if the store has both times, and otherwise on the wall clock.
    pub(super) async fn began(&self) -> Moment {
        let JobState::Running { since } = *self.job.state() else { return self.engine.clock.moment() };
        match self.engine.store.attempt_began(self.job.id().clone(), self.job.attempts()).await {
            Ok(began) => began.unwrap_or_else(|| since.into()),
            Err(error) => {
                warn!(job = %self.job.id(), "cannot read the start of the attempt on the boot clock; using the wall \
                                             clock: {error}");
                since.into()
            }
        }
    }

    /// Stops the attempt if there is a reason for it, and kills it if it does not end in time.
    pub(super) async fn stop_if_needed(
        &mut self,
        rules: &Rules,
        stop_request: StopRequest,
        breach: Option<Breach>,
        deadlines: &mut Deadlines,
    ) {
        let attempt = self.attempt();
        let budget_stop = self.stopped.filter(|stopped| matches!(stopped, StopReason::OverBudget(_)));
        let mut reason = budget_stop.or_else(|| Self::reason(stop_request, breach));
        if reason.is_none() {
            let now = self.engine.clock.moment();
            deadlines.idle.update(attempt.last_output(), now);
            reason = self.exceeded_timeout(rules, deadlines.began, deadlines.idle.since, now).await;
        }
        if let Some(reason) = reason {
            let is_grace_over = deadlines.grace_until.is_some_and(|until| until <= Instant::now());
            let without_grace = (budget_stop.is_some() && is_grace_over)
                || (stop_request == StopRequest::CancelNow && self.stopped == Some(StopReason::Cancelled));
            self.stop(reason, without_grace, &attempt, deadlines).await;
        }
    }

    /// Asks the keeper to end the attempt. With `without_grace`, the keeper is asked a second time, which ends the
    /// grace period. A keeper that cannot be asked, or does not end the attempt in time, is killed with its processes,
    /// because neither the job nor a waiting caller may depend on the keeper.
    async fn stop(
        &mut self,
        reason: StopReason,
        without_grace: bool,
        attempt: &Attempt,
        Deadlines { kill_at, grace_until, .. }: &mut Deadlines,
    ) {
        let (job, now) = (self.job.id(), Instant::now());
        if self.stopped.is_none() || without_grace {
            if self.stopped.is_none() {
                if reason == StopReason::Abandoned {
                    warn!(%job, "its lease is lost; ending it here");
                }
                self.note_stop(reason, attempt);
            }
            let timeout = match attempt.on_blocking_thread(Attempt::stop).await {
                Ok(StopOutcome::TooEarly) => return self.forget_stop(attempt),
                Ok(StopOutcome::Asked | StopOutcome::NoKeeper) if without_grace => CANCEL_NOW_TIMEOUT,
                Ok(StopOutcome::Asked | StopOutcome::NoKeeper) => STOP_TIMEOUT,
                Err(error) => {
                    warn!(%job, "cannot ask the keeper to end the attempt: {error}");
                    Duration::ZERO
                }
            };
            let deadline = now + timeout;
            *kill_at = Some(kill_at.map_or(deadline, |at| at.min(deadline)));
            grace_until.get_or_insert(now + BUDGET_STOP_GRACE);
            self.stopped = Some(reason);
        }
        if kill_at.is_some_and(|at| at <= now) {
            warn!(%job, "the attempt did not end in time after the request to stop and is killed");
            if let Err(error) = attempt.on_blocking_thread(Attempt::kill).await {
                warn!(%job, "cannot kill the attempt now: {error}");
            }
            *kill_at = Some(now + CANCEL_NOW_TIMEOUT);
        }
    }

    /// Kills the remaining processes of an attempt without a folder, and returns whether there were any.
    pub(super) async fn kill_marked_processes(&self) -> bool {
        loop {
            match self.attempt().on_blocking_thread(Attempt::kill_marked_processes).await {
                Ok(any) => return any,
                Err(error) => {
                    warn!(job = %self.job.id(), "cannot list the remaining processes of the attempt: {error}");
                }
            }
            tokio::time::sleep(STOP_RETRY_PAUSE).await;
        }
    }

    /// Records the reason of the stop. If that fails, the attempt is stopped all the same.
    fn note_stop(&self, reason: StopReason, attempt: &Attempt) {
        let result = stored_reason(reason).map_or(Ok(()), |stored| attempt.note_stop(stored));
        if let Err(error) = result {
            warn!(job = %self.job.id(), "cannot store why the attempt is stopped: {error}");
        }
    }

    fn forget_stop(&self, attempt: &Attempt) {
        if let Err(error) = attempt.forget_stop() {
            warn!(job = %self.job.id(), "the attempt was not stopped, but the note that it was stopped cannot be \
                                         removed: {error}");
        }
    }

    /// Returns why an earlier daemon stopped the attempt. Returns `None` if no daemon stopped it, or if a daemon
    /// stopped it because the spending exceeded a budget.
    pub(super) async fn earlier_stop_reason(&self) -> Option<StopReason> {
        let attempt = self.attempt();
        if is_missing(attempt.folder()) {
            return None;
        }
        let stopped = attempt.on_blocking_thread(Attempt::stopped).await.unwrap_or_else(|error| {
            warn!(job = %self.job.id(), "why it was stopped is not known: {error}");
            None
        });
        Some(match stopped? {
            Stopped::Cancelled => StopReason::Cancelled,
            Stopped::TookTooLong { limit_ms } => {
                StopReason::TookTooLong(SignedDuration::from_millis(limit_ms))
            }
            Stopped::SilentTooLong { limit_ms } => {
                StopReason::SilentTooLong(SignedDuration::from_millis(limit_ms))
            }
            Stopped::Unpriced => StopReason::OverBudget(Breach::Unpriced),
            // `AttemptTask::settlement` finds by the final spending which budget was exceeded.
            Stopped::OverBudget => return None,
        })
    }
}

/// Returns the reason as it is stored; `None` if another node has the job.
fn stored_reason(reason: StopReason) -> Option<Stopped> {
    let millis = |limit: SignedDuration| i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
    match reason {
        StopReason::Abandoned => None,
        StopReason::Cancelled => Some(Stopped::Cancelled),
        StopReason::TookTooLong(limit) => Some(Stopped::TookTooLong { limit_ms: millis(limit) }),
        StopReason::SilentTooLong(limit) => Some(Stopped::SilentTooLong { limit_ms: millis(limit) }),
        StopReason::OverBudget(Breach::Over(_)) => Some(Stopped::OverBudget),
        StopReason::OverBudget(Breach::Unpriced) => Some(Stopped::Unpriced),
    }
}

/// The time since which an attempt has written no output. The files state the time of the last output on the wall
/// clock, which may be set meanwhile. Therefore only a change of that time counts.
struct IdleTime {
    last_output: Option<Timestamp>,
    since: Moment,
}

impl IdleTime {
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

    fn update(&mut self, last_output: Option<Timestamp>, now: Moment) {
        if last_output != self.last_output {
            *self = Self { last_output, since: now };
        }
    }
}
