//! How many deliveries are in hand at once, and how much of them is in memory.
//!
//! Whoever knows a secret is held back by this alone: deliveries wait until there is room, and only when very many wait
//! are more refused. Their bytes wait in the sender's socket, not here.

use std::time::Duration;

use cowhand_core::delivery::MOST_BYTES;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::limit::TooMany;

/// In hand, most of them waiting.
const MOST_IN_HAND: usize = 2_000;
/// Bodies in memory, in units: four of the largest, or thousands of the usual ones.
const UNIT: usize = 1 << 10;
const ROOM: usize = 4 * MOST_BYTES / UNIT;
/// From addresses that have been wrong too often; a body that never comes may hold one up for half a minute.
const MOST_OF_SUSPECTS: usize = 4;
/// A parsed payload may take many times as much as its text, so large ones are parsed one at a time.
const LARGE: usize = 1 << 20;
const COME_BACK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Intake {
    in_hand: Semaphore,
    room: Semaphore,
    suspects: Semaphore,
    large: Semaphore,
}

/// Kept until the delivery is on disk: until then it is in memory.
pub(super) type Held<'i> = (Option<SemaphorePermit<'i>>, SemaphorePermit<'i>);

/// The server is closing.
#[derive(Debug)]
pub(super) struct Closed;

impl Intake {
    pub(super) fn new() -> Self {
        Self {
            in_hand: Semaphore::new(MOST_IN_HAND),
            room: Semaphore::new(ROOM),
            suspects: Semaphore::new(MOST_OF_SUSPECTS),
            large: Semaphore::new(1),
        }
    }

    pub(super) fn enter(&self) -> Result<SemaphorePermit<'_>, TooMany> {
        self.in_hand.try_acquire().map_err(|_| TooMany::after(COME_BACK))
    }

    /// Waits for room for a body; one that does not say how long it is may be the longest.
    pub(super) async fn room(&self, announced: Option<usize>, is_suspect: bool) -> Result<Held<'_>, Closed> {
        let suspect =
            if is_suspect { Some(self.suspects.acquire().await.map_err(|_| Closed)?) } else { None };
        let units = announced.unwrap_or(MOST_BYTES).min(MOST_BYTES).div_ceil(UNIT).max(1);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        Ok((suspect, self.room.acquire_many(units).await.map_err(|_| Closed)?))
    }

    /// The turn of a large body to be parsed and written; none for one that is not large.
    pub(super) async fn turn(&self, bytes: usize) -> Result<Option<SemaphorePermit<'_>>, Closed> {
        if bytes <= LARGE {
            return Ok(None);
        }
        self.large.acquire().await.map(Some).map_err(|_| Closed)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn room_is_bounded_and_comes_back() {
        let intake = Intake::new();
        let room = |announced| intake.room(announced, false).now_or_never();
        let large: Vec<_> = (0..4).map(|_| room(None).unwrap().unwrap()).collect();
        assert!(room(Some(1)).is_none(), "all of it is taken");
        drop(large);
        let small: Vec<_> = (0..ROOM).map(|_| room(Some(10)).unwrap().unwrap()).collect();
        assert!(room(Some(0)).is_none());
        drop(small);
        assert!(room(Some(usize::MAX)).unwrap().is_ok(), "no more than the longest");
    }

    #[test]
    fn suspects_have_a_narrow_way_of_their_own() {
        let intake = Intake::new();
        let held: Vec<_> = (0..4).map(|_| intake.room(Some(1), true).now_or_never().unwrap()).collect();
        assert!(intake.room(Some(1), true).now_or_never().is_none());
        assert!(intake.room(Some(1), false).now_or_never().is_some(), "others do not notice");
        drop(held);
    }

    #[test]
    fn very_many_are_refused() {
        let intake = Intake::new();
        let held: Vec<_> = (0..MOST_IN_HAND).map(|_| intake.enter().unwrap()).collect();
        assert_eq!(intake.enter().unwrap_err(), TooMany::after(COME_BACK));
        drop(held);
        assert!(intake.enter().is_ok());
    }
}
