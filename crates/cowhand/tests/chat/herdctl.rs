//! Configs of herdctl with a chat run unchanged, and the sessions that herdctl left continue.

use std::fs;

use cowhand_testing::discord::{self, FakeDiscord};
use cowhand_testing::slack::BOT_USER;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use crate::scene::{ANN, SLACK_CHANNEL, Scene};
use crate::sessions::install_claude;

/// Bots of the example with one channel for several bots, each with its own application.
const CAPTAINS: [&str; 6] = ["kirk", "picard", "sisko", "janeway", "archer", "burnham"];
/// Ids of the accounts of their bots.
const CAPTAIN_IDS: [&str; 6] = ["701", "702", "703", "704", "705", "706"];
/// Another channel on Slack, in which the second agent of the shared app answers.
const SECOND_CHANNEL: &str = "C2";

/// Writes the file of an agent into a folder of its own.
fn write_agent(scene: &Scene, name: &str, text: &str) {
    fs::create_dir_all(scene.root.join("agents").join(name)).unwrap();
    let text = text.replace("GUILD", discord::GUILD_ID).replace("CHANNEL", discord::CHANNEL_ID);
    scene.write(&format!("agents/{name}/agent.yaml"), &format!("name: {name}\n{text}"));
}

/// Writes the agents that share the scene's platforms.
fn write_examples(scene: &Scene, second_channel: &str) {
    // A channel with the mode `mention`, direct messages of everybody, a schedule, and a hook that posts only if the
    // metadata of the job request it.
    write_agent(
        scene,
        "bot",
        "
system_prompt: You help on Discord.
permission_mode: bypassPermissions
metadata_file: metadata.json
schedules: {report: {type: interval, interval: 4h, enabled: false, prompt: Write the report.}}
hooks: {after_run: [{type: discord, channel_id: 'CHANNEL', bot_token_env: DISCORD_TOKEN, when: metadata.shouldNotify}]}
chat:
  discord:
    bot_token_env: DISCORD_TOKEN
    session_expiry_hours: 24
    log_level: standard
    output: {tool_results: true, tool_result_max_length: 500, system_status: true, errors: true}
    presence: {activity_type: watching, activity_message: for support requests}
    command_registration: {scope: guild, guild_id: 'GUILD'}
    skills: []
    guilds:
      - id: 'GUILD'
        channels: [{id: 'CHANNEL', name: '#general', mode: mention, context_messages: 10}]
    dm: {enabled: true, mode: auto}
",
    );
    // Two agents with one Slack app, each in its own channel, in the default mode.
    let notice = "hooks: {after_run: [{type: slack, channel_id: C1, bot_token_env: SLACK_BOT_TOKEN}]}";
    for (name, channel, hooks) in [("left", SLACK_CHANNEL, notice), ("right", SECOND_CHANNEL, "")] {
        let chat = format!("chat: {{slack: {{channels: [{{id: {channel}, name: '#agents'}}]}}}}");
        write_agent(scene, name, &format!("default_prompt: Help the person.\n{hooks}\n{chat}\n"));
    }
    // The variable of its token is not set.
    let chat =
        "chat: {discord: {bot_token_env: NOT_SET, guilds: [{id: 'GUILD', channels: [{id: 'CHANNEL'}]}]}}\n";
    write_agent(scene, "skipped", chat);
    // The fleet file adds its chat, and removes its hooks.
    write_agent(scene, "plain", "hooks: {after_run: [{type: shell, command: 'touch hook-ran'}]}\n");
    fs::remove_file(scene.root.join("cowhand.yaml")).unwrap();
    let captains: Vec<String> =
        CAPTAINS.iter().map(|name| format!("  - path: agents/{name}/agent.yaml\n")).collect();
    let fleet = format!(
        "version: 1
fleet: {{name: examples}}
agents:
  - path: agents/bot/agent.yaml
  - path: agents/left/agent.yaml
  - path: agents/right/agent.yaml
  - path: agents/skipped/agent.yaml
  - path: agents/plain/agent.yaml
    overrides:
      hooks: {{after_run: []}}
      chat: {{discord: {{bot_token_env: DISCORD_TOKEN, guilds: [{{id: '{}', channels: [{{id: '{second_channel}', mode: auto}}]}}]}}}}
{}",
        discord::GUILD_ID,
        captains.concat()
    );
    scene.write("herdctl.yaml", &fleet);
}

/// Starts a platform for each captain. The first two take direct messages, of everybody and of one person.
async fn write_captains(scene: &Scene) -> Vec<FakeDiscord> {
    let mut platforms = Vec::new();
    for (name, id) in CAPTAINS.into_iter().zip(CAPTAIN_IDS) {
        let platform = FakeDiscord::start_with_bot(id).await;
        let direct = match name {
            "kirk" => "{enabled: true}".to_owned(),
            "picard" => format!("{{enabled: true, allowlist: ['{}']}}", discord::USER_ID),
            _ => "{enabled: false}".to_owned(),
        };
        let text = format!(
            "
chat:
  discord:
    bot_token_env: {}_TOKEN
    api_url: {}
    session_expiry_hours: 48
    log_level: verbose
    guilds: [{{id: 'GUILD', channels: [{{id: 'CHANNEL', mode: mention, context_messages: 20}}]}}]
    dm: {direct}
",
            name.to_uppercase(),
            platform.url()
        );
        write_agent(scene, name, &text);
        platforms.push(platform);
    }
    platforms
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
        (".herdctl/discord-sessions/plain.yaml", "version: 3\nchannels: [\n".to_owned()),
    ];
    for (name, text) in &files {
        fs::create_dir_all(scene.root.join(name).parent().unwrap()).unwrap();
        scene.write(name, text);
    }
    files
}

async fn answered(platform: &FakeDiscord, channel: &str, text: &str) {
    let found = |platform: &FakeDiscord| {
        let mut posts = platform.messages(channel).into_iter();
        posts.find(|post| post.author != discord::USER_ID && post.content.contains(text))
    };
    platform.wait_for(text, found).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_examples_of_herdctl_run_unchanged() {
    let scene = Scene::new("").await;
    install_claude(&scene);
    scene.slack.add_channel(SECOND_CHANNEL, "second");
    let second = scene.discord.add_channel(discord::GUILD_ID, "second");
    let platforms = write_captains(&scene).await;
    write_examples(&scene, &second);
    let sessions = write_sessions(&scene);
    scene.write(
        ".env",
        &CAPTAINS.map(|name| format!("{}_TOKEN={}\n", name.to_uppercase(), discord::BOT_TOKEN)).concat(),
    );
    let checked = scene.run(&["config", "check"]);
    let warning = "everybody who can write in its channels or send it direct messages on discord may talk to this agent";
    assert_eq!(checked.code, Some(0), "{}{}", checked.stdout, checked.stderr);
    let said = format!("{}{}", checked.stdout, checked.stderr);
    assert!(said.contains(warning), "{said}");
    let started = scene.run(&["start", "-d", "--no-server"]);
    assert_eq!((started.code, started.stdout.as_str()), (Some(0), "ready\n"), "{}", started.stderr);
    assert!(started.stderr.contains("warning"), "{}", started.stderr);
    scene.connected().await;
    for platform in &platforms {
        platform.wait_for_connection().await;
    }
    // The agent without a token is skipped, and everything else runs.
    let skipped = scene.json(&["status"])["chat_bots"].clone();
    let skipped = skipped.as_array().unwrap().iter().find(|bot| bot["bot"] == "discord:NOT_SET").unwrap();
    assert_eq!(skipped["status"], "refused");
    assert_eq!(skipped["problem"], "the environment variable NOT_SET is not set");
    let presence = scene.discord.presence().unwrap();
    assert_eq!(presence["name"], "for support requests", "{presence}");
    channels_reach_their_agents(&scene, &second).await;
    captains_answer_by_mention(&scene, &platforms).await;
    sessions_of_herdctl_continue(&scene);
    for (name, text) in sessions {
        assert_eq!(fs::read_to_string(scene.root.join(name)).unwrap(), text, "{name} is only read");
    }
    assert!(scene.log().contains("discord-sessions/plain.yaml is not imported"), "{}", scene.log());
}

async fn channels_reach_their_agents(scene: &Scene, second: &str) {
    let mention = format!("<@{}> hello", discord::BOT_ID);
    scene.write("agents/bot/metadata.json", r#"{"shouldNotify": true}"#);
    let registered =
        |platform: &FakeDiscord| Some(platform.commands()).filter(|commands| !commands.is_empty());
    let commands = scene.discord.wait_for("the slash commands", registered).await;
    assert!(commands.iter().all(|command| command["guild_id"] == discord::GUILD_ID), "{commands:#?}");
    scene.discord.say(discord::CHANNEL_ID, discord::USER_ID, "not for the bot");
    scene.discord.say(discord::CHANNEL_ID, discord::USER_ID, &mention);
    answered(&scene.discord, discord::CHANNEL_ID, "bot answers").await;
    let notice = |platform: &FakeDiscord| {
        let mut posts = platform.messages(discord::CHANNEL_ID).into_iter();
        posts.find(|post| post.embeds.as_array().is_some_and(|embeds| !embeds.is_empty()))
    };
    scene.discord.wait_for("the notice of the hook", notice).await;
    scene.discord.say(second, discord::USER_ID, "hello without a mention");
    answered(&scene.discord, second, "plain answers").await;
    let (direct, _) = scene.discord.say_direct(discord::USER_ID, "hello in private");
    answered(&scene.discord, &direct, "bot answers").await;
    for (channel, agent) in [(SLACK_CHANNEL, "left"), (SECOND_CHANNEL, "right")] {
        let other = scene.slack.say(channel, ANN, "not for the bot");
        scene.slack.say(channel, ANN, &format!("<@{BOT_USER}> hello"));
        let expected = format!("{agent} answers");
        scene
            .slack
            .wait_for_post(channel, |post| post["text"].as_str().is_some_and(|text| text == expected))
            .await;
        // herdctl answers each message in a thread, also without a mention.
        scene.slack.say_in_thread(channel, &other, ANN, "in the thread of people");
        scene
            .slack
            .wait_for_post(channel, |post| post["text"] == *expected && post["thread_ts"] == *other)
            .await;
    }
    scene.slack.wait_for_post(SLACK_CHANNEL, |post| post["text"] == "left: completed").await;
    assert!(!scene.root.join("agents/plain/hook-ran").exists(), "the overrides removed its hooks");
}

async fn captains_answer_by_mention(scene: &Scene, platforms: &[FakeDiscord]) {
    for (platform, id) in platforms.iter().zip(CAPTAIN_IDS) {
        platform.say(discord::CHANNEL_ID, discord::USER_ID, "not for you");
        let mention = format!("<@{id}> report");
        platform.say_as_bot(discord::CHANNEL_ID, &mention);
        platform.say(discord::CHANNEL_ID, discord::USER_ID, &mention);
    }
    for (name, platform) in CAPTAINS.iter().zip(platforms) {
        answered(platform, discord::CHANNEL_ID, &format!("{name} answers")).await;
    }
    let stranger = platforms[1].add_user("stranger");
    for (number, user, expected) in [
        (0, discord::USER_ID, "kirk answers"),
        (1, discord::USER_ID, "picard answers"),
        (1, stranger.as_str(), "You may not talk to agent picard"),
        (2, discord::USER_ID, "Agent sisko takes no direct messages"),
    ] {
        let (direct, _) = platforms[number].say_direct(user, "in private");
        answered(&platforms[number], &direct, expected).await;
    }
    let jobs = scene.jobs();
    for name in CAPTAINS {
        let count = jobs.iter().filter(|job| job["agent"] == name).count();
        assert_eq!(count, if ["kirk", "picard"].contains(&name) { 2 } else { 1 }, "{name}");
    }
}

fn sessions_of_herdctl_continue(scene: &Scene) {
    let jobs = scene.jobs();
    let newest = |agent: &str, chat: &str| {
        let job = jobs.iter().rfind(|job| job["agent"] == agent && job["chat"] == chat).unwrap();
        job["session_id"].as_str().unwrap().to_owned()
    };
    assert_eq!(newest("left", &format!("slack {SLACK_CHANNEL}")), "herdctl-left");
    let expired = newest("bot", &format!("discord {}", discord::CHANNEL_ID));
    assert!(expired.starts_with("job-"), "a session that has expired is not continued: {expired}");
}
