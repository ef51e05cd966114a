//! Notices that are made only when somebody wants them.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::consumer::{OffsetAndMetadata, TopicPartition};
use crate::error::Error;
use crate::notices::Notices;

/// A broker held its answer back, or asked to be left alone for a while: a quota of its is exceeded.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Throttled {
    /// Where it is: `host:port`.
    pub broker: String,
    /// Its number.
    pub node: i32,
    /// For how long; 0 when it is over.
    pub throttle_ms: i32,
}

/// What became of a commit that nobody called for: at the interval, or before partitions were given up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AutoCommitted {
    /// What was to be committed, in order.
    pub offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
    /// Whether it was.
    pub result: Result<(), Error>,
}

/// A queue of notices that stays empty until it is asked for.
#[derive(Debug)]
pub(crate) struct Wanted<T> {
    wanted: AtomicBool,
    notices: Notices<T>,
}

impl<T> Wanted<T> {
    pub(crate) fn keeping(max: usize) -> Self {
        Self { wanted: AtomicBool::new(false), notices: Notices::keeping(max) }
    }

    /// The queue, which is filled from now on.
    pub(crate) fn want(&self) -> Notices<T> {
        self.wanted.store(true, Ordering::Release);
        self.notices.clone()
    }

    /// Makes a notice, unless nobody wants it.
    pub(crate) fn push_if_wanted(&self, make: impl FnOnce() -> Option<T>) {
        if self.wanted.load(Ordering::Acquire)
            && let Some(notice) = make()
        {
            self.notices.push(notice);
        }
    }
}
