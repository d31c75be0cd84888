//! The findings of `cowhand doctor`: the daemon checks whether it can start the agents and reach what they need.

use axum::Json;
use axum::extract::State;

use super::{Api, ApiProblem, Page};
use cowhand_engine::doctor::{Finding, examine};

pub(super) async fn doctor(State(api): State<Api>) -> Result<Json<Page<Finding>>, ApiProblem> {
    let subject = api.daemon()?.doctor_subject();
    Ok(Json(Page::all(examine(subject).await)))
}
