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

/// What a group of figures needs to know: the measured program and the size of the run.
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

/// A group of figures that one function measures.
struct FigureGroup {
    name: &'static str,
    about: &'static str,
    run: fn(&Bench) -> Vec<Figure>,
}

const FIGURE_GROUPS: &[FigureGroup] = &[
    FigureGroup {
        name: "firing",
        about: "CPU of one firing, and the time from due to running",
        run: firing::measure,
    },
    FigureGroup { name: "burst", about: "many schedules due at one instant", run: burst::measure },
    FigureGroup { name: "jobs", about: "jobs per second on SQLite and PostgreSQL", run: jobs::measure },
    FigureGroup {
        name: "webhooks",
        about: "durable deliveries of 1, 8 and 64 clients",
        run: webhooks::measure,
    },
    FigureGroup { name: "output", about: "a large output of one agent", run: output::measure },
    FigureGroup { name: "load", about: "start, memory and reload with many schedules", run: load::measure },
    FigureGroup { name: "growth", about: "CPU and memory while many jobs end", run: growth::measure },
    FigureGroup { name: "disk", about: "files that a settled job leaves", run: disk::measure },
    FigureGroup { name: "lists", about: "command line with many ended jobs", run: lists::measure },
    FigureGroup { name: "tail", about: "delay of live output with many running jobs", run: tail::measure },
    FigureGroup {
        name: "idle",
        about: "CPU and writes of an idle daemon, and of its followers",
        run: idle::measure,
    },
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // This program is also the agent that it measures. That comes first, so that the agent starts fast.
    if agent::ran(&words) {
        return ExitCode::SUCCESS;
    }
    match arguments::read(words) {
        Ok(Request::Help) => print!("{}", arguments::HELP),
        Ok(Request::List) => {
            for group in FIGURE_GROUPS {
                println!("{:<10}{}", group.name, group.about);
            }
        }
        Ok(Request::Measure { bench, groups }) => return measure(&bench, &groups),
        Err(problem) => {
            eprint!("scripts/bench: {problem}\n\n{}", arguments::HELP);
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn measure(bench: &Bench, groups: &[&'static FigureGroup]) -> ExitCode {
    let mut report = Report::new(bench);
    for (index, group) in groups.iter().enumerate() {
        eprintln!("[{}/{}] {}: {} …", index + 1, groups.len(), group.name, group.about);
        let begin = Instant::now();
        // The message of the panic is on standard error.
        match catch_unwind(AssertUnwindSafe(|| (group.run)(bench))) {
            Ok(figures) => report.add(group.name, figures),
            Err(_) => report.fail(group.name),
        }
        eprintln!("[{}/{}] {}: {:.1} s", index + 1, groups.len(), group.name, begin.elapsed().as_secs_f64());
    }
    report.finish();
    if report.has_failures() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
