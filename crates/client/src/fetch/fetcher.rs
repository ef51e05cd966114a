//! The engine's half of consuming: one fetch at a time to each leader, as long as there is room in the inbox.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, LeaderIdAndEpoch, PartitionData,
};
use rustc_hash::FxHashMap;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::cursor::{Answer, Cursor, Next, Position, StartAt};
use super::cursors::{Cursors, Slot};
use super::inbox::{Inbox, Item};
use super::offsets::{isolation_code, resolve};
use super::place::{Ends, Place};
use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::config::OffsetReset;
use crate::consumer::TopicPartition;
use crate::error::Error;
use crate::log::Context;

/// Version 13 names topics by id; names work with every broker.
const FETCH_VERSION_MAX: i16 = 12;
/// Every fetch names its partitions (KIP-227's sessions come with the rest of the consumer).
const SESSIONLESS: i32 = -1;
/// How long a consumer waits after it was refused as who it is, or has refused the broker.
const SECURITY_PAUSE: Duration = Duration::from_secs(1);

enum Event {
    Fetched { node: i32, asked: Vec<Asked>, result: Result<FetchResponse, Error> },
    Resolved { slot: Slot, place: Arc<Place>, turn: u64, start: StartAt, result: Result<i64, Error> },
}

/// What one fetch asked for.
#[derive(Debug)]
struct Asked {
    slot: Slot,
    place: Arc<Place>,
    offset: i64,
    turn: u64,
}

/// What is to be fetched from one broker.
#[derive(Debug, Default)]
struct Leader {
    /// Partitions for the next fetch.
    list: Vec<Slot>,
    /// Whether a fetch is under way.
    busy: bool,
}

/// The task that fetches for one consumer.
pub(crate) struct Fetcher {
    cluster: Rc<Cluster>,
    cursors: Rc<Cursors>,
    inbox: Arc<Inbox>,
    leaders: BTreeMap<i32, Leader>,
    /// Cursors that wait for a moment.
    timers: BTreeSet<(Instant, Slot)>,
    events_in: mpsc::UnboundedSender<Event>,
    tasks: JoinSet<()>,
    turn: usize,
}

impl Fetcher {
    /// Runs until its owner drops it.
    pub(crate) async fn run(cluster: Rc<Cluster>, cursors: Rc<Cursors>, inbox: Arc<Inbox>) {
        let (events_in, mut events) = mpsc::unbounded_channel();
        let mut changes = cluster.changes();
        let mut fetcher = Self {
            cluster,
            cursors: cursors.clone(),
            inbox: inbox.clone(),
            leaders: BTreeMap::new(),
            timers: BTreeSet::new(),
            events_in,
            tasks: JoinSet::new(),
            turn: 0,
        };
        loop {
            let wake_at = fetcher.pump(Instant::now());
            let timer = async {
                match wake_at {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                Some(event) = events.recv() => fetcher.on_event(event),
                () = cursors.changed.notified() => {}
                () = inbox.emptied.notified() => {}
                () = changes.changed() => cursors.table().touch_all(),
                Some(_) = fetcher.tasks.join_next() => {}
                () = timer => {}
            }
        }
    }

    /// Starts what can be started, and says when to look again.
    fn pump(&mut self, now: Instant) -> Option<Instant> {
        let cursors = self.cursors.clone();
        let mut table = cursors.table();
        while let Some((at, slot)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, slot));
            table.touch(slot);
        }
        for slot in table.take_touched() {
            if let Some(cursor) = table.get_mut(slot) {
                self.look_at(cursor, now);
            }
        }
        drop(table);
        let ready: Vec<i32> = self
            .leaders
            .iter()
            .filter(|(_, leader)| !leader.busy && !leader.list.is_empty())
            .map(|(node, _)| *node)
            .collect();
        for node in ready {
            // One response per leader may lie in the inbox beside the one that is polled: fetching goes on as soon as
            // there is room for another, without any fixed pause.
            if self.inbox.bytes() < self.cluster.config.queued_bytes_max {
                self.fetch(node, now);
            }
        }
        self.timers.first().map(|(at, _)| *at)
    }

    /// Finds out what a cursor waits for, and puts it where that comes from.
    fn look_at(&mut self, cursor: &mut Cursor, now: Instant) {
        if let Some(until) = cursor.blocked_until.filter(|until| *until > now) {
            self.timers.insert((until, cursor.slot));
            return;
        }
        let at = cursor.place.at.clone();
        if let Position::Unresolved(start) = cursor.position {
            cursor.position = Position::Resolving(start);
            self.cluster.want(&at.topic);
            self.resolve(cursor, start);
        }
        if cursor.fetchable(now).is_none() {
            return;
        }
        let Some(leader) = self.cluster.leader(&at.topic, at.partition) else {
            self.cluster.want(&at.topic);
            self.cluster.refresh();
            return;
        };
        if cursor.listed_at != Some(leader) {
            cursor.listed_at = Some(leader);
            self.leaders.entry(leader).or_default().list.push(cursor.slot);
        }
    }

    fn fetch(&mut self, node: i32, now: Instant) {
        let Some(leader) = self.leaders.get_mut(&node) else { return };
        let mut asked = Vec::with_capacity(leader.list.len());
        let mut table = self.cursors.table();
        for slot in leader.list.drain(..) {
            // It may have gone to another leader, or its slot to another partition.
            let Some(cursor) = table.get_mut(slot).filter(|cursor| cursor.listed_at == Some(node)) else {
                continue;
            };
            cursor.listed_at = None;
            let Some(offset) = cursor.fetchable(now) else { continue };
            cursor.in_flight = true;
            asked.push(Asked { slot, place: cursor.place.clone(), offset, turn: cursor.place.turn() });
        }
        drop(table);
        if asked.is_empty() {
            return;
        }
        leader.busy = true;
        // Who comes first in a request is served first: take turns.
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn % asked.len();
        asked.rotate_left(turn);
        let config = self.cluster.config.clone();
        let room = config.queued_bytes_max.saturating_sub(self.inbox.bytes());
        let cluster = self.cluster.clone();
        let events = self.events_in.clone();
        self.tasks.spawn_local(async move {
            let fetching = async {
                let connection = cluster.brokers.connection(node, Lane::Fetch).await?;
                let topics = named(&asked, config.partition_fetch_bytes_max as i32);
                let request = |_| FetchRequest {
                    max_wait_ms: config.fetch_wait_max.as_millis() as i32,
                    min_bytes: config.fetch_bytes_min as i32,
                    max_bytes: config.fetch_bytes_max.min(room).max(1) as i32,
                    isolation_level: isolation_code(config.isolation),
                    session_id: 0,
                    session_epoch: SESSIONLESS,
                    topics,
                    ..Default::default()
                };
                connection
                    .call(FETCH_VERSION_MAX, config.request_timeout + config.fetch_wait_max, request)
                    .await
            };
            let result = fetching.await;
            let _ = events.send(Event::Fetched { node, asked, result });
        });
    }

    fn resolve(&mut self, cursor: &Cursor, start: StartAt) {
        let (cluster, events) = (self.cluster.clone(), self.events_in.clone());
        let (slot, place, turn) = (cursor.slot, cursor.place.clone(), cursor.place.turn());
        let asked = match start {
            StartAt::Committed => reset_to(self.cluster.config.offset_reset),
            other => other,
        };
        self.tasks.spawn_local(async move {
            let deadline = Instant::now() + cluster.config.request_timeout;
            let TopicPartition { topic, partition } = &place.at;
            let result = match cluster.await_topic(topic, deadline).await {
                Ok(_) => resolve(&cluster, topic, *partition, asked).await,
                Err(error) => Err(error),
            };
            let _ = events.send(Event::Resolved { slot, place, turn, start, result });
        });
    }

    fn on_event(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Fetched { node, asked, result } => {
                if let Some(leader) = self.leaders.get_mut(&node) {
                    leader.busy = false;
                }
                self.on_fetched(node, &asked, result, now);
            }
            Event::Resolved { slot, place, turn, start, result } => {
                self.on_resolved(slot, &place, turn, start, result, now);
            }
        }
    }

    fn on_resolved(
        &self,
        slot: Slot,
        place: &Arc<Place>,
        turn: u64,
        start: StartAt,
        result: Result<i64, Error>,
        now: Instant,
    ) {
        let mut table = self.cursors.table();
        let cursor = table.get_mut(slot).filter(|cursor| Arc::ptr_eq(&cursor.place, place));
        let Some(cursor) = cursor.filter(|_| place.turn() == turn) else { return };
        match result {
            Ok(offset) => cursor.go_to(offset),
            Err(error) if error.is_retriable() => {
                cursor.position = Position::Unresolved(start);
                cursor.blocked_until = Some(now + self.cluster.config.retry_backoff);
            }
            // The application is told, and the certificate or password may be mended yet.
            Err(error) if error.is_security() => {
                cursor.position = Position::Unresolved(start);
                cursor.blocked_until = Some(now + SECURITY_PAUSE);
                self.inbox.push(Item::Error(error));
            }
            Err(error) => {
                cursor.position = Position::Failed;
                self.inbox.push_to(slot, Item::Error(error));
            }
        }
        table.touch(slot);
    }

    fn on_fetched(&self, node: i32, asked: &[Asked], result: Result<FetchResponse, Error>, now: Instant) {
        let mut answers = FxHashMap::default();
        let problem = match result {
            Ok(response) if response.error_code == ErrorCode::None => {
                self.cluster.observer.throttled(node, response.throttle_time_ms);
                for node in &response.node_endpoints {
                    self.cluster.brokers.learn(node.node_id, &node.host, node.port as u16);
                }
                for topic in response.responses {
                    let topic_name: Arc<str> = topic.topic.into();
                    for answer in topic.partitions {
                        let partition = answer.partition_index;
                        answers.insert(TopicPartition { topic: topic_name.clone(), partition }, answer);
                    }
                }
                None
            }
            Ok(response) => Some(response.error_code.to_string()),
            Err(error) => {
                self.cluster.refresh();
                Some(error.to_string())
            }
        };
        if let Some(problem) = &problem {
            self.cluster
                .observer
                .log
                .debug(Context::Fetch, "FETCHERR", || format!("fetch from node {node}: {problem}"));
        }
        let mut table = self.cursors.table();
        for asked in asked {
            let answer = answers.remove(&asked.place.at);
            let cursor = table.get_mut(asked.slot);
            let Some(cursor) = cursor.filter(|cursor| Arc::ptr_eq(&cursor.place, &asked.place)) else {
                continue;
            };
            cursor.in_flight = false;
            if cursor.place.turn() == asked.turn {
                match answer {
                    Some(answer) => self.on_answer(node, cursor, asked.offset, answer, now),
                    None if problem.is_some() => self.block(cursor, now),
                    None => {}
                }
            }
            table.touch(asked.slot);
        }
    }

    fn on_answer(&self, node: i32, cursor: &mut Cursor, asked: i64, answer: PartitionData, now: Instant) {
        let TopicPartition { topic, partition } = &cursor.place.at.clone();
        let hint = answer.current_leader.clone();
        let ends = Ends {
            log_start: answer.log_start_offset,
            last_stable: answer.last_stable_offset,
            high_watermark: answer.high_watermark,
        };
        let aborted = answer.aborted_transactions.unwrap_or_default();
        let mut aborted: Vec<_> =
            aborted.iter().map(|entry| (entry.first_offset, entry.producer_id)).collect();
        // Kafka sorts them, not everybody does (FAULTS C18).
        aborted.sort_unstable();
        let records = answer.records.and_then(|chain| chain.to_bytes().ok());
        let watermarks = (ends.log_start, ends.high_watermark);
        self.cluster.observer.fetched(node, topic, *partition, asked, watermarks);
        let answer = Answer { asked, error: answer.error_code, ends, records, aborted };
        let slot = cursor.slot;
        let fail = |error| self.inbox.push_to(slot, Item::Error(error));
        match cursor.on_answer(answer, self.cluster.config.decompressed_bytes_max) {
            Next::Deliver(chunk) => self.inbox.push_to(slot, Item::Chunk(chunk)),
            Next::Nothing => {}
            // The new leader may be asked at once (KIP-951).
            Next::Retry { refresh: true } if self.learn_leader(topic, *partition, node, &hint) => {}
            Next::Retry { refresh } => {
                self.block(cursor, now);
                if refresh {
                    self.cluster.forget_leader(topic, *partition);
                }
            }
            Next::OutOfRange(offset) => match self.cluster.config.offset_reset {
                OffsetReset::Error => {
                    cursor.position = Position::Failed;
                    fail(Error::OffsetOutOfRange { topic: topic.to_string(), partition: *partition, offset });
                }
                reset => {
                    tracing::info!(%topic, partition, offset, ?reset, "offset out of range");
                    cursor.position = Position::Unresolved(reset_to(reset));
                }
            },
            Next::Fail(code) => {
                fail(Error::Broker { what: format!("fetch of topic `{topic}` partition {partition}"), code });
            }
            Next::Corrupt(offset, reason) => {
                fail(Error::Corrupt { topic: topic.to_string(), partition: *partition, offset, reason });
            }
        }
    }

    fn learn_leader(&self, topic: &str, partition: i32, said_by: i32, hint: &LeaderIdAndEpoch) -> bool {
        self.cluster.learn_leader(topic, partition, said_by, hint.leader_id, hint.leader_epoch)
    }

    /// Asks again after a pause.
    fn block(&self, cursor: &mut Cursor, now: Instant) {
        cursor.attempts += 1;
        let backoff = self.cluster.config.retry_backoff;
        let pause = backoff.saturating_mul(1 << cursor.attempts.min(6)).min(Duration::from_secs(1));
        cursor.blocked_until = Some(now + pause);
    }
}

/// The partitions under their topics' names.
fn named(asked: &[Asked], partition_max_bytes: i32) -> Vec<FetchTopic> {
    let mut topics: Vec<FetchTopic> = Vec::new();
    let mut index: FxHashMap<&str, usize> = FxHashMap::default();
    for entry in asked {
        let TopicPartition { topic, partition } = &entry.place.at;
        let at = *index.entry(topic).or_insert_with(|| {
            topics.push(FetchTopic { topic: topic.to_string(), ..Default::default() });
            topics.len() - 1
        });
        topics[at].partitions.push(FetchPartition {
            partition: *partition,
            fetch_offset: entry.offset,
            partition_max_bytes,
            ..Default::default()
        });
    }
    topics
}

/// No offset at all: fetching it is answered with "out of range", which `auto.offset.reset=error` passes on.
const NO_OFFSET: i64 = -1;

/// Where `auto.offset.reset` leads.
pub(crate) fn reset_to(reset: OffsetReset) -> StartAt {
    match reset {
        OffsetReset::Earliest => StartAt::Beginning,
        OffsetReset::Latest => StartAt::End,
        OffsetReset::Error => StartAt::Offset(NO_OFFSET),
    }
}
