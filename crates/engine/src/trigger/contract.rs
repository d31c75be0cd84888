//! The contract of every trigger strategy. Authors of strategies call [`assert_trigger_contract`] in a test.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::strategy::{Task, TriggerStrategy};

/// Time limit for an answer, large enough for a busy machine. `cargo bench --bench trigger` prints the real figures.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time from the first call to the shutdown. The strategy then waits, or is in the middle of its work.
const MID_WORK_AFTER: Duration = Duration::from_millis(20);

/// Panics if a strategy does not stop at a shutdown. A shutdown is a signal, or the drop of its sender.
///
/// - A call after the shutdown has to return an empty list within five seconds, also if it is repeated, and whether or
///   not the receiver has seen the signal.
/// - A call that runs at the shutdown has to return within the same time. Its result is not checked, because tasks may
///   arrive at the same moment.
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
    let waiting = tokio::spawn(call_until_stopped(make(), shutdown.clone()));
    tokio::time::sleep(MID_WORK_AFTER).await;
    stop.send_replace(true);
    let ended = timeout(ANSWER_TIMEOUT, waiting).await;
    let Ok(Ok(mut strategy)) = ended else { panic!("signalled while the strategy waits: no answer") };
    for _ in 0..3 {
        let again = timeout(ANSWER_TIMEOUT, strategy.next_tasks(&shutdown)).await;
        assert_nothing(again.ok(), "called again after the shutdown");
    }

    let (stop, shutdown) = watch::channel(false);
    let waiting = tokio::spawn(call_until_stopped(make(), shutdown));
    tokio::time::sleep(MID_WORK_AFTER).await;
    drop(stop);
    assert!(
        timeout(ANSWER_TIMEOUT, waiting).await.is_ok(),
        "the sender was dropped while the strategy waits: no answer"
    );
}

/// Calls the strategy again and again until the shutdown, as the runner does. The caller spawns a task for it, which
/// requires that a strategy can move to another thread.
async fn call_until_stopped(
    mut strategy: Box<dyn TriggerStrategy>,
    shutdown: watch::Receiver<bool>,
) -> Box<dyn TriggerStrategy> {
    while !super::strategy::is_stopped(&shutdown) {
        // Before the shutdown, tasks, empty answers and errors are all allowed.
        let _ = strategy.next_tasks(&shutdown).await;
        tokio::task::yield_now().await;
    }
    strategy
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
