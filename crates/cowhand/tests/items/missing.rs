//! Items that are missing or changed when their job ends, and how a person can handle them.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use cowhand::api::{Api, Client, FiringView, Page, WorkView};
use cowhand::fleet::{Fleet, FleetError, Subscription, TriggerRequest};
use cowhand::queues::{ItemScope, ItemStatus, ItemView};
use cowhand::store::{HeldItem, ItemState};
use cowhand_core::event::{Event, Fact};
use cowhand_core::job::JobStatus;
use cowhand_core::work::{ReleaseOptions, WorkItemId, WorkOutcome, WorkResult};
use jiff::{SignedDuration, Timestamp};

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
async fn result_waits_while_item_is_missing() {
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
    assert!(
        message.starts_with("there is no work item files-one; cowhand looks for it until 20"),
        "{message}"
    );
    fs::remove_dir(scene.path("tasks")).unwrap();
    fs::rename(scene.path("away"), scene.path("tasks")).unwrap();
    let seen = until(&mut events, 1, is_reported).await;
    assert!(!seen.iter().any(|event| matches!(event.fact, Fact::WorkDropped { .. })), "{seen:?}");
    assert_eq!(scene.status("one"), "completed");
    assert_eq!(jobs(&fleet).await.len(), 1);
    stop(fleet).await;
}

/// A person deletes the file while its job runs, and creates another one of the same name.
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
    scene.replace("one", "Something else.\n");
    let seen = until(&mut events, 1, |fact| matches!(fact, Fact::WorkDropped { .. })).await;
    let Fact::WorkDropped { message, .. } = &seen.last().unwrap().fact else { panic!("dropped") };
    assert_eq!(
        message,
        "this fleet no longer has the claim of files-one: the id now belongs to another item"
    );
    until(&mut events, 1, is_reported).await;
    assert_eq!(jobs(&fleet).await.len(), 2, "the other item is work of its own");
    stop(fleet).await;
}

/// An item that a person deleted is forgotten on request.
#[tokio::test]
async fn release_by_person_forgets_missing_item() {
    let scene = Scene::new(UNTIL_GO, "", OFTEN);
    scene.task("one", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    fs::remove_file(scene.path("tasks/one.md")).unwrap();
    fs::write(scene.path("go"), "").unwrap();
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkDelayed { .. })).await;
    let released = fleet.release_item(&one(), ItemScope::default(), ReleaseOptions::default()).await.unwrap();
    assert!(released.forgotten);
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkDropped { .. })).await;
    assert!(fleet.store().items().await.unwrap().is_empty());
    stop(fleet).await;
}

/// A person renames the file while its job runs. The file is found by its claim, which names the job.
#[tokio::test]
async fn result_is_reported_to_renamed_item() {
    let scene = Scene::new(UNTIL_GO, "", OFTEN);
    scene.task("one", "");
    let fleet = Arc::new(scene.started().await);
    let mut events = fleet.subscribe_after(0);
    until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    fs::rename(scene.path("tasks/one.md"), scene.path("tasks/two.md")).unwrap();
    let client = Client::alone(Api::of_fleet(Arc::clone(&fleet)));
    let list: WorkView = client.get("work?all=true").await.unwrap();
    let shown: Vec<_> = list.items.iter().map(|view| (view.item.id.to_string(), view.status)).collect();
    assert_eq!(shown, [("files-two".to_owned(), ItemStatus::Claimed)]);
    fs::write(scene.path("go"), "").unwrap();
    assert!(is_reported(&first_told(&mut events).await.fact));
    assert_eq!(scene.status("two"), "completed");
    assert!(fleet.store().items().await.unwrap().is_empty());
    assert_eq!(jobs(&fleet).await.len(), 1);
    drop(client);
    stop(Arc::into_inner(fleet).unwrap()).await;
}

/// The failures of the item count under its new name too, so it is not tried more often than others.
#[tokio::test]
async fn renamed_item_keeps_its_failure_count() {
    let script = format!("{UNTIL_GO}; exit 3");
    let scene = Scene::new(&script, ", on_failure: release, max_item_attempts: 2", OFTEN);
    scene.task("one", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    fs::rename(scene.path("tasks/one.md"), scene.path("tasks/two.md")).unwrap();
    fs::write(scene.path("go"), "").unwrap();
    until(&mut events, 1, is_reported).await;
    let known = fleet.store().item_failures().await.unwrap();
    let counts: Vec<_> = known.iter().map(|known| (known.id.to_string(), known.failures)).collect();
    assert_eq!(counts, [("files-two".to_owned(), 2)]);
    assert_eq!(known[0].item.as_ref().unwrap().id, known[0].id);
    assert_eq!(jobs(&fleet).await.len(), 2, "as often as any other");
    assert_eq!(scene.status("two"), "failed");
    stop(fleet).await;
}

/// The item was renamed, and its claim has expired. The job that the claim names has ended, and its result is known.
#[tokio::test]
async fn renamed_item_with_claim_of_ended_job_is_not_repeated() {
    let scene = Scene::new(UNTIL_GO, "", OFTEN);
    scene.task("one", "");
    let fleet = scene.started().await;
    let claimed = left_claimed(&scene, &fleet).await;
    let mut events = fleet.subscribe_after(fleet.store().last_event().await.unwrap());
    let until_then = claimed.lines().find(|line| line.starts_with("claimed_until: ")).unwrap();
    let lapsed = claimed.replace(until_then, "claimed_until: 2020-01-01T00:00:00Z");
    fs::remove_file(scene.path("tasks/one.md")).unwrap();
    scene.replace("two", &lapsed);
    assert!(is_reported(&first_told(&mut events).await.fact));
    assert_eq!(scene.status("two"), "completed");
    assert_eq!(jobs(&fleet).await.len(), 1, "its result is known");
    stop(fleet).await;
}

/// Returns the file as it was while its job ran, after the fleet has forgotten the item.
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
async fn item_with_claim_of_ended_job_is_not_repeated() {
    let scene = Scene::new(UNTIL_GO, "", OFTEN);
    scene.task("one", "");
    let fleet = scene.started().await;
    let claimed = left_claimed(&scene, &fleet).await;
    let lapsed = claimed.lines().map(|line| match line.strip_prefix("claimed_until: ") {
        Some(_) => "claimed_until: 2020-01-01T00:00:00Z".to_owned(),
        None => line.to_owned(),
    });
    let mut events = fleet.subscribe_after(fleet.store().last_event().await.unwrap());
    scene.replace("one", &lapsed.collect::<Vec<_>>().join("\n"));
    until(&mut events, 1, is_reported).await;
    assert_eq!(scene.status("one"), "completed");
    assert_eq!(jobs(&fleet).await.len(), 1, "its result is known");
    stop(fleet).await;
}

#[tokio::test]
async fn item_with_claim_of_ended_job_can_be_released_by_hand() {
    let scene = Scene::new(UNTIL_GO, "", "type: manual");
    scene.task("one", "");
    let fleet = scene.started().await;
    let by_hand = TriggerRequest { schedule: Some("poll".parse().unwrap()), ..TriggerRequest::default() };
    fleet.trigger(&"worker".parse().unwrap(), by_hand).await.unwrap();
    let claimed = left_claimed(&scene, &fleet).await;
    scene.replace("one", &claimed);
    fleet.release_item(&one(), ItemScope::default(), ReleaseOptions::default()).await.unwrap();
    assert_eq!(scene.status("one"), "available");
    scene.replace("one", &claimed);
    let result = |outcome| WorkResult {
        outcome,
        summary: "By hand.".to_owned(),
        details: None,
        artifacts: Vec::new(),
        error: None,
    };
    fleet.complete_item(&one(), ItemScope::default(), result(WorkOutcome::Partial)).await.unwrap();
    assert_eq!(scene.status("one"), "partial");
    fleet.complete_item(&one(), ItemScope::default(), result(WorkOutcome::Success)).await.unwrap();
    assert_eq!(scene.status("one"), "completed", "a person may complete an item that is not offered");
    let again = fleet.complete_item(&one(), ItemScope::default(), result(WorkOutcome::Success)).await;
    let Err(FleetError::ItemLeftAlone { why, .. }) = again else { panic!("{again:?}") };
    assert_eq!(why, "the item is completed");
    stop(fleet).await;
}

/// New work that a person puts in under the name of an item with a running job.
const NEW_WORK: &str = "---\ntitle: New\nstatus: available\n---\nSomething else.\n";

fn is_told(fact: &Fact) -> bool {
    matches!(fact, Fact::WorkReported { .. } | Fact::WorkReleased { .. } | Fact::WorkDropped { .. })
}

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), what).await.expect("it never happened")
}

/// Returns the first report to the source.
async fn first_told(events: &mut Subscription) -> Event {
    soon(until(events, 1, is_told)).await.pop().unwrap()
}

fn dropped(event: &Event) -> &str {
    let Fact::WorkDropped { message, .. } = &event.fact else { panic!("{event:?}") };
    message
}

/// A person replaces the text of an item while its job runs: the result does not apply to the new text, and another
/// job works on the new text.
#[tokio::test]
async fn a_result_does_not_close_new_work_of_the_same_name() {
    // The second job waits until the first result was looked at.
    let script = "echo $COWHAND_WORK_ITEM_TITLE >> titles; [ $(wc -l < titles) = 1 ] && go=go || go=go-on; \
                  while [ ! -e $go ]; do sleep 0.05; done";
    let scene = Scene::new(script, "", OFTEN);
    scene.task("one", "");
    let fleet = Arc::new(scene.started().await);
    let mut events = fleet.subscribe_after(0);
    until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    scene.replace("one", NEW_WORK);
    fs::write(scene.path("go"), "").unwrap();
    let told = first_told(&mut events).await;
    assert_eq!(
        dropped(&told),
        "this fleet no longer has the claim of files-one: the id now belongs to another item"
    );
    let client = Client::alone(Api::of_fleet(Arc::clone(&fleet)));
    let view: ItemView = client.get("work/files-one").await.unwrap();
    let result = view.dropped_result.expect("the item says that a result was dropped");
    let first = jobs(&fleet).await.swap_remove(0);
    assert_eq!((Some(result.job), first.status()), (told.job, JobStatus::Completed));
    fs::write(scene.path("go-on"), "").unwrap();
    soon(until(&mut events, 1, is_reported)).await;
    let firings: Page<FiringView> = client.get("schedules/worker/poll/firings").await.unwrap();
    let said = format!(
        "the result of {} was not reported to its source: this fleet no longer has the claim",
        first.id()
    );
    assert!(firings.items.iter().any(|firing| firing.why.contains(&said)), "{firings:?}");
    assert_eq!(jobs(&fleet).await.len(), 2, "the new text is work of its own");
    assert_eq!(fs::read_to_string(scene.path("titles")).unwrap(), "Do one\nNew\n");
    drop(client);
    stop(Arc::into_inner(fleet).unwrap()).await;
}

/// The job releases its item, and its failure does not count for the new text.
#[tokio::test]
async fn a_failure_is_not_counted_against_new_work_of_the_same_name() {
    let script = "[ -e tried ] && exit 0; touch tried; while [ ! -e go ]; do sleep 0.05; done; exit 3";
    let scene = Scene::new(script, ", on_failure: release", OFTEN);
    scene.task("one", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    scene.replace("one", NEW_WORK);
    fs::write(scene.path("go"), "").unwrap();
    dropped(&first_told(&mut events).await);
    assert_eq!(fleet.store().item_failures().await.unwrap(), []);
    soon(until(&mut events, 1, is_reported)).await;
    stop(fleet).await;
}

/// A renewal does not claim new text.
#[tokio::test]
async fn renewal_does_not_claim_new_work_of_the_same_name() {
    let scene = Scene::new(UNTIL_GO, "", "type: manual");
    scene.task("one", "");
    scene.task("other", "status: blocked\n");
    let fleet = scene.started().await;
    let by_hand = TriggerRequest { schedule: Some("poll".parse().unwrap()), ..TriggerRequest::default() };
    fleet.trigger(&"worker".parse().unwrap(), by_hand).await.unwrap();
    let mut events = fleet.subscribe_after(0);
    until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    scene.replace("one", NEW_WORK);
    let soon_over = Timestamp::now() + SignedDuration::from_mins(1);
    fleet.store().renewed(held(&fleet).await.holder, soon_over).await.unwrap();
    // Any action of a person makes the daemon check the claims.
    scene.task("other", "");
    let result = WorkResult {
        outcome: WorkOutcome::Success,
        summary: "By hand.".to_owned(),
        details: None,
        artifacts: Vec::new(),
        error: None,
    };
    fleet.complete_item(&"files-other".parse().unwrap(), ItemScope::default(), result).await.unwrap();
    soon(until(&mut events, 1, |fact| matches!(fact, Fact::JobCancelled { .. }))).await;
    assert_eq!(scene.read("one"), NEW_WORK);
    stop(fleet).await;
}

async fn held(fleet: &Fleet) -> HeldItem {
    let mut items = fleet.store().items().await.unwrap();
    assert_eq!(items.len(), 1, "{items:?}");
    items.pop().unwrap()
}

/// Ends a job while its item is away, and delays the next report by an hour.
async fn result_put_off(scene: &Scene, fleet: &Fleet, events: &mut Subscription) {
    until(events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    fs::rename(scene.path("tasks"), scene.path("away")).unwrap();
    fs::create_dir(scene.path("tasks")).unwrap();
    fs::write(scene.path("go"), "").unwrap();
    until(events, 1, |fact| matches!(fact, Fact::WorkDelayed { .. })).await;
    let (owed, now) = (held(fleet).await, Timestamp::now());
    let ItemState::Closing { last_error: Some(error), .. } = &owed.state else { panic!("{owed:?}") };
    let error = error.clone();
    fleet.store().postpone(owed, error, now + SignedDuration::from_hours(1), now).await.unwrap();
}

fn bring_back(scene: &Scene) {
    fs::remove_dir(scene.path("tasks")).unwrap();
    fs::rename(scene.path("away"), scene.path("tasks")).unwrap();
}

#[tokio::test]
async fn poll_that_finds_item_again_sends_delayed_result() {
    let scene = Scene::new(UNTIL_GO, "", OFTEN);
    scene.task("one", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    result_put_off(&scene, &fleet, &mut events).await;
    bring_back(&scene);
    assert!(is_reported(&first_told(&mut events).await.fact));
    assert_eq!(scene.status("one"), "completed");
    stop(fleet).await;
}

#[tokio::test]
async fn work_list_that_finds_item_again_sends_delayed_result() {
    let scene = Scene::new(UNTIL_GO, "", "type: manual");
    scene.task("one", "");
    let fleet = Arc::new(scene.started().await);
    let by_hand = TriggerRequest { schedule: Some("poll".parse().unwrap()), ..TriggerRequest::default() };
    fleet.trigger(&"worker".parse().unwrap(), by_hand).await.unwrap();
    let mut events = fleet.subscribe_after(0);
    result_put_off(&scene, &fleet, &mut events).await;
    bring_back(&scene);
    let client = Client::alone(Api::of_fleet(Arc::clone(&fleet)));
    client.get::<WorkView>("work").await.unwrap();
    assert!(is_reported(&first_told(&mut events).await.fact));
    drop(client);
    stop(Arc::into_inner(fleet).unwrap()).await;
}

/// The folder is locked: the source accepts the result and does not answer.
#[tokio::test]
async fn status_shows_work_source_without_answer() {
    let scene = Scene::new(UNTIL_GO, "", "type: manual");
    scene.task("one", "");
    let fleet = Arc::new(scene.started().await);
    let by_hand = TriggerRequest { schedule: Some("poll".parse().unwrap()), ..TriggerRequest::default() };
    fleet.trigger(&"worker".parse().unwrap(), by_hand).await.unwrap();
    let mut events = fleet.subscribe_after(0);
    until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    let folder = fs::File::open(scene.path("tasks")).unwrap();
    folder.lock().unwrap();
    fs::write(scene.path("go"), "").unwrap();
    let client = Client::alone(Api::of_fleet(Arc::clone(&fleet)));
    let untold = async {
        loop {
            let status: cowhand::api::StatusView = client.get("status").await.unwrap();
            if let Some(untold) = status.untold.into_iter().next() {
                return untold;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let untold = soon(untold).await;
    assert_eq!((untold.id, untold.since.is_some()), (one(), true));
    assert_eq!(untold.last_error, "its source has not answered yet");
    drop(folder);
    assert!(is_reported(&first_told(&mut events).await.fact));
    drop(client);
    stop(Arc::into_inner(fleet).unwrap()).await;
}

/// A failure that a person reports counts like a failure of a job.
#[tokio::test]
async fn failure_reported_by_person_gives_item_up() {
    let scene = Scene::new("true", "", "type: manual");
    for claimed in [false, true] {
        scene.task("one", "");
        let fleet = Arc::new(scene.started().await);
        let mut events = fleet.subscribe_after(fleet.store().last_event().await.unwrap());
        if claimed {
            fleet.claim_item(&one(), ItemScope::default(), "ann").await.unwrap();
        }
        let result = WorkResult {
            outcome: WorkOutcome::Failure,
            summary: "Nobody has the keys.".to_owned(),
            details: None,
            artifacts: Vec::new(),
            error: None,
        };
        fleet.complete_item(&one(), ItemScope::default(), result).await.unwrap();
        assert!(is_reported(&first_told(&mut events).await.fact));
        let client = Client::alone(Api::of_fleet(Arc::clone(&fleet)));
        let view: ItemView = client.get("work/files-one").await.unwrap();
        assert_eq!(view.status, ItemStatus::GivenUp, "claimed: {claimed}");
        assert_eq!(view.given_up.unwrap().sentence(), "failed once: Nobody has the keys.");
        let list: WorkView = client.get("work").await.unwrap();
        assert_eq!(list.items.len(), 1, "{list:?}");
        fleet.retry_item(&one(), ItemScope::default()).await.unwrap();
        assert_eq!(scene.status("one"), "available");
        assert_eq!(fleet.store().item_failures().await.unwrap(), []);
        drop(client);
        stop(Arc::into_inner(fleet).unwrap()).await;
    }
}
