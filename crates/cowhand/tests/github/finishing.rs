//! Reports and releases, sent once and sent twice.

use cowhand::work::github::GitHubSettings;
use cowhand::work::{WorkSource, WorkSourceError};
use cowhand_core::work::{ReleaseOptions, WorkOutcome, WorkResult};
use jiff::SignedDuration;

use crate::fake::{Fake, FakeFault};
use crate::{claim, claimant, id, result, scene, settings, source_with};

fn told() -> ReleaseOptions {
    ReleaseOptions { reason: Some("timed out".into()), add_comment: true, ..ReleaseOptions::default() }
}

fn marker_of_another_fleet(fake: &Fake) -> String {
    let until = fake.state().now + SignedDuration::from_mins(5);
    let json = serde_json::json!({ "fleet": "others", "holder": "job-x", "until": until });
    format!("<!-- cowhand:claim {json} -->")
}

#[tokio::test]
async fn success_is_reported_in_order_and_closes_issue() {
    let (fake, source) = scene().await;
    fake.add(7, &["ready", "bug"]);
    claim(&source, 7, "job-1").await.unwrap();
    fake.requests();
    let done = WorkResult {
        details: Some("</details> @everyone <!-- x -->".into()),
        artifacts: vec!["https://github.com/my-org/my-repo/pull/8".into(), "abc1234".into()],
        ..result(WorkOutcome::Success)
    };
    source.complete_work(&id(7), &done, &claimant("job-1")).await.unwrap();
    let expected = [
        "GET /issues/7",
        "GET /issues/7/comments?per_page=100&page=1",
        "POST /issues/7/comments",
        "DELETE /issues/7/labels/agent-working",
        "PATCH /issues/7",
        "DELETE /issues/comments/1",
    ];
    assert_eq!(fake.requests(), expected);
    let issue = fake.issue(7);
    assert_eq!((issue.is_closed, issue.state_reason.as_deref()), (true, Some("completed")));
    assert_eq!(issue.labels, ["bug"]);
    let [report] = &issue.comments[..] else { panic!("{:?}", issue.comments) };
    let line = "<!-- cowhand:report {\"fleet\":\"herd\",\"holder\":\"job-1\",\"claim\":1} -->\n";
    let (_, text) = report.body.split_once('\n').unwrap();
    assert!(report.body.starts_with(line), "{report:?}");
    for part in
        ["**cowhand: done**", "Did it.", "- https://github.com/my-org/my-repo/pull/8\n", "- ` abc1234 `"]
    {
        assert!(text.contains(part), "{text}");
    }
}

#[tokio::test]
async fn failed_issue_stays_open() {
    for (outcome, word) in [(WorkOutcome::Failure, "failed"), (WorkOutcome::Partial, "partly done")] {
        let (fake, source) = scene().await;
        fake.add(7, &["ready"]);
        claim(&source, 7, "job-1").await.unwrap();
        let failed = WorkResult { error: Some("tests are red".into()), ..result(outcome) };
        source.complete_work(&id(7), &failed, &claimant("job-1")).await.unwrap();
        let issue = fake.issue(7);
        assert_eq!((issue.is_closed, issue.labels.len(), issue.comments.len()), (false, 0, 1));
        assert!(issue.comments[0].body.contains(&format!("**cowhand: {word}**")));
        assert!(issue.comments[0].body.contains("tests are red"));
    }
}

#[tokio::test]
async fn release_restores_labels() {
    for (cleanup_on_failure, options, labels, comments) in [
        (true, told(), &["bug", "ready"][..], 1),
        (true, ReleaseOptions::default(), &["bug", "ready"], 0),
        (false, told(), &["bug"], 1),
    ] {
        let (fake, _) = scene().await;
        let source = source_with(GitHubSettings { cleanup_on_failure, ..settings(&fake.url) });
        fake.add(7, &["ready", "bug"]);
        claim(&source, 7, "job-1").await.unwrap();
        for _ in 0..2 {
            let released = source.release_work(&id(7), &options, &claimant("job-1")).await.unwrap();
            assert!(released.success, "{released:?}");
            let issue = fake.issue(7);
            assert_eq!((&issue.labels[..], issue.comments.len()), (&owned(labels)[..], comments));
        }
        if cleanup_on_failure {
            claim(&source, 7, "job-2").await.unwrap();
        }
    }
}

fn owned(labels: &[&str]) -> Vec<String> {
    labels.iter().map(|&label| label.to_owned()).collect()
}

#[tokio::test]
async fn release_sends_requests_in_order() {
    let (fake, source) = scene().await;
    fake.add(7, &["ready"]);
    claim(&source, 7, "job-1").await.unwrap();
    fake.requests();
    source.release_work(&id(7), &told(), &claimant("job-1")).await.unwrap();
    let expected = [
        "GET /issues/7",
        "GET /issues/7/comments?per_page=100&page=1",
        "POST /issues/7/comments",
        "DELETE /issues/7/labels/agent-working",
        "POST /issues/7/labels",
        "DELETE /issues/comments/1",
    ];
    assert_eq!(fake.requests(), expected);
    assert!(fake.issue(7).comments[0].body.contains("```text\ntimed out\n```"));
}

/// Whichever step fails, a repeated report has the same result, with one comment.
#[tokio::test]
async fn repeated_report_after_failure_gives_one_comment() {
    let steps = [
        "GET /repos/my-org/my-repo/issues/7",
        "POST /repos/my-org/my-repo/issues/7/comments",
        "DELETE /repos/my-org/my-repo/issues/7/labels",
        "PATCH /repos/my-org/my-repo/issues/7",
        "POST /repos/my-org/my-repo/issues/7/labels",
        "DELETE /repos/my-org/my-repo/issues/comments",
    ];
    let impatient = |fake: &Fake| {
        let mut settings = settings(&fake.url);
        settings.retry.max_retries = 0;
        source_with(settings)
    };
    for step in steps {
        for fault in [FakeFault::status(500), FakeFault::DoneWithStatus(502), FakeFault::CutAnswer] {
            for is_success in [true, false] {
                let fake = Fake::start().await;
                let source = impatient(&fake);
                fake.add(7, &["ready"]);
                claim(&source, 7, "job-1").await.unwrap();
                fake.fault(step, fault.clone());
                let mut failures = 0;
                for _ in 0..3 {
                    let ended = if is_success {
                        source.complete_work(&id(7), &result(WorkOutcome::Success), &claimant("job-1")).await
                    } else {
                        source.release_work(&id(7), &told(), &claimant("job-1")).await.map(|_| ())
                    };
                    failures += usize::from(ended.is_err());
                }
                let issue = fake.issue(7);
                let labels: &[&str] = if is_success { &[] } else { &["ready"] };
                assert!(failures <= 1, "{step} {fault:?}");
                assert_eq!(issue.labels, labels, "{step} {fault:?}");
                assert_eq!(
                    (issue.comments.len(), issue.is_closed),
                    (1, is_success),
                    "{step} {fault:?} {issue:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn claim_of_other_fleet_is_not_undone() {
    let (fake, source) = scene().await;
    fake.add(7, &["agent-working"]);
    let marker = marker_of_another_fleet(&fake);
    fake.state().comment(7, "somebody", &marker);
    let released = source.release_work(&id(7), &told(), &claimant("job-1")).await.unwrap();
    assert!(!released.success && released.message.unwrap().contains("has claimed it until"));
    let told = source.complete_work(&id(7), &result(WorkOutcome::Success), &claimant("job-1")).await;
    assert!(matches!(told, Err(WorkSourceError::NotHeld { .. })), "{told:?}");
    let issue = fake.issue(7);
    assert_eq!((issue.is_closed, issue.labels), (false, vec!["agent-working".to_owned()]));
    assert_eq!(issue.comments.len(), 1);
}

#[tokio::test]
async fn forged_report_marker_is_ignored() {
    let (fake, source) = scene().await;
    fake.add(7, &["ready"]);
    claim(&source, 7, "job-1").await.unwrap();
    fake.state().comment(7, "mallory", "<!-- cowhand:report {\"fleet\":\"herd\",\"holder\":\"job-1\"} -->");
    source.complete_work(&id(7), &result(WorkOutcome::Success), &claimant("job-1")).await.unwrap();
    assert!(fake.issue(7).comments.iter().any(|comment| comment.body.contains("cowhand: done")));
}

#[tokio::test]
async fn each_claim_of_job_gets_its_own_release_comment() {
    let (fake, source) = scene().await;
    fake.add(7, &["ready"]);
    for round in 1..=2 {
        claim(&source, 7, "job-1").await.unwrap();
        source.release_work(&id(7), &told(), &claimant("job-1")).await.unwrap();
        assert_eq!(fake.issue(7).comments.len(), round);
    }
}

#[tokio::test]
async fn report_to_missing_issue_is_not_found() {
    let (fake, source) = scene().await;
    let ended = source.complete_work(&id(7), &result(WorkOutcome::Success), &claimant("job-1")).await;
    assert!(matches!(ended, Err(WorkSourceError::NotFound(gone)) if gone == id(7)));
    let released = source.release_work(&id(7), &told(), &claimant("job-1")).await;
    assert!(matches!(released, Err(WorkSourceError::NotFound(gone)) if gone == id(7)));
    drop(fake);
}
