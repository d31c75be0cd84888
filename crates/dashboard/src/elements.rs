//! Small elements that many pages show: status, time, duration, cost.

use cowhand_core::budget::{self, assumed_sentence, cost_in_words};
use cowhand_core::duration;
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::{JobRecord, JobStatus, JobUsage};
use jiff::Timestamp;
use maud::{Markup, PreEscaped, html};

use super::text::{Text, plain, short, short_message};
use cowhand_web::api::segment;

/// Renders the shapes of all statuses once, so that other elements can refer to them by name.
pub(super) fn symbols() -> Markup {
    const SHAPES: [(&str, &str); 8] = [
        ("running", r#"<circle cx="8" cy="8" r="5.5"/><path d="M8 5v3l2 1.5"/>"#),
        ("completed", r#"<path d="m3.5 8.5 3 3 6-7"/>"#),
        ("failed", r#"<path d="m4 4 8 8m0-8-8 8"/>"#),
        ("cancelled", r#"<circle cx="8" cy="8" r="5.5"/><path d="m4.5 4.5 7 7"/>"#),
        ("pending", r#"<circle cx="8" cy="8" r="5.5" stroke-dasharray="2.6 2.6"/>"#),
        ("skipped", r#"<path d="M8 2.5 13.5 8 8 13.5 2.5 8Z"/>"#),
        ("idle", r#"<path d="M3.5 8h9"/>"#),
        ("off", r#"<path d="M8 2.5v5"/><path d="M5 4.2a5 5 0 1 0 6 0"/>"#),
    ];
    html! {
        svg.symbols aria-hidden="true" {
            @for (name, shape) in SHAPES {
                symbol id={ "i-" (name) } viewBox="0 0 16 16" { (PreEscaped(shape)) }
            }
        }
    }
}

/// Renders a status as a symbol and a word, so that the colour is not needed to read it.
pub(super) fn status(status: &str) -> Markup {
    status_as(status, status)
}

/// Renders a label with the symbol and the colour of a status. An unknown status has the symbol `idle`.
pub(super) fn status_as(status: &str, label: &str) -> Markup {
    let shape = match status {
        "running" | "preparing" | "claimed" => "running",
        "completed" | "ran" | "done" => "completed",
        "failed" | "error" | "missed" | "given_up" => "failed",
        "cancelled" => "cancelled",
        "pending" | "waiting" | "closing" | "available" => "pending",
        "skipped" | "coalesced" => "skipped",
        "disabled" | "finished" => "off",
        _ => "idle",
    };
    html! {
        span class={ "status s-" (status) } {
            svg.i aria-hidden="true" { use href={ "#i-" (shape) } {} }
            (label)
        }
    }
}

pub(super) fn job_status(job_status: JobStatus) -> Markup {
    status(job_status.as_str())
}

/// Shows a time in UTC; the script turns it into local time.
pub(super) fn at(time: Timestamp) -> Markup {
    let exact = time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
    html! { time datetime=(time) title=(exact) data-at { (time.strftime("%b %-d %H:%M:%S")) } }
}

/// Shows the distance to a time: `in 5m`, `3m ago`. The exact time is shown on hover.
pub(super) fn from_now(time: Timestamp, now: Timestamp) -> Markup {
    let exact = time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
    html! { time datetime=(time) title=(exact) data-from-now { (duration::relative_to_now(now, time)) } }
}

/// Shows the distance to a time: `in 5m`, or `now` if the time has passed.
pub(super) fn due(time: Timestamp, now: Timestamp) -> Markup {
    let exact = time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
    html! { time datetime=(time) title=(exact) data-due { (duration::until(now, time)) } }
}

/// Shows the time since `since`; the script of the page keeps it up to date.
pub(super) fn elapsed(since: Timestamp, now: Timestamp) -> Markup {
    let exact = format!("since {}", since.strftime("%Y-%m-%d %H:%M:%S UTC"));
    let length = duration::rounded(now.duration_since(since));
    html! { time.number datetime=(since) title=(exact) data-elapsed { (length) } }
}

/// Shows how long a job ran, or has run so far; `–` for a job that does not run and has no duration.
pub(super) fn job_duration(job: &JobRecord, now: Timestamp) -> Markup {
    match (job.duration_seconds, job.run_started_at) {
        (Some(length), Some(_)) => html! { span.number { (duration::rounded_from_seconds(length)) } },
        (None, Some(since)) if job.status == JobStatus::Running => elapsed(since, now),
        _ => html! { span.muted { "–" } },
    }
}

pub(super) fn money(dollars: f64) -> String {
    budget::money(budget::microdollars(dollars))
}

/// Formats `1234567` as `1.2M`.
pub(super) fn count(number: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let in_unit = |unit: u64| number as f64 / unit as f64;
    match number {
        0..10_000 => number.to_string(),
        10_000..1_000_000 => format!("{:.0}k", in_unit(1_000)),
        1_000_000..1_000_000_000 => format!("{:.1}M", in_unit(1_000_000)),
        _ => format!("{:.1}G", in_unit(1_000_000_000)),
    }
}

pub(super) fn cost(usage: Option<&JobUsage>) -> Markup {
    html! {
        @if let Some(cost) = cost_in_words(usage) {
            span.number title=[usage.and_then(assumed_sentence)] { (cost) }
        } @else {
            span.muted { "–" }
        }
    }
}

pub(super) fn agent(name: &AgentName) -> Markup {
    html! { a href=(agent_address(name)) { (name.as_str()) } }
}

pub(super) fn agent_address(name: &AgentName) -> String {
    format!("/agents/{}", segment(name.as_str()))
}

pub(super) fn schedule(agent: &AgentName, name: &ScheduleName) -> Markup {
    html! { a.any href=(schedule_address(agent, name)) title=(plain(name.as_str())) { (short(name.as_str(), 60)) } }
}

pub(super) fn schedule_address(agent: &AgentName, name: &ScheduleName) -> String {
    format!("/schedules/{}/{}", segment(agent.as_str()), segment(name.as_str()))
}

/// Renders a link to a job. The text is the id without `job-`, which is redundant in a list of jobs.
pub(super) fn job(id: &JobId) -> Markup {
    let text = id.as_str();
    html! { a.id href={ "/jobs/" (text) } title=(text) data-row { (text.strip_prefix("job-").unwrap_or(text)) } }
}

/// Shows the error of a job on one line, or else its summary, or else its prompt.
pub(super) fn about(job: &JobRecord) -> Markup {
    if let Some(error) = &job.error {
        return html! { span.any.bad title=(plain(&error.message)) { (short_message(&error.message, 140)) } };
    }
    let text = job.summary.as_deref().or(job.prompt.as_deref()).unwrap_or_default();
    html! { span.any.muted { (short(text, 140)) } }
}

/// Shows a command or another text with its line breaks.
pub(super) fn block(text: &str) -> Markup {
    html! { pre.block tabindex="0" { (Text(text)) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shortened() {
        for (number, expected) in
            [(9_999, "9999"), (12_345, "12k"), (1_234_567, "1.2M"), (5_000_000_000, "5.0G")]
        {
            assert_eq!(count(number), expected);
        }
        for (dollars, expected) in
            [(0.0, "$0.00"), (0.0012, "$0.0012"), (0.012_345, "$0.012345"), (1.5, "$1.50")]
        {
            assert_eq!(money(dollars), expected);
        }
    }
}
