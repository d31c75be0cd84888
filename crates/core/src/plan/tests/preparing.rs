//! Firings of which it is not known yet what they run for.

use super::*;

/// While it is found out what a firing runs for, it counts as live and has a place; in trouble it has none.
#[test]
fn a_firing_that_is_prepared_is_live() {
    let preparing = |mut scene: Scene, in_trouble| {
        let schedule = scene.roster.agents[0].schedules[0].id;
        let key = FiringKey::stored("interval:1".to_owned());
        scene.snapshot.preparing.push(Preparing { schedule, key, in_trouble });
        scene
    };
    let interval = || Scene::new(r#"{"type":"interval","interval":"5m"}"#);
    assert_eq!(preparing(interval(), false).plan("10:00"), "prepare interval:1");
    assert_eq!(preparing(interval(), true).plan("10:00"), "prepare interval:1");
    for (in_trouble, expected) in [(false, false), (true, true)] {
        let mut scene = preparing(interval(), in_trouble);
        let other = scene.add("other", r#"{"type":"interval","interval":"7m"}"#);
        let plan = plan(at("10:00"), &scene.roster, &scene.snapshot);
        let fires = |action: &Action| matches!(action, Action::Fire { schedule, outcome: FiringOutcome::Ran, .. } if *schedule == other);
        assert_eq!(plan.actions.iter().any(fires), expected, "in trouble: {in_trouble}");
    }
}
