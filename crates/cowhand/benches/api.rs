//! Measures how the time of a list of jobs depends on the number of jobs: `GET /api/v1/jobs?limit=20` with a thousand
//! to a million jobs.
//!
//! `cargo bench -p cowhand --bench api`. The baseline, in the same run, reads the same rows without the API: one SQL
//! statement on its own connection. If the times in a column do not grow from row to row, they do not depend on the
//! number of jobs.

#![expect(clippy::unwrap_used, reason = "a benchmark that fails panics")]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use cowhand::api::{Api, Client, Page};
use cowhand::redact::Redactor;
use cowhand::state::StateFolder;
use cowhand::store::Store;
use cowhand::work::{SourceContext, WorkSources};
use cowhand_core::job::JobRecord;
use cowhand_core::roster::Roster;
use rusqlite::Connection;

const TIMES: u32 = 300;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let folder = tempfile::tempdir().unwrap();
    let state = StateFolder::beside(&folder.path().join("cowhand.yaml"));
    state.create().unwrap();
    let place = state.database().display().to_string();
    let store = Store::open(&place).await.unwrap();
    let sources = WorkSources::new(
        std::sync::Arc::default(),
        SourceContext::of_base(folder.path(), HashMap::default()),
    );
    let program = std::env::current_exe().unwrap();
    let roster = Roster::of(Vec::new());
    let api = Api::alone(store.clone(), state, roster, sources, Redactor::default(), program);
    let client = Client::alone(api);
    let by_hand = Connection::open(&place).unwrap();
    println!(
        "{:>9}  {:>12}  {:>12}  {:>9}  {:>12}  {:>14}  {:>14}",
        "jobs", "API", "SQL by hand", "ratio", "page 50 deep", "of one agent", "the failed"
    );
    let mut made = 0;
    for jobs in [1_000, 10_000, 100_000, 1_000_000] {
        make(&by_hand, made, jobs);
        made = jobs;
        let api = median(async || {
            let page: Page<JobRecord> = client.get("jobs?limit=20").await.unwrap();
            assert_eq!(page.items.len(), 20);
        })
        .await;
        let mut rows = Vec::new();
        for _ in 0..TIMES {
            let begin = Instant::now();
            let mut newest = by_hand.prepare("select * from jobs order by number desc limit 20").unwrap();
            let ids = newest.query_map([], |row| row.get("id")).unwrap();
            let read: Vec<String> = ids.map(Result::unwrap).collect();
            assert_eq!(read.len(), 20);
            rows.push(begin.elapsed());
        }
        let hand = middle(rows);
        let after: Page<JobRecord> = client.get("jobs?limit=1000").await.unwrap();
        let cursor = after.items.last().unwrap().id.clone();
        let path = format!("jobs?limit=20&after={cursor}");
        let deep = median(async || drop(list(&client, &path).await)).await;
        let of_agent = median(async || drop(list(&client, "jobs?limit=20&agent=rare").await)).await;
        let failed = median(async || drop(list(&client, "jobs?limit=20&status=failed").await)).await;
        let ratio = api.as_secs_f64() / hand.as_secs_f64();
        println!(
            "{jobs:>9}  {api:>12.1?}  {hand:>12.1?}  {ratio:>8.1}x  {deep:>12.1?}  {of_agent:>14.1?}  {failed:>14.1?}"
        );
    }
    store.close().await;
}

async fn list(client: &Client, path: &str) -> Page<JobRecord> {
    client.get(path).await.unwrap()
}

async fn median(mut ask: impl AsyncFnMut()) -> Duration {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let begin = Instant::now();
        ask().await;
        times.push(begin.elapsed());
    }
    middle(times)
}

fn middle(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Creates ended jobs with a prompt and a summary, like those of a real fleet.
fn make(connection: &Connection, from: u32, to: u32) {
    let sql = "with recursive n(i) as (select ?1 union all select i + 1 from n where i + 1 < ?2) \
        insert into jobs (id, agent, schedule, by_trigger, trigger_type, status, exit_reason, started_at, finished_at, \
        prompt, summary, attempt, run_started_at, attempt_started_at) \
        select printf('job-2026-01-01-%06x', i), 'agent' || (i % 20), 'nightly', 1, 'schedule', 'completed', 'success', \
        1767225600000000 + i, 1767225660000000 + i, 'Look at the newest issues and mend what you can.', \
        'Mended two of them, and left a word in the third.', 1, 1767225600000000 + i, null from n";
    connection.execute(sql, (from, to)).unwrap();
}
