//! Kills of the processes around a container: no container outlives its attempt, and none ends with the
//! daemon.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::super::{Scene, User, wait_until};
use super::plain;

const WAITING: &str = "echo up; touch up; while [ ! -e go ]; do sleep 0.05; done; echo went on; touch over";

fn kill(pid: &Value) {
    let pid = Pid::from_raw(i32::try_from(pid["pid"].as_i64().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

/// Running agent with its job.
struct Running {
    scene: Scene,
    id: String,
}

impl Running {
    fn new() -> Self {
        let mut scene = plain(User::Root, WAITING, &json!({}));
        scene.start();
        let id = scene.trigger();
        wait_until("the agent", || scene.path("desk/up").exists().then_some(()));
        assert_eq!(scene.engine().containers().len(), 1);
        Self { scene, id }
    }

    fn who(&self, file: &str) -> Value {
        let path = self.scene.path(&format!("fleet/.cowhand/attempts/{}.1/{file}", self.id));
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
    }

    /// Checks that the job failed and nothing is left.
    fn failed(&self) {
        let (job, said) = self.scene.ended(&self.id);
        assert_eq!(job["status"], "failed", "{job:#}\n{said}");
        self.scene.nothing_is_left();
        assert!(!self.scene.path("desk/over").exists());
        let record = format!("fleet/.cowhand/attempts/{}.1/container", self.id);
        assert!(!self.scene.path(&record).exists());
    }
}

#[test]
fn container_ends_when_agent_process_is_killed() {
    let running = Running::new();
    kill(&running.who("agent.json"));
    running.failed();
}

/// The process that represents the container continues to its end.
#[test]
fn container_continues_when_keeper_is_killed() {
    let running = Running::new();
    kill(&running.who("keeper.json"));
    running.scene.write("desk/go", "");
    let (job, said) = running.scene.ended(&running.id);
    assert_ne!(job["status"], "running", "{job:#}");
    assert!(said.contains("went on"), "{said}");
    running.scene.nothing_is_left();
}

/// A job without a keeper can be cancelled too.
#[test]
fn job_without_keeper_can_be_cancelled() {
    let running = Running::new();
    kill(&running.who("keeper.json"));
    let said = running.scene.command(&["cancel", &running.id]).output().unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let (job, said) = running.scene.ended(&running.id);
    assert_eq!(job["status"], "cancelled", "{job:#}\n{said}");
    running.scene.nothing_is_left();
    assert!(!running.scene.path("desk/over").exists());
}

#[test]
fn container_ends_when_keeper_and_agent_process_are_killed() {
    let running = Running::new();
    let agent = running.who("agent.json");
    kill(&running.who("keeper.json"));
    kill(&agent);
    running.failed();
}

#[test]
fn next_start_removes_container_after_all_were_killed() {
    let mut running = Running::new();
    let agent = running.who("agent.json");
    running.scene.kill_daemon();
    kill(&running.who("keeper.json"));
    kill(&agent);
    assert_eq!(running.scene.engine().containers().len(), 1);
    running.scene.start();
    running.failed();
}

/// The folder of the attempt is gone; the labels of the container still identify it.
#[test]
fn next_start_removes_container_without_attempt_folder() {
    let mut running = Running::new();
    let agent = running.who("agent.json");
    running.scene.kill_daemon();
    kill(&running.who("keeper.json"));
    kill(&agent);
    fs::remove_dir_all(running.scene.path("fleet/.cowhand/attempts")).unwrap();
    running.scene.start();
    running.scene.nothing_is_left();
    let (job, said) = running.scene.ended(&running.id);
    assert_eq!(job["status"], "failed", "{job:#}\n{said}");
}

/// The agent is not affected, and its job is reported once.
#[test]
fn container_continues_when_daemon_is_killed() {
    let mut running = Running::new();
    running.scene.kill_daemon();
    assert_eq!(running.scene.engine().containers().len(), 1);
    running.scene.start();
    running.scene.write("desk/go", "");
    let (job, said) = running.scene.ended(&running.id);
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    let told = |word: &str| said.lines().filter(|line| *line == word).count();
    assert_eq!((told("up"), told("went on")), (1, 1), "{said}");
    running.scene.nothing_is_left();
}

/// The agent ends while no daemon runs.
#[test]
fn container_that_ended_without_daemon_is_settled() {
    let mut running = Running::new();
    running.scene.kill_daemon();
    running.scene.write("desk/go", "");
    running.scene.nothing_is_left();
    running.scene.start();
    let (job, said) = running.scene.ended(&running.id);
    assert_eq!(job["status"], "completed", "{job:#}\n{said}");
    assert!(said.contains("went on"), "{said}");
}

/// Containers of Podman continue without the engine. A container that cannot be reached is ended, with or without the
/// engine.
#[test]
fn container_is_ended_when_engine_is_killed() {
    let mut running = Running::new();
    running.scene.podman.as_mut().unwrap().kill();
    let (job, said) = running.scene.ended(&running.id);
    assert_eq!(job["status"], "failed", "{job:#}\n{said}");
    let socket = running.scene.engine().socket();
    let lost = format!("the connection to the container engine at {} ", socket.display());
    assert!(said.contains(&lost), "{said}");
    // The end of the agent is not its own failure.
    assert_eq!(job["error"]["kind"], "lost", "{job:#}");
    assert!(job["error"]["message"].as_str().unwrap().contains(&lost), "{job:#}");
    wait_until("no process to be left", || {
        super::super::processes_naming(&running.scene.path("desk")).is_empty().then_some(())
    });
    assert!(!running.scene.path("desk/over").exists());
    // Only its name remains, which is removed when the engine answers again.
    running.scene.kill_daemon();
    running.scene.podman.as_mut().unwrap().serve();
    running.scene.start();
    running.scene.nothing_is_left();
}
