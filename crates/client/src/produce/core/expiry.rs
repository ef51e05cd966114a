//! The end of records that were not acknowledged: timeouts, purges and the end of the client.

use std::time::Duration;

use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use super::super::Purge;
use super::super::batch::{Batch, Compressing, NEVER_SENT, Partition};
use super::{Action, Environment, LinkState, ProduceCore, TopicState};
use crate::error::ProduceErrorKind;

/// The interval between two searches for expired batches.
const EXPIRY_INTERVAL: Duration = Duration::from_millis(100);
/// A batch takes records for at most this part of `delivery.timeout.ms`.
pub(in crate::produce) const EXPIRY_SPANS: u32 = 16;

impl ProduceCore {
    /// `true` if [`expire`](Self::expire) would search now. The next poll must then have the scope `All`.
    pub(in crate::produce) fn is_expiry_due(&self, now: Instant) -> bool {
        now >= self.expire_at
    }

    /// Fails the records whose `delivery.timeout.ms` has elapsed: unsent, waiting for a retry, or in flight. The search
    /// runs every 100 ms at most.
    pub(in crate::produce) fn expire(
        &mut self,
        now: Instant,
        environment: &mut impl Environment,
        actions: &mut Vec<Action>,
    ) {
        if !self.is_expiry_due(now) {
            return;
        }
        self.expire_at = now + EXPIRY_INTERVAL;
        self.expire_in_flight(now, environment, actions);
        for index in self.active.clone() {
            self.expire_partition(index, now, environment, actions);
            self.expire_unknown(index, now, environment, actions);
            let timeout = self.partitions[index].config.delivery_timeout;
            if let Some(then) = now.checked_sub(timeout / EXPIRY_SPANS) {
                environment.retire_older(index, then);
            }
        }
    }

    fn expire_partition(
        &mut self,
        index: usize,
        now: Instant,
        environment: &mut impl Environment,
        actions: &mut Vec<Action>,
    ) {
        let timeout = self.partitions[index].config.delivery_timeout;
        let unsent = |environment: &mut dyn FnMut() -> String| ProduceErrorKind::TimedOut {
            timeout_ms: timeout.as_millis() as u64,
            last: environment(),
        };
        while self.partitions[index].retry.front().is_some_and(|batch| now >= batch.created + timeout) {
            if let Some(batch) = self.partitions[index].retry.pop_front() {
                self.time_out(index, batch, actions);
            }
        }
        while self.partitions[index].compressing.front().is_some_and(|entry| entry.is_older(now, timeout)) {
            if let Some(Compressing::Ready(batch)) = self.partitions[index].compressing.pop_front() {
                let kind = unsent(&mut || environment.unsent_reason(index, timeout));
                actions.push(Action::FailClosed { index, batch: *batch, kind });
            }
        }
        while let Some(open) = environment.take(index, &mut |waiting| waiting.age(now) >= timeout) {
            let kind = unsent(&mut || environment.unsent_reason(index, timeout));
            actions.push(Action::FailOpen { index, open, kind });
        }
    }

    /// A later response does not change the outcome of a batch that expired in flight. It may be written, so the
    /// batches behind it keep their sequence numbers until a broker refuses them. A batch that waits for its connection is not
    /// written, and not sent any more. The end of a request whose connection has just closed is the next event.
    fn expire_in_flight(&mut self, now: Instant, environment: &impl Environment, actions: &mut Vec<Action>) {
        let is_expired = |node: i32, has_left: bool, partition: &Partition, batch: &Batch| {
            now >= batch.created + partition.config.delivery_timeout
                && (!has_left || environment.link(node) != LinkState::Closed)
        };
        for TakenBatch { node, has_left, index, mut batch } in self.take_in_flight(is_expired) {
            if has_left {
                batch.last_problem = format!("node {node} has not answered");
            } else if batch.last_problem == NEVER_SENT {
                let timeout = self.partitions[index].config.delivery_timeout;
                batch.last_problem = environment.unsent_reason(index, timeout);
            }
            self.time_out(index, batch, actions);
        }
    }

    /// Fails the records of a topic that no broker has known for too long, and of a partition that no longer exists: at
    /// once if the topic was created again without it. Later records of such a partition wait for one response more.
    fn expire_unknown(
        &mut self,
        index: usize,
        now: Instant,
        environment: &mut impl Environment,
        actions: &mut Vec<Action>,
    ) {
        let Some(TopicState { error, partitions, responses }) = environment.topic(index) else { return };
        let is_unknown = match usize::try_from(self.partitions[index].number) {
            Err(_) => error == ErrorCode::UnknownTopicOrPartition,
            Ok(number) => error == ErrorCode::None && number >= partitions,
        };
        let partition = &mut self.partitions[index];
        if !is_unknown {
            (partition.missing_since, partition.missed_since) = (None, None);
            return;
        }
        let missing_since = *partition.missing_since.get_or_insert(now);
        let (missed_since, responses_before) = *partition.missed_since.get_or_insert((now, responses));
        let max = self.config.topic_metadata_propagation_max;
        let is_still_missing = now >= missing_since + max && responses != responses_before;
        if partition.is_gone || is_still_missing || now >= missed_since + max {
            let (code, detail) = (ErrorCode::UnknownTopicOrPartition, String::new());
            let reason = ProduceErrorKind::Broker { code, detail };
            self.purge_queued(index, &reason, environment, actions);
        }
    }

    /// Fails what the application no longer wants sent.
    pub(in crate::produce) fn purge(
        &mut self,
        purge: Purge,
        environment: &mut impl Environment,
        actions: &mut Vec<Action>,
    ) {
        if purge.queued {
            let reason = ProduceErrorKind::Purged { in_flight: false };
            self.fail_waiting(&reason, actions);
            for index in 0..self.partitions.len() {
                self.purge_queued(index, &reason, environment, actions);
            }
        }
        if purge.in_flight {
            self.fail_in_flight(&ProduceErrorKind::Purged { in_flight: true }, actions);
        }
    }

    /// Fails every record of a partition that is in no request.
    pub(super) fn purge_queued(
        &mut self,
        index: usize,
        reason: &ProduceErrorKind,
        environment: &mut impl Environment,
        actions: &mut Vec<Action>,
    ) {
        self.fail_unsent(index, reason, actions);
        while let Some(open) = environment.take(index, &mut |_| true) {
            actions.push(Action::FailOpen { index, open, kind: reason.clone() });
        }
    }

    /// Fails everything that is left, because the client ends. The queues are left to the caller.
    pub(in crate::produce) fn close(&mut self, actions: &mut Vec<Action>) {
        let reason = ProduceErrorKind::Closed;
        self.fail_in_flight(&reason, actions);
        for index in 0..self.partitions.len() {
            self.fail_unsent(index, &reason, actions);
        }
    }

    /// Fails the batches that left the partition's queue and are in no request. A batch that the worker has fails when
    /// it comes back.
    fn fail_unsent(&mut self, index: usize, reason: &ProduceErrorKind, actions: &mut Vec<Action>) {
        while let Some(batch) = self.partitions[index].retry.pop_front() {
            self.fail(index, batch, reason.clone(), actions);
        }
        let partition = &mut self.partitions[index];
        partition.failed_below = Some((partition.next_slot, reason.clone()));
        for entry in std::mem::take(&mut partition.compressing) {
            match entry {
                Compressing::Ready(batch) => {
                    actions.push(Action::FailClosed { index, batch: *batch, kind: reason.clone() });
                }
                Compressing::InWorker(_) => partition.compressing.push_back(entry),
            }
        }
    }

    /// Fails the batches of requests that wait for their connections. They are not sent any more.
    pub(super) fn fail_waiting(&mut self, reason: &ProduceErrorKind, actions: &mut Vec<Action>) {
        for TakenBatch { index, batch, .. } in self.take_in_flight(|_, has_left, _, _| !has_left) {
            self.fail(index, batch, reason.clone(), actions);
        }
    }

    fn fail_in_flight(&mut self, reason: &ProduceErrorKind, actions: &mut Vec<Action>) {
        for TakenBatch { index, batch, .. } in self.take_in_flight(|_, _, _, _| true) {
            self.fail(index, batch, reason.clone(), actions);
        }
    }

    /// Takes the batches that `is_wanted` selects from their requests, in the order of sending.
    fn take_in_flight(
        &mut self,
        is_wanted: impl Fn(i32, bool, &Partition, &Batch) -> bool,
    ) -> Vec<TakenBatch> {
        let mut taken = Vec::new();
        for (id, request) in &mut self.requests {
            let (node, has_left) = (request.node, request.has_left);
            for (index, slot) in &mut request.batches {
                let (index, partition) = (*index, &self.partitions[*index]);
                if let Some(mut batch) = slot.take_if(|batch| is_wanted(node, has_left, partition, batch)) {
                    batch.possibly_written |= has_left;
                    taken.push((*id, TakenBatch { node, has_left, index, batch }));
                }
            }
        }
        // The map's own order depends on chance. The sort keeps the order within a request.
        taken.sort_by_key(|(id, _)| *id);
        taken.into_iter().map(|(_, taken)| taken).collect()
    }
}

/// A batch that was taken from its request.
struct TakenBatch {
    node: i32,
    /// The request was passed to a connection.
    has_left: bool,
    index: usize,
    batch: Batch,
}
