//! Decides whether the authors of the text of a firing or an item are trusted.

use anyhow::Context;
use cowhand_core::shape;
use cowhand_core::trust::{Head, Question, TextOrigin, Trust, Verdict, judge, judge_again};
use cowhand_core::work::WorkItem;

use super::prepare::{Errand, Order};
use crate::trigger::GithubAccess;
use cowhand_work::For;
use cowhand_work::github::RepositoryAccess;

/// The interface of GitHub at which the permissions of people are requested.
enum Desk {
    Rest(RepositoryAccess),
    /// GitHub's own program, `gh`.
    Gh(GithubAccess),
}

impl Errand<'_> {
    /// Judges the text that the firing itself contains.
    pub(super) async fn judge_firing(&self, order: &Order<'_>) -> anyhow::Result<Verdict> {
        let trusts = order.agent.trusts(Some(order.schedule));
        if let Some(why) = &order.firing_context().confined {
            return Ok(judge_again(trusts, why));
        }
        let trigger = &order.schedule.trigger;
        let Some(mut words) = TextOrigin::of(trigger, order.firing_context()).filter(|_| !trusts.is_empty())
        else {
            return Ok(Verdict::Trusted);
        };
        let desk = match (GithubAccess::of(trigger), words.repo.clone()) {
            (Some(access), _) if access.is_by_gh() => Some(Desk::Gh(access)),
            (Some(GithubAccess { owner, repo, api_url, auth, .. }), _) => {
                Some(Desk::Rest(RepositoryAccess { repo: format!("{owner}/{repo}"), api_url, auth }))
            }
            (None, repo) => repo.map(|repo| Desk::Rest(of_webhook(repo, &trusts))),
        };
        self.answer(&mut words, &trusts, desk).await?;
        Ok(judge(trusts, &words))
    }

    /// Judges the text of an item. Items in a local folder are the owner's own.
    pub(super) async fn judge_item(&self, order: &Order<'_>, item: &WorkItem) -> anyhow::Result<Verdict> {
        let trusts = order.agent.trusts(Some(order.schedule));
        let place = match For::schedule(order.agent, order.schedule).config() {
            _ if trusts.is_empty() => return Ok(Verdict::Trusted),
            None | Some(shape::WorkSource::Files { .. }) => return Ok(Verdict::Trusted),
            Some(shape::WorkSource::Github { repo, api_url, auth, .. }) => {
                let repo = repo.clone().unwrap_or_default();
                Some(RepositoryAccess { repo, api_url: api_url.clone(), auth: auth.clone() })
            }
            Some(shape::WorkSource::Custom { .. }) => None,
        };
        let mut words = TextOrigin::of_item(item, place.as_ref().map(|place| place.repo.as_str()));
        self.answer(&mut words, &trusts, place.map(Desk::Rest)).await?;
        Ok(judge(trusts, &words))
    }

    /// Requests the missing facts. An error is returned and the request repeated later, so that nobody is trusted or
    /// refused because of a network failure.
    async fn answer(
        &self,
        words: &mut TextOrigin,
        trusts: &[&Trust],
        desk: Option<Desk>,
    ) -> anyhow::Result<()> {
        let Some(desk) = desk else { return Ok(()) };
        let sources = &self.engine.loaded().sources;
        let (people, setting) = (sources.people(), sources.setting());
        for question in words.open_questions(trusts) {
            match (&question, &desk) {
                (Question::Permission(place, login), desk) => {
                    let standing = match desk {
                        Desk::Rest(at) => people.standing(at, login, setting).await.map_err(Into::into),
                        Desk::Gh(access) => access.standing(login).await,
                    };
                    let standing =
                        standing.with_context(|| format!("the permission of {login}, for `trust`"))?;
                    words.authors[*place].standing = standing;
                }
                (Question::Head(pull), Desk::Rest(at)) => {
                    let head = people.head(at, *pull, setting).await;
                    words.head =
                        head.with_context(|| format!("where pull request {pull} comes from, for `trust`"))?;
                }
                // The lists of `gh` contain the origin of a pull request.
                (Question::Head(_), Desk::Gh(_)) => words.head = Head::Unknown,
            }
        }
        Ok(())
    }
}

/// Returns the place of a webhook's repository: the webhook names the repository, `trust` the API and the credentials.
fn of_webhook(repo: String, trusts: &[&Trust]) -> RepositoryAccess {
    let api_url = trusts.iter().rev().find_map(|trust| trust.api_url.clone());
    let auth = trusts.iter().rev().find_map(|trust| trust.auth.clone()).unwrap_or_default();
    RepositoryAccess { repo, api_url, auth }
}
