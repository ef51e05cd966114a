//! Whether the application still polls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Counts polls; odd while one waits. One thread polls, the engine looks on.
#[derive(Debug, Default)]
pub(crate) struct Polls(AtomicU64);

/// A poll that waits, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a Polls);

impl Polls {
    /// A poll that does not wait.
    #[inline]
    pub(crate) fn pass(&self) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(2), Ordering::Relaxed);
    }

    /// A poll that waits: for so long the application is there.
    pub(crate) fn wait(&self) -> Waiting<'_> {
        self.0.fetch_or(1, Ordering::Relaxed);
        Waiting(self)
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let count = self.0.0.load(Ordering::Relaxed);
        self.0.0.store((count & !1).wrapping_add(2), Ordering::Relaxed);
    }
}

/// Since when there has been no poll, as far as those who look now and then can tell.
#[derive(Debug)]
pub(crate) struct LastPoll {
    count: u64,
    seen_at: Instant,
}

impl LastPoll {
    pub(crate) fn new(polls: &Polls, now: Instant) -> Self {
        Self { count: polls.count(), seen_at: now }
    }

    /// Looks, and says how long the last poll is past.
    pub(crate) fn age(&mut self, polls: &Polls, now: Instant) -> Duration {
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
        let (polls, begin) = (Polls::default(), Instant::now());
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
