//! The spans of a trace: the job, its wait, its attempts (each with the spawn of its agent and its tool calls), and the
//! report to its work source.

use cowhand_core::cut::cut;
use cowhand_core::event::{Event, Fact};
use cowhand_core::id::JobId;
use cowhand_core::job::{ExitReason, JobRecord, JobStatus, ModelUsage, Origin, Outcome};
use jiff::Timestamp;
use ring::digest::{SHA256, digest};

use super::tool::{Calls, TimeSpan};
use cowhand_store::{JobHistory, PastAttempt};

pub(super) type TraceId = [u8; 16];
pub(super) type SpanId = [u8; 8];

/// A period of time with a name.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Span {
    pub(super) trace: TraceId,
    pub(super) id: SpanId,
    pub(super) parent: Option<SpanId>,
    pub(super) name: String,
    pub(super) start: Timestamp,
    pub(super) end: Timestamp,
    pub(super) attributes: Vec<(&'static str, Attribute)>,
    pub(super) status: SpanStatus,
    /// Root span of the job of which this job is a fork or a retry; only a root span has a link.
    pub(super) link: Option<(TraceId, SpanId)>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Attribute {
    Text(String),
    Integer(u64),
    Number(f64),
    Boolean(bool),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum SpanStatus {
    /// No status, for example for a cancelled job.
    Unset,
    Ok,
    /// Failed, with the message of the error. A failed tool call has no message, because the answer of a tool may
    /// contain anything.
    Error(Option<String>),
}

/// Longest message of a status, in bytes; the original may be a page of the agent's output.
const MAX_MESSAGE: usize = 1000;

impl Span {
    pub(super) fn is_root(&self) -> bool {
        self.parent.is_none()
    }
}

/// The ids of a job's trace and spans, derived from the ids of the fleet and the job.
#[derive(Debug)]
pub(super) struct Ids {
    fleet: String,
    job: String,
}

impl Ids {
    pub(super) fn of(fleet: &str, job: &JobId) -> Self {
        Self { fleet: fleet.to_owned(), job: job.to_string() }
    }

    fn trace(&self) -> TraceId {
        self.derive("trace")
    }

    fn span(&self, part: &str) -> SpanId {
        self.derive(part)
    }

    fn root(&self) -> SpanId {
        self.span("job")
    }

    fn derive<const N: usize>(&self, part: &str) -> [u8; N] {
        let hash = digest(&SHA256, format!("{}\n{}\n{part}", self.fleet, self.job).as_bytes());
        let mut id = [0; N];
        id.copy_from_slice(&hash.as_ref()[..N]);
        id
    }

    /// Builds a span below `parent`, or the root span.
    fn make(&self, part: &str, parent: Option<SpanId>, name: String, (start, end): TimeSpan) -> Span {
        let (trace, id) = (self.trace(), self.span(part));
        let (attributes, status, link) = (Vec::new(), SpanStatus::Unset, None);
        // If the clock was set back, the span does not end before it begins.
        Span { trace, id, parent, name, start, end: end.max(start), attributes, status, link }
    }
}

/// Returns a function that gives the start and the end of an attempt of this job.
pub(super) fn window_of(history: &JobHistory) -> impl Fn(&PastAttempt) -> TimeSpan {
    let ended = JobRecord::from(history.job.clone()).finished_at;
    move |attempt| {
        // A job ends when its agent ends. The stored end of its last attempt is the time at which the daemon noticed
        // that end.
        let end = attempt.ended_at.into_iter().chain(ended).min();
        (attempt.started_at, end.unwrap_or(attempt.started_at))
    }
}

/// Builds the whole trace of an ended job, without its report. The trace contains no prompts, inputs or answers.
pub(super) fn of_job(ids: &Ids, history: &JobHistory, calls: &Calls) -> Vec<Span> {
    let record = JobRecord::from(history.job.clone());
    let created = record.started_at;
    let end = record.finished_at.unwrap_or(created);
    let mut spans =
        vec![root(ids, history, &record, calls, (history.due.map_or(created, |due| due.min(created)), end))];
    let first = history.attempts.first().map_or(end, |attempt| attempt.started_at);
    spans.push(ids.make("wait", Some(ids.root()), "wait".to_owned(), (created, first)));
    let window_of = window_of(history);
    for attempt in &history.attempts {
        let window = window_of(attempt);
        let span = of_attempt(ids, attempt, window);
        if let Some(began) = attempt.agent_began_at {
            let part = format!("spawn {}", attempt.number);
            let until_start = (window.0, began.min(window.1));
            spans.push(ids.make(&part, Some(span.id), "spawn".to_owned(), until_start));
        }
        spans.push(span);
    }
    spans.extend(calls.all.iter().enumerate().filter_map(|(index, call)| {
        let attempt = history.attempts.get(call.attempt)?;
        let parent = ids.span(&attempt_part(attempt));
        // An answer may have been read after the end of the agent.
        let latest = window_of(attempt).1;
        let (start, end) = (call.start.min(latest), call.end.map_or(latest, |end| end.min(latest)));
        let name = format!("tool {}", call.name);
        let mut span = ids.make(&format!("tool {index}"), Some(parent), name, (start, end));
        span.attributes.push(("cowhand.tool", Attribute::Text(call.name.clone())));
        span.attributes.push(("cowhand.answered", Attribute::Boolean(call.end.is_some())));
        if call.failed {
            span.status = SpanStatus::Error(None);
        }
        Some(span)
    }));
    spans
}

fn root(ids: &Ids, history: &JobHistory, record: &JobRecord, calls: &Calls, window: TimeSpan) -> Span {
    let mut span = ids.make("job", None, format!("job {}", record.agent), window);
    span.status = match record.status {
        JobStatus::Completed => SpanStatus::Ok,
        JobStatus::Failed => {
            SpanStatus::Error(record.error.as_ref().map(|error| cut(&error.message, 0, MAX_MESSAGE)))
        }
        JobStatus::Cancelled | JobStatus::Pending | JobStatus::Running => SpanStatus::Unset,
    };
    let mut text = |name, value: Option<String>| {
        span.attributes.extend(value.map(|value| (name, Attribute::Text(value))));
    };
    text("cowhand.job", Some(record.id.to_string()));
    text("cowhand.agent", Some(record.agent.to_string()));
    text("cowhand.schedule", record.schedule.as_ref().map(ToString::to_string));
    text("cowhand.trigger_type", Some(record.trigger_type.to_string()));
    text("cowhand.status", Some(record.status.to_string()));
    text("cowhand.exit_reason", record.exit_reason.as_ref().map(ExitReason::to_string));
    text("cowhand.error_kind", record.error.as_ref().map(|error| error.kind.to_string()));
    text("cowhand.due", history.due.map(|due| due.to_string()));
    text("cowhand.work_item", record.work_item.as_ref().map(|item| item.id.to_string()));
    span.attributes.push(("cowhand.attempts", Attribute::Integer(record.attempt.into())));
    span.attributes.push(("cowhand.tool_calls", Attribute::Integer(calls.count)));
    span.attributes.extend(usage_attributes(record));
    span.link = history.job.origin().map(|(Origin::ForkOf(id) | Origin::RetryOf(id))| {
        let origin = Ids::of(&ids.fleet, id);
        (origin.trace(), origin.root())
    });
    span
}

/// Returns the usage of the job as attributes; empty if the agent reported no usage.
fn usage_attributes(record: &JobRecord) -> Vec<(&'static str, Attribute)> {
    let Some(usage) = &record.usage else { return Vec::new() };
    let mut total = ModelUsage::default();
    for model in usage.per_model.values() {
        total.add(model);
    }
    let mut attributes = vec![
        ("cowhand.tokens.input", Attribute::Integer(total.input_tokens)),
        ("cowhand.tokens.output", Attribute::Integer(total.output_tokens)),
        ("cowhand.tokens.cache_creation", Attribute::Integer(total.cache_creation_input_tokens)),
        ("cowhand.tokens.cache_read", Attribute::Integer(total.cache_read_input_tokens)),
    ];
    attributes.extend(usage.num_turns.map(|turns| ("cowhand.turns", Attribute::Integer(turns))));
    attributes.extend(usage.total_cost_usd.map(|dollars| ("cowhand.cost_usd", Attribute::Number(dollars))));
    attributes
}

fn attempt_part(attempt: &PastAttempt) -> String {
    format!("attempt {}", attempt.number)
}

fn of_attempt(ids: &Ids, attempt: &PastAttempt, window: TimeSpan) -> Span {
    let part = attempt_part(attempt);
    let mut span = ids.make(&part, Some(ids.root()), part.clone(), window);
    span.attributes.push(("cowhand.attempt", Attribute::Integer(attempt.number.into())));
    span.attributes.push(("cowhand.node", Attribute::Text(attempt.node.clone())));
    let Some(outcome) = &attempt.outcome else { return span };
    span.attributes.push(("cowhand.status", Attribute::Text(outcome.status().to_string())));
    span.attributes.push(("cowhand.exit_reason", Attribute::Text(outcome.exit_reason().to_string())));
    span.status = match outcome {
        Outcome::Completed { .. } => SpanStatus::Ok,
        Outcome::Failed { error, .. } => {
            span.attributes.push(("cowhand.error_kind", Attribute::Text(error.kind.to_string())));
            SpanStatus::Error(Some(cut(&error.message, 0, MAX_MESSAGE)))
        }
        Outcome::Cancelled { .. } => SpanStatus::Unset,
    };
    span
}

/// Builds the span from the end of the job to the time of `event`, if the event states what happened to the work item
/// of the job: its result was reported or dropped, or the item was released. Returns `None` for other events, and if
/// the job has not ended. The span is sent separately from the trace, because a work source may be unavailable for
/// hours.
pub(super) fn of_report(ids: &Ids, history: &JobHistory, event: &Event) -> Option<Span> {
    let ended = JobRecord::from(history.job.clone()).finished_at?;
    let (item, action, outcome) = match &event.fact {
        Fact::WorkReported { item, outcome } => (item, "reported", Some(outcome.to_string())),
        Fact::WorkReleased { item, .. } => (item, "released", None),
        Fact::WorkDropped { item, .. } => (item, "dropped", None),
        _ => return None,
    };
    let mut span = ids.make("report", Some(ids.root()), "report".to_owned(), (ended, event.at));
    span.attributes.push(("cowhand.work_item", Attribute::Text(item.to_string())));
    span.attributes.push(("cowhand.report", Attribute::Text(action.to_owned())));
    span.attributes.extend(outcome.map(|outcome| ("cowhand.outcome", Attribute::Text(outcome))));
    Some(span)
}
