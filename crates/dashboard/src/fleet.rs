//! The page of the fleet: problems, open asks, running and waiting jobs, next firings, failures and agents.

use std::collections::BTreeSet;

use axum::extract::State;
use cowhand_core::ask::Ask;
use cowhand_core::budget::{sum_in_words, tokens};
use cowhand_core::job::JobRecord;
use cowhand_core::schedule::SkipReason;
use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};

use super::layout::{Frame, Tab, empty, part};
use super::text::ShownMessage;
use super::{PageAnswer, Pages, asks, budgets, chat_bots, elements, now, text};
use cowhand_engine::fleet::{ScheduleStatus, ScheduleView};
use cowhand_engine::unfinished::UnfinishedWorkspace;
use cowhand_web::api::{
    AgentView, ApiProblem, ListedJob, Page, ProviderUsage, StatusView, Total, UsageView, Waits,
    removed_agent_sentence, segment,
};

/// Maximum number of schedules in the list of next firings.
const NEXT_FIRINGS_SHOWN: usize = 8;

pub(super) async fn page(State(pages): State<Pages>) -> PageAnswer {
    let now = now();
    let client = &pages.client;
    let status: StatusView = client.get("status").await?;
    let running: Page<JobRecord> = client.get("jobs?status=running&limit=50").await?;
    let waiting: Page<ListedJob> = client.get("jobs?status=pending&limit=10").await?;
    let day_ago = segment(&(now - SignedDuration::from_hours(24)).to_string());
    let failed: Page<JobRecord> = client.get(&format!("jobs?status=failed&since={day_ago}&limit=8")).await?;
    let schedules: Page<ScheduleView> = client.get("schedules").await?;
    // The API divides the usage into days of the fleet's time zone; the last one is today.
    let spent: UsageView = client.get("usage").await?;
    let today = spent.days.last().map(|day| day.total).unwrap_or_default();
    let tight = budgets::tight(&spent.budgets);
    let asks: Page<Ask> = client.get("asks").await?;
    let lines = last_lines(&pages, &running.items).await?;
    let main = html! {
        (head(&status, &today, &spent, now))
        (alerts(&status, &schedules.items, now))
        (asks::waiting(&asks.items))
        @if !tight.is_empty() {
            (part("budgets", "Budgets that are nearly used up", &html! { a href="/usage" { "All budgets" } }, &budgets::table(&tight)))
        }
        @if schedules.items.iter().any(|schedule| stop_reason(schedule, now).is_some()) {
            (part("stopped", "Schedules that do not fire", &html! {}, &do_not_fire(&schedules.items, now)))
        }
        (part("running", "Running now", &more_link(status.running, running.items.len(), "running"), &running_now(&running.items, &lines, now)))
        @if !waiting.items.is_empty() {
            (part("waiting", "Waiting", &more_link(status.queued, waiting.items.len(), "pending"), &waiting_now(&waiting.items, now)))
        }
        div.columns {
            (part("next", "Fires next", &html! { a href="/timeline" { "Timeline" } }, &fires_next(schedules.items, now)))
            (part("failed", "Failed in the last 24 hours", &html! { a href="/jobs?status=failed" { "All failed jobs" } },
                &failed_lately(&failed.items)))
        }
        @if !status.provider_usage.is_empty() { (part("provider-usage", "Usage windows of providers", &html! {}, &provider_usage(&status.provider_usage, now))) }
        (part("agents", "Agents", &html! {}, &agents(&status.agents, now)))
        @if !status.chat_bots.is_empty() { (part("chat-bots", "Chat bots", &html! {}, &chat_bots::table(&status, now))) }
    };
    pages.page(Frame { title: "Fleet", tab: Tab::Fleet, follow: None }, main).await
}

/// Returns the time before which a job does not start, if that time is known and in the future. The time is the end of
/// the job's backoff, of the usage limit of its provider or of the pause of its schedule.
fn wait_ends(listed: &ListedJob, now: Timestamp) -> Option<Timestamp> {
    let until = listed.waits.as_ref().and_then(Waits::ends);
    let not_before = listed.job.not_before.filter(|_| listed.waits.as_ref().is_none_or(Waits::allows_start));
    until.max(not_before).filter(|until| *until > now)
}

async fn last_lines(pages: &Pages, running: &[JobRecord]) -> Result<Vec<String>, ApiProblem> {
    let mut lines = Vec::new();
    for job in running {
        lines.push(pages.tail(&job.id).await?.last_line);
    }
    Ok(lines)
}

/// Renders a link to the complete list, if not all jobs are shown.
fn more_link(all: usize, shown: usize, status: &str) -> Markup {
    html! {
        @if all > shown {
            span.muted { (shown) " of " (all) }
            a href={ "/jobs?status=" (status) } { "All " (all) }
        }
    }
}

fn head(status: &StatusView, today: &Total, spent: &UsageView, now: Timestamp) -> Markup {
    let StatusView { daemon, agents, running, queued, given_up, untold, .. } = status;
    let tokens = tokens(&today.usage);
    html! {
        div.page-head #head data-live {
            h1 { "Fleet" }
            p.facts {
                @if daemon.stopping { (elements::status("error")) " stopping" }
                @if let Some(since) = daemon.started_at { span { "up " (elements::elapsed(since, now)) } }
                span { (agents.len()) @if agents.len() == 1 { " agent" } @else { " agents" } }
                span { (running) " running" }
                span { (queued) " waiting" }
                @if !untold.is_empty() { a.bad href="/work" { (untold.len()) " not reported" } }
                @if !given_up.is_empty() { a.bad href="/work" { (given_up.len()) " given up" } }
                a href="/usage" title={ "today, in " (spent.time_zone) } {
                    @match today.usage.cost_usd {
                        // No price is known.
                        None if tokens > 0 && spent.budgets.is_empty() => { (elements::count(tokens)) " tokens" }
                        dollars => { (sum_in_words(dollars.unwrap_or_default(), today.assumed_usd)) (budgets::of_today(&spent.budgets)) }
                    }
                    " today"
                }
            }
        }
    }
}

/// Shows problems of the store, the config, budgets, providers and work sources.
fn alerts(status: &StatusView, schedules: &[ScheduleView], now: Timestamp) -> Markup {
    let over_budget = schedules.iter().filter(|view| view.skip_note_reason == Some(SkipReason::OverBudget));
    // Several schedules can have the same note about one budget.
    let over_budget: BTreeSet<&str> = over_budget.filter_map(|view| view.skip_note.as_deref()).collect();
    html! {
        div #alerts data-live {
            @if let Some(problem) = &status.daemon.store_problem {
                p.alert { b { "No new work is accepted" } ": " (ShownMessage(problem)) }
            }
            @if let Some(at) = status.daemon.config_refused_at.filter(|_| status.daemon.config_missing) {
                p.alert { b { "The config file does not exist" } " (noticed " (elements::from_now(at, now)) "), and the previous config stays in use; put the file back." }
            } @else if let Some(at) = status.daemon.config_refused_at {
                p.alert { b { "The config on disk was refused " (elements::from_now(at, now)) } ", and the previous config stays in use; " code { "cowhand config check" } " shows its errors." }
            }
            @for gone in &status.gone {
                p.alert { b { "Not in the config" } ": " (elements::agent(&gone.agent)) "; " (ShownMessage(&removed_agent_sentence(&gone.agent, Some(gone)))) "." }
            }
            @for gone in &status.gone_schedules {
                p.alert { b { "Not in the config" } ": " (ShownMessage(&gone.sentence())) "." }
            }
            @if let Some(kept) = UnfinishedWorkspace::sentence(&status.unfinished_workspaces.iter().collect::<Vec<_>>()) {
                p.alert { b { "Unfinished" } ": " (ShownMessage(&kept)) }
            }
            @for skipped in &status.skipped_files { p.alert { b { "Skipped files" } ": " (ShownMessage(&skipped.sentence())) } }
            @for bot in chat_bots::refused(status) { p.alert { b { "A chat bot is refused" } ": " (text::plain(&bot.bot)) " " (ShownMessage(&chat_bots::state(bot, status, now))) "." } }
            @for target in &status.undelivered_notifications {
                p.alert { b { "Not delivered" } ": " (ShownMessage(&target.sentence(now))) " " a href="/notifications" { "All notifications" } }
            }
            @for note in over_budget { p.alert { b { "Over budget: " } (ShownMessage(note)) } }
            @for parked in &status.parked {
                p.alert { b { (text::plain(&parked.provider)) " is used up" } ", until " (elements::at(parked.until)) ": " (ShownMessage(&parked.message)) }
            }
            @for reached in status.provider_usage.iter().filter_map(|usage| usage.reached.as_ref()) {
                p.alert { b { "No automatic job starts at " (text::plain(&reached.provider)) } ", until " (elements::at(reached.until)) ": " (ShownMessage(&reached.sentence())) }
            }
        }
    }
}

/// Returns why a schedule does not fire although it is not disabled, or why its firing cannot be prepared. A disabled
/// schedule can also have a firing that cannot be prepared.
fn stop_reason(schedule: &ScheduleView, now: Timestamp) -> Option<String> {
    match schedule.status {
        ScheduleStatus::Error => schedule.last_error.clone(),
        ScheduleStatus::Paused => schedule.skip_note.clone(),
        _ if schedule.preparing => schedule.unprepared(),
        ScheduleStatus::Idle | ScheduleStatus::Running
            if let Some(why) = schedule.failing_trigger(false, now) =>
        {
            Some(format!("its trigger fails, {why}"))
        }
        _ if let Some(why) = schedule.refuses_deliveries() => Some(why.to_owned()),
        ScheduleStatus::Idle | ScheduleStatus::Running if schedule.is_starved(now) => {
            let since = schedule.due_since?;
            let (again, why) = (schedule.due_again_in_words(), schedule.awaited()?);
            Some(format!("it was due at {since:.0}{again}: {why}"))
        }
        ScheduleStatus::Idle | ScheduleStatus::Running if let Some(never) = &schedule.never_fires => {
            Some(format!("it can never fire: {never}"))
        }
        ScheduleStatus::Idle
        | ScheduleStatus::Running
        | ScheduleStatus::Disabled
        | ScheduleStatus::Finished => None,
    }
}

fn do_not_fire(schedules: &[ScheduleView], now: Timestamp) -> Markup {
    html! {
        table {
            thead { tr { th { "Schedule" } th { "Agent" } th { "Status" } th.grow { "Why" } } }
            tbody {
                @for (schedule, why) in schedules.iter().filter_map(|schedule| Some((schedule, stop_reason(schedule, now)?))) {
                    tr {
                        td { (elements::schedule(&schedule.agent, &schedule.schedule)) }
                        td { (elements::agent(&schedule.agent)) }
                        td {
                            @if schedule.prepare_error.is_some() && schedule.status != ScheduleStatus::Disabled { (elements::status_as("paused", "not prepared")) }
                            @else if schedule.failing_trigger(false, now).is_some() { (elements::status_as("error", "trigger fails")) }
                            @else if schedule.refuses_deliveries().is_some() { (elements::status_as("error", "refuses")) }
                            @else if schedule.never_fires.is_some() { (elements::status_as("error", "never fires")) }
                            @else if schedule.is_starved(now) { (elements::status_as("paused", "waits")) }
                            @else { (elements::status(schedule.status.as_str())) }
                        }
                        td.grow { (ShownMessage(&why)) }
                    }
                }
            }
        }
    }
}

fn running_now(running: &[JobRecord], lines: &[String], now: Timestamp) -> Markup {
    if running.is_empty() {
        return empty("Nothing runs right now. To run something:", Some("cowhand trigger AGENT"));
    }
    html! {
        ul.runs data-poll {
            @for (job, line) in running.iter().zip(lines) {
                li {
                    div.run-head {
                        (elements::job_status(job.status))
                        b { (elements::agent(&job.agent)) }
                        @if let Some(schedule) = &job.schedule { span.muted { (elements::schedule(&job.agent, schedule)) } }
                        (elements::job(&job.id))
                        @if let Some(since) = job.attempt_started_at { (elements::elapsed(since, now)) }
                    }
                    p.last-line { @if line.is_empty() { span.muted { "no output yet" } } @else { (line) } }
                }
            }
        }
    }
}

fn waiting_now(waiting: &[ListedJob], now: Timestamp) -> Markup {
    html! {
        table {
            thead { tr { th { "Job" } th { "Agent" } th.wide { "Schedule" } th { "Created" } th.wide.grow { "Waits for" } } }
            tbody {
                @for listed in waiting {
                    @let job = &listed.job;
                    tr {
                        td { (elements::job(&job.id)) }
                        td { (elements::agent(&job.agent)) }
                        td.wide { @if let Some(name) = &job.schedule { (elements::schedule(&job.agent, name)) } }
                        td { (elements::from_now(job.started_at, now)) }
                        td.wide.grow { (waits_for(listed, now)) }
                    }
                }
            }
        }
    }
}

/// Renders the reason for which a job waits, and the end of the wait if it is known.
fn waits_for(listed: &ListedJob, now: Timestamp) -> Markup {
    let end = wait_ends(listed, now);
    html! {
        @match (&listed.waits, end) {
            (Some(waits), _) => span.any { (text::short_message(&waits.message, 120)) },
            (None, Some(_)) => "its start time",
            (None, None) => span.muted { "–" },
        }
        @if let Some(end) = end { span.muted { " · ends " (elements::due(end, now)) } }
    }
}

fn fires_next(mut schedules: Vec<ScheduleView>, now: Timestamp) -> Markup {
    schedules.retain(|schedule| schedule.next_run_at.is_some());
    schedules.sort_by_key(|schedule| schedule.next_run_at);
    if schedules.is_empty() {
        return empty(
            "No schedule is waiting for a time. To list all schedules:",
            Some("cowhand schedule list"),
        );
    }
    html! {
        table {
            thead { tr { th { "Schedule" } th { "Agent" } th.end { "When" } } }
            tbody {
                @for schedule in schedules.iter().take(NEXT_FIRINGS_SHOWN) {
                    tr {
                        td { (elements::schedule(&schedule.agent, &schedule.schedule)) }
                        td { (elements::agent(&schedule.agent)) }
                        td.end { @if let Some(time) = schedule.next_run_at { (elements::due(time, now)) } }
                    }
                }
            }
        }
    }
}

fn failed_lately(failed: &[JobRecord]) -> Markup {
    if failed.is_empty() {
        return empty("Nothing failed.", None);
    }
    html! {
        table {
            thead { tr { th { "Job" } th { "Agent" } th.grow { "Why" } } }
            tbody {
                @for job in failed {
                    tr { td { (elements::job(&job.id)) } td { (elements::agent(&job.agent)) } td.grow { (elements::about(job)) } }
                }
            }
        }
    }
}

fn provider_usage(usages: &[ProviderUsage], now: Timestamp) -> Markup {
    html! {
        table {
            thead { tr { th { "Provider" } th { "Window" } th.end { "Used" } th.end { "Reserve" } th { "Resets" } th.wide { "Reported" } } }
            tbody {
                @for usage in usages {
                    @let reserve = usage.reserve.map_or_else(|| "–".to_owned(), |reserve| reserve.to_string());
                    @for window in &usage.windows {
                        tr {
                            td { (text::plain(&usage.provider)) }
                            td { (window.window.in_words()) }
                            td.end { span.number { (window.used_percent) "%" } }
                            td.end { span.number { (reserve) } }
                            td { (elements::due(window.resets_at, now)) }
                            td.wide { (elements::from_now(window.reported_at, now)) }
                        }
                    }
                    @if usage.windows.is_empty() {
                        tr {
                            td { (text::plain(&usage.provider)) }
                            td.muted { "not reported" }
                            td.end { "–" }
                            td.end { span.number { (reserve) } }
                            td { "–" }
                            td.wide { "–" }
                        }
                    }
                }
            }
        }
    }
}

fn agents(agents: &[AgentView], now: Timestamp) -> Markup {
    if agents.is_empty() {
        return empty(
            "There are no agents yet. For a first fleet that works as it is:",
            Some("cowhand init"),
        );
    }
    html! {
        table {
            thead { tr { th { "Agent" } th.wide.grow { "Description" } th { "Running" } th.wide { "Waiting" } th { "Last job" } th.end { "Next" } } }
            tbody {
                @for agent in agents {
                    tr {
                        td { b { a href=(elements::agent_address(&agent.name)) data-row { (agent.name.as_str()) } } }
                        td.wide.grow.muted { (text::short(agent.description.as_deref().unwrap_or_default(), 100)) }
                        td { span.number { (agent.running) " / " (agent.max_concurrent) } }
                        td.wide { span.number { (agent.queued) } }
                        td { @if let Some(last) = &agent.last_job {
                            a.plain href={ "/jobs/" (last.id.as_str()) } { (elements::job_status(last.status)) }
                            span.muted.wide { " " (elements::from_now(last.finished_at.unwrap_or(last.started_at), now)) }
                        } @else { span.muted { "none yet" } } }
                        td.end { @if let Some(next) = &agent.next { (elements::due(next.at, now)) } @else { span.muted { "–" } } }
                    }
                }
            }
        }
    }
}
