//! Mistakes in `notify`: each is reported at its position, with what to do.

use super::{lines, load_files};

/// Returns the number of errors, and the problems of a config.
fn problems(config: &str) -> (usize, String) {
    let loaded = load_files(&[("cowhand.yaml", config)], &[("SLACK_BOT_TOKEN", "xoxb-1"), ("SET", "x")]);
    (loaded.errors(), lines(&loaded).join("\n"))
}

#[test]
fn mistakes_in_notify_are_reported_at_their_position() {
    let slack = "ops: {type: slack, channel_id: C1}";
    for (notify, errors, expected) in [
        (format!("{{targets: {{{slack}}}, rules: [{{to: [ops]}}]}}"), 0, ""),
        (
            format!("{{targets: {{{slack}}}, rules: [{{to: [nobody]}}]}}"),
            1,
            "there is no notification target `nobody`",
        ),
        ("{rules: [{to: [ops]}]}".to_owned(), 1, "there is no notification target `ops`"),
        (format!("{{targets: {{{slack}}}, rules: [{{to: []}}]}}"), 1, ""),
        (format!("{{targets: {{{slack}}}, rules: [{{to: [ops], kinds: [job_fail]}}]}}"), 1, "job_failed"),
        (
            format!("{{targets: {{{slack}}}, rules: [{{to: [ops], kinds: [job_failed], severity: critical}}]}}"),
            0,
            "this rule selects no incident",
        ),
        ("{targets: {a: {type: pager}}}".to_owned(), 1, "pager"),
        (
            "{targets: {a: {type: discord, channel_id: '1'}}}".to_owned(),
            0,
            "the environment variable DISCORD_BOT_TOKEN of this target is not set",
        ),
        ("{targets: {a: {type: webhook, url: 'http://10.0.0.7/'}}}".to_owned(), 1, "10.0.0.7 is not a public address"),
        ("{targets: {a: {type: webhook, url: 'http://10.0.0.7/', allow_private: true}}}".to_owned(), 0, ""),
        (
            "{targets: {a: {type: email, server: mail.example, from: a@b.example, to: [c]}}}".to_owned(),
            1,
            "is not the address of a mailbox",
        ),
        (
            "{targets: {a: {type: email, server: mail.example, from: a@b.example, to: [c@d.example], username: u}}}"
                .to_owned(),
            1,
            "`username` needs `password_env`",
        ),
        (
            "{targets: {a: {type: email, server: mail.example, from: a@b.example, to: [c@d.example], username: u, password_env: SET, security: none}}}"
                .to_owned(),
            1,
            "the password would be sent without encryption",
        ),
        ("{targets: {a: {type: command, command: [x], timeout: 2m}}}".to_owned(), 1, "at most 1m"),
        (
            "{quiet_hours: {start: '08:00', end: '08:00'}}".to_owned(),
            1,
            "these quiet hours never end",
        ),
        ("{quiet_hours: {start: '8', end: '09:00'}}".to_owned(), 1, "is not a time of day"),
        ("{disk_low: lots}".to_owned(), 1, "is not a size"),
    ] {
        let (found, text) = problems(&format!("agents: []\nnotify: {notify}\n"));
        assert_eq!(found, errors, "{notify}: {text}");
        assert!(text.contains(expected), "{notify}: {text}");
        assert_eq!(text.is_empty(), expected.is_empty() && errors == 0, "{notify}: {text}");
    }
}

#[test]
fn rules_of_agents_and_schedules_name_targets_of_the_root_file() {
    let config = "
notify: {targets: {ops: {type: slack, channel_id: C1}}}
defaults: {notify: {rules: [{to: [ops]}]}}
agents:
  - name: a
    notify: {rules: [{to: [ops, pager]}]}
    schedules:
      s: {type: manual, prompt: x, notify: {rules: [{to: [oops]}]}}
  - {name: b}
";
    let (errors, text) = problems(config);
    assert_eq!(errors, 2, "{text}");
    assert!(text.contains("there is no notification target `pager`"), "{text}");
    assert!(text.contains("there is no notification target `oops`"), "{text}");
}

#[test]
fn notify_of_a_fleet_below_has_no_effect() {
    let loaded = load_files(
        &[
            ("cowhand.yaml", "fleets: [{path: below/cowhand.yaml}]\n"),
            ("below/cowhand.yaml", "agents: []\nnotify: {targets: {a: {type: command, command: [x]}}}\n"),
        ],
        &[],
    );
    let text = lines(&loaded).join("\n");
    assert!(text.contains("only the root file's `notify` counts; this key has no effect"), "{text}");
}
