//! Several nodes on one PostgreSQL: the real program, one background daemon in each folder.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod alone;
mod configs;
mod connections;
mod drain;
mod labels;
mod list;
mod places;
mod spreading;
mod unable;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cowhand_testing::process::left_over;
use cowhand_testing::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Name and value of a variable of the environment.
type Variable<'a> = (&'a str, &'a str);

/// A node in its own folder. Its daemon and all its processes are ended with the test.
struct Machine {
    folder: TempDir,
    root: PathBuf,
    environment: Vec<(String, String)>,
}

/// Exit code and output of a verb.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Machine {
    /// Creates a node with this config, which is not started.
    fn new(store: &str, fleet: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let machine = Self { folder, root, environment: Vec::new() };
        machine.configure(store, fleet);
        machine
    }

    /// Creates a node, whose daemon and verbs have these variables.
    fn with_variables(store: &str, fleet: &str, variables: &[Variable<'_>]) -> Self {
        let mut machine = Self::new(store, fleet);
        let owned = |(name, value): &Variable<'_>| ((*name).to_owned(), (*value).to_owned());
        machine.environment = variables.iter().map(owned).collect();
        machine
    }

    /// Writes the config. The server is off, because the nodes of parallel tests share one default port.
    fn configure(&self, store: &str, fleet: &str) {
        let text = format!("store: {store}\nserver: {{enabled: false}}\n{fleet}");
        fs::write(self.root.join("cowhand.yaml"), text).unwrap();
    }

    fn start(&self, options: &[&str]) {
        let ran = self.run(&[&["start", "-d"], options].concat());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "ready\n"), "{}", ran.stderr);
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cowhand"));
        command
            .args(arguments)
            .current_dir(&self.root)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a verb that has to succeed, and returns its output.
    fn text(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, Some(0), "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        ran.stdout
    }

    /// Runs a verb that has to be refused, and returns its message.
    fn refused(&self, arguments: &[&str]) -> String {
        let ran = self.run(arguments);
        assert_eq!(ran.code, Some(5), "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        ran.stderr
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// Creates a job of the agent, and returns its id.
    fn trigger(&self, agent: &str) -> String {
        self.json(&["trigger", agent])["id"].as_str().unwrap().to_owned()
    }

    fn job(&self, id: &str) -> Value {
        self.json(&["job", id])
    }

    /// Waits until the job has this status, and returns the job.
    #[track_caller]
    fn wait_for(&self, job: &str, status: &str) -> Value {
        wait_until(&format!("{job} to be {status}"), || {
            Some(self.job(job)).filter(|job| job["status"] == status)
        })
    }

    /// Waits until `job` explains the wait of a job with this text.
    #[track_caller]
    fn wait_for_reason(&self, job: &str, expected: &str) {
        wait_until(&format!("the reason {expected}"), || {
            let waits = self.job(job)["waits"]["message"].as_str().map(str::to_owned);
            waits.filter(|message| message.contains(expected))
        });
    }

    /// Returns the name of the node, which is known after its first start.
    fn name(&self) -> String {
        fs::read_to_string(self.root.join(".cowhand/node")).unwrap().trim().to_owned()
    }

    /// Returns the node with this name, as this node lists it.
    fn node(&self, name: &str) -> Value {
        let nodes = self.json(&["nodes"]);
        nodes.as_array().unwrap().iter().find(|node| node["name"] == name).cloned().unwrap_or_default()
    }

    fn daemon(&self) -> Pid {
        let pid = self.json(&["status"])["daemon"]["pid"].as_i64().unwrap();
        Pid::from_raw(pid.try_into().unwrap()).unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.root.join(".cowhand/daemon.log")).unwrap()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.run(&["stop", "--timeout", "0"]);
        for pid in left_over(self.folder.path()) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// A folder that the agents of all nodes use.
struct CommonFolder(TempDir);

impl CommonFolder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Lets the waiting agents end.
    fn go(&self) {
        fs::write(self.path().join("go"), "").unwrap();
    }

    /// Returns the config of an agent that waits for [`Self::go`], with further keys.
    fn waiter(&self, name: &str, keys: &str) -> String {
        let go = self.path().join("go").display().to_string();
        format!(
            "  - name: {name}\n    runtime: command\n    \
             command: [sh, -c, 'echo up; while [ ! -e {go} ]; do sleep 0.05; done']\n{keys}"
        )
    }
}
