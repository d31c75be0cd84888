//! The values that a prompt can use, built from the typed parts of a job.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use jiff::{Timestamp, Zoned};
use minijinja::value::{Serde, Value};
use serde::Serialize;
use serde_json::{Value as Json, json};

use super::{MAX_VALUE_BYTES, PromptAuthor};
use crate::cut::cut;
use crate::id::{AgentName, JobId, ScheduleName};
use crate::trigger::{EndStatus, FiringKey, Task};
use crate::work::WorkItem;

/// Parts of a job that its prompt can use.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Current time in the zone of the schedule, which determines the date.
    pub now: &'a Zoned,
    pub agent: &'a AgentName,
    pub schedule: Option<&'a ScheduleName>,
    pub firing: PromptFiring<'a>,
    pub task: &'a Task,
    /// Work item of the job. Its title, description, URL and labels replace those of the task.
    pub work_item: Option<&'a WorkItem>,
    pub upstream: Option<&'a Upstream>,
    /// Body of a webhook delivery.
    pub payload: Option<&'a Json>,
    /// Author of the text from outside.
    pub author: PromptAuthor<'a>,
}

/// The firing that created the job.
#[derive(Debug, Clone, Copy)]
pub struct PromptFiring<'a> {
    /// Value of `type:`.
    pub trigger: &'a str,
    pub key: &'a FiringKey,
    pub fired_at: Timestamp,
    pub scheduled_for: Option<Timestamp>,
}

/// The job whose end fired this job. It is passed as metadata of the task, with keys that begin with `upstream.`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Upstream {
    pub agent: AgentName,
    pub schedule: Option<ScheduleName>,
    pub job_id: JobId,
    pub status: EndStatus,
    pub result: Option<String>,
    pub summary: Option<String>,
    /// Work item of that job, if it had one.
    pub work_item: Option<String>,
}

impl Upstream {
    /// Reads the upstream job from the metadata of a task. Returns none for every trigger except `dispatch_result`,
    /// because the metadata of other triggers may come from anywhere.
    pub(crate) fn of(trigger: &str, task: &Task) -> Option<Self> {
        let get = |key: &str| task.metadata.get(key).filter(|_| trigger == "dispatch_result");
        Some(Self {
            agent: get("upstream.agent")?.parse().ok()?,
            schedule: get("upstream.schedule").and_then(|name| name.parse().ok()),
            job_id: get("upstream.job_id")?.parse().ok()?,
            status: get("upstream.status")?.parse().ok()?,
            result: get("upstream.result").cloned(),
            summary: get("upstream.summary").cloned(),
            work_item: get("upstream.work_item").cloned(),
        })
    }

    /// Writes the upstream job to metadata. A result or summary longer than [`MAX_VALUE_BYTES`] is cut.
    pub fn write(self, metadata: &mut IndexMap<String, String>) {
        let Self { agent, schedule, job_id, status, result, summary, work_item } = self;
        let pairs = [
            ("agent", Some(agent.to_string())),
            ("schedule", schedule.map(|name| name.to_string())),
            ("job_id", Some(job_id.to_string())),
            ("status", Some(status.to_string())),
            ("result", result.map(|text| cut(&text, 0, MAX_VALUE_BYTES))),
            ("summary", summary.map(|text| cut(&text, 0, MAX_VALUE_BYTES))),
            ("work_item", work_item),
        ];
        let set = pairs.into_iter().filter_map(|(name, value)| Some((format!("upstream.{name}"), value?)));
        metadata.extend(set);
    }
}

impl Context<'_> {
    /// Checks whether the values may contain text from outside. Without a work item, the values of a firing by the
    /// clock contain none.
    pub(super) fn may_have_outside_text(&self) -> bool {
        self.work_item.is_some() || !matches!(self.firing.trigger, "interval" | "cron" | "delay")
    }

    /// Returns all values by name. Each name in `declared` has a value, which may be empty.
    pub(super) fn values(&self, declared: &[&'static str]) -> Value {
        let mut values: BTreeMap<String, Value> = BTreeMap::new();
        // Insert metadata first, so that no key from outside replaces a name that cowhand defines.
        values.extend(self.task.metadata.iter().map(|(key, text)| (key.clone(), Value::from(text.as_str()))));
        let mut set = |name: &str, value: Value| values.insert(name.to_owned(), value);
        for (name, value) in self.own() {
            set(name, value);
        }
        for (root, value) in [("issue", self.issue()), ("upstream", json!(self.upstream))] {
            let fields = declared.iter().filter_map(|name| name.strip_prefix(root)?.strip_prefix('.'));
            let fields: BTreeMap<_, _> = fields.map(|field| (field, value.get(field))).collect();
            if !fields.is_empty() {
                set(root, Value::from(Serde(&fields)));
            }
        }
        if let Some(payload) = self.payload {
            set("payload", Value::from(Serde(payload)));
        }
        for name in declared.iter().filter(|name| !name.contains('.')) {
            values.entry((*name).to_owned()).or_insert(Value::from(()));
        }
        Value::from(values)
    }

    fn own(&self) -> [(&'static str, Value); 14] {
        let (task, item, firing) = (self.task, self.work_item, &self.firing);
        let trigger = json!({
            "type": firing.trigger,
            "fired_at": firing.fired_at,
            "key": firing.key,
            "scheduled_for": firing.scheduled_for,
        });
        let text = |text: &str| Value::from(text);
        [
            ("date", Value::from(self.now.strftime("%Y-%m-%d").to_string())),
            ("time", Value::from(self.now.strftime("%H:%M:%S").to_string())),
            ("now", Value::from(self.now.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())),
            ("agent", text(self.agent.as_str())),
            ("schedule", Value::from(self.schedule.map(ScheduleName::as_str))),
            ("trigger_type", text(firing.trigger)),
            ("trigger", Value::from(Serde(&trigger))),
            ("title", text(item.map_or(&task.title, |item| &item.title))),
            ("body", text(item.map_or(&task.body, |item| &item.description))),
            ("url", text(item.map_or(&task.url, |item| &item.url))),
            ("labels", Value::from(Serde(item.map_or(&task.labels, |item| &item.labels)))),
            ("assignee", Value::from(task.assignee.as_deref())),
            ("source_id", text(&task.source_id)),
            ("metadata", Value::from(Serde(&task.metadata))),
        ]
    }

    fn issue(&self) -> Json {
        let task = self.task;
        match self.work_item {
            Some(item) => json!({
                "number": item.id.external_id(),
                "title": item.title,
                "body": item.description,
                "url": item.url,
                "labels": item.labels,
            }),
            None if self.firing.trigger.starts_with("github_") => json!({
                "number": task.source_id,
                "title": task.title,
                "body": task.body,
                "url": task.url,
                "labels": task.labels,
            }),
            None => Json::Null,
        }
    }
}
