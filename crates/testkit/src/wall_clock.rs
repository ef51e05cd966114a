//! The wall clock of a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::time::Instant;

/// The wall clock at the start of a run, in milliseconds since 1970: 2023-11-14 22:13:20 UTC.
pub const EPOCH_MS: i64 = 1_700_000_000_000;

/// The wall clock of a broker and its clients: [`EPOCH_MS`], the virtual time that has passed, and the jumps so far.
///
/// Timers do not notice its jumps, as with a real system's clock. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct WallClock {
    started: Instant,
    skew_ms: Arc<AtomicI64>,
}

impl WallClock {
    /// Creates a clock that is at [`EPOCH_MS`] now.
    pub fn start() -> Self {
        Self { started: Instant::now(), skew_ms: Arc::default() }
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        let without_jumps = EPOCH_MS + self.started.elapsed().as_millis() as i64;
        without_jumps.saturating_add(self.skew_ms.load(Ordering::Relaxed))
    }

    /// Moves the clock by `by_ms` milliseconds, back if negative, and returns the sum of the jumps before this one. The sum and the
    /// time end at the first and at the last number.
    ///
    /// After a jump ahead of 10 minutes or more, the broker deletes nothing for its age by the new time for an hour
    /// (`BrokerConfig::clock_jump_wait`). `Cluster::apply_retention_now` and `Cluster::expire_offsets_now` do so at once.
    pub fn jump_ms(&self, by_ms: i64) -> i64 {
        let jump = |skew_ms: i64| Some(skew_ms.saturating_add(by_ms));
        match self.skew_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, jump) {
            Ok(before) | Err(before) => before,
        }
    }

    /// Returns this clock for [`BrokerBuilder::clock`](ottla_broker::BrokerBuilder::clock).
    pub fn of_broker(&self) -> ottla_broker::Clock {
        let clock = self.clone();
        ottla_broker::Clock::Custom(Arc::new(move || clock.now_ms()))
    }

    /// Returns this clock for [`Config::clock`](ottla_client::Config::clock).
    pub fn of_client(&self) -> ottla_client::Clock {
        let clock = self.clone();
        ottla_client::Clock::Custom(Arc::new(move || clock.now_ms()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum overflowed: a panic, or a time in the distant past.
    #[tokio::test(start_paused = true)]
    async fn a_jump_beyond_the_last_time_ends_there() {
        let clock = WallClock::start();
        assert_eq!(clock.jump_ms(i64::MAX), 0);
        assert_eq!(clock.now_ms(), i64::MAX);
        assert_eq!(clock.jump_ms(1), i64::MAX);
        assert_eq!(clock.now_ms(), i64::MAX);
        assert_eq!(clock.jump_ms(-i64::MAX), i64::MAX);
        assert_eq!(clock.now_ms(), EPOCH_MS);
    }
}
