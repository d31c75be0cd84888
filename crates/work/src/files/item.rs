//! Reads one file of a `files` source as a work item with its status.

use std::fmt;
use std::path::Path;

use cowhand_core::config::node::{Node, Value};
use cowhand_core::work::{Priority, WorkItem, WorkItemId};
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use serde_json::{Map, Value as Json, json};

use super::front_matter::Document;
use super::report;
use crate::QueueState;

/// Value of `status` in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FileStatus {
    /// `available`, `ready`, or no status.
    Available,
    /// `claimed`. A claim without a valid `claimed_until` was written by hand and is valid until a person changes it.
    Claimed { by: Option<String>, until: Option<Timestamp> },
    /// `completed`, `failed` or `partial`, set by a result.
    Done(String),
    /// A status that a person chose, for example `blocked` or `draft`.
    Other(String),
}

impl FileStatus {
    /// Returns true if the item can be claimed. An expired claim does not prevent that.
    pub(super) fn is_available(&self, now: Timestamp) -> bool {
        match self {
            Self::Available => true,
            Self::Claimed { until, .. } => until.is_some_and(|until| until <= now),
            Self::Done(_) | Self::Other(_) => false,
        }
    }

    pub(super) fn is_held_by(&self, holder: &str) -> bool {
        matches!(self, Self::Claimed { by: Some(by), .. } if by == holder)
    }

    pub(super) fn queue_state(&self, now: Timestamp) -> QueueState {
        match self {
            _ if self.is_available(now) => QueueState::Available,
            Self::Available | Self::Claimed { .. } => QueueState::Claimed,
            Self::Done(word) if word == "completed" => QueueState::Done,
            Self::Done(_) | Self::Other(_) => QueueState::Withdrawn,
        }
    }

    fn word(&self) -> &str {
        match self {
            Self::Available => "available",
            Self::Claimed { .. } => "claimed",
            Self::Done(word) | Self::Other(word) => word,
        }
    }

    fn of(document: &Document) -> Result<Self, String> {
        let written = text(document, "status")?.unwrap_or("available");
        Ok(match written {
            "available" | "ready" => Self::Available,
            "claimed" => {
                let by = text(document, "claimed_by")?.map(str::to_owned);
                let until = text(document, "claimed_until")?.and_then(|until| until.parse().ok());
                Self::Claimed { by, until }
            }
            "completed" | "failed" | "partial" => Self::Done(written.to_owned()),
            other => Self::Other(other.to_owned()),
        })
    }
}

/// The text continues a sentence that begins with the item's id.
impl fmt::Display for FileStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claimed { by, until } => {
                write!(f, "is claimed by {}", by.as_deref().unwrap_or("somebody"))?;
                match until {
                    Some(until) => write!(f, " until {until}"),
                    // Only a person ends such a claim.
                    None => f.write_str(
                        " without a `claimed_until`; to end the claim, set `status: available` in its file, which \
                         `cowhand work show` names",
                    ),
                }
            }
            Self::Available | Self::Done(_) => write!(f, "is {}", self.word()),
            Self::Other(word) => write!(f, "has the status {word:?}"),
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct FileItem {
    pub(super) item: WorkItem,
    pub(super) status: FileStatus,
}

/// Keys that cowhand reads. All other keys are copied to the metadata of the item.
const ITEM_KEYS: [&str; 7] =
    ["title", "status", "priority", "labels", "created", "claimed_by", "claimed_until"];

/// Characters that are escaped in a `file://` URL.
const ESCAPED_IN_FILE_URLS: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'`');

impl FileItem {
    /// Reads an item. An error message continues the sentence "the file …".
    pub(super) fn of(
        id: WorkItemId,
        document: &Document,
        path: &Path,
        modified: Timestamp,
    ) -> Result<Self, String> {
        let status = FileStatus::of(document)?;
        let labels = labels(document)?;
        let priority = match text(document, "priority")? {
            Some(word) => Priority::of_labels(&[word]),
            None => Priority::of_labels(&labels),
        };
        let title = text(document, "title")?.map(str::to_owned);
        let created_at = match text(document, "created")? {
            Some(written) => time(written)?,
            None => modified,
        };
        let item = WorkItem {
            title: title
                .or_else(|| heading(report::text_before_reports(document.body())))
                .unwrap_or_else(|| id.external_id().to_owned()),
            description: document.body().to_owned(),
            priority,
            labels,
            metadata: metadata(document, &status, path),
            url: format!("file://{}", utf8_percent_encode(&path.to_string_lossy(), ESCAPED_IN_FILE_URLS)),
            created_at,
            updated_at: modified,
            id,
        };
        Ok(Self { item, status })
    }
}

fn text<'a>(document: &'a Document, key: &str) -> Result<Option<&'a str>, String> {
    match document.get(key) {
        None => Ok(None),
        Some(node) => node.text().map(Some).ok_or_else(|| format!("has a `{key}` that is not one text")),
    }
}

/// Reads a list of labels, or one label without brackets.
fn labels(document: &Document) -> Result<Vec<String>, String> {
    let wrong = || "has `labels` that are not a list of texts".to_owned();
    match document.get("labels").map(|node| (node, &node.value)) {
        None => Ok(Vec::new()),
        Some((_, Value::List(labels))) => {
            labels.iter().map(|label| label.text().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some((node, _)) => Ok(vec![node.text().ok_or_else(wrong)?.to_owned()]),
    }
}

/// Parses a time or a date. A time without an offset is in UTC. A date means midnight UTC of that day.
fn time(written: &str) -> Result<Timestamp, String> {
    let wrong = || {
        format!(
            "has `created: {written}`, which is not a time; write it as 2026-01-31 or 2026-01-31T09:00:00Z"
        )
    };
    let in_utc = |time: DateTime| time.to_zoned(TimeZone::UTC).map(|zoned| zoned.timestamp()).ok();
    let moment = written.parse::<Timestamp>().ok();
    let local = || written.parse::<DateTime>().ok().and_then(in_utc);
    let day = || {
        written.parse::<Date>().ok().and_then(|day| in_utc(day.to_datetime(jiff::civil::Time::midnight())))
    };
    moment.or_else(local).or_else(day).ok_or_else(wrong)
}

fn heading(body: &str) -> Option<String> {
    let heading = body.lines().find_map(|line| {
        let text = line.trim_start_matches('#');
        (text.len() < line.len() && text.starts_with([' ', '\t']))
            .then(|| text.trim().trim_end_matches('#').trim_end())
    });
    heading.filter(|heading| !heading.is_empty()).map(str::to_owned)
}

fn metadata(document: &Document, status: &FileStatus, path: &Path) -> Map<String, Json> {
    let mut metadata = Map::new();
    for (key, entry) in document.entries().filter(|(key, _)| !ITEM_KEYS.contains(&key.as_str())) {
        metadata.insert(key.clone(), as_json(&entry.node));
    }
    metadata.insert("path".to_owned(), json!(path.to_string_lossy()));
    metadata.insert("status".to_owned(), json!(status.word()));
    if let FileStatus::Claimed { by, until } = status {
        metadata.insert("claimed_by".to_owned(), json!(by));
        metadata.insert("claimed_until".to_owned(), json!(until));
    }
    metadata
}

/// Converts a node to JSON. The type of a person's own key is unknown, so a scalar other than null becomes the text as
/// written.
fn as_json(node: &Node) -> Json {
    match &node.value {
        Value::Scalar(scalar) if scalar.is_null() => Json::Null,
        Value::Scalar(scalar) => json!(scalar.text),
        Value::List(nodes) => nodes.iter().map(as_json).collect(),
        Value::Map(map) => map
            .entries
            .iter()
            .map(|(key, entry)| (key.clone(), as_json(&entry.node)))
            .collect::<Map<_, _>>()
            .into(),
    }
}

#[cfg(test)]
mod tests;
