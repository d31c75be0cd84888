//! A node does not take jobs of agents whose directory, program or folder of work items it does not have.

use std::fs;

use cowhand_testing::postgres::Postgres;
use cowhand_testing::wait_until;

use super::{CommonFolder, Machine};

#[test]
fn a_job_runs_on_the_node_that_has_its_directory() {
    let server = Postgres::start();
    let common = CommonFolder::new();
    let fleet =
        "agents:\n  - {name: worker, runtime: command, command: [pwd], working_directory: '${DESK}'}\n";
    let desk = |name: &str| common.path().join(name).display().to_string();
    let (first, second) = (desk("first"), desk("second"));
    let one = Machine::with_variables(&server.url(), fleet, &[("DESK", first.as_str())]);
    let two = Machine::with_variables(&server.url(), fleet, &[("DESK", second.as_str())]);
    fs::create_dir(&second).unwrap();
    one.start(&[]);
    let why = format!("its directory {first} does not exist");
    let node = one.node(&one.name());
    assert_eq!(node["unable"][0]["agent"], "worker", "{node:#}");
    assert_eq!(node["unable"][0]["reason"], why.as_str());
    assert!(one.text(&["nodes"]).contains(&format!("cannot run: worker on {}: {why}", one.name())));
    let job = one.trigger("worker");
    one.wait_for_reason(&job, &format!("no node can run worker: on {}, {why}", one.name()));
    two.start(&[]);
    // The variables have different values on the nodes, and the config is the same.
    assert_eq!(one.node(&two.name())["config_differs"], false);
    assert_eq!(one.wait_for(&job, "completed")["node"], two.name().as_str());
    // The check is repeated after a reload.
    two.text(&["drain"]);
    fs::create_dir(&first).unwrap();
    one.text(&["reload"]);
    let job = one.trigger("worker");
    assert_eq!(one.wait_for(&job, "completed")["node"], one.name().as_str());
}

#[test]
fn programs_and_folders_of_work_items_are_checked() {
    let server = Postgres::start();
    let fleet = "agents:\n  - {name: missing, runtime: command, command: [no-such-program-here]}\n  \
                 - name: reader\n    runtime: command\n    command: [cat]\n    schedules:\n      \
                 poll: {type: interval, interval: 1h, prompt: x, work_source: {type: files, path: items}}\n";
    let one = Machine::new(&server.url(), fleet);
    one.start(&[]);
    let job = one.trigger("missing");
    one.wait_for_reason(&job, "no-such-program-here was not found on PATH");
    let node = one.node(&one.name());
    let reasons: Vec<&str> =
        node["unable"].as_array().unwrap().iter().map(|unable| unable["reason"].as_str().unwrap()).collect();
    let folder = one.root.join("items").display().to_string();
    assert_eq!(reasons[1], format!("the folder {folder} of its work items does not exist"), "{node:#}");
    assert!(reasons[0].contains("no-such-program-here was not found on PATH"), "{node:#}");
    // The first poll is due at once, and no node makes it.
    for arguments in [&["status"][..], &["why", "reader/poll"]] {
        wait_until("the reason", || one.text(arguments).contains("no node can run reader").then_some(()));
    }
}
