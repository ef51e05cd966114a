//! Batches that the broker itself appends to topics of clients: dead letters of share groups.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use ottla_log::{AppendOptions, Check, Transactional};
use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::config::Durability;
use crate::durable_append::{AppendRefusal, await_durable, log_with_offsets, offsets_of, refusal, reserve};
use crate::memory::ClientHost;
use crate::partition::Partition;
use crate::recompression::check_and_recompress;
use crate::topics::Topic;

/// The time of one wait for a sync. After it, the wait begins again.
const SYNC_TIMEOUT: Duration = Duration::from_secs(30);

impl Cluster {
    /// Appends a batch as that of a producer with `acks=all`, and waits until it is durable, however long a slow disk takes.
    pub(crate) async fn produce_own(
        self: &Arc<Self>,
        topic: &Topic,
        partition: &Arc<Partition>,
        mut batch: BytesMut,
    ) -> Result<(), AppendRefusal> {
        self.check_writable(topic, partition)?;
        let now_ms = self.clock.now_ms();
        let mut check = Check::Records;
        if partition.stored_codec.differs_from(&batch) {
            let stored = check_and_recompress(
                self,
                partition,
                ClientHost::LOCAL,
                now_ms,
                batch,
                Transactional::Refused,
            )
            .await;
            batch = stored.map_err(|error| refusal(&error))?;
            check = Check::Trusted;
        }
        let options =
            AppendOptions { leader_epoch: partition.leader_epoch(), check, ..AppendOptions::default() };
        let (end, has_closed) = {
            // Before the append: the caller tries again what is refused here.
            let mut log = log_with_offsets(self, partition, offsets_of(&batch))?;
            let appended = log.append(now_ms, batch, options).map_err(|error| refusal(&error))?;
            (appended.last_offset + 1, log.has_unsynced_segments())
        };
        let reserved = reserve(self, partition, end);
        self.start_sync(partition, has_closed);
        reserved?;
        if self.config.durability != Durability::Disk {
            return Ok(());
        }
        loop {
            match await_durable(self, partition, end, Instant::now() + SYNC_TIMEOUT).await {
                Ok(()) => return Ok(()),
                Err(ErrorCode::RequestTimedOut) => {}
                Err(code) => {
                    let reason = format!("the records below offset {end} are not durable: {code}");
                    return Err((code, Some(reason)));
                }
            }
        }
    }

    fn check_writable(&self, topic: &Topic, partition: &Partition) -> Result<(), AppendRefusal> {
        let refuse = |code: ErrorCode, reason: &str| Err((code, Some(reason.to_owned())));
        if partition.is_deleted() {
            return refuse(ErrorCode::UnknownTopicOrPartition, "it was deleted");
        }
        if let Some(reason) = partition.unavailable() {
            return refuse(ErrorCode::KafkaStorageError, reason);
        }
        if !self.is_node_up(partition.leader()) {
            return refuse(ErrorCode::LeaderNotAvailable, "it has no leader");
        }
        if topic.is_replicated() && !self.has_enough_replicas(topic, partition) {
            let reason = "fewer replicas are in sync than min.insync.replicas asks for";
            return refuse(ErrorCode::NotEnoughReplicas, reason);
        }
        Ok(())
    }
}
