//! The server from outside: the real program on a free port, over TCP.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod access;
mod agree;
mod audit;
mod canaries;
mod dashboard;
mod dashboard_facts;
mod described;
mod examples;
mod flood;
mod hooks;
mod hostile;
mod job_tokens;
mod life;
mod live;
mod metrics;
mod odd;
mod reading;
mod tls;
mod wakes;
mod web_chat;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use cowhand_testing::wait_or_report;
use reqwest::{Client, Method, RequestBuilder};
use ring::hmac::{HMAC_SHA256, Key, sign};
use serde_json::Value;
use tempfile::TempDir;

const FLEET: &str = r#"
server: {listen: "127.0.0.1:0", allowed_hosts: [fleet.example.org]}
agents:
  - name: worker
    runtime: command
    command: [sh, -c, cat]
    default_prompt: Work.
    schedules:
      by-hand: {type: manual, prompt: Work.}
      nightly: {type: cron, expression: "0 3 * * *", prompt: Work.}
      hook: {type: webhook, secret_env: "HOOK_NEW, HOOK_OLD", prompt: "Look at {{payload}}"}
      issues: {type: webhook, secret_env: HOOK_OLD, events: [issues.opened], prompt: Look.}
      "off": {type: webhook, secret_env: HOOK_OLD, enabled: false, prompt: Look.}
      unset: {type: webhook, secret_env: NOT_THERE, prompt: Look.}
      unsigned: {type: webhook, allow_unsigned: true, prompt: Look.}
  - name: waiter
    runtime: command
    command: [sh, -c, "while ! [ -e done ]; do sleep 0.1; done"]
"#;
pub(crate) const NEW: &str = "canary-new-secret";
pub(crate) const OLD: &str = "canary-old-secret";

/// Fleet with its server, which ends with the test.
pub(crate) struct Scene {
    folder: TempDir,
    daemon: Option<Child>,
    url: String,
    client: Client,
    variables: Vec<(String, String)>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::of(FLEET)
    }

    pub(crate) fn of(fleet: &str) -> Self {
        let mut scene = Self::prepared(fleet);
        scene.start(&[]);
        scene
    }

    /// Creates a fleet without starting it.
    pub(crate) fn prepared(fleet: &str) -> Self {
        // HTTP clients need a provider of cryptography.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("cowhand.yaml"), fleet).unwrap();
        fs::write(folder.path().join(".env"), format!("HOOK_NEW={NEW}\n")).unwrap();
        Self { folder, daemon: None, url: String::new(), client: Client::new(), variables: Vec::new() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cowhand"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env("HOOK_OLD", OLD)
            .envs(self.variables.iter().cloned());
        command
    }

    /// Sets one more variable for programs that are started later.
    pub(crate) fn set_variable(&mut self, name: &str, value: &str) {
        self.variables.push((name.to_owned(), value.to_owned()));
    }

    pub(crate) fn start(&mut self, arguments: &[&str]) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = self.command(&[&["start"], arguments].concat());
        let mut daemon = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.daemon = Some(daemon);
        let place = line.trim().strip_prefix("ready ").and_then(|place| place.split_once("://"));
        let place = place.and_then(|(scheme, place)| Some((scheme, place.rsplit_once(':')?.1)));
        let Some((scheme, port)) = place else { panic!("{line:?} {}", self.log()) };
        self.url = format!("{scheme}://127.0.0.1:{port}");
    }

    /// Returns `127.0.0.1:PORT`.
    pub(crate) fn place(&self) -> String {
        self.url.split_once("://").unwrap().1.to_owned()
    }

    /// Returns the pid of the daemon.
    pub(crate) fn pid(&self) -> u32 {
        self.daemon.as_ref().unwrap().id()
    }

    /// Returns the peak memory of the daemon, in MB.
    pub(crate) fn peak_memory_mb(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }

    /// Waits for a condition.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, mut is_true: impl FnMut() -> bool) {
        wait_or_report(Duration::from_mins(1), what, || self.log(), || is_true().then_some(()));
    }

    /// Starts the daemon on all addresses, so that others could reach it.
    pub(crate) fn start_anywhere(&mut self) {
        self.start(&["--listen", "0.0.0.0:0"]);
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    /// Kills the daemon, so that it cannot clean up.
    pub(crate) fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Waits for a daemon that was asked to stop.
    pub(crate) fn ended(&mut self) {
        let status = self.daemon.take().unwrap().wait().unwrap();
        assert!(status.success(), "{status} {}", self.log());
    }

    /// Runs a verb; returns exit code, standard output and standard error.
    pub(crate) fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code().unwrap(), text(stdout), text(stderr))
    }

    /// Creates the file for which jobs wait, so that they end.
    pub(crate) fn end_jobs(&self) {
        fs::write(self.path("done"), "").unwrap();
    }

    /// Creates a token.
    pub(crate) fn token(&self, name: &str, scope: &str) -> String {
        let (code, token, said) = self.run(&["token", "create", name, "--scope", scope]);
        assert_eq!(code, 0, "{said}");
        token.trim().to_owned()
    }

    pub(crate) fn ask(&self, method: &str, path: &str) -> RequestBuilder {
        let method: Method = method.parse().unwrap();
        self.client.request(method, format!("{}{path}", self.url))
    }

    pub(crate) fn deliver(&self, schedule: &str, body: impl Into<Vec<u8>>) -> RequestBuilder {
        self.ask("POST", &format!("/hooks/worker/{schedule}")).body(body.into())
    }

    /// Returns a delivery as GitHub sends it.
    pub(crate) fn github(&self, schedule: &str, id: &str, event: &str, body: &[u8]) -> RequestBuilder {
        self.deliver(schedule, body)
            .header("x-github-delivery", id)
            .header("x-github-event", event)
            .header("x-hub-signature-256", format!("sha256={}", hmac(OLD, &[body])))
    }

    /// Returns the jobs, the oldest first.
    pub(crate) fn jobs(&self) -> Vec<Value> {
        let (code, out, said) = self.run(&["jobs", "--limit", "1000", "--json"]);
        assert_eq!(code, 0, "{said}");
        let mut jobs: Vec<Value> = serde_json::from_str(&out).unwrap();
        jobs.reverse();
        jobs
    }

    /// Sends raw bytes that no client library sends; returns the status of the answer.
    pub(crate) fn raw(&self, bytes: &[u8]) -> u16 {
        let mut stream = TcpStream::connect(self.place()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        let mut buffer = [0; 1024];
        while !answer.ends_with(b"}") {
            match stream.read(&mut buffer).unwrap() {
                0 => break,
                length => answer.extend(&buffer[..length]),
            }
        }
        let answer = String::from_utf8(answer).unwrap();
        answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or_else(|| panic!("{answer:?}"))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.daemon.is_some() {
            self.kill();
        }
    }
}

/// Sends a request; returns status and body.
pub(crate) async fn answer(request: RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

pub(crate) fn hmac(secret: &str, parts: &[&[u8]]) -> String {
    let tag = sign(&Key::new(HMAC_SHA256, secret.as_bytes()), &parts.concat());
    hex(tag.as_ref())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.map(|digit| char::from_digit(digit.into(), 16).unwrap()).collect()
}
