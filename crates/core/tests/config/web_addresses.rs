//! Passwords in the web addresses of the config.

use super::{load_text, rendered};

/// Returns a config in which a hook or an MCP server has this address.
fn configs(address: &str) -> [String; 2] {
    let agent = "agents:\n  - name: a\n    default_prompt: Go.\n";
    [
        format!("{agent}    hooks: {{after_run: [{{type: webhook, url: '{address}'}}]}}\n"),
        format!("{agent}    mcp_servers: {{m: {{url: '{address}'}}}}\n"),
    ]
}

#[test]
fn unescaped_passwords_of_web_addresses_are_not_shown() {
    for sign in ["/", "?", "#", "@/", "@"] {
        for text in configs(&format!("http://me:can{sign}ary@host/")) {
            let loaded = load_text(&text);
            let shown = format!("{}{}", loaded.shown, rendered(&loaded));
            assert!(!shown.contains("can") && !shown.contains("ary"), "{text}: {shown}");
        }
    }
    // A key with a mistake on the same line.
    for text in configs("http://me:can/ary@host/', unknown: 'x") {
        let report = rendered(&load_text(&text));
        assert!(!report.contains("can/ary"), "{report}");
    }
}

#[test]
fn unescaped_password_of_a_hook_is_refused() {
    for (address, expected) in [
        ("http://me:can/ary@host/", "in a user or a password, `/` is written %2F"),
        ("ftp://me:canary@host/", "this is not a web address; for example https://example.com/hook"),
        ("http://me:can ary@host/", "this is not a web address; for example https://example.com/hook"),
    ] {
        let [hook, _] = configs(address);
        let report = rendered(&load_text(&hook));
        assert!(report.contains(expected) && !report.contains("ary"), "{report}");
    }
    let [hook, _] = configs("http://me:can%2Fary@host:80/%40team");
    assert_eq!(load_text(&hook).errors(), 0);
}
