//! Triggers: *when* a schedule fires. A strategy waits for something and hands on tasks; the runner makes firings and
//! jobs of them and knows no type by its name.
//!
//! `docs/triggers.md` shows how to add a type, `examples/own_trigger.rs` does it outside this crate, and [`contract`]
//! says whether a strategy is a good one.

pub mod contract;
pub(crate) mod dispatch;
mod event;
mod pace;
mod polling;
mod registry;
pub(crate) mod runner;
mod setting;
mod strategy;
mod timer;
mod upstream;

use cowhand_core::trigger::TriggerConfig;

use crate::daemon::Engine;

pub use event::EventStrategy;
pub use polling::PollingStrategy;
pub use registry::{Factory, Registry};
pub use setting::Setting;
pub use strategy::{FatalTriggerError, RetryAfter, Task, TaskSource, TriggerStrategy, stopped};
pub use timer::Timer;

/// The strategy of a schedule. A new type gets its line here.
fn strategy(engine: &Engine, setting: &Setting) -> anyhow::Result<Box<dyn TriggerStrategy>> {
    Ok(match setting.trigger() {
        TriggerConfig::AgentLifecycle { .. } | TriggerConfig::DispatchResult { .. } => {
            Box::new(EventStrategy::new(setting.clone()))
        }
        TriggerConfig::Custom { name, .. } => engine.triggers.create(name, setting)?,
        TriggerConfig::GithubIssues { .. } | TriggerConfig::GithubPullRequests { .. } => {
            return Err(FatalTriggerError("GitHub is not asked yet".to_owned()).into());
        }
        TriggerConfig::Interval { .. }
        | TriggerConfig::Cron { .. }
        | TriggerConfig::Delay { .. }
        | TriggerConfig::Manual {}
        | TriggerConfig::Webhook { .. }
        | TriggerConfig::Chat { .. } => Box::new(Timer::of(setting)?),
    })
}
