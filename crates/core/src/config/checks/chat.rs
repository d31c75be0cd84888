//! Checks of `chat` and of schedules of type `chat`: who may talk to an agent, channels, direct messages, addresses, bots
//! that several agents share, and schedules that no message can fire.

mod ids;

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path};
use std::sync::Arc;

use url::{Host, Url};

use crate::chat::ChatPlatform;
use crate::chat::prompt::CHAT_SCHEDULE;
use crate::chat::settings::{AgentChat, BotConfig, PlatformChat};
use crate::config::load::{Draft, Loader};
use crate::config::node::{Entry, Location, Node};
use crate::config::problem::{Problem, Problems, Severity};
use crate::config::resolve::{schedule_at, schedule_node};
use crate::roster::{Agent, Roster, Schedule};
use crate::trigger::TriggerConfig;

/// Keys that the check needs. If one of them is wrong, the check is not made, because it could report errors that do
/// not exist.
pub(in crate::config) const NEEDED_KEYS: [&str; 1] = ["chat"];

pub(in crate::config) fn check(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent) {
    check_platforms(&mut loader.problems, draft);
    for chat in agent.chat.iter().flat_map(|chat| &chat.platforms) {
        if let Some(written) = Written::of(draft, chat.platform) {
            ids::check(&mut loader.problems, &written);
            check_access(&mut loader.problems, &written, chat);
            check_channels(&mut loader.problems, &written);
            check_direct(&mut loader.problems, &written);
            check_addresses(&mut loader.problems, &written);
            check_keys_in_pairs(&mut loader.problems, &written);
            check_download_folder(&mut loader.problems, &written);
        }
    }
    for schedule in &agent.schedules {
        check_schedule(&mut loader.problems, draft, agent, schedule);
    }
}

/// Warns about a `chat` that names no platform.
fn check_platforms(problems: &mut Problems, draft: &Draft) {
    let is_empty = |chat: &&Entry| {
        [ChatPlatform::Slack, ChatPlatform::Discord]
            .iter()
            .all(|platform| chat.node.get(platform.as_str()).is_none())
    };
    let Some(chat) = draft.node.entry("chat").filter(is_empty) else { return };
    let message = "`chat` has no effect, because it names no platform";
    let help = "add `slack` or `discord` to it, or remove it";
    problems.add(Problem::warning(chat.key_at, message).key(draft.key_of("chat")).help(help.to_owned()));
}

/// The settings of an agent for one platform, as they are written.
struct Written<'a> {
    platform: ChatPlatform,
    draft: &'a Draft,
    at: Location,
    node: &'a Node,
}

impl<'a> Written<'a> {
    fn of(draft: &'a Draft, platform: ChatPlatform) -> Option<Self> {
        let entry = draft.node.get("chat")?.entry(platform.as_str())?;
        Some(Self { platform, draft, at: entry.key_at, node: &entry.node })
    }

    /// Returns the path of a key below the platform, from the root of its file.
    fn key(&self, path: &str) -> String {
        let dot = if path.is_empty() { "" } else { "." };
        self.draft.key_of(&format!("chat.{}{dot}{path}", self.platform))
    }

    /// Returns a key of a map below the platform, with its location, and the path of the key.
    fn inner(&self, map: &str, key: &str) -> Option<(Location, &'a Node, String)> {
        let entry = self.node.get(map)?.entry(key)?;
        Some((entry.key_at, &entry.node, self.key(&format!("{map}.{key}"))))
    }

    /// Returns the ids of all channels, with their paths.
    fn channels(&self) -> Vec<(&'a Node, String)> {
        let of = |owner: &'a Node, path: &str| {
            let channels = owner.get("channels").map(Node::list).unwrap_or_default().iter().enumerate();
            let ids = channels.filter_map(|(number, channel)| {
                Some((channel.get("id")?, self.key(&format!("{path}channels[{number}].id"))))
            });
            ids.collect::<Vec<_>>()
        };
        let guilds = self.node.get("guilds").map(Node::list).unwrap_or_default().iter().enumerate();
        let in_guilds = guilds.flat_map(|(number, guild)| of(guild, &format!("guilds[{number}].")));
        of(self.node, "").into_iter().chain(in_guilds).collect()
    }
}

/// Checks whether anybody may talk to the agent. Warns if everybody may talk to it although the config does not set
/// `everyone`.
fn check_access(problems: &mut Problems, written: &Written<'_>, chat: &PlatformChat) {
    let (platform, access, direct) = (written.platform, &chat.access, &chat.direct);
    let answers_in_channels =
        !chat.channels.is_empty() || chat.guilds.iter().any(|guild| guild.default_mode.is_some());
    if !answers_in_channels && !direct.enabled {
        let message = format!(
            "nobody can reach this agent on {platform}: no channel is listed, and direct messages are disabled"
        );
        let help = match platform {
            ChatPlatform::Discord => "list channels in `guilds`, or remove `dm: {enabled: false}`",
            ChatPlatform::Slack => "list `channels`, or remove `dm: {enabled: false}`",
        };
        problems.add(Problem::warning(written.at, message).key(written.key("")).help(help.to_owned()));
        return;
    }
    let lists = match platform {
        ChatPlatform::Discord => "`users` or `roles`",
        ChatPlatform::Slack => "`users`",
    };
    let admits_channels = access.everyone && answers_in_channels;
    let admits_direct = !answers_in_channels && (direct.everyone || !direct.allowlist.is_empty());
    if access.lists_somebody() || admits_channels || admits_direct {
        if access.everyone && written.node.entry("everyone").is_none() {
            let message =
                format!("everybody who can {} on {platform} may talk to this agent", open_places(chat));
            let help = format!("list ids in {lists}, or set `everyone: true` if this is intended");
            problems.add(Problem::warning(written.at, message).key(written.key("")).help(help));
        }
    } else if access.everyone {
        let message = format!(
            "nobody may talk to this agent on {platform}: `everyone` applies to channels, and no channel is listed"
        );
        let help = "list channels, or set `dm: {everyone: true}` to allow the direct messages of everybody";
        problems.add(Problem::error(written.at, message).key(written.key("")).help(help.to_owned()));
    } else {
        let message = format!("nobody may talk to this agent on {platform}");
        let help = format!(
            "list ids in {lists}, or set `everyone: true` to allow everybody who can write in its channels"
        );
        problems.add(Problem::error(written.at, message).key(written.key("")).help(help));
    }
    check_everyone(problems, written, chat);
}

/// Returns where everybody may talk to the agent.
fn open_places(PlatformChat { direct, .. }: &PlatformChat) -> &'static str {
    if direct.enabled && direct.everyone && direct.allowlist.is_empty() {
        "write in its channels or send it direct messages"
    } else {
        "write in its channels"
    }
}

/// Warns about lists without an effect beside `everyone`, and about an `everyone` without an effect.
fn check_everyone(problems: &mut Problems, written: &Written<'_>, chat: &PlatformChat) {
    let (access, direct) = (&chat.access, &chat.direct);
    if let Some(everyone) = written.node.entry("everyone").filter(|_| access.everyone) {
        // `users` still lists who may send direct messages, in which nobody has a role.
        let users_count = direct.enabled && !direct.everyone && direct.allowlist.is_empty();
        for (key, counts) in [("users", users_count), ("roles", false)] {
            if !counts && written.node.get(key).is_some_and(|list| !list.list().is_empty()) {
                let message = format!("`{key}` has no effect, because `everyone` is true");
                problems.add(Problem::warning(everyone.key_at, message).key(written.key(key)));
            }
        }
    }
    if let Some((at, _, path)) = written.inner("dm", "everyone").filter(|_| direct.everyone) {
        let because = if !direct.enabled {
            "direct messages are disabled"
        } else if !direct.allowlist.is_empty() {
            "only users on the `allowlist` may send direct messages"
        } else {
            return;
        };
        problems.add(Problem::warning(at, format!("`everyone` has no effect: {because}")).key(path));
    }
}

/// Checks that no channel is listed twice.
fn check_channels(problems: &mut Problems, written: &Written<'_>) {
    let mut seen = HashSet::new();
    for (id, key) in written.channels() {
        let Some(text) = id.text() else { continue };
        if !seen.insert(text) {
            let message = format!("the channel {text} is listed twice");
            problems.add(Problem::error(id.at, message).key(key).help("remove one of the two".to_owned()));
        }
    }
}

/// Checks that at most one `dm` has an effect. A direct message belongs to no guild.
fn check_direct(problems: &mut Problems, written: &Written<'_>) {
    let guilds = written.node.get("guilds").map(Node::list).unwrap_or_default().iter().enumerate();
    let in_guilds = guilds.filter_map(|(number, guild)| Some((number, guild.entry("dm")?)));
    let in_guilds = in_guilds.filter(|(_, entry)| !entry.node.is_null());
    let has_own = written.node.get("dm").is_some_and(|own| !own.is_null());
    for (number, entry) in in_guilds.skip(usize::from(!has_own)) {
        let message = if has_own {
            "`dm` of a guild has no effect, because `dm` is set beside `guilds`"
        } else {
            "`dm` of this guild has no effect, because the first `dm` of a guild counts"
        };
        let help = "a direct message belongs to no guild; set `dm` only beside `guilds`";
        let problem =
            Problem::warning(entry.key_at, message).key(written.key(&format!("guilds[{number}].dm")));
        problems.add(problem.help(help.to_owned()));
    }
}

/// Warns about an address to which tokens, keys and messages would be sent without encryption.
fn check_addresses(problems: &mut Problems, written: &Written<'_>) {
    let own = written.node.get("api_url").map(|node| (node, written.key("api_url")));
    let of_voice = written.inner("voice", "api_url").map(|(_, node, key)| (node, key));
    for (node, key) in own.into_iter().chain(of_voice) {
        if node.text().is_some_and(is_unencrypted) {
            let message = "`api_url` has no encryption, so others can read the token and the messages";
            let help = "use an address that begins with `https://`";
            problems.add(Problem::warning(node.at, message).key(key).help(help.to_owned()));
        }
    }
}

/// Checks whether data for this address leaves the machine without encryption.
fn is_unencrypted(address: &str) -> bool {
    let Ok(address) = Url::parse(address) else { return false };
    let is_loopback = match address.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    address.scheme() == "http" && !is_loopback
}

/// Checks keys that have an effect only together.
fn check_keys_in_pairs(problems: &mut Problems, written: &Written<'_>) {
    for (key, other) in [("activity_type", "activity_message"), ("activity_message", "activity_type")] {
        if let Some((at, _, path)) =
            written.inner("presence", key).filter(|_| written.inner("presence", other).is_none())
        {
            let message = format!("`{key}` has no effect without `{other}`");
            problems.add(Problem::warning(at, message).key(path));
        }
    }
    let scope = written.inner("command_registration", "scope");
    let is_guild = scope.as_ref().is_some_and(|(_, scope, _)| scope.text() == Some("guild"));
    match (scope.filter(|_| is_guild), written.inner("command_registration", "guild_id")) {
        (Some((at, _, path)), None) => {
            problems.add(Problem::error(at, "`scope: guild` needs `guild_id`").key(path));
        }
        (None, Some((at, _, path))) => {
            problems.add(Problem::warning(at, "`guild_id` has no effect without `scope: guild`").key(path));
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
}

/// Checks that the folder for attachments is inside the working directory.
fn check_download_folder(problems: &mut Problems, written: &Written<'_>) {
    let Some((_, node, path)) = written.inner("attachments", "download_dir") else { return };
    let is_inside = |folder: &str| {
        let mut parts = Path::new(folder).components();
        parts.clone().any(|part| matches!(part, Component::Normal(_)))
            && parts.all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    };
    if node.text().is_some_and(|folder| !is_inside(folder)) {
        let message = "`download_dir` has to be a folder inside the working directory";
        let help = "write a relative path without `..`, for example `.attachments`";
        problems.add(Problem::error(node.at, message).key(path).help(help.to_owned()));
    }
}

/// Checks that a schedule of type `chat` has no work source: a message is answered by one job, and a firing with a work
/// source can have several.
fn check_no_work_source(problems: &mut Problems, draft: &Draft, schedule: &Schedule) {
    let node = schedule_node(draft, schedule.name.as_str());
    let Some(written) = node.and_then(|node| node.get("work_source")).filter(|node| !node.is_null()) else {
        return;
    };
    let message = "a schedule of type `chat` cannot take items: each message is answered by one job";
    let severity = if draft.herdctl { Severity::Warning } else { Severity::Error };
    let key = draft.key_of(&format!("schedules.{}.work_source", schedule.name));
    let problem = Problem::error(written.at, message).key(key);
    let help = "remove `work_source`, or move it to a schedule of another type".to_owned();
    problems.add(Problem { severity, ..problem.help(help) });
}

/// Checks that messages can fire a schedule of type `chat`, and that the schedule `chat` has this type. herdctl accepts
/// a schedule of type `chat` without `chat`, so in its fleets this is only a warning.
fn check_schedule(problems: &mut Problems, draft: &Draft, agent: &Agent, schedule: &Schedule) {
    let at = schedule_at(draft, schedule.name.as_str());
    let key = |key: &str| draft.key_of(&format!("schedules.{}.{key}", schedule.name));
    let TriggerConfig::Chat { platform, .. } = &schedule.trigger else {
        if agent.chat.is_some() && schedule.name.as_str() == CHAT_SCHEDULE {
            let found = schedule.trigger.type_name();
            let message = format!(
                "the schedule `{CHAT_SCHEDULE}` of an agent with `chat` needs `type: chat`, found `type: {found}`"
            );
            let written = schedule_node(draft, CHAT_SCHEDULE).and_then(|node| node.get("type"));
            let problem = Problem::error(written.map_or(at, |written| written.at), message);
            problems.add(problem.key(key("type")).help("give this schedule another name".to_owned()));
        }
        return;
    };
    check_no_work_source(problems, draft, schedule);
    let is_connected = |chat: &AgentChat| platform.is_none_or(|platform| chat.on(platform).is_some());
    if agent.chat.as_ref().is_some_and(is_connected) {
        return;
    }
    let (message, help) = match platform {
        Some(platform) => (
            format!("no message can fire this schedule: the agent has no `chat.{platform}`"),
            format!("add `chat: {{{platform}: …}}` to the agent"),
        ),
        None => (
            "no message can fire this schedule: the agent has no `chat`".to_owned(),
            "add `chat: {slack: …}` or `chat: {discord: …}` to the agent".to_owned(),
        ),
    };
    let severity = if draft.herdctl { Severity::Warning } else { Severity::Error };
    let problem = Problem::error(at, message).key(key("type")).help(help);
    problems.add(Problem { severity, ..problem });
}

/// Checks agents that share a bot: the bot has one connection, so their settings for it have to be equal.
pub(in crate::config) fn shared_bots(roster: &Roster, drafts: &[Arc<Draft>], problems: &mut Problems) {
    let mut bots: HashMap<(ChatPlatform, &str), (&Agent, &BotConfig)> = HashMap::new();
    for (agent, draft) in roster.agents.iter().zip(drafts) {
        for chat in agent.chat.iter().flat_map(|chat| &chat.platforms) {
            let known = bots.entry((chat.platform, &chat.bot.token_env)).or_insert((agent, &chat.bot));
            if let Some(written) = Written::of(draft, chat.platform) {
                compare_bots(problems, &written, &chat.bot, *known);
            }
        }
    }
}

fn compare_bots(
    problems: &mut Problems,
    written: &Written<'_>,
    own: &BotConfig,
    (first, other): (&Agent, &BotConfig),
) {
    let differences = [
        ("api_url", own.api_url != other.api_url, Severity::Error),
        ("app_token_env", own.app_token_env != other.app_token_env, Severity::Error),
        ("presence", own.presence.is_some() && own.presence != other.presence, Severity::Warning),
        (
            "command_registration",
            own.command_guild.is_some() && own.command_guild != other.command_guild,
            Severity::Warning,
        ),
    ];
    for (key, differs, severity) in differences {
        if !differs {
            continue;
        }
        let at = written.node.entry(key).map_or(written.at, |entry| entry.key_at);
        let token = &own.token_env;
        let (message, help) = if severity == Severity::Error {
            let message =
                format!("the agent `{}` uses the same bot ({token}) with another `{key}`", first.name);
            (message, format!("set the same `{key}` in both agents, or use another bot"))
        } else {
            let message = format!(
                "`{key}` has no effect: the agent `{}` uses the same bot ({token}), and its `{key}` counts",
                first.name
            );
            (message, format!("set `{key}` only in `{}`", first.name))
        };
        let problem = Problem::error(at, message).key(written.key(key)).help(help);
        problems.add(Problem { severity, ..problem });
    }
}
