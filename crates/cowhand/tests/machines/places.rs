//! The limits on running jobs hold on several nodes: of a node, of an agent and of the fleet.

use std::fs;

use cowhand_testing::postgres::Postgres;

use super::{CommonFolder, Machine};

/// The agent counts itself in the folder `run`, and appends the number of agents in its folder to `counts`.
const COUNTER: &str = r#"dir=$1; node=$(basename "$COWHAND_NODE_DIR"); mkdir -p "$dir/run/$node"; touch "$dir/run/$node/$$"
find "$dir/run" -type f | wc -l >> "$dir/fleet.counts"
ls "$dir/run/$node" | wc -l >> "$dir/$node.counts"
sleep 0.1
rm "$dir/run/$node/$$"
"#;

#[test]
fn the_limits_of_nodes_and_of_the_fleet_are_never_exceeded() {
    const JOBS: usize = 24;
    let server = Postgres::start();
    let common = CommonFolder::new();
    let (script, folder) = (common.path().join("count.sh"), common.path().display().to_string());
    fs::write(&script, COUNTER).unwrap();
    let fleet = format!(
        "fleet: {{name: counted, max_concurrent: 4}}\ndefaults: {{instances: {{max_concurrent: 9}}, pass_env: [COWHAND_NODE_DIR]}}\n\
         agents:\n  - {{name: a, runtime: command, command: [sh, {script}, '{folder}']}}\n  \
         - {{name: b, runtime: command, command: [sh, {script}, '{folder}'], instances: {{max_concurrent: 2}}}}\n",
        script = script.display(),
    );
    let machines = [("small", "1"), ("large", "3"), ("third", "2")].map(|(name, capacity)| {
        let machine = Machine::with_variables(&server.url(), &fleet, &[("COWHAND_NODE_DIR", name)]);
        machine.start(&["--capacity", capacity]);
        machine
    });
    let jobs: Vec<String> = (0..JOBS)
        .map(|number| machines[number % 3].trigger(if number % 2 == 0 { "a" } else { "b" }))
        .collect();
    for job in &jobs {
        machines[0].wait_for(job, "completed");
    }
    let counts = |name: &str| -> Vec<u32> {
        let text = fs::read_to_string(common.path().join(format!("{name}.counts"))).unwrap_or_default();
        text.lines().map(|line| line.trim().parse().unwrap()).collect()
    };
    let all = counts("fleet");
    assert_eq!(all.len(), JOBS);
    assert!(all.iter().all(|count| *count <= 4), "{all:?}");
    for (name, capacity) in [("small", 1), ("large", 3), ("third", 2)] {
        let of_node = counts(name);
        assert!(of_node.iter().all(|count| *count <= capacity), "{name}: {of_node:?}");
    }
}

#[test]
fn a_job_that_waits_for_a_place_says_so() {
    let server = Postgres::start();
    let common = CommonFolder::new();
    let agents = format!("{}{}", common.waiter("one", ""), common.waiter("two", ""));
    let machine = Machine::new(&server.url(), &format!("agents:\n{agents}"));
    machine.start(&["--capacity", "1"]);
    let running = machine.trigger("one");
    machine.wait_for(&running, "running");
    let waiting = machine.trigger("two");
    let name = machine.name();
    machine.wait_for_reason(&waiting, &format!("the only place of the node {name} is taken (`--capacity`)"));
    let status = machine.text(&["status"]);
    assert!(status.contains("the only place of the node"), "{status}");
    machine.text(&["stop", "--keep-agents"]);
    machine.configure(&server.url(), &format!("fleet: {{max_concurrent: 1}}\nagents:\n{agents}"));
    machine.start(&["--capacity", "7"]);
    machine.wait_for_reason(&waiting, "the only place of the fleet is taken (`fleet.max_concurrent`)");
    common.go();
    machine.wait_for(&running, "completed");
    machine.wait_for(&waiting, "completed");
}
