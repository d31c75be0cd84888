//! Passwords in the web addresses of the config.

use super::{lines, load_files, load_text, rendered};

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
            let shown = format!("{}{}", loaded.shown.value(), rendered(&loaded));
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

/// The value is not shown, because a part of it may be a password.
#[test]
fn passwords_of_mistyped_addresses_are_not_shown() {
    for address in [
        "http:/u:hunter22@host",
        "http:u:hunter22@host",
        "http:\\\\u:hunter22@host",
        "tu:hunter22@host",
        "//u:hunter22@host",
        "http://u:hunter22 x@host",
        "http://u:<hunter22@host",
        "http://u:1234/hunter22@host/x",
    ] {
        for (key, text) in [
            ("hook", format!("hooks: {{after_run: [{{type: webhook, url: '{address}', x: 1}}]}}")),
            ("mcp", format!("mcp_servers: {{m: {{url: '{address}', x: 1}}}}")),
            ("api_url", format!("work_source: {{type: github, repo: o/r, api_url: '{address}', x: 1}}")),
        ] {
            let loaded = load_text(&format!("agents:\n  - name: a\n    {text}\n"));
            let found = format!("{}{}", rendered(&loaded), loaded.shown.value());
            assert!(loaded.errors() > 0 && !found.contains("hunter22"), "{key} {address}: {found}");
            let loaded = load_text(&format!("agents:\n  - name: a\n    {}\n", text.replace(", x: 1", "")));
            let found = format!("{}{}", rendered(&loaded), loaded.shown.value());
            assert!(!found.contains("hunter22"), "{key} {address}: {found}");
            let is_known = loaded.roster.url_passwords.iter().any(|known| known.contains("hunter22"));
            assert!(loaded.errors() > 0 || is_known, "{key} {address}");
        }
        let loaded = load_text(&format!("traces: {{endpoint: '{address}'}}\nagents: []\n"));
        let found = format!("{}{}", rendered(&loaded), loaded.shown.value());
        assert!(loaded.errors() > 0 && !found.contains("hunter22"), "traces {address}: {found}");
    }
}

/// The library that connects to the store accepts these characters.
#[test]
fn passwords_with_unusual_characters_are_known_secrets() {
    for sign in ["<", ">", "`", " ", "\"", "\t"] {
        let address = format!("postgres://u:hunter{sign}22@h/x");
        let loaded = load_text(&format!("store: '{address}'\nagents: []\n"));
        assert_eq!(loaded.errors(), 0, "{}", rendered(&loaded));
        let known = &loaded.roster.url_passwords;
        assert!(known.contains(&format!("hunter{sign}22")), "{address}: {known:?}");
    }
}

/// A hook without `allow_private` never reaches an address that is private as it is written. The message does not
/// contain the password of the address. In a fleet of herdctl this is only a warning.
#[test]
fn webhook_to_a_private_address_is_a_mistake() {
    let hook = |url: &str, more: &str| {
        format!("agents:\n  - name: a\n    hooks: {{on_error: [{{type: webhook, url: '{url}'{more}}}]}}\n")
    };
    for url in
        ["http://127.0.0.1:9/x", "http://localhost/x", "https://me:canary@[::1]/", "http://2130706433/"]
    {
        let loaded = load_text(&hook(url, ""));
        assert_eq!(loaded.errors(), 1, "{url}: {:?}", lines(&loaded));
        let problem = &loaded.problems[0];
        assert_eq!(problem.key, "agents[0].hooks.on_error[0].url", "{url}");
        assert!(problem.message.contains(" is not a public address"), "{}", problem.message);
        assert!(!rendered(&loaded).contains("canary"), "{}", rendered(&loaded));
        assert_eq!(load_text(&hook(url, ", allow_private: true")).errors(), 0, "{url}");
    }
    assert_eq!(load_text(&hook("https://example.com/x", "")).errors(), 0);
    let agent = "name: a\nhooks: {after_run: [{type: webhook, url: 'http://127.0.0.1:9/x'}]}\n";
    let fleet = "version: 1\nagents: [{path: a.yaml}]\n";
    let loaded = load_files(&[("herdctl.yaml", fleet), ("a.yaml", agent)], &[]);
    let found = lines(&loaded);
    assert!(
        loaded.errors() == 0 && found.iter().any(|line| line.contains("is not a public address")),
        "{found:?}"
    );
}
