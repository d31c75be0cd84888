//! `chat` of agents and schedules of type `chat`: defaults, keys, checks, and the schedule that an agent gets.

use cowhand_core::chat::ChatPlatform;
use cowhand_core::chat::settings::{
    ActivityKind, AgentChat, AnswerMode, ChatChannel, MessageRate, OutputDetail, PlatformChat, PostedMessages,
};
use cowhand_core::config::LoadedConfig;
use cowhand_core::config::problem::Severity;
use cowhand_core::trigger::TriggerConfig;
use jiff::SignedDuration;

use super::{fine, lines, load_files, load_text, rendered};

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
      users: [U1, 2]
      operators: [U3]
      bots: [B1]
      rate: {messages: 5, per: 2m}
      budget: {per_user_per_day_usd: 1.5}
      output: {tool_results: false, tool_result_max_length: 50, system_status: false, errors: false, result_summary: true,
        typing_indicator: false, acknowledge_emoji: '', assistant_messages: all, progress_indicator: false}
      dm: {enabled: true, mode: mention, allowlist: [U1], blocklist: [U4]}
      voice: {enabled: true, provider: openai, api_key_env: VOICE_KEY, model: m, language: en, api_url: 'http://127.0.0.1:8'}
      attachments: {enabled: true, max_file_size_mb: 0.5, max_files_per_message: 2, allowed_types: [text/*],
        download_dir: in/files, cleanup_after_processing: false}
      skills: [{name: sum, description: Sums up}, {name: plain}]
";

#[test]
fn every_key_is_resolved_on_both_platforms() {
    let slack = "slack:\n      bot_token_env: BOT\n      app_token_env: APP\n      channels: [{id: C1, name: n, mode: auto, context_messages: 3}]";
    let discord = "discord:\n      bot_token_env: BOT\n      roles: [7]\n      presence: {activity_type: watching, activity_message: it}\n      \
        command_registration: {scope: guild, guild_id: 9}\n      guilds: [{id: 1, default_channel_mode: auto, channels: [{id: 5}, {id: 6, mode: mention}]}]";
    for (platform, own) in [(ChatPlatform::Slack, slack), (ChatPlatform::Discord, discord)] {
        let loaded = load_text(&format!("agents:\n- name: a\n  chat:\n    {own}{EVERY_KEY}"));
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
            ("U1 2".into(), "U3".into(), "B1".into())
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
            assert_eq!(modes, [AnswerMode::Auto, AnswerMode::Mention]);
            assert_eq!(secrets, ["BOT", "VOICE_KEY"]);
        }
    }
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

/// Each case is a `chat`, the number of errors in a `cowhand.yaml` and in a `herdctl.yaml`, and a part of the only
/// problem in the `cowhand.yaml`.
#[test]
fn settings_of_a_chat_are_checked() {
    let slack = |keys: &str| format!("{{slack: {{channels: [{{id: C1}}], {keys}}}}}");
    let discord = |keys: &str| format!("{{discord: {{bot_token_env: T, {keys}}}}}");
    let guild = "guilds: [{id: 1, channels: [{id: 2}]}]";
    let nobody = "nobody may talk to this agent";
    for (chat, own_errors, herdctl_errors, word) in [
        (slack(""), 1, 0, nobody),
        (slack("everyone: false"), 1, 1, nobody),
        (slack("dm: {allowlist: [U1]}"), 1, 0, nobody),
        (slack("everyone: true"), 0, 0, ""),
        (slack("users: [U1]"), 0, 0, ""),
        (slack("operators: [U1]"), 0, 0, ""),
        (slack("bots: [B1]"), 0, 0, ""),
        ("{slack: {dm: {allowlist: [U1]}}}".to_owned(), 0, 0, ""),
        (discord(guild), 1, 0, "nobody may talk to this agent on discord"),
        (discord(&format!("roles: [1], {guild}")), 0, 0, ""),
        (slack("roles: [1]"), 1, 0, "roles"),
        (slack("everyone: true, users: [U1]"), 0, 0, "`users` has no effect"),
        ("{slack: {dm: {enabled: false}}}".to_owned(), 0, 0, "nobody can reach this agent on slack"),
        (discord("dm: {enabled: false}, guilds: [{id: 1}]"), 0, 0, "nobody can reach this agent on discord"),
        (
            discord("users: [1], dm: {enabled: false}, guilds: [{id: 1, default_channel_mode: auto}]"),
            0,
            0,
            "",
        ),
        (
            "{slack: {users: [U1], channels: [{id: C1}, {id: C2}, {id: C1}]}}".to_owned(),
            1,
            1,
            "C1 is listed twice",
        ),
        (
            discord("users: [1], guilds: [{id: 1, channels: [{id: 2}]}, {id: 3, channels: [{id: '2'}]}]"),
            1,
            1,
            "the channel 2 is listed twice",
        ),
        (
            discord(&format!("users: [1], presence: {{activity_type: playing}}, {guild}")),
            0,
            0,
            "without `activity_message`",
        ),
        (
            discord(&format!("users: [1], presence: {{activity_message: x}}, {guild}")),
            0,
            0,
            "without `activity_type`",
        ),
        (
            discord(&format!(
                "users: [1], presence: {{activity_type: walking, activity_message: x}}, {guild}"
            )),
            1,
            1,
            "walking",
        ),
        (
            discord(&format!("users: [1], command_registration: {{scope: guild}}, {guild}")),
            1,
            1,
            "needs `guild_id`",
        ),
        (
            discord(&format!("users: [1], command_registration: {{guild_id: 5}}, {guild}")),
            0,
            0,
            "without `scope: guild`",
        ),
        (
            discord(&format!(
                "users: [1], guilds: [{{id: 1, channels: [{{id: 2}}], dm: {{enabled: false}}}}]"
            )),
            0,
            0,
            "set `dm` beside `guilds`",
        ),
        (
            slack("users: [U1], attachments: {enabled: true, download_dir: /tmp}"),
            1,
            1,
            "inside the working directory",
        ),
        (
            slack("users: [U1], attachments: {enabled: true, download_dir: a/../..}"),
            1,
            1,
            "inside the working directory",
        ),
        (
            slack("users: [U1], attachments: {enabled: true, download_dir: .}"),
            1,
            1,
            "inside the working directory",
        ),
        (slack("users: [U1], attachments: {enabled: true, download_dir: ./a/b}"), 0, 0, ""),
        (slack("users: [U1], voice: {provider: other}"), 1, 1, "other"),
        (slack("users: [U1], rate: {messages: 5}"), 1, 1, "per"),
        (slack("users: [U1], rate: {messages: 0, per: 1m}"), 1, 1, "0 is too small"),
        (slack("users: [U1], rate: {messages: 1, per: often}"), 1, 1, "often"),
        (slack("users: [U1], budget: {per_user_per_day_usd: 0}"), 1, 1, "0 is too small"),
        (slack("users: [U1], api_url: example.com"), 1, 1, "api_url"),
        (slack("users: U1"), 1, 1, "expected a list"),
        ("{discord: {users: [1]}}".to_owned(), 1, 1, "bot_token_env"),
        ("{irc: {}}".to_owned(), 1, 0, "unknown key `irc`"),
    ] {
        let text = format!("agents:\n  - {{name: a, chat: {chat}, schedules: {{s: {{type: manual}}}}}}\n");
        let loaded = load_text(&text);
        let problems = rendered(&loaded);
        assert_eq!(loaded.errors(), own_errors, "{chat}: {problems}");
        assert!(loaded.problems.len() <= 1 && problems.contains(word), "{chat}: {problems}");
        assert_eq!(word.is_empty(), loaded.problems.is_empty(), "{chat}: {problems}");
        let loaded = load_files(&[("herdctl.yaml", &text)], &[]);
        assert_eq!(loaded.errors(), herdctl_errors, "{chat} of herdctl: {}", rendered(&loaded));
    }
}

#[test]
fn problems_of_a_chat_name_their_key_and_the_next_step() {
    let text = "agents:
  - name: a
    chat:
      discord:
        bot_token_env: T
        guilds:
          - id: 1
            channels:
              - id: 2
              - id: 2
";
    insta::assert_snapshot!(rendered(&load_text(text)));
}

#[test]
fn everybody_may_talk_in_a_herdctl_fleet_that_lists_nobody() {
    for (keys, everyone, warnings) in
        [("", true, 1), ("everyone: true,", true, 0), ("users: [U1],", false, 0), ("bots: [B1],", false, 0)]
    {
        let text = format!("agents: [{{path: a.yaml}}]\n");
        let agent = format!("name: a\nchat: {{slack: {{{keys} channels: [{{id: C1}}]}}}}\n");
        let loaded = load_files(&[("herdctl.yaml", &text), ("a.yaml", &agent)], &[]);
        assert_eq!(platform(&loaded, ChatPlatform::Slack).access.everyone, everyone, "{keys}");
        assert_eq!(loaded.warnings(), warnings, "{keys}: {}", rendered(&loaded));
        assert!(!rendered(&loaded).contains("may talk") || warnings == 1);
    }
}

#[test]
fn agents_with_the_same_bot_need_the_same_connection() {
    let check = |first: &str, second: &str| {
        let agent = |name: &str, keys: &str| {
            format!(
                "  - name: {name}\n    chat: {{discord: {{users: [1], guilds: [{{id: 1, channels: [{{id: {name}}}]}}], {keys}}}}}\n"
            )
        };
        let loaded = load_text(&format!("agents:\n{}{}", agent("a", first), agent("b", second)));
        (loaded.errors(), loaded.warnings(), lines(&loaded).join("\n"))
    };
    let token = "bot_token_env: T";
    let shown =
        |text: &str| format!("{token}, presence: {{activity_type: playing, activity_message: {text}}}");
    let scope = |guild: u32| format!("{token}, command_registration: {{scope: guild, guild_id: {guild}}}");
    let at = |url: &str| format!("{token}, api_url: 'http://{url}'");
    for (first, second, errors, warnings, word) in [
        (token.to_owned(), token.to_owned(), 0, 0, ""),
        (at("a"), at("a"), 0, 0, ""),
        (at("a"), at("b"), 1, 0, "the agent `a` uses the same bot (T) with another `api_url`"),
        (at("a"), token.to_owned(), 1, 0, "another `api_url`"),
        (at("a"), "bot_token_env: OTHER".to_owned(), 0, 0, ""),
        (shown("x"), shown("x"), 0, 0, ""),
        (shown("x"), token.to_owned(), 0, 0, ""),
        (shown("x"), shown("y"), 0, 1, "`presence` has no effect"),
        (scope(1), scope(2), 0, 1, "`command_registration` has no effect"),
        (scope(1), scope(1), 0, 0, ""),
    ] {
        let (found_errors, found_warnings, text) = check(&first, &second);
        assert_eq!((found_errors, found_warnings), (errors, warnings), "{first} | {second}: {text}");
        assert!(text.contains(word), "{first} | {second}: {text}");
    }
    let slack = |keys: &str| format!("chat: {{slack: {{everyone: true, channels: [{{id: C1}}]{keys}}}}}");
    let text = format!(
        "agents:\n  - {{name: a, {}}}\n  - {{name: b, {}}}\n",
        slack(""),
        slack(", app_token_env: OTHER")
    );
    let loaded = load_text(&text);
    assert_eq!(loaded.errors(), 1);
    assert!(
        rendered(&loaded).contains("(SLACK_BOT_TOKEN) with another `app_token_env`"),
        "{}",
        rendered(&loaded)
    );
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

#[test]
fn a_schedule_chat_in_the_config_replaces_the_usual_one() {
    let agent = |schedules: &str| {
        load_text(&format!(
            "agents:\n  - name: a\n    chat: {{slack: {{everyone: true}}}}\n    schedules: {schedules}\n"
        ))
    };
    let loaded = agent("{chat: {type: chat, prompt: 'Answer: {{body}}', filter: {author: [U1]}}}");
    fine(&loaded);
    let [chat] = loaded.roster.agents[0].schedules.as_slice() else { panic!("one schedule") };
    assert_eq!(chat.prompt.as_deref(), Some("Answer: {{body}}"));
    assert!(chat.filter.is_some());
    let loaded = agent("{chat: ~}");
    fine(&loaded);
    assert_eq!(loaded.roster.agents[0].schedules[0].trigger.type_name(), "chat");
    let loaded = agent("{chat: {type: interval, interval: 1h}}");
    assert_eq!(loaded.errors(), 1);
    insta::assert_snapshot!(rendered(&loaded));
}

/// Each case is the `chat` of the agent, a schedule, the number of errors in a `cowhand.yaml`, and a part of the problem.
#[test]
fn schedules_of_type_chat_need_a_chat_that_fires_them() {
    let slack = "chat: {slack: {everyone: true, channels: [{id: C1}]}},";
    for (chat, schedule, errors, word) in [
        ("", "{type: chat}", 1, "add `chat: {slack: …}` or `chat: {discord: …}` to the agent"),
        ("", "{type: chat, platform: slack}", 1, "add `chat: {slack: …}` to the agent"),
        ("chat: {},", "{type: chat}", 1, "the agent has no `chat`"),
        (slack, "{type: chat}", 0, ""),
        (slack, "{type: chat, platform: slack, channels: [C1, 2], patterns: ['^!go', deploy]}", 0, ""),
        (slack, "{type: chat, platform: discord}", 1, "the agent has no `chat.discord`"),
        (slack, "{type: chat, patterns: [a, '(']}", 1, "not a regular expression"),
        (slack, "{type: chat, channels: C1}", 1, "expected a list"),
        (
            slack,
            "{type: chat, prompt: '{{author_name}} {{author}} {{platform}} {{channel}} {{thread}}'}",
            0,
            "",
        ),
        (slack, "{type: chat, prompt: '{{attachments}} {{earlier_messages}} {{timestamp}}'}", 0, ""),
        (slack, "{type: chat, prompt: '{{payload}}'}", 1, "payload"),
        (slack, "{type: manual, channels: [C1]}", 1, "channels"),
    ] {
        let text = format!("agents:\n  - {{name: a, {chat} schedules: {{s: {schedule}}}}}\n");
        let loaded = load_text(&text);
        assert_eq!(loaded.errors(), errors, "{text}{}", rendered(&loaded));
        assert!(rendered(&loaded).contains(word), "{text}{}", rendered(&loaded));
        if chat.is_empty() {
            let loaded = load_files(&[("herdctl.yaml", &text)], &[]);
            let severities: Vec<Severity> = loaded.problems.iter().map(|problem| problem.severity).collect();
            assert_eq!(severities, [Severity::Warning], "herdctl accepts it: {}", rendered(&loaded));
        }
    }
    let text = "agents:\n  - name: a\n    chat: {slack: {everyone: true}}\n    schedules:\n      s:\n        type: chat\n        patterns:\n          - ok\n          - '['\n";
    let lines = lines(&load_text(text));
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("cowhand.yaml:9:13 not a regular expression"), "{lines:?}");
}

/// A schedule of type `chat` without a prompt uses the prompt of the agent, or else the prompt for chats.
#[test]
fn a_chat_schedule_without_a_prompt_gets_one() {
    for (own, starts) in [("", "You talk with people"), ("default_prompt: 'Help: {{body}}',", "None")] {
        let loaded = load_text(&format!(
            "agents:\n  - {{name: a, {own} chat: {{slack: {{everyone: true}}}}, schedules: {{s: {{type: chat}}}}}}\n"
        ));
        fine(&loaded);
        let prompt = loaded.roster.agents[0].schedules[0].prompt.as_deref().unwrap_or("None");
        assert!(prompt.starts_with(starts), "{prompt}");
    }
}

/// The example configs of herdctl that use a chat, reduced to the keys that differ: each is an agent's file, and the
/// platforms to which it connects.
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
    channels: [{id: '${CHANNEL}', name: '#agents'}]
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

const HERDCTL_ENV: [(&str, &str); 2] = [("GUILD", "1234567890123456789"), ("CHANNEL", "9876543210987654321")];

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
        assert!(ids.into_iter().all(|id| ["34", "9876543210987654321"].contains(&id)), "{what}");
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
