//! Changes of an assignment and of subscribed topics.

use std::sync::Arc;

use ottla_protocol::ErrorCode;

use super::TopicPartition;

/// A change of the assignment or of a subscribed topic, or the end of a partition.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The group assigned these partitions to this member.
    Assigned(Vec<TopicPartition>),
    /// The group revokes these partitions; processed offsets are committed first.
    Revoked(Vec<TopicPartition>),
    /// This member lost the partitions: it was out of the group for too long, and other members may own them.
    Lost(Vec<TopicPartition>),
    /// The consumer reached the end of this partition (`enable.partition.eof`). The event repeats after each time that
    /// records have arrived.
    EndOfPartition {
        /// The partition.
        at: TopicPartition,
        /// The position at the end of the partition.
        offset: i64,
        /// The id of the broker whose answer reached the end.
        node: i32,
        /// The high watermark in that answer. With `isolation.level=read_committed` the end may be before it.
        high_watermark: i64,
    },
    /// A subscribed topic does not exist or may not be read, or no topic matches a subscribed pattern. Reported once for
    /// each error of a topic. The consumer reads the topic as soon as it can.
    TopicUnavailable {
        /// The topic or the pattern.
        topic: Arc<str>,
        /// The error, as the brokers report it.
        error: ErrorCode,
    },
}
