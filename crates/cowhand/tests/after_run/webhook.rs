//! Webhooks: their signature, their retries, and the addresses to which they are never sent.

use std::time::Instant;

use ring::hmac;
use serde_json::Value;

use crate::server::Server;
use crate::{Scene, states, text};

fn scene(hooks: &[String]) -> Scene {
    let hooks = hooks
        .iter()
        .map(|hook| format!("        - {{type: webhook, {hook}}}\n"))
        .collect::<Vec<_>>()
        .concat();
    let agent = "agents:\n  - name: worker\n    runtime: command\n    command: [echo, all is well]\n";
    let mut scene = Scene::new(&format!("{agent}    hooks:\n      after_run:\n{hooks}"));
    std::fs::write(scene.path(".env"), "HOOK_SECRET=the secret of the hook\n").unwrap();
    scene.start();
    scene
}

fn private(server: &Server, path: &str, more: &str) -> String {
    format!("url: '{}{path}', allow_private: true{more}", server.url)
}

#[test]
fn webhook_sends_signed_context() {
    let server = Server::start();
    let more =
        ", method: PUT, secret_env: HOOK_SECRET, headers: {X-Mine: here, Authorization: Bearer abcdefgh}";
    let scene = scene(&[private(&server, "/ok", more), private(&server, "/moved", "")]);
    let job = scene.trigger("worker");
    let hooks = scene.hooks(&job);
    assert_eq!(states(&hooks), ["completed", "completed"], "{hooks:?}");
    assert_eq!(text(&hooks[0], "said"), "thank you");
    let asked = server.asked("/ok");
    assert_eq!((asked.len(), asked[0].method.as_str(), asked[1].method.as_str()), (2, "PUT", "POST"));
    let context: Value = serde_json::from_str(&asked[0].body).unwrap();
    assert_eq!((text(&context, "event"), text(&context["result"], "output")), ("completed", "all is well"));
    assert_eq!((asked[0].header("x-mine"), asked[0].header("authorization")), ("here", "Bearer abcdefgh"));
    assert_eq!(asked[0].header("content-type"), "application/json");
    assert_eq!(asked[0].header("x-cowhand-delivery"), format!("{job}.1"));
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"the secret of the hook");
    let tag = hmac::sign(&key, asked[0].body.as_bytes());
    let hex = tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    assert_eq!(asked[0].header("x-cowhand-signature-256"), format!("sha256={hex}"));
    assert_eq!(
        asked[1].header("x-cowhand-signature-256"),
        "",
        "without a secret there is nothing to sign with"
    );
    assert_eq!(asked[1].body, asked[0].body, "the same body over the redirect");
}

#[test]
fn webhook_retries_only_temporary_errors() {
    let server = Server::start();
    let scene = scene(&[
        private(&server, "/broken", ", retries: 1"),
        private(&server, "/flaky", ""),
        private(&server, "/nowhere", ""),
        private(&server, "/silent", ", timeout: 300, retries: 0"),
        "url: 'http://127.0.0.1:9/', allow_private: true, retries: 0".to_owned(),
        private(&server, "/ok", ", secret_env: NOT_SET"),
    ]);
    let begin = Instant::now();
    let hooks = scene.hooks_after_run("worker");
    assert_eq!(states(&hooks), ["failed", "completed", "failed", "failed", "failed", "failed"], "{hooks:?}");
    let tries: Vec<_> = hooks.iter().map(|hook| hook["tries"].as_u64().unwrap()).collect();
    assert_eq!(tries, [2, 2, 1, 1, 1, 1]);
    assert_eq!(text(&hooks[0], "reason"), "it answered 500 Internal Server Error, tried 2 times");
    assert!(text(&hooks[0], "said").len() <= 16 << 10, "of a megabyte");
    assert_eq!((server.asked("/broken").len(), server.asked("/nowhere").len()), (2, 1));
    assert_eq!(text(&hooks[1], "said"), "at last");
    assert_eq!(text(&hooks[2], "reason"), "it answered 404 Not Found");
    assert!(text(&hooks[3], "reason").starts_with("no answer within 300ms"), "{hooks:?}");
    assert!(text(&hooks[4], "reason").contains("refused"), "{hooks:?}");
    assert_eq!(text(&hooks[5], "reason"), "the environment variable NOT_SET is not set");
    assert!(begin.elapsed().as_secs() >= 2, "there are pauses between the tries");
}

/// `See Other` asks for a GET of another page: the request was not answered with 2xx.
#[test]
fn see_other_is_a_failure() {
    let server = Server::start();
    let scene = scene(&[private(&server, "/elsewhere", "")]);
    let hooks = scene.hooks_after_run("worker");
    assert_eq!(states(&hooks), ["failed"], "{hooks:?}");
    assert_eq!(text(&hooks[0], "reason"), "it answered 303 See Other");
    assert_eq!((server.asked("/elsewhere").len(), server.asked("/ok").len()), (1, 0));
}

#[test]
fn webhook_to_forbidden_address_is_refused() {
    let (server, other) = (Server::start(), Server::start());
    // The redirect names another port of the same machine, which is not in the config.
    server.kept.lock().unwrap().redirect = format!("{}/ok", other.url);
    let hooks = [
        private(&server, "/redirect", ", headers: {Authorization: Bearer abcdefgh}"),
        private(&server, "/circle", ""),
    ];
    let scene = scene(&hooks);
    let hooks = scene.hooks_after_run("worker");
    assert_eq!(states(&hooks), ["failed"; 2], "{hooks:?}");
    let reason = |at: usize| text(&hooks[at], "reason");
    let expected = "it redirects to an address that is not allowed: 127.0.0.1 is not a public address";
    assert_eq!(reason(0), expected);
    assert_eq!(reason(1), "it redirects more than 5 times");
    assert!(hooks.iter().all(|hook| hook["tries"] == 1), "what is refused is refused for good");
    assert!(other.asked("/ok").is_empty() && server.asked("/ok").is_empty());
    assert_eq!(server.asked("/redirect").len(), 1);
}
