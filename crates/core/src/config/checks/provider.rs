//! Checks of `providers`.

use std::collections::{BTreeSet, HashSet};

use crate::config::load::Loader;
use crate::config::problem::Problem;
use crate::config::suggest::{did_you_mean, one_of};
use crate::provider::Provider;
use crate::roster::{Agent, Roster};

/// Warns of providers that no agent uses. A likely cause is a misspelt provider in an agent; the limits of the provider
/// do not apply to this agent.
pub(in crate::config) fn unused(loader: &mut Loader<'_>, roster: &Roster) {
    let all = roster.agents.iter().flat_map(Agent::with_fallbacks);
    let used: HashSet<String> = all.filter_map(|(_, agent)| agent.provider().map(str::to_owned)).collect();
    let mut names: Vec<&str> = used.iter().map(String::as_str).collect();
    names.sort_unstable();
    let unused = loader.provider_locations.iter().filter(|(name, _)| !used.contains(name));
    for (name, at) in unused.filter(|_| !roster.agents.is_empty()) {
        let message = format!("no agent uses the provider `{name}`, so its limits have no effect");
        let theirs =
            || (!names.is_empty()).then(|| format!("agents here use {}", one_of(names.iter().copied())));
        let help = did_you_mean(name, names.iter().copied()).or_else(theirs);
        loader.problems.add(Problem::warning(*at, message).key(format!("providers.{name}")).help(help));
    }
}

/// Warns of reserves without effect: no agent of the provider has a program that reports usage windows.
pub(in crate::config) fn reserves(loader: &mut Loader<'_>, roster: &Roster) {
    let has_reserve = |name: &str| roster.providers.get(name).is_some_and(Provider::has_reserve);
    for (name, at) in loader.provider_locations.iter().filter(|(name, _)| has_reserve(name)) {
        let programs = roster.agents.iter().flat_map(Agent::with_fallbacks).map(|(_, program)| program);
        let of_provider = programs.filter(|program| program.provider() == Some(name.as_str()));
        let runtimes: Vec<_> = of_provider.map(|program| program.runtime()).collect();
        if runtimes.is_empty() || runtimes.iter().any(|runtime| runtime.reports_windows()) {
            continue;
        }
        let names: BTreeSet<&str> = runtimes.iter().map(|runtime| runtime.name()).collect();
        let names = one_of(names);
        let message = format!(
            "the reserve of the provider `{name}` has no effect, because no agent reports its usage windows; its agents \
             have the runtime {names}"
        );
        let help =
            "only the runtimes `claude` and `codex` report the usage windows of their provider".to_owned();
        loader.problems.add(Problem::warning(*at, message).key(format!("providers.{name}")).help(help));
    }
}
