//! In place of the clients' timers. No wait ends by its time-out.

use std::time::{Duration, Instant};

/// The instant after a duration.
#[allow(clippy::disallowed_methods, reason = "no model depends on the time")]
pub fn deadline_after(duration: Duration) -> Instant {
    Instant::now() + duration
}
