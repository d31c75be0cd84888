//! Health checks for supervisors, monitors and load balancers. `/healthz` and `/readyz` need no token.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Api;
use cowhand_engine::fleet::Unready;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Set if the store answered a query.
    pub store: bool,
    /// Set if new work is accepted and can be stored.
    pub takes_work: bool,
    pub version: String,
}

pub(super) async fn health(State(api): State<Api>) -> Json<Health> {
    let store = api.store.last_event().await.is_ok();
    let takes_work = store && unready(&api).await.is_none();
    Json(Health { store, takes_work, version: env!("CARGO_PKG_VERSION").to_owned() })
}

/// Returns why no work is accepted, or none if work is accepted. Without a daemon, the reason is `Stopping`.
async fn unready(api: &Api) -> Option<Unready> {
    match api.daemon() {
        Ok(fleet) => fleet.ready().await.err(),
        Err(_) => Some(Unready::Stopping),
    }
}

/// Handles `/healthz`, which shows only that this process answers.
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// Handles `/readyz`, which shows whether the daemon accepts work and can store it.
pub(super) async fn ready(State(api): State<Api>) -> Result<&'static str, (StatusCode, String)> {
    let unready = if api.store.last_event().await.is_err() {
        Some("the store does not answer".to_owned())
    } else {
        unready(&api).await.map(|unready| unready.to_string())
    };
    unready.map_or(Ok("ok\n"), |why| Err((StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))))
}
