//! Work items: what an agent works on, in one form for every source, and the results of claims, reports and releases.

mod rules;

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::word::written_as;

pub use rules::{ItemRules, OnFailure};

/// Id of a work item, `{source}-{external_id}`, for example `github-42`. It is unique in its queue, and safe as a file
/// name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
// Not every regex dialect has `\p`, so the pattern allows all characters outside of ASCII; the parser checks them.
#[schemars(
    with = "String",
    extend("pattern" = r"^[a-zA-Z][a-zA-Z0-9_]*-[^\x00-/:-@\[-`{-\x7f][^\x00-,.-/:-@\[-\^`{-\x7f]*([.][^\x00-,.-/:-@\[-\^`{-\x7f]+)*[.]?$")
)]
pub struct WorkItemId {
    source: String,
    external_id: String,
}

const MAX_ID_LENGTH: usize = 200;

impl WorkItemId {
    pub fn new(source: &str, external_id: &str) -> Result<Self, WorkError> {
        let source_is_plain = source.starts_with(|c: char| c.is_ascii_alphabetic())
            && source.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        let external_is_plain = external_id.starts_with(char::is_alphanumeric)
            && external_id.chars().all(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-'))
            && !external_id.contains("..");
        if source_is_plain && external_is_plain && source.len() + external_id.len() < MAX_ID_LENGTH {
            Ok(Self { source: source.to_owned(), external_id: external_id.to_owned() })
        } else {
            Err(WorkError::Id(format!("{source}-{external_id}")))
        }
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn external_id(&self) -> &str {
        &self.external_id
    }
}

impl FromStr for WorkItemId {
    type Err = WorkError;

    fn from_str(text: &str) -> Result<Self, WorkError> {
        let (source, external_id) = text.split_once('-').ok_or_else(|| WorkError::Id(text.to_owned()))?;
        Self::new(source, external_id)
    }
}

impl fmt::Display for WorkItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.source, self.external_id)
    }
}

impl From<WorkItemId> for String {
    fn from(id: WorkItemId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for WorkItemId {
    type Error = WorkError;

    fn try_from(text: String) -> Result<Self, WorkError> {
        text.parse()
    }
}

/// Priority, the most urgent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    Critical,
    High,
    Medium,
    Low,
}

impl Priority {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }

    /// Returns the most urgent priority that a whole word of a label names, or `Medium` if no word names a priority:
    /// `priority:high` and `P1-bug` name a priority, `slow` and `highlight` do not.
    pub fn of_labels<S: AsRef<str>>(labels: &[S]) -> Self {
        let words = labels.iter().flat_map(|label| label.as_ref().split(|c: char| !c.is_alphanumeric()));
        words.filter_map(Self::of_word).min().unwrap_or(Self::Medium)
    }

    fn of_word(word: &str) -> Option<Self> {
        match word.to_lowercase().as_str() {
            "critical" | "p0" | "urgent" => Some(Self::Critical),
            "high" | "p1" | "important" => Some(Self::High),
            "low" | "p3" => Some(Self::Low),
            _ => None,
        }
    }
}

/// One normalised entry of a work source.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkItem {
    /// Id, serialized as `id`, `source` and `external_id`.
    #[serde(flatten, with = "id_fields")]
    #[schemars(with = "id_fields::IdFields")]
    pub id: WorkItemId,
    pub title: String,
    pub description: String,
    pub priority: Priority,
    pub labels: Vec<String>,
    /// Data that only this source has, for example assignee, milestone and author.
    pub metadata: Map<String, Value>,
    pub url: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// Serialization of an id as three fields. Deserialization fails if the fields do not agree.
mod id_fields {
    use schemars::JsonSchema;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::WorkItemId;

    #[derive(Serialize, Deserialize, JsonSchema)]
    pub(super) struct IdFields {
        id: WorkItemId,
        source: String,
        external_id: String,
    }

    pub(super) fn serialize<S: Serializer>(id: &WorkItemId, serializer: S) -> Result<S::Ok, S::Error> {
        let (source, external_id) = (id.source.clone(), id.external_id.clone());
        IdFields { id: id.clone(), source, external_id }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<WorkItemId, D::Error> {
        let fields = IdFields::deserialize(deserializer)?;
        if fields.id.source == fields.source && fields.id.external_id == fields.external_id {
            Ok(fields.id)
        } else {
            let IdFields { id, source, external_id } = fields;
            Err(D::Error::custom(format!(
                "id {id} is not of source {source:?} and external_id {external_id:?}"
            )))
        }
    }
}

impl WorkItem {
    /// Compares two items by the order in which they are taken: the more urgent first, then the older, then the smaller
    /// id (shorter first, so 9 is before 10).
    pub fn compare_order(&self, other: &Self) -> Ordering {
        let place = |item: &Self| (item.priority, item.created_at);
        let id = |item: &Self| (item.id.external_id.len(), item.id.to_string());
        place(self).cmp(&place(other)).then_with(|| id(self).cmp(&id(other)))
    }
}

/// Conditions for the items to fetch, and the page. An item has to meet all conditions that are set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FetchOptions {
    /// Labels, all of which an item has to have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Priorities, one of which an item has to have; empty means any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub priority: Vec<Priority>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Cursor from an earlier [`FetchResult::next_cursor`]; only its source can read it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    pub include_claimed: bool,
}

impl FetchOptions {
    /// Checks whether an item has the wanted labels and priority. Does not check whether the item is claimed, because
    /// only its source knows that.
    pub fn admits(&self, item: &WorkItem) -> bool {
        // Case is ignored, because `Bug` and `bug` are the same label in issue trackers.
        let has = |required: &String| {
            item.labels.iter().any(|label| label.to_lowercase() == required.to_lowercase())
        };
        let priority_fits = self.priority.is_empty() || self.priority.contains(&item.priority);
        priority_fits && self.labels.iter().all(has)
    }
}

/// One page of items.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct FetchResult {
    pub items: Vec<WorkItem>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// Number of all matching items, if the source reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_count: Option<u64>,
}

/// Result of a claim; serialized as `{success, work_item?, reason?, message?}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "ClaimFields", into = "ClaimFields")]
#[schemars(with = "ClaimFields")]
pub enum ClaimResult {
    /// The item after the claim.
    Claimed(Box<WorkItem>),
    Refused {
        reason: ClaimFailureReason,
        message: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClaimFailureReason {
    /// Another job or person has already claimed the item.
    AlreadyClaimed,
    /// The item was deleted or moved.
    NotFound,
    /// cowhand may not change the item.
    PermissionDenied,
    /// The external system failed.
    SourceError,
    /// The item is closed or otherwise unavailable.
    InvalidState,
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct ClaimFields {
    success: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    work_item: Option<Box<WorkItem>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<ClaimFailureReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl From<ClaimResult> for ClaimFields {
    fn from(result: ClaimResult) -> Self {
        match result {
            ClaimResult::Claimed(item) => {
                Self { success: true, work_item: Some(item), reason: None, message: None }
            }
            ClaimResult::Refused { reason, message } => {
                Self { success: false, work_item: None, reason: Some(reason), message }
            }
        }
    }
}

impl TryFrom<ClaimFields> for ClaimResult {
    type Error = WorkError;

    fn try_from(fields: ClaimFields) -> Result<Self, WorkError> {
        match fields {
            ClaimFields { success: true, work_item: Some(item), reason: None, .. } => Ok(Self::Claimed(item)),
            ClaimFields { success: false, reason: Some(reason), message, .. } => {
                Ok(Self::Refused { reason, message })
            }
            _ => Err(WorkError::Claim),
        }
    }
}

/// Result that is reported to the source when the work has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkResult {
    pub outcome: WorkOutcome,
    pub summary: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<String>,
    /// Pull request URLs, commit hashes, file paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<String>,
    /// Error, for failures and partial success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkOutcome {
    Success,
    Failure,
    Partial,
}

written_as! {
    WorkOutcome { Success = "success", Failure = "failure", Partial = "partial" }
}

/// Options for the release of an item.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReleaseOptions {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Post a comment with the reason.
    pub add_comment: bool,
    /// True if the claim failed, or if its result is not known. The release then undoes only what the claim changed in
    /// the item.
    #[serde(rename = "unfinished", skip_serializing_if = "std::ops::Not::not")]
    pub undoes_claim: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReleaseResult {
    pub success: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WorkError {
    #[error(
        "{0:?} is not a work item id; expected SOURCE-ID, for example github-42, with letters, digits, '.', '_' and '-' in ID"
    )]
    Id(String),
    #[error("a claim has either `success: true` and a `work_item`, or `success: false` and a `reason`")]
    Claim,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn item(id: &str, priority: Priority, created_at: &str) -> WorkItem {
        WorkItem {
            id: id.parse().unwrap(),
            title: "Fix authentication bug".into(),
            description: "Users are unable to log in when using SSO.".into(),
            priority,
            labels: vec!["bug".into(), "Authentication".into()],
            metadata: Map::from_iter([("milestone".to_owned(), json!({"number": 7}))]),
            url: "https://github.com/org/repo/issues/42".into(),
            created_at: created_at.parse().unwrap(),
            updated_at: created_at.parse().unwrap(),
        }
    }

    #[test]
    fn invalid_work_item_ids_are_refused() {
        for (text, source, external_id) in [
            ("github-42", "github", "42"),
            ("files-fix-login.v2", "files", "fix-login.v2"),
            ("jira-PROJ-7", "jira", "PROJ-7"),
            ("my_queue-straße", "my_queue", "straße"),
        ] {
            let id: WorkItemId = text.parse().unwrap();
            assert_eq!((id.source(), id.external_id()), (source, external_id));
            assert_eq!(id.to_string(), text);
        }
        let long = format!("github-{}", "4".repeat(MAX_ID_LENGTH));
        for bad in [
            "",
            "github",
            "github-",
            "-42",
            "42-1",
            "github-.",
            "github-..",
            "github-../x",
            "github-a/b",
            "github-a\\b",
            "github-a..b",
            "github--1",
            "github-.hidden",
            "github-a b",
            "github-a\0",
            "github-a\n",
            "git/hub-1",
            "githüb-1",
            "github-4\u{202e}2",
            &long,
        ] {
            assert_eq!(bad.parse::<WorkItemId>(), Err(WorkError::Id(bad.to_owned())), "{bad}");
        }
    }

    #[test]
    fn a_work_item_has_the_documented_json_form() {
        let value = serde_json::to_value(item("github-42", Priority::High, "2024-01-19T09:00:00Z")).unwrap();
        let expected = json!({
            "id": "github-42",
            "source": "github",
            "external_id": "42",
            "title": "Fix authentication bug",
            "description": "Users are unable to log in when using SSO.",
            "priority": "high",
            "labels": ["bug", "Authentication"],
            "metadata": {"milestone": {"number": 7}},
            "url": "https://github.com/org/repo/issues/42",
            "created_at": "2024-01-19T09:00:00Z",
            "updated_at": "2024-01-19T09:00:00Z",
        });
        assert_eq!(value, expected);
        assert_eq!(serde_json::from_value::<WorkItem>(value.clone()).unwrap().id.external_id(), "42");
        let mut wrong = value;
        wrong["external_id"] = json!("43");
        let error = serde_json::from_value::<WorkItem>(wrong).unwrap_err().to_string();
        assert_eq!(error, r#"id github-42 is not of source "github" and external_id "43""#);
    }

    #[test]
    fn there_are_exactly_four_priorities() {
        use Priority::{Critical, High, Low, Medium};
        for (priority, word) in [(Critical, "critical"), (High, "high"), (Medium, "medium"), (Low, "low")] {
            assert_eq!(serde_json::to_value(priority).unwrap(), word);
            assert_eq!(priority.as_str(), word);
        }
        assert!(serde_json::from_value::<Priority>(json!("urgent")).is_err());
    }

    #[test]
    fn priority_is_derived_from_whole_words_of_labels() {
        use Priority::{Critical, High, Low, Medium};
        for (labels, priority) in [
            (&[][..], Medium),
            (&["bug"], Medium),
            (&["critical"], Critical),
            (&["P0"], Critical),
            (&["URGENT!"], Critical),
            (&["priority:high"], High),
            (&["P1-bug"], High),
            (&["important"], High),
            (&["priority/low"], Low),
            (&["p3"], Low),
            (&["p2"], Medium),
            (&["slow", "workflow", "highlight", "p10", "unimportant", "hotp1"], Medium),
            (&["low", "high"], High),
            (&["low, but urgent"], Critical),
            (&["prio_low"], Low),
        ] {
            assert_eq!(Priority::of_labels(labels), priority, "{labels:?}");
        }
        assert_eq!(Priority::of_labels(&[String::from("High")]).as_str(), "high");
    }

    #[test]
    fn filters() {
        let item = item("github-1", Priority::High, "2024-01-19T09:00:00Z");
        for (options, admitted) in [
            (json!({}), true),
            (json!({"labels": ["bug"]}), true),
            (json!({"labels": ["bug", "authentication"]}), true),
            (json!({"labels": ["bug", "docs"]}), false),
            (json!({"priority": ["low", "high"]}), true),
            (json!({"priority": ["low"]}), false),
            (json!({"labels": ["bug"], "priority": ["critical"]}), false),
            (json!({"limit": 0, "cursor": "2", "include_claimed": true}), true),
        ] {
            let parsed: FetchOptions = serde_json::from_value(options.clone()).unwrap();
            assert_eq!(parsed.admits(&item), admitted, "{options}");
        }
    }

    #[test]
    fn items_are_ordered_by_priority_age_and_id() {
        use Priority::{Critical, High};
        let (early, late) = ("2024-01-19T09:00:00Z", "2024-01-20T09:00:00Z");
        for (case, items, first) in [
            ("priority", vec![item("github-1", High, early), item("github-2", Critical, late)], "github-2"),
            ("age", vec![item("github-1", High, late), item("github-2", High, early)], "github-2"),
            ("id", vec![item("github-10", High, early), item("github-9", High, early)], "github-9"),
        ] {
            let next = items.iter().min_by(|a, b| a.compare_order(b)).unwrap();
            assert_eq!(next.id.to_string(), first, "{case}");
        }
    }

    #[test]
    fn claims() {
        let item = item("github-42", Priority::High, "2024-01-19T09:00:00Z");
        let claimed = ClaimResult::Claimed(Box::new(item.clone()));
        let lost =
            ClaimResult::Refused { reason: ClaimFailureReason::AlreadyClaimed, message: Some("by b".into()) };
        let gone = ClaimResult::Refused { reason: ClaimFailureReason::NotFound, message: None };
        for (result, shape) in [
            (claimed, json!({"success": true, "work_item": item})),
            (lost, json!({"success": false, "reason": "already_claimed", "message": "by b"})),
            (gone, json!({"success": false, "reason": "not_found"})),
        ] {
            assert_eq!(serde_json::to_value(&result).unwrap(), shape);
            assert_eq!(serde_json::from_value::<ClaimResult>(shape).unwrap(), result);
        }
        for reason in ["already_claimed", "not_found", "permission_denied", "source_error", "invalid_state"] {
            let shape = json!({"success": false, "reason": reason});
            let result: ClaimResult = serde_json::from_value(shape.clone()).unwrap();
            assert_eq!(serde_json::to_value(result).unwrap(), shape);
        }
        for wrong in [
            json!({"success": true}),
            json!({"success": false}),
            json!({"success": true, "work_item": item, "reason": "not_found"}),
            json!({"success": false, "reason": "bored"}),
        ] {
            assert!(serde_json::from_value::<ClaimResult>(wrong.clone()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn results_and_release_options_have_the_documented_json_form() {
        let result = WorkResult {
            outcome: WorkOutcome::Partial,
            summary: "half".into(),
            details: Some("one of two".into()),
            artifacts: vec!["abc123".into()],
            error: Some("tests fail".into()),
        };
        let shape = json!({
            "outcome": "partial",
            "summary": "half",
            "details": "one of two",
            "artifacts": ["abc123"],
            "error": "tests fail",
        });
        assert_eq!(serde_json::to_value(&result).unwrap(), shape);
        assert_eq!(serde_json::from_value::<WorkResult>(shape).unwrap(), result);
        for outcome in ["success", "failure", "partial"] {
            let least = json!({"outcome": outcome, "summary": ""});
            let result: WorkResult = serde_json::from_value(least.clone()).unwrap();
            assert_eq!(serde_json::to_value(result).unwrap(), least);
        }
        let options: ReleaseOptions = serde_json::from_value(json!({"reason": "timeout"})).unwrap();
        assert_eq!(options, ReleaseOptions { reason: Some("timeout".into()), ..ReleaseOptions::default() });
        let released = ReleaseResult { success: true, message: None };
        assert_eq!(serde_json::to_value(released).unwrap(), json!({"success": true}));
        for page in [json!({"items": []}), json!({"items": [], "next_cursor": "2", "total_count": 7})] {
            let result: FetchResult = serde_json::from_value(page.clone()).unwrap();
            assert_eq!(serde_json::to_value(result).unwrap(), page);
        }
    }

    proptest! {
        #[test]
        fn an_id_that_parses_is_one_plain_file_name(text in "[a-z]{1,3}-.{0,12}") {
            if let Ok(id) = text.parse::<WorkItemId>() {
                prop_assert_eq!(id.to_string(), text.clone());
                let path = std::path::Path::new(&text);
                prop_assert_eq!(path.components().count(), 1);
                prop_assert_eq!(path.file_name().unwrap(), text.as_str());
            }
        }
    }
}
