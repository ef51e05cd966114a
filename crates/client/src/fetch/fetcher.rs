//! The engine's half of consuming: one fetch at a time to each leader, as long as there is room in the inbox.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::cursor::{Cursor, Next, Position, StartAt};
use super::inbox::{Inbox, Item};
use super::offsets::{isolation_code, resolve};
use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::config::OffsetReset;
use crate::error::Error;

/// Version 13 names topics by id; names work with every broker.
const FETCH_VERSION_MAX: i16 = 12;
/// Every fetch names its partitions (KIP-227's sessions come with the rest of the consumer).
const SESSIONLESS: i32 = -1;
/// How long a consumer waits after it was refused as who it is, or has refused the broker.
const SECURITY_PAUSE: Duration = Duration::from_secs(1);

/// The partitions that one consumer fetches, shared by the fetcher and by whoever changes the assignment.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    pub(crate) list: RefCell<Vec<Cursor>>,
    /// Told when the list or a cursor has changed.
    pub(crate) changed: Notify,
}

impl Cursors {
    /// Runs `change` on one partition's cursor, if it is assigned, and tells the fetcher.
    pub(crate) fn update<T>(
        &self,
        topic: &str,
        partition: i32,
        change: impl FnOnce(&mut Cursor) -> T,
    ) -> Option<T> {
        let mut list = self.list.borrow_mut();
        let cursor =
            list.iter_mut().find(|cursor| cursor.partition == partition && *cursor.topic == *topic)?;
        let result = change(cursor);
        self.changed.notify_one();
        Some(result)
    }
}

enum Event {
    Fetched { node: i32, asked: Vec<Asked>, result: Result<FetchResponse, Error> },
    Resolved { topic: Arc<str>, partition: i32, seeks: u64, start: StartAt, result: Result<i64, Error> },
}

/// What one fetch asked for.
#[derive(Debug)]
struct Asked {
    topic: Arc<str>,
    partition: i32,
    offset: i64,
    seeks: u64,
}

/// The task that fetches for one consumer.
pub(crate) struct Fetcher {
    cluster: Rc<Cluster>,
    cursors: Rc<Cursors>,
    inbox: Arc<Inbox>,
    /// Leaders to which a fetch is under way.
    busy: BTreeSet<i32>,
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
            busy: BTreeSet::new(),
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
                () = changes.changed() => {}
                Some(_) = fetcher.tasks.join_next() => {}
                () = timer => {}
            }
        }
    }

    /// Starts what can be started, and says when to look again.
    fn pump(&mut self, now: Instant) -> Option<Instant> {
        let mut wake_at: Option<Instant> = None;
        let mut by_leader: Vec<(i32, Vec<Asked>)> = Vec::new();
        let cursors = self.cursors.clone();
        let mut list = cursors.list.borrow_mut();
        for cursor in list.iter_mut() {
            if let Some(until) = cursor.blocked_until.filter(|until| *until > now) {
                wake_at = Some(wake_at.map_or(until, |at| at.min(until)));
                continue;
            }
            if let Position::Unresolved(start) = cursor.position {
                cursor.position = Position::Resolving(start);
                self.cluster.want(&cursor.topic);
                self.resolve(cursor, start);
            }
            let Some(offset) = cursor.fetchable(now) else { continue };
            let Some(leader) = self.cluster.leader(&cursor.topic, cursor.partition) else {
                self.cluster.want(&cursor.topic);
                self.cluster.refresh();
                continue;
            };
            let asked = Asked {
                topic: cursor.topic.clone(),
                partition: cursor.partition,
                offset,
                seeks: cursor.seeks,
            };
            match by_leader.iter_mut().find(|(node, _)| *node == leader) {
                Some((_, partitions)) => partitions.push(asked),
                None => by_leader.push((leader, vec![asked])),
            }
        }
        drop(list);
        let queued_bytes_max = self.cluster.config.queued_bytes_max;
        for (node, mut asked) in by_leader {
            // One response per leader may lie in the inbox beside the one that is polled: fetching goes on as soon as
            // there is room for another, without any fixed pause.
            if self.busy.contains(&node) || self.inbox.bytes() >= queued_bytes_max {
                continue;
            }
            // Who comes first in a request is served first: take turns.
            self.turn = self.turn.wrapping_add(1);
            let turn = self.turn % asked.len();
            asked.rotate_left(turn);
            self.fetch(node, asked);
        }
        wake_at
    }

    fn fetch(&mut self, node: i32, asked: Vec<Asked>) {
        let config = self.cluster.config.clone();
        let room = config.queued_bytes_max.saturating_sub(self.inbox.bytes());
        let mut list = self.cursors.list.borrow_mut();
        for cursor in list.iter_mut() {
            if asked.iter().any(|asked| asked.partition == cursor.partition && asked.topic == cursor.topic) {
                cursor.in_flight = true;
            }
        }
        drop(list);
        self.busy.insert(node);
        let cluster = self.cluster.clone();
        let events = self.events_in.clone();
        self.tasks.spawn_local(async move {
            let fetching = async {
                let connection = cluster.brokers.connection(node, Lane::Fetch).await?;
                let mut topics: Vec<FetchTopic> = Vec::new();
                for entry in &asked {
                    let partition = FetchPartition {
                        partition: entry.partition,
                        fetch_offset: entry.offset,
                        partition_max_bytes: config.partition_fetch_bytes_max as i32,
                        ..Default::default()
                    };
                    match topics.iter_mut().find(|topic| topic.topic == *entry.topic) {
                        Some(topic) => topic.partitions.push(partition),
                        None => topics.push(FetchTopic {
                            topic: entry.topic.to_string(),
                            partitions: vec![partition],
                            ..Default::default()
                        }),
                    }
                }
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
        let (topic, partition, seeks) = (cursor.topic.clone(), cursor.partition, cursor.seeks);
        let start = match start {
            StartAt::Committed => reset_to(self.cluster.config.offset_reset),
            other => other,
        };
        self.tasks.spawn_local(async move {
            let deadline = Instant::now() + cluster.config.request_timeout;
            let result = match cluster.await_topic(&topic, deadline).await {
                Ok(_) => resolve(&cluster, &topic, partition, start).await,
                Err(error) => Err(error),
            };
            let _ = events.send(Event::Resolved { topic, partition, seeks, start, result });
        });
    }

    fn on_event(&mut self, event: Event) {
        let now = Instant::now();
        match event {
            Event::Fetched { node, asked, result } => {
                self.busy.remove(&node);
                self.on_fetched(node, &asked, result, now);
            }
            Event::Resolved { topic, partition, seeks, start, result } => {
                let pause = self.cluster.config.retry_backoff;
                let inbox = self.inbox.clone();
                self.cursors.update(&topic, partition, |cursor| {
                    if cursor.seeks != seeks {
                        return;
                    }
                    match result {
                        Ok(offset) => cursor.position = Position::At(offset),
                        Err(error) if error.is_retriable() => {
                            cursor.position = Position::Unresolved(start);
                            cursor.blocked_until = Some(now + pause);
                        }
                        // The application is told, and the certificate or password may be mended yet.
                        Err(error) if error.is_security() => {
                            cursor.position = Position::Unresolved(start);
                            cursor.blocked_until = Some(now + SECURITY_PAUSE);
                            inbox.push(Item::Error(error));
                        }
                        Err(error) => {
                            cursor.position = Position::Failed;
                            inbox.push(Item::Error(error));
                        }
                    }
                });
            }
        }
    }

    fn on_fetched(&self, node: i32, asked: &[Asked], result: Result<FetchResponse, Error>, now: Instant) {
        let generation = self.inbox.generation();
        let mut answers = FxHashMap::default();
        let problem = match result {
            Ok(response) if response.error_code == ErrorCode::None => {
                for node in &response.node_endpoints {
                    self.cluster.brokers.learn(node.node_id, &node.host, node.port as u16);
                }
                for topic in response.responses {
                    let name: Arc<str> = topic.topic.into();
                    for partition in topic.partitions {
                        answers.insert((name.clone(), partition.partition_index), partition);
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
            tracing::debug!(node, problem, "fetch failed");
        }
        for Asked { topic, partition, offset, seeks } in asked {
            let answer = answers.remove(&(topic.clone(), *partition));
            let cap = self.cluster.config.decompressed_bytes_max;
            let backoff = self.cluster.config.retry_backoff;
            let mut list = self.cursors.list.borrow_mut();
            let found =
                list.iter_mut().find(|cursor| cursor.partition == *partition && cursor.topic == *topic);
            let Some(cursor) = found else { continue };
            cursor.in_flight = false;
            if cursor.seeks != *seeks {
                continue;
            }
            let hint = answer.as_ref().map(|answer| answer.current_leader.clone()).unwrap_or_default();
            let next = match answer {
                None if problem.is_none() => Next::Nothing,
                None => Next::Retry { refresh: false },
                Some(answer) => {
                    let aborted = answer.aborted_transactions.unwrap_or_default();
                    let mut aborted: Vec<_> =
                        aborted.iter().map(|entry| (entry.first_offset, entry.producer_id)).collect();
                    // Kafka sorts them, not everybody does (FAULTS C18).
                    aborted.sort_unstable();
                    let records = answer.records.and_then(|chain| chain.to_bytes().ok());
                    let high_watermark = answer.high_watermark;
                    cursor.on_answer(
                        *offset,
                        answer.error_code,
                        high_watermark,
                        records,
                        aborted,
                        generation,
                        cap,
                    )
                }
            };
            match next {
                Next::Deliver(chunk) => self.inbox.push(Item::Chunk(chunk)),
                Next::Nothing => {}
                // The new leader may be asked at once (KIP-951).
                Next::Retry { refresh: true }
                    if self.cluster.learn_leader(
                        topic,
                        *partition,
                        node,
                        hint.leader_id,
                        hint.leader_epoch,
                    ) => {}
                Next::Retry { refresh } => {
                    cursor.attempts += 1;
                    let pause =
                        backoff.saturating_mul(1 << cursor.attempts.min(6)).min(Duration::from_secs(1));
                    cursor.blocked_until = Some(now + pause);
                    if refresh {
                        self.cluster.forget_leader(topic, *partition);
                    }
                }
                Next::OutOfRange(offset) => match self.cluster.config.offset_reset {
                    OffsetReset::Error => {
                        cursor.position = Position::Failed;
                        let (topic, partition) = (topic.to_string(), *partition);
                        self.inbox.push(Item::Error(Error::OffsetOutOfRange { topic, partition, offset }));
                    }
                    reset => {
                        tracing::info!(%topic, partition, offset, ?reset, "offset out of range");
                        cursor.position = Position::Unresolved(reset_to(reset));
                    }
                },
                Next::Fail(code) => {
                    let what = format!("fetch of topic `{topic}` partition {partition}");
                    self.inbox.push(Item::Error(Error::Broker { what, code }));
                }
                Next::Corrupt(offset, reason) => {
                    let (topic, partition) = (topic.to_string(), *partition);
                    self.inbox.push(Item::Error(Error::Corrupt { topic, partition, offset, reason }));
                }
            }
        }
    }
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
