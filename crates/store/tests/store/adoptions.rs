//! What a schedule takes over from its former name.

use cowhand_core::id::ScheduleId;
use cowhand_core::job::{JobStatus, NewJob, Outcome};
use cowhand_core::policy::Retry;
use cowhand_core::roster::{Agent, Former, Roster, Schedule};
use cowhand_core::trigger::Occurrence;
use cowhand_store::{Decision, Fired, NewFiring, Store};

use crate::conformance::{claim, fire};
use crate::{HOURLY, TestDb, at, new_job, on_both, roster};

on_both! {
    a_schedule_that_fired_continues_after_both_histories,
    jobs_of_another_agent_hold_nothing_up,
    jobs_can_end_during_an_adoption,
    an_adopted_schedule_keeps_its_cursor,
}

const EVERY: &str = r#"{"type":"interval","interval":"1m"}"#;

fn roster_with_adoption(agent: &str, name: &str, trigger: &str, adopts: (&str, &str)) -> Roster {
    let agent: cowhand_core::id::AgentName = agent.parse().unwrap();
    let mut schedule = Schedule::new(&agent, name.parse().unwrap(), serde_json::from_str(trigger).unwrap());
    schedule.adopts = Some(Former { agent: adopts.0.parse().unwrap(), name: adopts.1.parse().unwrap() });
    Roster::of(vec![Agent { schedules: vec![schedule], ..Agent::new(agent.clone()) }])
}

fn id_of(roster: &Roster) -> ScheduleId {
    roster.agents[0].schedules[0].id
}

async fn fire_interval(store: &Store, schedule: ScheduleId, number: u64) -> Fired {
    let due = at(number.cast_signed());
    let key = Occurrence::Interval(number).key(0);
    store
        .fire_once(NewFiring { schedule, key, due, decision: Decision::Run(new_job()), note: None }, due)
        .await
        .unwrap()
}

async fn a_schedule_that_fired_continues_after_both_histories(db: TestDb) {
    let store = db.open().await;
    let old = roster(&[EVERY]);
    store.load_schedules(old.clone(), at(0)).await.unwrap();
    for number in 1..=3 {
        fire_interval(&store, id_of(&old), number).await;
    }
    // Misspelt at first, and so begun anew.
    let new = roster_with_adoption("coder", "new", EVERY, ("coder", "nobody"));
    for _ in ["at first", "again"] {
        let empty = store.load_schedules(new.clone(), at(10)).await.unwrap();
        assert_eq!(
            empty.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["coder/new took over no history: its `adopt` names coder/nobody, which the store does not know"]
        );
    }
    fire_interval(&store, id_of(&new), 1).await;
    let new = roster_with_adoption("coder", "new", EVERY, ("coder", "s0"));
    assert_eq!(store.load_schedules(new.clone(), at(20)).await.unwrap(), []);
    let record = store.schedule(id_of(&new)).await.unwrap().unwrap();
    assert_eq!(record.interval_count, 3, "{record:?}");
    assert_eq!(store.ledger(id_of(&new), 10).await.unwrap().len(), 3);
    assert!(matches!(fire_interval(&store, id_of(&new), 4).await, Fired::Recorded(Some(_))));
    // The line may stay.
    assert_eq!(store.load_schedules(new.clone(), at(30)).await.unwrap(), []);
    assert_eq!(store.schedules().await.unwrap().len(), 1);
}

async fn jobs_of_another_agent_hold_nothing_up(db: TestDb) {
    let store = db.open().await;
    let old = roster(&[HOURLY]);
    store.load_schedules(old.clone(), at(0)).await.unwrap();
    let job = fire(&store, id_of(&old), 3_600).await;
    let new = roster_with_adoption("other", "s0", HOURLY, ("coder", "s0"));
    store.load_schedules(new.clone(), at(3_601)).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    let waiting = snapshot.jobs.iter().find(|live| live.id == *job.id()).unwrap();
    assert_eq!((waiting.agent.as_str(), waiting.schedule), ("coder", None));
    let ledger = store.ledger(id_of(&new), 10).await.unwrap();
    assert_eq!(ledger[0].job.as_ref(), Some(job.id()));
    let jobs_of_firing: Vec<_> = ledger[0].jobs.iter().map(|job| (&job.id, job.status)).collect();
    assert_eq!(
        jobs_of_firing,
        [(job.id(), JobStatus::Pending)],
        "the firing is told with its job, which has not run"
    );
}

/// Both transactions take locks in one order, so they do not deadlock.
async fn jobs_can_end_during_an_adoption(db: TestDb) {
    let (store, beside) = (db.open().await, db.open().await);
    let mut name = "s0".to_owned();
    store.load_schedules(roster(&[HOURLY]), at(0)).await.unwrap();
    for round in 1..=20 {
        let schedule = ScheduleId::of(&"coder".parse().unwrap(), &name.parse().unwrap());
        let due = 3_600 * round;
        let decision = Decision::Run(NewJob { schedule: Some(name.parse().unwrap()), ..new_job() });
        let firing = NewFiring { schedule, key: crate::cron_key(due), due: at(due), decision, note: None };
        let Fired::Recorded(Some(job)) = store.fire_once(firing, at(due)).await.unwrap() else {
            panic!("a job")
        };
        let (job, epoch) = claim(&store, &job, due + 1).await;
        let next = format!("s{round}");
        let roster = roster_with_adoption("coder", &next, HOURLY, ("coder", &name));
        let done = Outcome::Completed { summary: None };
        let (settled, loaded) = tokio::join!(
            store.settle(job.id().clone(), epoch, done, Retry::default(), at(due + 2)),
            beside.load_schedules(roster.clone(), at(due + 2))
        );
        settled.unwrap();
        loaded.unwrap();
        let rows = store.ledger(id_of(&roster), 100).await.unwrap();
        assert_eq!(rows.len(), usize::try_from(round).unwrap());
        name = next;
    }
}

/// Events from before the new name is loaded are still processed.
async fn an_adopted_schedule_keeps_its_cursor(db: TestDb) {
    const LIFE: &str = r#"{"type":"agent_lifecycle","event":"session_start"}"#;
    let store = db.open().await;
    let old = roster(&[LIFE]);
    store.load_schedules(old.clone(), at(0)).await.unwrap();
    let seen = store.cursor(id_of(&old)).await.unwrap();
    store.add_job(crate::hand_job(), at(1)).await.unwrap();
    let new = roster_with_adoption("coder", "new", LIFE, ("coder", "s0"));
    store.load_schedules(new.clone(), at(2)).await.unwrap();
    assert!(seen.is_some());
    assert_eq!(store.cursor(id_of(&new)).await.unwrap(), seen);
    assert_eq!(store.cursor(id_of(&old)).await.unwrap(), None);
}
