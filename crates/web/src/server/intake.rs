//! Limits on the number of deliveries at a time, and on their memory.
//!
//! For senders that know a secret, there are no other limits. A delivery waits until there is memory for it. It is
//! refused only if there are too many deliveries at a time, or if it waits too long. The bytes of a waiting delivery
//! stay in the socket, not in the memory of this process.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cowhand_core::delivery::MAX_BODY_BYTES;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use super::rate_limit::{TooMany, limited_address};

/// Maximum number of deliveries at a time, including those that wait.
const MAX_DELIVERIES: usize = 2_000;
/// Size of the unit in which the memory of bodies is counted, in bytes.
const BODY_UNIT: usize = 1 << 10;
/// Memory of all bodies, in units: four of the largest bodies, or thousands of usual ones.
const MAX_BODY_UNITS: usize = 4 * MAX_BODY_BYTES / BODY_UNIT;
/// Memory of the bodies of one address, in units: half of the total, so that one address cannot block the others.
const MAX_BODY_UNITS_PER_ADDRESS: usize = MAX_BODY_UNITS / 2;
/// Number of stored addresses above which addresses without a delivery in progress are removed.
const MAX_ADDRESSES: usize = 1_000;
/// Maximum number of deliveries at a time from addresses with too many wrong deliveries. A delivery whose body
/// never arrives counts until the timeout of the body, half a minute.
const MAX_SUSPECT_DELIVERIES: usize = 4;
/// Size in bytes above which bodies are parsed one at a time, because a parsed payload may take many times as much
/// memory as its text.
const LARGE_BODY: usize = 1 << 20;
const RETRY_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Intake {
    deliveries: Semaphore,
    body_units: Semaphore,
    by_address: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
    suspects: Semaphore,
    large_bodies: Semaphore,
}

/// Permits of a delivery, held while it is in memory, until it is on disk.
#[derive(Debug)]
#[expect(dead_code, reason = "they are held, not used")]
pub(super) struct DeliveryPermits<'i> {
    suspect: Option<SemaphorePermit<'i>>,
    of_address: Option<OwnedSemaphorePermit>,
    total: Option<SemaphorePermit<'i>>,
}

impl Intake {
    pub(super) fn new() -> Self {
        Self {
            deliveries: Semaphore::new(MAX_DELIVERIES),
            body_units: Semaphore::new(MAX_BODY_UNITS),
            by_address: Mutex::default(),
            suspects: Semaphore::new(MAX_SUSPECT_DELIVERIES),
            large_bodies: Semaphore::new(1),
        }
    }

    pub(super) fn admit(&self) -> Result<SemaphorePermit<'_>, TooMany> {
        self.deliveries.try_acquire().map_err(|_| TooMany::after(RETRY_AFTER))
    }

    /// Waits until the memory limits allow a body of this length. A body without an announced length counts as a body
    /// of the maximum size. From suspect addresses, which have sent too many wrong deliveries, at most
    /// [`MAX_SUSPECT_DELIVERIES`] are admitted at a time.
    pub(super) async fn reserve(
        &self,
        peer: IpAddr,
        announced: Option<usize>,
        is_suspect: bool,
    ) -> DeliveryPermits<'_> {
        // The semaphores are never closed, so a permit is never missing.
        let suspect = if is_suspect { self.suspects.acquire().await.ok() } else { None };
        let units = announced.unwrap_or(MAX_BODY_BYTES).min(MAX_BODY_BYTES).div_ceil(BODY_UNIT).max(1);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        let of_address = self.units_of(peer).acquire_many_owned(units).await.ok();
        DeliveryPermits { suspect, of_address, total: self.body_units.acquire_many(units).await.ok() }
    }

    fn units_of(&self, peer: IpAddr) -> Arc<Semaphore> {
        let mut by_address = self.by_address.lock().unwrap_or_else(PoisonError::into_inner);
        if by_address.len() > MAX_ADDRESSES {
            by_address.retain(|_, units| Arc::strong_count(units) > 1);
        }
        Arc::clone(
            by_address
                .entry(limited_address(peer))
                .or_insert_with(|| Arc::new(Semaphore::new(MAX_BODY_UNITS_PER_ADDRESS))),
        )
    }

    /// Waits until no other large body is parsed and written. Returns none for a body that is not large.
    pub(super) async fn reserve_parsing(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        if bytes <= LARGE_BODY {
            return None;
        }
        self.large_bodies.acquire().await.ok()
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
    fn the_memory_of_bodies_is_limited() {
        let intake = Intake::new();
        let reserve = |of, announced| intake.reserve(peer(of), announced, false).now_or_never();
        let mut large: Vec<_> = (0..2).map(|_| reserve(1, None).unwrap()).collect();
        assert!(reserve(1, Some(1)).is_none(), "one address gets at most half of the memory");
        large.extend((0..2).map(|_| reserve(2, None).unwrap()));
        assert!(reserve(3, Some(1)).is_none(), "all memory is reserved");
        drop(large);
        let small: Vec<_> = (0..MAX_BODY_UNITS_PER_ADDRESS).map(|_| reserve(1, Some(10)).unwrap()).collect();
        assert!(reserve(1, Some(0)).is_none());
        drop(small);
        assert!(reserve(1, Some(usize::MAX)).is_some(), "a larger body counts as the maximum");
        for number in 0..5_000_u32 {
            let other = IpAddr::from(number.to_be_bytes());
            assert!(intake.reserve(other, Some(1), false).now_or_never().is_some());
        }
        assert!(intake.by_address.lock().unwrap().len() <= MAX_ADDRESSES + 1);
    }

    #[test]
    fn deliveries_of_suspect_addresses_are_limited_separately() {
        let intake = Intake::new();
        let reserve = |of, is_suspect| intake.reserve(peer(of), Some(1), is_suspect).now_or_never();
        let permits: Vec<_> = (0..4).map(|_| reserve(1, true).unwrap()).collect();
        assert!(reserve(2, true).is_none());
        assert!(reserve(1, false).is_some(), "other deliveries are not affected");
        drop(permits);
    }

    #[test]
    fn too_many_deliveries_are_refused() {
        let intake = Intake::new();
        let permits: Vec<_> = (0..MAX_DELIVERIES).map(|_| intake.admit().unwrap()).collect();
        assert_eq!(intake.admit().unwrap_err(), TooMany::after(RETRY_AFTER));
        drop(permits);
        assert!(intake.admit().is_ok());
    }
}
