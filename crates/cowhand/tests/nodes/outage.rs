//! Outages of the database that last longer than a lease.

use std::fs;

use super::{Fleet, LEASE, uptime};
use cowhand_testing::wait_until;

/// One node runs jobs, the other one could take them over.
#[test]
fn no_running_and_no_finished_work_is_lost() {
    let mut fleet = Fleet::new("");
    let [here, there] = [fleet.node(), fleet.node()];
    here.start();
    let running = here.trigger("beater");
    let finishing = here.trigger("finisher");
    fleet.until_beat(1, 0.0);
    wait_until("the other agent", || fleet.common.path().join("waits").exists().then_some(()));
    there.start();
    fleet.server().stop();
    let stopped = uptime();
    fleet.write("end");
    let ending = here.attempt_file(&finishing, 1, "ending.json");
    wait_until("the end of the agent", || ending.exists().then_some(()));
    here.until_paused(&running, 1);
    wait_until("the outage to be long", || (uptime() > stopped + 2.5 * LEASE).then_some(()));
    let shown = here.run(&["status"]);
    assert!(format!("{}{}", shown.1, shown.2).contains("paused"), "{shown:?}");
    let back = uptime();
    fleet.server().start_again();
    fleet.until_beat(1, back);
    // Each node has had the time of a lease to renew, and the leases are renewed again.
    wait_until("a lease to pass", || (uptime() > back + 1.5 * LEASE).then_some(()));
    let beats = fleet.beats();
    let worked_in_outage = beats.iter().filter(|beat| beat.at > stopped + LEASE && beat.at < back);
    assert_eq!(worked_in_outage.count(), 0, "paused from {stopped} to {back}");
    fleet.write("go");
    for job in [&running, &finishing] {
        let ended = here.until_ended(job);
        assert_eq!((&ended["status"], &ended["attempt"]), (&"completed".into(), &1.into()), "{ended:#}");
    }
    assert!(here.text(&["logs", &finishing]).contains("finished well"));
    let logs = here.text(&["logs", &running]);
    assert!(logs.contains("the agent is paused") && logs.contains("the agent continues"), "{logs}");
    fleet.assert_one_at_a_time();
}

/// A short outage has no effect at all.
#[test]
fn an_outage_shorter_than_a_lease_pauses_nobody() {
    let mut fleet = Fleet::new("");
    let here = fleet.node();
    here.change_config("length: 3s", "length: 30s");
    here.start();
    let job = here.trigger("beater");
    fleet.until_beat(1, 0.0);
    fleet.server().stop();
    fleet.server().start_again();
    let deadline = || fs::read_to_string(here.attempt_file(&job, 1, "deadline.json")).unwrap();
    let before = deadline();
    wait_until("the lease to be renewed", || (deadline() != before).then_some(()));
    fleet.until_beat(1, uptime());
    assert!(!here.attempt_file(&job, 1, "pauses.json").exists());
    fleet.write("go");
    assert_eq!(here.until_ended(&job)["attempt"], 1);
}
