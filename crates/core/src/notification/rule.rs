//! The rules that decide which targets are told about an incident.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{IncidentKind, IncidentRoute, IncidentSeverity, NotificationTarget, QuietHours};
use crate::interval::Interval;
use crate::size::Size;

/// Which incidents some targets are told about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NotifyRule {
    /// Names of targets, which `notify.targets` of the root file defines.
    #[schemars(length(min = 1))]
    pub to: Vec<String>,
    /// Kinds of incidents; unset means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub kinds: Option<Vec<IncidentKind>>,
    /// Lowest severity; unset means `info`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<IncidentSeverity>,
    /// Time between two reminders while the incident is open; unset means that there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remind: Option<Interval>,
    /// Whether the targets also get a message when the incident is over; unset means true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<bool>,
}

/// Rules for the incidents of an agent or of one schedule, in addition to those of the root file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AgentNotify {
    /// Rules; they apply in addition to the rules of the root file. The rules of a schedule replace those of its agent.
    pub rules: Vec<NotifyRule>,
}

/// `notify` of the root file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NotificationSettings {
    /// Targets by name.
    pub targets: IndexMap<String, NotificationTarget>,
    pub rules: Vec<NotifyRule>,
    pub quiet_hours: Option<QuietHours>,
    /// Free space below which the disk of a state folder counts as low, in bytes.
    pub disk_low: u64,
}

impl NotificationSettings {
    /// Default of `disk_low`: 1 GB.
    pub const DISK_LOW: u64 = 1_000_000_000;

    pub fn disk_limit(size: Option<Size>) -> u64 {
        size.map_or(Self::DISK_LOW, Size::bytes)
    }

    /// Returns true if there is a target, so that incidents have to be followed.
    pub fn is_on(&self) -> bool {
        !self.targets.is_empty()
    }
}

impl NotifyRule {
    fn selects(&self, kind: IncidentKind) -> bool {
        let is_listed = self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind));
        is_listed && kind.severity() >= self.severity.unwrap_or_default()
    }

    /// Returns the targets that the rules select for an incident of this kind. If several rules select a target, it
    /// gets the shortest reminder, and a message about the end if one of them asks for it.
    pub fn routes<'a>(rules: impl IntoIterator<Item = &'a Self>, kind: IncidentKind) -> Vec<IncidentRoute> {
        let mut routes: IndexMap<&str, IncidentRoute> = IndexMap::new();
        for rule in rules.into_iter().filter(|rule| rule.selects(kind)) {
            let remind = rule.remind.map(|remind| remind.duration().as_secs());
            for target in &rule.to {
                let route = routes.entry(target).or_insert_with(|| IncidentRoute {
                    target: target.clone(),
                    remind_seconds: None,
                    remind_at: None,
                    tells_end: false,
                    told: 0,
                });
                route.tells_end |= rule.ended.unwrap_or(true);
                route.remind_seconds = [route.remind_seconds, remind].into_iter().flatten().min();
            }
        }
        routes.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rules(json: serde_json::Value) -> Vec<NotifyRule> {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn rules_select_by_kind_and_by_severity() {
        use IncidentKind::{BudgetSpent, JobFailed, ProviderParked};
        for (rule, selected) in [
            (json!({"to": ["a"]}), &[JobFailed, ProviderParked, BudgetSpent][..]),
            (json!({"to": ["a"], "severity": "warning"}), &[JobFailed, BudgetSpent]),
            (json!({"to": ["a"], "severity": "critical"}), &[BudgetSpent]),
            (json!({"to": ["a"], "kinds": ["job_failed"]}), &[JobFailed]),
            (json!({"to": ["a"], "kinds": ["job_failed"], "severity": "critical"}), &[]),
        ] {
            let rule = rules(json!([rule]));
            let is_selected = |kind: &&IncidentKind| !NotifyRule::routes(&rule, **kind).is_empty();
            let found: Vec<_> =
                [JobFailed, ProviderParked, BudgetSpent].iter().filter(is_selected).copied().collect();
            assert_eq!(found, selected, "{rule:?}");
        }
    }

    #[test]
    fn a_target_of_several_rules_gets_one_message() {
        let rules = rules(json!([
            {"to": ["a", "b"], "remind": "2h", "ended": false},
            {"to": ["b"], "remind": "1h"},
            {"to": ["c"], "kinds": ["disk_low"]},
        ]));
        let routes = NotifyRule::routes(&rules, IncidentKind::JobFailed);
        let shown: Vec<_> = routes
            .iter()
            .map(|route| (route.target.as_str(), route.remind_seconds, route.tells_end))
            .collect();
        assert_eq!(shown, [("a", Some(7_200), false), ("b", Some(3_600), true)]);
    }
}
