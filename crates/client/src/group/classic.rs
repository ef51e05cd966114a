//! Membership by the classic protocol: join, sync, heartbeat, and again.
//!
//! One task, one line of thought: [`Member::live`] reads top to bottom. Heartbeats go on while the application works;
//! a rebalance waits for it to come back to `poll`, so that what it had in hand can be committed before it is given up.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::consumer_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition as AssignedTopic,
};
use ottla_protocol::messages::heartbeat::HeartbeatRequest;
use ottla_protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use ottla_protocol::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use ottla_protocol::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Shared;
use super::assignor::{self, Assignor};
use super::commit::commit_offsets;
use super::coordinator::Coordinator;
use crate::config::Config;
use crate::consumer::{Event, TopicPartition};
use crate::error::Error;
use crate::fetch::inbox::Item;

const JOIN_GROUP_VERSION_MAX: i16 = 9;
const SYNC_GROUP_VERSION_MAX: i16 = 5;
const HEARTBEAT_VERSION_MAX: i16 = 4;
const LEAVE_GROUP_VERSION_MAX: i16 = 5;
/// The subscription's and assignment's version: topics and user data, all that range assignment needs.
const CONSUMER_PROTOCOL_VERSION: i16 = 0;
const PROTOCOL_TYPE: &str = "consumer";

/// What the consumer tells its membership.
#[derive(Debug)]
pub(crate) enum Told {
    /// The application has seen the revocation.
    RevokeSeen,
}

/// A running membership. Dropping it is a crash: the session runs out by itself.
pub(crate) struct Membership {
    identity: Rc<RefCell<Identity>>,
    shared: Rc<Shared>,
    told: mpsc::UnboundedSender<Told>,
    tasks: JoinSet<()>,
}

/// What the coordinator knows this member as.
#[derive(Debug, Default)]
struct Identity {
    member_id: String,
    /// Only while stable: what commits carry.
    generation: Option<i32>,
}

impl Membership {
    pub(crate) fn start(shared: Rc<Shared>, topics: Vec<Arc<str>>) -> Self {
        let identity = Rc::<RefCell<Identity>>::default();
        let (told, telling) = mpsc::unbounded_channel();
        let member = Member { shared: shared.clone(), identity: identity.clone(), topics, told: telling };
        let mut tasks = JoinSet::new();
        tasks.spawn_local(member.live());
        Self { identity, shared, told, tasks }
    }

    pub(crate) fn tell(&self, told: Told) {
        let _ = self.told.send(told);
    }

    /// Generation and member id, while the member has an assignment.
    pub(crate) fn generation(&self) -> Option<(i32, String)> {
        let identity = self.identity.borrow();
        identity.generation.map(|generation| (generation, identity.member_id.clone()))
    }

    /// Generation and member id as the coordinator checks them: between two generations, there is none.
    pub(crate) fn member(&self) -> (i32, String) {
        let identity = self.identity.borrow();
        (identity.generation.unwrap_or(-1), identity.member_id.clone())
    }

    /// Leaves the group, so that the others need not wait for the session to run out. Tries once.
    pub(crate) async fn leave(mut self, config: &Config) {
        self.tasks.abort_all();
        self.shared.replace_assignment(&[]);
        let member_id = self.identity.borrow().member_id.clone();
        let Some(coordinator) = self.shared.coordinator.as_ref().filter(|_| !member_id.is_empty()) else {
            return;
        };
        let request = |version: i16| {
            let mut request =
                LeaveGroupRequest { group_id: coordinator.group().to_owned(), ..Default::default() };
            if version >= 3 {
                let reason = Some("the consumer was closed".to_owned());
                request.members =
                    vec![MemberIdentity { member_id: member_id.clone(), reason, ..Default::default() }];
                if version < 5 {
                    request.members[0].reason = None;
                }
            } else {
                request.member_id.clone_from(&member_id);
            }
            request
        };
        let left = coordinator.call_once(LEAVE_GROUP_VERSION_MAX, config.request_timeout, request).await;
        if let Err(error) = left {
            tracing::debug!(%error, "leaving the group");
        }
    }
}

struct Member {
    shared: Rc<Shared>,
    identity: Rc<RefCell<Identity>>,
    topics: Vec<Arc<str>>,
    told: mpsc::UnboundedReceiver<Told>,
}

/// What to do when the committed offsets could not be had: join again if that may help.
fn give_up_generation(error: Error) -> Result<Ended, Error> {
    if error.is_retriable() { Ok(Ended::Rebalance) } else { Err(error) }
}

/// Why a generation ended.
#[derive(Debug)]
enum Ended {
    /// The coordinator asks everybody to join again; the partitions are still ours until then.
    Rebalance,
    /// The coordinator does not know this member or this generation any more.
    Lost,
}

impl Member {
    async fn live(mut self) {
        loop {
            match self.join_and_sync().await {
                Ok(partitions) => {
                    let ended = match self.begin(partitions.clone()).await {
                        Ok(()) => self.keep_alive().await,
                        Err(error) => give_up_generation(error),
                    };
                    match ended {
                        Ok(ended) => self.end(partitions, ended).await,
                        Err(error) => return self.shared.inbox.push(Item::Error(error)),
                    }
                }
                Err(error) if error.is_retriable() => {
                    tracing::debug!(%error, "joining the group again");
                    tokio::time::sleep(self.config().retry_backoff).await;
                }
                Err(error) => return self.shared.inbox.push(Item::Error(error)),
            }
        }
    }

    fn config(&self) -> &Config {
        &self.shared.cluster.config
    }

    fn coordinator(&self) -> Result<&Coordinator, Error> {
        self.shared.coordinator.as_ref().ok_or_else(|| Error::Config("subscribe needs group.id".into()))
    }

    /// Joins, assigns if this member leads, and returns what it got.
    async fn join_and_sync(&mut self) -> Result<Vec<TopicPartition>, Error> {
        // The leader needs partition counts, and everybody wants the topics known before fetching.
        for topic in &self.topics {
            self.shared.cluster.want(topic);
        }
        let joined = self.join().await?;
        let assignments =
            if joined.leader == joined.member_id { self.assign(&joined).await? } else { Vec::new() };
        let coordinator = self.coordinator()?;
        let request = |version: i16| {
            let mut request = SyncGroupRequest {
                group_id: coordinator.group().to_owned(),
                generation_id: joined.generation_id,
                member_id: joined.member_id.clone(),
                assignments: assignments.clone(),
                ..Default::default()
            };
            if version >= 5 {
                request.protocol_type = Some(PROTOCOL_TYPE.into());
                request.protocol_name = Some(assignor::Range.name().into());
            }
            request
        };
        let timeout = self.config().poll_interval_max + self.config().request_timeout;
        let synced = coordinator.call_once(SYNC_GROUP_VERSION_MAX, timeout, request).await?;
        self.check(synced.error_code, "SyncGroup")?;
        self.identity.borrow_mut().generation = Some(joined.generation_id);
        decode_assignment(synced.assignment).map_err(|reason| Error::Protocol {
            address: format!("coordinator of group `{}`", coordinator.group()),
            reason,
        })
    }

    async fn join(&mut self) -> Result<JoinGroupResponse, Error> {
        let subscription = encode_subscription(&self.topics)?;
        loop {
            let coordinator = self.coordinator()?;
            let config = self.config();
            let member_id = self.identity.borrow().member_id.clone();
            let request = |_version: i16| JoinGroupRequest {
                group_id: coordinator.group().to_owned(),
                session_timeout_ms: config.session_timeout.as_millis() as i32,
                rebalance_timeout_ms: config.poll_interval_max.as_millis() as i32,
                member_id: member_id.clone(),
                protocol_type: PROTOCOL_TYPE.into(),
                protocols: vec![JoinGroupRequestProtocol {
                    name: assignor::Range.name().into(),
                    metadata: subscription.clone(),
                }],
                ..Default::default()
            };
            // The coordinator answers when every member has joined, or when the slowest one's time is over.
            let timeout = config.poll_interval_max + config.request_timeout;
            let joined = coordinator.call_once(JOIN_GROUP_VERSION_MAX, timeout, request).await?;
            if joined.error_code == ErrorCode::MemberIdRequired {
                self.identity.borrow_mut().member_id.clone_from(&joined.member_id);
                continue;
            }
            self.check(joined.error_code, "JoinGroup")?;
            self.identity.borrow_mut().member_id.clone_from(&joined.member_id);
            return Ok(joined);
        }
    }

    /// Range assignment over everybody's subscriptions.
    async fn assign(&self, joined: &JoinGroupResponse) -> Result<Vec<SyncGroupRequestAssignment>, Error> {
        let mut subscriptions = BTreeMap::new();
        let mut topics = BTreeSet::new();
        for member in &joined.members {
            let subscribed = decode_subscription(member.metadata.clone()).map_err(|reason| {
                Error::Protocol { address: format!("member {}", member.member_id), reason }
            })?;
            topics.extend(subscribed.iter().cloned());
            let subscribed: Vec<&str> = subscribed.iter().map(String::as_str).collect();
            subscriptions.insert(member.member_id.clone(), assignor::Member::of(&subscribed));
        }
        let mut counts = assignor::Topics::new();
        for topic in topics {
            // A topic that does not exist has no partitions yet; it must not hold up the others.
            let deadline = Instant::now() + Duration::from_secs(2);
            let count = match self.shared.cluster.await_topic(&Arc::from(topic.as_str()), deadline).await {
                Ok(layout) => layout.partitions.len(),
                Err(_) => 0,
            };
            counts.insert(topic.into(), vec![BTreeSet::new(); count]);
        }
        let dealt = assignor::Range.assign(&counts, &subscriptions);
        dealt
            .into_iter()
            .map(|(member_id, partitions)| {
                let assignment = encode_assignment(&partitions)?;
                Ok(SyncGroupRequestAssignment { member_id, assignment })
            })
            .collect()
    }

    /// Starts fetching what was assigned, from where the group left off.
    async fn begin(&mut self, partitions: Vec<TopicPartition>) -> Result<(), Error> {
        while let Ok(Told::RevokeSeen) = self.told.try_recv() {}
        let starts = self.shared.start_at_committed(partitions.clone()).await?;
        self.shared.replace_assignment(&starts);
        self.shared.inbox.push(Item::Event(Event::Assigned(partitions)));
        Ok(())
    }

    /// Heartbeats until the generation ends.
    async fn keep_alive(&self) -> Result<Ended, Error> {
        let coordinator = self.coordinator()?;
        let mut heard_at = Instant::now();
        loop {
            tokio::time::sleep(self.config().heartbeat_interval).await;
            let code = match self.beat(coordinator).await {
                Ok(code) => code,
                Err(error) if error.is_retriable() => {
                    tracing::debug!(%error, "heartbeat");
                    ErrorCode::CoordinatorNotAvailable
                }
                Err(error) => return Err(error),
            };
            match code {
                ErrorCode::None => heard_at = Instant::now(),
                ErrorCode::RebalanceInProgress => return Ok(Ended::Rebalance),
                ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration | ErrorCode::FencedInstanceId => {
                    return Ok(Ended::Lost);
                }
                code if code.is_retriable() => {
                    coordinator.forget();
                    if heard_at.elapsed() > self.config().session_timeout {
                        return Ok(Ended::Lost);
                    }
                }
                code => return Err(self.refused(code, "Heartbeat")),
            }
        }
    }

    /// Gives the partitions up: after the application came back and its work was committed, or at once if they are
    /// already somebody else's.
    async fn end(&mut self, partitions: Vec<TopicPartition>, ended: Ended) {
        match ended {
            Ended::Rebalance => {
                self.shared.stop_partitions(&partitions);
                self.shared.inbox.push(Item::Event(Event::Revoked(partitions)));
                self.await_application().await;
                if self.config().auto_commit
                    && let Err(error) = self.commit().await
                {
                    tracing::debug!(%error, "commit before giving partitions up");
                }
                self.shared.replace_assignment(&[]);
                self.identity.borrow_mut().generation = None;
            }
            Ended::Lost => {
                *self.identity.borrow_mut() = Identity::default();
                self.shared.replace_assignment(&[]);
                self.shared.inbox.push(Item::Event(Event::Lost(partitions)));
            }
        }
    }

    /// Waits until a poll has returned the revocation, heartbeating meanwhile, for `max.poll.interval.ms` at most.
    async fn await_application(&mut self) {
        let deadline = Instant::now() + self.config().poll_interval_max;
        let interval = self.config().heartbeat_interval;
        loop {
            let beat_at = (Instant::now() + interval).min(deadline);
            if tokio::time::timeout_at(beat_at, self.told.recv()).await.is_ok() || Instant::now() >= deadline
            {
                return;
            }
            if let Ok(coordinator) = self.coordinator() {
                // Whatever it answers: the generation is over, and all that counts is to be heard of.
                let _ = self.beat(coordinator).await;
            }
        }
    }

    /// One heartbeat.
    async fn beat(&self, coordinator: &Coordinator) -> Result<ErrorCode, Error> {
        let (generation_id, member_id) = {
            let identity = self.identity.borrow();
            (identity.generation.unwrap_or(-1), identity.member_id.clone())
        };
        let request = |_| HeartbeatRequest {
            group_id: coordinator.group().to_owned(),
            generation_id,
            member_id: member_id.clone(),
            ..Default::default()
        };
        let timeout = self.config().session_timeout;
        let response = coordinator.call_once(HEARTBEAT_VERSION_MAX, timeout, request).await?;
        Ok(response.error_code)
    }

    async fn commit(&self) -> Result<(), Error> {
        let offsets = self.shared.uncommitted();
        if offsets.is_empty() {
            return Ok(());
        }
        let generation = {
            let identity = self.identity.borrow();
            identity.generation.map(|generation| (generation, identity.member_id.clone()))
        };
        commit_offsets(self.coordinator()?, &offsets, generation).await?;
        self.shared.committed(&offsets);
        Ok(())
    }

    /// Turns an error code into what it means for this member.
    fn check(&self, code: ErrorCode, what: &str) -> Result<(), Error> {
        match code {
            ErrorCode::None => Ok(()),
            ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration | ErrorCode::FencedInstanceId => {
                *self.identity.borrow_mut() = Identity::default();
                // Joining again under a new name is the remedy.
                Err(Error::TimedOut { what: format!("{what}: {code}"), waited_ms: 0 })
            }
            ErrorCode::RebalanceInProgress => {
                Err(Error::TimedOut { what: format!("{what}: {code}"), waited_ms: 0 })
            }
            ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable => {
                if let Some(coordinator) = &self.shared.coordinator {
                    coordinator.forget();
                }
                Err(self.refused(code, what))
            }
            code => Err(self.refused(code, what)),
        }
    }

    fn refused(&self, code: ErrorCode, what: &str) -> Error {
        let group = self.config().group_id.clone().unwrap_or_default();
        Error::Broker { what: format!("{what} of group `{group}`"), code }
    }
}

fn encode_subscription(topics: &[Arc<str>]) -> Result<Bytes, Error> {
    let subscription = ConsumerProtocolSubscription {
        topics: topics.iter().map(ToString::to_string).collect(),
        ..Default::default()
    };
    subscription.to_bytes(CONSUMER_PROTOCOL_VERSION).map_err(|error| Error::Config(error.to_string()))
}

fn encode_assignment(partitions: &[TopicPartition]) -> Result<Bytes, Error> {
    let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for at in partitions {
        by_topic.entry(&at.topic).or_default().push(at.partition);
    }
    let assignment = ConsumerProtocolAssignment {
        assigned_partitions: by_topic
            .into_iter()
            .map(|(topic, partitions)| AssignedTopic { topic: topic.to_owned(), partitions })
            .collect(),
        ..Default::default()
    };
    assignment.to_bytes(CONSUMER_PROTOCOL_VERSION).map_err(|error| Error::Config(error.to_string()))
}

fn decode_subscription(bytes: Bytes) -> Result<Vec<String>, String> {
    ConsumerProtocolSubscription::from_bytes(bytes)
        .map(|subscription| subscription.topics)
        .map_err(|error| format!("subscription: {error}"))
}

/// An empty assignment is no assignment: the member waits for the next rebalance.
fn decode_assignment(bytes: Bytes) -> Result<Vec<TopicPartition>, String> {
    if bytes.is_empty() {
        return Ok(Vec::new());
    }
    let assignment =
        ConsumerProtocolAssignment::from_bytes(bytes).map_err(|error| format!("assignment: {error}"))?;
    let mut partitions = Vec::new();
    for topic in assignment.assigned_partitions {
        let name: Arc<str> = topic.topic.into();
        partitions.extend(
            topic.partitions.into_iter().map(|partition| TopicPartition { topic: name.clone(), partition }),
        );
    }
    Ok(partitions)
}
