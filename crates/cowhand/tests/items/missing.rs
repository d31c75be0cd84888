//! Items that are not where they were when their job ends, and what a person can do about them.

use std::fs;

use cowhand::fleet::{Fleet, FleetError, Trigger};
use cowhand_core::event::Fact;
use cowhand_core::work::{ReleaseOptions, WorkItemId, WorkOutcome, WorkResult};

use crate::{Scene, jobs, stop, until};

const OFTEN: &str = "type: interval, interval: 1s, prompt: Work on this.";
const UNTIL_GO: &str = "echo $COWHAND_WORK_ITEM_TITLE >> titles; while [ ! -e go ]; do sleep 0.05; done";

fn one() -> WorkItemId {
    "files-one".parse().unwrap()
}

fn is_reported(fact: &Fact) -> bool {
    matches!(fact, Fact::WorkReported { .. })
}

/// The folder of the items is replaced by an empty one, and comes back after the job has ended.
#[tokio::test]
async fn a_result_waits_for_an_item_that_is_away() {
    let scene = Scene::new(UNTIL_GO, "", OFTEN);
    scene.task("one", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    fs::rename(scene.path("tasks"), scene.path("away")).unwrap();
    fs::create_dir(scene.path("tasks")).unwrap();
    fs::write(scene.path("go"), "").unwrap();
    let seen = until(&mut events, 1, |fact| matches!(fact, Fact::WorkDelayed { .. })).await;
    let Fact::WorkDelayed { message, .. } = &seen.last().unwrap().fact else { panic!("delayed") };
    assert!(message.starts_with("there is no work item files-one; it is looked for until 20"), "{message}");
    fs::remove_dir(scene.path("tasks")).unwrap();
    fs::rename(scene.path("away"), scene.path("tasks")).unwrap();
    let seen = until(&mut events, 1, is_reported).await;
    assert!(!seen.iter().any(|event| matches!(event.fact, Fact::WorkDropped { .. })), "{seen:?}");
    assert_eq!(scene.status("one"), "completed");
    assert_eq!(jobs(&fleet).await.len(), 1);
    stop(fleet).await;
}

/// A person deletes the file while its job runs, and makes another one of the same name.
#[tokio::test]
async fn a_result_is_not_written_into_another_item_of_the_same_name() {
    let scene = Scene::new(UNTIL_GO, "", OFTEN);
    scene.task("one", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    fs::remove_file(scene.path("tasks/one.md")).unwrap();
    fs::write(scene.path("go"), "").unwrap();
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkDelayed { .. })).await;
    fs::write(scene.path("tasks/one.md"), "Something else.\n").unwrap();
    let seen = until(&mut events, 1, |fact| matches!(fact, Fact::WorkDropped { .. })).await;
    let Fact::WorkDropped { message, .. } = &seen.last().unwrap().fact else { panic!("dropped") };
    assert_eq!(message, "the claim of files-one is not ours any more: it is another item by now");
    until(&mut events, 1, is_reported).await;
    assert_eq!(jobs(&fleet).await.len(), 2, "the other item is work of its own");
    stop(fleet).await;
}

/// One that a person deleted is forgotten when the person says so.
#[tokio::test]
async fn a_person_can_have_a_missing_item_forgotten() {
    let scene = Scene::new(UNTIL_GO, "", OFTEN);
    scene.task("one", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    fs::remove_file(scene.path("tasks/one.md")).unwrap();
    fs::write(scene.path("go"), "").unwrap();
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkDelayed { .. })).await;
    fleet.release_item(&one(), None, ReleaseOptions::default()).await.unwrap();
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkDropped { .. })).await;
    assert!(fleet.store().items().await.unwrap().is_empty());
    stop(fleet).await;
}

/// The file as it was while its job ran, after the fleet has forgotten about the item.
async fn left_claimed(scene: &Scene, fleet: &Fleet) -> String {
    let mut events = fleet.subscribe_after(0);
    until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    let claimed = scene.read("one");
    assert!(claimed.contains("status: claimed"), "{claimed}");
    fs::write(scene.path("go"), "").unwrap();
    until(&mut events, 1, is_reported).await;
    claimed
}

#[tokio::test]
async fn what_an_ended_job_still_claims_is_not_worked_on_again() {
    let scene = Scene::new(UNTIL_GO, "", OFTEN);
    scene.task("one", "");
    let fleet = scene.started().await;
    let claimed = left_claimed(&scene, &fleet).await;
    let lapsed = claimed.lines().map(|line| match line.strip_prefix("claimed_until: ") {
        Some(_) => "claimed_until: 2020-01-01T00:00:00Z".to_owned(),
        None => line.to_owned(),
    });
    let mut events = fleet.subscribe_after(fleet.store().last_event().await.unwrap());
    fs::write(scene.path("tasks/one.md"), lapsed.collect::<Vec<_>>().join("\n")).unwrap();
    until(&mut events, 1, is_reported).await;
    assert_eq!(scene.status("one"), "completed");
    assert_eq!(jobs(&fleet).await.len(), 1, "its result is known");
    stop(fleet).await;
}

#[tokio::test]
async fn what_an_ended_job_still_claims_can_be_released_by_hand() {
    let scene = Scene::new(UNTIL_GO, "", "type: manual");
    scene.task("one", "");
    let fleet = scene.started().await;
    let by_hand = Trigger { schedule: Some("poll".parse().unwrap()), ..Trigger::default() };
    fleet.trigger(&"worker".parse().unwrap(), by_hand).await.unwrap();
    let claimed = left_claimed(&scene, &fleet).await;
    fs::write(scene.path("tasks/one.md"), &claimed).unwrap();
    fleet.release_item(&one(), None, ReleaseOptions::default()).await.unwrap();
    assert_eq!(scene.status("one"), "available");
    fs::write(scene.path("tasks/one.md"), &claimed).unwrap();
    let result = |outcome| WorkResult {
        outcome,
        summary: "By hand.".to_owned(),
        details: None,
        artifacts: Vec::new(),
        error: None,
    };
    fleet.complete_item(&one(), None, result(WorkOutcome::Partial)).await.unwrap();
    assert_eq!(scene.status("one"), "partial");
    let again = fleet.complete_item(&one(), None, result(WorkOutcome::Success)).await;
    let Err(FleetError::ItemLeftAlone { why, .. }) = again else { panic!("{again:?}") };
    assert!(why.starts_with("it is partial; `cowhand work retry files-one` makes it available"), "{why}");
    stop(fleet).await;
}
