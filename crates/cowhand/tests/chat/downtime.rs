//! Messages that are sent while no daemon is connected.

use cowhand_testing::{discord, wait_until};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::reliable::{PRINT_TEXT, helper, to_discord_bot, to_slack_bot};
use crate::scene::{ANN, SLACK_CHANNEL, Scene, everyone};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missed_messages_of_all_places_are_answered_in_order() {
    let scene = Scene::new(&helper(PRINT_TEXT, 1, "")).await;
    // Messages from before the first connection of the bot are not answered.
    scene.mention_on_discord("too early");
    scene.start();
    scene.connected().await;
    let answered = scene.mention_on_slack("known thread");
    scene.wait_for_slack("known thread").await;
    scene.slack.say_direct(ANN, "known person");
    let direct = scene.slack.direct_channel(ANN);
    let contains = |text: &'static str| {
        move |post: &serde_json::Value| post["text"].as_str().is_some_and(|posted| posted.contains(text))
    };
    scene.slack.wait_for_post(&direct, contains("known person")).await;
    let (direct_on_discord, _) = scene.discord.say_direct(discord::USER_ID, "known person");
    scene.discord.wait_for_answers(&direct_on_discord, 1).await;
    scene.wait_until_answered();
    scene.kill_daemon();

    // The channel on Discord never got a message while a daemon ran.
    scene.mention_on_discord("missed 1");
    for number in 0..250 {
        scene.slack.say(SLACK_CHANNEL, ANN, &format!("not for the bot {number}"));
        scene.discord.say(discord::CHANNEL_ID, discord::USER_ID, &format!("not for the bot {number}"));
    }
    scene.mention_on_discord("missed 2");
    scene.mention_on_slack("missed 1");
    let parent = scene.slack.say(SLACK_CHANNEL, ANN, "a thread of people");
    scene.slack.say_in_thread(SLACK_CHANNEL, &parent, ANN, &to_slack_bot("missed in a new thread"));
    scene.slack.say_in_thread(SLACK_CHANNEL, &answered, ANN, "missed in the known thread");
    scene.slack.say_direct(ANN, "missed directly");
    scene.discord.say_direct(discord::USER_ID, "missed directly");
    let thread = scene.discord.create_thread(discord::CHANNEL_ID, "new");
    scene.discord.say(&thread, discord::USER_ID, &to_discord_bot("missed in a new thread"));
    // The first calls fail; they are tried again.
    scene.slack.fail("conversations.history", 5);
    scene.discord.fail(&format!("GET /channels/{}/messages", discord::CHANNEL_ID), 5, 500);
    scene.start();
    scene.connected().await;
    // New messages do not overtake the missed ones.
    scene.mention_on_slack("live");
    scene.mention_on_discord("live");
    scene.wait_for_slack("live").await;
    scene.wait_for_discord("live").await;
    scene.slack.wait_for_post(&direct, contains("missed directly")).await;
    scene.discord.wait_for_answers(&direct_on_discord, 2).await;
    scene.discord.wait_for_answers(&thread, 1).await;
    scene.wait_until_answered();
    for text in ["missed in a new thread", "missed in the known thread"] {
        scene.assert_posted_once(text);
    }
    let order = |texts: Vec<String>| {
        let position = |text: &str| texts.iter().position(|post| post.trim().ends_with(text));
        let positions = ["missed 1", "live"].map(position);
        assert!(positions[0].is_some() && positions[0] < positions[1], "{texts:#?}");
        assert_eq!(position("too early"), None, "{texts:#?}");
    };
    order(scene.slack_posts().iter().map(|post| post["text"].as_str().unwrap().to_owned()).collect());
    let on_discord: Vec<String> = scene.discord_posts().into_iter().map(|post| post.content).collect();
    assert_eq!(on_discord, ["missed 1", "missed 2", "live"]);
    order(on_discord);
    assert_eq!(scene.jobs().len(), 3 + 8 + 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_many_threads_nor_a_clock_that_was_ahead_hide_a_direct_message() {
    let scene = Scene::started(&helper(PRINT_TEXT, 1, "")).await;
    scene.slack.say_direct(ANN, "known person");
    let direct = scene.slack.direct_channel(ANN);
    let answer = async |text: &str| {
        let is_answer = |post: &Value| post["text"].as_str().is_some_and(|posted| posted.contains(text));
        scene.slack.wait_for_post(&direct, is_answer).await;
        scene.wait_until_answered();
    };
    answer("known person").await;
    scene.kill_daemon();
    scene.query(&format!(
        "insert into chat_channels (bot, channel, place, sent_at, parent) \
         with recursive numbers(number) as (select 1 union all select number + 1 from numbers where number < 1100) \
         select bot, '{SLACK_CHANNEL}/1.' || number, json_object('space', 'T1', 'channel', '{SLACK_CHANNEL}', \
         'thread', '1.' || number, 'is_direct', json('false')), \
         (select max(sent_at) from chat_channels) + number, '{SLACK_CHANNEL}' \
         from numbers, chat_inboxes where bot like 'slack:%' returning ''"
    ));
    scene.slack.say_direct(ANN, "missed beside threads");
    scene.start();
    answer("missed beside threads").await;
    let threads_are_cut = || scene.log().contains("only in the 50 threads used last").then_some(());
    wait_until("the warning", threads_are_cut);
    scene.kill_daemon();

    scene.query("update chat_inboxes set received_until = received_until + 86400000000 returning ''");
    scene.slack.say_direct(ANN, "missed with a wrong clock");
    scene.start();
    answer("missed with a wrong clock").await;
}

/// `max_lateness` of a schedule bounds the age of the missed messages that fire it, and does not change the limit of the
/// other schedules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missed_message_that_is_too_old_starts_no_job() {
    let scene = Scene::started(&format!(
        "agents:
  - name: helper
    runtime: command
    command: [sh, -c, cat]
    chat: {}
    schedules:
      deploys: {{type: chat, pattern: '^deploy', max_lateness: 2s, prompt: 'Run: {{{{ body }}}}'}}
",
        everyone("", "")
    ))
    .await;
    let checked = scene.run(&["config", "check"]);
    assert!(
        !checked.stdout.contains("max_lateness") && !checked.stderr.contains("max_lateness"),
        "{}",
        checked.stdout
    );
    scene.mention_on_slack("before");
    scene.wait_for_slack("before").await;
    scene.wait_until_answered();
    scene.kill_daemon();
    scene.mention_on_slack("deploy the old site");
    scene.mention_on_slack("an old question");
    let sent_at = Timestamp::now();
    wait_until("the message to be old enough", || {
        (Timestamp::now().duration_since(sent_at) > SignedDuration::from_secs(3)).then_some(())
    });
    scene.start();
    scene.connected().await;
    scene.wait_for_slack("an old question").await;
    scene.mention_on_slack("deploy the new site");
    scene.wait_for_slack("deploy the new site").await;
    scene.wait_until_answered();
    let of_deploys = |job: &&serde_json::Value| job["schedule"] == "deploys";
    let jobs = scene.jobs();
    assert_eq!(jobs.iter().filter(of_deploys).count(), 1, "{jobs:#?}");
    let why = scene.json(&["why", "helper/deploys"]);
    let reasons: Vec<&str> =
        why["firings"].as_array().unwrap().iter().filter_map(|firing| firing["why"].as_str()).collect();
    let reason = "it was received more than 2s after it was sent (`max_lateness`)";
    assert!(reasons.iter().any(|why| why.contains(reason)), "{reasons:?}");
}
