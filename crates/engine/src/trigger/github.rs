//! The sources of tasks for issues and pull requests of GitHub.

use std::path::PathBuf;

use async_trait::async_trait;
use cowhand_core::github::Auth;
use cowhand_core::trigger::{GithubBackend, IssueState, PullState, TriggerConfig};
use cowhand_core::trust::AuthorPermission;

use super::gh::Gh;
use super::strategy::{FatalTriggerError, Task, TaskSource};
use cowhand_work::SourceContext;
use cowhand_work::github::{IssueOrPull, Lists, PullDetails};

/// The address of a repository, and the credentials for it.
#[derive(Debug, Clone)]
pub struct GithubAccess {
    pub owner: String,
    pub repo: String,
    /// Address of the API of a GitHub Enterprise server; `None` for `github.com`.
    pub api_url: Option<String>,
    pub auth: Auth,
    pub backend: GithubBackend,
    /// The program for [`GithubBackend::Gh`].
    pub gh: PathBuf,
}

impl GithubAccess {
    pub fn new(owner: impl Into<String>, repo: impl Into<String>) -> Self {
        let (owner, repo, auth, gh) = (owner.into(), repo.into(), Auth::default(), PathBuf::from("gh"));
        Self { owner, repo, api_url: None, auth, backend: GithubBackend::Rest, gh }
    }

    /// Returns the access of a trigger; `None` if the trigger does not list issues or pull requests of GitHub.
    pub fn of(trigger: &TriggerConfig) -> Option<Self> {
        let (TriggerConfig::GithubIssues { owner, repo, api_url, auth, backend, .. }
        | TriggerConfig::GithubPullRequests { owner, repo, api_url, auth, backend, .. }) = trigger
        else {
            return None;
        };
        Some(Self::by((owner, repo), api_url.as_deref(), auth, *backend))
    }

    /// Builds the access from the keys of a trigger.
    pub(super) fn by(
        (owner, repo): (&str, &str),
        api_url: Option<&str>,
        auth: &Auth,
        backend: Option<GithubBackend>,
    ) -> Self {
        let (api_url, auth) = (api_url.map(str::to_owned), auth.clone());
        Self { api_url, auth, backend: backend.unwrap_or(GithubBackend::Rest), ..Self::new(owner, repo) }
    }

    pub(crate) fn is_by_gh(&self) -> bool {
        self.backend == GithubBackend::Gh
    }

    /// Returns the permission of a person in the repository, requested with `gh`.
    pub async fn permission(&self, login: &str) -> anyhow::Result<AuthorPermission> {
        let host = self.api_url.as_deref().and_then(host_of);
        let repo = format!("{}/{}", self.owner, self.repo);
        Gh { program: self.gh.clone(), repo }.permission(login, host).await
    }

    /// Checks the address and the credentials, without a request.
    pub(crate) fn check(&self, context: &SourceContext) -> anyhow::Result<()> {
        self.backend(context).map(drop)
    }

    /// Builds the backend. An error is fatal, because a person has to fix the config or the credentials.
    fn backend(&self, context: &SourceContext) -> anyhow::Result<Backend> {
        let repo = format!("{}/{}", self.owner, self.repo);
        Ok(match self.backend {
            GithubBackend::Gh => {
                let host = self.api_url.as_deref().and_then(host_of);
                let repo = host.map_or_else(|| repo.clone(), |host| format!("{host}/{repo}"));
                Backend::Gh(Gh { program: self.gh.clone(), repo })
            }
            GithubBackend::Rest => {
                let lists = Lists::new(&repo, self.api_url.as_deref(), &self.auth, context);
                Backend::Rest(lists.map_err(|error| FatalTriggerError(error.to_string()))?)
            }
        })
    }
}

/// Returns the host of an address such as `https://github.example.com/api/v3`.
fn host_of(api_url: &str) -> Option<&str> {
    api_url.split_once("://")?.1.split('/').next()
}

#[derive(Debug)]
enum Backend {
    Rest(Lists),
    Gh(Gh),
}

/// The source of all issues in `state` that have all `labels`.
#[derive(Debug)]
pub struct GithubIssueSource {
    backend: Backend,
    labels: Vec<String>,
    state: IssueState,
}

impl GithubIssueSource {
    pub fn new(
        access: &GithubAccess,
        labels: Vec<String>,
        state: IssueState,
        context: &SourceContext,
    ) -> anyhow::Result<Self> {
        Ok(Self { backend: access.backend(context)?, labels, state })
    }
}

#[async_trait]
impl TaskSource for GithubIssueSource {
    async fn fetch_tasks(&self) -> anyhow::Result<Vec<Task>> {
        let listed = match &self.backend {
            Backend::Rest(lists) => lists.issues(&self.labels, self.state).await?,
            Backend::Gh(gh) => gh.issues(&self.labels, self.state).await?,
        };
        Ok(tasks(listed, &self.labels))
    }

    fn source_type(&self) -> &'static str {
        "github_issues"
    }
}

/// The source of all pull requests in `state` that have all `labels`.
#[derive(Debug)]
pub struct GithubPullRequestSource {
    backend: Backend,
    labels: Vec<String>,
    state: PullState,
}

impl GithubPullRequestSource {
    pub fn new(
        access: &GithubAccess,
        labels: Vec<String>,
        state: PullState,
        context: &SourceContext,
    ) -> anyhow::Result<Self> {
        Ok(Self { backend: access.backend(context)?, labels, state })
    }
}

#[async_trait]
impl TaskSource for GithubPullRequestSource {
    async fn fetch_tasks(&self) -> anyhow::Result<Vec<Task>> {
        let listed = match &self.backend {
            Backend::Rest(lists) => lists.pulls(self.state).await?,
            Backend::Gh(gh) => gh.pulls(&self.labels, self.state).await?,
        };
        Ok(tasks(listed, &self.labels))
    }

    fn source_type(&self) -> &'static str {
        "github_pull_requests"
    }
}

/// Returns the tasks of the entries that have all the labels, compared without case.
fn tasks(listed: Vec<IssueOrPull>, labels: &[String]) -> Vec<Task> {
    let has = |listed: &IssueOrPull, wanted: &String| {
        listed.labels.iter().any(|label| label.to_lowercase() == wanted.to_lowercase())
    };
    let matches = |listed: &IssueOrPull| labels.iter().all(|wanted| has(listed, wanted));
    listed.into_iter().filter(matches).map(task).collect()
}

fn task(listed: IssueOrPull) -> Task {
    let mut metadata = vec![("author", listed.author), ("created_at", listed.created_at.to_string())];
    if let Some(PullDetails { head_ref, head_sha, base_ref, is_draft, head_repo }) = listed.pull {
        let is_draft = is_draft.to_string();
        metadata.extend([
            ("head_ref", head_ref),
            ("base_ref", base_ref),
            ("is_draft", is_draft),
            ("head_sha", head_sha),
            ("head_repo", head_repo),
        ]);
    }
    Task {
        source_id: listed.number.to_string(),
        title: listed.title,
        body: listed.body,
        url: listed.url,
        labels: listed.labels,
        assignee: listed.assignee,
        metadata: metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
    }
}
