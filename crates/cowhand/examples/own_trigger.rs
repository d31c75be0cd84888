//! A custom trigger type: each new file in a folder creates a job.
//!
//! ```sh
//! cargo run --example own_trigger -- cowhand.yaml path/to/cowhand
//! ```
//!
//! with, in `cowhand.yaml`:
//!
//! ```yaml
//! agents:
//!   - name: clerk
//!     schedules:
//!       inbox: {type: custom, name: inbox, with: {folder: in}, prompt: 'Answer this letter: {{body}}'}
//! ```

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use cowhand::fleet::{Fleet, Options};
use cowhand::trigger::{PollingStrategy, Registry, StrategyContext, Task, TaskSource, TriggerStrategy};

/// The source of tasks: the files that are in the folder now.
struct Inbox {
    folder: PathBuf,
}

#[async_trait]
impl TaskSource for Inbox {
    async fn fetch_tasks(&self) -> anyhow::Result<Vec<Task>> {
        let mut tasks = Vec::new();
        for entry in std::fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let body = std::fs::read_to_string(entry.path())?;
            // The name identifies the letter. A file that was removed and put back is a new letter.
            tasks.push(Task { source_id: name.clone(), title: name, body, ..Task::default() });
        }
        tasks.sort_by(|one, other| one.source_id.cmp(&other.source_id));
        Ok(tasks)
    }

    fn source_type(&self) -> &'static str {
        "inbox"
    }
}

/// Settings under `with:`.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct With {
    folder: PathBuf,
}

/// Builds the strategy. It polls the source of tasks, with a strategy that cowhand provides.
fn inbox(context: &StrategyContext) -> anyhow::Result<Box<dyn TriggerStrategy>> {
    let With { folder } = context.with()?;
    Ok(Box::new(PollingStrategy::new(Inbox { folder }, Duration::from_secs(1))))
}

pub(crate) fn registry() -> Registry {
    Registry::default().with("inbox", inbox)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(config), Some(program)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("usage: own_trigger CONFIG PROGRAM");
    };
    let options = Options { triggers: registry(), ..Options::of(config, program) };
    let fleet = Fleet::start(options).await?;
    let mut events = fleet.subscribe().await?;
    while let Some(event) = events.next().await? {
        println!("{} {}", event.subject(), event.fact.type_name());
    }
    Ok(())
}
