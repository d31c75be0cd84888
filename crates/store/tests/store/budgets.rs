//! Budgets under load: an amount is reserved once, and recorded usage is not lost.

use std::collections::BTreeMap;

use cowhand_core::attempt::{Settlement, UsageLimit};
use cowhand_core::breaker::Breaker;
use cowhand_core::budget::{Amount, Budget, BudgetOwner, BudgetWindow, OverBudget, Period, SpendLimits};
use cowhand_core::event::Fact;
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::id::JobId;
use cowhand_core::job::{ErrorKind, FailReason, JobError, JobUsage, ModelUsage, NewJob, NotBegun, Outcome};
use cowhand_core::policy::Retry;
use cowhand_core::provider::{LimitedProvider, Provider};
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::schedule::ScheduleState;
use cowhand_store::{Claim, Fired, Settled, Starter, Store, UsageRecorded};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use tokio::task::JoinSet;

use crate::{HOURLY, TestDb, at, cron_key, hand_job, new_job, on_both, roster, with_schedule};

on_both! {
    a_reserved_amount_is_not_reserved_again,
    a_snapshot_has_the_unspent_reservations,
    two_stores_never_spend_the_same_reserve_twice,
    firing_and_claiming_reserves_too,
    recorded_usage_counts_after_the_node_is_lost,
    a_reservation_ends_with_its_attempt,
    reservations_follow_the_cost_of_earlier_attempts,
    an_unreported_cost_is_assumed,
    a_command_that_uses_no_model_gets_no_reservation_later,
    a_running_attempt_learns_which_budget_it_exceeds,
    a_schedule_that_keeps_failing_pauses,
    a_job_counts_as_empty_only_if_no_attempt_acted,
    days_are_those_of_the_zone,
    items_and_jobs_have_their_sums,
}

pub(crate) const LEASE: SignedDuration = SignedDuration::from_hours(1);

fn per_day(dollars: f64) -> Budget {
    Budget { per_day_usd: Some(dollars), ..Budget::default() }
}

fn limits(agent_budget: Budget, fleet: Budget) -> SpendLimits {
    let (day, month) = (Period::day(at(0), &TimeZone::UTC), Period::month(at(0), &TimeZone::UTC));
    SpendLimits { own: agent_budget, fleet, person: None, day, month }
}

fn starter(limits: SpendLimits) -> Starter {
    Starter {
        node: "node".into(),
        lease: LEASE,
        max_concurrent: 1_000,
        session_key: None,
        limits: Some(limits),
        slot: None,
    }
}

fn cost(dollars: f64) -> JobUsage {
    let used = ModelUsage { input_tokens: 100, cost_usd: Some(dollars), ..ModelUsage::default() };
    let per_model = BTreeMap::from([("m".to_owned(), used)]);
    JobUsage { per_model, total_cost_usd: Some(dollars), ..JobUsage::default() }
}

fn job_of(agent: &str) -> NewJob {
    NewJob { agent: agent.parse().unwrap(), ..hand_job() }
}

async fn add(store: &Store, new: NewJob) -> JobId {
    store.add_job(new, at(0)).await.unwrap().id().clone()
}

async fn claim(store: &Store, id: &JobId, limits: SpendLimits) -> Claim {
    store.claim_with_limits(id.clone(), starter(limits), at(1)).await.unwrap()
}

async fn claimed(store: &Store, id: &JobId, limits: SpendLimits) -> i64 {
    match claim(store, id, limits).await {
        Claim::Claimed { epoch, .. } => epoch,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn completed(usage: Option<JobUsage>) -> Settlement {
    Settlement { usage, ..Outcome::Completed { summary: None }.into() }
}

async fn spent(store: &Store) -> u64 {
    let rows = store.spent(Timestamp::MIN, at(1_000_000_000), Timestamp::MAX).await.unwrap();
    let microdollars = |dollars: Option<f64>| Amount::of(&cost(dollars.unwrap_or_default())).microdollars;
    rows.iter().map(|row| microdollars(row.usage.cost_usd)).sum()
}

/// The budget of the day is ten dollars, and a job may need three dollars. So three of sixteen concurrent claims
/// succeed.
async fn a_reserved_amount_is_not_reserved_again(db: TestDb) {
    let store = db.open().await;
    let agent_budget = Budget { per_job_usd: Some(3.0), ..per_day(10.0) };
    let mut jobs = Vec::new();
    for _ in 0..16 {
        jobs.push(add(&store, hand_job()).await);
    }
    let mut tasks = JoinSet::new();
    for id in jobs {
        let store = store.clone();
        tasks.spawn(async move { claim(&store, &id, limits(agent_budget, Budget::default())).await });
    }
    let mut epochs = Vec::new();
    for answer in tasks.join_all().await {
        match answer {
            Claim::Claimed { job, epoch } => epochs.push((job.id().clone(), epoch)),
            Claim::OverBudget(OverBudget {
                scope: BudgetOwner::Agent,
                window: BudgetWindow::Day,
                limit: 10_000_000,
                ..
            }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(epochs.len(), 3);
    // The attempts spend less than they reserved. After their end, only their spending counts.
    for (id, epoch) in epochs {
        store.settle(id, epoch, completed(Some(cost(0.5))), Retry::default(), at(2)).await.unwrap();
    }
    let next = add(&store, hand_job()).await;
    claimed(&store, &next, limits(agent_budget, Budget::default())).await;
    assert_eq!(spent(&store).await, 1_500_000);
}

/// Two stores on one database act as two processes; each has eight agents, and the fleet has one budget.
async fn two_stores_never_spend_the_same_reserve_twice(db: TestDb) {
    let stores = [db.open().await, db.open().await];
    let agent_budget = Budget { per_job_usd: Some(1.0), ..Budget::default() };
    for round in 0..3 {
        let mut jobs = Vec::new();
        for number in 0..24 {
            jobs.push(add(&stores[0], job_of(&format!("agent-{}", number % 8))).await);
        }
        let mut tasks = JoinSet::new();
        for (number, id) in jobs.into_iter().enumerate() {
            let store = stores[number % 2].clone();
            tasks.spawn(async move {
                let claim = claim(&store, &id, limits(agent_budget, per_day(15.0))).await;
                (store, claim)
            });
        }
        let mut running = Vec::new();
        for (store, claim) in tasks.join_all().await {
            match claim {
                Claim::Claimed { job, epoch } => running.push((store, job.id().clone(), epoch)),
                Claim::OverBudget(over) => {
                    assert_eq!((over.scope, over.window), (BudgetOwner::Fleet, BudgetWindow::Day));
                }
                other => panic!("{other:?}"),
            }
        }
        // Five attempts of each round spend all that they have reserved: 5 dollars of 15.
        let expected = 15 - 5 * round;
        assert_eq!(running.len(), expected, "round {round}");
        for (number, (store, id, epoch)) in running.into_iter().enumerate() {
            let usage = if number < 5 { Some(cost(1.0)) } else { Some(cost(0.0)) };
            store.settle(id, epoch, completed(usage), Retry::default(), at(2)).await.unwrap();
        }
    }
    assert_eq!(spent(&stores[1]).await, 15_000_000, "never a cent more");
}

async fn firing_and_claiming_reserves_too(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let agent_budget = Budget { per_job_usd: Some(3.0), ..per_day(5.0) };
    let mut tasks = JoinSet::new();
    for number in 0..8 {
        let store = store.clone();
        let decision = Decision::Run(new_job());
        let firing = NewFiring { schedule, key: cron_key(number), due: at(number), decision, note: None };
        tasks.spawn(async move {
            store
                .fire_and_claim(firing, starter(limits(agent_budget, Budget::default())), at(9))
                .await
                .unwrap()
        });
    }
    let fired = tasks.join_all().await;
    let at_once = fired.iter().filter(|fired| matches!(fired, Fired::Claimed { .. })).count();
    let waiting = fired.iter().filter(|fired| matches!(fired, Fired::Recorded(Some(_)))).count();
    assert_eq!((at_once, waiting), (1, 7), "the others wait");
}

/// The usage that a lost node recorded counts. Until its attempt is settled, its reservation counts.
async fn recorded_usage_counts_after_the_node_is_lost(db: TestDb) {
    let store = db.open().await;
    let agent_budget = Budget { per_job_usd: Some(4.0), ..per_day(5.0) };
    let limits = || limits(agent_budget, Budget::default());
    let (first, second) = (add(&store, hand_job()).await, add(&store, hand_job()).await);
    let epoch = claimed(&store, &first, limits()).await;
    for dollars in [0.5, 1.0, 1.25] {
        let recorded = store.record_usage(first.clone(), epoch, cost(dollars), Some(limits())).await.unwrap();
        assert_eq!(recorded, UsageRecorded::Recorded(None));
    }
    let recorded = store.record_usage(first.clone(), epoch + 1, cost(9.0), Some(limits())).await.unwrap();
    assert_eq!(recorded, UsageRecorded::Fenced, "only its own node is believed");
    assert!(matches!(claim(&store, &second, limits()).await, Claim::OverBudget(_)), "it is still reserved");
    let attempts = store.history(first.clone()).await.unwrap().unwrap().attempts;
    assert_eq!(attempts[0].usage.as_ref().and_then(|usage| usage.total_cost_usd), Some(1.25));
    let later = at(1) + LEASE + LEASE;
    let settled = store.settle_expired(first.clone(), epoch, false, Retry::default(), later).await.unwrap();
    let Settled::Done(job) = settled else { panic!("{settled:?}") };
    assert_eq!(job.usage().and_then(|usage| usage.total_cost_usd), Some(1.25));
    assert_eq!(spent(&store).await, 1_250_000);
    assert!(
        matches!(claim(&store, &second, limits()).await, Claim::OverBudget(_)),
        "1.25 and 4 are more than 5"
    );
}

async fn a_reservation_ends_with_its_attempt(db: TestDb) {
    let store = db.open().await;
    let agent_budget = Budget { per_job_usd: Some(5.0), ..per_day(5.0) };
    let limits = || limits(agent_budget, Budget::default());
    let (first, second) = (add(&store, hand_job()).await, add(&store, hand_job()).await);
    let epoch = claimed(&store, &first, limits()).await;
    assert!(matches!(claim(&store, &second, limits()).await, Claim::OverBudget(_)));
    store.requeue(first.clone(), epoch, NotBegun::Interrupted, at(2)).await.unwrap();
    let epoch = claimed(&store, &second, limits()).await;
    store.settle(second, epoch, Outcome::lost("gone"), Retry::default(), at(3)).await.unwrap();
    let third = add(&store, hand_job()).await;
    claimed(&store, &third, limits()).await;
    assert_eq!(spent(&store).await, 0);
}

async fn reservations_follow_the_cost_of_earlier_attempts(db: TestDb) {
    let store = db.open().await;
    let limits = || limits(per_day(5.0), Budget::default());
    let mut jobs = Vec::new();
    for _ in 0..6 {
        jobs.push(add(&store, hand_job()).await);
    }
    // The cost of an attempt is unknown, so the first attempt reserves the whole budget of the day.
    let epoch = claimed(&store, &jobs[0], limits()).await;
    assert!(matches!(claim(&store, &jobs[1], limits()).await, Claim::OverBudget(_)));
    store.settle(jobs[0].clone(), epoch, completed(Some(cost(1.0))), Retry::default(), at(2)).await.unwrap();
    // Four dollars are left, which is enough for four attempts with the same cost.
    for id in &jobs[1..5] {
        claimed(&store, id, limits()).await;
    }
    let Claim::OverBudget(over) = claim(&store, &jobs[5], limits()).await else {
        panic!("a fifth one started")
    };
    assert_eq!(
        (over.spent, over.reserved, over.needed, over.fits_after_running()),
        (1_000_000, 4_000_000, 1_000_000, true)
    );
    let agent = Agent { budget: per_day(5.0), ..Agent::new("coder".parse().unwrap()) };
    let ledger = store.spending(&Roster::of(vec![agent]), at(2)).await.unwrap();
    let (agent_budget, highest_cost) = ledger.agents[&"coder".parse().unwrap()];
    assert_eq!((agent_budget.day.microdollars, agent_budget.committed.microdollars), (1_000_000, 4_000_000));
    assert_eq!((highest_cost.microdollars, ledger.fleet), (Some(1_000_000), agent_budget));
}

/// Ten thousand tokens without a reported cost count as a dollar. An attempt without any reported usage counts as its
/// whole reservation.
async fn an_unreported_cost_is_assumed(db: TestDb) {
    let store = db.open().await;
    let agent_budget = Budget { per_job_usd: Some(3.0), ..per_day(5.0) };
    let limits = || limits(agent_budget, Budget::default());
    let used = ModelUsage { input_tokens: 10_000, ..ModelUsage::default() };
    let per_model = BTreeMap::from([("m".to_owned(), used)]);
    let tokens = JobUsage { per_model, ..JobUsage::default() };
    let (first, second) = (add(&store, hand_job()).await, add(&store, hand_job()).await);
    let epoch = claimed(&store, &first, limits()).await;
    let settled =
        store.settle(first.clone(), epoch, completed(Some(tokens)), Retry::default(), at(2)).await.unwrap();
    let Settled::Done(job) = settled else { panic!("{settled:?}") };
    let usage = job.usage().unwrap();
    assert_eq!((usage.total_cost_usd, usage.assumed_usd), (None, Some(1.0)));
    let epoch = claimed(&store, &second, limits()).await;
    let later = at(1) + LEASE + LEASE;
    store.settle_expired(second.clone(), epoch, true, Retry::default(), later).await.unwrap();
    assert_eq!(spent(&store).await, 4_000_000);
    let jobs = store.spent_on_jobs(None, at(0), at(1_000_000), at(2), 10).await.unwrap();
    let of_jobs: Vec<_> = jobs.into_iter().map(|job| (job.job, job.amount.microdollars)).collect();
    assert_eq!(of_jobs, [(second, 3_000_000), (first, 1_000_000)]);
    // An assumed cost does not count as the highest cost of an attempt.
    let agent = Agent { budget: per_day(5.0), ..Agent::new("coder".parse().unwrap()) };
    let ledger = store.spending(&Roster::of(vec![agent]), at(2)).await.unwrap();
    let (_, highest_cost) = ledger.agents[&"coder".parse().unwrap()];
    assert_eq!((highest_cost.microdollars, highest_cost.tokens), (None, Some(10_000)));
}

/// The first job reserves the whole budget of the day. It used nothing, so later jobs reserve nothing.
async fn a_command_that_uses_no_model_gets_no_reservation_later(db: TestDb) {
    let store = db.open().await;
    let limits = || limits(Budget::default(), per_day(5.0));
    let (first, second) = (add(&store, hand_job()).await, add(&store, hand_job()).await);
    let other = add(&store, job_of("other")).await;
    let epoch = claimed(&store, &first, limits()).await;
    assert!(matches!(claim(&store, &other, limits()).await, Claim::OverBudget(_)));
    store.settle(first, epoch, completed(None), Retry::default(), at(2)).await.unwrap();
    claimed(&store, &second, limits()).await;
    // The other agent reserves the whole budget, and a further job that reserves nothing still starts.
    claimed(&store, &other, limits()).await;
    let third = add(&store, hand_job()).await;
    claimed(&store, &third, limits()).await;
}

async fn a_running_attempt_learns_which_budget_it_exceeds(db: TestDb) {
    let store = db.open().await;
    let agent_budget = Budget { per_job_usd: Some(1.0), ..Budget::default() };
    let limits = || limits(agent_budget, per_day(2.0));
    let (first, second) = (add(&store, job_of("a")).await, add(&store, job_of("b")).await);
    let one = claimed(&store, &first, limits()).await;
    let two = claimed(&store, &second, limits()).await;
    let record = async |id: &JobId, epoch, dollars| match store
        .record_usage(id.clone(), epoch, cost(dollars), Some(limits()))
        .await
        .unwrap()
    {
        UsageRecorded::Recorded(over) => over.map(|over| (over.scope, over.window, over.spent)),
        UsageRecorded::Fenced => panic!("{id} is not ours"),
    };
    assert_eq!(record(&first, one, 0.999_999).await, None);
    assert_eq!(record(&first, one, 1.0).await, Some((BudgetOwner::Agent, BudgetWindow::Job, 1_000_000)));
    // The first attempt did not stop at once, so less is left for the second attempt.
    assert_eq!(record(&first, one, 1.5).await.map(|over| over.1), Some(BudgetWindow::Job));
    assert_eq!(record(&second, two, 0.4).await, None);
    assert_eq!(record(&second, two, 0.5).await, Some((BudgetOwner::Fleet, BudgetWindow::Day, 2_000_000)));
}

async fn a_snapshot_has_the_unspent_reservations(db: TestDb) {
    let store = db.open().await;
    let id = add(&store, hand_job()).await;
    let reserved = async || store.snapshot().await.unwrap().jobs[0].reserved.microdollars;
    assert_eq!(reserved().await, 0, "it is pending");
    let starter = starter(limits(per_day(5.0), Budget::default()));
    let claim = store.claim_with_limits(id.clone(), starter, at(1)).await.unwrap();
    let Claim::Claimed { epoch, .. } = claim else { panic!("{claim:?}") };
    assert_eq!(reserved().await, 5_000_000);
    store.record_usage(id, epoch, cost(1.5), None).await.unwrap();
    assert_eq!(reserved().await, 3_500_000);
}

pub(crate) fn failed(message: &str, breaker: Breaker) -> Settlement {
    let error = JobError { kind: ErrorKind::Exit, message: message.to_owned() };
    let outcome = Outcome::Failed { reason: FailReason::Error, error, summary: None };
    Settlement { breaker: Some(breaker), ..outcome.into() }
}

pub(crate) async fn fire_and_settle(
    store: &Store,
    schedule: cowhand_core::id::ScheduleId,
    number: i64,
    settlement: Settlement,
) {
    let firing = NewFiring {
        schedule,
        key: cron_key(number),
        due: at(number),
        decision: Decision::Run(new_job()),
        note: None,
    };
    let Fired::Recorded(Some(job)) = store.fire_once(firing, at(number)).await.unwrap() else {
        panic!("{number} was fired before")
    };
    let id = job.id().clone();
    let claim = store.claim(id.clone(), 9, "node".into(), LEASE, at(number)).await.unwrap();
    let Claim::Claimed { epoch, .. } = claim else { panic!("{claim:?}") };
    store.settle(id, epoch, settlement, Retry::default(), at(number)).await.unwrap();
}

async fn a_schedule_that_keeps_failing_pauses(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let breaker = Breaker { failures: 3, ..Breaker::default() };
    for number in 1..=3 {
        assert_eq!(store.schedule(schedule).await.unwrap().unwrap().state, ScheduleState::Active);
        fire_and_settle(&store, schedule, number, failed(&format!("no file {number}"), breaker)).await;
    }
    let until = at(3) + SignedDuration::from_mins(15);
    let reason = "3 jobs in a row failed the same way: no file 3 (exit)".to_owned();
    let paused = ScheduleState::Paused { reason: reason.clone(), until };
    assert_eq!(store.schedule(schedule).await.unwrap().unwrap().state, paused);
    let events = store.events_after(0, 100).await.unwrap();
    let pause_events: Vec<_> =
        events.iter().filter(|event| matches!(event.fact, Fact::SchedulePaused { .. })).collect();
    assert_eq!(pause_events.len(), 1);
    assert_eq!(pause_events[0].fact, Fact::SchedulePaused { reason, until });
    // The pause continues after a reload and after a restart of the process.
    store.load_schedules(roster(&[HOURLY]), at(4)).await.unwrap();
    let again = db.open().await;
    assert_eq!(again.schedule(schedule).await.unwrap().unwrap().state, paused);
    assert!(!store.resume(schedule, until - SignedDuration::from_secs(1)).await.unwrap());
    assert!(store.resume(schedule, until).await.unwrap());
    assert!(!store.resume(schedule, until).await.unwrap(), "once");
    // The first probe fails, and the second one completes.
    fire_and_settle(&store, schedule, 1_000, failed("something else", breaker)).await;
    let ScheduleState::Paused { until, .. } = store.schedule(schedule).await.unwrap().unwrap().state else {
        panic!("it goes on")
    };
    assert_eq!(until, at(1_000) + SignedDuration::from_mins(30));
    assert!(store.resume(schedule, until).await.unwrap());
    let done = Settlement { breaker: Some(breaker), ..completed(None) };
    fire_and_settle(&store, schedule, 9_000, done).await;
    let record = store.schedule(schedule).await.unwrap().unwrap();
    assert_eq!(
        (record.state, record.breaker_state),
        (ScheduleState::Active, cowhand_core::breaker::BreakerState::default())
    );
}

/// Spending shortly before midnight of the time zone does not count for the next day.
async fn days_are_those_of_the_zone(db: TestDb) {
    let store = db.open().await;
    let zone = TimeZone::get("Asia/Kathmandu").unwrap();
    let midnight = Period::day(at(0), &zone).end;
    for (seconds, dollars) in [(-1, 1.0), (0, 2.0)] {
        let now = midnight + SignedDuration::from_secs(seconds);
        let id = add(&store, hand_job()).await;
        let claim = store.claim(id.clone(), 9, "node".into(), LEASE, now).await.unwrap();
        let Claim::Claimed { epoch, .. } = claim else { panic!("{claim:?}") };
        store.settle(id, epoch, completed(Some(cost(dollars))), Retry::default(), now).await.unwrap();
    }
    let mut roster = Roster::of(vec![Agent { budget: per_day(5.0), ..Agent::new("coder".parse().unwrap()) }]);
    roster.zone = "Asia/Kathmandu".parse().unwrap();
    let day = async |now| store.spending(&roster, now).await.unwrap().fleet.day.microdollars;
    assert_eq!(day(midnight - SignedDuration::from_secs(1)).await, 3_000_000, "nothing lies ahead of now");
    assert_eq!(day(midnight).await, 2_000_000);
}

async fn items_and_jobs_have_their_sums(db: TestDb) {
    let store = db.open().await;
    let item: cowhand_core::work::WorkItem = serde_json::from_value(serde_json::json!({
        "id": "files-7", "source": "files", "external_id": "7", "title": "Mend the roof", "description": "",
        "priority": "medium", "labels": [], "metadata": {}, "url": "", "created_at": at(0), "updated_at": at(0),
    }))
    .unwrap();
    for (agent, item, dollars) in [("a", Some(&item), 1.0), ("b", Some(&item), 0.5), ("a", None, 3.0)] {
        let id = add(&store, NewJob { work_item: item.cloned(), ..job_of(agent) }).await;
        let claim = store.claim(id.clone(), 9, "node".into(), LEASE, at(1)).await.unwrap();
        let Claim::Claimed { epoch, .. } = claim else { panic!("{claim:?}") };
        store.settle(id, epoch, completed(Some(cost(dollars))), Retry::default(), at(2)).await.unwrap();
    }
    let items = store.spent_on_items(at(0), at(9), at(9), 9).await.unwrap();
    let seen: Vec<_> =
        items.iter().map(|row| (row.item.as_str(), row.attempts, row.usage.cost_usd)).collect();
    assert_eq!(seen, [("files-7", 2, Some(1.5))]);
    assert_eq!(store.spent_on_items(at(3), at(9), at(9), 9).await.unwrap(), [], "no attempt ended since");
    assert_eq!(
        store.spent_on_items(at(0), at(2), at(9), 9).await.unwrap(),
        [],
        "its last attempt ended later"
    );
    let jobs = store.spent_on_jobs(None, at(0), at(9), at(9), 2).await.unwrap();
    let seen: Vec<_> =
        jobs.iter().map(|row| (row.agent.as_str(), row.amount.microdollars, row.attempts)).collect();
    assert_eq!(seen, [("a", 3_000_000, 1), ("a", 1_000_000, 1)]);
    let jobs = store.spent_on_jobs(Some(&"b".parse().unwrap()), at(0), at(9), at(9), 2).await.unwrap();
    let seen: Vec<_> = jobs.iter().map(|row| (row.agent.as_str(), row.amount.microdollars)).collect();
    assert_eq!(seen, [("b", 500_000)], "more expensive jobs of other agents do not use up the limit");
}

/// A job that used a tool before it was parked does not count as empty, even if its last attempt used no tool.
async fn a_job_counts_as_empty_only_if_no_attempt_acted(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let breaker = Breaker { failures: 0, empty_runs: 1, ..Breaker::default() };
    let current = async || store.schedule(schedule).await.unwrap().unwrap();
    let slot =
        || LimitedProvider { provider: "claude".into(), limits: Provider::default(), zone: TimeZone::UTC };
    for (number, worked) in [(1, true), (1_000, false)] {
        let firing = NewFiring {
            schedule,
            key: cron_key(number),
            due: at(number),
            decision: Decision::Run(new_job()),
            note: None,
        };
        let Fired::Recorded(Some(job)) = store.fire_once(firing, at(number)).await.unwrap() else {
            panic!("fired before")
        };
        let id = job.id().clone();
        let claim = async |second| {
            let starter = Starter {
                node: "node".into(),
                lease: LEASE,
                max_concurrent: 9,
                session_key: None,
                limits: None,
                slot: Some(slot()),
            };
            match store.claim_with_limits(id.clone(), starter, at(second)).await.unwrap() {
                Claim::Claimed { epoch, .. } => epoch,
                other => panic!("{other:?}"),
            }
        };
        let epoch = claim(number).await;
        let error = JobError { kind: ErrorKind::RateLimited, message: "the limit".into() };
        let limited = Outcome::Failed { reason: FailReason::Error, error, summary: None };
        let limit = Some(UsageLimit { resets_at: Some(at(number + 10)) });
        let limited = Settlement { limit, used_no_tool: !worked, ..limited.into() };
        store.settle(id.clone(), epoch, limited, Retry::default(), at(number + 1)).await.unwrap();
        let epoch = claim(number + 10).await;
        let words = Settlement { breaker: Some(breaker), used_no_tool: true, ..completed(None) };
        store.settle(id.clone(), epoch, words, Retry::default(), at(number + 11)).await.unwrap();
        let paused = matches!(current().await.state, ScheduleState::Paused { .. });
        assert_eq!(paused, !worked, "{number}");
    }
}
