//! What becomes of records whose handler failed.

use std::time::Duration;

/// How often and when a failed record is tried again, and what waits for it meanwhile.
///
/// ```
/// use std::time::Duration;
/// use ottla_parallel::Retry;
///
/// let retry = Retry::times(3).delay(Duration::from_millis(50)).delay_max(Duration::from_secs(1)).holding();
/// assert_eq!(retry, retry.clone());
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Retry {
    pub(crate) times: u32,
    pub(crate) delay: Duration,
    pub(crate) delay_max: Duration,
    pub(crate) holds: bool,
}

/// Stands for more failures than there can be: the handler itself says that trying again is of no use.
pub(crate) const GIVEN_UP: u32 = u32::MAX;

impl Retry {
    /// A failed record is given up at once.
    pub fn never() -> Self {
        Self::times(0)
    }

    /// It is tried so many times more before it is given up: after 100 ms, then after twice as long each time, up to 10 s.
    /// Meanwhile its lane goes on.
    pub fn times(times: u32) -> Self {
        let (delay, delay_max) = (Duration::from_millis(100), Duration::from_secs(10));
        Self { times, delay, delay_max, holds: false }
    }

    /// It is tried again and again, and never given up unless its handler says so.
    pub fn forever() -> Self {
        Self::times(u32::MAX)
    }

    /// How long the first repetition waits.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// How long repetitions wait at most.
    #[must_use]
    pub fn delay_max(mut self, delay_max: Duration) -> Self {
        self.delay_max = delay_max;
        self
    }

    /// The record keeps its place: what follows it in its lane (its key's, its partition's) waits until it is done or
    /// given up. Without an order there is nothing to hold.
    #[must_use]
    pub fn holding(mut self) -> Self {
        self.holds = true;
        self
    }

    /// How long to wait after so many failures, or that it is given up. Up to a quarter less, by chance: what failed
    /// together does not come back together.
    pub(crate) fn after(&self, failures: u32, rng: &mut fastrand::Rng) -> Option<Duration> {
        if failures == GIVEN_UP || failures > self.times {
            return None;
        }
        let doubled = self.delay.saturating_mul(1 << (failures.saturating_sub(1)).min(20));
        Some(doubled.min(self.delay_max).mul_f64(1.0 - rng.f64() / 4.0))
    }
}

impl Default for Retry {
    /// Three times.
    fn default() -> Self {
        Self::times(3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_their_limit_and_then_it_is_given_up() {
        let mut rng = fastrand::Rng::with_seed(1);
        let retry = Retry::times(4).delay(Duration::from_millis(100)).delay_max(Duration::from_millis(300));
        for (failures, most) in [(1, 100), (2, 200), (3, 300), (4, 300)] {
            let delay = retry.after(failures, &mut rng).expect("tried again").as_millis();
            assert!((most * 3 / 4..=most).contains(&delay), "{failures}: {delay}");
        }
        assert_eq!(retry.after(5, &mut rng), None);
        assert!(Retry::forever().after(u32::MAX - 1, &mut rng).is_some());
        assert_eq!(Retry::forever().after(GIVEN_UP, &mut rng), None);
    }
}
