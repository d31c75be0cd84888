//! Notifications of a real fleet: what is reported, how often, and what happens after a crash or while a target is
//! away.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod chat;
mod command;
mod crash;
mod incidents;
mod mail;
mod receiver;
mod undelivered;
mod webhook;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use cowhand_testing::process::left_over;
use cowhand_testing::wait_until;
use receiver::Receiver;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Secret of the webhook targets.
const SECRET: &str = "canary-of-the-webhook";

/// An agent whose jobs fail until there is a file `good`.
const FLAKY: &str = "
agents:
  - name: flaky
    runtime: command
    command: [sh, -c, 'echo \"my secret is $API_TOKEN <b> @everyone\"; test -e good']
    env: {API_TOKEN: canary-of-the-agent}
    schedules: {s: {type: manual, prompt: Work.}}
";

/// Fleet in its own folder. Its remaining processes are ended with the test.
struct Scene {
    folder: TempDir,
    daemon: Option<Child>,
    variables: Vec<(&'static str, String)>,
}

impl Scene {
    fn new(config: &str) -> Self {
        let scene = Self { folder: TempDir::new().unwrap(), daemon: None, variables: Vec::new() };
        scene.configure(config);
        scene.with("HOOK_SECRET", SECRET)
    }

    /// Makes a fleet with `FLAKY` whose notifications go to the receiver. `more` is added to `notify`.
    fn with_receiver(receiver: &Receiver, more: &str) -> Self {
        Self::new(&format!("{}{FLAKY}", notify(receiver, more)))
    }

    fn configure(&self, config: &str) {
        // The disk of a test machine may be nearly full.
        assert!(config.contains("disk_low"), "every fleet sets a limit");
        fs::write(self.path("cowhand.yaml"), config).unwrap();
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cowhand"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn start(&mut self) {
        self.start_and_die("");
    }

    /// Starts the daemon. If `fault` is not empty, the daemon dies at that fault.
    fn start_and_die(&mut self, fault: &str) {
        let log = fs::File::options().append(true).create(true).open(self.path("log")).unwrap();
        let mut command = self.command(&["start", "--listen", "127.0.0.1:0"]);
        if !fault.is_empty() {
            command.env("COWHAND_FAULT", fault);
        }
        let mut daemon = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("ready"), "{line}{}", self.read("log"));
        self.daemon = Some(daemon);
    }

    /// Waits for the end of the daemon.
    fn ended(&mut self) {
        self.daemon.take().unwrap().wait().unwrap();
    }

    fn output(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        (status.code(), format!("{stdout}{stderr}"))
    }

    fn run(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let (stdout, stderr) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        assert!(status.success(), "{arguments:?}: {stdout}{stderr}");
        stdout
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Runs a job and returns after its end, whatever its result.
    fn job(&self, subject: &str) {
        self.output(&["trigger", subject, "--wait"]);
    }

    /// Returns the notifications, the newest first.
    fn notifications(&self) -> Vec<Value> {
        self.json(&["notifications"]).as_array().unwrap().clone()
    }

    /// Returns the states of the notifications, the oldest first, as `STATE KIND`.
    fn states(&self) -> Vec<String> {
        let text = |view: &Value, key: &str| view[key].as_str().unwrap().to_owned();
        let all = self.notifications();
        all.iter().rev().map(|view| format!("{} {}", text(view, "state"), text(view, "kind"))).collect()
    }

    fn wait_for_states(&self, expected: &[&str]) {
        wait_until(&format!("{expected:?}"), || (self.states() == expected).then_some(()));
    }

    /// Sends a request to the daemon's socket, and returns the body of the answer.
    fn request(&self, token: Option<&str>, method: &str, path: &str, given: &str) -> Value {
        let mut socket = UnixStream::connect(self.path(".cowhand/sock")).unwrap();
        let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!("{token}host: x\r\nconnection: close\r\ncontent-length: {}", given.len());
        write!(socket, "{method} /api/v1/{path} HTTP/1.1\r\n{head}\r\n\r\n{given}").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }
}

/// Returns `notify` with a webhook target `hook` and one rule for it.
fn notify(receiver: &Receiver, more: &str) -> String {
    let hook =
        format!("{{type: webhook, url: '{}', secret_env: HOOK_SECRET, allow_private: true}}", receiver.url);
    format!(
        "fleet: {{name: herd}}\nnotify:\n  disk_low: 1B\n  targets:\n    hook: {hook}\n  rules:\n    - {{to: [hook]}}\n{more}"
    )
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
        for pid in left_over(self.folder.path()) {
            let _ = kill_process(pid, Signal::KILL);
        }
        if std::thread::panicking() {
            eprintln!("{}", self.read("log"));
        }
    }
}
