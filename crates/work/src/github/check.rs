//! For `doctor`: what a source needs of GitHub, each with what to do if it is not there.

use super::adapter::GitHubWorkSource;
use super::models::Repository;
use crate::{Finding, WorkSourceError};

impl GitHubWorkSource {
    pub(super) async fn findings(&self) -> Vec<Finding> {
        let (origin, repo) = (&self.client.origin, &self.settings.repo);
        let mut findings = Vec::new();
        match self.see_repository().await {
            Ok((repository, scopes)) => {
                // A token that names no scopes keeps to itself what it may change.
                let may = scopes.map_or_else(
                    || format!("{origin} sees {repo}"),
                    |scopes| format!("{origin} may change issues of {repo} (scopes: {scopes})"),
                );
                findings.push(Finding::good("token", may));
                findings.push(self.of_repository(&repository));
                findings.push(self.of_label(&self.settings.ready).await);
                findings.push(self.of_label(&self.settings.in_progress).await);
            }
            Err(error @ WorkSourceError::GitHubAuth(_)) => {
                findings.push(Finding::of_error("token", &error));
            }
            Err(error) => findings.push(Finding::of_error("repository", &error)),
        }
        findings.extend(self.of_quota());
        findings
    }

    fn of_repository(&self, repository: &Repository) -> Finding {
        let repo = &self.settings.repo;
        if repository.archived {
            return Finding::problem(
                "repository",
                format!("{repo} is archived, so nothing in it can change"),
            );
        }
        if repository.has_issues == Some(false) {
            let help = format!(
                "{repo} has its issues turned off; `gh repo edit {repo} --enable-issues` turns them on"
            );
            return Finding::problem("repository", help);
        }
        Finding::good("repository", format!("{} has issues", repository.full_name))
    }

    /// GitHub makes a label that is not there when an issue gets it, so that this is no more than odd.
    async fn of_label(&self, label: &str) -> Finding {
        let (what, repo) = (format!("label {label}"), &self.settings.repo);
        match self.issues().has_label(label).await {
            Ok(true) => Finding::good(what, "is there"),
            Ok(false) => {
                let help =
                    format!("{repo} does not have it; `gh label create '{label}' --repo {repo}` makes it");
                Finding::warning(what, help)
            }
            Err(error) => Finding::of_error(what, &error.into()),
        }
    }

    fn of_quota(&self) -> Option<Finding> {
        let quota = self.client.quota();
        let reset = |at: jiff::Timestamp| at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
        if let Some(until) = quota.blocked_until {
            let detail = format!("a limit of GitHub's is reached; nothing is asked until {}", reset(until));
            return Some(Finding::warning("quota", detail));
        }
        let info = quota.rate_limit?;
        let detail =
            format!("{} of {} requests left until {}", info.remaining, info.limit, reset(info.reset));
        let is_little = info.remaining < self.settings.warning.threshold;
        Some(if is_little { Finding::warning("quota", detail) } else { Finding::good("quota", detail) })
    }
}
