//! The permission of a person in a repository, and the origin of a pull request. Trust is decided by both.

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

/// How long an answer is cached: items of strangers are checked with every poll.
const PERMISSION_LIFETIME: Duration = Duration::from_mins(10);
/// Maximum number of repositories that are remembered, since webhooks can name any.
const MAX_REPOSITORIES: usize = 256;

/// A repository with its API and credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryAccess {
    /// `owner/name`
    pub repo: String,
    pub api_url: Option<String>,
    pub auth: github::Auth,
}

/// Known permissions of people in all repositories of the fleet.
#[derive(Debug, Default)]
pub struct People {
    places: Mutex<Vec<(RepositoryAccess, Arc<Registrar>)>>,
}

/// Cached answer. A caller that asks while a request runs waits for its answer.
type Known = OnceCell<(Instant, AuthorPermission)>;

#[derive(Debug)]
struct Registrar {
    client: GitHubClient,
    known: Mutex<HashMap<String, Arc<Known>>>,
    /// Set once the repository was found to be visible.
    seen: OnceCell<()>,
}

impl People {
    pub async fn standing(
        &self,
        place: &RepositoryAccess,
        login: &str,
        setting: &SourceContext,
    ) -> Result<AuthorPermission, WorkSourceError> {
        let registrar = self.registrar(place, setting)?;
        let known = registrar.known(login.to_lowercase());
        let ask = async || Ok((Instant::now(), registrar.ask(place, login).await?));
        known.get_or_try_init(ask).await.map(|(_, standing)| *standing)
    }

    pub async fn head(
        &self,
        place: &RepositoryAccess,
        pull: u64,
        setting: &SourceContext,
    ) -> Result<Head, WorkSourceError> {
        let registrar = self.registrar(place, setting)?;
        let call = ApiRequest::get(format!("repos/{}/pulls/{pull}", place.repo));
        let pull: Pull = match registrar.client.ask(call).await {
            Err(error) if error.is_not_found() => return Ok(Head::Unknown),
            pull => pull?,
        };
        Ok(match (pull.head.repo, pull.base.repo) {
            (Some(head), Some(base)) if head.full_name.eq_ignore_ascii_case(&base.full_name) => Head::Own,
            (head, _) => Head::Fork(head.map(|home| home.full_name)),
        })
    }

    /// Checks that permissions can be queried, which needs a token.
    pub fn check(&self, place: &RepositoryAccess, setting: &SourceContext) -> Result<(), WorkSourceError> {
        self.registrar(place, setting).map(drop)
    }

    /// Forgets everything after a reload, because tokens may have changed.
    pub fn clear(&self) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn registrar(
        &self,
        place: &RepositoryAccess,
        setting: &SourceContext,
    ) -> Result<Arc<Registrar>, WorkSourceError> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, registrar)) = places.iter().find(|(known, _)| known == place) {
            return Ok(Arc::clone(registrar));
        }
        let mut settings = GitHubSettings::new(&place.repo);
        if let Some(api_url) = &place.api_url {
            settings.api_url.clone_from(api_url);
        }
        let client = GitHubClient::new(&settings, &place.auth, setting)?;
        let registrar = Arc::new(Registrar { client, known: Mutex::default(), seen: OnceCell::new() });
        if places.len() >= MAX_REPOSITORIES {
            places.clear();
        }
        places.push((place.clone(), Arc::clone(&registrar)));
        Ok(registrar)
    }
}

impl Registrar {
    /// Checks that the repository is visible: a hidden repository answers in the same way as one in which the person
    /// has no role.
    async fn sees(&self, place: &RepositoryAccess) -> Result<(), WorkSourceError> {
        let look =
            async || self.client.call(&ApiRequest::get(format!("repos/{}", place.repo))).await.map(drop);
        self.seen.get_or_try_init(look).await?;
        Ok(())
    }

    async fn ask(&self, place: &RepositoryAccess, login: &str) -> Result<AuthorPermission, WorkSourceError> {
        let call =
            ApiRequest::get(format!("repos/{}/collaborators/{}/permission", place.repo, encoded(login)));
        match self.client.ask::<CollaboratorPermission>(call).await {
            Ok(answer) => Ok(answer.standing()),
            // The account does not exist, or has no role here.
            Err(error) if error.is_not_found() => {
                self.sees(place).await?;
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
    /// Current role name, which may be a custom one of the organization.
    #[serde(default)]
    role_name: String,
}

impl CollaboratorPermission {
    /// Returns the permission. A custom role counts as the permission that it is based on.
    pub fn standing(&self) -> AuthorPermission {
        let read = |word: &str| word.parse::<RepoPermission>().ok();
        read(&self.role_name)
            .or_else(|| read(&self.permission))
            .map_or(AuthorPermission::Nothing, AuthorPermission::Permission)
    }
}

#[derive(Debug, Deserialize)]
struct Pull {
    head: End,
    base: End,
}

#[derive(Debug, Deserialize)]
struct End {
    #[serde(default)]
    repo: Option<Home>,
}

#[derive(Debug, Deserialize)]
struct Home {
    #[serde(default)]
    full_name: String,
}
