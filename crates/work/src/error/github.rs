//! Errors of requests to GitHub.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::quota::RateLimitInfo;

/// A failed request. The error never contains the token.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub struct GitHubApiError {
    /// HTTP status; `None` if no answer arrived.
    pub status: Option<u16>,
    /// Method and path, for example `GET /repos/my-org/my-repo/issues/42`.
    pub endpoint: String,
    pub message: String,
    /// Rate limit that the answer states.
    pub rate_limit: Option<Box<RateLimitInfo>>,
    pub kind: ApiFailure,
    /// Facts about the token of the refused request.
    pub token: Box<TokenFacts>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiFailure {
    /// No answer arrived, or an incomplete answer. GitHub may have carried out the request.
    Network,
    /// The rate limit is reached. `wait` and `ends` are set if GitHub stated them.
    RateLimit { wait: Option<Duration>, ends: Option<Timestamp> },
    /// The HTTP status describes the failure.
    Status,
    /// An unusable answer: not JSON, too large, or a redirect to another host.
    Unreadable,
}

impl GitHubApiError {
    pub fn is_rate_limit_error(&self) -> bool {
        matches!(self.kind, ApiFailure::RateLimit { .. })
    }

    pub fn is_retryable(&self) -> bool {
        match self.kind {
            ApiFailure::Network | ApiFailure::RateLimit { .. } => true,
            ApiFailure::Status => self.status.is_some_and(|status| status == 408 || status >= 500),
            ApiFailure::Unreadable => false,
        }
    }

    /// Returns true if the object does not exist, was deleted or moved, or is not visible to the token.
    pub fn is_not_found(&self) -> bool {
        matches!(self.status, Some(404 | 410))
    }

    pub fn is_permission_denied(&self) -> bool {
        self.status == Some(403) && !self.is_rate_limit_error()
    }

    /// Returns the end of the rate limit, if a rate limit was reached and GitHub stated its end.
    pub fn resets_at(&self) -> Option<Timestamp> {
        match self.kind {
            ApiFailure::RateLimit { ends, .. } => ends,
            ApiFailure::Network | ApiFailure::Status | ApiFailure::Unreadable => None,
        }
    }

    /// Returns true if GitHub may have carried out the request although the request failed.
    pub(crate) fn may_have_happened(&self) -> bool {
        self.is_retryable() && !self.is_rate_limit_error()
    }
}

impl fmt::Display for GitHubApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitHub: {}: ", self.endpoint)?;
        if let Some(status) = self.status {
            write!(f, "{status}: ")?;
        }
        f.write_str(&self.message)?;
        match (self.resets_at(), &self.token.advice) {
            (Some(ends), _) => write!(f, " (rate limit, until {ends})"),
            (None, _) if self.is_rate_limit_error() => f.write_str(" (rate limit)"),
            (None, Some(advice)) => write!(f, "; {advice}"),
            (None, None) => Ok(()),
        }
    }
}

/// Facts about the token that an answer states.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenFacts {
    /// Scopes of the token. Only classic tokens have scopes.
    pub scopes: Option<Vec<String>>,
    /// Advice on what to check, for people.
    pub advice: Option<String>,
}

/// A token that is missing, refused, or lacks a permission.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GitHubAuthError {
    pub message: String,
    pub found_scopes: Vec<String>,
    pub required_scopes: Vec<String>,
}

impl GitHubAuthError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), ..Self::default() }
    }

    pub fn missing_scopes(&self) -> Vec<String> {
        let missing = |scope: &&String| !self.found_scopes.contains(scope);
        self.required_scopes.iter().filter(missing).cloned().collect()
    }
}

impl std::error::Error for GitHubAuthError {}

impl fmt::Display for GitHubAuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GitHub: {}", self.message)?;
        let missing = self.missing_scopes();
        if !missing.is_empty() {
            let found =
                if self.found_scopes.is_empty() { "none".into() } else { self.found_scopes.join(", ") };
            write!(f, "; missing scopes: {} (found: {found})", missing.join(", "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_classified_by_status_and_kind() {
        let limited = ApiFailure::RateLimit { wait: None, ends: Some(Timestamp::UNIX_EPOCH) };
        for (status, kind, words) in [
            (Some(404), ApiFailure::Status, "not found"),
            (Some(410), ApiFailure::Status, "not found"),
            (Some(403), ApiFailure::Status, "denied"),
            (Some(403), limited, "limit retry"),
            (Some(429), limited, "limit retry"),
            (Some(500), ApiFailure::Status, "retry perhaps"),
            (Some(408), ApiFailure::Status, "retry perhaps"),
            (None, ApiFailure::Network, "retry perhaps"),
            (Some(200), ApiFailure::Network, "retry perhaps"),
            (Some(422), ApiFailure::Status, ""),
            (Some(200), ApiFailure::Unreadable, ""),
        ] {
            let endpoint = "GET /repos/o/r".to_owned();
            let error = GitHubApiError {
                status,
                endpoint,
                message: "no".into(),
                rate_limit: None,
                kind,
                token: Box::default(),
            };
            let all = [
                (error.is_not_found(), "not found"),
                (error.is_permission_denied(), "denied"),
                (error.is_rate_limit_error(), "limit"),
                (error.is_retryable(), "retry"),
                (error.may_have_happened(), "perhaps"),
            ];
            let true_ones: Vec<&str> = all.iter().filter(|(is, _)| *is).map(|(_, word)| *word).collect();
            assert_eq!(true_ones.join(" "), words, "{error:?}");
            assert_eq!(error.resets_at().is_some(), error.is_rate_limit_error());
        }
    }

    #[test]
    fn error_messages_name_endpoint_status_and_scopes() {
        let mut error = GitHubApiError {
            status: Some(403),
            endpoint: "GET /repos/o/r/issues".into(),
            message: "API rate limit exceeded".into(),
            rate_limit: None,
            kind: ApiFailure::RateLimit { wait: None, ends: Some(Timestamp::UNIX_EPOCH) },
            token: Box::default(),
        };
        assert_eq!(
            error.to_string(),
            "GitHub: GET /repos/o/r/issues: 403: API rate limit exceeded (rate limit, until 1970-01-01T00:00:00Z)"
        );
        (error.kind, error.status) = (ApiFailure::Network, None);
        assert_eq!(error.to_string(), "GitHub: GET /repos/o/r/issues: API rate limit exceeded");

        let auth = GitHubAuthError {
            message: "the token may not change issues of o/r".into(),
            found_scopes: vec!["gist".into()],
            required_scopes: vec!["repo".into()],
        };
        assert_eq!(auth.missing_scopes(), ["repo"]);
        assert_eq!(
            auth.to_string(),
            "GitHub: the token may not change issues of o/r; missing scopes: repo (found: gist)"
        );
        assert_eq!(GitHubAuthError::new("no token").to_string(), "GitHub: no token");
    }
}
