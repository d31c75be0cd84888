//! What the sender of a command may see. Operators see everything of their agents. Other people see errors, people,
//! places and links only of jobs that belong to their conversation or that they caused, because the answer to a message
//! of a private channel or a direct conversation can contain them.

use cowhand_core::chat::access::is_operator;
use cowhand_core::firing::CONFINED;
use cowhand_core::id::{AgentName, ScheduleId};
use cowhand_core::job::Job;
use cowhand_core::plan::Snapshot;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::schedule::{FiringOutcome, SkipReason};
use jiff::Timestamp;

use super::super::intake::Addressee;
use super::UsedCommand;
use crate::schedule_view::{BY_TRUST, ScheduleView, because, schedules_of_agent};
use cowhand_store::{ChatAnswer, FiringJobRow, LedgerRow, StoreError};

/// What is shown in place of an error of another conversation.
const HIDDEN_ERROR: &str = "only operators can see it";

impl UsedCommand<'_> {
    /// Returns the schedules of an agent, as the sender may see them.
    pub(super) fn visible_schedules(
        &self,
        roster: &Roster,
        agent: &Agent,
        snapshot: &Snapshot,
        now: Timestamp,
    ) -> Vec<ScheduleView> {
        let views = schedules_of_agent(roster, agent, snapshot, now);
        if self.operates(&agent.name) {
            return views;
        }
        views.into_iter().map(|view| if view.kind == "chat" { without_errors(view) } else { view }).collect()
    }

    /// Returns whether the sender may see the error of a job, and who cancelled it.
    pub(super) async fn may_see_job(&self, job: &Job) -> Result<bool, StoreError> {
        if job.message().is_none() || self.operates(job.agent()) {
            return Ok(true);
        }
        let answer = self.store().chat_answer_of_job(job.id().clone()).await?;
        Ok(answer.is_some_and(|answer| self.is_of_sender(&answer)))
    }

    /// Explains a firing. `why` explains it to operators.
    pub(super) async fn visible_why(
        &self,
        schedule: ScheduleId,
        row: &LedgerRow,
        why: impl Fn(&LedgerRow) -> String,
    ) -> Result<String, StoreError> {
        let full = why(row);
        let may_name_people = match row.key.kind() {
            "chat" => true,
            // The jobs that follow a chat message are confined because of its author.
            "event" => full.starts_with(BY_TRUST) || full.contains(CONFINED),
            _ => false,
        };
        if !may_name_people || self.operates(self.agent_of(schedule)) {
            return Ok(full);
        }
        let answer = self.store().chat_answer(schedule, row.key.clone()).await?;
        if answer.is_some_and(|answer| self.is_of_sender(&answer)) {
            return Ok(full);
        }
        if row.outcome == FiringOutcome::Skipped(SkipReason::Filtered) {
            return Ok("it was refused".to_owned());
        }
        let without_message = |job: &FiringJobRow| FiringJobRow { message: None, ..job.clone() };
        let jobs = row.jobs.iter().map(without_message).collect();
        Ok(why(&LedgerRow { note: None, jobs, ..row.clone() }))
    }

    /// Returns the agent of a schedule; the addressed agent if the schedule belongs to none of the candidates.
    fn agent_of(&self, schedule: ScheduleId) -> &AgentName {
        let has = |one: &&Addressee| one.agent.schedules.iter().any(|known| known.id == schedule);
        self.candidates.iter().find(has).map_or(self.agent_name(), |one| &one.agent.name)
    }

    /// Returns whether the sender is an operator of an agent.
    fn operates(&self, agent: &AgentName) -> bool {
        let of_agent = self.candidates.iter().find(|one| one.agent.name == *agent);
        of_agent.is_some_and(|one| is_operator(&one.chat.access, self.sent.user))
    }

    /// Returns whether an answer belongs to the conversation in which the command was sent, or to a message of its sender.
    fn is_of_sender(&self, answer: &ChatAnswer) -> bool {
        let of_agent = self.candidates.iter().find(|one| one.agent.name == answer.agent);
        answer.origin.platform == self.platform()
            && (answer.origin.requester().id == self.sent.user.id
                || of_agent.is_some_and(|one| one.conversation.name == answer.conversation))
    }
}

/// Removes what can contain an error of a job.
fn without_errors(view: ScheduleView) -> ScheduleView {
    let is_about_limits = matches!(
        view.skip_note_reason,
        Some(
            SkipReason::OverBudget
                | SkipReason::UsageLimit
                | SkipReason::ReserveReached
                | SkipReason::OutsideHours
                | SkipReason::Disabled
        )
    );
    let reason = view.skip_reason.map(|reason| because(reason).to_owned());
    let hidden = |error: Option<String>| error.map(|_| HIDDEN_ERROR.to_owned());
    ScheduleView {
        skip_note: if is_about_limits { view.skip_note } else { reason },
        last_error: hidden(view.last_error),
        prepare_error: hidden(view.prepare_error),
        failed_attempt: None,
        ..view
    }
}
