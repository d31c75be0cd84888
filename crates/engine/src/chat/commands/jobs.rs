//! `jobs`: the last jobs of the agent. Prompts and results are not shown, because they may belong to other
//! conversations.

use cowhand_core::budget::cost_in_words;
use cowhand_core::chat::ChatPlatform;
use cowhand_core::chat::escape::{escape, inline_code};
use cowhand_core::duration;
use cowhand_core::job::Job;
use jiff::Timestamp;

use super::UsedCommand;
use crate::fleet::FleetError;
use cowhand_store::JobFilter;

/// Number of jobs that are listed.
const MAX_LISTED_JOBS: u32 = 10;

impl UsedCommand<'_> {
    pub(super) async fn jobs(&self) -> Result<String, FleetError> {
        let filter = JobFilter { agent: Some(self.agent_name().clone()), ..JobFilter::default() };
        let jobs = self.store().jobs(filter, MAX_LISTED_JOBS).await?;
        if jobs.is_empty() {
            return Ok(format!("Agent {} has no jobs.", escape(self.agent_name().as_str(), self.platform())));
        }
        let (platform, now) = (self.platform(), self.now());
        let lines: Vec<String> = jobs.iter().map(|job| job_line(job, platform, now)).collect();
        Ok(lines.join("\n"))
    }
}

/// Formats a job as `job-… completed, schedule chat, 3m ago, took 12s, $0.05`.
fn job_line(job: &Job, platform: ChatPlatform, now: Timestamp) -> String {
    let schedule = job.schedule().map(|schedule| format!("schedule {}", escape(schedule.as_str(), platform)));
    let took = job.duration_seconds().map(|took| format!("took {}", duration::rounded_from_seconds(took)));
    let cost = job.usage().and_then(|usage| cost_in_words([usage]));
    let created = duration::relative_to_now(now, job.created_at());
    let parts = schedule.into_iter().chain([created]).chain(took).chain(cost);
    let parts: Vec<String> = parts.collect();
    format!("{} {}, {}", inline_code(job.id().as_str(), platform), job.status(), parts.join(", "))
}
