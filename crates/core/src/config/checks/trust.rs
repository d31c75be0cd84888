//! Checks of trust settings: contradictions between them, and settings that do not fit the trigger of a schedule.

use crate::chat::ChatPlatform;
use crate::chat::settings::PlatformChat;
use crate::config::load::{Draft, Loader};
use crate::config::node::{Location, Node};
use crate::config::problem::Problem;
use crate::config::resolve::schedule_at;
use crate::prompt::{self, Template, Variables};
use crate::roster::{Agent, Schedule};
use crate::sandbox::SandboxKind;
use crate::trigger::{GithubItem, TriggerKind};
use crate::trust::{AllowedAuthor, Treatment, Trust};
use crate::workspace::IsolationKind;

/// Keys that the check needs. If one of them is wrong, the check is left out, because it could report errors that do
/// not exist.
pub(in crate::config) const NEEDED_KEYS: [&str; 7] =
    ["trust", "sandbox", "docker", "isolation", "default_prompt", "work_source", "chat"];

pub(in crate::config) fn check(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent) {
    if let (Some(trust), Some(node)) = (&agent.trust, draft.node.get("trust")) {
        check_one(loader, draft, (agent, None), trust, node.at);
    }
    for schedule in &agent.schedules {
        if let Some(trust) = schedule.trust.as_deref() {
            let entries = draft.node.get("schedules").and_then(Node::entries);
            let node = entries.and_then(|entries| entries.get(schedule.name.as_str())?.node.get("trust"));
            let at = node.map_or_else(|| schedule_at(draft, schedule.name.as_str()), |node| node.at);
            check_one(loader, draft, (agent, Some(schedule)), trust, at);
        }
        warn_unrestricted_strangers(loader, draft, agent, schedule);
        warn_unsigned_with_trust(loader, draft, agent, schedule);
        warn_unsigned_refused(loader, draft, schedule);
        warn_shared_directory(loader, draft, agent, schedule);
        check_app_without_repos(loader, draft, agent, schedule);
    }
}

fn check_one(
    loader: &mut Loader<'_>,
    draft: &Draft,
    (agent, schedule): (&Agent, Option<&Schedule>),
    trust: &Trust,
    at: Location,
) {
    let key = schedule.map_or("trust".to_owned(), |schedule| format!("schedules.{}.trust", schedule.name));
    let strict_sandbox = agent.sandbox(schedule.map(|schedule| &schedule.name), true);
    let message = if !trust.is_defined() {
        "set `allow_authors` or `min_permission` to define who is trusted, or `strangers` to treat all authors alike"
    } else if let Some((message, help)) =
        trust.allow_authors.iter().find_map(|author| invalid_author(agent, author))
    {
        let problem = Problem::error(at, message).key(draft.key_of(&key));
        loader.problems.add(match help {
            Some(help) => problem.help(help),
            None => problem,
        });
        return;
    } else if trust.sandbox.as_ref().is_some_and(|own| own.rules().kind == SandboxKind::None) {
        "the strict sandbox cannot have `kind: none`; use `kind: bubblewrap`, for example"
    } else if let (true, Some(message)) = (trust.confines(), strict_sandbox.contradiction()) {
        message
    } else {
        if let Some(message) = unused_trust_keys(trust) {
            loader.problems.add(Problem::warning(at, message).key(draft.key_of(&key)));
        }
        return;
    };
    loader.problems.add(Problem::error(at, message).key(draft.key_of(&key)));
}

/// Warns if strangers can give instructions to an agent without a sandbox and without trust rules, which is rarely
/// intended.
fn warn_unrestricted_strangers(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent, schedule: &Schedule) {
    let from = match schedule.trigger.kind() {
        TriggerKind::Github { item: GithubItem::Issue, .. } => "whoever can open an issue",
        TriggerKind::Github { item: GithubItem::PullRequest, .. } => "whoever can open a pull request",
        TriggerKind::Webhook { events, .. } if events.iter().any(|event| has_text_of_people(event)) => {
            "whoever can write in the repository's issues, pull requests or discussions"
        }
        TriggerKind::Webhook { .. }
        | TriggerKind::Chat
        | TriggerKind::Clock(_)
        | TriggerKind::Hand
        | TriggerKind::Event(_)
        | TriggerKind::Tasks { .. } => return,
    };
    let default = agent.default_prompt.as_deref();
    let prompt = prompt::choose(None, schedule.prompt.as_deref(), default);
    let variables = Variables::of(schedule.trigger.type_name(), schedule.work_source.is_some());
    let has_outside_text = Template::parse_lenient(prompt, variables).0.contains_outside_text();
    let is_sandboxed = agent.sandbox(Some(&schedule.name), false).kind != SandboxKind::None;
    if has_outside_text && !is_sandboxed && agent.trusts(Some(schedule)).is_empty() {
        let message = format!(
            "{from} can give instructions to this agent, and no sandbox restricts it; set `trust` to limit the authors, or `sandbox` to restrict the agent"
        );
        let problem = Problem::warning(schedule_at(draft, schedule.name.as_str()), message);
        let key = draft.key_of(&format!("schedules.{}.trust", schedule.name));
        loader.problems.add(problem.key(key));
    }
}

/// Checks whether people without write access to the repository can write text in an event of GitHub or GitLab.
fn has_text_of_people(event: &str) -> bool {
    const EVENTS_WITH_TEXT: [&str; 12] = [
        "issues",
        "issue_comment",
        "pull_request",
        "pull_request_target",
        "pull_request_review",
        "pull_request_review_comment",
        "discussion",
        "discussion_comment",
        "commit_comment",
        "issue hook",
        "merge request hook",
        "note hook",
    ];
    let event = event.to_ascii_lowercase();
    let name = event.split_once('.').map_or(event.as_str(), |(name, _)| name);
    EVENTS_WITH_TEXT.contains(&name)
}

/// Returns what is wrong with an entry of `allow_authors`, and how to correct it. Names are compared as a whole, and no
/// name on GitHub contains `*` or begins with `@`. The id of a user of a chat needs its platform, because everybody can
/// register a login with the same text.
fn invalid_author(agent: &Agent, author: &str) -> Option<(String, Option<String>)> {
    let invalid = |message: &str| Some((message.to_owned(), None));
    if author.contains('*') {
        return invalid(
            "`allow_authors` takes whole names, without `*`; `strangers: allow` accepts text of everybody",
        );
    }
    if author.starts_with('@') {
        return invalid("`allow_authors` takes names without `@`: `ann`, not `@ann`");
    }
    if let Some((platform, id)) = chat_user_of(agent, author) {
        let message =
            format!("`{author}` in `allow_authors` is a login, and it looks like a user of {platform}");
        let help = format!("write `{platform}:{id}` for the user; write a login in lowercase letters");
        return Some((message, Some(help)));
    }
    match AllowedAuthor::of(author) {
        AllowedAuthor::ChatUser(platform, "") => {
            Some((format!("`{author}` needs the id of a user: `{platform}:ID`"), None))
        }
        AllowedAuthor::ChatUser(..) | AllowedAuthor::Login(_) => None,
    }
}

/// Returns the platform and the id of the user of the agent's chat that an entry without a platform seems to name.
fn chat_user_of<'a>(agent: &Agent, author: &'a str) -> Option<(ChatPlatform, &'a str)> {
    let AllowedAuthor::Login(login) = AllowedAuthor::of(author) else { return None };
    let lists = |chat: &PlatformChat| {
        let access = &chat.access;
        let mut lists = [&access.users, &access.operators, &access.bots, &chat.direct.allowlist].into_iter();
        lists.any(|list| list.iter().any(|id| id == login))
    };
    let platforms = || agent.chat.iter().flat_map(|chat| &chat.platforms);
    let by_form = |chat: &&PlatformChat| lists(chat) || chat.platform.may_be_user_id(login);
    if let Some(chat) = platforms().find(by_form) {
        return Some((chat.platform, login));
    }
    // A platform in another spelling, for example `Slack:U012AB3CD`.
    let (prefix, id) = login.split_once(':')?;
    let known = ChatPlatform::ALL.iter().find(|known| known.as_str().eq_ignore_ascii_case(prefix))?;
    Some((*known, id))
}

fn unused_trust_keys(trust: &Trust) -> Option<&'static str> {
    let names_some =
        trust.min_permission.is_some() || !trust.allow_authors.is_empty() || !trust.repos.is_empty();
    (trust.strangers == Some(Treatment::Allow) && names_some).then_some(
        "`strangers: allow` accepts text of everybody, so `min_permission`, `allow_authors` and `repos` have no effect",
    )
}

/// Warns if a schedule with trust rules accepts unsigned deliveries. Anybody can send a trusted name in such a
/// delivery, so all of them count as text of strangers, and the rules trust nobody.
fn warn_unsigned_with_trust(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent, schedule: &Schedule) {
    let unsigned = matches!(schedule.trigger.kind(), TriggerKind::Webhook { allow_unsigned: true, .. });
    if unsigned && !agent.trusts(Some(schedule)).is_empty() {
        let message = "with `allow_unsigned`, every delivery counts as text of a stranger, so the trust rules trust nobody";
        let problem = Problem::warning(schedule_at(draft, schedule.name.as_str()), message);
        let key = draft.key_of(&format!("schedules.{}.allow_unsigned", schedule.name));
        loader.problems.add(problem.key(key));
    }
}

/// Warns if a schedule accepts unsigned deliveries, but the server listens on an address where it refuses them.
fn warn_unsigned_refused(loader: &mut Loader<'_>, draft: &Draft, schedule: &Schedule) {
    let Some(listen) = loader.server.outside() else { return };
    if schedule.trigger.is_unsigned() {
        let message = format!(
            "its deliveries are refused: `allow_unsigned` has an effect only on loopback, and the server listens on \
             {listen}"
        );
        let key = draft.key_of(&format!("schedules.{}.allow_unsigned", schedule.name));
        let problem = Problem::warning(schedule_at(draft, schedule.name.as_str()), message).key(key);
        let port = listen.port();
        loader
            .problems
            .add(problem.help(format!("set `secret_env`, or set `server.listen` to 127.0.0.1:{port}")));
    }
}

/// Rejects a webhook with `min_permission` and a GitHub App but without `repos`. All installations of an App sign with
/// the same secret, and everybody who installs the App is admin of their own repository, so `min_permission` would
/// accept everybody.
fn check_app_without_repos(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent, schedule: &Schedule) {
    let trusts = agent.trusts(Some(schedule));
    let by_app = |trust: &&Trust| trust.auth.as_ref().is_some_and(|auth| auth.app.is_some());
    let by_permission = trusts.iter().any(|trust| trust.min_permission.is_some());
    let has_repos = trusts.iter().any(|trust| !trust.repos.is_empty());
    let is_webhook = matches!(schedule.trigger.kind(), TriggerKind::Webhook { .. });
    if is_webhook && by_permission && !has_repos && trusts.iter().any(by_app) {
        let message = "everybody who installs the App is admin of their own repository, so `min_permission` trusts them; list your repositories in `trust.repos`";
        let problem = Problem::error(schedule_at(draft, schedule.name.as_str()), message);
        loader.problems.add(problem.key(draft.key_of(&format!("schedules.{}.trust.repos", schedule.name))));
    }
}

/// Warns if jobs with text of strangers share the agent's directory, because the next job and `when_command` find the
/// files that these jobs leave there.
fn warn_shared_directory(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent, schedule: &Schedule) {
    let confines = agent.trusts(Some(schedule)).into_iter().any(Trust::confines);
    if confines && agent.isolation_of(Some(&schedule.name)).kind == IsolationKind::Shared {
        let message = "jobs with text of strangers work in the same directory as all other jobs, so the other jobs use files that a stranger's text may have changed; set `isolation: clone` to separate the jobs";
        let problem = Problem::warning(schedule_at(draft, schedule.name.as_str()), message);
        let key = draft.key_of(&format!("schedules.{}.isolation", schedule.name));
        loader.problems.add(problem.key(key));
    }
}
