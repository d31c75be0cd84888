//! Providers that agents share, and their usage limits.

use axum::Json;
use axum::extract::{Path, State};
use cowhand_core::id::AgentName;
use cowhand_core::provider::{Parked, Provider};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::info;

use super::provider_usage::ProviderUsage;
use super::{Api, ApiProblem, Page};

/// Provider of the fleet, with the agents that use it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderView {
    pub provider: String,
    pub agents: Vec<AgentName>,
    #[serde(flatten)]
    pub limits: Provider,
    /// Usage limit that applies now; none if the provider accepts jobs.
    pub parked: Option<Parked>,
    pub provider_usage: ProviderUsage,
}

pub(super) async fn list(State(api): State<Api>) -> Result<Json<Page<ProviderView>>, ApiProblem> {
    Ok(Json(Page::all(views(&api).await?)))
}

/// Returns the usage limits of the providers that currently accept no jobs, and the usage windows and reserves of the
/// providers that have any.
pub(super) async fn parked_and_usage(api: &Api) -> Result<(Vec<Parked>, Vec<ProviderUsage>), ApiProblem> {
    let (mut parked, mut usages) = (Vec::new(), Vec::new());
    for view in views(api).await? {
        parked.extend(view.parked);
        usages.extend(Some(view.provider_usage).filter(|usage| !usage.is_empty()));
    }
    Ok((parked, usages))
}

/// Ends the usage limit of a provider before its reset time, for example because the user bought more usage or the
/// reset time was wrong.
pub(super) async fn unpark(
    State(api): State<Api>,
    Path(provider): Path<String>,
) -> Result<Json<ProviderView>, ApiProblem> {
    let daemon = api.daemon()?;
    let view = views(&api).await?.into_iter().find(|view| view.provider == provider);
    let view = view.ok_or_else(|| {
        ApiProblem::not_found(format!(
            "no agent uses the provider {provider:?}; `cowhand status` lists the parked providers"
        ))
    })?;
    if !api.store.unpark(provider.clone(), api.now()).await? {
        let advice = match &view.provider_usage.reached {
            Some(reserve) => format!(
                "its reserve holds automatic jobs back until {:.0}; a smaller `reserve` in the config ends that",
                reserve.until
            ),
            None => "there is nothing to do".to_owned(),
        };
        return Err(ApiProblem::conflict(format!("{provider} is not parked; {advice}")));
    }
    info!(%provider, "the provider accepts jobs again");
    daemon.nudge();
    Ok(Json(ProviderView { parked: None, ..view }))
}

async fn views(api: &Api) -> Result<Vec<ProviderView>, ApiProblem> {
    let (roster, now, states) = (api.roster(), api.now(), api.store.providers().await?);
    let mut views: Vec<ProviderView> = Vec::new();
    let agents = roster.agents.iter();
    let agents_and_programs =
        agents.flat_map(|agent| agent.with_fallbacks().map(move |(_, program)| (agent, program)));
    for (agent, program) in agents_and_programs {
        let Some(slot) = roster.slot(&program) else { continue };
        if let Some(view) = views.iter_mut().find(|view| view.provider == slot.provider) {
            if !view.agents.contains(&agent.name) {
                view.agents.push(agent.name.clone());
            }
            continue;
        }
        let state = states.get(&slot.provider);
        let provider_usage = ProviderUsage::of(&slot, state, now);
        let parked = state.and_then(|state| state.parked.clone());
        let parked = parked.filter(|parked| parked.until > now);
        views.push(ProviderView {
            provider: slot.provider,
            agents: vec![agent.name.clone()],
            limits: slot.limits,
            parked,
            provider_usage,
        });
    }
    Ok(views)
}
