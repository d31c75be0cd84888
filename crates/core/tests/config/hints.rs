//! The most frequent mistakes: each is reported at its own line, with a correct form.

use std::fmt::Write as _;

use super::mistakes::{agent, schedule};
use super::{lines, load_text, rendered};

fn cases() -> Vec<(&'static str, String)> {
    let command = |command: &str| agent(&format!("runtime: command\ncommand: {command}"));
    vec![
        ("an unquoted *", agent("schedules:\n  s:\n    type: cron\n    cron: * * * * *\n    prompt: Go.")),
        ("an unquoted */5", agent("schedules:\n  s:\n    type: cron\n    cron: */5 * * * *\n    prompt: Go.")),
        ("an unquoted * in { }", schedule("{type: cron, cron: * * * * *, prompt: Go.}")),
        ("an unquoted @daily", agent("schedules:\n  s:\n    type: cron\n    cron: @daily\n    prompt: Go.")),
        ("an unquoted @daily in { }", schedule("{type: cron, cron: @daily, prompt: Go.}")),
        ("an unquoted {{", agent("schedules:\n  s:\n    type: manual\n    prompt: {{title}}")),
        ("text after an unquoted {{", agent("schedules:\n  s:\n    type: manual\n    prompt: {{title}} now")),
        ("an unquoted {{ in a list", agent("runtime: command\ncommand:\n  - echo\n  - {{title}}")),
        ("an unquoted colon", agent("default_prompt: Fix: the bug")),
        ("an unquoted colon in { }", schedule("{type: manual, prompt: Fix: this}")),
        ("a limit of zero", agent("timeout: 0s")),
        ("a backtick", agent("description: `a`")),
        ("a percent sign", agent("description: %a")),
        ("cron under interval", schedule("{type: interval, cron: 0 9 * * *, prompt: Go.}")),
        ("interval under cron", schedule("{type: cron, interval: 5m, prompt: Go.}")),
        ("expression under interval", schedule("{type: interval, expression: 0 9 * * *, prompt: Go.}")),
        ("max_concurrent on the agent", agent("max_concurrent: 3")),
        ("schedule for schedules", agent("schedule:\n  s: {type: manual}")),
        ("schedules as a list", agent("schedules:\n  - {name: s, type: manual}")),
        ("agents as a map", "agents:\n  coder:\n    model: opus\n  tester: {}\n".to_owned()),
        ("agents as names", "agents: [coder.yaml]\n".to_owned()),
        ("command as a string", command("npm test")),
        ("when_command as a string", schedule("{type: manual, when_command: test -e go, prompt: Go.}")),
        ("setup as a string", agent("isolation: {kind: worktree, setup: npm ci}")),
        ("setup with a sign of the shell", agent("isolation: {kind: worktree, setup: npm ci && make}")),
        ("args as a string", agent("mcp_servers: {m: {command: npx, args: -y server}}")),
        ("tools as a string", agent("allowed_tools: Read, Write")),
        ("an empty command", command("''")),
        ("when_command with a word of the shell", schedule("{type: manual, when_command: exit 3, prompt: Go.}")),
        ("an unclosed double quote", "agents:\n  - name: a\n    description: \"Says hello.\n    model: opus\n    system_prompt: Be brief.\n".to_owned()),
        ("an unclosed single quote", "agents:\n  - name: a\n    description: 'It is\n    model: opus\n".to_owned()),
        ("an unclosed quote before others", "agents:\n  - name: a\n    description: \"Says hello.\n    model: \"opus\"\n    system_prompt: \"Be brief.\"\n".to_owned()),
        ("an unclosed quote in { }", schedule("{type: manual, prompt: \"Go.}")),
        ("an unclosed bracket", agent("tools: [Read\nmodel: opus")),
    ]
}

/// A file, every line of its report, and the correct form.
#[test]
fn errors_show_the_correct_form() {
    let mut report = String::new();
    for (case, text) in cases() {
        let loaded = load_text(&text);
        assert!(loaded.errors() > 0, "{case}");
        writeln!(report, "{case}").unwrap();
        for (line, problem) in lines(&loaded).iter().zip(&loaded.problems) {
            writeln!(report, "  {line}\n      {}", problem.help.as_deref().unwrap_or("-")).unwrap();
        }
    }
    insta::assert_snapshot!(report);
}

/// Keys that only an agent has are not only called unknown in `defaults`.
#[test]
fn keys_of_agents_in_defaults_are_explained() {
    for line in ["runtime: codex", "command: ['true']", "env: {A: b}"] {
        let loaded = load_text(&format!("defaults:\n  {line}\nagents:\n  - name: a\n"));
        let said = rendered(&loaded).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("it belongs to each agent; `defaults` cannot contain it"), "{line}: {said}");
    }
}
