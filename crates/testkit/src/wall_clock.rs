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
        EPOCH_MS + self.started.elapsed().as_millis() as i64 + self.skew_ms.load(Ordering::Relaxed)
    }

    /// Moves the clock by `by_ms` milliseconds, back if negative, and returns the sum of the jumps before this one.
    ///
    /// After a jump ahead of 10 minutes or more, the broker deletes nothing for its age by the new time for an hour
    /// (`BrokerConfig::clock_jump_wait`). `Cluster::apply_retention_now` and `Cluster::expire_offsets_now` do so at once.
    pub fn jump_ms(&self, by_ms: i64) -> i64 {
        self.skew_ms.fetch_add(by_ms, Ordering::Relaxed)
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
