//! The daemon is killed while an ask is posted or answered.

use super::*;

/// Points at which the daemon is killed while it posts an ask.
const WHILE_POSTING: [&str; 2] = ["chat_ask_tried", "chat_ask_posted"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_ask_is_posted_once() {
    let scene = prepared().await;
    for fault in WHILE_POSTING {
        let daemon = scene.start_with_fault(fault);
        scene.connected().await;
        let ts = scene.say("call-push");
        wait_for_end(daemon);
        scene.start();
        scene.connected().await;
        let ask = scene.ask_post(&ts).await;
        scene.press(OLGA, id_of(&ask), &buttons(&ask)[0]).await;
        scene.closed(&ask, "was allowed by Olga").await;
        scene.post(&ts, "It was allowed.").await;
        let thread = scene.slack.thread(SLACK_CHANNEL, &ts);
        let count = thread.iter().filter(|post| text(post).contains("Agent coder asks")).count();
        assert_eq!(count, 1, "{fault}: {thread:#?}");
        scene.stop();
    }
    for fault in WHILE_POSTING {
        let daemon = scene.start_with_fault(fault);
        scene.connected().await;
        let before = scene.discord_asks();
        scene.say_on_discord(ALICE, "call-push");
        wait_for_end(daemon);
        scene.start();
        scene.connected().await;
        let ask = scene.discord_ask().await;
        scene.json(&["deny", &scene.open_ask()]);
        scene.discord_closed(&ask, "was denied by").await;
        assert_eq!(scene.discord_asks(), before + 1, "{fault}");
        scene.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_survives_a_crash() {
    let scene = prepared().await;
    for (fault, reply) in [
        ("chat_ask_edited", None),
        ("chat_ask_answered", None),
        ("chat_ask_answered", Some("allow")),
        ("chat_ask_reply_recorded", Some("allow")),
    ] {
        let before = scene.jobs().len();
        let daemon = scene.start_with_fault(fault);
        scene.connected().await;
        let ts = scene.say("call-push");
        let ask = scene.ask_post(&ts).await;
        match reply {
            Some(reply) => drop(scene.slack.say_in_thread(SLACK_CHANNEL, &ts, OLGA, reply)),
            None => drop(scene.slack.press(OLGA, SLACK_CHANNEL, id_of(&ask), &buttons(&ask)[0])),
        }
        wait_for_end(daemon);
        scene.start();
        scene.connected().await;
        scene.closed(&ask, "was allowed by Olga (UOLGA) on slack").await;
        scene.post(&ts, "It was allowed.").await;
        assert_eq!(scene.jobs().len(), before + 1, "{fault}: the reply becomes no job");
        scene.stop();
    }
}

/// The ask is recorded before its first post. A message that was written before the post cannot mean it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ask_that_was_not_posted_yet_is_not_answered_by_a_reply() {
    let scene = prepared().await;
    let daemon = scene.start_with_fault("chat_ask_tried");
    scene.connected().await;
    let ts = scene.say("call-push");
    wait_for_end(daemon);
    scene.slack.say_in_thread(SLACK_CHANNEL, &ts, OLGA, "yes");
    scene.start();
    scene.connected().await;
    let ask = scene.ask_post(&ts).await;
    scene.post(&ts, "and it starts no job: it was written before the whole of").await;
    let id = scene.open_ask();
    // The same word answers the ask once it can be read.
    scene.slack.say_in_thread(SLACK_CHANNEL, &ts, OLGA, "no");
    scene.closed(&ask, &format!("{id} was denied by Olga")).await;
    scene.post(&ts, "It was denied.").await;
    assert_eq!(scene.jobs().len(), 1, "the words become no jobs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ask_is_closed_after_a_downtime() {
    let scene = asking().await;
    scene.say_on_discord(ALICE, "call-push");
    let (hasty_ts, asker_ts) = (scene.say("hasty: call-push"), scene.say("asker: call-which"));
    let (ask, hasty) = (scene.discord_ask().await, scene.ask_post(&hasty_ts).await);
    let question = scene.ask_post(&asker_ts).await;
    scene.kill_daemon();
    scene.discord.reply_to(&ask.id, ALICE, "allow", true);
    scene.slack.say_in_thread(SLACK_CHANNEL, &asker_ts, OLGA, "main");
    scene.wait_for("the ask to expire", &["asks", "--all"], |asks| {
        let mut asks = asks.as_array().unwrap().iter();
        asks.any(|ask| ask["agent"] == "hasty" && ask["status"] == "expired").then_some(())
    });
    scene.start();
    scene.closed(&hasty, "expired without an answer").await;
    scene.closed(&question, "was answered by Olga").await;
    scene.discord_closed(&ask, "was allowed by alice").await;
    scene.discord_post(|message| message.content.contains("It was allowed.")).await;
    assert_eq!(scene.jobs().len(), 3, "the replies become no jobs");
}
