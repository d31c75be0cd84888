//! herdctl's `web`: the address of the server.

use super::{lines, load_files};

#[test]
fn web_host_and_port_set_the_listen_address() {
    let agent = "agents: [{name: a, default_prompt: Go.}]\n";
    for (text, listen, word) in [
        ("web: {enabled: true}", "127.0.0.1:3232", ""),
        ("web: {enabled: true, port: 4000}", "127.0.0.1:4000", ""),
        ("web: {port: 4000, host: localhost}", "127.0.0.1:4000", ""),
        ("web: {host: 0.0.0.0}", "0.0.0.0:3232", ""),
        ("web: {host: '::1', port: 4000}", "[::1]:4000", ""),
        ("web: {host: example.com}", "127.0.0.1:3232", "`example.com` is not an address to listen on"),
        ("web: {enabled: false}", "127.0.0.1:3232", "`server: {enabled: false}` turns all of it off"),
        (
            "server: {listen: 127.0.0.1:5000}\nweb: {port: 4000}",
            "127.0.0.1:5000",
            "`web.port` has no effect, because `server.listen` is set",
        ),
        ("web: {session_expiry_hours: 12}", "127.0.0.1:3232", "the dashboard has no such setting"),
    ] {
        for file in ["cowhand.yaml", "herdctl.yaml"] {
            let loaded = load_files(&[(file, &format!("{agent}{text}\n"))], &[]);
            let helps = loaded.problems.iter().filter_map(|problem| problem.help.clone());
            let messages = lines(&loaded).into_iter().chain(helps).collect::<Vec<_>>().join("\n");
            assert_eq!(loaded.roster.server.listen.to_string(), listen, "{text}: {messages}");
            assert_eq!((loaded.errors(), messages.is_empty()), (0, word.is_empty()), "{text}: {messages}");
            assert!(messages.contains(word), "{text}: {messages}");
        }
    }
    let sub = ("sub/cowhand.yaml", "web: {port: 4000}");
    let loaded =
        load_files(&[("cowhand.yaml", &format!("{agent}fleets: [{{path: sub/cowhand.yaml}}]")), sub], &[]);
    assert_eq!(loaded.roster.server.listen.port(), 3232);
    assert_eq!(
        lines(&loaded),
        ["sub/cowhand.yaml:1:1 warning: only the root file's `web` counts; this key has no effect"]
    );
}

#[test]
fn a_refused_unsigned_webhook_is_reported() {
    let agent = |secret: &str| {
        format!("agents: [{{name: a, schedules: {{s: {{type: webhook, prompt: x{secret}}}}}}}]\n")
    };
    for (server, secret, is_refused) in [
        ("server: {listen: 0.0.0.0:3232}", ", allow_unsigned: true", true),
        ("web: {host: 192.0.2.7}", ", allow_unsigned: true", true),
        ("server: {listen: 0.0.0.0:3232, enabled: false}", ", allow_unsigned: true", false),
        ("server: {listen: '[::1]:3232'}", ", allow_unsigned: true", false),
        ("", ", allow_unsigned: true", false),
        ("server: {listen: 0.0.0.0:3232}", ", allow_unsigned: true, secret: x", false),
        ("server: {listen: 0.0.0.0:3232}", ", secret: x", false),
    ] {
        let loaded = load_files(&[("cowhand.yaml", &format!("{}{server}\n", agent(secret)))], &[]);
        let messages = lines(&loaded).join("\n");
        assert_eq!(loaded.errors(), 0, "{server} {secret}: {messages}");
        let word = "its deliveries are refused: `allow_unsigned` has an effect only on loopback";
        assert_eq!(messages.contains(word), is_refused, "{server} {secret}: {messages}");
        let advice = "set `server.listen` to 127.0.0.1:3232";
        assert_eq!(messages.contains(advice), is_refused, "{server} {secret}: {messages}");
    }
}
