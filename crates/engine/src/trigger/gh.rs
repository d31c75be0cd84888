//! Requests to GitHub with GitHub's own program, `gh`, and the login of that program.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use cowhand_core::cut::cut;
use cowhand_core::trigger::{IssueState, PullState};
use cowhand_core::trust::AuthorPermission;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::process::Command;

use cowhand_work::github::{CollaboratorPermission, IssueOrPull, PullDetails, encoded};

/// Value of `--limit`. Without `--limit`, `gh` returns only 30 entries.
const LIST_LIMIT: usize = 100_000;
/// Time limit for one run of `gh`, which can make many requests.
const GH_TIMEOUT: Duration = Duration::from_mins(5);
const ISSUE_FIELDS: &str = "number,title,body,url,labels,assignees,author,createdAt";
const PULL_FIELDS: &str = "headRefName,headRefOid,baseRefName,isDraft,headRepository,headRepositoryOwner";

#[derive(Debug)]
pub(super) struct Gh {
    pub(super) program: PathBuf,
    /// `OWNER/REPO`. The lists of a GitHub Enterprise server need `HOST/OWNER/REPO`; [`Self::permission`] needs
    /// `OWNER/REPO`, and gets the host as an argument.
    pub(super) repo: String,
}

impl Gh {
    pub(super) async fn issues(
        &self,
        labels: &[String],
        state: IssueState,
    ) -> anyhow::Result<Vec<IssueOrPull>> {
        let state = match state {
            IssueState::Open => "open",
            IssueState::Closed => "closed",
            IssueState::All => "all",
        };
        self.list("issue", state, labels, ISSUE_FIELDS.to_owned()).await
    }

    pub(super) async fn pulls(
        &self,
        labels: &[String],
        state: PullState,
    ) -> anyhow::Result<Vec<IssueOrPull>> {
        let state = match state {
            PullState::Open => "open",
            PullState::Closed => "closed",
            PullState::Merged => "merged",
            PullState::All => "all",
        };
        self.list("pr", state, labels, format!("{ISSUE_FIELDS},{PULL_FIELDS}")).await
    }

    async fn list(
        &self,
        what: &str,
        state: &str,
        labels: &[String],
        fields: String,
    ) -> anyhow::Result<Vec<IssueOrPull>> {
        let (mut command, limit) = (Command::new(&self.program), LIST_LIMIT.to_string());
        command.args([
            what, "list", "--repo", &self.repo, "--state", state, "--limit", &limit, "--json", &fields,
        ]);
        for label in labels {
            command.args(["--label", label]);
        }
        let entries: Vec<Entry> = self.answer(command).await?;
        // An entry that is missing from the list would count as no longer matching, and would fire again when it
        // returns.
        anyhow::ensure!(
            entries.len() < LIST_LIMIT,
            "{} has {LIST_LIMIT} or more entries with these labels; add a label to `labels` of the schedule",
            self.repo
        );
        let mut listed: Vec<IssueOrPull> = entries.into_iter().map(IssueOrPull::from).collect();
        listed.sort_by_key(|entry| (entry.created_at, entry.number));
        Ok(listed)
    }

    /// Returns the permission of a person in the repository; `host` is the host of a GitHub Enterprise server.
    pub(super) async fn permission(
        &self,
        login: &str,
        host: Option<&str>,
    ) -> anyhow::Result<AuthorPermission> {
        let path = format!("repos/{}/collaborators/{}/permission", self.repo, encoded(login));
        match self.answer::<CollaboratorPermission>(self.api(&path, host)).await {
            Ok(answer) => Ok(answer.permission()),
            // The person does not exist or has no permission, unless the repository itself is not visible.
            Err(error) if error.to_string().contains("HTTP 404") => {
                let seen = self.answer::<Value>(self.api(&format!("repos/{}", self.repo), host)).await;
                seen.with_context(|| {
                    format!("cannot find out whether the login of gh has access to {}", self.repo)
                })?;
                Ok(AuthorPermission::Nothing)
            }
            Err(error) => Err(error),
        }
    }

    fn api(&self, path: &str, host: Option<&str>) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["api", path]);
        if let Some(host) = host {
            command.args(["--hostname", host]);
        }
        command
    }

    /// Runs the command and parses its output. The process is killed if the future is dropped.
    async fn answer<T: DeserializeOwned>(&self, mut command: Command) -> anyhow::Result<T> {
        let quiet = [("GH_PROMPT_DISABLED", "1"), ("GH_NO_UPDATE_NOTIFIER", "1"), ("NO_COLOR", "1")];
        command
            .envs(quiet)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let program = self.program.display();
        let output = tokio::time::timeout(GH_TIMEOUT, command.output()).await;
        let output = output.with_context(|| format!("{program} does not answer"))?;
        let output = output.with_context(|| format!("cannot start {program}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{program}: {}", cut(said.trim(), 0, 500));
        }
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("cannot parse the output of {program}"))
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    number: u64,
    title: String,
    body: Option<String>,
    url: String,
    #[serde(default)]
    labels: Vec<Label>,
    #[serde(default)]
    assignees: Vec<Person>,
    author: Option<Person>,
    created_at: Timestamp,
    head_ref_name: Option<String>,
    head_ref_oid: Option<String>,
    base_ref_name: Option<String>,
    is_draft: Option<bool>,
    head_repository: Option<HeadRepository>,
    head_repository_owner: Option<Person>,
}

/// The head repository. Some versions of `gh` return only its name.
#[derive(Debug, Deserialize)]
struct HeadRepository {
    #[serde(default)]
    name: String,
}

fn full_name(owner: Option<Person>, repository: Option<HeadRepository>) -> Option<String> {
    let (owner, repository) = (owner?.login, repository?.name);
    (!owner.is_empty() && !repository.is_empty()).then(|| format!("{owner}/{repository}"))
}

#[derive(Debug, Deserialize)]
struct Label {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Person {
    #[serde(default)]
    login: String,
}

impl From<Entry> for IssueOrPull {
    fn from(entry: Entry) -> Self {
        let pull = entry.head_ref_name.map(|head_ref| PullDetails {
            head_ref,
            head_sha: entry.head_ref_oid.unwrap_or_default(),
            base_ref: entry.base_ref_name.unwrap_or_default(),
            is_draft: entry.is_draft.unwrap_or_default(),
            head_repo: full_name(entry.head_repository_owner, entry.head_repository).unwrap_or_default(),
        });
        Self {
            number: entry.number,
            title: entry.title,
            body: entry.body.unwrap_or_default(),
            url: entry.url,
            labels: entry.labels.into_iter().map(|label| label.name).collect(),
            assignee: entry.assignees.into_iter().next().map(|person| person.login),
            author: entry.author.map(|person| person.login).unwrap_or_default(),
            created_at: entry.created_at,
            pull,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use cowhand_core::trust::RepoPermission;

    use super::*;

    /// `gh` gives the same answer for a person without permission and for a repository that its login cannot see.
    #[tokio::test]
    async fn permissions_in_an_invisible_repository_are_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let unknown = "echo 'gh: Not Found (HTTP 404)' >&2; exit 1";
        for (of_person, of_repo, expected) in [
            (
                "echo '{\"permission\": \"write\"}'",
                unknown,
                Ok(AuthorPermission::Permission(RepoPermission::Write)),
            ),
            (unknown, "echo '{\"full_name\": \"o/r\"}'", Ok(AuthorPermission::Nothing)),
            (unknown, unknown, Err("cannot find out whether the login of gh has access to o/r")),
            (
                unknown,
                "echo 'gh: timeout' >&2; exit 1",
                Err("cannot find out whether the login of gh has access to o/r"),
            ),
            (
                "echo 'gh: Bad credentials (HTTP 401)' >&2; exit 1",
                unknown,
                Err("gh: Bad credentials (HTTP 401)"),
            ),
        ] {
            let program = folder.path().join("gh");
            let cases = format!(
                "repos/o/r/collaborators/ann/permission) {of_person};; repos/o/r) {of_repo};; *) exit 9;;"
            );
            std::fs::write(&program, format!("#!/bin/sh\ncase \"$2\" in {cases} esac\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            let shown = format!("{of_person} / {of_repo}");
            let permission = Gh { program, repo: "o/r".to_owned() }.permission("ann", None).await;
            match (permission, expected) {
                (Ok(permission), expected) => assert_eq!(Ok(permission), expected, "{shown}"),
                (Err(error), Err(expected)) => {
                    assert!(error.to_string().ends_with(expected), "{shown}: {error}");
                }
                (Err(error), Ok(_)) => panic!("{shown}: {error}"),
            }
        }
    }
}
