//! Agents in containers whose node cannot renew the lease of their job. The engine pauses the container.

use std::fs;

use cowhand_testing::postgres::Postgres;
use serde_json::{Value, json};

use super::super::{Scene, User, wait_until};
use super::plain;

impl Scene {
    /// Puts the store on a database with short leases.
    fn share(&self, server: &Postgres) {
        let file = self.path("fleet/cowhand.yaml");
        let mut fleet: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        fleet["store"] = server.url().into();
        fleet["leases"] = json!({"length": "3s"});
        self.write("fleet/cowhand.yaml", &fleet.to_string());
    }

    fn beats(&self) -> usize {
        fs::read_to_string(self.path("desk/beats")).unwrap_or_default().lines().count()
    }

    /// Waits until the engine shows the container in this state.
    fn until_container_is(&self, state: &str) {
        wait_until(state, || {
            let states = self.engine().podman(&["ps", "-a", "--format", "{{.State}}"]);
            (states.trim().to_lowercase() == state).then_some(())
        });
    }
}

const SCRIPT: &str = "while [ ! -e go ]; do echo . >>beats; sleep 0.05; done; echo went";

#[test]
fn container_is_paused_and_continues() {
    let server = Postgres::start();
    let mut scene = plain(User::Root, SCRIPT, &json!({}));
    scene.share(&server);
    scene.start();
    let id = scene.trigger();
    wait_until("the agent", || (scene.beats() > 0).then_some(()));
    scene.kill_daemon();
    scene.until_container_is("paused");
    let beats = scene.beats();
    scene.start();
    wait_until("the agent to continue", || (scene.beats() > beats).then_some(()));
    scene.write("desk/go", "");
    let (job, said) = scene.ended(&id);
    assert_eq!((&job["status"], &job["attempt"]), (&"completed".into(), &1.into()), "{job:#}\n{said}");
    assert!(said.contains("the agent continues after a pause of"), "{said}");
    scene.nothing_is_left();
}

#[test]
fn paused_container_is_removed_by_a_cancellation() {
    let mut server = Postgres::start();
    let mut scene = plain(User::Root, SCRIPT, &json!({}));
    scene.share(&server);
    scene.start();
    let id = scene.trigger();
    wait_until("the agent", || (scene.beats() > 0).then_some(()));
    server.stop();
    scene.until_container_is("paused");
    let stopped = scene.command(&["stop", "--timeout", "0"]).output().unwrap();
    assert!(stopped.status.success(), "{stopped:?}");
    scene.nothing_is_left();
    server.start_again();
    scene.start();
    assert_eq!(scene.ended(&id).0["status"], "cancelled");
}
