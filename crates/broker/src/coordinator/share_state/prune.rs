//! The size of `__share_group_state`: like Kafka's, the topic is not compacted. Records before the first snapshot that a state
//! needs are deleted from time to time, and states that do not change get new snapshots before.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::ErrorCode;

use super::SharePartitionKey;
use super::records::ShareRecord;
use super::states::TOPIC;
use super::table::ShareTable;
use crate::cluster::{Cluster, lock};
use crate::config::Durability;
use crate::coordinator::offset_log::too_long;
use crate::internal_topics::{InternalRecord, Written};
use crate::partition::Partition;

/// The snapshots of one batch, unless `max.message.bytes` is lower.
const BATCH_BYTES: usize = 1 << 20;
/// More than the bytes of a batch and of a record besides keys and values.
const BATCH_OVERHEAD: usize = 128;
const RECORD_OVERHEAD: usize = 32;

/// New snapshots of states.
type Snapshots = Vec<(SharePartitionKey, ShareRecord)>;

impl Cluster {
    /// Prunes `__share_group_state` at each `share.coordinator.state.topic.prune.interval.ms`, without an end.
    pub(crate) async fn keep_share_states(self: &Arc<Self>) {
        loop {
            tokio::time::sleep(self.live.broker().share_coordinator.prune_interval).await;
            self.prune_share_states().await;
        }
    }

    /// Replaces old snapshots and deletes the records that no state needs, in each partition.
    pub(crate) async fn prune_share_states(self: &Arc<Self>) {
        let Some(topic) = self.topic(TOPIC.name()) else { return };
        for partition in &topic.partitions {
            if let Err(code) = self.prune_share_partition(partition).await {
                tracing::warn!(%code, topic = %topic.name, partition = partition.index, "cannot prune the states of share groups");
            }
        }
    }

    async fn prune_share_partition(self: &Arc<Self>, partition: &Arc<Partition>) -> Result<(), ErrorCode> {
        if partition.is_deleted() || partition.unavailable().is_some() {
            return Ok(());
        }
        let (start, end) = {
            let log = partition.log();
            (log.start_offset(), log.end_offset())
        };
        if start == end {
            return Ok(());
        }
        let replaced = self.write_cold_snapshots(partition).await;
        // No record goes before those that replace it are durable.
        let needed = {
            let log = partition.log();
            lock(&self.share_states.table).first_snapshot(partition.index).unwrap_or(log.end_offset())
        };
        self.await_written(&Written::so_far(partition)).await?;
        if needed <= start {
            return replaced;
        }
        if self.config.durability == Durability::Os {
            // The wait above ends at once then.
            self.flush(partition).await?;
        }
        let pruned = partition.clone();
        let deleted = self.run_blocking(move || pruned.delete_records_before(needed)).await;
        deleted.map(drop).map_err(|error| {
            tracing::error!(%error, "cannot delete records");
            ErrorCode::KafkaStorageError
        })?;
        replaced
    }

    /// Writes new snapshots of the states of a partition that did not change for long, in as many batches as they need.
    ///
    /// # Errors
    /// MESSAGE_TOO_LARGE if a snapshot does not fit into a batch; the others are written.
    async fn write_cold_snapshots(self: &Arc<Self>, partition: &Arc<Partition>) -> Result<(), ErrorCode> {
        let cold_ms = self.live.broker().share_coordinator.cold_snapshot_interval.as_millis() as i64;
        let now_ms = self.clock.now_ms();
        let bytes_max = BATCH_BYTES.min(partition.log().config().message_bytes_max as usize);
        let table = &self.share_states.table;
        let mut cold = VecDeque::from(lock(table).cold_states(partition.index, cold_ms, now_ms));
        let mut result = Ok(());
        while !cold.is_empty() {
            let choose = || take_snapshots(&lock(table), &mut cold, (cold_ms, now_ms), bytes_max);
            let written = self.write_chosen(partition, choose, |snapshots: &Snapshots, first| {
                let mut table = lock(table);
                for ((key, record), offset) in snapshots.iter().zip(first..) {
                    table.apply(key, record, (partition.index, offset));
                }
            });
            match written {
                Ok(_) => {}
                Err(ErrorCode::MessageTooLarge) => result = Err(ErrorCode::MessageTooLarge),
                Err(code) => return Err(code),
            }
            tokio::task::yield_now().await;
        }
        result
    }
}

/// Takes cold states from the front, as many as fit into a batch but at least one, and returns their snapshots.
fn take_snapshots(
    table: &ShareTable,
    cold: &mut VecDeque<SharePartitionKey>,
    (cold_ms, now_ms): (i64, i64),
    bytes_max: usize,
) -> Result<(Vec<InternalRecord>, Snapshots), ErrorCode> {
    let (mut records, mut snapshots, mut bytes) = (Vec::new(), Vec::new(), BATCH_OVERHEAD);
    while let Some(key) = cold.front() {
        // It may have changed since it was found.
        if let Some(snapshot) = table.cold_snapshot(key, cold_ms, now_ms) {
            let record = snapshot.encode(key).map_err(too_long)?;
            bytes += RECORD_OVERHEAD + record.key.len() + record.value.as_ref().map_or(0, Bytes::len);
            if bytes > bytes_max && !records.is_empty() {
                break;
            }
            records.push(record);
            snapshots.push((key.clone(), snapshot));
        }
        cold.pop_front();
    }
    Ok((records, snapshots))
}
