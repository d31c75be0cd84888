//! Deliveries from outside for a schedule: webhooks and chat messages, each accepted once.

use std::time::Duration;

use cowhand_core::delivery::{Delivery, Message, Reception};
use cowhand_core::firing::{Decision, Dispatch, Firing, NewFiring};
use cowhand_core::id::{AgentName, ScheduleId, ScheduleName};
use cowhand_core::job::Job;
use cowhand_core::roster::Schedule;
use cowhand_core::schedule::{ScheduleState, SkipReason};
use cowhand_core::trigger::{FiringContext, FiringKey};
use jiff::tz::TimeZone;

use super::{Fleet, FleetError};
use crate::schedule_view::{BY_CHAT, BY_EVENTS};
use cowhand_store::{ChatEdit, Fired, audit};

/// Wait before an edit is tried again while the firing is prepared.
const PREPARING_PAUSE: Duration = Duration::from_millis(200);
/// Maximum number of such tries. The bot receives no other event meanwhile.
const PREPARING_TRIES: u32 = 10;

/// Result of a delivery. Except for a ping, the delivery is stored.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivered {
    New(Job),
    /// The firing has to be prepared first.
    Preparing,
    /// An earlier delivery had the same key.
    Duplicate,
    /// The schedule rejected the delivery; the ledger has a row for it.
    Filtered,
    /// The sender only tests the connection.
    Ping,
}

impl Delivered {
    /// Returns whether the delivery reports something that was not known before.
    pub const fn is_new(&self) -> bool {
        match self {
            Self::New(_) | Self::Preparing | Self::Filtered => true,
            Self::Duplicate | Self::Ping => false,
        }
    }
}

/// Result of the edit of a chat message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeliveryEdit {
    Replaced,
    /// The job has started or ended, there is none, or its firing is being prepared for longer than two seconds.
    TooLate,
    /// The schedule does not take the new text. Nothing was changed.
    Unwanted,
}

impl Fleet {
    /// Accepts a delivery. The caller must have verified the sender of the delivery.
    pub async fn deliver(
        &self,
        agent: &AgentName,
        schedule: &ScheduleName,
        delivery: Delivery,
    ) -> Result<Delivered, FleetError> {
        self.accept().await?;
        let roster = self.roster();
        let Some(agent) = roster.agent(agent) else { return Err(self.missing_agent_error(agent).await) };
        let schedule = self.schedule_of(agent, schedule).await?;
        let name = || (agent.name.clone(), schedule.name.clone());
        let reception = delivery.reception(&schedule.trigger);
        match reception {
            Reception::Ping => return Ok(Delivered::Ping),
            Reception::WrongType => {
                let ((agent, schedule), kind) = (name(), schedule.trigger.type_name());
                return Err(FleetError::TakesNoDeliveries { agent, schedule, kind });
            }
            Reception::Wanted | Reception::Unwanted => {}
        }
        if !self.is_on(schedule).await? {
            let off_in_file = schedule.disabled_in_file();
            let off_by_person = self
                .store()
                .schedule(schedule.id)
                .await?
                .is_some_and(|record| record.is_disabled_by_person());
            let (agent, schedule) = name();
            return Err(match off_in_file {
                Some(location) => FleetError::OffInFile { agent, schedule, location, off_by_person },
                None => FleetError::ScheduleOff { agent, schedule },
            });
        }
        let now = self.clock().now();
        let key = delivery.occurrence().key(0);
        let firing = if reception == Reception::Unwanted {
            let decision = Decision::Skip(SkipReason::Filtered);
            let note = if matches!(delivery, Delivery::Webhook(_)) { BY_EVENTS } else { BY_CHAT };
            let note = Some(note.to_owned());
            NewFiring { schedule: schedule.id, key, due: now, decision, note }
        } else {
            Dispatch { agent, schedule, by: audit::current() }.firing(key, delivery.firing_context(now), now)
        };
        let is_prepared_first = matches!(firing.decision, Decision::Prepare(_));
        Ok(match self.store().fire_once(firing, now).await? {
            Fired::Duplicate => Delivered::Duplicate,
            Fired::Recorded(None) if is_prepared_first => {
                self.nudge();
                Delivered::Preparing
            }
            Fired::Recorded(None) => Delivered::Filtered,
            Fired::Recorded(Some(job)) | Fired::Claimed { job, .. } => {
                self.engine.count_trigger();
                self.nudge();
                Delivered::New(job)
            }
        })
    }

    /// Replaces the text of a chat message whose job has not started. The trigger and the filter of the schedule apply
    /// to the new text, too.
    pub(crate) async fn edit_delivery(
        &self,
        schedule: ScheduleId,
        key: &FiringKey,
        message: Message,
    ) -> Result<DeliveryEdit, FleetError> {
        let roster = self.roster();
        let Some((agent, configured)) = roster.schedule(schedule) else { return Ok(DeliveryEdit::TooLate) };
        let Some(row) = self.store().firing(schedule, key.clone()).await? else {
            return Ok(DeliveryEdit::TooLate);
        };
        let job = match row.job {
            Some(job) => self.store().job(job).await?,
            None => None,
        };
        let now = self.clock().now();
        let confined = job.as_ref().and_then(Job::confined).map(str::to_owned);
        let delivery = Delivery::Chat(message);
        let reception = delivery.reception(&configured.trigger);
        let context = FiringContext { confined, ..delivery.firing_context(now) };
        if reception != Reception::Wanted || !configured.passes_filter(&context) {
            return Ok(DeliveryEdit::Unwanted);
        }
        let (schedule_of_firing, zone) = (Some(configured), &TimeZone::system());
        let firing =
            Firing { agent, schedule: schedule_of_firing, key, due: None, firing_context: &context, zone };
        let prompt = firing.job(None, now).prompt;
        for _ in 0..PREPARING_TRIES {
            let edit = (context.clone(), prompt.clone());
            match self.store().edit_chat_firing(schedule, key.clone(), edit, now).await? {
                ChatEdit::Replaced => return Ok(DeliveryEdit::Replaced),
                ChatEdit::TooLate => return Ok(DeliveryEdit::TooLate),
                ChatEdit::Preparing => tokio::time::sleep(PREPARING_PAUSE).await,
            }
        }
        Ok(DeliveryEdit::TooLate)
    }

    /// Returns whether the schedule accepts deliveries. A paused schedule does: its deliveries wait for the end of the
    /// pause.
    async fn is_on(&self, schedule: &Schedule) -> Result<bool, FleetError> {
        let record = self.store().schedule(schedule.id).await?;
        Ok(schedule.enabled
            && record.is_some_and(|record| match record.state {
                ScheduleState::Active | ScheduleState::Paused { .. } | ScheduleState::Finished => true,
                ScheduleState::Disabled { .. } | ScheduleState::Error { .. } => false,
            }))
    }
}
