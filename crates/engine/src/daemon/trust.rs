//! Whether those are trusted whose words a firing or an item brings.

use anyhow::Context;
use cowhand_core::shape;
use cowhand_core::trust::{Head, Question, Trust, Verdict, Words, judge, judge_again};
use cowhand_core::work::WorkItem;

use super::prepare::{Errand, Order};
use crate::trigger::GithubAccess;
use cowhand_work::For;
use cowhand_work::github::RepositoryAccess;

/// Where questions about people are asked.
enum Desk {
    Rest(RepositoryAccess),
    /// By a program of GitHub's own.
    Gh(GithubAccess),
}

impl Errand<'_> {
    /// Of what the firing itself brings.
    pub(super) async fn judge_firing(&self, order: &Order<'_>) -> anyhow::Result<Verdict> {
        let trusts = order.agent.trusts(Some(order.schedule));
        if let Some(why) = &order.occasion().confined {
            return Ok(judge_again(trusts, why));
        }
        let trigger = &order.schedule.trigger;
        let Some(mut words) = Words::of(trigger, order.occasion()).filter(|_| !trusts.is_empty()) else {
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

    /// Of an item; those in a folder here are the owner's own.
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
        let mut words = Words::of_item(item, place.as_ref().map(|place| place.repo.as_str()));
        self.answer(&mut words, &trusts, place.map(Desk::Rest)).await?;
        Ok(judge(trusts, &words))
    }

    /// What cannot be found out now is asked again later: nobody is trusted or refused for a network that is away.
    async fn answer(&self, words: &mut Words, trusts: &[&Trust], desk: Option<Desk>) -> anyhow::Result<()> {
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
                // Its lists say where a pull request comes from.
                (Question::Head(_), Desk::Gh(_)) => words.head = Head::Unknown,
            }
        }
        Ok(())
    }
}

/// The webhook says which repository, and `trust` as whom to ask.
fn of_webhook(repo: String, trusts: &[&Trust]) -> RepositoryAccess {
    let api_url = trusts.iter().rev().find_map(|trust| trust.api_url.clone());
    let auth = trusts.iter().rev().find_map(|trust| trust.auth.clone()).unwrap_or_default();
    RepositoryAccess { repo, api_url, auth }
}
