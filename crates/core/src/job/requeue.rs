//! Attempts that were claimed and never began. The job of such an attempt is requeued. If the same problem prevents the
//! start of the job repeatedly, the job fails, unless the problem is a shortage.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ErrorKind, Job, JobChangeRefused, JobError, signature};

/// Number of times in a row that a job is requeued for the same reason before it fails.
pub const MAX_REQUEUES: u32 = 5;
/// Longest wait before the next try, in seconds.
const MAX_REQUEUE_WAIT: u32 = 60;

/// Reason why a claimed attempt never began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotBegun {
    /// The daemon ended before it could start the attempt.
    Interrupted,
    /// The machine has run out of file descriptors, processes, memory or disk space. The job does not cause this, so it
    /// waits for as long as the shortage lasts.
    Shortage(String),
    /// Any other problem. The job is requeued [`MAX_REQUEUES`] times in a row for the same reason, and then fails.
    Failed(String),
}

impl NotBegun {
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Interrupted => None,
            Self::Shortage(reason) | Self::Failed(reason) => Some(reason),
        }
    }
}

/// Attempts of a job that never began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Requeued {
    /// Reason why the last of these attempts did not begin; none after an attempt has begun. An attempt that the end of
    /// a daemon prevented does not change the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of requeues in a row for this reason.
    #[serde(default)]
    pub times: u32,
    /// Total number of attempts that never began. They do not count for `retry`.
    #[serde(default, rename = "in_all")]
    pub total: u32,
}

impl Requeued {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Clears the reason and its count, because an attempt has begun.
    pub(super) fn begun(&mut self) {
        (self.reason, self.times) = (None, 0);
    }

    /// Checks whether a place of the agent stays reserved for the waiting job, so that jobs that were created later do
    /// not start first. A job that was requeued too often does not block other jobs.
    pub fn keeps_place(&self) -> bool {
        self.reason.is_some() && self.times <= MAX_REQUEUES
    }

    /// Returns a sentence about why the job waits; none if no reason is recorded.
    pub fn sentence(&self) -> Option<String> {
        let reason = self.reason.as_deref()?;
        Some(match self.times {
            0 | 1 => format!("it could not be started and is tried again: {reason}"),
            times => format!("it could not be started {times} times and is tried again: {reason}"),
        })
    }
}

impl Job {
    pub fn requeued(&self) -> &Requeued {
        &self.requeued
    }

    /// Requeues the job because its claimed attempt never began. The wait grows by a second each time, up to a minute,
    /// because the problem may last; after the end of a daemon there is no wait. Returns false, and changes nothing, if
    /// the job was already requeued [`MAX_REQUEUES`] times in a row for the reason in `why`. A shortage has no such
    /// limit.
    pub fn requeue(&mut self, why: &NotBegun, now: Timestamp) -> Result<bool, JobChangeRefused> {
        let mut requeued = self.requeued.clone();
        requeued.total = requeued.total.saturating_add(1);
        if let Some(reason) = why.reason() {
            let same = requeued.reason.as_deref().is_some_and(|before| same(before, reason));
            requeued.times = if same { requeued.times.saturating_add(1) } else { 1 };
            requeued.reason = Some(reason.to_owned());
        }
        let wait = if why.reason().is_some() { requeued.total.min(MAX_REQUEUE_WAIT) } else { 0 };
        let wait = SignedDuration::from_secs(wait.into());
        let mut back = self.clone();
        back.back_off(now.checked_add(wait).unwrap_or(now))?;
        if matches!(why, NotBegun::Failed(_)) && requeued.times > MAX_REQUEUES {
            return Ok(false);
        }
        if back.attempts <= requeued.total {
            // No attempt has ever run.
            back.run_started_at = None;
        }
        *self = Self { requeued, ..back };
        Ok(true)
    }
}

/// Checks whether two messages have the same signature.
fn same(one: &str, other: &str) -> bool {
    let signature =
        |message: &str| signature(&JobError { kind: ErrorKind::StartFailed, message: message.to_owned() });
    signature(one) == signature(other)
}
