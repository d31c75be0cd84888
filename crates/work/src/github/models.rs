//! The parts of GitHub's answers that are read.
//!
//! Every field that may be missing is optional. A field is missing, for example, if an account was deleted, or if an
//! older Enterprise server does not have the field. An entry of a list that still cannot be read is left out and
//! logged.

use std::fmt;

use jiff::Timestamp;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tracing::warn;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Issue {
    pub(super) number: u64,
    #[serde(default)]
    pub(super) title: Option<String>,
    #[serde(default)]
    pub(super) body: Option<String>,
    #[serde(default)]
    pub(super) state: IssueState,
    #[serde(default, deserialize_with = "label_names")]
    pub(super) labels: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<User>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) assignee: Option<User>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) milestone: Option<Milestone>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) author_association: Option<String>,
    #[serde(default)]
    pub(super) html_url: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) repository_url: Option<String>,
    pub(super) created_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) updated_at: Option<Timestamp>,
    /// True for pull requests, which GitHub also lists as issues.
    #[serde(default, rename = "pull_request", deserialize_with = "is_there", skip_serializing)]
    pub(super) is_pull_request: bool,
}

impl Issue {
    /// Returns true if the issue has the label. GitHub ignores the case of labels.
    pub(super) fn has_label(&self, name: &str) -> bool {
        self.labels.iter().any(|label| label.to_lowercase() == name.to_lowercase())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum IssueState {
    #[default]
    Open,
    Closed,
    #[serde(other)]
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct User {
    #[serde(default)]
    pub(super) login: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Milestone {
    #[serde(default)]
    pub(super) number: u64,
    #[serde(default)]
    pub(super) title: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Comment {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) body: Option<String>,
    #[serde(default)]
    pub(super) user: Option<User>,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct RepositoryInfo {
    #[serde(default)]
    pub(super) full_name: String,
    #[serde(default)]
    pub(super) private: bool,
    #[serde(default)]
    pub(super) has_issues: Option<bool>,
    #[serde(default)]
    pub(super) archived: bool,
}

/// Answer of `POST /app/installations/{id}/access_tokens`. It is secret, so it has no `Debug`.
#[derive(Deserialize)]
pub(super) struct InstallationToken {
    pub(super) token: String,
    pub(super) expires_at: Timestamp,
}

#[derive(Debug, Deserialize)]
pub(super) struct Installation {
    pub(super) id: u64,
}

/// Answer of `GET /app`.
#[derive(Debug, Deserialize)]
pub(super) struct App {
    #[serde(default)]
    pub(super) slug: String,
}

/// Body of an answer that refuses a request.
#[derive(Debug, Deserialize)]
pub(super) struct RefusalBody {
    #[serde(default)]
    pub(super) message: String,
}

/// Reads the names of labels, which are objects or, according to GitHub's documentation, plain strings. Only the names
/// are stored, because there can be many labels.
pub(super) fn label_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct Label(Option<String>);

    struct LabelVisitor;

    impl<'de> Visitor<'de> for LabelVisitor {
        type Value = Label;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a label or its name")
        }

        fn visit_str<E>(self, name: &str) -> Result<Label, E> {
            Ok(Label(Some(name.to_owned())))
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Label, A::Error> {
            #[derive(Deserialize)]
            struct Named {
                #[serde(default)]
                name: Option<String>,
            }
            let Named { name } = Named::deserialize(MapAccessDeserializer::new(map))?;
            Ok(Label(name))
        }
    }

    impl<'de> Deserialize<'de> for Label {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(LabelVisitor)
        }
    }

    let labels = Option::<Vec<Label>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(labels.into_iter().filter_map(|Label(name)| name).collect())
}

fn is_there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<serde::de::IgnoredAny>::deserialize(deserializer)?.is_some())
}

/// Readable entries of a list, and the number of all entries.
pub(super) struct Entries<T> {
    pub(super) good: Vec<T>,
    pub(super) all: usize,
}

/// Reads a list. Returns an error only if the body is not a list.
pub(super) fn entries<T: DeserializeOwned>(body: &[u8], endpoint: &str) -> serde_json::Result<Entries<T>> {
    #[derive(Deserialize)]
    #[serde(untagged, bound = "T: DeserializeOwned")]
    enum Entry<T> {
        Good(T),
        Bad(Value),
    }
    // Usually all entries are readable, and reading them at once is several times faster.
    if let Ok(good) = serde_json::from_slice::<Vec<T>>(body) {
        return Ok(Entries { all: good.len(), good });
    }
    let read: Vec<Entry<T>> = serde_json::from_slice(body)?;
    let all = read.len();
    let mut good = Vec::with_capacity(all);
    for entry in read {
        match entry {
            Entry::Good(entry) => good.push(entry),
            Entry::Bad(value) => {
                let name = value.get("number").or_else(|| value.get("id")).map(Value::to_string);
                let why = serde_json::from_value::<T>(value).err().map(|error| error.to_string());
                warn!(
                    endpoint,
                    entry = name,
                    why,
                    "GitHub: an entry of a list cannot be read and is left out"
                );
            }
        }
    }
    Ok(Entries { good, all })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unusual_issues_are_read_and_invalid_ones_are_left_out() {
        let at = "2026-01-02T03:04:05Z";
        let body = json!([
            {"number": 1, "created_at": at},
            {"number": 2, "created_at": at, "title": null, "body": null, "user": null, "assignee": null,
             "milestone": null, "labels": null, "pull_request": null, "author_association": "NEW_WORD"},
            {"number": 3, "created_at": at, "state": "paused", "labels": ["a", {"name": "b"}, {"name": null}, {}],
             "user": {}, "milestone": {}, "something": {"else": [1]}},
            {"number": 4, "created_at": at, "pull_request": {}},
            {"number": "five", "created_at": at},
            {"number": 6},
            {"number": 7, "created_at": "yesterday"},
            {"number": 8, "created_at": at, "labels": 5},
            {"number": -9, "created_at": at},
            null,
            "text",
        ]);
        let Entries { good, all } = entries::<Issue>(body.to_string().as_bytes(), "GET /x").unwrap();
        assert_eq!((good.len(), all), (4, 11));
        assert_eq!((good[0].state, good[2].state), (IssueState::Open, IssueState::Unknown));
        assert_eq!(good[2].labels, ["a", "b"]);
        assert!(good[3].is_pull_request && !good[1].is_pull_request);
        for not_a_list in [&b"{}"[..], b"[", b"", b"<html>", b"[1,2", b"null"] {
            assert!(entries::<Issue>(not_a_list, "GET /x").is_err());
        }
    }

    #[test]
    fn a_stored_issue_is_read_back_unchanged() {
        let at = "2026-01-02T03:04:05Z";
        let issue: Issue = serde_json::from_value(json!({
            "number": 5, "title": "T", "body": "B", "state": "closed", "labels": [{"name": "x", "color": "f00"}],
            "user": {"login": "octocat", "id": 1}, "assignee": {"login": "a"}, "milestone": {"number": 2, "title": "m"},
            "author_association": "OWNER", "html_url": "https://github.com/o/r/issues/5", "created_at": at,
            "updated_at": at, "repository_url": "https://api.github.com/repos/o/r"
        }))
        .unwrap();
        let again: Issue = serde_json::from_value(serde_json::to_value(&issue).unwrap()).unwrap();
        assert_eq!(again, issue);
        assert!(again.has_label("X") && !again.has_label("y"));
    }
}
