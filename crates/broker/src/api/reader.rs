//! The consumer that fetches, and what it may read.

use ottla_protocol::messages::fetch::PartitionData;

/// The records that a consumer may read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Isolation {
    /// All below the high watermark.
    Uncommitted,
    /// Those below the last stable offset, with a list of the aborted transactions among them.
    Committed,
}

impl Isolation {
    /// The isolation of the field `isolation_level`, of which Kafka knows 0 and 1.
    pub(super) const fn of_level(level: i8) -> Self {
        if level == 1 { Self::Committed } else { Self::Uncommitted }
    }

    /// The offset that ends what the consumer may read.
    pub(super) const fn end(self, data: &PartitionData) -> i64 {
        match self {
            Self::Uncommitted => data.high_watermark,
            Self::Committed => data.last_stable_offset,
        }
    }
}
