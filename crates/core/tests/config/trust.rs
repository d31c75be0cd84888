//! Trust in the config: what is wrong with it, and where.

use super::{lines, load_text};

#[test]
fn keys_of_trust() {
    let said = |agent: &str| {
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
        ("trust: {}".to_owned(), 1, "say who is trusted"),
        ("trust: {forks: refuse}".to_owned(), 1, "say who is trusted"),
        ("trust: {min_permission: push}".to_owned(), 1, "push"),
        ("trust: {min_permission: [write]}".to_owned(), 1, ""),
        ("trust: {allow_authors: ann}".to_owned(), 1, ""),
        ("trust: {strangers: trusted}".to_owned(), 1, "trusted"),
        ("trust: {min_permissions: write}".to_owned(), 1, "min_permission"),
        ("trust: {min_permission: write, api_url: example.com}".to_owned(), 1, ""),
        (
            "trust: {strangers: sandbox, sandbox: {kind: landlock, network: {hosts: [a.com]}}}".to_owned(),
            1,
            "Landlock knows ports",
        ),
        (contradiction.to_owned(), 0, ""),
        ("trust: {strangers: sandbox, sandbox: none}".to_owned(), 1, "has to be one"),
        (hook(""), 0, ""),
        (hook(", trust: {allow_authors: [ann]}"), 0, "nobody can be trusted"),
        (format!("trust: {{allow_authors: [ann]}}, {}", hook("")), 0, "nobody can be trusted"),
        (hook(", trust: {forks: allow}"), 1, "say who is trusted"),
        (
            signed(", trust: {min_permission: write, auth: {app: {id: '7', private_key_env: K}}}"),
            1,
            "name yours in `repos`",
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
        let (count, text) = said(&agent);
        assert_eq!(count, errors, "{agent}: {text}");
        assert!(text.contains(word), "{agent}: {text}");
    }
}
