//! The names of hooks. Events and jobs show these names, and no key of the config refers to them.

use std::borrow::Cow;
use std::sync::Arc;

use cowhand_core::roster::Agent;

use crate::loaded::Loaded;
use crate::secrets;

/// Masks secrets in the names of hooks.
pub(super) fn mask(loaded: &mut Loaded) {
    let redactor = secrets::redactor(loaded);
    let is_masked = |name: &String| matches!(redactor.redact(name), Cow::Owned(_));
    let has_masked =
        |agent: &Agent| agent.hooks.all().any(|(_, hook)| hook.name.as_ref().is_some_and(is_masked));
    let agents = loaded.roster.agents.iter().enumerate();
    // Only these agents are changed, because a changed agent is no longer shared with other rosters.
    let masked: Vec<usize> = agents.filter(|(_, agent)| has_masked(agent)).map(|(at, _)| at).collect();
    if masked.is_empty() {
        return;
    }
    let roster = Arc::make_mut(&mut loaded.roster);
    for at in masked {
        let hooks = &mut roster.agents[at].hooks;
        let names = hooks.after_run.iter_mut().chain(&mut hooks.on_error);
        for name in names.filter_map(|hook| hook.name.as_mut()) {
            if let Cow::Owned(masked) = redactor.redact(name) {
                *name = masked;
            }
        }
    }
}
