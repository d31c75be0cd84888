//! `runs_on` of an agent chooses nodes by their labels.

use cowhand_testing::postgres::Postgres;

use super::Machine;

const FLEET: &str = "defaults: {runs_on: [cpu]}\nagents:\n  \
                     - {name: trainer, runtime: command, command: [echo, trained], runs_on: [gpu]}\n  \
                     - {name: clerk, runtime: command, command: [echo, written]}\n";

#[test]
fn an_agent_runs_on_a_node_with_its_labels() {
    let server = Postgres::start();
    let one = Machine::new(&server.url(), FLEET);
    // The labels of a second node come from its environment.
    let two = Machine::with_variables(
        &server.url(),
        FLEET,
        &[("COWHAND_LABELS", "gpu=a100, fast"), ("COWHAND_CAPACITY", "3")],
    );
    one.start(&["--label", "cpu"]);
    let job = one.trigger("trainer");
    one.wait_for_reason(
        &job,
        "no node has the label gpu (`runs_on`); start a node with `cowhand start --label gpu`",
    );
    let status = one.text(&["status"]);
    assert!(status.contains("no node has the label gpu"), "{status}");
    two.start(&[]);
    let second = two.name();
    assert_eq!(one.wait_for(&job, "completed")["node"], second.as_str());
    let node = one.node(&second);
    assert_eq!((&node["labels"], &node["capacity"]), (&serde_json::json!(["gpu=a100", "fast"]), &3.into()));
    let clerk = two.trigger("clerk");
    assert_eq!(two.wait_for(&clerk, "completed")["node"], one.name().as_str());

    // Only the drained node has the label.
    one.text(&["drain", &second]);
    let job = one.trigger("trainer");
    one.wait_for_reason(
        &job,
        &format!("the only node with the label gpu, {second}, is drained; `cowhand undrain {second}`"),
    );
    // A restart keeps the labels of the start, and the drain.
    two.text(&["undrain"]);
    one.wait_for(&job, "completed");
    one.text(&["restart", "--capacity", "5"]);
    let node = one.node(&one.name());
    assert_eq!((&node["labels"], &node["capacity"]), (&serde_json::json!(["cpu"]), &5.into()), "{node:#}");
    two.text(&["stop"]);
    let job = one.trigger("trainer");
    one.wait_for_reason(
        &job,
        &format!("no node with the label gpu runs (`runs_on`); start the node {second} again"),
    );
}

#[test]
fn wrong_labels_and_capacities_are_refused() {
    let server = Postgres::start();
    let machine = Machine::new(&server.url(), FLEET);
    for (arguments, expected) in [
        (&["start", "--label", "a b"][..], "is not a label; write NAME or NAME=VALUE"),
        (&["start", "--capacity", "0"], "0 is not in 1.."),
    ] {
        let ran = machine.run(arguments);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
    for (name, value) in [("COWHAND_LABELS", "=x"), ("COWHAND_CAPACITY", "many")] {
        let machine = Machine::with_variables(&server.url(), FLEET, &[(name, value)]);
        let ran = machine.run(&["start", "-d"]);
        assert_eq!(ran.code, Some(2), "{}", ran.stderr);
        assert!(
            ran.stderr.contains(&format!("the environment variable {name} cannot be used")),
            "{}",
            ran.stderr
        );
    }
}
