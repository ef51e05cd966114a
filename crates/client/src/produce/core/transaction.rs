//! The producer's part in transactions: which batches may be sent, and which wait until the coordinator has their partition.

use rustc_hash::FxHashSet;

use super::drain::Poll;
use super::{Action, Environment, ProduceCore};
use crate::error::ProduceErrorKind;
use crate::types::producer_id::ProducerId;

/// The highest version of Produce. Version 13 names topics by id; names work with every broker.
const PRODUCE_VERSION_MAX: i16 = 12;
/// Version 12 makes brokers add partitions to transactions themselves (KIP-890).
const PRODUCE_VERSION_MAX_V1: i16 = 11;

/// The batches that a poll may send.
#[derive(Debug)]
pub(in crate::produce) enum Permission {
    /// All: there are no transactions.
    Unrestricted,
    /// Those of the open transaction.
    Transaction(OpenTransaction),
    /// None: every record fails with this error, except those of requests that were passed to a connection.
    Denied(ProduceErrorKind),
}

/// The open transaction, as the transactional state machine describes it.
#[derive(Clone, Copy, Debug)]
pub(in crate::produce) struct OpenTransaction {
    /// Counts the transactions of this producer.
    pub(in crate::produce) serial: u64,
    /// Producer id and epoch; `None` until the coordinator has given them.
    pub(in crate::produce) producer: Option<ProducerId>,
    /// `true` if the client must add partitions with AddPartitionsToTxn.
    pub(in crate::produce) adds_partitions: bool,
}

/// The partitions of the open transaction.
#[derive(Debug, Default)]
pub(super) struct Participation {
    serial: u64,
    adds_partitions: bool,
    /// Partitions that the coordinator has.
    added: FxHashSet<usize>,
    /// Partitions that the coordinator must get next.
    to_add: Vec<usize>,
    /// `true` while a request to the coordinator has no response.
    preparing: bool,
}

impl Participation {
    pub(super) fn is_preparing(&self) -> bool {
        self.preparing
    }
}

impl ProduceCore {
    /// The end of a [`Action::PrepareTransaction`], with the partitions that the coordinator accepted.
    pub(in crate::produce) fn on_partitions_added(&mut self, added: Vec<usize>) {
        self.transaction.preparing = false;
        self.transaction.added.extend(added);
    }

    pub(super) fn poll_transaction(
        &mut self,
        transaction: OpenTransaction,
        poll: &mut Poll<'_, impl Environment>,
    ) {
        let OpenTransaction { serial, producer, adds_partitions } = transaction;
        if self.transaction.serial != serial {
            self.transaction.serial = serial;
            self.transaction.added.clear();
        }
        self.transaction.adds_partitions = adds_partitions;
        if producer.is_some() {
            self.producer_id = producer;
            self.drain(poll);
            let to_add = std::mem::take(&mut self.transaction.to_add);
            if !to_add.is_empty() {
                self.prepare(to_add, poll.actions);
            }
        } else if !self.active.is_empty() {
            self.prepare(Vec::new(), poll.actions);
        }
    }

    /// `true` if the coordinator must get the partition before anything is sent to it. The partition is then added.
    pub(super) fn must_be_added(&mut self, index: usize) -> bool {
        let transaction = &mut self.transaction;
        let must = transaction.adds_partitions && !transaction.added.contains(&index);
        if must {
            transaction.to_add.push(index);
        }
        must
    }

    /// The highest version of Produce that the transaction's protocol allows.
    pub(super) fn produce_version_max(&self) -> i16 {
        let is_v1 = self.config.transactional_id.is_some() && self.transaction.adds_partitions;
        if is_v1 { PRODUCE_VERSION_MAX_V1 } else { PRODUCE_VERSION_MAX }
    }

    /// `true` if a batch out of order ends the transaction, although it could be sent again. Where brokers add partitions, the
    /// first batch may be refused for a moment with CONCURRENT_TRANSACTIONS, and those behind it are then out of order.
    pub(super) fn aborts_out_of_order(&self) -> bool {
        self.config.abort_out_of_order && self.transaction.adds_partitions
    }

    fn prepare(&mut self, partitions: Vec<usize>, actions: &mut Vec<Action>) {
        if !std::mem::replace(&mut self.transaction.preparing, true) {
            actions.push(Action::PrepareTransaction { partitions });
        }
    }

    /// Fails every record that is in no request.
    pub(super) fn fail_queued(&mut self, reason: &ProduceErrorKind, poll: &mut Poll<'_, impl Environment>) {
        self.drop_idle(poll.environment);
        if self.active.is_empty() {
            return;
        }
        for index in self.active.clone() {
            self.purge_queued(index, reason, poll.environment, poll.actions);
        }
        self.drop_idle(poll.environment);
    }
}
