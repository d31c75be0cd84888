//! A node with an SQLite store is the only node.

use std::fs;

use super::{CommonFolder, Machine};

fn alone(fleet: &str) -> Machine {
    let machine = Machine::new("unused", fleet);
    let config = format!("server: {{enabled: false}}\n{fleet}");
    fs::write(machine.root.join("cowhand.yaml"), config).unwrap();
    machine
}

#[test]
fn the_only_node_is_listed_and_can_be_drained() {
    let common = CommonFolder::new();
    let machine = alone(&format!("agents:\n{}", common.waiter("worker", "")));
    machine.start(&["--label", "gpu", "--capacity", "2"]);
    let name = machine.name();
    let node = machine.node(&name);
    assert_eq!((&node["state"], &node["is_this"]), (&"ready".into(), &true.into()), "{node:#}");
    machine.text(&["drain"]);
    let job = machine.trigger("worker");
    machine.wait_for_reason(&job, &format!("the only node, {name}, is drained; `cowhand undrain {name}`"));
    assert_eq!(machine.node(&name)["state"], "drained");
    assert!(machine.refused(&["nodes", "forget", &name]).contains("runs"));
    machine.text(&["undrain"]);
    machine.wait_for(&job, "running");
    common.go();
    machine.wait_for(&job, "completed");
    machine.text(&["stop"]);
    assert_eq!(machine.node(&name)["state"], "gone");
    let without_daemon = machine.run(&["drain"]);
    assert_eq!(without_daemon.code, Some(4), "{}", without_daemon.stderr);
}

/// No other node can run the job, so it fails with the reason, as without nodes.
#[test]
fn the_only_node_starts_jobs_that_it_cannot_run() {
    let machine = alone("agents:\n  - {name: missing, runtime: command, command: [no-such-program-here]}\n");
    machine.start(&[]);
    let node = machine.node(&machine.name());
    assert_eq!(node["unable"][0]["agent"], "missing", "{node:#}");
    let job = machine.trigger("missing");
    let failed = machine.wait_for(&job, "failed");
    assert!(failed["error"]["message"].as_str().unwrap().contains("no-such-program-here"), "{failed:#}");
}
