//! A topic with one of its partitions.

use std::sync::Arc;

use crate::error::Error;

/// A topic and one of its partitions.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TopicPartition {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
}

impl TopicPartition {
    /// Creates the pair of `topic` and `partition`.
    pub fn new(topic: &str, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }

    /// The error of a call for a partition that is not assigned.
    pub(crate) fn not_assigned(&self) -> Error {
        Error::NotAssigned { topic: self.topic.to_string(), partition: self.partition }
    }
}

impl std::fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}
