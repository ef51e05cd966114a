//! Rates and token buckets as Kafka measures them.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The windows over which a rate is measured: `quota.window.num` and `quota.window.size.seconds`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Windows {
    pub(super) count: u32,
    pub(super) size: Duration,
}

impl Windows {
    /// The time that all windows cover together.
    pub(super) fn span(self) -> Duration {
        self.size * self.count
    }

    /// The windows that are complete at any time.
    fn complete(self) -> u32 {
        self.count.saturating_sub(1).max(1)
    }

    /// The most that a quota allows at once, if nothing was used before.
    pub(super) fn burst(self, per_second: f64) -> f64 {
        per_second * (self.size * self.complete()).as_secs_f64()
    }
}

/// A rate per second. A rate that has just begun counts as if all complete windows had passed.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// The windows with their starts and sums.
    samples: VecDeque<(Instant, f64)>,
}

impl Rate {
    pub(super) fn add(&mut self, windows: Windows, now: Instant, value: f64) {
        self.expire(windows, now);
        match self.samples.back_mut() {
            Some((start, sum)) if now < *start + windows.size => *sum += value,
            Some(_) | None => self.samples.push_back((now, value)),
        }
    }

    /// Removes from the current window what was not used.
    pub(super) fn take_back(&mut self, value: f64) {
        if let Some((_, sum)) = self.samples.back_mut() {
            *sum -= value;
        }
    }

    /// The time for which a client has to pause, so that its rate over the windows and the pause is `limit`.
    pub(super) fn throttle(&mut self, windows: Windows, now: Instant, limit: f64) -> Duration {
        self.expire(windows, now);
        let Some((oldest, _)) = self.samples.front() else { return Duration::ZERO };
        let elapsed = now.duration_since(*oldest);
        let full = (elapsed.as_secs_f64() / windows.size.as_secs_f64()) as u32;
        let elapsed = elapsed + windows.size * windows.complete().saturating_sub(full);
        let sum: f64 = self.samples.iter().map(|(_, sum)| sum).sum();
        let rate = sum / elapsed.as_secs_f64();
        if rate <= limit {
            return Duration::ZERO;
        }
        seconds((rate - limit) / limit * elapsed.as_secs_f64())
    }

    fn expire(&mut self, windows: Windows, now: Instant) {
        while self.samples.front().is_some_and(|(start, _)| now.duration_since(*start) >= windows.span()) {
            self.samples.pop_front();
        }
    }
}

/// A bucket of tokens that may be overdrawn once (KIP-599).
#[derive(Debug, Default)]
pub(super) struct TokenBucket {
    /// The missing tokens, and the time at which they were counted. A full bucket misses none.
    used: f64,
    counted: Option<Instant>,
}

impl TokenBucket {
    fn refill(&mut self, now: Instant, per_second: f64) {
        let since = self.counted.map_or(Duration::ZERO, |counted| now.duration_since(counted));
        self.used = (self.used - since.as_secs_f64() * per_second).max(0.0);
        self.counted = Some(now);
    }

    /// Takes tokens, whether there are enough or not.
    pub(super) fn take(&mut self, now: Instant, per_second: f64, tokens: f64) {
        self.refill(now, per_second);
        self.used += tokens;
    }

    /// The time after which the bucket is not overdrawn any more.
    pub(super) fn throttle(&mut self, windows: Windows, now: Instant, per_second: f64) -> Duration {
        self.refill(now, per_second);
        let size = per_second * windows.span().as_secs_f64();
        seconds((self.used - size) / per_second)
    }
}

fn seconds(seconds: f64) -> Duration {
    // A quota near zero must not overflow.
    const MAX: f64 = 1e6;
    Duration::from_secs_f64(seconds.clamp(0.0, MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOWS: Windows = Windows { count: 11, size: Duration::from_secs(1) };

    #[test]
    fn a_pause_brings_the_rate_to_its_limit() {
        let (mut rate, now) = (Rate::default(), Instant::now());
        // As in Kafka's ClientQuotaManagerTest: a limit of 500 bytes, 400 bytes per second for ten seconds, then a peak of 2300.
        for second in 0..10 {
            let at = now + Duration::from_secs(second);
            rate.add(WINDOWS, at, 400.0);
            assert_eq!(rate.throttle(WINDOWS, at, 500.0), Duration::ZERO);
        }
        let at = now + Duration::from_millis(10_500);
        rate.add(WINDOWS, at, 2300.0);
        // 600 bytes per second, against 500: a fifth of 10.5 seconds.
        assert_eq!(rate.throttle(WINDOWS, at, 500.0).as_millis(), 2100);
        assert_eq!(rate.throttle(WINDOWS, at + Duration::from_secs(12), 500.0), Duration::ZERO);
        assert!(rate.samples.is_empty());
    }

    #[test]
    fn a_rate_that_begins_may_use_the_burst() {
        let (mut rate, now) = (Rate::default(), Instant::now());
        rate.add(WINDOWS, now, WINDOWS.burst(500.0));
        assert_eq!(rate.throttle(WINDOWS, now, 500.0), Duration::ZERO);
        rate.add(WINDOWS, now, 1000.0);
        assert_eq!(rate.throttle(WINDOWS, now, 500.0), Duration::from_secs(2));
        rate.take_back(1000.0);
        assert_eq!(rate.throttle(WINDOWS, now, 500.0), Duration::ZERO);
    }

    #[test]
    fn a_bucket_is_overdrawn_once_and_fills_again() {
        let (mut bucket, now) = (TokenBucket::default(), Instant::now());
        bucket.take(now, 10.0, 110.0);
        assert_eq!(bucket.throttle(WINDOWS, now, 10.0), Duration::ZERO);
        bucket.take(now, 10.0, 50.0);
        assert_eq!(bucket.throttle(WINDOWS, now, 10.0), Duration::from_secs(5));
        assert_eq!(bucket.throttle(WINDOWS, now + Duration::from_secs(5), 10.0), Duration::ZERO);
        bucket.refill(now + Duration::from_secs(15), 10.0);
        assert!(bucket.used > 0.0);
        bucket.refill(now + Duration::from_secs(16), 10.0);
        assert!(bucket.used <= 0.0);
    }
}
