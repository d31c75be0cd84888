//! Nodes: the start of their daemons, and the steps of their clocks.

use cowhand_core::attempt::Settlement;
use cowhand_core::breaker::Breaker;
use cowhand_core::job::{ErrorKind, FailReason, JobError, JobState, Outcome};
use cowhand_core::moment::Moment;
use cowhand_core::node::{FleetNode, NodeLimits, NodeReport};
use cowhand_core::plan::LiveState;
use cowhand_core::policy::Retry;
use cowhand_core::roster::Roster;
use cowhand_core::schedule::ScheduleState;
use cowhand_store::{Claim, DrainChange, Forgotten, NodeJoined, Settled, Store};
use cowhand_system::clock::Clock;
use jiff::SignedDuration;

use crate::conformance::{event_types, fire};
use crate::{HOURLY, TestDb, at, hand_job, on_both, roster};

on_both! {
    a_clock_step_between_two_daemons_is_recorded_once,
    the_oldest_running_daemon_is_found,
    a_lease_does_not_depend_on_the_wall_clock,
    a_clock_step_back_does_not_lengthen_waits,
    waits_count_from_the_end_of_an_attempt,
    nodes_are_listed_with_their_reports,
    a_drain_outlives_a_restart,
    only_a_node_without_daemon_and_leases_is_forgotten,
}

const HOUR: SignedDuration = SignedDuration::from_hours(1);

async fn with_clock(db: &TestDb) -> (Store, Clock) {
    let clock = Clock::test(at(0));
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
        let lapsed = store.settle_expired(job.clone(), epoch, false, Retry::default(), clock.now()).await;
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
    let what = AskSubject::question("Shall I?");
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

/// A daemon that was away settles an attempt long after its end.
async fn waits_count_from_the_end_of_an_attempt(db: TestDb) {
    let (store, clock) = with_clock(&db).await;
    let roster = roster(&[HOURLY]);
    let id = roster.agents[0].schedules[0].id;
    store.load_schedules(roster, at(0)).await.unwrap();
    let run = async |start: i64, keeper_reads_boot_clock: bool, retry: &Retry| {
        clock.set(at(start));
        let job = fire(&store, id, start).await.id().clone();
        let claim = store.claim(job.clone(), 1, "node-a".into(), HOUR, at(start)).await.unwrap();
        let Claim::Claimed { epoch, .. } = claim else { panic!("{claim:?}") };
        clock.set(at(start + 10));
        let ended = clock.moment();
        clock.set(at(start + 600));
        let error = JobError { kind: ErrorKind::Exit, message: "exit code 1".to_owned() };
        let failed = Outcome::Failed { reason: FailReason::Error, error, summary: None };
        let settlement = Settlement {
            breaker: Some(Breaker { failures: 1, ..Breaker::default() }),
            ended_at: Some(ended.wall),
            ended_boot: ended.boot.filter(|_| keeper_reads_boot_clock),
            ..failed.into()
        };
        store.settle(job.clone(), epoch, settlement, retry.clone(), clock.now()).await.unwrap();
        (ended, store.job(job).await.unwrap().unwrap())
    };

    let retry = Retry { max_attempts: 2, ..Retry::default() };
    let (ended, job) = run(100, true, &retry).await;
    let JobState::Pending { not_before: Some(until) } = *job.state() else { panic!("{job:?}") };
    assert!(until > ended.wall && until < clock.now(), "the backoff is over: {until}");
    store.cancel(job.id().clone(), clock.now()).await.unwrap();

    for (start, keeper_reads_boot_clock) in [(2_000, true), (4_000, false)] {
        let (ended, job) = run(start, keeper_reads_boot_clock, &Retry::default()).await;
        assert!(matches!(job.state(), JobState::Ended { at, .. } if *at == ended.wall), "{job:?}");
        let record = store.schedule(id).await.unwrap().unwrap();
        assert_eq!((record.last_run_at, record.interval_from), (Some(ended.wall), Some(ended)));
        let ScheduleState::Paused { until, .. } = record.state else { panic!("{record:?}") };
        assert_eq!(until, ended.wall + SignedDuration::from_mins(15));
        assert_eq!(record.pause_ends(clock.moment()), Some(until));
        clock.step(at(start + 90_000));
        let ends = store.schedule(id).await.unwrap().unwrap().pause_ends(clock.moment());
        assert_eq!(ends, Some(at(start + 90_000 - 590 + 900)), "on the clock that was set");
        clock.step(at(start + 600));
        assert!(store.enable(id, clock.now()).await.unwrap());
    }
}

/// A second daemon must not act as the same node.
#[tokio::test]
async fn only_one_connection_announces_a_node() {
    let db = TestDb::postgres();
    let store = db.open().await;
    let first = store.announce_node("node-a").await.unwrap();
    let mut second = db.open().await.announce_node("node-a").await.unwrap();
    assert!(first.is_held() && !second.is_held());
    assert!(second.is_connected().await && !second.is_held(), "the first is still there");
    drop(first);
    while !second.is_held() {
        assert!(second.is_connected().await);
    }
}

fn named(nodes: &[FleetNode], name: &str) -> FleetNode {
    nodes.iter().find(|node| node.name == name).unwrap().clone()
}

async fn nodes_are_listed_with_their_reports(db: TestDb) {
    let (store, clock) = with_clock(&db).await;
    assert!(store.nodes().await.unwrap().is_empty());
    store.join("node-a".into(), clock.now()).await.unwrap();
    let unreported = store.nodes().await.unwrap();
    assert_eq!((unreported.len(), &unreported[0].report), (1, &NodeReport::default()));
    let report = NodeReport {
        version: "1.2.3".into(),
        labels: vec!["gpu=a100".parse().unwrap()],
        capacity: Some(3),
        processors: 8,
        config: Some("abc".into()),
        unable: [("coder".parse().unwrap(), "no directory".to_owned())].into_iter().collect(),
    };
    let limits = NodeLimits { fleet: Some(4), agents: [("coder".parse().unwrap(), 2)].into_iter().collect() };
    store.report_node("node-a".into(), report.clone(), limits.clone(), clock.now()).await.unwrap();
    clock.set(at(60));
    store.join("node-b".into(), clock.now()).await.unwrap();
    let job = store.add_job(hand_job(), clock.now()).await.unwrap().id().clone();
    let claim = store.claim(job, 9, "node-a".into(), HOUR, clock.now()).await.unwrap();
    assert!(matches!(claim, Claim::Claimed { .. }));
    let nodes = store.nodes().await.unwrap();
    let node = named(&nodes, "node-a");
    assert_eq!((&node.report, node.running, node.shares_store), (&report, 1, store.is_shared()));
    assert!(node.lease_until.is_some());
    assert_eq!((node.drained_at, named(&nodes, "node-b").running), (None, 0));
    // A daemon on PostgreSQL announces itself; on SQLite the last started daemon is the only one.
    assert_eq!(named(&nodes, "node-b").is_running, !store.is_shared());
    let presence = store.announce_node("node-a").await.unwrap();
    assert_eq!(named(&store.nodes().await.unwrap(), "node-a").is_running, store.is_shared());
    drop(presence);
    assert_eq!(store.limits_of_nodes(&["node-a".into(), "node-b".into()]).await.unwrap(), [limits]);
    let seen = named(&store.nodes().await.unwrap(), "node-a").seen_at;
    let events = store.last_event().await.unwrap();
    clock.set(at(90));
    store.node_seen("node-a".into(), clock.now()).await.unwrap();
    assert!(named(&store.nodes().await.unwrap(), "node-a").seen_at > seen);
    assert_eq!(store.last_event().await.unwrap(), events, "no event");
}

async fn a_drain_outlives_a_restart(db: TestDb) {
    let (store, clock) = with_clock(&db).await;
    let drain = async || store.drain("node-a".into(), clock.now()).await.unwrap();
    assert_eq!(drain().await, DrainChange::NoNode);
    store.join("node-a".into(), clock.now()).await.unwrap();
    assert_eq!((drain().await, drain().await), (DrainChange::Changed, DrainChange::Unchanged));
    store.join("node-a".into(), clock.now()).await.unwrap();
    assert!(store.nodes().await.unwrap()[0].drained_at.is_some());
    let job = store.add_job(hand_job(), clock.now()).await.unwrap().id().clone();
    let claim = async || store.claim(job.clone(), 9, "node-a".into(), HOUR, clock.now()).await.unwrap();
    assert_eq!(claim().await, Claim::Drained);
    let undrain = async || store.undrain("node-a".into(), clock.now()).await.unwrap();
    assert_eq!((undrain().await, undrain().await), (DrainChange::Changed, DrainChange::Unchanged));
    assert!(matches!(claim().await, Claim::Claimed { .. }));
    let types = event_types(&store).await;
    assert_eq!(types, ["node:drained", "job:created", "node:undrained", "job:started"]);
}

async fn only_a_node_without_daemon_and_leases_is_forgotten(db: TestDb) {
    let (store, clock) = with_clock(&db).await;
    let forget = async || store.forget_node("node-a".into(), clock.now()).await.unwrap();
    assert_eq!(forget().await, Forgotten::NoNode);
    store.join("node-a".into(), clock.now()).await.unwrap();
    if store.is_shared() {
        let presence = store.announce_node("node-a").await.unwrap();
        assert_eq!(forget().await, Forgotten::StillRuns);
        drop(presence);
        while store.is_node_running("node-a".into()).await.unwrap() {
            tokio::task::yield_now().await;
        }
    }
    let job = store.add_job(hand_job(), clock.now()).await.unwrap().id().clone();
    let Claim::Claimed { epoch, .. } =
        store.claim(job.clone(), 9, "node-a".into(), HOUR, clock.now()).await.unwrap()
    else {
        panic!("there is a place")
    };
    assert_eq!(forget().await, Forgotten::HasLeases(1));
    let outcome = Outcome::Completed { summary: None };
    store.settle(job, epoch, outcome, Retry::default(), clock.now()).await.unwrap();
    assert_eq!((forget().await, forget().await), (Forgotten::Done, Forgotten::NoNode));
    assert!(store.nodes().await.unwrap().is_empty());
}
