//! Tracks the application's polls, for `max.poll.interval.ms`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// A count of polls, odd while one waits. The polling thread writes it and the engine reads it.
#[derive(Debug, Default)]
pub(crate) struct PollActivity(AtomicU64);

/// Marks a poll as waiting until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitingPoll<'a>(&'a PollActivity);

impl PollActivity {
    /// Counts a poll that does not wait.
    #[inline]
    pub(crate) fn pass(&self) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(2), Ordering::Relaxed);
    }

    /// Marks a poll as waiting; the application counts as alive meanwhile.
    pub(crate) fn wait(&self) -> WaitingPoll<'_> {
        self.0.fetch_or(1, Ordering::Relaxed);
        WaitingPoll(self)
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for WaitingPoll<'_> {
    fn drop(&mut self) {
        let count = self.0.0.load(Ordering::Relaxed);
        self.0.0.store((count & !1).wrapping_add(2), Ordering::Relaxed);
    }
}

/// The time of the last poll that a periodic check has seen.
#[derive(Debug)]
pub(crate) struct LastPoll {
    count: u64,
    seen_at: Instant,
}

impl LastPoll {
    pub(crate) fn new(polls: &PollActivity, now: Instant) -> Self {
        Self { count: polls.count(), seen_at: now }
    }

    /// Returns the time since the last poll.
    pub(crate) fn age(&mut self, polls: &PollActivity, now: Instant) -> Duration {
        let count = polls.count();
        if count != self.count || count % 2 == 1 {
            *self = Self { count, seen_at: now };
        }
        now - self.seen_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_runs_only_between_two_polls() {
        let (polls, begin) = (PollActivity::default(), Instant::now());
        let mut last = LastPoll::new(&polls, begin);
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(last.age(&polls, at(5)).as_secs(), 5);
        polls.pass();
        assert_eq!(last.age(&polls, at(6)).as_secs(), 0);
        assert_eq!(last.age(&polls, at(8)).as_secs(), 2);
        let waiting = polls.wait();
        assert_eq!(last.age(&polls, at(100)).as_secs(), 0);
        drop(waiting);
        assert_eq!(last.age(&polls, at(101)).as_secs(), 0);
        assert_eq!(last.age(&polls, at(103)).as_secs(), 2);
    }
}
