//! Sessions of conversations: one for each channel, thread and direct conversation, never shared with others.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use cowhand_testing::discord;
use cowhand_testing::slack::BOT_USER;
use serde_json::Value;

use crate::scene::{ANN, Scene};

/// Fake Claude Code. Its session is the one to resume, or a new one with the id of its job.
pub(crate) const CLAUDE: &str = r#"#!/bin/sh
session=$COWHAND_JOB_ID
while [ $# -gt 0 ]; do
    if [ "$1" = --resume ]; then session=$2; fi
    shift
done
read -r prompt
echo "{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"$session\"}"
echo "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false,\"result\":\"$COWHAND_AGENT answers\",\"session_id\":\"$session\"}"
"#;

/// Writes the fake Claude Code into a folder that the PATH of the fleet contains.
pub(crate) fn install_claude(scene: &Scene) {
    let program = scene.root.join("claude");
    fs::write(&program, CLAUDE).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Waits until the newest job is of this conversation and has ended, after `count` jobs.
pub(crate) fn nth_job(scene: &Scene, count: usize) -> Value {
    scene.wait_for(&format!("job {count}"), &["jobs", "--all"], |jobs| {
        let jobs = jobs.as_array().unwrap();
        (jobs.len() == count && jobs[0]["status"] == "completed").then(|| jobs[0].clone())
    })
}

fn session(job: &Value) -> &str {
    job["session_id"].as_str().unwrap()
}

const FLEET: &str = "
agents:
  - name: helper
    runtime: claude
    session: {policy: continue}
    default_prompt: Look around.
    chat:
      slack: {everyone: true, dm: {everyone: true}, channels: [{id: C1}, {id: C2}]}
      discord: {bot_token_env: DISCORD_TOKEN, everyone: true, guilds: [{id: 'GUILD', channels: [{id: 'CHANNEL', mode: auto}]}]}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_conversation_has_its_own_session() {
    let scene = Scene::new("").await;
    install_claude(&scene);
    scene.slack.add_channel("C2", "other");
    let fleet = FLEET.replace("GUILD", discord::GUILD_ID).replace("CHANNEL", discord::CHANNEL_ID);
    scene.write("cowhand.yaml", &format!("server: {{enabled: false}}\n{fleet}"));
    scene.start();
    scene.connected().await;
    let mention = |text: &str| format!("<@{BOT_USER}> {text}");
    let mut count = 0;
    let mut next = || {
        count += 1;
        nth_job(&scene, count)
    };
    scene.slack.say("C1", ANN, "some words before");
    let ts = scene.slack.say("C1", ANN, &mention("first"));
    let first = next();
    let prompt = |job: &Value| job["prompt"].as_str().unwrap().to_owned();
    assert!(
        prompt(&first).contains("UANN (Ann), ") && prompt(&first).contains("some words before"),
        "{first}"
    );
    scene.slack.say("C1", ANN, &mention("second"));
    let second = next();
    assert_eq!(session(&second), session(&first), "a channel continues its session");
    // The session contains the earlier messages already.
    assert!(!prompt(&second).contains("some words before"), "{second}");
    scene.slack.say_in_thread("C1", &ts, ANN, "and in the thread");
    assert_eq!(session(&next()), session(&first), "the thread below a message continues its conversation");
    let mut sessions = vec![session(&first).to_owned()];
    let mut is_new = |job: &Value, what: &str| {
        assert!(!sessions.contains(&session(job).to_owned()), "{what}: {job}");
        sessions.push(session(job).to_owned());
    };
    scene.slack.say("C2", ANN, &mention("elsewhere"));
    is_new(&next(), "another channel");
    scene.slack.say_direct(ANN, "in private");
    let direct = next();
    is_new(&direct, "a direct conversation");
    scene.discord.say(discord::CHANNEL_ID, discord::USER_ID, "on the other platform");
    is_new(&next(), "Discord");
    scene.discord.say_in_thread(discord::CHANNEL_ID, discord::USER_ID, "in a thread of Discord");
    is_new(&next(), "a thread of its own");
    // A job by hand continues the session of the agent, which belongs to no conversation.
    assert_eq!(scene.run(&["trigger", "helper", "--wait"]).code, Some(0));
    let by_hand = next();
    is_new(&by_hand, "a job by hand");
    scene.slack.say("C1", ANN, &mention("third"));
    let third = next();
    assert_eq!(session(&third), session(&first), "nothing came between");
    assert_eq!(scene.run(&["trigger", "helper", "--wait"]).code, Some(0));
    assert_eq!(session(&next()), session(&by_hand));
    scene.slack.say_direct(ANN, "in private again");
    assert_eq!(session(&next()), session(&direct));
    // After the sessions are cleared, the prompt contains the earlier messages again.
    assert_eq!(scene.run(&["clear", "helper"]).code, Some(0));
    scene.slack.say("C1", ANN, &mention("fourth"));
    let fourth = next();
    is_new(&fourth, "a cleared session");
    assert!(prompt(&fourth).contains("third"), "{fourth}");
    // A reset counts for its conversation only.
    scene.slack.say("C1", ANN, &mention("!reset"));
    scene.slack.say("C1", ANN, &mention("fifth"));
    let fifth = next();
    is_new(&fifth, "after the reset");
    assert!(prompt(&fifth).contains("fourth"), "{fifth}");
    scene.slack.say("C1", ANN, &mention("sixth"));
    assert_eq!(session(&next()), session(&fifth));
}
