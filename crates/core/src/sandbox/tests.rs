use super::*;

fn rules(text: &str) -> SandboxRules {
    serde_json::from_str::<Sandbox>(text).unwrap().rules()
}

#[test]
fn a_plain_kind_has_default_rules() {
    let asked = rules("\"landlock\"").request();
    assert_eq!((asked.kind, &asked.network), (SandboxKind::Landlock, &NetworkAccess::None));
    assert_eq!(rules("\"none\"").request().network, NetworkAccess::All);
}

#[test]
fn the_stricter_sandbox_rules_win() {
    for (agent, schedule, expected) in [
        // The stricter kind counts, and unset keys change nothing. The second image replaces the first.
        (r#""landlock""#, r#""none""#, r#"{"kind":"landlock"}"#),
        (r#""none""#, r#""landlock""#, r#"{"kind":"landlock"}"#),
        (r#""landlock""#, r#""bubblewrap""#, r#"{"kind":"bubblewrap"}"#),
        (r#""bubblewrap""#, r#""landlock""#, r#"{"kind":"bubblewrap"}"#),
        (
            r#"{"kind":"docker","image":"a","socket":"/s"}"#,
            r#""bubblewrap""#,
            r#"{"kind":"docker","image":"a","socket":"/s"}"#,
        ),
        (r#"{"kind":"bubblewrap"}"#, r#"{"kind":"docker","image":"a"}"#, r#"{"kind":"docker","image":"a"}"#),
        (
            r#"{"kind":"docker","image":"a"}"#,
            r#"{"kind":"docker","image":"b"}"#,
            r#"{"kind":"docker","image":"b"}"#,
        ),
        // The smaller limit counts, even if it is set with `kind: none`.
        (
            r#"{"kind":"landlock","pids":50}"#,
            r#"{"kind":"none","pids":20,"memory":"1GB"}"#,
            r#"{"kind":"landlock","pids":20,"memory":"1GB"}"#,
        ),
        (
            r#"{"kind":"none","cpu":2.0}"#,
            r#"{"kind":"landlock","cpu":4.0}"#,
            r#"{"kind":"landlock","cpu":2.0}"#,
        ),
        (
            r#"{"kind":"landlock","memory":"1GiB"}"#,
            r#"{"kind":"landlock","memory":"1GB"}"#,
            r#"{"kind":"landlock","memory":"1GB"}"#,
        ),
        // Only paths that both rules allow remain.
        (
            r#"{"kind":"landlock","write":["/a","/b/c"]}"#,
            r#"{"kind":"landlock","write":["/a/x","/b","/d","/ax"]}"#,
            r#"{"kind":"landlock","write":["/b/c","/a/x"]}"#,
        ),
        (
            r#"{"kind":"landlock","write":["~/a","../b"]}"#,
            r#"{"kind":"landlock","write":["~/a/../../etc","~/a/..","~/a/x","../b","../b/c","../b/../c"]}"#,
            r#"{"kind":"landlock","write":["../b","~/a/x","../b/c"]}"#,
        ),
        (
            r#"{"kind":"landlock","read":["/a"]}"#,
            r#"{"kind":"landlock"}"#,
            r#"{"kind":"landlock","read":["/a"]}"#,
        ),
        // Only ports and hosts that both rules allow remain, and `outside` is stricter than `inside`.
        (
            r#"{"kind":"landlock","network":"on"}"#,
            r#"{"kind":"landlock","network":{"ports":[443]}}"#,
            r#"{"kind":"landlock","network":{"ports":[443]}}"#,
        ),
        (
            r#"{"kind":"landlock","network":{"ports":[80,443]}}"#,
            r#"{"kind":"landlock","network":{"ports":[443,22]}}"#,
            r#"{"kind":"landlock","network":{"ports":[443]}}"#,
        ),
        (
            r#"{"kind":"bubblewrap","network":{"hosts":["*.a.com","b.com:80"]}}"#,
            r#"{"kind":"bubblewrap","network":{"hosts":["x.a.com","b.com","c.com"]}}"#,
            r#"{"kind":"bubblewrap","network":{"hosts":["x.a.com"]}}"#,
        ),
        (
            r#"{"kind":"landlock","network":{"ports":[80]}}"#,
            r#"{"kind":"bubblewrap","network":{"hosts":["a.com","b.com:80"]}}"#,
            r#"{"kind":"bubblewrap","network":{"hosts":["b.com:80"]}}"#,
        ),
        (
            r#"{"kind":"bubblewrap","network":{"hosts":["a.com"]}}"#,
            r#"{"kind":"bubblewrap","network":"off"}"#,
            r#"{"kind":"bubblewrap","network":"off"}"#,
        ),
        (
            r#"{"kind":"bubblewrap","credentials":"outside"}"#,
            r#"{"kind":"bubblewrap","credentials":"inside"}"#,
            r#"{"kind":"bubblewrap","credentials":"outside"}"#,
        ),
    ] {
        assert_eq!(rules(agent).and(rules(schedule)), rules(expected), "{agent} and {schedule}");
        assert_eq!(
            rules(schedule).and(rules(agent)).request().network,
            rules(expected).request().network,
            "{schedule} and {agent}"
        );
    }
}

#[test]
fn contradictory_sandbox_rules_are_found() {
    for (text, word) in [
        (
            r#"{"kind":"landlock","network":{"hosts":["a.com"]}}"#,
            Some("Landlock can restrict ports (`network: {ports: …}`) but not hosts"),
        ),
        (r#"{"kind":"bubblewrap","network":{"ports":[443]}}"#, Some("list the hosts")),
        (r#"{"kind":"landlock","credentials":"outside"}"#, Some("whose proxy adds the provider's key")),
        (r#"{"kind":"none","credentials":"outside"}"#, None),
        (
            r#"{"kind":"bubblewrap","network":"on","credentials":"outside"}"#,
            Some("requests bypass the proxy"),
        ),
        (r#"{"kind":"bubblewrap","credentials":"outside"}"#, None),
        (r#"{"kind":"landlock","network":{"ports":[443]}}"#, None),
        (r#""docker""#, Some("needs the image of its container")),
        (r#"{"kind":"docker","image":"a"}"#, None),
        (r#"{"kind":"docker","image":"a","network":"on"}"#, None),
        (
            r#"{"kind":"docker","image":"a","network":{"hosts":["a.com"]}}"#,
            Some("needs the proxy of `kind: bubblewrap`"),
        ),
        (r#"{"kind":"docker","image":"a","network":{"ports":[443]}}"#, Some("needs `kind: landlock`")),
        (
            r#"{"kind":"docker","image":"a","credentials":"outside"}"#,
            Some("whose proxy adds the provider's key"),
        ),
    ] {
        let contradiction = rules(text).request().contradiction();
        assert_eq!(contradiction.is_some(), word.is_some(), "{text} {contradiction:?}");
        assert!(
            contradiction.is_none_or(|contradiction| contradiction.contains(word.unwrap_or_default())),
            "{text} {contradiction:?}"
        );
    }
}

#[test]
fn hosts_are_parsed_and_compared() {
    for (text, expected) in [
        ("api.example.com", Some("api.example.com:443")),
        ("API.Example.com.:8443", Some("api.example.com:8443")),
        ("*.example.com", Some("*.example.com:443")),
        ("localhost:80", Some("localhost:80")),
        ("127.0.0.1:81", Some("127.0.0.1:81")),
        ("[::1]:81", Some("[::1]:81")),
        ("[::1]", Some("[::1]:443")),
        ("::1", None),
        ("127.1", None),
        ("2130706433", None),
        ("a.com:0", None),
        ("a.com:70000", None),
        ("*", None),
        ("*.*.com", None),
        ("a..com", None),
        ("https://a.com", None),
        ("a.com/x", None),
        ("a@b.com", None),
        ("", None),
    ] {
        let host = text.parse::<Host>().ok().map(|host| host.to_string());
        assert_eq!(host.as_deref(), expected, "{text}");
    }
    for (own, other, expected) in [
        ("a.com", "A.com.", true),
        ("a.com", "a.com:80", false),
        ("*.a.com", "x.a.com", true),
        ("*.a.com", "x.y.a.com", true),
        ("*.a.com", "a.com", false),
        ("*.a.com", "xa.com", false),
        ("*.a.com", "*.x.a.com", true),
        ("*.x.a.com", "*.a.com", false),
        ("*.a.com", "*.a.com", true),
        ("a.com", "x.a.com", false),
        ("[::1]:1", "[0:0::1]:1", true),
    ] {
        let (own, other): (Host, Host) = (own.parse().unwrap(), other.parse().unwrap());
        assert_eq!(own.covers(&other), expected, "{own} {other}");
    }
}
