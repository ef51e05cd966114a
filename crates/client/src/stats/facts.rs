//! The facts about a client that its statistics show and the observer does not count.

use tokio::time::Instant;

use crate::config::Config;
use crate::types::producer_id::ProducerId;

/// A client at one moment.
#[derive(Clone, Copy)]
pub(crate) struct ClientFacts<'a> {
    pub(crate) config: &'a Config,
    pub(crate) memory: MemoryFacts,
    /// Delivery reports that the application has not read.
    pub(crate) unread_reports: usize,
    pub(crate) has_transactional_id: bool,
    pub(crate) transactions: TransactionStatus,
    /// Topics in the metadata.
    pub(crate) topics: usize,
    /// The leader of each partition of a topic, in order; empty without metadata of it.
    pub(crate) leaders: &'a dyn Fn(&str) -> Vec<PartitionLeader>,
}

/// The producer's buffer, `queue.buffering.max.*`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryFacts {
    pub(crate) records_max: usize,
    pub(crate) bytes_used: usize,
    pub(crate) bytes_max: usize,
    pub(crate) is_full: bool,
}

/// The leader of a partition and its epoch; -1 if unknown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionLeader {
    pub(crate) node: i32,
    pub(crate) epoch: i32,
}

/// The transaction state that statistics show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionStatus {
    pub(crate) state: &'static str,
    pub(crate) changed_at: Option<Instant>,
    pub(crate) takes_records: bool,
    /// `true` if the coordinator must assign an epoch before anything is sent.
    pub(crate) needs_epoch: bool,
    pub(crate) producer: ProducerId,
    pub(crate) producer_ids: u64,
}
