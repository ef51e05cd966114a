//! Changes of the states of share-partitions: appended in the order of the decisions, acknowledged when they are durable.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ottla_log::LogError;
use ottla_protocol::{ErrorCode, Uuid};

use super::records::ShareRecord;
use super::table::{ShareTable, WriteContext};
use super::{SharePartitionKey, ShareState, StateBatch, StateChange, UNINITIALIZED};
use crate::cluster::{Cluster, OpenError, lock};
use crate::coordinator::offset_log::too_long;
use crate::internal_topics::{InternalRecord, InternalTopic, Replayed, Written};
use crate::memory::KeptMemory;
use crate::partition::Partition;

pub(super) const TOPIC: InternalTopic = InternalTopic::ShareGroupState;
/// Tombstones of one batch: a key has at most 33 KB, and mostly some 50 bytes.
const TOMBSTONES_MAX: usize = 100;

/// The states of the share-partitions of all groups.
#[derive(Debug)]
pub(crate) struct ShareStates {
    pub(super) table: Mutex<ShareTable>,
}

impl ShareStates {
    /// No states yet. `memory` is for the states, `batch_memory` for the states of their records.
    pub(crate) fn new(memory: KeptMemory, batch_memory: KeptMemory) -> Self {
        Self { table: Mutex::new(ShareTable::new(memory, batch_memory)) }
    }

    /// Reads a state for the leader of its partition. From now on, older leaders are fenced.
    ///
    /// # Errors
    /// INVALID_REQUEST if the state is not initialized; FENCED_LEADER_EPOCH; UNKNOWN_TOPIC_OR_PARTITION;
    /// COORDINATOR_NOT_AVAILABLE if the log is offline or cannot be written.
    pub(crate) async fn read(
        &self,
        cluster: &Arc<Cluster>,
        key: &SharePartitionKey,
        leader_epoch: i32,
    ) -> Result<ShareState, ErrorCode> {
        let partition = online_partition(cluster, key)?.ok_or(ErrorCode::InvalidRequest)?;
        self.check(cluster, key)?;
        let context = cluster.share_write_context();
        let decide = |table: &ShareTable| {
            let (state, record) = table.decide_read(key, leader_epoch, context)?;
            Ok((record, state))
        };
        self.append(cluster, &partition, key, decide).await
    }

    /// Returns `true` if there is memory for so many batches more.
    pub(crate) fn has_room_for(&self, batches: usize) -> bool {
        lock(&self.table).has_room_for(batches * size_of::<StateBatch>())
    }

    /// A number that changes when another state of the share-partition begins: what a leader has read of the one before is
    /// void. It is not stored. `None` if there is no state.
    pub(crate) fn incarnation(&self, key: &SharePartitionKey) -> Option<u64> {
        lock(&self.table).incarnation(key)
    }

    /// Changes a state. Returns when the change is durable.
    ///
    /// # Errors
    /// As [`ShareStates::read`], and FENCED_STATE_EPOCH.
    pub(crate) async fn write(
        &self,
        cluster: &Arc<Cluster>,
        key: &SharePartitionKey,
        change: StateChange,
    ) -> Result<(), ErrorCode> {
        let partition = online_partition(cluster, key)?.ok_or(ErrorCode::InvalidRequest)?;
        self.check(cluster, key)?;
        let context = cluster.share_write_context();
        let decide = |table: &ShareTable| Ok((Some(table.decide_write(key, &change, context)?), ()));
        self.append(cluster, &partition, key, decide).await
    }

    /// Replaces a state that was read, also by one with less. Returns when it is durable.
    ///
    /// # Errors
    /// As [`ShareStates::write`].
    pub(crate) async fn replace(
        &self,
        cluster: &Arc<Cluster>,
        key: &SharePartitionKey,
        state: &ShareState,
    ) -> Result<(), ErrorCode> {
        let partition = online_partition(cluster, key)?.ok_or(ErrorCode::InvalidRequest)?;
        self.check(cluster, key)?;
        let now_ms = cluster.clock.now_ms();
        let decide = |table: &ShareTable| Ok((Some(table.decide_replace(key, state, now_ms)?), ()));
        self.append(cluster, &partition, key, decide).await
    }

    /// Begins a state at an offset, which may be [`UNINITIALIZED`]. A state that is there is replaced.
    ///
    /// # Errors
    /// FENCED_STATE_EPOCH; UNKNOWN_TOPIC_OR_PARTITION; COORDINATOR_NOT_AVAILABLE; POLICY_VIOLATION if `memory.max.bytes` has no room.
    pub(crate) async fn initialize(
        &self,
        cluster: &Arc<Cluster>,
        key: &SharePartitionKey,
        state_epoch: i32,
        start_offset: i64,
    ) -> Result<(), ErrorCode> {
        let now_ms = cluster.clock.now_ms();
        let decide = |table: &ShareTable| table.decide_initialize(key, (state_epoch, start_offset), now_ms);
        self.begin(cluster, key, decide).await
    }

    /// [`ShareStates::initialize`] for the group coordinator: a state of an earlier group with this name is replaced, too, however high
    /// its epoch is.
    pub(crate) async fn initialize_for_group(
        &self,
        cluster: &Arc<Cluster>,
        key: &SharePartitionKey,
        group_epoch: i32,
        start_offset: i64,
    ) -> Result<(), ErrorCode> {
        let now_ms = cluster.clock.now_ms();
        let decide = |table: &ShareTable| {
            let state_epoch = table.state_epoch_for(key, group_epoch);
            table.decide_initialize(key, (state_epoch, start_offset), now_ms)
        };
        self.begin(cluster, key, decide).await
    }

    async fn begin(
        &self,
        cluster: &Arc<Cluster>,
        key: &SharePartitionKey,
        decide: impl FnOnce(&ShareTable) -> Result<ShareRecord, ErrorCode>,
    ) -> Result<(), ErrorCode> {
        check_partition(cluster, key)?;
        let partition = cluster.coordinator_partition(TOPIC, &key.coordinator_key()).await?;
        self.append(cluster, &partition, key, |table| Ok((Some(decide(table)?), ()))).await?;
        // The deletion of a topic removes the states that it finds.
        if let Err(code) = check_partition(cluster, key) {
            self.delete(cluster, key).await?;
            return Err(code);
        }
        Ok(())
    }

    /// Deletes a state. It is no error if there is none.
    ///
    /// # Errors
    /// COORDINATOR_NOT_AVAILABLE if the log is offline or cannot be written.
    pub(crate) async fn delete(
        &self,
        cluster: &Arc<Cluster>,
        key: &SharePartitionKey,
    ) -> Result<(), ErrorCode> {
        let Some(partition) = online_partition(cluster, key)? else { return Ok(()) };
        let decide = |table: &ShareTable| Ok((table.decide_delete(key), ()));
        self.append(cluster, &partition, key, decide).await
    }

    /// The state without its batches. A state that was never initialized looks like an uninitialized one.
    ///
    /// # Errors
    /// UNKNOWN_TOPIC_OR_PARTITION; COORDINATOR_NOT_AVAILABLE if the log is offline or cannot be written.
    pub(crate) async fn summary(
        &self,
        cluster: &Arc<Cluster>,
        key: &SharePartitionKey,
    ) -> Result<ShareState, ErrorCode> {
        check_partition(cluster, key)?;
        let Some(partition) = online_partition(cluster, key)? else {
            return Ok(lock(&self.table).summary(key));
        };
        self.append(cluster, &partition, key, |table| Ok((None, table.summary(key)))).await
    }

    /// The number of the first offset that no member has completed, moved on by the records after it that are complete: with the
    /// high watermark it gives the lag. `None` if it is not known. Changes that are not durable yet are included.
    pub(crate) fn progress(&self, key: &SharePartitionKey) -> Option<i64> {
        let state = lock(&self.table).summary(key);
        let is_known = state.start_offset != UNINITIALIZED && state.delivery_complete_count >= 0;
        is_known.then(|| state.start_offset.saturating_add(state.delivery_complete_count.into()))
    }

    /// Refuses a state that is not initialized before one whose topic does not exist, as Kafka does.
    fn check(&self, cluster: &Cluster, key: &SharePartitionKey) -> Result<(), ErrorCode> {
        if lock(&self.table).contains(key) {
            check_partition(cluster, key)
        } else {
            Err(ErrorCode::InvalidRequest)
        }
    }

    /// Appends the record that `decide` returns, and waits until it and all earlier ones are durable.
    async fn append<T>(
        &self,
        cluster: &Arc<Cluster>,
        partition: &Arc<Partition>,
        key: &SharePartitionKey,
        decide: impl FnOnce(&ShareTable) -> Result<(Option<ShareRecord>, T), ErrorCode>,
    ) -> Result<T, ErrorCode> {
        let choose = || {
            let (record, answer) = decide(&lock(&self.table))?;
            let encoded = record.iter().map(|record| record.encode(key).map_err(too_long));
            Ok((encoded.collect::<Result<Vec<_>, _>>()?, (record, answer)))
        };
        let apply = |(record, _): &(Option<ShareRecord>, T), offset: i64| {
            if let Some(record) = record {
                lock(&self.table).apply(key, record, (partition.index, offset));
            }
        };
        let (written, (_, answer)) = cluster.write_chosen(partition, choose, apply)?;
        // An answer without a record may depend on one that is not durable yet.
        let written = written.unwrap_or_else(|| Written::so_far(partition));
        cluster.await_written(&written).await?;
        Ok(answer)
    }

    /// Takes the records of a partition of `__share_group_state` at the start.
    pub(crate) fn load_entry(&self, partition: i32, entry: Replayed) -> Result<(), String> {
        let Replayed::Record { offset, key, value, .. } = entry else { return Ok(()) };
        let decoded = ShareRecord::decode(key, value).map_err(|error| error.to_string())?;
        if let Some((key, record)) = decoded {
            lock(&self.table).apply(&key, &record, (partition, offset));
        } else {
            tracing::debug!(offset, "a record of an unknown type is ignored");
        }
        Ok(())
    }
}

impl Cluster {
    fn share_write_context(&self) -> WriteContext {
        let updates_per_snapshot = self.live.broker().share_coordinator.updates_per_snapshot;
        WriteContext { updates_per_snapshot, now_ms: self.clock.now_ms() }
    }

    /// Returns `true` if there is no state of a partition that exists, and no partition of `__share_group_state` is offline that could
    /// have it.
    pub(crate) fn has_lost_share_state(&self, key: &SharePartitionKey) -> bool {
        let stored = self.internal_partition(TOPIC, &key.coordinator_key());
        let is_readable = stored.is_none_or(|partition| partition.unavailable().is_none());
        is_readable && check_partition(self, key).is_ok() && !lock(&self.share_states.table).contains(key)
    }

    /// Deletes the states of a topic that is deleted. Blocks.
    pub(crate) fn forget_share_states(&self, topic: Uuid) -> Result<(), OpenError> {
        let keys = lock(&self.share_states.table).keys_of_topic(topic);
        let mut by_partition: BTreeMap<i32, (Arc<Partition>, Vec<SharePartitionKey>)> = BTreeMap::new();
        for key in keys {
            let Some(partition) = self.internal_partition(TOPIC, &key.coordinator_key()) else { continue };
            by_partition.entry(partition.index).or_insert_with(|| (partition, Vec::new())).1.push(key);
        }
        for (partition, keys) in by_partition.into_values() {
            for part in keys.chunks(TOMBSTONES_MAX) {
                let failed = |source: String| LogError::Io {
                    dir: format!("{}-{}", partition.topic, partition.index),
                    doing: format!("remove the share-group state of topic {topic}"),
                    source: std::io::Error::other(source),
                };
                let records = part.iter().map(|key| ShareRecord::Tombstone.encode(key));
                let records: Vec<InternalRecord> =
                    records.collect::<Result<_, _>>().map_err(|error| failed(error.to_string()))?;
                let apply = || {
                    let mut table = lock(&self.share_states.table);
                    // A tombstone has no offset that matters.
                    for key in part {
                        table.apply(key, &ShareRecord::Tombstone, (0, 0));
                    }
                };
                self.write_internal_blocking(&partition, &records, apply).map_err(failed)?;
            }
        }
        Ok(())
    }
}

/// Returns the partition that has a state, if the topic of the states exists.
///
/// # Errors
/// COORDINATOR_NOT_AVAILABLE if the partition is offline: its states are not known.
fn online_partition(cluster: &Cluster, key: &SharePartitionKey) -> Result<Option<Arc<Partition>>, ErrorCode> {
    let partition = cluster.internal_partition(TOPIC, &key.coordinator_key());
    if partition.as_ref().is_some_and(|partition| partition.unavailable().is_some()) {
        return Err(ErrorCode::CoordinatorNotAvailable);
    }
    Ok(partition)
}

fn check_partition(cluster: &Cluster, key: &SharePartitionKey) -> Result<(), ErrorCode> {
    let topic = cluster.topic_by_id(key.topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
    let exists = usize::try_from(key.partition).is_ok_and(|index| index < topic.partitions.len());
    if exists { Ok(()) } else { Err(ErrorCode::UnknownTopicOrPartition) }
}
