//! The adaptive size of fetches.
//!
//! A small response is still in the processor's caches when the application reads it. With many partitions, a record
//! in a response of 16 MiB costs 1.5 times as much as one in a response of 1 MiB. Fetches from a distant or slow
//! broker are larger, so that the consumer waits less often.

use std::time::Duration;

/// The smallest size.
const BYTES_MIN: usize = 1 << 20;
/// A broker is far away if the wait for its response is longer than this, and longer than half of the transfer.
const FAR: Duration = Duration::from_millis(2);

/// The size of the next fetch from a broker, before the configured limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchSize {
    bytes: usize,
}

impl Default for FetchSize {
    fn default() -> Self {
        Self { bytes: BYTES_MIN }
    }
}

impl FetchSize {
    pub(super) fn bytes(self) -> usize {
        self.bytes
    }

    /// A fetch of at most `requested` bytes returned `received` bytes: the response began after `waited` and was
    /// transferred for the time `transfer`.
    pub(super) fn on_response(
        &mut self,
        requested: usize,
        received: usize,
        waited: Duration,
        transfer: Duration,
    ) {
        // There were few records, or another limit was smaller: the response shows nothing about the size.
        if received < requested / 2 || requested < self.bytes {
            return;
        }
        if waited > FAR && waited > transfer / 2 {
            self.bytes = self.bytes.saturating_mul(2);
        } else if waited < FAR / 2 || waited < transfer / 8 {
            self.bytes = (self.bytes / 2).max(BYTES_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 16 << 20;

    /// The size after many responses with this wait and this speed.
    fn after_a_while(mut fetch_size: FetchSize, waited: Duration, nanos_per_byte: f64) -> usize {
        for _ in 0..100 {
            let requested = fetch_size.bytes().min(MAX);
            let transfer = Duration::from_nanos((requested as f64 * nanos_per_byte) as u64);
            fetch_size.on_response(requested, requested - 1000, waited, transfer);
        }
        fetch_size.bytes().min(MAX)
    }

    #[test]
    fn fetches_from_a_near_broker_are_small_and_from_a_far_one_as_large_as_allowed() {
        let new = FetchSize::default();
        assert_eq!(after_a_while(new, Duration::from_micros(150), 0.3), 1 << 20, "loopback");
        assert_eq!(after_a_while(new, Duration::from_millis(1), 1.0), 1 << 20, "the same room");
        assert_eq!(after_a_while(new, Duration::from_millis(1), 8.0), 1 << 20, "the same room, 1 Gbit/s");
        assert_eq!(after_a_while(new, Duration::from_millis(5), 1.0), MAX, "the next town");
        assert_eq!(after_a_while(new, Duration::from_millis(60), 8.0), MAX, "the next continent");
        assert_eq!(after_a_while(new, Duration::from_millis(60), 80.0), 2 << 20, "there, 100 Mbit/s");
    }

    #[test]
    fn the_size_shrinks_again_when_the_broker_is_near_again() {
        let large = FetchSize { bytes: MAX };
        assert_eq!(after_a_while(large, Duration::from_micros(500), 0.3), 1 << 20);
    }

    #[test]
    fn responses_that_are_short_for_other_reasons_change_nothing() {
        let mut fetch_size = FetchSize::default();
        let long = Duration::from_millis(500);
        fetch_size.on_response(1 << 20, 100, long, Duration::ZERO);
        fetch_size.on_response(300 << 10, 300 << 10, long, Duration::ZERO);
        assert_eq!(fetch_size.bytes(), 1 << 20);
    }
}
