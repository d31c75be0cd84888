//! Several nodes with one PostgreSQL server: nodes that fail, stop or are suspended, and outages of the server. Agents
//! write the boot clock of the machine into a common file, so that a test can check that no two attempts of a job worked
//! at the same moment.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod alone;
mod lost_lease;
mod outage;
mod take_over;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use cowhand_testing::postgres::Postgres;
use cowhand_testing::process::{has_ended, left_over};
use cowhand_testing::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Length of the leases in these tests, in seconds.
const LEASE: f64 = 3.0;

/// A fleet whose nodes share a database server, and the folder in which its agents record when they work.
struct Fleet {
    server: Option<Postgres>,
    common: TempDir,
    /// Keys of the agent `beater`.
    keys: String,
}

/// One node of a fleet, in its own folder. Its remaining processes are ended with the test.
struct Node {
    folder: TempDir,
    common: PathBuf,
}

/// A line that an agent wrote.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Beat {
    attempt: u32,
    /// Seconds since the boot of the machine.
    at: f64,
}

impl Fleet {
    fn new(keys: &str) -> Self {
        let common = TempDir::new().unwrap();
        Self { server: Some(Postgres::start()), common, keys: keys.to_owned() }
    }

    fn on_file() -> Self {
        Self { server: None, common: TempDir::new().unwrap(), keys: String::new() }
    }

    /// Makes a node. `beater` writes the time several times in a second until there is a file `go`; `finisher` ends with
    /// some output when there is a file `end`.
    fn node(&self) -> Node {
        let node = Node { folder: TempDir::new().unwrap(), common: self.common.path().to_owned() };
        let store = self.server.as_ref().map_or_else(String::new, |server| {
            format!("store: {}\nleases: {{length: 3s, max_pause: 1h}}\n", server.url())
        });
        let (keys, common) = (&self.keys, self.common.path().display());
        let config = format!(
            "{store}server: {{enabled: false}}\nagents:\n\
             \x20 - name: beater\n    runtime: command\n    retry: {{max_attempts: 4, backoff: 1s, on: [error]}}\n{keys}\
             \x20   command:\n      - sh\n      - -c\n      - |\n\
             \x20       echo $$ > {common}/pid.$COWHAND_ATTEMPT\n\
             \x20       while [ ! -e {common}/go ]; do\n\
             \x20         read up rest < /proc/uptime; echo \"$COWHAND_ATTEMPT $up\" >> {common}/beats; sleep 0.02\n\
             \x20       done\n        echo went\n\
             \x20 - name: finisher\n    runtime: command\n    command:\n      - sh\n      - -c\n      - |\n\
             \x20       touch {common}/waits; while [ ! -e {common}/end ]; do sleep 0.02; done; echo finished well\n"
        );
        fs::write(node.root().join("cowhand.yaml"), config).unwrap();
        node
    }

    fn server(&mut self) -> &mut Postgres {
        self.server.as_mut().unwrap()
    }

    fn ask(&self, query: &str) -> String {
        self.server.as_ref().unwrap().ask(query)
    }

    fn write(&self, name: &str) {
        fs::write(self.common.path().join(name), "").unwrap();
    }

    /// Returns what the agents have written so far. The last line may be incomplete.
    fn beats(&self) -> Vec<Beat> {
        let text = fs::read_to_string(self.common.path().join("beats")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let read = |line: &str| {
            let (attempt, at) = line.split_once(' ').unwrap();
            Beat { attempt: attempt.parse().unwrap(), at: at.parse().unwrap() }
        };
        whole.lines().map(read).collect()
    }

    /// Waits until this attempt has written something after `at`.
    fn until_beat(&self, attempt: u32, at: f64) {
        let is_later = |beat: &Beat| beat.attempt == attempt && beat.at > at;
        wait_until("a beat", || self.beats().iter().any(is_later).then_some(()));
    }

    fn agent_pid(&self, attempt: u32) -> Pid {
        let file = self.common.path().join(format!("pid.{attempt}"));
        let pid = wait_until("the agent", || fs::read_to_string(&file).ok()?.trim().parse().ok());
        Pid::from_raw(pid).unwrap()
    }

    /// Checks that each attempt worked only after the previous attempts had stopped working for good.
    #[track_caller]
    fn assert_one_at_a_time(&self) {
        let beats = self.beats();
        let last = beats.iter().map(|beat| beat.attempt).max().unwrap();
        for attempt in 2..=last {
            let first = beats.iter().filter(|beat| beat.attempt == attempt).map(|beat| beat.at);
            let before = beats.iter().filter(|beat| beat.attempt < attempt).map(|beat| beat.at);
            let (first, before) = (first.fold(f64::MAX, f64::min), before.fold(0.0, f64::max));
            assert!(before <= first, "attempt {attempt} began at {first}, an earlier one worked at {before}");
        }
    }
}

impl Node {
    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn change_config(&self, from: &str, to: &str) {
        let file = self.root().join("cowhand.yaml");
        let config = fs::read_to_string(&file).unwrap();
        assert!(config.contains(from), "{config}");
        fs::write(&file, config.replace(from, to)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cowhand"));
        command.args(arguments).current_dir(self.root()).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("XDG_RUNTIME_DIR", self.root());
        command
    }

    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// Runs a verb that has to succeed, and returns its output.
    #[track_caller]
    fn text(&self, arguments: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {stdout}{stderr}");
        stdout
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[arguments, &["--json"]].concat())).unwrap()
    }

    fn start(&self) {
        assert_eq!(self.text(&["start", "-d", "--no-server"]), "ready\n");
    }

    fn trigger(&self, agent: &str) -> String {
        self.json(&["trigger", agent])["id"].as_str().unwrap().to_owned()
    }

    fn job(&self, id: &str) -> Value {
        self.json(&["job", id])
    }

    /// Returns the events of a job that have this type.
    fn events(&self, job: &str, kind: &str) -> Vec<Value> {
        let lines = self.text(&["events", "--after", "0", "--limit", "1000", "--json"]);
        let events = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        events.filter(|event| event["job"] == job && event["type"] == kind).collect()
    }

    fn daemon(&self) -> Pid {
        let pid = self.json(&["status"])["daemon"]["pid"].as_i64().unwrap();
        Pid::from_raw(pid.try_into().unwrap()).unwrap()
    }

    fn kill_daemon(&self) {
        let daemon = self.daemon();
        kill_process(daemon, Signal::KILL).unwrap();
        wait_until("the daemon to be gone", || has_ended(daemon).then_some(()));
    }

    fn attempt_file(&self, job: &str, attempt: u32, name: &str) -> PathBuf {
        self.root().join(".cowhand/attempts").join(format!("{job}.{attempt}")).join(name)
    }

    /// Waits until the keeper has recorded that the agent is paused.
    fn until_paused(&self, job: &str, attempt: u32) {
        let file = self.attempt_file(job, attempt, "pauses.json");
        let is_paused = || {
            let pauses: Value = serde_json::from_slice(&fs::read(&file).ok()?).ok()?;
            pauses["current"].is_object().then_some(())
        };
        wait_until("the pause", is_paused);
    }

    fn until_ended(&self, job: &str) -> Value {
        wait_until("the end of the job", || {
            let job = self.job(job);
            job["finished_at"].is_string().then_some(job)
        })
    }

    fn until_gone(&self, pid: Pid) {
        wait_until("the process to be gone", || has_ended(pid).then_some(()));
        assert!(self.root().exists());
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.run(&["stop", "--timeout", "0"]);
        for pid in left_over(&self.common).into_iter().chain(left_over(self.folder.path())) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Returns the seconds since the boot of the machine, as the agents write them.
fn uptime() -> f64 {
    let text = fs::read_to_string("/proc/uptime").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}
