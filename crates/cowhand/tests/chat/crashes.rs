//! `kill -9` of the daemon at every point of the path from a message to its answer.

use std::time::Duration;

use crate::reliable::{PRINT_TEXT, helper, to_slack_bot};
use crate::scene::{ANN, SLACK_CHANNEL, Scene, wait_for_end};

/// Points at which the daemon is killed, in the order of the path.
const POINTS: [&str; 8] = [
    "chat_received",
    "chat_answer_opened",
    "chat_delivered",
    "chat_handled",
    "chat_post_tried",
    "chat_posted",
    "chat_post_counted",
    "chat_answer_ends",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_point_gives_one_job_and_one_answer() {
    // A message that was accepted does not count again if it is handled again.
    let scene = Scene::new(&helper(PRINT_TEXT, 1, ", rate: {messages: 8, per: 1h}")).await;
    scene.slack.state().acknowledge_within = Duration::from_millis(500);
    for point in POINTS {
        let daemon = scene.start_doomed(point).await;
        scene.mention_on_slack(&format!("{point} here"));
        scene.mention_on_discord(&format!("{point} there"));
        wait_for_end(daemon);
        scene.start();
        scene.wait_for_slack(&format!("{point} here")).await;
        scene.wait_for_discord(&format!("{point} there")).await;
        scene.wait_until_answered();
        scene.stop_daemon();
    }
    for point in POINTS {
        scene.assert_posted_once(&format!("{point} here"));
        scene.assert_posted_once(&format!("{point} there"));
    }
    assert_eq!((scene.jobs().len(), scene.posted_texts().len()), (16, 16), "{:#?}", scene.posted_texts());
}

/// The agent says something, and waits for a file before it says the rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_goes_on_in_the_same_messages_after_a_kill() {
    let program = "echo '{\"type\":\"assistant\",\"content\":\"begun\"}'\n\
                   while [ ! -e go ]; do sleep 0.05; done\n\
                   echo '{\"type\":\"assistant\",\"content\":\"finished\"}'\n";
    let scene = Scene::started(&helper(program, 2, ", output: {assistant_messages: all}")).await;
    scene.mention_on_slack("speak");
    scene.mention_on_discord("speak");
    scene.wait_for_slack("begun").await;
    scene.wait_for_discord("begun").await;
    // After some seconds, a message with a button shows the progress.
    let has_button = |post: &serde_json::Value| post["blocks"].to_string().contains("stop:");
    scene.slack.wait_for_post(SLACK_CHANNEL, has_button).await;
    let is_progress =
        |post: &cowhand_testing::discord::FakeDiscordMessage| post.components.to_string().contains("stop:");
    scene
        .discord
        .wait_for("a progress message", |_| scene.discord_posts().iter().any(is_progress).then_some(()))
        .await;
    scene.kill_daemon();
    scene.start();
    scene.write("go", "");
    scene.wait_for_slack("finished").await;
    scene.wait_for_discord("finished").await;
    scene.wait_until_answered();
    let (slack, discord) = (scene.slack_posts(), scene.discord_posts());
    assert_eq!((slack.len(), discord.len()), (3, 3), "{slack:#?} {discord:#?}");
    assert!(!slack.iter().any(has_button), "{slack:#?}");
    assert!(!discord.iter().any(is_progress), "{discord:#?}");
    // The thread of an answer and a direct conversation go on, too.
    let thread = slack[0]["thread_ts"].as_str().unwrap();
    scene.slack.say_in_thread(SLACK_CHANNEL, thread, ANN, "and again");
    let direct = scene.slack.direct_channel(ANN);
    scene.slack.say_direct(ANN, "directly");
    let finished = |post: &serde_json::Value| post["text"] == "finished";
    scene.slack.wait_for_post(&direct, finished).await;
    wait_for_count(&scene, thread, 2);
    scene.slack.say_in_thread(SLACK_CHANNEL, thread, ANN, &to_slack_bot("once more"));
    wait_for_count(&scene, thread, 3);
}

/// Waits for this number of answers in a thread.
fn wait_for_count(scene: &Scene, thread: &str, count: usize) {
    let posts = |scene: &Scene| {
        let thread = scene.slack.thread(SLACK_CHANNEL, thread);
        thread.iter().filter(|post| post["text"] == "finished").count()
    };
    cowhand_testing::wait_until("the answers in the thread", || (posts(scene) >= count).then_some(()));
    assert_eq!(posts(scene), count);
}
