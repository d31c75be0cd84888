//! `cowhand retry` and `cowhand fork`: create a new job from an earlier one. `retry` can do so for each job that
//! matches a filter.

use std::collections::HashSet;
use std::path::Path;

use clap::Args;
use cowhand_core::id::{JobName, ScheduleName};
use cowhand_core::job::{JobRecord, JobStatus};

use super::bulk::{self, BulkArgs};
use super::job_filter::JobFilterArgs;
use super::location::Connection;
use super::prompt::PromptArgs;
use super::{Exit, Failure, complete, job, location, print};
use cowhand_engine::fleet::JobChanges;
use cowhand_web::api::Code;

#[derive(Debug, Args)]
pub(super) struct RetryArgs {
    /// Ended job, as `cowhand jobs` lists it
    #[arg(value_name = "JOB", add = complete::ended_jobs())]
    id: Option<JobName>,
    #[command(flatten)]
    many: BulkArgs,
    /// Wait until the job has ended; exit code 1 if it did not complete
    #[arg(long)]
    wait: bool,
    /// Print the new job as JSON, or an array for many jobs
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ForkArgs {
    /// Job to continue from, as `cowhand jobs` lists it
    #[arg(value_name = "JOB", add = complete::jobs())]
    id: JobName,
    /// Wait until the job has ended; exit code 1 if it did not complete
    #[arg(long)]
    wait: bool,
    /// Print the new job as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Schedule of the same agent for the new job, instead of the earlier job's schedule
    #[arg(long, value_name = "NAME")]
    schedule: Option<ScheduleName>,
}

impl RetryArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let one = bulk::one_or_many(self.id.as_ref(), &self.many, None, "retry")?;
        location::ask(config, async |client| match one {
            Some(name) => {
                let job = client.post(&format!("jobs/{name}/retry"), &JobChanges::default()).await?;
                job::print_created(client, job, self.wait, self.json).await
            }
            None => self.retry_many(client).await,
        })
    }

    async fn retry_many(&self, client: &Connection<'_>) -> Result<(), Failure> {
        let mut matching = self.many.matching(client, &[JobStatus::Failed]).await?;
        self.leave_out_retried(client, &mut matching).await?;
        if !self.many.confirmed(&matching, 0, "Retry", self.json)? {
            return Ok(());
        }
        let mut created = self.retry_each(client, &matching).await?;
        let is_any_refused = created.len() < matching.len();
        let ids: Vec<&str> = created.iter().map(|job| job.id.as_str()).collect();
        print::remember_done(format!("{} retried, as {}", bulk::jobs(created.len()), ids.join(", ")));
        if self.wait {
            for job in &mut created {
                let interrupt_note =
                    format!("the new jobs continue, {} among them; `cowhand jobs` lists them", job.id);
                *job = job::wait_for_end(client, &job.id, &interrupt_note).await?;
                if !self.json {
                    job::print(job, false);
                }
            }
        }
        if self.json {
            print::json(&created);
        } else {
            print::line(format!("{} retried", bulk::jobs(created.len())));
        }
        let all_completed = created.iter().all(|job| job.status == JobStatus::Completed);
        match (self.wait && !all_completed, is_any_refused) {
            (true, _) => Err(Failure::reported(Exit::JobFailed)),
            (false, true) => Err(Failure::reported(Exit::Refused)),
            (false, false) => Ok(()),
        }
    }

    /// Retries jobs in the order of their creation. If a job, its agent or its schedule was removed, prints a note and
    /// continues with the next job. Any other error ends the loop.
    async fn retry_each(
        &self,
        client: &Connection<'_>,
        matching: &[JobRecord],
    ) -> Result<Vec<JobRecord>, Failure> {
        let mut created = Vec::new();
        for earlier in matching.iter().rev() {
            let address = format!("jobs/{}/retry", earlier.id);
            let job: JobRecord = match client.post(&address, &JobChanges::default()).await {
                // The job, its agent or its schedule was removed; the others can be retried.
                Err(problem) if problem.code == Code::NotFound => {
                    print::note(format!("{} is not retried: {problem}", earlier.id));
                    continue;
                }
                answer => answer?,
            };
            if !self.json && !self.wait {
                // If the line cannot be printed, for example to a closed pipe, the other jobs are still retried.
                let _ = print::try_line(job::summary_line(&job));
            }
            created.push(job);
        }
        Ok(created)
    }

    /// Removes from `matching` the jobs that were already retried. A retry that also matches the filter, for example
    /// because it failed too, stays in `matching`.
    async fn leave_out_retried(
        &self,
        client: &Connection<'_>,
        matching: &mut Vec<JobRecord>,
    ) -> Result<(), Failure> {
        if matching.is_empty() {
            return Ok(());
        }
        // A retry is a later job of the same agent.
        let later = JobFilterArgs {
            status: None,
            until: None,
            trigger_type: None,
            schedule: None,
            ..self.many.filter.clone()
        };
        let (later, _) = later.jobs::<JobRecord>(client, None, None).await?;
        let retried: HashSet<_> = later.into_iter().filter_map(|job| job.retry_of).collect();
        matching.retain(|job| !retried.contains(&job.id));
        Ok(())
    }
}

impl ForkArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let changes = JobChanges { prompt: self.prompt.read()?, schedule: self.schedule };
        location::ask(config, async |client| {
            let job: JobRecord = client.post(&format!("jobs/{}/fork", self.id), &changes).await?;
            job::print_created(client, job, self.wait, self.json).await
        })
    }
}
