//! The page of work: the items in the queues of work sources, and the items of jobs that ended recently.

use axum::extract::State;
use cowhand_core::id::AgentName;
use cowhand_core::job::JobRecord;
use cowhand_core::work::WorkItem;
use indexmap::IndexMap;
use jiff::Timestamp;
use maud::{Markup, html};

use super::layout::{Frame, Tab, empty, part};
use super::{PageAnswer, Pages, elements, now, text};
use cowhand_engine::queues::given_up::{GivenUp, TakenBy};
use cowhand_engine::queues::{ItemStatus, ItemView};
use cowhand_web::api::{Page, QueueProblem, WorkView};

pub(super) async fn page(State(pages): State<Pages>) -> PageAnswer {
    let now = now();
    let WorkView { items, problems, queues: queue_names, .. } = pages.client.get("work?all=1").await?;
    let done: Page<JobRecord> = pages.client.get("jobs?with_item=1&limit=50").await?;
    let done: Vec<JobRecord> = done
        .items
        .into_iter()
        .filter(|job| job.finished_at.is_some() && !is_closing(&items, job))
        .take(20)
        .collect();
    let main = html! {
        (head(&items))
        div #trouble data-live {
            @for QueueProblem { queue, message } in &problems {
                p.alert { b.any { (text::short(queue, 80)) " cannot be read: " } (text::ShownMessage(message)) }
            }
        }
        @if !items.is_empty() || (problems.is_empty() && done.is_empty()) { (queues(items, &queue_names, now)) }
        @if !done.is_empty() { (part("done", "Recently done", &html! {}, &finished(&done, now))) }
    };
    pages.page(Frame { title: "Work", tab: Tab::Work, follow: None }, main).await
}

/// Returns true if the result of the job still has to be reported to the source of its item.
fn is_closing(items: &[ItemView], job: &JobRecord) -> bool {
    items
        .iter()
        .any(|view| view.status == ItemStatus::Closing && view.held_by.as_deref() == Some(job.id.as_str()))
}

fn head(items: &[ItemView]) -> Markup {
    let count = |status| items.iter().filter(|item| item.status == status).count();
    html! {
        div.page-head #head data-live {
            h1 { "Work" }
            p.facts {
                span { (count(ItemStatus::Available)) " available" }
                span { (count(ItemStatus::Claimed)) " claimed" }
                span { (count(ItemStatus::Closing)) " closing" }
                @if count(ItemStatus::GivenUp) > 0 { span.bad { (count(ItemStatus::GivenUp)) " given up" } }
            }
        }
    }
}

fn queues(items: Vec<ItemView>, queue_names: &[String], now: Timestamp) -> Markup {
    if items.is_empty() && queue_names.is_empty() {
        return empty(
            "No agent has a `work_source`. docs/work-sources.md describes how to set one up. To list work items:",
            Some("cowhand work list"),
        );
    }
    if items.is_empty() {
        return empty(
            &format!("No work is waiting in {}. To list work items:", queue_names.join(", ")),
            Some("cowhand work list"),
        );
    }
    let mut queues: IndexMap<String, Vec<ItemView>> = IndexMap::new();
    for item in items {
        let agents: Vec<&str> = item.agents.iter().map(AgentName::as_str).collect();
        let queue = item.needed.queue_needed.as_ref().map(|queue| format!(": {queue}")).unwrap_or_default();
        let name = format!("{} for {}{queue}", item.item.id.source(), agents.join(", "));
        queues.entry(name).or_default().push(item);
    }
    html! {
        @for (number, (name, items)) in queues.iter().enumerate() {
            (part(&format!("queue-{number}"), name, &html! { span.muted { (items.len()) } }, &table(items, now)))
        }
    }
}

fn table(items: &[ItemView], now: Timestamp) -> Markup {
    html! {
        table {
            thead { tr { th { "Item" } th.grow { "Title" } th.wide { "Priority" } th { "Status" } th { "Held by" } th.wide.end { "Created" } } }
            tbody {
                @for view in items {
                    tr {
                        td { code.any { (view.item.id) } }
                        td.grow { (title(view))
                            @if let Some(error) = &view.last_error { p.bad.any { (text::short_message(error, 160)) } }
                            @if let Some(why) = &view.given_up { (given_up(view, why)) } }
                        td.wide { (priority(view)) }
                        td { (elements::status_as(view.status.as_str(), &view.status.as_str().replace('_', " "))) }
                        td { @match view.held_by.as_ref().or(view.claimed_by.as_ref()) {
                            Some(holder) if view.held_by.is_some() && holder.starts_with("job-") => a.id href={ "/jobs/" (cowhand_web::api::segment(holder)) } { (holder.trim_start_matches("job-")) },
                            Some(holder) => span.any { (text::short(holder, 40)) },
                            None if let Some(node) = &view.claiming_on => span.any.muted { "being claimed by " (text::short(node, 40)) },
                            None => span.muted { "–" },
                        } }
                        td.wide.end { (elements::from_now(view.item.created_at, now)) }
                    }
                }
            }
        }
    }
}

/// Shows why an item was given up, and the commands that retry it.
fn given_up(view: &ItemView, why: &GivenUp) -> Markup {
    html! {
        p.bad.any {
            (text::short_message(&why.sentence(), 200))
            @if let Some(job) = &why.job { " in " a.id href={ "/jobs/" (job) } { (job.as_str().trim_start_matches("job-")) } }
        }
        p.muted { "To retry it: " code.any { "cowhand work retry " (view.command_words()) }
            @if let Some(TakenBy { agent, schedule }) = &why.to_trigger { ", and then " code.any { "cowhand trigger " (agent) " " (schedule.as_str()) } } }
    }
}

/// Shows the items of ended jobs, with the status of each job.
fn finished(jobs: &[JobRecord], now: Timestamp) -> Markup {
    let items = jobs.iter().filter_map(|job| Some((job, job.work_item.as_ref()?)));
    html! {
        table {
            thead { tr { th { "Item" } th.grow { "Title" } th { "Status" } th { "Job" } th.wide.end { "Ended" } } }
            tbody {
                @for (job, item) in items {
                    tr {
                        td { code.any { (item.id) } }
                        td.grow { (linked_title(item)) }
                        td { (elements::status(job.status.as_str())) }
                        td { a.id href={ "/jobs/" (job.id) } { (job.id.as_str().trim_start_matches("job-")) } }
                        td.wide.end { @if let Some(at) = job.finished_at { (elements::from_now(at, now)) } }
                    }
                }
            }
        }
    }
}

/// Shows the title, as a link if the URL of the item is an http or https URL.
fn linked_title(item: &WorkItem) -> Markup {
    let title = text::short(&item.title, 140);
    let is_link = item.url.starts_with("https://") || item.url.starts_with("http://");
    html! {
        @if is_link { a.any href=(item.url) rel="noopener noreferrer" data-row { (title) } }
        @else { span.any { (title) } }
    }
}

fn title(view: &ItemView) -> Markup {
    html! {
        (linked_title(&view.item))
        @for label in view.item.labels.iter().take(6) { " " span.label { (text::short(label, 30)) } }
    }
}

fn priority(view: &ItemView) -> String {
    serde_json::to_value(view.item.priority)
        .ok()
        .and_then(|word| word.as_str().map(ToOwned::to_owned))
        .unwrap_or_default()
}
