//! The core's interface to its shell: the facts that it asks for and the actions that it returns.

use std::time::Duration;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::produce::{ProduceRequest, ProduceResponse};
use tokio::time::Instant;

use super::super::batch::Batch;
use super::super::compressor::{ClosedBatch, Uncompressed};
use super::super::delivery::Outcome;
use super::super::queue::{OpenBatch, Waiting};
use crate::config::Acks;
use crate::error::{Error, ProduceErrorKind};

/// Facts about queues, brokers and topics. Partitions are named by their index in the core.
pub(in crate::produce) trait Environment {
    /// Removes the oldest batch of a partition's queue if `accepts` agrees; full batches come before the open one.
    fn take(&mut self, index: usize, accepts: &mut dyn FnMut(&Waiting) -> bool) -> Option<OpenBatch>;

    /// Marks a partition's queue as unlisted if it is empty, so that its next record is announced; `false` if it has
    /// records.
    fn unlist_if_empty(&mut self, index: usize) -> bool;

    /// Closes a queue's open batch to further records if it was opened before `then`.
    fn retire_older(&mut self, index: usize, then: Instant);

    /// `true` if the application has paused a partition.
    fn is_paused(&self, index: usize) -> bool;

    /// The node that leads a partition, according to the latest metadata.
    fn leader(&self, index: usize) -> Option<i32>;

    /// The state of the connection that carries Produce requests to a node.
    fn link(&self, node: i32) -> LinkState;

    /// The metadata of a partition's topic, if there is any.
    fn topic(&self, index: usize) -> Option<TopicState>;

    /// The reason why a partition's records could not be sent for so long, for the error of records that expire.
    fn unsent_reason(&self, index: usize, waited: Duration) -> String;
}

/// The state of a connection to a leader.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::produce) enum LinkState {
    /// There is none, or it broke.
    Closed,
    /// Requests can be sent.
    Open,
    /// Too many requests wait in the outbox; the shell polls again when there is room.
    BackedUp,
}

/// The metadata of a topic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::produce) struct TopicState {
    pub(in crate::produce) error: ErrorCode,
    pub(in crate::produce) partitions: usize,
    /// A number that changes with each response about the topic.
    pub(in crate::produce) responses: u64,
}

/// A Produce request to send.
#[derive(Debug)]
pub(in crate::produce) struct OutgoingRequest {
    /// The argument of [`on_response`](super::ProduceCore::on_response).
    pub(in crate::produce) id: u64,
    pub(in crate::produce) node: i32,
    pub(in crate::produce) acks: Acks,
    /// `true` if a batch is compressed with zstd, which brokers before 2.1 refuse.
    pub(in crate::produce) has_zstd: bool,
    pub(in crate::produce) version_max: i16,
    pub(in crate::produce) request: ProduceRequest,
}

/// The end of a Produce request.
#[derive(Debug)]
pub(in crate::produce) enum RequestOutcome {
    /// The broker answered; an empty response stands for a request with `acks=0` that was written to the socket.
    Answered(ProduceResponse),
    /// The request did not leave this client.
    NotSent(Error),
    /// The request may have reached the broker, and no response will come.
    Lost(Error),
}

/// An effect that the shell performs for the core.
#[derive(Debug)]
pub(in crate::produce) enum Action {
    /// Send a request. If it has to wait for a connection, [`on_connected`](super::ProduceCore::on_connected) decides about it then.
    /// Its end goes to [`on_response`](super::ProduceCore::on_response).
    Send(OutgoingRequest),
    /// Compress a batch off this thread. The result goes to [`on_compressed`](super::ProduceCore::on_compressed).
    Compress { index: usize, slot: u64, open: OpenBatch },
    /// Report the outcome of a batch that was sealed.
    Settle { index: usize, batch: Batch, outcome: Outcome },
    /// Report the failure of a batch that was closed and not sealed.
    FailClosed { index: usize, batch: ClosedBatch, kind: ProduceErrorKind },
    /// Report the failure of a batch that came from the queue as it was.
    FailOpen { index: usize, open: OpenBatch, kind: ProduceErrorKind },
    /// Report the failure of a batch that the codec refused.
    FailUncompressed { index: usize, batch: Uncompressed },
    /// Return memory that a batch no longer needs.
    ReleaseMemory(usize),
    /// Send InitProducerId to any broker. The result goes to [`on_producer_id`](super::ProduceCore::on_producer_id).
    RequestProducerId,
    /// Fetch the transaction's epoch, and add these partitions to it. The result goes to
    /// [`on_partitions_added`](super::ProduceCore::on_partitions_added).
    PrepareTransaction { partitions: Vec<usize> },
    /// Request metadata soon.
    RefreshMetadata,
    /// Discard the leader of a partition and request metadata.
    ForgetLeader { index: usize },
    /// Accept the leader that a node named for a partition. If it is accepted,
    /// [`on_new_leader`](super::ProduceCore::on_new_leader) follows; if not, the leader is discarded.
    LearnLeader { index: usize, named_by: i32, leader: i32, leader_epoch: i32 },
    /// Log that a batch will be sent again.
    LogRetry { index: usize, records: i32, attempts: u32, problem: String },
    /// Record that a partition's sequence begins again under a higher epoch (KIP-360).
    EpochRaised { index: usize, epoch: i16 },
}
