//! The time by which periodic work deletes what is too old: the wall clock, except after a jump ahead.
//!
//! A wrong answer of a time server, or of a virtual machine's host, can move the wall clock by weeks. Committed offsets, transactional
//! ids and segments would be deleted at the next check, although the clock is put right soon after.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Clock;

/// The smallest jump. A smaller one deletes things so much too early.
const JUMP_MS_MIN: i64 = 10 * 60 * 1000;

/// The clock of periodic deletions. All of them share it.
///
/// A jump ahead is a difference between the wall clock and a steady clock that has grown between two checks. Deletions then continue by the
/// steady clock. If the wall clock is put right within the wait, the jump has no effect; otherwise the wall clock counts again.
///
/// A steady clock does not count the time for which its machine is suspended, so the time of the suspension is a jump, too. Consumers
/// that were suspended with the broker then have the wait to commit. A jump between two runs of the broker is not noticed.
#[derive(Debug)]
pub(crate) struct DeletionClock {
    clock: Clock,
    began: Instant,
    wait_ms: i64,
    watch: Mutex<ClockWatch>,
}

impl DeletionClock {
    /// `wait` is the time for which a jump ahead has no effect.
    pub(crate) fn new(clock: Clock, wait: Duration) -> Self {
        let watch = Mutex::new(ClockWatch { skew_ms: clock.now_ms(), jump: None });
        let wait_ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
        Self { clock, began: Instant::now(), wait_ms, watch }
    }

    /// Milliseconds since 1970, to compare ages with.
    pub(crate) fn now_ms(&self) -> i64 {
        let steady_ms = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX);
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        watch.time_of_check(self.clock.now_ms(), steady_ms, self.wait_ms)
    }
}

/// The decisions of a [`DeletionClock`].
#[derive(Debug)]
struct ClockWatch {
    /// The wall clock less the steady one, at the last check that trusted it.
    skew_ms: i64,
    /// The jump ahead that is waited for.
    jump: Option<Jump>,
}

#[derive(Clone, Copy, Debug)]
struct Jump {
    /// The wall clock less the steady one, at the last check.
    skew_ms: i64,
    /// The time on the steady clock at which the jump was noticed.
    since_ms: i64,
}

impl ClockWatch {
    fn time_of_check(&mut self, wall_ms: i64, steady_ms: i64, wait_ms: i64) -> i64 {
        let skew_ms = wall_ms.saturating_sub(steady_ms);
        let ahead_ms = skew_ms.saturating_sub(self.skew_ms);
        // A clock that has gone back deletes later, which loses nothing.
        if ahead_ms < JUMP_MS_MIN {
            if self.jump.is_some() {
                tracing::info!("the wall clock is right again");
            }
            (self.skew_ms, self.jump) = (skew_ms, None);
            return wall_ms;
        }
        let is_same = |jump: &Jump| skew_ms.abs_diff(jump.skew_ms) < JUMP_MS_MIN.unsigned_abs();
        let since_ms = self.jump.filter(is_same).map(|jump| jump.since_ms);
        if since_ms.is_none() {
            tracing::warn!(
                ahead_ms,
                wait_ms,
                "the wall clock has jumped ahead, or the machine was suspended: deletions continue by a steady clock until the wait is over"
            );
        }
        let since_ms = since_ms.unwrap_or(steady_ms);
        if steady_ms.saturating_sub(since_ms) >= wait_ms {
            (self.skew_ms, self.jump) = (skew_ms, None);
            return wall_ms;
        }
        self.jump = Some(Jump { skew_ms, since_ms });
        steady_ms.saturating_add(self.skew_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3_600_000;
    const DAY_MS: i64 = 24 * HOUR_MS;
    const BEGAN_MS: i64 = 1_700_000_000_000;

    fn watch() -> ClockWatch {
        ClockWatch { skew_ms: BEGAN_MS, jump: None }
    }

    #[test]
    fn a_jump_that_is_put_right_within_the_wait_has_no_effect() {
        let mut watch = watch();
        let mut check = |steady_ms, off_ms| {
            watch.time_of_check(BEGAN_MS + steady_ms + off_ms, steady_ms, HOUR_MS) - BEGAN_MS
        };
        assert_eq!(check(1000, 0), 1000);
        assert_eq!(check(2000, 30 * DAY_MS), 2000);
        assert_eq!(check(2000 + HOUR_MS - 1, 30 * DAY_MS), 2000 + HOUR_MS - 1);
        assert_eq!(check(2 * HOUR_MS, 0), 2 * HOUR_MS);
        // Another jump has a wait of its own, also to another time.
        assert_eq!(check(3 * HOUR_MS, 30 * DAY_MS), 3 * HOUR_MS);
        assert_eq!(check(4 * HOUR_MS, 60 * DAY_MS), 4 * HOUR_MS);
    }

    #[test]
    fn a_jump_that_lasts_counts_after_the_wait() {
        let mut watch = watch();
        let mut check = |steady_ms, off_ms| {
            watch.time_of_check(BEGAN_MS + steady_ms + off_ms, steady_ms, HOUR_MS) - BEGAN_MS
        };
        assert_eq!(check(1000, 30 * DAY_MS), 1000);
        assert_eq!(check(1000 + HOUR_MS, 30 * DAY_MS), 1000 + HOUR_MS + 30 * DAY_MS);
        assert_eq!(check(2000 + HOUR_MS, 30 * DAY_MS), 2000 + HOUR_MS + 30 * DAY_MS);
    }

    #[test]
    fn small_steps_and_steps_back_count_at_once() {
        let mut watch = watch();
        let mut check = |steady_ms, off_ms| {
            watch.time_of_check(BEGAN_MS + steady_ms + off_ms, steady_ms, HOUR_MS) - BEGAN_MS
        };
        assert_eq!(check(1000, JUMP_MS_MIN - 1), 1000 + JUMP_MS_MIN - 1);
        assert_eq!(check(2000, -DAY_MS), 2000 - DAY_MS);
    }
}
