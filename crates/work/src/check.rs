//! The result of checking a work source, for `doctor`.

use super::WorkSourceError;

/// Result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFinding {
    pub what: String,
    pub verdict: SourceHealth,
    /// Description of the result and, if the result is not good, of the next step.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceHealth {
    Good,
    /// The source works, but a person should look at it.
    Warning,
    /// The source cannot be used.
    Problem,
}

impl SourceFinding {
    pub fn good(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { what: what.into(), verdict: SourceHealth::Good, detail: detail.into() }
    }

    pub fn warning(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { verdict: SourceHealth::Warning, ..Self::good(what, detail) }
    }

    pub fn problem(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { verdict: SourceHealth::Problem, ..Self::good(what, detail) }
    }

    pub fn of_error(what: impl Into<String>, error: &WorkSourceError) -> Self {
        Self::problem(what, error.to_string())
    }
}
