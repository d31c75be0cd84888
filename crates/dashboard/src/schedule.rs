//! The page of a schedule: its state, its next firings, its definition, and its ledger.

use axum::extract::{Path, State};
use cowhand_core::id::JobId;
use cowhand_core::schedule::SkipReason;
use cowhand_core::shell::schedule_word;
use jiff::Timestamp;
use maud::{Markup, html};

use super::layout::{Frame, Tab, empty, part};
use super::text::ShownMessage;
use super::{PageAnswer, Pages, definition, elements, now, removed, text};
use cowhand_engine::fleet::{ScheduleStatus, ScheduleView};
use cowhand_web::api::{FiringView, Page, ScheduleWithFirings, segment};

pub(super) async fn page(
    State(pages): State<Pages>,
    Path((agent, schedule)): Path<(String, String)>,
) -> PageAnswer {
    let now = now();
    let base = format!("schedules/{}/{}", segment(&agent), segment(&schedule));
    let ScheduleWithFirings { schedule: view, firings } =
        match pages.client.get(&format!("{base}?firings=100")).await {
            Ok(answer) => answer,
            Err(problem) => return removed::page(&pages, &agent, Some(&schedule), problem).await,
        };
    let firings = firings.unwrap_or_default();
    let next: Page<Timestamp> = pages.client.get(&format!("{base}/next?count=10")).await?;
    let definition = pages.definition(&view).await?;
    let main = html! {
        (head(&view, &base, now))
        @if !next.items.is_empty() {
            (part("next", "Next firings", &html! {}, &coming(&next.items, now)))
        }
        (definition::part(&definition, &view))
        (part("ledger", "Ledger", &html! { span.muted { "the latest first" } }, &table(&view, &firings)))
    };
    let title = format!("{} · {}", text::short(view.schedule.as_str(), 60), view.agent);
    let follow = format!("agent={}", view.agent);
    pages.page(Frame { title: &title, tab: Tab::Fleet, follow: Some(&follow) }, main).await
}

fn head(view: &ScheduleView, base: &str, now: Timestamp) -> Markup {
    let is_off =
        matches!(view.status, ScheduleStatus::Disabled | ScheduleStatus::Error | ScheduleStatus::Paused);
    html! {
        div #head data-live {
            div.page-head {
                div {
                    p.over { (elements::agent(&view.agent)) }
                    h1.any { (text::Text(view.schedule.as_str())) }
                }
                div.buttons.script {
                    @if is_off && view.off_in_file.is_none() {
                        button data-post={ "/api/v1/" (base) "/enable" } data-said="The schedule is on." { "Enable" }
                    } @else if !is_off {
                        button data-post={ "/api/v1/" (base) "/disable" } data-said="The schedule is off." { "Disable" }
                    }
                    button.primary data-post={ "/api/v1/" (base) "/fire" } data-then="job" { "Fire now" }
                }
            }
            dl.grid {
                div { dt { "Status" } dd { (elements::status(view.status.as_str())) } }
                div { dt { "Type" } dd { (view.kind) } }
                div { dt { "Last own run" } dd { @if let Some(time) = view.last_run_at { (elements::from_now(time, now)) } @else { "never" } } }
                div { dt { "Next" } dd { (super::agent::next(view, now)) } }
                @if let Some(due) = view.due_since { div { dt { "Due since" } dd { (elements::from_now(due, now)) (view.due_again_in_words()) } } }
            }
            @if let Some(advice) = view.off_in_file_advice() { p.alert { "It is " (ShownMessage(&advice)) "." } }
            @if let Some(note) = &view.skip_note {
                p.alert {
                    b { @match view.skip_note_reason {
                        _ if view.never_fires.is_some() => "It does not fire: ",
                        Some(SkipReason::Paused) => "It has paused itself: ",
                        Some(SkipReason::UsageLimit) => "Its provider is used up: ",
                        Some(SkipReason::ReserveReached) => "Its provider keeps a reserve: ",
                        Some(SkipReason::Requeued) => "A job is tried again: ",
                        Some(SkipReason::OverBudget) => "Over budget: ",
                        Some(SkipReason::NotDue) => "It is not due: ",
                        Some(SkipReason::Disabled) => "It is turned off: ",
                        _ => "It waits: ",
                    } }
                    (ShownMessage(note))
                    @if let Some(until) = view.skip_until {
                        @let what = if view.skip_note_reason == Some(SkipReason::Disabled) { "The pause" } else { "That" };
                        ". " (what) " ends " (elements::due(until, now)) "."
                    }
                }
            }
            @if let Some(failed) = &view.failed_attempt { p.alert { b { "A job waits for a retry: " } (ShownMessage(failed)) } }
            @if let (true, Some(reason), None) = (view.preparing, &view.prepare_error, &view.last_error) {
                p.alert { b { "It is not prepared yet: " } (ShownMessage(reason)) }
            } @else if view.preparing {
                p.alert {
                    b { "It is being prepared" }
                    @if let Some(since) = view.preparing_since { ", since it fired " (elements::from_now(since, now)) }
                    @if let Some(by) = &view.preparing_by { ": it waits for the answer of " (ShownMessage(by)) }
                    "."
                }
            }
            @if let Some(note) = &view.adopt_note { p.alert { (ShownMessage(note)) } }
            @let failing = view.failing_trigger(false, now);
            @if let Some(why) = &failing { p.alert { b { "Its trigger fails" } ", " (ShownMessage(why)) "." } }
            @let is_shown = |error: &&String| failing.is_some() && view.trigger_error.as_ref().is_some_and(|shown| shown.message == **error);
            @if let Some(error) = view.last_error.as_ref().filter(|error| !is_shown(error)) { p.alert { b { (if view.status == ScheduleStatus::Error { "It stopped because of an error: " } else { "Last error: " }) } (ShownMessage(error)) } }
        }
    }
}

fn coming(times: &[Timestamp], now: Timestamp) -> Markup {
    html! {
        ol.coming { @for time in times { li { (elements::at(*time)) " " span.muted { (elements::due(*time, now)) } } } }
    }
}

/// Shows the ledger. A firing with several jobs has one row for each of them.
fn table(view: &ScheduleView, firings: &[FiringView]) -> Markup {
    if firings.is_empty() {
        let command = format!("cowhand why {}", text::plain(&schedule_word(&view.agent, &view.schedule)));
        return empty("It has not fired yet. Why it does not run:", Some(&command));
    }
    html! {
        table {
            thead { tr { th { "Due" } th { "Outcome" } th { "Why" } th { "Job" } th.wide.grow { "Key" } } }
            tbody {
                @for firing in firings {
                    tr {
                        td { (elements::at(firing.due)) }
                        td { (outcome(firing)) }
                        td {
                            @if let Some(reason) = firing.reason { (reason.as_str().replace('_', " ")) " " }
                            span.muted { (ShownMessage(&firing.why)) }
                        }
                        td { @if let Some(job) = first_job(firing) { (elements::job(job)) } @else { span.muted { "–" } } }
                        td.wide.grow { code.any { (text::short(firing.key.as_str(), 80)) } }
                    }
                    @for job in firing.jobs.iter().skip(1) {
                        tr {
                            td {}
                            td { (elements::job_status(job.status)) }
                            td {}
                            td { (elements::job(&job.id)) }
                            td.wide.grow {}
                        }
                    }
                }
            }
        }
    }
}

/// Shows the outcome of a firing. If the firing ran, shows the status of its first job that still exists.
fn outcome(firing: &FiringView) -> Markup {
    match (firing.outcome.as_str(), firing.jobs.first()) {
        ("ran", Some(job)) => elements::job_status(job.status),
        // The jobs of the firing were pruned.
        ("ran", None) => elements::status_as("idle", "ran"),
        (outcome, _) => elements::status(outcome),
    }
}

/// Returns the first job that still exists. If all jobs were pruned, returns the first job, which the ledger still
/// names.
fn first_job(firing: &FiringView) -> Option<&JobId> {
    firing.jobs.first().map(|job| &job.id).or(firing.job.as_ref())
}
