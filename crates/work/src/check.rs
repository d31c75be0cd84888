//! What `doctor` hears about a source.

use super::WorkSourceError;

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub what: String,
    pub verdict: Verdict,
    /// How it stands and, if it is not well, what to do.
    pub detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Good,
    /// It works, but somebody should look at it.
    Warning,
    /// Nothing can be taken from here, or told.
    Problem,
}

impl Finding {
    pub fn good(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { what: what.into(), verdict: Verdict::Good, detail: detail.into() }
    }

    pub fn warning(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warning, ..Self::good(what, detail) }
    }

    pub fn problem(what: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { verdict: Verdict::Problem, ..Self::good(what, detail) }
    }

    pub fn of_error(what: impl Into<String>, error: &WorkSourceError) -> Self {
        Self::problem(what, error.to_string())
    }
}
