//! The contract of every trigger strategy. Authors of strategies call [`assert_trigger_contract`] in a test.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::strategy::{Task, TriggerStrategy};

/// Time limit for an answer, large enough for a busy machine. `cargo bench --bench trigger` prints the real figures.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time from the first call to the shutdown. The strategy then waits, or is in the middle of its work.
const MID_WORK_AFTER: Duration = Duration::from_millis(20);

/// Panics if a strategy does not stop at a shutdown. A shutdown is a signal, or the drop of its sender.
///
/// - A call after the shutdown has to return an empty list within five seconds. This also applies to repeated calls,
///   and to a receiver that has not seen the signal yet.
/// - A call that waits at the shutdown has to return an empty list within the same time, even if tasks arrive at the same
///   moment.
///
/// `make` returns a new strategy each time, in the state that should be tested: about to sleep, about to fetch, or
/// failing.
pub async fn assert_trigger_contract<F>(make: F)
where
    F: Fn() -> Box<dyn TriggerStrategy>,
{
    let (stop, shutdown) = watch::channel(true);
    assert_returns_nothing(make(), shutdown.clone(), "signalled before the call").await;
    let mut seen = shutdown.clone();
    seen.mark_unchanged();
    assert_returns_nothing(make(), seen, "signalled and already seen").await;
    drop(stop);
    assert_returns_nothing(make(), shutdown, "signalled, and then the sender was dropped").await;

    let (gone, shutdown) = watch::channel(false);
    drop(gone);
    assert_returns_nothing(make(), shutdown, "the sender was dropped without a signal").await;

    let (stop, shutdown) = watch::channel(false);
    let signal = || {
        stop.send_replace(true);
    };
    assert_stops(make(), &shutdown, signal, "signalled while the strategy waits").await;

    let (stop, shutdown) = watch::channel(false);
    let drop_sender = || drop(stop);
    assert_stops(make(), &shutdown, drop_sender, "the sender was dropped while the strategy waits").await;
}

/// Calls the strategy again and again, as the runner does, and shuts it down after [`MID_WORK_AFTER`]. The shutdown and
/// the calls are in one task, so no code of the strategy runs at that moment: its future is waiting.
async fn assert_stops(
    mut strategy: Box<dyn TriggerStrategy>,
    shutdown: &watch::Receiver<bool>,
    stop: impl FnOnce(),
    when: &str,
) {
    let stop_at = Instant::now() + MID_WORK_AFTER;
    loop {
        let mut call = strategy.next_tasks(shutdown);
        if timeout_at(stop_at, &mut call).await.is_err() {
            stop();
            assert_nothing(timeout(ANSWER_TIMEOUT, call).await.ok(), when);
            break;
        }
        // Before the shutdown, tasks, empty answers and errors are all allowed.
        if Instant::now() >= stop_at {
            stop();
            break;
        }
        tokio::task::yield_now().await;
    }
    for _ in 0..3 {
        let again = timeout(ANSWER_TIMEOUT, strategy.next_tasks(shutdown)).await;
        assert_nothing(again.ok(), "called again after the shutdown");
    }
}

async fn assert_returns_nothing(
    mut strategy: Box<dyn TriggerStrategy>,
    shutdown: watch::Receiver<bool>,
    when: &str,
) {
    let answer = timeout(ANSWER_TIMEOUT, strategy.next_tasks(&shutdown)).await;
    assert_nothing(answer.ok(), when);
}

fn assert_nothing(answer: Option<anyhow::Result<Vec<Task>>>, when: &str) {
    match answer {
        None => panic!("{when}: no answer within {ANSWER_TIMEOUT:?}"),
        Some(Ok(tasks)) => assert!(tasks.is_empty(), "{when}: {} tasks instead of none", tasks.len()),
        Some(Err(error)) => panic!("{when}: an error instead of an empty list: {error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;

    use super::super::strategy::{is_stopped, stopped};
    use super::*;

    /// What a strategy does at a shutdown during a call. It keeps the contract in all other situations.
    #[derive(Debug, Clone, Copy)]
    enum AtShutdown {
        ReturnsNothing,
        /// The strategy never waits before the shutdown.
        ReturnsTasksBefore,
        ReturnsTasks,
        Fails,
        PanicsWithoutSender,
        ReturnsTasksWithoutSender,
    }

    #[async_trait]
    impl TriggerStrategy for AtShutdown {
        async fn next_tasks(&mut self, shutdown: &watch::Receiver<bool>) -> anyhow::Result<Vec<Task>> {
            if is_stopped(shutdown) {
                return Ok(Vec::new());
            }
            if matches!(self, Self::ReturnsTasksBefore) {
                return Ok(vec![Task::default()]);
            }
            stopped(shutdown).await;
            let is_signalled = *shutdown.borrow();
            match self {
                Self::ReturnsTasks => Ok(vec![Task::default()]),
                Self::Fails => anyhow::bail!("interrupted"),
                Self::PanicsWithoutSender if !is_signalled => panic!("no sender"),
                Self::ReturnsTasksWithoutSender if !is_signalled => Ok(vec![Task::default()]),
                _ => Ok(Vec::new()),
            }
        }
    }

    #[tokio::test]
    async fn every_breach_of_the_contract_is_found() {
        let mut wrong = Vec::new();
        for (at_shutdown, is_kept) in [
            (AtShutdown::ReturnsNothing, true),
            (AtShutdown::ReturnsTasksBefore, true),
            (AtShutdown::ReturnsTasks, false),
            (AtShutdown::Fails, false),
            (AtShutdown::PanicsWithoutSender, false),
            (AtShutdown::ReturnsTasksWithoutSender, false),
        ] {
            let checked = tokio::spawn(assert_trigger_contract(move || Box::new(at_shutdown))).await;
            if checked.is_ok() != is_kept {
                wrong.push(at_shutdown);
            }
        }
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}
