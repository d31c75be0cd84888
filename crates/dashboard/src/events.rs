//! The page of events, the newest first.

use axum::extract::State;
use cowhand_core::event::{Event, Fact};
use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;

use super::layout::{Frame, Tab, empty};
use super::{PageAnswer, Pages, Params, elements, text};
use cowhand_engine::schedule_view::message_in_words;
use cowhand_web::api::Page;

const EVENTS_PER_PAGE: i64 = 100;

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EventsPageQuery {
    /// `seq` of the newest event on the page; unset means the newest event of all.
    #[serde(rename = "before")]
    up_to: Option<i64>,
}

pub(super) async fn page(State(pages): State<Pages>, Params(params): Params<EventsPageQuery>) -> PageAnswer {
    let newest = pages.newest_event().await?;
    let end = params.up_to.map_or(newest, |up_to| up_to.min(newest));
    let start = (end - EVENTS_PER_PAGE).max(0);
    let events: Page<Event> =
        pages.client.get(&format!("events?after={start}&limit={}", (end - start).max(1))).await?;
    let events: Vec<Event> = events.items.into_iter().filter(|event| event.seq <= end).rev().collect();
    let main = html! {
        div.page-head { h1 { "Events" } a href="/notifications" { "Notifications" } }
        section #events data-live aria-label="Events" {
            (table(&events))
            nav.pager aria-label="Pages of the list" {
                @if end < newest { a href="/events" { "Newest" } }
                @if start > 0 { a href={ "/events?before=" (start) } rel="next" { "Older" } }
            }
        }
    };
    pages.page(Frame { title: "Events", tab: Tab::Events, follow: None }, main).await
}

fn table(events: &[Event]) -> Markup {
    if events.is_empty() {
        return empty("Nothing has happened yet. To run something:", Some("cowhand trigger AGENT"));
    }
    html! {
        table {
            thead { tr { th.wide.end { "No." } th { "When" } th { "What" } th { "Agent" } th.wide { "Schedule" } th.wide { "Job" } th.wide { "By" } th.wide.grow { "Details" } } }
            tbody {
                @for event in events {
                    tr {
                        td.wide.end { span.number.muted { (event.seq) } }
                        td { (elements::at(event.at)) }
                        td { code { (event.fact.type_name()) } }
                        td { @if let Some(agent) = &event.agent { (elements::agent(agent)) } }
                        td.wide {
                            @if let (Some(agent), Some(name)) = (&event.agent, &event.schedule) {
                                (elements::schedule(agent, name))
                            }
                        }
                        td.wide { @if let Some(job) = &event.job { (elements::job(job)) } }
                        td.wide { @if let Some(by) = &event.by { (by) } }
                        td.wide.grow.muted { span.any { (details(event)) } }
                    }
                }
            }
        }
    }
}

/// Formats the fields of the event's fact, except its type, as one short line.
fn details(event: &Event) -> String {
    let Ok(Value::Object(fields)) = serde_json::to_value(&event.fact) else { return String::new() };
    let details = fields.iter().filter(|(key, _)| key.as_str() != "type").map(|(key, value)| match value {
        Value::String(text) => format!("{key} {text}"),
        other => format!("{key} {other}"),
    });
    let created = matches!(event.fact, Fact::JobCreated).then(|| event.job_record.as_ref()?.message.as_ref());
    let details = details.chain(created.flatten().map(message_in_words));
    text::short(&details.collect::<Vec<_>>().join(" · "), 200)
}
