//! The records that the producer buffers at one moment, for the statistics and the watchdog.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The unacknowledged records by partition.
#[derive(Debug, Default)]
pub(crate) struct BufferSnapshot {
    pub(crate) partitions: Vec<PartitionBuffer>,
    /// The state of the producer id, in librdkafka's words.
    pub(crate) idempotence: &'static str,
    /// Records in produce requests without an answer, by node.
    pub(crate) in_flight: BTreeMap<i32, u64>,
}

/// The unacknowledged records of one partition.
#[derive(Debug)]
pub(crate) struct PartitionBuffer {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    /// `true` if the client has metadata of the topic.
    pub(crate) is_known: bool,
    pub(crate) leader: Option<i32>,
    /// Records and bytes in the partition's queue.
    pub(crate) queued: (u64, u64),
    /// Records and bytes that left the queue and wait to be sent, or sent again.
    pub(crate) outgoing: (u64, u64),
    pub(crate) in_flight: u64,
}

impl PartitionBuffer {
    /// Records that wait for a leader.
    pub(crate) fn waiting(&self) -> u64 {
        self.queued.0 + self.outgoing.0
    }
}
