//! Nodes: the start of their daemons, and the steps of their clocks.

use cowhand_core::moment::Moment;
use cowhand_core::plan::LiveState;
use cowhand_core::policy::Retry;
use cowhand_core::roster::Roster;
use cowhand_store::{Claim, NodeJoined, Settled, Store};
use cowhand_system::clock::Clock;
use jiff::SignedDuration;

use crate::conformance::event_types;
use crate::{TestDb, at, hand_job, on_both};

on_both! {
    a_clock_step_between_two_daemons_is_recorded_once,
    the_oldest_running_daemon_is_found,
    a_lease_does_not_depend_on_the_wall_clock,
    a_clock_step_back_does_not_lengthen_waits,
}

const HOUR: SignedDuration = SignedDuration::from_hours(1);

async fn with_clock(db: &TestDb) -> (Store, Clock) {
    let clock = Clock::by_hand(at(0));
    (db.open().await.with_clock(clock.clone()), clock)
}

async fn a_clock_step_between_two_daemons_is_recorded_once(db: TestDb) {
    let (store, clock) = with_clock(&db).await;
    let join = async || store.join("node-a".into(), clock.now()).await.unwrap().step;
    assert_eq!(join().await, None, "the first start");
    clock.set(at(60));
    assert_eq!(join().await, None, "no step");
    clock.step(at(60 - 3_600));
    assert_eq!(join().await, Some(-HOUR));
    assert_eq!(join().await, None, "told already");
    clock.step(at(60));
    store.clock_stepped("node-a".into(), HOUR, clock.now()).await.unwrap();
    assert_eq!(join().await, None, "told while it ran");
    clock.reboot(at(9_000));
    assert_eq!(join().await, None, "nobody knows");
    assert_eq!(event_types(&store).await, ["clock:stepped", "clock:stepped"]);
}

async fn the_oldest_running_daemon_is_found(db: TestDb) {
    let (store, clock) = with_clock(&db).await;
    let announce = async |node: &str| {
        let presence = store.announce_node(node).await.unwrap();
        (presence, store.join(node.into(), clock.now()).await.unwrap())
    };
    let (mut first, joined) = announce("node-a").await;
    assert_eq!(joined, NodeJoined { step: None, others_since: None });
    assert!(first.is_connected().await);
    let started = clock.moment();
    clock.set(at(60));
    let (_second, joined) = announce("node-b").await;
    if !db.url.starts_with("postgres") {
        assert_eq!(joined.others_since, None, "there is one daemon, whatever rows there are");
        return;
    }
    assert_eq!(joined.others_since, Some(started));
    clock.set(at(120));
    let (_third, joined) = announce("node-c").await;
    assert_eq!(joined.others_since, Some(started), "the oldest");
    drop(first);
    let second = Moment { wall: at(60), ..clock.moment() };
    while store.others_since("node-c".into()).await.unwrap().map(|since| since.wall) != Some(second.wall) {
        tokio::task::yield_now().await;
    }
}

/// Leases use the boot clock on SQLite, and the clock of the database on PostgreSQL.
async fn a_lease_does_not_depend_on_the_wall_clock(db: TestDb) {
    let (store, clock) = with_clock(&db).await;
    let job = store.add_job(hand_job(), clock.now()).await.unwrap().id().clone();
    let claim = store.claim(job.clone(), 1, "node-a".into(), HOUR, clock.now()).await.unwrap();
    let Claim::Claimed { epoch, .. } = claim else { panic!("{claim:?}") };
    let lapse = async || {
        let snapshot = store.snapshot_of(&Roster::default(), clock.now()).await.unwrap();
        let LiveState::Running { lease_until, .. } = snapshot.jobs[0].state else { panic!("it runs") };
        let lapsed = store.release_expired(job.clone(), epoch, false, Retry::default(), clock.now()).await;
        (lease_until > clock.now(), lapsed.unwrap())
    };
    for step in [100_000, -100_000] {
        clock.step(at(step));
        assert_eq!(lapse().await, (true, Settled::Fenced), "{step}");
    }
    assert_eq!(store.renew("node-a".into(), vec![job.clone()], HOUR, clock.now()).await.unwrap().len(), 1);
    if !db.url.starts_with("postgres") {
        clock.set(clock.now() + HOUR);
        let (held, lapsed) = lapse().await;
        assert!(!held && matches!(lapsed, Settled::Done(_)), "nobody has renewed it");
    }
}

async fn a_clock_step_back_does_not_lengthen_waits(db: TestDb) {
    use cowhand_core::ask::{AskState, AskSubject};
    let (store, clock) = with_clock(&db).await;
    let job = store.add_job(hand_job(), clock.now()).await.unwrap().id().clone();
    store.claim(job.clone(), 1, "node-a".into(), HOUR, clock.now()).await.unwrap();
    let what = AskSubject::Question { question: "Shall I?".into() };
    let key = "k".to_owned();
    store.make_ask(job.clone(), 1, key, what, at(600), clock.now()).await.unwrap();
    let state = async || {
        store.expire_asks(clock.now()).await.unwrap();
        store.asks_of(job.clone()).await.unwrap().remove(0)
    };
    clock.step(at(100_000));
    let ask = state().await;
    assert_eq!((ask.state, ask.expires_at), (AskState::Open, at(100_600)), "set forward");
    clock.step(at(-100_000));
    clock.set(at(-99_401));
    assert_eq!(state().await.state, AskState::Open, "set back");
    clock.set(at(-99_400));
    assert!(matches!(state().await.state, AskState::Expired { .. }));
}
