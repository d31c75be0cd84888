//! `overlap` of schedules that count from the end of their jobs.

use super::*;

/// An interval has no job of its own when it is due, so `overlap` decides only about one that was started by hand.
#[test]
fn overlap_of_an_interval() {
    let every = |overlap: &str| {
        Scene::new(&format!(r#"{{"type":"interval","interval":"5m","overlap":"{overlap}"}}"#))
            .last_run("10:00")
    };
    for overlap in ["skip", "queue", "allow", "cancel_previous"] {
        let full = every(overlap).job("agent", RUNNING).plan("10:06");
        assert_eq!(full, "Skipping a/s: at max capacity (1/1), due 10:05", "{overlap}");
        assert_eq!(every(overlap).plan("10:06"), "ran interval:2 10:05", "{overlap}");
        let mut turn = every(overlap);
        turn.add("t", EVERY);
        let waits = turn.roster.agents[0].schedules[1].id;
        let waiting = WaitingFiring { due: at("10:01"), reason: SkipReason::AtCapacity };
        turn.snapshot.schedules.get_mut(&waits).unwrap().waiting = Some(waiting);
        let first = plan(at("10:06"), &turn.roster, &turn.snapshot).actions;
        let fired = |action: &Action| matches!(action, Action::Fire { schedule, .. } if *schedule == waits);
        assert!(fired(&first[0]), "{overlap}: what waits comes before what has just run: {first:?}");
        let is_firing = |action: &&Action| matches!(action, Action::Fire { .. });
        assert_eq!(first.iter().filter(is_firing).count(), 1, "{overlap}: {first:?}");
    }
    let by_hand = |overlap: &str| every(overlap).job("hand", RUNNING).plan("10:06");
    assert_eq!(by_hand("skip"), "Skipping a/s: already running, due 10:05");
    assert_eq!(by_hand("queue"), "ran interval:2 10:05");
    assert_eq!(by_hand("allow"), "Skipping a/s: at max capacity (1/1), due 10:05");
    assert_eq!(by_hand("cancel_previous"), "cancel 1 | ran interval:2 10:05");
}
