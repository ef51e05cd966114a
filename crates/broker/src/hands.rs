//! The hands that make a broker misbehave, for tests.

use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorCode};

use crate::cluster::Cluster;
use crate::config::TopicConfig;
use crate::intercept::Fault;
use crate::partition::Partition;
use crate::request_observer::RequestObserver;
use crate::staged::{Follower, TrackedRequest};

/// The hands that make a broker misbehave, for tests. Nodes count from 1.
impl Cluster {
    /// The next `count` requests of `api`, at `node` or at any node, meet this fault.
    pub fn intercept(&self, api: ApiKey, node: Option<i32>, count: u32, fault: Fault) {
        self.intercepts.add(api, node, count, fault);
    }

    /// Requests of `api` that came to any node since this was first asked; the first call gives 0.
    pub fn requests(&self, api: ApiKey) -> u64 {
        self.intercepts.requests(api)
    }

    /// Shows every answered request to `observer` from now on.
    pub fn observe_requests(&self, observer: Arc<dyn RequestObserver>) {
        self.staged.arrange(|state| state.observer = Some(observer));
    }

    /// Every fetch answer names this partition with an error from now on, at once and whether it was requested or not;
    /// [`ErrorCode::None`] ends that.
    pub fn set_fetch_error(&self, topic: &str, partition: i32, code: ErrorCode) {
        let key = (topic.to_owned(), partition);
        self.staged.arrange(|state| match code {
            ErrorCode::None => state.fetch_errors.remove(&key),
            code => state.fetch_errors.insert(key, code),
        });
    }

    /// No request meets a fault any more.
    pub fn clear_intercepts(&self) {
        self.intercepts.clear(None);
    }

    /// No request of `api` meets a fault any more.
    pub fn clear_intercepts_of(&self, api: ApiKey) {
        self.intercepts.clear(Some(api));
    }

    /// How many faults are left for requests of `api` at `node`; those for any node do not count.
    pub fn intercepts_left(&self, api: ApiKey, node: i32) -> usize {
        self.intercepts.left(api, node)
    }

    /// Makes `node` the leader of a partition, -1 that it has none; `false` if there is no such partition, or the node
    /// is down.
    pub fn set_leader(&self, topic: &str, partition: i32, node: i32) -> bool {
        self.move_leader(topic, partition, node)
    }

    /// Makes `node` the coordinator of a group, whose members have to join again; `false` if the node is down.
    pub fn set_coordinator(&self, group: &str, node: i32) -> bool {
        self.move_coordinator(group, node)
    }

    /// Cuts a node's connections and refuses new ones; what it led moves to the next node that is up.
    pub fn take_down(&self, node: i32) -> bool {
        self.set_node_up(node, false)
    }

    /// Takes a node up again, and gives it back what it usually leads.
    pub fn take_up(&self, node: i32) -> bool {
        self.set_node_up(node, true)
    }

    /// Cuts a node's connections and refuses new ones, or takes them again. Unlike [`take_down`](Self::take_down)
    /// it stays leader and coordinator, and clients are told of it; `false` if there is no such node.
    pub fn set_reachable(&self, node: i32, reachable: bool) -> bool {
        self.node(node).map(|node| node.reachable.turn(reachable)).is_some()
    }

    /// Answers of a node go so much later; zero ends that.
    pub fn set_lag(&self, node: i32, lag: Duration) -> bool {
        self.staged.arrange(|state| match lag {
            Duration::ZERO => state.lags.remove(&node),
            lag => state.lags.insert(node, lag),
        });
        self.node(node).is_some()
    }

    /// Answers to Produce and Fetch ask clients to wait so long, as if a quota were exceeded; zero ends that.
    pub fn set_throttle(&self, throttle: Duration) {
        self.staged.arrange(|state| state.throttle = Some(throttle));
    }

    /// The rack that clients are told a node is in.
    pub fn set_rack(&self, node: i32, rack: Option<&str>) -> bool {
        self.staged.arrange(|state| match rack {
            Some(rack) => state.racks.insert(node, rack.to_owned()),
            None => state.racks.remove(&node),
        });
        self.node(node).is_some()
    }

    /// What clients are told to connect to.
    pub fn advertise(&self, node: i32, host: &str, port: u16) -> bool {
        self.node(node).map(|node| node.advertise(host, port)).is_some()
    }

    /// Clients are told of a node no more, which goes on otherwise; or are told of it again.
    pub fn set_hidden(&self, node: i32, hidden: bool) -> bool {
        self.staged
            .arrange(|state| if hidden { state.hidden.insert(node) } else { state.hidden.remove(&node) });
        self.node(node).is_some()
    }

    /// The node that clients are told is the controller, while it is up.
    pub fn set_controller(&self, node: i32) -> bool {
        self.staged.arrange(|state| state.controller = Some(node));
        self.node(node).is_some()
    }

    /// Creates a topic; -1 partitions are the default number.
    ///
    /// # Errors
    /// What a CreateTopics request would be answered with.
    pub fn add_topic(&self, name: &str, partitions: i32) -> Result<(), ErrorCode> {
        let created = self.create_topic(name, partitions, TopicConfig::default(), false);
        created.map(drop).map_err(|(code, _)| code)
    }

    /// Deletes a topic with its data.
    ///
    /// # Errors
    /// [`ErrorCode::UnknownTopicOrPartition`].
    pub fn remove_topic(&self, name: &str) -> Result<(), ErrorCode> {
        self.delete_topic(name).map(drop).map_err(|(code, _)| code)
    }

    /// How many partitions a topic has, if there is one of that name.
    pub fn partitions_of(&self, topic: &str) -> Option<usize> {
        self.topic(topic).map(|topic| topic.partitions.len())
    }

    /// Metadata says this of a topic instead of its partitions; [`ErrorCode::None`] ends that.
    pub fn set_topic_error(&self, topic: &str, code: ErrorCode) {
        self.staged.arrange(|state| match code {
            ErrorCode::None => state.topic_errors.remove(topic),
            code => state.topic_errors.insert(topic.to_owned(), code),
        });
    }

    /// Metadata shows so many replicas of a topic's partitions, which exist only there.
    pub fn set_replicas_shown(&self, topic: &str, count: usize) {
        self.staged.arrange(|state| state.replicas.insert(topic.to_owned(), count));
    }

    /// The nodes that metadata says have a copy.
    pub(crate) fn replicas_shown(&self, partition: &Partition) -> Vec<i32> {
        let Some(count) = self.staged.replicas(&partition.topic) else { return partition.replicas() };
        let nodes: Vec<i32> = self.node_ids().collect();
        let first = usize::try_from(partition.index).unwrap_or_default();
        (0..count.clamp(1, nodes.len())).map(|step| nodes[(first + step) % nodes.len()]).collect()
    }

    /// Consumers are sent to `node` to read a partition there (KIP-392); `None` ends that.
    pub fn set_follower(&self, topic: &str, partition: i32, node: Option<i32>) -> bool {
        let at = (topic.to_owned(), partition);
        self.staged.arrange(|state| match (node, state.followers.get_mut(&at)) {
            (Some(node), Some(follower)) => follower.node = node,
            (Some(node), None) => drop(state.followers.insert(at, Follower { node, low: None, high: None })),
            (None, _) => drop(state.followers.remove(&at)),
        });
        self.partition(topic, partition).is_some()
    }

    /// What the follower of a partition has of it: from `low` to `high`; `None` is as the leader. `false` if nobody
    /// follows.
    pub fn set_follower_offsets(
        &self,
        topic: &str,
        partition: i32,
        low: Option<i64>,
        high: Option<i64>,
    ) -> bool {
        let at = (topic.to_owned(), partition);
        self.staged.arrange(|state| match state.followers.get_mut(&at) {
            Some(follower) => {
                (follower.low, follower.high) = (low, high);
                true
            }
            None => false,
        })
    }

    /// The next metadata names this leader and epoch for a partition, whatever is true. Several are told one by one.
    pub fn tell_leader(&self, topic: &str, partition: i32, leader: i32, epoch: i32) -> bool {
        let at = (topic.to_owned(), partition);
        self.staged.arrange(|state| state.leaders.entry(at).or_default().push_back((leader, epoch)));
        self.partition(topic, partition).is_some()
    }

    /// Deletes a partition's records before an offset; gives the offset where it begins then.
    ///
    /// # Errors
    /// [`ErrorCode::OffsetOutOfRange`] above the high watermark, [`ErrorCode::UnknownTopicOrPartition`].
    pub fn delete_records(&self, topic: &str, partition: i32, before: i64) -> Result<i64, ErrorCode> {
        let partition = self.partition(topic, partition).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        if !(0..=partition.high_watermark()).contains(&before) {
            return Err(ErrorCode::OffsetOutOfRange);
        }
        let deleted = partition.log().delete_records_before(before);
        deleted.map(|gone| gone.start_offset).map_err(|_| ErrorCode::KafkaStorageError)
    }

    /// The versions of an API that are answered and advertised; `None` is none. `false` if more is asked for than there
    /// is.
    pub fn set_versions(&self, api: ApiKey, versions: Option<(i16, i16)>) -> bool {
        let all = crate::api::advertised().into_iter().find(|(key, _)| *key == api);
        let Some((_, (min, max))) = all else { return false };
        let wanted = versions.unwrap_or((0, -1));
        if versions.is_some_and(|(low, high)| low < min || high > max || low > high) {
            return false;
        }
        self.staged.arrange(|state| state.versions.insert(api.code(), wanted));
        true
    }

    /// How long the first members of a group wait for others, from now on.
    pub fn set_group_initial_delay(&self, delay: Duration) {
        self.groups.set_initial_delay(delay);
    }

    /// Begins or ends keeping track of requests.
    pub fn track_requests(&self, track: bool) {
        self.staged.arrange(|state| state.tracking = track);
    }

    /// The requests since they are kept track of, in the order in which they came.
    pub fn tracked_requests(&self) -> Vec<TrackedRequest> {
        self.staged.arrange(|state| state.tracked.clone())
    }

    /// Forgets the requests that were kept.
    pub fn forget_tracked_requests(&self) {
        self.staged.arrange(|state| state.tracked.clear());
    }

    /// First and next offset of a partition, as on disk and not only as visible.
    pub fn offsets_of(&self, topic: &str, partition: i32) -> Option<(i64, i64)> {
        let partition = self.partition(topic, partition)?;
        let log = partition.log();
        Some((log.start_offset(), log.end_offset()))
    }
}
