//! Claimed work items: the row is the lock, and it exists until the last report is delivered.

use std::path::Path;

use cowhand_core::event::Fact;
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::{Closing, ErrorKind, FailReason, JobError, JobStatus, NewJob, Outcome};
use cowhand_core::policy::Retry;
use cowhand_core::report::{Report, ReportedOutcome};
use cowhand_core::roster::{Agent, FormerName, Roster, Schedule};
use cowhand_core::schedule::{FiringOutcome, SkipReason};
use cowhand_core::trigger::{FiringContext, FiringKey};
use cowhand_core::work::{ReleaseOptions, WorkItem, WorkOutcome};
use cowhand_core::work_source::ConfiguredSource;
use cowhand_store::{
    CancelOutcome, Claim, FailedItemState, FiringRef, ItemState, NewItemClaim, Settled, Store,
    TakeConditions, TakePreparing, TakeResult,
};
use jiff::SignedDuration;
use serde_json::json;

use crate::{HOURLY, TestDb, at, cron_key, hand_job, on_both, with_schedule};
use cowhand_store::{Fired, Prepared, Removal};

on_both! {
    of_racing_claims_one_takes_an_item,
    an_item_through_its_whole_life,
    an_item_that_failed_too_often_is_given_up,
    a_release_by_a_job_does_not_reset_the_failures,
    a_failure_to_start_is_not_counted,
    firings_of_a_schedule_are_prepared_in_their_order,
    the_source_gets_the_report_of_the_agent,
    a_claim_that_nobody_finished_is_taken_back,
    the_snapshot_has_the_items_that_are_claimed_for_jobs,
    a_cancelled_firing_gets_no_more_jobs,
    one_node_at_a_time_has_an_outbox_entry,
    a_changed_result_is_delivered_too,
    a_waiting_job_that_is_cancelled_gives_its_item_back,
    a_job_whose_claim_ran_out_does_not_start,
    a_firing_is_prepared_by_one,
    a_firing_knows_all_its_jobs,
    a_firing_knows_all_its_jobs_after_its_agent_was_renamed,
    the_fleet_has_one_name,
    items_of_sources_with_long_names_are_stored,
}

fn item(id: &str) -> WorkItem {
    serde_json::from_value(json!({
        "id": format!("files-{id}"), "source": "files", "external_id": id, "title": format!("Do {id}"),
        "description": "Please.", "priority": "medium", "labels": [], "metadata": {}, "url": "file:///x",
        "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
    }))
    .unwrap()
}

fn new_claim(id: &str) -> NewItemClaim {
    let source: ConfiguredSource =
        serde_json::from_value(json!({"type": "files", "path": "tasks", "max_item_attempts": 2})).unwrap();
    NewItemClaim {
        queue: "files tasks".to_owned(),
        item: item(id),
        source,
        node: "n1".to_owned(),
        agent: "a".parse().unwrap(),
        schedule: None,
        until: at(300),
        unless: TakeConditions { given_up: true, released_since: None },
    }
}

/// A claim of a person takes no place of the agent, so it is not in the snapshot.
async fn the_snapshot_has_the_items_that_are_claimed_for_jobs(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let claims = async || store.snapshot().await.unwrap().claims;
    let person = Some("kim@files-x".to_owned());
    store.take_item(new_claim("x"), person, at(0)).await.unwrap();
    assert_eq!(claims().await, []);
    let TakeResult::Ours(holder) = store.take_item(new_claim("y"), None, at(0)).await.unwrap() else {
        panic!("not taken")
    };
    let [claim] = &claims().await[..] else { panic!("not one claim") };
    assert_eq!((claim.agent.as_str(), &claim.schedule, claim.until), ("a", &None, at(300)));
    store.leave_item(holder.to_string()).await.unwrap();
    assert_eq!(claims().await, []);
}

/// Takes an item, also if it was given up and a person offered it again.
async fn take(store: &Store, id: &str) -> JobId {
    let mut taken = store.take_item(new_claim(id), None, at(0)).await.unwrap();
    if taken == TakeResult::OfferedAgain {
        let put_back = NewItemClaim { unless: TakeConditions::default(), ..new_claim(id) };
        taken = store.take_item(put_back, None, at(0)).await.unwrap();
    }
    match taken {
        TakeResult::Ours(holder) => holder,
        other => panic!("{other:?}"),
    }
}

/// Claims an item and creates its job.
async fn hold(store: &Store, schedule: cowhand_core::id::ScheduleId, id: &str) -> JobId {
    let holder = take(store, id).await;
    let new = NewJob { work_item: Some(item(id)), ..hand_job() };
    let of = FiringRef { schedule, key: cron_key(1) };
    let job = store.hold_item(holder.clone(), new, of, at(3600), at(1)).await.unwrap().unwrap();
    assert_eq!(job.id(), &holder);
    holder
}

/// PostgreSQL cannot index long texts that cannot be compressed.
async fn items_of_sources_with_long_names_are_stored(db: TestDb) {
    let store = db.open().await;
    let long: String = std::iter::repeat_with(fastrand::alphanumeric).take(4000).collect();
    for (source, other) in [
        (json!({"type": "files", "path": long}), json!({"type": "files", "path": format!("{long}2")})),
        (
            json!({"type": "custom", "name": "own", "with": {"at": long}}),
            json!({"type": "custom", "name": "own", "with": {"at": format!("{long}2")}}),
        ),
    ] {
        let [source, other]: [ConfiguredSource; 2] =
            [source, other].map(|source| serde_json::from_value(source).unwrap());
        for source in [source, other] {
            let queue = source.queue(Path::new("/base"));
            let claim = NewItemClaim { queue: queue.clone(), source, ..new_claim("long") };
            let taken = store.take_item(claim.clone(), None, at(0)).await.unwrap();
            assert!(matches!(taken, TakeResult::Ours(_)), "{taken:?}");
            let again = store.take_item(claim, None, at(0)).await.unwrap();
            assert!(!matches!(again, TakeResult::Ours(_)), "{again:?}");
        }
    }
}

async fn run(store: &Store, job: &JobId, outcome: Outcome) {
    let lease = SignedDuration::from_secs(30);
    let Claim::Claimed { epoch, .. } =
        store.claim(job.clone(), 9, "n1".to_owned(), lease, at(2)).await.unwrap()
    else {
        panic!("claimed")
    };
    let settled = store.settle(job.clone(), epoch, outcome, Retry::default(), at(3)).await.unwrap();
    assert!(matches!(settled, Settled::Done(_)));
}

fn failed() -> Outcome {
    let error = JobError { kind: ErrorKind::Lost, message: "gone".to_owned() };
    Outcome::Failed { reason: FailReason::Error, error, summary: None }
}

async fn of_racing_claims_one_takes_an_item(db: TestDb) {
    let store = db.open().await;
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let store = store.clone();
        tasks.spawn(async move { store.take_item(new_claim("x"), None, at(0)).await.unwrap() });
    }
    let taken = tasks.join_all().await;
    assert_eq!(taken.iter().filter(|taken| matches!(taken, TakeResult::Ours(_))).count(), 1);
    assert_eq!(taken.iter().filter(|taken| **taken == TakeResult::Held).count(), 15);
}

async fn an_item_through_its_whole_life(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let holder = hold(&store, schedule, "x").await;
    let job = store.job(holder.clone()).await.unwrap().unwrap();
    assert_eq!(job.work_item(), Some(&item("x")));
    assert_eq!(store.items().await.unwrap()[0].state, ItemState::Held);
    run(&store, &holder, Outcome::Completed { summary: Some("Done.".to_owned()) }).await;
    // The outbox entry was written in the transaction that ended the job.
    let entry = store.take_outbox_entry("n1".to_owned(), at(100), at(4)).await.unwrap().unwrap();
    let ItemState::Closing { closing: Closing::Complete(result), .. } = &entry.state else {
        panic!("{entry:?}")
    };
    assert_eq!((result.outcome, result.summary.as_str()), (WorkOutcome::Success, "Done."));
    assert!(
        matches!(store.take_item(new_claim("x"), None, at(4)).await.unwrap(), TakeResult::Held),
        "not yet"
    );
    store.outbox_entry_delivered(entry, at(5)).await.unwrap();
    assert!(store.items().await.unwrap().is_empty());
    assert_eq!(store.next_item_time().await.unwrap(), None);
    let events = store.events_after(0, 100).await.unwrap();
    let facts: Vec<&str> = events.iter().map(|event| event.fact.type_name()).collect();
    assert_eq!(facts[1..], ["work:claimed", "job:created", "job:started", "job:completed", "work:reported"]);
    assert!(events[1..].iter().all(|event| event.job.as_ref() == Some(&holder)));
}

async fn a_firing_knows_all_its_jobs(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let decision = Decision::Prepare(FiringContext::default());
    let firing = NewFiring { schedule, key: cron_key(1), due: at(1), decision, note: None };
    assert!(matches!(store.fire_once(firing, at(1)).await.unwrap(), Fired::Recorded(None)));
    let first = hold(&store, schedule, "x").await;
    let second = hold(&store, schedule, "y").await;
    run(&store, &second, failed()).await;
    store.prepared(schedule, cron_key(1), Prepared::Jobs { more: false }, None, at(4)).await.unwrap();
    let ledger = store.ledger(schedule, 10).await.unwrap();
    let jobs = |row: &cowhand_store::LedgerRow| -> Vec<(JobId, JobStatus)> {
        row.jobs.iter().map(|job| (job.id.clone(), job.status)).collect()
    };
    let expected = [(first.clone(), JobStatus::Pending), (second.clone(), JobStatus::Failed)];
    assert_eq!((ledger.len(), jobs(&ledger[0])), (1, expected.to_vec()));
    assert_eq!(ledger[0].job.as_ref(), Some(&first));
    let between = store.firings_between(vec![schedule], (at(0), at(9)), 10).await.unwrap();
    assert_eq!(between, std::slice::from_ref(&ledger));
    assert_eq!(store.firing(schedule, cron_key(1)).await.unwrap(), Some(ledger[0].clone()));
    assert_eq!(store.jobs_by_suffix(second.suffix()).await.unwrap(), std::slice::from_ref(&second));
    assert!(store.jobs_by_suffix("nosuch").await.unwrap().is_empty());
    // A removed job is no longer among the jobs of its firing, but the firing still names its first job.
    store.cancel(first.clone(), at(5)).await.unwrap();
    assert!(matches!(store.remove_job(first.clone(), at(6)).await.unwrap(), Removal::Done(_)));
    let ledger = store.ledger(schedule, 10).await.unwrap();
    assert_eq!(jobs(&ledger[0]), [(second, JobStatus::Failed)]);
    assert_eq!(ledger[0].job, Some(first));
}

/// The jobs stay with the former agent, and the firing moves to the new agent.
async fn a_firing_knows_all_its_jobs_after_its_agent_was_renamed(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let decision = Decision::Prepare(FiringContext::default());
    let firing = NewFiring { schedule, key: cron_key(1), due: at(1), decision, note: None };
    store.fire_once(firing, at(1)).await.unwrap();
    let jobs = [hold(&store, schedule, "x").await, hold(&store, schedule, "y").await];
    store.prepared(schedule, cron_key(1), Prepared::Jobs { more: false }, None, at(4)).await.unwrap();
    let record = store.schedule(schedule).await.unwrap().unwrap();
    let mut former = FormerName { agent: record.agent, name: record.name };
    // Renamed twice, so that the firing moves twice.
    for agent in ["renamed", "again"] {
        let agent: AgentName = agent.parse().unwrap();
        let mut adopting = Schedule::new(&agent, former.name.clone(), serde_json::from_str(HOURLY).unwrap());
        adopting.adopts = Some(former);
        let adopting_id = adopting.id;
        former = FormerName { agent: agent.clone(), name: adopting.name.clone() };
        let roster = Roster::of(vec![Agent { schedules: vec![adopting], ..Agent::new(agent) }]);
        store.load_schedules(roster, at(5)).await.unwrap();
        let ledger = store.ledger(adopting_id, 10).await.unwrap();
        let shown: Vec<&JobId> = ledger[0].jobs.iter().map(|job| &job.id).collect();
        assert_eq!(shown, jobs.iter().collect::<Vec<_>>(), "{ledger:?}");
    }
}

async fn an_item_that_failed_too_often_is_given_up(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    for round in 1..=2 {
        let holder = hold(&store, schedule, "x").await;
        run(&store, &holder, failed()).await;
        let entry = store.take_outbox_entry("n1".to_owned(), at(100), at(4)).await.unwrap().unwrap();
        let ItemState::Closing { closing, .. } = &entry.state else { panic!("{entry:?}") };
        let released = matches!(closing, Closing::Release(_));
        assert_eq!(released, round == 1, "the second failure is the last: {closing:?}");
        store.outbox_entry_delivered(entry, at(5)).await.unwrap();
    }
    let stored = store.item_failures().await.unwrap().remove(0);
    assert_eq!((stored.failures, stored.state, stored.failed_at), (2, FailedItemState::GivenUp, Some(at(3))));
    assert_eq!((stored.reason.as_deref(), stored.item.as_ref()), (Some("gone"), Some(&item("x"))));
    // A caller that finds the item offered has to check that a person has put it back.
    assert_eq!(store.take_item(new_claim("x"), None, at(6)).await.unwrap(), TakeResult::OfferedAgain);
    let person = "me@files-x".to_owned();
    let taken = store.take_item(new_claim("x"), Some(person.clone()), at(6)).await.unwrap();
    assert!(matches!(taken, TakeResult::Ours(_)));
    store.leave_item(person).await.unwrap();
    assert_eq!(store.item_failures().await.unwrap().len(), 1, "it is still known");
    let put_back = NewItemClaim { unless: TakeConditions::default(), ..new_claim("x") };
    let TakeResult::Ours(holder) = store.take_item(put_back, None, at(7)).await.unwrap() else {
        panic!("ours")
    };
    assert!(store.item_failures().await.unwrap().is_empty(), "the count starts anew");
    store.leave_item(holder.to_string()).await.unwrap();
}

/// An item that a job released is given up if the config now allows no more attempts than were made.
async fn a_release_by_a_job_does_not_reset_the_failures(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let holder = hold(&store, schedule, "x").await;
    run(&store, &holder, failed()).await;
    let entry = store.take_outbox_entry("n1".to_owned(), at(100), at(4)).await.unwrap().unwrap();
    store.outbox_entry_delivered(entry, at(5)).await.unwrap();
    let stored = store.item_failures().await.unwrap().remove(0);
    assert_eq!(
        (stored.failures, stored.state, stored.released_at),
        (1, FailedItemState::Offered, Some(at(3)))
    );
    let since = |second| TakeConditions { given_up: true, released_since: Some(at(second)) };
    let take = |unless| store.take_item(NewItemClaim { unless, ..new_claim("x") }, None, at(6));
    assert_eq!(take(since(2)).await.unwrap(), TakeResult::Released, "it was given back after that");
    let source =
        serde_json::from_value(json!({"type": "files", "path": "tasks", "max_item_attempts": 1})).unwrap();
    let strict = NewItemClaim { source, ..new_claim("x") };
    assert_eq!(store.take_item(strict, None, at(6)).await.unwrap(), TakeResult::TooOften { failures: 1 });
    store.withdraw_failed("files tasks".to_owned(), item("x").id).await.unwrap();
    assert_eq!(take(since(2)).await.unwrap(), TakeResult::OfferedAgain, "a person took it out of its queue");
    store.forget_failures("files tasks".to_owned(), item("x").id).await.unwrap();
    assert!(matches!(take(since(2)).await.unwrap(), TakeResult::Ours(_)));
}

/// A job that could not be started does not count as a failure of its item.
async fn a_failure_to_start_is_not_counted(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let error = JobError { kind: ErrorKind::StartFailed, message: "no such program".to_owned() };
    for round in 0..4 {
        let holder = hold(&store, schedule, "x").await;
        let outcome = Outcome::Failed { reason: FailReason::Error, error: error.clone(), summary: None };
        run(&store, &holder, outcome).await;
        let entry = store.take_outbox_entry("n1".to_owned(), at(100), at(4)).await.unwrap().unwrap();
        let ItemState::Closing { closing, .. } = &entry.state else { panic!("{entry:?}") };
        assert!(matches!(closing, Closing::Release(_)), "{round}: {closing:?}");
        store.outbox_entry_delivered(entry, at(5)).await.unwrap();
        assert_eq!(store.item_failures().await.unwrap()[0].failures, 0);
    }
}

/// A completed job counts as a failure of its item if its agent reports a failure.
async fn the_source_gets_the_report_of_the_agent(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    for (round, reported, expected) in [
        (1, ReportedOutcome::Failed, WorkOutcome::Failure),
        (2, ReportedOutcome::Partial, WorkOutcome::Partial),
        (3, ReportedOutcome::Failed, WorkOutcome::Failure),
    ] {
        let holder = hold(&store, schedule, "x").await;
        let lease = SignedDuration::from_secs(30);
        let claimed = store.claim(holder.clone(), 9, "n1".to_owned(), lease, at(2)).await.unwrap();
        let Claim::Claimed { epoch, .. } = claimed else { panic!("{claimed:?}") };
        let artifacts = vec!["out/a.txt".to_owned()];
        let report =
            Report { outcome: reported, summary: "As reported.".to_owned(), artifacts, reported_at: at(2) };
        store.report(holder.clone(), 1, report, at(2)).await.unwrap();
        let well = Outcome::Completed { summary: Some("Last words.".to_owned()) };
        store.settle(holder.clone(), epoch, well, Retry::default(), at(3)).await.unwrap();
        let job = store.job(holder).await.unwrap().unwrap();
        assert_eq!(job.status(), JobStatus::Completed, "its process ended well");
        let entry = store.take_outbox_entry("n1".to_owned(), at(100), at(4)).await.unwrap().unwrap();
        let ItemState::Closing { closing: Closing::Complete(result), .. } = &entry.state else {
            panic!("{entry:?}")
        };
        assert_eq!((result.outcome, result.summary.as_str()), (expected, "As reported."), "{round}");
        assert_eq!(result.artifacts, ["out/a.txt"]);
        store.outbox_entry_delivered(entry, at(5)).await.unwrap();
    }
    // A success in between resets the count of failures.
    assert_eq!(store.item_failures().await.unwrap()[0].failures, 1);
}

async fn a_claim_that_nobody_finished_is_taken_back(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let slow = take(&store, "slow").await;
    store.give_up_stale_claims(at(299)).await.unwrap();
    assert_eq!(store.items().await.unwrap()[0].state, ItemState::Claiming);
    store.give_up_stale_claims(at(300)).await.unwrap();
    let entry = store.take_outbox_entry("n1".to_owned(), at(400), at(300)).await.unwrap().unwrap();
    assert!(matches!(entry.state, ItemState::Closing { closing: Closing::Release(_), .. }));
    // A claim that succeeds too late creates no job.
    let new = NewJob { work_item: Some(item("slow")), ..hand_job() };
    let of = FiringRef { schedule, key: cron_key(1) };
    assert_eq!(store.hold_item(slow.clone(), new, of, at(3600), at(301)).await.unwrap(), None);
    assert_eq!(store.job(slow).await.unwrap(), None);
    // A node that starts releases its own unfinished claims at once, and not those of other nodes.
    take(&store, "mine").await;
    store.take_up_items("n2".to_owned(), at(2)).await.unwrap();
    assert_eq!(store.items().await.unwrap()[0].state, ItemState::Claiming);
    store.take_up_items("n1".to_owned(), at(2)).await.unwrap();
    assert!(matches!(store.items().await.unwrap()[0].state, ItemState::Closing { .. }));
}

/// A person cancels the firing while its items are being claimed.
async fn a_cancelled_firing_gets_no_more_jobs(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    for second in [1, 2] {
        let decision = Decision::Prepare(FiringContext::default());
        let firing = NewFiring { schedule, key: cron_key(second), due: at(second), decision, note: None };
        assert_eq!(store.fire_once(firing, at(second)).await.unwrap(), Fired::Recorded(None));
    }
    let first = hold(&store, schedule, "first").await;
    let slow = take(&store, "slow").await;
    for second in [1, 2] {
        assert!(store.cancel_firing(schedule, cron_key(second), at(3)).await.unwrap());
        assert!(!store.cancel_firing(schedule, cron_key(second), at(3)).await.unwrap(), "once");
    }
    let outcome = async |second| store.firing(schedule, cron_key(second)).await.unwrap().unwrap().outcome;
    assert_eq!(outcome(1).await, FiringOutcome::Ran, "{first} is its job");
    assert_eq!(outcome(2).await, FiringOutcome::Skipped(SkipReason::Cancelled));
    assert_eq!(store.schedule(schedule).await.unwrap().unwrap().last_run_at, None, "nothing ran");
    let new = NewJob { work_item: Some(item("slow")), ..hand_job() };
    let of = FiringRef { schedule, key: cron_key(2) };
    assert_eq!(store.hold_item(slow.clone(), new, of, at(3600), at(4)).await.unwrap(), None);
    assert_eq!(store.job(slow.clone()).await.unwrap(), None);
    // Its claim is undone without a wait for the timeout of a claim.
    store.give_up_stale_claims(at(4)).await.unwrap();
    let items = store.items().await.unwrap();
    let slow = items.iter().find(|held| held.item.id == item("slow").id).unwrap();
    assert!(matches!(slow.state, ItemState::Closing { .. }), "{:?}", slow.state);
}

async fn one_node_at_a_time_has_an_outbox_entry(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let holder = hold(&store, schedule, "x").await;
    run(&store, &holder, failed()).await;
    let take = |node: &str, until, now| store.take_outbox_entry(node.to_owned(), at(until), at(now));
    let entry = take("n1", 100, 4).await.unwrap().unwrap();
    assert_eq!(take("n2", 100, 99).await.unwrap(), None, "n1 has it in hand");
    store.postpone(entry.clone(), "502".to_owned(), at(50), at(5)).await.unwrap();
    assert_eq!(take("n2", 100, 49).await.unwrap(), None, "not yet");
    let again = take("n2", 100, 50).await.unwrap().unwrap();
    let ItemState::Closing { tries, last_error, .. } = &again.state else { panic!("{again:?}") };
    assert_eq!((*tries, last_error.as_deref()), (1, Some("502")));
    store.postpone(again, "502".to_owned(), at(60), at(51)).await.unwrap();
    let delayed = store.events_after(0, 100).await.unwrap();
    let delayed = delayed.iter().filter(|event| matches!(event.fact, Fact::WorkDelayed { .. })).count();
    assert_eq!(delayed, 1, "the same reason is told once");
    // n2 dies while it delivers the entry. After its restart, the entry is due at once.
    take("n2", 10_000, 60).await.unwrap().unwrap();
    store.take_up_items("n2".to_owned(), at(61)).await.unwrap();
    let entry = take("n2", 10_000, 61).await.unwrap().unwrap();
    store.outbox_entry_delivered(entry.clone(), at(62)).await.unwrap();
    store.outbox_entry_delivered(entry, at(63)).await.unwrap();
    let reported = store.events_after(0, 100).await.unwrap();
    let reported = reported.iter().filter(|event| matches!(event.fact, Fact::WorkReleased { .. })).count();
    assert_eq!(reported, 1, "once, whoever says so twice");
}

/// A release changes into a completion while it is delivered. Both are delivered.
async fn a_changed_result_is_delivered_too(db: TestDb) {
    let store = db.open().await;
    let holder = "person@files-one".to_owned();
    let taken = store.take_item(new_claim("one"), Some(holder.clone()), at(0)).await.unwrap();
    assert!(matches!(taken, TakeResult::Ours(_)), "{taken:?}");
    store.hold_for_person(holder.clone(), at(300), at(1)).await.unwrap();
    let entry = |now: i64| store.take_outbox_entry("n1".into(), at(now + 60), at(now));
    store.close_item(holder.clone(), Closing::Release(ReleaseOptions::default()), at(2)).await.unwrap();
    let release = entry(2).await.unwrap().unwrap();
    let complete: Closing =
        serde_json::from_value(json!({"complete": {"outcome": "success", "summary": "By hand."}})).unwrap();
    store.close_item(holder, complete.clone(), at(3)).await.unwrap();
    store.outbox_entry_delivered(release, at(4)).await.unwrap();
    let second = entry(4).await.unwrap().expect("the second word is still owed");
    assert!(
        matches!(&second.state, ItemState::Closing { closing, .. } if *closing == complete),
        "{second:?}"
    );
    store.outbox_entry_delivered(second, at(5)).await.unwrap();
    assert!(store.items().await.unwrap().is_empty());
}

async fn a_waiting_job_that_is_cancelled_gives_its_item_back(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let holder = hold(&store, schedule, "x").await;
    let CancelOutcome::Done(job) = store.cancel(holder, at(2)).await.unwrap() else { panic!("done") };
    assert_eq!(job.status(), JobStatus::Cancelled);
    let entry = store.take_outbox_entry("n1".to_owned(), at(100), at(2)).await.unwrap().unwrap();
    let ItemState::Closing { closing: Closing::Release(options), .. } = entry.state else {
        panic!("release")
    };
    assert!(options.reason.unwrap().ends_with("was cancelled before it began"));
}

async fn a_job_whose_claim_ran_out_does_not_start(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let holder = hold(&store, schedule, "x").await;
    let lease = SignedDuration::from_secs(30);
    let claim = |now| store.claim(holder.clone(), 9, "n1".to_owned(), lease, at(now));
    assert_eq!(claim(3600).await.unwrap(), Claim::ItemExpired);
    assert_eq!(store.job(holder.clone()).await.unwrap().unwrap().status(), JobStatus::Pending);
    let due = store.items_to_renew(at(3600)).await.unwrap();
    store.renewed(due[0].holder.clone(), at(7200)).await.unwrap();
    assert!(matches!(claim(3601).await.unwrap(), Claim::Claimed { .. }));
}

async fn a_firing_is_prepared_by_one(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let firing = NewFiring {
        schedule,
        key: cron_key(1),
        due: at(1),
        decision: Decision::Prepare(FiringContext::by_hand(&cron_key(1), Some("Go.".to_owned()))),
        note: None,
    };
    assert_eq!(store.fire_once(firing.clone(), at(1)).await.unwrap(), Fired::Recorded(None));
    assert_eq!(store.fire_once(firing, at(1)).await.unwrap(), Fired::Duplicate);
    assert_eq!(store.snapshot().await.unwrap().preparing.len(), 1);
    let take = |node: &str, until, now| {
        store.take_preparing(schedule, cron_key(1), node.to_owned(), at(until), at(now))
    };
    let TakePreparing::Ours(preparation) = take("n1", 100, 2).await.unwrap() else { panic!("ours") };
    assert_eq!((preparation.context.prompt.as_deref(), preparation.tries), (Some("Go."), 1));
    assert_eq!(take("n2", 100, 99).await.unwrap(), TakePreparing::Elsewhere);
    let again = take("n1", 100, 3).await.unwrap();
    assert!(matches!(again, TakePreparing::Ours(again) if again.tries == 2), "its own, again after a crash");
    assert!(matches!(take("n2", 200, 100).await.unwrap(), TakePreparing::Ours(_)), "n1 is gone");
    let skip = Prepared::Skip(SkipReason::NoWork);
    store.prepared(schedule, cron_key(1), skip, Some("nobody was there".to_owned()), at(101)).await.unwrap();
    store.prepared(schedule, cron_key(1), Prepared::Job(hand_job()), None, at(102)).await.unwrap();
    let row = store.firing(schedule, cron_key(1)).await.unwrap().unwrap();
    assert_eq!(row.outcome, FiringOutcome::Skipped(SkipReason::NoWork), "the first word counts");
    assert_eq!(row.note.as_deref(), Some("nobody was there"));
    let snapshot = store.snapshot().await.unwrap();
    assert!(snapshot.preparing.is_empty() && snapshot.jobs.is_empty());
    assert_eq!(snapshot.schedules[&schedule].last_run_at, Some(at(101)), "an empty look counts as a run");
}

/// The order of the firings does not depend on keys, due times or nodes.
async fn firings_of_a_schedule_are_prepared_in_their_order(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let key = |name: &str| FiringKey::stored(format!("github:{name}"));
    let names = ["9", "10", "1", "2"];
    for name in names {
        let decision = Decision::Prepare(FiringContext::default());
        let firing = NewFiring { schedule, key: key(name), due: at(1), decision, note: None };
        assert_eq!(store.fire_once(firing, at(1)).await.unwrap(), Fired::Recorded(None));
    }
    let waiting = async || -> Vec<String> {
        let keys = store.to_prepare(schedule).await.unwrap();
        keys.iter().map(|key| key.as_str().trim_start_matches("github:").to_owned()).collect()
    };
    assert_eq!(waiting().await, names);
    let take = |node: &str, name: &str, now| {
        store.take_preparing(schedule, key(name), node.to_owned(), at(100), at(now))
    };
    assert!(matches!(take("n1", "9", 2).await.unwrap(), TakePreparing::Ours(_)));
    assert_eq!(take("n2", "9", 2).await.unwrap(), TakePreparing::Elsewhere);
    assert_eq!(take("n2", "10", 2).await.unwrap(), TakePreparing::Elsewhere, "n1 has one before it");
    // A firing that fails repeatedly does not block later firings forever.
    for _ in 0..4 {
        assert_eq!(take("n2", "10", 3).await.unwrap(), TakePreparing::Elsewhere);
        assert!(matches!(take("n1", "9", 3).await.unwrap(), TakePreparing::Ours(_)));
    }
    assert!(matches!(take("n2", "10", 4).await.unwrap(), TakePreparing::Ours(_)));
    store.prepared(schedule, key("9"), Prepared::Job(hand_job()), None, at(5)).await.unwrap();
    assert_eq!(take("n1", "9", 5).await.unwrap(), TakePreparing::Done);
    assert_eq!(waiting().await, ["10", "1", "2"]);
    // A new firing comes last, even if earlier firings are done.
    let firing = NewFiring {
        schedule,
        key: key("0"),
        due: at(0),
        decision: Decision::Prepare(FiringContext::default()),
        note: None,
    };
    store.fire_once(firing, at(6)).await.unwrap();
    assert_eq!(waiting().await, ["10", "1", "2", "0"]);
}

async fn the_fleet_has_one_name(db: TestDb) {
    let (one, other) = (db.open().await, db.open().await);
    let names = tokio::join!(one.fleet_id(), other.fleet_id());
    assert_eq!(names.0.unwrap(), names.1.unwrap());
    assert_eq!(one.fleet_id().await.unwrap(), other.fleet_id().await.unwrap());
}
