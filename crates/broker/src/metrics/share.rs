//! The counters of share partitions (KIP-932): Kafka's `ShareGroupMetrics` and `SharePartitionMetrics`.

use std::sync::atomic::AtomicU64;

/// Numbers of records, over all share partitions.
#[derive(Debug, Default)]
pub(crate) struct ShareMetrics {
    pub(crate) accepted: AtomicU64,
    pub(crate) released: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) renewed: AtomicU64,
    /// Acknowledged offsets without a record.
    pub(crate) gaps: AtomicU64,
    /// Records whose lock ended without an acknowledgement.
    pub(crate) lock_timeouts: AtomicU64,
    /// Records that were delivered as often as allowed, and archived.
    pub(crate) out_of_deliveries: AtomicU64,
    pub(crate) dead_letters_written: AtomicU64,
    /// Records that were archived without a dead letter, although their group has a dead-letter queue.
    pub(crate) dead_letters_given_up: AtomicU64,
}

impl ShareMetrics {
    /// The acknowledged records by the name of the type.
    pub(crate) fn acknowledged(&self) -> [(&'static str, &AtomicU64); 5] {
        [
            ("accept", &self.accepted),
            ("release", &self.released),
            ("reject", &self.rejected),
            ("renew", &self.renewed),
            ("gap", &self.gaps),
        ]
    }
}
