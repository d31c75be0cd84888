//! The session and the changes of a job, from which a person can continue.

use std::io::ErrorKind;
use std::path::PathBuf;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::header;
use axum::response::IntoResponse;
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::JobStatus;
use cowhand_core::roster::Agent;
use cowhand_core::runtime::Runtime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::jobs::find;
use super::{Api, ApiProblem, WorkspacePhase, WorkspaceView};
use cowhand_run::runtime::description;
use cowhand_store::ProviderAndRuntime;

/// Session that a person can continue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionView {
    pub job: JobId,
    pub agent: AgentName,
    pub session_id: String,
    /// Runtime that began the session.
    pub runtime: String,
    /// Node that has the session.
    pub node: String,
    /// Directory of the session.
    pub directory: PathBuf,
    /// Program with its arguments, to run in that directory.
    pub command: Vec<String>,
    /// Names of the environment variables that the config sets for the program.
    pub variables: Vec<String>,
    /// Number of the fallback that ran the job, from 0; absent for the agent's own program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<usize>,
    /// Reason why the job is confined; absent if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confined: Option<String>,
}

pub(super) async fn session(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Json<SessionView>, ApiProblem> {
    let job = find(&api, &id).await?;
    if matches!(job.status(), JobStatus::Pending | JobStatus::Running) {
        let message =
            format!("{} is {}; its session can be continued after it has ended", job.id(), job.status());
        return Err(ApiProblem::conflict(message));
    }
    let no_session = || ApiProblem::conflict(format!("{} has no session that can be continued", job.id()));
    let stored = api.store.session_of(job.id().clone()).await?.ok_or_else(no_session)?;
    let roster = api.roster();
    let agent = roster.agent(job.agent());
    let runtime = match &stored.runtime {
        Some(name) => Runtime::named(name).ok_or_else(no_session)?,
        None => agent.map(Agent::runtime).unwrap_or_default(),
    };
    let command = description::interactive(runtime, &stored.session_id)
        .map_err(|refusal| ApiProblem::conflict(refusal.to_string()))?;
    let directory =
        stored.directory.or_else(|| agent.map(|agent| agent.directory.clone())).ok_or_else(no_session)?;
    let confined = job.confined().map(str::to_owned);
    let program = api.store.provider_and_runtime(job.id().clone()).await?;
    let fallback = agent.zip(program).and_then(|(agent, ProviderAndRuntime { provider, runtime })| {
        agent.fallback_of(provider.as_deref(), runtime.as_deref())
    });
    let variables = agent.map(|agent| agent.program_of(fallback).env.keys().cloned().collect());
    Ok(Json(SessionView {
        job: stored.job,
        agent: job.agent().clone(),
        session_id: stored.session_id,
        runtime: runtime.name().to_owned(),
        node: stored.node,
        directory,
        command,
        variables: variables.unwrap_or_default(),
        fallback,
        confined,
    }))
}

pub(super) async fn diff(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<impl IntoResponse, ApiProblem> {
    let job = find(&api, &id).await?;
    match tokio::fs::read(api.state.diff(job.id())).await {
        Ok(text) => Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            let workspace = api.workspace(job.id()).await?;
            let place = api.output_place(job.id()).await?;
            let why = if matches!(job.status(), JobStatus::Pending | JobStatus::Running) {
                "it has not ended".to_owned()
            } else if let Some(node) = place.other_node() {
                format!("it ran on another node, {node}; run there: cowhand job --diff {}", job.id())
            } else {
                workspace.as_ref().and_then(no_diff_yet).unwrap_or_else(|| {
                    "it had no workspace of its own, or its agent was never started".to_owned()
                })
            };
            Err(ApiProblem::not_found(format!("there is no diff of {}: {why}", job.id())))
        }
        Err(error) => Err(ApiProblem::unavailable(format!("cannot read the diff of {}: {error}", job.id()))),
    }
}

/// Explains why an ended job has no diff yet. None if no workspace is kept from which the diff could still be made.
fn no_diff_yet(workspace: &WorkspaceView) -> Option<String> {
    let is_kept_for_it = workspace.unfinished.is_some() || workspace.state == WorkspacePhase::Ended;
    let reason = workspace.unfinished.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    is_kept_for_it.then(|| format!("it is not made yet, and the workspace is kept until then{reason}"))
}
