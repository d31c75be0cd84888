//! The loaded config.

use axum::Json;
use axum::extract::State;
use serde_json::Value;

use super::{Api, ApiProblem};

/// Returns the config in the form of `cowhand config show`, but as the daemon has loaded it, not as the files
/// are now.
pub(super) async fn config(State(api): State<Api>) -> Result<Json<Value>, ApiProblem> {
    let config = api.daemon()?.config();
    let mut config =
        config.ok_or_else(|| ApiProblem::not_found("this fleet was given its agents; there is no config"))?;
    api.redactor().redact_config(&mut config);
    Ok(Json(config))
}
