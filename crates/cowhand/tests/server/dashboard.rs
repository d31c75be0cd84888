//! The way of a browser in, and what pages tell to whom; how they look and feel is `tests/browser`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use reqwest::redirect::Policy;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::Scene;

fn client() -> reqwest::Client {
    reqwest::Client::builder().redirect(Policy::none()).build().unwrap()
}

/// Opens a link and gives the cookie.
async fn enter(link: &str) -> Option<String> {
    let answer = client().get(link).send().await.unwrap();
    let cookie = answer.headers().get("set-cookie")?.to_str().unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["location"]), (303, &"/".parse().unwrap()));
    Some(cookie.split(';').next().unwrap().to_owned())
}

#[tokio::test]
async fn links_are_made_by_the_owner_and_by_admins() {
    let mut scene = Scene::new();
    let (code, out, said) = scene.run(&["dashboard"]);
    assert!(code == 0 && out.starts_with(&format!("{}/login/", scene.url)), "{out} {said}");
    let cookie = enter(out.trim()).await.unwrap();
    assert_eq!(enter(out.trim()).await, None, "it works once");
    let page = scene.ask("GET", "/").header("cookie", &cookie).send().await.unwrap();
    assert_eq!(page.status().as_u16(), 200);
    // Who is in already can let another browser in.
    let again = scene.ask("POST", "/api/v1/login").header("cookie", &cookie).header("x-cowhand", "1");
    let (_, link) = crate::answer(again).await;
    assert!(enter(link["url"].as_str().unwrap()).await.is_some());
    // The two have names of their own, and neither link nor token is told anywhere.
    let (_, tokens, _) = scene.run(&["token", "list"]);
    assert_eq!(tokens.matches("browser-").count(), 2, "{tokens}");
    let secret = cookie.split_once('=').unwrap().1;
    let code = out.trim().rsplit_once('/').unwrap().1;
    for place in [tokens, scene.log()] {
        assert!(!place.contains(secret) && !place.contains(code), "{place}");
    }
    // A link ends with its daemon; the cookie does not.
    let (_, link, _) = scene.run(&["dashboard"]);
    scene.kill();
    assert_eq!(scene.run(&["dashboard"]).0, 4, "no daemon");
    let place = scene.url.trim_start_matches("http://").to_owned();
    scene.start(&["--listen", &place]);
    assert_eq!(enter(link.trim()).await, None);
    let page = scene.ask("GET", "/").header("cookie", &cookie).send().await.unwrap();
    assert_eq!(page.status().as_u16(), 200);
    scene.kill();
    assert_eq!(scene.run(&["start", "-d", "--no-server"]).0, 0);
    let (code, _, said) = scene.run(&["dashboard"]);
    assert!(code == 5 && said.contains("--no-server"), "{code} {said}");
    assert_eq!(scene.run(&["stop"]).0, 0);
}

#[tokio::test]
async fn pages_show_what_the_scope_allows() {
    let scene = Scene::new();
    let [read, admin] = ["read", "admin"].map(|scope| scene.token(&format!("for-{scope}"), scope));
    for (token, sees) in [(&read, false), (&admin, true)] {
        let page = scene.ask("GET", "/settings").bearer_auth(token).send().await.unwrap();
        let text = page.text().await.unwrap();
        assert_eq!(text.contains("for-admin"), sees);
        assert!(!text.contains("canary"), "no secret of a webhook: {text}");
    }
    let page = scene.ask("GET", "/jobs/nothing").bearer_auth(&read).send().await.unwrap();
    assert_eq!(page.status().as_u16(), 400);
    assert!(page.headers()["content-type"].to_str().unwrap().starts_with("text/html"));
}

#[tokio::test]
async fn style_and_script_are_kept_by_browsers() {
    let scene = Scene::new();
    let page = scene.ask("GET", "/").send().await.unwrap().text().await.unwrap();
    let names: Vec<&str> = page.split('"').filter(|part| part.starts_with("/assets/")).collect();
    for kind in ["style-", "script-", "icon-"] {
        assert!(names.iter().any(|name| name.starts_with(&format!("/assets/{kind}"))), "{kind} {names:?}");
    }
    for name in names {
        let answer = scene.ask("GET", name).send().await.unwrap();
        let tag = answer.headers()["etag"].clone();
        assert_eq!(answer.status().as_u16(), 200);
        assert!(answer.headers()["cache-control"].to_str().unwrap().contains("immutable"));
        let again = scene.ask("GET", name).header("if-none-match", tag).send().await.unwrap();
        assert_eq!(again.status().as_u16(), 304);
    }
    assert_eq!(scene.ask("GET", "/assets/..%2fCargo.toml").send().await.unwrap().status().as_u16(), 404);
}

#[tokio::test]
async fn start_prints_a_link_on_a_terminal_and_nowhere_else() {
    let mut scene = Scene::new();
    scene.kill();
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let screen = File::options().write(true).open(OsStr::from_bytes(name.as_bytes())).unwrap();
    let log = File::create(scene.path("second.log")).unwrap();
    let mut daemon =
        scene.command(&["start"]).stdout(screen).stderr(log).stdin(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(File::from(ours)).lines();
    let first = lines.next().unwrap().unwrap();
    let second = lines.next().unwrap().unwrap();
    assert!(first.trim().starts_with("ready http://127.0.0.1:") && !first.contains("login"), "{first}");
    let link = second.split_whitespace().find(|word| word.starts_with("http")).unwrap().to_owned();
    let entered = enter(&link).await;
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(entered.is_some(), "{second}");
    let log = std::fs::read_to_string(scene.path("second.log")).unwrap();
    assert!(!log.contains("/login/"), "{log}");
}
