//! `say`: sends a message to the running job of the conversation.

use cowhand_core::chat::texts;
use cowhand_core::job::Job;
use cowhand_core::steering::SteeringRoute;
use cowhand_core::trust::{TextOrigin, TrustVerdict, judge};

use super::super::live_answers::{LiveProgress, live_answers};
use super::UsedCommand;
use crate::fleet::{FleetError, SayRequest};
use cowhand_store::audit;
use cowhand_system::digest::sha256;

impl UsedCommand<'_> {
    pub(super) async fn say(&self, text: &str) -> Result<String, FleetError> {
        let live = live_answers(self.store(), self.agent_name(), &self.addressee.conversation.name).await?;
        let (user, running) = (&self.sent.user.id, live.iter().rev().filter(|one| one.is_running()));
        let (own, others): (Vec<_>, Vec<_>) = running.partition(|one| one.is_of(user));
        let Some(chosen) = own.first().or(others.first()) else {
            return Ok(texts::nothing_to_say_to(self.platform()));
        };
        let LiveProgress::Running(id) = &chosen.progress else {
            return Ok(texts::nothing_to_say_to(self.platform()));
        };
        if own.is_empty() && !self.is_operator() {
            return Ok(texts::needs_operator_to_say(id));
        }
        let job = self.context().fleet.job(id).await?;
        if let Some(why) = self.distrust(&job) {
            return Ok(texts::may_not_say(id, &why, self.platform()));
        }
        // The same command sends its message once, even if it is handled again.
        let key = Some(sha256(self.sent.id));
        let request = SayRequest { text: text.to_owned(), interrupt: false, key };
        let said = audit::by(self.sent.actor(), self.context().fleet.say(id, request)).await?;
        Ok(match said.into_message().route {
            SteeringRoute::Live => texts::said(id),
            SteeringRoute::NextTurn => texts::said_for_next_turn(id),
        })
    }

    /// Returns why the text of the sender may not reach the agent of a job by the rules of `trust`. A job that runs in
    /// the strict sandbox may get the text of strangers for whom the rules require that sandbox.
    fn distrust(&self, job: &Job) -> Option<String> {
        let agent = &self.addressee.agent;
        let schedule = agent.schedules.iter().find(|schedule| Some(&schedule.name) == job.schedule());
        let origin = TextOrigin::of_chat_user(self.platform(), &self.sent.user.id);
        match judge(agent.trusts(schedule), &origin) {
            TrustVerdict::Trusted => None,
            TrustVerdict::Confined(_) if job.confined().is_some() => None,
            TrustVerdict::Confined(why) | TrustVerdict::Refused(why) => Some(why),
        }
    }
}
