//! Why traces are not sent.

/// Why traces cannot be sent, without values that may contain a key.
#[derive(Debug, thiserror::Error)]
pub(super) enum TraceError {
    #[error("{place} is no web address; expected for example http://127.0.0.1:4318")]
    NotAnAddress { place: String },
    #[error("{place} holds a name or a value that no HTTP header can have")]
    NotAHeader { place: String },
    #[error("no HTTP client can be made: {0}")]
    NoClient(reqwest::Error),
    /// The last answer of the collector, or why there was none.
    #[error("{0}")]
    NotSent(String),
}
