//! Waits that grow with each failure in a row, up to a maximum.

use std::time::Duration;

use jiff::SignedDuration;

/// A first wait, how each further wait grows, and the longest wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: SignedDuration,
    longest: SignedDuration,
    growth: Growth,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Growth {
    /// Each further wait is the previous wait plus the first wait.
    Linear,
    /// Each further wait is the previous wait multiplied by this factor.
    Exponential { factor: i32 },
}

impl Backoff {
    pub const fn linear(first: SignedDuration, longest: SignedDuration) -> Self {
        Self { first, longest, growth: Growth::Linear }
    }

    pub const fn doubling(first: SignedDuration, longest: SignedDuration) -> Self {
        Self { first, longest, growth: Growth::Exponential { factor: 2 } }
    }

    pub const fn quadrupling(first: SignedDuration, longest: SignedDuration) -> Self {
        Self { first, longest, growth: Growth::Exponential { factor: 4 } }
    }

    /// Returns the wait after this many failures in a row. 0 failures count as 1.
    pub fn after(self, failures: u32) -> SignedDuration {
        let failures = failures.max(1);
        let grown = match self.growth {
            Growth::Linear => i32::try_from(failures).ok(),
            Growth::Exponential { factor } => factor.checked_pow(failures - 1),
        };
        let wait = grown.and_then(|grown| self.first.checked_mul(grown));
        wait.unwrap_or(self.longest).min(self.longest)
    }

    /// Returns the same as [`Self::after`], in the type that timers need.
    pub fn wait_after(self, failures: u32) -> Duration {
        self.after(failures).unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_a_maximum() {
        let seconds = SignedDuration::from_secs;
        let doubling = Backoff::doubling(seconds(15), seconds(900));
        let waits = [0, 1, 2, 3, 6, 7, 8, 40, u32::MAX].map(|failures| doubling.after(failures).as_secs());
        assert_eq!(waits, [15, 15, 30, 60, 480, 900, 900, 900, 900]);
        let quadrupling = Backoff::quadrupling(seconds(1), seconds(256));
        let waits = [1, 2, 3, 4, 5, 9].map(|failures| quadrupling.after(failures).as_secs());
        assert_eq!(waits, [1, 4, 16, 64, 256, 256]);
        let linear = Backoff::linear(seconds(2), seconds(30));
        let waits = [0, 1, 2, 3, 14, 15, 16, u32::MAX].map(|failures| linear.after(failures).as_secs());
        assert_eq!(waits, [2, 2, 4, 6, 28, 30, 30, 30]);
        assert_eq!(Backoff::doubling(seconds(i64::MAX), seconds(60)).wait_after(2), Duration::from_mins(1));
    }
}
