//! Calls that make a broker misbehave, for tests.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::{ApiKey, ErrorCode};

use crate::cluster::Cluster;
use crate::cluster::nodes::Node;
use crate::config::TIME_MAX;
use crate::intercept::{FILTERED_BY_TOPIC, Fault, FaultRule, FaultRuleError};
use crate::internal_topics::InternalTopic;
use crate::partition::Partition;
use crate::request_observer::RequestObserver;
use crate::request_trace::RequestTrace;
use crate::test_overrides::{Follower, MockSubscription, TrackedRequest};
use crate::topics::NewTopic;

/// Calls that make a broker misbehave, for tests. Nodes count from `node.id`, which is 1 by default.
impl Cluster {
    /// Sets a fault for the next `count` requests of `api`, at `node` or at any node.
    pub fn intercept(&self, api: ApiKey, node: Option<i32>, count: u32, fault: Fault) {
        self.intercepts.add(FaultRule { node, count, ..FaultRule::new(api, fault) });
    }

    /// Adds a fault for the requests that match a rule. Returns its id.
    ///
    /// # Errors
    /// [`FaultRuleError`], if no request can match.
    pub fn add_fault(&self, rule: FaultRule) -> Result<u64, FaultRuleError> {
        if !self.answers(rule.api) {
            return Err(FaultRuleError::NotAnswered(rule.api));
        }
        if rule.topic.is_some() && !FILTERED_BY_TOPIC.contains(&rule.api) {
            return Err(FaultRuleError::NoTopics(rule.api));
        }
        if rule.count == 0 {
            return Err(FaultRuleError::NoRequests);
        }
        Ok(self.intercepts.add(rule))
    }

    /// Returns the faults that still have requests to come, oldest first, with their ids.
    pub fn faults(&self) -> Vec<(u64, FaultRule)> {
        self.intercepts.all()
    }

    /// Removes a fault. Returns `false` if there is none with this id: its last request may have come.
    pub fn remove_fault(&self, id: u64) -> bool {
        self.intercepts.remove(id)
    }

    /// Returns the number of requests of `api` at all nodes since the first call, which returns 0.
    pub fn requests(&self, api: ApiKey) -> u64 {
        self.intercepts.requests(api)
    }

    /// Returns the number of requests by API since the first call of this function or of [`Self::requests`].
    pub fn request_counts(&self) -> Vec<(ApiKey, u64)> {
        self.intercepts.request_counts()
    }

    /// Passes every answered request to `observer`, beside those of earlier calls.
    pub fn observe_requests(&self, observer: Arc<dyn RequestObserver>) {
        self.overrides.arrange(|state| state.observers.push(observer));
    }

    /// Appends a line of JSON for every answered request to a file, which is created if it is missing: see
    /// [`RequestTrace`].
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn trace_requests(&self, file: impl AsRef<Path>) -> io::Result<()> {
        self.observe_requests(Arc::new(RequestTrace::append(file.as_ref(), self.clock.clone())?));
        Ok(())
    }

    /// Adds an error for this partition to every fetch response, even if it was not requested, and sends the response
    /// at once. [`ErrorCode::None`] or the deletion of the topic ends that.
    pub fn set_fetch_error(&self, topic: &str, partition: i32, code: ErrorCode) {
        let key = (topic.to_owned(), partition);
        self.overrides.arrange(|state| match code {
            ErrorCode::None => state.fetch_errors.remove(&key),
            code => state.fetch_errors.insert(key, code),
        });
    }

    /// Answers the next Produce, Fetch, ShareFetch or ShareAcknowledge request for a partition, at a node that serves it, with
    /// this error for it; further errors follow in turn, and [`ErrorCode::None`] is no error. Requests of other APIs have no
    /// errors of partitions.
    pub fn add_partition_error(&self, api: ApiKey, topic: &str, partition: i32, code: ErrorCode) {
        let key = (api.code(), topic.to_owned(), partition);
        self.overrides.arrange(|state| state.partition_errors.entry(key).or_default().push_back(code));
    }

    /// Removes all faults.
    pub fn clear_intercepts(&self) {
        self.intercepts.clear(None);
    }

    /// Removes the faults for requests of `api`.
    pub fn clear_intercepts_of(&self, api: ApiKey) {
        self.intercepts.clear(Some(api));
    }

    /// Returns the number of faults left for requests of `api` at `node`; faults for any node do not count.
    pub fn intercepts_left(&self, api: ApiKey, node: i32) -> usize {
        self.intercepts.left(api, node)
    }

    /// Makes `node` the leader of a partition; with -1 it has no leader. A node that is no replica takes the place of one while it leads.
    /// Returns `false` if there is no such partition, it is offline, or the node is down.
    pub fn set_leader(&self, topic: &str, partition: i32, node: i32) -> bool {
        self.move_leader(topic, partition, node)
    }

    /// [`Self::set_leader`], in a new epoch even if `node` leads already, as after an election that it has won.
    pub fn reelect_leader(&self, topic: &str, partition: i32, node: i32) -> bool {
        let leads = self.partition(topic, partition).filter(|found| node >= 0 && found.leader() == node);
        match leads {
            Some(partition) => {
                self.lead_again(&partition);
                partition.unavailable().is_none()
            }
            None => self.move_leader(topic, partition, node),
        }
    }

    /// Makes `node` the coordinator of a group, whose members must join again. Until the cluster has such a node, the group has
    /// no coordinator. Returns `false` if the node is down.
    pub fn set_coordinator(&self, group: &str, node: i32) -> bool {
        self.move_coordinator(group, node)
    }

    /// Makes `node` the coordinator of a transactional id, which has none until the cluster has such a node. Returns `false` if
    /// the node is down.
    pub fn set_transaction_coordinator(&self, id: &str, node: i32) -> bool {
        self.move_transaction_coordinator(id, node)
    }

    /// Closes a node's connections and refuses new ones. As in Kafka, each partition that it leads gets another leader among its replicas
    /// that are up. Without such a replica it has no leader until one starts again, which then has all its records: the nodes share
    /// their logs. A topic has one replica unless `default.replication.factor` or its creation says more. Those of the coordinators
    /// have three.
    ///
    /// Its listeners follow a moment later: [`listeners_followed`](Self::listeners_followed) waits for them.
    pub fn take_down(&self, node: i32) -> bool {
        self.set_node_up(node, false)
    }

    /// Restarts a node and makes it the leader of its preferred partitions, or only of those without a leader if
    /// `auto.leader.rebalance.enable` is off. Its listeners follow a moment later, too.
    pub fn take_up(&self, node: i32) -> bool {
        self.set_node_up(node, true)
    }

    /// Closes a node's connections and refuses new ones, or accepts them again. Unlike [`take_down`](Self::take_down),
    /// the node stays leader and coordinator, and metadata lists it. Returns `false` if there is no such node.
    ///
    /// Its listeners follow a moment later: [`listeners_followed`](Self::listeners_followed) waits for them.
    pub fn set_reachable(&self, node: i32, reachable: bool) -> bool {
        self.node(node).map(|node| node.reachable.turn(reachable)).is_some()
    }

    /// Waits until the listeners of a node are open or closed as the last call of [`set_reachable`](Self::set_reachable),
    /// [`take_down`](Self::take_down) or [`take_up`](Self::take_up) wants them. A listener whose address another process has taken tries
    /// it again.
    pub async fn listeners_followed(&self, node: i32) {
        if let Some(node) = self.node(node) {
            node.listeners.reached(node.flips()).await;
        }
    }

    /// Pauses a node, as SIGSTOP pauses a process: it keeps its connections, and new ones wait in the queues of its listeners, but it
    /// reads and sends nothing until [`resume`](Self::resume). It stays leader and coordinator, and metadata lists it. Then it handles all
    /// that has arrived, also the requests of clients that have left. Deadlines for slow clients begin again after a pause.
    ///
    /// Requests that have begun continue, and their responses wait. The timers of the broker continue, too: the sessions of members and
    /// transactions can time out meanwhile. [`take_down`](Self::take_down) and the end of the broker end a pause. Returns `false` if there
    /// is no such node, or if it is down.
    pub fn pause(&self, node: i32) -> bool {
        let running = self.node(node).filter(|node| node.is_up());
        running.map(|node| node.set_paused(true)).is_some()
    }

    /// Ends the pause of a node. Returns `false` if there is no such node.
    pub fn resume(&self, node: i32) -> bool {
        self.node(node).map(|node| node.set_paused(false)).is_some()
    }

    /// Returns `true` if a node is paused: see [`Self::pause`].
    pub fn is_paused(&self, node: i32) -> bool {
        self.node(node).is_some_and(Node::is_paused)
    }

    /// Delays the responses of a node, also those that wait for an earlier delay; zero sends them at once. The delay of a fault
    /// is added. Returns `false` if there is no such node.
    pub fn set_lag(&self, node: i32, lag: Duration) -> bool {
        let is_there = self.node(node).is_some();
        if is_there {
            self.overrides.set_lag(node, lag);
        }
        is_there
    }

    /// Sets the throttle time in responses to Produce and Fetch, as if a quota were exceeded; zero ends that.
    pub fn set_throttle(&self, throttle: Duration) {
        self.overrides.arrange(|state| state.throttle = Some(throttle));
    }

    /// Sets the rack of a node, whatever `broker.rack` is; `None` is no rack. Returns `false` if there is no such node.
    pub fn set_rack(&self, node: i32, rack: Option<&str>) -> bool {
        if self.node(node).is_none() {
            return false;
        }
        self.overrides.arrange(|state| state.racks.insert(node, rack.map(str::to_owned)));
        true
    }

    /// Sets the address to which clients connect.
    pub fn advertise(&self, node: i32, host: &str, port: u16) -> bool {
        self.node(node).map(|node| node.advertise_instead(host, port)).is_some()
    }

    /// Removes a running node from metadata, or adds it again. A hidden node stays leader and coordinator, and becomes the
    /// leader of no other partitions. Returns `false` for a node that does not exist.
    pub fn set_hidden(&self, node: i32, hidden: bool) -> bool {
        if self.node(node).is_none() {
            return false;
        }
        self.overrides
            .arrange(|state| if hidden { state.hidden.insert(node) } else { state.hidden.remove(&node) });
        true
    }

    /// Removes a running node from metadata, and makes nodes that metadata lists the leaders of its partitions. It stays
    /// coordinator. Returns `false` for a node that does not exist.
    pub fn remove_from_metadata(&self, node: i32) -> bool {
        let is_hidden = self.set_hidden(node, true);
        if is_hidden {
            self.lead_elsewhere(node);
        }
        is_hidden
    }

    /// Leaves nodes that accept no connections out of metadata. librdkafka's mock cluster does this.
    pub fn set_unreachable_hidden(&self, hidden: bool) {
        self.overrides.arrange(|state| state.hides_unreachable = hidden);
    }

    /// Removes a node for good: its connections are closed, another replica or else the next node that is up leads its partitions, and
    /// [`BrokerThread::add_node`](crate::BrokerThread::add_node) may add a node with its id, which has none of its settings,
    /// faults and coordinators. Returns `false` if there is no such node.
    pub fn decommission(&self, node: i32) -> bool {
        let is_removed = self.remove_node(node);
        self.overrides.forget_node(node);
        self.intercepts.clear_node(node);
        self.forget_moves_to(node);
        is_removed
    }

    /// Returns `true` if a node is up: see [`Self::take_down`].
    pub fn is_up(&self, node: i32) -> bool {
        self.node(node).is_some_and(Node::is_up)
    }

    /// Returns `true` while a node accepts connections: it is up and reachable. One that is paused leaves them unanswered.
    pub fn accepts_connections(&self, node: i32) -> bool {
        self.node(node).is_some_and(Node::is_open)
    }

    /// Ids of all nodes.
    pub fn nodes(&self) -> Vec<i32> {
        self.node_ids().collect()
    }

    /// Sets the controller in metadata, whatever nodes there are; -1 is none.
    pub fn set_controller(&self, node: i32) {
        self.overrides.arrange(|state| state.controller = Some(node));
    }

    /// Creates a topic; -1 partitions are the default number.
    ///
    /// # Errors
    /// The error of a CreateTopics request.
    pub fn add_topic(&self, name: &str, partitions: i32) -> Result<(), ErrorCode> {
        let created = self.create_topic(NewTopic::new(name, partitions), false);
        created.map(drop).map_err(|(code, _)| code)
    }

    /// Deletes a topic with its data.
    ///
    /// # Errors
    /// [`ErrorCode::UnknownTopicOrPartition`].
    pub fn remove_topic(&self, name: &str) -> Result<(), ErrorCode> {
        self.delete_topic(name, &mut |_| Ok(())).map(drop).map_err(|(code, _)| code)
    }

    /// Returns the number of partitions of a topic, if it exists.
    pub fn partitions_of(&self, topic: &str) -> Option<usize> {
        self.topic(topic).map(|topic| topic.partitions.len())
    }

    /// Sets the error code of a topic in metadata, which replaces its partitions, and in AddPartitionsToTxn. [`ErrorCode::None`] or
    /// the deletion of the topic ends that.
    pub fn set_topic_error(&self, topic: &str, code: ErrorCode) {
        self.overrides.arrange(|state| match code {
            ErrorCode::None => state.topic_errors.remove(topic),
            code => state.topic_errors.insert(topic.to_owned(), code),
        });
    }

    /// Lists the partitions of a topic with an error in metadata as well, as librdkafka's mock cluster does, unless the topic is
    /// unknown.
    pub fn set_topic_errors_keep_partitions(&self, keep: bool) {
        self.overrides.arrange(|state| state.topic_errors_keep_partitions = keep);
    }

    /// Sets the number of replicas of a topic's partitions in metadata. The replicas exist only there.
    pub fn set_replicas_shown(&self, topic: &str, count: usize) {
        self.overrides.arrange(|state| state.replicas.insert(topic.to_owned(), count));
    }

    /// Returns the replicas of a partition that a test has set for metadata.
    pub(crate) fn replicas_shown(&self, partition: &Partition) -> Option<Vec<i32>> {
        let count = self.overrides.replicas(&partition.topic)?;
        let nodes: Vec<i32> = self.node_ids().filter(|id| !self.overrides.is_hidden(*id)).collect();
        let first = usize::try_from(partition.index).unwrap_or_default();
        let count = count.max(1).min(nodes.len());
        Some((0..count).map(|step| nodes[(first + step) % nodes.len()]).collect())
    }

    /// The same for all topics without a number of their own.
    pub fn set_replicas_shown_by_default(&self, count: usize) {
        self.overrides.arrange(|state| state.replicas_default = Some(count));
    }

    /// Redirects consumers of a partition to `node` while it is up (KIP-392); `None` ends that. Returns `false` for an unknown
    /// partition.
    pub fn set_follower(&self, topic: &str, partition: i32, node: Option<i32>) -> bool {
        self.arrange_follower(topic, partition, |follower| follower.node = node)
    }

    /// Sets the first and the last offset of a partition's follower, which [`Cluster::set_follower`] may name later; `None` is
    /// the leader's offset. Returns `false` for an unknown partition.
    pub fn set_follower_offsets(
        &self,
        topic: &str,
        partition: i32,
        low: Option<i64>,
        high: Option<i64>,
    ) -> bool {
        let change = |follower: &mut Follower| (follower.low, follower.high) = (low, high);
        self.arrange_follower(topic, partition, change)
    }

    fn arrange_follower(&self, topic: &str, partition: i32, change: impl FnOnce(&mut Follower)) -> bool {
        if self.partition(topic, partition).is_none() {
            return false;
        }
        let at = (topic.to_owned(), partition);
        self.overrides.arrange(|state| change(state.followers.entry(at).or_default()));
        true
    }

    /// The next metadata response, or fetch response that names the current leader, has this leader and epoch for a
    /// partition, even if they are wrong. Several are used one by one.
    pub fn tell_leader(&self, topic: &str, partition: i32, leader: i32, epoch: i32) -> bool {
        let at = (topic.to_owned(), partition);
        self.overrides.arrange(|state| state.leaders.entry(at).or_default().push_back((leader, epoch)));
        self.partition(topic, partition).is_some()
    }

    /// Deletes a partition's records before an offset and returns its new log start offset.
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

    /// Limits the versions of an API that are answered and advertised to those from the first to the second; without any that
    /// the broker supports, or with `None`, it disables the API. Returns `false` for an API that the broker does not answer.
    pub fn set_versions(&self, api: ApiKey, versions: Option<(i16, i16)>) -> bool {
        let all = crate::api::advertised().into_iter().find(|(key, _)| *key == api);
        let Some((_, (min, max))) = all else { return false };
        let limited = versions.map_or((0, -1), |(low, high)| (low.max(min), high.min(max)));
        self.overrides.arrange(|state| state.versions.insert(api.code(), limited));
        true
    }

    /// Approves every transactional Produce request, without a coordinator.
    pub fn set_transactions_approved(&self, approved: bool) {
        self.overrides.arrange(|state| state.approves_transactions = approved);
    }

    /// Returns the partition's leader epoch with committed offsets, whatever epoch was committed. librdkafka's mock
    /// cluster does this.
    pub fn set_commits_have_leader_epoch(&self, have: bool) {
        self.overrides.arrange(|state| state.commits_have_leader_epoch = have);
    }

    /// Answers fetches as librdkafka's mock cluster does. The answer is decided when the request arrives: one without
    /// records waits for its whole time, whatever is written or changed meanwhile. Only the answer of a node that does not
    /// lead names the leader, and it does not compare leader epochs. Records of share groups stay in flight when the leader of
    /// their partition moves.
    pub fn set_mock_fetches(&self, mock: bool) {
        self.overrides.arrange(|state| state.mock_fetches = mock);
    }

    /// Answers the lookup of any time as if all records were older. librdkafka's mock cluster does this.
    pub fn set_times_unknown(&self, unknown: bool) {
        self.overrides.arrange(|state| state.times_unknown = unknown);
    }

    /// Sets the metrics that every client is to push, whatever CLIENT_METRICS resources there are. As in librdkafka's mock
    /// cluster, requests that come early are not refused, and sums restart with each push.
    pub fn set_mock_subscription(&self, subscription: MockSubscription) {
        self.overrides.arrange(|state| state.mock_subscription = Some(subscription));
    }

    /// Changes the subscription of [`Self::set_mock_subscription`].
    pub fn change_mock_subscription(&self, change: impl FnOnce(&mut MockSubscription)) {
        self.overrides.arrange(|state| change(state.mock_subscription.get_or_insert_default()));
    }

    /// Sets the time that the first members of a group wait for others; [`Duration::MAX`] is no limit.
    pub fn set_group_initial_delay(&self, delay: Duration) {
        self.groups.change_waits(|waits| waits.initial = delay.min(TIME_MAX));
    }

    /// Lets every later rebalance of a group take its session timeout less a second, even if all members have joined
    /// before. librdkafka's mock cluster does this.
    pub fn set_group_full_waits(&self, full: bool) {
        self.groups.change_waits(|waits| waits.full = full);
    }

    /// Starts or stops recording requests.
    pub fn track_requests(&self, track: bool) {
        self.overrides.arrange(|state| state.tracking = track);
    }

    /// Returns the recorded requests in the order of their arrival.
    pub fn tracked_requests(&self) -> Vec<TrackedRequest> {
        self.overrides.arrange(|state| state.tracked.clone())
    }

    /// Removes the recorded requests.
    pub fn forget_tracked_requests(&self) {
        self.overrides.arrange(|state| state.tracked.clear());
    }

    /// Returns the committed offset of a group for a partition, if there is one.
    pub fn committed_offset(&self, group: &str, topic: &str, partition: i32) -> Option<i64> {
        self.offsets.get(group, topic, partition).map(|committed| committed.offset)
    }

    /// Returns `true` if a group is served; `false` if its partition of `__consumer_offsets` is offline.
    pub fn is_group_served(&self, group: &str) -> bool {
        let partition = self.internal_partition(InternalTopic::ConsumerOffsets, group);
        partition.is_none_or(|partition| {
            partition.unavailable().is_none() && partition.log().offline_reason().is_none()
        })
    }

    /// Returns a partition of `__consumer_offsets` that is offline, and its groups with it, if there is one.
    pub fn offline_coordinator_partition(&self) -> Option<i32> {
        let topic = self.topic(InternalTopic::ConsumerOffsets.name())?;
        let is_offline = |partition: &&Arc<Partition>| {
            partition.unavailable().is_some() || partition.log().offline_reason().is_some()
        };
        topic.partitions.iter().find(is_offline).map(|partition| partition.index)
    }

    /// Returns the last stable offset of a partition: `read_committed` consumers read up to it.
    pub fn last_stable_offset(&self, topic: &str, partition: i32) -> Option<i64> {
        Some(self.partition(topic, partition)?.last_stable_offset())
    }

    /// Returns the number of producers, and of guards of transactions, that all partitions remember together.
    pub fn remembered_producers(&self) -> usize {
        self.producer_total.count()
    }

    /// Returns log start offset and log end offset of a partition, including records that are not yet visible.
    pub fn offsets_of(&self, topic: &str, partition: i32) -> Option<(i64, i64)> {
        let partition = self.partition(topic, partition)?;
        let log = partition.log();
        Some((log.start_offset(), log.end_offset()))
    }
}
