//! The GitHub source: against a fake that can misbehave in every way, and against a third-party emulator
//! behind GitHub's own description of its API.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says so by panicking")]

mod apps;
mod claiming;
mod emulate;
mod expired;
mod fetching;
mod finishing;
mod race;
mod tokens;
mod trouble;

use std::time::Duration;

use cowhand::work::github::{ClaimMethod, GitHubSettings, GitHubWorkSource, RetryOptions};
use cowhand::work::{Claimant, SourceContext, WorkSource};
use cowhand_core::github::Auth;
use cowhand_core::work::{ClaimFailureReason, ClaimResult, WorkItemId, WorkOutcome, WorkResult};
use cowhand_testing::github as fake;
use fake::{Fake, REPO};
use jiff::{SignedDuration, Timestamp};

const TOKEN: &str = "ghp_0123456789SECRET";

/// Returns settings with the usual retries, but a thousand times faster.
fn settings(url: &str) -> GitHubSettings {
    GitHubSettings {
        api_url: url.to_owned(),
        retry: RetryOptions { base_delay: Duration::from_millis(1), ..RetryOptions::default() },
        claim_method: ClaimMethod::Marker { confirm_delay: Duration::ZERO },
        ..GitHubSettings::new(REPO)
    }
}

fn source_with(settings: GitHubSettings) -> GitHubWorkSource {
    let setting = SourceContext::new("", |name| (name == "GITHUB_TOKEN").then(|| TOKEN.to_owned()));
    GitHubWorkSource::new(settings, &Auth::default(), &setting).unwrap()
}

async fn scene() -> (Fake, GitHubWorkSource) {
    let fake = Fake::start().await;
    let source = source_with(settings(&fake.url));
    (fake, source)
}

fn id(number: u64) -> WorkItemId {
    WorkItemId::new("github", &number.to_string()).unwrap()
}

fn claimant(holder: &str) -> Claimant {
    let until = Timestamp::now() + SignedDuration::from_mins(10);
    Claimant { fleet: "herd".into(), holder: holder.into(), until }
}

fn result(outcome: WorkOutcome) -> WorkResult {
    WorkResult { outcome, summary: "Did it.".into(), details: None, artifacts: Vec::new(), error: None }
}

async fn claim(source: &GitHubWorkSource, number: u64, holder: &str) -> Result<(), ClaimFailureReason> {
    match source.claim_work(&id(number), &claimant(holder)).await.unwrap() {
        ClaimResult::Claimed(item) => {
            assert_eq!(item.id, id(number));
            Ok(())
        }
        ClaimResult::Refused { reason, .. } => Err(reason),
    }
}
