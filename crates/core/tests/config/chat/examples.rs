//! The example configs of herdctl that use a chat.

use cowhand_core::chat::ChatPlatform;
use cowhand_core::chat::settings::AgentChat;

use crate::{fine, load_files, rendered};

/// Examples, reduced to the keys that differ: each is an agent's file, and the platforms to which it connects.
const HERDCTL_AGENTS: [(&str, &str, &[ChatPlatform]); 9] = [
    (
        "a bot with a mention channel, open direct messages, a schedule and a hook",
        "
name: bot
system_prompt: You help on Discord.
permission_mode: bypassPermissions
metadata_file: metadata.json
schedules: {report: {type: interval, interval: 4h, prompt: Write the report.}}
hooks: {after_run: [{type: discord, channel_id: '${CHANNEL}', bot_token_env: BOT_TOKEN, when: metadata.shouldNotify}]}
chat:
  discord:
    bot_token_env: BOT_TOKEN
    session_expiry_hours: 24
    log_level: standard
    output: {tool_results: true, tool_result_max_length: 500, system_status: true, errors: true}
    guilds:
      - id: '${GUILD}'
        channels: [{id: '${CHANNEL}', name: '#general', mode: mention, context_messages: 10}]
    dm: {enabled: true, mode: auto}
",
        &[ChatPlatform::Discord],
    ),
    (
        "a bot on Slack with the default mode and a notice after each run",
        "
name: bot
default_prompt: Help the person.
hooks: {after_run: [{type: slack, channel_id: '${CHANNEL}', bot_token_env: SLACK_BOT_TOKEN}]}
chat:
  slack:
    bot_token_env: SLACK_BOT_TOKEN
    app_token_env: SLACK_APP_TOKEN
    session_expiry_hours: 24
    channels: [{id: '${SLACK_CHANNEL}', name: '#agents'}]
",
        &[ChatPlatform::Slack],
    ),
    (
        "one of several bots in a channel, without direct messages",
        "
name: captain
chat:
  discord:
    bot_token_env: CAPTAIN_TOKEN
    session_expiry_hours: 48
    log_level: verbose
    guilds: [{id: '${GUILD}', channels: [{id: '${CHANNEL}', mode: mention, context_messages: 20}]}]
    dm: {enabled: false}
",
        &[ChatPlatform::Discord],
    ),
    (
        "a developer in Docker",
        "
name: developer
docker: {enabled: true, memory: 4g}
chat:
  discord:
    bot_token_env: BOT_TOKEN
    guilds: [{id: '${GUILD}', channels: [{id: '${CHANNEL}', mode: auto}]}]
",
        &[ChatPlatform::Discord],
    ),
    (
        "only a hook",
        "
name: checker
schedules: {check: {type: interval, interval: 4h, prompt: Check the price.}}
hooks: {after_run: [{type: discord, channel_id: '${CHANNEL}', bot_token_env: BOT_TOKEN, when: metadata.shouldNotify}]}
",
        &[],
    ),
    (
        "the first steps on Discord",
        "name: helper\nchat: {discord: {bot_token_env: BOT_TOKEN, guilds: [{id: 12, channels: [{id: 34, mode: auto}]}]}}",
        &[ChatPlatform::Discord],
    ),
    (
        "a whole server by mention, and a list of people for direct messages",
        "
name: guide
chat:
  discord:
    bot_token_env: BOT_TOKEN
    guilds: [{id: 12, default_channel_mode: mention}]
    dm: {enabled: true, allowlist: ['1', '2'], blocklist: ['3']}
    presence: {activity_type: watching, activity_message: for support requests}
    command_registration: {scope: guild, guild_id: '12'}
    skills: []
",
        &[ChatPlatform::Discord],
    ),
    (
        "only some keys, without the channels",
        "
name: voice
chat:
  discord:
    bot_token_env: BOT_TOKEN
    voice: {enabled: true, provider: openai, api_key_env: OPENAI_API_KEY, model: whisper-1, language: en}
    attachments:
      enabled: true
      max_file_size_mb: 10
      max_files_per_message: 5
      allowed_types: [image/*, application/pdf, text/*]
      download_dir: .discord-attachments
      cleanup_after_processing: true
    output: {result_summary: true, typing_indicator: true, acknowledge_emoji: eyes, assistant_messages: all, progress_indicator: true}
  slack: {dm: {enabled: true, mode: auto}}
",
        &[ChatPlatform::Discord, ChatPlatform::Slack],
    ),
    (
        "direct messages only",
        "name: private\nchat: {slack: {channels: [], dm: {enabled: true, allowlist: [U1]}}}",
        &[ChatPlatform::Slack],
    ),
];

const HERDCTL_ENV: [(&str, &str); 3] =
    [("GUILD", "1234567890123456789"), ("CHANNEL", "9876543210987654321"), ("SLACK_CHANNEL", "C0123456789")];

#[test]
fn the_documented_examples_of_herdctl_load() {
    for (what, agent, platforms) in HERDCTL_AGENTS {
        let files = [("herdctl.yaml", "version: 1\nagents: [{path: a.yaml}]\n"), ("a.yaml", agent)];
        let loaded = load_files(&files, &HERDCTL_ENV);
        assert_eq!(loaded.errors(), 0, "{what}: {}", rendered(&loaded));
        let chat = loaded.roster.agents[0].chat.clone().unwrap_or_default();
        let found: Vec<ChatPlatform> = chat.platforms.iter().map(|chat| chat.platform).collect();
        assert_eq!(found, platforms, "{what}");
        let others =
            loaded.problems.iter().filter(|problem| !problem.message.contains("may talk to this agent"));
        assert_eq!(others.count(), 0, "{what}: {}", rendered(&loaded));
        let ids = chat.platforms.iter().flat_map(|chat| &chat.channels).map(|channel| channel.id.as_str());
        assert!(
            ids.into_iter().all(|id| ["34", "9876543210987654321", "C0123456789"].contains(&id)),
            "{what}"
        );
    }
}

/// Several agents of one fleet: `overrides` of the fleet add the chat and remove the hooks.
#[test]
fn a_herdctl_fleet_adds_a_chat_by_overrides() {
    let root = "
agents:
  - path: a.yaml
    overrides:
      hooks: {after_run: []}
      chat: {discord: {bot_token_env: FIRST_TOKEN, guilds: [{id: '${GUILD}', channels: [{id: '${CHANNEL}', mode: mention}]}]}}
  - path: b.yaml
    overrides:
      chat: {discord: {bot_token_env: SECOND_TOKEN, guilds: [{id: '${GUILD}', channels: [{id: '${CHANNEL}', mode: auto}]}]}}
";
    let hook = "hooks: {after_run: [{type: discord, channel_id: 1, bot_token_env: FIRST_TOKEN}]}";
    let a = format!("name: a\n{hook}\n");
    let files = [("herdctl.yaml", root), ("a.yaml", &a), ("b.yaml", "name: b\n")];
    let loaded = load_files(&files, &HERDCTL_ENV);
    fine(&loaded);
    let tokens: Vec<&str> = loaded
        .roster
        .agents
        .iter()
        .flat_map(|agent| agent.chat.iter().flat_map(AgentChat::secret_variables))
        .collect();
    assert_eq!(tokens, ["FIRST_TOKEN", "SECOND_TOKEN"]);
    assert_eq!(loaded.roster.agents[0].hooks.after_run.len(), 0);
    assert!(loaded.roster.agents.iter().all(|agent| agent.schedules[0].name.as_str() == "chat"));
}
