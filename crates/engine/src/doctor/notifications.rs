//! Checks that the variables of notification targets are set.

use cowhand_core::notification::NotificationTarget;
use cowhand_core::roster::Roster;

use super::Finding;
use cowhand_work::WorkSources;

/// Returns one finding for each target.
pub(super) fn check(sources: &WorkSources, roster: &Roster) -> Vec<Finding> {
    let is_set = |name: &str| sources.context().variable(name).is_some_and(|value| !value.is_empty());
    let targets = roster.notifications.targets.iter();
    targets
        .map(|(name, target)| Finding::of(format!("notification target {name}"), state(target, is_set)))
        .collect()
}

fn state(target: &NotificationTarget, is_set: impl Fn(&str) -> bool) -> Result<String, String> {
    match target.variable() {
        Some(name) if !is_set(name) => {
            Err(format!("{name} is not set, so nothing can be sent; set it in the environment or in .env"))
        }
        Some(name) => Ok(format!("{}; {name} is set", target.type_name())),
        None => Ok(target.type_name().to_owned()),
    }
}
