//! A fake Slack in memory: Web API, Socket Mode, files and response URLs of one workspace with one app.
//!
//! `tests/node/slack.mjs` drives the fake with Slack's own clients.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

mod api;
mod blocks;
mod conversations;
mod events;
mod people;
mod request;
mod socket;
mod uploads;

pub use people::COMMAND_TIMED_OUT;
use socket::{FakeEnvelope, FakeSocket};

pub const BOT_TOKEN: &str = "xoxb-fake-1";
pub const APP_TOKEN: &str = "xapp-fake-1";
pub const BOT_USER: &str = "UBOT";
pub const BOT_ID: &str = "BBOT";
pub const TEAM: &str = "T1";
/// Name of a request for the content of a file, in the list of calls.
pub const DOWNLOAD: &str = "files-pri";
/// Scopes that the bot has at the start.
pub const ALL_SCOPES: [&str; 10] = [
    "app_mentions:read",
    "chat:write",
    "channels:history",
    "groups:history",
    "im:history",
    "users:read",
    "reactions:write",
    "files:read",
    "files:write",
    "commands",
];
/// Only a failing test waits that long.
const WAIT_LIMIT: Duration = Duration::from_mins(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FakeChannelKind {
    Public,
    Private,
    Direct,
}

#[derive(Debug, Clone)]
pub struct FakeChannel {
    pub kind: FakeChannelKind,
    pub name: String,
    /// Messages as the API shows them, with their metadata, in the order of their timestamps.
    pub messages: Vec<Value>,
}

#[derive(Debug, Clone)]
pub struct FakeFile {
    pub name: String,
    pub media_type: String,
    pub content: Vec<u8>,
    /// True as soon as the bytes have arrived.
    pub is_uploaded: bool,
    /// True for a message that was recorded in the client of the platform.
    pub is_voice: bool,
    /// Channels with their messages that contain the file.
    pub shares: Vec<(String, String)>,
}

/// Text that only one user sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeEphemeral {
    /// Id of the command or press to which it is the answer.
    pub trigger: String,
    pub user: String,
    pub text: String,
}

/// Call of a method of the Web API.
#[derive(Debug, Clone)]
pub struct FakeCall {
    pub method: String,
    pub params: Value,
    pub token: String,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum SlackFault {
    /// Answers 429, and does nothing.
    RateLimited { retry_after: u64 },
    /// Answers 500, and does nothing.
    Failed,
    /// Answers with this error code, and does nothing.
    Refused { code: &'static str },
    /// Executes the request, and answers 500.
    FailedAfterEffect,
}

#[derive(Debug)]
pub struct FakeSlackState {
    pub users: BTreeMap<String, Value>,
    pub channels: BTreeMap<String, FakeChannel>,
    pub files: BTreeMap<String, FakeFile>,
    pub ephemerals: Vec<FakeEphemeral>,
    pub calls: Vec<FakeCall>,
    pub scopes: BTreeSet<String>,
    /// False after the tokens were revoked.
    pub accepts_tokens: bool,
    /// How long an envelope waits for its acknowledgement: then an event is sent again, and a command has failed.
    pub acknowledge_within: Duration,
    /// Address to which requests for the content of files are redirected.
    pub file_redirect: Option<String>,
    /// Size that is stated of every file; none means its real size.
    pub stated_file_size: Option<usize>,
    /// Number of bytes that are streamed instead of the content of each file.
    pub streamed_file_size: Option<usize>,
    faults: Vec<(String, SlackFault, usize)>,
    sockets: Vec<FakeSocket>,
    tickets: BTreeSet<String>,
    envelopes: BTreeMap<String, FakeEnvelope>,
    /// Payloads of events, with the timestamps of their messages.
    events: Vec<(String, Value)>,
    /// Users who can be answered at a response URL, by the id of their command or press.
    triggers: BTreeMap<String, String>,
    last_micros: i64,
    last_number: u64,
}

pub(crate) struct FakeWorkspace {
    state: Mutex<FakeSlackState>,
    /// Changes whenever the state may have changed.
    changed: watch::Sender<u64>,
    /// Address of the HTTP server, without a slash at its end.
    base: String,
    /// Address of the WebSocket server.
    socket_base: String,
}

impl FakeWorkspace {
    pub(crate) fn state(&self) -> MutexGuard<'_, FakeSlackState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notify(&self) {
        self.changed.send_modify(|changes| *changes += 1);
    }
}

impl FakeSlackState {
    fn new() -> Self {
        let mut state = Self {
            users: BTreeMap::new(),
            channels: BTreeMap::new(),
            files: BTreeMap::new(),
            ephemerals: Vec::new(),
            calls: Vec::new(),
            scopes: ALL_SCOPES.map(str::to_owned).into(),
            accepts_tokens: true,
            acknowledge_within: Duration::from_secs(3),
            file_redirect: None,
            stated_file_size: None,
            streamed_file_size: None,
            faults: Vec::new(),
            sockets: Vec::new(),
            tickets: BTreeSet::new(),
            envelopes: BTreeMap::new(),
            events: Vec::new(),
            triggers: BTreeMap::new(),
            last_micros: 0,
            last_number: 0,
        };
        state.add_user(BOT_USER, "cowhand", true);
        state
    }

    /// Returns whether no envelope waits for its acknowledgement or for another delivery.
    pub fn has_no_envelopes(&self) -> bool {
        self.envelopes.is_empty()
    }

    pub(crate) fn add_user(&mut self, id: &str, name: &str, is_bot: bool) {
        let profile = json!({ "display_name": name, "real_name": name });
        let user = json!({ "id": id, "team_id": TEAM, "name": name.to_lowercase(), "real_name": name,
            "is_bot": is_bot, "deleted": false, "profile": profile });
        self.users.insert(id.to_owned(), user);
    }

    pub(crate) fn next_id(&mut self, prefix: &str) -> String {
        self.last_number += 1;
        format!("{prefix}{}", self.last_number)
    }

    /// Returns the timestamp of a new message; no two messages have the same.
    pub(crate) fn next_ts(&mut self) -> String {
        self.last_micros = jiff::Timestamp::now().as_microsecond().max(self.last_micros + 1);
        format!("{}.{:06}", self.last_micros / 1_000_000, self.last_micros % 1_000_000)
    }

    pub(crate) fn message(&mut self, channel: &str, ts: &str) -> Option<&mut Value> {
        let messages = &mut self.channels.get_mut(channel)?.messages;
        messages.iter_mut().find(|message| message["ts"] == ts)
    }

    /// Takes the fault for the next call of the method.
    fn take_fault(&mut self, method: &str) -> Option<SlackFault> {
        let place = self.faults.iter().position(|(name, _, count)| name == method && *count > 0)?;
        let (_, fault, count) = &mut self.faults[place];
        *count -= 1;
        Some(*fault)
    }
}

pub struct FakeSlack {
    workspace: Arc<FakeWorkspace>,
    servers: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for FakeSlack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeSlack").field("url", &self.url()).finish_non_exhaustive()
    }
}

impl Drop for FakeSlack {
    fn drop(&mut self) {
        for server in &self.servers {
            server.abort();
        }
        self.drop_connections();
    }
}

impl FakeSlack {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let workspace = Arc::new(FakeWorkspace {
            state: Mutex::new(FakeSlackState::new()),
            changed: watch::Sender::new(0),
            base: format!("http://{}", listener.local_addr().unwrap()),
            socket_base: format!("ws://{}", socket_listener.local_addr().unwrap()),
        });
        let router = Router::new().fallback(api::answer).with_state(Arc::clone(&workspace));
        let servers = vec![
            tokio::spawn(async move { axum::serve(listener, router).await.unwrap() }),
            tokio::spawn(socket::serve(Arc::clone(&workspace), socket_listener)),
        ];
        Self { workspace, servers }
    }

    /// Returns the address of the Web API.
    pub fn url(&self) -> String {
        format!("{}/api/", self.workspace.base)
    }

    pub fn state(&self) -> MutexGuard<'_, FakeSlackState> {
        self.workspace.state()
    }

    pub fn add_user(&self, id: &str, name: &str) {
        self.state().add_user(id, name, false);
    }

    /// Adds a public channel, of which the bot is a member.
    pub fn add_channel(&self, id: &str, name: &str) {
        self.add_conversation(id, name, FakeChannelKind::Public);
    }

    pub fn add_private_channel(&self, id: &str, name: &str) {
        self.add_conversation(id, name, FakeChannelKind::Private);
    }

    fn add_conversation(&self, id: &str, name: &str, kind: FakeChannelKind) {
        let channel = FakeChannel { kind, name: name.to_owned(), messages: Vec::new() };
        self.state().channels.insert(id.to_owned(), channel);
    }

    /// Returns the channel of direct messages between a user and the bot.
    pub fn direct_channel(&self, user: &str) -> String {
        let channel = format!("D{user}");
        if !self.state().channels.contains_key(&channel) {
            self.add_conversation(&channel, user, FakeChannelKind::Direct);
        }
        channel
    }

    /// Replaces the scopes of the bot.
    pub fn scopes(&self, scopes: &[&str]) {
        self.state().scopes = scopes.iter().map(|&scope| scope.to_owned()).collect();
    }

    pub fn messages(&self, channel: &str) -> Vec<Value> {
        self.state().channels[channel].messages.clone()
    }

    /// Returns the first message of a thread and its replies.
    pub fn thread(&self, channel: &str, ts: &str) -> Vec<Value> {
        let is_in = |message: &Value| message["ts"] == ts || message["thread_ts"] == ts;
        self.messages(channel).into_iter().filter(is_in).collect()
    }

    /// Returns the names of the reactions of a message.
    pub fn reactions(&self, channel: &str, ts: &str) -> Vec<String> {
        let mut state = self.state();
        let reactions = state.message(channel, ts).unwrap()["reactions"].clone();
        let reactions = reactions.as_array().cloned().unwrap_or_default();
        reactions.iter().map(|reaction| reaction["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns the files that are shared in a channel.
    pub fn files(&self, channel: &str) -> Vec<FakeFile> {
        let state = self.state();
        let is_in = |file: &&FakeFile| file.shares.iter().any(|(shared_in, _)| shared_in == channel);
        state.files.values().filter(is_in).cloned().collect()
    }

    /// Returns the calls of a method. The method [`DOWNLOAD`] is a request for the content of a file.
    pub fn calls(&self, method: &str) -> Vec<FakeCall> {
        self.state().calls.iter().filter(|call| call.method == method).cloned().collect()
    }

    /// Refuses the tokens from now on, and ends the connections.
    pub fn revoke_tokens(&self) {
        self.state().accepts_tokens = false;
        self.drop_connections();
    }

    /// Answers the next calls of a method with 429.
    pub fn rate_limit(&self, method: &str, count: usize, retry_after: u64) {
        self.plan(method, SlackFault::RateLimited { retry_after }, count);
    }

    /// Answers the next calls of a method with 500.
    pub fn fail(&self, method: &str, count: usize) {
        self.plan(method, SlackFault::Failed, count);
    }

    /// Answers the next calls of a method with an error code.
    pub fn refuse(&self, method: &str, count: usize, code: &'static str) {
        self.plan(method, SlackFault::Refused { code }, count);
    }

    /// Executes the next calls of a method, and answers 500.
    pub fn fail_after_effect(&self, method: &str, count: usize) {
        self.plan(method, SlackFault::FailedAfterEffect, count);
    }

    fn plan(&self, method: &str, fault: SlackFault, count: usize) {
        self.state().faults.push((method.to_owned(), fault, count));
    }

    /// Waits until `look` returns a value. Panics after two minutes.
    pub async fn wait_for<T>(&self, what: &str, mut look: impl FnMut(&mut FakeSlackState) -> Option<T>) -> T {
        let mut changes = self.workspace.changed.subscribe();
        let looking = async {
            loop {
                changes.borrow_and_update();
                let found = look(&mut self.state());
                if let Some(found) = found {
                    return found;
                }
                changes.changed().await.unwrap();
            }
        };
        let found = tokio::time::timeout(WAIT_LIMIT, looking).await;
        found.unwrap_or_else(|_| panic!("timed out while waiting for {what}; {:#?}", self.state().channels))
    }

    /// Waits for a message of the bot in a channel for which `matches` returns true.
    pub async fn wait_for_post(&self, channel: &str, mut matches: impl FnMut(&Value) -> bool) -> Value {
        let mut is_post = |message: &&Value| message["user"] == BOT_USER && matches(message);
        let what = format!("a post in {channel}");
        self.wait_for(&what, |state| state.channels[channel].messages.iter().find(&mut is_post).cloned())
            .await
    }
}
