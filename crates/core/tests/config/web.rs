//! herdctl's `web`: the address of the server, and defaults of the web chat. The key `web_chat`.

use cowhand_core::shape::MessageGrouping;
use jiff::SignedDuration;

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
        ("web: {session_expiry_hours: 12}", "127.0.0.1:3232", ""),
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
        let helps = loaded.problems.iter().filter_map(|problem| problem.help.as_deref());
        assert_eq!(helps.collect::<String>().contains(advice), is_refused, "{server} {secret}: {messages}");
    }
}

#[test]
fn web_chat_is_on_unless_the_config_turns_it_off() {
    use MessageGrouping::{Grouped, Separate};
    let settings = |fleet: &str, agent: &str| {
        let text = format!("agents: [{{name: a, default_prompt: Go.{agent}}}]\n{fleet}\n");
        let loaded = load_files(&[("cowhand.yaml", &text)], &[]);
        assert_eq!(lines(&loaded), [] as [&str; 0], "{text}");
        let chat = loaded.roster.agents[0].web_chat.clone();
        chat.map(|chat| (chat.session_expires.as_hours(), chat.tool_results, chat.grouping))
    };
    for (fleet, agent, expected) in [
        ("", "", Some((24, true, Separate))),
        ("", ", web_chat: {enabled: false}", None),
        ("defaults: {web_chat: {enabled: false}}", "", None),
        (
            "defaults: {web_chat: {enabled: false, tool_results: false}}",
            ", web_chat: {enabled: true}",
            Some((24, false, Separate)),
        ),
        (
            "web: {enabled: true, session_expiry_hours: 12, tool_results: false, message_grouping: grouped}",
            "",
            Some((12, false, Grouped)),
        ),
        (
            "web: {session_expiry_hours: 12}\ndefaults: {web_chat: {session_expiry_hours: 13}}",
            "",
            Some((13, true, Separate)),
        ),
        (
            "web: {session_expiry_hours: 12}",
            ", web_chat: {session_expiry_hours: 14}",
            Some((14, true, Separate)),
        ),
    ] {
        assert_eq!(settings(fleet, agent), expected, "{fleet} {agent}");
    }
    let wrong = "agents: [{name: a, default_prompt: Go., web_chat: {session_expiry_hours: 0, message_grouping: none, more: 1}}]\n";
    let loaded = load_files(&[("cowhand.yaml", wrong)], &[]);
    let found = lines(&loaded).join("\n");
    for word in ["0 is too small", "`none` is not one of `separate` or `grouped`", "more"] {
        assert!(found.contains(word), "{word}: {found}");
    }
    let taken = "agents: [{name: a, schedules: {web-chat: {type: manual, prompt: x}}}]\n";
    let loaded = load_files(&[("cowhand.yaml", taken)], &[]);
    assert_eq!(loaded.roster.agents[0].web_chat, None);
    assert!(
        lines(&loaded).join("\n").contains("warning: the agent cannot be used in the web chat"),
        "{:?}",
        lines(&loaded)
    );
}

#[test]
fn only_the_web_of_the_root_file_has_defaults_of_the_web_chat() {
    let root = "web: {session_expiry_hours: 12}\nfleets: [{path: sub/cowhand.yaml}]\n";
    let sub = "agents: [{name: a, default_prompt: Go.}]\nweb: {session_expiry_hours: 99}\n";
    let loaded = load_files(&[("cowhand.yaml", root), ("sub/cowhand.yaml", sub)], &[]);
    let chat = loaded.roster.agents[0].web_chat.clone().unwrap();
    assert_eq!(chat.session_expires, SignedDuration::from_hours(12));
}
