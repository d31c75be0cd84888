//! Slack: Web API and Socket Mode.
//!
//! Decision 0039 describes when each event is acknowledged, and how an earlier post is found.

mod api;
mod connection;
mod dispatch;
mod download;
mod emoji;
mod event;
mod files;
mod history;
mod identity;
mod missed;
mod names;
mod pace;
mod post_error;
mod posting;
mod respond;
mod sections;
mod setup;
mod socket;
mod text;
mod timestamp;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::{env, fmt};

use async_trait::async_trait;
use cowhand_core::chat::{ChatAttachment, ChatMessage, ChatPlace};
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};

use crate::running::ConnectionRun;
use crate::{
    Button, ChatError, ConnectionEnd, ConnectionState, Connector, ExpectedPlaces, Post, Posted,
    ReceivedEvent, SetupProblem,
};
use api::SlackApi;
use event::RecentMessages;
use identity::SlackIdentity;
use names::UserNames;
use pace::PostPace;

/// Name of the platform in errors.
const PLATFORM: &str = "Slack";
const SLACK_API_URL: &str = "https://slack.com/api/";
/// Environment variable with the address of the Web API, for settings without `api_url`.
const API_URL_VARIABLE: &str = "COWHAND_SLACK_API";

/// Tokens and address of a Slack app.
#[derive(Clone)]
pub struct SlackSettings {
    /// Token of the bot (`xoxb-…`).
    pub bot_token: String,
    /// App-level token (`xapp-…`) with the scope `connections:write`.
    pub app_token: String,
    /// Address of the Web API; none means `COWHAND_SLACK_API`, or the platform's own address.
    pub api_url: Option<String>,
}

impl fmt::Debug for SlackSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlackSettings").field("api_url", &self.api_url).finish_non_exhaustive()
    }
}

/// A Slack app in one workspace.
pub struct SlackConnector {
    api: Arc<SlackApi>,
    names: UserNames,
    pace: PostPace,
    state: watch::Sender<ConnectionState>,
    identity: Mutex<Option<Arc<SlackIdentity>>>,
    recent: Mutex<RecentMessages>,
    /// Posts before this time were made by another process.
    created_at: Timestamp,
    /// Keys of posts of which this process does not know whether they succeeded, with the number of their refusals that
    /// may be temporary.
    uncertain_posts: Mutex<HashMap<String, u32>>,
}

impl fmt::Debug for SlackConnector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlackConnector").field("state", &*self.state.borrow()).finish_non_exhaustive()
    }
}

impl SlackConnector {
    /// Creates the connector. It sends nothing.
    pub fn new(settings: SlackSettings) -> Result<Self, ChatError> {
        let url = settings.api_url.or_else(|| env::var(API_URL_VARIABLE).ok().filter(|url| !url.is_empty()));
        let url = url.as_deref().unwrap_or(SLACK_API_URL);
        let api = Arc::new(SlackApi::new(url, &settings.bot_token, &settings.app_token)?);
        Ok(Self {
            names: UserNames::new(Arc::clone(&api)),
            api,
            pace: PostPace::default(),
            state: watch::Sender::new(ConnectionState::Connecting { problem: None }),
            identity: Mutex::new(None),
            recent: Mutex::new(RecentMessages::default()),
            created_at: Timestamp::now(),
            uncertain_posts: Mutex::new(HashMap::new()),
        })
    }
}

#[async_trait]
impl Connector for SlackConnector {
    async fn run(&self, events: mpsc::Sender<ReceivedEvent>) -> ConnectionEnd {
        let run = ConnectionRun::begin(&self.state);
        let end = self.run_connection(events).await;
        run.end(&end);
        end
    }

    fn state(&self) -> watch::Receiver<ConnectionState> {
        self.state.subscribe()
    }

    fn now(&self) -> Timestamp {
        self.api.clock.now()
    }

    async fn post(&self, post: &Post) -> Result<Posted, ChatError> {
        self.post_once(post).await
    }

    async fn edit(
        &self,
        _: &ChatPlace,
        message: &str,
        text: &str,
        buttons: &[Button],
    ) -> Result<(), ChatError> {
        self.update(message, text, buttons).await
    }

    async fn react(
        &self,
        _: &ChatPlace,
        message: &str,
        emoji: &str,
        is_added: bool,
    ) -> Result<(), ChatError> {
        self.set_reaction(message, emoji, is_added).await
    }

    /// Does nothing, because Slack shows this only for assistant apps.
    async fn show_typing(&self, _: &ChatPlace) -> Result<(), ChatError> {
        Ok(())
    }

    async fn history(
        &self,
        place: &ChatPlace,
        after: Option<Timestamp>,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<ChatMessage>, ChatError> {
        self.read_history(place, after, before, limit).await
    }

    async fn missed(
        &self,
        channel: &ChatPlace,
        threads: &[String],
        after: Timestamp,
        limit: usize,
    ) -> Result<Vec<ChatMessage>, ChatError> {
        self.read_missed(channel, threads, after, limit).await
    }

    async fn download(&self, attachment: &ChatAttachment, limit: u64) -> Result<Vec<u8>, ChatError> {
        self.api.download(attachment, limit).await
    }

    async fn check(&self, places: &ExpectedPlaces) -> Result<Vec<SetupProblem>, ChatError> {
        self.check_setup(places).await
    }
}
