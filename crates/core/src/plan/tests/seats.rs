//! Agents that share a provider: what starts there, and when.

use super::*;
use crate::provider::{Parked, Provider};

/// Agents `a` and `b` with a job each that waits, and perhaps one of `a` that runs.
fn scene(limits: Provider, running: bool, parked_until: Option<&str>, last_start: Option<&str>) -> Scene {
    let mut scene = Scene::new(r#"{"type":"manual"}"#).max(9);
    scene.roster.agents.push(Agent::new("b".parse().unwrap()));
    for agent in &mut scene.roster.agents {
        agent.settings.provider = Some("shared".to_owned());
    }
    scene.roster.providers.insert("shared".to_owned(), limits);
    if running {
        scene = scene.job("agent", RUNNING);
    }
    scene = scene.job("agent", PENDING).job("agent", PENDING);
    scene.snapshot.jobs.last_mut().unwrap().agent = "b".parse().unwrap();
    let parked = parked_until.map(|until| Parked {
        provider: "shared".into(),
        since: at("09:00"),
        until: at(until),
        message: "the limit".into(),
        times: 1,
    });
    let state = ProviderState { parked, last_start: last_start.map(at) };
    scene.snapshot.providers.insert("shared".to_owned(), state);
    scene
}

#[test]
fn what_starts_at_a_provider() {
    let any = Provider::default;
    let most = |max| Provider { max_concurrent: Some(max), ..any() };
    let paced = || Provider { start_every: Some("10m".parse().unwrap()), ..any() };
    check([
        ("no limits", scene(any(), false, None, None), "10:00", "start 1 | start 2"),
        ("parked", scene(any(), false, Some("11:30"), None), "10:00", "wake 11:30"),
        ("no longer", scene(any(), false, Some("10:00"), None), "10:00", "start 1 | start 2"),
        ("one place", scene(most(1), false, None, None), "10:00", "start 1"),
        ("and it is taken", scene(most(1), true, None, None), "10:00", ""),
        ("two, one taken", scene(most(2), true, None, None), "10:00", "start 2"),
        ("paced", scene(paced(), false, None, None), "10:00", "start 1 | wake 10:10"),
        ("too soon", scene(paced(), false, None, Some("09:55")), "10:00", "wake 10:05"),
    ]);
    let mut other = scene(any(), false, Some("11:30"), None);
    other.roster.agents[1].settings.provider = Some("own".into());
    assert_eq!(other.plan("10:00"), "start 2 | wake 11:30", "somebody else's limit");
}
