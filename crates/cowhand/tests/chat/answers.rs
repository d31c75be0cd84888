//! A message becomes a job, and the output of the job is posted as its answer.

use cowhand_testing::discord;
use cowhand_testing::slack::BOT_USER;

use crate::reliable::helper;
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

/// The answer has 10,000 characters, most of them in two blocks of code.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_answer_with_code_is_split_without_broken_blocks() {
    let line = |number: usize| format!("    let value_{number:03} = compute(number, {number});");
    let code = |range: std::ops::Range<usize>| range.map(line).collect::<Vec<_>>().join("\n");
    let (first, second) = (code(0..120), code(120..240));
    let text = format!(
        "The first part:\n\n```rust\n{first}\n```\n\nThe second:\n\n```rust\n{second}\n```\n\nThe end."
    );
    assert!(text.len() > 9_500, "{}", text.len());
    let scene = Scene::new(&helper("cat answer.jsonl", 2, "")).await;
    let message = serde_json::json!({ "type": "assistant", "content": text });
    scene.write("answer.jsonl", &format!("{message}\n"));
    scene.start();
    scene.connected().await;
    scene.mention_on_slack("write");
    scene.mention_on_discord("write");
    scene.wait_for_slack("The end.").await;
    scene.wait_for_discord("The end.").await;
    scene.wait_until_answered();
    let slack: Vec<String> =
        scene.slack_posts().iter().map(|post| post["text"].as_str().unwrap().to_owned()).collect();
    let discord: Vec<String> = scene.discord_posts().into_iter().map(|post| post.content).collect();
    for (posts, limit) in [(slack, 3_000), (discord, 2_000)] {
        assert!(posts.len() > 3, "{posts:#?}");
        for post in &posts {
            assert!(post.chars().count() <= limit, "{}: {post}", post.chars().count());
            assert_eq!(post.matches("```").count() % 2, 0, "{post}");
        }
        let all = posts.join("\n");
        let lines: Vec<&str> = all.lines().filter(|line| line.contains("let value_")).collect();
        assert_eq!(lines, (0..240).map(line).collect::<Vec<_>>());
    }
}
