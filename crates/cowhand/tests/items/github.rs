//! The flow of work items with issues on GitHub, with the fake GitHub of the adapter's tests.

mod by_hand;
mod crash;
mod doctor;
mod ends;
mod expired;
mod given_up;
mod hands;
mod renewing;
mod trust;
mod unfinished;

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use cowhand::clock::Clock;
use cowhand::fleet::{Fleet, Options, TriggerRequest, Triggered};
use cowhand::work::github::{ClaimMethod, GitHubSettings, GitHubWorkSource, RetryOptions};
use cowhand::work::{SourceContext, SourceRegistry, WorkSource, WorkSourceError};
use cowhand_core::id::AgentName;
use cowhand_core::job::Job;
use cowhand_core::work_source::ConfiguredSource;
use jiff::{SignedDuration, Timestamp};

use crate::Scene;
use crate::fake::{Fake, FakeComment, FakeIssue, FakeState, OnRequest, REPO};

const OFTEN: &str = "type: interval, interval: 1s, prompt: Work on this.";
const BY_HAND: &str = "type: manual";

/// Fleet with its fake GitHub.
struct Hub {
    fake: Fake,
    scene: Scene,
}

impl Hub {
    /// Creates a fleet; `more` is added to the work source.
    async fn new(script: &str, more: &str, schedule: &str) -> Self {
        let fake = Fake::start().await;
        let source = format!(
            "type: github, repo: {REPO}, api_url: '{}', auth: {{token_env: HUB_TOKEN}}{more}",
            fake.url
        );
        let scene = Scene::with_source("sqlite", script, &source, schedule);
        std::fs::write(scene.path(".env"), "HUB_TOKEN=ghp_0123456789SECRET\n").unwrap();
        Self { fake, scene }
    }

    fn options(&self) -> Options {
        options(self.scene.path("cowhand.yaml"))
    }

    async fn started(&self) -> Fleet {
        Fleet::start(self.options()).await.unwrap()
    }

    async fn started_with(&self, clock: &Clock) -> Fleet {
        Fleet::start(Options { clock: clock.clone(), ..self.options() }).await.unwrap()
    }

    /// Creates the file `go`, so that a waiting script continues.
    fn go(&self) {
        std::fs::write(self.scene.path("go"), "").unwrap();
    }
}

fn options(config: PathBuf) -> Options {
    let mut sources = SourceRegistry::empty();
    sources.register("github", quick).unwrap();
    sources.add_built_ins();
    let options = Options::of(config, env!("CARGO_BIN_EXE_cowhand"));
    Options { work_sources: sources, ..options }
}

/// Builds the source from config, with shorter waits.
fn quick(config: &ConfiguredSource, setting: &SourceContext) -> Result<Arc<dyn WorkSource>, WorkSourceError> {
    let ConfiguredSource::Github { auth, .. } = config else { panic!("{config:?}") };
    let settings = GitHubSettings {
        retry: RetryOptions { base_delay: Duration::from_millis(1), ..RetryOptions::default() },
        claim_method: ClaimMethod::Marker { confirm_delay: Duration::ZERO },
        ..GitHubWorkSource::from_config(config, setting)?.settings().clone()
    };
    Ok(Arc::new(GitHubWorkSource::new(settings, auth, setting)?))
}

async fn trigger(fleet: &Fleet) -> Job {
    let worker: AgentName = "worker".parse().unwrap();
    let by_hand = TriggerRequest { schedule: Some("poll".parse().unwrap()), ..TriggerRequest::default() };
    match fleet.trigger(&worker, by_hand).await.unwrap() {
        Triggered::New(job) => job,
        other => panic!("{other:?}"),
    }
}

/// Runs a command on another thread, since the fake has to continue answering.
async fn output(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

/// Script that waits until [`Hub::go`].
const WAIT: &str = "while [ ! -e go ]; do sleep 0.05; done";

/// Returns the comment of another fleet's claim.
fn marker_of_another_fleet(until: Timestamp) -> String {
    let json = serde_json::json!({ "fleet": "others", "holder": "job-x", "until": until });
    format!("<!-- cowhand:claim {json} -->\ncowhand is working on this")
}

/// Returns the comments that contain this text.
fn said<'a>(issue: &'a FakeIssue, words: &str) -> Vec<&'a FakeComment> {
    issue.comments.iter().filter(|comment| comment.body.contains(words)).collect()
}

/// Returns a channel that gets a message for each request that begins with `request`.
fn heard(fake: &Fake, request: &'static str) -> tokio::sync::mpsc::UnboundedReceiver<()> {
    let (ear, heard) = tokio::sync::mpsc::unbounded_channel();
    let listen = move |line: &str, _: &mut FakeState| {
        if line.starts_with(request) {
            // The receiver may be closed.
            let _ = ear.send(());
        }
    };
    fake.state().on_request = Some(OnRequest(Box::new(listen)));
    heard
}

fn minutes(minutes: i64) -> SignedDuration {
    SignedDuration::from_mins(minutes)
}
