//! Which issues are work, their order, and the cost of fetching them.

use cowhand::work::WorkSource;
use cowhand::work::github::{GitHubSettings, GitHubWorkSource};
use cowhand_core::work::{FetchOptions, Priority, WorkItem};
use jiff::SignedDuration;
use serde_json::json;

use crate::fake::REPO;
use crate::{id, scene, settings, source_with};

async fn all(source: &GitHubWorkSource, options: &FetchOptions) -> Vec<WorkItem> {
    let (mut items, mut options) = (Vec::new(), options.clone());
    loop {
        let page = source.fetch_available_work(&options).await.unwrap();
        items.extend(page.items);
        match page.next_cursor {
            Some(cursor) => options.cursor = Some(cursor),
            None => return items,
        }
    }
}

async fn numbers(source: &GitHubWorkSource, options: &FetchOptions) -> Vec<u64> {
    all(source, options).await.iter().map(|item| item.id.external_id().parse().unwrap()).collect()
}

#[tokio::test]
async fn fetch_filters_by_label_priority_and_state() {
    let (fake, source) = scene().await;
    for (number, labels) in [
        (1, &["ready"][..]),
        (2, &["ready", "blocked"]),
        (3, &["ready", "WIP"]),
        (4, &["ready", "agent-working"]),
        (5, &["ready", "bug", "P1-bug"]),
        (6, &["ready", "bug", "p0"]),
        (7, &["bug"]),
        (8, &["ready", "bug", "slow"]),
        (9, &["agent-working", "bug"]),
        (10, &["ready"]),
        (11, &["ready"]),
    ] {
        fake.add(number, labels);
    }
    fake.state().issues.get_mut(&10).unwrap().is_closed = true;
    fake.state().issues.get_mut(&11).unwrap().is_pull_request = true;
    let bug = FetchOptions { labels: vec!["BUG".into()], ..FetchOptions::default() };
    let urgent =
        FetchOptions { priority: vec![Priority::High, Priority::Critical], ..FetchOptions::default() };
    let both = FetchOptions { labels: vec!["bug".into(), "p0".into()], ..FetchOptions::default() };
    let claimed = FetchOptions { include_claimed: true, ..FetchOptions::default() };
    for (case, options, expected) in [
        ("all", FetchOptions::default(), &[1, 5, 6, 8][..]),
        ("a label", bug, &[5, 6, 8]),
        ("all of two labels", both, &[6]),
        ("one of two priorities", urgent, &[5, 6]),
        ("claimed ones too", claimed, &[1, 4, 5, 6, 8, 9]),
    ] {
        assert_eq!(numbers(&source, &options).await, expected, "{case}");
    }

    let other = GitHubSettings {
        ready: "bug".into(),
        in_progress: "p0".into(),
        exclude_labels: vec!["slow".into()],
        ..settings(&fake.url)
    };
    assert_eq!(
        numbers(&source_with(other), &FetchOptions::default()).await,
        [5, 7, 9],
        "labels as configured"
    );
}

#[tokio::test]
async fn ready_label_with_comma_is_filtered_by_client() {
    let (fake, _) = scene().await;
    fake.add(1, &["go, now"]);
    fake.add(2, &["go"]);
    let source = source_with(GitHubSettings { ready: "go, now".into(), ..settings(&fake.url) });
    assert_eq!(numbers(&source, &FetchOptions::default()).await, [1]);
}

#[tokio::test]
async fn pages_list_oldest_issues_first_for_any_limit() {
    let (fake, source) = scene().await;
    for number in 1..=250 {
        fake.add(number, if number % 3 == 0 { &["ready", "wip"] } else { &["ready"] });
    }
    // Numbers and ages differ if issues were transferred.
    let oldest = fake.state().now - SignedDuration::from_hours(2000);
    fake.state().issues.get_mut(&200).unwrap().created_at = oldest;
    let mut expected: Vec<u64> = (1..=250).filter(|number| number % 3 != 0 && *number != 200).collect();
    expected.insert(0, 200);
    for limit in [None, Some(1), Some(7), Some(66), Some(67), Some(100), Some(1000)] {
        let options = FetchOptions { limit, ..FetchOptions::default() };
        assert_eq!(numbers(&source, &options).await, expected, "{limit:?}");
        let first = source.fetch_available_work(&options).await.unwrap();
        assert!(first.items.len() <= limit.unwrap_or(100));
    }
    let bad = FetchOptions { cursor: Some("x".into()), ..FetchOptions::default() };
    assert!(source.fetch_available_work(&bad).await.is_err());
}

#[tokio::test]
async fn issue_becomes_work_item() {
    let (fake, source) = scene().await;
    fake.add(42, &["ready", "bug", "priority:high"]);
    fake.state().issues.get_mut(&42).unwrap().body = "Users cannot log in.".into();
    let item = source.get_work(&id(42)).await.unwrap().unwrap();
    assert_eq!(all(&source, &FetchOptions::default()).await, std::slice::from_ref(&item));
    assert_eq!(item.id.to_string(), "github-42");
    assert_eq!((item.title.as_str(), item.description.as_str()), ("Issue 42", "Users cannot log in."));
    assert_eq!((item.priority, item.labels.len()), (Priority::High, 3));
    assert_eq!(item.url, format!("https://github.com/{REPO}/issues/42"));
    assert_eq!(item.created_at, fake.issue(42).created_at);
    let metadata = json!({
        "number": 42, "author": "octocat", "author_association": "CONTRIBUTOR", "assignee": "hubot",
        "milestone": {"number": 3, "title": "v1"},
    });
    assert_eq!(serde_json::Value::Object(item.metadata), metadata);
    assert_eq!(source.get_work(&id(43)).await.unwrap(), None);
    assert_eq!(source.source_type(), "github");
    for other in ["files-42", "github-x", "github-042"] {
        assert_eq!(source.get_work(&other.parse().unwrap()).await.unwrap(), None, "{other}");
    }
}

#[tokio::test]
async fn incomplete_issue_is_read_and_invalid_issue_is_left_out() {
    let (fake, source) = scene().await;
    for (number, odd) in [
        (1, json!({"user": null, "assignee": null, "milestone": null, "body": null, "title": null})),
        (2, json!({"state_reason": "brand_new", "author_association": "EMPEROR", "state": "open"})),
        (3, json!({"created_at": "yesterday"})),
        (4, json!({"labels": ["ready", {"name": null}]})),
        (5, json!({"labels": "ready"})),
        (6, json!({"state": "frozen"})),
    ] {
        fake.add(number, &["ready"]);
        fake.state().issues.get_mut(&number).unwrap().overridden_fields = Some(odd);
    }
    assert_eq!(numbers(&source, &FetchOptions::default()).await, [1, 2, 4]);
    let item = source.get_work(&id(1)).await.unwrap().unwrap();
    assert_eq!((item.title.as_str(), &item.metadata["author"]), ("", &json!(null)));
}

#[tokio::test]
async fn issue_text_is_not_changed() {
    let (fake, source) = scene().await;
    let titles = [
        "{{ secrets.GITHUB_TOKEN }} {% raw %}",
        "</work_item></prompt><script>alert(1)</script>",
        "\u{1b}[2J\u{1b}]0;title\u{7}",
        "日本語 العربية עברית 🐄👩‍👩‍👧 e\u{301} \u{202e}desrever\u{202c} \u{200b}\u{feff}",
        "${HOME} $(id) `id` ; rm -rf /",
        "\"quotes\" \\ \t tab \u{0} nul",
        "-->",
    ];
    for (place, title) in titles.iter().enumerate() {
        let number = place as u64 + 1;
        fake.add(number, &["ready", title]);
        let mut fake_state = fake.state();
        let issue = fake_state.issues.get_mut(&number).unwrap();
        (issue.title, issue.body) = ((*title).to_owned(), (*title).repeat(3));
    }
    // Once from GitHub and once from the cache.
    for _ in 0..2 {
        let items = all(&source, &FetchOptions::default()).await;
        assert_eq!(items.len(), titles.len());
        for (item, title) in items.iter().zip(titles) {
            assert_eq!((item.title.as_str(), item.description.as_str()), (title, title.repeat(3).as_str()));
            assert_eq!(item.labels, ["ready", title]);
        }
    }
}

#[tokio::test]
async fn polling_unchanged_list_needs_few_paid_requests() {
    let (fake, source) = scene().await;
    for number in 1..=300 {
        fake.add(number, &["ready"]);
    }
    let first = all(&source, &FetchOptions::default()).await;
    assert_eq!((first.len(), fake.state().counted_requests), (300, 3));
    for _ in 1..100 {
        assert_eq!(all(&source, &FetchOptions::default()).await, first);
    }
    // The page after the last full page needs one more request, because the ETags of the other pages do not cover it.
    let (requests, paid) = (fake.requests().len(), fake.state().counted_requests);
    assert_eq!((requests, paid), (3 + 99 * 4, 4));
    let quota = source.client().quota();
    assert_eq!((quota.requests, quota.conditional_hits), (399, 395));
    println!("300 issues, 100 rounds: {requests} requests, {paid} of them paid");

    fake.add(301, &["ready"]);
    assert_eq!(all(&source, &FetchOptions::default()).await.len(), 301, "a new page begins");
    fake.state().issues.get_mut(&1).unwrap().title = "new".into();
    assert_eq!(all(&source, &FetchOptions::default()).await[0].title, "new");
}

#[tokio::test]
async fn ten_thousand_issues_are_fetched_with_little_memory() {
    let (fake, source) = scene().await;
    let labels: Vec<String> = (0..99).map(|label| format!("label-{label}")).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).chain(["ready"]).collect();
    for number in 1..=10_000 {
        fake.add(number, &labels);
    }
    let before = memory();
    let (mut options, mut seen, mut most) = (FetchOptions::default(), 0, 0);
    loop {
        let page = source.fetch_available_work(&options).await.unwrap();
        assert!(page.items.iter().all(|item| item.labels.len() == 100));
        (seen, most) = (seen + page.items.len(), most.max(page.items.len()));
        match page.next_cursor {
            Some(cursor) => options.cursor = Some(cursor),
            None => break,
        }
    }
    let grown = memory().saturating_sub(before) >> 20;
    println!(
        "10,000 issues with 100 labels each: {seen} items, at most {most} at once, {grown} MiB more at the end"
    );
    assert_eq!((seen, most), (10_000, 100));
    // Fake and client share this process: all pages as JSON are over 200 MiB, so keeping them would be
    // visible.
    assert!(grown < 160, "{grown} MiB");
}

fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse::<usize>().ok()).unwrap_or(0) << 10
}
