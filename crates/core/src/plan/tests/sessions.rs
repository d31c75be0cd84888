//! Jobs that share a session run one after the other.

use super::*;
use crate::session::{Session, SessionPolicy};

fn with_policy(policy: SessionPolicy, items: &[Option<&str>]) -> Scene {
    let mut scene = Scene::new(r#"{"type":"manual"}"#).max(9);
    scene.roster.agents[0].session = Session { policy, ..Session::default() };
    for (number, item) in items.iter().enumerate() {
        scene = scene.job("hand", if number == 0 { RUNNING } else { PENDING });
        let agent = scene.roster.agents[0].clone();
        let job = scene.snapshot.jobs.last_mut().unwrap();
        job.item = item.map(|item| item.parse().unwrap());
        job.session_key = (number == 0)
            .then(|| agent.session_key(job.item.as_ref(), job.chat.as_deref(), job.confined))
            .flatten();
    }
    scene
}

/// A command has no session, whatever the policy says.
#[test]
fn commands_do_not_wait_for_a_session() {
    let mut scene = with_policy(SessionPolicy::Continue, &[None; 3]);
    scene.roster.agents[0].program.runtime = crate::runtime::Runtime::Command;
    assert_eq!(scene.plan("10:00"), "start 2 | start 3");
}

#[test]
fn jobs_that_share_a_session_wait_for_each_other() {
    use SessionPolicy::{Continue, Fresh, PerChat, PerItem};
    let none = [None; 3];
    let items = [Some("file-1"), Some("file-1"), Some("file-2"), Some("file-2"), None];
    for (policy, items, expected, waits) in [
        (Fresh, &none[..], "start 2 | start 3", false),
        (PerChat, &none[..], "start 2 | start 3", false),
        (Continue, &none[..], "", true),
        (PerItem, &none[..], "start 2 | start 3", false),
        // The second job for one item waits, even if the first has only just got its place.
        (PerItem, &items[..], "start 3 | start 5", true),
    ] {
        let scene = with_policy(policy, items);
        assert_eq!(scene.plan("10:00"), expected, "{policy} {items:?}");
        let agent = &scene.roster.agents[0];
        assert_eq!(scene.snapshot.waits_for_session(agent, agent.schedules[0].id), waits, "{policy}");
    }
}
