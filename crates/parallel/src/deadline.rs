//! Deadlines, also after durations that mean "without limit".

use std::time::Duration;

use tokio::time::Instant;

/// Far enough for every wait, and near enough for every clock.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The time `wait` after `now`, or one far in the future if the clock cannot represent it.
pub(crate) fn after(now: Instant, wait: Duration) -> Instant {
    now.checked_add(wait).unwrap_or_else(|| now + FAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_without_limit_ends_far_in_the_future() {
        let now = Instant::now();
        assert_eq!(after(now, Duration::MAX), now + FAR);
        assert_eq!(after(now, Duration::from_secs(3)), now + Duration::from_secs(3));
    }
}
