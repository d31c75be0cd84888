//! The page of an agent: its settings, schedules and jobs, and a form that triggers it.

use axum::extract::{Path, State};
use cowhand_core::job::JobRecord;
use cowhand_core::schedule::SkipReason;
use jiff::Timestamp;
use maud::{Markup, html};

use super::layout::{Frame, Tab, empty, part};
use super::{PageAnswer, Pages, chat_bots, elements, jobs, now, removed, text};
use cowhand_engine::fleet::{ScheduleStatus, ScheduleView};
use cowhand_web::api::{AgentView, Page, StatusView, segment};

pub(super) async fn page(State(pages): State<Pages>, Path(name): Path<String>) -> PageAnswer {
    let now = now();
    let agent: AgentView = match pages.client.get(&format!("agents/{}", segment(&name))).await {
        Ok(agent) => agent,
        Err(problem) => return removed::page(&pages, &name, None, problem).await,
    };
    let schedules: Page<ScheduleView> = pages.client.get("schedules").await?;
    let mut schedules = schedules.items;
    schedules.retain(|schedule| schedule.agent == agent.name);
    let latest: Page<JobRecord> =
        pages.client.get(&format!("jobs?agent={}&limit=20", segment(&name))).await?;
    let jobs_address = format!("/jobs?agent={}", segment(&name));
    let status: StatusView = pages.client.get("status").await?;
    let gone = status.gone_schedules.iter().filter(|gone| gone.agent == agent.name);
    let nothing = if agent.adopted.is_empty() {
        "It has run nothing yet. To run it now:"
    } else {
        "Only the jobs of adopted schedules have run so far, under the name of another agent. To run this agent now:"
    };
    let main = html! {
        (head(&agent))
        div #adopted data-live { @for job in &agent.adopted {
            p.alert { (elements::job(&job.id)) ": " (text::ShownMessage(&job.sentence(&agent.name))) "." } } }
        div #gone data-live { @for gone in gone { p.alert { b { "Not in the config" } ": " (text::ShownMessage(&gone.sentence())) "." } } }
        (chat_bots::of_agent(&status, &agent.name, now))
        (trigger(&agent))
        (part("schedules", "Schedules", &html! {}, &table(&schedules, now)))
        (part("latest", "Latest jobs", &html! { a href=(jobs_address) { "All its jobs" } }, &jobs::table(&latest.items, now,
            &empty(nothing, Some(&format!("cowhand trigger {}", agent.name))))))
    };
    let follow = format!("agent={}", agent.name);
    pages.page(Frame { title: agent.name.as_str(), tab: Tab::Fleet, follow: Some(&follow) }, main).await
}

fn head(agent: &AgentView) -> Markup {
    html! {
        div.page-head #head data-live {
            h1 { (agent.name.as_str()) }
            p.facts {
                span { (agent.running) " of " (agent.max_concurrent) " running" }
                span { (agent.queued) " waiting" }
                span { "runtime " code { (agent.runtime) } }
                span.any { "in " code { (text::plain(&agent.directory)) } }
            }
            @if agent.web_chat {
                div.buttons {
                    a.button href={ "/chat/new?agent=" (segment(agent.name.as_str())) } { "New conversation" }
                    a.button href={ "/chat?agent=" (segment(agent.name.as_str())) } { "Conversations" }
                }
            }
        }
        @if let Some(description) = &agent.description { p.lead { (text::Text(description)) } }
    }
}

fn trigger(agent: &AgentView) -> Markup {
    html! {
        form.inline.script data-post={ "/api/v1/agents/" (segment(agent.name.as_str())) "/trigger" } data-then="job" {
            label for="prompt" { "Run it now, with" }
            textarea #prompt name="prompt" rows="1" placeholder="its own prompt, or write another" {}
            button.primary { "Run" }
        }
    }
}

pub(super) fn table(schedules: &[ScheduleView], now: Timestamp) -> Markup {
    if schedules.is_empty() {
        return empty(
            "It has no schedules. It runs when a person triggers it, or when another agent requests a follow-up. docs/config.md describes schedules.",
            None,
        );
    }
    html! {
        table {
            thead { tr { th { "Schedule" } th.wide { "Type" } th { "Status" } th.wide { "Last own run" } th.end { "Next" } } }
            tbody {
                @for schedule in schedules {
                    tr {
                        td { b { a.any href=(elements::schedule_address(&schedule.agent, &schedule.schedule)) data-row {
                            (text::short(schedule.schedule.as_str(), 60)) } } }
                        td.wide { (schedule.kind) }
                        td { (elements::status(schedule.status.as_str()))
                            @if schedule.status == ScheduleStatus::Error { @if let Some(error) = &schedule.last_error {
                                span.any.bad { " " (text::short_message(error, 80)) } } }
                            @if let Some(why) = schedule.failing_trigger(false, now) {
                                span.any.bad { " trigger fails, " (text::short_message(&why, 80)) } }
                            @if let Some(why) = schedule.refuses_deliveries() {
                                span.any.bad { " " (text::short_message(why, 80)) } } }
                        td.wide { @if let Some(time) = schedule.last_run_at { (elements::from_now(time, now)) } @else { span.muted { "never" } } }
                        td.end { (next(schedule, now)) }
                    }
                }
            }
        }
    }
}

/// Shows the time of the next firing, and the reason why the schedule does not fire now or has no next firing.
pub(super) fn next(schedule: &ScheduleView, now: Timestamp) -> Markup {
    html! {
        @if let Some(time) = schedule.next_run_at { (elements::due(time, now)) }
        @match (schedule.next_run_at, schedule.skip_reason) {
            _ if let Some(never) = &schedule.never_fires => span.bad { "never: " (text::ShownMessage(never)) },
            (Some(_), Some(SkipReason::NotDue) | None) => {},
            (Some(_), Some(reason)) => span.muted { " · " (reason.as_str().replace('_', " ")) },
            (None, Some(SkipReason::UnsupportedType)) => span.muted { "when something fires it" },
            (None, _) if schedule.preparing => span.muted { "being prepared" },
            (None, _) if schedule.status == ScheduleStatus::Error => span.muted { "stopped by an error" },
            (None, Some(SkipReason::NotDue)) => span.muted { "never again" },
            (None, Some(reason)) => span.muted { (reason.as_str().replace('_', " ")) },
            (None, None) => span.muted { "–" },
        }
    }
}
