//! Notices that are made only when somebody wants them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

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

/// A request was written, or its answer has come.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Exchanged {
    /// Where the broker is: `host:port`.
    pub broker: String,
    /// Its number; -1 before metadata named it.
    pub node: i32,
    /// Kafka's number of the request.
    pub api_key: i16,
    /// Its version.
    pub version: i16,
    /// Its number on its connection.
    pub correlation_id: i32,
    /// The bytes of the request, or of the answer.
    pub bytes: usize,
    /// From writing the request to its answer; `None` when this is about the request.
    pub round_trip: Option<Duration>,
}

/// A broker is as it was not before.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct BrokerState {
    /// Where it is: `host:port`.
    pub broker: String,
    /// Its number; -1 before metadata named it.
    pub node: i32,
    /// `CONNECT`, `UP` or `DOWN`.
    pub state: &'static str,
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
