//! The clock: the system's, or one that a test moves by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

/// Whole microseconds, which is what the store keeps.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    #[default]
    System,
    ByHand(Arc<HandClock>),
}

#[derive(Debug)]
pub struct HandClock {
    microseconds: AtomicI64,
    moved: Notify,
}

/// The wall clock can be set, and a machine can sleep: nobody waits longer than this without another look.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

impl Clock {
    pub fn by_hand(now: Timestamp) -> Self {
        let microseconds = AtomicI64::new(now.as_microsecond());
        Self::ByHand(Arc::new(HandClock { microseconds, moved: Notify::new() }))
    }

    pub fn now(&self) -> Timestamp {
        let microseconds = match self {
            Self::System => Timestamp::now().as_microsecond(),
            Self::ByHand(hand) => hand.microseconds.load(Ordering::SeqCst),
        };
        Timestamp::from_microsecond(microseconds).unwrap_or(Timestamp::MAX)
    }

    /// Only for a clock that is moved by hand; the system's goes its own way.
    pub fn set(&self, now: Timestamp) {
        if let Self::ByHand(hand) = self {
            hand.microseconds.store(now.as_microsecond(), Ordering::SeqCst);
            hand.moved.notify_waiters();
        }
    }

    /// Until `at` or a little earlier: whoever waits looks at the clock again afterwards.
    pub async fn wait_until(&self, at: Option<Timestamp>) {
        match self {
            Self::System => {
                let left = at.map_or(SignedDuration::MAX, |at| at.duration_since(self.now()));
                let left = Duration::try_from(left).unwrap_or_default().min(LONGEST_WAIT);
                tokio::time::sleep(left).await;
            }
            Self::ByHand(hand) => {
                let moved = hand.moved.notified();
                if at.is_none_or(|at| at > self.now()) {
                    moved.await;
                }
            }
        }
    }
}
