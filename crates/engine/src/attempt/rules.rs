//! The rules of the config for the job of an attempt.

use cowhand_core::breaker::Breaker;
use cowhand_core::job::Job;
use cowhand_core::policy::{Retry, Timeout};
use cowhand_core::roster::Agent;

use super::AttemptTask;
use crate::secrets::redactor_over;
use cowhand_run::redact::Redactor;

/// The rules of the config for a job, as they are when its attempt is started or recovered.
pub(super) struct Rules {
    pub(super) agent: Agent,
    pub(super) retry: Retry,
    pub(super) breaker: Option<Breaker>,
    pub(super) timeout: Timeout,
    pub(super) idle_timeout: Timeout,
    pub(super) output_to_file: bool,
}

impl Rules {
    fn of(agent: &Agent, job: &Job) -> Self {
        let schedule = agent.restrictions(job).schedule();
        Self {
            retry: schedule.map_or_else(|| agent.retry.clone(), |schedule| Retry::clone(&schedule.retry)),
            timeout: schedule.map_or(agent.timeout, |schedule| schedule.timeout),
            idle_timeout: schedule.map_or(agent.idle_timeout, |schedule| schedule.idle_timeout),
            // A stranger must not be able to pause a schedule.
            breaker: schedule.filter(|_| job.confined().is_none()).map(|schedule| schedule.breaker),
            output_to_file: schedule.is_some_and(|schedule| schedule.output_to_file),
            agent: Agent { isolation: agent.isolation_of(job.schedule()), ..agent.clone() },
        }
    }
}

impl AttemptTask {
    /// Returns the rules of the job's agent or of its fallback.
    pub(super) fn rules(&self) -> Rules {
        let loaded = self.engine.loaded();
        // For an agent that was removed from the config, the defaults are sufficient until the attempt ends.
        let removed_agent = || Agent::new(self.job.agent().clone());
        let agent = loaded.roster.agent(self.job.agent()).cloned().unwrap_or_else(removed_agent);
        let fallback = self.fallback.and_then(|number| agent.fallback(number));
        let agent = fallback.unwrap_or(agent);
        Rules::of(&agent, &self.job)
    }

    /// Returns the redactor for everything that comes from the attempt. The config may change while the attempt is
    /// prepared and while it runs, so the redactor is not a part of the rules.
    pub(super) fn redactor(&self, rules: &Rules) -> Redactor {
        redactor_over(&self.engine.loaded(), Some(&rules.agent)).with_secrets([self.token()])
    }
}
