//! The config as it runs.

use axum::Json;
use axum::extract::State;
use serde_json::Value;

use super::{Api, Problem};

/// As `cowhand config show` prints it, but what the daemon has loaded and not what the files say now.
pub(super) async fn config(State(api): State<Api>) -> Result<Json<Value>, Problem> {
    let shown = api.daemon()?.config();
    shown.map(Json).ok_or_else(|| Problem::not_found("this fleet was given its agents; there is no config"))
}
