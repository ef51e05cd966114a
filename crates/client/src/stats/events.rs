//! Client events, and queues that collect them only once the application has asked for them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ottla_protocol::ErrorCode;

use crate::error::Error;
use crate::notification_queue::NotificationQueue;
use crate::types::{OffsetAndMetadata, TopicPartition};

/// A broker throttled this client because a quota is exceeded.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ThrottleEvent {
    /// The broker's address: `host:port`.
    pub broker: String,
    /// The broker's node id.
    pub node: i32,
    /// The throttle time; 0 when throttling has ended.
    pub throttle_ms: i32,
}

/// The client wrote a request, or received its response.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RequestEvent {
    /// The broker's address: `host:port`.
    pub broker: String,
    /// The broker's node id; -1 before metadata contains it.
    pub node: i32,
    /// The request's API key.
    pub api_key: i16,
    /// The request's version.
    pub version: i16,
    /// The correlation id.
    pub correlation_id: i32,
    /// The size of the request or response in bytes.
    pub bytes: usize,
    /// The time between writing the request and receiving the response; `None` for a request.
    pub round_trip: Option<Duration>,
}

/// The state of a broker connection changed.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct BrokerStateEvent {
    /// The broker's address: `host:port`.
    pub broker: String,
    /// The broker's node id; -1 before metadata contains it.
    pub node: i32,
    /// `CONNECT`, `UP` or `DOWN`.
    pub state: &'static str,
}

/// The result of an automatic commit: at the interval, or before partitions are revoked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AutoCommitEvent {
    /// The offsets of the commit, in order.
    pub offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
    /// The commit's result. The error of a commit whose offsets were refused in part names the first of these partitions.
    pub result: Result<(), Error>,
    /// The partitions whose offsets the coordinator refused, with its errors, if it has answered. The others are committed.
    pub refused: BTreeMap<TopicPartition, ErrorCode>,
}

/// A queue that stays empty until it is activated.
#[derive(Debug)]
pub(crate) struct OnDemandQueue<T> {
    active: AtomicBool,
    queue: NotificationQueue<T>,
}

impl<T> OnDemandQueue<T> {
    pub(crate) fn keeping(max: usize) -> Self {
        Self { active: AtomicBool::new(false), queue: NotificationQueue::keeping(max) }
    }

    /// Returns the queue and starts to fill it.
    pub(crate) fn activate(&self) -> NotificationQueue<T> {
        self.active.store(true, Ordering::Release);
        self.queue.clone()
    }

    /// Pushes the item that `make` returns, if the queue is active.
    pub(crate) fn push_with(&self, make: impl FnOnce() -> Option<T>) {
        if self.active.load(Ordering::Acquire)
            && let Some(item) = make()
        {
            self.queue.push(item);
        }
    }
}
