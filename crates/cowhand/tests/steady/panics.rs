//! Panics in attempt tasks.

use cowhand_core::job::{ErrorKind, JobRecord, JobStatus};

use crate::{Scene, processes};

const WORK: &str = "echo $COWHAND_JOB_ID >> starts; echo working; echo done";

#[tokio::test]
async fn attempt_continues_after_panic() {
    for place in ["workspace-made", "launched", "looked", "ended", "read", "settled"] {
        let mut scene = Scene::new(WORK);
        assert!(scene.start(&format!("panic:{place}")), "{}", scene.read("log"));
        let store = scene.store().await;
        let job = scene.job(&store, "over", |job| job.status() == JobStatus::Completed).await;
        scene.stop();
        assert_eq!(scene.starts(), 1, "{place}: it ran once");
        let said = scene.read(&format!(".cowhand/jobs/{}.jsonl", job.id()));
        assert_eq!(said.matches("working").count(), 1, "{place}: and was heard once: {said}");
        let history = store.history(job.id().clone()).await.unwrap().unwrap();
        assert_eq!(history.attempts.len(), 1, "{place}");
        let log = scene.read("log");
        let told = format!("the supervision of the job panicked: injected fault at {place:?}");
        assert!(log.contains(&told), "{place}:\n{log}");
    }
}

/// A job whose attempt task panics each time fails in the end, and no process of it is left.
#[tokio::test]
async fn job_fails_after_repeated_panics() {
    let mut scene = Scene::new("echo $COWHAND_JOB_ID >> starts; echo working; sleep 1000");
    assert!(scene.start("panic:looked:1000"));
    let store = scene.store().await;
    let job = scene.job(&store, "over", |job| job.status() == JobStatus::Failed).await;
    let record = JobRecord::from(job.clone());
    let error = record.error.unwrap();
    assert_eq!(error.kind, ErrorKind::Lost);
    assert!(error.message.contains("failed 5 times; the last time it panicked: injected fault"), "{error:?}");
    assert_eq!(processes(&job), Vec::<String>::new(), "nothing of it is left");
    assert_eq!(scene.starts(), 1);
    scene.stop();
}
