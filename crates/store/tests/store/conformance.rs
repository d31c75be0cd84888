//! One test for each verb of the store.

use std::time::{Duration, Instant};

use cowhand_core::attempt::Settlement;
use cowhand_core::event::Fact;
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::id::ScheduleId;
use cowhand_core::job::{
    ErrorKind, FailReason, Job, JobError, JobRecord, JobStatus, JobUsage, NewJob, Origin, Outcome,
    Termination, TriggerType,
};
use cowhand_core::plan::LiveState;
use cowhand_core::policy::Retry;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::schedule::{DisabledBy, FiringOutcome, ScheduleState, SkipReason, WaitingFiring};
use cowhand_core::trigger::{FiringKey, Occurrence};
use cowhand_store::{CancelOutcome, Claim, Fired, JobFilter, Settled, Store, StoreError};
use jiff::SignedDuration;

use crate::{HOURLY, TestDb, at, cron_key, hand_job, new_job, no_such_job, on_both, roster, with_schedule};

on_both! {
    schedules_are_loaded_once_and_re_armed_when_they_change,
    unchanged_schedules_are_not_written,
    a_firing_makes_one_job_and_one_row,
    a_firing_that_does_not_run_has_a_row,
    a_delay_is_done_after_it_fired,
    enable_and_disable_survive,
    waiting_is_recorded_once_per_reason,
    a_claimed_job_runs_and_ends,
    a_failed_attempt_is_retried_as_the_policy_says,
    capacity_is_counted_over_all_jobs_of_the_agent,
    a_lost_lease_can_change_nothing,
    waiting_jobs_are_cancelled_at_once,
    a_cancelled_job_gets_no_other_attempt,
    forks_and_retries_know_their_origin,
    jobs_by_hand_do_not_move_the_schedule,
    jobs_are_listed_newest_first_and_filtered,
    the_newest_job_of_each_agent,
    readers_of_events_are_woken,
    a_taken_id_is_drawn_again,
    every_text_survives,
    nul_is_replaced,
    a_lease_for_ever_can_be_read,
    unknown_ids_are_named,
    every_statement_is_accepted,
    a_closed_store_returns_an_error,
}

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

pub(crate) fn completed() -> Outcome {
    Outcome::Completed { summary: Some("done".into()) }
}

fn failed(kind: ErrorKind) -> Outcome {
    Outcome::Failed {
        reason: FailReason::Error,
        error: JobError { kind, message: "it broke".into() },
        summary: None,
    }
}

pub(crate) async fn fire(store: &Store, schedule: ScheduleId, second: i64) -> Job {
    let firing = NewFiring {
        schedule,
        key: cron_key(second),
        due: at(second),
        decision: Decision::Run(new_job()),
        note: None,
    };
    match store.fire_once(firing, at(second)).await.unwrap() {
        Fired::Recorded(Some(job)) => job,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn claim(store: &Store, job: &Job, second: i64) -> (Job, i64) {
    match store.claim(job.id().clone(), 1, "node-a".into(), MINUTE, at(second)).await.unwrap() {
        Claim::Claimed { job, epoch } => (job, epoch),
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn event_types(store: &Store) -> Vec<&'static str> {
    let events = store.events_after(0, 1_000).await.unwrap();
    let gap = events.iter().zip(1..).find(|(event, seq)| event.seq != *seq);
    assert!(gap.is_none(), "the sequence has no gaps: {gap:?}");
    let all = events.iter().map(|event| event.fact.type_name());
    // Every test begins with events of this type.
    all.filter(|name| *name != "schedule:armed").collect()
}

async fn schedules_are_loaded_once_and_re_armed_when_they_change(db: TestDb) {
    let store = db.open().await;
    store.load_schedules(roster(&[HOURLY, r#"{"type":"delay","in":"2h"}"#]), at(0)).await.unwrap();
    store.load_schedules(roster(&[HOURLY, r#"{"type":"delay","in":"2h"}"#]), at(60)).await.unwrap();
    let stored = store.schedules().await.unwrap();
    assert_eq!(stored.iter().map(|schedule| schedule.armed_at).collect::<Vec<_>>(), [at(0), at(0)]);
    assert_eq!(stored[1].run_at, Some(at(7_200)), "`in` counts from the first load");
    store.load_schedules(roster(&[r#"{"type":"cron","expression":"@daily"}"#]), at(120)).await.unwrap();
    let stored = store.schedules().await.unwrap();
    assert_eq!(stored.len(), 2, "what the fleet no longer has keeps its history");
    assert_eq!((stored[0].armed_at, stored[1].armed_at), (at(120), at(0)));
    assert_eq!((stored[0].absent_since, stored[1].absent_since), (None, Some(at(120))));
    store.load_schedules(roster(&[HOURLY, r#"{"type":"delay","in":"2h"}"#]), at(180)).await.unwrap();
    let back = &store.schedules().await.unwrap()[1];
    assert_eq!((back.armed_at, back.absent_since), (at(180), None), "what passed meanwhile is not made up");
}

/// A load of unchanged schedules needs the same few statements for any number of schedules, and a changed schedule adds a
/// few.
async fn unchanged_schedules_are_not_written(db: TestDb) {
    let store = db.open().await;
    let statements = async |triggers: &[&str], second| {
        let before = store.statement_counts().statements;
        store.load_schedules(roster(triggers), at(second)).await.unwrap();
        store.statement_counts().statements - before
    };
    let few = [HOURLY; 2];
    statements(&few, 0).await;
    let unchanged = statements(&few, 1).await;
    let mut many = [HOURLY; 100];
    assert!(statements(&many, 2).await >= 98, "each new schedule is written");
    assert_eq!(statements(&many, 3).await, unchanged);
    many[50] = r#"{"type":"cron","expression":"@daily"}"#;
    assert!(statements(&many, 4).await <= unchanged + 6);
    assert_eq!(statements(&many, 5).await, unchanged);
}

async fn a_firing_makes_one_job_and_one_row(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let job = fire(&store, schedule, 3_600).await;
    let again = NewFiring {
        schedule,
        key: cron_key(3_600),
        due: at(3_600),
        decision: Decision::Run(new_job()),
        note: None,
    };
    assert_eq!(store.fire_once(again, at(3_700)).await.unwrap(), Fired::Duplicate);
    assert_eq!(store.job(job.id().clone()).await.unwrap().as_ref(), Some(&job));
    let ledger = store.ledger(schedule, 10).await.unwrap();
    assert_eq!(ledger.len(), 1);
    assert_eq!((ledger[0].outcome, ledger[0].job.as_ref()), (FiringOutcome::Ran, Some(job.id())));
    assert_eq!(store.schedules().await.unwrap()[0].last_due, Some(at(3_600)));
    assert_eq!(event_types(&store).await, ["schedule:fired", "job:created"]);
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!(snapshot.jobs.len(), 1);
    assert!(snapshot.jobs[0].by_trigger && snapshot.jobs[0].schedule == Some(schedule));
}

async fn a_closed_store_returns_an_error(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    store.clone().close().await;
    assert!(matches!(store.schedules().await, Err(StoreError::Closed)), "whoever reads");
    assert!(matches!(store.enable(schedule, at(1)).await, Err(StoreError::Closed)), "and whoever writes");
}

async fn a_firing_that_does_not_run_has_a_row(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    for (second, decision) in [
        (3_600, Decision::Miss),
        (7_200, Decision::Coalesce),
        (10_800, Decision::Skip(SkipReason::OutsideHours)),
    ] {
        let firing = NewFiring { schedule, key: cron_key(second), due: at(second), decision, note: None };
        assert_eq!(store.fire_once(firing, at(11_000)).await.unwrap(), Fired::Recorded(None));
    }
    let outcomes: Vec<_> =
        store.ledger(schedule, 10).await.unwrap().into_iter().map(|row| row.outcome).collect();
    let skipped = FiringOutcome::Skipped(SkipReason::OutsideHours);
    assert_eq!(outcomes, [skipped, FiringOutcome::Coalesced, FiringOutcome::Missed]);
    assert_eq!(event_types(&store).await, ["schedule:missed", "schedule:coalesced", "schedule:skipped"]);
    assert!(store.snapshot().await.unwrap().jobs.is_empty());
}

async fn a_delay_is_done_after_it_fired(db: TestDb) {
    let store = db.open().await;
    let roster = roster(&[r#"{"type":"delay","in":"10s"}"#]);
    let schedule = roster.agents[0].schedules[0].id;
    store.load_schedules(roster, at(0)).await.unwrap();
    let key = Occurrence::Delay(at(10)).key(0);
    let firing = NewFiring { schedule, key, due: at(10), decision: Decision::Run(new_job()), note: None };
    assert!(matches!(store.fire_once(firing, at(10)).await.unwrap(), Fired::Recorded(Some(_))));
    assert_eq!(store.schedules().await.unwrap()[0].state, ScheduleState::Disabled { why: DisabledBy::Done });
}

async fn enable_and_disable_survive(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    assert!(store.disable(schedule, DisabledBy::Person, at(1)).await.unwrap());
    assert!(!store.disable(schedule, DisabledBy::Person, at(2)).await.unwrap());
    store.close().await;
    let store = db.open().await;
    store.load_schedules(roster(&[HOURLY]), at(3)).await.unwrap();
    assert_eq!(
        store.schedules().await.unwrap()[0].state,
        ScheduleState::Disabled { why: DisabledBy::Person }
    );
    assert!(store.enable(schedule, at(4)).await.unwrap());
    assert!(!store.enable(schedule, at(5)).await.unwrap());
    let stored = &store.schedules().await.unwrap()[0];
    assert_eq!((stored.armed_at, stored.generation), (at(4), 1));
    assert_eq!(event_types(&store).await, ["schedule:disabled", "schedule:enabled"]);
}

async fn waiting_is_recorded_once_per_reason(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    assert!(store.record_waiting(schedule, at(3_600), SkipReason::AtCapacity, at(3_601)).await.unwrap());
    assert!(!store.record_waiting(schedule, at(7_200), SkipReason::AtCapacity, at(7_201)).await.unwrap());
    let waiting = Some(WaitingFiring { due: at(3_600), reason: SkipReason::AtCapacity });
    assert_eq!(store.schedules().await.unwrap()[0].waiting, waiting);
    fire(&store, schedule, 7_200).await;
    assert_eq!(store.schedules().await.unwrap()[0].waiting, None);
    assert_eq!(event_types(&store).await, ["schedule:waiting", "schedule:fired", "job:created"]);
}

async fn a_claimed_job_runs_and_ends(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let job = fire(&store, schedule, 3_600).await;
    let (running, epoch) = claim(&store, &job, 3_601).await;
    assert_eq!((running.status(), running.attempts()), (JobStatus::Running, 1));
    let second = store.claim(job.id().clone(), 9, "node-b".into(), MINUTE, at(3_602)).await.unwrap();
    assert_eq!(second, Claim::Taken);
    let named = store.set_session(job.id().clone(), epoch, "session-1".into(), at(3_650)).await.unwrap();
    assert!(matches!(named, Settled::Done(_)));
    let usage = JobUsage { num_turns: Some(3), total_cost_usd: Some(0.1), ..JobUsage::default() };
    let settlement =
        Settlement { outcome: completed(), usage: Some(usage.clone()), metadata: None, ..completed().into() };
    let ended = store.settle(job.id().clone(), epoch, settlement, Retry::default(), at(3_700)).await.unwrap();
    let Settled::Done(ended) = ended else { panic!("{ended:?}") };
    assert_eq!((ended.status(), ended.duration_seconds()), (JobStatus::Completed, Some(99)));
    assert_eq!(JobRecord::from(ended.clone()).usage, Some(usage));
    assert_eq!(store.job(job.id().clone()).await.unwrap(), Some(ended));
    assert_eq!(store.schedules().await.unwrap()[0].last_run_at, Some(at(3_700)));
    assert!(store.snapshot().await.unwrap().jobs.is_empty());
    assert_eq!(
        event_types(&store).await,
        ["schedule:fired", "job:created", "job:started", "job:session", "job:completed"]
    );
    let again =
        store.settle(job.id().clone(), epoch, completed(), Retry::default(), at(3_800)).await.unwrap();
    assert_eq!(again, Settled::Fenced, "a terminal job never changes");
    assert_eq!(store.last_event().await.unwrap(), 6);
}

async fn a_failed_attempt_is_retried_as_the_policy_says(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let job = fire(&store, schedule, 0).await;
    let retry = Retry { max_attempts: 2, ..Retry::default() };
    let (_, epoch) = claim(&store, &job, 1).await;
    store.settle(job.id().clone(), epoch, failed(ErrorKind::Exit), retry.clone(), at(10)).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!(snapshot.jobs[0].state, LiveState::Pending { not_before: Some(at(40)) });
    assert_eq!(snapshot.schedules[&schedule].last_run_at, None, "the job has not ended");
    let early = store.claim(job.id().clone(), 1, "node-a".into(), MINUTE, at(39)).await.unwrap();
    assert_eq!(early, Claim::Taken);
    let (again, next_epoch) = claim(&store, &job, 40).await;
    assert_eq!((again.attempts(), next_epoch), (2, epoch + 1));
    store.settle(job.id().clone(), next_epoch, failed(ErrorKind::Exit), retry, at(50)).await.unwrap();
    let stored = &store.schedules().await.unwrap()[0];
    assert_eq!((stored.last_run_at, stored.last_error.as_deref()), (Some(at(50)), Some("it broke")));
    let types = event_types(&store).await;
    assert_eq!(types[2..], ["job:started", "job:retrying", "job:started", "job:failed"]);
}

async fn capacity_is_counted_over_all_jobs_of_the_agent(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let by_schedule = fire(&store, schedule, 0).await;
    let by_hand = store.add_job(hand_job(), at(1)).await.unwrap();
    let (_, epoch) = claim(&store, &by_schedule, 2).await;
    let full = store.claim(by_hand.id().clone(), 1, "node-b".into(), MINUTE, at(3)).await.unwrap();
    assert_eq!(full, Claim::AtCapacity);
    store.settle(by_schedule.id().clone(), epoch, completed(), Retry::default(), at(4)).await.unwrap();
    claim(&store, &by_hand, 5).await;
}

async fn a_lost_lease_can_change_nothing(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let job = fire(&store, schedule, 0).await;
    let (_, epoch) = claim(&store, &job, 0).await;
    let retry = Retry { max_attempts: 2, on: vec!["lost".into()], ..Retry::default() };
    let held = store.settle_expired(job.id().clone(), epoch, false, retry.clone(), at(59)).await.unwrap();
    assert_eq!(held, Settled::Fenced, "it has not run out");
    let lapsed = store.settle_expired(job.id().clone(), epoch, false, retry.clone(), at(60)).await.unwrap();
    let Settled::Done(lapsed) = lapsed else { panic!("{lapsed:?}") };
    assert_eq!(lapsed.status(), JobStatus::Pending);
    let twice = store.settle_expired(job.id().clone(), epoch, false, retry.clone(), at(61)).await.unwrap();
    assert_eq!(twice, Settled::Fenced);
    let (_, newer) = claim(&store, &job, 100).await;
    let late = store.settle(job.id().clone(), epoch, completed(), retry.clone(), at(101)).await.unwrap();
    assert_eq!(late, Settled::Fenced, "the old holder comes back");
    let named = store.set_session(job.id().clone(), epoch, "old".into(), at(101)).await.unwrap();
    assert_eq!(named, Settled::Fenced);
    let done = store.settle(job.id().clone(), newer, completed(), retry, at(102)).await.unwrap();
    assert!(matches!(done, Settled::Done(_)));
}

async fn waiting_jobs_are_cancelled_at_once(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let job = fire(&store, schedule, 0).await;
    let CancelOutcome::Done(over) = store.cancel(job.id().clone(), at(5)).await.unwrap() else { panic!() };
    assert_eq!(over.status(), JobStatus::Cancelled);
    assert_eq!(store.cancel(job.id().clone(), at(6)).await.unwrap(), CancelOutcome::AlreadyEnded(over));
    assert_eq!(store.schedules().await.unwrap()[0].last_run_at, Some(at(5)));
    let next = fire(&store, schedule, 3_600).await;
    let (running, epoch) = claim(&store, &next, 3_600).await;
    assert_eq!(
        store.cancel(next.id().clone(), at(3_601)).await.unwrap(),
        CancelOutcome::Requested(running.clone())
    );
    assert_eq!(store.cancel(next.id().clone(), at(3_601)).await.unwrap(), CancelOutcome::Requested(running));
    let LiveState::Running { cancel, .. } = store.snapshot().await.unwrap().jobs[0].state else { panic!() };
    assert!(cancel);
    let ended = Outcome::Cancelled { how: Termination::Forced };
    let patient = Retry { max_attempts: 9, on: vec!["cancelled".into()], ..Retry::default() };
    store.settle(next.id().clone(), epoch, ended, patient, at(3_602)).await.unwrap();
    let types = event_types(&store).await;
    assert_eq!(
        types[types.len() - 3..],
        ["job:started", "job:cancelling", "job:cancelled"],
        "asked once, not retried"
    );
}

async fn a_cancelled_job_gets_no_other_attempt(db: TestDb) {
    let store = db.open().await;
    let job = store.add_job(hand_job(), at(0)).await.unwrap();
    let (job, epoch) = claim(&store, &job, 1).await;
    assert!(matches!(store.cancel(job.id().clone(), at(2)).await.unwrap(), CancelOutcome::Requested(_)));
    let retry = Retry { max_attempts: 3, ..Retry::default() };
    match store.settle_expired(job.id().clone(), epoch, false, retry, at(1_000)).await.unwrap() {
        Settled::Done(job) => assert_eq!(job.status(), JobStatus::Failed),
        Settled::Fenced => panic!("its lease had run out"),
    }
}

async fn forks_and_retries_know_their_origin(db: TestDb) {
    let store = db.open().await;
    let parent = store.add_job(hand_job(), at(0)).await.unwrap();
    let origin = Some(Origin::ForkOf(parent.id().clone()));
    let fork = NewJob { trigger_type: TriggerType::Fork, origin, ..hand_job() };
    let fork = store.add_job(fork, at(1)).await.unwrap();
    let retry = NewJob { origin: Some(Origin::RetryOf(parent.id().clone())), ..hand_job() };
    let retry = store.add_job(retry, at(2)).await.unwrap();
    for job in [&fork, &retry] {
        assert_eq!(store.job(job.id().clone()).await.unwrap().as_ref(), Some(job));
    }
    let events = store.events_after(1, 100).await.unwrap();
    assert_eq!(events[0].fact, Fact::JobCreated);
    assert_eq!(events[1].fact, Fact::JobForked { forked_from: parent.id().clone() });
    assert_eq!([&events[0].job, &events[1].job], [&Some(fork.id().clone()); 2]);
}

async fn jobs_by_hand_do_not_move_the_schedule(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let key = Occurrence::Manual("k1").key(0);
    let by_hand = NewFiring { schedule, key, due: at(5), decision: Decision::Run(new_job()), note: None };
    let Fired::Recorded(Some(job)) = store.fire_once(by_hand.clone(), at(5)).await.unwrap() else { panic!() };
    assert_eq!(store.fire_once(by_hand, at(6)).await.unwrap(), Fired::Duplicate, "an idempotency key");
    let (_, epoch) = claim(&store, &job, 6).await;
    store.settle(job.id().clone(), epoch, failed(ErrorKind::Exit), Retry::default(), at(7)).await.unwrap();
    let stored = &store.schedules().await.unwrap()[0];
    assert_eq!((stored.last_due, stored.last_run_at, &stored.last_error), (None, None, &None));
}

async fn jobs_are_listed_newest_first_and_filtered(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let mut jobs = Vec::new();
    for second in 0..5 {
        jobs.push(store.add_job(hand_job(), at(second / 2)).await.unwrap());
    }
    jobs.push(fire(&store, schedule, 3_600).await);
    let all = store.jobs(JobFilter::default(), 100).await.unwrap();
    assert_eq!(all.len(), 6);
    assert_eq!(all[0], jobs[5]);
    let mut paged: Vec<Job> = Vec::new();
    loop {
        let filter = JobFilter { after: paged.last().map(|job| job.id().clone()), ..JobFilter::default() };
        let page = store.jobs(filter, 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        paged.extend(page);
    }
    assert_eq!(paged, all, "paging sees each job once, in order, also those of one instant");
    for (filter, count) in [
        (JobFilter { schedule: Some("s0".parse().unwrap()), ..JobFilter::default() }, 1),
        (JobFilter { agent: Some("coder".parse().unwrap()), ..JobFilter::default() }, 6),
        (JobFilter { agent: Some("other".parse().unwrap()), ..JobFilter::default() }, 0),
        (JobFilter { status: Some(JobStatus::Running), ..JobFilter::default() }, 0),
        (JobFilter { status: Some(JobStatus::Pending), ..JobFilter::default() }, 6),
        (JobFilter { search: Some("JOB-".to_owned()), ..JobFilter::default() }, 6),
        (JobFilter { search: Some("%".to_owned()), ..JobFilter::default() }, 0),
        (JobFilter { search: Some("_ob!".to_owned()), ..JobFilter::default() }, 0),
        (JobFilter { since: Some(at(1)), ..JobFilter::default() }, 4),
        (JobFilter { until: Some(at(1)), ..JobFilter::default() }, 4),
        (JobFilter { trigger_type: Some(TriggerType::Manual), ..JobFilter::default() }, 5),
        (JobFilter { trigger_type: Some(TriggerType::Schedule), ..JobFilter::default() }, 1),
        (JobFilter { trigger_type: Some(TriggerType::Fork), ..JobFilter::default() }, 0),
    ] {
        assert_eq!(store.jobs(filter.clone(), 100).await.unwrap().len(), count, "{filter:?}");
    }
}

async fn the_newest_job_of_each_agent(db: TestDb) {
    let store = db.open().await;
    let of = |agent: &str| NewJob { agent: agent.parse().unwrap(), ..hand_job() };
    let mut newest = Vec::new();
    for agent in ["a", "b", "a", "other", "b"] {
        newest.push(store.add_job(of(agent), at(0)).await.unwrap());
    }
    let agents = ["a", "b", "idle"].map(|name| Agent::new(name.parse().unwrap()));
    let roster = Roster::of(agents.to_vec());
    let (snapshot, mut found) = store.snapshot_and_newest_jobs(&roster, at(1)).await.unwrap();
    found.sort_by_key(|job| job.agent().to_string());
    assert_eq!(found, [newest[2].clone(), newest[4].clone()]);
    assert_eq!(snapshot.jobs.len(), newest.len());
    let (_, found) = store.snapshot_and_newest_jobs(&Roster::default(), at(1)).await.unwrap();
    assert_eq!(found, []);
}

/// A lost notification would make a round take a second, until the next poll finds the event. On a busy machine a few
/// rounds are late, but fewer than half of them.
async fn readers_of_events_are_woken(db: TestDb) {
    const ROUNDS: i64 = 40;
    let store = db.open().await;
    let (writing, following) = (store.clone(), store.clone());
    let (seen, mut seen_by_reader) = tokio::sync::watch::channel(0);
    let follower = tokio::spawn(async move {
        let mut after = 0;
        while after < ROUNDS {
            following.changed(after).await;
            after += i64::try_from(following.events_after(after, 100).await.unwrap().len()).unwrap();
            seen.send_replace(after);
        }
    });
    let mut late = 0;
    for round in 1..=ROUNDS {
        writing.add_job(hand_job(), at(round)).await.unwrap();
        let written = Instant::now();
        seen_by_reader.wait_for(|seen| *seen >= round).await.unwrap();
        late += i64::from(written.elapsed() > Duration::from_millis(500));
    }
    follower.await.unwrap();
    assert!(late < ROUNDS / 2, "{late} of {ROUNDS} were seen late");
    assert_eq!(store.committed(), ROUNDS);
    let idle = tokio::time::timeout(Duration::from_millis(300), store.changed(ROUNDS)).await;
    assert!(idle.is_err(), "with nothing new it waits");
    let other = db.open().await;
    other.add_job(hand_job(), at(0)).await.unwrap();
    store.changed(ROUNDS).await;
    assert_eq!(store.events_after(ROUNDS, 9).await.unwrap().len(), 1, "another process may write, too");
}

async fn a_taken_id_is_drawn_again(db: TestDb) {
    use std::sync::atomic::{AtomicU64, Ordering};
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    let store = db.open().await.with_random(|| DRAWN.fetch_add(1, Ordering::Relaxed) / 3);
    let first = store.add_job(hand_job(), at(0)).await.unwrap();
    let second = store.add_job(hand_job(), at(0)).await.unwrap();
    assert_ne!(first.id(), second.id());
    let stuck = store.clone().with_random(|| 7);
    stuck.add_job(hand_job(), at(0)).await.unwrap();
    let error = stuck.add_job(hand_job(), at(0)).await.unwrap_err();
    assert!(matches!(error, StoreError::NoFreeId(20)), "{error}");
    assert_eq!(event_types(&store).await.len(), 3, "what failed left nothing behind");
}

async fn every_text_survives(db: TestDb) {
    let store = db.open().await;
    let prompt = "ünï\u{1f600} 'quote' \"double\" \\ \t\r\n -- ; drop table jobs; \u{202e}rtl ${X} {{y}}";
    let long = "x".repeat(1_000_000);
    for text in ["", prompt, &long] {
        let new = NewJob { prompt: Some(text.to_owned()), ..hand_job() };
        let job = store.add_job(new, at(0)).await.unwrap();
        assert_eq!(store.job(job.id().clone()).await.unwrap(), Some(job));
    }
}

async fn nul_is_replaced(db: TestDb) {
    let store = db.open().await;
    let new = NewJob { prompt: Some("a\0b".into()), ..hand_job() };
    let job = store.add_job(new, at(0)).await.unwrap();
    let (job, epoch) = claim(&store, &job, 1).await;
    let outcome = Outcome::Completed { summary: Some("c\0d".into()) };
    store.settle(job.id().clone(), epoch, outcome, Retry::default(), at(2)).await.unwrap();
    let record = JobRecord::from(store.job(job.id().clone()).await.unwrap().unwrap());
    let texts = (record.prompt.as_deref(), record.summary.as_deref());
    assert_eq!(texts, (Some("a\u{fffd}b"), Some("c\u{fffd}d")));
}

async fn a_lease_for_ever_can_be_read(db: TestDb) {
    let store = db.open().await;
    let job = store.add_job(hand_job(), at(0)).await.unwrap();
    store.claim(job.id().clone(), 1, "node-1".into(), SignedDuration::MAX, at(1)).await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().jobs.len(), 1);
}

async fn unknown_ids_are_named(db: TestDb) {
    let store = db.open().await;
    let job = no_such_job();
    assert_eq!(store.job(job.clone()).await.unwrap(), None);
    let error = store.claim(job.clone(), 1, "n".into(), MINUTE, at(0)).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no job job-2026-01-05-nosuch");
    assert!(matches!(store.cancel(job.clone(), at(0)).await.unwrap_err(), StoreError::NoJob(_)));
    let nobody = ScheduleId::of(&"nobody".parse().unwrap(), &"s".parse().unwrap());
    assert!(matches!(store.enable(nobody, at(0)).await.unwrap_err(), StoreError::NoSchedule(_)));
    let key = FiringKey::stored("manual:x".into());
    let firing = NewFiring { schedule: nobody, key, due: at(0), decision: Decision::Miss, note: None };
    assert!(matches!(store.fire_once(firing, at(0)).await.unwrap_err(), StoreError::NoSchedule(_)));
    assert_eq!(store.last_event().await.unwrap(), 0);
}

async fn every_statement_is_accepted(db: TestDb) {
    let store = db.open().await;
    let count = store.check_statements().await.unwrap();
    assert!(count >= 25, "{count}");
}
