//! Committed offsets in `__consumer_offsets`: a commit is appended, applied in the order of the log, and acknowledged when
//! it is durable.

use std::sync::Arc;

use bytes::Bytes;
use ottla_log::deliberate::{DeliberateFault, has_deliberate_fault};
use ottla_log::{EndMarker, LogError, TransactionOutcome};
use ottla_protocol::messages::consumer_offsets::{OffsetCommitKey, OffsetCommitValue};
use ottla_protocol::{EncodeError, ErrorCode};

use crate::cluster::{Cluster, OpenError};
use crate::coordinator::offsets::{At, Committed};
use crate::internal_topics::{InternalRecord, InternalTopic, Producer, partition_of};
use crate::partition::Partition;

/// The topic of the groups' coordinators.
const TOPIC: InternalTopic = InternalTopic::ConsumerOffsets;

/// Tombstones of one batch: a key has at most 33 KB, and mostly some 50 bytes.
pub(super) const TOMBSTONES_MAX: usize = 100;

impl Cluster {
    /// Stores offsets of one group, all or none, and waits until they are durable.
    ///
    /// # Errors
    /// INVALID_COMMIT_OFFSET_SIZE if they are too many for one batch, POLICY_VIOLATION if `memory.max.bytes` has no room for
    /// them, and the error of `is_current`, which is called under the lock of the log.
    pub(crate) async fn commit_offsets(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        group: &str,
        offsets: Vec<(At, Committed)>,
        is_current: impl FnOnce() -> Result<(), ErrorCode>,
    ) -> Result<(), ErrorCode> {
        if offsets.is_empty() {
            return Ok(());
        }
        if has_deliberate_fault(DeliberateFault::ForgottenCommits) && self.clock.now_ms() % 4 == 0 {
            return Ok(());
        }
        let records = records_of(group, &offsets, batch_bytes_max(partition))?;
        let reserved = self.offsets.reserve(group, None, &offsets).map_err(|bytes| no_room(group, bytes))?;
        let apply = |base_offset| self.offsets.commit(group, base_offset, offsets);
        let written = self.write_verified(partition, &records, None, is_current, apply);
        let (written, ()) = written.map_err(commit_code)?;
        drop(reserved);
        self.await_written(&written).await
    }

    /// Stores offsets of one group that count when the producer's transaction is committed: see
    /// [`Cluster::complete_offsets`]. `is_open` says whether the transaction is; its marker cannot come between the answer and the
    /// append.
    pub(crate) async fn commit_offsets_in_transaction(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        group: &str,
        producer: Producer,
        offsets: Vec<(At, Committed)>,
        is_open: impl FnOnce() -> Result<(), ErrorCode>,
    ) -> Result<(), ErrorCode> {
        if offsets.is_empty() {
            return Ok(());
        }
        let records = records_of(group, &offsets, batch_bytes_max(partition))?;
        let reserved = self.offsets.reserve(group, Some(producer.id), &offsets);
        let reserved = reserved.map_err(|bytes| no_room(group, bytes))?;
        let open = (partition.index, producer.id);
        let apply = |base_offset| self.offsets.commit_pending(group, open, base_offset, offsets);
        let written = self.write_verified(partition, &records, Some(producer), is_open, apply);
        let (written, ()) = written.map_err(commit_code)?;
        drop(reserved);
        self.await_written(&written).await
    }

    /// Applies the marker that ends a producer's transaction, which was appended to a partition of an internal topic.
    pub(crate) fn complete_offsets(&self, partition: &Partition, marker: &EndMarker) {
        if *partition.topic == *TOPIC.name() {
            let is_lost = has_deliberate_fault(DeliberateFault::ForgottenTransactionOffsets)
                && self.clock.now_ms() % 4 == 0;
            let committed = marker.outcome == TransactionOutcome::Commit && !is_lost;
            self.offsets.complete(partition.index, marker.producer_id, committed);
        }
    }

    /// Removes offsets that a group has, and waits until that is durable. Others may have their turn meanwhile: an offset that is
    /// committed since stays.
    pub(crate) async fn remove_offsets(self: &Arc<Self>, group: &str, which: &[At]) -> Result<(), ErrorCode> {
        let Some(partition) = self.internal_partition(TOPIC, group).filter(|_| !which.is_empty()) else {
            return Ok(());
        };
        let begun_at = partition.log().end_offset();
        let mut last = None;
        for part in which.chunks(TOMBSTONES_MAX) {
            let choose = || {
                let older = self.offsets.older(group, part, begun_at);
                Ok((tombstones(group, &older)?, older))
            };
            let (written, _) =
                self.write_chosen(&partition, choose, |older, _| self.offsets.remove(group, older))?;
            last = written.or(last);
            tokio::task::yield_now().await;
        }
        match last {
            Some(written) => self.await_written(&written).await,
            None => Ok(()),
        }
    }

    /// Removes every group's offsets of a topic, durably: a topic of the same name starts without any. Those of one group that cannot be
    /// written stop no others. The topic is not found any more. Blocks.
    ///
    /// # Errors
    /// The first offset that cannot be removed. Those of an offline partition are not known: a start that can read them removes them.
    pub(crate) fn forget_topic(&self, topic: &str) -> Result<(), OpenError> {
        let mut first_error = Ok(());
        let partitions = self.topic(TOPIC.name()).map(|topic| topic.partitions.clone()).unwrap_or_default();
        // Commits that have found the topic hold the lock until they are applied.
        for partition in &*partitions {
            drop(partition.log());
        }
        for (group, which) in self.offsets.of_topic(topic) {
            if let Some(partition) = self.internal_partition(TOPIC, &group) {
                first_error = first_error.and(self.forget_offsets(&partition, &group, &which));
            }
        }
        if let Some(partition) = partitions.iter().find(|partition| partition.unavailable().is_some()) {
            first_error = first_error.and(Err(LogError::Io {
                dir: format!("{}-{}", partition.topic, partition.index),
                doing: format!("remove the offsets of topic {topic}"),
                source: std::io::Error::other("the partition is offline"),
            }));
        }
        Ok(first_error?)
    }

    /// Removes offsets of a group, durably. Blocks.
    fn forget_offsets(&self, partition: &Arc<Partition>, group: &str, which: &[At]) -> Result<(), LogError> {
        for part in which.chunks(TOMBSTONES_MAX) {
            let failed = |source: String| LogError::Io {
                dir: format!("{}-{}", partition.topic, partition.index),
                doing: format!("remove the offsets of group {group}"),
                source: std::io::Error::other(source),
            };
            let records = tombstones(group, part).map_err(|code| failed(code.to_string()))?;
            let apply = || self.offsets.remove(group, part);
            self.write_internal_blocking(partition, &records, apply).map_err(failed)?;
        }
        Ok(())
    }

    /// The number of the partition of `__consumer_offsets` that has a group's records, before its creation, too.
    pub fn group_partition(&self, group: &str) -> i32 {
        let created = self.topic(TOPIC.name()).map(|topic| topic.partitions.len() as i32);
        partition_of(group, created.unwrap_or_else(|| TOPIC.partitions(&self.config)))
    }
}

fn batch_bytes_max(partition: &Partition) -> usize {
    partition.log().config().message_bytes_max as usize
}

fn no_room(group: &str, bytes: usize) -> ErrorCode {
    tracing::warn!(group, bytes, "a commit is refused: memory.max.bytes has no room for its offsets");
    ErrorCode::PolicyViolation
}

/// Kafka's code for a commit that does not fit.
fn commit_code(code: ErrorCode) -> ErrorCode {
    if code == ErrorCode::MessageTooLarge { ErrorCode::InvalidCommitOffsetSize } else { code }
}

/// The records of a commit. A long group name is repeated in each of them, so the sum is limited here.
fn records_of(
    group: &str,
    offsets: &[(At, Committed)],
    bytes_max: usize,
) -> Result<Vec<InternalRecord>, ErrorCode> {
    let bytes =
        |((topic, _), committed): &(At, Committed)| group.len() + topic.len() + committed.metadata.len();
    if offsets.iter().map(bytes).sum::<usize>() > bytes_max {
        return Err(ErrorCode::InvalidCommitOffsetSize);
    }
    let record = |(at, committed): &(At, Committed)| {
        let value = OffsetCommitValue {
            offset: committed.offset,
            leader_epoch: committed.leader_epoch,
            metadata: committed.metadata.clone(),
            commit_timestamp: committed.at_ms,
            expire_timestamp: committed.expires_at_ms.unwrap_or(-1),
            ..Default::default()
        };
        Ok(InternalRecord { key: key_of(group, at)?, value: Some(value.to_bytes().map_err(too_long)?) })
    };
    offsets.iter().map(record).collect()
}

/// The records that remove offsets of a group.
pub(super) fn tombstones(group: &str, which: &[At]) -> Result<Vec<InternalRecord>, ErrorCode> {
    which.iter().map(|at| Ok(InternalRecord { key: key_of(group, at)?, value: None })).collect()
}

fn key_of(group: &str, (topic, partition): &At) -> Result<Bytes, ErrorCode> {
    let key = OffsetCommitKey { group: group.to_owned(), topic: topic.clone(), partition: *partition };
    key.to_bytes().map_err(too_long)
}

/// A name that needs more than 15 bits for its length: a flexible request can have one, a record cannot.
pub(crate) fn too_long(_: EncodeError) -> ErrorCode {
    ErrorCode::InvalidGroupId
}
