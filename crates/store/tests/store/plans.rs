//! Each statement reads few rows, however long the history of the store and the queues of other agents are.
//!
//! The test fills a store with the rows of many ended jobs, runs every statement with plausible arguments in a
//! transaction that is rolled back, and counts what the database did: steps of its virtual machine on SQLite, rows and
//! blocks on PostgreSQL. A statement that reads or sorts a whole table, or all rows of one agent or schedule, exceeds
//! the limit. SQLite plans without statistics, because cowhand never runs `analyze` there; PostgreSQL gets statistics, as
//! its autovacuum would collect them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, Executor, Row as _};

use crate::{TestDb, on_both};

on_both! {
    statements_read_few_rows_of_a_long_history,
}

const HISTORY: &str = include_str!("fixtures/history.sql");
/// Number of jobs. Even the rows of one agent, and those of one schedule, are many more than a statement may read.
const JOBS: u32 = 20_000;
/// Number of jobs with `COWHAND_LONG=1`.
const JOBS_LONG: u32 = 1_000_000;

/// Steps of the virtual machine of SQLite. A row takes at least three, and a row of a list of jobs takes 400.
const MAX_STEPS: u64 = 10_000;
/// Rows that the scans of PostgreSQL return or discard.
const MAX_ROWS: u64 = 500;
/// Blocks that PostgreSQL reads. Rows that do not match the condition of an index are counted only here.
const MAX_BLOCKS: u64 = 300;

/// Long queues of 25 agents whose jobs no statement is about: a quarter of all jobs. Only SQLite has them, because it knows
/// nothing about the distribution of the values and could read these jobs by their status.
const QUEUES: &str =
    "update jobs set status = 'pending', finished_at = null where agent <> 'agent-0' and number % 100 > 50";

/// Statements that may read more, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("ENDED_JOBS", "pruning looks at all ended jobs, once in each interval"),
    ("SCHEDULES_WITH_JOBS", "runs only for a name that no schedule has, to suggest another name"),
    ("FORGET_SESSIONS", "a person clears the sessions of an agent"),
    ("USAGE_IN_ALL", "metrics read the sums of all quarters of an hour"),
    ("ALL_FAILURES", "a page lists all work items that failed"),
    ("ALL_SCHEDULES", "reads all schedules, whose number does not depend on the history"),
    ("LOADED_SCHEDULES", "the load of a config reads all schedules"),
    ("WAIT_FOR_CALENDAR", "the load of a config looks at all waiting jobs"),
    ("LIVE_JOBS", "the status of the whole fleet contains all jobs that have not ended"),
    ("LIVE_AGENTS", "the first plan, and a plan of the whole fleet, look at all jobs that have not ended"),
    ("LIVE_CHILD", "the removal of a job looks for its retries and forks among the jobs that have not ended"),
    ("LIST_JOBS_OF_STATUS", "a list with several filters reads jobs until it is full"),
    ("LOCK_JOBS", ADOPTION),
    ("MOVE_FIRINGS", ADOPTION),
    ("DROP_FIRINGS", ADOPTION),
    ("RAISE_SIGHTINGS", ADOPTION),
    ("MOVE_SIGHTINGS", ADOPTION),
    ("DROP_SIGHTINGS", ADOPTION),
    ("MOVE_JOBS", ADOPTION),
    ("FREE_JOBS", ADOPTION),
    ("RENAME_JOBS", ADOPTION),
    ("DROP_SCHEDULE", ADOPTION),
];
const ADOPTION: &str = "moves the history of a schedule to its new name, once";

/// Name and SQL of a statement.
type StatementText = (&'static str, &'static str);

/// What a statement did with one set of arguments.
#[derive(Debug, Default)]
struct Reads {
    /// The highest number, as a share of its limit.
    share: f64,
    counts: String,
    plan: String,
}

/// Which values the arguments have.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Given {
    /// All values exist.
    Known,
    /// No value exists: a read that stops at the first match does not stop.
    Unknown,
    /// Agent, schedule and node exist, and nothing else.
    KnownAgent,
}

async fn statements_read_few_rows_of_a_long_history(db: TestDb) {
    let jobs = if std::env::var_os("COWHAND_LONG").is_some() { JOBS_LONG } else { JOBS };
    let store = db.open().await;
    let statements = store.statements();
    store.close().await;
    let reads = if db.url.starts_with("postgres") {
        postgres(&db.url, jobs, &statements).await
    } else {
        sqlite(&db.url, jobs, &statements)
    };
    let (exceptions, others): (Vec<_>, Vec<_>) = reads.iter().partition(|(name, _)| is_exception(name));
    let mut problems = String::new();
    for (name, Reads { counts, plan, .. }) in others.iter().filter(|(_, reads)| reads.share > 1.0) {
        write!(problems, "\n{name}: {counts}\n{plan}\n").unwrap();
    }
    assert!(problems.is_empty(), "these statements read too much:\n{problems}");
    // On PostgreSQL the exceptions are not run: they change many rows, which takes long.
    if !db.url.starts_with("postgres") {
        let needed: Vec<_> = exceptions.iter().filter(|(_, reads)| reads.share > 1.0).collect();
        let needless = EXCEPTIONS.iter().filter(|(name, _)| needed.iter().all(|(needed, _)| *needed != name));
        assert_eq!(needless.collect::<Vec<_>>(), [] as [&(&str, &str); 0], "an exception is not needed");
    }
}

/// Returns the statements to run: first those that change nothing, because PostgreSQL keeps the rows that a statement
/// changed, although the transaction is rolled back. An insert of values is left out, because it reads only the rows
/// with the same keys.
fn in_order(statements: &[StatementText]) -> Vec<StatementText> {
    let is_insert = |sql: &str| sql.starts_with("insert into") && sql.contains(" values (");
    let mut all: Vec<_> = statements.iter().filter(|(_, sql)| !is_insert(sql)).copied().collect();
    all.sort_by_key(|(_, sql)| !sql.starts_with("select") && !sql.starts_with("with"));
    all
}

fn is_exception(name: &str) -> bool {
    EXCEPTIONS.iter().any(|(exception, _)| *exception == name)
}

fn sqlite(path: &str, jobs: u32, statements: &[StatementText]) -> BTreeMap<&'static str, Reads> {
    let mut file = rusqlite::Connection::open(path).unwrap();
    file.execute_batch(&format!(
        "pragma foreign_keys = on; create temp table numbers as with recursive n (i) as \
         (select 1 union all select i + 1 from n where i < {jobs}) select i from n"
    ))
    .unwrap();
    file.execute_batch(&format!("begin; {HISTORY}; {QUEUES}; commit")).unwrap();
    let mut all = BTreeMap::new();
    for (name, sql) in in_order(statements) {
        for given in [Given::Known, Given::Unknown, Given::KnownAgent] {
            let transaction = file.transaction().unwrap();
            // Rows that refer to a deleted row are searched now, and an error would be reported at the commit.
            transaction.execute_batch("pragma defer_foreign_keys = on").unwrap();
            let mut statement = transaction.prepare(sql).unwrap();
            for parameter in 1..=statement.parameter_count() {
                let number = statement.parameter_name(parameter).unwrap()[1..].parse().unwrap();
                let value = argument(sql, number, given, jobs);
                match value.as_ref().map(|value| value.parse::<i64>()) {
                    None => statement.raw_bind_parameter(parameter, rusqlite::types::Null),
                    Some(Ok(value)) => statement.raw_bind_parameter(parameter, value),
                    Some(Err(_)) => statement.raw_bind_parameter(parameter, value.unwrap()),
                }
                .unwrap();
            }
            let mut rows = statement.raw_query();
            while rows.next().unwrap_or_else(|error| panic!("{name}: {error}: {sql}")).is_some() {}
            drop(rows);
            let steps = u64::try_from(statement.get_status(rusqlite::StatementStatus::VmStep)).unwrap();
            drop(statement);
            let mut explain = transaction.prepare(&format!("explain query plan {sql}")).unwrap();
            let plan: Vec<String> =
                explain.raw_query().mapped(|row| row.get("detail")).map(Result::unwrap).collect();
            drop(explain);
            transaction.rollback().unwrap();
            let counts = format!("{steps} steps with {given:?} arguments");
            keep(&mut all, name, Reads { share: share(steps, MAX_STEPS), counts, plan: plan.join("\n") });
        }
    }
    all
}

async fn postgres(url: &str, jobs: u32, statements: &[StatementText]) -> BTreeMap<&'static str, Reads> {
    let mut server = sqlx::PgConnection::connect(url).await.unwrap();
    let numbers = format!("create temp table numbers as select generate_series(1, {jobs}) as i");
    server.execute(AssertSqlSafe(numbers)).await.unwrap();
    server.execute(sqlx::raw_sql(HISTORY)).await.unwrap();
    server.execute("vacuum analyze").await.unwrap();
    // Rows that refer to a deleted row are not an error.
    server.execute("set session_replication_role = replica").await.unwrap();
    let mut all = BTreeMap::new();
    for (name, sql) in in_order(statements).into_iter().filter(|(name, _)| !is_exception(name)) {
        let parameters = (1..100).take_while(|number| sql.contains(&format!("${number}"))).count();
        server.execute(sqlx::raw_sql(AssertSqlSafe(format!("prepare checked as {sql}")))).await.unwrap();
        for given in [Given::Known, Given::Unknown, Given::KnownAgent] {
            let values = (1..=parameters).map(|number| argument(sql, number, given, jobs));
            let quoted =
                |value: Option<String>| value.map_or("null".to_owned(), |value| format!("'{value}'"));
            let values = values.map(quoted).collect::<Vec<_>>().join(", ");
            let call = if parameters == 0 { "checked".to_owned() } else { format!("checked ({values})") };
            // PostgreSQL makes a plan for the arguments of the first five calls. Later it prefers one plan for all
            // arguments, unless the plans for the arguments were cheaper.
            for calls_before in [0, 5] {
                for _ in 0..calls_before {
                    let explain = format!("explain execute {call}");
                    server.execute(sqlx::raw_sql(AssertSqlSafe(explain))).await.unwrap();
                }
                let mut transaction = server.begin().await.unwrap();
                let explain = format!("explain (analyze, buffers, format json) execute {call}");
                let row = transaction
                    .fetch_one(sqlx::raw_sql(AssertSqlSafe(explain)))
                    .await
                    .unwrap_or_else(|error| panic!("{name}: {error}: {sql} {values}"));
                transaction.rollback().await.unwrap();
                let plan: Value =
                    serde_json::from_str(&row.try_get_unchecked::<String, _>(0).unwrap()).unwrap();
                let plan = &plan[0]["Plan"];
                let (mut rows, mut lines) = (0, Vec::new());
                read_plan(plan, 0, &mut rows, &mut lines);
                let blocks = number(plan, "Shared Hit Blocks") + number(plan, "Shared Read Blocks");
                let counts = format!("{rows} rows, {blocks} blocks with {given:?} arguments");
                let share = share(rows, MAX_ROWS).max(share(blocks, MAX_BLOCKS));
                keep(&mut all, name, Reads { share, counts, plan: lines.join("\n") });
            }
        }
        server.execute("deallocate checked").await.unwrap();
    }
    all
}

/// Adds up the rows that the scans of a plan read, and describes its nodes.
fn read_plan(node: &Value, depth: usize, rows: &mut u64, lines: &mut Vec<String>) {
    let text = |key: &str| node[key].as_str().unwrap_or_default();
    let read = number(node, "Actual Rows")
        + number(node, "Rows Removed by Filter")
        + number(node, "Rows Removed by Index Recheck");
    let read = read * number(node, "Actual Loops");
    if !text("Relation Name").is_empty() && text("Node Type").ends_with("Scan") {
        *rows += read;
    }
    lines.push(format!(
        "{:depth$}{} {} {} rows {read} {}{}",
        "",
        text("Node Type"),
        text("Relation Name"),
        text("Index Name"),
        text("Index Cond"),
        text("Filter"),
    ));
    for child in node["Plans"].as_array().into_iter().flatten() {
        read_plan(child, depth + 2, rows, lines);
    }
}

fn number(node: &Value, key: &str) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a count, which newer versions average"
    )]
    node[key].as_f64().map_or(0, |number| number.ceil() as u64)
}

#[expect(clippy::cast_precision_loss, reason = "only compared with 1")]
fn share(count: u64, limit: u64) -> f64 {
    count as f64 / limit as f64
}

/// Keeps the largest counts of a statement.
fn keep(all: &mut BTreeMap<&'static str, Reads>, name: &'static str, reads: Reads) {
    let kept = all.entry(name).or_default();
    if reads.share >= kept.share {
        *kept = reads;
    }
}

/// Returns a value for a parameter, by the column with which the statement compares it or to which it assigns it. A
/// filter that is optional (`or $1 is null`) is not set.
fn argument(sql: &str, number: usize, given: Given, jobs: u32) -> Option<String> {
    let parameter = format!("${number}");
    if sql.contains(&format!("{parameter} is null")) {
        return None;
    }
    let ends = |at: usize| !sql[at + parameter.len()..].starts_with(|next: char| next.is_ascii_digit());
    let at = sql.match_indices(&parameter).map(|(at, _)| at).find(|at| ends(*at)).unwrap();
    let is_list = ["json_each(", "json_array_elements_text(("].iter().any(|list| sql[..at].ends_with(list));
    let value = value(sql, &column(&sql[..at], &sql[at..]), given, jobs);
    Some(if is_list { serde_json::to_string(&[value]).unwrap() } else { value })
}

/// Returns the name of the column before a parameter, or that of the list that the parameter is.
fn column(before: &str, after: &str) -> String {
    for list in ["(select value from json_each(", "(select json_array_elements_text(("] {
        if let Some(before) = before.strip_suffix(list) {
            return column(before, after);
        }
    }
    let is_table = before.ends_with("from json_each(") || before.ends_with("from json_array_elements_text((");
    let mut words = before.split_whitespace().rev();
    let word = match (is_table, words.next().unwrap_or_default()) {
        (true, _) => after.split(" as ").nth(1).unwrap_or_default(),
        (false, "limit") => "limit",
        (false, _operator) => words.next().unwrap_or_default(),
    };
    let name = if is_table && word.starts_with("listed") { "key" } else { word };
    let name = name.split([' ', ')']).next().unwrap_or_default();
    name.rsplit(['.', '(']).next().unwrap_or_default().to_owned()
}

fn value(sql: &str, column: &str, given: Given, jobs: u32) -> String {
    let middle = jobs / 2;
    let now = 1_767_600_000_000_000 + i64::from(jobs) * 60_000_000;
    let known_agent = |value: &str| if given == Given::Unknown { "nothing" } else { value }.to_owned();
    let known = |value: String| if given == Given::Known { value } else { "nothing".to_owned() };
    match column {
        "id" if sql.contains("schedules") && !sql.contains("jobs") => known_agent("agent-0/s0"),
        "id" if sql.contains("web_conversations") => known("c-0".to_owned()),
        "conversation" => known("c-0".to_owned()),
        "id" | "job_id" | "holder" | "asked_by" | "root_id" | "forked_from" | "retry_of" => {
            known(format!("job-2026-01-05-{}", 1_000_000 + middle))
        }
        "agent" | "agents" | "named" | "of_agent" => known_agent("agent-0"),
        "schedule" => known_agent("s0"),
        "schedule_id" | "schedules" => known_agent("agent-0/s0"),
        "node" | "preparer" => known_agent("node-1"),
        "provider" => known_agent("claude"),
        "queue" => known_agent("queue"),
        "session_key" => known("key-0".to_owned()),
        "item" => known(format!("item-{}", middle + 1)),
        "key" | "firing_key" => known(format!("cron:{middle}")),
        "tool" => known("Bash".to_owned()),
        "target" => known_agent("ops"),
        "rule" => known("deny".to_owned()),
        // The last characters of an id.
        "16" => known((1_000_000 + middle).to_string()),
        "limit" => "20".to_owned(),
        // The newest events and times: how far a list goes back is up to its reader.
        "seq" => (u64::from(jobs) * 5 - 20).to_string(),
        "slot" | "last_at" | "ended_at" | "finished_at" | "due_at" | "started_at" => {
            (now - 3_600_000_000).to_string()
        }
        "number" if sql.contains("web_messages") => jobs.to_string(),
        "not_before" | "expires_at" | "until" | "prepare_until" | "updated_at" => now.to_string(),
        // Values that the tables accept.
        "status" if sql.contains("update asks") => "allowed".to_owned(),
        "status" => "pending".to_owned(),
        "state" if sql.contains("hook_runs") => "completed".to_owned(),
        "state" if sql.contains("workspaces") => "used".to_owned(),
        "state" => "active".to_owned(),
        "outcome" => "ran".to_owned(),
        _ => "1".to_owned(),
    }
}
