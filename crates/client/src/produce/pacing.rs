//! Whether a full batch follows one that is on its way, or waits for its answer.
//!
//! One large request at a time keeps a near broker busy, and the client in few buffers, which then stay in the processor's
//! caches: a fifth less CPU per record than with five under way. A broker that is far, or slow, needs several: those
//! whose answers do not come in the time such a request takes are not waited for.

use std::time::Duration;

use tokio::time::Instant;

/// Below this a request is short work, and the pause between two of them would not be.
const HELD_BYTES_MIN: usize = 256 << 10;
/// What a near broker takes for a byte is less: twice the time of a link of 10 Gbit/s.
const NANOS_PER_BYTE: u64 = 2;
/// So many answers in a row that did not come in time make a leader a far one,
const LATE_MAX: u32 = 8;
/// for so many requests; then it is looked at again.
const FAR_REQUESTS: u32 = 512;

/// What is known of a leader's answers.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    /// When the answer to the last request is late.
    until: Option<Instant>,
    /// Whether something has waited for it.
    held: bool,
    late: u32,
    /// Requests that still go without waiting.
    far: u32,
}

impl Pacing {
    /// A request has left.
    pub(super) fn sent(&mut self, bytes: usize, now: Instant) {
        self.far = self.far.saturating_sub(1);
        let answer_within = Duration::from_nanos(bytes as u64 * NANOS_PER_BYTE);
        self.until = (bytes >= HELD_BYTES_MIN && self.far == 0).then(|| now + answer_within);
        self.held = false;
    }

    /// Its answer, or an earlier one's, has come.
    pub(super) fn answered(&mut self) {
        if self.held {
            self.late = 0;
        }
        (self.until, self.held) = (None, false);
    }

    /// Until when the next request waits for the answer, if it does.
    pub(super) fn holds(&mut self, now: Instant) -> Option<Instant> {
        let until = self.until?;
        if now < until {
            self.held = true;
            return Some(until);
        }
        self.until = None;
        if self.held {
            self.held = false;
            self.late += 1;
            if self.late == LATE_MAX {
                (self.late, self.far) = (0, FAR_REQUESTS);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGE: usize = 512 << 10;
    const TIME: Duration = Duration::from_nanos(LARGE as u64 * NANOS_PER_BYTE);

    #[test]
    fn a_near_leader_has_one_large_request_at_a_time() {
        let (mut pacing, mut now) = (Pacing::default(), Instant::now());
        for _ in 0..1000 {
            assert_eq!(pacing.holds(now), None);
            pacing.sent(LARGE, now);
            assert_eq!(pacing.holds(now), Some(now + TIME));
            now += TIME / 2;
            pacing.answered();
        }
        pacing.sent(HELD_BYTES_MIN - 1, now);
        assert_eq!(pacing.holds(now), None, "small ones follow one another");
    }

    #[test]
    fn a_far_leader_is_not_waited_for_and_looked_at_again() {
        let (mut pacing, mut now) = (Pacing::default(), Instant::now());
        for round in 0..3 {
            for _ in 0..LATE_MAX {
                pacing.sent(LARGE, now);
                assert_eq!(pacing.holds(now), Some(now + TIME), "round {round}");
                now += TIME;
                assert_eq!(pacing.holds(now), None);
            }
            for _ in 1..FAR_REQUESTS {
                pacing.sent(LARGE, now);
                assert_eq!(pacing.holds(now), None, "round {round}");
            }
        }
    }

    #[test]
    fn one_answer_that_is_late_is_forgotten() {
        let (mut pacing, mut now) = (Pacing::default(), Instant::now());
        for _ in 0..10 * LATE_MAX {
            pacing.sent(LARGE, now);
            pacing.holds(now);
            now += TIME;
            assert_eq!(pacing.holds(now), None, "late");
            pacing.sent(LARGE, now);
            assert_eq!(pacing.holds(now), Some(now + TIME), "in time");
            pacing.answered();
        }
    }
}
