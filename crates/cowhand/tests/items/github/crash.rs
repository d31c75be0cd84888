//! The daemon dies at each step of claim, run, report and release, also between two requests to GitHub:
//! afterwards every issue was done once, with one comment for each fact.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

use cowhand::fleet::Fleet;
use cowhand_core::event::Fact;
use cowhand_core::job::JobStatus;
use futures_util::StreamExt;

use super::{Hub, OFTEN, marker_of_another_fleet, minutes, options, output, said};
use crate::fake::FakeIssue;
use crate::{jobs, stop, until};

/// Variable with the config of a daemon that has to die.
const DOOMED: &str = "COWHAND_TEST_DOOMED";
const SIGABRT: i32 = 6;

/// Runs in the process that dies: the test starts itself again with a config. Without a config it does nothing.
#[tokio::test]
async fn a_daemon_in_a_process_of_its_own() {
    let Some(config) = std::env::var_os(DOOMED) else { return };
    let _fleet = Fleet::start(options(config.into())).await.unwrap();
    // The timeout passes only if the fault is at a place that is never reached.
    tokio::time::timeout(Duration::from_mins(1), std::future::pending::<()>()).await.unwrap();
}

async fn dies(hub: &Hub, fault: &str) {
    let mut doomed = Command::new(std::env::current_exe().unwrap());
    doomed.args(["--exact", "github::crash::a_daemon_in_a_process_of_its_own"]);
    doomed.env(DOOMED, hub.scene.path("cowhand.yaml")).env("COWHAND_FAULT", fault);
    let died = output(doomed).await.status;
    assert_eq!(died.signal(), Some(SIGABRT), "{fault}: it should have died there");
}

/// Runs several tests in parallel, since each of them mostly waits.
async fn each(steps: &[&str], story: impl AsyncFn(String)) {
    let stories = steps.iter().map(|step| story((*step).to_owned()));
    futures_util::stream::iter(stories).buffer_unordered(4).collect::<Vec<()>>().await;
}

fn is_done(issue: &FakeIssue, comments: usize) -> bool {
    issue.is_closed
        && issue.labels.is_empty()
        && said(issue, "cowhand: done").len() == 1
        && issue.comments.len() == comments
}

/// The agent has three places, so the issues are claimed together. The daemon dies at different steps of these claims.
#[tokio::test]
async fn daemon_dies_while_it_claims_several_issues() {
    let steps = [
        "item_taken:2",
        "github_marked",
        "github_marked:2",
        "github_marked:3",
        "github_labelled",
        "github_unlabelled:2",
        "item_claimed",
        "item_claimed:2",
        "item_claimed:3",
        "prepared",
    ];
    each(&steps, async |fault| {
        let hub = Hub::new("echo $COWHAND_JOB_ID >> runs; cat", "", OFTEN).await;
        let config = hub.scene.path("cowhand.yaml");
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("{text}    instances: {{max_concurrent: 3}}\n")).unwrap();
        for number in 1..=3 {
            hub.fake.add(number, &["ready"]);
        }
        dies(&hub, &fault).await;
        let fleet = hub.started().await;
        let mut events = fleet.subscribe_after(0);
        until(&mut events, 3, |fact| matches!(fact, Fact::WorkReported { .. })).await;
        let jobs = jobs(&fleet).await;
        assert!(jobs.iter().all(|job| job.status() == JobStatus::Completed), "{fault}: {jobs:?}");
        let mut runs: Vec<String> =
            std::fs::read_to_string(hub.scene.path("runs")).unwrap().lines().map(str::to_owned).collect();
        runs.sort();
        let mut ids: Vec<String> = jobs.iter().map(|job| job.id().to_string()).collect();
        ids.sort();
        assert_eq!((runs.len(), &runs), (3, &ids), "{fault}: each ran once");
        for number in 1..=3 {
            assert!(is_done(&hub.fake.issue(number), 1), "{fault}: {:?}", hub.fake.issue(number));
        }
        assert!(fleet.store().items().await.unwrap().is_empty(), "{fault}");
        stop(fleet).await;
    })
    .await;
}

#[tokio::test]
async fn daemon_dies_at_each_step_of_claim_run_and_report() {
    let steps = [
        "item_taken",
        "github_marked",
        "github_labelled",
        "github_unlabelled",
        "item_claimed",
        "prepared",
        "claimed",
        "launched",
        "ended",
        "settled",
        "github_reported",
        "github_label_removed",
        "github_closed",
        "told",
        "github_marked:2",
        "github_closed:2",
    ];
    each(&steps, async |fault| {
        let hub = Hub::new("echo $COWHAND_JOB_ID >> runs; cat", "", OFTEN).await;
        hub.fake.add(1, &["ready"]);
        hub.fake.add(2, &["ready"]);
        dies(&hub, &fault).await;
        let fleet = hub.started().await;
        let mut events = fleet.subscribe_after(0);
        until(&mut events, 2, |fact| matches!(fact, Fact::WorkReported { .. })).await;
        let jobs = jobs(&fleet).await;
        assert!(jobs.iter().all(|job| job.status() == JobStatus::Completed), "{fault}: {jobs:?}");
        let mut ids: Vec<&str> = jobs.iter().map(|job| job.id().as_str()).collect();
        let runs = std::fs::read_to_string(hub.scene.path("runs")).unwrap();
        let mut runs: Vec<&str> = runs.lines().collect();
        ids.sort_unstable();
        runs.sort_unstable();
        assert_eq!((ids.len(), runs), (2, ids), "{fault}: each job ran once");
        for number in [1, 2] {
            let issue = hub.fake.issue(number);
            assert!(is_done(&issue, 1), "{fault}: {issue:?}");
        }
        assert!(fleet.store().items().await.unwrap().is_empty(), "{fault}");
        stop(fleet).await;
    })
    .await;
}

/// The first job kills itself, so its issue is released and done by a second job.
#[tokio::test]
async fn daemon_dies_at_each_step_of_release() {
    let steps =
        ["settled", "github_released", "github_release_unlabelled", "github_release_labelled", "told"];
    each(&steps, async |fault| {
        let hub = Hub::new("if [ ! -e once ]; then touch once; kill -9 $$; fi; cat", "", OFTEN).await;
        hub.fake.add(1, &["ready"]);
        dies(&hub, &fault).await;
        let fleet = hub.started().await;
        let mut events = fleet.subscribe_after(0);
        until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { .. })).await;
        let issue = hub.fake.issue(1);
        assert!(is_done(&issue, 2), "{fault}: {issue:?}");
        assert_eq!(said(&issue, "has released this issue").len(), 1, "{fault}: {issue:?}");
        assert_eq!(jobs(&fleet).await.len(), 2, "{fault}");
        stop(fleet).await;
    })
    .await;
}

/// A daemon that finds the claim of a dead fleet dies too.
#[tokio::test]
async fn daemon_dies_while_it_puts_back_expired_claim() {
    let steps =
        ["item_taken", "github_marked", "expired_taken_over", "github_released", "github_release_labelled"];
    each(&steps, async |fault| {
        let hub = Hub::new("cat", "", OFTEN).await;
        hub.fake.add(1, &["agent-working"]);
        let lapsed = hub.fake.state().now - minutes(5);
        hub.fake.state().comment(1, "somebody", &marker_of_another_fleet(lapsed));
        dies(&hub, &fault).await;
        let fleet = hub.started().await;
        let mut events = fleet.subscribe_after(0);
        until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { .. })).await;
        let issue = hub.fake.issue(1);
        // An unfinished takeover is undone without a comment.
        let told = said(&issue, "The claim of job-x").len();
        assert!(told <= 1 && is_done(&issue, 1 + told), "{fault}: {issue:?}");
        assert_eq!(jobs(&fleet).await.len(), 1, "{fault}");
        stop(fleet).await;
    })
    .await;
}
