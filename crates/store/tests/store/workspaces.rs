//! Workspaces and sessions: the jobs that have them, and the jobs that continue them.

use std::path::{Path, PathBuf};

use cowhand_core::chat::ChatPlatform;
use cowhand_core::id::JobId;
use cowhand_core::job::{Job, JobStatus, NewJob, OriginMessage, Outcome};
use cowhand_core::lease::OnLostLease;
use cowhand_core::policy::Retry;
use cowhand_core::session::SessionPolicy;
use cowhand_core::workspace::{IsolationKind, Workspace};
use cowhand_store::{Claim, Settled, Starter, Store, StoredSession, WorkspaceState};
use jiff::{SignedDuration, Timestamp};

use crate::{TestDb, at, hand_job, on_both};

on_both! {
    a_workspace_has_one_live_job_at_a_time,
    workspaces_with_long_paths_are_stored,
    jobs_with_one_session_run_one_at_a_time,
    the_newest_session_of_a_key_continues,
    a_job_knows_its_chat,
    sessions_of_chats_with_long_names_are_stored,
}

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn workspace(job: &JobId, path: &str) -> Workspace {
    Workspace {
        node: "n".into(),
        path: PathBuf::from(path),
        job: job.clone(),
        agent: "coder".parse().unwrap(),
        kind: IsolationKind::Worktree,
        repository: PathBuf::from("/srv/my repository"),
        branch: format!("cowhand/coder/{job}"),
        base: "abc".into(),
    }
}

async fn claim(store: &Store, job: &Job, key: Option<&str>, now: Timestamp) -> Claim {
    let session_key = key.map(str::to_owned);
    let starter = Starter {
        node: "n".into(),
        lease: MINUTE,
        on_lost: OnLostLease::Pause,
        max_concurrent: 9,
        shared: cowhand_store::SharedLimits::default(),
        session_key,
        limits: None,
        slot: None,
    };
    store.claim_with_limits(job.id().clone(), starter, now).await.unwrap()
}

async fn start(store: &Store, job: &Job, key: Option<&str>, now: Timestamp) -> i64 {
    let Claim::Claimed { epoch, .. } = claim(store, job, key, now).await else { panic!("not claimed") };
    epoch
}

async fn end(store: &Store, job: &Job, epoch: i64, now: Timestamp) {
    let done = Outcome::Completed { summary: None };
    let settled = store.settle(job.id().clone(), epoch, done, Retry::default(), now).await.unwrap();
    assert!(matches!(settled, Settled::Done(_)));
}

/// PostgreSQL cannot index long texts that cannot be compressed.
async fn sessions_of_chats_with_long_names_are_stored(db: TestDb) {
    let store = db.open().await;
    let long: String = std::iter::repeat_with(fastrand::alphanumeric).take(4000).collect();
    for chat in [&long, &format!("{long}2")] {
        let key = SessionPolicy::PerChat.key(None, Some(chat)).unwrap();
        let [one, two] = [1, 2].map(|second| store.add_job(hand_job(), at(second)));
        let (one, two) = (one.await.unwrap(), two.await.unwrap());
        let epoch = start(&store, &one, Some(&key), at(3)).await;
        assert!(!matches!(claim(&store, &two, Some(&key), at(4)).await, Claim::Claimed { .. }));
        end(&store, &one, epoch, at(5)).await;
        let epoch = start(&store, &two, Some(&key), at(6)).await;
        end(&store, &two, epoch, at(7)).await;
    }
}

async fn a_workspace_has_one_live_job_at_a_time(db: TestDb) {
    let store = db.open().await;
    let one = store.add_job(hand_job(), at(1)).await.unwrap();
    let two = store.add_job(hand_job(), at(2)).await.unwrap();
    let made = workspace(one.id(), "/state/workspaces/one");
    store.record_workspace(made.clone(), at(3)).await.unwrap();
    let of = async |job: &Job| store.workspace_of("n".into(), job.id().clone()).await.unwrap();
    let stored = of(&one).await.unwrap();
    assert_eq!((&stored.workspace, stored.state, stored.is_live()), (&made, WorkspaceState::Making, true));
    assert_eq!(of(&two).await, None);
    let take = async |job: &Job| {
        store.give_workspace("n".into(), made.path.clone(), job.id().clone()).await.unwrap()
    };
    assert_eq!(take(&one).await, None, "it may be half there");
    store.set_workspace_state(&made, WorkspaceState::Used, at(4)).await.unwrap();
    assert_eq!(take(&two).await, None, "its job has not ended");
    let epoch = start(&store, &one, None, at(5)).await;
    assert_eq!(take(&two).await, None);
    end(&store, &one, epoch, at(6)).await;
    let until = Some(at(100));
    store.set_workspace_state(&made, WorkspaceState::Kept { until }, at(7)).await.unwrap();
    let stored = of(&one).await.unwrap();
    assert_eq!(stored.state, WorkspaceState::Kept { until });
    assert_eq!(stored.job_status, Some(JobStatus::Completed));
    assert_eq!(take(&two).await, Some(Workspace { job: two.id().clone(), ..made.clone() }));
    assert_eq!(of(&one).await, None, "it has been handed on");
    let anywhere = async |job: &Job| store.workspace_anywhere(job.id().clone()).await.unwrap();
    assert_eq!(anywhere(&one).await, None);
    assert_eq!(anywhere(&two).await, of(&two).await);
    assert_eq!(of(&two).await.unwrap().state, WorkspaceState::Used);
    assert_eq!(store.workspaces("other".into()).await.unwrap(), []);
    assert_eq!(store.workspaces("n".into()).await.unwrap().len(), 1);
    store.set_workspace_state(&made, WorkspaceState::Branch, at(8)).await.unwrap();
    assert_eq!(of(&two).await, None, "only its branch is left");
    assert_eq!(anywhere(&two).await.unwrap().state, WorkspaceState::Branch);
    assert_eq!(take(&two).await, None);
    store.forget_workspace(&made).await.unwrap();
    assert_eq!(store.workspaces("n".into()).await.unwrap(), []);
}

/// PostgreSQL cannot index long texts that cannot be compressed.
async fn workspaces_with_long_paths_are_stored(db: TestDb) {
    let store = db.open().await;
    let long: String = std::iter::repeat_with(fastrand::alphanumeric).take(4000).collect();
    let job = store.add_job(hand_job(), at(1)).await.unwrap();
    let [one, two] = ["one", "two"].map(|name| workspace(job.id(), &format!("/{long}/{name}")));
    for made in [&one, &two, &one] {
        store.record_workspace(made.clone(), at(2)).await.unwrap();
    }
    store.set_workspace_state(&one, WorkspaceState::Used, at(3)).await.unwrap();
    let states = async || {
        let stored = store.workspaces("n".into()).await.unwrap();
        stored.into_iter().map(|stored| (stored.workspace, stored.state)).collect::<Vec<_>>()
    };
    assert_eq!(states().await, [(one.clone(), WorkspaceState::Used), (two.clone(), WorkspaceState::Making)]);
    store.forget_workspace(&one).await.unwrap();
    assert_eq!(states().await, [(two, WorkspaceState::Making)]);
}

async fn jobs_with_one_session_run_one_at_a_time(db: TestDb) {
    let store = db.open().await;
    let mut jobs = Vec::new();
    for second in 0..4 {
        jobs.push(store.add_job(hand_job(), at(second)).await.unwrap());
    }
    let other = store.add_job(NewJob { agent: "other".parse().unwrap(), ..hand_job() }, at(9)).await.unwrap();
    let epoch = start(&store, &jobs[0], Some("agent"), at(10)).await;
    assert_eq!(claim(&store, &jobs[1], Some("agent"), at(11)).await, Claim::SessionBusy);
    start(&store, &jobs[2], Some("item 7"), at(11)).await;
    start(&store, &jobs[3], None, at(11)).await;
    start(&store, &other, Some("agent"), at(11)).await;
    let live = store.snapshot().await.unwrap().jobs;
    let keys: Vec<_> = live.iter().map(|job| job.session_key.as_deref()).collect();
    assert_eq!(keys, [Some("agent"), None, Some("item 7"), None, Some("agent")]);
    end(&store, &jobs[0], epoch, at(12)).await;
    // Of two concurrent claims, one succeeds.
    let late = store.add_job(hand_job(), at(13)).await.unwrap();
    let (one, two) = tokio::join!(
        claim(&store, &jobs[1], Some("agent"), at(14)),
        claim(&store, &late, Some("agent"), at(14))
    );
    let claimed = [&one, &two].iter().filter(|claim| matches!(claim, Claim::Claimed { .. })).count();
    assert_eq!(claimed, 1, "{one:?} {two:?}");
    assert!([one, two].contains(&Claim::SessionBusy));
}

async fn the_newest_session_of_a_key_continues(db: TestDb) {
    let store = db.open().await;
    let mut jobs = Vec::new();
    for number in 0..3 {
        let begin = at(number * 10);
        let job = store.add_job(hand_job(), begin).await.unwrap();
        let epoch = start(&store, &job, Some("agent"), begin).await;
        store.set_attempt_location(job.id().clone(), 1, Path::new("/srv/desk"), "claude").await.unwrap();
        if number < 2 {
            store.set_session(job.id().clone(), epoch, format!("s-{number}"), begin).await.unwrap();
        }
        end(&store, &job, epoch, at(number * 10 + 5)).await;
        jobs.push(job);
    }
    let next = store.add_job(hand_job(), at(40)).await.unwrap();
    let newest = async |key: &str, since| {
        let (agent, job) = ("coder".parse().unwrap(), next.id().clone());
        let found = store.newest_session(agent, key.into(), Some(job), at(since)).await.unwrap();
        found.map(|found| found.session_id)
    };
    assert_eq!(newest("agent", 0).await.as_deref(), Some("s-1"), "the last one told none");
    assert_eq!(newest("agent", 15).await.as_deref(), Some("s-1"));
    assert_eq!(newest("agent", 16).await, None, "it has expired");
    assert_eq!(newest("item 7", 0).await, None);
    let stored = store.session_of(jobs[1].id().clone()).await.unwrap().unwrap();
    let expected = StoredSession {
        job: jobs[1].id().clone(),
        session_id: "s-1".into(),
        node: "n".into(),
        directory: Some("/srv/desk".into()),
        runtime: Some("claude".into()),
        outcome: stored.outcome.clone(),
    };
    assert!(matches!(stored.outcome, Some(Outcome::Completed { .. })), "{stored:?}");
    assert_eq!(stored, expected);
    assert_eq!(store.session_of(jobs[2].id().clone()).await.unwrap(), None);
    store.forget_session(jobs[1].id().clone()).await.unwrap();
    assert_eq!(newest("agent", 0).await.as_deref(), Some("s-0"));
    assert!(store.has_session("coder".parse().unwrap(), "agent".into(), at(0)).await.unwrap());
    store.clear_agent("coder".parse().unwrap(), at(50)).await.unwrap();
    assert_eq!(newest("agent", 0).await, None);
    assert!(!store.has_session("coder".parse().unwrap(), "agent".into(), at(0)).await.unwrap());
    assert!(store.session_of(jobs[0].id().clone()).await.unwrap().is_some(), "a person can still go on");
}

async fn a_job_knows_its_chat(db: TestDb) {
    let store = db.open().await;
    let chat = Some("slack C1/1.2 \u{fc}".to_owned());
    let message = OriginMessage {
        platform: ChatPlatform::Slack,
        id: "C1:1.2".into(),
        channel: "C1".into(),
        thread: None,
        author: "UANN".into(),
        retried_by: None,
        author_name: Some("Ann".into()),
        url: Some("https://slack.example/1".into()),
    };
    let new = NewJob { chat: chat.clone(), message: Some(message.clone()), ..hand_job() };
    let of_chat = store.add_job(new, at(1)).await.unwrap();
    let of_none = store.add_job(hand_job(), at(2)).await.unwrap();
    let read = async |job: &Job| store.job(job.id().clone()).await.unwrap().unwrap();
    assert_eq!((read(&of_chat).await.chat(), read(&of_none).await.chat()), (chat.as_deref(), None));
    assert_eq!((read(&of_chat).await.message(), read(&of_none).await.message()), (Some(&message), None));
    let live = store.snapshot().await.unwrap().jobs;
    assert_eq!(live.iter().map(|job| job.chat.clone()).collect::<Vec<_>>(), [chat.clone(), None]);
    let epoch = start(&store, &of_chat, Some("chat x"), at(3)).await;
    end(&store, &of_chat, epoch, at(4)).await;
    let ended = read(&of_chat).await;
    assert_eq!((ended.chat(), ended.message()), (chat.as_deref(), Some(&message)), "to its end and after");
}
