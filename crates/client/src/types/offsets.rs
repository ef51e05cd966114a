//! Offsets of partitions, and positions to start at.

/// An offset to commit, with its metadata.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OffsetAndMetadata {
    /// The offset of the next record to be processed.
    pub offset: i64,
    /// The epoch of the leader that wrote the previous record, if known: it detects a log that was truncated (KIP-320).
    pub leader_epoch: Option<i32>,
    /// The application's text, stored with the offset.
    pub metadata: String,
}

impl From<i64> for OffsetAndMetadata {
    fn from(offset: i64) -> Self {
        Self { offset, ..Self::default() }
    }
}

/// The range of readable offsets of a partition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Watermarks {
    /// The offset of the oldest record.
    pub low: i64,
    /// The high watermark: the offset after the newest replicated record.
    pub high: i64,
}

/// The position to start consuming from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StartAt {
    /// The oldest record.
    Beginning,
    /// The next record to be written.
    End,
    /// So many offsets before the end, and not before the oldest record.
    BeforeEnd(u32),
    /// This offset.
    Offset(i64),
    /// This offset, if the leader of this epoch wrote the record before it. If the partition has lost that record,
    /// consumption continues where the logs diverge, or fails with [`Error::LogTruncated`](crate::Error::LogTruncated)
    /// under `auto.offset.reset=error` (KIP-320).
    OffsetInEpoch {
        /// The offset.
        offset: i64,
        /// The epoch.
        leader_epoch: i32,
    },
    /// The first record with this timestamp or a later one, milliseconds since 1970.
    Timestamp(i64),
    /// The group's committed offset; without one, the position of `auto.offset.reset`.
    Committed,
}
