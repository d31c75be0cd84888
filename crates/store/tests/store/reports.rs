//! Reports: each attempt has at most one, the last report counts, and an attempt can report only while it runs.

use cowhand_core::event::Fact;
use cowhand_core::id::JobId;
use cowhand_core::job::Outcome;
use cowhand_core::policy::Retry;
use cowhand_core::report::{Report, ReportedOutcome};
use cowhand_core::retention::RetentionLimit;
use cowhand_store::{Claim, ReportOutcome, Store};
use jiff::{SignedDuration, Timestamp};

use crate::{TestDb, at, hand_job, on_both, with_schedule};

on_both! {
    the_last_report_of_an_attempt_counts,
    a_report_is_of_its_attempt,
}

async fn begin(store: &Store, job: &JobId, now: Timestamp) -> i64 {
    let lease = SignedDuration::from_mins(1);
    match store.claim(job.clone(), 100, "n1".into(), lease, now).await.unwrap() {
        Claim::Claimed { epoch, .. } => epoch,
        other => panic!("{other:?}"),
    }
}

fn report(outcome: ReportedOutcome, now: Timestamp) -> Report {
    let (summary, artifacts) = ("It\u{0}works.".to_owned(), vec!["out/a.txt".to_owned()]);
    Report { outcome, summary, artifacts, reported_at: now }
}

async fn reported(store: &Store) -> Vec<(u32, ReportedOutcome)> {
    let events = store.events_after(0, 100).await.unwrap();
    let facts = events.into_iter().filter_map(|event| match event.fact {
        Fact::JobReported { attempt, outcome } => Some((attempt, outcome)),
        _ => None,
    });
    facts.collect()
}

async fn the_last_report_of_an_attempt_counts(db: TestDb) {
    use ReportedOutcome::{Done, Failed};
    let (store, _) = with_schedule(&db).await;
    let job = store.add_job(hand_job(), at(1)).await.unwrap().id().clone();
    let refused = store.report(job.clone(), 0, report(Done, at(1)), at(1)).await.unwrap();
    assert_eq!(refused, ReportOutcome::NotRunning, "it has not begun");
    begin(&store, &job, at(2)).await;
    assert_eq!(store.report_of(job.clone(), 1).await.unwrap(), None);
    for (said, now, kept) in [(Failed, 3, 3), (Failed, 4, 3), (Done, 5, 5)] {
        let made = store.report(job.clone(), 1, report(said, at(now)), at(now)).await.unwrap();
        assert_eq!(made, ReportOutcome::Made(report(said, at(kept))), "the same again changes nothing");
        assert_eq!(store.report_of(job.clone(), 1).await.unwrap(), Some(report(said, at(kept))));
    }
    assert_eq!(reported(&store).await, [(1, Failed), (1, Done)]);
}

async fn a_report_is_of_its_attempt(db: TestDb) {
    use ReportedOutcome::{Done, NeedsPerson};
    let (store, _) = with_schedule(&db).await;
    let job = store.add_job(hand_job(), at(1)).await.unwrap().id().clone();
    let epoch = begin(&store, &job, at(2)).await;
    store.report(job.clone(), 1, report(NeedsPerson, at(3)), at(3)).await.unwrap();
    let retry = Retry { max_attempts: 2, ..Retry::default() };
    store.settle(job.clone(), epoch, Outcome::lost("gone"), retry, at(4)).await.unwrap();
    let late = store.report(job.clone(), 1, report(Done, at(5)), at(5)).await.unwrap();
    assert_eq!(late, ReportOutcome::NotRunning, "its attempt is over");
    let epoch = begin(&store, &job, at(4_000)).await;
    assert_eq!(store.report_of(job.clone(), 2).await.unwrap(), None);
    let late = store.report(job.clone(), 1, report(Done, at(4_001)), at(4_001)).await.unwrap();
    assert_eq!(late, ReportOutcome::NotRunning, "another attempt runs");
    let done = Outcome::Completed { summary: None };
    store.settle(job.clone(), epoch, done, Retry::default(), at(4_002)).await.unwrap();
    let history = store.history(job.clone()).await.unwrap().unwrap();
    let reports: Vec<_> = history.attempts.into_iter().map(|attempt| attempt.report).collect();
    assert_eq!(reports, [Some(report(NeedsPerson, at(3))), None]);
    store.prune(vec![(job.clone(), RetentionLimit::MaxAge)], at(4_003)).await.unwrap();
    assert_eq!(store.report_of(job, 1).await.unwrap(), None);
}
