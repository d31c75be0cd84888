//! Hook runs: they are added with the end of the job, and one node at a time takes them in order.

use cowhand_core::attempt::Settlement;
use cowhand_core::hook::{Hook, HookAction, HookEvent, HookRun, HookState, Hooks, SHELL_HOOK_TIMEOUT};
use cowhand_core::id::JobId;
use cowhand_core::job::{ErrorKind, FailReason, JobError, Outcome};
use cowhand_core::policy::Retry;
use cowhand_core::retention::RetentionLimit;
use cowhand_core::roster::Roster;
use cowhand_store::{CancelOutcome, Claim, HookEnd, Removal, Settled, Store, TakenHook};
use jiff::SignedDuration;
use serde_json::json;

use crate::conformance::event_types;
use crate::{HOURLY, TestDb, at, hand_job, on_both, roster};

on_both! {
    the_end_of_a_job_adds_its_hook_runs,
    an_attempt_that_does_not_end_the_job_adds_no_hook_runs,
    hooks_of_a_job_run_one_at_a_time_in_order,
    a_node_that_lost_a_hook_changes_nothing,
    a_failed_hook_may_skip_later_hooks,
    a_node_that_comes_back_takes_up_its_own,
    other_nodes_wait_a_little,
    a_job_with_hooks_to_run_is_not_pruned,
    two_nodes_take_different_hooks,
}

fn hook(on_events: Option<Vec<HookEvent>>) -> Hook {
    let action = HookAction::Shell { command: "true".into(), timeout: SHELL_HOOK_TIMEOUT };
    Hook { name: None, continue_on_error: true, on_events, when: None, action }
}

/// Returns a roster with three `after_run` hooks, the second only for cancelled jobs, and one `on_error` hook.
fn with_hooks() -> Roster {
    let mut roster = roster(&[HOURLY]);
    let after_run = vec![hook(None), hook(Some(vec![HookEvent::Cancelled])), hook(None)];
    roster.agents[0].hooks = Hooks { after_run, on_error: vec![hook(None)] };
    roster
}

async fn running(store: &Store) -> (JobId, i64) {
    let job = store.add_job(hand_job(), at(1)).await.unwrap();
    let lease = SignedDuration::from_mins(1);
    match store.claim(job.id().clone(), 100, "n1".into(), lease, at(2)).await.unwrap() {
        Claim::Claimed { job, epoch } => (job.id().clone(), epoch),
        other => panic!("{other:?}"),
    }
}

fn completed() -> Outcome {
    Outcome::Completed { summary: None }
}

fn failed(reason: FailReason) -> Outcome {
    let error = JobError { kind: ErrorKind::Exit, message: "broke".into() };
    Outcome::Failed { reason, error, summary: None }
}

async fn ended(store: &Store, outcome: Outcome) -> JobId {
    let (job, epoch) = running(store).await;
    store.settle(job.clone(), epoch, outcome, Retry::default(), at(3)).await.unwrap();
    job
}

async fn opened(db: &TestDb) -> Store {
    let store = db.open().await;
    store.load_schedules(with_hooks(), at(0)).await.unwrap();
    store
}

async fn numbers(store: &Store, job: &JobId) -> Vec<u32> {
    store.hook_runs(job.clone()).await.unwrap().iter().map(|run| run.number).collect()
}

async fn states(store: &Store, job: &JobId) -> Vec<HookState> {
    store.hook_runs(job.clone()).await.unwrap().iter().map(|run| run.state).collect()
}

async fn take(store: &Store, node: &str, until: i64, now: i64) -> Option<TakenHook> {
    store.take_hook(node.into(), at(until), at(now)).await.unwrap()
}

async fn end(store: &Store, hook_run: TakenHook, end: HookEnd, stops_later_hooks: bool) {
    store.end_hook(hook_run, end, Some("said".into()), stops_later_hooks, at(9)).await.unwrap();
}

const DONE: HookEnd = HookEnd::Completed { note: None };

fn failed_end() -> HookEnd {
    HookEnd::Failed { reason: "exit code 1".into() }
}

async fn the_end_of_a_job_adds_its_hook_runs(db: TestDb) {
    let store = opened(&db).await;
    for (outcome, expected) in [
        (completed(), vec![1, 3]),
        (failed(FailReason::Error), vec![1, 3, 4]),
        (failed(FailReason::Timeout), vec![1, 3, 4]),
    ] {
        let job = ended(&store, outcome.clone()).await;
        assert_eq!(numbers(&store, &job).await, expected);
        let runs: Vec<HookRun> = store.hook_runs(job).await.unwrap();
        assert!(runs.iter().all(|run| run.event == HookEvent::of(&outcome) && run.tries == 0));
    }
    let waiting = store.add_job(hand_job(), at(4)).await.unwrap();
    let cancelled = store.cancel(waiting.id().clone(), at(5)).await.unwrap();
    assert!(matches!(cancelled, CancelOutcome::Done(_)));
    assert_eq!(numbers(&store, waiting.id()).await, [1, 2, 3]);
    let (job, epoch) = running(&store).await;
    let metadata = Some(json!({"a": [1, "\u{0}"]}));
    let settlement =
        Settlement { outcome: completed(), usage: None, metadata: metadata.clone(), ..completed().into() };
    store.settle(job.clone(), epoch, settlement, Retry::default(), at(6)).await.unwrap();
    assert_eq!(store.hook_metadata(job).await.unwrap(), metadata);
    // A fleet without hooks adds no hook runs, and earlier hook runs stay.
    store.load_schedules(roster(&[HOURLY]), at(7)).await.unwrap();
    let job = ended(&store, completed()).await;
    assert_eq!(numbers(&store, &job).await, [0_u32; 0]);
    assert_eq!(numbers(&store, waiting.id()).await, [1, 2, 3]);
}

async fn an_attempt_that_does_not_end_the_job_adds_no_hook_runs(db: TestDb) {
    let store = opened(&db).await;
    let (job, epoch) = running(&store).await;
    let retry = Retry { max_attempts: 2, ..Retry::default() };
    let settled = store.settle(job.clone(), epoch, failed(FailReason::Error), retry, at(3)).await.unwrap();
    assert!(matches!(settled, Settled::Done(_)));
    assert_eq!(numbers(&store, &job).await, [0_u32; 0], "another attempt follows");
    let (job, epoch) = running(&store).await;
    let fenced = store.settle(job.clone(), epoch + 1, completed(), Retry::default(), at(3)).await.unwrap();
    assert_eq!((fenced, numbers(&store, &job).await), (Settled::Fenced, vec![]));
}

async fn hooks_of_a_job_run_one_at_a_time_in_order(db: TestDb) {
    let store = opened(&db).await;
    let job = ended(&store, completed()).await;
    assert_eq!(store.next_hook_time().await.unwrap(), Some(at(3)));
    let first = take(&store, "n1", 100, 4).await.unwrap();
    assert_eq!((first.run.number, first.run.tries, &first.begun_by), (1, 1, &None));
    assert_eq!(take(&store, "n1", 100, 4).await, None, "the next one waits for it");
    assert_eq!(store.next_hook_time().await.unwrap(), Some(at(100)));
    assert!(store.renew_hook(&first, at(200)).await.unwrap());
    assert_eq!(take(&store, "n1", 300, 150).await, None, "it takes longer");
    store.postpone_hook(&first, "503".into(), at(160)).await.unwrap();
    assert_eq!(take(&store, "n1", 300, 159).await, None, "not yet, and not the next one either");
    let again = take(&store, "n1", 300, 160).await.unwrap();
    assert_eq!((again.run.number, again.run.tries, &again.begun_by), (1, 2, &None));
    assert_eq!(again.run.started_at, Some(at(4)));
    end(&store, again, DONE, true).await;
    let second = take(&store, "n1", 300, 160).await.unwrap();
    assert_eq!(second.run.number, 3);
    end(&store, second, HookEnd::Skipped { reason: "no".into() }, true).await;
    assert_eq!(states(&store, &job).await, [HookState::Completed, HookState::Skipped]);
    assert_eq!((take(&store, "n1", 999, 500).await, store.next_hook_time().await.unwrap()), (None, None));
    let types = event_types(&store).await;
    assert_eq!(types[types.len() - 2..], ["hook:completed", "hook:skipped"]);
}

async fn a_node_that_lost_a_hook_changes_nothing(db: TestDb) {
    let store = opened(&db).await;
    let job = ended(&store, completed()).await;
    let slow = take(&store, "n1", 10, 4).await.unwrap();
    let quick = take(&store, "n2", 100, 70).await.unwrap();
    assert_eq!((quick.run.number, quick.begun_by.as_deref()), (1, Some("n1")));
    assert!(!store.renew_hook(&slow, at(500)).await.unwrap());
    store.postpone_hook(&slow, "late".into(), at(500)).await.unwrap();
    end(&store, slow, failed_end(), true).await;
    assert_eq!(states(&store, &job).await, [HookState::Running, HookState::Waiting]);
    end(&store, quick.clone(), DONE, true).await;
    end(&store, quick, failed_end(), true).await;
    assert_eq!(
        states(&store, &job).await,
        [HookState::Completed, HookState::Waiting],
        "what ended has ended"
    );
}

async fn a_failed_hook_may_skip_later_hooks(db: TestDb) {
    let store = opened(&db).await;
    for (stops_later_hooks, expected) in [
        (false, [HookState::Failed, HookState::Waiting, HookState::Waiting]),
        (true, [HookState::Failed, HookState::Skipped, HookState::Skipped]),
    ] {
        let job = ended(&store, failed(FailReason::Error)).await;
        let first = take(&store, "n1", 100, 4).await.unwrap();
        end(&store, first, failed_end(), stops_later_hooks).await;
        assert_eq!(states(&store, &job).await, expected);
        let runs = store.hook_runs(job).await.unwrap();
        assert_eq!(
            (runs[0].reason.as_deref(), runs[0].output.as_deref()),
            (Some("exit code 1"), Some("said"))
        );
        while let Some(rest) = take(&store, "n1", 100, 4).await {
            end(&store, rest, DONE, false).await;
        }
    }
    let types = event_types(&store).await;
    assert_eq!(types[types.len() - 3..], ["hook:failed", "hook:skipped", "hook:skipped"]);
}

async fn a_node_that_comes_back_takes_up_its_own(db: TestDb) {
    let store = opened(&db).await;
    let (one, other) = (ended(&store, completed()).await, ended(&store, completed()).await);
    let (first, second) =
        (take(&store, "n1", 1_000, 4).await.unwrap(), take(&store, "n1", 1_000, 4).await.unwrap());
    assert_ne!(first.job, second.job);
    assert!(store.has_open_hook("n1".into(), at(4)).await.unwrap());
    assert!(!store.has_open_hook("n2".into(), at(4)).await.unwrap(), "they are not its own");
    store.take_up_hooks("n2".into(), at(5)).await.unwrap();
    assert_eq!(take(&store, "n1", 1_000, 5).await, None, "somebody else came back");
    store.take_up_hooks("n1".into(), at(6)).await.unwrap();
    for _ in 0..2 {
        let again = take(&store, "n1", 1_000, 6).await.unwrap();
        assert!(again.begun_by.as_deref() == Some("n1") && [&one, &other].contains(&&again.job));
    }
}

async fn other_nodes_wait_a_little(db: TestDb) {
    let store = opened(&db).await;
    ended(&store, completed()).await;
    assert_eq!(take(&store, "n2", 100, 4).await, None, "n1 had the job, and its files");
    assert!(take(&store, "n2", 1_000, 63).await.is_some(), "it seems to be gone");
}

async fn a_job_with_hooks_to_run_is_not_pruned(db: TestDb) {
    let store = opened(&db).await;
    let job = ended(&store, completed()).await;
    let prunable = async || store.ended_jobs(None).await.unwrap().len();
    assert_eq!(prunable().await, 0);
    // One hook runs, and another waits.
    let first = take(&store, "n1", 100, 4).await.unwrap();
    for hooks_left in [2, 1] {
        assert_eq!(numbers(&store, &job).await.len(), 2);
        let limit = RetentionLimit::MaxJobsPerAgent;
        assert_eq!(store.prune(vec![(job.clone(), limit)], at(5)).await.unwrap(), [], "{hooks_left}");
        assert_eq!(store.remove_job(job.clone(), at(5)).await.unwrap(), Removal::HooksOpen, "{hooks_left}");
        if hooks_left == 2 {
            end(&store, first.clone(), DONE, false).await;
        }
    }
    while let Some(hook_run) = take(&store, "n1", 100, 4).await {
        end(&store, hook_run, DONE, false).await;
    }
    assert_eq!(prunable().await, 1);
    let gone = store.prune(vec![(job.clone(), RetentionLimit::MaxJobsPerAgent)], at(10)).await.unwrap();
    assert_eq!((gone.len(), numbers(&store, &job).await.len()), (1, 0));
}

async fn two_nodes_take_different_hooks(db: TestDb) {
    let store = opened(&db).await;
    for _ in 0..10 {
        ended(&store, completed()).await;
    }
    let other = db.open().await;
    let taken = async |store: &Store| {
        let mut taken = Vec::new();
        // If the other node was faster, the call returns nothing.
        for _ in 0..40 {
            taken.extend(take(store, "n1", 100, 4).await.map(|hook_run| hook_run.job.to_string()));
        }
        taken
    };
    let (mut one, two) = tokio::join!(taken(&store), taken(&other));
    one.extend(two);
    one.sort();
    let count = one.len();
    one.dedup();
    assert_eq!((count, one.len()), (10, 10));
}
