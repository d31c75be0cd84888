//! What hooks know and nobody may read: taken out of all that is written down of them.

use cowhand_core::config::shape::{Hook, HookAction};
use cowhand_core::config::{MASK, looks_secret};
use cowhand_core::id::AgentName;

use crate::daemon::Loaded;

/// A shorter secret is none, and to hide it would hide every text.
const SHORTEST: usize = 6;

#[derive(Debug)]
pub(super) struct Veil {
    /// The longest first, since one may be part of another.
    secrets: Vec<String>,
}

impl Veil {
    /// The values of all variables whose names say that they are secret.
    pub(super) fn over(loaded: &Loaded, agent: &AgentName) -> Self {
        let own = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        let of_agent = loaded.roster.agent(agent).map(|agent| agent.settings.env.clone()).unwrap_or_default();
        let all = own.chain(loaded.variables.clone()).chain(of_agent);
        Self::of(all.filter(|(name, _)| looks_secret(name)).map(|(_, value)| value).collect())
    }

    fn of(mut secrets: Vec<String>) -> Self {
        secrets.retain(|secret| secret.len() >= SHORTEST);
        secrets.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        secrets.dedup();
        Self { secrets }
    }

    /// And what stands in the hook itself, whole and word by word: `Bearer abc` is said as `abc`.
    pub(super) fn and(mut self, hook: &Hook) -> Self {
        if let HookAction::Webhook { headers, secret, .. } = &hook.action {
            for value in headers.iter().flat_map(|headers| headers.values()).chain(secret) {
                self.secrets.push(value.clone());
                self.secrets.extend(value.split_whitespace().skip(1).map(str::to_owned));
            }
        }
        Self::of(self.secrets)
    }

    pub(super) fn hide(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| {
            if text.contains(secret) { text.replace(secret, MASK) } else { text }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_the_longest_first() {
        let veil = Veil::of(["secret", "secret-and-more", "x"].map(str::to_owned).to_vec());
        assert_eq!(veil.hide("a secret, a secret-and-more, an x"), "a ***, a ***, an x");
    }
}
