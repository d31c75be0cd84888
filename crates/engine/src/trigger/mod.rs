//! Triggers: they decide *when* a schedule fires. A strategy waits for something outside and passes on tasks. The
//! runner makes firings and jobs from these tasks, and does not depend on the type of the trigger.
//!
//! `docs/triggers.md` shows how to add a type, `crates/cowhand/examples/own_trigger.rs` adds a type outside this crate,
//! and [`contract`] tests a strategy.

pub mod contract;
mod event;
mod gh;
mod github;
mod polling;
mod registry;
mod strategy;
mod strategy_context;
mod timer;
pub mod wake;

use std::time::Duration;

use cowhand_core::interval::Interval;
use cowhand_core::trigger::{DEFAULT_POLL_INTERVAL, IssueState, PullState, TriggerConfig};

pub use event::EventStrategy;
pub use github::{GithubAccess, GithubIssueSource, GithubPullRequestSource};
pub use polling::PollingStrategy;
pub use polling::retry_after;
pub use registry::{Factory, Registry};
pub(crate) use strategy::ERROR_BACKOFF;
pub use strategy::{FatalTriggerError, RetryAfter, Task, TaskSource, TriggerStrategy, stopped};
pub use strategy::{Paced, find_in_error, is_stopped};
pub use strategy_context::StrategyContext;
pub use strategy_context::TriggerServices;
pub use timer::Timer;
pub use wake::Wakes;

/// Returns the strategy of a schedule. A new type gets its line here.
pub fn strategy(
    registry: &Registry,
    wakes: &Wakes,
    context: &StrategyContext,
) -> anyhow::Result<Box<dyn TriggerStrategy>> {
    Ok(match context.trigger() {
        TriggerConfig::AgentLifecycle { .. } | TriggerConfig::DispatchResult { .. } => {
            Box::new(EventStrategy::new(context.clone()))
        }
        TriggerConfig::Custom { name, .. } => registry.create(name, context)?,
        TriggerConfig::GithubIssues { owner, repo, labels, state, poll_interval, api_url, auth, backend } => {
            let access = GithubAccess::by((owner, repo), api_url.as_deref(), auth, *backend);
            let state = state.unwrap_or(IssueState::Open);
            let source = GithubIssueSource::new(&access, labels.clone(), state, &context.source_context())?;
            let wake = wakes.of(&format!("{owner}/{repo}"));
            Box::new(PollingStrategy::new(source, interval_of(*poll_interval)).woken_by(wake))
        }
        TriggerConfig::GithubPullRequests {
            owner,
            repo,
            labels,
            state,
            poll_interval,
            api_url,
            auth,
            backend,
            ..
        } => {
            let access = GithubAccess::by((owner, repo), api_url.as_deref(), auth, *backend);
            let state = state.unwrap_or(PullState::Open);
            let source =
                GithubPullRequestSource::new(&access, labels.clone(), state, &context.source_context())?;
            let wake = wakes.of(&format!("{owner}/{repo}"));
            Box::new(PollingStrategy::new(source, interval_of(*poll_interval)).woken_by(wake))
        }
        TriggerConfig::Interval { .. }
        | TriggerConfig::Cron { .. }
        | TriggerConfig::Delay { .. }
        | TriggerConfig::Manual {}
        | TriggerConfig::Webhook { .. }
        | TriggerConfig::Chat { .. } => Box::new(Timer::of(context)?),
    })
}

fn interval_of(written: Option<Interval>) -> Duration {
    let interval = written.unwrap_or(DEFAULT_POLL_INTERVAL);
    interval.duration().unsigned_abs()
}
