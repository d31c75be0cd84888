//! Errors of requests to a chat platform.

use std::time::Duration;

/// Reason why a request to a platform did not succeed. The texts contain no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    /// The platform does not accept the token. No request of this bot will succeed.
    #[error("{platform} does not accept the token: {reason}")]
    Revoked { platform: &'static str, reason: String },
    /// The platform refused the request, and would refuse it again.
    #[error("{platform} refused the request: {reason}")]
    Refused { platform: &'static str, reason: String },
    /// The rate limit of the platform is reached for longer than the connector waits.
    #[error("the rate limit of {platform} is reached for {} s", .retry_after.as_secs())]
    RateLimited { platform: &'static str, retry_after: Duration },
    /// The platform did not answer, or answered with an error that may be temporary. The request may have been
    /// executed.
    #[error("{platform} cannot be reached: {reason}")]
    Unavailable { platform: &'static str, reason: String },
    #[error("the file has more than {limit} bytes")]
    TooLarge { limit: u64 },
}

impl ChatError {
    /// Returns whether the same request may succeed later.
    pub const fn is_temporary(&self) -> bool {
        match self {
            Self::RateLimited { .. } | Self::Unavailable { .. } => true,
            Self::Revoked { .. } | Self::Refused { .. } | Self::TooLarge { .. } => false,
        }
    }
}
