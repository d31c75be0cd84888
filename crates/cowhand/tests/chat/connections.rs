//! Lost connections, rate limits, errors of the platform and refused tokens.

use std::fs;

use cowhand_testing::discord;
use cowhand_testing::wait_until;

use crate::reliable::{PRINT_TEXT, helper, to_discord_bot};
use crate::scene::Scene;

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
async fn a_refused_token_is_stated_once_and_can_be_replaced() {
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
    let restarted = scene.run(&["restart"]);
    assert_eq!(restarted.code, Some(0), "{}", restarted.stderr);
    scene.connected().await;
    scene.mention_on_discord("again");
    scene.wait_for_discord("again").await;
    scene.wait_for_slack("not posted").await;
    scene.wait_until_answered();
    scene.assert_posted_once("running");
    scene.assert_posted_once("not posted");
    scene.assert_posted_once("again");
}
