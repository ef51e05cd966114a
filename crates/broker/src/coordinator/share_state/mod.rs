//! The share coordinator (KIP-932): the state of share-partitions, in Kafka's records in `__share_group_state`.
//!
//! ```text
//! share-partition leader --read, write-----------> ShareStates --append--> __share_group_state
//! group coordinator ------initialize, delete-----/      ^                          |
//!                                                       +--- replay at the start --+
//! ```
//!
//! - `table`: the states and the decisions about them, without I/O.
//! - `combine`: batches of a change and of the state become one list.
//! - `records`: states as records.
//! - `states`: appends, and the wait until they are durable.
//! - `prune`: snapshots of states that do not change, and the deletion of records that snapshots have replaced.
//!
//! The coordinator and its callers are in one process. The requests of the coordinator are answered, too.

mod combine;
mod prune;
mod records;
mod states;
mod table;

pub(crate) use states::ShareStates;

use std::sync::Arc;

use ottla_protocol::Uuid;

/// The start offset of a share-partition whose leader has not chosen one yet.
pub(crate) const UNINITIALIZED: i64 = -1;
/// A leader epoch or a state epoch that is not compared.
pub(crate) const ANY_EPOCH: i32 = -1;

/// A partition of a topic as one group consumes it.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct SharePartitionKey {
    pub(crate) group: Arc<str>,
    pub(crate) topic: Uuid,
    pub(crate) partition: i32,
}

impl SharePartitionKey {
    /// The key with which clients look for the coordinator: Kafka's `SharePartitionKey.asCoordinatorKey`.
    pub(crate) fn coordinator_key(&self) -> String {
        format!("{}:{}:{}", self.group, self.topic, self.partition)
    }
}

/// Consecutive records with the same delivery state and count.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct StateBatch {
    pub(crate) first: i64,
    pub(crate) last: i64,
    /// Kafka's `RecordState`: 0 available, 2 acknowledged, 3 archiving, 4 archived.
    pub(crate) state: i8,
    pub(crate) delivery_count: i16,
}

/// The state of a share-partition.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ShareState {
    pub(crate) state_epoch: i32,
    pub(crate) leader_epoch: i32,
    /// [`UNINITIALIZED`] until the leader has chosen one.
    pub(crate) start_offset: i64,
    /// The records from the start offset on whose delivery is complete; -1 if the number is not known.
    pub(crate) delivery_complete_count: i32,
    pub(crate) batches: Vec<StateBatch>,
}

/// A change of the state of a share-partition.
#[derive(Clone, Debug)]
pub(crate) struct StateChange {
    /// [`ANY_EPOCH`] is not compared.
    pub(crate) state_epoch: i32,
    /// [`ANY_EPOCH`] is not compared and changes nothing.
    pub(crate) leader_epoch: i32,
    /// -1 changes nothing.
    pub(crate) start_offset: i64,
    pub(crate) delivery_complete_count: i32,
    pub(crate) batches: Vec<StateBatch>,
}
