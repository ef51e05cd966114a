//! Membership in the classic protocol: join, sync, heartbeat and rejoin.
//!
//! One task runs the membership, and [`Member::live`] is its loop. An eager member revokes all partitions before it
//! joins. A cooperative one (KIP-429) keeps its partitions, revokes those that are assigned to other members, and
//! rejoins.

mod topics;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use ottla_protocol::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use ottla_protocol::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use tokio::time::Instant;

use self::topics::{
    AssignedTopics, WatchedTopics, existing_topics, has_topic, is_given_up, topic_appears, topics_change,
};
use super::application::{Application, Late};
use super::coordinator::{Coordinator, Identity};
use super::heartbeat::{GenerationEnd, HeartbeatTask};
use super::membership_status::MembershipStep;
use super::wire::{decode_assignment, decode_member, encode_assignment, encode_subscription};
use super::{Shared, first_join, unavailable_topics};
use crate::assignor::{Assignor, Member as GroupMember, OwnedPartitions, Topics};
use crate::cluster::brokers::Lane;
use crate::config::{Config, GroupHabits, Rebalance};
use crate::error::Error;
use crate::fetch::inbox::Item;
use crate::log::Context;
use crate::timer::wire_ms;
use crate::types::TopicPartition;
use crate::watchdog::cause::StallReason;

pub(super) const JOIN_GROUP_VERSION_MAX: i16 = 9;
const SYNC_GROUP_VERSION_MAX: i16 = 5;
const LEAVE_GROUP_VERSION_MAX: i16 = 5;
const PROTOCOL_TYPE: &str = "consumer";
/// The pause after the coordinator refused the member, or after a member sent malformed metadata.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// The time that a lookup of committed offsets has after the generation's end, or in a generation that the member must leave. Most
/// lookups take less, and the application then gets the assignment before its revocation.
const LOOKUP_AFTER_END_MAX: Duration = Duration::from_secs(1);

pub(super) struct Member {
    shared: Rc<Shared>,
    application: Application,
    /// The last assignment, which sticky assignors use.
    held: OwnedPartitions,
    /// The heartbeats of the last generation. They continue until the member joins the next one, because the application may
    /// have to answer a revocation before that.
    heartbeat: Option<Rc<HeartbeatTask>>,
}

/// The reason why this member left a generation.
enum Left {
    /// The member must rejoin.
    Rejoin,
    /// The application does not poll.
    Late,
}

impl From<Late> for Left {
    fn from(_: Late) -> Self {
        Self::Late
    }
}

/// The reason why the member has no generation.
enum Stop {
    /// The group rebalances, or no longer knows this member: the member must rejoin.
    Again(ErrorCode),
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Member {
    pub(super) fn new(shared: Rc<Shared>, application: Application) -> Self {
        Self { shared, application, held: OwnedPartitions::default(), heartbeat: None }
    }

    /// Runs one generation after the other, until it is dropped or another member takes its `group.instance.id`.
    pub(super) async fn live(mut self) {
        loop {
            let ended = self.generation().await;
            if !matches!(ended, Ok(Left::Rejoin)) {
                self.heartbeat = None;
            }
            match ended {
                Ok(Left::Rejoin) => {}
                Ok(Left::Late) => self.leave_until_polled().await,
                Err(Stop::Again(code)) => {
                    tracing::debug!(%code, "joining the group again");
                    tokio::time::sleep(self.config().retry_backoff).await;
                }
                // A failure of TLS or SASL is not the group's: the member keeps its id and its partitions.
                Err(Stop::Failed(error)) if error.may_pass() => {
                    self.report_lasting(&error);
                    tracing::debug!(%error, "joining the group again");
                    tokio::time::sleep(self.config().retry_backoff).await;
                }
                Err(Stop::Failed(error)) => {
                    let fenced = matches!(&error, Error::Broker { code: ErrorCode::FencedInstanceId, .. });
                    self.application.lose();
                    self.application.report(error);
                    if fenced {
                        return;
                    }
                    // A refused request may be granted later; the application's next poll triggers another attempt.
                    self.application.comes_back().await;
                    tokio::time::sleep(REFUSED_PAUSE).await;
                }
            }
        }
    }

    fn config(&self) -> &Config {
        &self.shared.cluster.config
    }

    fn coordinator(&self) -> Result<&Coordinator, Error> {
        self.shared.coordinator.as_ref().ok_or_else(|| Error::Config("subscribe needs group.id".into()))
    }

    /// Returns `true` if all assignors are cooperative. The group selects one only after the member must decide whether
    /// to revoke.
    fn is_cooperative(&self) -> bool {
        self.config().assignors().iter().all(|assignor| assignor.is_cooperative())
    }

    /// Joins, applies the assignment, and stays until it must rejoin.
    async fn generation(&mut self) -> Result<Left, Stop> {
        self.shared.step(MembershipStep::Joining);
        let subscription = self.application.subscription();
        unavailable_topics::want_topics(&subscription, &self.shared.cluster);
        if subscription.has_patterns() {
            self.shared.cluster.want_all().await?;
        }
        let topics = existing_topics(&subscription, &self.shared.cluster);
        if let Err(Late) = self.let_go_before_joining(&topics).await {
            return Ok(Left::Late);
        }
        if !self.may_join(&topics) {
            // It is no member: the group does not wait for it.
            self.heartbeat = None;
            self.shared.step(MembershipStep::Out);
            return Ok(tokio::select! {
                late = self.application.wants_or_is_late() => late.map_or(Left::Late, |()| Left::Rejoin),
                () = topic_appears(&self.shared, &topics) => Left::Rejoin,
                () = topics_change(&self.shared, &subscription, &topics) => Left::Rejoin,
            });
        }
        let began = Instant::now();
        self.heartbeat = None;
        let joined = self.join(&topics).await?;
        let (assignments, assigned_topics) = self.lead(&joined).await?;
        let assigned = self.sync(&joined, assignments).await?;
        let topics = WatchedTopics { subscription, topics, assigned: assigned_topics };
        let heartbeat = Rc::new(HeartbeatTask::start(self.shared.clone()));
        self.heartbeat = Some(heartbeat.clone());

        if let Some(left) = self.reconcile(assigned, joined.generation_id, &heartbeat, &topics).await? {
            return Ok(left);
        }
        self.shared.cluster.observer.rebalanced(began.elapsed());
        self.shared.step(MembershipStep::Settled);
        let (left, reason) = tokio::select! {
            biased;
            ended = heartbeat.wait_for_end() => return self.on_end(ended).await,
            late = self.application.wants_or_is_late() => match late {
                Ok(()) => (Left::Rejoin, "the subscription has changed"),
                Err(Late) => (Left::Late, "max.poll.interval.ms exceeded"),
            },
            reason = topics.change(&self.shared) => (Left::Rejoin, reason),
        };
        self.shared.cluster.observer.rebalances(reason);
        if let (Left::Rejoin, false) = (&left, self.is_cooperative()) {
            return Ok(self
                .application
                .give_up(self.shared.owned_and_assigned())
                .await
                .map_or(Left::Late, |()| Left::Rejoin));
        }
        Ok(left)
    }

    /// By [`GroupHabits`], a member without an existing topic does not join.
    fn may_join(&self, topics: &[Arc<str>]) -> bool {
        self.config().group_habits == GroupHabits::Java || has_topic(&self.shared, topics)
    }

    async fn on_end(&mut self, ended: GenerationEnd) -> Result<Left, Stop> {
        self.shared.cluster.observer.rebalances(&match &ended {
            GenerationEnd::Rebalance => "group is rebalancing".to_owned(),
            GenerationEnd::Lost(code) | GenerationEnd::Refused(code, _) => {
                format!("no longer a member: {code}")
            }
        });
        match ended {
            GenerationEnd::Rebalance if self.is_cooperative() => Ok(Left::Rejoin),
            GenerationEnd::Rebalance => {
                let given_up = self.application.give_up(self.shared.owned_and_assigned()).await;
                Ok(given_up.map_or(Left::Late, |()| Left::Rejoin))
            }
            GenerationEnd::Lost(code) => {
                self.forget(code);
                self.application.lose();
                Ok(Left::Rejoin)
            }
            GenerationEnd::Refused(code, request) => Err(self.refused(code, request).into()),
        }
    }

    /// Revokes partitions before joining: an eager member all, a cooperative one those of topics that it no longer
    /// wants. Without an existing topic, a cooperative member that does not join revokes all as well.
    async fn let_go_before_joining(&mut self, topics: &[Arc<str>]) -> Result<(), Late> {
        if !self.is_cooperative() {
            return self.application.give_up(self.shared.owned_and_assigned()).await;
        }
        let mut leaving = self.shared.owned();
        if self.config().group_habits == GroupHabits::Librdkafka {
            let cluster = &self.shared.cluster;
            let deleted = |at: &TopicPartition| {
                cluster.lasting_error(&at.topic) == Some(ErrorCode::UnknownTopicOrPartition)
            };
            let (deleted, others) = leaving.into_iter().partition(deleted);
            leaving = others;
            self.application.give_up_deleted(deleted).await?;
        }
        let joins = self.may_join(topics);
        leaving.retain(|at| !joins || !topics.contains(&at.topic));
        self.application.give_up(leaving).await
    }

    /// Changes the owned partitions to the assigned ones. A cooperative member that revoked partitions rejoins, so
    /// that another member can get them.
    async fn reconcile(
        &mut self,
        assigned: Vec<TopicPartition>,
        generation: i32,
        heartbeat: &HeartbeatTask,
        topics: &WatchedTopics,
    ) -> Result<Option<Left>, Error> {
        let owned = self.shared.owned();
        let all = if self.is_cooperative() { owned.clone() } else { self.shared.owned_and_assigned() };
        let gone: Vec<_> = all.into_iter().filter(|at| !assigned.contains(at)).collect();
        let new: Vec<_> = assigned.iter().filter(|at| !owned.contains(at)).cloned().collect();
        let lets_go = owned.iter().any(|at| gone.contains(at));
        self.held = OwnedPartitions::new(assigned, Some(generation));
        if let Err(Late) = self.application.give_up(gone).await {
            return Ok(Some(Left::Late));
        }
        // librdkafka's applications get each assignment in this protocol, also one that adds nothing.
        let always = !self.is_cooperative() || self.config().rebalance == Rebalance::Application;
        let left = self.take(new, always, lets_go, heartbeat, topics).await?;
        Ok(left.or_else(|| lets_go.then_some(Left::Rejoin)))
    }

    /// Takes new partitions. A failed lookup of their committed offsets is repeated in this generation, unless the topics change: the
    /// next one would need it as well, and the other members would have to join again. A member that `rejoins` anyway looks them up
    /// once. Returns the reason to leave the generation, if there is one.
    async fn take(
        &mut self,
        new: Vec<TopicPartition>,
        always: bool,
        rejoins: bool,
        heartbeat: &HeartbeatTask,
        topics: &WatchedTopics,
    ) -> Result<Option<Left>, Error> {
        let shared = self.shared.clone();
        let change = topics.change(&shared);
        tokio::pin!(change);
        let changed = Cell::new(None);
        let mut failures = 0;
        while heartbeat.end().is_none() || failures == 0 {
            // The other members must not wait for a lookup that may not succeed: neither for this member's next request to join, nor for
            // the partitions that it has revoked.
            let must_join = async {
                if !rejoins {
                    heartbeat.wait_for_end().await;
                }
                tokio::time::sleep(LOOKUP_AFTER_END_MAX).await;
            };
            // Nor must the group wait for new topics and partitions.
            let is_over = async {
                tokio::select! {
                    biased;
                    reason = &mut change => changed.set(Some(reason)),
                    () = must_join => {}
                }
            };
            let Err(error) = self.application.take(new.clone(), always, || false, is_over).await else {
                return Ok(changed.get().map(|reason| self.rejoins_because(reason)));
            };
            if rejoins || !error.may_pass() {
                return Err(error);
            }
            self.report_lasting(&error);
            tracing::debug!(%error, "looking up the committed offsets again");
            let pause = self.shared.cluster.backoff(failures);
            failures += 1;
            tokio::select! {
                biased;
                late = self.application.wants_or_is_late() => {
                    return Ok(Some(late.map_or(Left::Late, |()| Left::Rejoin)));
                }
                reason = &mut change => return Ok(Some(self.rejoins_because(reason))),
                () = tokio::time::sleep(pause) => {}
            }
        }
        Ok(None)
    }

    fn rejoins_because(&self, reason: &str) -> Left {
        self.shared.cluster.observer.rebalances(reason);
        Left::Rejoin
    }

    /// Reports an error that does not pass by itself, once until the coordinator answers again.
    fn report_lasting(&self, error: &Error) {
        if self.coordinator().is_ok_and(|coordinator| coordinator.must_report(error)) {
            self.shared.inbox.push(Item::Error(error.clone()));
        }
    }

    async fn join(&mut self, topics: &[Arc<str>]) -> Result<JoinGroupResponse, Stop> {
        let owned = self.shared.owned();
        let mut protocols = Vec::new();
        for assignor in self.config().assignors() {
            let rack = Some(&*self.config().client_rack).filter(|rack| !rack.is_empty());
            let metadata = encode_subscription(&*assignor, topics, &owned, &self.held, rack)?;
            protocols.push(JoinGroupRequestProtocol { name: assignor.name().to_owned(), metadata });
        }
        let coordinator = self.coordinator()?;
        loop {
            let config = self.config();
            let identity = coordinator.identity();
            let request = JoinGroupRequest {
                group_id: coordinator.group().to_owned(),
                session_timeout_ms: wire_ms(config.session_timeout),
                rebalance_timeout_ms: wire_ms(config.max_poll_interval),
                member_id: identity.member_id.clone(),
                group_instance_id: identity.instance_id.clone(),
                protocol_type: PROTOCOL_TYPE.into(),
                protocols: protocols.clone(),
                ..Default::default()
            };
            // The coordinator responds when every member has joined, or when the rebalance timeout elapses.
            let timeout = config.max_poll_interval + config.socket_timeout;
            let joined = if identity.member_id.is_empty() && identity.instance_id.is_none() {
                first_join::send(&self.shared, timeout, request).await?
            } else {
                let request = |_version: i16| request.clone();
                coordinator.call_on(Lane::Join, JOIN_GROUP_VERSION_MAX, timeout, request).await?
            };
            if joined.error_code == ErrorCode::MemberIdRequired {
                coordinator.is_known_as(&joined.member_id);
                continue;
            }
            self.check(joined.error_code, "JoinGroup")?;
            coordinator.is_known_as(&joined.member_id);
            coordinator.enters(joined.generation_id);
            return Ok(joined);
        }
    }

    /// The leader's assignment of the group, and the topics that it watches. A static leader that returns keeps the assignment
    /// (KIP-814), and watches the topics as well: no other member does.
    async fn lead(
        &self,
        joined: &JoinGroupResponse,
    ) -> Result<(Vec<SyncGroupRequestAssignment>, AssignedTopics), Error> {
        if joined.leader != joined.member_id {
            return Ok((Vec::new(), AssignedTopics::default()));
        }
        if joined.skip_assignment {
            return Ok((Vec::new(), self.topics_of(&members_of(joined)?).await?));
        }
        self.assign(joined).await
    }

    /// Computes the assignment of the group.
    async fn assign(
        &self,
        joined: &JoinGroupResponse,
    ) -> Result<(Vec<SyncGroupRequestAssignment>, AssignedTopics), Error> {
        let name = joined.protocol_name.as_deref().unwrap_or_default();
        let assignors = self.config().assignors();
        let chosen = assignors.iter().find(|assignor| assignor.name() == name);
        let assignor: &dyn Assignor = &**chosen.ok_or_else(|| Error::Protocol {
            address: "the group's coordinator".into(),
            reason: format!("chose assignor `{name}`, which this member did not offer"),
        })?;
        let members = members_of(joined)?;
        let assigned = self.topics_of(&members).await?;
        let mut assignment = assignor.assign(&assigned.topics, &members);
        for (member, partitions) in &assignment {
            self.shared.cluster.observer.log.debug(Context::Assignor, "ASSIGN", || {
                let names: Vec<String> = partitions.iter().map(ToString::to_string).collect();
                format!("{name} gives {member} {} partition(s): {}", names.len(), names.join(", "))
            });
        }
        let of_member = |id: String| {
            let partitions = assignment.remove(&id).unwrap_or_default();
            Ok(SyncGroupRequestAssignment { assignment: encode_assignment(&partitions)?, member_id: id })
        };
        let assignments = members.into_keys().map(of_member).collect::<Result<_, Error>>()?;
        Ok((assignments, assigned))
    }

    /// The topics of all members, as the metadata describes them now.
    async fn topics_of(&self, members: &BTreeMap<String, GroupMember>) -> Result<AssignedTopics, Error> {
        let topics = self.describe(members).await?;
        let uses_racks = members.values().any(|member| member.rack.is_some());
        Ok(AssignedTopics { topics, uses_racks })
    }

    /// The partitions of all subscribed topics. A topic that does not exist has no partitions yet, and one that is missing for a moment
    /// keeps its own.
    async fn describe(&self, members: &BTreeMap<String, GroupMember>) -> Result<Topics, Error> {
        let mut topics: Topics = members
            .values()
            .flat_map(|member| &member.topics)
            .map(|topic| (topic.clone(), Vec::new()))
            .collect();
        for topic in topics.keys() {
            self.shared.cluster.want(topic);
        }
        let names: Vec<&str> = topics.keys().map(|topic| &**topic).collect();
        if names.is_empty() {
            return Ok(topics);
        }
        let described = self.shared.cluster.describe(Some(&names)).await?;
        self.shared.cluster.merge(described);
        // The merged metadata keeps the partitions of a topic with an error.
        for (topic, partitions) in &mut topics {
            let Some(layout) = self.shared.cluster.topic(topic) else { continue };
            if layout.error != ErrorCode::None {
                self.shared.cluster.refresh();
            }
            if is_given_up(&self.shared, topic, &layout) {
                continue;
            }
            partitions.clone_from(layout.racks.as_deref().unwrap_or(&Vec::new()));
            partitions.resize_with(layout.partitions.len(), BTreeSet::new);
        }
        Ok(topics)
    }

    async fn sync(
        &self,
        joined: &JoinGroupResponse,
        assignments: Vec<SyncGroupRequestAssignment>,
    ) -> Result<Vec<TopicPartition>, Stop> {
        let coordinator = self.coordinator()?;
        let identity = coordinator.identity();
        let request = |version: i16| SyncGroupRequest {
            group_id: coordinator.group().to_owned(),
            generation_id: joined.generation_id,
            member_id: joined.member_id.clone(),
            group_instance_id: identity.instance_id.clone(),
            protocol_type: (version >= 5).then(|| PROTOCOL_TYPE.to_owned()),
            protocol_name: joined.protocol_name.clone().filter(|_| version >= 5),
            assignments: assignments.clone(),
        };
        let timeout = self.config().max_poll_interval + self.config().socket_timeout;
        let synced = coordinator.call_on(Lane::Join, SYNC_GROUP_VERSION_MAX, timeout, request).await?;
        self.check(synced.error_code, "SyncGroup")?;
        decode_assignment(synced.assignment).map_err(|reason| {
            let address = format!("coordinator of group `{}`", coordinator.group());
            Stop::Failed(Error::Protocol { address, reason })
        })
    }

    /// Handles a late poll: leaves the group and reports the error to the application. The member rejoins at the next
    /// poll.
    async fn leave_until_polled(&mut self) {
        let max_ms = self.config().max_poll_interval.as_millis();
        self.application.report(Error::PollIntervalExceeded { max_ms });
        self.application.lose();
        // As in Java's client, a static member keeps its membership until its session times out.
        if let Some(coordinator) = &self.shared.coordinator
            && let Err(error) =
                leave(coordinator, true, "the application did not poll within max.poll.interval.ms").await
        {
            tracing::debug!(%error, "leaving the group");
        }
        self.forget(ErrorCode::UnknownMemberId);
        self.application.comes_back().await;
    }

    /// Clears the generation, and also the member id if it is no longer valid.
    fn forget(&self, code: ErrorCode) {
        if let Some(coordinator) = &self.shared.coordinator {
            coordinator.leaves(code == ErrorCode::UnknownMemberId);
        }
    }

    /// Converts an error code into its consequence for this member.
    fn check(&self, code: ErrorCode, what: &str) -> Result<(), Stop> {
        match code {
            ErrorCode::None => {
                self.coordinator()?.went_well();
                return Ok(());
            }
            ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration => {
                self.forget(code);
                self.application.lose();
                return Err(Stop::Again(code));
            }
            ErrorCode::RebalanceInProgress => return Err(Stop::Again(code)),
            ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable => {
                if let Some(coordinator) = &self.shared.coordinator {
                    coordinator.forget();
                }
            }
            _ => {}
        }
        let error = self.refused(code, what);
        self.coordinator()?.went_wrong(StallReason::of(&error));
        Err(error.into())
    }

    fn refused(&self, code: ErrorCode, what: &str) -> Error {
        let group = self.config().group_id.as_deref().unwrap_or_default();
        let offered = self.config().partition_assignment_strategy.join(",");
        match &self.shared.coordinator {
            Some(coordinator) if code != ErrorCode::InconsistentGroupProtocol => {
                coordinator.refused(what, code)
            }
            _ => Error::Broker {
                what: format!(
                    "{what} of group `{group}`: no assignor of `{offered}` is one that all its members have"
                ),
                code,
            },
        }
    }
}

/// Leaves the group with one attempt, so that the other members need not wait for the session timeout. A static
/// member that will return does not leave (KIP-345).
pub(super) async fn leave(coordinator: &Coordinator, returns: bool, reason: &str) -> Result<(), Error> {
    let Identity { member_id, instance_id, .. } = coordinator.identity();
    if member_id.is_empty() || (returns && instance_id.is_some()) {
        return Ok(());
    }
    leave_as(coordinator, &member_id, instance_id.as_deref(), reason).await
}

/// Sends one LeaveGroup request for this member.
pub(super) async fn leave_as(
    coordinator: &Coordinator,
    member_id: &str,
    instance_id: Option<&str>,
    reason: &str,
) -> Result<(), Error> {
    let request = |version: i16| {
        let mut request =
            LeaveGroupRequest { group_id: coordinator.group().to_owned(), ..Default::default() };
        if version >= 3 {
            request.members = vec![MemberIdentity {
                member_id: member_id.to_owned(),
                group_instance_id: instance_id.map(str::to_owned),
                reason: (version >= 5).then(|| reason.to_owned()),
            }];
        } else {
            member_id.clone_into(&mut request.member_id);
        }
        request
    };
    let timeout = coordinator.request_timeout();
    coordinator.call_once(LEAVE_GROUP_VERSION_MAX, timeout, request).await.map(|_| ())
}

/// The members in the response to the group's leader.
fn members_of(joined: &JoinGroupResponse) -> Result<BTreeMap<String, GroupMember>, Error> {
    joined.members.iter().map(|member| Ok((member.member_id.clone(), decode_member(member)?))).collect()
}
