//! Trust in the config: errors and their positions.

use super::{lines, load_text, rendered};

#[test]
fn keys_of_trust_are_checked() {
    let problems = |agent: &str| {
        let loaded = load_text(&format!("agents:\n  - {{name: a, {agent}}}\n"));
        (loaded.errors(), lines(&loaded).join("\n"))
    };
    let hook =
        |more: &str| format!("schedules: {{s: {{type: webhook, prompt: x, allow_unsigned: true{more}}}}}");
    let signed = |more: &str| format!("schedules: {{s: {{type: webhook, prompt: x, secret: xyz{more}}}}}");
    let contradiction = "sandbox: {kind: landlock, network: {ports: [443]}}, trust: {strangers: sandbox}";
    for (agent, errors, word) in [
        ("trust: {allow_authors: [ann, 'renovate[bot]']}".to_owned(), 0, ""),
        ("trust: {min_permission: maintain, strangers: sandbox, forks: allow}".to_owned(), 0, ""),
        ("trust: {strangers: sandbox, sandbox: bubblewrap}".to_owned(), 0, ""),
        ("trust: {}".to_owned(), 1, "to define who is trusted"),
        ("trust: {forks: refuse}".to_owned(), 1, "to define who is trusted"),
        ("trust: {min_permission: push}".to_owned(), 1, "push"),
        ("trust: {min_permission: [write]}".to_owned(), 1, ""),
        ("trust: {allow_authors: ann}".to_owned(), 1, ""),
        ("trust: {strangers: trusted}".to_owned(), 1, "trusted"),
        ("trust: {min_permissions: write}".to_owned(), 1, "min_permission"),
        ("trust: {min_permission: write, api_url: example.com}".to_owned(), 1, ""),
        (
            "trust: {strangers: sandbox, sandbox: {kind: landlock, network: {hosts: [a.com]}}}".to_owned(),
            1,
            "Landlock can restrict ports",
        ),
        (contradiction.to_owned(), 0, ""),
        ("trust: {strangers: sandbox, sandbox: none}".to_owned(), 1, "cannot have `kind: none`"),
        (hook(""), 0, ""),
        (hook(", trust: {allow_authors: [ann]}"), 0, "so the trust rules trust nobody"),
        (format!("trust: {{allow_authors: [ann]}}, {}", hook("")), 0, "so the trust rules trust nobody"),
        (hook(", trust: {forks: allow}"), 1, "to define who is trusted"),
        (
            signed(", trust: {min_permission: write, auth: {app: {id: '7', private_key_env: K}}}"),
            1,
            "list your repositories in `trust.repos`",
        ),
        (
            signed(
                ", trust: {min_permission: write, repos: [o/*], auth: {app: {id: '7', private_key_env: K}}}",
            ),
            0,
            "",
        ),
        ("trust: {min_permission: write, repos: [nothing]}".to_owned(), 1, ""),
    ] {
        let (count, text) = problems(&agent);
        assert_eq!(count, errors, "{agent}: {text}");
        assert!(text.contains(word), "{agent}: {text}");
    }
}

/// A user of a chat is named with its platform, so that nobody can register a login that is the same text.
#[test]
fn users_of_a_chat_are_trusted_with_their_platform() {
    let slack = "chat: {slack: {users: [UANN], operators: [UOLGA], dm: {allowlist: [UFRIEND]}, channels: [{id: C1}]}},";
    let discord = "chat: {discord: {bot_token_env: T, users: [1], guilds: [{id: 2, channels: [{id: 3}]}]}},";
    let (id, snowflake) = ("U012AB3CD", "123456789012345678");
    for (chat, author, help) in [
        (slack, "slack:U012AB3CD", ""),
        (slack, "slack:UANN", ""),
        (slack, "ann", ""),
        (slack, "u012ab3cd", ""),
        (slack, "UNICORNS", ""),
        (slack, snowflake, ""),
        (slack, id, "write `slack:U012AB3CD` for the user; write a login in lowercase letters"),
        (slack, "UANN", "write `slack:UANN`"),
        (slack, "UOLGA", "write `slack:UOLGA`"),
        (slack, "UFRIEND", "write `slack:UFRIEND`"),
        (slack, "Slack:U1", "write `slack:U1`"),
        (slack, "'slack:'", "`slack:` needs the id of a user: `slack:ID`"),
        (discord, snowflake, "write `discord:123456789012345678`"),
        (discord, "1", "write `discord:1`"),
        (discord, id, ""),
        ("", id, ""),
        ("", snowflake, ""),
        ("", "DISCORD:1", "write `discord:1`"),
    ] {
        let check = |config: String| {
            let loaded = load_text(&config);
            assert_eq!(
                loaded.problems.len(),
                usize::from(!help.is_empty()),
                "{config}: {}",
                rendered(&loaded)
            );
            assert_eq!(loaded.errors(), loaded.problems.len(), "{config}: {}", rendered(&loaded));
            assert!(rendered(&loaded).contains(help), "{config}: {}", rendered(&loaded));
        };
        check(format!("agents:\n  - {{name: a, {chat} trust: {{allow_authors: [{author}]}}}}\n"));
        let schedule = format!("{{type: manual, trust: {{allow_authors: [{author}]}}}}");
        check(format!("agents:\n  - {{name: a, {chat} schedules: {{s: {schedule}}}}}\n"));
    }
}

/// Each warning names the authors, and the key to set. There is no warning if the key is set, or if the prompt does not
/// use the text of these authors.
#[test]
fn prompts_with_text_of_strangers_are_reported() {
    let problems = |schedule: &str, agent: &str| {
        let text = format!("agents:\n  - {{name: a, schedules: {{s: {{{schedule}}}}}{agent}}}\n");
        let loaded = load_text(&text);
        assert_eq!(loaded.errors(), 0, "{text}: {:?}", lines(&loaded));
        lines(&loaded).join("\n")
    };
    let issues = "type: github_issues, owner: o, repo: r, prompt: 'Do {{issue.title}}'";
    let pulls = "type: github_pull_requests, owner: o, repo: r, prompt: '{{body}}'";
    let comments =
        "type: webhook, secret: xyz, events: [issue_comment.created], prompt: '{{payload.comment.body}}'";
    let notes = "type: webhook, secret: xyz, events: ['Note Hook'], prompt: '{{body}}'";
    for (schedule, from) in [
        (issues, "whoever can open an issue"),
        (pulls, "whoever can open a pull request"),
        (comments, "whoever can write in the repository's issues, pull requests or discussions"),
        (notes, "whoever can write in the repository's issues, pull requests or discussions"),
    ] {
        let text = problems(schedule, "");
        assert!(
            text.contains(from) && text.contains("set `trust` to limit the authors"),
            "{schedule}: {text}"
        );
        for held in [
            ", trust: {min_permission: write}",
            ", trust: {strangers: allow}",
            ", sandbox: {kind: bubblewrap, credentials: outside}",
        ] {
            assert_eq!(problems(schedule, held), "", "{schedule} {held}");
        }
        assert_eq!(problems(&format!("{schedule}, trust: {{allow_authors: [ann]}}"), ""), "");
    }
    for own in [
        "type: github_issues, owner: o, repo: r, prompt: 'Look at {{issue.number}}'",
        "type: webhook, secret: xyz, events: [push], prompt: '{{payload.ref}}'",
        "type: webhook, secret: xyz, prompt: '{{payload.build}}'",
        "type: cron, cron: '@daily', prompt: '{{date}}'",
    ] {
        assert_eq!(problems(own, ""), "", "{own}");
    }
}
