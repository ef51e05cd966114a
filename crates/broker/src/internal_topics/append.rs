//! A coordinator's records: appended in the order of its decisions, acknowledged when they are durable.
//!
//! Appends of many requests to one partition share its syncs, as those of producers do.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ottla_log::{AppendError, AppendOptions, Check, Origin};
use ottla_protocol::ErrorCode;
use ottla_wire::{BatchBuilder, Seal};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::partition::Partition;

/// The time that a write may take: Kafka's `offsets.commit.timeout.ms`.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// A record of a coordinator. Without a value it removes the key.
#[derive(Clone, Debug)]
pub(crate) struct InternalRecord {
    pub(crate) key: Bytes,
    pub(crate) value: Option<Bytes>,
}

/// The transaction that records belong to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Producer {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

/// Records that were appended and may not be durable yet.
#[derive(Clone, Debug)]
#[must_use = "the records may not be durable yet"]
pub(crate) struct Written {
    partition: Arc<Partition>,
    end: i64,
}

impl Cluster {
    /// Appends records and waits until they are durable. Returns the offset of the first one.
    ///
    /// Dropping the future does not undo the append.
    pub(crate) async fn append_internal(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        records: &[InternalRecord],
    ) -> Result<i64, ErrorCode> {
        let (written, base_offset) =
            self.write_internal(partition, records, None, |base_offset| base_offset)?;
        self.await_written(&written).await?;
        Ok(base_offset)
    }

    /// Appends records as one batch and calls `apply` with the offset of the first one, before any later append to the
    /// partition: the coordinator's state changes in the order of its log.
    ///
    /// # Errors
    /// MESSAGE_TOO_LARGE if the batch exceeds `max.message.bytes`; COORDINATOR_NOT_AVAILABLE if the log cannot be
    /// written. Nothing is applied then.
    pub(crate) fn write_internal<T>(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        records: &[InternalRecord],
        transaction: Option<Producer>,
        apply: impl FnOnce(i64) -> T,
    ) -> Result<(Written, T), ErrorCode> {
        let now_ms = self.clock.now_ms();
        if partition.is_deleted() || partition.unavailable().is_some() {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        let options = AppendOptions {
            leader_epoch: partition.leader_epoch(),
            origin: Origin::Coordinator,
            check: Check::Trusted,
            decompressed_bytes_max: None,
        };
        let failed = |error: &dyn std::fmt::Display| {
            tracing::error!(%error, topic = %partition.topic, partition = partition.index, "cannot write");
            ErrorCode::CoordinatorNotAvailable
        };
        let (end, applied, has_closed) = {
            let mut log = self.log_with_files(partition);
            let batch = batch_of(now_ms, records, transaction, log.config().message_bytes_max as usize)?;
            let appended = log.append(now_ms, batch, options).map_err(|error| match error {
                AppendError::TooLarge { .. } => ErrorCode::MessageTooLarge,
                error => failed(&error),
            })?;
            (appended.last_offset + 1, apply(appended.base_offset), log.has_unsynced_segments())
        };
        let reserved = self.raise_floor(partition, end);
        partition.start_sync(self.config.durability, has_closed, self.syncer, &self.syncs);
        reserved.map_err(|error| failed(&error))?;
        Ok((Written { partition: partition.clone(), end }, applied))
    }

    /// Waits until records are as durable as those of a producer with `acks=all`.
    pub(crate) async fn await_written(&self, written: &Written) -> Result<(), ErrorCode> {
        let deadline = Instant::now() + WRITE_TIMEOUT;
        let durable = self.await_durable(&written.partition, written.end, deadline).await;
        durable.map_err(|code| {
            tracing::warn!(topic = %written.partition.topic, partition = written.partition.index, %code,
                "a coordinator's records are not durable in time");
            ErrorCode::CoordinatorNotAvailable
        })
    }
}

/// Builds one uncompressed batch.
fn batch_of(
    now_ms: i64,
    records: &[InternalRecord],
    transaction: Option<Producer>,
    bytes_max: usize,
) -> Result<BytesMut, ErrorCode> {
    let bytes_of = |record: &InternalRecord| record.key.len() + record.value.as_ref().map_or(0, Bytes::len);
    if records.iter().map(bytes_of).sum::<usize>() > bytes_max {
        return Err(ErrorCode::MessageTooLarge);
    }
    let mut batch = BatchBuilder::new();
    for InternalRecord { key, value } in records {
        batch.push(now_ms, Some(key), value.as_deref(), &[]);
    }
    let seal = match transaction {
        None => Seal::default(),
        Some(Producer { id, epoch }) => {
            Seal { producer_id: id, producer_epoch: epoch, transactional: true, ..Seal::default() }
        }
    };
    let sealed = batch.seal(&seal).map_err(|error| {
        // Only a codec can fail, and there is none.
        tracing::error!(%error, "cannot build a batch: please report this");
        ErrorCode::UnknownServerError
    })?;
    let bytes = sealed.to_bytes();
    drop(sealed);
    Ok(bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..])))
}
