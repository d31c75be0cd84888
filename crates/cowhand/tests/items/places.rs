//! Free places are filled beside a long job: at every poll, and at every end of a job.

use std::fs;
use std::time::Duration;

use cowhand::fleet::{Fleet, Subscription};
use cowhand_core::event::Fact;
use cowhand_core::job::JobStatus;
use cowhand_testing::on_both;

use crate::{Scene, jobs, stop, until};

/// Script in which `slow` waits for the file `go`; everything else ends at once.
const SCRIPT: &str = "if grep -q 'Do slow'; then while [ ! -e go ]; do sleep 0.05; done; fi";

fn scene(database: &str, schedule: &str) -> Scene {
    let scene = Scene::on(database, SCRIPT, "", &format!("{schedule}, prompt: Go."));
    let text = fs::read_to_string(scene.path("cowhand.yaml")).unwrap();
    fs::write(scene.path("cowhand.yaml"), format!("{text}    instances: {{max_concurrent: 3}}\n")).unwrap();
    scene.task("slow", "priority: critical\n");
    scene
}

async fn reported(events: &mut Subscription, count: usize) {
    let reported = until(events, count, |fact| matches!(fact, Fact::WorkReported { .. }));
    let reported = tokio::time::timeout(Duration::from_mins(2), reported).await;
    reported.expect("places stay empty behind the slow job");
}

async fn slow_one_runs(fleet: &Fleet) {
    let jobs = jobs(fleet).await;
    let running: Vec<&str> = jobs
        .iter()
        .filter(|job| job.status() == JobStatus::Running)
        .map(|job| job.work_item().unwrap().id.external_id())
        .collect();
    assert_eq!(running, ["slow"]);
}

/// The next poll is an hour away: the ends of the other jobs fill the places.
async fn every_end_of_a_job_fills_its_place(database: &str) {
    for schedule in ["type: interval, interval: 1h", "type: cron, cron: '0 0 * * *'"] {
        let scene = scene(database, schedule);
        for name in ["a", "b", "c", "d", "e", "f"] {
            scene.task(name, "");
        }
        let fleet = scene.started().await;
        let mut events = fleet.subscribe_after(0);
        if schedule.contains("cron") {
            let worker = "worker".parse().unwrap();
            let by_hand = cowhand::fleet::TriggerRequest {
                schedule: Some("poll".parse().unwrap()),
                ..cowhand::fleet::TriggerRequest::default()
            };
            fleet.trigger(&worker, by_hand).await.unwrap();
        }
        reported(&mut events, 6).await;
        slow_one_runs(&fleet).await;
        let ledger = fleet.store().ledger(fleet.roster().agents[0].schedules[0].id, 100).await.unwrap();
        assert!(ledger.iter().any(|row| row.key.is_fill()), "{ledger:?}");
        fs::write(scene.path("go"), "").unwrap();
        reported(&mut events, 1).await;
        stop(fleet).await;
    }
}

/// Later items are found by the next poll, whatever `overlap` is.
async fn every_poll_fills_free_places(database: &str) {
    for schedule in ["type: interval, interval: 1s", "type: cron, cron: '* * * * * *'"] {
        let scene = scene(database, schedule);
        let fleet = scene.started().await;
        let mut events = fleet.subscribe_after(0);
        until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
        for name in ["a", "b", "c"] {
            scene.task(name, "");
            reported(&mut events, 1).await;
        }
        slow_one_runs(&fleet).await;
        fs::write(scene.path("go"), "").unwrap();
        reported(&mut events, 1).await;
        stop(fleet).await;
    }
}

/// A released item waits for the next poll, because otherwise a job that always fails would run without a pause. Other
/// items take its place.
async fn what_was_given_back_waits_for_the_next_poll(database: &str) {
    let script = "if grep -q 'Do bad'; then kill -9 $$; fi";
    let scene = Scene::on(database, script, "", "type: interval, interval: 1h, prompt: Go.");
    scene.task("bad", "priority: critical\n");
    scene.task("good", "");
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    // Wait for two events in any order: the good item is reported, and a look for more work finds nothing.
    let both = async {
        let (mut reported, mut skipped) = (false, false);
        while !(reported && skipped) {
            let fact = events.next().await.unwrap().expect("the fleet has ended").fact;
            reported |= matches!(fact, Fact::WorkReported { .. });
            skipped |= matches!(fact, Fact::ScheduleSkipped { .. });
        }
    };
    tokio::time::timeout(Duration::from_mins(2), both).await.unwrap();
    let jobs = jobs(&fleet).await;
    let items: Vec<&str> = jobs.iter().map(|job| job.work_item().unwrap().id.external_id()).collect();
    assert_eq!(items, ["bad", "good"]);
    assert_eq!(scene.status("bad"), "available");
    stop(fleet).await;
}

/// A command that never answers blocks only its own schedule, and no other schedule of the agent, although the agent
/// has only one place.
async fn a_firing_that_is_prepared_holds_up_no_other_schedule(database: &str) {
    let scene = Scene::on(database, "true", "", "type: manual");
    let text = fs::read_to_string(scene.path("cowhand.yaml")).unwrap();
    let (before, _) = text.split_once("    work_source:").unwrap();
    let schedules = "schedules:
      hangs: {type: interval, interval: 1s, when_command: [sh, -c, 'while [ ! -e go ]; do sleep 0.05; done'], prompt: Go.}
      looks: {type: interval, interval: 1s, work_source: {type: files, path: nowhere}, prompt: Go.}
      plain: {type: interval, interval: 1s, prompt: Go.}
      timed: {type: cron, cron: '* * * * * *', prompt: Go.}\n";
    fs::write(scene.path("cowhand.yaml"), format!("{before}    {schedules}")).unwrap();
    let fleet = scene.started().await;
    let mut events = fleet.subscribe_after(0);
    let both = async {
        let (mut plain, mut timed) = (0, 0);
        while plain < 2 || timed < 2 {
            let event = events.next().await.unwrap().expect("the fleet has ended");
            if matches!(event.fact, Fact::JobCompleted { .. }) {
                match event.schedule.unwrap().as_str() {
                    "plain" => plain += 1,
                    "timed" => timed += 1,
                    other => panic!("{other} has run"),
                }
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(2), both).await.expect("they wait for the command");
    let hangs = fleet.store().ledger(fleet.roster().agents[0].schedules[0].id, 100).await.unwrap();
    assert!(hangs.iter().all(|row| row.job.is_none()), "{hangs:?}");
    fs::write(scene.path("go"), "").unwrap();
    let of_hangs = async {
        while events
            .next()
            .await
            .unwrap()
            .expect("the fleet has ended")
            .schedule
            .is_none_or(|name| name.as_str() != "hangs")
        {}
    };
    tokio::time::timeout(Duration::from_mins(2), of_hangs).await.unwrap();
    stop(fleet).await;
}

on_both!(
    every_end_of_a_job_fills_its_place,
    every_poll_fills_free_places,
    what_was_given_back_waits_for_the_next_poll,
    a_firing_that_is_prepared_holds_up_no_other_schedule,
);
