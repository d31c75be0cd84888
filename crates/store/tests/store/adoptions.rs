//! The history that a schedule takes over from its former name.

use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::id::ScheduleId;
use cowhand_core::job::{ErrorKind, FailReason, JobError, JobStatus, NewJob, Outcome};
use cowhand_core::plan::{Action, LiveState, plan};
use cowhand_core::policy::Retry;
use cowhand_core::roster::{Agent, FormerName, Roster, Schedule};
use cowhand_core::schedule::SkipReason;
use cowhand_core::trigger::Occurrence;
use cowhand_store::{Fired, Store};

use crate::conformance::{claim, fire};
use crate::{HOURLY, TestDb, at, new_job, on_both, roster};

on_both! {
    a_schedule_that_fired_continues_after_both_histories,
    jobs_of_another_agent_hold_nothing_up,
    jobs_that_stayed_with_their_agent_get_a_new_schedule,
    running_jobs_of_another_agent_are_waited_for,
    a_running_job_that_is_tried_again_stays_with_its_agent,
    a_schedule_that_fired_counts_from_the_later_run,
    jobs_can_end_during_an_adoption,
    an_adopted_schedule_keeps_its_cursor,
}

const EVERY: &str = r#"{"type":"interval","interval":"1m"}"#;

fn roster_with_adoption(agent: &str, name: &str, trigger: &str, adopts: (&str, &str)) -> Roster {
    let agent: cowhand_core::id::AgentName = agent.parse().unwrap();
    let mut schedule = Schedule::new(&agent, name.parse().unwrap(), serde_json::from_str(trigger).unwrap());
    schedule.adopts = Some(FormerName { agent: adopts.0.parse().unwrap(), name: adopts.1.parse().unwrap() });
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
    // The first config does not name the former schedule, so the new schedule starts without its history.
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
    // The key `adopt` may stay in the config.
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

/// Another agent has the history, but the waiting jobs of the former schedule can still get a schedule of their agent.
async fn jobs_that_stayed_with_their_agent_get_a_new_schedule(db: TestDb) {
    let store = db.open().await;
    let old = roster(&[HOURLY]);
    store.load_schedules(old.clone(), at(0)).await.unwrap();
    fire(&store, id_of(&old), 3_600).await;
    let other = roster_with_adoption("other", "s0", HOURLY, ("coder", "s0"));
    store.load_schedules(other, at(3_601)).await.unwrap();
    let back = roster_with_adoption("coder", "new", HOURLY, ("coder", "s0"));
    assert_eq!(store.load_schedules(back.clone(), at(3_602)).await.unwrap(), []);
    let job = store.snapshot().await.unwrap().jobs.remove(0);
    assert_eq!(job.schedule_name.as_ref().map(|name| name.as_str()), Some("new"));
    let plan = plan(at(3_603), &back, &store.snapshot_of(&back, at(3_603)).await.unwrap());
    let starts = |action: &Action| matches!(action, Action::Start { job: started, .. } if *started == job.id);
    assert!(plan.actions.iter().any(starts), "{plan:?}");
    assert_eq!(store.load_schedules(back, at(3_604)).await.unwrap(), [], "it may stay in the config");
}

/// Returns the firings that the plan of an agent with a new name makes, as `key outcome`.
async fn firings(store: &Store, roster: &Roster, second: i64) -> Vec<String> {
    let snapshot = store.snapshot_of(roster, at(second)).await.unwrap();
    let plan = plan(at(second), roster, &snapshot);
    let fired = plan.actions.into_iter().filter_map(|action| match action {
        Action::Fire { key, outcome, .. } => {
            let reason = outcome.skip_reason().map_or("", SkipReason::as_str);
            Some(format!("{key} {} {reason}", outcome.as_str()).trim_end().to_owned())
        }
        _ => None,
    });
    fired.collect()
}

async fn running_jobs_of_another_agent_are_waited_for(db: TestDb) {
    let store = db.open().await;
    let old = roster(&[EVERY, HOURLY]);
    store.load_schedules(old.clone(), at(0)).await.unwrap();
    let Fired::Recorded(Some(job)) = fire_interval(&store, id_of(&old), 1).await else { panic!("a job") };
    let (job, epoch) = claim(&store, &job, 1).await;
    let new = roster_with_adoption("other", "s0", EVERY, ("coder", "s0"));
    store.load_schedules(new.clone(), at(100)).await.unwrap();
    assert_eq!(firings(&store, &new, 100).await, [""; 0], "its job runs");
    let done = Outcome::Completed { summary: None };
    store.settle(job.id().clone(), epoch, done, Retry::default(), at(110)).await.unwrap();
    let record = store.schedule(id_of(&new)).await.unwrap().unwrap();
    assert_eq!(record.last_run_at, Some(at(110)));
    assert_eq!(firings(&store, &new, 169).await, [""; 0], "it counts from the end of the job");
    assert_eq!(firings(&store, &new, 170).await, ["interval:2 ran"]);

    let hourly = old.agents[0].schedules[1].id;
    let (job, epoch) = claim(&store, &fire(&store, hourly, 3_600).await, 3_600).await;
    let new = roster_with_adoption("other", "s1", HOURLY, ("coder", "s1"));
    store.load_schedules(new.clone(), at(3_601)).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!((snapshot.jobs[0].agent.as_str(), snapshot.jobs[0].schedule), ("coder", Some(id_of(&new))));
    let due = firings(&store, &new, 7_200).await;
    assert!(due.len() == 1 && due[0].ends_with("skipped already_running"), "{due:?}");
    let done = Outcome::Completed { summary: None };
    store.settle(job.id().clone(), epoch, done, Retry::default(), at(7_300)).await.unwrap();
    let due = firings(&store, &new, 10_800).await;
    assert!(due.last().unwrap().ends_with(" ran"), "{due:?}");
}

/// The agent may never come back, so the schedule does not wait for the next attempt of the job.
async fn a_running_job_that_is_tried_again_stays_with_its_agent(db: TestDb) {
    let store = db.open().await;
    let old = roster(&[EVERY]);
    store.load_schedules(old.clone(), at(0)).await.unwrap();
    let Fired::Recorded(Some(job)) = fire_interval(&store, id_of(&old), 1).await else { panic!("a job") };
    let (job, epoch) = claim(&store, &job, 1).await;
    let new = roster_with_adoption("other", "s0", EVERY, ("coder", "s0"));
    store.load_schedules(new.clone(), at(100)).await.unwrap();
    let error = JobError { kind: ErrorKind::Exit, message: "exit code 1".to_owned() };
    let failed = Outcome::Failed { reason: FailReason::Error, error, summary: None };
    let retry = Retry { max_attempts: 2, ..Retry::default() };
    store.settle(job.id().clone(), epoch, failed, retry, at(110)).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    assert!(matches!(snapshot.jobs[0].state, LiveState::Pending { .. }), "{:?}", snapshot.jobs);
    assert_eq!((snapshot.jobs[0].agent.as_str(), snapshot.jobs[0].schedule), ("coder", None));
    assert_eq!(firings(&store, &new, 169).await, [""; 0], "it counts from the end of the attempt");
    assert_eq!(firings(&store, &new, 170).await, ["interval:2 ran"]);
}

async fn a_schedule_that_fired_counts_from_the_later_run(db: TestDb) {
    let store = db.open().await;
    let old = roster(&[EVERY]);
    store.load_schedules(old.clone(), at(0)).await.unwrap();
    let Fired::Recorded(Some(job)) = fire_interval(&store, id_of(&old), 1).await else { panic!("a job") };
    let (job, epoch) = claim(&store, &job, 1).await;
    // The former name is wrong at first, so the new schedule begins without history.
    let new = roster_with_adoption("coder", "new", EVERY, ("coder", "nobody"));
    store.load_schedules(new.clone(), at(10)).await.unwrap();
    fire_interval(&store, id_of(&new), 1).await;
    let done = Outcome::Completed { summary: None };
    store.settle(job.id().clone(), epoch, done, Retry::default(), at(30)).await.unwrap();
    let new = roster_with_adoption("coder", "new", EVERY, ("coder", "s0"));
    store.load_schedules(new.clone(), at(31)).await.unwrap();
    let record = store.schedule(id_of(&new)).await.unwrap().unwrap();
    assert_eq!((record.last_run_at, record.interval_from), (Some(at(30)), Some(at(30).into())));
}

/// Both transactions take locks in the same order, so they do not deadlock.
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
