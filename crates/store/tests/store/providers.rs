//! Providers: a usage limit parks the jobs of all agents that share a provider, and a job starts only if there is a
//! free slot.

use cowhand_core::attempt::{Settlement, UsageLimit};
use cowhand_core::event::Fact;
use cowhand_core::id::JobId;
use cowhand_core::job::{ErrorKind, FailReason, JobError, JobStatus, NewJob, Outcome};
use cowhand_core::lease::OnLostLease;
use cowhand_core::policy::Retry;
use cowhand_core::provider::{LimitedProvider, Provider};
use cowhand_store::{Claim, ProviderAndRuntime, Settled, Starter, Store};
use jiff::{SignedDuration, Timestamp};
use sqlx::Connection;

use crate::{TestDb, at, hand_job, on_both};

on_both! {
    a_usage_limit_parks_all_agents_of_the_provider,
    agents_share_the_slots_of_a_provider,
    starts_at_a_provider_are_paced,
    racing_claims_take_one_provider_slot_once,
    a_begun_session_keeps_its_runtime,
}

const AGENTS: [&str; 2] = ["coder", "other"];

fn slot(limits: Provider) -> LimitedProvider {
    LimitedProvider { provider: "claude".into(), limits }
}

fn starter(limits: Provider) -> Starter {
    let (node, lease) = ("node".to_owned(), SignedDuration::from_mins(1));
    Starter {
        node,
        lease,
        on_lost: OnLostLease::Pause,
        max_concurrent: 9,
        session_key: None,
        limits: None,
        slot: Some(slot(limits)),
    }
}

async fn job_of(store: &Store, agent: &str) -> JobId {
    let new = NewJob { agent: agent.parse().unwrap(), ..hand_job() };
    store.add_job(new, at(0)).await.unwrap().id().clone()
}

async fn claim(store: &Store, job: &JobId, limits: &Provider, second: i64) -> Claim {
    store.claim_with_limits(job.clone(), starter(limits.clone()), at(second)).await.unwrap()
}

fn epoch(claim: Claim) -> i64 {
    match claim {
        Claim::Claimed { epoch, .. } => epoch,
        other => panic!("not ours: {other:?}"),
    }
}

fn limit_reached(resets_at: Option<Timestamp>) -> Settlement {
    let error = JobError { kind: ErrorKind::RateLimited, message: "the limit".into() };
    let outcome = Outcome::Failed { reason: FailReason::Error, error, summary: None };
    Settlement { limit: Some(UsageLimit { resets_at }), ..outcome.into() }
}

async fn a_usage_limit_parks_all_agents_of_the_provider(db: TestDb) {
    let store = db.open().await;
    let any = Provider::default();
    let [first, second] = [job_of(&store, "coder").await, job_of(&store, "other").await];
    let held = epoch(claim(&store, &first, &any, 10).await);
    let before = store.last_event().await.unwrap();
    let settled =
        store.settle(first.clone(), held, limit_reached(Some(at(100))), Retry::default(), at(20)).await;
    let Settled::Done(parked) = settled.unwrap() else { panic!("fenced") };
    assert_eq!((parked.status(), parked.parks(), parked.attempts()), (JobStatus::Pending, 1, 1));
    let event = store.events_after(before, 9).await.unwrap().pop().unwrap();
    let expected = Fact::JobParked {
        attempt: 1,
        provider: "claude".into(),
        until: at(100),
        message: "the limit".into(),
    };
    assert_eq!(event.fact, expected);
    assert_eq!(store.providers().await.unwrap()["claude"].parked.as_ref().unwrap().until, at(100));

    for job in [&first, &second] {
        assert!(matches!(claim(&store, job, &any, 99).await, Claim::NoProviderSlot), "{job}");
    }
    // A job without this provider starts.
    let elsewhere = Starter { slot: None, ..starter(any.clone()) };
    let third = job_of(&store, "coder").await;
    assert!(matches!(
        store.claim_with_limits(third, elsewhere, at(99)).await.unwrap(),
        Claim::Claimed { .. }
    ));

    // The limit still applies after the store is opened again, and it ends.
    drop(store);
    let store = db.open().await;
    assert!(matches!(claim(&store, &first, &any, 99).await, Claim::NoProviderSlot));
    let held = epoch(claim(&store, &first, &any, 100).await);
    // The end of this limit is unknown, and it is the second limit in a row.
    let settled =
        store.settle(first.clone(), held, limit_reached(None), Retry::default(), at(110)).await.unwrap();
    let Settled::Done(parked) = settled else { panic!("fenced") };
    assert_eq!(parked.parks(), 2);
    assert!(matches!(claim(&store, &second, &any, 139).await, Claim::NoProviderSlot));
    assert!(store.unpark("claude".into(), at(120)).await.unwrap(), "somebody knows better");
    assert!(!store.unpark("claude".into(), at(120)).await.unwrap());
    epoch(claim(&store, &second, &any, 121).await);

    // A parked attempt does not count as a failed attempt, so the retry policy still allows another attempt.
    let held = epoch(claim(&store, &first, &any, 140).await);
    let retry = Retry { max_attempts: 2, ..Retry::default() };
    let settled = store.settle(first.clone(), held, Outcome::lost("gone"), retry, at(150)).await.unwrap();
    assert!(
        matches!(settled, Settled::Done(job) if job.status() == JobStatus::Pending && job.attempts() == 3)
    );
}

async fn agents_share_the_slots_of_a_provider(db: TestDb) {
    let store = db.open().await;
    let two = Provider { max_concurrent: Some(2), ..Provider::default() };
    let mut jobs = Vec::new();
    for agent in ["coder", "other", "coder"] {
        jobs.push(job_of(&store, agent).await);
    }
    let held = epoch(claim(&store, &jobs[0], &two, 10).await);
    epoch(claim(&store, &jobs[1], &two, 10).await);
    assert!(matches!(claim(&store, &jobs[2], &two, 10).await, Claim::NoProviderSlot));
    let done = Outcome::Completed { summary: None };
    store.settle(jobs[0].clone(), held, done, Retry::default(), at(20)).await.unwrap();
    epoch(claim(&store, &jobs[2], &two, 20).await);
}

async fn starts_at_a_provider_are_paced(db: TestDb) {
    let store = db.open().await;
    let paced = Provider { start_every: Some("10s".parse().unwrap()), ..Provider::default() };
    let [first, second] = [job_of(&store, "coder").await, job_of(&store, "other").await];
    epoch(claim(&store, &first, &paced, 10).await);
    assert!(matches!(claim(&store, &second, &paced, 19).await, Claim::NoProviderSlot));
    epoch(claim(&store, &second, &paced, 20).await);
}

async fn racing_claims_take_one_provider_slot_once(db: TestDb) {
    let store = db.open().await;
    let one = Provider { max_concurrent: Some(1), ..Provider::default() };
    let mut jobs = Vec::new();
    for number in 0..16 {
        jobs.push(job_of(&store, AGENTS[number % 2]).await);
    }
    let racing = jobs.iter().map(|job| {
        let (store, job, one) = (store.clone(), job.clone(), one.clone());
        tokio::spawn(async move { claim(&store, &job, &one, 10).await })
    });
    let mut won = 0;
    for racer in racing.collect::<Vec<_>>() {
        won += u32::from(matches!(racer.await.unwrap(), Claim::Claimed { .. }));
    }
    assert_eq!(won, 1);
}

/// After a usage limit, the planner sees the runtime of the job's session if the job has done something.
async fn a_begun_session_keeps_its_runtime(db: TestDb) {
    let store = db.open().await;
    let any = Provider::default();
    let job = job_of(&store, "coder").await;
    let resumes = async || store.snapshot().await.unwrap().jobs.pop().unwrap().resumes;
    let provider_and_runtime = async || store.provider_and_runtime(job.clone()).await.unwrap().unwrap();
    let attempt = async |number: u32, session: Option<&str>, settlement: Settlement| {
        let second = i64::from(number) * 100;
        let epoch = epoch(claim(&store, &job, &any, second).await);
        assert_eq!(provider_and_runtime().await.runtime, None, "not launched yet");
        if let Some(session) = session {
            store.set_attempt_location(job.clone(), number, "/srv".as_ref(), "codex").await.unwrap();
            assert_eq!(
                provider_and_runtime().await,
                ProviderAndRuntime { provider: Some("claude".into()), runtime: Some("codex".into()) }
            );
            store.set_session(job.clone(), epoch, session.to_owned(), at(second)).await.unwrap();
        }
        let retry = Retry { max_attempts: 9, ..Retry::default() };
        store.settle(job.clone(), epoch, settlement, retry, at(second + 1)).await.unwrap();
    };
    let away = |second: i64, used_no_tool| Settlement { used_no_tool, ..limit_reached(Some(at(second))) };
    assert_eq!(resumes().await, None);
    attempt(1, Some("x"), away(150, true)).await;
    assert_eq!(resumes().await, None, "it had done nothing");
    attempt(2, Some("x"), away(250, false)).await;
    assert_eq!(resumes().await.as_deref(), Some("codex"));
    attempt(3, Some("x"), away(350, true)).await;
    assert_eq!(resumes().await.as_deref(), Some("codex"), "what was done before counts");
    // An attempt that could not be started changes nothing.
    let error = JobError { kind: ErrorKind::StartFailed, message: "no".into() };
    let failed = Outcome::Failed { reason: FailReason::Error, error, summary: None };
    attempt(4, None, Settlement { used_no_tool: true, ..failed.clone().into() }).await;
    assert_eq!(resumes().await.as_deref(), Some("codex"));
    let session = store.session_of(job.clone()).await.unwrap().unwrap();
    assert!(session.outcome.unwrap().is_limit());
    // After a failure the job starts a fresh session, with any runtime.
    attempt(5, Some("x"), failed.into()).await;
    assert_eq!(resumes().await, None);
}

/// A settlement that waits for the lock of a provider holds no lock that a claim takes after the provider's lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_settlement_locks_the_provider_before_the_job() {
    let db = TestDb::postgres();
    let store = db.open().await;
    let job = job_of(&store, "coder").await;
    let held = epoch(claim(&store, &job, &Provider::default(), 10).await);
    let mut server = sqlx::PgConnection::connect(&db.url).await.unwrap();
    let mut claims = server.begin().await.unwrap();
    let lock =
        "select 1 from (select pg_advisory_xact_lock(hashtextextended('provider claude', 0))) as locked";
    sqlx::query(lock).execute(&mut *claims).await.unwrap();
    let settles = tokio::spawn({
        let (store, job) = (store.clone(), job.clone());
        async move { store.settle(job, held, limit_reached(Some(at(100))), Retry::default(), at(20)).await }
    });
    let waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
    let deadline = std::time::Instant::now() + std::time::Duration::from_mins(1);
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut *claims).await.unwrap() == 0 {
        assert!(std::time::Instant::now() < deadline, "the settlement does not wait for the provider");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let row = "select id from jobs where id = $1 for update nowait";
    sqlx::query(row).bind(job.as_str()).execute(&mut *claims).await.unwrap();
    claims.rollback().await.unwrap();
    assert!(matches!(settles.await.unwrap().unwrap(), Settled::Done(_)));
}
