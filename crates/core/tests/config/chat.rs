//! `chat` of agents and schedules of type `chat`: defaults, keys, and the schedule that an agent gets.

mod checks;
mod examples;

use cowhand_core::chat::ChatPlatform;
use cowhand_core::chat::settings::{
    ActivityKind, AgentChat, AnswerMode, ChatChannel, MessageRate, OutputDetail, PlatformChat, PostedMessages,
};
use cowhand_core::config::LoadedConfig;
use cowhand_core::trigger::TriggerConfig;
use jiff::SignedDuration;

use super::{fine, lines, load_files, load_text};

fn platform(loaded: &LoadedConfig, platform: ChatPlatform) -> PlatformChat {
    fine(loaded);
    loaded.roster.agents[0].chat.as_ref().unwrap().on(platform).unwrap().clone()
}

/// Loads an agent with this `chat` in a `cowhand.yaml`.
fn with_chat(chat: &str) -> LoadedConfig {
    load_text(&format!("agents:\n  - {{name: a, chat: {chat}}}\n"))
}

#[test]
fn unset_keys_of_discord_get_the_defaults_of_herdctl() {
    let loaded =
        with_chat("{discord: {bot_token_env: T, users: [1], guilds: [{id: 2, channels: [{id: 3}]}]}}");
    let chat = platform(&loaded, ChatPlatform::Discord);
    assert_eq!(lines(&loaded), [""; 0]);
    assert_eq!((chat.bot.token_env.as_str(), chat.bot.app_token_env.as_deref()), ("T", None));
    assert_eq!((chat.bot.presence, chat.bot.command_guild, chat.bot.api_url), (None, None, None));
    assert_eq!(
        chat.channels,
        [ChatChannel {
            guild: Some("2".to_owned()),
            id: "3".to_owned(),
            mode: AnswerMode::Mention,
            context_messages: 10
        }]
    );
    assert_eq!(chat.guilds[0].default_mode, None);
    assert_eq!(chat.session_expires, SignedDuration::from_hours(24));
    assert_eq!((chat.direct.enabled, chat.direct.mode), (true, AnswerMode::Auto));
    let output = &chat.output;
    assert!(output.tool_results && output.system_status && output.errors && output.typing_indicator);
    assert!(!output.result_summary && output.progress_indicator);
    assert_eq!((output.tool_result_max_length, output.detail), (900, OutputDetail::Standard));
    assert_eq!(output.assistant_messages, PostedMessages::Answers);
    assert_eq!(output.acknowledge_emoji.as_deref(), Some("👀"));
    assert_eq!((chat.attachments, chat.voice, chat.skills), (None, None, None));
    assert!(!chat.access.everyone);
}

#[test]
fn unset_keys_of_slack_get_the_defaults_of_herdctl() {
    let loaded = with_chat(
        "{slack: {everyone: true, channels: [{id: C1}], attachments: {enabled: true}, voice: {enabled: true}}}",
    );
    let chat = platform(&loaded, ChatPlatform::Slack);
    assert_eq!(lines(&loaded), [""; 0]);
    assert_eq!(
        (chat.bot.token_env.as_str(), chat.bot.app_token_env.as_deref()),
        ("SLACK_BOT_TOKEN", Some("SLACK_APP_TOKEN"))
    );
    assert_eq!((chat.channels[0].mode, chat.channels[0].context_messages), (AnswerMode::Mention, 10));
    assert_eq!(chat.output.acknowledge_emoji.as_deref(), Some("hourglass_flowing_sand"));
    let files = chat.attachments.unwrap();
    assert_eq!((files.max_file_bytes, files.max_files, files.removed_after_job), (10 << 20, 5, true));
    assert_eq!(files.allowed_types, ["image/*", "application/pdf", "text/*"]);
    assert_eq!(files.folder, ".slack-attachments");
    let voice = chat.voice.unwrap();
    assert_eq!((voice.key_env.as_str(), voice.model.as_str()), ("OPENAI_API_KEY", "whisper-1"));
    assert_eq!((voice.language, voice.api_url), (None, None));
}

const EVERY_KEY: &str = "
      session_expiry_hours: 48
      log_level: verbose
      api_url: http://127.0.0.1:9/api
      users: [U1, W2]
      operators: [U3]
      bots: [B4]
      rate: {messages: 5, per: 2m}
      budget: {per_user_per_day_usd: 1.5}
      output: {tool_results: false, tool_result_max_length: 50, system_status: false, errors: false, result_summary: true,
        typing_indicator: false, acknowledge_emoji: '', assistant_messages: all, progress_indicator: false}
      dm: {enabled: true, mode: mention, allowlist: [U1], blocklist: [U5]}
      voice: {enabled: true, provider: openai, api_key_env: VOICE_KEY, model: m, language: en, api_url: 'http://127.0.0.1:8'}
      attachments: {enabled: true, max_file_size_mb: 0.5, max_files_per_message: 2, allowed_types: [text/*],
        download_dir: in/files, cleanup_after_processing: false}
      skills: [{name: sum, description: Sums up}, {name: plain}]
";

const SLACK_IDS: [&str; 5] = ["U1", "W2", "U3", "B4", "U5"];

#[test]
fn every_key_is_resolved_on_both_platforms() {
    let slack = "slack:\n      bot_token_env: BOT\n      app_token_env: APP\n      channels: [{id: C1, name: n, mode: auto, context_messages: 3}]";
    let discord = "discord:\n      bot_token_env: BOT\n      roles: [7]\n      presence: {activity_type: watching, activity_message: it}\n      \
        command_registration: {scope: guild, guild_id: 9}\n      guilds: [{id: 1, default_channel_mode: auto, channels: [{id: 5}, {id: 6, mode: auto}]}]";
    for (platform, own) in [(ChatPlatform::Slack, slack), (ChatPlatform::Discord, discord)] {
        // The ids of Discord are the numbers in the ids of Slack.
        let id =
            |id: &str| if platform == ChatPlatform::Discord { id[1..].to_owned() } else { id.to_owned() };
        let keys = SLACK_IDS.iter().fold(EVERY_KEY.to_owned(), |keys, slack| keys.replace(slack, &id(slack)));
        let loaded = load_text(&format!("agents:\n- name: a\n  chat:\n    {own}{keys}"));
        let chat = self::platform(&loaded, platform);
        assert_eq!(lines(&loaded), [""; 0]);
        assert_eq!(
            (chat.session_expires, chat.output.detail),
            (SignedDuration::from_hours(48), OutputDetail::Verbose)
        );
        assert_eq!(chat.bot.api_url.as_deref(), Some("http://127.0.0.1:9/api"));
        let access = &chat.access;
        assert_eq!(
            (access.users.join(" "), access.operators.join(" "), access.bots.join(" ")),
            (format!("{} {}", id("U1"), id("W2")), id("U3"), id("B4"))
        );
        assert_eq!(access.rate, Some(MessageRate { messages: 5, period: SignedDuration::from_mins(2) }));
        assert_eq!(access.per_user_per_day_usd, Some(1.5));
        let output = &chat.output;
        assert!(!(output.tool_results || output.system_status || output.errors || output.typing_indicator));
        assert!(output.result_summary && !output.progress_indicator);
        assert_eq!((output.tool_result_max_length, &output.acknowledge_emoji), (50, &None));
        assert_eq!(output.assistant_messages, PostedMessages::All);
        assert_eq!(
            (chat.direct.mode, chat.direct.allowlist.len(), chat.direct.blocklist.len()),
            (AnswerMode::Mention, 1, 1)
        );
        let voice = chat.voice.as_ref().unwrap();
        assert_eq!(
            (voice.key_env.as_str(), voice.model.as_str(), voice.language.as_deref()),
            ("VOICE_KEY", "m", Some("en"))
        );
        assert_eq!(voice.api_url.as_deref(), Some("http://127.0.0.1:8"));
        let files = chat.attachments.as_ref().unwrap();
        assert_eq!((files.max_file_bytes, files.max_files, files.removed_after_job), (1 << 19, 2, false));
        assert_eq!((files.folder.as_str(), files.allowed_types.join(" ")), ("in/files", "text/*".to_owned()));
        let skills = chat.skills.as_ref().unwrap();
        assert_eq!((skills[0].description.as_str(), skills[1].description.as_str()), ("Sums up", ""));
        let agent = &loaded.roster.agents[0];
        let secrets: Vec<&str> = agent.chat.iter().flat_map(AgentChat::secret_variables).collect();
        if platform == ChatPlatform::Slack {
            assert_eq!((chat.channels[0].mode, chat.channels[0].context_messages), (AnswerMode::Auto, 3));
            assert_eq!(secrets, ["BOT", "APP", "VOICE_KEY"]);
        } else {
            assert_eq!(chat.bot.presence, Some((ActivityKind::Watching, "it".to_owned())));
            assert_eq!(chat.bot.command_guild.as_deref(), Some("9"));
            assert_eq!(
                (access.roles.join(" "), chat.guilds[0].default_mode),
                ("7".to_owned(), Some(AnswerMode::Auto))
            );
            let modes: Vec<AnswerMode> = chat.channels.iter().map(|channel| channel.mode).collect();
            // `default_channel_mode` is only for channels that are not listed.
            assert_eq!(modes, [AnswerMode::Mention, AnswerMode::Auto]);
            assert_eq!(secrets, ["BOT", "VOICE_KEY"]);
        }
    }
}

#[test]
fn direct_messages_have_the_rules_of_the_first_guild_with_rules() {
    for (own, expected) in [("", false), ("dm: {enabled: true},", true)] {
        let loaded = with_chat(&format!(
            "{{discord: {{bot_token_env: T, users: [1], {own} guilds: [{{id: 1, default_channel_mode: auto}}, {{id: 2, dm: {{enabled: false}}}}]}}}}"
        ));
        assert_eq!(platform(&loaded, ChatPlatform::Discord).direct.enabled, expected, "{own}");
    }
}

#[test]
fn only_a_herdctl_fleet_answers_every_thread_of_slack() {
    let text = "agents: [{name: a, chat: {slack: {channels: [{id: C1}]}, discord: {bot_token_env: T, guilds: []}}}]\n";
    let loaded = load_files(&[("herdctl.yaml", text)], &[]);
    assert!(platform(&loaded, ChatPlatform::Slack).answers_every_thread);
    assert!(!platform(&loaded, ChatPlatform::Discord).answers_every_thread);
    let loaded = with_chat("{slack: {everyone: true, channels: [{id: C1}]}}");
    assert!(!platform(&loaded, ChatPlatform::Slack).answers_every_thread);
}

/// Ids of Discord have up to 20 digits, which a floating-point number cannot hold.
#[test]
fn ids_keep_their_digits_with_and_without_quotes() {
    for id in ["1234567890123456789", "18446744073709551615", "009", "\"1234567890123456789\""] {
        let loaded = with_chat(&format!(
            "{{discord: {{bot_token_env: T, users: [{id}], roles: [{id}], operators: [{id}], bots: [{id}], dm: {{allowlist: [{id}], blocklist: [{id}]}}, \
             command_registration: {{scope: guild, guild_id: {id}}}, guilds: [{{id: {id}, channels: [{{id: {id}}}]}}]}}}}"
        ));
        let chat = platform(&loaded, ChatPlatform::Discord);
        let id = id.trim_matches('"');
        let access = &chat.access;
        for list in [
            &access.users,
            &access.roles,
            &access.operators,
            &access.bots,
            &chat.direct.allowlist,
            &chat.direct.blocklist,
        ] {
            assert_eq!(list, &[id]);
        }
        assert_eq!((chat.guilds[0].id.as_str(), chat.channels[0].id.as_str()), (id, id));
        assert_eq!(chat.bot.command_guild.as_deref(), Some(id));
    }
}

#[test]
fn an_agent_with_chat_gets_a_schedule_for_its_messages() {
    let text = "
defaults: {work_source: {type: files, path: items}}
agents:
  - name: a
    default_prompt: Do the {{fire_time}} work.
    timeout: 7m
    retry: {max_attempts: 3}
    work_source: {path: more}
    schedules: {daily: {type: cron, cron: '@daily'}}
    chat: {slack: {everyone: true, channels: [{id: C1}]}}
  - name: b
    work_source: ~
    chat: {slack: {everyone: true, channels: [{id: C2}]}}
  - {name: c, chat: {}, schedules: {chat: {type: manual}}}
";
    let loaded = load_text(text);
    fine(&loaded);
    let [a, b, c] = loaded.roster.agents.shared() else { panic!("{:?}", loaded.roster.agents) };
    let names: Vec<&str> = a.schedules.iter().map(|schedule| schedule.name.as_str()).collect();
    assert_eq!(names, ["daily", "chat"]);
    let chat = &a.schedules[1];
    assert!(matches!(chat.trigger, TriggerConfig::Chat { platform: None, .. }) && chat.enabled);
    assert_eq!(chat.work_source, None, "a message is no work item");
    assert_eq!((chat.retry.max_attempts, chat.timeout), (3, a.timeout), "inherited from the agent");
    assert!(
        chat.prompt.as_ref().unwrap().contains("{{ body }}"),
        "the prompt of the agent is for other jobs"
    );
    assert_eq!((b.schedules.len(), b.schedules[0].name.as_str()), (1, "chat"));
    assert_eq!((c.schedules.len(), c.schedules[0].trigger.type_name()), (1, "manual"), "it has no chat");
    assert_eq!(c.chat, None);
    let shown = loaded.shown.value();
    assert_eq!(shown["agents"][0]["schedules"]["chat"]["type"], "chat");
}

/// A schedule of type `chat` without a prompt uses the prompt of the agent, or else the prompt for chats.
#[test]
fn a_chat_schedule_without_a_prompt_gets_one() {
    for (own, starts) in [("", "You talk with people"), ("default_prompt: 'Help: {{body}}',", "None")] {
        let loaded = load_text(&format!(
            "agents:\n  - {{name: a, {own} chat: {{slack: {{users: [U1]}}}}, schedules: {{s: {{type: chat}}}}}}\n"
        ));
        fine(&loaded);
        let prompt = loaded.roster.agents[0].schedules[0].prompt.as_deref().unwrap_or("None");
        assert!(prompt.starts_with(starts), "{prompt}");
    }
}
