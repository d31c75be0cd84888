//! The list of jobs, the newest first, with the filters of the query.

use axum::extract::State;
use cowhand_core::id::AgentName;
use cowhand_core::job::{JobRecord, JobStatus, TriggerType};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::layout::{Frame, Tab, empty};
use super::{PageAnswer, Pages, Params, elements, now, query, text};
use cowhand_web::api::{AgentView, Page, segment};

/// Query of the page. All fields are text, because a form sends an empty text for a field without a value.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct JobsPageQuery {
    agent: String,
    schedule: String,
    status: String,
    trigger_type: String,
    search: String,
    after: String,
}

impl JobsPageQuery {
    fn fields(&self) -> [(&'static str, &str); 5] {
        [
            ("agent", &self.agent),
            ("schedule", &self.schedule),
            ("status", &self.status),
            ("trigger_type", &self.trigger_type),
            ("search", &self.search),
        ]
    }

    /// Returns the filters that are set, as [`query`] formats them. `after` is not a filter.
    fn query(&self) -> String {
        query(&self.fields())
    }

    fn has_filter(&self) -> bool {
        self.fields().iter().any(|(_, value)| !value.is_empty())
    }
}

const STATUSES: [JobStatus; 5] =
    [JobStatus::Pending, JobStatus::Running, JobStatus::Completed, JobStatus::Failed, JobStatus::Cancelled];
const TRIGGERS: [TriggerType; 8] = [
    TriggerType::Manual,
    TriggerType::Schedule,
    TriggerType::Webhook,
    TriggerType::Chat,
    TriggerType::Discord,
    TriggerType::Slack,
    TriggerType::Web,
    TriggerType::Fork,
];

pub(super) async fn page(State(pages): State<Pages>, Params(params): Params<JobsPageQuery>) -> PageAnswer {
    let now = now();
    let after =
        if params.after.is_empty() { String::new() } else { format!("after={}&", segment(&params.after)) };
    let jobs: Page<JobRecord> = pages.client.get(&format!("jobs?{}{after}limit=50", params.query())).await?;
    let agents: Page<AgentView> = pages.client.get("agents").await?;
    let removed: Page<AgentName> = pages.client.get("removed/agents").await?;
    let names: Vec<&str> =
        agents.items.iter().map(|agent| &agent.name).chain(&removed.items).map(AgentName::as_str).collect();
    let empty_message = if params.has_filter() {
        html! { p.empty { "No job matches the filter. " a href="/jobs" { "Show all" } } }
    } else {
        empty("There are no jobs yet. To create one:", Some("cowhand trigger AGENT"))
    };
    let main = html! {
        div.page-head { h1 { "Jobs" } }
        (filters(&params, &names))
        section #jobs data-live aria-label="Jobs" {
            (table(&jobs.items, now, &empty_message))
            nav.pager aria-label="Pages of the list" {
                @if !params.after.is_empty() { a href={ "/jobs?" (params.query()) } { "Newest" } }
                @if let Some(next) = &jobs.next_cursor {
                    a href={ "/jobs?" (params.query()) "after=" (segment(next)) } rel="next" { "Older" }
                }
            }
        }
    };
    pages.page(Frame { title: "Jobs", tab: Tab::Jobs, follow: None }, main).await
}

fn filters(params: &JobsPageQuery, agents: &[&str]) -> Markup {
    html! {
        form.filters action="/jobs" method="get" role="search" aria-label="Filter jobs" {
            label.search { span { "Search" } input #search type="search" name="search" value=(params.search) placeholder="words of the prompt or the summary"; }
            (choice("agent", "Agent", &params.agent, agents.iter().copied()))
            (choice("status", "Status", &params.status, STATUSES.iter().map(|status| status.as_str())))
            (choice("trigger_type", "Trigger", &params.trigger_type, TRIGGERS.iter().map(|kind| kind.as_str())))
            @if !params.schedule.is_empty() { input type="hidden" name="schedule" value=(params.schedule); }
            div.buttons {
                button { "Filter" }
                @if params.has_filter() { a.button href="/jobs" { "Clear" } }
            }
        }
    }
}

fn choice<'a>(name: &str, label: &str, chosen: &str, values: impl Iterator<Item = &'a str>) -> Markup {
    html! {
        label {
            span { (label) }
            select name=(name) {
                option value="" { "any" }
                @for value in values { option value=(value) selected[value == chosen] { (value) } }
            }
        }
    }
}

/// Renders the jobs as a table, or `empty_message` if there are no jobs.
pub(super) fn table(jobs: &[JobRecord], now: Timestamp, empty_message: &Markup) -> Markup {
    if jobs.is_empty() {
        return empty_message.clone();
    }
    html! {
        table {
            thead { tr {
                th { "Job" } th { "Status" } th { "Agent" } th.wide { "Schedule" } th.wide { "Trigger" }
                th { "Created" } th.wide.end { "Duration" } th.wide.end { "Cost" } th.wide.grow { "Description" }
            } }
            tbody {
                @for job in jobs {
                    tr {
                        td { (elements::job(&job.id)) }
                        td { (elements::job_status(job.status)) }
                        td { (elements::agent(&job.agent)) }
                        td.wide { @if let Some(name) = &job.schedule { (elements::schedule(&job.agent, name)) } @else { span.muted { "–" } } }
                        td.wide { (job.trigger_type.as_str()) @if let Some(message) = &job.message { span.muted { " " (text::short(&message.author_in_words(), 40)) } } }
                        td { (elements::from_now(job.started_at, now)) }
                        td.wide.end { (elements::job_duration(job, now)) }
                        td.wide.end { (elements::cost(job.usage.as_ref())) }
                        td.wide.grow { (elements::about(job)) }
                    }
                }
            }
        }
    }
}
