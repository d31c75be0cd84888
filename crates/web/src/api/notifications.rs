//! Notifications: messages to people about incidents, and tests of their targets.

use axum::Json;
use axum::extract::{Path, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Count, JsonBody, Params};
use super::{Api, ApiProblem, Page};
use cowhand_engine::notification::view::NotificationView;
use cowhand_store::NotificationFilter;

/// Which notifications are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotificationSelection {
    /// Waiting, held back, or being sent.
    Open,
    /// Not delivered, and not tried again.
    Failed,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct NotificationsQuery {
    /// Lists only these notifications; unset means all.
    state: Option<NotificationSelection>,
    /// Maximum number of notifications; unset means 50.
    limit: Option<Count>,
}

/// Request to test targets.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NotificationTestRequest {
    /// Name of the target; unset means all targets.
    pub target: Option<String>,
}

const DEFAULT_NOTIFICATION_COUNT: u32 = 50;

pub(super) async fn list(
    State(api): State<Api>,
    Params(NotificationsQuery { state, limit }): Params<NotificationsQuery>,
) -> Result<Json<Page<NotificationView>>, ApiProblem> {
    let filter = match state {
        None => NotificationFilter::All,
        Some(NotificationSelection::Open) => NotificationFilter::Open,
        Some(NotificationSelection::Failed) => NotificationFilter::Failed,
    };
    let records = api.store.notifications(filter, Count::or(limit, DEFAULT_NOTIFICATION_COUNT)).await?;
    Ok(Json(Page::all(records.into_iter().map(NotificationView::from).collect())))
}

pub(super) async fn one(
    State(api): State<Api>,
    Path(number): Path<String>,
) -> Result<Json<NotificationView>, ApiProblem> {
    let record = match number.parse() {
        Ok(number) => api.store.notification(number).await?,
        Err(_) => None,
    };
    let record = record.ok_or_else(|| {
        ApiProblem::not_found(format!(
            "there is no notification {number:?}; `cowhand notifications` lists them"
        ))
    })?;
    Ok(Json(record.into()))
}

/// Adds a test message for each target. The daemon sends the messages at once, and the states of the notifications tell
/// what happened.
pub(super) async fn test(
    State(api): State<Api>,
    JsonBody(request): JsonBody<NotificationTestRequest>,
) -> Result<Json<Page<NotificationView>>, ApiProblem> {
    let daemon = api.daemon()?;
    let roster = daemon.roster();
    let known: Vec<&String> = roster.notifications.targets.keys().collect();
    let targets: Vec<String> = match request.target {
        None => known.into_iter().cloned().collect(),
        Some(target) if roster.notifications.targets.contains_key(&target) => vec![target],
        Some(target) => {
            let known = known.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
            let known = if known.is_empty() {
                "`notify.targets` of the config defines none".to_owned()
            } else {
                format!("the targets are {known}")
            };
            return Err(ApiProblem::not_found(format!(
                "there is no notification target {target:?}; {known}"
            )));
        }
    };
    let mut views = Vec::new();
    for target in targets {
        views.extend(daemon.test_notification(target).await?.map(NotificationView::from));
    }
    Ok(Json(Page::all(views)))
}
