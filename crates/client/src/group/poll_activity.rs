//! Tracks the application's polls, for `max.poll.interval.ms`.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::stats::polls::PollTimes;

/// A count of polls, odd while one waits, and the time that polls wait. The polling thread writes them and the engine reads
/// them.
#[derive(Debug)]
pub(crate) struct PollActivity {
    count: AtomicU64,
    began: Instant,
    /// The time of finished waits, in microseconds.
    waited_us: AtomicU64,
    /// The begin of the wait in progress, in microseconds since `began`; 0 without one.
    waits_since_us: AtomicU64,
}

/// Marks a poll as waiting until it is dropped.
#[derive(Debug)]
pub(crate) struct WaitingPoll<'a>(&'a PollActivity);

impl PollActivity {
    pub(crate) fn new(began: Instant) -> Self {
        Self {
            count: AtomicU64::new(0),
            began,
            waited_us: AtomicU64::new(0),
            waits_since_us: AtomicU64::new(0),
        }
    }

    /// Counts a poll that does not wait.
    #[inline]
    pub(crate) fn pass(&self) {
        self.count.store(self.count.load(Ordering::Relaxed).wrapping_add(2), Ordering::Relaxed);
    }

    /// Marks a poll as waiting; the application counts as alive meanwhile.
    pub(crate) fn wait(&self) -> WaitingPoll<'_> {
        self.count.fetch_or(1, Ordering::Relaxed);
        self.waits_since_us.store(self.now_us(), Ordering::Relaxed);
        WaitingPoll(self)
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns `true` if the application has polled since `count` was read. A poll that waits counts: it may have begun before, and
    /// may wait for what the caller does next.
    pub(crate) fn has_polled_since(&self, count: u64) -> bool {
        let now = self.count();
        now != count || now % 2 == 1
    }

    /// Microseconds since the consumer was created, at least 1.
    fn now_us(&self) -> u64 {
        (self.began.elapsed().as_micros() as u64).max(1)
    }
}

impl PollTimes for PollActivity {
    fn waited_us(&self) -> u64 {
        let finished = self.waited_us.load(Ordering::Relaxed);
        match self.waits_since_us.load(Ordering::Relaxed) {
            0 => finished,
            since => finished + self.now_us().saturating_sub(since),
        }
    }
}

impl Drop for WaitingPoll<'_> {
    fn drop(&mut self) {
        let polls = self.0;
        let waited = polls.now_us().saturating_sub(polls.waits_since_us.swap(0, Ordering::Relaxed));
        polls.waited_us.fetch_add(waited, Ordering::Relaxed);
        let count = polls.count.load(Ordering::Relaxed);
        polls.count.store((count & !1).wrapping_add(2), Ordering::Relaxed);
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
        let begin = Instant::now();
        let polls = PollActivity::new(begin);
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

    /// The member waited for the next poll, and the poll for the member's records.
    #[test]
    fn a_poll_that_waits_already_counts_as_a_poll() {
        let polls = PollActivity::new(Instant::now());
        assert!(!polls.has_polled_since(polls.count()));
        let waiting = polls.wait();
        assert!(polls.has_polled_since(polls.count()));
        drop(waiting);
        let count = polls.count();
        assert!(!polls.has_polled_since(count), "the application may do anything but poll");
        polls.pass();
        assert!(polls.has_polled_since(count));
    }
}
