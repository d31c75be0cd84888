//! Places of the fleet and of the node, and jobs that the node leaves to other nodes.

use super::*;
use crate::node::{FleetNode, NodeReport};

/// Agents `a` and `b` with places for all jobs, and pending jobs of `a`, `b` and `a`.
fn three_jobs() -> Scene {
    let mut scene = Scene::new(r#"{"type":"manual"}"#).max(9);
    scene.roster.agents.push(Agent { max_concurrent: 9, ..Agent::new("b".parse().unwrap()) });
    scene = scene.job("agent", PENDING).job("agent", PENDING).job("agent", PENDING);
    scene.snapshot.jobs[1].agent = "b".parse().unwrap();
    scene
}

#[test]
fn agents_share_the_places_of_the_fleet_and_of_the_node() {
    let count = |max, taken| Some(PlaceCount { max, taken });
    let with = |fleet, node| {
        let mut scene = three_jobs();
        scene.snapshot.here.places = SharedPlaces { fleet, node };
        scene.plan("10:00")
    };
    for (fleet, node, expected) in [
        (None, None, "start 1 | start 3 | start 2"),
        (count(9, 0), count(9, 0), "start 1 | start 3 | start 2"),
        (count(5, 3), None, "start 1 | start 3"),
        (count(5, 3), count(2, 1), "start 1"),
        (None, count(2, 2), ""),
        (count(1, 4), None, ""),
    ] {
        assert_eq!(with(fleet, node), expected, "{fleet:?} {node:?}");
    }
}

#[test]
fn a_node_leaves_jobs_to_other_nodes() {
    let mut scene = three_jobs();
    scene.snapshot.here.not_here.insert("a".parse().unwrap());
    // The jobs of `a` take no place of the node.
    scene.snapshot.here.places.node = Some(PlaceCount { max: 1, taken: 0 });
    assert_eq!(scene.plan("10:00"), "start 2");
    scene.snapshot.here.is_drained = true;
    assert_eq!(scene.plan("10:00"), "");
    let mut due = Scene::new(HOURLY).last_due("09:00");
    due.snapshot.here.is_drained = true;
    assert_eq!(due.plan("10:00"), "ran cron 10:00 | wake 11:00", "a drained node records firings");
}

#[test]
fn the_wait_for_a_place_of_the_fleet_or_of_a_node_is_explained() {
    let node = |name: &str, running, capacity| FleetNode {
        name: name.to_owned(),
        started_at: at("09:00"),
        seen_at: at("09:00"),
        is_running: true,
        drained_at: None,
        running,
        lease_until: None,
        shares_store: true,
        report: NodeReport { capacity, ..NodeReport::default() },
    };
    let awaited = |fleet, nodes: Vec<FleetNode>| {
        let mut scene = Scene::new(r#"{"type":"manual"}"#).max(9).job("agent", RUNNING).job("agent", PENDING);
        scene.roster.max_concurrent = fleet;
        scene.snapshot.nodes = nodes;
        let job = scene.snapshot.jobs.last().unwrap();
        let awaited = scene.snapshot.awaited_start(&scene.roster, &scene.roster.agents[0], job, at("10:00"));
        awaited.map(|awaited| awaited.sentence)
    };
    for (fleet, nodes, expected) in [
        (None, vec![], None),
        (Some(2), vec![node("n", 1, Some(2))], None),
        (Some(1), vec![], Some("the only place of the fleet is taken (`fleet.max_concurrent`)")),
        (None, vec![node("n", 1, Some(1))], Some("the only place of the node n is taken (`--capacity`)")),
        (None, vec![node("n", 3, Some(3))], Some("all 3 places of the node n are taken (`--capacity`)")),
        (None, vec![node("n", 3, Some(3)), node("m", 0, None)], None),
        (
            None,
            vec![node("n", 3, Some(3)), node("m", 1, Some(1))],
            Some("all places of the 2 nodes that run it are taken (`--capacity`)"),
        ),
        (
            None,
            vec![FleetNode { drained_at: Some(at("09:30")), ..node("n", 0, None) }],
            Some("the only node, n, is drained; `cowhand undrain n` lets it take jobs again"),
        ),
    ] {
        assert_eq!(awaited(fleet, nodes).as_deref(), expected);
    }
}
