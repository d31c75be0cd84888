//! A node that no longer renews its leases: its agent is paused before another node takes the job over.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

use super::{Fleet, Node, uptime};
use cowhand_testing::process::has_ended;
use cowhand_testing::wait_until;

/// Starts a job on the first of two nodes.
fn two_nodes(fleet: &Fleet) -> ([Node; 2], String, Pid) {
    let nodes = [fleet.node(), fleet.node()];
    nodes[0].start();
    let job = nodes[0].trigger("beater");
    fleet.until_beat(1, 0.0);
    nodes[1].start();
    let agent = fleet.agent_pid(1);
    (nodes, job, agent)
}

/// Lets the second node run the job again while the agent of the first node is paused, and then lets the first node
/// come back.
fn comes_back_later(fail: fn(&Node), come_back: fn(&Node)) {
    let fleet = Fleet::new("");
    let ([here, there], job, agent) = two_nodes(&fleet);
    fail(&here);
    here.until_paused(&job, 1);
    fleet.until_beat(2, 0.0);
    assert!(!has_ended(agent), "it is paused");
    let second = fleet.agent_pid(2);
    come_back(&here);
    here.until_gone(agent);
    assert!(!has_ended(second));
    let superseded = || there.events(&job, "job:superseded").len();
    wait_until("the event", || (superseded() == 1).then_some(()));
    fleet.until_beat(2, uptime());
    fleet.write("go");
    let ended = there.until_ended(&job);
    assert_eq!(ended["status"], "completed", "{ended:#}");
    fleet.assert_one_at_a_time();
    let shown = there.text(&["job", &job]);
    assert!(shown.contains("superseded"), "{shown}");
    assert_eq!(superseded(), 1);
    let (_, logs, _) = here.run(&["logs", &job]);
    assert!(logs.contains("the agent is paused, because its node could not renew the lease"), "{logs}");
}

#[test]
fn node_that_was_killed() {
    comes_back_later(Node::kill_daemon, Node::start);
}

#[test]
fn node_that_was_stopped_without_its_agents() {
    let stop = |node: &Node| drop(node.text(&["stop", "--keep-agents"]));
    comes_back_later(stop, Node::start);
}

#[test]
fn node_that_was_suspended() {
    let suspend = |node: &Node| {
        let daemon = node.daemon();
        fs::write(node.root().join("daemon.pid"), daemon.as_raw_nonzero().to_string()).unwrap();
        kill_process(daemon, Signal::STOP).unwrap();
    };
    comes_back_later(suspend, |node| {
        let pid = fs::read_to_string(node.root().join("daemon.pid")).unwrap().parse().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::CONT).unwrap();
    });
}

/// The agent succeeds after its daemon was killed and before its deadline, but nobody is there to say so.
#[test]
fn success_on_a_node_that_was_killed_is_stored_later() {
    let fleet = Fleet::new("");
    let here = fleet.node();
    here.start();
    let job = here.trigger("finisher");
    wait_until("the agent", || fleet.common.path().join("waits").exists().then_some(()));
    here.kill_daemon();
    fleet.write("end");
    let ending = here.attempt_file(&job, 1, "ending.json");
    wait_until("the end of the agent", || ending.exists().then_some(()));
    let there = fleet.node();
    there.start();
    assert_eq!(there.until_ended(&job)["status"], "failed");
    // The daemon is killed between reading the output and storing the end, and starts again.
    let crashed = here.command(&["start", "-d", "--no-server"]).env("COWHAND_FAULT", "superseding").output();
    assert!(!crashed.unwrap().status.success());
    here.start();
    let superseded = there.events(&job, "job:superseded");
    assert_eq!(superseded.len(), 1);
    assert_eq!(superseded[0]["exit_reason"], "success", "{superseded:#?}");
    assert_eq!(there.job(&job)["status"], "failed", "the job has ended before");
    let shown = there.text(&["job", &job]);
    assert!(shown.contains("superseded") && shown.contains("success"), "{shown}");
    assert!(here.text(&["logs", &job]).contains("finished well"));
}

/// Until another node takes the job over, a node that comes back goes on with the same attempt.
#[test]
fn node_that_comes_back_before_another_node_takes_over() {
    let fleet = Fleet::new("");
    let here = fleet.node();
    here.start();
    let job = here.trigger("beater");
    fleet.until_beat(1, 0.0);
    here.kill_daemon();
    here.until_paused(&job, 1);
    let paused = uptime();
    assert!(fleet.beats().iter().all(|beat| beat.at <= paused));
    here.start();
    fleet.until_beat(1, paused);
    fleet.write("go");
    let ended = here.until_ended(&job);
    assert_eq!((&ended["status"], &ended["attempt"]), (&"completed".into(), &1.into()), "{ended:#}");
    let logs = here.text(&["logs", &job]);
    assert!(logs.contains("the agent continues after a pause of") && logs.contains("went"), "{logs}");
}
