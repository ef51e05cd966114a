//! An append that is as durable as the setting `durability` asks for: reserved offsets, the wait for the disk, and the error
//! of a refused one.

use std::future::poll_fn;
use std::sync::{Arc, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use ottla_log::{AppendError, Log};
use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::partition::{FLOOR_STEP, Partition};

/// The position of the last record's offset, relative to the first one's, in the header of a batch.
const LAST_OFFSET_DELTA_AT: usize = 23;

/// The longest wait of a client that asks for the end of a partition: shorter than the time that clients wait for a response.
const SYNC_WAIT_MAX: Duration = Duration::from_secs(5);

/// The error of a response and its message.
pub(crate) type AppendRefusal = (ErrorCode, Option<String>);

/// Reserves the offsets below `end` before any client can see them.
pub(crate) fn reserve(cluster: &Arc<Cluster>, partition: &Partition, end: i64) -> Result<(), AppendRefusal> {
    cluster.raise_floor(partition, end).map_err(|error| {
        tracing::error!(%error, topic = %partition.topic, partition = partition.index, "cannot raise the offset floor");
        (ErrorCode::KafkaStorageError, Some(error.to_string()))
    })
}

/// The log of a partition, with room for `count` more offsets below the floor: a batch that is refused because none can be reserved
/// must not be in the log, where a retry would append it again. The journal's lock is not taken while the log is locked.
pub(crate) fn log_with_offsets<'p>(
    cluster: &Arc<Cluster>,
    partition: &'p Partition,
    count: i64,
) -> Result<MutexGuard<'p, Log>, AppendRefusal> {
    loop {
        let log = cluster.log_with_files(partition);
        let end = log.end_offset().saturating_add(count);
        // A deleted partition has no floor; its log refuses the append.
        if cluster.is_reserved(partition, end) || partition.is_deleted() {
            return Ok(log);
        }
        drop(log);
        reserve(cluster, partition, end)?;
    }
}

/// The number of offsets that a batch will take, read from its header before that was checked.
#[inline]
pub(crate) fn offsets_of(batch: &[u8]) -> i64 {
    let delta = batch.get(LAST_OFFSET_DELTA_AT..).and_then(<[u8]>::first_chunk);
    let count = delta.map_or(1, |delta| i64::from(i32::from_be_bytes(*delta)) + 1);
    count.clamp(1, FLOOR_STEP)
}

/// The error of a response.
pub(crate) fn refusal(error: &AppendError) -> AppendRefusal {
    if error.is_retriable() {
        tracing::error!(%error, "cannot append");
    } else {
        tracing::debug!(%error, "the log refuses the batch");
    }
    (code_of(error), Some(error.to_string()))
}

/// Waits until everything below `end` is on disk.
pub(crate) async fn await_durable(
    cluster: &Cluster,
    partition: &Arc<Partition>,
    end: i64,
    deadline: Instant,
) -> Result<(), ErrorCode> {
    if partition.floor_record() > 0 {
        let floor = tokio::time::timeout_at(deadline, cluster.await_floor(partition)).await;
        let floor = floor.map_err(|_| ErrorCode::RequestTimedOut)?;
        floor.map_err(|error| {
            tracing::error!(%error, topic = %partition.topic, partition = partition.index, "cannot raise the offset floor");
            ErrorCode::KafkaStorageError
        })?;
    }
    let mut waiter = partition.tail().waiter();
    let durable = poll_fn(|cx| {
        loop {
            // One load serves the check and the wait. With two, a sync that ends between them would be missed.
            let synced = partition.high_watermark();
            if synced >= end {
                return Poll::Ready(Ok(()));
            }
            // On the list before the partition is looked at: a sync that fails wakes the list, and nothing has grown.
            let has_grown = waiter.poll_grown(cx, synced.max(0)).is_ready();
            if partition.is_deleted() {
                return Poll::Ready(Err(ErrorCode::UnknownTopicOrPartition));
            }
            if partition.log().offline_reason().is_some() {
                return Poll::Ready(Err(ErrorCode::KafkaStorageError));
            }
            if partition.tail().is_closed() && partition.high_watermark() < end {
                return Poll::Ready(Err(ErrorCode::NotLeaderOrFollower));
            }
            if !has_grown {
                return Poll::Pending;
            }
        }
    });
    tokio::time::timeout_at(deadline, durable).await.unwrap_or(Err(ErrorCode::RequestTimedOut))
}

/// Waits until the records that `partitions` have now are on disk, where consumers see them: the client that asks may have the
/// acknowledgement of a producer with `acks=1`, and in Kafka a partition with one replica shows such records at once. The answer
/// after [`SYNC_WAIT_MAX`], or of a partition that fails, is for the caller to find.
pub(crate) async fn await_syncs(cluster: &Cluster, partitions: &[Arc<Partition>]) {
    let deadline = Instant::now() + SYNC_WAIT_MAX;
    for partition in partitions {
        let end = partition.log().end_offset();
        if partition.high_watermark() < end {
            let _ = await_durable(cluster, partition, end, deadline).await;
        }
    }
}

/// The error code for a producer.
fn code_of(error: &AppendError) -> ErrorCode {
    match error {
        AppendError::Corrupt { .. } => ErrorCode::CorruptMessage,
        AppendError::InvalidBatch { .. }
        | AppendError::InvalidRecords { .. }
        | AppendError::MissingKey { .. }
        | AppendError::NotAllowed { .. } => ErrorCode::InvalidRecord,
        AppendError::TooLarge { .. } => ErrorCode::MessageTooLarge,
        AppendError::ListTooLarge { .. } => ErrorCode::RecordListTooLarge,
        AppendError::InvalidTimestamp { .. } => ErrorCode::InvalidTimestamp,
        AppendError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
        AppendError::InvalidProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
        AppendError::CoordinatorFenced { .. } => ErrorCode::TransactionCoordinatorFenced,
        AppendError::InvalidTransaction { .. } => ErrorCode::InvalidTxnState,
        AppendError::Storage { .. } | AppendError::Offline { .. } => ErrorCode::KafkaStorageError,
    }
}
