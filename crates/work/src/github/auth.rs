//! Authentication to GitHub. Secrets do not appear in `Debug` output and are used only in the `Authorization` header.

use std::fmt;

use cowhand_core::github;
use reqwest::header::HeaderValue;

use super::app::GitHubApp;
use crate::error::github::GitHubAuthError;
use crate::{SourceContext, WorkSourceError};

/// A secret, which is printed as `[hidden]`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(String);

impl Secret {
    pub(super) fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// Returns the header value; `None` if the secret contains characters that a header cannot have.
    pub(super) fn bearer(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Replaces the secret in `text` with `[hidden]`, because the error page of a proxy may quote the request.
    pub(super) fn mask(&self, text: &str) -> String {
        if self.0.is_empty() { text.to_owned() } else { text.replace(&self.0, "[hidden]") }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

#[derive(Debug)]
pub(super) enum ApiAuth {
    Token(Secret),
    App(GitHubApp),
}

const DEFAULT_TOKEN_ENV: &str = "GITHUB_TOKEN";

impl ApiAuth {
    /// Reads the credentials that the config names. `repo` is only for the error message.
    pub(super) fn from_config(
        auth: &github::Auth,
        repo: &str,
        context: &SourceContext,
    ) -> Result<Self, WorkSourceError> {
        if let Some(app) = &auth.app {
            return GitHubApp::from_config(app, context).map(Self::App);
        }
        let name = auth.token_env.as_deref().unwrap_or(DEFAULT_TOKEN_ENV);
        match context.variable(name).filter(|token| !token.trim().is_empty()) {
            Some(token) => Self::with_token(&token, name),
            None => Err(GitHubAuthError::new(format!(
                "no token for {repo}: the variable {name} is not set; set it, add it to .env, or name another in `auth.token_env`"
            ))
            .into()),
        }
    }

    /// Describes where the credentials come from, for messages.
    pub(super) fn origin(auth: &github::Auth) -> String {
        match &auth.app {
            Some(app) => format!("the GitHub App {}", app.id),
            None => format!("the token in {}", auth.token_env.as_deref().unwrap_or(DEFAULT_TOKEN_ENV)),
        }
    }

    fn with_token(token: &str, name: &str) -> Result<Self, WorkSourceError> {
        let secret = Secret::new(token);
        match secret.bearer() {
            Some(_) => Ok(Self::Token(secret)),
            None => {
                Err(GitHubAuthError::new(format!("the token in {name} has characters that no token has"))
                    .into())
            }
        }
    }
}
