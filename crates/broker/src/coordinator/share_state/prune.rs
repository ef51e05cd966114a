//! The size of `__share_group_state`: like Kafka's, the topic is not compacted. Records before the first snapshot that a state
//! needs are deleted from time to time, and states that do not change get new snapshots before.

use std::sync::Arc;

use ottla_protocol::ErrorCode;

use super::states::TOPIC;
use crate::cluster::{Cluster, lock};
use crate::config::Durability;
use crate::coordinator::offset_log::too_long;
use crate::internal_topics::Written;
use crate::partition::Partition;

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
        let cold_ms = self.live.broker().share_coordinator.cold_snapshot_interval.as_millis() as i64;
        let now_ms = self.clock.now_ms();
        let table = &self.share_states.table;
        let choose = || {
            let cold = lock(table).cold_snapshots(partition.index, cold_ms, now_ms);
            let records = cold.iter().map(|(key, record)| record.encode(key).map_err(too_long));
            Ok((records.collect::<Result<Vec<_>, _>>()?, cold))
        };
        self.write_chosen(partition, choose, |cold, first| {
            let mut table = lock(table);
            for ((key, record), offset) in cold.iter().zip(first..) {
                table.apply(key, record, (partition.index, offset));
            }
        })?;
        // No record goes before those that replace it are durable.
        let needed = {
            let log = partition.log();
            lock(table).first_snapshot(partition.index).unwrap_or(log.end_offset())
        };
        self.await_written(&Written::so_far(partition)).await?;
        if needed <= start {
            return Ok(());
        }
        if self.config.durability == Durability::Os {
            // The wait above ends at once then.
            self.flush(partition).await?;
        }
        let pruned = partition.clone();
        let deleted = self.syncer.run_blocking(move || pruned.delete_records_before(needed)).await;
        deleted.map(drop).map_err(|error| {
            tracing::error!(%error, "cannot delete records");
            ErrorCode::KafkaStorageError
        })
    }
}
