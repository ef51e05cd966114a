//! A member of a share group (KIP-932): the coordinator assigns partitions in its heartbeat responses. A partition may have
//! several members, so nothing is revoked before it is assigned.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::messages::share_group_heartbeat::{ShareGroupHeartbeatRequest, TopicPartitions};
use ottla_protocol::{ErrorCode, Uuid};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::acknowledgements::TopicIdPartition;
use super::queue::{ShareItem, ShareQueue};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::group::coordinator::Coordinator;
use crate::group::membership_status::{MembershipStatus, MembershipStep};
use crate::group::poll_activity::{LastPoll, PollActivity};
use crate::types::TopicPartition;
use crate::watchdog::cause::StallReason;

const VERSION_MAX: i16 = 1;
const JOINS: i32 = 0;
const LEAVES: i32 = -1;
/// The pause after the coordinator refused the member.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// The interval of heartbeats before the coordinator has named one.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);
/// The shortest interval of reports that a subscribed topic is forbidden.
const FORBIDDEN_REPORTED_EVERY: Duration = Duration::from_secs(5);
/// The longest interval between two checks whether the application polls.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(1);

/// The membership of one share consumer. Its task and the consumer's task share it.
pub(super) struct Member {
    pub(super) cluster: Rc<Cluster>,
    pub(super) coordinator: Coordinator,
    pub(super) status: MembershipStatus,
    queue: Arc<ShareQueue>,
    polls: Arc<PollActivity>,
    topics: RefCell<BTreeSet<Arc<str>>>,
    /// The number of subscriptions so far.
    subscriptions: Cell<u64>,
    /// The number of requests to leave the group that are under way.
    leaving: watch::Sender<usize>,
    /// `true` if the next heartbeat carries all fields.
    in_full: Cell<bool>,
    /// The coordinator's interval of heartbeats.
    interval: Cell<Duration>,
    assigned: RefCell<BTreeMap<TopicIdPartition, TopicPartition>>,
    /// The coordinator's assignment while topics of it have no names.
    unnamed: RefCell<Option<UnnamedTarget>>,
    /// Notified when `unnamed` is replaced or given up, which ends the lookup of its names.
    retargeted: Notify,
    /// Notified when the assignment has changed.
    pub(super) changed: Notify,
    /// Notified when a heartbeat must be sent at once.
    hurry: Notify,
}

/// The end of an uninterrupted membership.
enum Ended {
    /// The application did not poll for `max.poll.interval.ms`.
    Late,
    /// The coordinator refused the heartbeat that carried the subscription of this number.
    Refused(Error, u64),
}

/// An assignment whose topics are not all known by name.
#[derive(Clone)]
struct UnnamedTarget {
    target: Vec<TopicPartitions>,
    /// The number of lookups that did not find all names, and the time of the next one.
    lookups: u32,
    retry_at: Instant,
}

/// A request to leave the group, which is under way until it is dropped.
struct LeaveGuard(Rc<Member>);

impl Drop for LeaveGuard {
    fn drop(&mut self) {
        self.0.leaving.send_modify(|count| *count -= 1);
    }
}

impl Member {
    pub(super) fn new(
        cluster: Rc<Cluster>,
        group: String,
        queue: Arc<ShareQueue>,
        polls: Arc<PollActivity>,
    ) -> Rc<Self> {
        let coordinator = Coordinator::new(cluster.clone(), group);
        // The coordinator knows a member by this id until the member leaves; the sessions with leaders use it too.
        let member_id = cluster.brokers.random_uuid().to_string();
        coordinator.set_member(true);
        coordinator.is_known_as(&member_id);
        Rc::new(Self {
            cluster,
            coordinator,
            status: MembershipStatus::new(Instant::now()),
            queue,
            polls,
            topics: RefCell::default(),
            subscriptions: Cell::new(0),
            leaving: watch::Sender::new(0),
            in_full: Cell::new(true),
            interval: Cell::new(HEARTBEAT_INTERVAL),
            assigned: RefCell::default(),
            unnamed: RefCell::default(),
            retargeted: Notify::new(),
            changed: Notify::new(),
            hurry: Notify::new(),
        })
    }

    pub(super) fn member_id(&self) -> String {
        self.coordinator.identity().member_id
    }

    /// The current assignment.
    pub(super) fn assigned(&self) -> BTreeMap<TopicIdPartition, TopicPartition> {
        self.assigned.borrow().clone()
    }

    /// Replaces the subscription; the next heartbeat carries it, and is sent at once.
    pub(super) fn subscribe(&self, topics: BTreeSet<Arc<str>>) {
        self.topics.replace(topics);
        self.subscriptions.set(self.subscriptions.get() + 1);
        self.in_full.set(true);
        self.hurry.notify_one();
    }

    /// Runs the membership until it is dropped. It begins when the previous one has left: the member id is the same.
    pub(super) async fn live(self: Rc<Self>) {
        // The sender is part of `self`, so that this cannot fail.
        let _ = self.leaving.subscribe().wait_for(|count| *count == 0).await;
        loop {
            self.status.step(MembershipStep::Joining, Some(&self.coordinator));
            self.in_full.set(true);
            // Boxed: futures within futures have a limit of depth.
            let ended = tokio::select! {
                biased;
                ended = self.beat() => ended,
                ended = Box::pin(self.name_targets()) => ended,
            };
            self.assign_none();
            match ended {
                Ended::Late => {
                    let max_ms = self.cluster.config.max_poll_interval.as_millis();
                    self.queue.push(ShareItem::Error(Error::PollIntervalExceeded { max_ms }));
                    self.status.step(MembershipStep::Late, Some(&self.coordinator));
                    self.leave().await;
                    self.await_poll().await;
                }
                Ended::Refused(error, refused) => {
                    let reason = StallReason::of(&error);
                    self.status.step(MembershipStep::Refused(reason), Some(&self.coordinator));
                    self.coordinator.leaves(false);
                    if self.cluster.config.is_native() {
                        self.queue.push(ShareItem::Error(error));
                        // A refused request may be granted later; the application's next poll triggers another attempt.
                        self.await_poll().await;
                        tokio::time::sleep(REFUSED_PAUSE).await;
                    } else {
                        self.queue.push(ShareItem::Refused(error, refused));
                        // Until the application subscribes again, which may have happened during the heartbeat.
                        while self.subscriptions.get() == refused {
                            self.hurry.notified().await;
                        }
                    }
                }
            }
        }
    }

    /// Leaves the group with one attempt.
    pub(super) async fn leave(&self) {
        if !self.coordinator.may_know_member() {
            return;
        }
        let identity = self.coordinator.identity();
        let request = |_version: i16| ShareGroupHeartbeatRequest {
            group_id: self.coordinator.group().to_owned(),
            member_id: identity.member_id.clone(),
            member_epoch: LEAVES,
            ..Default::default()
        };
        let timeout = self.coordinator.request_timeout();
        if let Err(error) = self.coordinator.call_once(VERSION_MAX, timeout, request).await {
            tracing::debug!(%error, "leaving the share group");
        }
        self.coordinator.leaves(false);
    }

    /// Ends the subscription, and returns the request to leave the group. The task of [`Member::live`] has ended.
    pub(super) fn unsubscribe(self: &Rc<Self>) -> impl Future<Output = ()> + 'static {
        self.topics.take();
        self.assign_none();
        self.status.step(MembershipStep::Out, Some(&self.coordinator));
        self.leaving.send_modify(|count| *count += 1);
        let guard = LeaveGuard(self.clone());
        async move { guard.0.leave().await }
    }

    /// Waits until the application polls again, or has begun a poll that waits: that one may wait for records which only a member gets.
    async fn await_poll(&self) {
        let count = self.polls.count();
        while !self.polls.has_polled_since(count) {
            tokio::time::sleep(self.look_interval()).await;
        }
    }

    fn look_interval(&self) -> Duration {
        (self.cluster.config.max_poll_interval / 4).clamp(Duration::from_millis(1), LOOK_EVERY_MAX)
    }

    /// Sends heartbeats until the coordinator refuses the member or the application does not poll.
    async fn beat(&self) -> Ended {
        let config = &self.cluster.config;
        let mut last_poll = LastPoll::new(&self.polls, Instant::now());
        let mut forbidden_at: Option<Instant> = None;
        loop {
            let in_full = self.in_full.replace(false) || self.coordinator.identity().epoch.is_none();
            let subscription = self.subscriptions.get();
            let result = self.beat_once(in_full).await;
            let pause = match result {
                Ok((ErrorCode::None, interval)) => interval,
                Ok((code @ (ErrorCode::UnknownMemberId | ErrorCode::FencedMemberEpoch), _)) => {
                    // The member rejoins with the same id. Its acquired records stay acquired.
                    self.coordinator.went_wrong(StallReason::of_code(code));
                    self.coordinator.leaves(false);
                    self.status.step(MembershipStep::Joining, Some(&self.coordinator));
                    self.assign_none();
                    config.retry_backoff
                }
                Ok((code, _)) if code.is_retriable() => {
                    self.coordinator.went_wrong(StallReason::of_code(code));
                    self.coordinator.forget();
                    self.in_full.set(true);
                    config.retry_backoff
                }
                Ok((code @ ErrorCode::TopicAuthorizationFailed, _)) => {
                    // The member stays, as in librdkafka: the topic may be granted, or the application subscribes to others.
                    let error = self.coordinator.refused("ShareGroupHeartbeat", code);
                    self.coordinator.went_wrong(StallReason::of(&error));
                    // Error responses have no interval.
                    let (now, interval) = (Instant::now(), self.interval.get());
                    if forbidden_at.is_none_or(|at| now >= at + interval.max(FORBIDDEN_REPORTED_EVERY)) {
                        forbidden_at = Some(now);
                        self.queue.push(ShareItem::Error(error));
                    }
                    self.in_full.set(true);
                    interval
                }
                Ok((code, _)) => {
                    let error = self.coordinator.refused("ShareGroupHeartbeat", code);
                    return Ended::Refused(error, subscription);
                }
                Err(error) if is_refusal(&error) => return Ended::Refused(error, subscription),
                // The group has not refused the member: it continues when the connection, TLS or the login works again.
                Err(error) => {
                    if self.coordinator.must_report(&error) {
                        self.queue.push(ShareItem::Error(error));
                    }
                    self.in_full.set(true);
                    config.retry_backoff
                }
            };
            let next = Instant::now() + pause;
            loop {
                let look = next.min(Instant::now() + self.look_interval());
                let hurried = tokio::time::timeout_at(look, self.hurry.notified()).await.is_ok();
                let now = Instant::now();
                if last_poll.age(&self.polls, now) > config.max_poll_interval {
                    return Ended::Late;
                }
                if hurried || now >= next {
                    break;
                }
            }
        }
    }

    /// Sends one heartbeat and applies its response. Returns the error code and the time to the next heartbeat.
    async fn beat_once(&self, in_full: bool) -> Result<(ErrorCode, Duration), Error> {
        let identity = self.coordinator.identity();
        let rack = Some(self.cluster.config.client_rack.clone()).filter(|rack| !rack.is_empty());
        let topics: Vec<String> = self.topics.borrow().iter().map(ToString::to_string).collect();
        let request = |_version: i16| {
            if identity.epoch.is_none() {
                self.coordinator.asks_to_join();
            }
            ShareGroupHeartbeatRequest {
                group_id: self.coordinator.group().to_owned(),
                member_id: identity.member_id.clone(),
                member_epoch: identity.epoch.unwrap_or(JOINS),
                rack_id: rack.clone().filter(|_| in_full),
                subscribed_topic_names: in_full.then(|| topics.clone()),
            }
        };
        let timeout = self.cluster.config.socket_timeout;
        let response = self.coordinator.call_once(VERSION_MAX, timeout, request).await?;
        let interval = Duration::from_millis(response.heartbeat_interval_ms.max(1) as u64);
        if response.error_code == ErrorCode::None {
            self.interval.set(interval);
            self.coordinator.went_well();
            self.coordinator.enters(response.member_epoch);
            if let Some(assignment) = response.assignment {
                self.take_target(assignment.topic_partitions);
            }
        }
        Ok((response.error_code, interval))
    }

    /// Replaces the assignment whose names are looked up. One that the coordinator repeats leaves its lookup as it is.
    fn take_target(&self, target: Vec<TopicPartitions>) {
        if self.unnamed.borrow().as_ref().is_some_and(|unnamed| unnamed.target == target) {
            return;
        }
        self.unnamed.replace(Some(UnnamedTarget { target, lookups: 0, retry_at: Instant::now() }));
        self.retargeted.notify_one();
    }

    /// Looks up the names of assignments. It never ends: it runs beside the heartbeats, because the coordinator removes a member that
    /// waits for another broker.
    async fn name_targets(&self) -> Ended {
        loop {
            tokio::select! {
                biased;
                () = self.retargeted.notified() => {}
                () = self.name_target() => {}
            }
        }
    }

    /// Assigns the partitions of the topics whose names are known. The others are looked up again after a pause: the topic may be new, or
    /// hidden from this client, and its partitions keep no others from being read. Waits without an end if there is no such assignment.
    async fn name_target(&self) {
        let unnamed = self.unnamed.borrow().clone();
        let Some(UnnamedTarget { target, lookups, retry_at }) = unnamed else {
            return std::future::pending().await;
        };
        tokio::time::sleep_until(retry_at).await;
        let ids = target.iter().map(|topic| topic.topic_id).collect();
        let error = match self.cluster.names_of_ids(&ids).await {
            Ok(named) => {
                let (assigned, error) = (self.named(&target, &named.names), named.error());
                let is_news = lookups == 0 || *self.assigned.borrow() != assigned;
                let is_settled = error.is_none() || !assigned.is_empty();
                if is_news {
                    self.assign(assigned);
                }
                if is_settled {
                    self.status.step(MembershipStep::Settled, Some(&self.coordinator));
                }
                if error.is_none() {
                    self.coordinator.went_well();
                }
                error
            }
            Err(error) => Some(error),
        };
        let unnamed = error.map(|error| {
            tracing::debug!(%error, "the topics of a share group's assignment");
            self.coordinator.went_wrong(StallReason::of(&error));
            let retry_at = Instant::now() + self.cluster.backoff(lookups);
            UnnamedTarget { target, lookups: lookups.saturating_add(1), retry_at }
        });
        self.unnamed.replace(unnamed);
    }

    /// The partitions of the topics with these names, and those that are assigned already.
    fn named(
        &self,
        target: &[TopicPartitions],
        names: &BTreeMap<Uuid, Arc<str>>,
    ) -> BTreeMap<TopicIdPartition, TopicPartition> {
        let before = self.assigned.borrow();
        let mut assigned = BTreeMap::new();
        for topic in target {
            let name = names.get(&topic.topic_id);
            for partition in topic.partitions.iter().copied() {
                let key = TopicIdPartition { topic_id: topic.topic_id, partition };
                let named = name.map(|name| TopicPartition { topic: name.clone(), partition });
                if let Some(at) = named.or_else(|| before.get(&key).cloned()) {
                    assigned.insert(key, at);
                }
            }
        }
        assigned
    }

    fn assign_none(&self) {
        self.unnamed.take();
        self.retargeted.notify_one();
        self.assign(BTreeMap::new());
    }

    fn assign(&self, assigned: BTreeMap<TopicIdPartition, TopicPartition>) {
        for at in assigned.values() {
            self.cluster.want(&at.topic);
        }
        // A partition is assigned as soon as the broker has it.
        if assigned.values().any(|at| self.cluster.leader(&at.topic, at.partition).is_none()) {
            self.cluster.refresh();
        }
        let group = self.coordinator.group();
        self.cluster.observer.assigned(Some(group), assigned.len());
        self.assigned.replace(assigned);
        self.changed.notify_one();
    }
}

/// Returns `true` if no later heartbeat can succeed: a broker's final error code, or a broker without share groups.
fn is_refusal(error: &Error) -> bool {
    matches!(error, Error::Unsupported { .. }) || error.broker_code().is_some_and(|code| !code.is_retriable())
}
