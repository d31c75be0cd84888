//! The breaker: pauses a schedule whose jobs keep failing in the same way, or keep completing without using a tool.
//!
//! A pause ends by itself. The next job of the schedule is the probe. Its result decides how the schedule continues:
//!
//! - The probe fails: the schedule pauses again immediately, for twice as long. If `failures` is 0, the next job is the
//!   probe instead.
//! - The probe completes without a tool, and the pause was about jobs without tools: the schedule pauses again
//!   immediately, for twice as long.
//! - The probe completes in any other case: the schedule continues as before the pause.
//! - The probe is cancelled or lost: the next job is the probe.
//!
//! Jobs that began before the end of the pause are not judged. A person can end the pause by enabling the schedule, or
//! with a job by hand that completes.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backoff::Backoff;
use crate::cut::cut;
use crate::interval::Interval;
use crate::job::{ErrorKind, JobError, Outcome, signature};

/// Conditions under which a schedule pauses itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Breaker {
    /// The schedule pauses after this number of jobs in a row with the same failure; 0 means never.
    #[schemars(range(max = 1000))]
    pub failures: u32,
    /// Length of the first pause. Each further pause is twice as long as the pause before it, up to a day, or up to
    /// `pause` if `pause` is longer than a day.
    pub pause: Interval,
    /// The schedule pauses after this number of jobs in a row that completed without using a tool; unset or 0 means
    /// never.
    #[schemars(range(max = 1000))]
    pub empty_runs: u32,
    /// Minimum total cost, in dollars, of the jobs that `empty_runs` counts; if they cost less, the schedule does not
    /// pause.
    #[schemars(range(min = 0), extend("maximum" = 1_000_000))]
    pub empty_usd: f64,
    /// Time within which the jobs that `empty_runs` counts have to run, so that a schedule that rarely runs does not
    /// pause.
    pub empty_within: Interval,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            failures: 5,
            pause: Interval::seconds(15 * 60),
            empty_runs: 0,
            empty_usd: 0.0,
            empty_within: Interval::seconds(24 * 60 * 60),
        }
    }
}

/// Results of a schedule's last jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BreakerState {
    /// Signature of the last failure; none if a job has completed since.
    pub signature: Option<String>,
    /// Number of failures in a row with this signature.
    pub failures: u32,
    /// Number of jobs in a row that completed without using a tool.
    pub empty: u32,
    /// Time of the first job that `empty` counts.
    pub empty_since: Option<Timestamp>,
    /// Total cost of the jobs that `empty` counts.
    pub empty_microdollars: u64,
    /// Number of pauses in a row, from which the length of the next pause follows.
    pub pauses: u32,
    /// Reason of the last of these pauses; none before the first one.
    pub reason: Option<String>,
}

/// Result of one job of the schedule.
#[derive(Debug, Clone, Copy)]
pub struct JudgedJob<'a> {
    pub outcome: &'a Outcome,
    /// True if the job is known to have used no tool.
    pub empty: bool,
    pub microdollars: u64,
}

/// End of a pause and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pause {
    pub until: Timestamp,
    pub reason: String,
}

impl Breaker {
    pub const fn is_on(&self) -> bool {
        self.failures > 0 || self.empty_runs > 0
    }

    /// Records the result of a job, and returns a pause if the schedule has to pause.
    pub fn judge(&self, state: &mut BreakerState, run: JudgedJob<'_>, now: Timestamp) -> Option<Pause> {
        match run.outcome {
            // Cancelled and lost jobs do not count, because the schedule does not cause these outcomes.
            Outcome::Cancelled { .. }
            | Outcome::Failed { error: JobError { kind: ErrorKind::Lost, .. }, .. } => None,
            Outcome::Failed { error, .. } => self.failed(state, error, now),
            Outcome::Completed { .. } if run.empty => self.empty(state, run.microdollars, now),
            Outcome::Completed { .. } => {
                *state = BreakerState::default();
                None
            }
        }
    }

    fn failed(&self, state: &mut BreakerState, error: &JobError, now: Timestamp) -> Option<Pause> {
        (state.empty, state.empty_since, state.empty_microdollars) = (0, None, 0);
        if self.failures == 0 {
            // `pauses` does not change. So if the job was the probe, the next job is the probe.
            return None;
        }
        let signature = signature(error);
        let same = state.signature.as_ref() == Some(&signature);
        state.failures = if same { state.failures.saturating_add(1) } else { 1 };
        state.signature = Some(signature);
        let probe = state.pauses > 0;
        if state.failures < self.failures && !probe {
            return None;
        }
        let times = state.failures;
        let what = if probe && times < self.failures {
            "the first job after the pause failed".to_owned()
        } else if times == 1 {
            "one job failed".to_owned()
        } else {
            format!("{} failed the same way", jobs_in_a_row(times))
        };
        Some(self.pause(state, now, &format!("{what}: {} ({})", error.message, error.kind)))
    }

    fn empty(&self, state: &mut BreakerState, microdollars: u64, now: Timestamp) -> Option<Pause> {
        if state.signature.take().is_some() {
            // The previous job failed and this job completed, so the failures and all earlier pauses no longer count.
            (state.failures, state.pauses, state.reason) = (0, 0, None);
        }
        let since = *state.empty_since.get_or_insert(now);
        // After a pause, one job without tools is enough for the next pause, so `empty_within` and `empty_usd` do not
        // apply.
        let probe = state.pauses > 0;
        if !probe && now.duration_since(since) > self.empty_within.duration() {
            (state.empty, state.empty_since, state.empty_microdollars) = (0, Some(now), 0);
        }
        state.empty = state.empty.saturating_add(1);
        state.empty_microdollars = state.empty_microdollars.saturating_add(microdollars);
        let cost = crate::budget::microdollars(self.empty_usd);
        let enough = state.empty >= self.empty_runs && state.empty_microdollars >= cost;
        if self.empty_runs == 0 || !(enough || probe) {
            if self.empty_runs == 0 {
                *state = BreakerState::default();
            }
            return None;
        }
        let (runs, cost) = (state.empty, crate::budget::money(state.empty_microdollars));
        Some(self.pause(state, now, &format!("{} used no tool and cost {cost}", jobs_in_a_row(runs))))
    }

    fn pause(&self, state: &mut BreakerState, now: Timestamp, reason: &str) -> Pause {
        const MAX_BREAKER_PAUSE: SignedDuration = SignedDuration::from_hours(24);
        let first = self.pause.duration();
        state.pauses = state.pauses.saturating_add(1);
        let pause = Backoff::doubling(first, MAX_BREAKER_PAUSE.max(first)).after(state.pauses);
        let reason = cut(reason, 0, MAX_REASON_LENGTH);
        state.reason = Some(reason.clone());
        Pause { until: now.saturating_add(pause).unwrap_or(Timestamp::MAX), reason }
    }
}

fn jobs_in_a_row(count: u32) -> String {
    if count == 1 { "one job".to_owned() } else { format!("{count} jobs in a row") }
}

/// Maximum length of a reason, in bytes. The reason is part of an event and is shown on one line.
const MAX_REASON_LENGTH: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::FailReason;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn failed(kind: ErrorKind, message: &str) -> Outcome {
        let error = JobError { kind, message: message.to_owned() };
        Outcome::Failed { reason: FailReason::Error, error, summary: None }
    }

    fn completed() -> Outcome {
        Outcome::Completed { summary: None }
    }

    /// Passes a sequence of job results to the breaker, one letter for each job. f: fails, g: fails in another way than
    /// f, l: is lost, c: is cancelled, o: completes, e: completes without using a tool. Each job costs one cent. At a
    /// blank, an hour passes. Returns the answer of the breaker to each job: `-`, or the length of the pause in
    /// minutes.
    fn answers_to(breaker: Breaker, runs: &str) -> String {
        let mut state = BreakerState::default();
        let (mut answers, mut now) = (String::new(), at(0));
        for run in runs.chars() {
            if run == ' ' {
                now += SignedDuration::from_hours(1);
                continue;
            }
            let outcome = match run {
                'f' => failed(ErrorKind::Exit, "no such file 7"),
                'g' => failed(ErrorKind::Exit, "permission denied"),
                'l' => failed(ErrorKind::Lost, "lost"),
                'c' => Outcome::Cancelled { how: crate::job::Termination::Graceful },
                _ => completed(),
            };
            let run = JudgedJob { outcome: &outcome, empty: run == 'e', microdollars: 10_000 };
            let pause = breaker.judge(&mut state, run, now);
            answers += &pause
                .map_or("-".to_owned(), |pause| format!("[{}m]", pause.until.duration_since(now).as_mins()));
        }
        answers
    }

    #[test]
    fn repeated_failures_and_empty_runs_pause_a_schedule() {
        let usual = Breaker::default();
        let three = Breaker { failures: 3, ..usual };
        let off = Breaker { failures: 0, ..usual };
        let empty = Breaker { failures: 0, empty_runs: 2, ..usual };
        let both = Breaker { failures: 3, ..empty };
        let with_min_cost = Breaker { empty_usd: 0.035, ..empty };
        let hour = Breaker { empty_runs: 3, empty_within: Interval::seconds(60 * 60), ..empty };
        for (name, breaker, runs, expected) in [
            ("by default, five equal failures cause a pause", usual, "fffff", "----[15m]"),
            ("a different failure starts the count again", three, "ffgff", "-----"),
            ("a completed job resets the count", three, "ffoff", "-----"),
            ("cancelled and lost jobs do not count", three, "flcff", "----[15m]"),
            (
                "a failed probe doubles the pause, and a completed probe resets the breaker",
                three,
                "fffffofff",
                "--[15m][30m][60m]---[15m]",
            ),
            ("a probe that fails in another way repeats the pause", three, "fffg", "--[15m][30m]"),
            (
                "a pause lasts at most a day",
                three,
                "fffffffffff",
                "--[15m][30m][60m][120m][240m][480m][960m][1440m][1440m]",
            ),
            ("with `failures: 0`, failures cause no pause", off, "ffffffff", "--------"),
            ("by default, jobs without tools cause no pause", usual, "eeeeeeee", "--------"),
            ("`empty_runs` jobs without tools cause a pause", empty, "eefoee", "-[15m]---[15m]"),
            ("jobs that cost less than `empty_usd` cause no pause", with_min_cost, "eee", "---"),
            ("jobs that cost more than `empty_usd` cause a pause", with_min_cost, "eeee", "---[15m]"),
            ("jobs within `empty_within` count together", hour, "ee e", "--[15m]"),
            ("jobs beyond `empty_within` do not count together", hour, "ee  eee", "----[15m]"),
            ("a probe that completes ends a pause for failures", both, "fffee", "--[15m]-[15m]"),
            ("`empty_within` does not apply to the probe", hour, "eee    e", "--[15m][30m]"),
            ("with `failures: 0`, the job after a failed probe is a probe", empty, "eefe", "-[15m]-[30m]"),
            ("the same if several probes fail", empty, "eeffgeoee", "-[15m]---[30m]--[15m]"),
            ("`empty_usd` does not apply to the probe", with_min_cost, "eeeefe", "---[15m]-[30m]"),
            ("a cancelled or lost probe decides nothing", both, "fffclf", "--[15m]--[30m]"),
            ("a pause for jobs without tools follows a failed probe", both, "eefee", "-[15m][30m]-[15m]"),
        ] {
            assert_eq!(answers_to(breaker, runs), expected, "{name}");
        }
    }
}
