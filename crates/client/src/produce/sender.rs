//! The engine's half of producing: takes batches out of the queues, seals them, sends them to their leaders, and
//! decides what each answer means.
//!
//! Batching adapts (Nagle's idea, at the layer that knows the batches): while nothing is in flight to a leader, what is queued goes at once; while something
//! is, records collect until the answer comes, a batch is full, or `linger.ms` has passed. Behind a large request to a broker
//! that is near, a full batch waits for the answer too (`pacing.rs`).

use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use ottla_protocol::messages::init_producer_id::InitProducerIdRequest;
use ottla_protocol::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use ottla_protocol::{ErrorCode, Uuid};
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::batch::{Batch, Closing, Partition, Terms};
use super::compressor::{ClosedBatch, Compressed, Compressor, Uncompressed, close};
use super::idempotence::ProducerId;
use super::pacing::Pacing;
use super::queue::{OpenBatch, Queue};
use super::transactional::Participation;
use super::{Concluded, Produce};
use crate::alarm::Alarm;
use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::config::Acks;
use crate::error::{Error, Persisted, ProduceErrorKind};
use crate::net::connection::Connection;
use crate::stats::Sent;
use crate::transaction::machine::Machine;

/// Version 13 names topics by id; names work with every broker.
const PRODUCE_VERSION_MAX: i16 = 12;
/// With adaptive batching a batch that waits for an answer waits no longer than this.
const ADAPTIVE_LINGER: Duration = Duration::from_millis(5);
/// How often overdue batches are looked for.
const EXPIRY_EVERY: Duration = Duration::from_millis(100);

/// What a leader's connection carries.
#[derive(Debug, Default)]
pub(super) struct Leader {
    pub(super) connection: Option<Rc<Connection>>,
    pub(super) in_flight: usize,
    pub(super) pacing: Pacing,
}

/// Partitions whose batches may travel in one request.
#[derive(Debug)]
struct Group {
    node: i32,
    terms: Terms,
    partitions: Vec<usize>,
    /// Whether nothing is in flight to the node: what is queued need not wait for anything.
    idle: bool,
}

#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) node: i32,
    /// What it carries, with the partition's place; nothing any more when it was purged.
    pub(super) batches: Vec<(usize, Option<Batch>)>,
}

/// What happens elsewhere and concerns the sender.
pub(super) enum Event {
    Answer {
        request: u64,
        result: Result<ProduceResponse, Error>,
        connection: Option<Rc<Connection>>,
        /// Whether it may have left: a failure to connect is certain not to.
        sent: bool,
    },
    ProducerId(Result<ProducerId, Error>),
    /// The coordinator knows that the transaction writes to these partitions.
    Prepared {
        added: Vec<usize>,
    },
}

/// Which partitions a turn looks at. With very many of them, looking at all for each that gets a record would cost the
/// square of their number.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Look {
    All,
    /// Those that were told to have something new: nothing has changed for the others.
    Fresh,
}

/// The task that sends.
pub(crate) struct Sender {
    pub(super) cluster: Rc<Cluster>,
    pub(super) produce: Arc<Produce>,
    pub(super) partitions: Vec<Partition>,
    /// Those of them that have something to send, or in flight.
    pub(super) active: Vec<usize>,
    compressor: Compressor,
    /// Somebody was refused for want of memory: nothing lingers.
    pressed: bool,
    /// The ids that topics had when metadata last came.
    pub(super) topic_ids: FxHashMap<Arc<str>, Uuid>,
    /// Where each queue's partition stands in `partitions`.
    index: FxHashMap<(Arc<str>, i32), usize>,
    pub(super) leaders: FxHashMap<i32, Leader>,
    pub(super) requests: FxHashMap<u64, InFlight>,
    pub(super) next_request: u64,
    pub(super) producer_id: Option<ProducerId>,
    asking_producer_id: bool,
    producer_id_at: Option<Instant>,
    pub(super) transaction: Participation,
    events_in: mpsc::UnboundedSender<Event>,
    /// Produce requests that wait for their answers: polled here, because a task for each would be woken first.
    answers: FuturesUnordered<Pin<Box<dyn Future<Output = Event>>>>,
    tasks: JoinSet<()>,
    ready: Vec<Arc<Queue>>,
    /// Partitions that have something new since the last turn.
    fresh: Vec<usize>,
    /// When to look at all partitions again.
    wake_at: Option<Instant>,
    expire_at: Instant,
}

impl Sender {
    /// Runs until the engine drops it.
    pub(crate) async fn run(cluster: Rc<Cluster>, produce: Arc<Produce>, threads: bool) {
        let (events_in, mut events) = mpsc::unbounded_channel();
        let (compressor, mut compressed) = Compressor::new(threads);
        let mut changes = cluster.changes();
        let mut sender = Self {
            cluster,
            partitions: Vec::new(),
            active: Vec::new(),
            pressed: false,
            compressor,
            produce,
            topic_ids: FxHashMap::default(),
            index: FxHashMap::default(),
            leaders: FxHashMap::default(),
            requests: FxHashMap::default(),
            next_request: 0,
            producer_id: None,
            asking_producer_id: false,
            producer_id_at: None,
            transaction: Participation::default(),
            events_in,
            answers: FuturesUnordered::new(),
            tasks: JoinSet::new(),
            ready: Vec::new(),
            fresh: Vec::new(),
            wake_at: None,
            expire_at: Instant::now(),
        };
        let produce = sender.produce.clone();
        let mut look_at = Look::All;
        let mut alarm = Alarm::new();
        loop {
            sender.pump(Instant::now(), look_at);
            alarm.set(sender.wake_at);
            look_at = Look::All;
            tokio::select! {
                biased;
                Some(event) = events.recv() => {
                    sender.on_event(event);
                    while let Ok(event) = events.try_recv() {
                        sender.on_event(event);
                    }
                }
                Some(answer) = sender.answers.next() => sender.on_event(answer),
                Some(done) = compressed.recv() => sender.on_compressed(done),
                () = produce.queues.wake.notified() => look_at = Look::Fresh,
                () = changes.changed() => sender.on_layout(),
                Some(_) = sender.tasks.join_next() => {}
                () = alarm.rings() => {}
            }
        }
    }

    /// Takes in what is new, sends what may go, and says when to look again.
    fn pump(&mut self, now: Instant, look_at: Look) {
        self.fresh.clear();
        self.list_ready();
        self.pressed = self.produce.queues.memory.take_pressed();
        let purge = self.produce.take_purge();
        let fresh_only = look_at == Look::Fresh
            && purge.is_none()
            && !self.pressed
            && now < self.expire_at
            && self.produce.queues.flushing.load(Ordering::Relaxed) == 0
            && self.produce.transactions.id.is_none();
        let mut wake_at = self.wake_at.filter(|_| fresh_only);
        if now >= self.expire_at {
            self.expire(now);
            self.expire_at = now + EXPIRY_EVERY;
        }
        if let Some(purge) = purge {
            self.purge(purge);
        }
        let unassigned = if fresh_only { self.fresh.clone() } else { self.active.clone() };
        self.forward_unassigned(&unassigned);
        if self.produce.observer.take_survey_wish() {
            self.produce.observer.survey(self.survey());
        }
        if self.produce.transactions.has_gap() {
            self.discard();
        } else if self.produce.transactions.id.is_some() {
            self.pump_transaction(now, &mut wake_at);
        } else if self.produce.config.idempotence && self.producer_id.is_none() {
            self.ask_producer_id(now, &mut wake_at);
        } else if fresh_only {
            let fresh = std::mem::take(&mut self.fresh);
            self.drain_from(&fresh, now, &mut wake_at);
            self.fresh = fresh;
        } else {
            self.drain(now, &mut wake_at);
        }
        if !self.active.is_empty() {
            earliest(&mut wake_at, self.expire_at);
        }
        self.wake_at = wake_at;
    }

    pub(super) fn list_ready(&mut self) {
        let mut ready = std::mem::take(&mut self.ready);
        self.produce.queues.take_ready(&mut ready);
        for queue in ready.drain(..) {
            let at = *self.index.entry((queue.topic.clone(), queue.partition)).or_insert_with(|| {
                self.partitions.push(Partition::new(queue.clone()));
                self.partitions.len() - 1
            });
            self.cluster.want(&queue.topic);
            self.activate(at);
            self.fresh.push(at);
        }
        // A partition that filled batch after batch comes several times, and may be in a request only once.
        self.fresh.sort_unstable();
        self.fresh.dedup();
        self.ready = ready;
    }

    pub(super) fn activate(&mut self, at: usize) {
        if !self.partitions[at].active {
            self.partitions[at].active = true;
            self.active.push(at);
        }
    }

    /// Forgets the partitions that have nothing to send and nothing in flight.
    pub(super) fn drop_idle(&mut self) {
        let mut active = std::mem::take(&mut self.active);
        active.retain(|at| {
            let partition = &mut self.partitions[*at];
            partition.active = !partition.is_idle() || !partition.queue.unlist_if_empty(&self.produce.queues);
            partition.active
        });
        self.active = active;
    }

    /// Sends to every leader what may go to it.
    pub(super) fn drain(&mut self, now: Instant, wake_at: &mut Option<Instant>) {
        self.drop_idle();
        let mut active = std::mem::take(&mut self.active);
        self.drain_from(&active, now, wake_at);
        self.active.append(&mut active);
    }

    /// Sends to every leader what may go to it from these partitions.
    fn drain_from(&mut self, candidates: &[usize], now: Instant, wake_at: &mut Option<Instant>) {
        let mut groups: Vec<Group> = Vec::new();
        for at in candidates.iter().copied() {
            if self.partitions[at].queue.partition < 0 {
                continue;
            }
            self.compress_full(at);
            if self.must_be_added(at) {
                continue;
            }
            let partition = &mut self.partitions[at];
            if let Some(until) = partition.blocked_until {
                if until > now {
                    earliest(wake_at, until);
                    continue;
                }
                partition.blocked_until = None;
            }
            // The retried batches of a partition go one at a time: nothing may overtake them.
            if !partition.retry.is_empty() && partition.in_flight > 0 {
                continue;
            }
            let Some(leader) = self.cluster.leader(&partition.queue.topic, partition.queue.partition) else {
                self.cluster.refresh();
                continue;
            };
            let terms = Terms::of(&partition.queue.config);
            let known = groups.iter_mut().find(|group| group.node == leader && group.terms == terms);
            if let Some(group) = known {
                group.partitions.push(at);
            } else {
                let idle = self.leaders.get(&leader).is_none_or(|leader| leader.in_flight == 0);
                groups.push(Group { node: leader, terms, partitions: vec![at], idle });
            }
        }
        // Whoever came last in one request comes first in the next.
        let turn = self.next_request as usize;
        if groups.len() > 1 {
            let first = turn % groups.len();
            groups.rotate_left(first);
        }
        for mut group in groups {
            let first = turn % group.partitions.len();
            group.partitions.rotate_left(first);
            while self.send_to(&group, now, wake_at) {
                group.idle = false;
            }
        }
    }

    /// Hands the partition's full batches to the worker, if compressing them is worth it.
    fn compress_full(&mut self, at: usize) {
        while let Some(waiting) = self.partitions[at].queue.waiting()
            && waiting.full
            && self.compressor.wants(waiting.bytes, &self.partitions[at].queue.config)
            && let Some(open) = self.partitions[at].queue.take(false)
        {
            self.hand_over(at, open);
        }
    }

    fn hand_over(&mut self, at: usize, open: OpenBatch) {
        let partition = &mut self.partitions[at];
        let slot = partition.next_slot;
        partition.next_slot += 1;
        match self.compressor.hand_over(at, slot, open, &partition.queue.config) {
            Ok(()) => partition.closing.push_back(Closing::Away(slot)),
            Err(open) => {
                let closed = close(open, &partition.queue.config);
                if let Some(batch) = self.closed(at, closed) {
                    self.partitions[at].closing.push_back(Closing::Ready(Box::new(batch)));
                }
            }
        }
    }

    /// Books a closed batch by the size it has now; one that could not be compressed fails.
    fn closed(&mut self, at: usize, closed: Result<ClosedBatch, Uncompressed>) -> Option<ClosedBatch> {
        let queues = &self.produce.queues;
        match closed {
            Ok(mut batch) => {
                let memory = batch.closed.memory() + batch.told.memory();
                if memory < batch.memory {
                    queues.memory.release(batch.memory - memory, 0);
                    batch.memory = memory;
                }
                Some(batch)
            }
            Err(Uncompressed { error, told, memory, count }) => {
                let queue = &self.partitions[at].queue;
                let kind = ProduceErrorKind::Compress(error.to_string());
                let partition = queue.partition;
                let batch = Concluded { queue, partition, told, created: None, count, memory, records: None };
                self.produce.conclude(batch, Produce::failed(queue, kind, Persisted::NotWritten));
                None
            }
        }
    }

    /// Sends one request if there is reason to; `true` if another may follow.
    fn send_to(&mut self, group: &Group, now: Instant, wake_at: &mut Option<Instant>) -> bool {
        let node = group.node;
        let config = self.produce.config.clone();
        let transactional = config.transactional_id.is_some();
        let Leader { connection, in_flight, pacing } = self.leaders.entry(node).or_default();
        let in_flight = *in_flight;
        // What is in flight on a connection that broke is not overtaken on the next one.
        let broken = in_flight > 0 && !connection.as_ref().is_some_and(|connection| connection.is_open());
        if in_flight >= config.in_flight_max || broken {
            return false;
        }
        // An explicit linger says what waits, and for how long.
        if in_flight > 0
            && config.linger.is_none()
            && let Some(until) = pacing.holds(now)
        {
            earliest(wake_at, until);
            return false;
        }
        let wake = &self.produce.queues.wake;
        if connection.as_ref().is_some_and(|it| it.is_backed_up(config.backpressure_requests, wake)) {
            return false;
        }
        let flushing = self.pressed || self.produce.queues.flushing.load(Ordering::Relaxed) > 0;
        let mut batches: Vec<(usize, Batch)> = Vec::new();
        let mut bytes = 0;
        for &at in &group.partitions {
            let partition = &mut self.partitions[at];
            // Nor on the way to another leader, nor where the broker cannot tell what is out of order.
            let in_order =
                partition.sent_to == node && (partition.numbering.is_known() || !config.idempotence);
            if partition.in_flight > 0 && !in_order {
                continue;
            }
            let batch = if !partition.retry.is_empty() {
                if partition.in_flight > 0 {
                    continue;
                }
                let next = partition.next_retry(node);
                if bytes > 0 && bytes + partition.retry[next].sealed.len() > config.request_bytes_max {
                    continue;
                }
                partition.retry.remove(next)
            } else if let Some(closing) = partition.closing.front() {
                // What follows it waits behind it.
                let Closing::Ready(ready) = closing else { continue };
                if bytes > 0 && bytes + ready.closed.len() > config.request_bytes_max {
                    continue;
                }
                let Some(Closing::Ready(ready)) = partition.closing.pop_front() else { continue };
                Some(partition.seal(*ready, self.producer_id, transactional))
            } else {
                let Some(waiting) = partition.queue.waiting() else { continue };
                let age = waiting.age(now);
                let (linger, idle_goes) = match config.linger {
                    Some(linger) => (linger, false),
                    None => (ADAPTIVE_LINGER, group.idle),
                };
                let open_too = flushing || idle_goes || age >= linger;
                if !open_too && !waiting.full {
                    earliest(wake_at, waiting.since + linger);
                    continue;
                }
                if bytes > 0 && bytes + waiting.bytes > config.request_bytes_max {
                    continue;
                }
                let Some(open) = partition.queue.take(open_too) else { continue };
                if self.compressor.wants(waiting.bytes, &partition.queue.config) {
                    self.hand_over(at, open);
                    continue;
                }
                let closed = close(open, &partition.queue.config);
                let closed = self.closed(at, closed);
                closed.map(|closed| self.partitions[at].seal(closed, self.producer_id, transactional))
            };
            let Some(batch) = batch else { continue };
            let partition = &mut self.partitions[at];
            bytes += batch.sealed.len();
            partition.in_flight += 1;
            partition.sent_to = node;
            batches.push((at, batch));
        }
        if batches.is_empty() {
            return false;
        }
        self.send(node, group.terms, batches);
        self.leaders.entry(node).or_default().pacing.sent(bytes, now);
        true
    }

    fn send(&mut self, node: i32, terms: Terms, mut batches: Vec<(usize, Batch)>) {
        let config = &self.produce.config;
        if config.transactional_id.is_some() {
            self.produce.transactions.update(Machine::touch);
        }
        let version_max = self.produce_version_max(PRODUCE_VERSION_MAX);
        let mut request = ProduceRequest {
            transactional_id: config.transactional_id.clone(),
            acks: terms.acks.code(),
            timeout_ms: terms.ack_timeout.as_millis() as i32,
            ..Default::default()
        };
        for (at, batch) in &mut batches {
            batch.attempts += 1;
            let Queue { topic, partition, .. } = &*self.partitions[*at].queue;
            let sent = Sent {
                node,
                topic,
                partition: *partition,
                order: batch.order,
                records: batch.sealed.header.record_count as u64,
                bytes: batch.sealed.len() as u64,
                created: batch.created,
            };
            self.produce.observer.batch_sent(sent);
            let data =
                PartitionProduceData { index: *partition, records: Some(batch.sealed.chain().clone()) };
            match request.topic_data.iter_mut().find(|entry| *entry.name == **topic) {
                Some(entry) => entry.partition_data.push(data),
                None => request.topic_data.push(TopicProduceData {
                    name: topic.to_string(),
                    partition_data: vec![data],
                    ..Default::default()
                }),
            }
        }
        let id = self.next_request;
        self.next_request += 1;
        let zstd = batches.iter().any(|(_, batch)| batch.is_zstd());
        let batches = batches.into_iter().map(|(at, batch)| (at, Some(batch))).collect();
        self.requests.insert(id, InFlight { node, batches });
        let leader = self.leaders.entry(node).or_default();
        leader.in_flight += 1;

        let answered = terms.acks != Acks::None;
        let timeout = config.request_timeout;
        let open = leader.connection.clone().filter(|connection| connection.is_open());
        let report = move |result, connection, sent| Event::Answer { request: id, result, connection, sent };
        match open {
            Some(connection) if answered => {
                // Into the outbox now: requests to a leader leave in the order in which they were made.
                let refused = if zstd { connection.refuses_zstd() } else { None };
                let begun = refused.map_or_else(|| connection.begin(version_max, |_| request), Err);
                self.answers.push(Box::pin(async move {
                    match begun {
                        Ok(pending) => report(pending.answer(timeout).await, None, true),
                        Err(error) => report(Err(error), None, false),
                    }
                }));
            }
            _ => {
                let cluster = self.cluster.clone();
                self.answers.push(Box::pin(async move {
                    match cluster.brokers.connection(node, Lane::Produce).await {
                        Ok(connection) => {
                            if let Some(error) = connection.refuses_zstd().filter(|_| zstd) {
                                return report(Err(error), Some(connection), false);
                            }
                            let result = if answered {
                                connection.call(version_max, timeout, |_| request).await
                            } else {
                                let told = connection.tell(version_max, timeout, |_| request).await;
                                told.map(|()| ProduceResponse::default())
                            };
                            report(result, Some(connection), true)
                        }
                        Err(error) => report(Err(error), None, false),
                    }
                }));
            }
        }
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Prepared { added } => self.on_prepared(added),
            Event::Answer { request, result, connection, sent } => {
                self.on_answer(request, result, connection, sent);
            }
            Event::ProducerId(result) => {
                self.asking_producer_id = false;
                match result {
                    Ok(id) => {
                        self.produce.observer.producer_id(id.id, id.epoch);
                        self.producer_id = Some(id);
                    }
                    Err(error) => tracing::debug!(%error, "no producer id yet"),
                }
            }
        }
    }

    /// Whether a producer id or epoch was asked for and has not come.
    pub(super) fn is_asking(&self) -> bool {
        self.asking_producer_id || self.transaction.is_preparing()
    }

    pub(super) fn events(&self) -> mpsc::UnboundedSender<Event> {
        self.events_in.clone()
    }

    /// Starts work that ends with the sender.
    pub(super) fn spawn(&mut self, work: impl Future<Output = ()> + 'static) {
        self.tasks.spawn_local(work);
    }

    fn on_compressed(&mut self, Compressed { at, slot, batch }: Compressed) {
        let batch = self.closed(at, batch);
        let partition = &mut self.partitions[at];
        let away = |closing: &Closing| matches!(closing, Closing::Away(away) if *away == slot);
        let Some(place) = partition.closing.iter().position(away) else { return };
        match batch {
            Some(batch) if slot >= partition.purged_below => {
                partition.closing[place] = Closing::Ready(Box::new(batch));
            }
            batch => {
                partition.closing.remove(place);
                if let Some(batch) = batch {
                    self.fail_closed(at, batch, ProduceErrorKind::Purged { in_flight: false });
                }
            }
        }
    }

    fn ask_producer_id(&mut self, now: Instant, wake_at: &mut Option<Instant>) {
        if self.asking_producer_id || self.active.is_empty() {
            return;
        }
        if let Some(at) = self.producer_id_at.filter(|at| *at > now) {
            earliest(wake_at, at);
            return;
        }
        self.asking_producer_id = true;
        self.producer_id_at = Some(now + self.produce.config.retry_backoff);
        let (cluster, events) = (self.cluster.clone(), self.events_in.clone());
        self.tasks.spawn_local(async move {
            let request = |_| InitProducerIdRequest {
                transactional_id: None,
                transaction_timeout_ms: i32::MAX,
                producer_id: -1,
                producer_epoch: -1,
                ..Default::default()
            };
            let result = cluster.call_any(INIT_PRODUCER_ID_VERSION_MAX, request).await.and_then(|response| {
                match response.error_code {
                    ErrorCode::None => {
                        Ok(ProducerId { id: response.producer_id, epoch: response.producer_epoch })
                    }
                    code => Err(Error::Broker { what: "InitProducerId".into(), code }),
                }
            });
            let _ = events.send(Event::ProducerId(result));
        });
    }
}

impl Drop for Sender {
    /// The engine ends: what is still here fails, instead of leaving those who wait for it waiting.
    fn drop(&mut self) {
        let closed = ProduceErrorKind::Closed;
        let requests: BTreeMap<u64, InFlight> = self.requests.drain().collect();
        for (at, batch) in requests.into_values().flat_map(|request| request.batches) {
            let Some(mut batch) = batch else { continue };
            batch.possibly_written = true;
            self.fail(at, batch, closed.clone());
        }
        for at in 0..self.partitions.len() {
            while let Some(batch) = self.partitions[at].retry.pop_front() {
                self.fail(at, batch, closed.clone());
            }
            for closing in std::mem::take(&mut self.partitions[at].closing) {
                if let Closing::Ready(batch) = closing {
                    self.fail_closed(at, *batch, closed.clone());
                }
            }
        }
    }
}

const INIT_PRODUCER_ID_VERSION_MAX: i16 = 5;

fn earliest(wake_at: &mut Option<Instant>, at: Instant) {
    *wake_at = Some(wake_at.map_or(at, |other| other.min(at)));
}
