//! The errors that prevent traces from being sent.

/// Why traces cannot be sent, without values that may contain a key.
#[derive(Debug, thiserror::Error)]
pub(super) enum TraceError {
    #[error("{setting} is not a web address; expected for example http://127.0.0.1:4318")]
    NotAnAddress { setting: String },
    #[error("{setting} contains a name or a value that is not valid in an HTTP header")]
    NotAHeader { setting: String },
    #[error("no HTTP client can be made: {0}")]
    NoClient(reqwest::Error),
    /// The last answer of the collector, or the reason why there was no answer.
    #[error("{0}")]
    NotSent(String),
}
