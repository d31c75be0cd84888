//! The authors of the text in a firing or a work item.

use std::fmt;

use indexmap::IndexSet;
use serde_json::Value;

use super::{RepoPermission, Treatment, Trust};
use crate::chat_platform::ChatPlatform;
use crate::trigger::{FiringContext, TriggerConfig, TriggerKind};
use crate::work::WorkItem;

/// Origin of a text: the accounts that wrote it or brought it into the prompt, and its repository.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextOrigin {
    /// Repository in which the authors' permissions count, as `owner/name`.
    pub repo: Option<String>,
    pub authors: Vec<Author>,
    pub head: Head,
    /// True if the webhook accepts unsigned deliveries, so that anybody could have sent the text.
    pub is_unsigned: bool,
    /// True if the text comes from a source without repositories.
    pub has_no_repository: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// Login of the account, or id of the user of a chat; none if the account no longer exists or its login is not known.
    pub login: Option<String>,
    /// Chat platform to which the id belongs; none if the author is no user of a chat.
    pub platform: Option<ChatPlatform>,
    pub permission: AuthorPermission,
}

/// Permission of an author in the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorPermission {
    /// Not requested yet, or there is no repository.
    Unknown,
    Nothing,
    Permission(RepoPermission),
}

/// Origin of the commits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Head {
    /// From the repository itself, or there are no commits.
    #[default]
    Own,
    /// From another repository, with its name if the name is known.
    Fork(Option<String>),
    /// From the source of this pull request, which is not known yet.
    OfPull(u64),
    /// The payload does not contain the origin.
    Unknown,
}

/// A fact that is missing for a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Permission of the author with this index and login.
    Permission(usize, String),
    /// Origin of the commits of this pull request.
    Head(u64),
}

impl TextOrigin {
    /// Returns the origin of the text of a firing. Returns none if trust rules do not apply to the text: for triggers
    /// that the clock or a person fires, for tasks without an author, and for events of the fleet. Trust in the text of
    /// an event was already decided for the job that caused the event.
    pub fn of(trigger: &TriggerConfig, firing_context: &FiringContext) -> Option<Self> {
        match trigger.kind() {
            TriggerKind::Webhook { allow_unsigned: true, .. } => {
                Some(Self { is_unsigned: true, ..Self::default() })
            }
            TriggerKind::Webhook { .. } => {
                Some(Self::of_payload(firing_context.payload.as_ref().unwrap_or(&Value::Null)))
            }
            TriggerKind::Github { owner, repo, .. } => {
                let head = match firing_context.task.metadata.get("head_repo").map(String::as_str) {
                    None => Head::Own,
                    Some("") => Head::Fork(None),
                    Some(from) if from.eq_ignore_ascii_case(&format!("{owner}/{repo}")) => Head::Own,
                    Some(from) => Head::Fork(Some(from.to_owned())),
                };
                let repo = Some(format!("{owner}/{repo}"));
                Some(Self { repo, head, ..Self::by(author_of(firing_context)) })
            }
            TriggerKind::Chat => Some(Self::of_message(firing_context)),
            TriggerKind::Tasks { has_author: true, .. } => {
                Some(Self::without_repository(Some(author_of(firing_context))))
            }
            TriggerKind::Clock(_)
            | TriggerKind::Hand
            | TriggerKind::Event(_)
            | TriggerKind::Tasks { has_author: false, .. } => None,
        }
    }

    /// Returns the origin of a text that a user of a chat wrote.
    pub fn of_chat_user(platform: ChatPlatform, id: &str) -> Self {
        Self::without_repository([Author::of_chat(platform, id)])
    }

    /// Returns the origin of a text whose author is not known, for example because somebody repeats it.
    pub fn of_unknown_user() -> Self {
        Self::without_repository(None)
    }

    /// Returns the origin of a chat message: its author, and the person who had it run again. It has no author if its
    /// platform is not known.
    fn of_message(firing_context: &FiringContext) -> Self {
        let metadata = &firing_context.task.metadata;
        let platform = metadata.get("platform").and_then(|platform| platform.parse().ok());
        let Some((platform, author)) = platform.zip(author_of(firing_context).login) else {
            return Self::of_unknown_user();
        };
        let people = [Some(&author), metadata.get("repeated_by")].into_iter().flatten();
        Self::without_repository(people.map(|id| Author::of_chat(platform, id)))
    }

    /// Returns the origin of an item's text. `repo` is set if the source of the item is a repository.
    pub fn of_item(item: &WorkItem, repo: Option<&str>) -> Self {
        let login = item.metadata.get("author").and_then(Value::as_str).map(str::to_owned);
        match repo {
            Some(repo) => Self { repo: Some(repo.to_owned()), ..Self::by(Author::new(login)) },
            None => Self::without_repository(Some(Author::new(login))),
        }
    }

    fn by(author: Author) -> Self {
        Self { authors: vec![author], ..Self::default() }
    }

    /// Creates the origin of a text from a source with names but without repositories. An author without a name is left
    /// out.
    fn without_repository(authors: impl IntoIterator<Item = Author>) -> Self {
        let authors = authors.into_iter().filter(|author| author.login.is_some()).collect();
        Self { authors, has_no_repository: true, ..Self::default() }
    }

    /// Collects the sender and everybody who is named as the author of a part.
    fn of_payload(payload: &Value) -> Self {
        let sender = payload.get("sender").or_else(|| payload.get("user"));
        let mut logins: IndexSet<Option<String>> = sender.map(login).into_iter().collect();
        collect(payload, payload.pointer("/user/id"), &mut logins);
        let repo = payload.pointer("/repository/full_name").and_then(Value::as_str);
        let repo = repo.filter(|repo| is_plain(repo)).map(str::to_owned);
        let head = head_of(payload, repo.as_deref());
        Self { repo, authors: logins.into_iter().map(Author::new).collect(), head, ..Self::default() }
    }

    /// Returns the facts that these rules need and that are not known; none if one of the rules refuses the text in any
    /// case.
    pub fn open_questions(&self, trusts: &[&Trust]) -> Vec<Question> {
        let refuses = |trust: &&&Trust| {
            trust.for_strangers() == Treatment::Refuse && trust.stranger_reason(self).is_some()
        };
        if trusts.iter().any(|trust| refuses(&trust)) {
            return Vec::new();
        }
        let asks = |trust: &&&Trust| {
            trust.min_permission.is_some()
                && trust.for_strangers() != Treatment::Allow
                && trust.stranger_reason(self).is_none()
        };
        let by_permission: Vec<&&Trust> = trusts.iter().filter(|trust| asks(trust)).collect();
        let authors = self.authors.iter().enumerate().filter_map(|(place, author)| {
            let login = author.login.as_deref().filter(|_| self.repo.is_some())?;
            let asked = by_permission.iter().any(|trust| !trust.knows(author));
            (asked && author.permission == AuthorPermission::Unknown)
                .then(|| Question::Permission(place, login.to_owned()))
        });
        let mut questions: Vec<Question> = authors.collect();
        if let (Head::OfPull(number), true) =
            (&self.head, trusts.iter().any(|trust| trust.for_forks() != Treatment::Allow))
        {
            questions.push(Question::Head(*number));
        }
        questions
    }

    /// Returns the reason why the text counts as text of a fork, if it does.
    pub(super) fn fork(&self) -> Option<String> {
        match &self.head {
            Head::Own => None,
            Head::Fork(Some(from)) => Some(format!("its commits come from the fork {from}")),
            Head::Fork(None) => Some("its commits come from a fork whose name is not known".to_owned()),
            Head::OfPull(_) | Head::Unknown => Some("the origin of its commits is not known".to_owned()),
        }
    }

    pub(super) fn unknown_author_reason(&self) -> &'static str {
        if self.is_unsigned {
            "its deliveries are not signed, so that anybody could have written it"
        } else {
            "its author is not known"
        }
    }
}

impl Author {
    /// Creates the author of a text from its login.
    pub fn new(login: Option<String>) -> Self {
        Self { login, platform: None, permission: AuthorPermission::Unknown }
    }

    /// Creates the author of a chat message.
    pub fn of_chat(platform: ChatPlatform, id: &str) -> Self {
        Self { platform: Some(platform), ..Self::new(Some(id.to_owned())) }
    }
}

/// Writes the author as in `allow_authors`.
impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let login = self.login.as_deref().unwrap_or_default();
        match self.platform {
            Some(platform) => write!(f, "{platform}:{login}"),
            None => f.write_str(login),
        }
    }
}

fn author_of(firing_context: &FiringContext) -> Author {
    Author::new(firing_context.task.metadata.get("author").filter(|login| !login.is_empty()).cloned())
}

/// Checks the name of a repository, which becomes part of URLs.
fn is_plain(repo: &str) -> bool {
    let plain = |part: &str| {
        let has_plain_bytes = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
        has_plain_bytes && !matches!(part, "" | "." | "..")
    };
    repo.split_once('/').is_some_and(|(owner, name)| plain(owner) && plain(name))
}

/// Keys of accounts that may be the author of a part of a payload.
const AUTHOR_KEYS: [&str; 7] =
    ["user", "author", "creator", "actor", "triggering_actor", "approver", "uploader"];
/// Parts of a payload that are ignored: parts in which [`AUTHOR_KEYS`] name an owner; commits, whose authors are free
/// text and not accounts; and the sender, who is read separately.
const IGNORED_PARTS: [&str; 9] =
    ["head", "base", "repo", "repository", "organization", "commit", "commits", "head_commit", "sender"];

/// Collects the logins of all parts, with `None` for each author whose login is not known. `actor` is the id of
/// the sender. An `author_id` with this value is the sender, whose login is known; any other `author_id` is an author
/// whose login is not known.
fn collect(part: &Value, actor: Option<&Value>, logins: &mut IndexSet<Option<String>>) {
    match part {
        Value::Array(parts) => parts.iter().for_each(|part| collect(part, actor, logins)),
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|(name, _)| !IGNORED_PARTS.contains(&name.as_str())) {
                if AUTHOR_KEYS.contains(&name.as_str()) {
                    logins.insert(login(value));
                } else if name == "author_id" && Some(value) != actor {
                    logins.insert(None);
                } else {
                    collect(value, actor, logins);
                }
            }
        }
        _ => {}
    }
}

/// Returns the login of an account of GitHub or GitLab.
fn login(account: &Value) -> Option<String> {
    let name = account.get("login").or_else(|| account.get("username"))?;
    name.as_str().filter(|name| !name.is_empty()).map(str::to_owned)
}

fn head_of(payload: &Value, repo: Option<&str>) -> Head {
    let at = |pointer: &str| payload.pointer(pointer);
    let name = |pointer: &str| at(pointer).and_then(Value::as_str);
    let from = |head: Option<&str>, base: Option<&str>| match (head, base) {
        (Some(head), Some(base)) if head.eq_ignore_ascii_case(base) => Head::Own,
        (head, _) => Head::Fork(head.map(str::to_owned)),
    };
    if at("/pull_request").is_some_and(Value::is_object) {
        return from(name("/pull_request/head/repo/full_name"), name("/pull_request/base/repo/full_name"));
    }
    if at("/workflow_run").is_some() {
        return from(name("/workflow_run/head_repository/full_name"), repo);
    }
    // Merge requests of GitLab.
    let projects = (at("/object_attributes/source_project_id"), at("/object_attributes/target_project_id"));
    if let (Some(source), Some(target)) = projects {
        let from = || name("/object_attributes/source/path_with_namespace").map(str::to_owned);
        return if source == target { Head::Own } else { Head::Fork(from()) };
    }
    // Check runs and check suites name a branch only if it belongs to the repository.
    let checked = ["/check_run/check_suite", "/check_suite"].into_iter().find_map(at);
    if let Some(suite) = checked {
        return if suite.get("head_branch").is_some_and(Value::is_string) {
            Head::Own
        } else {
            Head::Unknown
        };
    }
    let has_branches = || at("/branches").and_then(Value::as_array).is_some_and(|all| !all.is_empty());
    if at("/workflow_job").is_some() || (at("/context").is_some() && !has_branches()) {
        return Head::Unknown;
    }
    // A comment on a pull request is sent as a comment on an issue.
    let of_pull = at("/issue/pull_request").is_some_and(Value::is_object);
    match at("/issue/number").and_then(Value::as_u64) {
        Some(number) if of_pull => Head::OfPull(number),
        None if of_pull => Head::Unknown,
        _ => Head::Own,
    }
}
