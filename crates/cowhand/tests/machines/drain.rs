//! Drained nodes take no new jobs, and their running jobs end.

use cowhand_testing::postgres::Postgres;

use super::{CommonFolder, Machine};

#[test]
fn a_drained_node_leaves_new_jobs_to_another_node_and_stays_drained() {
    let server = Postgres::start();
    let common = CommonFolder::new();
    let fleet = format!(
        "agents:\n{}{}",
        common.waiter("slow", ""),
        "  - {name: quick, runtime: command, command: [echo, done]}\n"
    );
    let [one, two] = [(), ()].map(|()| Machine::new(&server.url(), &fleet));
    one.start(&[]);
    two.start(&[]);
    let (first, second) = (one.name(), two.name());
    two.text(&["drain"]);
    let slow = one.trigger("slow");
    assert_eq!(one.wait_for(&slow, "running")["node"], first.as_str());
    two.text(&["undrain"]);

    // The running job continues, and new jobs run on the other node.
    let drained = two.text(&["drain", &first]);
    assert_eq!(drained, format!("{first} takes no new jobs; 1 job still runs.\n"));
    assert_eq!(two.node(&first)["state"], "draining");
    let quick = one.trigger("quick");
    assert_eq!(one.wait_for(&quick, "completed")["node"], second.as_str());
    let status = one.text(&["status"]);
    assert!(status.contains("drained: this node takes no new jobs"), "{status}");
    assert!(!two.text(&["status"]).contains("drained"));
    let waiting = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| one.json(&["drain", "--wait"]));
        common.go();
        waiting.join().unwrap()
    });
    assert_eq!((&waiting["state"], &waiting["running"]), (&"drained".into(), &0.into()), "{waiting:#}");
    one.wait_for(&slow, "completed");

    // A restart does not end the drain.
    one.text(&["stop"]);
    one.start(&[]);
    assert_eq!(one.node(&first)["state"], "drained");
    let quick = one.trigger("quick");
    assert_eq!(one.wait_for(&quick, "completed")["node"], second.as_str());
    let undrained = one.text(&["undrain"]);
    assert_eq!(undrained, format!("{first} takes jobs again.\n"));
    two.text(&["drain"]);
    let quick = two.trigger("quick");
    assert_eq!(two.wait_for(&quick, "completed")["node"], first.as_str());
}

#[test]
fn jobs_wait_while_all_nodes_are_drained() {
    let server = Postgres::start();
    let fleet = "agents:\n  - name: quick\n    runtime: command\n    command: [echo, done]\n    \
                 schedules: {often: {type: interval, interval: 1h, prompt: x}}\n";
    let [one, two] = [(), ()].map(|()| Machine::new(&server.url(), fleet));
    one.start(&[]);
    two.start(&[]);
    let (first, second) = (one.name(), two.name());
    one.text(&["drain", &second]);
    one.text(&["drain"]);
    let job = one.trigger("quick");
    let reason = format!(
        "all nodes are drained ({}, {})",
        first.clone().min(second.clone()),
        first.clone().max(second)
    );
    one.wait_for_reason(&job, &reason);
    assert_eq!(one.job(&job)["waits"]["reason"], "no_node");
    let fired = one.json(&["trigger", "quick/often"])["id"].as_str().unwrap().to_owned();
    one.wait_for_reason(&fired, &reason);
    let why = one.text(&["why", "quick/often"]);
    assert!(why.contains("all nodes are drained"), "{why}");
    for arguments in [&["job", &job][..], &["status"], &["jobs"]] {
        let shown = two.text(arguments);
        assert!(arguments == ["jobs"] || shown.contains(&reason), "{arguments:?}: {shown}");
    }
    let unknown = one.run(&["drain", "nowhere"]);
    assert!(unknown.stderr.contains("there is no node \"nowhere\""), "{}", unknown.stderr);
    two.text(&["undrain", &first]);
    assert_eq!(one.wait_for(&job, "completed")["node"], first.as_str());
    one.wait_for(&fired, "completed");
    let events = one.text(&["events"]);
    assert!(events.contains("node:drained") && events.contains("node:undrained"), "{events}");
}
