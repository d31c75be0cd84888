//! The daemon continues and forgets no job, whatever fails inside it: tasks that panic, a store that refuses,
//! a container engine that does not answer.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod costs;
mod engine;
mod panics;
mod store;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cowhand::store::{JobFilter, Store};
use cowhand_core::job::Job;
use tempfile::TempDir;

/// The real program with one agent that runs once, as soon as the daemon is up. Its remaining processes are
/// ended with the test.
struct Scene {
    folder: TempDir,
    daemon: Option<Child>,
}

impl Scene {
    /// Creates a fleet; the script runs in the scene's folder.
    fn new(script: &str) -> Self {
        let scene = Self { folder: TempDir::new().unwrap(), daemon: None };
        fs::write(scene.path("work.sh"), script).unwrap();
        let fleet = "agents:\n  - name: worker\n    runtime: command\n    command: [sh, work.sh]\n    \
                     schedules:\n      s: {type: interval, interval: 1h, jitter: 0}\n";
        fs::write(scene.path("cowhand.yaml"), fleet).unwrap();
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Starts the daemon, and returns whether it became ready before it died.
    fn start(&mut self, fault: &str) -> bool {
        let log = fs::File::options().append(true).create(true).open(self.path("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_cowhand"));
        command.args(["start", "--no-server", "-c"]).arg(self.folder.path());
        if !fault.is_empty() {
            command.env("COWHAND_FAULT", fault);
        }
        let mut daemon = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.daemon = Some(daemon);
        line.starts_with("ready")
    }

    /// Waits until the daemon has died by itself.
    fn wait_for_death(&mut self) {
        let status = self.daemon.take().unwrap().wait().unwrap();
        assert!(!status.success(), "it was to die:\n{}", self.read("log"));
    }

    fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Stops the daemon with SIGTERM.
    fn stop(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        Command::new("kill").arg(daemon.id().to_string()).status().unwrap();
        assert!(daemon.wait().unwrap().success(), "{}", self.read("log"));
    }

    async fn store(&self) -> Store {
        Store::open(&self.path(".cowhand/store.db").display().to_string()).await.unwrap()
    }

    /// Waits until the only job meets the condition, and returns it.
    async fn job(&self, store: &Store, what: &str, fits: impl Fn(&Job) -> bool) -> Job {
        let patience = Instant::now() + Duration::from_mins(1);
        loop {
            let jobs = store.jobs(JobFilter::default(), 10).await.unwrap();
            assert!(jobs.len() < 2, "{jobs:?}");
            if let Some(job) = jobs.first().filter(|job| fits(job)) {
                return job.clone();
            }
            assert!(Instant::now() < patience, "not {what}: {jobs:?}\n{}", self.read("log"));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn until(&self, what: &str, look: impl Fn() -> bool) {
        let patience = Instant::now() + Duration::from_mins(1);
        while !look() {
            assert!(Instant::now() < patience, "not {what}:\n{}", self.read("log"));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns how often the agent was started.
    fn starts(&self) -> usize {
        self.read("starts").lines().count()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().ok();
            daemon.wait().ok();
        }
        let ours = self.folder.path().display().to_string();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let [line, place] = [entry.path().join("cmdline"), entry.path().join("cwd")];
            let is_ours = fs::read(line).is_ok_and(|line| String::from_utf8_lossy(&line).contains(&ours))
                || fs::read_link(place).is_ok_and(|place| place.starts_with(&ours));
            if let Some(pid) = entry.file_name().to_str().filter(|_| is_ours) {
                Command::new("kill").args(["-9", pid]).stderr(Stdio::null()).status().ok();
            }
        }
    }
}

/// Returns the agent, its keeper and all other processes with the mark of an attempt of this job.
fn processes(job: &Job) -> Vec<String> {
    let mark = format!("COWHAND_ATTEMPT_ID={}.", job.id());
    let of = |pid: &String| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).contains(&mark)
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    pids.filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit())).filter(of).collect()
}

/// Kills all processes of a job, as a power cut would.
fn kill_all_of(job: &Job) {
    for pid in processes(job) {
        // A process may have ended with another.
        Command::new("kill").args(["-9", &pid]).stderr(Stdio::null()).status().unwrap();
    }
}
