//! Attempts that were claimed and never began: the job waits again, and fails if the same thing keeps it from beginning
//! again and again.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ErrorKind, Job, JobError, Refused, signature};

/// How often in a row a job is put back for the same reason before it fails.
pub const MAX_REQUEUES: u32 = 5;
/// The longest wait before the next try, in seconds.
const LONGEST_WAIT: u32 = 60;

/// Why an attempt that was claimed never began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotBegun {
    /// The daemon ended before it could start the attempt.
    Interrupted,
    /// The machine has run out of something: file descriptors, processes, memory or disk space. That is no fault of the job,
    /// which waits for as long as it lasts.
    Shortage(String),
    /// Anything else. After [`MAX_REQUEUES`] in a row the job fails.
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
    /// Why the last one did not begin; none once an attempt has begun since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How many in a row had this reason.
    #[serde(default)]
    pub times: u32,
    /// How many there were in all; they do not count for `retry`.
    #[serde(default)]
    pub in_all: u32,
}

impl Requeued {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// An attempt has begun, so nothing keeps the job from beginning any more.
    pub(super) fn begun(&mut self) {
        (self.reason, self.times) = (None, 0);
    }

    /// Whether the job keeps its place while it waits, so that later ones do not overtake it. One that was put back too often
    /// does not hold up the others.
    pub fn keeps_place(&self) -> bool {
        self.reason.is_some() && self.times <= MAX_REQUEUES
    }

    /// What the job waits for, in a sentence.
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

    /// Puts the job back because its claimed attempt never began. It waits a little longer each time, since what keeps it
    /// from beginning may last; after the end of a daemon it need not wait. False, and nothing is changed, if that has happened too often for this reason.
    pub fn give_back(&mut self, why: &NotBegun, now: Timestamp) -> Result<bool, Refused> {
        let mut requeued = self.requeued.clone();
        requeued.in_all = requeued.in_all.saturating_add(1);
        if let Some(reason) = why.reason() {
            let same = requeued.reason.as_deref().is_some_and(|before| same(before, reason));
            requeued.times = if same { requeued.times.saturating_add(1) } else { 1 };
            requeued.reason = Some(reason.to_owned());
        }
        let wait = if why.reason().is_some() { requeued.in_all.min(LONGEST_WAIT) } else { 0 };
        let wait = SignedDuration::from_secs(wait.into());
        let mut back = self.clone();
        back.back_off(now.checked_add(wait).unwrap_or(now))?;
        if matches!(why, NotBegun::Failed(_)) && requeued.times > MAX_REQUEUES {
            return Ok(false);
        }
        if back.attempts <= requeued.in_all {
            // Nothing of it has ever run.
            back.run_started_at = None;
        }
        *self = Self { requeued, ..back };
        Ok(true)
    }
}

/// Two sentences that differ only in numbers and paths made of them have one reason.
fn same(one: &str, other: &str) -> bool {
    let signature =
        |message: &str| signature(&JobError { kind: ErrorKind::StartFailed, message: message.to_owned() });
    signature(one) == signature(other)
}
