//! Health: for whoever starts, watches and routes to this program.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Api;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// The store was asked, and answered.
    pub store: bool,
    /// New work is taken.
    pub takes_work: bool,
    pub version: String,
}

pub(super) async fn health(State(api): State<Api>) -> Json<Health> {
    let store = api.store.last_event().await.is_ok();
    let takes_work = store && api.daemon().is_ok_and(crate::fleet::Fleet::is_running);
    Json(Health { store, takes_work, version: env!("CARGO_PKG_VERSION").to_owned() })
}

/// `/healthz`: this process answers. Says nothing else, so it needs no token.
pub(crate) async fn alive() -> &'static str {
    "ok\n"
}

/// `/readyz`: it can do its work as well.
pub(crate) async fn ready(State(api): State<Api>) -> Result<&'static str, (StatusCode, &'static str)> {
    let Json(health) = health(State(api)).await;
    match health {
        Health { takes_work: true, .. } => Ok("ok\n"),
        Health { store: false, .. } => Err((StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n")),
        Health { .. } => Err((StatusCode::SERVICE_UNAVAILABLE, "stopping\n")),
    }
}
