//! How much a fetch asks for.
//!
//! What comes in small portions is still in the processor's caches when the application reads it: out of many partitions,
//! responses of 16 MiB cost a half more per record than those of 1 MiB. A broker that is far, or thinks for long before it
//! answers, is asked for more at a time, so that it is waited for less often.

use std::time::Duration;

/// The least that is asked for.
const BYTES_MIN: usize = 1 << 20;
/// Whoever lets us wait for longer than this, and for longer than half of the time in which the answer then comes, is far.
const FAR: Duration = Duration::from_millis(2);

/// How much the next fetch from a broker asks for, before the limits that are configured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Portion {
    bytes: usize,
}

impl Default for Portion {
    fn default() -> Self {
        Self { bytes: BYTES_MIN }
    }
}

impl Portion {
    pub(super) fn bytes(self) -> usize {
        self.bytes
    }

    /// A fetch of at most `asked` bytes brought `came` of them: its answer was waited for, and then came for so long.
    pub(super) fn answered(&mut self, asked: usize, came: usize, waited: Duration, came_for: Duration) {
        // It was the records that were few, and not the portion; or another limit was smaller.
        if came < asked / 2 || asked < self.bytes {
            return;
        }
        if waited > FAR && waited > came_for / 2 {
            self.bytes = self.bytes.saturating_mul(2);
        } else if waited < FAR / 2 || waited < came_for / 8 {
            self.bytes = (self.bytes / 2).max(BYTES_MIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 16 << 20;

    /// Bytes asked for in the end, if each answer is waited for and comes so fast.
    fn after_a_while(mut portion: Portion, waited: Duration, nanos_per_byte: f64) -> usize {
        for _ in 0..100 {
            let asked = portion.bytes().min(MAX);
            let came_for = Duration::from_nanos((asked as f64 * nanos_per_byte) as u64);
            portion.answered(asked, asked - 1000, waited, came_for);
        }
        portion.bytes().min(MAX)
    }

    #[test]
    fn a_near_broker_gives_small_portions_and_a_far_one_what_is_allowed() {
        let new = Portion::default();
        assert_eq!(after_a_while(new, Duration::from_micros(150), 0.3), 1 << 20, "loopback");
        assert_eq!(after_a_while(new, Duration::from_millis(1), 1.0), 1 << 20, "the same room");
        assert_eq!(after_a_while(new, Duration::from_millis(1), 8.0), 1 << 20, "the same room, 1 Gbit/s");
        assert_eq!(after_a_while(new, Duration::from_millis(5), 1.0), MAX, "the next town");
        assert_eq!(after_a_while(new, Duration::from_millis(60), 8.0), MAX, "the next continent");
        assert_eq!(after_a_while(new, Duration::from_millis(60), 80.0), 2 << 20, "there, 100 Mbit/s");
    }

    #[test]
    fn a_portion_shrinks_again_when_the_broker_is_near_again() {
        let large = Portion { bytes: MAX };
        assert_eq!(after_a_while(large, Duration::from_micros(500), 0.3), 1 << 20);
    }

    #[test]
    fn answers_that_are_short_for_other_reasons_say_nothing() {
        let mut portion = Portion::default();
        let long = Duration::from_millis(500);
        portion.answered(1 << 20, 100, long, Duration::ZERO);
        portion.answered(300 << 10, 300 << 10, long, Duration::ZERO);
        assert_eq!(portion.bytes(), 1 << 20);
    }
}
