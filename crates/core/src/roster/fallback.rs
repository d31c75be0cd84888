//! What stands in for an agent whose provider is used up, and which of it can go on with what a job has begun.

use std::borrow::Cow;

use super::Agent;
use crate::shape::Runtime;

impl Agent {
    /// The agent as its fallback of this number has it.
    pub fn fallback(&self, number: usize) -> Option<Self> {
        let other = self.settings.fallback.get(number)?;
        let mut agent = self.clone();
        let settings = &mut agent.settings;
        if let Some(runtime) =
            other.runtime.filter(|other| other.name() != settings.runtime.unwrap_or_default().name())
        {
            (settings.runtime, settings.model, settings.provider) = (Some(runtime), None, None);
        }
        settings.model = other.model.clone().or(settings.model.take());
        settings.provider = other.provider.clone().or(settings.provider.take());
        settings.command = other.command.clone().or(settings.command.take());
        settings.env.extend(other.env.clone());
        Some(agent)
    }

    /// Itself, and then what it falls back to, with their numbers.
    pub fn and_stand_ins(&self) -> impl Iterator<Item = (Option<usize>, Cow<'_, Self>)> {
        let others = (0..self.settings.fallback.len())
            .filter_map(|number| Some((Some(number), Cow::Owned(self.fallback(number)?))));
        std::iter::once((None, Cow::Borrowed(self))).chain(others)
    }

    /// Those of the above that can go on with what somebody of this runtime, at this provider, has begun. If the config
    /// has nobody like that any more, all: to begin anew is better than to wait for ever.
    pub fn successors(&self, runtime: &str, provider: Option<&str>) -> Vec<(Option<usize>, Cow<'_, Self>)> {
        // Behind `acp` there may be any program, and none knows the sessions of another.
        let any = runtime != Runtime::Acp.name();
        let can = |agent: &Self| agent.runs_by(runtime) && (any || agent.provider() == provider);
        let able: Vec<_> = self.and_stand_ins().filter(|(_, agent)| can(agent)).collect();
        if able.is_empty() { self.and_stand_ins().collect() } else { able }
    }

    /// As which of the above an attempt runs of which this is known; an attempt that has not been launched has no
    /// runtime yet. By what it is and not by its number, since the list may have changed since.
    pub fn stand_in_at(&self, provider: Option<&str>, runtime: Option<&str>) -> Option<usize> {
        let is_it = |agent: &Self| {
            agent.provider() == provider && runtime.is_none_or(|runtime| agent.runs_by(runtime))
        };
        self.and_stand_ins().find(|(_, agent)| is_it(agent))?.0
    }

    fn runs_by(&self, runtime: &str) -> bool {
        self.settings.runtime.unwrap_or_default().name() == runtime
    }
}
