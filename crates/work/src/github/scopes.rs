//! Checks of the token's permissions.

use super::advice;
use super::client::ApiRequest;
use super::models::RepositoryInfo;
use crate::WorkSourceError;
use crate::error::github::{GitHubApiError, GitHubAuthError};
use crate::github::GitHubWorkSource;

impl GitHubWorkSource {
    /// Checks the token. Classic tokens state their scopes. For fine-grained tokens and tokens of Apps, the check is
    /// only that they can see the repository.
    pub async fn validate_token(&self) -> Result<(), WorkSourceError> {
        self.read_repository().await.map(drop)
    }

    /// Returns the repository, and the scopes of a token that states them.
    pub(super) async fn read_repository(&self) -> Result<(RepositoryInfo, Option<String>), WorkSourceError> {
        let (repo, origin) = (&self.settings.repo, &self.client.origin);
        let call = ApiRequest::get(format!("repos/{repo}"));
        let reply = match self.client.call(&call).await {
            Err(error)
                if error.status == Some(401) || error.is_not_found() || error.is_permission_denied() =>
            {
                return Err(refused(&error).into());
            }
            reply => reply?,
        };
        let repository: RepositoryInfo = reply.json(&call.endpoint())?;
        let Some(scopes) = reply.header("x-oauth-scopes") else { return Ok((repository, None)) };
        let found = advice::words(scopes);
        match missing(&found, repository.private) {
            None => Ok((repository, Some(found.join(", ")))),
            Some(required) => {
                let message = format!("{origin} may not change issues of {repo}");
                let required_scopes = vec![required.to_owned()];
                Err(GitHubAuthError { message, found_scopes: found, required_scopes }.into())
            }
        }
    }
}

/// Converts an error, with advice on what to check. A missing scope is named only if the status is not 401, the answer
/// lists scopes, and `repo` is not among them.
fn refused(error: &GitHubApiError) -> GitHubAuthError {
    let message = error.token.advice.clone().unwrap_or_else(|| error.message.clone());
    let found = error
        .token
        .scopes
        .clone()
        .filter(|found| error.status != Some(401) && missing(found, true).is_some());
    let required_scopes = if found.is_some() { vec!["repo".to_owned()] } else { Vec::new() };
    GitHubAuthError { message, found_scopes: found.unwrap_or_default(), required_scopes }
}

/// Returns the scope that is required and missing, if there is one. `repo` includes `public_repo`.
fn missing(found: &[String], is_private: bool) -> Option<&'static str> {
    let has = |scope: &str| found.iter().any(|found| found == scope);
    match is_private {
        true if !has("repo") => Some("repo"),
        false if !has("repo") && !has("public_repo") => Some("public_repo"),
        true | false => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_scopes_are_named() {
        for (found, private, public) in [
            (&["repo"][..], None, None),
            (&["gist", "repo"], None, None),
            (&["public_repo"], Some("repo"), None),
            (&["gist"], Some("repo"), Some("public_repo")),
            (&["repo:status"], Some("repo"), Some("public_repo")),
            (&[], Some("repo"), Some("public_repo")),
        ] {
            let found: Vec<String> = found.iter().map(|&scope| scope.to_owned()).collect();
            assert_eq!((missing(&found, true), missing(&found, false)), (private, public), "{found:?}");
        }
    }
}
