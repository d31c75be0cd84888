//! Measures cowhand and, in the same run, the limit of the same work without cowhand. `scripts/bench` runs it and
//! prints a table; `scripts/bench --help` lists its options.
//!
//! Every measurement asserts that the work really happened. Targets are printed and never enforced.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a measurement that cannot be made panics")]
#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts and times of a measurement are far below 2^52"
)]

mod agent;
mod arguments;
mod burst;
mod chart;
mod clock;
mod config;
mod daemon;
mod database;
mod disk;
mod figure;
mod firing;
mod growth;
mod http;
mod idle;
mod jobs;
mod lists;
mod load;
mod machine;
mod output;
mod process;
mod queue;
mod report;
mod samples;
mod tail;
mod webhooks;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use arguments::Request;
use figure::Figure;
use report::Report;

/// What a row needs to know: the measured program and the size of the run.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) program: PathBuf,
    pub(crate) quick: bool,
}

impl Bench {
    /// Returns the size of this run.
    pub(crate) fn size<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// Row group with its name, its description and its function.
struct Row {
    name: &'static str,
    about: &'static str,
    run: fn(&Bench) -> Vec<Figure>,
}

const ROWS: &[Row] = &[
    Row {
        name: "firing",
        about: "CPU of one firing, and the time from due to running",
        run: firing::measure,
    },
    Row { name: "burst", about: "many schedules due at one instant", run: burst::measure },
    Row { name: "jobs", about: "jobs per second on SQLite and PostgreSQL", run: jobs::measure },
    Row { name: "webhooks", about: "durable deliveries of 1, 8 and 64 clients", run: webhooks::measure },
    Row { name: "output", about: "a large output of one agent", run: output::measure },
    Row { name: "load", about: "start, memory and reload with many schedules", run: load::measure },
    Row { name: "growth", about: "CPU and memory while many jobs end", run: growth::measure },
    Row { name: "disk", about: "files that a settled job leaves", run: disk::measure },
    Row { name: "lists", about: "command line with many ended jobs", run: lists::measure },
    Row { name: "tail", about: "delay of live output with many running jobs", run: tail::measure },
    Row { name: "idle", about: "CPU and writes of an idle daemon, and of its followers", run: idle::measure },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // This program is also the agent that it measures. That comes first, so that the agent starts fast.
    if agent::ran(&words) {
        return ExitCode::SUCCESS;
    }
    match arguments::read(words) {
        Ok(Request::Help) => print!("{}", arguments::HELP),
        Ok(Request::List) => ROWS.iter().for_each(|row| println!("{:<10}{}", row.name, row.about)),
        Ok(Request::Measure { bench, rows }) => return measure(&bench, &rows),
        Err(problem) => {
            eprint!("scripts/bench: {problem}\n\n{}", arguments::HELP);
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn measure(bench: &Bench, rows: &[&'static Row]) -> ExitCode {
    let mut report = Report::new(bench);
    for (index, row) in rows.iter().enumerate() {
        eprintln!("[{}/{}] {}: {} …", index + 1, rows.len(), row.name, row.about);
        let begin = Instant::now();
        // The message of the panic is on standard error.
        match catch_unwind(AssertUnwindSafe(|| (row.run)(bench))) {
            Ok(figures) => report.add(row.name, figures),
            Err(_) => report.fail(row.name),
        }
        eprintln!("[{}/{}] {}: {:.1} s", index + 1, rows.len(), row.name, begin.elapsed().as_secs_f64());
    }
    report.finish();
    if report.has_failures() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
