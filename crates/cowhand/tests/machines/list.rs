//! `cowhand nodes`: every node is listed, and a node that no longer runs can be forgotten.

use cowhand_testing::postgres::Postgres;
use cowhand_testing::wait_until;

use super::{CommonFolder, Machine};

#[test]
fn idle_and_gone_nodes_are_listed() {
    let server = Postgres::start();
    let common = CommonFolder::new();
    let fleet = format!("agents:\n{}", common.waiter("worker", ""));
    let [one, two] = [(), ()].map(|()| Machine::new(&server.url(), &fleet));
    one.start(&["--label", "gpu=a100", "--label", "fast", "--capacity", "2"]);
    two.start(&[]);
    let (first, second) = (one.name(), two.name());
    let nodes = two.json(&["nodes"]);
    assert_eq!(nodes.as_array().unwrap().len(), 2, "{nodes:#}");
    let node = two.node(&first);
    assert_eq!((&node["state"], &node["is_this"]), (&"ready".into(), &false.into()), "{node:#}");
    assert_eq!((&node["capacity"], &node["running"]), (&2.into(), &0.into()), "{node:#}");
    assert_eq!(node["labels"], serde_json::json!(["gpu=a100", "fast"]));
    assert_eq!(node["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(node["config"], two.node(&second)["config"], "the same config");
    assert!(node["config"].as_str().is_some_and(|digest| digest.len() == 16), "{node:#}");
    let table = two.text(&["nodes"]);
    assert!(table.contains(&first) && table.contains(&format!("{second} (this)")), "{table}");
    assert!(table.contains("0/2") && table.contains("gpu=a100 fast"), "{table}");

    let refused = two.refused(&["nodes", "forget", &first]);
    assert!(refused.contains(&format!("the node {first} runs; stop its daemon first")), "{refused}");
    assert!(two.refused(&["nodes", "forget", &second]).contains("runs"), "this node");
    one.text(&["stop"]);
    let gone =
        wait_until("the end of the node", || Some(two.node(&first)).filter(|node| node["state"] == "gone"));
    assert!(gone["since"].is_string() && gone["since"] == gone["last_seen_at"], "{gone:#}");
    // The nodes are also listed without a daemon.
    assert_eq!(one.json(&["nodes"]).as_array().unwrap().len(), 2);
    let forgotten = two.text(&["nodes", "forget", &first]);
    assert_eq!(forgotten, format!("{first} is forgotten.\n"));
    assert!(two.node(&first).is_null());
    let unknown = two.run(&["nodes", "forget", &first]);
    assert!(unknown.stderr.contains("there is no node"), "{}", unknown.stderr);
    one.start(&[]);
    assert_eq!(two.node(&first)["state"], "ready", "a node that starts again is listed again");
    let events = two.text(&["events"]);
    assert!(events.contains("node:forgotten"), "{events}");
}

#[test]
fn a_node_with_leases_is_not_forgotten() {
    let server = Postgres::start();
    let common = CommonFolder::new();
    let fleet = format!("agents:\n{}", common.waiter("worker", ""));
    let [one, two] = [(), ()].map(|()| Machine::new(&server.url(), &fleet));
    one.start(&[]);
    let job = one.trigger("worker");
    one.wait_for(&job, "running");
    two.start(&[]);
    let first = one.name();
    one.text(&["stop", "--keep-agents"]);
    wait_until("the end of the node", || (two.node(&first)["state"] == "gone").then_some(()));
    let refused = two.refused(&["nodes", "forget", &first]);
    assert!(refused.contains("has leases of 1 job"), "{refused}");
    one.start(&[]);
    common.go();
    one.wait_for(&job, "completed");
}
