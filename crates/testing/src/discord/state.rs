//! The state of the platform, and its changes.

use std::collections::{BTreeMap, HashMap, VecDeque};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::faults::FakeDiscordFault;
use super::{APPLICATION_ID, BOT_ID, BOT_ROLE_ID, BOT_TOKEN, CHANNEL_ID, GUILD_ID, USER_ID};

/// Beginning of the time that ids contain, in milliseconds since 1970.
const ID_EPOCH: i64 = 1_420_070_400_000;
/// Permissions to view, write, write in threads, link, attach, read the history, react.
pub(super) const BOT_PERMISSIONS: u64 =
    1 << 6 | 1 << 10 | 1 << 11 | 1 << 14 | 1 << 15 | 1 << 16 | 1 << 31 | 1 << 38;
/// Flag of an app whose message content intent is enabled.
const MESSAGE_CONTENT_FLAG: u64 = 1 << 19;

pub(super) const GUILDS: u64 = 1;
pub(super) const GUILD_MESSAGES: u64 = 1 << 9;
pub(super) const DIRECT_MESSAGES: u64 = 1 << 12;
pub(super) const MESSAGE_CONTENT: u64 = 1 << 15;

#[derive(Debug)]
pub(super) struct FakeDiscordState {
    /// The bots of the platform, at least one. All bots are members of all guilds.
    pub(super) bots: Vec<FakeDiscordBot>,
    pub(super) url: String,
    pub(super) gateway_url: String,
    pub(super) resume_url: String,
    pub(super) starts_remaining: u32,
    pub(super) guilds: BTreeMap<String, FakeDiscordGuild>,
    pub(super) channels: BTreeMap<String, FakeDiscordChannel>,
    pub(super) roles: BTreeMap<String, FakeDiscordRole>,
    /// All users are members of all guilds.
    pub(super) users: BTreeMap<String, FakeDiscordUser>,
    pub(super) messages: BTreeMap<u64, FakeDiscordMessage>,
    /// Messages of bots by the bot and the nonce.
    pub(super) nonces: HashMap<(String, String), u64>,
    /// Contents of files by the path of their address.
    pub(super) files: HashMap<String, Vec<u8>>,
    /// Size that is stated of every file; none means its real size.
    pub(super) stated_file_size: Option<usize>,
    /// Number of bytes that are streamed instead of the content of each file.
    pub(super) streamed_file_size: Option<usize>,
    /// Number of times that the addresses of files have expired.
    expired_addresses: u32,
    /// Interactions by token.
    pub(super) interactions: HashMap<String, FakeDiscordInteraction>,
    pub(super) sessions: HashMap<String, FakeDiscordSession>,
    pub(super) typing: HashMap<String, usize>,
    pub(super) identified: usize,
    pub(super) resumed: usize,
    pub(super) requests: Vec<String>,
    /// Addresses that the platform has fetched for the previews of links in messages of the bot.
    pub(super) fetched_links: Vec<String>,
    pub(super) faults: VecDeque<FakeDiscordFault>,
    last_id: u64,
    /// Time by which the clock of the platform is ahead of the clock of this machine.
    pub(super) clock_offset: SignedDuration,
}

/// A bot with its application.
#[derive(Debug)]
pub(super) struct FakeDiscordBot {
    pub(super) account: FakeDiscordAccount,
    /// False after the token was revoked.
    pub(super) is_accepted: bool,
    pub(super) application_flags: u64,
    pub(super) is_public: bool,
    /// Commands by guild; empty for all guilds.
    pub(super) commands: BTreeMap<String, Vec<Value>>,
    pub(super) presence: Option<Value>,
}

/// The ids of a bot, and its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeDiscordAccount {
    pub id: String,
    pub application: String,
    pub token: String,
}

#[derive(Debug)]
pub(super) struct FakeDiscordGuild {
    pub(super) name: String,
    /// Permissions of each bot.
    pub(super) permissions: u64,
}

#[derive(Debug, Clone)]
pub(super) struct FakeDiscordChannel {
    pub(super) guild: Option<String>,
    pub(super) name: String,
    /// Channel that contains the thread.
    pub(super) parent: Option<String>,
    /// The person and the bot of a direct conversation.
    pub(super) direct: Option<FakeDiscordPair>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FakeDiscordPair {
    pub(super) user: String,
    pub(super) bot: String,
}

#[derive(Debug)]
pub(super) struct FakeDiscordRole {
    pub(super) guild: String,
    pub(super) name: String,
}

#[derive(Debug)]
pub(super) struct FakeDiscordUser {
    pub(super) name: String,
    pub(super) is_bot: bool,
    pub(super) roles: Vec<String>,
}

/// Flag of a message whose links have no previews.
pub(super) const SUPPRESS_EMBEDS: u64 = 1 << 2;

#[derive(Debug, Clone, Default)]
pub struct FakeDiscordMessage {
    pub id: String,
    pub channel: String,
    pub author: String,
    pub content: String,
    pub nonce: Option<String>,
    pub reply_to: Option<String>,
    pub files: Vec<FakeDiscordFile>,
    /// Rows of buttons, as the bot has sent them.
    pub components: Value,
    pub embeds: Value,
    /// Emoji and user.
    pub reactions: Vec<(String, String)>,
    /// Notified users. The next two fields are the notified roles, and whether everyone was notified.
    pub mentioned_users: Vec<String>,
    pub mentioned_roles: Vec<String>,
    pub mentions_everyone: bool,
    pub flags: u64,
    pub edited_at: Option<Timestamp>,
    /// Number of edits.
    pub edits: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeDiscordFile {
    pub id: String,
    pub name: String,
    pub media_type: String,
    pub content: Vec<u8>,
    pub url: String,
}

#[derive(Debug, Default)]
pub(super) struct FakeDiscordInteraction {
    pub(super) bot: String,
    pub(super) channel: String,
    /// Type of the first answer.
    pub(super) callback: Option<u64>,
    /// Text that the person sees.
    pub(super) text: Option<String>,
    pub(super) flags: u64,
}

#[derive(Debug)]
pub(super) struct FakeDiscordSession {
    pub(super) bot: String,
    pub(super) intents: u64,
    /// All events of the session as payloads; the number of an event is its position, from 1.
    pub(super) events: Vec<String>,
    pub(super) connection: Option<mpsc::UnboundedSender<GatewayOrder>>,
}

/// Instruction to a connection to the gateway.
#[derive(Debug)]
pub(super) enum GatewayOrder {
    Send(String),
    Close(u16, &'static str),
    /// End the connection without a close frame.
    Drop,
}

pub(super) fn new_state(url: String, gateway_url: String, resume_url: String) -> FakeDiscordState {
    let account = FakeDiscordAccount {
        id: BOT_ID.to_owned(),
        application: APPLICATION_ID.to_owned(),
        token: BOT_TOKEN.to_owned(),
    };
    let user = |name: &str, is_bot: bool, roles: &[&str]| FakeDiscordUser {
        name: name.to_owned(),
        is_bot,
        roles: roles.iter().map(|&role| role.to_owned()).collect(),
    };
    let general = FakeDiscordChannel {
        guild: Some(GUILD_ID.to_owned()),
        name: "general".to_owned(),
        parent: None,
        direct: None,
    };
    let role = FakeDiscordRole { guild: GUILD_ID.to_owned(), name: "helpers".to_owned() };
    FakeDiscordState {
        bots: vec![FakeDiscordBot::new(account)],
        url,
        gateway_url,
        resume_url,
        starts_remaining: 1000,
        guilds: [(
            GUILD_ID.to_owned(),
            FakeDiscordGuild { name: "farm".to_owned(), permissions: BOT_PERMISSIONS },
        )]
        .into(),
        channels: [(CHANNEL_ID.to_owned(), general)].into(),
        roles: [(BOT_ROLE_ID.to_owned(), role)].into(),
        users: [
            (BOT_ID.to_owned(), user("cowhand", true, &[BOT_ROLE_ID])),
            (USER_ID.to_owned(), user("alice", false, &[])),
        ]
        .into(),
        messages: BTreeMap::new(),
        nonces: HashMap::new(),
        files: HashMap::new(),
        stated_file_size: None,
        streamed_file_size: None,
        expired_addresses: 0,
        interactions: HashMap::new(),
        sessions: HashMap::new(),
        typing: HashMap::new(),
        identified: 0,
        resumed: 0,
        requests: Vec::new(),
        fetched_links: Vec::new(),
        faults: VecDeque::new(),
        last_id: 0,
        clock_offset: SignedDuration::ZERO,
    }
}

impl FakeDiscordBot {
    pub(super) const fn new(account: FakeDiscordAccount) -> Self {
        Self {
            account,
            is_accepted: true,
            application_flags: MESSAGE_CONTENT_FLAG,
            is_public: false,
            commands: BTreeMap::new(),
            presence: None,
        }
    }
}

impl FakeDiscordState {
    pub(super) fn bot(&self, id: &str) -> Option<&FakeDiscordBot> {
        self.bots.iter().find(|bot| bot.account.id == id)
    }

    pub(super) fn bot_mut(&mut self, id: &str) -> Option<&mut FakeDiscordBot> {
        self.bots.iter_mut().find(|bot| bot.account.id == id)
    }

    /// Returns the id of the bot with this token.
    pub(super) fn bot_with_token(&self, token: &str) -> Option<String> {
        let bot = self.bots.iter().find(|bot| bot.is_accepted && bot.account.token == token)?;
        Some(bot.account.id.clone())
    }

    /// Fetches the pages of the links in a text of the bot, unless the text has no previews.
    pub(super) fn fetch_links(&mut self, content: &str, flags: u64) {
        if flags & SUPPRESS_EMBEDS != 0 {
            return;
        }
        for (at, _) in content.match_indices("http").filter(|(at, _)| !content[..*at].ends_with('<')) {
            let end = |c: char| c.is_whitespace() || matches!(c, ')' | '>' | '`');
            let link = content[at..].split(end).next().unwrap_or_default();
            if link.contains("://") {
                self.fetched_links.push(link.to_owned());
            }
        }
    }

    /// Returns a new id. Ids contain the time and grow.
    pub(super) fn new_id(&mut self) -> String {
        let milliseconds = u64::try_from(self.now().as_millisecond() - ID_EPOCH).unwrap();
        self.last_id = (self.last_id + 1).max(milliseconds << 22);
        self.last_id.to_string()
    }

    /// Returns the time by the clock of the platform.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::now() + self.clock_offset
    }

    /// Returns the query that the addresses of files have now.
    pub(super) fn file_query(&self) -> String {
        format!("ex={}", self.expired_addresses)
    }

    /// Lets the addresses of all files expire. The messages state new ones.
    pub(super) fn expire_addresses(&mut self) {
        self.expired_addresses += 1;
        let query = self.file_query();
        for file in self.messages.values_mut().flat_map(|message| &mut message.files) {
            let path = file.url.split('?').next().unwrap_or_default();
            file.url = format!("{path}?{query}");
        }
    }

    pub(super) fn message(&self, id: &str) -> Option<&FakeDiscordMessage> {
        self.messages.get(&id.parse().ok()?)
    }

    pub(super) fn message_mut(&mut self, id: &str) -> Option<&mut FakeDiscordMessage> {
        self.messages.get_mut(&id.parse().ok()?)
    }

    pub(super) fn guild_of(&self, channel: &str) -> Option<String> {
        self.channels.get(channel)?.guild.clone()
    }

    /// Stores a message with a new id, and sends its event. `allowed` limits the mentions, as in a request.
    pub(super) fn add_message(&mut self, mut message: FakeDiscordMessage, allowed: Option<&Value>) -> String {
        message.id = self.new_id();
        self.set_mentions(&mut message, allowed);
        for file in &mut message.files {
            self.last_id += 1;
            file.id = self.last_id.to_string();
            // Discord puts only plain characters into the address.
            let name = file.name.replace(|c: char| !c.is_ascii_alphanumeric() && c != '.', "_");
            let path = format!("/attachments/{}/{}/{name}", message.channel, file.id);
            file.url = format!("{}{path}?{}", self.url, self.file_query());
            self.files.insert(path, file.content.clone());
        }
        let id = message.id.clone();
        self.messages.insert(id.parse().unwrap(), message);
        self.send_message_event("MESSAGE_CREATE", &id);
        id
    }

    /// Sends the event of a message to all sessions that may see the message, without its content if a session may not
    /// see the content.
    pub(super) fn send_message_event(&mut self, event: &str, id: &str) {
        let message = self.message(id).unwrap().clone();
        let guild = self.guild_of(&message.channel);
        let mut full = self.message_json(&message, "");
        full["nonce"] = json!(message.nonce);
        full["channel_type"] = self.channel_json(&message.channel)["type"].take();
        if let Some(guild) = &guild {
            full["guild_id"] = json!(guild);
            full["member"] = self.member_json(&message.author);
        }
        let mut reduced = full.clone();
        reduced["content"] = json!("");
        for list in ["attachments", "embeds", "components"] {
            reduced[list] = json!([]);
        }
        let direct = self.channels[&message.channel].direct.clone();
        let intent = if guild.is_some() { GUILD_MESSAGES } else { DIRECT_MESSAGES };
        self.send_event(event, intent, |session| {
            let is_visible = message.author == session.bot || message.mentioned_users.contains(&session.bot);
            let has_content = is_visible || session.intents & MESSAGE_CONTENT != 0;
            match &direct {
                Some(direct) => (direct.bot == session.bot).then(|| full.clone()),
                None if has_content => Some(full.clone()),
                None => Some(reduced.clone()),
            }
        });
    }

    /// Sends an event to the sessions with an intent; 0 for all sessions. `data` returns none for a session that does not
    /// get the event.
    pub(super) fn send_event(
        &mut self,
        event: &str,
        intent: u64,
        data: impl Fn(&FakeDiscordSession) -> Option<Value>,
    ) {
        for session in self.sessions.values_mut().filter(|session| session.intents & intent == intent) {
            if let Some(data) = data(session) {
                session.send(event, &data);
            }
        }
    }

    fn set_mentions(&self, message: &mut FakeDiscordMessage, allowed: Option<&Value>) {
        let kinds = allowed.and_then(|allowed| allowed["parse"].as_array());
        let may = |kind: &str| {
            allowed.is_none() || kinds.is_some_and(|kinds| kinds.iter().any(|value| value == kind))
        };
        let content = &message.content;
        let is_in = |notation: String| content.contains(&notation);
        if may("users") {
            let users =
                self.users.keys().filter(|id| is_in(format!("<@{id}>")) || is_in(format!("<@!{id}>")));
            message.mentioned_users = users.cloned().collect();
        }
        if may("roles") {
            let roles = self.roles.keys().filter(|id| is_in(format!("<@&{id}>")));
            message.mentioned_roles = roles.cloned().collect();
        }
        message.mentions_everyone =
            may("everyone") && (content.contains("@everyone") || content.contains("@here"));
        let pings_author = allowed.is_none_or(|allowed| allowed["replied_user"] == true);
        let replied = message.reply_to.as_ref().and_then(|id| self.message(id));
        if let Some(replied) = replied.filter(|_| pings_author)
            && !message.mentioned_users.contains(&replied.author)
        {
            message.mentioned_users.push(replied.author.clone());
        }
    }

    /// Returns the application of a bot.
    pub(super) fn application_json(&self, bot: &str) -> Value {
        let FakeDiscordBot { account, application_flags, is_public, .. } = self.bot(bot).unwrap();
        let name = &self.users[bot].name;
        json!({
            "id": account.application, "name": name, "flags": application_flags, "description": "",
            "bot_public": is_public,
        })
    }
}

impl FakeDiscordSession {
    pub(super) fn send(&mut self, event: &str, data: &Value) {
        let number = self.events.len() + 1;
        let payload = json!({ "op": 0, "t": event, "s": number, "d": data }).to_string();
        self.events.push(payload.clone());
        self.order(GatewayOrder::Send(payload));
    }

    /// Returns whether the connection with these orders belongs to the session.
    pub(super) fn uses(&self, orders: &mpsc::UnboundedSender<GatewayOrder>) -> bool {
        self.connection.as_ref().is_some_and(|connection| connection.same_channel(orders))
    }

    /// Gives an order to the connection, if there is one.
    pub(super) fn order(&self, order: GatewayOrder) {
        if let Some(connection) = &self.connection {
            let _ = connection.send(order);
        }
    }
}

/// Returns the time at which the object with this id was created.
pub(super) fn time_of(id: &str) -> Timestamp {
    let milliseconds = i64::try_from(id.parse::<u64>().unwrap() >> 22).unwrap();
    Timestamp::from_millisecond(milliseconds + ID_EPOCH).unwrap()
}
