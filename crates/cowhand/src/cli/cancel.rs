//! `cowhand cancel`: cancels a job and ends all its processes, or does so for all jobs that match a filter.

use std::path::Path;

use clap::Args;
use cowhand_core::id::JobName;
use cowhand_core::job::{JobRecord, JobStatus};

use super::bulk::{self, BulkArgs};
use super::location::Connection;
use super::{Failure, complete, job, location, print};
use cowhand_web::api::Code;

#[derive(Debug, Args)]
pub(super) struct CancelArgs {
    /// Job to cancel, as `cowhand jobs` lists it
    #[arg(value_name = "JOB", add = complete::live_jobs())]
    id: Option<JobName>,
    #[command(flatten)]
    many: BulkArgs,
    /// Cancel every pending or running job
    #[arg(long, conflicts_with_all = ["id", "JobFilterArgs"])]
    all: bool,
    /// Print the job as JSON, or an array for many jobs
    #[arg(long)]
    json: bool,
}

impl CancelArgs {
    /// Returns after the processes have ended, so that it can print how they ended.
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let one = bulk::one_or_many(self.id.as_ref(), &self.many, self.all, "cancel")?;
        location::ask(config, async |client| match one {
            Some(name) => {
                let job: JobRecord = client.post(&format!("jobs/{name}/cancel"), &()).await?;
                job::print(&ended(client, &job).await?, self.json);
                Ok(())
            }
            None => self.cancel_many(client).await,
        })
    }

    async fn cancel_many(&self, client: &Connection<'_>) -> Result<(), Failure> {
        let live = [JobStatus::Pending, JobStatus::Running];
        let matching = self.many.matching(client, &live).await?;
        if !self.many.confirmed(&matching, "Cancel", self.json)? {
            return Ok(());
        }
        let mut asked = Vec::new();
        let mut over = 0;
        // Request all cancellations first, so that the jobs end in parallel.
        for job in &matching {
            match client.post::<JobRecord>(&format!("jobs/{}/cancel", job.id), &()).await {
                Ok(job) => asked.push(job),
                // The job ended before the request, or somebody removed it.
                Err(problem) if matches!(problem.code, Code::AlreadyStopped | Code::NotFound) => over += 1,
                Err(problem) => return Err(problem.into()),
            }
        }
        let mut cancelled = Vec::new();
        for job in &asked {
            let job = ended(client, job).await?;
            if !self.json {
                job::print(&job, false);
            }
            cancelled.push(job);
        }
        if self.json {
            print::json(&cancelled);
        } else {
            let over =
                if over > 0 { format!("; {} had ended before", bulk::jobs(over)) } else { String::new() };
            print::line(format!("{} cancelled{over}", bulk::jobs(cancelled.len())));
        }
        Ok(())
    }
}

async fn ended(client: &Connection<'_>, job: &JobRecord) -> Result<JobRecord, Failure> {
    let goes_on = format!("{id} is being cancelled; `cowhand job {id}` shows its status", id = job.id);
    job::ended(client, &job.id, &goes_on).await
}
