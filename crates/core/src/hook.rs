//! Hooks: actions after the end of a job. This module decides which hooks apply, and builds their input.

mod action;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::{FailReason, Job, JobState, Outcome};
use crate::report::Report;
use crate::word::written_as;
pub use action::{
    HOOK_RETRIES, Hook, HookAction, HookMethod, Hooks, SHELL_HOOK_TIMEOUT, SLACK_TOKEN_VARIABLE,
    WEBHOOK_TIMEOUT,
};

/// The two lists of hooks in the config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookList {
    AfterRun,
    OnError,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookKind {
    Shell,
    Webhook,
    Discord,
    Slack,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookState {
    /// Not started, or to be tried again.
    Waiting,
    Running,
    Completed,
    Failed,
    /// Its `when` does not hold, an earlier hook without `continue_on_error` failed, or the config no longer has it.
    Skipped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HookEvent {
    Completed,
    Failed,
    Timeout,
    Cancelled,
}

written_as! {
    HookList { AfterRun = "after_run", OnError = "on_error" }
    HookKind { Shell = "shell", Webhook = "webhook", Discord = "discord", Slack = "slack" }
    HookState {
        Waiting = "waiting",
        Running = "running",
        Completed = "completed",
        Failed = "failed",
        Skipped = "skipped",
    }
    HookEvent { Completed = "completed", Failed = "failed", Timeout = "timeout", Cancelled = "cancelled" }
}

/// The part of a hook that the store needs to decide whether the hook applies. The rest of the hook may contain secrets
/// and stays in the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookOutline {
    /// Number from 1 in the order of execution, `after_run` first.
    pub number: u32,
    pub list: HookList,
    pub kind: HookKind,
    pub name: Option<String>,
    /// Hook events after which the hook runs; empty means all hook events of its list.
    pub events: Vec<HookEvent>,
}

/// One hook of one ended job, with its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HookRun {
    pub number: u32,
    pub list: HookList,
    pub kind: HookKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How the job ended.
    pub event: HookEvent,
    pub state: HookState,
    /// Number of times that the hook was started.
    pub tries: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Why the hook failed, was skipped or is tried again; after a completed hook, a note.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Output of the hook, truncated and redacted.
    #[serde(default, rename = "said", skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
}

impl HookRun {
    /// Returns a label, for example `after_run hook 1 (notify)`.
    pub fn label(&self) -> String {
        let name = self.name.as_ref().map(|name| format!(" ({name})"));
        format!("{} hook {}{}", self.list, self.number, name.unwrap_or_default())
    }
}

impl HookOutline {
    pub fn all_of(hooks: &Hooks) -> Vec<Self> {
        let outline = |(number, (list, hook)): (u32, (HookList, &Hook))| Self {
            number,
            list,
            kind: hook.kind(),
            name: hook.name.clone(),
            events: hook.on_events.clone().unwrap_or_default(),
        };
        // A hook with an empty list of events never runs. In an outline, an empty list means all events.
        let runs = |(_, (_, hook)): &(u32, (HookList, &Hook))| hook.on_events != Some(Vec::new());
        (1..).zip(hooks.all()).filter(runs).map(outline).collect()
    }

    /// Checks whether the hook applies to this hook event. `on_error` does not apply to cancelled jobs, because the
    /// person who cancels a job knows about it.
    pub fn applies(&self, event: HookEvent) -> bool {
        let of_list = match self.list {
            HookList::AfterRun => true,
            HookList::OnError => matches!(event, HookEvent::Failed | HookEvent::Timeout),
        };
        of_list && (self.events.is_empty() || self.events.contains(&event))
    }

    /// Finds the hook of a hook run, if the config still has it at this position with the same list, name and kind. If
    /// its other keys have changed meanwhile, the hook runs with the new keys.
    pub fn find<'a>(hooks: &'a Hooks, run: &HookRun) -> Option<&'a Hook> {
        let (list, hook) = hooks.all().nth(usize::try_from(run.number).ok()?.checked_sub(1)?)?;
        (list == run.list && hook.kind() == run.kind && hook.name == run.name).then_some(hook)
    }
}

impl HookEvent {
    pub const fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Completed { .. } => Self::Completed,
            Outcome::Failed { reason: FailReason::Timeout, .. } => Self::Timeout,
            Outcome::Failed { .. } => Self::Failed,
            Outcome::Cancelled { .. } => Self::Cancelled,
        }
    }
}

/// Input of a hook: the JSON that herdctl's hooks get, and the report of the agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HookContext {
    pub event: HookEvent,
    pub job: JobOfHook,
    pub result: ResultOfHook,
    pub agent: AgentOfHook,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Value>,
    /// Report of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobOfHook {
    pub id: String,
    pub agent_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_name: Option<String>,
    pub started_at: String,
    pub completed_at: String,
    pub duration_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResultOfHook {
    pub success: bool,
    pub output: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentOfHook {
    pub id: String,
    pub name: String,
}

impl HookContext {
    /// Builds the input from an ended job, without the report; none if the job has not ended. `display_name` is the
    /// name of the agent for people; none means its name in the config. `output` is the final output of the job; none
    /// means that this machine does not have it, and then the input contains the summary of the job.
    pub fn of(
        job: &Job,
        display_name: Option<&str>,
        output: Option<String>,
        metadata: Option<Value>,
    ) -> Option<Self> {
        let JobState::Ended { at, outcome } = job.state() else { return None };
        let (summary, error) = match outcome {
            Outcome::Completed { summary } => (summary.clone(), None),
            Outcome::Failed { summary, error, .. } => (summary.clone(), Some(error.message.clone())),
            Outcome::Cancelled { .. } => (None, None),
        };
        let began = job.run_started_at().unwrap_or_else(|| job.created_at());
        Some(Self {
            event: HookEvent::of(outcome),
            job: JobOfHook {
                id: job.id().to_string(),
                agent_id: job.agent().to_string(),
                schedule_name: job.schedule().map(ToString::to_string),
                started_at: format!("{began:.3}"),
                completed_at: format!("{at:.3}"),
                duration_ms: u64::try_from(at.duration_since(began).as_millis()).unwrap_or_default(),
            },
            result: ResultOfHook {
                success: matches!(outcome, Outcome::Completed { .. }),
                output: output.or(summary).unwrap_or_default(),
                error,
            },
            agent: AgentOfHook {
                id: job.agent().to_string(),
                name: display_name.unwrap_or_else(|| job.agent().as_str()).to_owned(),
            },
            metadata,
            report: None,
        })
    }
}

/// Checks whether the dotted path leads to a value that counts as true in JavaScript: the value exists and is not null,
/// false, 0 or "".
pub fn is_truthy(context: &Value, path: &str) -> bool {
    let step = |value: &Value, key: &str| match value {
        Value::Array(items) => items.get(key.parse::<usize>().ok()?).cloned(),
        Value::Object(map) => map.get(key).cloned(),
        _ => None,
    };
    let found = path.split('.').try_fold(context.clone(), |value, key| step(&value, key));
    match found {
        None | Some(Value::Null) => false,
        Some(Value::Bool(is)) => is,
        Some(Value::Number(number)) => number.as_f64() != Some(0.0),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(_) | Value::Object(_)) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JobId;
    use crate::job::{ErrorKind, JobError, NewJob, Termination, TriggerType};
    use crate::policy::Retry;
    use serde_json::json;

    #[test]
    fn hooks_apply_to_the_events_of_their_list() {
        use HookEvent::{Cancelled, Completed, Failed, Timeout};
        let outline = |list, events: &[HookEvent]| HookOutline {
            number: 1,
            list,
            kind: HookKind::Shell,
            name: None,
            events: events.to_vec(),
        };
        let after = |events| {
            let outline = outline(HookList::AfterRun, events);
            HookEvent::ALL.iter().copied().filter(|event| outline.applies(*event)).collect::<Vec<_>>()
        };
        assert_eq!(after(&[]), [Completed, Failed, Timeout, Cancelled]);
        assert_eq!(after(&[Timeout, Cancelled]), [Timeout, Cancelled]);
        let error = |events| {
            let outline = outline(HookList::OnError, events);
            HookEvent::ALL.iter().copied().filter(|event| outline.applies(*event)).collect::<Vec<_>>()
        };
        assert_eq!(error(&[]), [Failed, Timeout]);
        assert_eq!(error(&[Completed, Timeout, Cancelled]), [Timeout]);
    }

    #[test]
    fn an_empty_list_of_events_means_never() {
        let hook = |on_events| Hook {
            name: None,
            continue_on_error: true,
            on_events,
            when: None,
            action: HookAction::Shell { command: "x".into(), timeout: std::time::Duration::from_secs(1) },
        };
        let after_run = vec![hook(Some(Vec::new())), hook(None), hook(Some(vec![HookEvent::Failed]))];
        let outlines = HookOutline::all_of(&Hooks { after_run, on_error: Vec::new() });
        let numbers: Vec<u32> = outlines.iter().map(|outline| outline.number).collect();
        assert_eq!(numbers, [2, 3]);
        assert!(outlines[0].applies(HookEvent::Completed) && !outlines[1].applies(HookEvent::Completed));
    }

    #[test]
    fn conditions_of_hooks_are_evaluated() {
        let context = json!({"metadata": {"notify": true, "off": false, "zero": 0, "empty": "", "list": [],
            "deep": {"er": ["x"]}, "word": "no"}, "result": {"success": true}});
        for (path, expected) in [
            ("metadata.notify", true),
            ("metadata.off", false),
            ("metadata.zero", false),
            ("metadata.empty", false),
            ("metadata.list", true),
            ("metadata.deep.er", true),
            ("metadata.deep.er.0", true),
            ("metadata.deep.er.1", false),
            ("metadata.word", true),
            ("metadata.word.more", false),
            ("metadata.gone", false),
            ("result.success", true),
            ("", false),
        ] {
            assert_eq!(is_truthy(&context, path), expected, "{path}");
        }
    }

    fn ended(outcome: Outcome) -> Job {
        let new = NewJob {
            agent: "fleet.coder".parse().unwrap(),
            trigger_type: TriggerType::Schedule,
            schedule: Some("nightly".parse().unwrap()),
            prompt: None,
            origin: None,
            work_item: None,
            chat: None,
            message: None,
            confined: None,
            not_before: None,
        };
        let at = |millis: i64| Timestamp::from_millisecond(1_767_225_600_000 + millis).unwrap();
        let mut job = Job::new(JobId::new(jiff::civil::date(2026, 1, 1), 1), new, at(0));
        job.start(at(500)).unwrap();
        job.settle(outcome, &Retry::default(), at(2_750)).unwrap();
        job
    }

    #[test]
    fn the_context_of_a_hook_describes_its_job() {
        let error = JobError { kind: ErrorKind::Timeout, message: "too long".into() };
        let job = ended(Outcome::Failed { reason: FailReason::Timeout, error, summary: None });
        let context = HookContext::of(&job, None, None, Some(json!({"a": 1}))).unwrap();
        assert_eq!(
            serde_json::to_string(&context).unwrap(),
            r#"{"event":"timeout","job":{"id":"job-2026-01-01-000001","agentId":"fleet.coder","scheduleName":"nightly","#
                .to_owned()
                + r#""startedAt":"2026-01-01T00:00:00.500Z","completedAt":"2026-01-01T00:00:02.750Z","durationMs":2250},"#
                + r#""result":{"success":false,"output":"","error":"too long"},"#
                + r#""agent":{"id":"fleet.coder","name":"fleet.coder"},"metadata":{"a":1}}"#
        );
        let done = ended(Outcome::Completed { summary: Some("in short".into()) });
        let shown = |output: Option<&str>| {
            HookContext::of(&done, None, output.map(str::to_owned), None).unwrap().result.output
        };
        assert_eq!((shown(Some("all of it")), shown(None)), ("all of it".into(), "in short".into()));
        let gone = ended(Outcome::Cancelled { how: Termination::Graceful });
        assert_eq!(HookContext::of(&gone, None, None, None).unwrap().event, HookEvent::Cancelled);
    }
}
