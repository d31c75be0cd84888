use super::*;
use crate::chat::{ChatPlace, ChatUser};
use ChatPlatform::{Discord, Slack};

fn stop(job: &str) -> ChatCommand {
    ChatCommand::Stop { job: Some(job.parse().unwrap()) }
}

fn command(command: ChatCommand) -> CommandTarget {
    CommandTarget { agent: None, command }
}

#[test]
fn messages_with_a_known_command_are_commands() {
    let skill = |input: Option<&str>| ChatCommand::Skill {
        name: "deploy".to_owned(),
        input: input.map(str::to_owned),
    };
    let name = || "daily report".to_owned();
    for (text, expected) in [
        ("!help", ChatCommand::Help),
        ("  !HELP ", ChatCommand::Help),
        ("!status", ChatCommand::Status),
        ("!reset", ChatCommand::Reset),
        ("!New", ChatCommand::Reset),
        ("!stop", ChatCommand::Stop { job: None }),
        ("!cancel a1b2c3", stop("a1b2c3")),
        ("!stop job-2026-01-05-a1b2c3", stop("job-2026-01-05-a1b2c3")),
        ("!retry", ChatCommand::Retry),
        ("!session", ChatCommand::Session),
        ("!usage", ChatCommand::Usage),
        ("!tools", ChatCommand::Tools),
        ("!config", ChatCommand::Config),
        ("!ping", ChatCommand::Ping),
        ("!skills", ChatCommand::Skills),
        ("!skill deploy", skill(None)),
        ("!skill deploy to\n  production ", skill(Some("to\n  production"))),
        ("!schedules", ChatCommand::Schedules),
        ("!schedule run daily report", ChatCommand::ScheduleRun { name: name() }),
        ("!schedules Enable daily report", ChatCommand::ScheduleEnable { name: name() }),
        ("!schedule disable daily report", ChatCommand::ScheduleDisable { name: name() }),
        ("!jobs", ChatCommand::Jobs),
        ("!why coder/daily", ChatCommand::Why { what: "coder/daily".to_owned() }),
    ] {
        assert_eq!(parse_message(text, Slack), Some(Ok(command(expected))), "{text}");
        assert_eq!(parse_message(text, Discord), None, "{text}");
    }
    for text in ["", "help", "!", "! help", "!!help", "!important fix this", "!helpme", "say !help", "/help"]
    {
        assert_eq!(parse_message(text, Slack), None, "{text}");
    }
}

#[test]
fn slash_commands_of_both_platforms() {
    for (platform, name, argument, agent, expected) in [
        (Discord, "status", "", None, ChatCommand::Status),
        (Discord, "stop", "a1b2c3", None, stop("a1b2c3")),
        (Discord, "cancel", "agent=coder a1b2c3", Some("coder"), stop("a1b2c3")),
        (Slack, "/cowhand", "", None, ChatCommand::Help),
        (Slack, "/cowhand", " status ", None, ChatCommand::Status),
        (Slack, "/cowhand", "!stop a1b2c3", None, stop("a1b2c3")),
        (Slack, "/cowhand", "@coder", Some("coder"), ChatCommand::Help),
        (Slack, "/status", "@coder stop a1b2c3", Some("coder"), stop("a1b2c3")),
        (Slack, "/cowhand", "STOP @team.coder a1b2c3", Some("team.coder"), stop("a1b2c3")),
    ] {
        let target = CommandTarget { agent: agent.map(|name| name.parse().unwrap()), command: expected };
        assert_eq!(parse_call(platform, name, argument), Ok(target), "{name} {argument}");
    }
}

#[test]
fn options_become_arguments() {
    let options = |options: &[(&str, &str)]| {
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        options.collect::<Vec<_>>()
    };
    for (name, given, expected) in [
        ("skill", options(&[("input", "to production"), ("name", "deploy")]), "deploy to production"),
        (
            "schedule",
            options(&[("name", "daily report"), ("agent", "coder"), ("action", "run")]),
            "agent=coder run daily report",
        ),
        ("cancel", options(&[("job", " a1b2c3 ")]), "a1b2c3"),
        ("status", options(&[("agent", "coder"), ("other", "x")]), "agent=coder"),
        ("status", Vec::new(), ""),
    ] {
        let place = ChatPlace { space: None, channel: "C".into(), thread: None, is_direct: false };
        let (id, user) = ("1".to_owned(), ChatUser::default());
        let (name, argument) = (name.to_owned(), String::new());
        let call = CommandCall { id, place, user, name, argument, options: given };
        assert_eq!(call.arguments(), expected);
    }
}

#[test]
fn mistakes_are_explained() {
    for (argument, expected) in [
        ("sttaus", "There is no command `sttaus`. Did you mean `!status`?"),
        ("dance", "There is no command `dance`. `!help` lists the commands."),
        ("schedule", "The command needs more arguments: `!schedule run|enable|disable NAME`"),
        ("schedule run", "The command needs more arguments: `!schedule run|enable|disable NAME`"),
        ("schedule enabl x", "A schedule has no action `enabl`. Did you mean `enable`?"),
        ("schedule paint x", "A schedule has no action `paint`. Use `run` or `enable` or `disable`."),
        ("skill", "The command needs more arguments: `!skill NAME [INPUT]`"),
        ("why", "The command needs more arguments: `!why NAME`"),
        ("say", "The command needs more arguments: `!say TEXT`"),
        ("status now", "`!status` takes no argument `now`."),
        ("status @", "`` is not the name of an agent."),
        ("@<!here> status", "`&lt;!here&gt;` is not the name of an agent."),
        (
            "stop it",
            "`it` is not the id of a job. An id is `job-YYYY-MM-DD-xxxxxx` or its last six characters. `!jobs` lists the jobs.",
        ),
    ] {
        let expected = expected.replace("``", "` `");
        assert_eq!(parse_call(Slack, "/cowhand", argument).unwrap_err().in_words(Slack), expected);
    }
    assert!(matches!(parse_message("!stop now!", Slack), Some(Err(CommandMistake::NotAJob { .. }))));
}

#[test]
fn the_table_describes_each_command() {
    for description in COMMANDS {
        for name in [description.name].iter().chain(description.aliases) {
            let arguments = match description.name {
                "schedule" => "run x",
                "skill" | "why" | "say" => "x",
                _ => "",
            };
            let parsed = parse_call(Discord, name, arguments).unwrap().command;
            assert_eq!(parsed.needs_operator(), description.needs_operator, "{name}");
            assert_eq!(parsed == ChatCommand::Help, description.name == "help", "{name}");
        }
        // The limits of Discord.
        let texts =
            [description.summary].into_iter().chain(description.options.iter().map(|option| option.summary));
        for text in texts {
            assert!((1..=100).contains(&text.len()), "{text}");
        }
        let required: Vec<bool> = description.options.iter().map(|option| option.is_required).collect();
        assert!(required.is_sorted_by(|first, second| first >= second), "required options come first");
    }
}

#[test]
fn help_shows_commands_for_operators_only_to_operators() {
    for platform in [Discord, Slack] {
        assert!(help(platform, true).contains("schedule run|enable|disable NAME`"));
        assert!(!help(platform, false).contains("enable"));
        assert!(
            super::super::split::length(&help(platform, true))
                <= super::super::markdown::post_limit(platform)
        );
    }
    assert!(
        help(Slack, false).contains("`!reset` Begin a new session in this conversation (also `new`)\n"),
        "{}",
        help(Slack, false)
    );
    assert!(help(Discord, false).starts_with("`/help` Show the commands\n"));
}
