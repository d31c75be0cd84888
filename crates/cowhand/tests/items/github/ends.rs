//! Issues from their claim to each possible end.

use std::process::Command;

use cowhand::fleet::{FleetError, TriggerRequest};
use cowhand_core::event::Fact;
use cowhand_core::job::JobStatus;
use cowhand_core::schedule::SkipReason;
use cowhand_core::work::WorkOutcome;

use super::{BY_HAND, Hub, OFTEN, WAIT, marker_of_another_fleet, minutes, output, said, trigger};
use crate::fake::{FakeFault, FakeState, OnRequest};
use crate::{jobs, stop, until};

const NO_WORK: fn(&Fact) -> bool =
    |fact| matches!(fact, Fact::ScheduleSkipped { reason: SkipReason::NoWork, .. });

#[tokio::test]
async fn issues_are_worked_on_by_priority_and_age_and_closed() {
    let hub = Hub::new("cat; echo Opened https://github.com/my-org/my-repo/pull/70", "", OFTEN).await;
    hub.fake.add(1, &["ready", "bug"]);
    hub.fake.add(2, &["ready"]);
    hub.fake.add(3, &["ready", "priority:critical"]);
    hub.fake.add(4, &["ready", "low"]);
    hub.fake.add(5, &["ready", "blocked"]);
    hub.fake.add(6, &["ready"]);
    hub.fake.state().issues.get_mut(&6).unwrap().is_pull_request = true;
    let fleet = hub.started().await;
    let mut events = fleet.subscribe_after(0);
    until(&mut events, 4, |fact| matches!(fact, Fact::WorkReported { .. })).await;
    let jobs = jobs(&fleet).await;
    let worked_on: Vec<&str> = jobs.iter().map(|job| job.work_item().unwrap().id.external_id()).collect();
    assert_eq!(worked_on, ["3", "1", "2", "4"]);
    assert!(
        jobs[1].prompt().unwrap().starts_with("Work on this.\n\n## Work Item: `Issue 1`"),
        "{:?}",
        jobs[1]
    );
    for (number, labels) in [(1, &["bug"][..]), (2, &[]), (3, &["priority:critical"]), (4, &["low"])] {
        let issue = hub.fake.issue(number);
        assert_eq!((issue.is_closed, issue.state_reason.as_deref()), (true, Some("completed")));
        assert_eq!(issue.labels, labels, "{number}");
        let [report] = &issue.comments[..] else { panic!("{:?}", issue.comments) };
        assert!(report.body.contains("\n- https://github.com/my-org/my-repo/pull/70\n"), "{report:?}");
    }
    assert_eq!(hub.fake.issue(5).labels, ["ready", "blocked"]);

    // From now on each poll is one request, and costs nothing.
    until(&mut events, 2, NO_WORK).await;
    let schedule = fleet.roster().agents[0].schedules[0].id;
    let looks = async || fleet.store().ledger(schedule, 1000).await.unwrap().len();
    let before = looks().await;
    hub.fake.requests();
    let paid = hub.fake.state().counted_requests;
    let mut events = fleet.subscribe_after(fleet.store().last_event().await.unwrap());
    until(&mut events, 3, NO_WORK).await;
    let requests = hub.fake.requests();
    let most = looks().await - before + 1;
    assert!((1..=most).contains(&requests.len()), "{most} looks: {requests:?}");
    assert!(requests.iter().all(|request| request.contains("labels=ready")), "{requests:?}");
    assert_eq!(hub.fake.state().counted_requests, paid);
    stop(fleet).await;
}

#[tokio::test]
async fn failed_issue_is_reported_and_left_for_a_person() {
    let hub = Hub::new("echo it does not compile; exit 3", "", BY_HAND).await;
    hub.fake.add(7, &["ready"]);
    let fleet = hub.started().await;
    let mut events = fleet.subscribe_after(0);
    trigger(&fleet).await;
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { outcome: WorkOutcome::Failure, .. }))
        .await;
    let issue = hub.fake.issue(7);
    assert_eq!((issue.is_closed, issue.labels.len(), issue.comments.len()), (false, 0, 1), "{issue:?}");
    assert!(issue.comments[0].body.contains("it does not compile"), "{issue:?}");
    let by_hand = TriggerRequest { schedule: Some("poll".parse().unwrap()), ..TriggerRequest::default() };
    let none = fleet.trigger(&"worker".parse().unwrap(), by_hand).await.unwrap_err();
    assert!(matches!(none, FleetError::NotRun { reason: SkipReason::NoWork, .. }), "{none:?}");
    stop(fleet).await;
}

#[tokio::test]
async fn failed_issue_is_retried_until_max_item_attempts() {
    let hub = Hub::new("exit 3", ", on_failure: release, max_item_attempts: 3", OFTEN).await;
    hub.fake.add(7, &["ready"]);
    let fleet = hub.started().await;
    let mut events = fleet.subscribe_after(0);
    let seen = until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { .. })).await;
    let released = seen.iter().filter(|event| matches!(event.fact, Fact::WorkReleased { .. })).count();
    assert_eq!((released, jobs(&fleet).await.len()), (2, 3));
    let issue = hub.fake.issue(7);
    assert_eq!((issue.is_closed, issue.labels.len(), issue.comments.len()), (false, 0, 3), "{issue:?}");
    assert_eq!(said(&issue, "has released this issue").len(), 2);
    assert_eq!(said(&issue, "3 times in a row and is left for a person").len(), 1);
    stop(fleet).await;
}

/// The job is cancelled, or lost with its keeper; the ready label is put back or not.
#[tokio::test]
async fn cancelled_or_lost_job_releases_issue_with_comment() {
    for (more, labels) in [("", &["ready"][..]), (", cleanup_on_failure: false", &[])] {
        for is_cancelled in [true, false] {
            let script = format!("echo $PPID $$ > pids; {WAIT}");
            let hub = Hub::new(&script, more, BY_HAND).await;
            hub.fake.add(7, &["ready"]);
            let fleet = hub.started().await;
            let mut events = fleet.subscribe_after(0);
            let job = trigger(&fleet).await;
            until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
            assert_eq!(hub.fake.issue(7).labels, ["agent-working"]);
            if is_cancelled {
                fleet.cancel(job.id().clone()).await.unwrap();
            } else {
                kill(&hub).await;
            }
            until(&mut events, 1, |fact| matches!(fact, Fact::WorkReleased { .. })).await;
            let issue = hub.fake.issue(7);
            assert_eq!((&issue.labels[..], issue.is_closed), (&owned(labels)[..], false), "{issue:?}");
            let [comment] = &issue.comments[..] else { panic!("{:?}", issue.comments) };
            let why = if is_cancelled { "was cancelled" } else { "failed: " };
            assert!(comment.body.contains("cowhand has released this issue"), "{comment:?}");
            assert!(comment.body.contains(&format!("{} {why}", job.id())), "{comment:?}");
            stop(fleet).await;
        }
    }
}

fn owned(labels: &[&str]) -> Vec<String> {
    labels.iter().map(|&label| label.to_owned()).collect()
}

/// Kills the keeper first, so that it does not write the end of the agent.
async fn kill(hub: &Hub) {
    let pids = loop {
        let pids = std::fs::read_to_string(hub.scene.path("pids")).unwrap_or_default();
        if pids.ends_with('\n') {
            break pids;
        }
        tokio::task::yield_now().await;
    };
    for pid in pids.split_whitespace() {
        let killed = Command::new("kill").args(["-9", pid]).status().unwrap();
        assert!(killed.success(), "{pid}");
    }
}

#[tokio::test]
async fn lost_claim_tries_next_issue() {
    // The schedule is triggered by hand, because a poll would try the first issue again, and hold its row for a moment.
    let hub = Hub::new("cat", "", BY_HAND).await;
    hub.fake.add(1, &["ready"]);
    hub.fake.add(2, &["ready"]);
    let mut is_done = false;
    let rival = move |line: &str, fake_state: &mut FakeState| {
        if !is_done && line.ends_with("/issues/1/comments") && line.starts_with("POST") {
            is_done = true;
            let marker = marker_of_another_fleet(fake_state.now + minutes(30));
            fake_state.comment(1, "somebody", &marker);
        }
    };
    hub.fake.state().on_request = Some(OnRequest(Box::new(rival)));
    let fleet = hub.started().await;
    let mut events = fleet.subscribe_after(0);
    trigger(&fleet).await;
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { .. })).await;
    assert!(hub.fake.issue(2).is_closed);
    let issue = hub.fake.issue(1);
    assert_eq!((issue.comments.len(), issue.is_closed), (1, false), "nothing of ours is left: {issue:?}");
    assert_eq!(jobs(&fleet).await.len(), 1);
    assert!(fleet.store().items().await.unwrap().is_empty());
    stop(fleet).await;
}

#[tokio::test]
async fn failed_report_is_sent_later() {
    let hub = Hub::new(WAIT, "", BY_HAND).await;
    hub.fake.add(7, &["ready"]);
    let fleet = hub.started().await;
    let mut events = fleet.subscribe_after(0);
    let job = trigger(&fleet).await;
    // The first faults use up the retries of the client. The others last for the rest of the test.
    for status in [502; 4].into_iter().chain([403; 100]) {
        hub.fake.fault("POST /repos/my-org/my-repo/issues/7/comments", FakeFault::status(status));
    }
    hub.go();
    let mut messages = Vec::new();
    for _ in 0..2 {
        let seen = until(&mut events, 1, |fact| matches!(fact, Fact::WorkDelayed { .. })).await;
        let Fact::WorkDelayed { message, .. } = &seen.last().unwrap().fact else { panic!("delayed") };
        messages.push(message.clone());
        let mut list = Command::new(env!("CARGO_BIN_EXE_cowhand"));
        list.args(["work", "list", "--all", "-c"]).arg(hub.scene.path("cowhand.yaml"));
        let list = String::from_utf8(output(list).await.stdout).unwrap();
        assert!(list.contains("github-7") && list.contains("closing, not reported yet"), "{list}");
    }
    assert!(messages[0].contains("502") && messages[1].contains("403"), "{messages:?}");
    hub.fake.state().faults.clear();
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { .. })).await;
    let job = fleet.store().job(job.id().clone()).await.unwrap().unwrap();
    assert_eq!(job.status(), JobStatus::Completed);
    let issue = hub.fake.issue(7);
    assert_eq!((issue.is_closed, issue.labels.len(), issue.comments.len()), (true, 0, 1), "{issue:?}");
    stop(fleet).await;
}

/// A rate limit lasts longer than the client waits: the schedule shows it, and its end.
#[tokio::test]
async fn rate_limited_poll_shows_end_of_limit() {
    let hub = Hub::new("cat", "", OFTEN).await;
    hub.fake.add(7, &["ready"]);
    let reset = hub.fake.state().now + minutes(30);
    let budget = [
        ("x-ratelimit-limit", "5000".to_owned()),
        ("x-ratelimit-remaining", "0".to_owned()),
        ("x-ratelimit-reset", reset.as_second().to_string()),
    ];
    let budget: Vec<(&'static str, &str)> =
        budget.iter().map(|(name, value)| (*name, value.as_str())).collect();
    hub.fake
        .fault("GET /repos/my-org/my-repo/issues", FakeFault::with(403, &budget, "API rate limit exceeded"));
    let fleet = hub.started().await;
    let mut events = fleet.subscribe_after(0);
    let seen = until(&mut events, 1, |fact| matches!(fact, Fact::ScheduleDelayed { .. })).await;
    let Fact::ScheduleDelayed { message } = &seen.last().unwrap().fact else { panic!("delayed") };
    let hour = reset.strftime("until %Y-%m-%dT%H:").to_string();
    assert!(message.contains("GitHub's rate limit is reached") && message.contains(&hour), "{message}");
    assert_eq!(hub.fake.requests().len(), 1, "and until then nothing is asked");
    stop(fleet).await;
}
