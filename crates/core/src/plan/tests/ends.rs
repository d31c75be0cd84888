//! Running jobs that have to end.

use super::*;

#[test]
fn a_lease_that_ran_out_lapses() {
    let held = |until: &str| LiveState::Running { epoch: 7, lease_until: at(until), cancel: false };
    let manual = || Scene::new(r#"{"type":"manual"}"#);
    check([
        ("held", manual().job("agent", held("10:01")), "10:00", "wake 10:01"),
        ("expired", manual().job("agent", held("10:00")), "10:00", "expire 1 epoch 7"),
    ]);
}

#[test]
fn a_cancelled_running_job_is_stopped_until_its_lease_expires() {
    let asked = |until: &str| LiveState::Running { epoch: 7, lease_until: at(until), cancel: true };
    let manual = || Scene::new(r#"{"type":"manual"}"#);
    check([
        ("held", manual().job("agent", asked("10:01")), "10:00", "stop 1 | wake 10:01"),
        ("expired, so no node stops it", manual().job("agent", asked("10:00")), "10:00", "expire 1 epoch 7"),
    ]);
}
