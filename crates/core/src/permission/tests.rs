use serde_json::json;

use super::*;

mod hidden_commands;

fn permissions(allow: &[&str], ask: &[&str], deny: &[&str]) -> Permissions {
    let rules =
        |list: &[&str]| (!list.is_empty()).then(|| list.iter().map(|rule| rule.parse().unwrap()).collect());
    Permissions { allow: rules(allow), ask: rules(ask), deny: rules(deny) }
}

fn of_command(rules: &Permissions, command: &str) -> ToolVerdict {
    decide(Some(rules), None, "Bash", &json!({ "command": command }))
}

const DENIED: fn(&str) -> ToolVerdict = |rule| ToolVerdict::Deny { rule: rule.to_owned() };

/// Commands that no rule for `cargo *` allows. Each of them runs, or may run in some shell, something other than
/// `cargo` with the arguments as they are written.
const HOSTILE: [&str; 92] = [
    "cargo x && rm -rf /",
    "cargo x&&rm -rf /",
    "cargo x || rm -rf /",
    "cargo x ; rm -rf /",
    "cargo x;rm -rf /",
    "cargo x | sh",
    "cargo x |& sh",
    "cargo x & rm -rf /",
    "cargo x &",
    "cargo x\nrm -rf /",
    "cargo x\r\nrm -rf /",
    "cargo x\rrm -rf /",
    "\ncargo x\nrm",
    "cargo $(rm -rf /)",
    "cargo \"$(rm -rf /)\"",
    "cargo `rm -rf /`",
    "cargo \"`rm -rf /`\"",
    "cargo <(rm -rf /)",
    "cargo >(rm -rf /)",
    "cargo x > /etc/passwd",
    "cargo x >> ~/.bashrc",
    "cargo x 2>/dev/sda",
    "cargo x &> file",
    "cargo x < /etc/shadow",
    "cargo x << EOF\nrm\nEOF",
    "cargo x <<< rm",
    "cargo $x",
    "cargo ${x}",
    "cargo \"$x\"",
    "cargo${IFS}x;rm",
    "cargo$IFS$9x",
    "cargo $((1+1))",
    "cargo $'\\x3b rm'",
    "cargo $\"x\"",
    "$CARGO x",
    "${CARGO:-rm} x",
    "carg? x",
    "carg[o] x",
    "*cargo x",
    "ca*",
    "/usr/bin/carg* x",
    "~/cargo x",
    "~root/bin/cargo x",
    "cargo\\\n x; rm",
    "cargo x \\\n&& rm",
    "\\\ncargo x",
    "{cargo,x}",
    "cargo {a,b}",
    "cargo {1..9}",
    "{ cargo x; }",
    "(cargo x)",
    "((cargo))",
    "PATH=. cargo x",
    "RUSTC_WRAPPER=/tmp/evil cargo build",
    "A=1 B=2 cargo x",
    "A+=1 cargo x",
    "env cargo x",
    "/usr/bin/env cargo x",
    "env -S 'cargo x'",
    "sudo cargo x",
    "doas cargo x",
    "sh -c 'cargo x'",
    "bash -lc \"cargo x\"",
    "/bin/sh -c cargo",
    "eval cargo x",
    "xargs cargo",
    "exec cargo x",
    "command cargo x",
    "builtin cargo",
    "nohup cargo x",
    "timeout 5 cargo x",
    "time cargo x",
    "! cargo x",
    "cargo() { rm -rf /; }",
    "function cargo { rm; }",
    "cargo () rm",
    "# cargo x",
    "cargo x # rm",
    "if cargo x; then rm; fi",
    "while cargo x; do rm; done",
    "cargo\u{a0}x",
    "cargo\u{2003}x",
    "cargo\u{3000}x; rm",
    "\u{feff}cargo x",
    "cargo x\0",
    "car\0go x",
    "\u{441}argo x",
    "./cargo x",
    "/tmp/cargo x",
    "'cargo x'",
    "cargo 'x",
    "cargo \"x",
];

const HONEST: [&str; 17] = [
    "cargo test",
    "cargo",
    "  cargo   test  ",
    "cargo\ttest",
    "cargo test --package core -- --nocapture",
    "cargo build --features=a,b",
    "cargo test 'name with spaces'",
    "cargo test \"it's fine\"",
    "cargo run -- 'a && b; rm | c > d $(e)'",
    "cargo run -- \"a && b; rm | c\"",
    "cargo run -- a\\ b\\;c",
    "cargo run -- \"\\$HOME\"",
    "\"cargo\" test",
    "c'arg'o test",
    "\\cargo test",
    "cargo fmt -- src/*.rs",
    "cargo run -- 'two\nlines' \"größe\"",
];

#[test]
fn hostile_commands_do_not_match_an_allow_rule() {
    let rules = permissions(&["Bash(cargo *)"], &[], &[]);
    for command in HOSTILE {
        assert_eq!(of_command(&rules, command), ToolVerdict::Ask, "{command:?}");
    }
    for command in HONEST {
        assert_eq!(of_command(&rules, command), ToolVerdict::Allow, "{command:?}");
    }
    let long = format!("cargo {}", "x ".repeat(20_000));
    assert_eq!(of_command(&rules, &long), ToolVerdict::Ask);
}

#[test]
fn patterns_are_compared_word_by_word() {
    for (rule, command, expected) in [
        ("Bash(cargo test)", "cargo test", true),
        ("Bash(cargo test)", "cargo test --release", false),
        ("Bash(cargo test)", "cargo 'test'", true),
        ("Bash(cargo test *)", "cargo testing", false),
        ("Bash(cargo t*)", "cargo test", true),
        ("Bash(cargo t*)", "cargo test x", false),
        ("Bash(git:*)", "git status -s", true),
        ("Bash(git log:*)", "git log", true),
        ("Bash(git log:*)", "git push", false),
        ("Bash(git * --dry-run)", "git push origin main --dry-run", true),
        ("Bash(git * --dry-run)", "git push origin main", false),
        ("Bash(ls *)", "ls *.rs", true),
        ("Bash(ls a*)", "ls a*", false),
        ("Bash(ls a*z)", "ls abcz", true),
        ("Bash(ls a*b*z)", "ls abz", true),
        ("Bash(ls a*b*z)", "ls azb", false),
        ("Bash(*)", "anything at all", true),
        ("Bash(*)", "anything; else", false),
        ("Bash(find *)", "find . -name x", true),
        ("Bash(find *)", "find . -exec rm x", false),
        ("Bash(find *)", "find . *", false),
        ("Bash(sudo *)", "sudo ls", false),
        ("Bash", "rm -rf / && echo", true),
    ] {
        let verdict = of_command(&permissions(&[rule], &[], &[]), command);
        assert_eq!(verdict == ToolVerdict::Allow, expected, "{rule} {command}");
    }
}

#[test]
fn the_stricter_rule_wins() {
    let agent =
        permissions(&["Read", "Bash(cargo *)", "mcp__files__*"], &["mcp__files__write"], &["WebFetch"]);
    let none = json!({});
    for (tool, expected) in [
        ("Read", ToolVerdict::Allow),
        ("read", ToolVerdict::Ask),
        ("Reading", ToolVerdict::Ask),
        ("mcp__files__read", ToolVerdict::Allow),
        ("mcp__files__write", ToolVerdict::Ask),
        ("mcp__file", ToolVerdict::Ask),
        ("WebFetch", DENIED("WebFetch")),
        ("webfetch", DENIED("WebFetch")),
        ("Write", ToolVerdict::Ask),
        ("Bash", ToolVerdict::Ask),
        ("", ToolVerdict::Ask),
    ] {
        assert_eq!(decide(Some(&agent), None, tool, &none), expected, "{tool}");
    }
    let (narrow, forbids) = (permissions(&["Read"], &[], &[]), permissions(&[], &[], &["Read"]));
    let wide = permissions(&["*"], &[], &[]);
    let nothing = Permissions { allow: Some(Vec::new()), ..Permissions::default() };
    for (agent, schedule, tool, expected) in [
        (None, None, "Read", ToolVerdict::Ask),
        (Some(&agent), Some(&narrow), "Read", ToolVerdict::Allow),
        (Some(&agent), Some(&narrow), "mcp__files__read", ToolVerdict::Ask),
        (Some(&agent), Some(&wide), "Write", ToolVerdict::Ask),
        (Some(&agent), Some(&wide), "WebFetch", DENIED("WebFetch")),
        (Some(&agent), Some(&forbids), "Read", DENIED("Read")),
        (Some(&agent), Some(&forbids), "mcp__files__read", ToolVerdict::Allow),
        (Some(&agent), Some(&nothing), "Read", ToolVerdict::Ask),
        (Some(&Permissions::default()), Some(&wide), "Read", ToolVerdict::Ask),
        (None, Some(&wide), "Write", ToolVerdict::Allow),
        (None, Some(&forbids), "Write", ToolVerdict::Ask),
    ] {
        assert_eq!(decide(agent, schedule, tool, &none), expected, "{tool} {schedule:?}");
    }
}

#[test]
fn other_input_fields_of_a_shell_tool_are_checked() {
    let rules = permissions(&["Bash(cargo *)"], &[], &[]);
    for (input, expected) in [
        (json!({ "command": "cargo x", "description": "d", "timeout": 5 }), ToolVerdict::Allow),
        (json!({ "command": "cargo x", "dangerouslyDisableSandbox": true }), ToolVerdict::Ask),
        (json!({ "command": ["cargo", "x"] }), ToolVerdict::Ask),
        (json!({ "command": 7 }), ToolVerdict::Ask),
        (json!("cargo x"), ToolVerdict::Ask),
        (json!(null), ToolVerdict::Ask),
    ] {
        assert_eq!(decide(Some(&rules), None, "Bash", &input), expected, "{input}");
    }
    let rules = permissions(&["Bash"], &[], &["Bash(rm *)"]);
    for (input, denied) in [
        (json!({ "command": ["bash", "-lc", "ls; rm x"] }), true),
        (json!({ "command": ["ls", "rm"] }), false),
        // No shell reads the words, so none of them is an assignment.
        (json!({ "command": ["A=1", "rm", "x"] }), false),
        (json!({ "command": ["env", "A=1", "rm", "x"] }), true),
        (json!({ "command": ["./a=b/rm", "x"] }), true),
        (json!({ "command": [7] }), true),
        (json!({ "script": "rm x" }), true),
    ] {
        let verdict = decide(Some(&rules), None, "Bash", &input);
        assert_eq!(verdict == DENIED("Bash(rm *)"), denied, "{input}");
    }
}

#[test]
fn invalid_permission_rules_are_refused() {
    for (text, message) in [
        ("", r#""" names no tool; for example Read, Bash(cargo *) or mcp__files__*"#),
        ("Bash(cargo *", r#""Bash(cargo *" has no `)` at its end; for example Bash(cargo *)"#),
        ("Bash()", r#""Bash()" has an empty pattern; without the brackets it means every command"#),
        (
            "Read(src/*)",
            "\"Read\" is no shell tool, and only those have patterns (Bash, bash, shell, local_shell, run_shell_command, execute)",
        ),
        (
            "Bash(cargo * && ls)",
            "\"cargo * && ls\" contains '&': a pattern is compared with the words of one plain command, which cannot contain this character",
        ),
        (
            "Bash(git commit -m \"x\")",
            "\"git commit -m \\\"x\\\"\" contains '\"': a pattern is compared with the words of one plain command, which cannot contain this character",
        ),
        ("Re ad", r#""Re ad" names no tool; for example Read, Bash(cargo *) or mcp__files__*"#),
    ] {
        assert_eq!(text.parse::<Rule>().unwrap_err().to_string(), message, "{text}");
    }
    let rule: Rule = serde_json::from_str(r#"" Bash(cargo *) ""#).unwrap();
    assert_eq!(serde_json::to_string(&rule).unwrap(), r#""Bash(cargo *)""#);
}
