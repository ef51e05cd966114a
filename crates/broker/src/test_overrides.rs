//! Settings of tests that no other broker has: racks, followers, false answers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorCode};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::request_observer::RequestObserver;

/// A request that came while they were kept track of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TrackedRequest {
    /// The node it came to.
    pub node: i32,
    /// The API of the request.
    pub api: ApiKey,
    /// When it came; only differences mean something.
    pub at: Instant,
}

/// A node that clients are sent to, to read there instead of at the leader.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Follower {
    /// `None` while a test has set its offsets only.
    pub(crate) node: Option<i32>,
    /// The first offset it has, if that is not the leader's.
    pub(crate) low: Option<i64>,
    /// The high watermark it knows of, if that is not the leader's.
    pub(crate) high: Option<i64>,
}

/// The metrics that every client is to push (KIP-714), as in librdkafka's mock cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MockSubscription {
    /// Prefixes of the metrics' names; `*` stands for all, and no prefix for none.
    pub metrics: Vec<String>,
    /// The time between two pushes.
    pub interval: Duration,
}

impl Default for MockSubscription {
    /// No metrics; clients ask again after five minutes.
    fn default() -> Self {
        Self { metrics: Vec::new(), interval: Duration::from_secs(300) }
    }
}

/// Everything that was arranged.
#[derive(Debug, Default)]
pub(crate) struct TestOverrides {
    /// True if there is anything: requests do not take the lock otherwise.
    any: AtomicBool,
    state: Mutex<State>,
    /// Wakes the responses that wait for the lag of a node when one has changed.
    lag_changes: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) topic_errors: BTreeMap<String, ErrorCode>,
    pub(crate) topic_errors_keep_partitions: bool,
    /// Racks of nodes, or `None` for no rack.
    pub(crate) racks: BTreeMap<i32, Option<String>>,
    pub(crate) lags: BTreeMap<i32, Duration>,
    pub(crate) throttle: Option<Duration>,
    pub(crate) hidden: BTreeSet<i32>,
    pub(crate) hides_unreachable: bool,
    pub(crate) controller: Option<i32>,
    /// The number of replicas in metadata, by topic.
    pub(crate) replicas: BTreeMap<String, usize>,
    /// The same for other topics.
    pub(crate) replicas_default: Option<usize>,
    pub(crate) followers: BTreeMap<(String, i32), Follower>,
    /// Leaders and epochs that metadata is to name once each, whatever is true.
    pub(crate) leaders: BTreeMap<(String, i32), VecDeque<(i32, i32)>>,
    pub(crate) versions: BTreeMap<i16, (i16, i16)>,
    /// Errors that every fetch answer carries for these partitions, requested or not.
    pub(crate) fetch_errors: BTreeMap<(String, i32), ErrorCode>,
    /// Errors that partitions get once each in responses, by API, topic and partition.
    pub(crate) partition_errors: BTreeMap<(i16, String, i32), VecDeque<ErrorCode>>,
    pub(crate) approves_transactions: bool,
    pub(crate) commits_have_leader_epoch: bool,
    pub(crate) mock_fetches: bool,
    pub(crate) times_unknown: bool,
    pub(crate) mock_subscription: Option<MockSubscription>,
    pub(crate) tracking: bool,
    pub(crate) tracked: Vec<TrackedRequest>,
    pub(crate) observers: Vec<Arc<dyn RequestObserver>>,
}

impl TestOverrides {
    /// Changes what is arranged.
    pub(crate) fn arrange<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        self.any.store(true, Ordering::Release);
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn look<T>(&self, look: impl FnOnce(&mut State) -> Option<T>) -> Option<T> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Forgets what was arranged for a topic, which is deleted.
    pub(crate) fn forget_topic(&self, topic: &str) {
        self.look(|state| {
            state.topic_errors.remove(topic);
            state.replicas.remove(topic);
            state.followers.retain(|(of_topic, _), _| of_topic != topic);
            state.fetch_errors.retain(|(of_topic, _), _| of_topic != topic);
            state.leaders.retain(|(of_topic, _), _| of_topic != topic);
            state.partition_errors.retain(|(_, of_topic, _), _| of_topic != topic);
            Some(())
        });
    }

    /// Forgets what was arranged for a node, which is removed.
    pub(crate) fn forget_node(&self, node: i32) {
        self.look(|state| {
            state.racks.remove(&node);
            state.lags.remove(&node);
            state.hidden.remove(&node);
            for follower in state.followers.values_mut().filter(|follower| follower.node == Some(node)) {
                follower.node = None;
            }
            Some(())
        });
    }

    /// The error of a topic in metadata.
    pub(crate) fn topic_error(&self, topic: &str) -> ErrorCode {
        self.look(|state| state.topic_errors.get(topic).copied()).unwrap_or(ErrorCode::None)
    }

    /// Returns `true` if metadata lists the partitions of a topic that has an error.
    pub(crate) fn topic_errors_keep_partitions(&self) -> bool {
        self.look(|state| Some(state.topic_errors_keep_partitions)).unwrap_or(false)
    }

    /// Returns `true` if requests may take errors of partitions.
    pub(crate) fn has_partition_errors(&self) -> bool {
        self.look(|state| Some(!state.partition_errors.is_empty())).unwrap_or(false)
    }

    /// Takes the next error of a partition for this API.
    pub(crate) fn take_partition_error(&self, api: ApiKey, topic: &str, partition: i32) -> Option<ErrorCode> {
        let key = || (api.code(), topic.to_owned(), partition);
        let code = self.look(|state| state.partition_errors.get_mut(&key())?.pop_front());
        // A request that is to have no error uses up its entry as well.
        code.filter(|code| *code != ErrorCode::None)
    }

    /// The rack that a test has set for a node, or else the configured one.
    pub(crate) fn rack(&self, node: i32, configured: Option<&str>) -> Option<String> {
        let set = self.look(|state| state.racks.get(&node).cloned());
        set.unwrap_or_else(|| configured.map(str::to_owned))
    }

    /// The delay of the node's answers.
    pub(crate) fn lag(&self, node: i32) -> Option<Duration> {
        self.look(|state| state.lags.get(&node).copied())
    }

    /// Changes the delay of a node's answers, also of those that wait for it.
    pub(crate) fn set_lag(&self, node: i32, lag: Duration) {
        self.arrange(|state| match lag {
            Duration::ZERO => state.lags.remove(&node),
            lag => state.lags.insert(node, lag),
        });
        self.lag_changes.notify_waiters();
    }

    /// Waits until a response that is complete now may be sent: for its own delay and the lag of its node, which may change
    /// meanwhile.
    pub(crate) async fn delay_response(&self, node: i32, delay: Duration) {
        let complete = Instant::now();
        loop {
            let mut changed = pin!(self.lag_changes.notified());
            changed.as_mut().enable();
            let delay = delay.saturating_add(self.lag(node).unwrap_or_default());
            let left = delay.saturating_sub(complete.elapsed());
            if left.is_zero() || tokio::time::timeout(left, changed).await.is_err() {
                return;
            }
        }
    }

    /// The throttle time in answers to Produce and Fetch.
    pub(crate) fn throttle_ms(&self) -> i32 {
        let throttle = self.look(|state| state.throttle).unwrap_or_default();
        i32::try_from(throttle.as_millis()).unwrap_or(i32::MAX)
    }

    /// Nodes that metadata leaves out.
    pub(crate) fn hidden(&self) -> BTreeSet<i32> {
        self.look(|state| Some(state.hidden.clone())).unwrap_or_default()
    }

    /// Returns `true` if metadata leaves out a node.
    pub(crate) fn is_hidden(&self, node: i32) -> bool {
        self.look(|state| Some(state.hidden.contains(&node))).unwrap_or(false)
    }

    /// Returns `true` if metadata leaves out nodes that accept no connections.
    pub(crate) fn hides_unreachable(&self) -> bool {
        self.look(|state| Some(state.hides_unreachable)).unwrap_or(false)
    }

    pub(crate) fn controller(&self) -> Option<i32> {
        self.look(|state| state.controller)
    }

    pub(crate) fn replicas(&self, topic: &str) -> Option<usize> {
        self.look(|state| state.replicas.get(topic).copied().or(state.replicas_default))
    }

    pub(crate) fn follower(&self, topic: &str, partition: i32) -> Option<Follower> {
        self.look(|state| state.followers.get(&(topic.to_owned(), partition)).copied())
    }

    /// The partitions that every fetch answer is to name with an error; nothing if there are none.
    pub(crate) fn fetch_errors(&self) -> Vec<(String, i32, ErrorCode)> {
        self.look(|state| {
            let errors = state.fetch_errors.iter();
            Some(errors.map(|((topic, partition), code)| (topic.clone(), *partition, *code)).collect())
        })
        .unwrap_or_default()
    }

    /// Takes the leader and epoch that a test has set for the next metadata response; each is used once.
    pub(crate) fn leader_told(&self, topic: &str, partition: i32) -> Option<(i32, i32)> {
        self.look(|state| state.leaders.get_mut(&(topic.to_owned(), partition))?.pop_front())
    }

    /// The versions of an API that are answered; no version at all where the first is above the second.
    pub(crate) fn versions(&self, api: ApiKey, all: (i16, i16)) -> (i16, i16) {
        self.look(|state| state.versions.get(&api.code()).copied()).unwrap_or(all)
    }

    /// Returns `true` if every transaction is approved, without a coordinator.
    pub(crate) fn approves_transactions(&self) -> bool {
        self.look(|state| Some(state.approves_transactions)).unwrap_or(false)
    }

    /// Returns `true` if OffsetFetch returns each partition's leader epoch instead of the committed one.
    pub(crate) fn commits_have_leader_epoch(&self) -> bool {
        self.look(|state| Some(state.commits_have_leader_epoch)).unwrap_or(false)
    }

    /// Returns `true` if fetches are answered as librdkafka's mock cluster does.
    pub(crate) fn mock_fetches(&self) -> bool {
        self.look(|state| Some(state.mock_fetches)).unwrap_or(false)
    }

    /// Returns `true` if no time has an offset.
    pub(crate) fn times_unknown(&self) -> bool {
        self.look(|state| Some(state.times_unknown)).unwrap_or(false)
    }

    /// The subscription of all clients; `None` if the configuration has the subscriptions.
    pub(crate) fn mock_subscription(&self) -> Option<MockSubscription> {
        self.look(|state| state.mock_subscription.clone())
    }

    /// The observers of requests; `None` without any.
    pub(crate) fn observers(&self) -> Option<Vec<Arc<dyn RequestObserver>>> {
        self.look(|state| (!state.observers.is_empty()).then(|| state.observers.clone()))
    }

    /// Takes note of a request, if they are kept track of.
    pub(crate) fn track(&self, node: i32, api: ApiKey) {
        self.look(|state| {
            let track = state.tracking;
            track.then(|| state.tracked.push(TrackedRequest { node, api, at: Instant::now() }))
        });
    }
}
