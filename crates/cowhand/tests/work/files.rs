//! A folder of Markdown files: its list, and the life of an item in it.

use cowhand::work::contract::assert_work_source_contract;
use cowhand::work::{WorkSource, WorkSourceError};
use cowhand_core::work::{
    ClaimFailureReason, ClaimResult, FetchOptions, Priority, ReleaseOptions, WorkOutcome, WorkResult,
};

use crate::{Tasks, at, claimant, id, list, names, refusal, result};

const LOGIN: &str = "---\n# for the team\ntitle: \"Fix the login\"\nstatus: ready   # or blocked\npriority: high\n\
                     labels: [bug, Auth]\ncreated: 2026-01-31\nestimate: 3 days\n---\nUsers cannot log in.\n";

#[tokio::test(flavor = "multi_thread")]
async fn files_source_keeps_contract() {
    let files: Vec<_> = (0..6).map(|n| (format!("task-{n}.md"), format!("# Task {n}\n\nDo it.\n"))).collect();
    let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    let tasks = Tasks::new(&files);
    let handles = [tasks.shared(), tasks.shared(), tasks.shared()];
    assert_work_source_contract(&handles, at(3_600), async || {
        let mut files: Vec<_> = tasks.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect()
    })
    .await;
}

#[tokio::test]
async fn claim_changes_only_its_own_keys_in_file() {
    let tasks = Tasks::new(&[("login.md", LOGIN)]);
    let claim = tasks.source().claim_work(&id("files-login"), &claimant("job-1")).await.unwrap();
    let ClaimResult::Claimed(item) = claim else { panic!("{claim:?}") };
    assert_eq!((item.title.as_str(), item.priority), ("Fix the login", Priority::High));
    assert_eq!(item.metadata["claimed_by"], "home/job-1");
    assert_eq!(item.metadata["estimate"], "3 days");
    let claimed = LOGIN
        .replace("ready   #", "claimed   #")
        .replace("3 days\n", &format!("3 days\nclaimed_by: home/job-1\nclaimed_until: {}\n", at(3_600)));
    assert_eq!(tasks.read("login.md"), claimed);
}

#[tokio::test]
async fn each_outcome_is_appended_to_file() {
    for (outcome, status) in [
        (WorkOutcome::Success, "completed"),
        (WorkOutcome::Failure, "failed"),
        (WorkOutcome::Partial, "partial"),
    ] {
        let tasks = Tasks::new(&[("login.md", LOGIN)]);
        let (source, item, by) = (tasks.source(), id("files-login"), claimant("job-1"));
        source.claim_work(&item, &by).await.unwrap();
        let result = WorkResult {
            outcome,
            summary: "Found it.".into(),
            details: Some("A cookie.\n".into()),
            artifacts: vec!["https://example.com/pull/7".into(), "abc123".into()],
            error: Some("one test fails".into()),
        };
        source.complete_work(&item, &result, &by).await.unwrap();
        let word = if outcome == WorkOutcome::Success { "success" } else { "failure" };
        let word = if outcome == WorkOutcome::Partial { "partial" } else { word };
        let expected = LOGIN.replace("ready   #", &format!("{status}   #"))
            + &format!(
                "\n<!-- cowhand:result home/job-1 -->\n## Result: {word} ({})\n\nFound it.\n\nA cookie.\n\n\
                 - https://example.com/pull/7\n- abc123\n\nError: one test fails\n",
                at(0)
            );
        assert_eq!(tasks.read("login.md"), expected);
        // The result is reported again, by a daemon that did not get the answer.
        source.complete_work(&item, &result, &by).await.unwrap();
        assert_eq!(tasks.read("login.md"), expected);
        assert!(names(&source).await.is_empty());
        let claim = source.claim_work(&item, &claimant("job-2")).await.unwrap();
        assert_eq!(refusal(&claim), (ClaimFailureReason::InvalidState, &*format!("files-login is {status}")));
    }
}

#[tokio::test]
async fn release_undoes_claim_with_or_without_note() {
    let tasks = Tasks::new(&[("login.md", LOGIN)]);
    let (source, item, by) = (tasks.source(), id("files-login"), claimant("job-1"));
    source.claim_work(&item, &by).await.unwrap();
    let quiet = ReleaseOptions { reason: Some("unseen".into()), ..ReleaseOptions::default() };
    assert!(source.release_work(&item, &quiet, &by).await.unwrap().success);
    let released = LOGIN.replace("ready   #", "available   #");
    assert_eq!(tasks.read("login.md"), released);
    source.claim_work(&item, &by).await.unwrap();
    let noted = ReleaseOptions {
        reason: Some("The agent took too long.".into()),
        add_comment: true,
        ..ReleaseOptions::default()
    };
    assert!(source.release_work(&item, &noted, &by).await.unwrap().success);
    let note = format!("\n## Released by home/job-1 ({})\n\nThe agent took too long.\n", at(0));
    assert_eq!(tasks.read("login.md"), released + &note);
    let gone = source.release_work(&id("files-nobody"), &noted, &by).await.unwrap_err();
    assert!(gone.is_missing() && gone.to_string() == "there is no work item files-nobody", "{gone}");
}

#[tokio::test]
async fn item_with_expired_claim_is_available_again() {
    let tasks = Tasks::new(&[("a.md", "# A\n")]);
    let (source, item) = (tasks.source(), id("files-a"));
    let (first, second) = (claimant("job-1"), claimant("job-2"));
    source.claim_work(&item, &first).await.unwrap();
    tasks.clock.set(at(3_599));
    let claim = source.claim_work(&item, &second).await.unwrap();
    let held = format!("files-a is claimed by home/job-1 until {}", at(3_600));
    assert_eq!(refusal(&claim), (ClaimFailureReason::AlreadyClaimed, held.as_str()));
    // A renewed claim lasts longer.
    let longer = cowhand::work::Claimant { until: at(7_200), ..first.clone() };
    source.renew_claim(&item, &longer).await.unwrap();
    tasks.clock.set(at(7_199));
    assert!(names(&source).await.is_empty());
    tasks.clock.set(at(7_200));
    assert_eq!(names(&source).await, ["a"]);
    let second = cowhand::work::Claimant { until: at(9_000), ..second };
    assert!(matches!(source.claim_work(&item, &second).await.unwrap(), ClaimResult::Claimed(_)));
    // The first claimant comes back too late for every operation.
    let before = tasks.read("a.md");
    let lost = source.renew_claim(&item, &first).await.unwrap_err();
    assert!(matches!(&lost, WorkSourceError::NotHeld { .. }) && !lost.is_retryable());
    let message = format!(
        "this fleet no longer has the claim of files-a: the item is claimed by home/job-2 until {}",
        at(9_000)
    );
    assert_eq!(lost.to_string(), message);
    let told = source.complete_work(&item, &result(WorkOutcome::Success, "done"), &first).await;
    assert_eq!(told.unwrap_err().to_string(), message);
    assert!(!source.release_work(&item, &ReleaseOptions::default(), &first).await.unwrap().success);
    assert_eq!(tasks.read("a.md"), before);
}

#[tokio::test]
async fn same_claimant_may_claim_and_report_again() {
    let tasks = Tasks::new(&[("a.md", "# A\n")]);
    let (source, item, ann) = (tasks.source(), id("files-a"), claimant("ann"));
    for round in 1..=2 {
        for _ in 0..2 {
            assert!(matches!(source.claim_work(&item, &ann).await.unwrap(), ClaimResult::Claimed(_)));
        }
        let failed = result(WorkOutcome::Failure, &format!("round {round}"));
        source.complete_work(&item, &failed, &ann).await.unwrap();
        source.complete_work(&item, &failed, &ann).await.unwrap();
        let text = tasks.read("a.md");
        assert_eq!(text.matches("## Result: failure").count(), round, "{text}");
        tasks.write("a.md", text.replace("status: failed", "status: available"));
    }
    // A late repetition changes nothing, although the item is available.
    let before = tasks.read("a.md");
    source.complete_work(&item, &result(WorkOutcome::Failure, "round 2"), &ann).await.unwrap();
    assert_eq!(tasks.read("a.md"), before);
}

#[tokio::test]
async fn list_has_filters_pages_and_totals() {
    let files: Vec<(String, String)> = (0..25)
        .map(|n| {
            let (labels, priority) = (["[bug]", "[bug, ui]", "[]"][n % 3], ["high", "low"][n % 2]);
            let created = format!("2026-01-{:02}", 25 - n);
            let text = format!("---\nlabels: {labels}\npriority: {priority}\ncreated: {created}\n---\n");
            (format!("t{n}.md"), text)
        })
        .collect();
    let tasks =
        Tasks::new(&files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect::<Vec<_>>());
    let source = tasks.source();
    let oldest_first: Vec<String> = (0..25).rev().map(|n| format!("t{n}")).collect();
    assert_eq!(names(&source).await, oldest_first);
    let (mut options, mut seen, mut pages) =
        (FetchOptions { limit: Some(10), ..FetchOptions::default() }, vec![], 0);
    loop {
        let page = source.fetch_available_work(&options).await.unwrap();
        assert_eq!(page.total_count, Some(25));
        seen.extend(page.items.into_iter().map(|item| item.id.external_id().to_owned()));
        pages += 1;
        let Some(cursor) = page.next_cursor else { break };
        options.cursor = Some(cursor);
    }
    assert_eq!((seen, pages), (oldest_first, 3));
    let wrong = FetchOptions { cursor: Some("2".into()), ..FetchOptions::default() };
    let error = source.fetch_available_work(&wrong).await.unwrap_err();
    assert_eq!(error.to_string(), "\"2\" is not a cursor of this source");
    for (labels, priority, count) in [
        (vec!["bug"], vec![], 17),
        (vec!["bug", "UI"], vec![], 8),
        (vec![], vec![Priority::High], 13),
        (vec![], vec![Priority::High, Priority::Low], 25),
        (vec!["ui"], vec![Priority::Low], 4),
        (vec!["nobody"], vec![], 0),
    ] {
        let labels = labels.into_iter().map(str::to_owned).collect();
        let options = FetchOptions { labels, priority, ..FetchOptions::default() };
        assert_eq!(list(&source, options.clone()).await.len(), count, "{options:?}");
    }
    source.claim_work(&id("files-t24"), &claimant("job-1")).await.unwrap();
    assert_eq!(names(&source).await.len(), 24);
    let all = FetchOptions { include_claimed: true, ..FetchOptions::default() };
    assert_eq!(list(&source, all).await.len(), 25);
    assert_eq!(list(&source, FetchOptions { limit: Some(0), ..FetchOptions::default() }).await.len(), 0);
}

/// The position of an item in the order depends on its first modification time, not on the last write of cowhand.
#[tokio::test]
async fn released_item_keeps_its_creation_time() {
    let tasks = Tasks::new(&[("old.md", "# Old\n"), ("new.md", "# New\n")]);
    let old = std::fs::File::options().write(true).open(tasks.file("old.md")).unwrap();
    old.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_hours(1)).unwrap();
    let (source, item, by) = (tasks.source(), id("files-old"), claimant("job-1"));
    assert_eq!(names(&source).await, ["old", "new"]);
    source.claim_work(&item, &by).await.unwrap();
    source.release_work(&item, &ReleaseOptions::default(), &by).await.unwrap();
    assert_eq!(names(&source).await, ["old", "new"]);
    assert_eq!(tasks.read("old.md"), "---\nstatus: available\ncreated: 1970-01-01T01:00:00Z\n---\n# Old\n");
}

#[tokio::test]
async fn completed_item_keeps_its_creation_time() {
    let tasks = Tasks::new(&[("old.md", "# Old\n"), ("new.md", "# New\n")]);
    let old = std::fs::File::options().write(true).open(tasks.file("old.md")).unwrap();
    old.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_hours(1)).unwrap();
    let (source, item, by) = (tasks.source(), id("files-old"), claimant("person@old@1"));
    let partial = result(WorkOutcome::Partial, "Half of it.");
    source.complete_work(&item, &partial, &by).await.unwrap();
    assert!(source.offer_work(&item, &ReleaseOptions::default(), &by).await.unwrap().success);
    assert_eq!(names(&source).await, ["old", "new"]);
    let head = "---\nstatus: available\ncreated: 1970-01-01T01:00:00Z\n---\n# Old\n";
    assert!(tasks.read("old.md").starts_with(head), "{}", tasks.read("old.md"));
}
