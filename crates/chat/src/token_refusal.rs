//! Tokens that a platform does not accept: no request is made with such a token for some time.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Time after which a connector that is not connected tries a refused token again.
const REFUSAL_AGE: Duration = Duration::from_mins(10);

/// The last refusal of the token of a bot.
#[derive(Debug)]
pub(crate) struct TokenRefusal(watch::Sender<Option<(Instant, String)>>);

impl Default for TokenRefusal {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl TokenRefusal {
    /// Returns why no request may be made with the token now.
    pub(crate) fn reason(&self) -> Option<String> {
        let refused = self.0.borrow();
        let (_, reason) = refused.as_ref().filter(|(at, _)| at.elapsed() < REFUSAL_AGE)?;
        Some(reason.clone())
    }

    pub(crate) fn record(&self, reason: String) {
        self.0.send_replace(Some((Instant::now(), reason)));
    }

    /// Allows requests again, because a connection is begun or because the owner may have corrected the reason.
    pub(crate) fn clear(&self) {
        self.0.send_replace(None);
    }

    /// Waits until the platform refuses the token, and returns the reason.
    pub(crate) async fn recorded(&self) -> String {
        let mut refusals = self.0.subscribe();
        loop {
            if let Some((_, reason)) = refusals.borrow_and_update().clone() {
                return reason;
            }
            // The sender lives as long as `self`.
            if refusals.changed().await.is_err() {
                return String::new();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_refusal_ends_after_some_minutes_or_with_a_new_connection() {
        let refusal = TokenRefusal::default();
        assert_eq!(refusal.reason(), None);
        refusal.record("revoked".to_owned());
        assert_eq!(refusal.recorded().await, "revoked");
        tokio::time::advance(REFUSAL_AGE * 9 / 10).await;
        assert_eq!(refusal.reason().as_deref(), Some("revoked"));
        tokio::time::advance(REFUSAL_AGE / 10).await;
        assert_eq!(refusal.reason(), None);
        refusal.record("revoked again".to_owned());
        refusal.clear();
        assert_eq!(refusal.reason(), None);
    }
}
