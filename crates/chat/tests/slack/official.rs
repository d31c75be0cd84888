//! The fake behaves as Slack's own clients expect.

use std::sync::Arc;
use std::time::Duration;

use cowhand_testing::slack::{APP_TOKEN, BOT_TOKEN, FakeSlack};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::{EVENT_LIMIT, node, workspace};

/// Does what the script asks for.
struct People {
    slack: Arc<FakeSlack>,
    command: Option<JoinHandle<String>>,
}

impl People {
    async fn act(&mut self, request: &Value) -> Value {
        let slack = &self.slack;
        let text = |number: usize| request[number].as_str().unwrap();
        match text(0) {
            "say" => json!(slack.say(text(1), text(2), text(3))),
            "say_direct" => json!(slack.say_direct(text(1), text(2))),
            "edit" => json!(slack.edit(text(1), text(2), text(3))),
            "delete" => json!(slack.delete(text(1), text(2))),
            "reactions" => json!(slack.reactions(text(1), text(2))),
            "files" => {
                let files = slack.files(text(1)).into_iter();
                files.map(|file| json!([file.name, file.content])).collect()
            }
            "rate_limit" => json!(slack.rate_limit(text(1), 1, 1)),
            "acknowledged" => json!(slack.wait_until_acknowledged().await),
            "impatient" => {
                slack.state().acknowledge_within = Duration::from_millis(300);
                Value::Null
            }
            "patient" => {
                slack.state().acknowledge_within = EVENT_LIMIT;
                Value::Null
            }
            "slash" => {
                let [user, channel, command, argument] = [1, 2, 3, 4].map(|number| text(number).to_owned());
                let slack = Arc::clone(slack);
                let calling = async move { slack.slash(&user, &channel, &command, &argument).await };
                self.command = Some(tokio::spawn(calling));
                Value::Null
            }
            "slash_answer" => json!(self.command.take().unwrap().await.unwrap()),
            "press" => json!(slack.press(text(1), text(2), text(3), text(4))),
            "press_answer" => json!(slack.wait_for_answer(text(1)).await),
            "disconnect" => json!(slack.disconnect(text(1))),
            "drop_connections" => json!(slack.drop_connections()),
            other => panic!("unknown request: {other}"),
        }
    }
}

#[tokio::test]
async fn clients_of_slack_work_with_the_fake() {
    let slack = Arc::new(workspace().await);
    let mut script = node::start("slack.mjs", &[&slack.url(), BOT_TOKEN, APP_TOKEN]);
    let mut lines = BufReader::new(script.stdout.take().unwrap()).lines();
    let mut input = script.stdin.take().unwrap();
    let mut people = People { slack, command: None };
    let mut is_done = false;
    while let Some(line) = timeout(EVENT_LIMIT, lines.next_line()).await.expect("the script hangs").unwrap() {
        if let Some(request) = line.strip_prefix("act ") {
            let answer = people.act(&serde_json::from_str(request).unwrap()).await;
            input.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        }
        is_done |= line == "done";
    }
    let status = script.wait().await.unwrap();
    assert!(is_done && status.success(), "{status}");
}
