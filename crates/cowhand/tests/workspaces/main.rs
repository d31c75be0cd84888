//! Jobs in their own workspaces: the real program, the real git, and small scripts as agents.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod cancel;
mod crash;
mod gone;
mod records;
mod side_by_side;
mod trouble;
mod unfinished;
mod unlisted;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cowhand_testing::process::left_over;
use cowhand_testing::wait_until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Fleet of one agent, with the repository in which it works.
struct Scene {
    folder: TempDir,
    root: PathBuf,
}

impl Scene {
    /// Creates a fleet with `settings` over the default ones; its agent runs `script` in a worktree.
    fn new(script: &str, settings: &Value) -> Self {
        let folder = TempDir::new().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let scene = Self { folder, root };
        scene.make_repository();
        scene.write_fleet(script, settings);
        scene
    }

    fn started(script: &str, settings: &Value) -> Self {
        let scene = Self::new(script, settings);
        scene.start();
        scene
    }

    fn make_repository(&self) {
        fs::create_dir_all(self.repository().join("deep")).unwrap();
        self.git(&["init", "--quiet", "--initial-branch=main"]);
        fs::write(self.repository().join("README"), "first\n").unwrap();
        fs::write(self.repository().join("deep/file"), "deep\n").unwrap();
        self.git(&["add", "-A"]);
        self.git(&["commit", "--quiet", "-m", "first"]);
    }

    fn write_fleet(&self, script: &str, settings: &Value) {
        let mut agent = json!({
            "name": "coder", "runtime": "command", "command": ["sh", "-c", script],
            "working_directory": self.repository(), "isolation": "worktree",
            "env": {
                "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_COMMITTER_NAME": "a",
                "GIT_COMMITTER_EMAIL": "a@example.com", "SCENE": self.root,
            },
        });
        for (key, value) in settings.as_object().into_iter().flatten() {
            agent[key] = value.clone();
        }
        // JSON is valid YAML.
        let fleet = json!({"agents": [agent], "server": {"enabled": false}});
        fs::write(self.root.join("cowhand.yaml"), fleet.to_string()).unwrap();
    }

    /// Returns the path of the repository, which contains a space.
    fn repository(&self) -> PathBuf {
        self.root.join("my repository")
    }

    fn git(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = git(&self.repository(), arguments).output().unwrap();
        assert!(status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&stderr));
        String::from_utf8(stdout).unwrap().trim_end().to_owned()
    }

    /// Returns all branches except `main`.
    fn branches(&self) -> Vec<String> {
        let all = self.git(&["for-each-ref", "--format=%(refname:short)", "refs/heads"]);
        all.lines().filter(|name| *name != "main").map(str::to_owned).collect()
    }

    fn worktrees(&self) -> usize {
        self.git(&["worktree", "list", "--porcelain"])
            .lines()
            .filter(|line| line.starts_with("worktree "))
            .count()
    }

    fn workspaces(&self) -> Vec<PathBuf> {
        let folder = fs::read_dir(self.root.join(".cowhand/workspaces"));
        folder.into_iter().flatten().map(|entry| entry.unwrap().path()).collect()
    }

    /// Waits until nothing of any job is left, in the state folder or in the repository.
    fn assert_clean(&self) {
        wait_until("everything to be removed", || {
            (self.workspaces().is_empty() && self.worktrees() == 1 && self.branches().is_empty())
                .then_some(())
        });
        assert_eq!(self.git(&["status", "--porcelain"]), "");
        self.git(&["fsck", "--no-progress"]);
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_cowhand"), arguments)
    }

    fn command_of(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .current_dir(&self.root)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", &self.root)
            .env("XDG_RUNTIME_DIR", self.folder.path());
        command
    }

    fn start(&self) {
        self.start_with(&[]);
    }

    fn start_with(&self, environment: &[(&str, &str)]) {
        let mut command = self.command(&["start", "-d", "--no-server"]);
        let said = command.envs(environment.iter().copied()).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }

    fn is_root() -> bool {
        fs::metadata("/proc/self").unwrap().uid() == 0
    }

    /// Starts a daemon to which modes of files apply, also if the tests run as root.
    fn start_bound_by_modes(&self) {
        if !Self::is_root() {
            return self.start();
        }
        let bounds = "--bounding-set=-dac_override,-dac_read_search,-fowner";
        let program = [bounds, "--inh-caps=-all", env!("CARGO_BIN_EXE_cowhand")];
        let mut command =
            self.command_of("setpriv", &[program.as_slice(), &["start", "-d", "--no-server"]].concat());
        let said = command.output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    }

    fn restart(&self) {
        let said = self.command(&["stop"]).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        self.start();
    }

    fn daemon(&self) -> Option<Pid> {
        let pid = self.json(&["status"])["daemon"]["pid"].as_i64()?;
        Pid::from_raw(pid.try_into().unwrap())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let Output { stdout, stderr, .. } =
            self.command(&[arguments, &["--json"]].concat()).output().unwrap();
        serde_json::from_slice(&stdout).unwrap_or_else(|error| {
            panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&[stdout, stderr].concat()))
        })
    }

    fn trigger(&self) -> String {
        self.json(&["trigger", "coder"])["id"].as_str().unwrap().to_owned()
    }

    fn job(&self, id: &str) -> Value {
        self.json(&["job", id])
    }

    fn finished(&self, id: &str) -> Value {
        wait_until("the job to end", || Some(self.job(id)).filter(|job| job["finished_at"].is_string()))
    }

    fn run(&self) -> Value {
        self.finished(&self.trigger())
    }

    fn diff(&self, id: &str) -> String {
        let said = self.command(&["job", id, "--diff"]).output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.root.join(".cowhand/daemon.log")).unwrap_or_default());
        }
        let _ = self.command(&["stop", "--timeout", "0"]).output();
        for pid in left_over(self.folder.path()) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

fn git(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "protocol.file.allow=always"]);
    command.args(arguments).current_dir(directory).env("GIT_CONFIG_GLOBAL", "/dev/null");
    command
}

/// Returns status, error kind and message.
fn status_and_error(job: &Value) -> [&str; 3] {
    [
        job["status"].as_str().unwrap_or_default(),
        job["error"]["kind"].as_str().unwrap_or_default(),
        job["error"]["message"].as_str().unwrap_or_default(),
    ]
}
