//! The variables that a prompt may use: some always, some depending on the schedule's trigger and work source.

use super::PromptError;

/// Names that a template may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variables {
    trigger: String,
    /// Names that always have a value, which may be empty.
    exact: Vec<&'static str>,
    /// Names that a template may use alone or with any path below them. Their content is known only when the trigger
    /// fires.
    open: Vec<&'static str>,
    /// True if every name without a dot is allowed, because the actor who fires the trigger can pass values of their
    /// own.
    free: bool,
}

const COMMON_VARIABLES: &[&str] = &[
    "date",
    "time",
    "now",
    "agent",
    "schedule",
    "trigger_type",
    "trigger.type",
    "trigger.fired_at",
    "trigger.key",
    "trigger.scheduled_for",
    "title",
    "body",
    "url",
    "labels",
    "assignee",
    "source_id",
];
const ISSUE: &[&str] = &["issue.number", "issue.title", "issue.body", "issue.url", "issue.labels"];

impl Variables {
    /// Returns the variables for a schedule with this `type:`, with or without a work source. A custom type has the
    /// common variables, and its own in `metadata.*`.
    pub fn of(trigger: &str, work_source: bool) -> Self {
        let own: &[&str] = match trigger {
            "cron" => &["fire_time", "cron_expression"],
            "delay" => &["fire_time", "run_at", "workflow_id"],
            "webhook" => &["github_event", "action", "delivery_id", "issue_number", "pr_number", "timestamp"],
            "chat" => &[
                "platform",
                "channel",
                "thread",
                "author",
                "author_name",
                "attachments",
                "earlier_messages",
                "timestamp",
            ],
            "github_pull_requests" => &["head_ref", "base_ref", "is_draft"],
            "agent_lifecycle" => &["event_type", "agent_id", "timestamp"],
            "dispatch_result" => &[
                "upstream.result",
                "upstream.status",
                "upstream.job_id",
                "upstream.schedule",
                "upstream.agent",
                "upstream.summary",
                "upstream.work_item",
                "source_workflow_id",
                "dispatch_id",
                "status",
                "timestamp",
            ],
            _ => &[],
        };
        let has_issue = work_source || matches!(trigger, "github_issues" | "github_pull_requests");
        let issue = if has_issue { ISSUE } else { &[] };
        let open = if trigger == "webhook" { vec!["metadata", "payload"] } else { vec!["metadata"] };
        Self {
            trigger: trigger.to_owned(),
            exact: [COMMON_VARIABLES, own, issue].concat(),
            open,
            free: trigger == "manual",
        }
    }

    /// Returns whether cowhand itself sets the value of this name, so that no value of a person replaces it.
    pub fn is_reserved(&self, name: &str) -> bool {
        let root = |known: &&str| known.split_once('.').map_or(*known, |(root, _)| root) == name;
        self.exact.iter().any(root) || self.open.contains(&name)
    }

    pub(super) fn exact(&self) -> &[&'static str] {
        &self.exact
    }

    pub(super) fn check(&self, name: &str, line: usize) -> Result<(), PromptError> {
        let root = name.split_once('.').map_or(name, |(root, _)| root);
        let is_free = self.free && root == name;
        if is_free || self.exact.contains(&name) || self.open.contains(&root) {
            return Ok(());
        }
        Err(PromptError::Unknown {
            line,
            name: name.to_owned(),
            trigger: self.trigger.clone(),
            suggestion: self.nearest(name),
            known: self.known(),
        })
    }

    fn known(&self) -> Vec<String> {
        let exact = self.exact.iter().copied().map(str::to_owned);
        let open = self.open.iter().flat_map(|root| [(*root).to_owned(), format!("{root}.*")]);
        exact.chain(open).collect()
    }

    fn nearest(&self, name: &str) -> Option<String> {
        let distance = |known: &str| strsim::damerau_levenshtein(known, name);
        let nearest = self.exact.iter().chain(&self.open).min_by_key(|known| distance(known))?;
        // Accept one error in a name of up to five bytes and two errors in a longer name. With more errors, the name is
        // a different word.
        (distance(nearest) <= (nearest.len() / 3).clamp(1, 2)).then(|| (*nearest).to_owned())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::trigger::TriggerConfig;

    /// Returns the names in the row of a type, in the table of variables in `docs/triggers.md`.
    pub(crate) fn documented(trigger: &str) -> BTreeSet<String> {
        let page = include_str!("../../../../docs/triggers.md");
        let row = page.lines().find_map(|line| line.strip_suffix(&format!(" | `{trigger}` |")));
        row.unwrap_or_default().split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_documentation_names_every_variable() {
        let page = include_str!("../../../../docs/config.md");
        let of_every_type = Variables::of("custom", true).known();
        for name in &of_every_type {
            assert!(page.contains(&format!("`{name}`")), "docs/config.md names the variable {name}");
        }
        for trigger in TriggerConfig::TYPES {
            let known = Variables::of(trigger, true).known().into_iter();
            let own: BTreeSet<_> = known.filter(|name| !of_every_type.contains(name)).collect();
            assert_eq!(documented(trigger), own, "the row of {trigger} in the variables of docs/triggers.md");
        }
    }
}
