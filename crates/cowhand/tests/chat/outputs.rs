//! The keys of `output`, and `log_level`: each changes what is posted. Every agent prints the same output, and answers in
//! a channel of its own.

use std::collections::BTreeMap;

use cowhand_testing::discord;
use cowhand_testing::slack::BOT_USER;
use serde_json::Value;

use crate::scene::{ANN, Scene};

/// Agents, each with its keys.
const AGENTS: [(&str, &str); 12] = [
    ("defaults", ""),
    ("no-tools", "output: {tool_results: false}"),
    ("short-tools", "output: {tool_result_max_length: 5}"),
    ("no-status", "output: {system_status: false}"),
    ("no-errors", "output: {errors: false}"),
    ("summary", "output: {result_summary: true}"),
    ("eyes", "output: {acknowledge_emoji: eyes}"),
    ("no-emoji", "output: {acknowledge_emoji: ''}"),
    ("all-messages", "output: {assistant_messages: all}"),
    ("no-progress", "output: {progress_indicator: false}"),
    ("minimal", "log_level: minimal"),
    ("verbose", "log_level: verbose"),
];

/// Prints the output of an agent with tools: before the file `go` exists, and after that.
const PROGRAM: &str = r#"#!/bin/sh
cat > /dev/null
cat <<'END'
{"type":"system","subtype":"compact_boundary","content":"The conversation was compacted."}
{"type":"system","subtype":"task_notification","content":"a step of the program"}
{"type":"assistant","content":"I will look at the files."}
{"type":"tool_use","tool_name":"Bash","tool_use_id":"t1","input":{"command":"ls -la"}}
{"type":"tool_result","tool_use_id":"t1","result":"short result","success":true}
{"type":"error","message":"a problem that the agent reports"}
END
while ! [ -e go ]; do sleep 0.05; done
cat <<'END'
{"type":"assistant","content":"The answer is 42."}
{"type":"result","is_error":false,"result":"The answer is 42.","num_turns":3,"total_cost_usd":0.02,"modelUsage":{"m":{"inputTokens":2100,"outputTokens":90}}}
END
"#;

/// Returns the config. `channels` are the channels of the agents on Discord.
fn fleet(channels: &[String]) -> String {
    let agent = |name: &str, chat: &str| {
        format!(
            "  - {{name: {name}, instances: {{max_concurrent: 2}}, runtime: command, command: [./agent.sh], chat: {{{chat}}}}}\n"
        )
    };
    let on_discord = |channel: &str, keys: &str| {
        format!(
            "discord: {{bot_token_env: DISCORD_TOKEN, everyone: true, guilds: [{{id: '{}', channels: [{{id: '{channel}', mode: auto}}]}}], {keys}}}",
            discord::GUILD_ID
        )
    };
    let agents = AGENTS.iter().zip(channels).enumerate().map(|(number, ((name, keys), channel))| {
        let on_slack = format!("slack: {{everyone: true, channels: [{{id: COUT{number}}}], {keys}}}");
        agent(name, &format!("{on_slack}, {}", on_discord(channel, keys)))
    });
    let silent = agent("silent", &on_discord(discord::CHANNEL_ID, "output: {typing_indicator: false}"));
    format!("server: {{enabled: false}}\nagents:\n{}{silent}", agents.collect::<String>())
}

/// Describes everything that the bot has posted in a channel of Discord.
fn posted_on_discord(scene: &Scene, channel: &str) -> String {
    let messages = scene.discord.messages(channel).into_iter();
    let of_bot = messages.filter(|message| message.author == discord::BOT_ID);
    let lines = of_bot.map(|message| {
        let files = if message.files.is_empty() {
            String::new()
        } else {
            format!("\n[files: {}]", message.files.len())
        };
        format!("> {}{files}", message.content.replace('\n', "\n  "))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Describes everything that the bot has posted in a channel of Slack.
fn posted(scene: &Scene, channel: &str) -> String {
    let messages: Vec<Value> = scene.slack.messages(channel);
    let mut lines = Vec::new();
    for message in messages.iter().filter(|message| message["user"] == BOT_USER) {
        let text = message["text"].as_str().unwrap_or_default();
        let files = message["files"].as_array().into_iter().flatten();
        let files: Vec<&str> = files.filter_map(|file| file["name"].as_str()).collect();
        let files = if files.is_empty() { String::new() } else { format!("\n[files: {}]", files.len()) };
        lines.push(format!("> {}{files}", text.replace('\n', "\n  ")));
    }
    lines.join("\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_key_of_output_changes_what_is_posted() {
    let scene = Scene::new("").await;
    let channels = AGENTS.map(|(name, _)| scene.discord.add_channel(discord::GUILD_ID, name));
    scene.write_program("agent.sh", PROGRAM);
    scene.write("cowhand.yaml", &fleet(&channels));
    for number in 0..AGENTS.len() {
        scene.slack.add_channel(&format!("COUT{number}"), &format!("out-{number}"));
    }
    scene.start();
    scene.connected().await;
    let mut asked = BTreeMap::new();
    for (number, (name, _)) in AGENTS.iter().enumerate() {
        let channel = format!("COUT{number}");
        let ts = scene.slack.say(&channel, ANN, &format!("<@{BOT_USER}> go on"));
        asked.insert(*name, (channel, ts));
    }
    let silent = discord::CHANNEL_ID;
    let asked_on_discord: Vec<String> =
        channels.iter().map(|channel| scene.discord.say(channel, discord::USER_ID, "go on")).collect();
    scene.discord.say(silent, discord::USER_ID, "go on");
    // While the agents work, the message is acknowledged, and all but one show their progress.
    for (name, (channel, ts)) in &asked {
        let expected: &[&str] = match *name {
            "eyes" => &["eyes"],
            "no-emoji" => &[],
            _ => &["hourglass_flowing_sand"],
        };
        if *name != "no-progress" {
            let working = |post: &Value| {
                let is_progress = post["text"].as_str().is_some_and(|text| text.contains("Working"));
                is_progress && post["thread_ts"] == **ts
            };
            scene.slack.wait_for_post(channel, working).await;
        }
        assert_eq!(scene.slack.reactions(channel, ts), expected, "{name}");
    }
    for ((name, _), channel) in AGENTS.iter().zip(&channels) {
        let works = |discord: &discord::FakeDiscord| {
            let is_progress = |post: &discord::FakeDiscordMessage| post.content.contains("Working");
            let has_progress = *name == "no-progress" || discord.messages(channel).iter().any(is_progress);
            (discord.typing_count(channel) > 0 && has_progress).then_some(())
        };
        scene.discord.wait_for("the typing indicator and the progress", works).await;
    }
    for ((name, _), message) in AGENTS.iter().zip(&asked_on_discord) {
        let shown: Vec<String> =
            scene.discord.reactions(message).into_iter().map(|(emoji, _)| emoji).collect();
        let expected: &[&str] = if *name == "no-emoji" { &[] } else { &["👀"] };
        assert_eq!(shown, expected, "{name}");
    }
    scene.write("go", "");
    scene.wait_for("the end of all answers", &["status"], |status| {
        let bots = status["chat_bots"].as_array().unwrap();
        (bots.len() == 2 && bots.iter().all(|bot| bot["open_answers"] == 0)).then_some(())
    });
    assert_eq!(scene.jobs().iter().filter(|job| job["status"] == "completed").count(), 2 * AGENTS.len() + 1);
    assert_eq!(scene.discord.typing_count(silent), 0, "typing_indicator: false");
    let of_agent = |(name, keys): (&str, &str)| {
        let (channel, ts) = &asked[name];
        assert!(scene.slack.reactions(channel, ts).is_empty(), "{name}: the reaction is removed at the end");
        format!("== {name}: {keys}\n{}", posted(&scene, channel))
    };
    let all = AGENTS.map(of_agent).join("\n");
    insta::assert_snapshot!("what_is_posted_by_each_key", without_times(&all));
    let on_discord = |((name, keys), channel): (&(&str, &str), &String)| {
        format!("== {name}: {keys}\n{}", posted_on_discord(&scene, channel))
    };
    let all = AGENTS.iter().zip(&channels).map(on_discord).collect::<Vec<_>>().join("\n");
    assert!(asked_on_discord.iter().all(|message| scene.discord.reactions(message).is_empty()));
    insta::assert_snapshot!("what_is_posted_by_each_key_on_discord", without_times(&all));
}

/// Replaces durations such as `4s` or `120ms`.
fn without_times(text: &str) -> String {
    let is_time = |word: &str| {
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
        unit.len() < word.len() && ["ms", "s", "m"].contains(&unit)
    };
    let word = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        if is_time(bare) { word.replace(bare, "TIME") } else { word.to_owned() }
    };
    text.split('\n')
        .map(|line| line.split(' ').map(word).collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join("\n")
}
