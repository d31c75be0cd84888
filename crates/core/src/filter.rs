//! Filters: conditions on the occurrences of a trigger.

use indexmap::IndexMap;
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::trigger::FiringContext;

/// Conditions that a firing has to meet. All set conditions have to hold. They do not apply to firings by hand.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Values of the payload's `action`, one of which has to match.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<String>,
    /// Labels; the task, for example an issue or a pull request, has to have at least one of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Labels that the task must not have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_labels: Vec<String>,
    /// Authors, one of whom has to have written the task.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub author: Vec<String>,
    /// People; the task has to be assigned to one of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assignee: Vec<String>,
    /// Regular expression that the title of the task has to match.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "regex"))]
    pub title: Option<String>,
    /// Regular expression that the body of the task has to match.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "regex"))]
    pub body: Option<String>,
    /// Keys of the task's metadata and their required values.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub metadata: IndexMap<String, String>,
    /// JSON pointers into the payload and the required values there.
    #[serde(skip_serializing_if = "IndexMap::is_empty")]
    pub payload: IndexMap<String, Value>,
}

impl Filter {
    pub fn passes(&self, firing_context: &FiringContext) -> bool {
        let FiringContext { task, payload, .. } = firing_context;
        let metadata = |key: &str| task.metadata.get(key).map(String::as_str);
        let labelled = |required: &String| task.labels.iter().any(|label| same_word(label, required));
        let at = |pointer: &String| payload.as_ref().and_then(|payload| payload.pointer(pointer));
        one_of(&self.actions, metadata("action"))
            && (self.labels.is_empty() || self.labels.iter().any(labelled))
            && !self.exclude_labels.iter().any(labelled)
            && one_of(&self.author, metadata("author"))
            && one_of(&self.assignee, task.assignee.as_deref())
            && matches(self.title.as_deref(), &task.title)
            && matches(self.body.as_deref(), &task.body)
            && self.metadata.iter().all(|(key, required)| metadata(key) == Some(required))
            && self.payload.iter().all(|(pointer, required)| at(pointer) == Some(required))
    }
}

/// Compares labels, names of people and actions without regard to case, as issue trackers do.
fn same_word(one: &str, other: &str) -> bool {
    one.to_lowercase() == other.to_lowercase()
}

fn one_of(allowed: &[String], found: Option<&str>) -> bool {
    allowed.is_empty() || found.is_some_and(|found| allowed.iter().any(|allowed| same_word(allowed, found)))
}

/// Checks whether a text matches a regular expression. Without an expression, every text matches. An invalid expression
/// is rejected when the config is loaded; here it matches nothing.
pub(crate) fn matches(pattern: Option<&str>, text: &str) -> bool {
    pattern.is_none_or(|pattern| Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::trigger::Task;

    #[test]
    fn filters_match_labels_people_text_and_payload() {
        let metadata = [("author", "Octocat"), ("action", "opened"), ("head_ref", "main")];
        let task = Task {
            title: "Login fails".into(),
            body: "Steps:\n1. open\n".into(),
            labels: vec!["Bug".into(), "p1".into()],
            assignee: Some("hubot".into()),
            metadata: metadata.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            ..Task::default()
        };
        let payload = Some(json!({"sender": {"type": "User"}, "commits": [{"id": 7}], "a/b": null}));
        let firing_context = FiringContext { task, payload, ..FiringContext::default() };
        for (filter, expected) in [
            (json!({}), true),
            (json!({"actions": ["closed", "opened"]}), true),
            (json!({"actions": ["closed"]}), false),
            (json!({"labels": ["bug"]}), true),
            (json!({"labels": ["docs", "P1"]}), true),
            (json!({"labels": ["docs"]}), false),
            (json!({"exclude_labels": ["wip"]}), true),
            (json!({"labels": ["bug"], "exclude_labels": ["P1"]}), false),
            (json!({"author": ["octocat"]}), true),
            (json!({"author": ["mallory"]}), false),
            (json!({"assignee": ["hubot", "x"]}), true),
            (json!({"assignee": ["x"]}), false),
            (json!({"title": "(?i)^login"}), true),
            (json!({"title": "^fails"}), false),
            (json!({"title": "("}), false),
            (json!({"body": r"(?m)^1\. open$"}), true),
            (json!({"metadata": {"head_ref": "main"}}), true),
            (json!({"metadata": {"head_ref": "Main"}}), false),
            (json!({"metadata": {"none": ""}}), false),
            (json!({"payload": {"/sender/type": "User", "/commits/0/id": 7}}), true),
            (json!({"payload": {"/sender/type": "Bot"}}), false),
            (json!({"payload": {"/commits/0/id": "7"}}), false),
            (json!({"payload": {"/a~1b": null}}), true),
            (json!({"payload": {"/none": null}}), false),
            (json!({"payload": {"no pointer": 1}}), false),
        ] {
            let read: Filter = serde_json::from_value(filter.clone()).unwrap();
            assert_eq!(read.passes(&firing_context), expected, "{filter}");
            assert_eq!(serde_json::to_value(&read).unwrap(), filter, "only what was set is written");
        }
        let nothing = FiringContext::default();
        for (filter, expected) in [
            (json!({}), true),
            (json!({"exclude_labels": ["x"]}), true),
            (json!({"assignee": ["x"]}), false),
            (json!({"payload": {"": null}}), false),
        ] {
            let filter: Filter = serde_json::from_value(filter).unwrap();
            assert_eq!(filter.passes(&nothing), expected, "{filter:?}");
        }
    }
}
