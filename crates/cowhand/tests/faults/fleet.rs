//! A fleet under load. Its agents record their runs on a disk that no fault affects.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cowhand_testing::postgres::Postgres;
use cowhand_testing::process::processes;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::disk::Namespace;
use crate::http::{deliver, get};
use crate::{Setting, StoreKind};

const COWHAND: &str = env!("CARGO_BIN_EXE_cowhand");
const AGENTS: usize = 4;

pub(crate) struct Fleet {
    folder: TempDir,
    pub(crate) namespace: Option<Namespace>,
    daemon: Option<Child>,
    /// Environment of the daemon.
    pub(crate) variables: Vec<(&'static str, String)>,
    pub(crate) descriptors: Option<u32>,
    pub(crate) sender: Sender,
    /// The server of the store, unless the store is a file in the fleet's folder.
    pub(crate) server: Option<Postgres>,
}

impl Fleet {
    pub(crate) fn new(setting: Setting) -> Self {
        Self::on_disk(setting, None::<fn(&Namespace, &Path)>)
    }

    /// Creates a fleet, with its folder on its own disk if `mount` is given.
    pub(crate) fn on_disk(setting: Setting, mount: Option<impl FnOnce(&Namespace, &Path)>) -> Self {
        let folder = tempfile::Builder::new().prefix("cowhand-faults-").tempdir().unwrap();
        std::fs::create_dir(folder.path().join("fleet")).unwrap();
        let namespace = mount.map(|mount| {
            let namespace = Namespace::start();
            mount(&namespace, &folder.path().join("fleet"));
            namespace
        });
        let (variables, sender) = (Vec::new(), Sender::default());
        let server = (setting.store == StoreKind::Postgres).then(Postgres::start);
        let fleet = Self { folder, namespace, daemon: None, variables, descriptors: None, sender, server };
        fleet.write_config(true);
        fleet
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("fleet")
    }

    /// Returns the path of a file on the fleet's disk, as seen from outside the fleet's mount namespace.
    pub(crate) fn seen(&self, name: &str) -> PathBuf {
        let path = self.path().join(name);
        self.namespace.as_ref().map_or(path.clone(), |namespace| namespace.outside_path(&path))
    }

    /// Returns a path that no fault affects.
    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a config with agents that take deliveries, one that fires every second, and one that works
    /// until there is a file `go`.
    pub(crate) fn write_config(&self, ticks: bool) {
        let mut config = "server: {listen: \"127.0.0.1:0\"}\n".to_owned();
        if let Some(server) = &self.server {
            writeln!(config, "store: '{}'", server.url()).unwrap();
        }
        config.push_str("agents:\n");
        let ran = format!("echo $COWHAND_JOB_ID $COWHAND_AGENT >> {}", self.outside("ran").display());
        let hook = "hook: {type: webhook, allow_unsigned: true, prompt: x}";
        for number in 0..AGENTS {
            write!(
                config,
                "- name: w{number}\n  runtime: command\n  command: [sh, -c, '{ran}; echo works; sleep 0.2; echo done; exit 0']\n  \
                 instances: {{max_concurrent: 3}}\n  schedules: {{{hook}}}\n"
            )
            .unwrap();
        }
        write!(
            config,
            "- name: tick\n  runtime: command\n  command: [sh, -c, '{ran}; exit 0']\n  \
             schedules: {{s: {{type: interval, interval: 1s, jitter: 0, enabled: {ticks}}}}}\n\
             - name: long\n  runtime: command\n  command: [sh, -c, '{ran}; while ! [ -e {} ]; do sleep 0.1; done; exit 0']\n  \
             timeout: 10m\n  schedules: {{{hook}}}\n",
            self.outside("go").display()
        )
        .unwrap();
        // A failing disk keeps only synced data.
        let mut file = std::fs::File::create(self.seen("cowhand.yaml")).unwrap();
        file.write_all(config.as_bytes()).unwrap();
        file.sync_all().unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new("env");
        if let Some(namespace) = &self.namespace {
            command = namespace.command("env");
        }
        for (name, value) in &self.variables {
            command.arg(format!("{name}={value}"));
        }
        if let Some(most) = self.descriptors {
            command.args(["prlimit", &format!("--nofile={most}:{most}")]);
        }
        command.arg(COWHAND);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command().args(arguments).arg("-c").arg(self.path()).output().unwrap()
    }

    pub(crate) fn start(&mut self) {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.outside("log")).unwrap();
        let mut command = self.command();
        command.args(["start", "--stop-timeout", "60", "-c"]).arg(self.path());
        let mut daemon = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.daemon = Some(daemon);
        let place = line.trim().strip_prefix("ready http://");
        let place = place.unwrap_or_else(|| panic!("{line:?}\n{}", self.log()));
        place.clone_into(&mut self.sender.shared.place.lock().unwrap());
    }

    pub(crate) fn place(&self) -> String {
        self.sender.shared.place.lock().unwrap().clone()
    }

    /// Returns the pid of the daemon. The programs that prepare its environment execute it, so the pid stays the same.
    pub(crate) fn daemon(&self) -> Pid {
        Pid::from_child(self.daemon.as_ref().unwrap())
    }

    pub(crate) fn kill(&mut self) {
        let mut daemon = self.daemon.take().unwrap();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Stops the daemon with `cowhand stop`.
    pub(crate) fn stop(&mut self, arguments: &[&str]) {
        let stopped = self.run(&[&["stop"], arguments].concat());
        assert!(stopped.status.success(), "{}\n{}", String::from_utf8_lossy(&stopped.stderr), self.log());
        let status = self.daemon.take().unwrap().wait().unwrap();
        assert!(status.success(), "{status}\n{}", self.log());
    }

    pub(crate) fn log(&self) -> String {
        let log = std::fs::read_to_string(self.outside("log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    /// Returns the jobs that ran, as their agents recorded them, once for each run.
    pub(crate) fn ran(&self) -> Vec<(String, String)> {
        let text = std::fs::read_to_string(self.outside("ran")).unwrap_or_default();
        let words = |line: &str| line.split_once(' ').map(|(job, agent)| (job.to_owned(), agent.to_owned()));
        text.lines().filter_map(words).collect()
    }

    pub(crate) fn ticks(&self) -> usize {
        self.ran().iter().filter(|(_, agent)| agent == "tick").count()
    }

    pub(crate) fn keepers(&self) -> Vec<Pid> {
        let ours = format!("keeper {}", self.path().display());
        processes(|cmdline, _| cmdline.contains(&ours))
    }

    /// Returns all processes of the fleet.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let ours = self.folder.path().display().to_string();
        processes(|cmdline, environment| cmdline.contains(&ours) || environment.contains(&ours))
    }

    pub(crate) fn is_ready(&self) -> bool {
        get(&self.place(), "/readyz").is_ok_and(|answer| answer.status == 200)
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, what: &str, mut look: impl FnMut() -> bool) {
        let patience = Instant::now() + Duration::from_mins(2);
        while !look() {
            assert!(Instant::now() < patience, "timed out while waiting for {what}:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until more deliveries are accepted, so that jobs are running.
    pub(crate) fn wait_for_work(&self, more: usize) {
        let before = self.sender.accepted().len();
        self.wait_for("deliveries to be accepted", || self.sender.accepted().len() >= before + more);
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.sender.stop();
        std::fs::write(self.outside("go"), "").ok();
        if self.daemon.is_some() {
            self.kill();
        }
        for pid in self.processes() {
            kill_process(pid, Signal::KILL).ok();
        }
    }
}

/// Sender of deliveries, which repeats each until it is accepted.
#[derive(Default)]
pub(crate) struct Sender {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    place: Mutex<String>,
    accepted: Mutex<Vec<String>>,
    refused: AtomicU64,
    ends: AtomicBool,
}

impl Sender {
    pub(crate) fn start(&mut self) {
        let shared = Arc::clone(&self.shared);
        shared.ends.store(false, Ordering::Relaxed);
        let first = self.shared.accepted.lock().unwrap().len() * 10;
        self.thread = Some(std::thread::spawn(move || {
            for number in first.. {
                let (id, hook) = (format!("d{number}"), format!("w{}/hook", number % AGENTS));
                if !shared.send(&hook, &id) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(40));
            }
        }));
    }

    /// Sends one more delivery now.
    pub(crate) fn send(&self, hook: &str, id: &str) {
        self.shared.send(hook, id);
    }

    pub(crate) fn stop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }

    pub(crate) fn accepted(&self) -> Vec<String> {
        self.shared.accepted.lock().unwrap().clone()
    }

    pub(crate) fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

impl Shared {
    /// Sends a delivery until it is accepted. Returns false if the sender is stopped first; the delivery then does not
    /// count.
    fn send(&self, hook: &str, id: &str) -> bool {
        while !self.ends.load(Ordering::Relaxed) {
            let place = self.place.lock().unwrap().clone();
            match deliver(&place, hook, id) {
                // If a delivery was stored and its answer was lost, the next try is answered as a duplicate.
                Ok(answer) if matches!(answer.status, 200 | 202) => {
                    self.accepted.lock().unwrap().push(id.to_owned());
                    return true;
                }
                Ok(answer) => {
                    assert!(answer.status >= 500, "{answer:?}");
                    self.refused.fetch_add(1, Ordering::Relaxed);
                }
                // No daemon runs at the moment.
                Err(_) => {}
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }
}

/// Writes a text atomically, because others read the file at any time.
pub(crate) fn write_whole(path: &Path, text: &str) {
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap()).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.persist(path).unwrap();
}
