//! Traces as a collector receives them, and the log as a program reads it, from the real daemon.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod collector;
mod jobs;
mod log;
mod trouble;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use cowhand_testing::wait_or_report;
use serde_json::Value;
use tempfile::TempDir;

use collector::Collector;

/// `coder` replays a recording of Claude Code, with a tool that runs as long as there is a file `hold`;
/// `shaky` fails once.
const AGENTS: &str = r#"
server: {enabled: false}
agents:
  - name: coder
    runtime: claude
    env: {AGENT_KEY: canary-env}
    schedules:
      by-hand: {type: manual, prompt: canary-prompt}
  - name: broken
    runtime: command
    command: [sh, -c, "echo this cannot work >&2; exit 7"]
  - name: shaky
    runtime: command
    command: [sh, -c, "[ $COWHAND_ATTEMPT = 2 ]"]
    retry: {max_attempts: 2, backoff: 1s}
  - name: waiter
    runtime: command
    command: [sh, -c, "echo up > up; while [ ! -e go ]; do sleep 0.05; done; echo went"]
"#;

/// Script that replays the recording without its times, which are of another day.
const CLAUDE: &str = r#"#!/bin/sh
read -r prompt
said() { sed -n "$1" RECORDED | sed 's/"timestamp":"[^"]*",*//'; }
said 1,3p
while [ -e hold ]; do sleep 0.05; done
said 4,\$p
"#;

/// Fleet with its daemon, which ends with the test.
struct Scene {
    folder: TempDir,
    daemon: Option<Child>,
    environment: Vec<(String, String)>,
}

impl Scene {
    /// Starts a fleet that sends traces to the collector, with a secret key.
    fn traced(collector: &Collector) -> Self {
        Self::traced_to(&collector.url())
    }

    fn traced_to(url: &str) -> Self {
        let traces = format!("traces: {{endpoint: '{url}', headers: {{X-Key: canary-header}}}}\n");
        let mut scene = Self::prepared(&format!("{traces}{AGENTS}"));
        scene.start(&[]);
        scene
    }

    /// Creates a fleet without starting it.
    fn prepared(fleet: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let scene = Self { folder, daemon: None, environment: Vec::new() };
        fs::write(scene.path("cowhand.yaml"), fleet).unwrap();
        fs::write(scene.path(".env"), "DOTENV_SECRET=canary-dotenv\n").unwrap();
        let recorded =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../run/tests/samples/claude/tool-allowed.jsonl");
        fs::create_dir(scene.path("bin")).unwrap();
        fs::write(scene.path("bin/claude"), CLAUDE.replace("RECORDED", recorded.to_str().unwrap())).unwrap();
        fs::set_permissions(scene.path("bin/claude"), fs::Permissions::from_mode(0o755)).unwrap();
        scene
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_cowhand"));
        command.args(arguments).current_dir(self.folder.path()).env_clear().env("PATH", path);
        command.env("XDG_RUNTIME_DIR", self.folder.path()).envs(self.environment.clone());
        command
    }

    fn start(&mut self, arguments: &[&str]) {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("log")).unwrap();
        let mut command = self.command(&[&["start"], arguments].concat());
        let mut daemon = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.daemon = Some(daemon);
        assert_eq!(line, "ready\n", "{}", self.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    /// Kills the daemon, so that it cannot clean up.
    fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    fn stop(&mut self) {
        self.run(&["stop"]);
        assert!(self.daemon.take().unwrap().wait().unwrap().success(), "{}", self.log());
    }

    /// Runs a verb; returns exit code, standard output and standard error.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code(), text(stdout), text(stderr))
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let (_, stdout, stderr) = self.run(&[arguments, &["--json"]].concat());
        serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{arguments:?}: {stdout}{stderr}"))
    }

    /// Runs a job to its end, and returns its id.
    fn job(&self, arguments: &[&str]) -> String {
        let id = self.begin(arguments);
        self.until("the job to end", || {
            let job = self.json(&["job", &id]);
            (!matches!(job["status"].as_str(), Some("pending" | "running"))).then_some(())
        });
        id
    }

    /// Starts a job, and returns its id.
    fn begin(&self, arguments: &[&str]) -> String {
        let job = self.json(&[&["trigger"], arguments].concat());
        job["id"].as_str().unwrap_or_else(|| panic!("{job}")).to_owned()
    }

    fn trace(&self, collector: &Collector, job: &str) -> Vec<Value> {
        self.until("the trace", || collector.trace(job))
    }

    #[track_caller]
    fn until<T>(&self, what: &str, look: impl FnMut() -> Option<T>) -> T {
        wait_or_report(Duration::from_mins(1), what, || self.log(), look)
    }

    /// Waits until the log contains this text.
    #[track_caller]
    fn until_logged(&self, what: &str) {
        self.until(what, || self.log().contains(what).then_some(()));
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Agents outlive a killed daemon.
        let _ = fs::write(self.path("go"), "");
        let _ = fs::remove_file(self.path("hold"));
        if self.daemon.is_some() {
            let _ = self.run(&["stop", "--timeout", "0"]);
            self.kill();
        }
    }
}
