//! The usage windows of providers, as their agents' programs report them, and the reserves of the providers.

use cowhand_core::duration;
use cowhand_core::percent::Percent;
use cowhand_core::provider::{LimitedProvider, ProviderState, ReachedReserve, UsageWindow, WindowUsage};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Usage windows and reserve of a provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderUsage {
    pub provider: String,
    /// Windows that the programs of its agents have reported and that have not ended.
    pub windows: Vec<WindowView>,
    /// Part of each window that automatic jobs do not use now; none without a reserve.
    pub reserve: Option<Percent>,
    /// Reserve that holds automatic jobs back now.
    pub reached: Option<ReachedReserve>,
}

/// Usage of one window of a provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WindowView {
    pub window: UsageWindow,
    /// Used part of the window, in percent.
    pub used_percent: f64,
    /// End of the window.
    pub resets_at: Timestamp,
    /// Time of the report.
    pub reported_at: Timestamp,
}

impl ProviderUsage {
    pub(crate) fn of(slot: &LimitedProvider, state: Option<&ProviderState>, now: Timestamp) -> Self {
        let current = state.iter().flat_map(|state| &state.windows).filter(|usage| usage.is_current(now));
        let mut windows: Vec<WindowView> = current.map(WindowView::of).collect();
        windows.sort_by_key(|view| view.window);
        Self {
            provider: slot.provider.clone(),
            windows,
            reserve: slot.limits.has_reserve().then(|| slot.limits.reserve_at(now, &slot.zone)),
            reached: state.and_then(|state| slot.reached_reserve(state, now)),
        }
    }

    /// Checks whether there is nothing to show: no report and no reserve.
    pub(crate) const fn is_empty(&self) -> bool {
        self.windows.is_empty() && self.reserve.is_none()
    }

    /// Describes the windows and the reserve: `5-hour window 83% used, resets in 2h, reported 3m ago; reserve 20%`.
    pub fn in_words(&self, now: Timestamp) -> String {
        let windows = self.windows.iter().map(|view| view.in_words(now));
        let unknown = self.windows.is_empty().then(|| "no usage window is reported".to_owned());
        let reserve = self.reserve.map(|reserve| format!("reserve {reserve}"));
        windows.chain(unknown).chain(reserve).collect::<Vec<_>>().join("; ")
    }
}

impl WindowView {
    fn of(usage: &WindowUsage) -> Self {
        let WindowUsage { window, used, resets_at, reported_at } = *usage;
        Self { window, used_percent: used.number(), resets_at, reported_at }
    }

    fn in_words(&self, now: Timestamp) -> String {
        let (resets, reported) =
            (duration::until(now, self.resets_at), duration::relative_to_now(now, self.reported_at));
        format!(
            "{} {}% used, resets {resets}, reported {reported}",
            self.window.in_words(),
            self.used_percent
        )
    }
}
