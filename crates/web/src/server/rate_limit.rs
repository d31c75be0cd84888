//! Rate limits by address: an address may do a burst of actions, and then one action in each interval.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use cowhand_core::duration;

use crate::api::{ApiProblem, Code};

#[derive(Debug)]
pub struct RateLimit {
    burst: u32,
    interval: Duration,
    /// For each address, the time at which the whole burst is allowed again. Each action moves this time by one
    /// interval into the future. For an address that is missing, the whole burst is allowed.
    used_until: Mutex<HashMap<IpAddr, Instant>>,
}

/// Error for an address that has to wait.
#[derive(Debug, PartialEq, Eq)]
pub struct TooMany {
    wait: Duration,
}

/// Maximum number of stored addresses. The rate limit has no effect on a sender that uses more addresses.
const MAX_ADDRESSES: usize = 10_000;

impl RateLimit {
    pub fn new(burst: u32, interval: Duration) -> Self {
        Self { burst, interval, used_until: Mutex::default() }
    }

    pub fn take(&self, peer: IpAddr) -> Result<(), TooMany> {
        self.take_at(peer, Instant::now())
    }

    /// Returns whether the next action of the address would be refused now.
    pub(super) fn is_used_up(&self, peer: IpAddr) -> bool {
        let used_until = self.used_until.lock().unwrap_or_else(PoisonError::into_inner);
        let until = used_until.get(&limited_address(peer)).copied();
        until.is_some_and(|until| {
            until.saturating_duration_since(Instant::now()) + self.interval > self.interval * self.burst
        })
    }

    fn take_at(&self, peer: IpAddr, now: Instant) -> Result<(), TooMany> {
        let mut used_until = self.used_until.lock().unwrap_or_else(PoisonError::into_inner);
        if used_until.len() >= MAX_ADDRESSES {
            used_until.retain(|_, until| *until > now);
            if used_until.len() >= MAX_ADDRESSES {
                used_until.clear();
            }
        }
        let until = used_until.entry(limited_address(peer)).or_insert(now);
        let used = until.saturating_duration_since(now) + self.interval;
        let burst_time = self.interval * self.burst;
        let wait = used.saturating_sub(burst_time);
        if !wait.is_zero() {
            return Err(TooMany { wait });
        }
        *until = now + used;
        Ok(())
    }
}

impl TooMany {
    pub(super) const fn after(wait: Duration) -> Self {
        Self { wait }
    }

    /// Returns the time to wait in whole seconds, rounded up, and at least one second.
    fn seconds(&self) -> u64 {
        let more = u64::from(self.wait.subsec_nanos() > 0);
        (self.wait.as_secs() + more).max(1)
    }
}

/// Returns the address for which limits count. For IPv6, it is the network with a prefix of 64 bits, because one client
/// can use all addresses of such a network.
pub(super) fn limited_address(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        address @ IpAddr::V4(_) => address,
    }
}

impl IntoResponse for TooMany {
    fn into_response(self) -> Response {
        let seconds = self.seconds();
        let wait = duration::rounded_from_seconds(seconds);
        let problem = ApiProblem::new(Code::TooMany, format!("too many requests; try again in {wait}"));
        retry_later(problem, seconds)
    }
}

/// Builds the answer to a request that the client can repeat after some seconds.
pub(super) fn retry_later(problem: ApiProblem, seconds: u64) -> Response {
    let mut response = problem.into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_one_per_interval() {
        let limit = RateLimit::new(2, Duration::from_secs(3));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let wait = |seconds| Err(TooMany { wait: Duration::from_secs(seconds) });
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().unwrap());
        for (seconds, peer, expected) in [
            (0, one, Ok(())),
            (0, one, Ok(())),
            (0, one, wait(3)),
            (0, "::ffff:192.0.2.1".parse().unwrap(), wait(3)),
            (0, other, Ok(())),
            (2, one, wait(1)),
            (3, one, Ok(())),
            (3, one, wait(3)),
            (100, one, Ok(())),
            (100, one, Ok(())),
            (100, one, wait(3)),
        ] {
            assert_eq!(limit.take_at(peer, at(seconds)), expected, "{peer} at {seconds}");
        }
    }

    #[test]
    fn the_time_to_wait_is_rounded_up_to_whole_seconds() {
        for (milliseconds, expected) in [(0, "1"), (1, "1"), (1_000, "1"), (1_200, "2"), (3_000, "3")] {
            let refusal = TooMany::after(Duration::from_millis(milliseconds)).into_response();
            assert_eq!(refusal.headers()[header::RETRY_AFTER], expected, "{milliseconds} ms");
        }
    }

    #[test]
    fn an_address_has_used_up_its_allowance_after_a_burst() {
        let limit = RateLimit::new(2, Duration::from_hours(1));
        let peer = "192.0.2.1".parse().unwrap();
        let mut seen = vec![limit.is_used_up(peer)];
        for _ in 0..3 {
            let _ = limit.take(peer);
            seen.push(limit.is_used_up(peer));
        }
        assert_eq!(seen, [false, false, true, true]);
    }

    #[test]
    fn an_ipv6_network_counts_as_one_address_and_memory_is_bounded() {
        let limit = RateLimit::new(1, Duration::from_secs(1));
        let now = Instant::now();
        assert!(limit.take_at("2001:db8::1".parse().unwrap(), now).is_ok());
        assert!(limit.take_at("2001:db8::2".parse().unwrap(), now).is_err());
        assert!(limit.take_at("2001:db8:0:1::1".parse().unwrap(), now).is_ok());
        for number in 0..30_000_u32 {
            let _ = limit.take_at(IpAddr::from(number.to_be_bytes()), now);
        }
        assert!(limit.used_until.lock().unwrap().len() <= MAX_ADDRESSES);
    }
}
