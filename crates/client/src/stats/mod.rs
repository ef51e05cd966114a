//! The client's view of itself: counters and windows for statistics, requests in progress for the watchdog, and the
//! log. Other modules call it in single lines, once per batch or request and never once per record.

mod brokers;
pub(crate) mod buffers;
mod collect;
#[cfg(feature = "prometheus")]
pub(crate) mod endpoint;
pub(crate) mod events;
pub(crate) mod facts;
mod group;
#[cfg(feature = "metrics")]
mod metrics_export;
mod partition_counts;
pub(crate) mod polls;
pub(crate) mod prometheus;
pub(crate) mod pushed;
pub(crate) mod share;
pub(crate) mod snapshot;
mod stalls;
pub(crate) mod topics;
mod window;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::metadata::MetadataResponseTopic;
use tokio::sync::Notify;
use tokio::task::JoinError;
use tokio::time::Instant;

use self::brokers::Broker;
pub(crate) use self::brokers::{ConnectionFailure, ConnectionObserver};
use self::buffers::BufferSnapshot;
use self::events::{AutoCommitEvent, BrokerStateEvent, OnDemandQueue, RequestEvent, ThrottleEvent};
use self::group::GroupCounts;
use self::partition_counts::PartitionCounts;
use self::polls::{FollowedPolls, PollTimes};
use self::pushed::{Rebalances, Role, TopicTotals};
use self::share::{ShareConsumers, ShareCounters};
use self::snapshot::Snapshot;
pub(crate) use self::stalls::{ConsumerStalls, Reachability};
use self::topics::{OffsetSource, TopicCounts};
use crate::config::Config;
use crate::error::named_attempt::without_time;
use crate::log::{Context, ERROR, INFO, Log};
use crate::notification_queue::NotificationQueue;
use crate::panics::{self, EngineFailure};
use crate::security::SecurityProtocol;
use crate::types::TopicPartition;
use crate::watchdog::{ActiveStall, StallReport};

/// The version of this crate, for the first line of a log.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The limit of unread snapshots; older ones are dropped.
const SNAPSHOTS_MAX: usize = 64;
/// The limit of unread stall reports, for as many partitions.
const STALLS_MAX: usize = 1024;

/// The limit of unread errors.
const ERRORS_MAX: usize = 100;

/// The statistics and events of one client.
#[derive(Debug)]
pub(crate) struct Observer {
    pub(crate) log: Log,
    pub(crate) statistics: NotificationQueue<Arc<Snapshot>>,
    pub(crate) stalls: NotificationQueue<StallReport>,
    pub(crate) errors: NotificationQueue<crate::Error>,
    pub(crate) throttles: OnDemandQueue<ThrottleEvent>,
    pub(crate) auto_commits: OnDemandQueue<AutoCommitEvent>,
    pub(crate) exchanges: OnDemandQueue<RequestEvent>,
    pub(crate) broker_states: OnDemandQueue<BrokerStateEvent>,
    pub(crate) stall_after: Duration,
    name: Arc<str>,
    /// The security protocol in the names of connections; empty for plaintext.
    scheme: &'static str,
    /// `Config::name_failures`.
    names_failures: bool,
    /// `true` if values are counted: for statistics, or for a broker that subscribes to metrics (KIP-714).
    counting: AtomicBool,
    /// `true` if metrics may be pushed later: partitions that are assigned before are then known.
    may_push: bool,
    /// The kinds of handles that were created on this client.
    roles: AtomicU8,
    state: Mutex<State>,
    next_id: AtomicU64,
    survey_wanted: AtomicBool,
    surveyed: Notify,
    pub(crate) partition_counts: PartitionCounts,
    /// A warning about unknown bytes in a response was logged.
    warned_of_surplus: AtomicBool,
    pub(crate) failure: EngineFailure,
}

#[derive(Debug, Default)]
struct State {
    /// By `host:port`.
    brokers: BTreeMap<Arc<str>, Broker>,
    /// The address of each node of the cluster.
    nodes: BTreeMap<i32, Arc<str>>,
    /// The counters of brokers that are forgotten: the client's own never decrease.
    of_forgotten: Traffic,
    topics: BTreeMap<Arc<str>, TopicCounts>,
    /// The records of topics that are forgotten.
    of_forgotten_topics: TopicTotals,
    consumes: bool,
    producer_id: Option<(i64, i16)>,
    producer_ids: u64,
    /// The state of the idempotent producer, and the time of its last change.
    idempotence: Option<(&'static str, Instant)>,
    group: Option<GroupCounts>,
    share_consumers: ShareConsumers,
    survey: BufferSnapshot,
    rebalances: Rebalances,
    polls: Vec<FollowedPolls>,
    member_id: Option<String>,
    /// Nodes that throttled the client in their last response.
    throttling: BTreeSet<i32>,
    /// The active stalls, by consumer.
    consumers: BTreeMap<u64, Vec<ActiveStall>>,
    last: Option<Arc<Snapshot>>,
    /// `true` if the failure of all brokers was reported.
    all_down: bool,
}

/// Connections, requests and responses, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    opened: u64,
    tx: u64,
    tx_bytes: u64,
    rx: u64,
    rx_bytes: u64,
}

impl State {
    /// Forgets the brokers that the metadata has named, and does not name any more, when no connection to them is open.
    fn forget_brokers(&mut self) {
        let Self { brokers, nodes, of_forgotten, .. } = self;
        let named: BTreeSet<&Arc<str>> = nodes.values().collect();
        brokers.retain(|address, broker| {
            let keeps = !broker.is_of_metadata
                || broker.is_connected()
                || !broker.flights.is_empty()
                || named.contains(address);
            if !keeps {
                of_forgotten.opened += broker.opened;
                of_forgotten.tx += broker.tx;
                of_forgotten.tx_bytes += broker.tx_bytes;
                of_forgotten.rx += broker.rx;
                of_forgotten.rx_bytes += broker.rx_bytes;
            }
            keeps
        });
    }
}

/// A batch that is sent to its leader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent<'a> {
    pub(crate) node: i32,
    pub(crate) topic: &'a Arc<str>,
    pub(crate) partition: i32,
    /// The batch's order in its partition; a repeated one indicates a retry.
    pub(crate) order: u64,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) created: Instant,
}

impl Observer {
    /// `seed` distinguishes clients with the same `client.id`.
    pub(crate) fn new(config: &Config, seed: u64) -> Arc<Self> {
        let name = config.name.clone().unwrap_or_else(|| format!("{}#{:04x}", config.client_id, seed as u16));
        let name: Arc<str> = name.into();
        let observer = Self {
            log: Log::new(config, name.clone()),
            statistics: NotificationQueue::keeping(SNAPSHOTS_MAX),
            stalls: NotificationQueue::keeping(STALLS_MAX),
            errors: NotificationQueue::keeping(ERRORS_MAX),
            throttles: OnDemandQueue::keeping(ERRORS_MAX),
            auto_commits: OnDemandQueue::keeping(ERRORS_MAX),
            exchanges: OnDemandQueue::keeping(ERRORS_MAX),
            broker_states: OnDemandQueue::keeping(ERRORS_MAX),
            stall_after: config.stall_after,
            name,
            scheme: match config.security.protocol {
                SecurityProtocol::Plaintext => "",
                SecurityProtocol::Ssl => "ssl://",
                SecurityProtocol::SaslPlaintext => "sasl_plaintext://",
                SecurityProtocol::SaslSsl => "sasl_ssl://",
            },
            names_failures: config.name_failures,
            counting: AtomicBool::new(!config.statistics_interval.is_zero()),
            may_push: config.enable_metrics_push,
            roles: AtomicU8::new(0),
            state: Mutex::default(),
            next_id: AtomicU64::new(0),
            survey_wanted: AtomicBool::new(false),
            surveyed: Notify::new(),
            partition_counts: PartitionCounts::default(),
            warned_of_surplus: AtomicBool::new(false),
            failure: EngineFailure::default(),
        };
        match &config.init_line {
            Some(line) => observer.log.debug_in_any("INIT", || line.clone()),
            None => observer.log.debug(Context::Generic, "INIT", || {
                format!(
                    "client {} begins (Ottla {VERSION}, with the properties of librdkafka)",
                    observer.name
                )
            }),
        }
        if observer.log.is_on(Context::Conf) {
            for (name, value) in config.dump() {
                observer.log.debug(Context::Conf, "CONF", || format!("{name} = {value}"));
            }
        }
        Arc::new(observer)
    }

    #[inline]
    fn is_counting(&self) -> bool {
        self.counting.load(Ordering::Relaxed)
    }

    /// Counts from now on, for a broker that subscribes to metrics.
    pub(crate) fn start_counting(&self) {
        self.counting.store(true, Ordering::Relaxed);
    }

    /// Records that a handle of this kind was created.
    pub(crate) fn has_role(&self, role: Role) {
        self.roles.fetch_or(role as u8, Ordering::Relaxed);
    }

    /// Requests a snapshot of the sender's buffers.
    pub(crate) fn request_survey(&self) {
        self.survey_wanted.store(true, Ordering::Relaxed);
    }

    /// Waits until the sender has stored its snapshot.
    pub(crate) async fn surveyed(&self) {
        self.surveyed.notified().await;
    }

    /// Stores the statistics of an interval.
    pub(crate) fn publish(&self, snapshot: Arc<Snapshot>) {
        #[cfg(feature = "metrics")]
        metrics_export::publish(&snapshot);
        self.state().last = Some(snapshot.clone());
        self.statistics.push(snapshot);
    }

    /// Returns `true` if a snapshot of the sender's buffers is requested, and clears the request.
    #[inline]
    pub(crate) fn take_survey_wish(&self) -> bool {
        self.survey_wanted.load(Ordering::Relaxed) && self.survey_wanted.swap(false, Ordering::Relaxed)
    }

    /// Stores the snapshot of the sender's buffers.
    pub(crate) fn survey(&self, survey: BufferSnapshot) {
        let mut state = self.state();
        if state.idempotence.is_none_or(|(name, _)| name != survey.idempotence) {
            state.idempotence = Some((survey.idempotence, Instant::now()));
        }
        state.survey = survey;
        drop(state);
        self.surveyed.notify_one();
    }

    /// The last interval's statistics.
    pub(crate) fn last(&self) -> Option<Arc<Snapshot>> {
        self.state().last.clone()
    }

    /// Counts a batch that is sent to its leader.
    pub(crate) fn batch_sent(&self, sent: Sent<'_>) {
        if !self.is_counting() {
            return;
        }
        let now = Instant::now();
        let mut state = self.state();
        let state = &mut *state;
        let topic = state.topics.entry(sent.topic.clone()).or_insert_with(|| TopicCounts::new(now));
        let is_first = topic.sent(&sent);
        if let Some(broker) = state.nodes.get(&sent.node).and_then(|address| state.brokers.get_mut(address)) {
            if is_first {
                let age = now.saturating_duration_since(sent.created).as_micros() as u64;
                broker.int_latency.record_n(age, sent.records);
            } else {
                broker.retries += 1;
            }
        }
    }

    /// Counts an acknowledged batch.
    pub(crate) fn delivered(&self, topic: &str, partition: i32, records: i32, bytes: usize) {
        self.log.debug(Context::Msg, "MSGSET", || {
            format!("{topic} [{partition}]: MessageSet with {records} message(s) ({bytes} bytes) delivered")
        });
    }

    /// Records a broker's throttle time.
    pub(crate) fn throttled(&self, node: i32, throttle_ms: i32) {
        if throttle_ms > 0 {
            self.log
                .debug(Context::Broker, "THROTTLE", || format!("node {node} throttles for {throttle_ms} ms"));
        }
        if self.is_counting() {
            let mut state = self.state();
            let state = &mut *state;
            let address = state.nodes.get(&node);
            if let Some(broker) = address.and_then(|address| state.brokers.get_mut(address)) {
                broker.throttle.record(throttle_ms.max(0) as u64);
            }
        }
        self.throttles.push_with(|| {
            let mut state = self.state();
            let was = state.throttling.remove(&node);
            if throttle_ms > 0 {
                state.throttling.insert(node);
            }
            let broker = state.nodes.get(&node).map(ToString::to_string).unwrap_or_default();
            let event = ThrottleEvent { broker, node, throttle_ms: throttle_ms.max(0) };
            (was || throttle_ms > 0).then_some(event)
        });
    }

    /// The node ids in metadata, in order.
    pub(crate) fn node_ids(&self) -> Vec<i32> {
        self.state().nodes.keys().copied().collect()
    }

    /// Records the producer id of the idempotent producer.
    pub(crate) fn producer_id(&self, id: i64, epoch: i16) {
        self.log.debug(Context::Eos, "GETPID", || format!("producer id {id}, epoch {epoch}"));
        let mut state = self.state();
        state.producer_id = Some((id, epoch));
        state.producer_ids += 1;
        state.idempotence = Some(("Assigned", Instant::now()));
    }

    /// The idempotent producer restarts the sequence numbers of a partition under a higher epoch.
    pub(crate) fn epoch_raised(&self, topic: &str, partition: i32, epoch: i16) {
        self.log
            .debug(Context::Eos, "EPOCH", || format!("{topic} [{partition}]: continues under epoch {epoch}"));
        let mut state = self.state();
        if let Some((_, highest)) = &mut state.producer_id {
            *highest = epoch.max(*highest);
            state.producer_ids += 1;
        }
    }

    /// Applies the addresses of nodes.
    pub(crate) fn learned_brokers<'a>(&self, nodes: impl Iterator<Item = (i32, &'a str, i32)>) {
        let now = Instant::now();
        let mut state = self.state();
        let mut news = Vec::new();
        for (node, host, port) in nodes {
            let address = address_of(host, port as u16);
            if state.nodes.get(&node).is_none_or(|known| **known != *address) {
                news.push(format!("node {node} is at {address}"));
                let address: Arc<str> = address.into();
                state.brokers.entry(address.clone()).or_insert_with(|| Broker::of_metadata(now));
                state.nodes.insert(node, address);
            }
        }
        if !news.is_empty() {
            state.forget_brokers();
        }
        drop(state);
        for text in news {
            self.log.debug(Context::Broker, "BROKER", || text);
        }
    }

    /// Forgets the nodes that metadata does not list any more.
    pub(crate) fn unlisted_brokers(&self, is_listed: impl Fn(i32) -> bool) {
        let mut gone = Vec::new();
        let mut state = self.state();
        state.nodes.retain(|node, address| {
            let keeps = is_listed(*node);
            if !keeps {
                // Programs search for the first words.
                gone.push(format!(
                    "{address}/{node}: Handle terminates in state DOWN: the broker is not in metadata any more"
                ));
            }
            keeps
        });
        state.forget_brokers();
        drop(state);
        for text in gone {
            self.log.debug(Context::Broker, "BROKER", || text);
        }
    }

    /// Applies the topics of a metadata response. One that it reports as unknown ages.
    pub(crate) fn learned_topics(&self, topics: &[MetadataResponseTopic]) {
        let now = Instant::now();
        let mut state = self.state();
        let mut count = 0;
        for topic in topics {
            let Some(name) = topic.name.as_deref() else { continue };
            count += 1;
            if self.is_counting() && topic.error_code != ErrorCode::UnknownTopicOrPartition {
                let counts = state.topics.entry(name.into()).or_insert_with(|| TopicCounts::new(now));
                counts.metadata_at = now;
            }
        }
        drop(state);
        self.log.debug(Context::Metadata, "METADATA", || format!("metadata of {count} topic(s)"));
    }

    /// Logs a failed metadata request.
    pub(crate) fn not_learned(&self, error: &crate::Error, failures: u32) {
        self.log.debug(Context::Metadata, "METADATA", || {
            format!("no metadata, {failures} times in a row: {error}")
        });
    }

    /// Counts the records of a partition in a fetch response.
    pub(crate) fn fetched(
        &self,
        node: i32,
        topic: &Arc<str>,
        partition: i32,
        from: i64,
        watermarks: (i64, i64),
    ) {
        self.log.debug(Context::Fetch, "FETCH", || {
            let (low, high) = watermarks;
            format!("{topic} [{partition}]: from offset {from} at node {node}; offsets {low} to {high}")
        });
        if self.is_counting() {
            let now = Instant::now();
            let mut state = self.state();
            state.consumes = true;
            let topic = state.topics.entry(topic.clone()).or_insert_with(|| TopicCounts::new(now));
            topic.fetched(partition, watermarks);
        }
    }

    /// Takes the offsets of an assigned partition from their source while that exists.
    pub(crate) fn follow(&self, at: &TopicPartition, offsets: Weak<dyn OffsetSource>) {
        if self.is_counting() || self.may_push {
            let now = Instant::now();
            let mut state = self.state();
            let topic = state.topics.entry(at.topic.clone()).or_insert_with(|| TopicCounts::new(now));
            topic.follow(at.partition, offsets);
        }
    }

    /// Counts the records of a partition that the application has polled.
    pub(crate) fn consumed(&self, topic: &Arc<str>, partition: i32, records: u64, bytes: u64, next: i64) {
        if self.is_counting() {
            let now = Instant::now();
            let mut state = self.state();
            let topic = state.topics.entry(topic.clone()).or_insert_with(|| TopicCounts::new(now));
            topic.consumed(partition, records, bytes, next);
        }
    }

    /// Adds a share consumer's numbers to the statistics.
    pub(crate) fn follow_share_consumer(&self, counters: &Arc<ShareCounters>) {
        if self.is_counting() {
            let mut state = self.state();
            state.consumes = true;
            state.share_consumers.follow(counters.clone());
        }
    }

    /// Records the number of partitions that the group assigned.
    pub(crate) fn assigned(&self, group: Option<&str>, partitions: usize) {
        let Some(group) = group else { return };
        self.log
            .debug(Context::Cgrp, "ASSIGN", || format!("group {group}: {partitions} partition(s) assigned"));
        self.of_group(|counts, now| counts.assigned(partitions, now));
    }

    /// Records the state of the search for the group's coordinator, by librdkafka's name.
    pub(crate) fn group_state(&self, state: &'static str) {
        self.of_group(|counts, now| counts.enter(state, now));
    }

    /// Records the node that coordinates the group.
    pub(crate) fn coordinated_by(&self, node: i32) {
        self.of_group(|counts, now| counts.coordinated_by(node, now));
    }

    /// Records the step of the membership, by librdkafka's name.
    pub(crate) fn join_state(&self, state: &'static str) {
        self.of_group(|counts, _| counts.join_state(state));
    }

    /// Records the reason why the member joins again.
    pub(crate) fn rebalances(&self, reason: &str) {
        self.of_group(|counts, _| counts.rebalances(reason));
    }

    fn of_group(&self, change: impl FnOnce(&mut GroupCounts, Instant)) {
        let now = Instant::now();
        change(self.state().group.get_or_insert_with(|| GroupCounts::new(now)), now);
    }

    /// Records that the client has a consumer.
    pub(crate) fn consumes(&self) {
        self.state().consumes = true;
    }

    /// Records the member id that the group's coordinator knows.
    pub(crate) fn is_member(&self, id: &str) {
        let mut state = self.state();
        if state.member_id.as_deref() != Some(id) {
            state.member_id = Some(id.to_owned());
        }
    }

    /// Records a rebalance of this member, from its begin to the new assignment.
    pub(crate) fn rebalanced(&self, took: Duration) {
        self.state().rebalances.record(took);
    }

    /// Includes a consumer's polls in the pushed metrics while it exists.
    pub(crate) fn follow_polls(&self, polls: Weak<dyn PollTimes>) {
        let mut state = self.state();
        state.polls.retain(FollowedPolls::is_alive);
        state.polls.push(FollowedPolls::new(polls));
    }

    /// A connection attempt starts. Returns the number of connections before it, which the end of the attempt names.
    pub(crate) fn connecting(&self, host: &str, port: u16) -> u64 {
        let address = address_of(host, port);
        // Programs search for either word.
        self.log.debug(Context::Broker, "CONNECT", || format!("{address}: broker is down: connecting"));
        self.log.debug(Context::Broker, "CONNECT", || format!("{address}: Connecting to {address}"));
        self.broker(&address, Broker::connecting)
    }

    /// The connection attempt was dropped before its end.
    pub(crate) fn stopped_connecting(&self, host: &str, port: u16, opened_before: u64) {
        let is_elsewhere = self.state().brokers.values().any(Broker::is_connected);
        self.broker(&address_of(host, port), |broker, now| {
            broker.stopped_connecting(opened_before, is_elsewhere, now);
        });
    }

    /// The connection attempt succeeded.
    pub(crate) fn connected(&self, host: &str, port: u16) {
        let address = address_of(host, port);
        self.log.debug(Context::Broker, "CONNECTED", || format!("{address}: connected"));
        self.broker(&address, Broker::connected);
        self.state().all_down = false;
    }

    /// The connection attempt failed.
    pub(crate) fn not_connected(&self, host: &str, port: u16, opened_before: u64, error: &crate::Error) {
        let address = address_of(host, port);
        let failure = without_time(&error.to_string()).to_owned();
        let (error, line) = self.named_failure(&address, error);
        // Each reason is logged once until a connection succeeds, because attempts repeat every
        // `reconnect.backoff.ms`.
        if self.broker(&address, |broker, now| broker.not_connected(opened_before, failure, now)) {
            self.log.say(ERROR, "FAIL", line);
        } else {
            self.log.debug(Context::Broker, "FAIL", || line);
        }
        self.errors.push(error.clone());
        self.look_whether_all_are_down(&error);
    }

    /// The cluster gives the idempotent producer no id.
    pub(crate) fn no_producer_id(&self, error: &crate::Error) {
        self.log.say(ERROR, "GETPID", error.to_string());
        self.errors.push(error.clone());
    }

    /// The producer cannot be used any more.
    pub(crate) fn producer_ended(&self, error: crate::Error) {
        self.log.say(ERROR, "FATAL", error.to_string());
        self.errors.push(error);
    }

    /// Getting or renewing a Kerberos ticket failed.
    pub(crate) fn no_ticket(&self, reason: &str) {
        self.log.say(ERROR, "SASLREFRESH", format!("Kerberos: {reason}"));
        let address = "Kerberos".to_owned();
        self.errors.push(crate::Error::Authentication { address, reason: reason.into() });
    }

    /// Runs a task of the engine. A panic ends the client: without the task, calls and records would wait for ever.
    pub(crate) fn watched<F: Future<Output = ()>>(
        self: Arc<Self>,
        task: &'static str,
        work: F,
    ) -> impl Future<Output = ()> + use<F> {
        let caught = panics::caught(work);
        async move {
            if let Err(reason) = caught.await {
                self.fail(task, &reason);
            }
        }
    }

    /// The same for a task that was not watched: its owner passes its end.
    pub(crate) fn joined(&self, task: &'static str, ended: Result<(), JoinError>) {
        if let Some(reason) = panics::message_of_task(ended) {
            self.fail(task, &reason);
        }
    }

    fn fail(&self, task: &str, reason: &str) {
        self.failure.set();
        let text = format!("the client ends, because a task has panicked ({task}): {reason}");
        self.errors.push(crate::Error::IllegalState(text.clone()));
        self.log.say(ERROR, "PANIC", text);
    }

    /// Reports once that no broker is connected any more.
    fn look_whether_all_are_down(&self, error: &crate::Error) {
        let mut state = self.state();
        if state.all_down || state.brokers.values().any(Broker::is_connected) {
            return;
        }
        state.all_down = true;
        let brokers: Vec<&str> = state.brokers.keys().map(|address| &**address).collect();
        let brokers = brokers.join(", ");
        drop(state);
        self.errors.push(crate::Error::Unreachable { brokers, waited_ms: 0, reason: error.to_string() });
    }

    /// Creates the observer of a connection.
    pub(crate) fn connection(self: &Arc<Self>, address: &str) -> ConnectionObserver {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        ConnectionObserver::new(self.clone(), address.into(), id)
    }

    /// Records that the client stopped.
    pub(crate) fn ended(&self) {
        self.log.debug(Context::Generic, "TERM", || format!("client {} has ended", self.name));
    }

    /// Reports a stall that began or ended.
    pub(crate) fn stalled(&self, report: StallReport) {
        let level = if report.over { INFO } else { crate::log::WARNING };
        self.log.say(level, "STALL", report.to_string());
        self.stalls.push(report);
    }

    fn broker<T>(&self, address: &str, change: impl FnOnce(&mut Broker, Instant) -> T) -> T {
        let now = Instant::now();
        let mut state = self.state();
        if !state.brokers.contains_key(address) {
            state.brokers.insert(address.into(), Broker::new(now));
        }
        let broker = state.brokers.get_mut(address).expect("it was put there if it was missing");
        let before = broker.state;
        let changed = change(broker, now);
        let after = broker.state;
        drop(state);
        if before != after {
            self.broker_states.push_with(|| {
                let node = self.node_at(address);
                Some(BrokerStateEvent { broker: address.to_owned(), node, state: after.name() })
            });
        }
        changed
    }

    /// The id of the node with this address in metadata; -1 if there is none.
    fn node_at(&self, address: &str) -> i32 {
        let state = self.state();
        state.nodes.iter().find(|(_, at)| ***at == *address).map_or(-1, |(node, _)| *node)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `host:port`, with brackets around an IPv6 address.
pub(crate) fn address_of(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
