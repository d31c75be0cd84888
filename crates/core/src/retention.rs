//! Retention: how many finished jobs are kept, and how long.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{AgentName, JobId};
use crate::interval::Interval;
use crate::size::Size;
use crate::word::written_as;

/// Limits for an agent's finished jobs. An unset key sets no limit; without limits all jobs are kept.
// The schema shows the text above to users, so this is not a doc comment. `Default` must set no limit, because the
// loader and requests use it for "not set". A default for all fleets belongs to the two places that fill the resolved
// config: `config/agent.rs` for agents, and `config/compose.rs` for the root file, whose limits apply to the jobs of
// removed agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Maximum number of jobs; those that ended last are kept.
    #[schemars(range(min = 1))]
    pub max_jobs_per_agent: Option<u32>,
    /// Maximum time since the end of a job.
    pub max_age: Option<Interval>,
    /// Maximum size of the files of the jobs together (output, views, diff); the newest jobs are kept.
    pub max_bytes: Option<Size>,
}

/// The limit that a job exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Limit")]
pub enum RetentionLimit {
    MaxJobsPerAgent,
    MaxAge,
    MaxBytes,
}

written_as! {
    RetentionLimit { MaxJobsPerAgent = "max_jobs_per_agent", MaxAge = "max_age", MaxBytes = "max_bytes" }
}

/// An ended job and its size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub id: JobId,
    pub agent: AgentName,
    pub at: Timestamp,
    pub bytes: u64,
}

/// A job to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excess {
    pub job: Finished,
    pub limit: RetentionLimit,
}

impl Retention {
    /// Checks whether all jobs are kept.
    pub const fn is_unlimited(&self) -> bool {
        self.max_jobs_per_agent.is_none() && self.max_age.is_none() && self.max_bytes.is_none()
    }

    /// Merges two sets of limits: unset keys are taken from `below`.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        Self {
            max_jobs_per_agent: self.max_jobs_per_agent.or(below.max_jobs_per_agent),
            max_age: self.max_age.or(below.max_age),
            max_bytes: self.max_bytes.or(below.max_bytes),
        }
    }

    /// Returns the first limit that a finished job exceeds, if there is one. `newer` is the number of the agent's jobs
    /// that ended after this job, `age` is the time since the end of this job, and `bytes` is the size of this job and
    /// the newer jobs together.
    fn excess(&self, newer: usize, age: SignedDuration, bytes: u64) -> Option<RetentionLimit> {
        if self.max_jobs_per_agent.is_some_and(|most| newer >= most as usize) {
            Some(RetentionLimit::MaxJobsPerAgent)
        } else if self.max_age.is_some_and(|most| age > most.duration()) {
            Some(RetentionLimit::MaxAge)
        } else if self.max_bytes.is_some_and(|most| bytes > most.bytes()) {
            Some(RetentionLimit::MaxBytes)
        } else {
            None
        }
    }
}

/// Returns the jobs to be removed, oldest first. Of jobs that ended at the same moment, the later in the list is the
/// newer. An agent's newest job is always kept, because it shows the state of the agent.
pub fn excess(
    mut jobs: Vec<Finished>,
    policy: impl Fn(&AgentName) -> Retention,
    now: Timestamp,
) -> Vec<Excess> {
    /// Count and size of an agent's jobs so far, from its newest job on.
    #[derive(Default)]
    struct Seen {
        jobs: usize,
        bytes: u64,
    }
    jobs.sort_by_key(|job| job.at);
    let mut seen: HashMap<AgentName, (Retention, Seen)> = HashMap::new();
    let mut excess = Vec::new();
    for job in jobs.into_iter().rev() {
        let (retention, seen) =
            seen.entry(job.agent.clone()).or_insert_with(|| (policy(&job.agent), Seen::default()));
        seen.bytes = seen.bytes.saturating_add(job.bytes);
        let limit = retention.excess(seen.jobs, now.duration_since(job.at), seen.bytes);
        let newest = seen.jobs == 0;
        seen.jobs += 1;
        if let Some(limit) = limit.filter(|_| !newest) {
            excess.push(Excess { job, limit });
        }
    }
    excess.reverse();
    excess
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(hour: i64) -> Timestamp {
        Timestamp::from_second(1_767_600_000 + hour * 3_600).unwrap()
    }

    fn retention(json: &str) -> Retention {
        serde_json::from_str(json).unwrap()
    }

    /// `a1@5` is job 1 of agent `a`, which ended at 5 o'clock and takes 100 bytes; `a1@5+900` takes 900.
    fn jobs(text: &str) -> Vec<Finished> {
        let job = |text: &str| {
            let (name, rest) = text.split_once('@').unwrap();
            let (hour, bytes) = rest.split_once('+').unwrap_or((rest, "100"));
            Finished {
                id: format!("job-2026-01-05-00000{}", &name[1..]).parse().unwrap(),
                agent: name[..1].parse().unwrap(),
                at: at(hour.parse().unwrap()),
                bytes: bytes.parse().unwrap(),
            }
        };
        text.split_whitespace().map(job).collect()
    }

    #[test]
    fn excess_jobs_are_listed_with_their_reason() {
        for (case, policy, listed, expected) in [
            ("everything is kept", "{}", "a1@1 a2@2 a3@3", ""),
            (
                "the newest two are kept",
                r#"{"max_jobs_per_agent":2}"#,
                "a1@1 a2@2 a3@3 a4@4",
                "a1:max_jobs_per_agent a2:max_jobs_per_agent",
            ),
            ("fewer jobs than the limit", r#"{"max_jobs_per_agent":9}"#, "a1@1 a2@2", ""),
            (
                "the limit applies to each agent",
                r#"{"max_jobs_per_agent":1}"#,
                "a1@1 b2@2 a3@3 b4@4",
                "a1:max_jobs_per_agent b2:max_jobs_per_agent",
            ),
            (
                "the jobs that ended last are kept, whatever their IDs are",
                r#"{"max_jobs_per_agent":1}"#,
                "a1@9 a2@2",
                "a2:max_jobs_per_agent",
            ),
            (
                "of jobs that ended at the same moment, the later in the list is newer",
                r#"{"max_jobs_per_agent":1}"#,
                "a1@2 a2@2",
                "a1:max_jobs_per_agent",
            ),
            ("one job is older than the limit", r#"{"max_age":"5h"}"#, "a1@4 a2@5 a3@9", "a1:max_age"),
            ("one job is exactly as old as the limit", r#"{"max_age":"6h"}"#, "a1@4 a2@9", ""),
            ("the newest stays, however old", r#"{"max_age":"1h"}"#, "a1@1 a2@2 b3@1", "a1:max_age"),
            (
                "together the jobs are larger than the limit",
                r#"{"max_bytes":"250"}"#,
                "a1@1 a2@2 a3@3",
                "a1:max_bytes",
            ),
            (
                "together the jobs are exactly as large as the limit",
                r#"{"max_bytes":"300"}"#,
                "a1@1 a2@2 a3@3",
                "",
            ),
            ("the newest stays, however large", r#"{"max_bytes":"250"}"#, "a1@1 a2@2+999", "a1:max_bytes"),
            (
                "a job older than a removed one is removed, however small it is",
                r#"{"max_bytes":"250"}"#,
                "a1@1+1 a2@2+900 a3@3",
                "a1:max_bytes a2:max_bytes",
            ),
            (
                "the sum of sizes does not overflow",
                r#"{"max_bytes":"1000000TB"}"#,
                "a1@1+18446744073709551615 a2@2+18446744073709551615",
                "a1:max_bytes",
            ),
            (
                "the first limit is named",
                r#"{"max_jobs_per_agent":2,"max_age":"1h"}"#,
                "a1@1 a2@2 a3@9",
                "a1:max_jobs_per_agent a2:max_age",
            ),
            ("a job whose end is in the future is kept", r#"{"max_age":"1s"}"#, "a1@99 a2@100", ""),
        ] {
            let gone = excess(jobs(listed), |_| retention(policy), at(10));
            let removed: Vec<String> = gone
                .iter()
                .map(|gone| {
                    let id = gone.job.id.as_str();
                    format!("{}{}:{}", gone.job.agent, &id[id.len() - 1..], gone.limit)
                })
                .collect();
            assert_eq!(removed.join(" "), expected, "{case}");
        }
    }

    #[test]
    fn each_agent_has_its_own_policy() {
        let policy = |agent: &AgentName| match agent.as_str() {
            "a" => retention(r#"{"max_jobs_per_agent":1}"#),
            _ => Retention::default(),
        };
        let gone = excess(jobs("a1@1 b2@1 a3@2 b4@2"), policy, at(10));
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].job.agent.as_str(), "a");
    }

    #[test]
    fn set_retention_keys_override_those_below() {
        let above = retention(r#"{"max_age":"1d"}"#);
        let below = retention(r#"{"max_age":"30d","max_bytes":"2GB"}"#);
        assert_eq!(above.over(below), retention(r#"{"max_age":"1d","max_bytes":"2GB"}"#));
        assert!(Retention::default().is_unlimited() && !below.is_unlimited());
    }
}
