//! Items that failed too often are shown as given up, and are tried again after an action of a person.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use cowhand::fleet::{Fleet, FleetError, Subscription};
use cowhand::queues::ItemScope;
use cowhand::store::{FailedItemState, ItemFailures};
use cowhand_core::event::Fact;
use cowhand_core::work::{ReleaseOptions, WorkItemId, WorkOutcome};
use cowhand_testing::on_both;

use crate::{Scene, jobs, stop, until};

const OFTEN: &str = "type: interval, interval: 1s, prompt: Work on this.";
const TWICE: &str = ", on_failure: release, max_item_attempts: 2";
/// Script that fails as long as there is no file `mended`.
const SCRIPT: &str = "echo $COWHAND_JOB_ID >> runs; [ -e mended ] || exit 3";

fn hard() -> WorkItemId {
    "files-hard".parse().unwrap()
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(2), what).await.expect("it never happened")
}

async fn reported(events: &mut Subscription, outcome: WorkOutcome) {
    let fits = |fact: &Fact| matches!(fact, Fact::WorkReported { outcome: told, .. } if *told == outcome);
    soon(until(events, 1, fits)).await;
}

async fn failures(fleet: &Fleet) -> Option<ItemFailures> {
    fleet.store().item_failures().await.unwrap().pop()
}

/// Lets an item be given up after two failures. The release after the first failure is not an action of a person.
async fn given_up(database: &str) -> (Scene, Fleet, Subscription) {
    let scene = Scene::on(database, SCRIPT, TWICE, OFTEN);
    scene.task("hard", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    reported(&mut events, WorkOutcome::Failure).await;
    assert_eq!(jobs(&fleet).await.len(), 2);
    let known = failures(&fleet).await.unwrap();
    assert_eq!((known.failures, known.state), (2, FailedItemState::GivenUp));
    assert!(known.reason.as_deref().is_some_and(|reason| reason.contains('3')), "{known:?}");
    assert!(known.is_given_up(2));
    // Two more polls change nothing.
    soon(until(&mut events, 2, |fact| matches!(fact, Fact::ScheduleSkipped { .. }))).await;
    assert_eq!(jobs(&fleet).await.len(), 2);
    (scene, fleet, events)
}

/// Waits until the item is tried again, as often as at first.
async fn is_tried_anew(scene: &Scene, fleet: &Fleet, events: &mut Subscription) {
    reported(events, WorkOutcome::Failure).await;
    assert_eq!(jobs(fleet).await.len(), 4, "two more");
    assert_eq!(failures(fleet).await.unwrap().failures, 2);
    assert_eq!(scene.status("hard"), "failed");
}

async fn a_status_that_a_person_sets_starts_the_count_anew(database: &str) {
    let (scene, fleet, mut events) = given_up(database).await;
    let text = scene.read("hard").replace("status: failed", "status: available");
    fs::write(scene.path("tasks/hard.md"), text).unwrap();
    is_tried_anew(&scene, &fleet, &mut events).await;
    // The next run succeeds, and the failures of the item are forgotten.
    fs::write(scene.path("mended"), "").unwrap();
    let text = scene.read("hard").replace("status: failed", "status: available");
    fs::write(scene.path("tasks/hard.md"), text).unwrap();
    reported(&mut events, WorkOutcome::Success).await;
    assert_eq!(failures(&fleet).await, None);
    stop(fleet).await;
}

async fn a_retry_starts_the_count_anew(database: &str) {
    let (scene, fleet, mut events) = given_up(database).await;
    let view = fleet.retry_item(&hard(), ItemScope::default()).await.unwrap();
    assert_eq!(view.item.id, hard());
    is_tried_anew(&scene, &fleet, &mut events).await;
    fs::write(scene.path("mended"), "").unwrap();
    fleet.retry_item(&hard(), ItemScope::default()).await.unwrap();
    reported(&mut events, WorkOutcome::Success).await;
    let done = fleet.retry_item(&hard(), ItemScope::default()).await.unwrap_err();
    assert!(matches!(done, FleetError::ItemNotOffered { .. }), "{done:?}");
    assert_eq!(done.to_string(), "files-hard cannot be tried again: files-hard is completed");
    stop(fleet).await;
}

async fn a_release_starts_the_count_anew(database: &str) {
    let (scene, fleet, mut events) = given_up(database).await;
    fleet.release_item(&hard(), ItemScope::default(), ReleaseOptions::default()).await.unwrap();
    is_tried_anew(&scene, &fleet, &mut events).await;
    stop(fleet).await;
}

/// A new daemon knows the failures, and notices changes that were made while no daemon ran.
async fn what_is_known_outlives_the_daemon(database: &str) {
    let (scene, fleet, _) = given_up(database).await;
    stop(fleet).await;
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(fleet.store().last_event().await.unwrap());
    soon(until(&mut events, 1, |fact| matches!(fact, Fact::ScheduleSkipped { .. }))).await;
    assert_eq!(jobs(&fleet).await.len(), 2);
    stop(fleet).await;
    let text = scene.read("hard").replace("status: failed", "status: available");
    fs::write(scene.path("tasks/hard.md"), text).unwrap();
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(fleet.store().last_event().await.unwrap());
    is_tried_anew(&scene, &fleet, &mut events).await;
    stop(fleet).await;
}

/// A person takes the item out of its queue after the first failure, and puts it back later.
async fn what_a_person_took_out_and_put_back_is_counted_anew(database: &str) {
    let rules = ", on_failure: release, max_item_attempts: 2";
    let script = "echo $COWHAND_JOB_ID >> runs; sed -i 's/^status: .*/status: draft/' tasks/hard.md; exit 3";
    let scene = Scene::on(database, script, rules, OFTEN);
    scene.task("hard", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    soon(until(&mut events, 1, |fact| matches!(fact, Fact::WorkDropped { .. } | Fact::WorkReleased { .. })))
        .await;
    let withdrawn = async {
        while failures(&fleet).await.is_none_or(|known| known.state != FailedItemState::Withdrawn) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(withdrawn).await;
    assert!(!failures(&fleet).await.unwrap().is_given_up(1), "that is a person's wish, and nothing to tell");
    let text = scene.read("hard").replace("status: draft", "status: available");
    fs::write(scene.path("tasks/hard.md"), text).unwrap();
    let counted = async {
        while jobs(&fleet).await.len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    soon(counted).await;
    soon(until(&mut events, 1, |fact| matches!(fact, Fact::JobFailed { .. }))).await;
    assert_eq!(failures(&fleet).await.unwrap().failures, 1, "counted anew");
    stop(fleet).await;
}

/// A job that could not be started does not count as a failure of its item.
async fn failures_to_start_do_not_count(database: &str) {
    let breaker = "type: interval, interval: 1s, prompt: Go., breaker: {failures: 0}";
    let scene = Scene::on(database, "true", ", max_item_attempts: 2", breaker);
    let text = fs::read_to_string(scene.path("cowhand.yaml")).unwrap();
    // A program that is missing would only be left to other nodes.
    let text = text.replace("command: [sh, work.sh]", "command: [./cannot-start]");
    fs::write(scene.path("cowhand.yaml"), text).unwrap();
    fs::write(scene.path("cannot-start"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(scene.path("cannot-start"), fs::Permissions::from_mode(0o755)).unwrap();
    scene.task("hard", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    soon(until(&mut events, 4, |fact| matches!(fact, Fact::WorkReleased { .. }))).await;
    assert_eq!(failures(&fleet).await.map(|known| known.failures), Some(0));
    stop(fleet).await;
}

on_both!(
    a_status_that_a_person_sets_starts_the_count_anew,
    a_retry_starts_the_count_anew,
    a_release_starts_the_count_anew,
    what_is_known_outlives_the_daemon,
    what_a_person_took_out_and_put_back_is_counted_anew,
    failures_to_start_do_not_count,
);
