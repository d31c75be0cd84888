//! Issues and pull requests: by REST and by `gh`, all pages, each once.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use cowhand::fleet::Stop;
use cowhand::trigger::contract::assert_trigger_contract;
use cowhand::trigger::{
    GithubAccess, GithubIssueSource, GithubPullRequestSource, PollingStrategy, Registry, Task, TaskSource,
};
use cowhand::work::SourceContext;
use cowhand_core::event::Fact;
use cowhand_core::trigger::{GithubBackend, IssueState, PullState};
use serde_json::json;

use crate::fake::{FakeLists, issue};
use crate::{FleetFolder, fires, id, jobs, ledger, prompts, record, until, wait_for, with_schedule};

fn setting() -> SourceContext {
    SourceContext::new("", |name| (name == "GITHUB_TOKEN").then(|| "token".to_owned()))
}

fn access(url: &str) -> GithubAccess {
    GithubAccess { api_url: Some(url.to_owned()), ..GithubAccess::new("o", "r") }
}

/// Creates a program that answers with a recording and records its arguments, one per line.
fn gh(folder: &Path, recording: &str) -> GithubAccess {
    let program = folder.join(format!("gh-{recording}"));
    let samples = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/triggers/samples");
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" > '{}'\ncat '{}'\n",
        folder.join("arguments").display(),
        samples.join(recording).display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    GithubAccess { backend: GithubBackend::Gh, gh: program, ..GithubAccess::new("o", "r") }
}

fn sample(text: &str) -> Vec<serde_json::Value> {
    serde_json::from_str(text).unwrap()
}

async fn fake() -> FakeLists {
    let issues = sample(include_str!("samples/rest-issues.json"));
    FakeLists::start(issues, sample(include_str!("samples/rest-pulls.json"))).await
}

fn shown(tasks: &[Task]) -> String {
    serde_json::to_string_pretty(tasks).unwrap()
}

#[tokio::test]
async fn rest_and_gh_give_equal_issues() {
    let (home, fake) = (FleetFolder::sqlite(), fake().await);
    let labels = || vec!["agent".to_owned(), "BUG".to_owned()];
    let of = |access: &GithubAccess| {
        GithubIssueSource::new(access, labels(), IssueState::Open, &setting()).unwrap()
    };
    let rest = of(&access(&fake.url)).fetch_tasks().await.unwrap();
    let by_gh = of(&gh(home.path(), "gh-issues.json"));
    assert_eq!(by_gh.fetch_tasks().await.unwrap(), rest);
    assert_eq!(by_gh.source_type(), "github_issues");
    insta::assert_snapshot!(shown(&rest));
    let arguments = std::fs::read_to_string(home.path().join("arguments")).unwrap();
    insta::assert_snapshot!(arguments.lines().collect::<Vec<_>>().join(" "), @"issue list --repo o/r --state open --limit 100000 --json number,title,body,url,labels,assignees,author,createdAt --label agent --label BUG");
}

#[tokio::test]
async fn rest_and_gh_give_equal_pull_requests() {
    let (home, fake) = (FleetFolder::sqlite(), fake().await);
    let of = |access: &GithubAccess| {
        GithubPullRequestSource::new(access, vec![], PullState::Open, &setting()).unwrap()
    };
    let rest = of(&access(&fake.url)).fetch_tasks().await.unwrap();
    let by_gh = of(&gh(home.path(), "gh-pulls.json"));
    assert_eq!(by_gh.fetch_tasks().await.unwrap(), rest);
    assert_eq!(by_gh.source_type(), "github_pull_requests");
    insta::assert_snapshot!(shown(&rest));
}

#[tokio::test]
async fn failure_of_gh_is_reported() {
    let home = FleetFolder::sqlite();
    let program = home.path().join("gh");
    std::fs::write(&program, "#!/bin/sh\necho 'gh auth login first' >&2\nexit 4\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let access =
        GithubAccess { backend: GithubBackend::Gh, gh: program.clone(), ..GithubAccess::new("o", "r") };
    let source = GithubIssueSource::new(&access, vec![], IssueState::All, &setting()).unwrap();
    let error = source.fetch_tasks().await.unwrap_err().to_string();
    assert_eq!(error, format!("{}: gh auth login first", program.display()));
    let access = GithubAccess { gh: home.path().join("none"), ..access };
    let source = GithubIssueSource::new(&access, vec![], IssueState::All, &setting()).unwrap();
    assert!(source.fetch_tasks().await.unwrap_err().to_string().starts_with("cannot start "));
}

/// A `gh` process that never answers ends with the shutdown.
#[tokio::test]
async fn gh_source_keeps_trigger_contract() {
    let home = FleetFolder::sqlite();
    let program = home.path().join("gh");
    std::fs::write(&program, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let access = GithubAccess { backend: GithubBackend::Gh, gh: program, ..GithubAccess::new("o", "r") };
    let source = || GithubIssueSource::new(&access, vec![], IssueState::All, &setting()).unwrap();
    assert_trigger_contract(|| Box::new(PollingStrategy::new(source(), Duration::from_hours(1)))).await;
}

#[tokio::test]
async fn all_pages_are_read_oldest_first_at_low_cost() {
    let fake = FakeLists::with_issues(300).await;
    let source =
        GithubIssueSource::new(&access(&fake.url), vec!["agent".into()], IssueState::Open, &setting())
            .unwrap();
    for _ in 0..100 {
        let tasks = source.fetch_tasks().await.unwrap();
        let numbers: Vec<String> = tasks.into_iter().map(|task| task.source_id).collect();
        assert_eq!(numbers, (1..=300).map(|number| number.to_string()).collect::<Vec<_>>());
    }
    let fake_state = fake.fake_state.lock().unwrap();
    // A full last page requires a request for the next one.
    assert!(
        fake_state.counted_requests <= 4,
        "{} of {} requests cost something",
        fake_state.counted_requests,
        fake_state.requests
    );
}

/// An issue that is closed during the reading moves the others up; none of them may seem to be removed.
#[tokio::test]
async fn list_that_changes_while_read_loses_no_issue() {
    let fake = FakeLists::with_issues(250).await;
    fake.fake_state.lock().unwrap().disappearing_issue = Some(5);
    let source = GithubIssueSource::new(&access(&fake.url), vec![], IssueState::Open, &setting()).unwrap();
    let tasks = source.fetch_tasks().await.unwrap();
    let numbers: Vec<u64> = tasks.iter().map(|task| task.source_id.parse().unwrap()).collect();
    assert_eq!(numbers, (1..=250).collect::<Vec<u64>>(), "what has just gone is still there, once");
    assert_eq!(source.fetch_tasks().await.unwrap().len(), 249);
}

fn trigger(kind: &str, url: &str, more: &str) -> String {
    // Any variable that is set can serve as the token, which is not checked.
    format!(
        r#"{{"type":"{kind}","owner":"o","repo":"r","api_url":"{url}","poll_interval":"1s","auth":{{"token_env":"CARGO_MANIFEST_DIR"}}{more}}}"#
    )
}

#[tokio::test]
async fn issue_fires_again_when_label_is_put_back() {
    let (home, fake) = (FleetFolder::sqlite(), FakeLists::with_issues(2).await);
    let labelled = trigger("github_issues", &fake.url, r#","labels":["agent"]"#);
    let agent = with_schedule(home.idle_agent("a"), "s", &labelled, "#{{issue.number}} {{title}}");
    let fleet = home.start(vec![agent], Registry::default()).await;
    let mut events = fleet.subscribe_after(0);
    fires(&mut events, "a", "s").await;
    fires(&mut events, "a", "s").await;
    let asked = |more: usize| {
        let until = fake.fake_state.lock().unwrap().requests + more;
        let fake_state = std::sync::Arc::clone(&fake.fake_state);
        wait_for("more requests", async move || fake_state.lock().unwrap().requests >= until)
    };
    fake.fake_state.lock().unwrap().issues[1]["labels"] = json!([]);
    asked(2).await;
    fake.fake_state.lock().unwrap().issues[1]["labels"] = json!([{"name": "agent"}]);
    fires(&mut events, "a", "s").await;
    fake.fake_state.lock().unwrap().issues.push(issue(3));
    fires(&mut events, "a", "s").await;
    assert_eq!(prompts(&fleet).await, ["#1 `Issue 1`", "#2 `Issue 2`", "#2 `Issue 2`", "#3 `Issue 3`"]);
    let keys: Vec<String> =
        ledger(&fleet, id("a", "s")).await.iter().map(|row| row.key.to_string()).collect();
    assert_eq!(keys[..2], ["github:3", "github:2#1"]);
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

#[tokio::test]
async fn push_fires_again_only_with_on_push() {
    let (home, fake) = (FleetFolder::sqlite(), fake().await);
    let prompt = "{{head_ref}} {{metadata.head_sha}}";
    let agent =
        with_schedule(home.idle_agent("a"), "once", &trigger("github_pull_requests", &fake.url, ""), prompt);
    let agent =
        with_schedule(agent, "push", &trigger("github_pull_requests", &fake.url, r#","on":"push""#), prompt);
    let fleet = home.start(vec![agent], Registry::default()).await;
    wait_for("four jobs", async || jobs(&fleet).await.len() == 4).await;
    fake.fake_state.lock().unwrap().pulls[0]["head"]["sha"] = json!("d".repeat(40));
    wait_for("a fifth", async || jobs(&fleet).await.len() == 5).await;
    let rows = ledger(&fleet, id("a", "push")).await;
    assert_eq!((rows.len(), rows[0].key.as_str()), (3, format!("github:4:{}", "d".repeat(40)).as_str()));
    assert_eq!(ledger(&fleet, id("a", "once")).await.len(), 2);
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

#[tokio::test]
async fn http_error_is_retried_and_missing_token_is_not() {
    let (home, fake) = (FleetFolder::sqlite(), fake().await);
    fake.fake_state.lock().unwrap().refuses = Some(404);
    let agent = with_schedule(home.idle_agent("a"), "away", &trigger("github_issues", &fake.url, ""), "x");
    let no_token = trigger("github_issues", &fake.url, "").replace("CARGO_MANIFEST_DIR", "NO_SUCH_VARIABLE");
    let agent = with_schedule(agent, "locked", &no_token, "x");
    let fleet = home.start(vec![agent], Registry::default()).await;
    let mut events = fleet.subscribe_after(0);
    let gave_up =
        until(&mut events, |event| matches!(event.fact, Fact::ScheduleError { .. })).await.pop().unwrap();
    assert_eq!(gave_up.schedule.unwrap().as_str(), "locked");
    let Fact::ScheduleError { reason } = gave_up.fact else { unreachable!() };
    assert!(reason.contains("NO_SUCH_VARIABLE is not set"), "{reason}");
    wait_for("an error", async || record(&fleet, id("a", "away")).await.last_error.is_some()).await;
    let error = record(&fleet, id("a", "away")).await.last_error.unwrap();
    assert!(error.contains("404"), "{error}");
    fake.fake_state.lock().unwrap().refuses = None;
    fires(&mut events, "a", "away").await;
    assert_eq!(record(&fleet, id("a", "away")).await.last_error, None);
    fleet.stop(Stop::KeepAgents).await.unwrap();
}
