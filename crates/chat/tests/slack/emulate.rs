//! The connector against `emulate`, a third-party fake of Slack's Web API in memory.

use std::net::TcpListener;
use std::sync::Arc;

use cowhand_chat::slack::{SlackConnector, SlackSettings};
use cowhand_chat::{Connector, OutgoingFile};
use cowhand_testing::slack::ALL_SCOPES;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::time::timeout;

use crate::{EVENT_LIMIT, buttons, node, place, post};

const TOKEN: &str = "xoxb-emulate-1";

struct EmulatedSlack {
    url: String,
    http: reqwest::Client,
    _server: Child,
    _folder: TempDir,
}

impl EmulatedSlack {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let seed = json!({ "slack": {
            "team": { "name": "Fake", "domain": "fake" },
            "users": [{ "name": "ada", "real_name": "Ada" }],
            "channels": [{ "name": "reports" }],
            "tokens": [{ "token": TOKEN, "user": "ada", "scopes": ALL_SCOPES }],
        } });
        let file = folder.path().join("seed.yaml");
        std::fs::write(&file, seed.to_string()).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (file, number) = (file.to_str().unwrap(), port.to_string());
        let base = format!("http://127.0.0.1:{port}");
        let arguments =
            ["start", "--service", "slack", "--port", &number, "--seed", file, "--base-url", &base];
        let mut server = node::start("node_modules/emulate/dist/index.js", &arguments);
        let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let listening = async {
            while !lines.next_line().await.unwrap().expect("emulate has ended").contains("http://") {}
        };
        timeout(EVENT_LIMIT, listening).await.expect("emulate does not listen");
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        // Node closes idle connections, which may happen while a request is sent.
        let http = cowhand_system::http::client_builder().pool_max_idle_per_host(0).build().unwrap();
        Self { url: format!("{base}/api/"), http, _server: server, _folder: folder }
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        let request = self.http.post(format!("{}{method}", self.url)).bearer_auth(TOKEN);
        let request = request.header("content-type", "application/json").body(params.to_string());
        let answer = request.send().await.unwrap().bytes().await.unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(answer["ok"], true, "{method}: {answer}");
        answer
    }
}

fn connector(emulate: &EmulatedSlack) -> Arc<SlackConnector> {
    let settings = SlackSettings {
        bot_token: TOKEN.to_owned(),
        app_token: "xapp-none".to_owned(),
        api_url: Some(emulate.url.clone()),
    };
    Arc::new(SlackConnector::new(settings).unwrap())
}

#[tokio::test]
async fn emulated_web_api_accepts_the_calls() {
    let emulate = EmulatedSlack::start().await;
    let slack = connector(&emulate);
    let channels = emulate.ask("conversations.list", json!({})).await;
    let channels = channels["channels"].as_array().unwrap();
    let channel = channels.iter().find(|channel| channel["name"] == "reports").unwrap();
    let channel = channel["id"].as_str().unwrap();
    let parent = slack.post(&post(place(channel, None), "p", "question")).await.unwrap().id;
    let thread = place(channel, Some(parent.split_once(':').unwrap().1));

    let mut answer = post(thread.clone(), "a1", "*answer* &amp; more");
    answer.files = vec![OutgoingFile { name: "a b.txt".to_owned(), content: b"one".to_vec() }];
    answer.buttons = buttons();
    let posted = slack.post(&answer).await.unwrap();
    assert!(!posted.is_repeated);
    // Another process finds the text by its key, and the file by its id.
    let again = connector(&emulate).post(&answer).await.unwrap();
    assert_eq!((again.id.as_str(), again.is_repeated), (posted.id.as_str(), true));

    slack.edit(&thread, &posted.id, "edited", &[]).await.unwrap();
    for _ in 0..2 {
        slack.react(&thread, &posted.id, "👀", true).await.unwrap();
    }
    for _ in 0..2 {
        slack.react(&thread, &posted.id, "👀", false).await.unwrap();
    }
    let messages = slack.history(&thread, None, None, 10).await.unwrap();
    let texts: Vec<&str> = messages.iter().map(|message| message.text.as_str()).collect();
    assert_eq!(texts, ["question", "edited", ""]);
    assert_eq!(messages[1].author.name, "ada");
    assert!(messages.iter().all(|message| message.author.is_self));
    let file = &messages[2].attachments[0];
    assert_eq!((file.name.as_str(), slack.download(file, 100).await.unwrap()), ("a b.txt", b"one".to_vec()));
    let newest = slack.history(&place(channel, None), None, None, 1).await.unwrap();
    assert_eq!(newest[0].text, "question");

    let error = slack.post(&post(place("C0", None), "a2", "x")).await.unwrap_err();
    assert!(error.to_string().contains("chat.postMessage: channel_not_found"), "{error}");
}
