//! Jobs go to the node that is relatively freer; a node that hangs holds no job up.

use cowhand_testing::postgres::Postgres;
use cowhand_testing::wait_until;
use rustix::process::{Signal, kill_process};

use super::{CommonFolder, Machine};

#[test]
fn jobs_are_spread_by_free_capacity() {
    let server = Postgres::start();
    let common = CommonFolder::new();
    let fleet = format!("agents:\n{}", common.waiter("worker", "    instances: {max_concurrent: 9}\n"));
    let [one, two] = [(), ()].map(|()| Machine::new(&server.url(), &fleet));
    one.start(&["--capacity", "4"]);
    two.start(&["--capacity", "2"]);
    let jobs: Vec<String> = (0..6).map(|_| one.trigger("worker")).collect();
    let nodes: Vec<String> =
        jobs.iter().map(|job| one.wait_for(job, "running")["node"].as_str().unwrap().to_owned()).collect();
    let on = |machine: &Machine| nodes.iter().filter(|node| **node == machine.name()).count();
    assert_eq!((on(&one), on(&two)), (4, 2), "{nodes:?}");
    common.go();
    for job in &jobs {
        one.wait_for(job, "completed");
    }
}

#[test]
fn a_job_is_left_to_an_idle_node() {
    let server = Postgres::start();
    let common = CommonFolder::new();
    let fleet = format!("agents:\n{}", common.waiter("worker", "    instances: {max_concurrent: 99}\n"));
    let [one, two] = [(), ()].map(|()| Machine::new(&server.url(), &fleet));
    one.start(&[]);
    let first = one.trigger("worker");
    one.wait_for(&first, "running");
    two.start(&[]);
    let idle = two.name();
    // Jobs may start here before this node knows the other node, or if the other node is slow.
    wait_until("a job on the other node", || {
        let job = one.trigger("worker");
        (one.wait_for(&job, "running")["node"] == idle.as_str()).then_some(())
    });
    common.go();
    one.wait_for(&first, "completed");
}

#[test]
fn a_job_does_not_wait_for_a_node_that_hangs() {
    let server = Postgres::start();
    let common = CommonFolder::new();
    let fleet = format!("agents:\n{}", common.waiter("worker", "    instances: {max_concurrent: 9}\n"));
    let [one, two] = [(), ()].map(|()| Machine::new(&server.url(), &fleet));
    one.start(&[]);
    let first = one.trigger("worker");
    one.wait_for(&first, "running");
    two.start(&[]);
    let daemon = two.daemon();
    kill_process(daemon, Signal::STOP).unwrap();
    let second = one.trigger("worker");
    let node = one.wait_for(&second, "running")["node"].clone();
    kill_process(daemon, Signal::CONT).unwrap();
    assert_eq!(node, one.name().as_str());
    common.go();
    one.wait_for(&second, "completed");
}
