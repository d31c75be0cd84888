//! Checks of `chat` and of schedules of type `chat`.

use cowhand_core::chat::ChatPlatform;
use cowhand_core::config::problem::Severity;

use super::platform;
use crate::{fine, lines, load_files, load_text, rendered};

type Case = (String, usize, usize, &'static str);

fn slack(keys: &str) -> String {
    format!("{{slack: {{channels: [{{id: C1}}], {keys}}}}}")
}

fn discord(keys: &str) -> String {
    format!("{{discord: {{bot_token_env: T, {keys}}}}}")
}

/// Settings of Discord with a channel.
fn guild(keys: &str) -> String {
    discord(&format!("{keys}, guilds: [{{id: 1, channels: [{{id: 2}}]}}]"))
}

fn cases_of_access() -> Vec<Case> {
    let nobody = "nobody may talk to this agent";
    vec![
        (slack(""), 1, 0, nobody),
        (slack("everyone: false"), 1, 1, nobody),
        (slack("dm: {allowlist: [U1]}"), 1, 0, nobody),
        (slack("everyone: true"), 0, 0, ""),
        (slack("users: [U1]"), 0, 0, ""),
        (slack("operators: [U1]"), 0, 0, ""),
        (slack("bots: [B1]"), 0, 0, ""),
        ("{slack: {dm: {allowlist: [U1]}}}".to_owned(), 0, 0, ""),
        (discord("guilds: [{id: 1, channels: [{id: 2}]}]"), 1, 0, "nobody may talk to this agent on discord"),
        (guild("roles: [1]"), 0, 0, ""),
        (slack("roles: [1]"), 1, 0, "roles"),
        (slack("everyone: true, users: [U1]"), 0, 0, ""),
        (slack("everyone: true, users: [U1], dm: {enabled: false}"), 0, 0, "`users` has no effect"),
        (slack("everyone: true, users: [U1], dm: {everyone: true}"), 0, 0, "`users` has no effect"),
        (slack("everyone: true, users: [U1], dm: {allowlist: [U1]}"), 0, 0, "`users` has no effect"),
        (guild("everyone: true, roles: [1]"), 0, 0, "`roles` has no effect"),
        (slack("everyone: true, dm: {everyone: true}"), 0, 0, ""),
        (slack("dm: {everyone: true}"), 1, 0, nobody),
        ("{slack: {dm: {everyone: true}}}".to_owned(), 0, 0, ""),
        ("{slack: {everyone: true}}".to_owned(), 1, 0, "set `dm: {everyone: true}`"),
        (discord("everyone: true"), 1, 0, "`everyone` applies to channels, and no channel is listed"),
        (slack("everyone: true, dm: {everyone: true, enabled: false}"), 0, 0, "direct messages are disabled"),
        (slack("users: [U1], dm: {everyone: true, allowlist: [U1]}"), 0, 0, "only users on the `allowlist`"),
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
    ]
}

fn cases_of_other_keys() -> Vec<Case> {
    vec![
        (guild("users: [1], presence: {activity_type: playing}"), 0, 0, "without `activity_message`"),
        (guild("users: [1], presence: {activity_message: x}"), 0, 0, "without `activity_type`"),
        (guild("users: [1], presence: {activity_type: walking, activity_message: x}"), 1, 1, "walking"),
        (guild("users: [1], command_registration: {scope: guild}"), 1, 1, "needs `guild_id`"),
        (guild("users: [1], command_registration: {guild_id: 5}"), 0, 0, "without `scope: guild`"),
        (discord("users: [1], guilds: [{id: 1, channels: [{id: 2}], dm: {enabled: false}}]"), 0, 0, ""),
        (
            discord(
                "users: [1], dm: {enabled: true}, guilds: [{id: 1, channels: [{id: 2}], dm: {enabled: false}}]",
            ),
            0,
            0,
            "`dm` of a guild has no effect",
        ),
        (
            discord("users: [1], guilds: [{id: 1, dm: {enabled: true}}, {id: 3, dm: {enabled: false}}]"),
            0,
            0,
            "the first `dm` of a guild counts",
        ),
        (slack("users: [U1], api_url: 'http://proxy.example/api'"), 0, 0, "`api_url` has no encryption"),
        (slack("users: [U1], api_url: 'HTTP://10.0.0.1'"), 1, 1, "api_url"),
        (guild("users: [1], api_url: 'http://localhost.example'"), 0, 0, "use an address that begins with"),
        (
            slack("users: [U1], voice: {enabled: true, api_url: 'http://10.0.0.1:8000'}"),
            0,
            0,
            "`api_url` has no encryption",
        ),
        (slack("users: [U1], api_url: 'http://localhost:1'"), 0, 0, ""),
        (slack("users: [U1], api_url: 'http://[::1]:1/api'"), 0, 0, ""),
        (slack("users: [U1], voice: {api_url: 'http://127.1.2.3'}"), 0, 0, ""),
        (slack("users: [U1], api_url: 'https://proxy.example'"), 0, 0, ""),
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
    ]
}

fn cases_of_ids() -> Vec<Case> {
    let in_guild = |guild: &str, channel: &str| {
        discord(&format!("users: [1], guilds: [{{id: {guild}, channels: [{{id: {channel}}}]}}]"))
    };
    vec![
        (guild("users: [1, alice]"), 1, 0, "`alice` is not the id of a user on discord"),
        (guild("users: [1], roles: [admins]"), 1, 0, "`admins` is not the id of a role on discord"),
        (guild("operators: ['@olga']"), 1, 0, "`@olga` is not the id of a user or a role on discord"),
        (guild("users: [1], dm: {allowlist: [bob]}"), 1, 0, "`bob` is not the id of a user on discord"),
        (in_guild("abc", "2"), 1, 0, "`abc` is not the id of a server on discord"),
        (in_guild("1", "foo"), 1, 0, "`foo` is not the id of a channel on discord"),
        (discord("users: [1], guilds: [{id: 1}, {id: '1'}]"), 1, 0, "the server 1 is listed twice"),
        (guild("users: [1], command_registration: {scope: guild, guild_id: 1}"), 0, 0, ""),
        (
            "{slack: {users: [U1], channels: [{id: '#general'}]}}".to_owned(),
            1,
            0,
            "`#general` is not the id of a channel",
        ),
        (
            "{slack: {users: [U1], channels: [{id: general}]}}".to_owned(),
            1,
            0,
            "`general` is not the id of a channel",
        ),
        ("{slack: {users: [U1], channels: [{id: G1}, {id: D1}]}}".to_owned(), 0, 0, ""),
        (slack("users: [ann]"), 1, 0, "`ann` is not the id of a user on slack"),
        (slack("users: [W0A]"), 0, 0, ""),
        ("{}".to_owned(), 0, 0, "`chat` has no effect, because it names no platform"),
    ]
}

fn cases_of_variables() -> Vec<Case> {
    let name = "this is not the name of an environment variable";
    vec![
        ("{discord: {bot_token_env: xoxb.1-2, everyone: true}}".to_owned(), 1, 1, name),
        (slack("users: [U1], bot_token_env: xoxb-1-2"), 1, 1, name),
        (slack("users: [U1], app_token_env: xapp-1-2"), 1, 1, name),
        (slack("users: [U1], voice: {enabled: true, api_key_env: sk-1-2}"), 1, 1, name),
    ]
}

/// Each case is a `chat`, the number of errors in a `cowhand.yaml` and in a `herdctl.yaml`, and a part of the only
/// problem in the `cowhand.yaml`.
#[test]
fn settings_of_a_chat_are_checked() {
    let cases = [cases_of_access(), cases_of_other_keys(), cases_of_ids(), cases_of_variables()];
    for (chat, own_errors, herdctl_errors, word) in cases.into_iter().flatten() {
        let text = format!("agents:\n  - {{name: a, chat: {chat}, schedules: {{s: {{type: manual}}}}}}\n");
        let loaded = load_text(&text);
        let problems = rendered(&loaded);
        assert!(
            !problems.contains("-1-2") && !problems.contains(".1-2"),
            "a token is not quoted: {problems}"
        );
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
        let text = "agents: [{path: a.yaml}]\n";
        let agent = format!("name: a\nchat: {{slack: {{{keys} channels: [{{id: C1}}]}}}}\n");
        let loaded = load_files(&[("herdctl.yaml", text), ("a.yaml", &agent)], &[]);
        let chat = platform(&loaded, ChatPlatform::Slack);
        assert_eq!((chat.access.everyone, chat.direct.everyone), (everyone, everyone), "{keys}");
        assert_eq!(loaded.warnings(), warnings, "{keys}: {}", rendered(&loaded));
        assert!(!rendered(&loaded).contains("may talk") || warnings == 1);
    }
    for (keys, everyone, places) in [
        ("dm: {mode: auto}", true, "write in its channels or send it direct messages"),
        ("dm: {everyone: false}", false, "write in its channels"),
        ("dm: {allowlist: [U1]}", true, "write in its channels"),
        ("dm: {enabled: false}", true, "write in its channels"),
    ] {
        let text = format!("agents: [{{name: a, chat: {{slack: {{channels: [{{id: C1}}], {keys}}}}}}}]\n");
        let loaded = load_files(&[("herdctl.yaml", &text)], &[]);
        assert_eq!(platform(&loaded, ChatPlatform::Slack).direct.everyone, everyone, "{keys}");
        let warning = format!("everybody who can {places} on slack may talk to this agent");
        assert!(rendered(&loaded).contains(&warning), "{keys}: {}", rendered(&loaded));
    }
}

#[test]
fn agents_with_the_same_bot_need_the_same_connection() {
    let check = |first: &str, second: &str| {
        let agent = |name: &str, channel: u32, keys: &str| {
            format!(
                "  - name: {name}\n    chat: {{discord: {{users: [1], guilds: [{{id: 1, channels: [{{id: {channel}}}]}}], {keys}}}}}\n"
            )
        };
        let loaded = load_text(&format!("agents:\n{}{}", agent("a", 2, first), agent("b", 3, second)));
        (loaded.errors(), loaded.warnings(), lines(&loaded).join("\n"))
    };
    let token = "bot_token_env: T";
    let shown =
        |text: &str| format!("{token}, presence: {{activity_type: playing, activity_message: {text}}}");
    let scope = |guild: u32| format!("{token}, command_registration: {{scope: guild, guild_id: {guild}}}");
    let at = |url: &str| format!("{token}, api_url: 'https://{url}'");
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
fn a_schedule_chat_in_the_config_replaces_the_usual_one() {
    let agent = |schedules: &str| {
        load_text(&format!(
            "agents:\n  - name: a\n    chat: {{slack: {{users: [U1]}}}}\n    schedules: {schedules}\n"
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
    let text = "agents:\n  - name: a\n    chat: {slack: {users: [U1]}}\n    schedules:\n      s:\n        type: chat\n        patterns:\n          - ok\n          - '['\n";
    let lines = lines(&load_text(text));
    assert_eq!(lines.len(), 1);
    assert!(lines[0].starts_with("cowhand.yaml:9:13 not a regular expression"), "{lines:?}");
}

/// A budget in dollars cannot be enforced if the runtime reports only tokens and the model has no price.
#[test]
fn the_budget_of_a_person_needs_a_price() {
    let config = |prices: &str| {
        let chat = slack("users: [U1], budget: {per_user_per_day_usd: 1}");
        format!("{prices}agents:\n  - {{name: a, runtime: codex, model: m, chat: {chat}}}\n")
    };
    let without = rendered(&load_text(&config("")));
    assert!(without.contains("needs the price of m") && without.contains("chat.slack.budget"), "{without}");
    let with = load_text(&config("prices: {m: {input: 1, output: 2}}\n"));
    assert_eq!(with.errors(), 0, "{}", rendered(&with));
}
