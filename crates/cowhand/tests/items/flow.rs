//! Work items from their claim to each possible end.

use std::fs;

use cowhand::clock::Clock;
use cowhand::fleet::{Fleet, FleetError, Options, Stop, TriggerRequest, Triggered};
use cowhand_core::event::Fact;
use cowhand_core::id::AgentName;
use cowhand_core::job::{Job, JobStatus};
use cowhand_core::schedule::{FiringOutcome, SkipReason};
use cowhand_core::work::WorkOutcome;

use jiff::{SignedDuration, Timestamp};

use crate::{Scene, jobs, stop, until};

fn worker() -> AgentName {
    "worker".parse().unwrap()
}

fn by_hand() -> TriggerRequest {
    TriggerRequest { schedule: Some("poll".parse().unwrap()), ..TriggerRequest::default() }
}

fn items(jobs: &[Job]) -> Vec<&str> {
    jobs.iter().map(|job| job.work_item().unwrap().id.external_id()).collect()
}

const OFTEN: &str = "type: interval, interval: 1s, prompt: Work on this.";

#[tokio::test]
async fn items_run_by_priority_and_empty_queue_starts_no_agent() {
    let scene = Scene::new("cat; echo Opened https://github.com/o/r/pull/7", "", OFTEN);
    scene.task("later", "priority: low\n");
    scene.task("old", "created: 2024-01-01T00:00:00Z\n");
    scene.task("new", "created: 2025-01-01T00:00:00Z\n");
    scene.task("urgent", "priority: critical\n");
    scene.task("not-now", "status: draft\n");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    // The queue may be empty before the last report is sent.
    until(&mut events, 4, |fact| matches!(fact, Fact::WorkReported { .. })).await;
    until(&mut events, 1, |fact| matches!(fact, Fact::ScheduleSkipped { reason: SkipReason::NoWork, .. }))
        .await;
    let jobs = jobs(&fleet).await;
    assert_eq!(items(&jobs), ["urgent", "old", "new", "later"], "by priority, then by age");
    for job in &jobs {
        assert_eq!(job.status(), JobStatus::Completed);
        let prompt = job.prompt().unwrap();
        assert!(prompt.starts_with("Work on this.\n\n## Work Item: `Do "), "{prompt}");
    }
    for name in ["later", "old", "new", "urgent"] {
        let text = scene.read(name);
        assert_eq!(scene.status(name), "completed", "{text}");
        assert!(text.contains("https://github.com/o/r/pull/7"), "{text}");
        assert_eq!(text.matches("## Result: success").count(), 1, "{text}");
    }
    assert_eq!(scene.status("not-now"), "draft");
    let schedule = fleet.roster().agents[0].schedules[0].id;
    let ledger = fleet.store().ledger(schedule, 1000).await.unwrap();
    assert!(ledger.iter().any(|row| row.outcome == FiringOutcome::Skipped(SkipReason::NoWork)));
    assert_eq!(ledger.iter().filter(|row| row.outcome == FiringOutcome::Ran).count(), 4);
    assert!(fleet.store().items().await.unwrap().is_empty(), "nothing is owed");
    // The next poll comes by itself.
    scene.task("another", "");
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { outcome: WorkOutcome::Success, .. }))
        .await;
    assert_eq!(scene.status("another"), "completed");
    stop(fleet).await;
}

#[tokio::test]
async fn a_firing_fills_all_free_places() {
    let wait = "touch up-$COWHAND_JOB_ID; while [ ! -e go ]; do sleep 0.05; done";
    let scene = Scene::new(wait, "", OFTEN);
    let text = fs::read_to_string(scene.path("cowhand.yaml")).unwrap();
    fs::write(scene.path("cowhand.yaml"), format!("{text}    instances: {{max_concurrent: 3}}\n")).unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        scene.task(name, "");
    }
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    // The first jobs start while the firing still looks for more.
    let either = |fact: &Fact| matches!(fact, Fact::JobStarted { .. } | Fact::ScheduleFired { .. });
    let seen = until(&mut events, 4, either).await;
    let fired = seen.iter().filter(|event| matches!(event.fact, Fact::ScheduleFired { .. })).count();
    assert_eq!((fired, jobs(&fleet).await.len()), (1, 3), "one firing, three jobs");
    fs::write(scene.path("go"), "").unwrap();
    until(&mut events, 5, |fact| matches!(fact, Fact::WorkReported { .. })).await;
    stop(fleet).await;
}

#[tokio::test]
async fn failed_item_is_reported_and_left_for_a_person() {
    let scene = Scene::new("echo it does not compile; exit 3", "", "type: manual");
    scene.task("hard", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    let Triggered::New(job) = fleet.trigger(&worker(), by_hand()).await.unwrap() else { panic!("new") };
    assert_eq!(job.work_item().unwrap().id.external_id(), "hard");
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { outcome: WorkOutcome::Failure, .. }))
        .await;
    let ended = fleet.job(job.id()).await.unwrap();
    assert_eq!((ended.status(), ended.work_item()), (JobStatus::Failed, job.work_item()));
    let text = scene.read("hard");
    assert_eq!(scene.status("hard"), "failed", "{text}");
    assert!(text.contains("it does not compile"), "{text}");
    let none = fleet.trigger(&worker(), by_hand()).await.unwrap_err();
    assert!(matches!(none, FleetError::NotRun { reason: SkipReason::NoWork, .. }), "{none:?}");
    assert_eq!(
        none.to_string(),
        "worker/poll did not run: no_work, its work source has nothing to do; `cowhand why worker/poll` shows what happened"
    );
    stop(fleet).await;
}

#[tokio::test]
async fn released_item_is_retried_until_max_item_attempts() {
    let rules = ", on_failure: release, max_item_attempts: 3";
    let scene = Scene::new("exit 3", rules, OFTEN);
    scene.task("hard", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    let seen = until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { .. })).await;
    let released = seen.iter().filter(|event| matches!(event.fact, Fact::WorkReleased { .. })).count();
    assert_eq!((released, jobs(&fleet).await.len()), (2, 3));
    assert!(
        scene.read("hard").contains("3 times in a row and is left for a person"),
        "{}",
        scene.read("hard")
    );
    assert_eq!(scene.status("hard"), "failed");
    stop(fleet).await;
}

#[tokio::test]
async fn cancelled_job_releases_its_item_with_a_note() {
    let scene = Scene::new("touch up; while :; do sleep 0.05; done", "", "type: manual");
    scene.task("long", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    let Triggered::New(job) = fleet.trigger(&worker(), by_hand()).await.unwrap() else { panic!("new") };
    until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    assert_eq!(scene.status("long"), "claimed");
    fleet.cancel(job.id().clone()).await.unwrap();
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkReleased { .. })).await;
    let text = scene.read("long");
    assert_eq!(scene.status("long"), "available", "{text}");
    assert!(text.contains(&format!("{} was cancelled", job.id())), "{text}");
    // A fork and a retry work without the item: it is not claimed for them, and nothing is reported.
    let again = fleet.retry(job.id(), cowhand::fleet::JobChanges::default()).await.unwrap();
    assert!(again.work_item().is_none());
    until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    assert_eq!(scene.status("long"), "available");
    stop(fleet).await;
}

/// Stopping the fleet ends its jobs, and their items are released before it ends.
#[tokio::test]
async fn stop_releases_claimed_items() {
    let scene = Scene::new("while :; do sleep 0.05; done", "", "type: manual");
    scene.task("long", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    fleet.trigger(&worker(), by_hand()).await.unwrap();
    until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    stop(fleet).await;
    assert_eq!(scene.status("long"), "available", "{}", scene.read("long"));
}

/// The folder cannot be written for a time: the job's outcome stays, and is reported to the source later.
#[tokio::test]
async fn failed_report_is_sent_later() {
    let scene = Scene::new("mv tasks away; echo done", "", "type: manual");
    scene.task("one", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    let Triggered::New(job) = fleet.trigger(&worker(), by_hand()).await.unwrap() else { panic!("new") };
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkDelayed { .. })).await;
    let job = fleet.store().job(job.id().clone()).await.unwrap().unwrap();
    assert_eq!(job.status(), JobStatus::Completed);
    fs::rename(scene.path("away"), scene.path("tasks")).unwrap();
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { .. })).await;
    assert_eq!(scene.status("one"), "completed");
    stop(fleet).await;
}

/// The folder is missing: the firing waits, the reason is shown, and the firing continues when the folder exists.
#[tokio::test]
async fn missing_source_folder_delays_firing() {
    let scene = Scene::new("cat", "", OFTEN);
    scene.task("one", "");
    fs::rename(scene.path("tasks"), scene.path("away")).unwrap();
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    let seen = until(&mut events, 1, |fact| matches!(fact, Fact::ScheduleDelayed { .. })).await;
    let Fact::ScheduleDelayed { message } = &seen.last().unwrap().fact else { panic!("delayed") };
    assert!(message.contains("tasks"), "{message}");
    let record = fleet.store().schedules().await.unwrap().remove(0);
    assert_eq!(record.last_error.as_ref(), Some(message));
    fs::rename(scene.path("away"), scene.path("tasks")).unwrap();
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { .. })).await;
    assert_eq!(fleet.store().schedules().await.unwrap()[0].last_error, None);
    stop(fleet).await;
}

#[tokio::test]
async fn when_command_can_skip_firing() {
    let gate = "type: interval, interval: 1s, when_command: [test, -e, open]";
    let scene = Scene::new("cat", "", gate);
    scene.task("one", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    let filtered = |fact: &Fact| matches!(fact, Fact::ScheduleSkipped { reason: SkipReason::Filtered, .. });
    until(&mut events, 2, filtered).await;
    assert!(jobs(&fleet).await.is_empty());
    fs::write(scene.path("open"), "").unwrap();
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { .. })).await;
    stop(fleet).await;
}

/// No daemon runs until the claims have expired. A job that still has its claim continues. An item that somebody else
/// has claimed meanwhile is not worked on a second time.
#[tokio::test]
async fn expired_claim_is_renewed_or_dropped_after_restart() {
    let patient = "type: manual, timeout: 0, idle_timeout: 0";
    let scene = Scene::new("touch up; while [ ! -e go ]; do sleep 0.05; done", "", patient);
    for name in ["first", "second"] {
        scene.task(name, "");
    }
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    fleet.trigger(&worker(), by_hand()).await.unwrap();
    until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    let Triggered::New(waiting) = fleet.trigger(&worker(), by_hand()).await.unwrap() else { panic!("new") };
    assert_eq!(waiting.status(), JobStatus::Pending, "one place");
    let lost = waiting.work_item().unwrap().id.external_id().to_owned();
    let cursor = fleet.store().last_event().await.unwrap();
    fleet.stop(Stop::KeepAgents).await.unwrap();
    drop(fleet);

    let theirs = scene.read(&lost).replace(waiting.id().as_str(), "somebody-else");
    let theirs = theirs.replace("claimed_until: 20", "claimed_until: 21");
    fs::write(scene.path(&format!("tasks/{lost}.md")), theirs).unwrap();
    let later = Timestamp::now() + SignedDuration::from_hours(2);
    let options = Options::of(scene.path("cowhand.yaml"), env!("CARGO_BIN_EXE_cowhand"));
    let fleet = Fleet::start(Options { clock: Clock::test(later), ..options }).await.unwrap();
    let mut events = fleet.subscribe_after(cursor);
    let seen = until(&mut events, 1, |fact| matches!(fact, Fact::WorkDropped { .. })).await;
    let cancelled = seen.iter().find(|event| matches!(event.fact, Fact::JobCancelled { .. })).unwrap();
    assert_eq!(cancelled.job.as_ref(), Some(waiting.id()));
    fs::write(scene.path("go"), "").unwrap();
    let seen = until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { .. })).await;
    assert!(!seen.iter().any(|event| matches!(event.fact, Fact::JobStarted { .. })), "{seen:?}");
    assert!(scene.read(&lost).contains("somebody-else"), "{}", scene.read(&lost));
    assert_eq!(scene.status(&lost), "claimed");
    stop(fleet).await;
}

/// A schedule whose firing cannot be prepared does not occupy the places of its agent.
#[tokio::test]
async fn broken_schedule_does_not_block_other_schedule() {
    let scene = Scene::new("cat", "", OFTEN);
    let text = fs::read_to_string(scene.path("cowhand.yaml")).unwrap();
    let broken = "      broken: {type: interval, interval: 1s, when_command: [no-such-program]}\n";
    fs::write(scene.path("cowhand.yaml"), format!("{text}{broken}")).unwrap();
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    until(&mut events, 1, |fact| matches!(fact, Fact::ScheduleDelayed { .. })).await;
    for name in ["a", "b", "c"] {
        scene.task(name, "");
    }
    until(&mut events, 3, |fact| matches!(fact, Fact::WorkReported { .. })).await;
    stop(fleet).await;
}
