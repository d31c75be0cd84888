//! Fallbacks of an agent whose provider is used up, and which of them can continue the session of a job.

use std::borrow::Cow;

use super::{Agent, Program};
use crate::runtime::Runtime;

impl Agent {
    /// Returns the agent with the program of the fallback with this number, from 0; none if there is no such fallback.
    pub fn fallback(&self, number: usize) -> Option<Self> {
        let program = self.fallbacks.get(number)?.clone();
        Some(Self { program, ..self.clone() })
    }

    /// Returns the program of the fallback with this number, or the agent's own program.
    pub fn program_of(&self, fallback: Option<usize>) -> &Program {
        fallback.and_then(|number| self.fallbacks.get(number)).unwrap_or(&self.program)
    }

    /// Returns the agent itself, without a number, and then its fallbacks with their numbers.
    pub fn with_fallbacks(&self) -> impl Iterator<Item = (Option<usize>, Cow<'_, Self>)> {
        let others = (0..self.fallbacks.len())
            .filter_map(|number| Some((Some(number), Cow::Owned(self.fallback(number)?))));
        std::iter::once((None, Cow::Borrowed(self))).chain(others)
    }

    /// Returns the agent and its fallbacks, without those that cannot continue a session of this runtime. The provider
    /// counts only for the runtime `acp`. If none can continue the session any more, returns all, because a new session
    /// is better than an endless wait.
    pub fn able_to_continue(
        &self,
        runtime: &str,
        provider: Option<&str>,
    ) -> Vec<(Option<usize>, Cow<'_, Self>)> {
        // Any program may be behind `acp`, and programs do not know each other's sessions. The same provider counts as
        // the same program.
        let any = runtime != Runtime::Acp.name();
        let can = |agent: &Self| agent.has_runtime(runtime) && (any || agent.provider() == provider);
        let able: Vec<_> = self.with_fallbacks().filter(|(_, agent)| can(agent)).collect();
        if able.is_empty() { self.with_fallbacks().collect() } else { able }
    }

    /// Returns the number of the fallback with which an attempt runs; none if the attempt runs with the agent's own
    /// program, or if no fallback matches. The fallback is found by its provider and runtime and not by its number,
    /// because the list may have changed. An attempt that has not been launched has no runtime yet.
    pub fn fallback_of(&self, provider: Option<&str>, runtime: Option<&str>) -> Option<usize> {
        let is_it = |agent: &Self| {
            agent.provider() == provider && runtime.is_none_or(|runtime| agent.has_runtime(runtime))
        };
        self.with_fallbacks().find(|(_, agent)| is_it(agent))?.0
    }

    fn has_runtime(&self, runtime: &str) -> bool {
        self.runtime().name() == runtime
    }
}
