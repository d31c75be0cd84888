//! The contract of every strategy, for authors of strategies: call [`assert_trigger_contract`] in a test.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use super::strategy::{Task, TriggerStrategy};

/// Time limit for an answer, large enough for a busy machine. `cargo bench --bench trigger` prints the real figures.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Time from the first call to the shutdown, so that the strategy is in the middle of its work.
const MID_WORK_AFTER: Duration = Duration::from_millis(20);

/// Panics if a call of the strategy after a shutdown does not return at once, or returns tasks or an error. These cases
/// are tested: the shutdown is signalled before the call, and the receiver has or has not seen the signal; the sender
/// is dropped; the shutdown is signalled, or the sender is dropped, while the strategy waits; the strategy is called
/// again after the shutdown. `make` returns a new strategy each time, in any state that should be tested: about to
/// sleep, about to fetch, failing. Before the shutdown the strategy may return any tasks.
pub async fn assert_trigger_contract<F>(make: F)
where
    F: Fn() -> Box<dyn TriggerStrategy>,
{
    let (stop, shutdown) = watch::channel(true);
    answers_with_nothing(make(), shutdown.clone(), "signalled before the call").await;
    let mut seen = shutdown.clone();
    seen.mark_unchanged();
    answers_with_nothing(make(), seen, "signalled and already seen").await;
    drop(stop);
    answers_with_nothing(make(), shutdown, "signalled, and then the sender was dropped").await;

    let (gone, shutdown) = watch::channel(false);
    drop(gone);
    answers_with_nothing(make(), shutdown, "the sender was dropped without a signal").await;

    let (stop, shutdown) = watch::channel(false);
    let waiting = tokio::spawn(until_nothing_after(make(), shutdown.clone()));
    tokio::time::sleep(MID_WORK_AFTER).await;
    stop.send_replace(true);
    let ended = timeout(ANSWER_TIMEOUT, waiting).await;
    let Ok(Ok(mut strategy)) = ended else { panic!("signalled while the strategy waits: no answer") };
    for _ in 0..3 {
        let again = timeout(ANSWER_TIMEOUT, strategy.next_tasks(&shutdown)).await;
        assert_nothing(again.ok(), "called again after the shutdown");
    }

    let (stop, shutdown) = watch::channel(false);
    let waiting = tokio::spawn(until_nothing_after(make(), shutdown));
    tokio::time::sleep(MID_WORK_AFTER).await;
    drop(stop);
    assert!(
        timeout(ANSWER_TIMEOUT, waiting).await.is_ok(),
        "the sender was dropped while the strategy waits: no answer"
    );
}

/// Calls the strategy as the runner does, until the shutdown. The call runs in a task, which shows that a strategy can
/// be moved to another thread.
async fn until_nothing_after(
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

async fn answers_with_nothing(
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
