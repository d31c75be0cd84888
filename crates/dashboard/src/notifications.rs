//! The page of notifications, the newest first.

use axum::extract::State;
use cowhand_core::notification::NotificationState;
use jiff::Timestamp;
use maud::{Markup, html};

use super::layout::{Frame, Tab, empty};
use super::text::{self, ShownMessage, Text};
use super::{PageAnswer, Pages, elements};
use cowhand_engine::notification::view::NotificationView;
use cowhand_web::api::{Page, StatusView};

const NOTIFICATIONS_SHOWN: u32 = 100;

pub(super) async fn page(State(pages): State<Pages>) -> PageAnswer {
    let views: Page<NotificationView> =
        pages.client.get(&format!("notifications?limit={NOTIFICATIONS_SHOWN}")).await?;
    let status: StatusView = pages.client.get("status").await?;
    let now = Timestamp::now();
    let main = html! {
        div.page-head { h1 { "Notifications" } }
        section #notifications data-live aria-label="Notifications" {
            @for target in &status.undelivered_notifications {
                p.alert { b { "Not delivered" } ": " (ShownMessage(&target.sentence(now))) }
            }
            (table(&views.items, now))
        }
    };
    pages.page(Frame { title: "Notifications", tab: Tab::Events, follow: None }, main).await
}

fn table(views: &[NotificationView], now: Timestamp) -> Markup {
    if views.is_empty() {
        return empty(
            "No notification was sent yet. To test the targets of the config:",
            Some("cowhand notify test"),
        );
    }
    html! {
        table {
            thead { tr { th.wide.end { "No." } th { "When" } th { "State" } th { "Target" } th.grow { "What" } th.wide.end { "Tries" } th.wide { "Next try" } th.wide.grow { "Last error" } } }
            tbody {
                @for view in views {
                    tr {
                        td.wide.end { span.number.muted { (view.number) } }
                        td { (elements::at(view.created_at)) }
                        td { (state(view)) }
                        td { (Text(&view.target)) }
                        td.grow { span.any { (text::short(&view.title, 200)) } }
                        td.wide.end { (view.tries) }
                        td.wide { @if let Some(at) = view.held_until.or(view.next_try) { (elements::due(at, now)) } }
                        td.wide.grow.muted { span.any { (text::short(view.last_error.as_deref().unwrap_or_default(), 200)) } }
                    }
                }
            }
        }
    }
}

fn state(view: &NotificationView) -> Markup {
    match view.state {
        NotificationState::Waiting if view.held_until.is_some() => elements::status_as("paused", "held"),
        NotificationState::Waiting if view.last_error.is_some() => {
            elements::status_as("error", "tried again")
        }
        NotificationState::Waiting | NotificationState::Sending => {
            elements::status_as("pending", view.state.as_str())
        }
        NotificationState::Sent => elements::status_as("completed", "sent"),
        NotificationState::Failed => elements::status_as("failed", "failed"),
        NotificationState::Grouped | NotificationState::Dropped => {
            elements::status_as("skipped", view.state.as_str())
        }
    }
}
