//! The same flows against `emulate`, a third-party fake of GitHub in memory, behind `prism`, which checks
//! every request against GitHub's own description of its API and refuses those that do not match.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use cowhand::fleet::{Fleet, Options, Stop};
use cowhand::work::contract::assert_work_source_contract;
use cowhand::work::github::{GitHubSettings, GitHubWorkSource};
use cowhand::work::{SourceContext, WorkSource};
use cowhand_core::event::Fact;
use cowhand_core::github::Auth;
use cowhand_core::schedule::SkipReason;
use cowhand_core::work::ClaimFailureReason::{AlreadyClaimed, InvalidState, NotFound};
use cowhand_core::work::{FetchOptions, ReleaseOptions, WorkOutcome, WorkResult};
use jiff::SignedDuration;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fake::REPO;
use crate::{claim, claimant, id, result, settings};

fn node_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/node")
}

/// Node program with all its children; it ends when this is dropped, or when the test is killed.
struct Server {
    child: Child,
    pub(crate) url: String,
    said: Arc<Mutex<String>>,
}

impl Server {
    /// Starts the program, and waits until it has printed that it listens.
    fn start(script: &str, arguments: &[&str], port: u16, listens: &'static str) -> Self {
        let script = node_folder().join("node_modules").join(script);
        assert!(script.is_file(), "{} is not installed: run scripts/test, which does", script.display());
        let mut child = Command::new("node")
            .arg("--import")
            .arg(node_folder().join("ends-with-parent.mjs"))
            .arg(script)
            .args(arguments)
            .env("NO_COLOR", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .process_group(0)
            .spawn()
            .expect("node is not installed: run scripts/test, which installs it");
        let (said, (is_up, wait)) = (Arc::new(Mutex::new(String::new())), mpsc::channel());
        let (lines, heard) = (BufReader::new(child.stdout.take().unwrap()).lines(), Arc::clone(&said));
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if line.contains(listens) {
                    is_up.send(()).ok();
                }
                *heard.lock().unwrap() += &(line + "\n");
            }
        });
        let server = Self { child, url: format!("http://127.0.0.1:{port}"), said };
        assert!(wait.recv_timeout(Duration::from_mins(2)).is_ok(), "it does not listen: {}", server.said());
        server
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            kill_process_group(group, Signal::KILL).ok();
        }
        self.child.wait().ok();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) struct Emulate {
    server: Server,
    folder: TempDir,
    http: reqwest::Client,
}

impl Emulate {
    /// Starts the fake with an account for each token: `fleet-a-7` belongs to `fleet-a`.
    pub(crate) fn start(tokens: &[String]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let login = |token: &String| token.rsplit_once('-').unwrap().0.to_owned();
        let mut logins: Vec<String> = tokens.iter().map(login).collect();
        logins.sort();
        logins.dedup();
        let (owner, name) = REPO.split_once('/').unwrap();
        logins.retain(|login| login != owner);
        let token = |token: &String| (token.clone(), json!({ "login": login(token), "scopes": ["repo"] }));
        let user = |login: &String| json!({ "login": login });
        let seed = json!({
            "tokens": tokens.iter().map(token).collect::<serde_json::Map<_, _>>(),
            "github": {
                "users": logins.iter().map(user).chain([json!({ "login": owner })]).collect::<Vec<_>>(),
                "repos": [{ "owner": owner, "name": name }],
            },
        });
        let file = folder.path().join("seed.yaml");
        std::fs::write(&file, seed.to_string()).unwrap();
        let port = free_port();
        let (file, number) = (file.to_str().unwrap(), port.to_string());
        let arguments = ["start", "--service", "github", "--port", &number, "--seed", file];
        let server = Server::start("emulate/dist/index.js", &arguments, port, "http://");
        // The source does this itself, but here the test may send the first request.
        rustls::crypto::ring::default_provider().install_default().ok();
        // Node closes connections that are idle for five seconds, and a round takes longer.
        let http = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
        Self { server, folder, http }
    }

    pub(crate) fn url(&self) -> &str {
        &self.server.url
    }

    fn behind_prism(&self) -> Server {
        let api = self.folder.path().join("github.json");
        let cut = Command::new("node").arg(node_folder().join("github-api.mjs")).arg(&api).status().unwrap();
        assert!(cut.success());
        let port = free_port();
        let (api, number) = (api.to_str().unwrap(), port.to_string());
        let arguments = ["proxy", "--errors", "-h", "127.0.0.1", "-p", &number, api, self.url()];
        Server::start("@stoplight/prism-cli/dist/index.js", &arguments, port, "Prism is listening")
    }

    async fn ask(&self, token: &str, method: &str, path: &str, body: Option<Value>) -> Value {
        let response = self.send(self.url(), token, method, path, body).await;
        assert!(response.status().is_success(), "{method} {path}: {response:?}");
        serde_json::from_slice(&response.bytes().await.unwrap()).unwrap()
    }

    async fn send(
        &self,
        base: &str,
        token: &str,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> reqwest::Response {
        let url = format!("{base}/repos/{REPO}/{path}");
        let request = self
            .http
            .request(method.parse().unwrap(), url)
            .bearer_auth(token)
            .header("content-type", "application/json")
            .body(body.map_or_else(String::new, |body| body.to_string()));
        request.send().await.unwrap()
    }

    /// Adds an issue with the ready label.
    pub(crate) async fn add(&self, token: &str, title: &str) -> u64 {
        let body = json!({ "title": title, "body": "Please.", "labels": ["ready"] });
        self.ask(token, "POST", "issues", Some(body)).await["number"].as_u64().unwrap()
    }

    /// Returns the labels of an issue, its state, and the first lines of its comments.
    pub(crate) async fn look(&self, token: &str, number: u64) -> (Vec<String>, String, Vec<String>) {
        let issue = self.ask(token, "GET", &format!("issues/{number}"), None).await;
        let comments = self.ask(token, "GET", &format!("issues/{number}/comments"), None).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let labels = issue["labels"].as_array().unwrap().iter().map(|label| text(&label["name"])).collect();
        let line = |comment: &Value| text(&comment["body"]).lines().next().unwrap().to_owned();
        (labels, text(&issue["state"]), comments.as_array().unwrap().iter().map(line).collect())
    }
}

pub(crate) fn source(settings: GitHubSettings, token: &str) -> GitHubWorkSource {
    let token = token.to_owned();
    GitHubWorkSource::new(settings, &Auth::default(), &SourceContext::new("", move |_| Some(token.clone())))
        .unwrap()
}

#[tokio::test]
async fn requests_match_api_description_of_github() {
    let tokens = ["fleet-a-1".to_owned(), "fleet-b-1".to_owned()];
    let emulate = Emulate::start(&tokens);
    let prism = emulate.behind_prism();
    let [ours, theirs] = [0, 1].map(|place: usize| source(settings(&prism.url), &tokens[place]));
    let mut numbers = Vec::new();
    for number in 0..105 {
        numbers.push(emulate.add(&tokens[0], &format!("Task {number}: {{{{x}}}} </y> 🐄")).await);
    }
    ours.validate_token().await.unwrap();

    let first = ours.fetch_available_work(&FetchOptions::default()).await.unwrap();
    let rest = FetchOptions { cursor: first.next_cursor.clone(), ..FetchOptions::default() };
    let rest = ours.fetch_available_work(&rest).await.unwrap();
    assert_eq!((first.items.len(), rest.items.len(), rest.next_cursor), (100, 5, None));
    let item = ours.get_work(&id(numbers[0])).await.unwrap().unwrap();
    assert_eq!(item.title, "Task 0: {{x}} </y> 🐄");
    assert_eq!(ours.get_work(&id(9999)).await.unwrap(), None);
    assert_eq!(claim(&ours, 9999, "job-1").await, Err(NotFound));

    // Claimed, renewed, refused to others, completed, reported twice.
    claim(&ours, numbers[0], "job-1").await.unwrap();
    assert_eq!(claim(&theirs, numbers[0], "job-2").await, Err(AlreadyClaimed));
    let mut longer = claimant("job-1");
    longer.until += SignedDuration::from_mins(30);
    ours.renew_claim(&id(numbers[0]), &longer).await.unwrap();
    let (labels, state, comments) = emulate.look(&tokens[0], numbers[0]).await;
    assert_eq!((labels, state.as_str(), comments.len()), (vec!["agent-working".to_owned()], "open", 1));
    assert!(comments[0].contains("renewed_before"), "{comments:?}");
    let done = WorkResult { details: Some("`` ```".repeat(9000)), ..result(WorkOutcome::Success) };
    for _ in 0..2 {
        ours.complete_work(&id(numbers[0]), &done, &claimant("job-1")).await.unwrap();
        let (labels, state, comments) = emulate.look(&tokens[0], numbers[0]).await;
        assert_eq!((labels.len(), state.as_str(), comments.len()), (0, "closed", 1));
        assert!(comments[0].starts_with("<!-- cowhand:report "), "{comments:?}");
    }
    assert_eq!(claim(&theirs, numbers[0], "job-2").await, Err(InvalidState));

    // Failed: the issue stays open, without a label.
    claim(&theirs, numbers[1], "job-2").await.unwrap();
    let failed = WorkResult { error: Some("no".into()), ..result(WorkOutcome::Failure) };
    theirs.complete_work(&id(numbers[1]), &failed, &claimant("job-2")).await.unwrap();
    let (labels, state, comments) = emulate.look(&tokens[0], numbers[1]).await;
    assert_eq!((labels.len(), state.as_str(), comments.len()), (0, "open", 1));

    // Released, and taken by the other.
    claim(&ours, numbers[2], "job-3").await.unwrap();
    let told =
        ReleaseOptions { reason: Some("shutdown".into()), add_comment: true, ..ReleaseOptions::default() };
    assert!(!theirs.release_work(&id(numbers[2]), &told, &claimant("job-4")).await.unwrap().success);
    assert!(ours.release_work(&id(numbers[2]), &told, &claimant("job-3")).await.unwrap().success);
    let (labels, _, comments) = emulate.look(&tokens[0], numbers[2]).await;
    assert_eq!((labels, comments.len()), (vec!["ready".to_owned()], 1));
    claim(&theirs, numbers[2], "job-4").await.unwrap();

    let said = prism.said();
    let requests = said.matches("Request received").count();
    let refused: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("terminated with error") || line.contains("iolation"))
        .collect();
    println!("prism: {requests} requests, {} refused", refused.len());
    assert!(requests > 40 && refused.is_empty(), "{}", refused.join("\n"));

    // Prism does refuse an invalid request.
    let wrong = json!({ "text": "not called body" });
    let path = format!("issues/{}/comments", numbers[3]);
    assert_eq!(emulate.send(&prism.url, &tokens[0], "POST", &path, Some(wrong)).await.status(), 422);
}

/// A whole fleet asks the same emulator for permissions of people.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permission_requests_match_api_description_of_github() {
    let tokens = ["fleet-a-1".to_owned(), "my-org-1".to_owned()];
    let emulate = Emulate::start(&tokens);
    let prism = emulate.behind_prism();
    let (strange, own) = (emulate.add(&tokens[0], "Strange").await, emulate.add(&tokens[1], "Own").await);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("cowhand.yaml");
    let text = format!(
        "agents:\n  - name: worker\n    runtime: command\n    command: [cat]\n    trust: {{min_permission: write}}\n    \
         work_source: {{type: github, repo: {REPO}, api_url: '{}', auth: {{token_env: HUB_TOKEN}}}}\n    \
         schedules:\n      poll: {{type: interval, interval: 1s, prompt: Do it.}}\n",
        prism.url
    );
    std::fs::write(&config, text).unwrap();
    std::fs::write(folder.path().join(".env"), "HUB_TOKEN=fleet-a-1\n").unwrap();
    let fleet = Fleet::start(Options::of(config, env!("CARGO_BIN_EXE_cowhand"))).await.unwrap();
    let mut events = fleet.subscribe_after(0);
    let (mut is_reported, mut is_filtered) = (false, false);
    while !(is_reported && is_filtered) {
        let fact = events.next().await.unwrap().expect("the fleet has ended").fact;
        is_reported |= matches!(fact, Fact::WorkReported { .. });
        is_filtered |= matches!(fact, Fact::ScheduleSkipped { reason: SkipReason::Filtered, .. });
    }
    fleet.stop(Stop::Cancel).await.unwrap();
    assert_eq!(emulate.look(&tokens[0], own).await.1, "closed");
    let (labels, state, comments) = emulate.look(&tokens[0], strange).await;
    assert_eq!((labels, state.as_str(), comments.len()), (vec!["ready".to_owned()], "open", 0));
    let said = prism.said();
    assert!(said.contains("/collaborators/fleet-a/permission"), "{said}");
    assert!(!said.contains("iolation") && !said.contains("terminated with error"), "{said}");
}

#[tokio::test]
async fn github_source_keeps_work_source_contract() {
    let token = "fleet-a-1".to_owned();
    let emulate = Emulate::start(std::slice::from_ref(&token));
    let mut numbers = Vec::new();
    for _ in 0..5 {
        numbers.push(emulate.add(&token, "Take me").await);
    }
    // All handles have the same account, so that any of them can report the end.
    let handles: Vec<Arc<dyn WorkSource>> = vec![
        Arc::new(source(settings(emulate.url()), &token)),
        Arc::new(source(settings(emulate.url()), &token)),
    ];
    let picture = async || {
        let mut picture = String::new();
        for &number in &numbers {
            picture = format!("{picture}{:?}\n", emulate.look(&token, number).await);
        }
        picture
    };
    assert_work_source_contract(&handles, claimant("any").until, picture).await;
}
