//! Decides whether the authors of the text of a firing or an item are trusted.

use anyhow::Context;
use cowhand_core::trust::{Head, Question, TextOrigin, Trust, TrustVerdict, judge, judge_derived};
use cowhand_core::work::WorkItem;
use cowhand_core::work_source::ConfiguredSource;

use super::prepare::{PreparedFiring, Preparer};
use crate::trigger::GithubAccess;
use cowhand_work::SourceOwner;
use cowhand_work::github::RepositoryAccess;

/// The interface of GitHub at which the permissions of people are requested.
enum PermissionApi {
    Rest(RepositoryAccess),
    /// GitHub's own program, `gh`.
    Gh(GithubAccess),
}

impl Preparer<'_> {
    /// Judges the text that the firing itself contains.
    pub(super) async fn judge_firing(&self, firing: &PreparedFiring<'_>) -> anyhow::Result<TrustVerdict> {
        let trusts = firing.agent.trusts(Some(firing.schedule));
        if let Some(why) = &firing.firing_context().confined {
            return Ok(judge_derived(trusts, why));
        }
        let trigger = &firing.schedule.trigger;
        let Some(mut origin) =
            TextOrigin::of(trigger, firing.firing_context()).filter(|_| !trusts.is_empty())
        else {
            return Ok(TrustVerdict::Trusted);
        };
        let api = match (GithubAccess::of(trigger), origin.repo.clone()) {
            (Some(access), _) if access.is_by_gh() => Some(PermissionApi::Gh(access)),
            (Some(GithubAccess { owner, repo, api_url, auth, .. }), _) => {
                Some(PermissionApi::Rest(RepositoryAccess { repo: format!("{owner}/{repo}"), api_url, auth }))
            }
            (None, repo) => repo.map(|repo| PermissionApi::Rest(webhook_access(repo, &trusts))),
        };
        self.request_facts(&mut origin, &trusts, api).await?;
        Ok(judge(trusts, &origin))
    }

    /// Judges the text of an item. Items in a local folder are trusted, because they belong to the owner of the fleet.
    pub(super) async fn judge_item(
        &self,
        firing: &PreparedFiring<'_>,
        item: &WorkItem,
    ) -> anyhow::Result<TrustVerdict> {
        let trusts = firing.agent.trusts(Some(firing.schedule));
        let access = match SourceOwner::schedule(firing.agent, firing.schedule).config() {
            _ if trusts.is_empty() => return Ok(TrustVerdict::Trusted),
            None | Some(ConfiguredSource::Files { .. }) => return Ok(TrustVerdict::Trusted),
            Some(ConfiguredSource::Github { repo, api_url, auth, .. }) => {
                let repo = repo.clone().unwrap_or_default();
                Some(RepositoryAccess { repo, api_url: api_url.clone(), auth: auth.clone() })
            }
            Some(ConfiguredSource::Custom { .. }) => None,
        };
        let mut origin = TextOrigin::of_item(item, access.as_ref().map(|access| access.repo.as_str()));
        self.request_facts(&mut origin, &trusts, access.map(PermissionApi::Rest)).await?;
        Ok(judge(trusts, &origin))
    }

    /// Requests the facts that are missing for the decision. An error is returned, and the decision is tried again
    /// later, so that nobody is trusted or refused because of a network failure.
    async fn request_facts(
        &self,
        origin: &mut TextOrigin,
        trusts: &[&Trust],
        api: Option<PermissionApi>,
    ) -> anyhow::Result<()> {
        let Some(api) = api else { return Ok(()) };
        let sources = &self.engine.loaded().sources;
        let (people, context) = (sources.author_permissions(), sources.context());
        for question in origin.open_questions(trusts) {
            match (&question, &api) {
                (Question::Permission(author, login), api) => {
                    let permission = match api {
                        PermissionApi::Rest(at) => {
                            people.permission(at, login, context).await.map_err(Into::into)
                        }
                        PermissionApi::Gh(access) => access.permission(login).await,
                    };
                    let permission =
                        permission.with_context(|| format!("the permission of {login}, for `trust`"))?;
                    origin.authors[*author].permission = permission;
                }
                (Question::Head(pull), PermissionApi::Rest(at)) => {
                    let head = people.head(at, *pull, context).await;
                    origin.head =
                        head.with_context(|| format!("where pull request {pull} comes from, for `trust`"))?;
                }
                // The origin of a pull request is missing only in a webhook, and webhooks do not use `gh`.
                (Question::Head(_), PermissionApi::Gh(_)) => origin.head = Head::Unknown,
            }
        }
        Ok(())
    }
}

/// Returns the access to a webhook's repository. The webhook names the repository; the `trust` rules name the API and
/// the credentials.
fn webhook_access(repo: String, trusts: &[&Trust]) -> RepositoryAccess {
    let api_url = trusts.iter().rev().find_map(|trust| trust.api_url.clone());
    let auth = trusts.iter().rev().find_map(|trust| trust.auth.clone()).unwrap_or_default();
    RepositoryAccess { repo, api_url, auth }
}
