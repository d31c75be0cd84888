//! The rate of posts in a channel: about one post for each second, in the order of the calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex as TurnMutex, OwnedMutexGuard};
use tokio::time::{Instant, sleep_until};

use cowhand_system::wait;

/// Average interval between posts in a channel.
const POST_INTERVAL: Duration = Duration::from_secs(1);
/// Time by which posts may be earlier than at the average rate. Slack allows short bursts.
const BURST: Duration = Duration::from_secs(2);

/// Time at which the next post of each channel is due at the average rate.
#[derive(Default)]
pub(super) struct PostPace {
    channels: Mutex<HashMap<String, Arc<TurnMutex<Option<Instant>>>>>,
}

impl PostPace {
    /// Waits until a post in the channel is allowed. No other post in the channel begins before the guard is dropped.
    pub(super) async fn turn(&self, channel: &str) -> OwnedMutexGuard<Option<Instant>> {
        let turn = {
            let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(channels.entry(channel.to_owned()).or_default())
        };
        let mut next = turn.lock_owned().await;
        let now = Instant::now();
        let due = next.unwrap_or(now).max(now);
        if let Some(start) = due.checked_sub(BURST).filter(|&start| start > now) {
            sleep_until(start).await;
        }
        *next = Some(due + wait::length("slack_pace", POST_INTERVAL));
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn posts_in_a_channel_are_one_second_apart_after_a_short_burst() {
        let pace = PostPace::default();
        let start = Instant::now();
        let mut times = Vec::new();
        for _ in 0..6 {
            drop(pace.turn("C1").await);
            times.push(start.elapsed().as_secs());
        }
        assert_eq!(times, [0, 0, 0, 1, 2, 3]);
        drop(pace.turn("C2").await);
        assert_eq!(start.elapsed().as_secs(), 3);
    }
}
