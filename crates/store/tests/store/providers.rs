//! Providers: a usage limit parks the jobs of all agents that share a provider, and a job starts only if there is a
//! free slot.

use cowhand_core::attempt::{Settlement, UsageLimit};
use cowhand_core::event::Fact;
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::id::JobId;
use cowhand_core::job::{ErrorKind, FailReason, JobError, JobStatus, NewJob, Outcome};
use cowhand_core::lease::OnLostLease;
use cowhand_core::percent::Percent;
use cowhand_core::policy::Retry;
use cowhand_core::provider::{LimitedProvider, Provider, UsageWindow, WindowUsage};
use cowhand_core::trigger::{ChatPlatform, Occurrence};
use cowhand_store::{Claim, Fired, ProviderAndRuntime, Settled, Starter, Store};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use sqlx::Connection;

use crate::{TestDb, at, hand_job, on_both, with_schedule};

on_both! {
    a_usage_limit_parks_all_agents_of_the_provider,
    agents_share_the_slots_of_a_provider,
    starts_at_a_provider_are_paced,
    racing_claims_take_one_provider_slot_once,
    a_begun_session_keeps_its_runtime,
    a_reached_reserve_holds_only_automatic_jobs_back,
    the_newest_report_about_a_window_is_stored,
}

const AGENTS: [&str; 2] = ["coder", "other"];

fn slot(limits: Provider) -> LimitedProvider {
    LimitedProvider { provider: "claude".into(), limits, zone: TimeZone::UTC }
}

fn starter(limits: Provider) -> Starter {
    let (node, lease) = ("node".to_owned(), SignedDuration::from_mins(1));
    Starter {
        node,
        lease,
        on_lost: OnLostLease::Pause,
        max_concurrent: 9,
        shared: cowhand_store::SharedLimits::default(),
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

fn usage(percent: u32, resets: i64, reported: i64) -> WindowUsage {
    let (window, used) = (UsageWindow::FiveHour, Percent::of_tenths(percent * 10));
    WindowUsage { window, used, resets_at: at(resets), reported_at: at(reported) }
}

async fn a_reached_reserve_holds_only_automatic_jobs_back(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let keeps = Provider { reserve: Some("20%".parse().unwrap()), ..Provider::default() };
    let fire = async |occurrence: Occurrence<'_>, second: i64| {
        let (key, decision) = (occurrence.key(0), Decision::Run(hand_job()));
        let firing = NewFiring { schedule, key, due: at(second), decision, note: None };
        match store.fire_once(firing, at(second)).await.unwrap() {
            Fired::Recorded(Some(job)) => job.id().clone(),
            other => panic!("no job: {other:?}"),
        }
    };
    let platform = ChatPlatform::Slack;
    let webhook = fire(Occurrence::Webhook { delivery_id: "1" }, 1).await;
    let fired_by_hand = fire(Occurrence::Manual("1"), 2).await;
    let chat = fire(Occurrence::Chat { platform, message_id: "1" }, 3).await;
    let [by_hand, retried] = [job_of(&store, "coder").await, job_of(&store, "coder").await];
    let jobs = store.snapshot().await.unwrap().jobs;
    let automatic: Vec<_> = jobs.iter().filter(|job| job.automatic).map(|job| job.id.clone()).collect();
    assert_eq!(automatic, std::slice::from_ref(&webhook));
    // The first attempt of the automatic job runs before the reserve is reached, and is tried again after that.
    let held = epoch(claim(&store, &webhook, &keeps, 10).await);
    store.record_windows(slot(keeps.clone()), vec![usage(81, 1_000, 11)], at(11)).await.unwrap().unwrap();
    let retry = Retry { max_attempts: 2, ..Retry::default() };
    let settled = store.settle(webhook.clone(), held, Outcome::lost("gone"), retry, at(12)).await.unwrap();
    assert!(matches!(settled, Settled::Done(job) if job.status() == JobStatus::Pending));
    drop(store);
    let store = db.open().await;
    assert!(matches!(claim(&store, &webhook, &keeps, 999).await, Claim::NoProviderSlot));
    for job in [&fired_by_hand, &chat, &by_hand, &retried] {
        epoch(claim(&store, job, &keeps, 20).await);
    }
    let new = NewFiring {
        schedule,
        key: Occurrence::Event { seq: 5 }.key(0),
        due: at(30),
        decision: Decision::Run(hand_job()),
        note: None,
    };
    let fired = store.fire_and_claim(new, starter(keeps.clone()), at(30)).await.unwrap();
    let Fired::Recorded(Some(new)) = fired else { panic!("{fired:?}") };
    for job in [&webhook, new.id()] {
        assert!(matches!(claim(&store, job, &keeps, 999).await, Claim::NoProviderSlot));
        epoch(claim(&store, job, &keeps, 1_000).await);
    }
}

async fn the_newest_report_about_a_window_is_stored(db: TestDb) {
    let store = db.open().await;
    let keeps = || slot(Provider { reserve: Some("20%".parse().unwrap()), ..Provider::default() });
    let report = async |usages: Vec<WindowUsage>, second: i64| {
        let reached = store.record_windows(keeps(), usages, at(second)).await.unwrap();
        reached.map(|reached| reached.until.duration_since(at(0)).as_secs())
    };
    let events = async |after| {
        let events = store.events_after(after, 9).await.unwrap();
        events.iter().map(|event| event.fact.type_name()).collect::<Vec<_>>()
    };
    let start = store.last_event().await.unwrap();
    let week =
        |used, resets, reported| WindowUsage { window: UsageWindow::Weekly, ..usage(used, resets, reported) };
    assert_eq!(report(vec![usage(50, 1_000, 1), week(10, 9_000, 1)], 1).await, None);
    assert_eq!(report(vec![usage(85, 1_000, 10)], 10).await, Some(1_000));
    assert_eq!(report(vec![usage(40, 1_000, 5)], 20).await, Some(1_000), "an older report");
    assert_eq!(report(vec![usage(86, 1_001, 21)], 21).await, Some(1_001));
    assert_eq!(events(start).await, ["provider:reserved"], "the state changed once");
    let before = store.last_event().await.unwrap();
    assert_eq!(report(vec![week(95, 9_000, 30)], 30).await, Some(9_000));
    assert_eq!(
        report(vec![week(20, 9_000, 40), usage(0, 1_000, 40)], 40).await,
        None,
        "somebody bought more"
    );
    assert_eq!(report(vec![week(95, 9_000, 50)], 50).await, Some(9_000));
    assert_eq!(report(vec![week(1, 90_000, 10_000)], 10_000).await, None, "a new week");
    let expected = ["provider:reserved", "provider:released", "provider:reserved"];
    assert_eq!(events(before).await, expected, "the end of a window is no event");
    // The clock was set back.
    assert_eq!(report(vec![week(90, 5_000, 100)], 100).await, Some(5_000));
    let windows = store.providers().await.unwrap()["claude"].windows.clone();
    assert_eq!(windows, [usage(0, 1_000, 40), week(90, 5_000, 100)]);
    let [first, second] = [job_of(&store, "coder").await, job_of(&store, "other").await];
    epoch(claim(&store, &first, &Provider::default(), 110).await);
    assert_eq!(store.provider_of(first).await.unwrap().as_deref(), Some("claude"));
    assert_eq!(store.provider_of(second).await.unwrap(), None);
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
