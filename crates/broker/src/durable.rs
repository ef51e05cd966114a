//! The wait for a sync: an append is acknowledged when it survives a power cut.

use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::config::Durability;
use crate::partition::Partition;

impl Cluster {
    /// Waits until everything below `end` is on disk, if this broker's acknowledgements mean that.
    pub(crate) async fn await_durable(
        &self,
        partition: &Partition,
        end: i64,
        deadline: Instant,
    ) -> Result<(), ErrorCode> {
        if self.config.durability != Durability::Disk {
            return Ok(());
        }
        if partition.floor_record() > 0 {
            let floor = tokio::time::timeout_at(deadline, self.await_floor(partition)).await;
            let floor = floor.map_err(|_| ErrorCode::RequestTimedOut)?;
            floor.map_err(|error| {
                tracing::error!(%error, topic = %partition.topic, partition = partition.index, "cannot raise the offset floor");
                ErrorCode::KafkaStorageError
            })?;
        }
        loop {
            // One load serves the check and the wait. With two, a sync that ends between them would be missed.
            let synced = partition.high_watermark();
            if synced >= end {
                return Ok(());
            }
            if partition.is_deleted() {
                return Err(ErrorCode::UnknownTopicOrPartition);
            }
            if partition.log().offline_reason().is_some() {
                return Err(ErrorCode::KafkaStorageError);
            }
            let grown = partition.tail().grown(synced.max(0));
            if tokio::time::timeout_at(deadline, grown).await.is_err() {
                return Err(ErrorCode::RequestTimedOut);
            }
            if partition.tail().is_closed() && partition.high_watermark() < end {
                return Err(ErrorCode::NotLeaderOrFollower);
            }
        }
    }
}
