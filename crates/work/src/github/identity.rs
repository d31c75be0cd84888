//! The identity of the client: its account and its token.

use jiff::Timestamp;
use reqwest::Method;

use super::app::CachedToken;
use super::auth::{ApiAuth, Secret};
use super::client::{ApiRequest, GitHubClient};
use super::models::{App, Installation, InstallationToken, User};
use crate::error::github::{ApiFailure, GitHubApiError, GitHubAuthError};

impl GitHubClient {
    /// Returns the account that writes our comments; `None` if GitHub does not state it for this token.
    pub(super) async fn viewer(&self) -> Result<Option<&str>, GitHubApiError> {
        let ask = async || match &self.auth {
            ApiAuth::Token(_) => match self.ask::<User>(ApiRequest::get("user")).await {
                Ok(user) => Ok(Some(user.login)),
                Err(error)
                    if matches!(error.status, Some(401 | 403 | 404)) && !error.is_rate_limit_error() =>
                {
                    Ok(None)
                }
                Err(error) => Err(error),
            },
            ApiAuth::App(app) => {
                let call = ApiRequest::get("app");
                let jwt = app.sign_jwt(Timestamp::now()).map_err(|error| not_authenticated(&call, &error))?;
                let app: App = self.exchange(&call, &jwt).await?.json(&call.endpoint())?;
                Ok(Some(format!("{}[bot]", app.slug)))
            }
        };
        Ok(self.viewer.get_or_try_init(ask).await?.as_deref())
    }

    /// Returns the token. For an App, requests a new token if there is none or if it expires soon.
    pub(super) async fn token(&self, call: &ApiRequest) -> Result<Secret, GitHubApiError> {
        let app = match &self.auth {
            ApiAuth::Token(token) => return Ok(token.clone()),
            ApiAuth::App(app) => app,
        };
        let mut token_cache = app.token_cache.lock().await;
        if let Some(valid) = token_cache.as_ref().filter(|cached| cached.is_valid(Timestamp::now())) {
            return Ok(valid.token.clone());
        }
        let jwt = app.sign_jwt(Timestamp::now()).map_err(|error| not_authenticated(call, &error))?;
        let installation = if let Some(id) = app.installation_id {
            id
        } else {
            let find = ApiRequest::get(format!("repos/{}/installation", self.repo));
            self.exchange(&find, &jwt).await?.json::<Installation>(&find.endpoint())?.id
        };
        let request =
            ApiRequest::new(Method::POST, format!("app/installations/{installation}/access_tokens"));
        let InstallationToken { token, expires_at } =
            self.exchange(&request, &jwt).await?.json(&request.endpoint())?;
        let token = Secret::new(&token);
        *token_cache = Some(CachedToken { token: token.clone(), expires_at });
        Ok(token)
    }
}

fn not_authenticated(call: &ApiRequest, error: &GitHubAuthError) -> GitHubApiError {
    call.failed(ApiFailure::Unreadable, error.message.clone())
}
