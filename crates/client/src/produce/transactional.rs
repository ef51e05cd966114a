//! The sender's part in transactions: what may go, what must wait until the coordinator knows of it, what may not go any
//! more.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use tokio::time::Instant;

use super::sender::{Event, Sender};
use crate::transaction::machine::View;
use crate::transaction::prepare;
use crate::transaction::verdict::Protocol;

/// Version 12 has brokers add partitions to transactions themselves.
const PRODUCE_VERSION_V1: i16 = 11;

/// What the sender knows of the open transaction.
#[derive(Debug, Default)]
pub(super) struct Participation {
    /// Which transaction, of those that this producer began.
    serial: u64,
    /// Whether the coordinator must be told of partitions.
    adds: bool,
    /// Partitions that it was told of.
    added: FxHashSet<usize>,
    /// Partitions that it is yet to be told of.
    to_add: Vec<usize>,
    /// Whether it is being told, or asked for an epoch.
    preparing: bool,
}

impl Participation {
    /// Whether a coordinator is being asked.
    pub(super) fn is_preparing(&self) -> bool {
        self.preparing
    }
}

impl Sender {
    pub(super) fn pump_transaction(&mut self, now: Instant, wake_at: &mut Option<Instant>) {
        let mut view = self.produce.transactions.view();
        if self.transaction.serial != view.serial {
            self.transaction.serial = view.serial;
            self.transaction.added.clear();
            // A new transaction: the cluster may have changed the protocol since the last one.
            if let Some(level) = self.cluster.brokers.transaction_level() {
                self.produce.transactions.follow_level(level);
                view = self.produce.transactions.view();
            }
        }
        let View { sends, producer, protocol, .. } = view;
        self.transaction.adds = protocol == Protocol::V1;
        if !sends {
            self.discard();
        } else if producer.is_some() {
            self.producer_id = producer;
            self.drain(now, wake_at);
            let to_add = std::mem::take(&mut self.transaction.to_add);
            if !to_add.is_empty() {
                self.prepare(to_add);
            }
        } else if !self.active.is_empty() {
            self.prepare(Vec::new());
        }
        if self.produce.transactions.is_quiet_wanted() && self.is_quiet() {
            self.produce.transactions.tell_quiet();
        }
    }

    /// Whether the coordinator must be told of the partition before anything is sent to it; if so, it will be.
    pub(super) fn must_be_added(&mut self, at: usize) -> bool {
        let transaction = &mut self.transaction;
        let must = transaction.adds && !transaction.added.contains(&at);
        if must {
            transaction.to_add.push(at);
        }
        must
    }

    /// The highest version of Produce that goes with the transaction's protocol.
    pub(super) fn produce_version_max(&self, version_max: i16) -> i16 {
        if self.produce.transactions.id.is_some() && self.transaction.adds {
            PRODUCE_VERSION_V1
        } else {
            version_max
        }
    }

    fn prepare(&mut self, partitions: Vec<usize>) {
        if std::mem::replace(&mut self.transaction.preparing, true) {
            return;
        }
        let mut by_topic: BTreeMap<Arc<str>, Vec<i32>> = BTreeMap::new();
        for at in &partitions {
            let queue = &self.partitions[*at].queue;
            by_topic.entry(queue.topic.clone()).or_default().push(queue.partition);
        }
        let (cluster, produce, events) = (self.cluster.clone(), self.produce.clone(), self.events());
        self.spawn(async move {
            let prepared = prepare(cluster, produce, by_topic).await;
            if let Err(error) = &prepared {
                tracing::debug!(%error, "transaction");
            }
            let added = if prepared.is_ok() { partitions } else { Vec::new() };
            let _ = events.send(Event::Prepared { added });
        });
    }

    pub(super) fn on_prepared(&mut self, added: Vec<usize>) {
        self.transaction.preparing = false;
        self.transaction.added.extend(added);
    }

    /// Fails everything that no request carries.
    pub(super) fn discard(&mut self) {
        self.drop_idle();
        if self.active.is_empty() {
            return;
        }
        let reason = self.produce.transactions.refuse_record();
        for at in self.active.clone() {
            self.purge_queued(at, &reason);
        }
        self.drop_idle();
    }

    fn is_quiet(&self) -> bool {
        self.requests.is_empty() && !self.transaction.preparing && self.produce.queues.unsettled() == 0
    }
}
