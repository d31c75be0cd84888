//! Agents that a signal ends. The sandbox reports the signal as an exit code; the job still fails because of a signal.

use std::fs;

use serde_json::{Value, json};

use super::{Scene, User, for_each_sandbox, in_a_container, wait_until};

for_each_sandbox!(a_killed_agent);
in_a_container!(a_killed_agent);

/// Returns an agent that runs a second time only after a signal.
fn retried(sandbox: &Value) -> Value {
    json!({"sandbox": sandbox, "retry": {"max_attempts": 2, "backoff": "1s", "on": ["signal"]}})
}

/// The second attempt is killed too, so that the job shows how it ended.
fn a_killed_agent(kind: &str, user: User) {
    let script = "echo try >>tries; while :; do sleep 0.05; done";
    let mut scene = Scene::new(user, script, &retried(&json!({"kind": kind})));
    scene.start();
    let id = scene.trigger();
    for attempt in 1..=2 {
        wait_until("the agent", || {
            let tries = fs::read_to_string(scene.path("desk/tries")).unwrap_or_default();
            (tries.lines().count() == attempt).then_some(())
        });
        match &scene.podman {
            Some(podman) => {
                podman.podman(&["kill", &podman.containers()[0]]);
            }
            None => kill_shell(&scene),
        }
    }
    let (job, said) = scene.ended(&id);
    assert_eq!(job["error"]["kind"], "signal", "{job:#}\n{said}");
    let message = job["error"]["message"].as_str().unwrap();
    assert!(message.contains("ended by SIGKILL"), "{message}");
    assert_eq!(message.contains("its sandbox reported exit code 137"), kind != "landlock", "{message}");
}

/// Kills the process of the agent, and not the program that made its sandbox.
fn kill_shell(scene: &Scene) {
    let is_shell = |pid: &rustix::process::Pid| {
        let words = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).unwrap_or_default();
        String::from_utf8_lossy(&words).replace('\0', " ").trim().ends_with("sh ./agent.sh")
            && !words.starts_with(b"bwrap")
            && !words.starts_with(b"/dev/cowhand")
    };
    let shells = super::processes_naming(&scene.path("desk"));
    let shell = shells.into_iter().find(is_shell).expect("the agent's process");
    rustix::process::kill_process(shell, rustix::process::Signal::KILL).unwrap();
}

const HOARDER: &str = "exec perl -e 'my @all; push @all, \"x\" x 10_000_000 while 1'";

/// The container ends with the agent, often before its control group was found or read.
#[test]
fn out_of_memory_is_always_explained_in_a_container() {
    let mut scene =
        Scene::new(User::Root, HOARDER, &json!({"sandbox": {"kind": "docker", "memory": "50MB"}}));
    scene.start();
    for _ in 0..6 {
        let (job, said) = scene.run();
        assert_eq!(job["error"]["kind"], "signal", "{job:#}\n{said}");
        assert!(said.contains("the sandbox's cap on memory (50000000 bytes) was "), "{said}");
    }
}

/// The cap on memory kills the agent itself.
#[test]
fn out_of_memory_is_a_signal() {
    for kind in ["none", "bubblewrap"] {
        let script = HOARDER;
        let mut scene = Scene::new(User::Root, script, &json!({"sandbox": {"kind": kind, "memory": "50MB"}}));
        scene.start();
        let (job, said) = scene.run();
        assert_eq!(job["error"]["kind"], "signal", "{kind}: {job:#}\n{said}");
        assert!(said.contains("the sandbox's cap on memory (50000000 bytes) was reached"), "{kind}: {said}");
    }
}

/// An ordinary exit code does not count as a signal.
#[test]
fn exit_code_of_agent_is_kept() {
    for code in [1, 125, 127, 144] {
        let mut scene = Scene::new(User::Root, &format!("exit {code}"), &json!({"sandbox": "bubblewrap"}));
        scene.start();
        let (job, said) = scene.run();
        assert_eq!(job["error"]["kind"], "exit", "{job:#}\n{said}");
        assert!(job["error"]["message"].as_str().unwrap().contains(&format!("exit code {code}")), "{job:#}");
    }
}
