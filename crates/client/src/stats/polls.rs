//! The time that the polls of consumers wait.

use std::fmt::Debug;
use std::sync::Weak;

/// Knows how long a consumer's polls have waited.
pub(crate) trait PollTimes: Debug + Send + Sync {
    /// Returns the time that polls have waited so far, in microseconds, including a poll that waits now.
    fn waited_us(&self) -> u64;
}

/// A consumer whose polls are watched.
#[derive(Debug)]
pub(super) struct FollowedPolls {
    source: Weak<dyn PollTimes>,
    /// The value at the last push of metrics.
    before_us: u64,
}

impl FollowedPolls {
    pub(super) fn new(source: Weak<dyn PollTimes>) -> Self {
        Self { source, before_us: 0 }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.source.strong_count() > 0
    }

    /// The time that polls have waited since the last call; `None` if the consumer does not exist any more.
    pub(super) fn take_waited_us(&mut self) -> Option<u64> {
        let now = self.source.upgrade()?.waited_us();
        let waited = now.saturating_sub(self.before_us);
        self.before_us = now;
        Some(waited)
    }
}
