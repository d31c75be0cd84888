//! Providers that agents share, and their usage limits.

use axum::Json;
use axum::extract::{Path, State};
use cowhand_core::id::AgentName;
use cowhand_core::provider::{Parked, Provider};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::info;

use super::{Api, ApiProblem, Page};

/// Provider of the fleet, with the agents that use it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderView {
    pub provider: String,
    pub agents: Vec<AgentName>,
    #[serde(flatten)]
    pub limits: Provider,
    /// Usage limit in force; none if it takes jobs.
    pub parked: Option<Parked>,
}

pub(super) async fn list(State(api): State<Api>) -> Result<Json<Page<ProviderView>>, ApiProblem> {
    Ok(Json(Page::all(views(&api).await?)))
}

/// Returns the providers that currently take no jobs.
pub(super) async fn parked(api: &Api) -> Result<Vec<Parked>, ApiProblem> {
    Ok(views(api).await?.into_iter().filter_map(|view| view.parked).collect())
}

/// Ends the usage limit of a provider before its time, because more was bought or the reset time was wrong.
pub(super) async fn unpark(
    State(api): State<Api>,
    Path(provider): Path<String>,
) -> Result<Json<ProviderView>, ApiProblem> {
    let daemon = api.daemon()?;
    let view = views(&api).await?.into_iter().find(|view| view.provider == provider);
    let view = view.ok_or_else(|| {
        ApiProblem::not_found(format!(
            "no agent of the fleet has a provider {provider:?}; `cowhand status` names those that are used up"
        ))
    })?;
    if !api.store.unpark(provider.clone(), api.now()).await? {
        return Err(ApiProblem::conflict(format!("{provider} is not used up; there is nothing to end")));
    }
    info!(%provider, "takes jobs again");
    daemon.nudge();
    Ok(Json(ProviderView { parked: None, ..view }))
}

async fn views(api: &Api) -> Result<Vec<ProviderView>, ApiProblem> {
    let (roster, now, known) = (api.roster(), api.now(), api.store.providers().await?);
    let mut views: Vec<ProviderView> = Vec::new();
    let all = roster.agents.iter().flat_map(|agent| agent.with_fallbacks().map(move |(_, who)| (agent, who)));
    for (agent, who) in all {
        let Some(slot) = roster.slot(&who) else { continue };
        if let Some(known) = views.iter_mut().find(|view| view.provider == slot.provider) {
            if !known.agents.contains(&agent.name) {
                known.agents.push(agent.name.clone());
            }
            continue;
        }
        let parked = known.get(&slot.provider).and_then(|state| state.parked.clone());
        let parked = parked.filter(|parked| parked.until > now);
        views.push(ProviderView {
            provider: slot.provider,
            agents: vec![agent.name.clone()],
            limits: slot.limits,
            parked,
        });
    }
    Ok(views)
}
