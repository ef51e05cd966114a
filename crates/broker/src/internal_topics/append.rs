//! A coordinator's records: appended in the order of its decisions, acknowledged when they are durable.
//!
//! Appends of many requests to one partition share its syncs, as those of producers do.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ottla_log::{AppendError, AppendOptions, Appended, Check, Log, Origin};
use ottla_protocol::ErrorCode;
use ottla_wire::{BatchBuilder, Seal};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::config::Durability;
use crate::durable_append::{await_durable, log_with_offsets};
use crate::internal_topics::InternalTopic;
use crate::partition::Partition;

/// The time that a write may take: Kafka's `offsets.commit.timeout.ms`.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The offsets that are reserved for records before they are chosen. If there are more, the others are reserved after the append.
const CHOSEN_RECORDS: usize = 1 << 12;

/// The records of one batch of a group, unless `max.message.bytes` is lower. A group of many members that gets a new target assignment
/// needs several.
const GROUP_BATCH_BYTES: usize = 1 << 20;

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

impl Written {
    /// Everything that is appended to a partition: an answer that depends on records of others waits until it is durable.
    pub(crate) fn so_far(partition: &Arc<Partition>) -> Self {
        let end = partition.log().end_offset();
        Self { partition: partition.clone(), end }
    }
}

impl Cluster {
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
        self.write_verified(partition, records, transaction, || Ok(()), apply)
    }

    /// [`Cluster::write_internal`] after a check under the lock of the log: what the check says holds until the records are
    /// appended, if a later change of it appends to the same partition.
    pub(crate) fn write_verified<T>(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        records: &[InternalRecord],
        transaction: Option<Producer>,
        check: impl FnOnce() -> Result<(), ErrorCode>,
        apply: impl FnOnce(i64) -> T,
    ) -> Result<(Written, T), ErrorCode> {
        let mut log = self.log_for_records(partition, records.len())?;
        check()?;
        let appended = self.append_locked(&mut log, partition, records, transaction)?;
        let applied = apply(appended.base_offset);
        let has_closed = log.has_unsynced_segments();
        drop(log);
        Ok((self.begin_sync(partition, appended.last_offset + 1, has_closed)?, applied))
    }

    /// Appends the records of a group to its partition of `__consumer_offsets`, in as many batches as they need. A failure can leave
    /// the first of them.
    pub(crate) fn write_group_records(
        self: &Arc<Self>,
        group_id: &str,
        records: &[InternalRecord],
    ) -> Result<Option<Written>, ErrorCode> {
        let partition = self.internal_partition(InternalTopic::ConsumerOffsets, group_id);
        let partition = partition.ok_or(ErrorCode::CoordinatorNotAvailable)?;
        let bytes_max = GROUP_BATCH_BYTES.min(partition.log().config().message_bytes_max as usize);
        let (mut last, mut left) = (None, records);
        while !left.is_empty() {
            let (batch, rest) = left.split_at(fitting(left, bytes_max));
            let (written, ()) = self.write_internal(&partition, batch, None, |_| ())?;
            (last, left) = (Some(written), rest);
        }
        Ok(last)
    }

    /// Appends the records that `choose` returns under the lock of the log: no record comes between its decision and them.
    /// `apply` gets the offset of the first one.
    /// `None` if there are none.
    pub(crate) fn write_chosen<T>(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        choose: impl FnOnce() -> Result<(Vec<InternalRecord>, T), ErrorCode>,
        apply: impl FnOnce(&T, i64),
    ) -> Result<(Option<Written>, T), ErrorCode> {
        let mut log = self.log_for_records(partition, CHOSEN_RECORDS)?;
        let (records, chosen) = choose()?;
        if records.is_empty() {
            return Ok((None, chosen));
        }
        let appended = self.append_locked(&mut log, partition, &records, None)?;
        apply(&chosen, appended.base_offset);
        let has_closed = log.has_unsynced_segments();
        drop(log);
        Ok((Some(self.begin_sync(partition, appended.last_offset + 1, has_closed)?), chosen))
    }

    /// [`Cluster::write_internal`] and the wait, for callers that may block.
    pub(crate) fn write_internal_blocking(
        &self,
        partition: &Arc<Partition>,
        records: &[InternalRecord],
        apply: impl FnOnce(),
    ) -> Result<(), String> {
        {
            let mut log = loop {
                let log = self.log_with_files(partition);
                let end = log.end_offset() + records.len() as i64;
                if self.is_reserved(partition, end) {
                    break log;
                }
                drop(log);
                self.raise_floor_blocking(partition, end).map_err(|error| error.to_string())?;
            };
            let appended = self.append_locked(&mut log, partition, records, None);
            appended.map_err(|code| code.to_string())?;
            apply();
        }
        self.sync_blocking(partition)
    }

    /// [`Cluster::write_internal_blocking`] of the records that `choose` returns with a guard, which is held until they are appended:
    /// no later change comes before them. `None` if there are none. Earlier records are durable afterwards in any case.
    pub(crate) fn write_chosen_blocking<G>(
        &self,
        partition: &Arc<Partition>,
        choose: impl Fn() -> Result<Option<(Vec<InternalRecord>, G)>, String>,
    ) -> Result<(), String> {
        while let Some((records, guard)) = choose()? {
            let mut log = self.log_with_files(partition);
            let end = log.end_offset() + records.len() as i64;
            if self.is_reserved(partition, end) {
                let appended = self.append_locked(&mut log, partition, &records, None);
                appended.map_err(|code| code.to_string())?;
                break;
            }
            drop(log);
            drop(guard);
            self.raise_floor_blocking(partition, end).map_err(|error| error.to_string())?;
        }
        self.sync_blocking(partition)
    }

    /// Makes everything durable that is appended to a partition.
    fn sync_blocking(&self, partition: &Arc<Partition>) -> Result<(), String> {
        if self.config.durability != Durability::Disk {
            return Ok(());
        }
        let Some(pending) = partition.pending_sync()? else { return Ok(()) };
        // The log is free for others meanwhile.
        let synced = self.metrics.log_syncs.run(pending);
        partition.log().sync_done(synced).map(drop).map_err(|error| error.to_string())
    }

    /// The log for an append of `count` records. Their offsets are reserved before: what is refused is not in the log, and a retry
    /// appends it once.
    fn log_for_records<'p>(
        self: &Arc<Self>,
        partition: &'p Partition,
        count: usize,
    ) -> Result<MutexGuard<'p, Log>, ErrorCode> {
        log_with_offsets(self, partition, count as i64).map_err(|_| ErrorCode::CoordinatorNotAvailable)
    }

    fn append_locked(
        &self,
        log: &mut Log,
        partition: &Partition,
        records: &[InternalRecord],
        transaction: Option<Producer>,
    ) -> Result<Appended, ErrorCode> {
        if partition.is_deleted() || partition.unavailable().is_some() {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        let now_ms = self.clock.now_ms();
        let batch = batch_of(now_ms, records, transaction, log.config().message_bytes_max as usize)?;
        let options = AppendOptions {
            leader_epoch: partition.leader_epoch(),
            origin: Origin::Coordinator,
            check: Check::Trusted,
            ..AppendOptions::default()
        };
        log.append(now_ms, batch, options).map_err(|error| match error {
            AppendError::TooLarge { .. } => ErrorCode::MessageTooLarge,
            error => cannot_write(partition, &error),
        })
    }

    /// Reserves the offsets below `end` if they are not yet, and starts a sync unless one is under way.
    fn begin_sync(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        end: i64,
        has_closed: bool,
    ) -> Result<Written, ErrorCode> {
        let reserved = self.raise_floor(partition, end);
        self.start_sync(partition, has_closed);
        reserved.map_err(|error| cannot_write(partition, &error))?;
        Ok(Written { partition: partition.clone(), end })
    }

    /// Does what follows the append of records below `end` again, for a caller whose first attempt has failed there.
    pub(crate) fn resume_write(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        end: i64,
    ) -> Result<Written, ErrorCode> {
        let has_closed = partition.log().has_unsynced_segments();
        self.begin_sync(partition, end, has_closed)
    }

    /// Waits until records are as durable as those of a producer with `acks=all`.
    pub(crate) async fn await_written(&self, written: &Written) -> Result<(), ErrorCode> {
        self.await_written_once(written).await.map_err(|code| {
            tracing::warn!(topic = %written.partition.topic, partition = written.partition.index, %code,
                "a coordinator's records are not durable in time");
            ErrorCode::CoordinatorNotAvailable
        })
    }

    /// Like [`Cluster::await_written`], however long a slow disk takes.
    pub(crate) async fn await_written_for_long(&self, written: &Written) -> Result<(), ErrorCode> {
        loop {
            match self.await_written_once(written).await {
                Ok(()) => return Ok(()),
                // The wait took its whole time, and the records may still become durable.
                Err(ErrorCode::RequestTimedOut) => {}
                // The disk failed, here or at the record of the offset floor. Another wait would end at once.
                Err(code) => {
                    tracing::warn!(topic = %written.partition.topic, partition = written.partition.index, %code,
                        "a coordinator's records cannot become durable");
                    return Err(ErrorCode::CoordinatorNotAvailable);
                }
            }
        }
    }

    async fn await_written_once(&self, written: &Written) -> Result<(), ErrorCode> {
        if self.config.durability != Durability::Disk {
            return Ok(());
        }
        await_durable(self, &written.partition, written.end, Instant::now() + WRITE_TIMEOUT).await
    }
}

fn cannot_write(partition: &Partition, error: &dyn std::fmt::Display) -> ErrorCode {
    tracing::error!(%error, topic = %partition.topic, partition = partition.index, "a coordinator cannot write");
    ErrorCode::CoordinatorNotAvailable
}

fn bytes_of(record: &InternalRecord) -> usize {
    record.key.len() + record.value.as_ref().map_or(0, Bytes::len)
}

/// The number of the first records that fit into a batch together, but at least 1.
fn fitting(records: &[InternalRecord], bytes_max: usize) -> usize {
    let mut bytes = 0;
    let fits = |record: &&InternalRecord| {
        bytes += bytes_of(record);
        bytes <= bytes_max
    };
    records.iter().take_while(fits).count().max(1)
}

/// Builds one uncompressed batch.
fn batch_of(
    now_ms: i64,
    records: &[InternalRecord],
    transaction: Option<Producer>,
    bytes_max: usize,
) -> Result<BytesMut, ErrorCode> {
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
