//! `why`: explains a job, a schedule, or all schedules of an agent.

use cowhand_core::chat::ChatPlatform;
use cowhand_core::chat::escape::{escape, inline_code};
use cowhand_core::chat::texts;
use cowhand_core::duration;
use cowhand_core::id::JobName;
use cowhand_core::job::{Job, JobState, Outcome};
use cowhand_core::plan::Snapshot;
use cowhand_core::roster::{Roster, Schedule};
use jiff::Timestamp;

use super::super::intake::Addressee;
use super::{UsedCommand, names};
use crate::fleet::FleetError;
use crate::schedule_view::{ScheduleView, prepared_by, why_of};
use crate::waits::waits_of_pending;
use cowhand_store::LedgerRow;

/// Number of firings that are shown of a schedule, and of each schedule of an agent.
const FIRINGS_OF_SCHEDULE: u32 = 5;
const FIRINGS_OF_AGENT: u32 = 1;
/// Number of schedules of an agent that are explained.
const MAX_SCHEDULES: usize = 10;

/// Data that the explanations of schedules and jobs need.
struct Facts {
    roster: std::sync::Arc<Roster>,
    snapshot: Snapshot,
    now: Timestamp,
}

impl UsedCommand<'_> {
    pub(super) async fn why(&self, what: &str) -> Result<String, FleetError> {
        let (roster, now) = (self.context().fleet.roster(), self.now());
        let snapshot = self.store().snapshot_of(&roster, now).await?;
        let facts = Facts { roster, snapshot, now };
        if let Some(one) = self.candidates.iter().find(|one| one.agent.name.as_str() == what) {
            return self.why_agent(one, &facts).await;
        }
        let of_agent = |one: &&Addressee| names::schedule(&one.agent, what).is_some();
        let owner = names::schedule(&self.addressee.agent, what).map(|_| self.addressee);
        if let Some(one) = owner.or_else(|| self.candidates.iter().find(of_agent))
            && let Some(schedule) = names::schedule(&one.agent, what)
        {
            return self.why_schedule(one, schedule, &facts, FIRINGS_OF_SCHEDULE).await;
        }
        let Ok(name) = what.parse::<JobName>() else {
            return Ok(texts::unknown_name(what, self.platform()));
        };
        if names::jobs_named(self.store(), self.candidates, &name).await?.is_empty() {
            return Ok(texts::unknown_name(what, self.platform()));
        }
        match names::find_job(self.store(), self.candidates, &name, self.platform()).await? {
            Ok(job) => self.why_job(&job, &facts).await,
            Err(text) => Ok(text),
        }
    }

    async fn why_agent(&self, one: &Addressee, facts: &Facts) -> Result<String, FleetError> {
        let mut parts = Vec::new();
        for schedule in one.agent.schedules.iter().take(MAX_SCHEDULES) {
            parts.push(self.why_schedule(one, schedule, facts, FIRINGS_OF_AGENT).await?);
        }
        let more = one.agent.schedules.len().saturating_sub(MAX_SCHEDULES);
        if more > 0 {
            parts.push(format!("{more} more schedules are not shown."));
        }
        Ok(parts.join("\n"))
    }

    async fn why_schedule(
        &self,
        one: &Addressee,
        schedule: &Schedule,
        facts: &Facts,
        limit: u32,
    ) -> Result<String, FleetError> {
        let views = self.visible_schedules(&facts.roster, &one.agent, &facts.snapshot, facts.now);
        let view = views.iter().find(|view| view.id == schedule.id);
        let mut lines: Vec<String> =
            view.map(|view| state_lines(view, self.platform(), facts.now)).unwrap_or_default();
        let record = facts.snapshot.schedules.get(&schedule.id);
        let prepared_by = prepared_by(&one.agent, schedule);
        for row in self.store().ledger(schedule.id, limit).await? {
            let why = |row: &LedgerRow| why_of(row, record, prepared_by.as_deref(), true);
            let why = self.visible_why(schedule.id, &row, why).await?;
            lines.push(firing_line(&row, &why, self.platform(), facts.now));
        }
        Ok(lines.join("\n"))
    }

    async fn why_job(&self, job: &Job, facts: &Facts) -> Result<String, FleetError> {
        let (platform, now) = (self.platform(), facts.now);
        let created = duration::relative_to_now(now, job.created_at());
        let schedule =
            job.schedule().map(|schedule| format!(" of schedule {}", escape(schedule.as_str(), platform)));
        let first = format!(
            "{}{} of agent {}, created {created} ({})",
            inline_code(job.id().as_str(), platform),
            schedule.unwrap_or_default(),
            escape(job.agent().as_str(), platform),
            job.trigger_type(),
        );
        let is_visible = self.may_see_job(job).await?;
        let state = match job.state() {
            JobState::Pending { .. } if !is_visible => "It waits.".to_owned(),
            JobState::Pending { .. } => {
                let (store, roster, snapshot) = (self.store(), &facts.roster, &facts.snapshot);
                let waits = waits_of_pending(store, roster, snapshot, job, now).await?;
                let why = waits.map_or("it starts soon".to_owned(), |waits| escape(&waits.message, platform));
                format!("It waits: {why}")
            }
            JobState::Running { since } => {
                format!("It runs, since {}.", duration::relative_to_now(now, *since))
            }
            JobState::Ended { at, outcome } => {
                let at = duration::relative_to_now(now, *at);
                match outcome {
                    Outcome::Completed { .. } => format!("It completed {at}."),
                    Outcome::Failed { .. } if !is_visible => format!("It failed {at}."),
                    Outcome::Failed { error, .. } => {
                        format!("It failed {at}: {}", escape(&error.message, platform))
                    }
                    Outcome::Cancelled { .. } if !is_visible => format!("It was cancelled {at}."),
                    Outcome::Cancelled { how } => {
                        let cancellation = self.store().cancellation_of(job).await?;
                        let by = cancellation.map(|by| format!(" by {}", escape(&by.in_words(), platform)));
                        format!("It was cancelled {at}{}; {}.", by.unwrap_or_default(), how.in_words())
                    }
                }
            }
        };
        let answer = self.store().chat_answer_of_job(job.id().clone()).await?;
        let missing = answer.and_then(|answer| answer.progress.not_posted).filter(|_| is_visible);
        let missing = missing
            .map(|why| format!("\nA part of its answer is not in the chat: {}", escape(&why, platform)));
        Ok(format!("{first}\n{state}{}", missing.unwrap_or_default()))
    }
}

/// Describes what a schedule does now, and what it waits for.
fn state_lines(view: &ScheduleView, platform: ChatPlatform, now: Timestamp) -> Vec<String> {
    let name = inline_code(&format!("{}/{}", view.agent, view.schedule), platform);
    let next = view.next_run_at.map(|at| format!(", next {}", duration::until(now, at)));
    let mut lines = vec![format!("Schedule {name} is {}{}.", view.status.as_str(), next.unwrap_or_default())];
    let until = view.skip_until.map(|at| format!("; it ends {}", duration::until(now, at)));
    if let Some(awaited) = view.awaited() {
        lines.push(format!(
            "It does not fire now: {}{}",
            escape(awaited, platform),
            until.unwrap_or_default()
        ));
    }
    if let Some(failing) = view.failing_trigger(false, now) {
        lines.push(format!("Its trigger fails, {}", escape(&failing, platform)));
    } else if let Some(error) = &view.last_error {
        lines.push(format!("Its last error: {}", escape(error, platform)));
    }
    lines
}

/// Formats a firing as `3m ago ran: job-… completed`.
fn firing_line(row: &LedgerRow, why: &str, platform: ChatPlatform, now: Timestamp) -> String {
    let decided = duration::relative_to_now(now, row.decided_at);
    let jobs: Vec<String> = row.jobs.iter().map(|job| format!("{} {}", job.id, job.status)).collect();
    let jobs = if jobs.is_empty() { String::new() } else { format!(": {}", jobs.join(", ")) };
    let why = if why.is_empty() { String::new() } else { format!(" ({})", escape(why, platform)) };
    format!("{decided} {}{jobs}{why}", row.outcome.as_str())
}
