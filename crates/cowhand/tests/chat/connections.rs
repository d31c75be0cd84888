//! Lost connections, rate limits, errors of the platform and refused tokens.

use std::fs;
use std::time::Duration;

use cowhand_testing::discord;
use cowhand_testing::slack;
use cowhand_testing::wait_until;
use serde_json::json;

use crate::reliable::{PRINT_TEXT, helper, to_discord_bot};
use crate::scene::{ANN, SLACK_CHANNEL, Scene};

/// A loss of the connections, and what causes it.
type ConnectionLoss = (&'static str, fn(&Scene));

/// `helper` says something, and repeats the text when there is a file `go`.
fn fleet() -> String {
    let say =
        |word: &str| format!("printf '{{\"type\":\"assistant\",\"content\":\"{word} %s\"}}\\n' \"$text\"");
    let (begun, finished) = (say("begun"), say("finished"));
    let program =
        format!("text=$({PRINT_TEXT}); {begun}; while [ ! -e go ]; do sleep 0.05; done; {finished}");
    helper(&program, 2, ", output: {assistant_messages: all}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_connection_changes_no_answer() {
    let scene = Scene::started(&fleet()).await;
    let losses: [ConnectionLoss; 4] = [
        ("a dropped connection", |scene| {
            scene.slack.drop_connections();
            scene.discord.drop_connections();
        }),
        ("a reconnection", |scene| {
            scene.slack.disconnect("warning");
            scene.discord.reconnect();
        }),
        ("an invalid session that can be resumed", |scene| {
            scene.slack.disconnect("refresh_requested");
            scene.discord.invalidate(true);
        }),
        ("a lost session", |scene| {
            scene.slack.drop_connections();
            scene.discord.invalidate(false);
        }),
    ];
    for (name, lose) in losses {
        scene.mention_on_slack(&format!("s {name}"));
        scene.mention_on_discord(&format!("d {name}"));
        scene.wait_for_slack(&format!("begun s {name}")).await;
        scene.wait_for_discord(&format!("begun d {name}")).await;
        let sessions = scene.discord.connections();
        lose(&scene);
        // A message that arrives while there is no connection is not lost.
        scene.mention_on_slack(&format!("s meanwhile {name}"));
        scene.mention_on_discord(&format!("d meanwhile {name}"));
        scene
            .discord
            .wait_for("another connection", |fake| (fake.connections() != sessions).then_some(()))
            .await;
        scene.write("go", "");
        for text in [format!("finished s {name}"), format!("finished s meanwhile {name}")] {
            scene.wait_for_slack(&text).await;
        }
        for text in [format!("finished d {name}"), format!("finished d meanwhile {name}")] {
            scene.wait_for_discord(&text).await;
        }
        scene.wait_until_answered();
        for text in ["s", "d", "s meanwhile", "d meanwhile"] {
            scene.assert_posted_once(&format!("begun {text} {name}"));
            scene.assert_posted_once(&format!("finished {text} {name}"));
        }
        fs::remove_file(scene.root.join("go")).unwrap();
    }
    assert_eq!(scene.discord.connections().0, 2, "only the lost session began anew");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_errors_of_a_platform_keep_the_order_and_repeat_no_post() {
    let scene = Scene::new(&helper(PRINT_TEXT, 4, "")).await;
    let other = scene.discord.add_channel(discord::GUILD_ID, "other");
    let (id, config) = (discord::CHANNEL_ID, scene.root.join("cowhand.yaml"));
    let one_channel = fs::read_to_string(&config).unwrap();
    let both = one_channel.replace(&format!("{{id: '{id}'}}"), &format!("{{id: '{id}'}}, {{id: '{other}'}}"));
    fs::write(&config, both).unwrap();
    scene.start();
    scene.connected().await;
    scene.slack.rate_limit("reactions.add", 1, 1);
    scene.slack.rate_limit("chat.postMessage", 1, 1);
    scene.slack.fail("chat.postMessage", 1);
    scene.slack.fail_after_effect("chat.postMessage", 2);
    let posts = format!("POST /channels/{}/messages", discord::CHANNEL_ID);
    scene.discord.rate_limit(&posts, 1, 4.0);
    scene.discord.fail(&posts, 1, 502);
    scene.discord.fail_after_effect(&posts, 2, 503);
    for number in 1..=3 {
        scene.mention_on_slack(&format!("message {number}"));
        scene.mention_on_discord(&format!("message {number}"));
    }
    let text = to_discord_bot("elsewhere");
    scene.discord.say(&other, discord::USER_ID, &text);
    scene.discord.wait_for_answers(&other, 1).await;
    assert!(scene.discord_posts().is_empty(), "a limited channel does not hold up another one");
    scene.wait_for_slack("message 3").await;
    scene.wait_for_discord("message 3").await;
    scene.wait_until_answered();
    let expected = ["message 1", "message 2", "message 3"];
    let slack: Vec<String> =
        scene.slack_posts().iter().map(|post| post["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(slack, expected, "{}", scene.log());
    let discord: Vec<String> = scene.discord_posts().into_iter().map(|post| post.content).collect();
    assert_eq!(discord, expected, "{}", scene.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_token_is_stated_once_and_is_tried_again_after_a_reload() {
    let missing = format!(
        "{{discord: {{bot_token_env: NO_TOKEN, users: ['1'], guilds: [{{id: '{}'}}]}}}}",
        discord::GUILD_ID
    );
    let fleet = helper(&format!("{PRINT_TEXT}; sleep 3"), 2, "");
    let fleet = format!("{fleet}  - {{name: silent, runtime: command, command: [cat], chat: {missing}}}\n");
    let scene = Scene::started(&fleet).await;
    let state_of = |bot: &str| {
        let found = scene.query(&format!("select state from chat_bots where bot = '{bot}'"));
        found.into_iter().next().unwrap_or_default()
    };
    let is_refused = |bot: &str, why: &str| {
        wait_until("a refused bot", || {
            let state = state_of(bot);
            (state.contains("refused") && state.contains(why)).then_some(())
        });
    };
    is_refused("discord:NO_TOKEN", "NO_TOKEN is not set");
    assert!(scene.log().contains("NO_TOKEN"));
    scene.mention_on_slack("running");
    scene.wait_for_slack("running").await;
    scene.mention_on_slack("not posted");
    scene.slack.revoke_tokens();
    scene.discord.revoke_token();
    is_refused("slack:SLACK_BOT_TOKEN", "token");
    is_refused("discord:DISCORD_TOKEN", "token");
    let (calls, _) = (scene.slack.state().calls.len(), scene.discord.requests());
    // This takes some seconds.
    let said = scene.run(&["trigger", "helper", "--prompt", "x", "--wait"]);
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let (later, on_discord) = (scene.slack.state().calls.len(), scene.discord.requests());
    assert!(later - calls <= 2 && on_discord.len() <= 2, "{calls} {later} {on_discord:?}");

    scene.slack.state().accepts_tokens = true;
    scene.discord.accept_token();
    // Both bots are tried again at once.
    scene.reload();
    scene.connected().await;
    scene.mention_on_discord("again");
    scene.wait_for_discord("again").await;
    scene.wait_for_slack("not posted").await;
    scene.wait_until_answered();
    scene.assert_posted_once("running");
    scene.assert_posted_once("not posted");
    scene.assert_posted_once("again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_read_after_a_lost_lease() {
    let mut scene = Scene::new(&helper(PRINT_TEXT, 1, "")).await;
    scene.set("COWHAND_WAITS", "slack_pace,chat_renewal");
    scene.start();
    scene.connected().await;
    scene.mention_on_slack("before");
    scene.wait_for_slack("before").await;
    scene.query("update chat_bots set node = 'other', until = 9000000000000000 returning ''");
    scene.slack.wait_for_connections(0).await;
    // Slack gives up the delivery before the bot is connected again.
    scene.slack.state().acknowledge_within = Duration::from_millis(1);
    scene.mention_on_slack("meanwhile");
    scene.slack.wait_for("the end of the delivery", |state| state.has_no_envelopes().then_some(())).await;
    scene.slack.state().acknowledge_within = Duration::from_secs(3);
    scene.query("update chat_bots set until = 0 returning ''");
    scene.wait_for_slack("meanwhile").await;
    scene.wait_until_answered();
    scene.assert_posted_once("meanwhile");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_ends_no_chat() {
    let scene = Scene::new(&helper(PRINT_TEXT, 1, "")).await;
    for point in ["chat_bots_started", "chat_handling"] {
        scene.start_with(&[("COWHAND_FAULT", &format!("panic:{point}:1"))]);
        scene.connected().await;
        scene.mention_on_slack(&format!("after {point}"));
        scene.wait_for_slack(&format!("after {point}")).await;
        wait_until("the log of the panic", || scene.log().contains(&format!("{point:?}")).then_some(()));
        scene.wait_until_answered();
        scene.stop_daemon();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_with_the_same_token_in_two_variables_share_a_connection() {
    let chat = |token: &str, channel: &str| {
        format!("{{slack: {{{token}everyone: true, channels: [{{id: {channel}}}]}}}}")
    };
    let (alpha, beta) = (chat("", SLACK_CHANNEL), chat("bot_token_env: SECOND_TOKEN, ", "C2"));
    let scene = Scene::new(&format!(
        "agents:
  - {{name: alpha, runtime: command, command: [sh, -c, echo alpha says], chat: {alpha}}}
  - {{name: beta, runtime: command, command: [sh, -c, echo beta says], chat: {beta}}}
"
    ))
    .await;
    scene.slack.add_channel("C2", "other");
    let started = scene
        .command(&["start", "-d", "--no-server"])
        .env("SECOND_TOKEN", slack::BOT_TOKEN)
        .output()
        .unwrap();
    assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    scene.slack.wait_for_connections(1).await;
    let bots = scene.wait_for("the connection", &["status"], |status| {
        let bots = status["chat_bots"].as_array().unwrap();
        bots.iter().any(|bot| bot["status"] == "connected").then(|| bots.clone())
    });
    assert_eq!(bots.len(), 1, "{bots:#?}");
    assert_eq!(bots[0]["agents"], json!(["alpha", "beta"]), "{bots:#?}");
    for (channel, expected) in [(SLACK_CHANNEL, "alpha says"), ("C2", "beta says")] {
        for number in 1..=3 {
            let ts = scene.slack.say(channel, ANN, &format!("<@{}> message {number}", slack::BOT_USER));
            scene
                .slack
                .wait_for_post(channel, |post| {
                    post["thread_ts"] == *ts
                        && post["text"].as_str().is_some_and(|text| text.contains(expected))
                })
                .await;
        }
    }
    assert_eq!(scene.slack.connections(), 1);
    let checks = scene.run(&["doctor"]).stdout;
    assert_eq!(checks.matches("chat bot slack:").count(), 1, "{checks}");
    scene.stop();
    let bots = scene.json(&["status"])["chat_bots"].clone();
    assert_eq!(bots.as_array().unwrap().len(), 1, "{bots:#}");
}
