//! Which agent and which schedule a message reaches: agents that share a channel, threads, and schedules of type
//! `chat`.

use cowhand_testing::discord;
use cowhand_testing::slack::BOT_USER;
use serde_json::Value;

use crate::scene::{ANN, SLACK_CHANNEL, Scene, everyone};

fn fleet() -> String {
    format!(
        "  - name: alpha
    runtime: command
    command: [sh, -c, 'echo alpha says; cat']
    chat: {chat}
    schedules:
      deploys: {{type: chat, platform: slack, channels: [{SLACK_CHANNEL}], patterns: ['^deploy'], prompt: 'Deploy: {{{{ body }}}}'}}
      releases: {{type: chat, platform: discord, channel: '{channel}', pattern: '^release', prompt: 'Release: {{{{ body }}}}'}}
  - name: beta
    runtime: command
    command: [sh, -c, 'echo beta says; cat']
    chat: {chat}
    schedules:
      after: {{type: dispatch_result, schedule: alpha/deploys, status: completed, prompt: 'After {{{{ upstream.job_id }}}}.'}}
      started: {{type: agent_lifecycle, agent: alpha, event: session_start, prompt: It began.}}
",
        chat = everyone("", ""),
        channel = discord::CHANNEL_ID,
    )
}

/// Returns agent, schedule and trigger type of the jobs, the oldest first.
fn facts(jobs: &[Value]) -> Vec<[&str; 3]> {
    let fact = |job| ["agent", "schedule", "trigger_type"].map(|key| text_of(job, key));
    jobs.iter().map(fact).collect()
}

fn text_of<'a>(job: &'a Value, key: &str) -> &'a str {
    job[key].as_str().unwrap_or_default()
}

async fn said(scene: &Scene, thread: &str, text: &str) {
    let ts = thread.to_owned();
    scene
        .slack
        .wait_for_post(SLACK_CHANNEL, |post| {
            post["thread_ts"] == *ts && post["text"].as_str().is_some_and(|found| found.contains(text))
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_reaches_its_agent_and_its_schedule() {
    let scene = Scene::new("").await;
    scene.slack.add_user("UBOB", "Bob");
    scene.write("cowhand.yaml", &format!("server: {{enabled: false}}\nagents:\n{}", fleet()));
    scene.start();
    scene.connected().await;
    let mention = |text: &str| format!("<@{BOT_USER}> {text}");
    let first = scene.slack.say(SLACK_CHANNEL, ANN, &mention("hello"));
    said(&scene, &first, "alpha says").await;
    let second = scene.slack.say(SLACK_CHANNEL, ANN, &mention("beta: hello"));
    said(&scene, &second, "beta says").await;
    // In a thread that an agent has answered, the same agent answers without a mention.
    scene.slack.say_in_thread(SLACK_CHANNEL, &second, "UBOB", "and to me");
    said(&scene, &second, "and to me").await;
    // The agent does not answer in threads of other people.
    let other = scene.slack.say(SLACK_CHANNEL, ANN, "lunch?");
    scene.slack.say_in_thread(SLACK_CHANNEL, &other, "UBOB", "yes, lunch");
    let deploy = scene.slack.say(SLACK_CHANNEL, ANN, &mention("deploy the site"));
    said(&scene, &deploy, "Deploy:").await;
    let text = format!("<@{}> release it", discord::BOT_ID);
    scene.discord.say(discord::CHANNEL_ID, discord::USER_ID, &text);
    scene.discord.wait_for_answers(discord::CHANNEL_ID, 1).await;
    let jobs = scene.wait_for("the jobs that follow", &["jobs", "--all"], |jobs| {
        let jobs = jobs.as_array().unwrap();
        let of = |schedule: &str| jobs.iter().filter(|job| job["schedule"] == schedule).count();
        (of("after") == 1 && of("started") == 3).then(|| jobs.iter().rev().cloned().collect::<Vec<_>>())
    });
    let from_chat: Vec<Value> = jobs.iter().filter(|job| job["message"].is_object()).cloned().collect();
    assert_eq!(
        facts(&from_chat),
        [
            ["alpha", "chat", "slack"],
            ["beta", "chat", "slack"],
            ["beta", "chat", "slack"],
            ["alpha", "deploys", "slack"],
            ["alpha", "releases", "discord"],
        ]
    );
    let other = jobs.iter().filter(|job| job["message"].is_null());
    assert!(other.clone().all(|job| job["trigger_type"] == "schedule" && job["chat"].is_null()), "{jobs:#?}");
    let after = jobs.iter().find(|job| job["schedule"] == "after").unwrap();
    let deployed = from_chat[3]["id"].as_str().unwrap();
    assert!(after["prompt"].as_str().unwrap().contains(deployed), "{after}");
    let texts = scene.slack.posted_texts(SLACK_CHANNEL);
    assert!(!texts.iter().any(|text| text.contains("lunch")), "{texts:?}");
}
