//! Limits on the number of deliveries at a time, and on their memory.
//!
//! For senders that know a secret these are the only limits: deliveries wait until there is room, and more
//! are refused only when very many wait. Their bytes wait in the sender's socket, not here.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cowhand_core::delivery::MOST_BYTES;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::rate_limit::{TooMany, source};

/// Largest number of deliveries at a time, most of them waiting.
const MAX_DELIVERIES: usize = 2_000;
/// Unit for bodies in memory. `MAX_BODY_UNITS` is four of the largest bodies, or thousands of usual ones.
const BODY_UNIT: usize = 1 << 10;
const MAX_BODY_UNITS: usize = 4 * MOST_BYTES / BODY_UNIT;
/// Share of one address: half, so that no address alone can block the others.
const MAX_BODY_UNITS_PER_SOURCE: usize = MAX_BODY_UNITS / 2;
/// Number of addresses above which those without a delivery in progress are forgotten.
const MAX_SOURCES: usize = 1_000;
/// Places for addresses with too many wrong deliveries; a body that never arrives may hold one for half a
/// minute.
const MAX_SUSPECT_DELIVERIES: usize = 4;
/// Size from which bodies are parsed one at a time, because a parsed payload may take many times as much
/// memory as its text.
const LARGE_BODY: usize = 1 << 20;
const RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Intake {
    in_hand: Semaphore,
    room: Semaphore,
    of_sources: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
    suspects: Semaphore,
    large: Semaphore,
}

/// Permits of a delivery, held while it is in memory, until it is on disk.
#[derive(Debug)]
#[expect(dead_code, reason = "they are held, not used")]
pub(super) struct DeliveryPermits<'i> {
    suspect: Option<SemaphorePermit<'i>>,
    own: OwnedSemaphorePermit,
    room: SemaphorePermit<'i>,
}

/// Error that the server is closing.
#[derive(Debug)]
pub(super) struct IntakeClosed;

impl From<AcquireError> for IntakeClosed {
    fn from(_: AcquireError) -> Self {
        Self
    }
}

impl Intake {
    pub(super) fn new() -> Self {
        Self {
            in_hand: Semaphore::new(MAX_DELIVERIES),
            room: Semaphore::new(MAX_BODY_UNITS),
            of_sources: Mutex::default(),
            suspects: Semaphore::new(MAX_SUSPECT_DELIVERIES),
            large: Semaphore::new(1),
        }
    }

    pub(super) fn enter(&self) -> Result<SemaphorePermit<'_>, TooMany> {
        self.in_hand.try_acquire().map_err(|_| TooMany::after(RETRY_AFTER))
    }

    /// Waits for room for a body; one without an announced length counts as the largest.
    pub(super) async fn room(
        &self,
        peer: IpAddr,
        announced: Option<usize>,
        is_suspect: bool,
    ) -> Result<DeliveryPermits<'_>, IntakeClosed> {
        let suspect = if is_suspect { Some(self.suspects.acquire().await?) } else { None };
        let units = announced.unwrap_or(MOST_BYTES).min(MOST_BYTES).div_ceil(BODY_UNIT).max(1);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let own = self.of_source(peer).acquire_many_owned(units).await?;
        Ok(DeliveryPermits { suspect, own, room: self.room.acquire_many(units).await? })
    }

    fn of_source(&self, peer: IpAddr) -> Arc<Semaphore> {
        let mut all = self.of_sources.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() > MAX_SOURCES {
            all.retain(|_, own| Arc::strong_count(own) > 1);
        }
        Arc::clone(
            all.entry(source(peer)).or_insert_with(|| Arc::new(Semaphore::new(MAX_BODY_UNITS_PER_SOURCE))),
        )
    }

    /// Waits for the turn of a large body to be parsed and written; returns none for a body that is not
    /// large.
    pub(super) async fn turn(&self, bytes: usize) -> Result<Option<SemaphorePermit<'_>>, IntakeClosed> {
        if bytes <= LARGE_BODY {
            return Ok(None);
        }
        Ok(Some(self.large.acquire().await?))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn peer(number: u8) -> IpAddr {
        [192, 0, 2, number].into()
    }

    #[test]
    fn room_is_bounded_and_comes_back() {
        let intake = Intake::new();
        let room = |of, announced| intake.room(peer(of), announced, false).now_or_never();
        let mut large: Vec<_> = (0..2).map(|_| room(1, None).unwrap().unwrap()).collect();
        assert!(room(1, Some(1)).is_none(), "one address has half of it");
        large.extend((0..2).map(|_| room(2, None).unwrap().unwrap()));
        assert!(room(3, Some(1)).is_none(), "all of it is taken");
        drop(large);
        let small: Vec<_> =
            (0..MAX_BODY_UNITS_PER_SOURCE).map(|_| room(1, Some(10)).unwrap().unwrap()).collect();
        assert!(room(1, Some(0)).is_none());
        drop(small);
        assert!(room(1, Some(usize::MAX)).unwrap().is_ok(), "no more than the longest");
        for number in 0..5_000_u32 {
            let other = IpAddr::from(number.to_be_bytes());
            assert!(intake.room(other, Some(1), false).now_or_never().is_some());
        }
        assert!(intake.of_sources.lock().unwrap().len() <= MAX_SOURCES + 1);
    }

    #[test]
    fn suspects_have_a_narrow_way_of_their_own() {
        let intake = Intake::new();
        let room = |of, is_suspect| intake.room(peer(of), Some(1), is_suspect).now_or_never();
        let held: Vec<_> = (0..4).map(|_| room(1, true).unwrap()).collect();
        assert!(room(2, true).is_none());
        assert!(room(1, false).is_some(), "others do not notice");
        drop(held);
    }

    #[test]
    fn very_many_are_refused() {
        let intake = Intake::new();
        let held: Vec<_> = (0..MAX_DELIVERIES).map(|_| intake.enter().unwrap()).collect();
        assert_eq!(intake.enter().unwrap_err(), TooMany::after(RETRY_AFTER));
        drop(held);
        assert!(intake.enter().is_ok());
    }
}
