//! Counters of records and bytes per topic, updated per batch and per poll.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Weak;

use tokio::time::Instant;

use super::Sent;
use super::pushed::TopicTotals;
use super::snapshot::NO_OFFSET;
use super::window::Window;

const BATCH_BYTES_MAX: u64 = 1 << 30;
const BATCH_RECORDS_MAX: u64 = 10_000_000;

/// The offsets of an assigned partition; `None` if unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AssignedOffsets {
    /// The offset after the last record given to the application.
    pub(crate) position: Option<i64>,
    /// The offset that the next commit would commit.
    pub(crate) stored: Option<i64>,
    /// The epoch of the leader that wrote the record before it; -1 if unknown.
    pub(crate) stored_leader_epoch: i32,
    pub(crate) committed: Option<i64>,
    /// The offset at which the end was reached last.
    pub(crate) end_reached: Option<i64>,
    pub(crate) last_stable: Option<i64>,
}

/// Knows the offsets of an assigned partition.
pub(crate) trait OffsetSource: Debug + Send + Sync {
    /// Returns the offsets as they are now.
    fn offsets(&self) -> AssignedOffsets;
}

/// One topic's counters.
#[derive(Debug)]
pub(super) struct TopicCounts {
    pub(super) seen_at: Instant,
    pub(super) metadata_at: Instant,
    pub(super) batch_bytes: Window,
    pub(super) batch_records: Window,
    pub(super) partitions: BTreeMap<i32, PartitionCounts>,
}

/// One partition's counters.
#[derive(Debug)]
pub(super) struct PartitionCounts {
    /// Batches with a lower order were sent before.
    next_order: u64,
    pub(super) tx_records: u64,
    pub(super) tx_bytes: u64,
    pub(super) rx_records: u64,
    pub(super) rx_bytes: u64,
    pub(super) fetched: bool,
    pub(super) next_offset: i64,
    pub(super) low: i64,
    pub(super) high: i64,
    /// The offsets of the assigned partition, while it is assigned.
    pub(super) offsets: Option<Weak<dyn OffsetSource>>,
}

impl Default for PartitionCounts {
    fn default() -> Self {
        Self {
            next_order: 0,
            tx_records: 0,
            tx_bytes: 0,
            rx_records: 0,
            rx_bytes: 0,
            fetched: false,
            next_offset: NO_OFFSET,
            low: NO_OFFSET,
            high: NO_OFFSET,
            offsets: None,
        }
    }
}

impl TopicCounts {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            seen_at: now,
            metadata_at: now,
            batch_bytes: Window::up_to(BATCH_BYTES_MAX),
            batch_records: Window::up_to(BATCH_RECORDS_MAX),
            partitions: BTreeMap::new(),
        }
    }

    /// Counts a batch. Returns `false` for a batch that was sent before, which is not counted.
    pub(super) fn sent(&mut self, sent: &Sent<'_>) -> bool {
        let partition = self.partitions.entry(sent.partition).or_default();
        if sent.order < partition.next_order {
            return false;
        }
        partition.next_order = sent.order + 1;
        partition.tx_records += sent.records;
        partition.tx_bytes += sent.bytes;
        self.batch_bytes.record(sent.bytes);
        self.batch_records.record(sent.records);
        true
    }

    /// Returns `true` while one of its partitions is assigned.
    pub(super) fn is_assigned(&self) -> bool {
        let mut sources = self.partitions.values().filter_map(|partition| partition.offsets.as_ref());
        sources.any(|offsets| offsets.strong_count() > 0)
    }

    /// Adds the records of all partitions.
    pub(super) fn add_to(&self, totals: &mut TopicTotals) {
        for partition in self.partitions.values() {
            totals.tx_records += partition.tx_records;
            totals.tx_bytes += partition.tx_bytes;
            totals.rx_records += partition.rx_records;
            totals.rx_bytes += partition.rx_bytes;
        }
    }

    pub(super) fn follow(&mut self, partition: i32, offsets: Weak<dyn OffsetSource>) {
        self.partitions.entry(partition).or_default().offsets = Some(offsets);
    }

    pub(super) fn fetched(&mut self, partition: i32, (low, high): (i64, i64)) {
        let partition = self.partitions.entry(partition).or_default();
        partition.fetched = true;
        (partition.low, partition.high) = (low, high);
    }

    pub(super) fn consumed(&mut self, partition: i32, records: u64, bytes: u64, next: i64) {
        let partition = self.partitions.entry(partition).or_default();
        partition.rx_records += records;
        partition.rx_bytes += bytes;
        partition.next_offset = next;
    }
}
