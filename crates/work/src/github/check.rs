//! Checks for `doctor`: the token, the repository and the labels that a source needs, with advice if one of them is
//! missing, and the requests that GitHub still allows.

use super::adapter::GitHubWorkSource;
use super::models::RepositoryInfo;
use crate::{SourceFinding, WorkSourceError};

impl GitHubWorkSource {
    pub(super) async fn findings(&self) -> Vec<SourceFinding> {
        let (origin, repo) = (&self.client.origin, &self.settings.repo);
        let mut findings = Vec::new();
        match self.read_repository().await {
            Ok((repository, scopes)) => {
                // If GitHub states no scopes of the token, it is not known what the token may change.
                let may = scopes.map_or_else(
                    || format!("{origin} sees {repo}"),
                    |scopes| format!("{origin} may change issues of {repo} (scopes: {scopes})"),
                );
                findings.push(SourceFinding::good("token", may));
                findings.push(self.check_repository(&repository));
                findings.push(self.check_label(&self.settings.ready).await);
                findings.push(self.check_label(&self.settings.in_progress).await);
            }
            Err(error @ WorkSourceError::GitHubAuth(_)) => {
                findings.push(SourceFinding::of_error("token", &error));
            }
            Err(error) => findings.push(SourceFinding::of_error("repository", &error)),
        }
        findings.extend(self.check_quota());
        findings
    }

    fn check_repository(&self, repository: &RepositoryInfo) -> SourceFinding {
        let repo = &self.settings.repo;
        if repository.archived {
            return SourceFinding::problem(
                "repository",
                format!("{repo} is archived, so nothing in it can change"),
            );
        }
        if repository.has_issues == Some(false) {
            let help = format!(
                "{repo} has its issues turned off; `gh repo edit {repo} --enable-issues` turns them on"
            );
            return SourceFinding::problem("repository", help);
        }
        SourceFinding::good("repository", format!("{} has issues", repository.full_name))
    }

    /// Checks that a label exists. A missing label is only a warning, because GitHub creates a label when it is added
    /// to an issue.
    async fn check_label(&self, label: &str) -> SourceFinding {
        let (what, repo) = (format!("label {label}"), &self.settings.repo);
        match self.issues().has_label(label).await {
            Ok(true) => SourceFinding::good(what, "is there"),
            Ok(false) => {
                let help = format!(
                    "{repo} does not have it; create it with `gh label create '{label}' --repo {repo}`"
                );
                SourceFinding::warning(what, help)
            }
            Err(error) => SourceFinding::of_error(what, &error.into()),
        }
    }

    fn check_quota(&self) -> Option<SourceFinding> {
        let quota = self.client.quota();
        let reset = |at: jiff::Timestamp| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
        if let Some(until) = quota.blocked_until {
            let detail =
                format!("GitHub's rate limit is reached; no requests are sent until {}", reset(until));
            return Some(SourceFinding::warning("quota", detail));
        }
        let info = quota.rate_limit?;
        let detail =
            format!("{} of {} requests left until {}", info.remaining, info.limit, reset(info.reset));
        let is_little = info.remaining < self.settings.warning.threshold;
        Some(if is_little {
            SourceFinding::warning("quota", detail)
        } else {
            SourceFinding::good("quota", detail)
        })
    }
}
