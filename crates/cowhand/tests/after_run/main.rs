//! Hooks that succeed, that misbehave, and that outlive the daemon. The tests use the real program, with
//! small scripts as agents and a server on loopback.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod chat;
mod crash;
mod secrets;
mod server;
mod shell;
mod trouble;
mod webhook;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use cowhand_testing::postgres::Postgres;
use cowhand_testing::process::left_over;
use cowhand_testing::{wait_at_most, wait_until};
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Fleet in its own folder. Its remaining processes are ended with the test.
struct Scene {
    folder: TempDir,
    server: Option<Postgres>,
    daemon: Option<Child>,
    variables: Vec<(&'static str, String)>,
}

impl Scene {
    fn new(fleet: &str) -> Self {
        Self::on("sqlite", fleet)
    }

    fn on(database: &str, fleet: &str) -> Self {
        let server = (database == "postgres").then(Postgres::start);
        let store = server.as_ref().map(|server| format!("store: {}\n", server.url())).unwrap_or_default();
        let scene = Self { folder: TempDir::new().unwrap(), server, daemon: None, variables: Vec::new() };
        fs::write(scene.path("cowhand.yaml"), format!("{store}{fleet}")).unwrap();
        scene
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
        let mut command = self.command(&["start", "--no-server"]);
        if !fault.is_empty() {
            command.env("COWHAND_FAULT", fault);
        }
        let mut daemon = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.daemon = Some(daemon);
    }

    /// Returns the exit status of the daemon.
    fn ended(&mut self) -> std::process::ExitStatus {
        self.daemon.take().unwrap().wait().unwrap()
    }

    fn kill(&mut self) {
        self.daemon.as_mut().unwrap().kill().unwrap();
        self.ended();
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

    fn trigger(&self, agent: &str) -> String {
        self.json(&["trigger", agent])["id"].as_str().unwrap().to_owned()
    }

    /// Waits until the job has hooks and all of them have ended, and returns them.
    fn hooks(&self, job: &str) -> Vec<Value> {
        wait_until(&format!("the hooks of {job}"), || {
            let hooks = self.json(&["job", job])["hooks"].as_array().cloned().unwrap_or_default();
            let over = |hook: &Value| !matches!(hook["state"].as_str(), Some("waiting" | "running"));
            (!hooks.is_empty() && hooks.iter().all(over)).then_some(hooks)
        })
    }

    /// Triggers the agent, and returns the hooks of the job.
    fn hooks_after_run(&self, agent: &str) -> Vec<Value> {
        self.hooks(&self.trigger(agent))
    }

    /// Returns the types of the job's hook events.
    fn events(&self, job: &str) -> Vec<String> {
        let all = self.run(&["events", "--json", "--limit", "1000"]);
        let events = all.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let of_job = events.filter(|event| event["job"] == job);
        let types = of_job.map(|event| event["type"].as_str().unwrap().to_owned());
        types.filter(|name| name.starts_with("hook:")).collect()
    }
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
        drop(self.server.take());
    }
}

/// Returns the state of each hook.
fn states(hooks: &[Value]) -> Vec<&str> {
    hooks.iter().map(|hook| hook["state"].as_str().unwrap()).collect()
}

fn text<'v>(hook: &'v Value, key: &str) -> &'v str {
    hook[key].as_str().unwrap_or_default()
}
