//! Retries of failed records.

use std::time::Duration;

/// The number and delays of retries, and whether a retry blocks the records behind it.
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

/// A failure count above all real ones: the handler cannot work, with any record.
pub(crate) const FATAL: u32 = u32::MAX;

/// A failure count above all real ones: the handler has ruled out a retry.
pub(crate) const GIVEN_UP: u32 = FATAL - 1;

impl Retry {
    /// Gives up a failed record at once.
    pub fn never() -> Self {
        Self::times(0)
    }

    /// Retries a record up to `times` times. The first delay is 100 ms; it doubles each time, up to 10 s. The records
    /// behind it are handled meanwhile.
    pub fn times(times: u32) -> Self {
        let (delay, delay_max) = (Duration::from_millis(100), Duration::from_secs(10));
        Self { times, delay, delay_max, holds: false }
    }

    /// Retries a record without limit, unless its handler rules out a retry.
    pub fn forever() -> Self {
        Self::times(u32::MAX)
    }

    /// Sets the delay before the first retry.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sets the maximum delay.
    #[must_use]
    pub fn delay_max(mut self, delay_max: Duration) -> Self {
        self.delay_max = delay_max;
        self
    }

    /// Keeps the order during retries: the following records of the same key or partition wait until the record is
    /// done or given up. It has no effect with [`Order::None`](crate::Order::None).
    #[must_use]
    pub fn holding(mut self) -> Self {
        self.holds = true;
        self
    }

    /// The delay after this many failures, or `None` if the record is given up. A random part of up to a quarter is
    /// subtracted, so that records that failed together are not retried together.
    pub(crate) fn after(&self, failures: u32, rng: &mut fastrand::Rng) -> Option<Duration> {
        if failures >= GIVEN_UP || failures > self.times {
            return None;
        }
        let doubled = self.delay.saturating_mul(1 << (failures.saturating_sub(1)).min(20));
        Some(doubled.min(self.delay_max).mul_f64(1.0 - rng.f64() / 4.0))
    }
}

impl Default for Retry {
    /// Three retries.
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
            let delay = retry.after(failures, &mut rng).expect("a retry").as_millis();
            assert!((most * 3 / 4..=most).contains(&delay), "{failures}: {delay}");
        }
        assert_eq!(retry.after(5, &mut rng), None);
        assert!(Retry::forever().after(GIVEN_UP - 1, &mut rng).is_some());
        assert_eq!(Retry::forever().after(GIVEN_UP, &mut rng), None);
        assert_eq!(Retry::forever().after(FATAL, &mut rng), None);
    }
}
