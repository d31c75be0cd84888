//! `cowhand cancel`: cancels a job and ends all its processes. With a filter or `--all`, cancels all matching jobs, and
//! all matching firings that have no job yet.

use std::path::Path;

use clap::Args;
use cowhand_core::id::JobName;
use cowhand_core::job::{ErrorKind, JobRecord, JobStatus};
use serde_json::{Value, json};

use super::bulk::{self, BulkArgs};
use super::job_filter::JobFilterArgs;
use super::location::Connection;
use super::{Exit, Failure, complete, follow, job, jobs, location, print};
use cowhand_engine::fleet::AcceptedFiring;
use cowhand_web::api::{ApiProblem, CancelFiringsRequest, CancelledFirings, Code, JobView};

#[derive(Debug, Args)]
pub(super) struct CancelArgs {
    /// Job to cancel, as `cowhand jobs` lists it
    #[arg(value_name = "JOB", add = complete::live_jobs())]
    id: Option<JobName>,
    #[command(flatten)]
    many: BulkArgs,
    /// Cancel every pending or running job, and every firing that has no job yet
    #[arg(long, conflicts_with_all = ["id", "JobFilterArgs"])]
    all: bool,
    /// Print the job as JSON, or an array for many jobs
    #[arg(long)]
    json: bool,
}

impl CancelArgs {
    /// Cancels, and waits until the processes have ended, to print how they ended.
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let one = bulk::one_or_many(self.id.as_ref(), &self.many, Some(self.all), "cancel")?;
        location::ask(config, async |client| match one {
            Some(name) => {
                let job: JobRecord = client.post(&format!("jobs/{name}/cancel"), &()).await?;
                let job = wait_for_end(client, &job).await?;
                print::remember_done(format!("{} is {}", job.id, job.status));
                job::print(&job, self.json);
                if is_lost_elsewhere(client, &job).await? {
                    Err(Failure::reported(Exit::JobFailed))
                } else if has_ended_before(&job) {
                    Err(Failure::reported(Exit::Refused))
                } else {
                    Ok(())
                }
            }
            None => self.cancel_many(client).await,
        })
    }

    async fn cancel_many(&self, client: &Connection<'_>) -> Result<(), Failure> {
        let live_statuses = [JobStatus::Pending, JobStatus::Running];
        let matching = self.many.matching(client, &live_statuses).await?;
        let accepted_firings = self.firings(client, true).await?.len();
        if let Some(agent) = self.many.filter.agent.as_ref().filter(|_| !self.json) {
            jobs::note_adopted(client, agent, |job| format!("`cowhand cancel {job}` cancels it")).await?;
        }
        // Without a daemon nothing can be cancelled, so nobody has to confirm it.
        if client.is_alone() && !(matching.is_empty() && accepted_firings == 0) {
            return Err(ApiProblem::no_daemon().into());
        }
        if !self.many.confirmed(&matching, accepted_firings, "Cancel", self.json)? {
            return Ok(());
        }
        // Firings are cancelled first, so that none of them creates a job that is not cancelled.
        let firings = if accepted_firings > 0 { self.firings(client, false).await? } else { Vec::new() };
        let mut requested = Vec::new();
        let mut already_ended = 0;
        // Request all cancellations first, so that the jobs end in parallel.
        for job in &matching {
            match client.post::<JobRecord>(&format!("jobs/{}/cancel", job.id), &()).await {
                Ok(job) => requested.push(job),
                // The job ended before the request, or was removed.
                Err(problem) if matches!(problem.code, Code::AlreadyStopped | Code::NotFound) => {
                    already_ended += 1;
                }
                Err(problem) => return Err(problem.into()),
            }
        }
        print::remember_done(format!("{} cancelled", bulk::counted(requested.len(), firings.len())));
        let (mut ended, mut lost) = (Vec::new(), 0);
        for job in &requested {
            let job = wait_for_end(client, job).await?;
            if !self.json {
                job::print(&job, false);
            }
            if is_lost_elsewhere(client, &job).await? {
                lost += 1;
            } else if has_ended_before(&job) {
                already_ended += 1;
            }
            ended.push(job);
        }
        if self.json {
            let jobs = ended.iter().map(|job| json!(job));
            let firings = firings.iter().map(firing_in_json);
            print::json(&jobs.chain(firings).collect::<Vec<Value>>());
        } else {
            let already_ended = if already_ended > 0 {
                format!("; {} had ended before", bulk::jobs(already_ended))
            } else {
                String::new()
            };
            let lost_jobs = if lost > 0 { format!("; {} lost", bulk::jobs(lost)) } else { String::new() };
            let cancelled = ended.iter().filter(|job| job.status == JobStatus::Cancelled).count();
            let count = bulk::counted(cancelled, firings.len());
            print::line(format!("{count} cancelled{lost_jobs}{already_ended}"));
        }
        if lost > 0 { Err(Failure::reported(Exit::JobFailed)) } else { Ok(()) }
    }

    /// Cancels the matching accepted firings that have no job, and returns them; with `dry_run`, only returns them. If
    /// the filter has another condition than the agent, the schedule or the status `pending`, no firing matches.
    async fn firings(&self, client: &Connection<'_>, dry_run: bool) -> Result<Vec<AcceptedFiring>, Failure> {
        if self.many.filter.has_conditions_of_jobs() {
            return Ok(Vec::new());
        }
        let JobFilterArgs { agent, schedule, .. } = self.many.filter.with_split_schedule(client).await?;
        let request = CancelFiringsRequest { agent, schedule, dry_run };
        Ok(client.post::<CancelledFirings>("firings/cancel", &request).await?.cancelled)
    }
}

/// Returns a cancelled firing for `--json`. It has the key `firing` instead of the `id` of a job.
fn firing_in_json(AcceptedFiring { agent, schedule, key }: &AcceptedFiring) -> Value {
    json!({ "firing": key, "agent": agent, "schedule": schedule, "status": "cancelled" })
}

/// Returns whether the job ended by itself before the cancellation took effect, for example while its node did not yet
/// know of the request. If it did, prints a note.
fn has_ended_before(job: &JobRecord) -> bool {
    let ended_before = job.status != JobStatus::Cancelled;
    if ended_before {
        print::note(format!(
            "{} was not cancelled: it {} before the request took effect",
            job.id, job.status
        ));
    }
    ended_before
}

/// Returns whether the job was lost on another node instead of being cancelled. If it was lost, prints a note: the
/// other node did not answer, so the processes may still run.
async fn is_lost_elsewhere(client: &Connection<'_>, job: &JobRecord) -> Result<bool, Failure> {
    if job.error.as_ref().is_none_or(|error| error.kind != ErrorKind::Lost) {
        return Ok(false);
    }
    let view: JobView = follow::get(client, &format!("jobs/{}", job.id)).await?;
    let Some(node) = view.other_node() else { return Ok(false) };
    print::note(format!(
        "{} was not cancelled: its node, {node}, did not answer; its processes may still run there until the daemon \
         of that node runs again and ends them",
        job.id
    ));
    Ok(true)
}

async fn wait_for_end(client: &Connection<'_>, job: &JobRecord) -> Result<JobRecord, Failure> {
    let interrupt_note = format!("{id} is being cancelled; `cowhand job {id}` shows its status", id = job.id);
    job::wait_for_end(client, &job.id, &interrupt_note).await
}
