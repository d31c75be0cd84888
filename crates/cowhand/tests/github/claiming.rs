//! Claims by one claimant at a time: the requests of a claim, the reasons for a refusal, and changes by others during a
//! claim.

use cowhand::work::github::{ClaimMethod, GitHubSettings};
use cowhand::work::{Claimant, WorkSource, WorkSourceError};
use cowhand_core::work::ClaimFailureReason::{
    AlreadyClaimed, InvalidState, NotFound, PermissionDenied, SourceError,
};
use cowhand_core::work::ClaimResult;
use jiff::{SignedDuration, Timestamp};

use crate::fake::{Fake, FakeFault, FakeState, LOGIN, OnRequest, REPO};
use crate::{claim, claimant, id, scene, settings, source_with};

/// Returns a claim marker of another fleet.
fn marker_of_another_fleet(until: Timestamp) -> String {
    let json = serde_json::json!({ "fleet": "others", "holder": "job-x", "until": until });
    format!("<!-- cowhand:claim {json} -->\ncowhand is working on this")
}

fn in_minutes(fake: &Fake, minutes: i64) -> Timestamp {
    fake.state().now + SignedDuration::from_mins(minutes)
}

#[tokio::test]
async fn claim_sends_requests_in_order() {
    let (fake, source) = scene().await;
    fake.add(7, &["ready", "bug"]);
    claim(&source, 7, "job-1").await.unwrap();
    let expected = [
        "GET /issues/7",
        "GET /user",
        "GET /issues/7/comments?per_page=100&page=1",
        "POST /issues/7/comments",
        "GET /issues/7/comments?per_page=100&page=1",
        "GET /issues/7",
        "POST /issues/7/labels",
        "DELETE /issues/7/labels/ready",
        "GET /issues/7",
    ];
    assert_eq!(fake.requests(), expected);
    let issue = fake.issue(7);
    assert_eq!(issue.labels, ["bug", "agent-working"]);
    let [comment] = &issue.comments[..] else { panic!("{:?}", issue.comments) };
    assert!(
        comment.body.starts_with("<!-- cowhand:claim {\"fleet\":\"herd\",\"holder\":\"job-1\","),
        "{comment:?}"
    );
    assert!(
        comment.body.contains("\ncowhand is working on this (` job-1 `). The claim is valid until "),
        "{comment:?}"
    );

    let agents = fake.state().user_agents.clone();
    assert!(agents.iter().all(|agent| agent.starts_with("cowhand/")), "{agents:?}");
}

/// All markers are written, one after another, before the first of them is read again: all claims share one wait.
#[tokio::test]
async fn several_claims_share_one_wait() {
    let (fake, source) = scene().await;
    for number in 1..=8 {
        fake.add(number, &["ready"]);
    }
    // Another fleet claims issue 3 before the claims of this fleet begin, and issue 5 just before this fleet writes its
    // marker.
    let marker = marker_of_another_fleet(in_minutes(&fake, 5));
    fake.state().comment(3, "somebody", &marker);
    on_first_request(&fake, "POST /repos/my-org/my-repo/issues/5/comments", move |fake_state| {
        fake_state.comment(5, "somebody", &marker);
    });
    let claims: Vec<_> = (1..=8).map(|number| (id(number), claimant(&format!("job-{number}")))).collect();
    let results = source.claim_all(&claims).await;
    for (number, result) in (1..).zip(results) {
        let expected = if number == 3 || number == 5 { Err(AlreadyClaimed) } else { Ok(id(number)) };
        let result = match result.unwrap() {
            ClaimResult::Claimed(item) => Ok(item.id),
            ClaimResult::Refused { reason, .. } => Err(reason),
        };
        assert_eq!(result, expected, "{number}");
        let ours = fake.issue(number).comments.iter().filter(|comment| comment.login == LOGIN).count();
        assert_eq!(ours, usize::from(expected.is_ok()), "{number}: a loser leaves nothing behind");
    }
    let requests = fake.requests();
    let is_marker = |request: &String| request.starts_with("POST") && request.ends_with("/comments");
    let last_marker = requests.iter().rposition(is_marker).unwrap();
    assert_eq!(requests.iter().filter(|request| is_marker(request)).count(), 7);
    let reads = |from: &[String]| from.iter().filter(|request| request.contains("/comments?")).count();
    assert_eq!((reads(&requests[..last_marker]), reads(&requests[last_marker..])), (8, 7), "{requests:#?}");
    // Together the claims need fewer requests than eight single claims.
    assert!(requests.len() < 8 * 9, "{}", requests.len());
}

/// After an error that would stop every claim, the remaining claims send no requests.
#[tokio::test]
async fn permission_error_stops_remaining_claims() {
    let (fake, source) = scene().await;
    for number in 1..=4 {
        fake.add(number, &["ready"]);
    }
    fake.fault(&format!("POST /repos/{REPO}/issues/2/comments"), FakeFault::status(403));
    let claims: Vec<_> = (1..=4).map(|number| (id(number), claimant(&format!("job-{number}")))).collect();
    let refusals: Vec<_> = source
        .claim_all(&claims)
        .await
        .into_iter()
        .map(|result| match result.unwrap() {
            ClaimResult::Claimed(_) => None,
            ClaimResult::Refused { reason, message } => Some((reason, message.unwrap())),
        })
        .collect();
    let reasons: Vec<_> =
        refusals.iter().map(|refusal| refusal.as_ref().map(|(reason, _)| *reason)).collect();
    assert_eq!(reasons, [None, Some(PermissionDenied), Some(SourceError), Some(SourceError)]);
    assert_eq!(
        refusals[3].as_ref().unwrap().1,
        "this claim was not tried, because the claim before it did not succeed"
    );
    assert!(!fake.requests().iter().any(|request| request.contains("/issues/3")));
}

#[tokio::test]
async fn claim_returns_updated_item_and_can_be_repeated() {
    let (fake, source) = scene().await;
    fake.add(7, &["ready"]);
    let claimed = source.claim_work(&id(7), &claimant("job-1")).await.unwrap();
    let ClaimResult::Claimed(item) = claimed else { panic!("{claimed:?}") };
    assert_eq!(item.labels, ["agent-working"]);
    // A repeated claim, for example after a lost answer, succeeds and posts no second comment.
    claim(&source, 7, "job-1").await.unwrap();
    assert_eq!(fake.issue(7).comments.len(), 1);
    assert_eq!(claim(&source, 7, "job-2").await, Err(AlreadyClaimed));
    assert_eq!(fake.issue(7).comments.len(), 1);
}

#[tokio::test]
async fn refused_claims_have_their_reason() {
    let (fake, source) = scene().await;
    fake.add(1, &["ready"]);
    fake.state().issues.get_mut(&1).unwrap().is_closed = true;
    fake.add(2, &["ready", "agent-working"]);
    fake.add(3, &["ready"]);
    let marker = marker_of_another_fleet(in_minutes(&fake, 5));
    fake.state().comment(3, "somebody", &marker);
    fake.add(4, &["ready"]);
    fake.state().issues.get_mut(&4).unwrap().is_pull_request = true;
    for number in 5..=9 {
        fake.add(number, &["ready"]);
    }
    let path = |number: u64, rest: &str| format!("/repos/{REPO}/issues/{number}{rest}");
    fake.fault(&format!("GET {}", path(5, "")), FakeFault::status(410));
    fake.fault(&format!("GET {}", path(6, "")), FakeFault::status(403));
    fake.fault(&format!("POST {}", path(7, "/comments")), FakeFault::status(403));
    fake.fault(&format!("POST {}", path(8, "/labels")), FakeFault::status(403));
    for _ in 0..4 {
        fake.fault(&format!("GET {}", path(9, "")), FakeFault::status(500));
    }
    for (number, reason) in [
        (1, InvalidState),
        (2, AlreadyClaimed),
        (3, AlreadyClaimed),
        (4, NotFound),
        (5, NotFound),
        (6, PermissionDenied),
        (7, PermissionDenied),
        (8, PermissionDenied),
        (9, SourceError),
        (404, NotFound),
    ] {
        assert_eq!(claim(&source, number, "job-1").await, Err(reason), "{number}");
        if number == 404 {
            continue;
        }
        let ours = |comment: &crate::fake::FakeComment| comment.login == LOGIN;
        assert!(!fake.issue(number).comments.iter().any(ours), "{number}: nothing of ours stays");
    }
}

/// Calls `what` once, when the first request that begins with `request` arrives.
fn on_first_request(
    fake: &Fake,
    request: &'static str,
    mut what: impl FnMut(&mut FakeState) + Send + 'static,
) {
    let mut is_done = false;
    let on_request = move |line: &str, fake_state: &mut FakeState| {
        if !is_done && line.starts_with(request) {
            is_done = true;
            what(fake_state);
        }
    };
    fake.state().on_request = Some(OnRequest(Box::new(on_request)));
}

#[tokio::test]
async fn refused_claims_say_who_has_the_issue() {
    let (fake, source) = scene().await;
    fake.add(2, &["ready", "agent-working"]);
    fake.add(7, &["ready"]);
    on_first_request(&fake, "POST /repos/my-org/my-repo/issues/7/comments", |fake_state| {
        fake_state.issues.get_mut(&7).unwrap().labels.clear();
    });
    for (number, expected) in [
        (2, "the issue already has the label \"agent-working\""),
        (7, "somebody else took the issue while this fleet was claiming it"),
    ] {
        let answer = source.claim_work(&id(number), &claimant("job-1")).await.unwrap();
        let ClaimResult::Refused { message, .. } = answer else { panic!("{answer:?}") };
        assert_eq!(message.as_deref(), Some(expected));
    }
}

#[tokio::test]
async fn concurrent_changes_decide_claim() {
    const POST: &str = "POST /repos/my-org/my-repo/issues/7/comments";
    type Change = Box<dyn FnMut(&mut FakeState) + Send>;
    let cases: Vec<(&str, Change, _)> = vec![
        (
            "another's marker comes just before ours",
            Box::new(|fake_state| {
                let marker = marker_of_another_fleet(fake_state.now + SignedDuration::from_mins(5));
                fake_state.comment(7, "somebody", &marker);
            }),
            Err(AlreadyClaimed),
        ),
        (
            "another's marker comes just before ours and has lapsed",
            Box::new(|fake_state| {
                let marker = marker_of_another_fleet(fake_state.now - SignedDuration::from_mins(5));
                fake_state.comment(7, "somebody", &marker);
            }),
            Ok(()),
        ),
        (
            "somebody claims, finishes and closes",
            Box::new(|fake_state| fake_state.issues.get_mut(&7).unwrap().is_closed = true),
            Err(InvalidState),
        ),
        (
            "somebody claims and fails",
            Box::new(|fake_state| fake_state.issues.get_mut(&7).unwrap().labels.clear()),
            Err(AlreadyClaimed),
        ),
        (
            "a program that knows only labels takes it",
            Box::new(|fake_state| fake_state.issues.get_mut(&7).unwrap().labels.push("agent-working".into())),
            Err(AlreadyClaimed),
        ),
        (
            "somebody copies our marker into an older comment",
            Box::new(|fake_state| {
                let until = fake_state.now + SignedDuration::from_mins(5);
                let json = serde_json::json!({ "fleet": "herd", "holder": "job-1", "until": until });
                fake_state.comment(7, "mallory", &format!("<!-- cowhand:claim {json} -->"));
            }),
            Err(AlreadyClaimed),
        ),
    ];
    for (case, what, expected) in cases {
        let (fake, source) = scene().await;
        fake.add(7, &["ready"]);
        on_first_request(&fake, POST, what);
        assert_eq!(claim(&source, 7, "job-1").await, expected, "{case}");
        let ours = fake.issue(7).comments.iter().filter(|comment| comment.login == LOGIN).count();
        assert_eq!(ours, usize::from(expected.is_ok()), "{case}: a loser leaves nothing behind");
    }
}

#[tokio::test]
async fn expired_claim_is_taken_over() {
    let (fake, source) = scene().await;
    fake.add(7, &["agent-working"]);
    let marker = marker_of_another_fleet(in_minutes(&fake, 5));
    let old = fake.state().comment(7, "somebody", &marker);
    assert_eq!(claim(&source, 7, "job-1").await, Err(AlreadyClaimed));
    fake.state().advance(310 - 1);
    assert_eq!(claim(&source, 7, "job-1").await, Err(AlreadyClaimed), "still in the margin");
    fake.state().advance(2);
    claim(&source, 7, "job-1").await.unwrap();
    assert!(fake.issue(7).comments.iter().all(|comment| comment.id != old), "the dead one's comment is gone");
    assert_eq!(fake.issue(7).labels, ["agent-working"]);
}

#[tokio::test]
async fn claim_is_renewed_until_it_expires() {
    let (fake, source) = scene().await;
    fake.add(7, &["ready"]);
    let now = fake.state().now;
    let by = |seconds: i64| Claimant { until: now + SignedDuration::from_secs(seconds), ..claimant("job-1") };
    let renew = async |seconds| source.renew_claim(&id(7), &by(seconds)).await;
    let is_lost =
        |result: Result<(), WorkSourceError>| matches!(result, Err(WorkSourceError::NotHeld { .. }));

    assert!(is_lost(renew(60).await), "there is none");
    source.claim_work(&id(7), &by(60)).await.unwrap();
    fake.state().advance(50);
    renew(120).await.unwrap();
    fake.state().advance(50);
    assert_eq!(
        claim(&source, 7, "job-2").await,
        Err(AlreadyClaimed),
        "it holds for longer than was said first"
    );
    assert_eq!(fake.issue(7).comments.len(), 1, "the comment was edited");
    renew(120).await.unwrap();
    renew(110).await.unwrap();
    let fewer = fake.requests().iter().filter(|request| request.starts_with("PATCH")).count();
    assert_eq!(fewer, 1, "what was said already is not said again");

    fake.state().advance(31);
    assert!(is_lost(renew(500).await), "too late: the claim has lapsed");
    claim(&source, 7, "job-2").await.unwrap();
    assert!(is_lost(renew(500).await), "somebody else has it");
}

/// The claim expires during its renewal, and another fleet claims the issue. Afterwards only the other fleet has a
/// claim.
#[tokio::test]
async fn late_renewal_does_not_restore_claim() {
    let (fake, source) = scene().await;
    fake.add(7, &["ready"]);
    let now = fake.state().now;
    let by = |seconds: i64| Claimant { until: now + SignedDuration::from_secs(seconds), ..claimant("job-1") };
    source.claim_work(&id(7), &by(60)).await.unwrap();
    on_first_request(&fake, "PATCH", |fake_state| {
        fake_state.advance(71);
        let marker = marker_of_another_fleet(fake_state.now + SignedDuration::from_mins(5));
        fake_state.comment(7, "somebody", &marker);
    });
    let result = source.renew_claim(&id(7), &by(3600)).await;
    assert!(matches!(result, Err(WorkSourceError::NotHeld { .. })), "{result:?}");
    assert_eq!(claim(&source, 7, "job-1").await, Err(AlreadyClaimed));
}

#[tokio::test]
async fn claim_comment_is_posted_once_after_lost_answer() {
    for fault in [
        FakeFault::CutAnswer,
        FakeFault::DoneWithStatus(502),
        FakeFault::NoAnswer,
        FakeFault::status(502),
        FakeFault::status(503),
    ] {
        let fake = Fake::start().await;
        let timeout = std::time::Duration::from_millis(300);
        let source = source_with(GitHubSettings { timeout, ..settings(&fake.url) });
        fake.add(7, &["ready"]);
        fake.fault(&format!("POST /repos/{REPO}/issues/7/comments"), fault.clone());
        claim(&source, 7, "job-1").await.unwrap();
        assert_eq!(fake.issue(7).comments.len(), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn claim_by_label_alone_sends_only_label_requests() {
    let (fake, _) = scene().await;
    fake.add(7, &["ready"]);
    let source = source_with(GitHubSettings { claim_method: ClaimMethod::LabelOnly, ..settings(&fake.url) });
    claim(&source, 7, "job-1").await.unwrap();
    let expected =
        ["GET /issues/7", "POST /issues/7/labels", "DELETE /issues/7/labels/ready", "GET /issues/7"];
    assert_eq!(fake.requests(), expected);
    assert_eq!(claim(&source, 7, "job-2").await, Err(AlreadyClaimed));
}

#[tokio::test]
async fn claim_waits_until_its_own_marker_is_visible() {
    let (fake, source) = scene().await;
    fake.add(7, &["ready"]);
    fake.state().lag = 2;
    claim(&source, 7, "job-1").await.unwrap();
    assert_eq!(
        fake.requests().iter().filter(|request| request.starts_with("GET /issues/7/comments")).count(),
        4
    );

    fake.add(8, &["ready"]);
    fake.state().lag = 100;
    let error = source.claim_work(&id(8), &claimant("job-1")).await.unwrap_err();
    assert!(error.is_retryable() && error.to_string().contains("does not appear"), "{error}");
    assert!(fake.issue(8).comments.is_empty() && fake.issue(8).labels == ["ready"]);
}
