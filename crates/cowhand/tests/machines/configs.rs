//! Nodes that run different configs: the difference is shown, and the stricter limits hold.

use cowhand_testing::postgres::Postgres;
use cowhand_testing::wait_until;

use super::{CommonFolder, Machine};

#[test]
fn a_difference_is_shown_and_the_stricter_limit_holds_until_it_is_resolved() {
    let server = Postgres::start();
    let common = CommonFolder::new();
    let fleet = |places: u32, comment: &str| {
        let keys = format!("    instances: {{max_concurrent: {places}}} {comment}\n");
        format!("agents:\n{}", common.waiter("worker", &keys))
    };
    let one = Machine::new(&server.url(), &fleet(3, ""));
    let two = Machine::new(&server.url(), &fleet(1, ""));
    one.start(&[]);
    two.start(&[]);
    let (first, second) = (one.name(), two.name());
    wait_until("the difference", || (one.node(&second)["config_differs"] == true).then_some(()));
    assert_eq!(one.node(&first)["config_differs"], false);
    assert_eq!(two.node(&first)["config_differs"], true);
    let sentence = format!("the node {second} runs another config than this node");
    wait_until("the log", || one.log().contains(&sentence).then_some(()));
    assert_eq!(one.json(&["status"])["daemon"]["other_configs"][0], second.as_str());
    for arguments in [&["status"][..], &["nodes"], &["doctor"]] {
        let ran = one.run(arguments);
        assert!(
            ran.stdout.contains("another config") || ran.stdout.contains("config differs"),
            "{}",
            ran.stdout
        );
    }
    let jobs = [(); 3].map(|()| one.trigger("worker"));
    one.wait_for(&jobs[0], "running");
    one.wait_for_reason(&jobs[1], "the only place of worker is taken");

    // A comment is no difference.
    two.configure(&server.url(), &fleet(3, "# as on the other node"));
    two.text(&["reload"]);
    for job in &jobs {
        one.wait_for(job, "running");
    }
    assert_eq!(one.node(&second)["config_differs"], false);
    assert!(one.json(&["status"])["daemon"].get("other_configs").is_none());
    assert_eq!(one.log().matches(&sentence).count(), 1, "{}", one.log());
    common.go();
    for job in &jobs {
        one.wait_for(job, "completed");
    }
}
