//! Changes of an assignment.

use super::TopicPartition;

/// A change of the assignment, or the end of a partition.
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
    },
}
