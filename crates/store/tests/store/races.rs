//! Concurrent verbs: each key fires once, each job is claimed once, and no agent runs more jobs than it may.

use std::collections::HashSet;

use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::job::Outcome;
use cowhand_core::plan::PlaceCount;
use cowhand_core::policy::Retry;
use cowhand_store::{Claim, DrainChange, Fired, Settled, SharedLimits, Starter};
use jiff::SignedDuration;
use tokio::task::JoinSet;

use crate::{HOURLY, TestDb, at, cron_key, hand_job, new_job, on_both, roster, with_schedule};

on_both! {
    sixteen_fire_the_same_key,
    sixteen_claim_the_same_jobs,
    sixteen_claimers_never_exceed_the_capacity,
    nodes_never_exceed_the_places_of_the_fleet_and_their_own,
    no_job_starts_after_a_drain,
    a_lease_is_taken_up_again_or_lost_but_not_both,
    renewing_from_many_places_never_blocks,
    fleets_are_loaded_in_any_order,
    readers_never_see_a_gap_in_the_events,
    a_snapshot_and_its_ledger_are_of_one_moment,
}

const TASKS: usize = 16;
const LEASE: SignedDuration = SignedDuration::from_hours(1);

async fn sixteen_fire_the_same_key(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    for round in 0..20 {
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            let store = store.clone();
            let firing = NewFiring {
                schedule,
                key: cron_key(round),
                due: at(round),
                decision: Decision::Run(new_job()),
                note: None,
            };
            tasks.spawn(async move { store.fire_once(firing, at(round)).await.unwrap() });
        }
        let answers = tasks.join_all().await;
        let won = answers.iter().filter(|fired| matches!(fired, Fired::Recorded(Some(_)))).count();
        assert_eq!((won, answers.len()), (1, TASKS));
    }
    assert_eq!(store.ledger(schedule, 1_000).await.unwrap().len(), 20);
    assert_eq!(store.snapshot().await.unwrap().jobs.len(), 20);
    assert_eq!(store.last_event().await.unwrap(), 41);
}

async fn sixteen_claim_the_same_jobs(db: TestDb) {
    let store = db.open().await;
    let mut jobs = Vec::new();
    for _ in 0..40 {
        jobs.push(store.add_job(hand_job(), at(0)).await.unwrap().id().clone());
    }
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (store, mut jobs) = (store.clone(), jobs.clone());
        jobs.rotate_left(task);
        tasks.spawn(async move {
            let mut won = Vec::new();
            for id in jobs {
                let claim = store.claim(id, 1_000, format!("node-{task}"), LEASE, at(1)).await.unwrap();
                if let Claim::Claimed { job, .. } = claim {
                    won.push(job.id().clone());
                }
            }
            won
        });
    }
    let won: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    let distinct: HashSet<_> = won.iter().cloned().collect();
    assert_eq!((won.len(), distinct.len()), (40, 40), "each job once");
}

async fn sixteen_claimers_never_exceed_the_capacity(db: TestDb) {
    let store = db.open().await;
    let mut jobs = Vec::new();
    for _ in 0..TASKS {
        jobs.push(store.add_job(hand_job(), at(0)).await.unwrap().id().clone());
    }
    for round in 0..3 {
        let mut tasks = JoinSet::new();
        for (number, id) in jobs.clone().into_iter().enumerate() {
            let store = store.clone();
            tasks.spawn(
                async move { store.claim(id, 3, format!("node-{number}"), LEASE, at(1)).await.unwrap() },
            );
        }
        let mut running = Vec::new();
        for claim in tasks.join_all().await {
            if let Claim::Claimed { job, epoch } = claim {
                running.push((job.id().clone(), epoch));
            }
        }
        assert_eq!(running.len(), 3, "round {round}");
        for (id, epoch) in running {
            jobs.retain(|job| *job != id);
            let outcome = Outcome::Completed { summary: None };
            let settled = store.settle(id, epoch, outcome, Retry::default(), at(2)).await.unwrap();
            assert!(matches!(settled, Settled::Done(_)));
        }
    }
}

/// Returns the starter of a node without other limits than these.
fn starter(node: &str, shared: SharedLimits) -> Starter {
    let (node, lease, max_concurrent) = (node.to_owned(), LEASE, 1_000);
    let on_lost = cowhand_core::lease::OnLostLease::Pause;
    Starter { node, lease, on_lost, max_concurrent, shared, session_key: None, limits: None, slot: None }
}

/// Three nodes with 2 places each claim jobs of a fleet with 5 places.
async fn nodes_never_exceed_the_places_of_the_fleet_and_their_own(db: TestDb) {
    let store = db.open().await;
    let names = ["node-0", "node-1", "node-2"];
    for name in names {
        store.join(name.into(), at(0)).await.unwrap();
    }
    let mut jobs = Vec::new();
    for _ in 0..20 {
        jobs.push(store.add_job(hand_job(), at(0)).await.unwrap().id().clone());
    }
    let limits = SharedLimits { fleet: Some(5), node: Some(2) };
    while !jobs.is_empty() {
        let mut tasks = JoinSet::new();
        for (number, id) in jobs.clone().into_iter().enumerate() {
            let (store, name) = (store.clone(), names[number % names.len()]);
            tasks.spawn(async move {
                (name, store.claim_with_limits(id, starter(name, limits), at(1)).await.unwrap())
            });
        }
        let claims = tasks.join_all().await;
        let running: Vec<_> = claims
            .into_iter()
            .filter_map(|(name, claim)| match claim {
                Claim::Claimed { job, epoch } => Some((name, job.id().clone(), epoch)),
                refused => {
                    assert_eq!(refused, Claim::AtCapacity);
                    None
                }
            })
            .collect();
        let on = |name: &str| running.iter().filter(|(node, ..)| *node == name).count();
        assert_eq!(running.len(), names.map(on).iter().sum::<usize>());
        assert!(names.iter().all(|name| on(name) <= 2) && running.len() <= 5, "{running:?}");
        assert!(!running.is_empty());
        let places = store.shared_places("node-0", limits).await.unwrap();
        let taken = |places: Option<PlaceCount>| places.map(|places| places.taken as usize);
        assert_eq!((taken(places.fleet), taken(places.node)), (Some(running.len()), Some(on("node-0"))));
        for (_, id, epoch) in running {
            jobs.retain(|job| *job != id);
            let outcome = Outcome::Completed { summary: None };
            store.settle(id, epoch, outcome, Retry::default(), at(2)).await.unwrap();
        }
    }
}

/// When `drain` returns, the number of running jobs of the node no longer grows.
async fn no_job_starts_after_a_drain(db: TestDb) {
    let store = db.open().await;
    store.join("node-a".into(), at(0)).await.unwrap();
    let mut jobs = Vec::new();
    for _ in 0..TASKS {
        jobs.push(store.add_job(hand_job(), at(0)).await.unwrap().id().clone());
    }
    let mut tasks = JoinSet::new();
    for id in jobs {
        let store = store.clone();
        let starter = starter("node-a", SharedLimits::default());
        tasks.spawn(async move { store.claim_with_limits(id, starter, at(1)).await.unwrap() });
    }
    let running = || async { store.running_of_nodes().await.unwrap().get("node-a").copied().unwrap_or(0) };
    assert_eq!(store.drain("node-a".into(), at(1)).await.unwrap(), DrainChange::Changed);
    let after_drain = running().await;
    let claims = tasks.join_all().await;
    assert_eq!(running().await, after_drain);
    let claimed = claims.iter().filter(|claim| matches!(claim, Claim::Claimed { .. })).count();
    let drained = claims.iter().filter(|claim| **claim == Claim::Drained).count();
    assert_eq!((claimed + drained, claimed), (TASKS, after_drain as usize));
}

async fn a_lease_is_taken_up_again_or_lost_but_not_both(db: TestDb) {
    let store = db.open().await;
    for round in 0..50 {
        let id = store.add_job(hand_job(), at(0)).await.unwrap().id().clone();
        let claim = store.claim(id.clone(), 1_000, "node".into(), SignedDuration::ZERO, at(1)).await.unwrap();
        let Claim::Claimed { epoch, .. } = claim else { panic!("{claim:?}") };
        let adopting = tokio::spawn({
            let store = store.clone();
            async move { store.adopt("node".into(), LEASE, at(2)).await.unwrap() }
        });
        let settled = store.settle_expired(id.clone(), epoch, false, Retry::default(), at(2)).await.unwrap();
        let held = adopting.await.unwrap().iter().any(|held| held.job == id);
        assert_eq!(held, settled == Settled::Fenced, "round {round}: {settled:?}");
    }
}

async fn renewing_from_many_places_never_blocks(db: TestDb) {
    let store = db.open().await;
    let mut ids = Vec::new();
    for _ in 0..100 {
        let id = store.add_job(hand_job(), at(0)).await.unwrap().id().clone();
        store.claim(id.clone(), 1_000, "node".into(), LEASE, at(1)).await.unwrap();
        ids.push(id);
    }
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (store, mut ids) = (store.clone(), ids.clone());
        ids.rotate_left(task * 6);
        tasks.spawn(async move {
            for second in 2..20 {
                let held = match task % 2 {
                    0 => store.renew("node".into(), ids.clone(), LEASE, at(second)).await,
                    _ => store.adopt("node".into(), LEASE, at(second)).await,
                };
                assert_eq!(held.unwrap().len(), 100);
            }
        });
    }
    tasks.join_all().await;
}

async fn fleets_are_loaded_in_any_order(db: TestDb) {
    let store = db.open().await;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let (store, mut roster) = (store.clone(), roster(&[HOURLY; 100]));
        roster.agents[0].schedules.rotate_left(task * 6);
        tasks.spawn(async move { store.load_schedules(roster, at(0)).await });
    }
    for loaded in tasks.join_all().await {
        loaded.unwrap();
    }
    assert_eq!(store.schedules().await.unwrap().len(), 100);
}

/// A reader that continues after its cursor misses no event, in whatever order transactions commit.
async fn readers_never_see_a_gap_in_the_events(db: TestDb) {
    const EACH: i64 = 25;
    let store = db.open().await;
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let store = store.clone();
        tasks.spawn(async move {
            for _ in 0..EACH {
                store.add_job(hand_job(), at(0)).await.unwrap();
            }
        });
    }
    let total = EACH * i64::try_from(TASKS).unwrap();
    let mut cursor = 0;
    while cursor < total {
        for event in store.events_after(cursor, 100).await.unwrap() {
            assert_eq!(event.seq, cursor + 1);
            cursor = event.seq;
        }
        tokio::task::yield_now().await;
    }
    tasks.join_all().await;
}

async fn a_snapshot_and_its_ledger_are_of_one_moment(db: TestDb) {
    const ROUNDS: i64 = 100;
    let (store, schedule) = with_schedule(&db).await;
    let fires = tokio::spawn({
        let store = store.clone();
        async move {
            for round in 0..ROUNDS {
                let firing = NewFiring {
                    schedule,
                    key: cron_key(round),
                    due: at(round),
                    decision: Decision::Coalesce,
                    note: None,
                };
                store.fire_once(firing, at(round)).await.unwrap();
            }
        }
    });
    let roster = roster(&[HOURLY]);
    loop {
        let is_over = fires.is_finished();
        let (snapshot, rows) = store.snapshot_and_ledger(&roster, (schedule, 1), at(ROUNDS)).await.unwrap();
        assert_eq!(snapshot.schedules[&schedule].last_due, rows.first().map(|row| row.due));
        if is_over {
            break;
        }
    }
    fires.await.unwrap();
}
