//! The choice of what is sent now: batches from queues into requests to leaders.
//!
//! Batching adapts to the broker (Nagle's algorithm, applied to batches). While nothing is in flight to a leader, queued
//! records are sent at once. Otherwise records collect until the response comes, a batch is full, or `linger.ms` has
//! passed. Behind a large request to a near broker a full batch waits for the response too (`pacing.rs`).

use std::time::Duration;

use ottla_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use tokio::time::Instant;

use super::super::batch::{AckSettings, Batch, Compressing, Partition};
use super::super::compressor::{ClosedBatch, close, is_worth_worker};
use super::super::queue::OpenBatch;
use super::{
    Action, Environment, InFlight, Leader, LinkState, OutgoingRequest, ProduceCore, accept_closed, earliest,
};
use crate::timer::wire_ms;

/// With adaptive batching an open batch waits at most this long for the response to an earlier request.
const ADAPTIVE_LINGER: Duration = Duration::from_millis(5);

/// The arguments of one poll.
pub(super) struct Poll<'a, E> {
    pub(super) now: Instant,
    /// `true` sends open batches at once.
    pub(super) urgent: bool,
    pub(super) environment: &'a mut E,
    pub(super) actions: &'a mut Vec<Action>,
    /// The time of the next poll.
    pub(super) wake_at: &'a mut Option<Instant>,
}

/// Partitions whose batches may share a request.
#[derive(Debug)]
struct Group {
    node: i32,
    ack_settings: AckSettings,
    partitions: Vec<usize>,
    /// `true` if nothing is in flight to the node: queued records need not wait.
    is_idle: bool,
}

/// The batches of a request that is being assembled.
#[derive(Debug, Default)]
struct Assembly {
    batches: Vec<(usize, Batch)>,
    bytes: usize,
}

impl Assembly {
    /// `true` if a batch of `bytes` fits below `max` with those that are here; a first batch always does.
    fn has_room(&self, bytes: usize, max: usize) -> bool {
        self.bytes == 0 || self.bytes + bytes <= max
    }
}

impl ProduceCore {
    /// Sends what may go from all active partitions.
    pub(super) fn drain(&mut self, poll: &mut Poll<'_, impl Environment>) {
        self.drop_idle(poll.environment);
        let mut active = std::mem::take(&mut self.active);
        self.drain_partitions(&active, poll);
        self.active.append(&mut active);
    }

    /// Sends what may go from these partitions.
    pub(super) fn drain_partitions(&mut self, candidates: &[usize], poll: &mut Poll<'_, impl Environment>) {
        let mut groups = self.group_by_leader(candidates, poll);
        // The group and the partition that come first in this request come last in the next.
        let turn = self.next_request as usize;
        if groups.len() > 1 {
            let first = turn % groups.len();
            groups.rotate_left(first);
        }
        for mut group in groups {
            let first = turn % group.partitions.len();
            group.partitions.rotate_left(first);
            while self.send_to(&group, poll) {
                group.is_idle = false;
            }
        }
    }

    fn group_by_leader(&mut self, candidates: &[usize], poll: &mut Poll<'_, impl Environment>) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for index in candidates.iter().copied() {
            if self.partitions[index].number < 0 || poll.environment.is_paused(index) {
                continue;
            }
            self.compress_full(index, poll);
            if self.must_be_added(index) {
                continue;
            }
            let partition = &mut self.partitions[index];
            if let Some(until) = partition.blocked_until {
                if until > poll.now {
                    earliest(poll.wake_at, until);
                    continue;
                }
                partition.blocked_until = None;
            }
            // The retried batches of a partition go one at a time: nothing may overtake them.
            if !partition.retry.is_empty() && partition.in_flight > 0 {
                continue;
            }
            let Some(node) = poll.environment.leader(index) else {
                poll.actions.push(Action::RefreshMetadata);
                continue;
            };
            let ack_settings = AckSettings::of(&partition.config);
            let known =
                groups.iter_mut().find(|group| group.node == node && group.ack_settings == ack_settings);
            if let Some(group) = known {
                group.partitions.push(index);
            } else {
                let is_idle = self.leaders.get(&node).is_none_or(|leader| leader.in_flight == 0);
                groups.push(Group { node, ack_settings, partitions: vec![index], is_idle });
            }
        }
        groups
    }

    /// Gives the partition's full batches to the worker if compressing them is worth it.
    fn compress_full(&mut self, index: usize, poll: &mut Poll<'_, impl Environment>) {
        if !self.has_worker {
            return;
        }
        let config = self.partitions[index].config.clone();
        while is_worth_worker(usize::MAX, &config)
            && let Some(open) = poll
                .environment
                .take(index, &mut |waiting| waiting.full && is_worth_worker(waiting.bytes, &config))
        {
            self.compress_in_worker(index, open, poll.actions);
        }
    }

    fn compress_in_worker(&mut self, index: usize, open: OpenBatch, actions: &mut Vec<Action>) {
        let partition = &mut self.partitions[index];
        let slot = partition.next_slot;
        partition.next_slot += 1;
        partition.compressing.push_back(Compressing::InWorker(slot));
        actions.push(Action::Compress { index, slot, open });
    }

    /// Sends one request to the group's node if there is a reason to; `true` if another may follow.
    fn send_to(&mut self, group: &Group, poll: &mut Poll<'_, impl Environment>) -> bool {
        if !self.may_send_to(group.node, poll) {
            return false;
        }
        let mut assembly = Assembly::default();
        for &index in &group.partitions {
            let Some(batch) = self.next_batch(index, group, &assembly, poll) else { continue };
            let partition = &mut self.partitions[index];
            assembly.bytes += batch.sealed.len();
            partition.in_flight += 1;
            partition.sent_to = group.node;
            assembly.batches.push((index, batch));
        }
        let Assembly { batches, bytes } = assembly;
        if batches.is_empty() {
            return false;
        }
        let has_left = poll.environment.link(group.node) != LinkState::Closed;
        self.send(group.node, has_left, group.ack_settings, batches, poll.actions);
        let leader = self.leaders.entry(group.node).or_default();
        leader.in_flight += 1;
        leader.pacing.sent(bytes, poll.now);
        true
    }

    /// `true` if one more request may go to the node now.
    fn may_send_to(&mut self, node: i32, poll: &mut Poll<'_, impl Environment>) -> bool {
        let Leader { in_flight, pacing } = self.leaders.entry(node).or_default();
        if *in_flight >= self.config.max_in_flight_requests_per_connection {
            return false;
        }
        let link = poll.environment.link(node);
        // A request in flight on a connection that broke is not overtaken by one on the next connection.
        if *in_flight > 0 && link == LinkState::Closed {
            return false;
        }
        // With `linger.ms` set, the application has decided which batches wait, and how long.
        if *in_flight > 0
            && self.config.linger.is_none()
            && let Some(until) = pacing.holds(poll.now)
        {
            earliest(poll.wake_at, until);
            return false;
        }
        link != LinkState::BackedUp
    }

    /// The partition's next batch for a request, if it may go now and fits.
    fn next_batch(
        &mut self,
        index: usize,
        group: &Group,
        assembly: &Assembly,
        poll: &mut Poll<'_, impl Environment>,
    ) -> Option<Batch> {
        let bytes_max = self.config.max_request_size;
        let partition = &mut self.partitions[index];
        if !partition.may_follow(group.node, self.config.enable_idempotence, poll.now) {
            return None;
        }
        if let Some(id) = self.producer_id {
            partition.take_next_id(id);
        }
        if !partition.retry.is_empty() {
            if partition.in_flight > 0 {
                return None;
            }
            let next = partition.next_retry(group.node);
            let fits = assembly.has_room(partition.retry[next].sealed.len(), bytes_max);
            return if fits { partition.retry.remove(next) } else { None };
        }
        if let Some(first) = partition.compressing.front() {
            // The batches behind one that is being compressed wait for it.
            let Compressing::Ready(ready) = first else { return None };
            if !assembly.has_room(ready.closed.len(), bytes_max) {
                return None;
            }
            let Some(Compressing::Ready(ready)) = partition.compressing.pop_front() else { return None };
            return Some(self.seal(index, *ready));
        }
        let open = self.take_open(index, group, assembly, poll)?;
        let config = &self.partitions[index].config;
        if self.has_worker && is_worth_worker(open.builder.len(), config) {
            self.compress_in_worker(index, open, poll.actions);
            return None;
        }
        let closed = close(open, config);
        let closed = accept_closed(index, closed, poll.actions)?;
        Some(self.seal(index, closed))
    }

    /// Takes a batch from the partition's queue if it is full, or need not wait for more records.
    fn take_open(
        &self,
        index: usize,
        group: &Group,
        assembly: &Assembly,
        poll: &mut Poll<'_, impl Environment>,
    ) -> Option<OpenBatch> {
        let Poll { now, urgent, environment, wake_at, .. } = poll;
        let (linger, is_due) = match self.config.linger {
            Some(linger) => (linger, *urgent),
            None => (ADAPTIVE_LINGER, *urgent || group.is_idle),
        };
        environment.take(index, &mut |waiting| {
            // The partition may have been paused since the leaders were grouped.
            if waiting.paused {
                return false;
            }
            if !waiting.full && !is_due && waiting.age(*now) < linger {
                earliest(wake_at, waiting.since + linger);
                return false;
            }
            assembly.has_room(waiting.bytes, self.config.max_request_size)
        })
    }

    fn seal(&mut self, index: usize, closed: ClosedBatch) -> Batch {
        let is_transactional = self.config.transactional_id.is_some();
        self.partitions[index].seal(closed, self.producer_id, is_transactional)
    }

    /// The connection for a request is open. Its batches that have an outcome by now are taken out: they must not be written. Returns
    /// `false` if none is left; the request then ends as one that was not sent.
    pub(in crate::produce) fn on_connected(&mut self, outgoing: &mut OutgoingRequest) -> bool {
        let Some(request) = self.requests.get_mut(&outgoing.id) else { return false };
        request.has_left = true;
        if request.batches.iter().any(|(_, batch)| batch.is_none()) {
            outgoing.request.topic_data = topic_data(self.batches_of(outgoing.id));
            outgoing.has_zstd = self.batches_of(outgoing.id).any(|(_, batch)| batch.is_zstd());
        }
        !outgoing.request.topic_data.is_empty()
    }

    fn send(
        &mut self,
        node: i32,
        has_left: bool,
        ack_settings: AckSettings,
        mut batches: Vec<(usize, Batch)>,
        actions: &mut Vec<Action>,
    ) {
        for (_, batch) in &mut batches {
            batch.attempts += 1;
            batch.node = Some(node);
        }
        let parts = batches.iter().map(|(index, batch)| (&self.partitions[*index], batch));
        let request = ProduceRequest {
            transactional_id: self.config.transactional_id.clone(),
            acks: ack_settings.acks.code(),
            timeout_ms: wire_ms(ack_settings.ack_timeout),
            topic_data: topic_data(parts),
        };
        let id = self.next_request;
        self.next_request += 1;
        let has_zstd = batches.iter().any(|(_, batch)| batch.is_zstd());
        let batches = batches.into_iter().map(|(index, batch)| (index, Some(batch))).collect();
        self.requests.insert(id, InFlight { node, has_left, batches });
        let version_max = self.produce_version_max();
        let acks = ack_settings.acks;
        actions.push(Action::Send(OutgoingRequest { id, node, acks, has_zstd, version_max, request }));
    }
}

/// The batches in the form of a request.
fn topic_data<'a>(batches: impl Iterator<Item = (&'a Partition, &'a Batch)>) -> Vec<TopicProduceData> {
    let mut topics: Vec<TopicProduceData> = Vec::new();
    for (Partition { topic, number, .. }, batch) in batches {
        let data = PartitionProduceData { index: *number, records: Some(batch.sealed.chain().clone()) };
        match topics.iter_mut().find(|entry| *entry.name == **topic) {
            Some(entry) => entry.partition_data.push(data),
            None => topics.push(TopicProduceData {
                name: topic.to_string(),
                partition_data: vec![data],
                ..Default::default()
            }),
        }
    }
    topics
}
