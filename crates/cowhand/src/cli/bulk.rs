//! Selects the jobs of verbs that act on many jobs (`retry`, `cancel`), and asks the user to confirm.

use std::collections::HashSet;
use std::io::{self, BufRead, IsTerminal, Write};

use clap::Args;
use cowhand_core::id::{JobId, JobName};
use cowhand_core::job::{JobRecord, JobStatus};

use super::job_filter::JobFilterArgs;
use super::location::Connection;
use super::{Failure, print};

#[derive(Debug, Args)]
pub(super) struct BulkArgs {
    #[command(flatten)]
    pub(super) filter: JobFilterArgs,
    /// Do not ask for confirmation
    #[arg(long, short)]
    yes: bool,
}

/// Returns the job that is named, or none if a filter or `--all` selects the jobs. Fails if the command has both, or
/// neither. `all` is none for a verb without `--all`.
pub(super) fn one_or_many<'n>(
    named: Option<&'n JobName>,
    many: &BulkArgs,
    all: Option<bool>,
    verb: &str,
) -> Result<Option<&'n JobName>, Failure> {
    match (named, many.filter.is_set() || all == Some(true)) {
        (Some(_), true) => Err(Failure::usage("name a job or give a filter, not both")),
        (None, false) => {
            let or_all = if all.is_some() { ", or `--all`" } else { "" };
            Err(Failure::usage(format!(
                "name a job (`cowhand {verb} JOB`) or give a filter (`--agent`, `--status`, …){or_all}"
            )))
        }
        (named, _) => Ok(named),
    }
}

impl BulkArgs {
    /// Returns the matching jobs with the requested status, or with `default_statuses` if no status is requested. Fails
    /// if the verb cannot act on jobs of the requested status: `retry` on live jobs, `cancel` on ended jobs.
    pub(super) async fn matching(
        &self,
        client: &Connection<'_>,
        default_statuses: &[JobStatus],
    ) -> Result<Vec<JobRecord>, Failure> {
        let is_live = |status: JobStatus| matches!(status, JobStatus::Pending | JobStatus::Running);
        let statuses = match self.filter.status {
            None => default_statuses.to_vec(),
            Some(status) if is_live(status) == is_live(default_statuses[0]) => vec![status],
            Some(status) if is_live(status) => {
                return Err(Failure::usage(format!(
                    "a {status} job has not ended; only ended jobs can be retried"
                )));
            }
            Some(status) => {
                return Err(Failure::usage(format!("a {status} job has ended; there is nothing to cancel")));
            }
        };
        let mut matching = Vec::new();
        for status in statuses {
            let filter = JobFilterArgs { status: Some(status), ..self.filter.clone() };
            add_new(&mut matching, filter.jobs(client, None, None).await?.0);
        }
        Ok(matching)
    }

    /// Lists the jobs, asks the user to confirm, and returns whether the verb may act. Returns false if nothing
    /// matches. With `--yes`, the user is not asked; without a terminal, `--yes` is required. `accepted_firings` is the
    /// number of matching firings without a job.
    pub(super) fn confirmed(
        &self,
        matching: &[JobRecord],
        accepted_firings: usize,
        verb: &str,
        json: bool,
    ) -> Result<bool, Failure> {
        if matching.is_empty() && accepted_firings == 0 {
            if json {
                print::json(&matching);
            } else {
                print::line("no job matches");
            }
            return Ok(false);
        }
        if self.yes {
            return Ok(true);
        }
        let count = counted(matching.len(), accepted_firings);
        let is_one = matching.len() + accepted_firings == 1;
        let (matches, them) = if is_one { ("matches", "it") } else { ("match", "them") };
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            let verb = verb.to_lowercase();
            return Err(Failure::usage(format!(
                "{count} {matches}; give `--yes` to {verb} {them} without confirmation"
            )));
        }
        for job in matching.iter().take(MAX_JOBS_SHOWN) {
            print::stderr(&format!("  {}  {}  {}", job.id, job.agent, job.status));
        }
        if matching.len() > MAX_JOBS_SHOWN {
            print::stderr(&format!("  … and {} more", matching.len() - MAX_JOBS_SHOWN));
        }
        anstream::eprint!("{verb} {count}? [y/N] ");
        let mut answer = String::new();
        let read = io::stderr().flush().and_then(|()| io::stdin().lock().read_line(&mut answer));
        read.map_err(|error| Failure::usage(format!("cannot read the answer: {error}")))?;
        let is_confirmed = matches!(answer.trim(), "y" | "Y" | "yes");
        if !is_confirmed {
            print::note("nothing was done");
        }
        Ok(is_confirmed)
    }
}

/// Adds jobs of another status. A job whose status changes between the two requests is in both lists; its newer record
/// replaces the older one.
fn add_new(jobs: &mut Vec<JobRecord>, more: Vec<JobRecord>) {
    let newer: HashSet<&JobId> = more.iter().map(|job| &job.id).collect();
    jobs.retain(|job| !newer.contains(&job.id));
    jobs.extend(more);
}

/// Maximum number of jobs that are listed before the question.
const MAX_JOBS_SHOWN: usize = 10;

/// Formats counts of jobs and firings: `1 job`, `2 firings`, `3 jobs and 1 firing`.
pub(super) fn counted(all_jobs: usize, firings: usize) -> String {
    let firings_in_words = if firings == 1 { "1 firing".to_owned() } else { format!("{firings} firings") };
    match (all_jobs, firings) {
        (_, 0) => jobs(all_jobs),
        (0, _) => firings_in_words,
        _ => format!("{} and {firings_in_words}", jobs(all_jobs)),
    }
}

/// Formats a count of jobs: `1 job`, `3 jobs`.
pub(super) fn jobs(count: usize) -> String {
    if count == 1 { "1 job".to_owned() } else { format!("{count} jobs") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_job_whose_status_changes_between_two_requests_is_listed_once() {
        let record = |id: &str, status: &str| -> JobRecord {
            let fields = json!({
                "id": id, "agent": "a", "trigger_type": "manual", "status": status,
                "started_at": "2026-01-05T10:00:00Z",
            });
            serde_json::from_value(fields).unwrap()
        };
        let mut jobs =
            vec![record("job-2026-01-05-aaaaaa", "pending"), record("job-2026-01-05-bbbbbb", "pending")];
        add_new(&mut jobs, vec![record("job-2026-01-05-aaaaaa", "running")]);
        let listed: Vec<_> = jobs.iter().map(|job| (job.id.as_str(), job.status)).collect();
        assert_eq!(
            listed,
            [("job-2026-01-05-bbbbbb", JobStatus::Pending), ("job-2026-01-05-aaaaaa", JobStatus::Running)]
        );
    }
}
