//! What `on_lost_lease` and `leases.max_pause` say.

use std::fs;

use serde_json::Value;

use super::{Fleet, LEASE, uptime};
use cowhand_testing::process::has_ended;
use cowhand_testing::wait_until;

#[test]
fn agent_that_has_to_end_is_ended_at_its_deadline() {
    let fleet = Fleet::new("    on_lost_lease: end\n");
    let here = fleet.node();
    here.start();
    let job = here.trigger("beater");
    fleet.until_beat(1, 0.0);
    let agent = fleet.agent_pid(1);
    here.kill_daemon();
    here.until_gone(agent);
    assert!(!here.attempt_file(&job, 1, "pauses.json").exists());
    fleet.write("go");
    here.start();
    let ended = here.until_ended(&job);
    assert_eq!((&ended["status"], &ended["attempt"]), (&"completed".into(), &2.into()), "{ended:#}");
    let attempts = fleet.ask("select outcome from attempts where number = 1");
    assert!(attempts.contains("its agent was ended (`on_lost_lease: end`)"), "{attempts}");
    fleet.assert_one_at_a_time();
}

#[test]
fn agent_that_continues_is_never_taken_over_unless_somebody_cancels() {
    let fleet = Fleet::new("    on_lost_lease: continue\n");
    let [here, there] = [fleet.node(), fleet.node()];
    here.start();
    there.start();
    let job = here.trigger("beater");
    fleet.until_beat(1, 0.0);
    let node = there.job(&job)["node"].as_str().unwrap().to_owned();
    let mine = fs::read_to_string(here.root().join(".cowhand/node")).unwrap();
    let (owner, other) = if mine.trim() == node { (&here, &there) } else { (&there, &here) };
    owner.kill_daemon();
    let killed = uptime();
    fleet.until_beat(1, killed + 3.0 * LEASE);
    assert!(!owner.attempt_file(&job, 1, "deadline.json").exists());
    assert_eq!(other.job(&job)["status"], "running");
    let shown = other.text(&["job", &job]);
    assert!(shown.contains("has not renewed the lease") && shown.contains("cowhand cancel"), "{shown}");
    other.run(&["cancel", &job]);
    assert_eq!(other.until_ended(&job)["status"], "failed");
    let agent = fleet.agent_pid(1);
    owner.start();
    owner.until_gone(agent);
}

#[test]
fn agent_that_is_paused_for_too_long_is_ended() {
    let fleet = Fleet::new("");
    let here = fleet.node();
    here.change_config("max_pause: 1h", "max_pause: 1s");
    here.start();
    let job = here.trigger("beater");
    fleet.until_beat(1, 0.0);
    let agent = fleet.agent_pid(1);
    here.kill_daemon();
    here.until_paused(&job, 1);
    wait_until("the agent to be gone", || has_ended(agent).then_some(()));
    let file = here.attempt_file(&job, 1, "ending.json");
    let ending = wait_until("the ending", || fs::read(&file).ok());
    let ending: Value = serde_json::from_slice(&ending).unwrap();
    assert_eq!(ending["lease_loss"]["kind"], "after_pause", "{ending:#}");
    fleet.write("go");
    here.start();
    assert_eq!(here.until_ended(&job)["status"], "completed");
    let attempts = fleet.ask("select outcome from attempts where number = 1");
    assert!(attempts.contains("its agent was ended after a pause of 1s"), "{attempts}");
}

/// A paused agent that is cancelled is ended without working again.
#[test]
fn paused_agent_can_be_cancelled() {
    let mut fleet = Fleet::new("");
    let here = fleet.node();
    here.start();
    let job = here.trigger("beater");
    fleet.until_beat(1, 0.0);
    let agent = fleet.agent_pid(1);
    fleet.server().stop();
    here.until_paused(&job, 1);
    let paused = uptime();
    here.run(&["stop", "--timeout", "0"]);
    here.until_gone(agent);
    assert!(fleet.beats().iter().all(|beat| beat.at <= paused));
    fleet.server().start_again();
    here.start();
    assert_eq!(here.until_ended(&job)["status"], "cancelled");
}
