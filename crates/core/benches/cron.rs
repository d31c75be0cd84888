//! Next times per second, each beside a bare civil-time step in the same run, so that the ratio means the same
//! on every machine: `cargo bench -p cowhand-core --bench cron`.

#![expect(clippy::expect_used, reason = "a benchmark of constants has nobody to report to")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use cowhand_core::cron::Cron;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

const EXPRESSIONS: [&str; 3] = ["*/5 * * * *", "0 9 * * MON-FRI", "0 0 29 2 *"];
const FOR: Duration = Duration::from_millis(300);

fn main() {
    // `cargo test --benches` gives no `--bench` argument: one short turn shows that it works.
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

/// The least that any answer costs: to the wall clock, five minutes on, and back to an instant.
fn civil_step(at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    let civil = zone.to_datetime(at).checked_add(5.minutes()).ok()?;
    zone.to_timestamp(civil).ok()
}

/// How often `next` can be asked in a second, each answer being the next question.
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
