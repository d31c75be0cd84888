//! Functions for the tests of faults: they kill the daemon of a fleet at a point, and count posts.

use cowhand_testing::discord::{self, FakeDiscordMessage};
use cowhand_testing::slack::BOT_USER;
use cowhand_testing::wait_until;
use rusqlite::Connection;
use rustix::process::Pid;
use serde_json::Value;

use crate::scene::{ANN, SLACK_CHANNEL, Scene, everyone};

/// Program that prints the text of the message in its prompt.
pub(crate) const PRINT_TEXT: &str = "sed -n '/^~~~~/{n;p;q;}'";

/// Returns an agent `helper` that runs a shell program, with these limits and the settings of [`everyone`].
pub(crate) fn helper(program: &str, concurrent: u32, keys: &str) -> String {
    format!(
        "agents:\n  - name: helper\n    runtime: command\n    command: [sh, -c, {}]\n    \
         instances: {{max_concurrent: {concurrent}}}\n    chat: {}\n",
        serde_json::to_string(program).unwrap(),
        everyone(keys, keys)
    )
}

/// Returns a message that mentions the bot on Slack.
pub(crate) fn to_slack_bot(text: &str) -> String {
    format!("<@{BOT_USER}> {text}")
}

/// Returns a message that mentions the bot on Discord.
pub(crate) fn to_discord_bot(text: &str) -> String {
    format!("<@{}> {text}", discord::BOT_ID)
}

impl Scene {
    /// Starts the fleet with these variables in addition.
    pub(crate) fn start_with(&self, variables: &[(&str, &str)]) {
        let mut command = self.command(&["start", "-d", "--no-server"]);
        command.envs(variables.iter().copied());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts a daemon that is killed at a point, and returns its process.
    pub(crate) async fn start_doomed(&self, point: &str) -> Pid {
        self.start_with(&[("COWHAND_FAULT", point)]);
        self.connected().await;
        // Messages from before the first connection are not read after a restart.
        let known = "select bot from chat_inboxes";
        wait_until("the record of both connections", || (self.query(known).len() == 2).then_some(()));
        self.daemon().unwrap()
    }

    pub(crate) fn stop_daemon(&self) {
        let said = self.run(&["stop"]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
    }

    /// Reads the config again. Bots that are not connected are tried at once.
    pub(crate) fn reload(&self) {
        let said = self.run(&["reload"]);
        assert_eq!(said.code, Some(0), "{}", said.stderr);
    }

    pub(crate) fn mention_on_slack(&self, text: &str) -> String {
        self.slack.say(SLACK_CHANNEL, ANN, &to_slack_bot(text))
    }

    pub(crate) fn mention_on_discord(&self, text: &str) -> String {
        self.discord.say(discord::CHANNEL_ID, discord::USER_ID, &to_discord_bot(text))
    }

    /// Returns the messages of the bot on Slack in their order.
    pub(crate) fn slack_posts(&self) -> Vec<Value> {
        let mut messages = self.slack.messages(SLACK_CHANNEL);
        messages.retain(|message| message["user"] == BOT_USER);
        messages
    }

    /// Returns the messages of the bot in the channel on Discord in their order.
    pub(crate) fn discord_posts(&self) -> Vec<FakeDiscordMessage> {
        let mut messages = self.discord.messages(discord::CHANNEL_ID);
        messages.retain(|message| message.author == discord::BOT_ID);
        messages
    }

    pub(crate) async fn wait_for_slack(&self, text: &str) -> Value {
        let contains = |post: &Value| post["text"].as_str().is_some_and(|posted| posted.contains(text));
        self.slack.wait_for_post(SLACK_CHANNEL, contains).await
    }

    pub(crate) async fn wait_for_discord(&self, text: &str) -> FakeDiscordMessage {
        let find = || self.discord_posts().into_iter().find(|post| post.content.contains(text));
        self.discord.wait_for(&format!("{text:?} on Discord"), |_| find()).await
    }

    /// Returns the texts of the posts on both platforms.
    pub(crate) fn posted_texts(&self) -> Vec<String> {
        let slack = self.slack_posts().into_iter().map(|post| post["text"].as_str().unwrap().to_owned());
        slack.chain(self.discord_posts().into_iter().map(|post| post.content)).collect()
    }

    /// Checks that exactly one post contains the text.
    pub(crate) fn assert_posted_once(&self, text: &str) {
        let posts = self.posted_texts();
        let count = posts.iter().filter(|post| post.contains(text)).count();
        assert_eq!(count, 1, "{text:?} in {posts:#?}\n{}", self.log());
    }

    /// Runs a query in the store, and returns the first column.
    pub(crate) fn query(&self, sql: &str) -> Vec<String> {
        let store = Connection::open(self.root.join(".cowhand/store.db")).unwrap();
        let mut statement = store.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    /// Waits until no message waits and no answer is open.
    pub(crate) fn wait_until_answered(&self) {
        let open = "select count(*) || '' from chat_answers where state = 'open' \
                    union all select count(*) || '' from chat_messages where body is not null";
        wait_until("the end of all answers", || (self.query(open) == ["0", "0"]).then_some(()));
    }
}
