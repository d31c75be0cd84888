//! A herdctl fleet that has run before: the sessions that herdctl left continue, and an agent without a token is skipped.

use std::fs;

use cowhand_testing::discord;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::scene::{ANN, SLACK_CHANNEL, Scene};
use crate::sessions::install_claude;

fn write_fleet(scene: &Scene) {
    fs::remove_file(scene.root.join("cowhand.yaml")).unwrap();
    let on_slack = format!("slack: {{channels: [{{id: {SLACK_CHANNEL}}}]}}");
    let on_discord = |token: &str| {
        let (guild, channel) = (discord::GUILD_ID, discord::CHANNEL_ID);
        format!(
            "discord: {{bot_token_env: {token}, guilds: [{{id: '{guild}', channels: [{{id: '{channel}'}}]}}]}}"
        )
    };
    let agents = [
        ("left", on_slack),
        ("bot", on_discord("DISCORD_TOKEN")),
        // The variable of its token is not set.
        ("skipped", on_discord("NOT_SET")),
    ];
    let agents = agents.map(|(name, chat)| format!("  - {{name: {name}, chat: {{{chat}}}}}\n")).concat();
    scene.write("herdctl.yaml", &format!("version: 1\nagents:\n{agents}"));
}

/// Writes the sessions of herdctl: one that continues, one that has expired, and a file that cannot be read.
fn write_sessions(scene: &Scene) -> Vec<(&'static str, String)> {
    let ago = |hours: i64| (Timestamp::now() - SignedDuration::from_hours(hours)).to_string();
    let file = |agent: &str, channel: &str, at: String| {
        let channels = json!({channel: {"sessionId": format!("herdctl-{agent}"), "lastMessageAt": at}});
        json!({"version": 3, "agentName": agent, "channels": channels}).to_string()
    };
    let files = vec![
        (".herdctl/slack-sessions/left.yaml", file("left", SLACK_CHANNEL, ago(2))),
        (".herdctl/discord-sessions/bot.yaml", file("bot", discord::CHANNEL_ID, ago(30))),
        (".herdctl/discord-sessions/skipped.yaml", "version: 3\nchannels: [\n".to_owned()),
    ];
    for (name, text) in &files {
        fs::create_dir_all(scene.root.join(name).parent().unwrap()).unwrap();
        scene.write(name, text);
    }
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sessions_of_herdctl_continue() {
    let scene = Scene::new("").await;
    install_claude(&scene);
    write_fleet(&scene);
    let sessions = write_sessions(&scene);
    scene.start();
    scene.connected().await;
    // The agent without a token is skipped, and the others run.
    let skipped = scene.json(&["status"])["chat_bots"].clone();
    let skipped = skipped.as_array().unwrap().iter().find(|bot| bot["bot"] == "discord:NOT_SET").unwrap();
    assert_eq!(skipped["status"], "refused");
    assert_eq!(skipped["problem"], "the environment variable NOT_SET is not set");
    scene.mention_on_slack("hello");
    scene.mention_on_discord("hello");
    scene.wait_for_slack("left answers").await;
    scene.wait_for_discord("bot answers").await;
    // herdctl answers each message in a thread, also without a mention.
    let other = scene.slack.say(SLACK_CHANNEL, ANN, "not for the bot");
    scene.slack.say_in_thread(SLACK_CHANNEL, &other, ANN, "in the thread of people");
    let in_thread = |post: &Value| post["text"] == "left answers" && post["thread_ts"] == *other;
    scene.slack.wait_for_post(SLACK_CHANNEL, in_thread).await;
    let jobs = scene.jobs();
    let session = |chat: &str| {
        let job = jobs.iter().rfind(|job| job["chat"] == chat).unwrap();
        job["session_id"].as_str().unwrap().to_owned()
    };
    assert_eq!(session(&format!("slack {SLACK_CHANNEL}")), "herdctl-left");
    let expired = session(&format!("discord {}", discord::CHANNEL_ID));
    assert!(expired.starts_with("job-"), "a session that has expired is not continued: {expired}");
    for (name, text) in sessions {
        assert_eq!(fs::read_to_string(scene.root.join(name)).unwrap(), text, "{name} is only read");
    }
    assert!(scene.log().contains("discord-sessions/skipped.yaml is not imported"), "{}", scene.log());
}
