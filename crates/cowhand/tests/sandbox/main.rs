//! Agents that try to get out of their sandbox: the real program, with hostile scripts as agents, as root and
//! as an ordinary user.
//!
//! The test creates everything that they could reach: a home with keys, a network namespace with a metadata
//! service, control groups with limits that are checked before the script continues.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod caps;
mod docker;
mod files;
mod from_inside;
mod hostile;
mod links;
mod modes;
mod proxy;
mod refusals;
mod rights;
mod signals;
mod wide;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use cowhand_testing::podman::{self, Podman};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// User that runs a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum User {
    Root,
    Nobody,
}

impl User {
    /// Starts a container engine that this user may use.
    fn podman(self) -> Podman {
        match self {
            Self::Root => Podman::start(),
            Self::Nobody => Podman::of_user(NOBODY),
        }
    }
}

const NOBODY: u32 = 65_534;

/// Declares each test for each kind of sandbox and user.
macro_rules! for_each_sandbox {
    ($($story:ident),+ $(,)?) => {
        mod landlock {
            $(mod $story {
                #[test] fn as_root() { super::super::$story("landlock", crate::User::Root); }
                #[test] fn as_nobody() { super::super::$story("landlock", crate::User::Nobody); }
            })+
        }
        mod bubblewrap {
            $(mod $story {
                #[test] fn as_root() { super::super::$story("bubblewrap", crate::User::Root); }
                #[test] fn as_nobody() { super::super::$story("bubblewrap", crate::User::Nobody); }
            })+
        }
    };
}
use for_each_sandbox;

/// Declares each test in a container too.
macro_rules! in_a_container {
    ($($story:ident),+ $(,)?) => {
        mod docker {
            $(mod $story {
                #[test] fn as_root() { super::super::$story("docker", crate::User::Root); }
                #[test] fn as_nobody() { super::super::$story("docker", crate::User::Nobody); }
            })+
        }
    };
}
use cowhand_testing::wait_until;
use in_a_container;

/// Fleet of one agent: its home, its directory and its config in separate folders.
struct Scene {
    root: PathBuf,
    user: User,
    daemon: Option<Child>,
    variables: Vec<(&'static str, String)>,
    /// Command that runs the daemon's command.
    wrapper_command: Vec<String>,
    program: PathBuf,
    /// Container engine, if the agent runs in a container.
    podman: Option<Podman>,
    #[expect(dead_code, reason = "they are held, not used")]
    folders: [TempDir; 2],
}

impl Scene {
    /// Creates a fleet with `agent` over the default one, which runs `agent.sh`.
    fn new(user: User, script: &str, agent: &Value) -> Self {
        // A short path, because paths of sockets are limited.
        let folder = TempDir::new_in("/tmp").unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (program, programs) = program();
        let (variables, wrapper_command, folders) = (Vec::new(), Vec::new(), [folder, programs]);
        let podman = None;
        let mut scene =
            Self { root, user, daemon: None, variables, wrapper_command, program, podman, folders };
        for (name, text) in [
            ("home/.ssh/id", "a-private-key\n"),
            ("home/.aws/credentials", "a-cloud-key\n"),
            ("outside/.keep", ""),
            ("desk/agent.sh", script),
        ] {
            scene.write(name, text);
        }
        let mut config = json!({
            "name": "wild", "runtime": "command", "command": ["sh", "./agent.sh"], "working_directory": "../desk",
        });
        for (key, value) in agent.as_object().unwrap() {
            config[key] = value.clone();
        }
        scene.contain(&mut config["sandbox"]);
        // JSON is valid YAML.
        let fleet = json!({"agents": [config], "server": {"enabled": false}});
        scene.write("fleet/cowhand.yaml", &fleet.to_string());
        scene.hand_over();
        scene
    }

    /// Adds an image with this machine's programs to a `docker` sandbox that has no image.
    fn contain(&mut self, sandbox: &mut Value) {
        if sandbox == "docker" {
            *sandbox = json!({"kind": "docker"});
        }
        if sandbox["kind"] != "docker" || sandbox["image"].is_string() {
            return;
        }
        let podman = self.user.podman();
        sandbox["image"] = podman::IMAGE.into();
        sandbox["socket"] = podman.socket().to_str().unwrap().into();
        let read = sandbox["read"].as_array().cloned().unwrap_or_default();
        sandbox["read"] = read.into_iter().chain([json!("/usr")]).collect();
        self.podman = Some(podman);
    }

    /// Sets keys of the agent.
    fn set(&mut self, agent: &Value) {
        let file = self.path("fleet/cowhand.yaml");
        let mut fleet: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        for (key, value) in agent.as_object().unwrap() {
            fleet["agents"][0][key] = value.clone();
        }
        self.contain(&mut fleet["agents"][0]["sandbox"]);
        self.write("fleet/cowhand.yaml", &fleet.to_string());
        self.hand_over();
    }

    /// Makes the agent's directory a repository, with its content as the first commit.
    fn repository(&self) {
        for arguments in [&["init", "-q"][..], &["add", "agent.sh"], &["commit", "-qm", "first"]] {
            let mut git = Command::new("git");
            git.current_dir(self.path("desk")).env("HOME", self.path("home"));
            git.args(["-c", "safe.directory=*", "-c", "user.name=a", "-c", "user.email=a@b"]).args(arguments);
            assert!(git.status().unwrap().success(), "{arguments:?}");
        }
        fs::create_dir_all(self.path("desk/.git/hooks")).unwrap();
        self.hand_over();
    }

    fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.variables.push((name, value.into()));
        self
    }

    /// Gives all files to the user.
    fn hand_over(&self) {
        fs::set_permissions(&self.root, fs::Permissions::from_mode(0o755)).unwrap();
        if self.user == User::Nobody {
            let owner = format!("{NOBODY}:{NOBODY}");
            let handed = Command::new("chown").args(["-R", &owner]).arg(&self.root).status().unwrap();
            assert!(handed.success(), "these tests have to be run by root");
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command_line: Vec<String> = self.wrapper_command.clone();
        if self.user == User::Nobody {
            let id = NOBODY.to_string();
            let setpriv = ["setpriv", &format!("--reuid={id}"), &format!("--regid={id}"), "--clear-groups"];
            command_line.extend(setpriv.map(str::to_owned));
        }
        command_line.push(self.program.display().to_string());
        let mut command = Command::new(&command_line[0]);
        command
            .args(&command_line[1..])
            .args(arguments)
            .current_dir(self.path("fleet"))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", self.path("home"))
            .env("XDG_RUNTIME_DIR", &self.root)
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    fn start(&mut self) {
        let log = fs::File::create(self.path("log")).unwrap();
        let mut daemon =
            self.command(&["start", "--no-server"]).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        self.wrapper_command.clear();
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let log = fs::read_to_string(self.path("log")).unwrap();
        assert!(!line.is_empty(), "the daemon did not start: {log}");
        self.daemon = Some(daemon);
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let Output { stdout, stderr, .. } =
            self.command(&[arguments, &["--json"]].concat()).output().unwrap();
        serde_json::from_slice(&stdout).unwrap_or_else(|error| {
            panic!("{arguments:?}: {error}: {}", String::from_utf8_lossy(&[stdout, stderr].concat()))
        })
    }

    fn trigger(&self) -> String {
        self.json(&["trigger", "wild"])["id"].as_str().unwrap().to_owned()
    }

    /// Waits for the end of the job; returns it with its output.
    fn ended(&self, id: &str) -> (Value, String) {
        let job = wait_until("the job's end", || {
            let job = self.json(&["job", id]);
            (!matches!(job["status"].as_str(), Some("pending" | "running"))).then_some(job)
        });
        let said = self.command(&["logs", id]).output().unwrap().stdout;
        (job, String::from_utf8_lossy(&said).into_owned())
    }

    fn run(&self) -> (Value, String) {
        self.ended(&self.trigger())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let stopped = self.command(&["stop", "--timeout", "0"]).output();
            daemon.kill().ok();
            daemon.wait().ok();
            let stopped = stopped.unwrap();
            let said = String::from_utf8_lossy(&stopped.stderr).into_owned();
            assert!(
                stopped.status.success() || std::thread::panicking(),
                "the daemon was not stopped: {said}"
            );
        }
        for pid in processes_naming(&self.root) {
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

/// Links the program into a folder where everybody can run it: its build folder may be closed to others.
fn program() -> (PathBuf, TempDir) {
    let folder = TempDir::new_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (built, program) = (env!("CARGO_BIN_EXE_cowhand"), folder.path().join("cowhand"));
    // If the folder is on another disk, the program is copied.
    fs::hard_link(built, &program).or_else(|_| fs::copy(built, &program).map(drop)).unwrap();
    (program, folder)
}

/// Returns the processes whose arguments or directory name this folder.
fn processes_naming(folder: &Path) -> Vec<Pid> {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(|pid| *pid != own);
    let names = |pid: &String| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let directory = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(folder.to_str().unwrap())
            || directory.starts_with(folder)
    };
    pids.filter(names).filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}
