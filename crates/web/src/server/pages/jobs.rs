//! The list of jobs, the newest first, with the filters of the query.

use axum::extract::State;
use cowhand_core::job::{JobRecord, JobStatus, TriggerType};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::Deserialize;

use super::layout::{Frame, Tab, empty};
use super::{PageAnswer, Pages, Params, marks, now, query};
use crate::api::{AgentView, Page, segment};

/// Query of the page. All fields are text, and empty where a form leaves them empty.
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

    /// Returns the fields that are set, as a query.
    fn query(&self) -> String {
        query(&self.fields())
    }

    fn is_filter(&self) -> bool {
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

pub(super) async fn page(State(pages): State<Pages>, Params(asked): Params<JobsPageQuery>) -> PageAnswer {
    let now = now();
    let after =
        if asked.after.is_empty() { String::new() } else { format!("after={}&", segment(&asked.after)) };
    let jobs: Page<JobRecord> = pages.client.get(&format!("jobs?{}{after}limit=50", asked.query())).await?;
    let agents: Page<AgentView> = pages.client.get("agents").await?;
    let nothing = if asked.is_filter() {
        html! { p.empty { "No job is like that. " a href="/jobs" { "Show all" } } }
    } else {
        empty("There are no jobs yet. To make one:", Some("cowhand trigger AGENT"))
    };
    let main = html! {
        div.page-head { h1 { "Jobs" } }
        (filters(&asked, &agents.items))
        section #jobs data-live aria-label="Jobs" {
            (table(&jobs.items, now, &nothing))
            nav.pager aria-label="Parts of the list" {
                @if !asked.after.is_empty() { a href={ "/jobs?" (asked.query()) } { "Newest" } }
                @if let Some(next) = &jobs.next_cursor {
                    a href={ "/jobs?" (asked.query()) "after=" (segment(next)) } rel="next" { "Older" }
                }
            }
        }
    };
    pages.page(Frame { title: "Jobs", tab: Tab::Jobs, follow: None }, main).await
}

fn filters(asked: &JobsPageQuery, agents: &[AgentView]) -> Markup {
    let names = agents.iter().map(|agent| agent.name.as_str());
    html! {
        form.filters action="/jobs" method="get" role="search" aria-label="Filter jobs" {
            label.search { span { "Search" } input #search type="search" name="search" value=(asked.search) placeholder="words of the prompt or the summary"; }
            (choice("agent", "Agent", &asked.agent, names))
            (choice("status", "Status", &asked.status, STATUSES.iter().map(|status| status.as_str())))
            (choice("trigger_type", "Trigger", &asked.trigger_type, TRIGGERS.iter().map(|kind| kind.as_str())))
            @if !asked.schedule.is_empty() { input type="hidden" name="schedule" value=(asked.schedule); }
            div.buttons {
                button { "Filter" }
                @if asked.is_filter() { a.button href="/jobs" { "Clear" } }
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

/// Shows jobs in rows; `nothing` if there are none.
pub(super) fn table(jobs: &[JobRecord], now: Timestamp, nothing: &Markup) -> Markup {
    if jobs.is_empty() {
        return nothing.clone();
    }
    html! {
        table {
            thead { tr {
                th { "Job" } th { "Status" } th { "Agent" } th.wide { "Schedule" } th.wide { "Trigger" } th { "Made" }
                th.wide.end { "Took" } th.wide.end { "Cost" } th.wide.grow { "About" }
            } }
            tbody {
                @for job in jobs {
                    tr {
                        td { (marks::job(&job.id)) }
                        td { (marks::job_status(job.status)) }
                        td { (marks::agent(&job.agent)) }
                        td.wide { @if let Some(name) = &job.schedule { (marks::schedule(&job.agent, name)) } @else { span.muted { "–" } } }
                        td.wide { (job.trigger_type.as_str()) }
                        td { (marks::from_now(job.started_at, now)) }
                        td.wide.end { (marks::job_duration(job, now)) }
                        td.wide.end { (marks::cost(job.usage.as_ref())) }
                        td.wide.grow { (marks::about(job)) }
                    }
                }
            }
        }
    }
}
