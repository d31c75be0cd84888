//! The page of the timeline: the last and the next 24 hours of every schedule, as a drawing.

use axum::extract::State;
use cowhand_core::duration;
use cowhand_core::id::JobId;
use cowhand_core::job::JobStatus;
use cowhand_core::schedule::SkipReason;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use super::layout::{Frame, Tab, empty};
use super::text::short;
use super::{PageAnswer, Pages, elements};
use cowhand_web::api::{Lane, PastFiring, Timeline};

pub(super) async fn page(State(pages): State<Pages>) -> PageAnswer {
    let timeline: Timeline = pages.client.get("timeline").await?;
    let scale = Scale { from: timeline.from, to: timeline.to };
    let main = html! {
        div.page-head { h1 { "Timeline" } (legend()) }
        section #timeline data-live aria-label="The last and the next 24 hours" {
            @if timeline.schedules.is_empty() {
                (empty("No agent has schedules. Add some with `schedules` in the fleet's file. To show all its keys:", Some("cowhand config schema")))
            } @else {
                div.lane.axis { span {} (axis(&scale, timeline.now)) }
                @for lane in &timeline.schedules { (row(lane, &scale, timeline.now)) }
            }
        }
    };
    pages.page(Frame { title: "Timeline", tab: Tab::Timeline, follow: None }, main).await
}

/// Mapping from times to positions.
#[derive(Debug, Clone, Copy)]
struct Scale {
    from: Timestamp,
    to: Timestamp,
}

impl Scale {
    fn percent(&self, time: Timestamp) -> f64 {
        let span = self.to.duration_since(self.from).as_secs_f64().max(1.0);
        (time.duration_since(self.from).as_secs_f64() / span * 100.0).clamp(0.0, 100.0)
    }
}

/// Mark on the timeline: a shape at a position, or a bar between two positions.
#[derive(Debug, PartialEq)]
struct Mark {
    kind: &'static str,
    /// Position of the start, in percent of the width.
    at: f64,
    /// Position of the end, in percent of the width.
    until: f64,
    /// Text before the time in the label.
    title: String,
    /// Due time in the label; of a merged mark, the due time of the last firing.
    time: Timestamp,
    /// Text after the time in the label.
    after: String,
    job: Option<String>,
    /// Number of firings that are merged into this mark.
    count: usize,
}

/// Distance, in percent of the width, below which neighbouring marks of one kind are merged. A mark that is shorter
/// than this distance is drawn as a shape and not as a bar.
const MERGE_DISTANCE: f64 = 0.4;

fn row(lane: &Lane, scale: &Scale, now: Timestamp) -> Markup {
    let count = |kind: &str| lane.firings.iter().filter(|firing| kind_of(firing) == kind).count();
    let label = format!(
        "{} of {}: {} done, {} failed, {} cancelled, {} running, {} waiting, {} skipped, {} missed, {} coalesced, {} planned",
        short(lane.schedule.as_str(), 60),
        lane.agent,
        count("done"),
        count("failed"),
        count("cancelled"),
        count("running"),
        count("waiting") + usize::from(lane.due_since.is_some()),
        count("skipped"),
        count("missed"),
        count("coalesced"),
        lane.planned.len()
    );
    html! {
        div.lane {
            div.lane-name {
                span { (elements::schedule(&lane.agent, &lane.schedule)) }
                span.muted { (lane.agent.as_str()) @if lane.status != cowhand_engine::fleet::ScheduleStatus::Idle { " · " (lane.status.as_str()) } }
            }
            svg.track role="group" aria-label=(label) height="32" width="100%" {
                line.now x1={ (scale.percent(now)) "%" } x2={ (scale.percent(now)) "%" } y1="0" y2="32" {}
                @for mark in marks_of(lane, scale, now) { (draw(&mark)) }
            }
        }
    }
}

/// Returns the marks, the oldest first. Neighbouring marks of one kind that are too close to each other are merged.
fn marks_of(lane: &Lane, scale: &Scale, now: Timestamp) -> Vec<Mark> {
    let past = lane.firings.iter().rev().map(|firing| mark_of_firing(firing, scale, now));
    let planned = lane.planned.iter().map(|time| Mark {
        kind: "planned",
        at: scale.percent(*time),
        until: scale.percent(*time),
        title: "planned".to_owned(),
        time: *time,
        after: String::new(),
        job: None,
        count: 1,
    });
    let mut merged: Vec<Mark> = Vec::new();
    for mark in past.chain(mark_of_wait(lane, scale, now)).chain(planned) {
        match merged.last_mut() {
            Some(last) if last.kind == mark.kind && mark.at - last.until < MERGE_DISTANCE => {
                last.until = last.until.max(mark.until);
                last.count += 1;
                last.title = format!("{} {}, the last of them: {}", last.count, last.kind, mark.title);
                (last.time, last.after, last.job) = (mark.time, mark.after, mark.job);
            }
            _ => merged.push(mark),
        }
    }
    // `cut` is set if the API left out further planned firings. Then the last mark extends to the end.
    if let Some(last) = merged.last_mut().filter(|last| lane.cut && last.kind == "planned") {
        last.until = 100.0;
        last.after.push_str(", and so on");
    }
    merged
}

/// Returns the mark of a firing that is due and waits, from its due time until now.
fn mark_of_wait(lane: &Lane, scale: &Scale, now: Timestamp) -> Option<Mark> {
    let due = lane.due_since?;
    let why = lane.waits_for.map(reason_suffix).unwrap_or_default();
    Some(Mark {
        kind: "waiting",
        at: scale.percent(due),
        until: scale.percent(now),
        title: format!("waiting{why}, due"),
        time: due,
        after: String::new(),
        job: None,
        count: 1,
    })
}

fn reason_suffix(reason: SkipReason) -> String {
    format!(": {}", reason.as_str().replace('_', " "))
}

fn mark_of_firing(firing: &PastFiring, scale: &Scale, now: Timestamp) -> Mark {
    let kind = kind_of(firing);
    let begin = firing.started_at.unwrap_or(firing.due);
    let end = match (firing.finished_at, kind) {
        (Some(end), _) => end,
        (None, "running") => now,
        (None, _) => begin,
    };
    let why = firing.reason.map(reason_suffix).unwrap_or_default();
    // A job that was cancelled before it began has no duration.
    let took = firing.started_at.zip(firing.finished_at);
    let took = took.map(|(begin, end)| format!(", took {}", duration::rounded(end.duration_since(begin))));
    Mark {
        kind,
        at: scale.percent(begin),
        until: scale.percent(end),
        title: format!("{kind}{why}, due"),
        time: firing.due,
        after: took.unwrap_or_default(),
        job: marked_job(firing).map(ToString::to_string),
        count: 1,
    }
}

/// Returns the job that the mark of a firing is about: of several jobs, the first with the status of the firing.
fn marked_job(firing: &PastFiring) -> Option<&JobId> {
    let with_status = firing.jobs.iter().find(|job| Some(job.status) == firing.job_status);
    with_status.map(|job| &job.id).or(firing.job.as_ref())
}

fn kind_of(firing: &PastFiring) -> &'static str {
    match (firing.outcome.as_str(), firing.job_status) {
        ("skipped", _) => "skipped",
        ("missed", _) => "missed",
        ("coalesced", _) => "coalesced",
        ("preparing", _) | (_, Some(JobStatus::Pending)) => "waiting",
        (_, Some(JobStatus::Running)) => "running",
        (_, Some(JobStatus::Failed)) => "failed",
        (_, Some(JobStatus::Cancelled)) => "cancelled",
        (_, Some(JobStatus::Completed) | None) => "done",
    }
}

impl Mark {
    /// Formats the label in UTC. The script shows its time in local time, as on the axis.
    fn label(&self) -> String {
        format!("{} {}{}", self.title, self.time.strftime("%b %-d %H:%M:%S UTC"), self.after)
    }
}

fn draw(mark: &Mark) -> Markup {
    let is_bar = mark.until - mark.at >= MERGE_DISTANCE;
    let shape = html! {
        title data-time=(mark.time) data-before=(mark.title) data-after=(mark.after) { (mark.label()) }
        @if is_bar {
            rect.bar x={ (mark.at) "%" } width={ (mark.until - mark.at) "%" } y="11" height="10" rx="3" {}
        } @else {
            // The shape is placed by the corner of an inner `svg`, because only positions in percent follow the width
            // of the window.
            svg.at x={ (mark.at) "%" } y="16" overflow="visible" { (shape_of(mark.kind)) }
        }
    };
    html! {
        g class={ "m m-" (mark.kind) } {
            @match &mark.job {
                Some(job) => a href={ "/jobs/" (job) } tabindex="-1" aria-label=(mark.label()) { (shape) },
                None => (shape),
            }
        }
    }
}

/// Draws the shape of a kind of mark.
fn shape_of(kind: &str) -> Markup {
    html! {
        @match kind {
            "done" => circle r="4" {},
            "running" => circle r="5" {},
            "failed" => path d="m-4-4 8 8m0-8-8 8" {},
            "cancelled" => path d="M-4 4 4-4" {},
            "skipped" => path d="M0-5 5 0 0 5-5 0Z" {},
            "missed" => path d="M-4 0h8" {},
            "coalesced" => path d="M-4-2h8m-8 4h8" {},
            "waiting" => circle r="4" {},
            _ => path d="M0-4v8" {},
        }
    }
}

fn axis(scale: &Scale, now: Timestamp) -> Markup {
    let times = (-4..=4).map(|step| now + SignedDuration::from_hours(step * 6));
    let visible: Vec<Timestamp> = times.filter(|time| (scale.from..=scale.to).contains(time)).collect();
    html! {
        svg.track aria-hidden="true" height="20" width="100%" {
            @for (number, time) in visible.iter().enumerate() {
                @let anchor = if number == 0 { "start" } else if number + 1 == visible.len() { "end" } else { "middle" };
                text class=[(number % 2 == 1).then_some("wide-only")] x={ (scale.percent(*time)) "%" } y="14" text-anchor=(anchor) data-clock=(time) {
                    @if *time == now { "now" } @else { (time.strftime("%H:%M")) }
                }
            }
        }
    }
}

fn legend() -> Markup {
    html! {
        ul.legend aria-label="Marks" {
            @for kind in ["done", "running", "failed", "cancelled", "skipped", "missed", "coalesced", "waiting", "planned"] {
                li { svg.track width="14" height="14" viewBox="-7 -7 14 14" aria-hidden="true" { g class={ "m m-" (kind) } { (shape_of(kind)) } } (kind) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(firings: &serde_json::Value, planned: &[&str]) -> Lane {
        let lane = serde_json::json!({
            "agent": "a", "schedule": "s", "type": "cron", "status": "idle", "firings": firings,
            "planned": planned, "cut": false,
        });
        serde_json::from_value(lane).unwrap()
    }

    fn firing(due: &str, outcome: &str, reason: Option<&str>, status: Option<&str>) -> serde_json::Value {
        serde_json::json!({
            "due": due, "outcome": outcome, "reason": reason, "job": null, "job_status": status,
            "started_at": null, "finished_at": null,
        })
    }

    #[test]
    fn the_mark_of_several_jobs_leads_to_the_job_with_its_status() {
        let mut several = firing("2026-01-01T00:00:00Z", "ran", None, Some("failed"));
        several["job"] = "job-2026-01-01-aaaaaa".into();
        several["jobs"] = serde_json::json!([
            {"id": "job-2026-01-01-aaaaaa", "status": "completed"},
            {"id": "job-2026-01-01-bbbbbb", "status": "failed"},
        ]);
        let mut pruned = several.clone();
        pruned["jobs"] = serde_json::json!([]);
        let lane = lane(&serde_json::json!([several, pruned]), &[]);
        let jobs: Vec<String> = lane.firings.iter().filter_map(marked_job).map(ToString::to_string).collect();
        assert_eq!(jobs, ["job-2026-01-01-bbbbbb", "job-2026-01-01-aaaaaa"]);
    }

    #[test]
    fn a_coalesced_firing_is_not_missed() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let scale =
            Scale { from: now - SignedDuration::from_hours(24), to: now + SignedDuration::from_hours(24) };
        let firings = serde_json::json!([
            firing("2026-01-01T12:00:00Z", "missed", None, None),
            firing("2026-01-01T00:00:00Z", "coalesced", None, None),
        ]);
        let lane = lane(&firings, &[]);
        let marks = marks_of(&lane, &scale, now);
        assert_eq!(marks.iter().map(|mark| mark.kind).collect::<Vec<_>>(), ["coalesced", "missed"]);
        let drawn = row(&lane, &scale, now).into_string();
        assert!(
            drawn.contains("1 missed, 1 coalesced, 0 planned") && drawn.contains("m-coalesced"),
            "{drawn}"
        );
        assert!(legend().into_string().contains("m-coalesced"));
    }

    #[test]
    fn a_firing_that_waits_is_drawn_from_its_due_time() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let scale =
            Scale { from: now - SignedDuration::from_hours(24), to: now + SignedDuration::from_hours(24) };
        let due = "2026-01-01T12:00:00Z".parse().unwrap();
        let (due_since, waits_for) = (Some(due), Some(SkipReason::AtCapacity));
        let lane = Lane { due_since, waits_for, ..lane(&serde_json::json!([]), &["2026-01-02T12:00:00Z"]) };
        let marks = marks_of(&lane, &scale, now);
        let drawn: Vec<_> = marks.iter().map(|mark| (mark.kind, mark.at, mark.until)).collect();
        assert_eq!(drawn, [("waiting", 25.0, 50.0), ("planned", 75.0, 75.0)]);
        assert!(marks[0].label().starts_with("waiting: at capacity, due Jan 1 12:00:00 UTC"));
        assert!(row(&lane, &scale, now).into_string().contains("0 running, 1 waiting, 0 skipped"));
    }

    #[test]
    fn marks_are_at_their_times_and_merged() {
        let now: Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
        let scale =
            Scale { from: now - SignedDuration::from_hours(24), to: now + SignedDuration::from_hours(24) };
        let firings = serde_json::json!([
            firing("2026-01-01T12:00:00Z", "skipped", Some("already_running"), None),
            firing("2026-01-01T00:05:00Z", "ran", None, Some("completed")),
            firing("2026-01-01T00:00:00Z", "ran", None, Some("completed")),
        ]);
        let lane = lane(&firings, &["2026-01-02T12:00:00Z"]);
        let marks = marks_of(&lane, &scale, now);
        let drawn: Vec<_> = marks.iter().map(|mark| (mark.kind, mark.at.round(), mark.count)).collect();
        assert_eq!(drawn, [("done", 0.0, 2), ("skipped", 25.0, 1), ("planned", 75.0, 1)]);
        assert!(
            marks[1].label().starts_with("skipped: already running, due Jan 1 12:00:00 UTC"),
            "{}",
            marks[1].label()
        );
    }
}
