//! The fake Discord, used with discord.js.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use cowhand_testing::discord::{BOT_ID, BOT_TOKEN, CHANNEL_ID, FakeDiscord, GUILD_ID, USER_ID};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::mpsc;

#[tokio::test(flavor = "multi_thread")]
async fn discord_js_uses_the_fake() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/node");
    assert!(
        folder.join("node_modules/discord.js").is_dir(),
        "discord.js is not installed in tests/node: run scripts/test, which installs it"
    );
    let fake = Arc::new(FakeDiscord::start().await);
    let second = fake.install_bot("second");
    let mut node = Command::new("node")
        .arg(folder.join("discord.mjs"))
        .args([&fake.url(), BOT_TOKEN, GUILD_ID, CHANNEL_ID, USER_ID, &second.token])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("node is not installed: run scripts/test, which installs it");
    let mut stdin = node.stdin.take().unwrap();
    let mut lines = BufReader::new(node.stdout.take().unwrap()).lines();
    let (results, mut received) = mpsc::unbounded_channel::<Value>();
    loop {
        tokio::select! {
            line = lines.next_line() => {
                let Some(line) = line.unwrap() else { break };
                let request: Value = serde_json::from_str(&line).unwrap();
                let (fake, results) = (Arc::clone(&fake), results.clone());
                // Answers to interactions are waited for while further requests arrive.
                tokio::spawn(async move {
                    let result = act(&fake, &request).await;
                    let _ = results.send(json!({ "id": request["id"], "result": result }));
                });
            }
            Some(result) = received.recv() => {
                stdin.write_all(format!("{result}\n").as_bytes()).await.unwrap();
            }
        }
    }
    let status = node.wait().await.unwrap();
    assert!(status.success(), "tests/node/discord.mjs failed: {status}");
    assert_eq!(fake.typing_count(CHANNEL_ID), 1);
}

/// Does what the script requests.
async fn act(fake: &FakeDiscord, request: &Value) -> Value {
    let text = |key: &str| request[key].as_str().unwrap_or_default();
    let channel = request["channel"].as_str().unwrap_or(CHANNEL_ID);
    match text("action") {
        "say" => json!(fake.say(channel, USER_ID, text("text"))),
        "say_direct" => {
            let bot = request["bot"].as_str().unwrap_or(BOT_ID);
            json!(fake.say_directly_to(bot, USER_ID, text("text")))
        }
        "say_with_file" => {
            let content = text("content").as_bytes();
            json!(fake.say_with_file(channel, USER_ID, text("text"), text("name"), "text/plain", content))
        }
        "edit" => json!(fake.edit(text("message"), text("text"))),
        "delete" => json!(fake.delete(text("message"))),
        "presence" => json!(fake.presence()),
        "reactions" => json!(fake.reactions(text("message"))),
        "fetched" => json!(fake.fetched_links()),
        "slash" => {
            let mut options = Vec::new();
            for option in request["options"].as_array().unwrap() {
                options.push((option[0].as_str().unwrap(), option[1].as_str().unwrap()));
            }
            json!(fake.slash(USER_ID, channel, text("name"), &options).await)
        }
        "press" => json!(fake.press(USER_ID, channel, text("message"), text("button")).await),
        "rate_limit" if request["isGlobal"] == true => json!(fake.rate_limit_globally(1, 0.2)),
        "rate_limit" => json!(fake.rate_limit("POST /channels", 1, 0.2)),
        "reconnect" => json!(fake.reconnect()),
        "drop_connections" => json!(fake.drop_connections()),
        "invalidate" => json!(fake.invalidate(request["isResumable"] == true)),
        "revoke_token" => json!(fake.revoke_token()),
        "connections" => json!(fake.connections()),
        action => panic!("unknown action {action}"),
    }
}
