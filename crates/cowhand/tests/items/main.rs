//! From a queue of work items to jobs and back: schedules with a work source, and the reports to it.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod claiming;
mod crash;
mod flow;
mod github;
mod given_up;
mod missing;
mod panics;
mod places;

use std::fs;
use std::path::PathBuf;

use cowhand::fleet::{Fleet, Options, Stop, Subscription};
use cowhand::store::JobFilter;
use cowhand_core::event::{Event, Fact};
use cowhand_core::job::Job;
use cowhand_testing::github as fake;
use cowhand_testing::postgres::Postgres;
use tempfile::TempDir;

/// Folder with a fleet and a queue of Markdown files.
struct Scene {
    folder: TempDir,
    _server: Option<Postgres>,
}

impl Scene {
    /// Creates a fleet. `agent` and `schedule` are lines of YAML for the one agent `worker` and its schedule
    /// `poll`; `script` is its program, with the prompt on its stdin.
    fn new(script: &str, agent: &str, schedule: &str) -> Self {
        Self::on("sqlite", script, agent, schedule)
    }

    fn on(database: &str, script: &str, agent: &str, schedule: &str) -> Self {
        Self::with_source(database, script, &format!("type: files, path: tasks{agent}"), schedule)
    }

    fn with_source(database: &str, script: &str, source: &str, schedule: &str) -> Self {
        let server = (database == "postgres").then(Postgres::start);
        let store = server.as_ref().map(|server| format!("store: {}\n", server.url())).unwrap_or_default();
        let scene = Self { folder: TempDir::new().unwrap(), _server: server };
        fs::create_dir(scene.path("tasks")).unwrap();
        fs::write(scene.path("work.sh"), script).unwrap();
        let text = format!(
            "{store}agents:\n  - name: worker\n    runtime: command\n    command: [sh, work.sh]\n    \
             work_source: {{{source}}}\n    schedules:\n      poll: {{{schedule}}}\n"
        );
        fs::write(scene.path("cowhand.yaml"), text).unwrap();
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn task(&self, name: &str, front_matter: &str) {
        let text = format!("---\ntitle: Do {name}\n{front_matter}---\nPlease do {name}.\n");
        fs::write(self.path(&format!("tasks/{name}.md")), text).unwrap();
    }

    /// Replaces a file atomically, so that no poll reads an incomplete item.
    fn replace(&self, name: &str, text: &str) {
        let new = self.path("tasks/.new");
        fs::write(&new, text).unwrap();
        fs::rename(new, self.path(&format!("tasks/{name}.md"))).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(&format!("tasks/{name}.md"))).unwrap()
    }

    /// Returns the value of `status:`; an untouched item has none and counts as available.
    fn status(&self, name: &str) -> String {
        let text = self.read(name);
        let line = text.lines().find_map(|line| line.strip_prefix("status:"));
        line.map_or("available", str::trim).to_owned()
    }

    async fn started(&self) -> Fleet {
        let options = Options::of(self.path("cowhand.yaml"), env!("CARGO_BIN_EXE_cowhand"));
        Fleet::start(options).await.unwrap()
    }
}

/// Returns all events up to the `count`th that matches.
async fn until(events: &mut Subscription, count: usize, fits: impl Fn(&Fact) -> bool) -> Vec<Event> {
    let (mut seen, mut found) = (Vec::new(), 0);
    while found < count {
        let event = events.next().await.unwrap().expect("the fleet has ended");
        found += usize::from(fits(&event.fact));
        seen.push(event);
    }
    seen
}

async fn jobs(fleet: &Fleet) -> Vec<Job> {
    let mut jobs = fleet.store().jobs(JobFilter::default(), 100).await.unwrap();
    jobs.reverse();
    jobs
}

async fn stop(fleet: Fleet) {
    fleet.stop(Stop::Cancel).await.unwrap();
}
