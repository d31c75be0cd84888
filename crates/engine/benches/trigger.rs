//! Measures the time in which strategies return after a shutdown signal, compared with a bare `select!`.
//!
//! `cargo bench -p cowhand-engine --bench trigger`

#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on stops")]

use std::time::{Duration, Instant};

use async_trait::async_trait;
use cowhand_core::roster::{Agent, Schedule};
use cowhand_engine::trigger::{PollingStrategy, Task, TaskSource, Timer, TriggerStrategy, stopped};
use cowhand_system::clock::Clock;
use tokio::sync::watch;

const ROUNDS: usize = 500;

/// Baseline: a strategy cannot be faster than this.
struct Bare;

#[async_trait]
impl TriggerStrategy for Bare {
    async fn next_tasks(&mut self, shutdown: &watch::Receiver<bool>) -> anyhow::Result<Vec<Task>> {
        tokio::select! {
            () = stopped(shutdown) => Ok(Vec::new()),
            () = std::future::pending() => unreachable!(),
        }
    }
}

/// A source with a fetch that never ends.
struct Silent;

#[async_trait]
impl TaskSource for Silent {
    async fn fetch_tasks(&self) -> anyhow::Result<Vec<Task>> {
        std::future::pending().await
    }

    fn source_type(&self) -> &'static str {
        "silent"
    }
}

fn timer(trigger: &str) -> Box<dyn TriggerStrategy> {
    let agent = Agent::new("a".parse().unwrap());
    let schedule = Schedule::new(&agent.name, "s".parse().unwrap(), serde_json::from_str(trigger).unwrap());
    Box::new(Timer::new(agent, schedule, Clock::System))
}

fn polling(immediately: bool) -> Box<dyn TriggerStrategy> {
    Box::new(PollingStrategy::new(Silent, Duration::from_hours(24)).poll_immediately(immediately))
}

type Make = fn() -> Box<dyn TriggerStrategy>;

async fn latency(mut strategy: Box<dyn TriggerStrategy>) -> Duration {
    let (stop, shutdown) = watch::channel(false);
    let waiting = tokio::spawn(async move {
        strategy.next_tasks(&shutdown).await.unwrap();
        Instant::now()
    });
    tokio::time::sleep(Duration::from_millis(2)).await;
    let signalled = Instant::now();
    stop.send_replace(true);
    waiting.await.unwrap().saturating_duration_since(signalled)
}

#[tokio::main]
async fn main() {
    let strategies: [(&str, Make); 6] = [
        ("bare select", || Box::new(Bare)),
        ("polling, asleep", || polling(false)),
        ("polling, in a fetch", || polling(true)),
        ("cron", || timer(r#"{"type":"cron","expression":"0 0 1 1 *"}"#)),
        ("delay", || timer(r#"{"type":"delay","in":"365d"}"#)),
        ("manual", || timer(r#"{"type":"manual"}"#)),
    ];
    println!("shutdown answered after, of {ROUNDS} rounds:");
    println!("{:<20} {:>10} {:>10} {:>10}", "", "median", "p99", "max");
    for (name, make) in strategies {
        let mut latencies = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            latencies.push(latency(make()).await);
        }
        latencies.sort_unstable();
        let [median, p99, max] = [ROUNDS / 2, ROUNDS * 99 / 100, ROUNDS - 1].map(|place| latencies[place]);
        println!("{name:<20} {median:>10.1?} {p99:>10.1?} {max:>10.1?}");
    }
}
