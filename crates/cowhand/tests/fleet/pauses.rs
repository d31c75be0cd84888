//! Schedules that have paused themselves: what happens to events of the fleet during a pause.

use serde_json::Value;

use super::{Scene, wait_until};

/// `a/d` fires when a job of `up/m` ends, and fails until there is a file `good`.
const FOLLOWER: &str = r#"
agents:
  - name: up
    runtime: command
    command: ["true"]
    schedules: {m: {type: manual, prompt: Go.}}
  - name: a
    runtime: command
    command: [sh, -c, "test -e good"]
    breaker: {failures: 2, pause: 1h}
    schedules:
      d: {type: dispatch_result, schedule: up/m, prompt: "after {{upstream.job_id}}"}
"#;

impl Scene {
    /// Lets jobs of `up/m` end, until `a/d` has paused itself.
    fn paused_follower() -> Self {
        let scene = Self::with(FOLLOWER);
        scene.start();
        for failures in 1..=2 {
            scene.run(&["trigger", "up/m", "--wait"]);
            wait_until("a/d to fail", || (scene.jobs_of("a", "failed") == failures).then_some(()));
        }
        wait_until("a/d to pause", || (scene.schedule_status("a/d") == "paused").then_some(()));
        scene
    }

    fn schedule_status(&self, schedule: &str) -> Value {
        self.json(&["schedule", "show", schedule])["status"].clone()
    }

    fn jobs_of(&self, agent: &str, status: &str) -> usize {
        let jobs = self.json(&["jobs", "--agent", agent, "--status", status]);
        jobs.as_array().unwrap_or_else(|| panic!("{jobs}")).len()
    }
}

#[test]
fn enabling_a_paused_schedule_keeps_the_events_of_the_pause() {
    let scene = Scene::paused_follower();
    for _ in 0..3 {
        scene.run(&["trigger", "up/m", "--wait"]);
    }
    scene.write("good", "");
    assert_eq!(scene.run(&["schedule", "enable", "a/d"]).code, Some(0));
    wait_until("the events to run", || (scene.jobs_of("a", "completed") == 3).then_some(()));
    assert_eq!(scene.jobs_of("a", "failed"), 2);
}

#[test]
fn disabling_a_paused_schedule_keeps_the_events_before_it() {
    let scene = Scene::paused_follower();
    for _ in 0..3 {
        scene.run(&["trigger", "up/m", "--wait"]);
    }
    wait_until("the events to be accepted", || (scene.jobs_of("a", "pending") == 3).then_some(()));
    assert_eq!(scene.run(&["schedule", "disable", "a/d"]).code, Some(0));
    scene.run(&["trigger", "up/m", "--wait"]);
    scene.write("good", "");
    assert_eq!(scene.run(&["schedule", "enable", "a/d"]).code, Some(0));
    wait_until("the events to run", || (scene.jobs_of("a", "completed") == 3).then_some(()));
    scene.run(&["trigger", "up/m", "--wait"]);
    wait_until("the next event to run", || (scene.jobs_of("a", "completed") == 4).then_some(()));
    assert_eq!(scene.jobs_of("a", "pending"), 0, "the event while it was off does not run");
}
