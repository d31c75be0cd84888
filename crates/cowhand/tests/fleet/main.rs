//! A fleet as people run it: the real program, a background daemon, and small scripts as agents.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod above;
mod adopted;
mod alone;
mod api;
mod asks;
mod bounds;
mod bulk;
mod clock;
mod closed_output;
mod completion;
mod concurrency;
mod doctor;
mod documents;
mod event_stream;
mod explained;
mod fallbacks;
mod followups;
mod gates;
mod gone;
mod herdctl;
mod interrupted_trigger;
mod job_socket;
mod jobs;
mod ledger;
mod left;
mod life;
mod limits;
mod lists;
mod mcp;
mod money;
mod names;
mod nodes;
mod orphans;
mod other_store;
mod own_rights;
mod pauses;
mod pending;
mod preparing;
mod prune;
mod reasons;
mod releases;
mod reports;
mod reserve;
mod restart;
mod restored;
mod rights;
mod rotated;
mod same_id;
mod schedules;
mod skipped_files;
mod start;
mod steering;
mod stopped;
mod tables;
mod terminal;
mod trigger_errors;
mod unstarted;
mod unwritten;
mod views;
mod waits;
mod work;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use cowhand_testing::process::{has_ended, left_over, lives};
use cowhand_testing::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// `waiter` writes a file when it is up, and ends when there is a file `go`; `broken` always fails.
const FLEET: &str = r#"
agents:
  - name: worker
    description: Repeats what it is told
    runtime: command
    command: [sh, -c, cat]
    default_prompt: Work.
    schedules:
      tidy: {type: manual, prompt: Tidy up.}
      nightly: {type: cron, cron: 0 3 * * *, timezone: UTC, prompt: Good night.}
  - name: broken
    runtime: command
    command: [sh, -c, "echo this cannot work >&2; exit 7"]
  - name: waiter
    runtime: command
    command: [sh, -c, "echo $$ > pid; echo up; while [ ! -e go ]; do sleep 0.05; done; echo went"]
"#;

/// Fleet in its own folder. Its remaining processes are ended with the test.
struct Scene {
    folder: TempDir,
    /// Root of the fleet, below `folder`.
    root: PathBuf,
}

/// Exit code and output of a verb.
struct RunResult {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Scene {
    fn new() -> Self {
        Self::with(FLEET)
    }

    fn with(fleet: &str) -> Self {
        Self::beneath("", fleet)
    }

    fn beneath(path: &str, fleet: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let mut root = folder.path().canonicalize().unwrap();
        root.extend(Path::new(path));
        fs::create_dir_all(&root).unwrap();
        let scene = Self { folder, root };
        scene.write("cowhand.yaml", fleet);
        scene
    }

    fn started() -> Self {
        let scene = Self::new();
        scene.start();
        scene
    }

    fn start(&self) {
        let said = self.run(&["start", "-d", "--no-server"]);
        assert_eq!((said.code, said.stdout.as_str()), (Some(0), "ready\n"), "{}", said.stderr);
    }

    /// Writes a file. The config turns off the server, because the fleets of these tests run in parallel and
    /// there is one default port; the server has its own tests.
    fn write(&self, name: &str, text: &str) {
        let quiet = if name == "cowhand.yaml" { "\nserver: {enabled: false}\n" } else { "" };
        fs::write(self.root.join(name), format!("{text}{quiet}")).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cowhand"));
        command
            .args(arguments)
            .current_dir(&self.root)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env("TZ", "Europe/Berlin");
        command
    }

    fn run(&self, arguments: &[&str]) -> RunResult {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        RunResult { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Runs a verb that has to succeed, and parses its JSON.
    fn json(&self, arguments: &[&str]) -> Value {
        let said = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(said.code, Some(0), "{arguments:?}: {}{}", said.stdout, said.stderr);
        serde_json::from_str(&said.stdout).unwrap()
    }

    fn spawn(&self, arguments: &[&str]) -> Running {
        Running::of(self.command(arguments).stderr(Stdio::piped()))
    }

    /// Starts a job of `waiter` that waits for `go`; returns its id and its process.
    fn waiting_job(&self) -> (String, Pid) {
        let job = self.json(&["trigger", "waiter"])["id"].as_str().unwrap().to_owned();
        let pid = wait_until("the agent to be up", || {
            fs::read_to_string(self.root.join("pid")).ok()?.trim().parse().ok()
        });
        (job, Pid::from_raw(pid).unwrap())
    }

    fn go(&self) {
        self.write("go", "");
    }

    fn daemon(&self) -> Option<Pid> {
        let pid = self.json(&["status"])["daemon"]["pid"].as_i64()?;
        Pid::from_raw(pid.try_into().unwrap())
    }

    /// Kills the daemon, so that it cannot clean up.
    fn kill_daemon(&self) {
        kill_and_wait(self.daemon().unwrap());
    }

    /// Returns the log of the daemon.
    fn log(&self) -> String {
        fs::read_to_string(self.root.join(".cowhand/daemon.log")).unwrap()
    }

    fn job(&self, id: &str) -> Value {
        self.json(&["job", id])
    }

    /// Checks that `job` shows a job as another verb printed it. `job` adds more fields.
    #[track_caller]
    fn assert_shows(&self, printed: &Value, what: &str) {
        let shown = self.job(printed["id"].as_str().unwrap());
        for (key, value) in printed.as_object().unwrap() {
            assert_eq!(&shown[key], value, "{what}: {key}");
        }
    }

    /// Returns the exit code and all output, for a snapshot.
    fn shown(&self, arguments: &[&str]) -> String {
        let RunResult { code, stdout, stderr } = self.run(arguments);
        let code = code.unwrap();
        format!("$ cowhand {}\nexit: {code}\n--- stdout\n{stdout}--- stderr\n{stderr}", arguments.join(" "))
    }

    fn snapshot(&self, name: &str, texts: &[String]) {
        let root = regex_quote(self.root.to_str().unwrap());
        let settings = {
            let mut settings = insta::Settings::clone_current();
            for (pattern, name) in [
                (root.as_str(), "[DIR]"),
                (r"job-\d{4}-\d\d-\d\d-[a-z0-9]{6}", "[JOB]"),
                (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "[UUID]"),
                (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?", "[TIME]"),
                (r"\d+[smhd]( \d+[smhd])? ago|just now", "[AGO]"),
                (r"in \d+[smhd]( \d+[smhd])?\b", "[IN]"),
                (r"\b\d+s\b", "[TOOK]"),
                (r#""uid":\d+,"name":"[^"]+""#, "[WHO]"),
                (r#"(pid"?:?) \d+"#, "$1 [PID]"),
                (r#"("duration_seconds": ?)\d+"#, "$1[TOOK]"),
                (r"\b\d+(\.\d)? (B|KB|MB|GB)\b", "[SIZE]"),
                (r#"("bytes": ?)\d+"#, "$1[SIZE]"),
                (r"all \d+ statements", "all [N] statements"),
                // The capabilities of the machine differ.
                (r"(sandbox, \w+): [^\n]*", "$1: [HERE]"),
                (
                    r#"("what": "sandbox, \w+",\s+"ok": true,\s+"warning": false,\s+"detail"): "[^\n]*""#,
                    "$1: [HERE]",
                ),
                (r"(?m)^( *)\d+  \[AGO\]", "[SEQ]  [AGO]"),
                (r"(\S) {2,}", "$1  "),
            ] {
                settings.add_filter(pattern, name);
            }
            settings
        };
        settings.bind(|| insta::assert_snapshot!(name, texts.join("\n")));
    }
}

/// Quotes a path for a pattern.
fn regex_quote(path: &str) -> String {
    path.replace('.', r"\.")
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = self.run(&["stop", "--timeout", "0"]);
        for pid in left_over(self.folder.path()) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Running verb, which is ended with the test if it has not ended itself.
struct Running {
    child: Child,
    stdout: Option<BufReader<ChildStdout>>,
}

impl Running {
    fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = child.stdout.take().map(BufReader::new);
        Self { child, stdout }
    }

    /// Returns the next line of output.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.as_mut().unwrap().read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Closes the reading end of the output.
    fn close_stdout(&mut self) {
        self.stdout = None;
    }

    /// Sends an interrupt, but not before the verb handles it.
    fn interrupt(&self) {
        let status = format!("/proc/{}/status", self.child.id());
        wait_until("the verb to listen to interrupts", || {
            let status = fs::read_to_string(&status).ok()?;
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim();
            (u64::from_str_radix(caught, 16).ok()? & 0b10 != 0).then_some(())
        });
        kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
    }

    /// Waits for the end; returns the remaining output and the exit code.
    fn end(mut self) -> RunResult {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        if let Some(mut rest) = self.stdout.take() {
            rest.read_to_string(&mut stdout).unwrap();
        }
        if let Some(mut rest) = self.child.stderr.take() {
            rest.read_to_string(&mut stderr).unwrap();
        }
        RunResult { code: self.child.wait().unwrap().code(), stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Kills a daemon with a known pid, without a request to find it.
fn kill_and_wait(daemon: Pid) {
    kill_process(daemon, Signal::KILL).unwrap();
    wait_until("the daemon to be gone", || has_ended(daemon).then_some(()));
}
