//! Whose words a firing or a work item brings.

use indexmap::IndexSet;
use serde_json::Value;

use super::{RepoPermission, Trust};
use crate::firing::Occasion;
use crate::trigger::TriggerConfig;
use crate::work::WorkItem;

/// Everybody whose words reach the prompt, or who made them reach it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Words {
    /// In which the authors' permissions count, as `owner/name`.
    pub repo: Option<String>,
    pub authors: Vec<Author>,
    pub head: Head,
    /// Anybody could have sent it.
    pub unsigned: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// None for an account that is gone.
    pub login: Option<String>,
    pub standing: Standing,
}

/// What an author may do in the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nobody asked yet, or there is no repository.
    Unknown,
    Nothing,
    Permission(RepoPermission),
}

/// Where the commits come from that it is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Head {
    /// From the repository, or there are none.
    #[default]
    Own,
    /// From another repository, if that is still there.
    Fork(Option<String>),
    /// From wherever this pull request has them.
    OfPull(u64),
}

/// What has to be found out before there can be a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// The permission of the author in this place of the list.
    Permission(usize, String),
    /// Where the commits of this pull request come from.
    Head(u64),
}

impl Words {
    /// None if a firing brings no words of anybody: the clock's, a person's own, or those of an agent of the fleet,
    /// which bring their verdict with them.
    pub fn of(trigger: &TriggerConfig, occasion: &Occasion) -> Option<Self> {
        match trigger {
            TriggerConfig::Webhook { allow_unsigned: true, .. } => {
                Some(Self { unsigned: true, ..Self::default() })
            }
            TriggerConfig::Webhook { .. } => {
                Some(Self::of_payload(occasion.payload.as_ref().unwrap_or(&Value::Null)))
            }
            TriggerConfig::GithubIssues { owner, repo, .. }
            | TriggerConfig::GithubPullRequests { owner, repo, .. } => {
                let head = match occasion.task.metadata.get("head_repo").map(String::as_str) {
                    None => Head::Own,
                    Some("") => Head::Fork(None),
                    Some(from) if from.eq_ignore_ascii_case(&format!("{owner}/{repo}")) => Head::Own,
                    Some(from) => Head::Fork(Some(from.to_owned())),
                };
                let repo = Some(format!("{owner}/{repo}"));
                Some(Self { repo, head, ..Self::by(author_of(occasion)) })
            }
            TriggerConfig::Chat { .. } | TriggerConfig::Custom { .. } => {
                let named = author_of(occasion).login.is_some();
                Some(if named { Self::by(author_of(occasion)) } else { Self::default() })
            }
            TriggerConfig::Interval { .. }
            | TriggerConfig::Cron { .. }
            | TriggerConfig::Delay { .. }
            | TriggerConfig::Manual {}
            | TriggerConfig::AgentLifecycle { .. }
            | TriggerConfig::DispatchResult { .. } => None,
        }
    }

    /// Of an item of a source that has authors; `repo` where its source is one.
    pub fn of_item(item: &WorkItem, repo: Option<&str>) -> Self {
        let login = item.metadata.get("author").and_then(Value::as_str).map(str::to_owned);
        let repo = repo.map(str::to_owned);
        match login {
            None if repo.is_none() => Self::default(),
            login => Self { repo, ..Self::by(Author::new(login)) },
        }
    }

    fn by(author: Author) -> Self {
        Self { authors: vec![author], ..Self::default() }
    }

    /// Who sent it, and everybody who is named as the author of a part of it.
    fn of_payload(payload: &Value) -> Self {
        // Git's authors are what somebody wrote there, and no accounts.
        let parts = payload.as_object().into_iter().flatten().filter(|(name, _)| *name != "head_commit");
        let of_part = |(_, part): (&String, &Value)| {
            let fields = ["user", "author", "creator"].into_iter();
            fields.filter_map(|field| part.get(field).map(login)).collect::<Vec<_>>()
        };
        let sender = payload.get("sender").or_else(|| payload.get("user")).map(login);
        let logins: IndexSet<Option<String>> = parts.flat_map(of_part).chain(sender).collect();
        let repo = payload.pointer("/repository/full_name").and_then(Value::as_str);
        let repo = repo.filter(|repo| is_plain(repo)).map(str::to_owned);
        let head = head_of(payload, repo.as_deref());
        Self { repo, authors: logins.into_iter().map(Author::new).collect(), head, unsigned: false }
    }

    /// What these want to know that is not known.
    pub fn open_questions(&self, trusts: &[&Trust]) -> Vec<Question> {
        let by_permission =
            |trust: &Trust, login: &str| trust.min_permission.is_some() && !trust.knows(Some(login));
        let authors = self.authors.iter().enumerate().filter_map(|(place, author)| {
            let login = author.login.as_deref().filter(|_| self.repo.is_some())?;
            let asked = author.standing == Standing::Unknown
                && trusts.iter().any(|trust| by_permission(trust, login));
            asked.then(|| Question::Permission(place, login.to_owned()))
        });
        let mut questions: Vec<Question> = authors.collect();
        if let (Head::OfPull(number), true) = (&self.head, trusts.iter().any(|trust| trust.asks_for_forks()))
        {
            questions.push(Question::Head(*number));
        }
        questions
    }

    /// Why it counts as a fork's, if it does.
    pub(super) fn fork(&self) -> Option<String> {
        match &self.head {
            Head::Own => None,
            Head::Fork(Some(from)) => Some(format!("its commits come from the fork {from}")),
            Head::Fork(None) => Some("its commits come from a fork that is gone".to_owned()),
            Head::OfPull(number) => Some(format!("nobody knows where pull request {number} comes from")),
        }
    }

    pub(super) fn silence(&self) -> &'static str {
        if self.unsigned {
            "its deliveries are not signed, so that anybody could have written it"
        } else {
            "it does not say who wrote it"
        }
    }
}

impl Author {
    pub fn new(login: Option<String>) -> Self {
        Self { login, standing: Standing::Unknown }
    }
}

fn author_of(occasion: &Occasion) -> Author {
    Author::new(occasion.task.metadata.get("author").filter(|login| !login.is_empty()).cloned())
}

/// It becomes a part of addresses.
fn is_plain(repo: &str) -> bool {
    let plain = |part: &str| {
        let has_plain_bytes = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
        has_plain_bytes && !matches!(part, "" | "." | "..")
    };
    repo.split_once('/').is_some_and(|(owner, name)| plain(owner) && plain(name))
}

/// GitHub's word for an account, or GitLab's.
fn login(account: &Value) -> Option<String> {
    let name = account.get("login").or_else(|| account.get("username"))?;
    name.as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

fn head_of(payload: &Value, repo: Option<&str>) -> Head {
    let name = |pointer: &str| payload.pointer(pointer).and_then(Value::as_str);
    let from = |head: Option<&str>, base: Option<&str>| match (head, base) {
        (Some(head), Some(base)) if head.eq_ignore_ascii_case(base) => Head::Own,
        (head, _) => Head::Fork(head.map(str::to_owned)),
    };
    if payload.get("pull_request").is_some_and(Value::is_object) {
        return from(name("/pull_request/head/repo/full_name"), name("/pull_request/base/repo/full_name"));
    }
    if payload.pointer("/workflow_run/head_repository").is_some() {
        return from(name("/workflow_run/head_repository/full_name"), repo);
    }
    // A comment on a pull request comes as one on an issue.
    let of_pull = payload.pointer("/issue/pull_request").is_some_and(Value::is_object);
    let number = payload.pointer("/issue/number").and_then(Value::as_u64);
    match number.filter(|_| of_pull) {
        Some(number) => Head::OfPull(number),
        None if of_pull => Head::Fork(None),
        None => Head::Own,
    }
}
