//! What `doctor` hears about a source.

use super::WorkSourceError;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFinding {
    pub what: String,
    pub verdict: SourceHealth,
    /// How it stands and, if it is not well, what to do.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceHealth {
    Good,
    /// It works, but somebody should look at it.
    Warning,
    /// Nothing can be taken from here, or told.
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
