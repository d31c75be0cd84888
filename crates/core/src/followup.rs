//! Follow-ups: jobs that agents request while they run. Bounds apply to the whole chain, so that agents cannot start
//! each other's jobs without end.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{AgentName, JobId};
use crate::interval::Interval;

/// Rules for follow-ups: how many an agent's jobs may request, and which other agents may request its jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Followups {
    /// Maximum number of follow-ups in the whole chain, of all agents together; unset means that jobs of this agent may
    /// request none.
    #[serde(default)]
    #[schemars(range(min = 1, max = 10_000))]
    pub max: Option<u32>,
    /// Minimum time between the request of a follow-up and its start; unset means 1m.
    #[serde(default)]
    pub min_interval: Option<Interval>,
    /// Maximum time between the creation of a chain's first job and the start of a follow-up; unset means 7d.
    #[serde(default)]
    pub expires: Option<Interval>,
    /// Other agents whose jobs may request jobs of this agent, with a prompt that the other agent writes; unset means
    /// that only this agent's own jobs may request them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<String>,
}

const DEFAULT_MIN_INTERVAL: Interval = Interval::minutes(1);
const DEFAULT_EXPIRES: Interval = Interval::days(7);

/// State of a chain when another follow-up is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// Number of follow-ups so far.
    pub made: u32,
    /// Creation time of the first job.
    pub began: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FollowupRefused {
    #[error("this agent may not ask for follow-ups: it has no `followups.max` in its config")]
    NotAllowed,
    #[error("{of} takes no follow-ups from {by}: {by} is not among `followups.from` of {of}")]
    NotFrom { by: AgentName, of: AgentName },
    #[error("{of} is not an agent of this fleet")]
    NoAgent { of: AgentName },
    #[error("{of} does not trust the text of this job: {why}")]
    Distrusted { of: AgentName, why: String },
    #[error("this chain of jobs has {made} follow-ups, and the maximum is {max} (`followups.max`)")]
    TooMany { made: u32, max: u32 },
    #[error(
        "this chain of jobs began at {began}, and its maximum duration is {expires} (`followups.expires`)"
    )]
    TooLong { began: Timestamp, expires: Interval },
    #[error(
        "the next follow-up could begin at {begins} at the earliest (`followups.min_interval`), but this chain of jobs \
         began at {began} and may last {expires} at most (`followups.expires`)"
    )]
    StartsTooLate { begins: Timestamp, began: Timestamp, expires: Interval },
}

/// The last refused follow-up of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RefusedFollowup {
    pub job: JobId,
    pub at: Timestamp,
    pub message: String,
}

impl Followups {
    /// Returns `min_interval`, or its default.
    pub fn min_interval(&self) -> Interval {
        self.min_interval.unwrap_or(DEFAULT_MIN_INTERVAL)
    }

    /// Returns `expires`, or its default.
    pub fn expires(&self) -> Interval {
        self.expires.unwrap_or(DEFAULT_EXPIRES)
    }

    /// Returns the earliest start of the next follow-up: `requested`, or later because of `min_interval`. Refuses the
    /// follow-up if the chain has `max` follow-ups, or if the start would be after the end of the chain (`expires`).
    pub fn next(
        &self,
        chain: Chain,
        requested: Timestamp,
        now: Timestamp,
    ) -> Result<Timestamp, FollowupRefused> {
        if let Some(max) = self.max.filter(|max| chain.made >= *max) {
            return Err(FollowupRefused::TooMany { made: chain.made, max });
        }
        let after = |from: Timestamp, wait: SignedDuration| from.checked_add(wait).unwrap_or(Timestamp::MAX);
        let expires = self.expires();
        let begins = requested.max(after(now, self.min_interval().duration()));
        let end = after(chain.began, expires.duration());
        if begins > end {
            let began = chain.began;
            return Err(if requested > end || now > end {
                FollowupRefused::TooLong { began, expires }
            } else {
                FollowupRefused::StartsTooLate { begins, began, expires }
            });
        }
        Ok(begins)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_of_follow_ups_are_limited() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let rules = |max, min_interval: Option<&str>, expires: Option<&str>| Followups {
            max,
            min_interval: min_interval.map(|text| text.parse().unwrap()),
            expires: expires.map(|text| text.parse().unwrap()),
            from: Vec::new(),
        };
        let usual = &rules(Some(3), None, None);
        let quick = &rules(Some(3), Some("5s"), Some("1h"));
        let of_others = &rules(None, None, None);
        let too_many = "this chain of jobs has 3 follow-ups, and the maximum is 3 (`followups.max`)";
        let too_long = "this chain of jobs began at 1970-01-01T00:00:00Z, and its maximum duration is 1h (`followups.expires`)";
        let starts_too_late = "the next follow-up could begin at 1970-01-01T01:00:01Z at the earliest \
            (`followups.min_interval`), but this chain of jobs began at 1970-01-01T00:00:00Z and may last 1h at most \
            (`followups.expires`)";
        for (rules, made, requested, now, expected) in [
            (usual, 0, 0, 100, Ok(160)),
            (usual, 2, 500, 100, Ok(500)),
            (usual, 3, 500, 100, Err(too_many)),
            (of_others, 3, 0, 100, Ok(160)),
            (quick, 0, 100, 100, Ok(105)),
            (quick, 0, 3600, 100, Ok(3600)),
            (quick, 0, 3601, 100, Err(too_long)),
            (quick, 0, 0, 3596, Err(starts_too_late)),
            (quick, 0, 0, 3601, Err(too_long)),
            (
                quick,
                9,
                0,
                0,
                Err("this chain of jobs has 9 follow-ups, and the maximum is 3 (`followups.max`)"),
            ),
        ] {
            let chain = Chain { made, began: at(0) };
            let next = rules.next(chain, at(requested), at(now)).map(Timestamp::as_second);
            assert_eq!(next.map_err(|refused| refused.to_string()), expected.map_err(str::to_owned));
        }
    }
}
