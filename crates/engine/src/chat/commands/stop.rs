//! `stop`: chooses what a person may stop, and stops it.

use std::fmt;
use std::str::FromStr;

use cowhand_core::actor::Actor;
use cowhand_core::chat::access::is_operator;
use cowhand_core::chat::texts;
use cowhand_core::id::{JobId, JobName, ScheduleId};
use cowhand_core::job::{Job, JobStatus};
use cowhand_core::trigger::FiringKey;

use super::super::context::ChatContext;
use super::super::live_answers::{LiveAnswer, LiveProgress, live_answers};
use super::{UsedCommand, names};
use crate::fleet::FleetError;
use cowhand_store::{CancelOutcome, audit};

/// Target of the command. Its text form is stored, so that a repeated command stops nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
enum StopTarget {
    Job(JobId),
    /// A message whose firing has no job yet.
    Firing(ScheduleId, FiringKey),
}

impl fmt::Display for StopTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(job) => write!(f, "{job}"),
            Self::Firing(schedule, key) => write!(f, "firing {schedule} {}", key.as_str()),
        }
    }
}

impl FromStr for StopTarget {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let Some(firing) = text.strip_prefix("firing ") else {
            return text.parse().map(Self::Job).map_err(drop);
        };
        let (schedule, key) = firing.split_once(' ').ok_or(())?;
        Ok(Self::Firing(schedule.parse().map_err(drop)?, FiringKey::stored(key.to_owned())))
    }
}

impl UsedCommand<'_> {
    pub(super) async fn stop(&self, job: Option<&JobName>) -> Result<String, FleetError> {
        let decided = self.store().chat_call(self.sent.id.to_owned()).await?;
        let chosen = match (decided.and_then(|decided| decided.parse().ok()), job) {
            (Some(decided), _) => Ok(decided),
            (None, Some(name)) => self.named_target(name).await?,
            (None, None) => self.target_here().await?,
        };
        let target = match chosen {
            Ok(target) => self.decide(target).await?,
            Err(text) => return Ok(text),
        };
        match target {
            StopTarget::Job(job) => stop_job(self.context(), self.sent.actor(), job).await,
            StopTarget::Firing(schedule, key) => self.cancel_firing(schedule, key).await,
        }
    }

    /// Records what the command stops.
    async fn decide(&self, target: StopTarget) -> Result<StopTarget, FleetError> {
        let decided = self.store().decide_chat_call(self.sent.id.to_owned(), target.to_string(), self.now());
        Ok(decided.await?.parse().unwrap_or(target))
    }

    /// Returns the job that a person names, if the person may stop it.
    async fn named_target(&self, name: &JobName) -> Result<Result<StopTarget, String>, FleetError> {
        let found = names::find_job(self.store(), self.candidates, name, self.platform()).await?;
        let job = match found {
            Ok(job) => job,
            Err(text) => return Ok(Err(text)),
        };
        if self.may_stop(&job).await? {
            return Ok(Ok(StopTarget::Job(job.id().clone())));
        }
        Ok(Err(texts::needs_operator_to_stop(job.id())))
    }

    /// Returns whether the sender caused the job, or is an operator of its agent.
    async fn may_stop(&self, job: &Job) -> Result<bool, FleetError> {
        let of_agent = self.candidates.iter().find(|one| one.agent.name == *job.agent());
        if of_agent.is_some_and(|one| is_operator(&one.chat.access, self.sent.user)) {
            return Ok(true);
        }
        let answer = self.store().chat_answer_of_job(job.id().clone()).await?;
        Ok(answer.is_some_and(|answer| {
            answer.origin.platform == self.platform() && answer.origin.requester().id == self.sent.user.id
        }))
    }

    /// Returns the target of `stop` without a job: the sender's own running job, else the sender's newest waiting
    /// message, else the running job of somebody else, else the newest waiting message of somebody else. Only operators
    /// may stop the last two.
    async fn target_here(&self) -> Result<Result<StopTarget, String>, FleetError> {
        let live = live_answers(self.store(), self.agent_name(), &self.addressee.conversation.name).await?;
        let user = &self.sent.user.id;
        let find = |is_own: bool, is_running: bool| {
            live.iter().rev().find(|one| one.is_of(user) == is_own && one.is_running() == is_running)
        };
        if let Some(own) = find(true, true).or_else(|| find(true, false)) {
            return Ok(Ok(target_of(own)));
        }
        let Some(other) = find(false, true).or_else(|| find(false, false)) else {
            return Ok(Err(texts::nothing_to_stop()));
        };
        if self.is_operator() {
            return Ok(Ok(target_of(other)));
        }
        Ok(Err(match &other.progress {
            LiveProgress::Running(job) | LiveProgress::Pending(job) => texts::needs_operator_to_stop(job),
            LiveProgress::Preparing => texts::needs_operator_to_remove(),
        }))
    }

    async fn cancel_firing(&self, schedule: ScheduleId, key: FiringKey) -> Result<String, FleetError> {
        let cancel = self.store().cancel_firing(schedule, key.clone(), self.now());
        if audit::by(self.sent.actor(), cancel).await? {
            self.context().fleet.nudge();
            return Ok(texts::cancelled(None, self.platform()));
        }
        // The firing may have a job now.
        let firing = self.store().firing(schedule, key).await?;
        match firing.and_then(|firing| firing.job) {
            Some(job) => stop_job(self.context(), self.sent.actor(), job).await,
            None => Ok(texts::waits_no_longer()),
        }
    }
}

fn target_of(live: &LiveAnswer) -> StopTarget {
    match &live.progress {
        LiveProgress::Running(job) | LiveProgress::Pending(job) => StopTarget::Job(job.clone()),
        LiveProgress::Preparing => StopTarget::Firing(live.answer.schedule, live.answer.key.clone()),
    }
}

/// Stops a job on behalf of a person, and returns the text for the person.
pub(in super::super) async fn stop_job(
    context: &ChatContext,
    actor: Actor,
    job: JobId,
) -> Result<String, FleetError> {
    let outcome = audit::by(actor, context.fleet.cancel(job.clone())).await?;
    Ok(match outcome {
        CancelOutcome::Done(job) => texts::removed_from_queue(job.id()),
        CancelOutcome::Requested(job) => texts::stopping(job.id()),
        CancelOutcome::AlreadyEnded(ended) => match ended.status() {
            JobStatus::Cancelled => texts::has_ended(&job, "it was cancelled"),
            status => texts::has_ended(&job, &format!("it has {status}")),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cowhand_core::chat::ChatPlatform;
    use cowhand_core::trigger::Occurrence;

    #[test]
    fn targets_are_stored_as_text() {
        let key = Occurrence::Chat { platform: ChatPlatform::Slack, message_id: "C1:1 2" }.key(0);
        let schedule = ScheduleId::of(&"a".parse().unwrap(), &"chat".parse().unwrap());
        for target in
            [StopTarget::Job("job-2026-01-05-000001".parse().unwrap()), StopTarget::Firing(schedule, key)]
        {
            assert_eq!(target.to_string().parse(), Ok(target));
        }
        assert_eq!("reset".parse::<StopTarget>(), Err(()));
    }
}
