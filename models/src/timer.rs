//! In place of the clients' timers. No wait ends by its time-out.

use std::time::{Duration, Instant};

/// The instant after a duration.
pub fn deadline_after(duration: Duration) -> Instant {
    Instant::now() + duration
}
