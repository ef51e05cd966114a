//! The wall clock, used only for record timestamps: every timer uses the monotonic clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rustix::time::{ClockId, clock_gettime};

/// Pushes within one tick of the coarse clock from which the precise clock is read less often.
const DENSE_PUSHES: u32 = 256;
/// The number of such pushes that share one reading.
const SHARED_PUSHES: u32 = 16;

/// The source of record timestamps.
#[derive(Clone, Default)]
pub enum Clock {
    /// The system's wall clock.
    #[default]
    System,
    /// Milliseconds since 1970, set by a test or a simulation.
    Fixed(Arc<AtomicI64>),
    /// A function that returns milliseconds since 1970. It must not block: producers call it for each record.
    Custom(Arc<dyn Fn() -> i64 + Send + Sync>),
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System => f.write_str("System"),
            Self::Fixed(ms) => f.debug_tuple("Fixed").field(ms).finish(),
            Self::Custom(_) => f.write_str("Custom"),
        }
    }
}

impl Clock {
    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        match self {
            Self::System => precise_ms(),
            Self::Fixed(ms) => ms.load(Ordering::Relaxed),
            Self::Custom(now_ms) => now_ms(),
        }
    }

    /// Milliseconds of a clock with a low resolution and a low cost, suitable only for differences.
    #[inline]
    pub(crate) fn coarse_ms(&self) -> i64 {
        match self {
            Self::System => {
                let now = clock_gettime(ClockId::MonotonicCoarse);
                now.tv_sec * 1000 + now.tv_nsec / 1_000_000
            }
            Self::Fixed(ms) => ms.load(Ordering::Relaxed),
            Self::Custom(now_ms) => now_ms(),
        }
    }
}

/// Timestamps for one partition's records.
///
/// A reading of the precise clock costs as much as encoding a small record (30 ns against 7 ns for the coarse one,
/// which ticks every 4 ms). The coarse clock is therefore read for every record. The precise clock is read after each
/// tick of the coarse clock. Below 64,000 records per second it is read for every record, above that for every 16th.
/// A timestamp is never more than one tick late.
#[derive(Debug, Default)]
pub(crate) struct Stamper {
    tick: i64,
    now_ms: i64,
    pushes: u32,
    dense: bool,
}

impl Stamper {
    /// The time for the next record, milliseconds since 1970.
    #[inline]
    pub(crate) fn stamp(&mut self, clock: &Clock) -> i64 {
        match clock {
            Clock::System => self.stamp_by(coarse_tick(), precise_ms),
            Clock::Fixed(ms) => ms.load(Ordering::Relaxed),
            Clock::Custom(now_ms) => now_ms(),
        }
    }

    #[inline]
    fn stamp_by(&mut self, tick: i64, precise_ms: impl FnOnce() -> i64) -> i64 {
        if tick != self.tick {
            self.tick = tick;
            self.dense = self.pushes >= DENSE_PUSHES;
            self.pushes = 0;
        }
        if !self.dense || self.pushes.is_multiple_of(SHARED_PUSHES) {
            self.now_ms = precise_ms();
        }
        self.pushes += 1;
        self.now_ms
    }
}

/// The coarse clock's reading, in nanoseconds; only whether it changes matters.
fn coarse_tick() -> i64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec)
}

fn precise_ms() -> i64 {
    let now = clock_gettime(ClockId::Realtime);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_is_stamped_precisely_until_many_come_in_a_tick() {
        let mut stamper = Stamper::default();
        let mut readings = 0;
        for tick in 1..4 {
            for _ in 0..1000 {
                stamper.stamp_by(tick, || {
                    readings += 1;
                    readings
                });
            }
        }
        // The first tick is read 1000 times, the others every 16th.
        assert_eq!(readings, 1000 + 2 * 63);
        for tick in 4..8 {
            let before = readings;
            stamper.stamp_by(tick, || {
                readings += 1;
                readings
            });
            assert_eq!(readings, before + 1, "the first of a tick is always precise");
        }
    }

    #[test]
    fn a_custom_clock_is_read_for_every_record() {
        let readings = Arc::new(AtomicI64::new(0));
        let counted = readings.clone();
        let clock = Clock::Custom(Arc::new(move || counted.fetch_add(1, Ordering::Relaxed)));
        let mut stamper = Stamper::default();
        let stamps: Vec<i64> = (0..3).map(|_| stamper.stamp(&clock)).collect();
        assert_eq!(stamps, [0, 1, 2]);
        assert_eq!((clock.now_ms(), clock.coarse_ms(), format!("{clock:?}")), (3, 4, "Custom".to_owned()));
    }
}
