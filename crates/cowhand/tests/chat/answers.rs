//! A message becomes a job, and the output of the job is posted as its answer.

use cowhand_testing::discord;
use cowhand_testing::slack::BOT_USER;

use crate::scene::{ANN, SLACK_CHANNEL, Scene, everyone};

/// `helper` repeats its prompt.
fn fleet() -> String {
    format!(
        "agents:\n  - {{name: helper, runtime: command, command: [sh, -c, cat], chat: {}}}\n",
        everyone("", "")
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mention_is_answered_on_both_platforms() {
    let scene = Scene::started(&fleet()).await;
    let ts = scene.slack.say(SLACK_CHANNEL, ANN, &format!("<@{BOT_USER}> count the sheep"));
    let answer = scene
        .slack
        .wait_for_post(SLACK_CHANNEL, |post| {
            post["text"].as_str().is_some_and(|text| text.contains("count the sheep"))
        })
        .await;
    assert_eq!(answer["thread_ts"], ts, "Slack answers in a thread");
    let text = format!("<@{}> count the geese", discord::BOT_ID);
    scene.discord.say(discord::CHANNEL_ID, discord::USER_ID, &text);
    let answers = scene.discord.wait_for_answers(discord::CHANNEL_ID, 1).await;
    assert!(answers[0].content.contains("count the geese"), "{answers:?}");
    let jobs = scene.jobs();
    let facts: Vec<_> = jobs.iter().map(|job| (&job["schedule"], &job["trigger_type"])).collect();
    let (chat, platforms) = ("chat".into(), ["slack".into(), "discord".into()]);
    assert_eq!(facts, [(&chat, &platforms[0]), (&chat, &platforms[1])]);
}
