//! Measures how many next times of a cron expression are computed in a second:
//! `cargo bench -p cowhand-core --bench cron`.
//!
//! The baseline, in the same run, is a step of five minutes in civil time. The ratio to the baseline can be compared
//! between machines.

#![expect(clippy::expect_used, reason = "a benchmark of constants has nobody to report to")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use cowhand_core::cron::Cron;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

const EXPRESSIONS: [&str; 3] = ["*/5 * * * *", "0 9 * * MON-FRI", "0 0 29 2 *"];
const FOR: Duration = Duration::from_millis(300);

fn main() {
    // `cargo test --benches` passes no `--bench` argument. Then one short run shows that the benchmark works.
    let turn = if std::env::args().any(|argument| argument == "--bench") { FOR } else { Duration::ZERO };
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a constant");
    println!("{:<15} {:<18} {:>12} {:>9}", "zone", "expression", "next/s", "of a step");
    for name in ["UTC", "Europe/Berlin"] {
        let zone = TimeZone::get(name).expect("a zone of the built-in table");
        let step = rate(turn, start, |at| civil_step(at, &zone));
        println!("{name:<15} {:<18} {step:>12.0} {:>9}", "(civil step)", "1.0000");
        for expression in EXPRESSIONS {
            let cron: Cron = expression.parse().expect("a constant");
            let next = rate(turn, start, |at| cron.next_after(at, &zone));
            println!("{name:<15} {expression:<18} {next:>12.0} {:>9.4}", next / step);
        }
    }
}

/// Performs the minimum work of any computation of a next time: converts to civil time, adds a span, and converts back
/// to an instant.
fn civil_step(at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let civil = zone.to_datetime(at).checked_add(5.minutes()).ok()?;
    zone.to_timestamp(civil).ok()
}

/// Returns how often `next` can be called in a second, with each result as the next argument.
fn rate(turn: Duration, start: Timestamp, mut next: impl FnMut(Timestamp) -> Option<Timestamp>) -> f64 {
    const BATCH: u32 = 200;
    let (began, mut asked, mut at) = (Instant::now(), 0_u32, start);
    loop {
        for _ in 0..BATCH {
            at = next(black_box(at)).unwrap_or(start);
        }
        asked += BATCH;
        if began.elapsed() >= turn {
            return f64::from(asked) / began.elapsed().as_secs_f64();
        }
    }
}
