//! A store that fails for a time, and a store that knows more about an attempt than the files.

use std::fs;

use cowhand_core::job::{ErrorKind, JobRecord, JobStatus};

use crate::{Scene, kill_all_of, processes};

/// While an attempt that never began cannot be requeued, the daemon retries.
#[tokio::test]
async fn requeue_is_retried_until_store_accepts_it() {
    let mut scene = Scene::new("echo $COWHAND_JOB_ID >> starts");
    scene.start("claimed");
    scene.wait_for_death();
    let refusing = rusqlite::Connection::open(scene.path(".cowhand/store.db")).unwrap();
    let refuse = "create trigger refuse before delete on attempts begin select raise(abort, 'not now'); end";
    refusing.execute_batch(refuse).unwrap();
    assert!(scene.start(""), "{}", scene.read("log"));
    let tries = || scene.read("log").matches("is not requeued yet").count();
    scene.until("tried three times", || tries() >= 3).await;
    let store = scene.store().await;
    let running = scene.job(&store, "held", |job| job.status() == JobStatus::Running).await;
    refusing.execute_batch("drop trigger refuse").unwrap();
    let job = scene.job(&store, "over", |job| job.status() == JobStatus::Completed).await;
    assert_eq!((job.id(), scene.starts()), (running.id(), 1));
    scene.stop();
}

/// A power cut may remove the folder of an attempt that has begun. Its recorded usage is kept, and it does
/// not run a second time.
#[tokio::test]
async fn attempt_with_recorded_usage_does_not_run_again() {
    let line = r#"{"type":"assistant","content":"x","usage":{"input_tokens":7,"cost_usd":0.25}}"#;
    let mut scene = Scene::new(&format!("echo $COWHAND_JOB_ID >> starts; echo '{line}'; sleep 1000"));
    assert!(scene.start(""), "{}", scene.read("log"));
    let store = scene.store().await;
    let job = scene.job(&store, "running", |job| job.status() == JobStatus::Running).await;
    loop {
        let history = store.history(job.id().clone()).await.unwrap().unwrap();
        if history.attempts.iter().any(|attempt| attempt.usage.is_some()) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    scene.kill();
    kill_all_of(&job);
    scene.until("all of it to be gone", || processes(&job).is_empty()).await;
    fs::remove_dir_all(scene.path(&format!(".cowhand/attempts/{}.1", job.id()))).unwrap();
    assert!(scene.start(""), "{}", scene.read("log"));
    let job = scene.job(&store, "over", |job| job.status() == JobStatus::Failed).await;
    let spent = job.usage().and_then(|usage| usage.total_cost_usd);
    let record = JobRecord::from(job.clone());
    assert_eq!((record.error.unwrap().kind, spent), (ErrorKind::Lost, Some(0.25)));
    assert_eq!(scene.starts(), 1);
    scene.stop();
}

/// Without the store, the open asks of an agent are unknown. But the agent cannot ask either, so a hanging agent is
/// ended.
#[tokio::test]
async fn hanging_agent_times_out_while_store_is_away() {
    let mut scene = Scene::new("echo $COWHAND_JOB_ID >> starts; sleep 1000");
    let fleet = scene.read("cowhand.yaml").replace("jitter: 0", "jitter: 0, timeout: 12s");
    fs::write(scene.path("cowhand.yaml"), fleet).unwrap();
    assert!(scene.start(""), "{}", scene.read("log"));
    let store = scene.store().await;
    let job = scene.job(&store, "running", |job| job.status() == JobStatus::Running).await;
    let taking = rusqlite::Connection::open(scene.path(".cowhand/store.db")).unwrap();
    scene.until("its agent to be there", || scene.starts() == 1).await;
    taking.execute_batch("alter table asks rename to taken").unwrap();
    assert!(!processes(&job).is_empty(), "the store is away before its time is up");
    scene.until("all of it to be gone", || processes(&job).is_empty()).await;
    scene
        .until("its end to be held up", || scene.read("log").contains("its outcome is not stored yet"))
        .await;
    taking.execute_batch("alter table taken rename to asks").unwrap();
    let job = scene.job(&store, "over", |job| job.status() == JobStatus::Failed).await;
    assert_eq!(JobRecord::from(job).error.unwrap().kind, ErrorKind::Timeout);
    scene.stop();
}
