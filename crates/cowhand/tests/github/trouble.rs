//! Faults of GitHub or the network: the right result in the end, or an error with the remedy.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cowhand::work::github::{GitHubApiError, GitHubSettings, GitHubWorkSource, RateLimitWarning};
use cowhand::work::{SourceContext, WorkSource, WorkSourceError};
use cowhand_core::github::Auth;
use cowhand_core::work::{ClaimFailureReason, FetchOptions, WorkOutcome};
use jiff::SignedDuration;

use crate::fake::{Fake, FakeFault, REPO};
use crate::{TOKEN, claim, claimant, id, result, scene, settings, source_with};

pub(crate) const ISSUE: &str = "GET /repos/my-org/my-repo/issues/7";

pub(crate) fn api_error(error: WorkSourceError) -> GitHubApiError {
    match error {
        WorkSourceError::GitHubApi(error) => error,
        other => panic!("{other:?}"),
    }
}

/// Checks the retry table over HTTP: the number of requests of a read, and its result.
#[tokio::test]
async fn requests_are_retried_by_kind_of_error() {
    let now = [("retry-after", "0")];
    for (case, fault, times, requests, is_well) in [
        ("500 once", FakeFault::status(500), 1, 2, true),
        ("502 three times", FakeFault::status(502), 3, 4, true),
        ("503 for ever", FakeFault::status(503), 4, 4, false),
        ("408", FakeFault::status(408), 2, 3, true),
        ("cut in mid-body", FakeFault::CutAnswer, 2, 3, true),
        ("secondary limit", FakeFault::with(403, &now, "secondary rate limit"), 2, 3, true),
        ("429", FakeFault::with(429, &now, ""), 3, 4, true),
        ("429 and not a word", FakeFault::status(429), 1, 2, true),
        ("429 for ever", FakeFault::with(429, &now, ""), 4, 4, false),
        ("404, which is an answer", FakeFault::status(404), 1, 1, true),
        ("403", FakeFault::status(403), 1, 1, false),
        ("401", FakeFault::status(401), 1, 1, false),
        ("422", FakeFault::status(422), 1, 1, false),
        ("not JSON", FakeFault::Answer { status: 200, headers: vec![], body: "<html>".into() }, 1, 1, false),
        (
            "half JSON",
            FakeFault::Answer { status: 200, headers: vec![], body: "{\"number\": ".into() },
            1,
            1,
            false,
        ),
    ] {
        let (fake, source) = scene().await;
        fake.add(7, &["ready"]);
        for _ in 0..times {
            fake.fault(ISSUE, fault.clone());
        }
        let answer = source.get_work(&id(7)).await;
        assert_eq!(answer.is_ok(), is_well, "{case}: {answer:?}");
        assert_eq!(fake.requests().len(), requests, "{case}");
    }
}

#[tokio::test]
async fn missing_answer_times_out() {
    let fake = Fake::start().await;
    let mut settings = settings(&fake.url);
    settings.timeout = Duration::from_millis(100);
    let source = source_with(settings);
    fake.add(7, &["ready"]);
    fake.fault(ISSUE, FakeFault::NoAnswer);
    assert!(source.get_work(&id(7)).await.unwrap().is_some(), "the second one comes");
    for _ in 0..4 {
        fake.fault(ISSUE, FakeFault::NoAnswer);
    }
    let error = api_error(source.get_work(&id(7)).await.unwrap_err());
    assert_eq!(error.to_string(), format!("GitHub: {ISSUE}: no answer in time"));
    assert!(error.is_retryable() && error.status.is_none());

    let url = fake.url.clone();
    drop(fake);
    let nobody = source_with(crate::settings(&url.replace("127.0.0.1", "127.0.0.2")));
    let error = api_error(nobody.get_work(&id(7)).await.unwrap_err());
    assert!(error.message.contains("refused") && error.is_retryable(), "{error}");
}

#[tokio::test]
async fn malformed_and_oversized_lists_are_errors() {
    let (fake, source) = scene().await;
    let body = "{\"not\": \"a list\"}".to_owned();
    fake.fault("GET /repos/my-org/my-repo/issues?", FakeFault::Answer { status: 200, headers: vec![], body });
    let error = api_error(source.fetch_available_work(&FetchOptions::default()).await.unwrap_err());
    assert!(error.to_string().contains("/issues: 200: the answer cannot be read: invalid type"), "{error}");
    assert!(!error.is_retryable());
    let body = "x".repeat(33 << 20);
    fake.fault("GET /repos/my-org/my-repo/issues?", FakeFault::Answer { status: 200, headers: vec![], body });
    let error = api_error(source.fetch_available_work(&FetchOptions::default()).await.unwrap_err());
    assert!(error.message.contains("too large"), "{error}");
}

#[tokio::test]
async fn long_rate_limit_is_returned_to_caller() {
    let (fake, source) = scene().await;
    fake.add(7, &["ready"]);
    let reset = fake.state().now + SignedDuration::from_mins(40);
    let headers = [
        ("x-ratelimit-limit", "5000"),
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", &reset.as_second().to_string()),
    ];
    fake.fault(ISSUE, FakeFault::with(403, &headers, "API rate limit exceeded"));
    let begin = Instant::now();
    let error = source.get_work(&id(7)).await.unwrap_err();
    assert!(error.is_retryable());
    let wait = error.retry_after().unwrap();
    assert_eq!(wait, Duration::from_secs(40 * 60 + 1));
    let error = api_error(error);
    assert!(error.is_rate_limit_error() && !error.is_permission_denied());
    assert_eq!(error.resets_at(), Some(reset + SignedDuration::from_secs(1)));
    assert_eq!(error.rate_limit.as_ref().map(|info| (info.limit, info.remaining)), Some((5000, 0)));
    assert_eq!(fake.requests().len(), 1);

    // Until then no request is sent: GitHub bans clients that continue.
    let again = source.claim_work(&id(7), &claimant("job-1")).await.unwrap_err();
    assert!(again.retry_after().is_some_and(|wait| wait > Duration::from_mins(39)), "{again:?}");
    assert!(source.client().quota().blocked_until.is_some());
    assert_eq!(fake.requests().len(), 0);
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn a_secondary_limit_without_a_time_lasts_a_minute() {
    let (fake, source) = scene().await;
    fake.fault(ISSUE, FakeFault::with(403, &[], "You have exceeded a secondary rate limit"));
    let error = source.get_work(&id(7)).await.unwrap_err();
    assert_eq!(error.retry_after(), Some(Duration::from_mins(1)));
}

/// Only this test really waits: one second, by which the reset time of GitHub is rounded up.
#[tokio::test]
async fn client_waits_for_short_rate_limit() {
    let (fake, source) = scene().await;
    fake.add(7, &["ready"]);
    let reset = fake.state().now.as_second().to_string();
    let headers = [("x-ratelimit-limit", "1"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", &reset)];
    fake.fault(ISSUE, FakeFault::with(403, &headers, "API rate limit exceeded"));
    assert!(source.get_work(&id(7)).await.unwrap().is_some());
    let quota = source.client().quota();
    assert!(quota.waits == 1 && quota.waited > Duration::from_millis(900), "{quota:?}");
    assert_eq!(quota.blocked_until, None);
}

#[tokio::test]
async fn wait_for_rate_limit_ends_with_its_caller() {
    let (fake, source) = scene().await;
    fake.fault(ISSUE, FakeFault::with(403, &[("retry-after", "25")], ""));
    let begin = Instant::now();
    let given_up = tokio::time::timeout(Duration::from_millis(200), source.get_work(&id(7))).await;
    assert!(given_up.is_err() && begin.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn low_rate_limit_gives_one_warning() {
    let fake = Fake::start().await;
    fake.add(7, &["ready"]);
    fake.state().remaining = 101;
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&told);
    let on_warning = Arc::new(move |info: &cowhand::work::github::RateLimitInfo| {
        heard.lock().unwrap().push(info.remaining);
    });
    let warning = RateLimitWarning { on_warning: Some(on_warning), ..RateLimitWarning::default() };
    let source = source_with(GitHubSettings { warning, ..settings(&fake.url) });
    for _ in 0..4 {
        source.get_work(&id(7)).await.unwrap();
    }
    assert_eq!(*told.lock().unwrap(), [99]);
    assert_eq!(source.client().quota().rate_limit.map(|info| info.remaining), Some(97));
}

#[tokio::test]
async fn renamed_repository_is_followed() {
    let (fake, source) = scene().await;
    fake.add(7, &["ready"]);
    for rest in
        ["", "/7", "/7/comments", "/7/labels", "/7/labels/ready", "/7/labels/agent-working", "/comments/1"]
    {
        let to = format!("/repositories/1/issues{rest}");
        fake.state().moved.insert(format!("/repos/{REPO}/issues{rest}"), to);
    }
    claim(&source, 7, "job-1").await.unwrap();
    source.complete_work(&id(7), &result(WorkOutcome::Success), &claimant("job-1")).await.unwrap();
    let issue = fake.issue(7);
    assert!(issue.is_closed && issue.labels.is_empty() && issue.comments.len() == 1);
}

#[tokio::test]
async fn issue_moved_to_other_repository_is_not_found() {
    let (fake, source) = scene().await;
    fake.add(7, &["ready"]);
    fake.state().moved.insert(format!("/repos/{REPO}/issues/7"), "/repos/other/place/issues/7".into());
    assert_eq!(source.get_work(&id(7)).await.unwrap(), None);
    assert_eq!(claim(&source, 7, "job-1").await, Err(ClaimFailureReason::NotFound));
    assert!(fake.issue(7).comments.is_empty());
}

#[tokio::test]
async fn token_is_not_sent_to_other_host() {
    let (fake, source) = scene().await;
    let stranger = Fake::start().await;
    stranger.add(7, &["ready"]);
    let to = format!("{}/repos/{REPO}/issues/7", stranger.url);
    fake.state().moved.insert(format!("/repos/{REPO}/issues/7"), to);
    let error = source.get_work(&id(7)).await.unwrap_err().to_string();
    assert!(
        error.contains("redirected to another host (127.0.0.1), which does not get the token"),
        "{error}"
    );
    assert!(stranger.requests().is_empty());

    let round = format!("/repos/{REPO}/issues/8");
    fake.state().moved.insert(round.clone(), round);
    let error = source.get_work(&id(8)).await.unwrap_err().to_string();
    assert!(error.contains("redirected in a circle"), "{error}");
}

#[tokio::test]
async fn enterprise_api_url_is_used() {
    let fake = Fake::start().await;
    fake.add(7, &["ready"]);
    let source = source_with(settings(&format!("{}/api/v3/", fake.url)));
    claim(&source, 7, "job-1").await.unwrap();
    assert!(fake.requests().iter().all(|request| request.contains(" /api/v3/")));
    let wrong = |api_url: &str| {
        let setting = SourceContext::new("", |_| Some(TOKEN.to_owned()));
        GitHubWorkSource::new(settings(api_url), &Auth::default(), &setting).unwrap_err().to_string()
    };
    for api_url in ["", "github.example.com", "ftp://x", "https://"] {
        assert!(wrong(api_url).contains("is not the address of an API"), "{api_url}");
    }
}
