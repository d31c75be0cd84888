//! Login of a browser, and the content of pages by visitor; their look is tested in `tests/browser`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use cowhand_testing::postgres::Postgres;
use reqwest::redirect::Policy;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::Scene;

fn client() -> reqwest::Client {
    reqwest::Client::builder().redirect(Policy::none()).build().unwrap()
}

/// Opens a link and returns the cookie.
async fn enter(link: &str) -> Option<String> {
    let answer = client().get(link).send().await.unwrap();
    let cookie = answer.headers().get("set-cookie")?.to_str().unwrap();
    assert_eq!((answer.status().as_u16(), &answer.headers()["location"]), (303, &"/".parse().unwrap()));
    Some(cookie.split(';').next().unwrap().to_owned())
}

#[tokio::test]
async fn login_links_are_created_by_owner_and_admins() {
    let mut scene = Scene::new();
    let (code, out, said) = scene.run(&["dashboard"]);
    assert!(code == 0 && out.starts_with(&format!("{}/login/", scene.url)), "{out} {said}");
    let cookie = enter(out.trim()).await.unwrap();
    assert_eq!(enter(out.trim()).await, None, "it works once");
    let page = scene.ask("GET", "/").header("cookie", &cookie).send().await.unwrap();
    assert_eq!(page.status().as_u16(), 200);
    // A browser that is logged in can create a link for another one.
    let again = scene.ask("POST", "/api/v1/login").header("cookie", &cookie).header("x-cowhand", "1");
    let (_, link) = crate::answer(again).await;
    assert!(enter(link["url"].as_str().unwrap()).await.is_some());
    // The two browsers have their own token names, and neither a link nor a token is shown anywhere.
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
    // The browser stays logged in if the daemon listens on another port, as with the port 0.
    scene.kill();
    scene.start(&["--listen", "127.0.0.1:0"]);
    assert_ne!(scene.place(), place, "another port");
    let page = scene.ask("GET", "/").header("cookie", &cookie).send().await.unwrap();
    assert_eq!(page.status().as_u16(), 200);
    // A browser sends the cookies of all fleets of a host to each of them.
    let other = Scene::new();
    let others_cookie = enter(other.run(&["dashboard"]).1.trim()).await.unwrap();
    let name = |cookie: &str| cookie.split_once('=').unwrap().0.to_owned();
    assert_ne!(name(&others_cookie), name(&cookie));
    for fleet in [&scene, &other] {
        let both = format!("{cookie}; {others_cookie}");
        let page = fleet.ask("GET", "/").header("cookie", both).send().await.unwrap();
        assert_eq!(page.status().as_u16(), 200);
    }
    scene.kill();
    assert_eq!(scene.run(&["start", "-d", "--no-server"]).0, 0);
    let (code, _, said) = scene.run(&["dashboard"]);
    assert!(code == 5 && said.contains("restart --listen 127.0.0.1:PORT`"), "{code} {said}");
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

/// The first page shows what does not fire, and tokens without a price are not shown as free.
#[tokio::test]
async fn first_page_shows_schedules_that_do_not_fire() {
    let scene = Scene::of(
        r#"
server: {listen: "127.0.0.1:0"}
agents:
  - name: quiet
    runtime: command
    command: [sh, -c, "echo '{\"type\":\"system\",\"subtype\":\"usage\",\"model\":\"m\",\"usage\":{\"input_tokens\":1000}}'"]
    schedules:
      issues: {type: github_issues, owner: o, repo: r, prompt: x, auth: {token_env: NO_SUCH_VARIABLE}}
"#,
    );
    let read = scene.token("reader", "read");
    let first = async || scene.ask("GET", "/").bearer_auth(&read).send().await.unwrap().text().await.unwrap();
    assert_eq!(scene.run(&["trigger", "quiet", "--wait"]).0, 0);
    let patience = std::time::Instant::now() + std::time::Duration::from_mins(1);
    let mut text = first().await;
    while !text.contains("Schedules that do not fire") {
        assert!(std::time::Instant::now() < patience, "{text}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        text = first().await;
    }
    assert!(text.contains("the variable NO_SUCH_VARIABLE is not set"), "{text}");
    assert!(text.contains("1000 tokens today") && !text.contains("$0.00"), "{text}");
}

#[tokio::test]
async fn assets_are_cached_by_browsers() {
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
async fn start_prints_login_link_only_on_terminal() {
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

/// The API and the page show the workspace of a job, and its hooks.
#[tokio::test]
async fn job_page_shows_workspace_diff_and_hooks() {
    let mut scene = Scene::prepared(
        r#"
server: {listen: "127.0.0.1:0"}
agents:
  - name: coder
    runtime: command
    working_directory: code
    isolation: {kind: worktree, cleanup: never}
    command: [sh, -c, 'cat > "<b>.md"; yes line | head -n 5000 > many; echo done']
    hooks:
      after_run:
        - {type: shell, name: "<i>tell", command: "printf '<u>told'"}
      on_error:
        - {type: shell, command: "true"}
"#,
    );
    let code = scene.path("code");
    std::fs::create_dir(&code).unwrap();
    for given in [["init", "--quiet"].as_slice(), &["commit", "--quiet", "--allow-empty", "-m", "first"]] {
        let mut git = std::process::Command::new("git");
        git.args(["-c", "user.name=t", "-c", "user.email=t@example.com"]).args(given).current_dir(&code);
        assert!(git.status().unwrap().success());
    }
    scene.start(&[]);
    let nasty = "<script>alert(1)</script>\u{202e}evil";
    let (code, made, said) = scene.run(&["trigger", "coder", "--prompt", nasty, "--wait", "--json"]);
    assert_eq!(code, 0, "{said}");
    let made: serde_json::Value = serde_json::from_str(&made).unwrap();
    let id = made["id"].as_str().unwrap().to_owned();
    let job =
        || -> serde_json::Value { serde_json::from_str(&scene.run(&["job", &id, "--json"]).1).unwrap() };
    scene.until("its hook to end and its workspace to be kept", || {
        let job = job();
        job["hooks"][0]["state"] == "completed" && job["workspace"]["state"] == "kept"
    });
    let told = job()["workspace"].clone();
    assert_eq!((&told["kind"], &told["branch"]), (&"worktree".into(), &format!("cowhand/coder/{id}").into()));
    assert!(std::path::Path::new(told["path"].as_str().unwrap()).join("many").exists(), "{told}");
    let token = scene.token("reader", "read");
    let page = scene.ask("GET", &format!("/jobs/{id}")).bearer_auth(&token).send().await.unwrap();
    let page = page.text().await.unwrap();
    for expected in [
        "1. &lt;i&gt;tell",
        "after_run, shell",
        "<code class=\"any\">&lt;u&gt;told</code>",
        "b/&lt;b&gt;.md",
        "added: </span><span class=\"d-text\">&lt;script&gt;alert(1)&lt;/script&gt;‹U+202E›evil",
        &format!("cowhand/coder/{id}"),
        told["path"].as_str().unwrap(),
        "more lines are not shown here",
    ] {
        assert!(page.contains(expected), "{expected} in {page}");
    }
    assert!(!page.contains("on_error") && !page.contains("<script>alert"), "{page}");
    let (_, seen, _) = scene.run(&["job", &id]);
    assert!(seen.contains("(kept)\n") && seen.contains("branch       cowhand/coder/"), "{seen}");
}

/// A link that could not be used is not used up.
#[tokio::test]
async fn login_link_stays_valid_while_store_is_away() {
    let mut server = Postgres::start();
    let fleet = format!(
        "store: {}\nserver: {{listen: \"127.0.0.1:0\"}}\nagents: [{{name: a, runtime: command, command: ['true']}}]\n",
        server.url()
    );
    let scene = Scene::of(&fleet);
    let (code, link, said) = scene.run(&["dashboard"]);
    assert_eq!(code, 0, "{said}");
    server.stop();
    for _ in 0..2 {
        let answer = client().get(link.trim()).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 503);
        assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("text/html"));
        let text = answer.text().await.unwrap();
        assert!(text.contains("open the same link again"), "{text}");
    }
    server.start_again();
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    loop {
        let answer = client().get(link.trim()).send().await.unwrap();
        match answer.status().as_u16() {
            303 => break,
            503 => assert!(std::time::Instant::now() < deadline, "the store stays away"),
            other => panic!("{other}: {}", answer.text().await.unwrap()),
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(enter(link.trim()).await, None, "it works once");
}
