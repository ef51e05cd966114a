//! The times after which a connection ends: it is idle, a request does not arrive, or it keeps memory that others wait for.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, Sleep};

use super::Closed;
use super::input::Granted;
use crate::config::BrokerConfig;

/// Slowest rate at which a large frame may arrive.
const FRAME_BYTES_PER_S_MIN: usize = 128 << 10;
/// While others wait for memory, a connection that has some may pause for this time, and must send at least at this rate
/// after it.
const CONTENDED_GRACE: Duration = Duration::from_secs(1);
const CONTENDED_BYTES_PER_S_MIN: f64 = (1 << 20) as f64;
/// The longest time for a large request, a response, or a part of one while others wait for its memory: at any pace, a few large ones
/// would keep it for long.
pub(super) const CONTENDED_TIME_MAX: Duration = Duration::from_secs(10);
/// Interval at which a connection that has memory looks whether others wait.
pub(super) const CONTENTION_CHECK: Duration = Duration::from_millis(250);

pub(super) fn set_deadline(timer: Pin<&mut Sleep>, at: Instant) {
    if timer.deadline() != at {
        timer.reset(at);
    }
}

/// The time in which the rest of a frame must arrive.
pub(super) fn time_for(bytes: usize, config: &BrokerConfig) -> Duration {
    config.frame_timeout + Duration::from_secs((bytes / FRAME_BYTES_PER_S_MIN) as u64)
}

/// The deadline of a frame, and the time at which the connection looks whether others wait for the memory that it was granted. The last
/// bytes came at `since`.
pub(super) fn contended_due(
    mut due: Instant,
    since: Instant,
    granted: Option<&Granted>,
    arrived: usize,
) -> (Instant, Instant) {
    let Some(granted) = granted else { return (due, due) };
    if granted.charge.is_wanted() {
        let stalled = since.max(granted.since) + CONTENDED_GRACE;
        due = due.min(stalled).min(granted.since + contended_time_for(arrived));
    }
    (due, due.min(Instant::now() + CONTENTION_CHECK))
}

/// The time in which so many bytes must have arrived, or must have been read, while other connections wait for their memory.
pub(super) fn contended_time_for(bytes: usize) -> Duration {
    let at_pace = CONTENDED_GRACE + Duration::from_secs_f64(bytes as f64 / CONTENDED_BYTES_PER_S_MIN);
    at_pace.min(CONTENDED_TIME_MAX)
}

/// The times that the deadlines of a connection depend on.
#[derive(Debug)]
pub(super) struct Times {
    /// The last bytes of the client came, or the last response was sent.
    pub(super) since: Instant,
    /// The deadline of the frame of which a part has arrived.
    pub(super) frame_due: Option<Instant>,
    pub(super) keeping: Keeping,
}

impl Times {
    pub(super) fn new() -> Self {
        Self { since: Instant::now(), frame_due: None, keeping: Keeping::default() }
    }
}

/// The time for which a connection keeps the memory of a request while it awaits nothing of it: the request waits for its turn, or its
/// client pauses for a quota.
#[derive(Debug, Default)]
pub(super) struct Keeping {
    since: Option<Instant>,
}

impl Keeping {
    /// Looks at the memory; `is_awaited` if the connection receives the request. Returns the time of the next look, if there is one.
    ///
    /// Fails if others wait for the memory, and it was kept for too long. This time does not count for the rest of the request.
    pub(super) fn look(
        &mut self,
        granted: Option<&mut Granted>,
        is_awaited: bool,
    ) -> Result<Option<Instant>, Closed> {
        let now = Instant::now();
        let Some(granted) = granted.filter(|_| !is_awaited) else {
            self.since = None;
            return Ok(None);
        };
        let since = *self.since.get_or_insert(now);
        if granted.charge.is_wanted() && since + CONTENDED_TIME_MAX <= now {
            let text = "others wait for the memory of its next request, which waits for its turn or a quota";
            return Err(Closed::Peer(text.to_owned()));
        }
        granted.since = now;
        Ok(Some(now + CONTENTION_CHECK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that sent 1 MiB/s of a request of 100 MiB kept its memory for 101 seconds.
    #[test]
    fn memory_that_others_wait_for_is_kept_for_ten_seconds_at_any_pace() {
        assert_eq!(contended_time_for(0), CONTENDED_GRACE);
        assert_eq!(contended_time_for(4 << 20), CONTENDED_GRACE + Duration::from_secs(4));
        assert_eq!(contended_time_for(100 << 20), CONTENDED_TIME_MAX);
    }
}
