//! The loaded config.

use axum::Json;
use axum::extract::State;
use serde_json::Value;

use super::{Api, ApiProblem};

/// Returns the config in the form of `cowhand config show`, but from the config that the daemon has loaded, not from
/// the files as they are now.
pub(super) async fn config(State(api): State<Api>) -> Result<Json<Value>, ApiProblem> {
    let config = api.daemon()?.config();
    let mut config = config
        .ok_or_else(|| ApiProblem::not_found("this fleet was started by a program without a config file"))?;
    api.redactor().redact_config(&mut config);
    Ok(Json(config))
}
