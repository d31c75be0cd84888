//! The permission of a person in a repository, and the origin of a pull request. Both decide about trust.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use cowhand_core::github;
use cowhand_core::trust::{AuthorPermission, Head, RepoPermission};
use serde::Deserialize;
use tokio::sync::OnceCell;

use super::client::{ApiRequest, GitHubClient};
use super::issues::encoded;
use super::settings::GitHubSettings;
use crate::{SourceContext, WorkSourceError};

/// Time for which an answer is cached. Items of strangers are checked with every poll.
const PERMISSION_LIFETIME: Duration = Duration::from_mins(10);
/// Maximum number of repositories that are cached. Webhooks can name any repository.
const MAX_REPOSITORIES: usize = 256;

/// A repository with its API and credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryAccess {
    /// `owner/name`
    pub repo: String,
    pub api_url: Option<String>,
    pub auth: github::Auth,
}

/// Cached permissions of people, by repository.
#[derive(Debug, Default)]
pub struct AuthorPermissions {
    repositories: Mutex<Vec<(RepositoryAccess, Arc<RepositoryPermissions>)>>,
}

/// Cached answer. While a request runs, other callers wait for the answer to that request.
type Known = OnceCell<(Instant, AuthorPermission)>;

#[derive(Debug)]
struct RepositoryPermissions {
    client: GitHubClient,
    known: Mutex<HashMap<String, Arc<Known>>>,
    /// Set as soon as the repository is known to be visible.
    seen: OnceCell<()>,
}

impl AuthorPermissions {
    pub async fn permission(
        &self,
        access: &RepositoryAccess,
        login: &str,
        context: &SourceContext,
    ) -> Result<AuthorPermission, WorkSourceError> {
        let repository = self.repository(access, context)?;
        let known = repository.known(login.to_lowercase());
        let ask = async || Ok((Instant::now(), repository.ask(access, login).await?));
        known.get_or_try_init(ask).await.map(|(_, permission)| *permission)
    }

    pub async fn head(
        &self,
        access: &RepositoryAccess,
        pull: u64,
        context: &SourceContext,
    ) -> Result<Head, WorkSourceError> {
        let repository = self.repository(access, context)?;
        let call = ApiRequest::get(format!("repos/{}/pulls/{pull}", access.repo));
        let pull: Pull = match repository.client.ask(call).await {
            Err(error) if error.is_not_found() => return Ok(Head::Unknown),
            pull => pull?,
        };
        Ok(match (pull.head.repo, pull.base.repo) {
            (Some(head), Some(base)) if head.full_name.eq_ignore_ascii_case(&base.full_name) => Head::Own,
            (head, _) => Head::Fork(head.map(|home| home.full_name)),
        })
    }

    /// Checks that the credentials for these requests can be read. Sends no request.
    pub fn check(&self, access: &RepositoryAccess, context: &SourceContext) -> Result<(), WorkSourceError> {
        self.repository(access, context).map(drop)
    }

    /// Forgets everything after a reload, because tokens may have changed.
    pub fn clear(&self) {
        self.repositories.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn repository(
        &self,
        access: &RepositoryAccess,
        context: &SourceContext,
    ) -> Result<Arc<RepositoryPermissions>, WorkSourceError> {
        let mut repositories = self.repositories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, repository)) = repositories.iter().find(|(known, _)| known == access) {
            return Ok(Arc::clone(repository));
        }
        let mut settings = GitHubSettings::new(&access.repo);
        if let Some(api_url) = &access.api_url {
            settings.api_url.clone_from(api_url);
        }
        let client = GitHubClient::new(&settings, &access.auth, context)?;
        let repository =
            Arc::new(RepositoryPermissions { client, known: Mutex::default(), seen: OnceCell::new() });
        if repositories.len() >= MAX_REPOSITORIES {
            repositories.clear();
        }
        repositories.push((access.clone(), Arc::clone(&repository)));
        Ok(repository)
    }
}

impl RepositoryPermissions {
    /// Checks that the repository is visible. GitHub gives the same answer for a hidden repository and for a repository
    /// in which the person has no role.
    async fn check_visible(&self, access: &RepositoryAccess) -> Result<(), WorkSourceError> {
        let read_repository =
            async || self.client.call(&ApiRequest::get(format!("repos/{}", access.repo))).await.map(drop);
        self.seen.get_or_try_init(read_repository).await?;
        Ok(())
    }

    async fn ask(&self, access: &RepositoryAccess, login: &str) -> Result<AuthorPermission, WorkSourceError> {
        let call =
            ApiRequest::get(format!("repos/{}/collaborators/{}/permission", access.repo, encoded(login)));
        match self.client.ask::<CollaboratorPermission>(call).await {
            Ok(answer) => Ok(answer.permission()),
            // The account does not exist, or has no role here.
            Err(error) if error.is_not_found() => {
                self.check_visible(access).await?;
                Ok(AuthorPermission::Nothing)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn known(&self, name: String) -> Arc<Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, answer| match answer.get() {
            Some((asked, _)) => asked.elapsed() < PERMISSION_LIFETIME,
            None => Arc::strong_count(answer) > 1,
        });
        Arc::clone(known.entry(name).or_default())
    }
}

/// Answer of `GET /repos/{owner}/{repo}/collaborators/{username}/permission`.
#[derive(Debug, Deserialize)]
pub struct CollaboratorPermission {
    /// Legacy permission: `admin`, `write`, `read` or `none`.
    #[serde(default)]
    permission: String,
    /// Current role name, which may be a custom role of the organization.
    #[serde(default)]
    role_name: String,
}

impl CollaboratorPermission {
    /// Returns the permission. A custom role counts as the permission that it is based on, and `none` or an unknown
    /// name as no permission.
    pub fn permission(&self) -> AuthorPermission {
        let read = |word: &str| word.parse::<RepoPermission>().ok();
        read(&self.role_name)
            .or_else(|| read(&self.permission))
            .map_or(AuthorPermission::Nothing, AuthorPermission::Permission)
    }
}

#[derive(Debug, Deserialize)]
struct Pull {
    head: PullBranch,
    base: PullBranch,
}

#[derive(Debug, Deserialize)]
struct PullBranch {
    #[serde(default)]
    repo: Option<BranchRepository>,
}

#[derive(Debug, Deserialize)]
struct BranchRepository {
    #[serde(default)]
    full_name: String,
}
