//! The rules of the config for the job of an attempt.

use cowhand_core::attempt::{AttemptAgent, AttemptRules};
use cowhand_core::job::Job;
use cowhand_core::policy::Retry;
use cowhand_core::roster::{Agent, JobRestrictions};

use super::AttemptTask;
use crate::secrets::redactor_over;
use cowhand_run::redact::Redactor;

/// The rules for a job, as they are when its attempt is started or recovered.
pub(super) struct Rules {
    pub(super) agent: Agent,
    pub(super) of_attempt: AttemptRules,
}

impl Rules {
    fn of(agent: &Agent, job: &Job) -> Self {
        let schedule = agent.restrictions(job).schedule();
        let of_attempt = AttemptRules {
            retry: schedule.map_or_else(|| agent.retry.clone(), |schedule| Retry::clone(&schedule.retry)),
            timeout: schedule.map_or(agent.timeout, |schedule| schedule.timeout),
            idle_timeout: schedule.map_or(agent.idle_timeout, |schedule| schedule.idle_timeout),
            // A stranger must not be able to pause a schedule.
            breaker: schedule.filter(|_| job.confined().is_none()).map(|schedule| schedule.breaker),
            output_to_file: schedule.is_some_and(|schedule| schedule.output_to_file),
            agent: AttemptAgent::of(agent),
        };
        Self { agent: Agent { isolation: agent.isolation_of(job.schedule()), ..agent.clone() }, of_attempt }
    }
}

impl AttemptTask {
    /// Returns the rules of the job's agent or of its fallback. If the agent or the job's schedule is no longer in the
    /// config, the attempt rules are those with which the attempt was started.
    pub(super) fn rules(&self) -> Rules {
        let agent = self.current_agent();
        let fallback = self.fallback.and_then(|number| agent.fallback(number));
        let rules = Rules::of(&fallback.unwrap_or(agent), &self.job);
        let is_removed = matches!(rules.agent.restrictions(&self.job), JobRestrictions::Removed(_));
        let stored = if is_removed || !self.has_agent() { self.stored_rules() } else { None };
        Rules { of_attempt: stored.unwrap_or(rules.of_attempt), agent: rules.agent }
    }

    /// Returns the job's agent, without a fallback. If the agent is no longer in the config, returns an agent with the
    /// settings that the attempt started with.
    pub(super) fn current_agent(&self) -> Agent {
        let (loaded, name) = (self.engine.loaded(), self.job.agent());
        loaded.roster.agent(name).cloned().unwrap_or_else(|| match self.stored_rules() {
            Some(rules) => rules.agent.in_place_of(name.clone()),
            None => Agent::new(name.clone()),
        })
    }

    /// Returns whether the job's agent is in the config, so that its program can be started.
    pub(super) fn has_agent(&self) -> bool {
        self.engine.loaded().roster.agent(self.job.agent()).is_some()
    }

    /// Returns the rules with which the attempt was started; `None` if it was not launched, or if an earlier version of
    /// cowhand launched it.
    pub(super) fn stored_rules(&self) -> Option<AttemptRules> {
        self.attempt().start().ok()?.rules
    }

    /// Returns the redactor for everything that comes from the attempt. The config may change while the attempt is
    /// prepared and while it runs, so the redactor is not a part of the rules.
    pub(super) fn redactor(&self, rules: &Rules) -> Redactor {
        redactor_over(&self.engine.loaded(), Some(&rules.agent)).with_secrets([self.token()])
    }
}
