//! The cluster's metadata, and the connections to its brokers.

mod any_broker;
pub(crate) mod brokers;
pub(crate) mod change_counter;
mod client_instance;
pub(crate) mod metadata;
pub(crate) mod topic_names;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::messages::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic,
};
use ottla_protocol::{ErrorCode, Uuid};
use regex_lite::Regex;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;
use tokio::time::Instant;

use self::brokers::Brokers;
use self::change_counter::{ChangeCounter, ChangeWaiter};
use self::client_instance::ClientInstance;
use self::metadata::{Layout, LayoutState, TopicLayout};
use crate::config::Config;
use crate::error::Error;
use crate::log::{Context, WARNING};
use crate::net::Network;
use crate::stats::Observer;
use crate::types::pattern;

/// The cluster, as seen by one engine. The tasks of the engine share it.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) config: Arc<Config>,
    pub(crate) brokers: Brokers,
    pub(crate) observer: Arc<Observer>,
    layout: RefCell<Layout>,
    /// The topics that the last responses about them reported as unknown, with the time of the first of those.
    missing_since: RefCell<FxHashMap<Arc<str>, Instant>>,
    /// Topics in use by producers and consumers.
    wanted: RefCell<BTreeSet<Arc<str>>>,
    /// The last use of each.
    used_at: RefCell<FxHashMap<Arc<str>, Instant>>,
    /// Those of them that no request of this client creates: they are subscribed beside a pattern.
    uncreated: RefCell<BTreeSet<Arc<str>>>,
    refresh: Notify,
    /// Notified when a topic is wanted that another request has brought.
    in_use: Notify,
    urgent: Cell<bool>,
    /// The progress of requests for the metadata of all topics.
    all: Cell<AllTopics>,
    /// The cluster id in the last response that had one.
    reported_id: RefCell<Option<String>>,
    /// The last response contained all topics: a topic that is not in it does not exist.
    lists_all: Cell<bool>,
    changed: ChangeCounter,
    /// The id that a broker gave this client for its metrics (KIP-714).
    pub(crate) client_instance: ClientInstance,
    /// `topic.blacklist`.
    hidden: Vec<Regex>,
}

/// The state of metadata of all topics, beyond those in use.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum AllTopics {
    #[default]
    Unwanted,
    Wanted,
    Known,
}

/// The leader of a partition, for fetches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaderInfo {
    pub(crate) leader: i32,
    pub(crate) leader_epoch: i32,
    /// Zero if the brokers do not report it.
    pub(crate) topic_id: Uuid,
}

impl Cluster {
    pub(crate) fn new(config: Arc<Config>, network: Network, rng: fastrand::Rng) -> Result<Rc<Self>, Error> {
        let observer = network.observer.clone();
        let hidden = config.topic_blacklist.iter().map(|text| pattern(text)).collect::<Result<_, _>>()?;
        Ok(Rc::new(Self {
            hidden,
            brokers: Brokers::new(config.clone(), network, rng)?,
            config,
            observer,
            layout: RefCell::default(),
            missing_since: RefCell::default(),
            wanted: RefCell::default(),
            used_at: RefCell::default(),
            uncreated: RefCell::default(),
            refresh: Notify::new(),
            in_use: Notify::new(),
            urgent: Cell::new(false),
            all: Cell::default(),
            reported_id: RefCell::default(),
            lists_all: Cell::new(false),
            changed: ChangeCounter::default(),
            client_instance: ClientInstance::default(),
        }))
    }

    /// Keeps the metadata fresh: on request, at its maximum age, and with a pause between attempts.
    pub(crate) async fn keep_fresh(self: Rc<Self>) {
        let mut failures = 0;
        // Responses in a row after which a wanted topic is unknown or has no leader.
        let mut incomplete = 0;
        // The start of the first failed attempt in a row: the idle time before it does not count, as in KIP-1102.
        let mut failing_since = None;
        // The first request waits for the first use. A topic that another request has brought ages from now on.
        tokio::select! {
            biased;
            () = self.refresh.notified() => {}
            () = self.in_use.notified() => {
                let age_max = self.config.metadata_max_age.min(self.config.topic_metadata_refresh_interval);
                let _ = tokio::time::timeout(age_max, self.refresh.notified()).await;
            }
        }
        loop {
            let asked_at = Instant::now();
            self.urgent.set(false);
            match self.fetch_layout().await {
                Ok(()) => {
                    failures = 0;
                    failing_since = None;
                    self.changed.raise();
                }
                Err(error) => {
                    failures += 1;
                    self.observer.not_learned(&error, failures);
                    self.rebootstrap_if_lost(&error, failing_since.get_or_insert(asked_at));
                }
            }
            // Wanted topics without leaders are requested again after the backoff, others at their maximum age.
            // Nothing waits for topics that are not in use any more.
            let state = self.layout.borrow().state_of(&self.by_use(Instant::now()).0);
            incomplete = if state == LayoutState::Incomplete { incomplete + 1 } else { 0 };
            let age_max = match (failures, state) {
                (0, LayoutState::Incomplete) => self.fast_interval(incomplete),
                (0, LayoutState::Doubtful) => self.config.retry_backoff_max,
                (0, LayoutState::Complete) => {
                    self.config.metadata_max_age.min(self.config.topic_metadata_refresh_interval)
                }
                (_, _) => self.backoff(failures),
            };
            tokio::select! {
                biased;
                () = self.refresh.notified() => {
                    // The request for a newly used topic is not a retry and needs no pause.
                    if self.urgent.get() {
                        incomplete = 0;
                    } else {
                        tokio::time::sleep_until(asked_at + self.backoff(failures)).await;
                    }
                }
                () = tokio::time::sleep_until(asked_at + age_max) => {}
            }
        }
    }

    /// Connects to a broker that metadata names: `Config::connect_to_learned_broker`.
    pub(crate) async fn keep_learned_broker(self: Rc<Self>) {
        let mut changes = self.changes();
        loop {
            changes.changed().await;
            self.brokers.connect_to_learned().await;
        }
    }

    /// Returns to the bootstrap servers if requests for metadata have failed for too long, or if a broker reports that
    /// it belongs to another cluster.
    fn rebootstrap_if_lost(&self, error: &Error, failing_since: &mut Instant) {
        let is_required = matches!(error, Error::Broker { code: ErrorCode::RebootstrapRequired, .. });
        if self.config.net.rebootstrap
            && (is_required || failing_since.elapsed() >= self.config.net.rebootstrap_after)
        {
            tracing::info!(%error, "starting from the bootstrap servers again");
            self.brokers.rebootstrap();
            *failing_since = Instant::now();
        }
    }

    /// Requests fresh metadata soon; several callers share one request.
    pub(crate) fn refresh(&self) {
        self.refresh.notify_one();
    }

    /// Notified after each refresh.
    pub(crate) fn changes(&self) -> ChangeWaiter {
        self.changed.changes()
    }

    /// Waits for the id that a broker gives this client for its metrics (KIP-714), and connects if nothing else does.
    pub(crate) async fn await_client_instance(&self) -> Uuid {
        loop {
            let mut changes = self.client_instance.changes();
            if let Some(id) = self.client_instance.id() {
                return id;
            }
            if let Err(error) = self.brokers.any().await {
                tracing::debug!(%error, "connecting for the client instance id");
                continue;
            }
            changes.changed().await;
        }
    }

    /// Adds a topic to the topics whose metadata is kept fresh, and records its use.
    pub(crate) fn want(&self, topic: &Arc<str>) {
        // Responses to other calls may have brought the topic's error. Only a request of this task creates the topic.
        let is_new = self.use_now(topic);
        if !self.uncreated.borrow_mut().remove(topic) && !is_new {
            return;
        }
        if self.layout.borrow().is_whole(topic) {
            self.in_use.notify_one();
        } else {
            self.urgent.set(true);
            self.refresh();
        }
    }

    /// Adds a topic as `want` does, but no request creates it: the metadata of all topics, which is kept fresh from now on, decides.
    pub(crate) fn want_existing(&self, topic: &Arc<str>) {
        if self.all.get() == AllTopics::Unwanted {
            self.all.set(AllTopics::Wanted);
        }
        let is_new = !self.wanted.borrow().contains(topic);
        self.use_now(topic);
        if is_new {
            self.uncreated.borrow_mut().insert(topic.clone());
            self.urgent.set(true);
            self.refresh();
        }
    }

    /// Records the use of a topic. Returns `true` if it was not in use.
    fn use_now(&self, topic: &Arc<str>) -> bool {
        let now = Instant::now();
        if let Some(at) = self.used_at.borrow_mut().get_mut(topic) {
            return now >= std::mem::replace(at, now) + IDLE_AFTER;
        }
        self.used_at.borrow_mut().insert(topic.clone(), now);
        self.wanted.borrow_mut().insert(topic.clone());
        true
    }

    /// The wanted topics that are in use, and those that have not been used for [`IDLE_AFTER`].
    fn by_use(&self, now: Instant) -> (BTreeSet<Arc<str>>, BTreeSet<Arc<str>>) {
        let used_at = self.used_at.borrow();
        let is_used = |topic: &Arc<str>| used_at.get(topic).is_some_and(|at| now < *at + IDLE_AFTER);
        self.wanted.borrow().iter().cloned().partition(is_used)
    }

    /// Keeps the metadata of all topics fresh from now on, and waits until it is known.
    pub(crate) async fn want_all(&self) -> Result<(), Error> {
        let started = Instant::now();
        let deadline = started + self.config.socket_timeout;
        let mut changes = self.changes();
        if self.all.get() == AllTopics::Unwanted {
            self.all.set(AllTopics::Wanted);
        }
        while self.all.get() != AllTopics::Known {
            self.urgent.set(true);
            self.refresh();
            if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
                return Err(self.brokers.unreachable(started.elapsed()));
            }
        }
        Ok(())
    }

    /// The existing topics that are not internal, in the order of their names.
    pub(crate) fn visible_topics(&self) -> Vec<Arc<str>> {
        let layout = self.layout.borrow();
        let visible = layout.topics.iter().filter(|(_, topic)| topic.is_visible());
        let mut names: Vec<_> = visible.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names
    }

    /// The metadata of a topic, including its error.
    pub(crate) fn topic(&self, topic: &str) -> Option<TopicLayout> {
        self.layout.borrow().topics.get(topic).cloned()
    }

    /// `true` if the latest metadata contains all topics that this client may see.
    pub(crate) fn lists_all_topics(&self) -> bool {
        self.lists_all.get()
    }

    /// The reason why a topic cannot be read, if it will not pass soon. A topic without metadata so far has none.
    pub(crate) fn lasting_error(&self, topic: &str) -> Option<ErrorCode> {
        match self.layout.borrow().topics.get(topic) {
            Some(layout) => layout.lasting_error(),
            None => self.lists_all.get().then_some(ErrorCode::UnknownTopicOrPartition),
        }
    }

    /// The time for which responses have reported a topic as unknown; zero if the last one has not.
    pub(crate) fn missing_for(&self, topic: &str) -> Duration {
        self.missing_since.borrow().get(topic).map_or(Duration::ZERO, Instant::elapsed)
    }

    /// Compares known topics with a response to the application's own request. One with other partitions is taken from it, as the
    /// application uses what it has read. About another id, a second response decides. Another error leads to a refresh. Returns once the
    /// other tasks know the partitions.
    pub(crate) async fn compare(&self, response: &MetadataResponse) {
        let (mut other, mut has_other_error) = (Vec::new(), false);
        for topic in &response.topics {
            let layout = self.layout.borrow();
            let Some(known) = topic.name.as_deref().and_then(|name| layout.topics.get(name)) else {
                continue;
            };
            has_other_error |= known.error() != topic.error_code;
            // Old versions of the response have no ids.
            let has_no_id = known.id.is_zero() || topic.topic_id.is_zero();
            let is_same =
                (has_no_id || known.id == topic.topic_id) && known.partitions.len() == topic.partitions.len();
            let exists = topic.error_code == ErrorCode::None && known.error() == ErrorCode::None;
            if exists && !is_same {
                other.push(topic.clone());
            }
        }
        if has_other_error {
            self.refresh();
        }
        if !other.is_empty() {
            let (brokers, controller_id) = (response.brokers.clone(), response.controller_id);
            let names: Vec<_> = other.iter().filter_map(|topic| topic.name.clone()).collect();
            self.merge(MetadataResponse { brokers, controller_id, topics: other, ..Default::default() });
            self.compare_again(&names).await;
            self.changed.raise();
            // The tasks that wait for changes run before this one continues.
            tokio::task::yield_now().await;
        }
    }

    /// Requests those of the topics again whose ids are in doubt. The application has seen the new ones, so the second response decides.
    async fn compare_again(&self, topics: &[String]) {
        let in_doubt = |topic: &&str| self.layout.borrow().is_in_doubt(topic);
        let names: Vec<&str> = topics.iter().map(String::as_str).filter(in_doubt).collect();
        if names.is_empty() {
            return;
        }
        let second = tokio::time::timeout(SECOND_RESPONSE_MAX, self.describe(Some(&names))).await;
        if let Ok(Ok(second)) = second
            && second.error_code == ErrorCode::None
        {
            self.apply(second, true);
        }
    }

    /// The number of known topics.
    pub(crate) fn topic_count(&self) -> usize {
        self.layout.borrow().topics.len()
    }

    /// The leader of a partition, if there is one.
    pub(crate) fn leader(&self, topic: &str, partition: i32) -> Option<i32> {
        self.layout.borrow().topics.get(topic)?.leader(partition)
    }

    /// The leader of a partition with its epoch and topic id, if there is one.
    pub(crate) fn leader_info(&self, topic: &str, partition: i32) -> Option<LeaderInfo> {
        let layout = self.layout.borrow();
        let topic = layout.topics.get(topic)?;
        Some(LeaderInfo {
            leader: topic.leader(partition)?,
            leader_epoch: topic.leader_epoch(partition)?,
            topic_id: topic.id,
        })
    }

    /// Discards a partition's leader after the broker reported another one, and requests the new leader.
    pub(crate) fn forget_leader(&self, topic: &str, partition: i32) {
        if let Some(layout) = self.layout.borrow_mut().topics.get_mut(topic) {
            layout.forget_leader(partition);
        }
        self.refresh();
    }

    /// Applies the leader that a response of the previous leader contains (KIP-951). Returns `true` if that leader is
    /// known, so that it can be called without a pause.
    pub(crate) fn learn_leader(
        &self,
        topic: &str,
        partition: i32,
        said_by: i32,
        leader: i32,
        epoch: i32,
    ) -> bool {
        if leader < 0 || leader == said_by || !self.brokers.knows(leader) {
            return false;
        }
        let mut layout = self.layout.borrow_mut();
        let known = layout.topics.get_mut(topic);
        let learnt = known.is_some_and(|topic| topic.learn_leader(partition, leader, epoch));
        drop(layout);
        if learnt {
            tracing::debug!(topic, partition, leader, epoch, "the leader is another one");
            self.changed.raise();
        }
        learnt
    }

    /// Waits until `topic` is known, or until `deadline`; the error then names the missing metadata.
    pub(crate) async fn await_topic(
        &self,
        topic: &Arc<str>,
        deadline: Instant,
    ) -> Result<TopicLayout, Error> {
        let started = Instant::now();
        let mut changes = self.changes();
        loop {
            self.want(topic);
            let known = self.topic(topic);
            if let Some(layout) = &known
                && layout.is_whole()
            {
                return Ok(layout.clone());
            }
            if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
                return Err(match known {
                    Some(layout) if layout.error != ErrorCode::None => {
                        Error::Broker { what: format!("topic `{topic}`"), code: layout.error }
                    }
                    _ => self.brokers.unreachable(started.elapsed()),
                });
            }
        }
    }

    /// Requests the metadata of these topics, or of all (`None`), directly from a broker, without changing the cache.
    pub(crate) async fn describe(&self, topics: Option<&[&str]>) -> Result<MetadataResponse, Error> {
        self.describe_or_create(topics, false).await
    }

    /// The same; with `creates`, brokers may create the topics that they do not have.
    pub(crate) async fn describe_or_create(
        &self,
        topics: Option<&[&str]>,
        creates: bool,
    ) -> Result<MetadataResponse, Error> {
        Ok(self.describe_with_address(topics, creates).await?.0)
    }

    /// The same, with the address of the broker that responded.
    pub(crate) async fn describe_with_address(
        &self,
        topics: Option<&[&str]>,
        creates: bool,
    ) -> Result<(MetadataResponse, String), Error> {
        let request = |version: i16| MetadataRequest {
            topics: match topics {
                // In version 0 an empty list means all; from 1 on, null does.
                None if version == 0 => Some(Vec::new()),
                None => None,
                Some(names) => Some(
                    names
                        .iter()
                        .map(|name| MetadataRequestTopic {
                            name: Some((*name).to_owned()),
                            ..Default::default()
                        })
                        .collect(),
                ),
            },
            allow_auto_topic_creation: creates,
            ..Default::default()
        };
        let (response, address) = self.ask_any(METADATA_VERSION_MAX, request).await?;
        self.note_cluster(response.cluster_id.as_deref());
        self.merge_brokers(&response);
        Ok((self.without_hidden(response), address))
    }

    /// Warns if a response comes from another cluster than the one before: `bootstrap.servers` names two.
    fn note_cluster(&self, id: Option<&str>) {
        let Some(id) = id else { return };
        let before = self.reported_id.replace(Some(id.to_owned()));
        if let Some(before) = before.filter(|before| before != id) {
            let text = format!(
                "a broker reports different ClusterId {id} than {before} before: bootstrap.servers may name only one cluster"
            );
            self.observer.log.say(WARNING, "CLUSTERID", text);
        }
    }

    /// Removes blacklisted topics from the response.
    fn without_hidden(&self, mut response: MetadataResponse) -> MetadataResponse {
        let is_hidden = |topic: &MetadataResponseTopic| {
            let name = topic.name.as_deref().unwrap_or_default();
            self.hidden.iter().any(|pattern| pattern.is_match(name))
        };
        for topic in response.topics.iter_mut().filter(|topic| is_hidden(topic)) {
            topic.error_code = ErrorCode::UnknownTopicOrPartition;
            topic.partitions.clear();
        }
        response
    }

    /// Requests the topics in use; or all topics, and then those in use that are missing: only a request that names a
    /// topic creates it.
    async fn fetch_layout(&self) -> Result<(), Error> {
        let (mut names, idle) = self.by_use(Instant::now());
        let lists_all = !self.config.net.sparse || self.all.get() != AllTopics::Unwanted;
        if lists_all {
            self.fetch_all_topics().await?;
        }
        self.lists_all.set(lists_all);
        if lists_all {
            let uncreated = self.uncreated.borrow();
            names.retain(|name| !uncreated.contains(name) && !self.layout.borrow().is_whole(name));
            if names.is_empty() || !self.config.allow_auto_create_topics {
                return Ok(());
            }
        }
        if !names.is_empty() || idle.is_empty() || lists_all {
            self.fetch_topics(&names, self.config.allow_auto_create_topics).await?;
        }
        if idle.is_empty() || lists_all {
            return Ok(());
        }
        // A topic that was deleted after its last use is not created again.
        self.fetch_topics(&idle, false).await
    }

    async fn fetch_topics(&self, names: &BTreeSet<Arc<str>>, creates: bool) -> Result<(), Error> {
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        self.observer.log.debug(Context::Metadata, "METADATA", || {
            format!("asking for {} topic(s): {}", names.len(), names.join(", "))
        });
        let response = self.describe_or_create(Some(&names), creates).await?;
        self.merge_whole(response)
    }

    async fn fetch_all_topics(&self) -> Result<(), Error> {
        self.observer.log.debug(Context::Metadata, "METADATA", || "asking for all topics".into());
        let mut response = self.describe(None).await?;
        if response.error_code == ErrorCode::None {
            self.layout.borrow_mut().mark_unlisted(&self.wanted.borrow(), &mut response);
            let layout = self.layout.borrow();
            self.observer.partition_counts.retain(|topic| layout.topics.contains_key(topic));
        }
        self.merge_whole(response)?;
        if self.all.get() == AllTopics::Wanted {
            self.all.set(AllTopics::Known);
        }
        Ok(())
    }

    /// Applies a response, unless it is an error as a whole.
    fn merge_whole(&self, response: MetadataResponse) -> Result<(), Error> {
        if response.error_code != ErrorCode::None {
            return Err(Error::Broker { what: "metadata".into(), code: response.error_code });
        }
        self.merge(response);
        Ok(())
    }

    fn merge_brokers(&self, response: &MetadataResponse) {
        let brokers = response.brokers.iter();
        self.observer.learned_brokers(brokers.map(|broker| (broker.node_id, &*broker.host, broker.port)));
        if !response.brokers.is_empty() {
            self.observer
                .unlisted_brokers(|node| response.brokers.iter().any(|broker| broker.node_id == node));
        }
        let moved_brokers = self.brokers.merge(response);
        for moved in &moved_brokers {
            self.observer.log.debug(Context::Broker, "UPDATE", || moved.to_string());
        }
        if !moved_brokers.is_empty() {
            self.changed.raise();
        }
    }

    /// Applies a response; topics that it does not contain are kept. A topic in use is replaced by another one of its name only after more
    /// responses, which are requested.
    pub(crate) fn merge(&self, response: MetadataResponse) {
        if self.apply(response, false) {
            self.refresh();
        }
    }

    /// Applies a response. Its topic ids are `confirmed` if two sources agree about them. Returns `true` if more responses are needed.
    fn apply(&self, response: MetadataResponse, confirmed: bool) -> bool {
        self.observer.learned_topics(&response.topics);
        self.merge_brokers(&response);
        self.note_missing(&response);
        let before = self.observer.log.is_on(Context::Topic).then(|| self.layout.borrow().topics.clone());
        let none = BTreeSet::new();
        let wanted = self.wanted.borrow();
        let protected = if confirmed { &none } else { &*wanted };
        let names: Vec<_> = response.topics.iter().filter_map(|topic| topic.name.clone()).collect();
        let needs_more = self.layout.borrow_mut().merge(response, protected);
        drop(wanted);
        self.publish_counts(&names);
        if let Some(before) = before {
            self.log_changes(&before);
        }
        needs_more
    }

    /// Publishes the numbers of partitions of these topics for other threads.
    fn publish_counts(&self, names: &[String]) {
        let layout = self.layout.borrow();
        let known = names.iter().filter_map(|name| layout.topics.get_key_value(name.as_str()));
        let counts = known.map(|(name, topic)| (name.clone(), topic.known_partitions()));
        self.observer.partition_counts.extend(counts);
    }

    /// Records the time since which topics are unknown.
    fn note_missing(&self, response: &MetadataResponse) {
        let mut missing_since = self.missing_since.borrow_mut();
        for topic in &response.topics {
            let Some(name) = topic.name.as_deref() else { continue };
            if topic.error_code == ErrorCode::UnknownTopicOrPartition {
                missing_since.entry(name.into()).or_insert_with(Instant::now);
            } else {
                missing_since.remove(name);
            }
        }
    }

    /// Logs the changes of topics, by name.
    fn log_changes(&self, before: &FxHashMap<Arc<str>, TopicLayout>) {
        let layout = self.layout.borrow();
        let topics: BTreeMap<_, _> = layout.topics.iter().collect();
        for (name, topic) in topics {
            for text in topic.changes_since(before.get(name)) {
                self.observer.log.debug(Context::Topic, "TOPIC", || format!("{name}{text}"));
            }
        }
    }

    /// The pause after a number of responses without a leader: `topic.metadata.refresh.fast.interval.ms`, which grows up to
    /// `retry.backoff.max.ms`. A topic that nothing creates is not requested ten times a second.
    fn fast_interval(&self, incomplete: u32) -> Duration {
        let config = &self.config;
        let first = config.topic_metadata_refresh_fast_interval.unwrap_or(config.retry_backoff);
        let grown = first.saturating_mul(1 << incomplete.saturating_sub(1).min(10));
        grown.min(config.retry_backoff_max).max(first)
    }

    /// The pause after this number of failed attempts before the last one: `retry.backoff.ms`, which doubles each time up
    /// to `retry.backoff.max.ms` (KIP-580).
    pub(crate) fn backoff(&self, failures: u32) -> Duration {
        let doubled = self.config.retry_backoff.saturating_mul(1 << failures.min(10));
        if failures == 0 { self.config.retry_backoff } else { doubled.min(self.config.retry_backoff_max) }
    }
}

const METADATA_VERSION_MAX: i16 = 13;
/// The time that a second response about a topic may take while the application waits for the first.
const SECOND_RESPONSE_MAX: Duration = Duration::from_millis(500);
/// The time after which a topic is not in use any more: `metadata.max.idle.ms` of Java's producer.
const IDLE_AFTER: Duration = Duration::from_secs(5 * 60);
