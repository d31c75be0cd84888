//! `cowhand jobs`: lists jobs, the newest first.

use std::path::Path;

use clap::Args;
use cowhand_core::duration;
use cowhand_core::id::{AgentName, JobId, JobName};
use cowhand_core::job::JobStatus;
use jiff::Timestamp;

use super::job_filter::JobFilterArgs;
use super::print::{self, Table};
use super::{Failure, complete, job, location, number};
use cowhand_web::api::{AdoptedJob, AgentView, Client, Code, ListedJob, segment};

#[derive(Debug, Args)]
pub(super) struct JobsArgs {
    #[command(flatten)]
    filter: JobFilterArgs,
    /// Maximum number of jobs
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = number::between(1, u32::MAX))]
    limit: u32,
    /// List all jobs, without a maximum
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Continue with the jobs created before this one
    #[arg(long, value_name = "JOB", add = complete::jobs())]
    after: Option<JobName>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

impl JobsArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        location::ask(config, async |client| {
            let limit = (!self.all).then_some(self.limit as usize);
            let after = self.after.as_ref().map(ToString::to_string);
            let (listed, more) = self.filter.jobs::<ListedJob>(client, after, limit).await?;
            if self.json {
                print::json(&listed);
                return Ok(());
            }
            if listed.is_empty() {
                print::line("no jobs");
            } else {
                table(&listed, Timestamp::now()).print();
            }
            if let Some(agent) = &self.filter.agent {
                note_adopted(client, agent, |job| format!("`cowhand job {job}` shows it")).await?;
            }
            if let Some(last) = listed.last().filter(|_| more) {
                let (id, filter) = (&last.job.id, self.filter.arguments());
                print::note(format!(
                    "there are more jobs; `cowhand jobs{filter} --after {id}` shows the next ones, `--all` shows all"
                ));
            }
            Ok(())
        })
    }
}

/// Prints a note about each running job that belongs to another agent and takes a place of `agent`, with the advice for
/// the job.
pub(super) async fn note_adopted(
    client: &Client,
    agent: &AgentName,
    advice: impl Fn(&JobId) -> String,
) -> Result<(), Failure> {
    for job in adopted(client, agent).await? {
        print::note(format!("{}; {}", job.sentence(agent), advice(&job.id)));
    }
    Ok(())
}

/// Returns the running jobs of other agents that take places of the agent. An agent that is not in the config has none.
pub(super) async fn adopted(client: &Client, agent: &AgentName) -> Result<Vec<AdoptedJob>, Failure> {
    match client.get::<AgentView>(&format!("agents/{}", segment(agent.as_str()))).await {
        Ok(view) => Ok(view.adopted),
        Err(problem) if problem.code == Code::NotFound => Ok(Vec::new()),
        Err(problem) => Err(problem.into()),
    }
}

pub(super) fn table(jobs: &[ListedJob], now: Timestamp) -> Table {
    const MESSAGE: usize = 3;
    // The column is shown only if a chat message caused one of the jobs.
    let has_messages = jobs.iter().any(|listed| listed.job.message.is_some());
    let mut head = vec!["JOB", "AGENT", "SCHEDULE", "STATUS", "CREATED", "TOOK", "OUTCOME"];
    if has_messages {
        head.insert(MESSAGE, "MESSAGE");
    }
    let optional = &["TOOK", "MESSAGE", "SCHEDULE", "CREATED", "OUTCOME"];
    let mut table = Table::new(&head).optional_columns(optional);
    for ListedJob { job, unsettled, .. } in jobs {
        let mut row = vec![
            job.id.to_string(),
            job.agent.to_string(),
            job.schedule.as_ref().map(ToString::to_string).unwrap_or_default(),
            status_word(job.status, *unsettled),
            duration::relative_to_now(now, job.started_at),
            job.duration_seconds.map(duration::rounded_from_seconds).unwrap_or_default(),
            print::cell(&job::outcome(job)),
        ];
        if has_messages {
            row.insert(MESSAGE, job.message.as_ref().map(ToString::to_string).unwrap_or_default());
        }
        table.row(row);
    }
    table
}

/// Returns the status for a table. A running job whose attempt does not run is shown as `unsettled`.
pub(super) fn status_word(status: JobStatus, unsettled: bool) -> String {
    if unsettled { "unsettled".to_owned() } else { status.to_string() }
}
