//! A fleet on a file, which only one node uses, has no deadlines.

use rustix::process::{Signal, kill_process};

use super::{Fleet, uptime};

#[test]
fn node_without_a_shared_store_pauses_nobody() {
    let fleet = Fleet::on_file();
    let here = fleet.node();
    here.start();
    let job = here.trigger("beater");
    fleet.until_beat(1, 0.0);
    for name in ["deadline.json", "pauses.json"] {
        assert!(!here.attempt_file(&job, 1, name).exists(), "{name}");
    }
    let daemon = here.daemon();
    kill_process(daemon, Signal::STOP).unwrap();
    fleet.until_beat(1, uptime() + super::LEASE);
    kill_process(daemon, Signal::CONT).unwrap();
    here.kill_daemon();
    fleet.until_beat(1, uptime());
    here.start();
    fleet.until_beat(1, uptime());
    for name in ["deadline.json", "pauses.json"] {
        assert!(!here.attempt_file(&job, 1, name).exists(), "{name}");
    }
    fleet.write("go");
    let ended = here.until_ended(&job);
    assert_eq!((&ended["status"], &ended["attempt"]), (&"completed".into(), &1.into()), "{ended:#}");
}
