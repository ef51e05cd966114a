//! Members of the classic protocol in a group of the new one, while the group migrates (KIP-848).
//!
//! Such a member keeps JoinGroup, SyncGroup and Heartbeat. Its generation is its epoch, and the coordinator assigns:
//!
//! ```text
//! Heartbeat --> REBALANCE_IN_PROGRESS --> JoinGroup: the next step to the target --> SyncGroup: the partitions
//! ```

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::messages::consumer_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition,
};
use ottla_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

use super::group::{Beat, ConsumerGroup, GroupSettings, TopicLookup};
use super::member::{Assigned, ClassicProfile, Member, MemberState, Place};
use super::records::by_topic;
use crate::coordinator::group::{CONSUMER, Join, Joined, Synced};

/// A request of a classic member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassicRequest<'a> {
    pub(crate) member_id: &'a str,
    pub(crate) instance_id: Option<&'a str>,
    pub(crate) generation: i32,
}

/// The answer to a classic member that joins.
#[derive(Debug)]
pub(crate) struct ClassicJoined {
    pub(crate) joined: Joined,
    /// The topics of the group have changed.
    pub(crate) has_new_subscription: bool,
}

impl ConsumerGroup {
    /// Handles JoinGroup. `is_new`: the client does not know its id yet.
    pub(crate) fn join_classic(
        &mut self,
        now: Instant,
        now_ms: i64,
        (join, is_new): (Join, bool),
        settings: &GroupSettings,
        lookup: &dyn TopicLookup,
    ) -> Result<ClassicJoined, ErrorCode> {
        let until = now + join.rebalance_timeout;
        self.check_size(&join.member_id, settings.members_max).map_err(|refusal| refusal.code)?;
        let protocol = self.check_protocols(&join)?;
        let holder = join.instance_id.as_ref().map(|instance| self.instances.get(instance));
        match holder {
            Some(None) if !is_new => return Err(ErrorCode::UnknownMemberId),
            Some(Some(holder)) if !is_new && *holder != join.member_id => {
                return Err(ErrorCode::FencedInstanceId);
            }
            _ => {}
        }
        let beat = beat_of(join, lookup)?;
        self.enter(now, &beat).map_err(|refusal| refusal.code)?;
        let advance = self.advance(now, now_ms, &beat, settings, lookup).map_err(|refusal| refusal.code)?;
        let member = self.members.get_mut(&beat.member_id).ok_or(ErrorCode::UnknownMemberId)?;
        (member.join_by, member.sync_by) = (None, Some(until));
        let joined = Joined {
            generation: member.epoch,
            protocol_type: CONSUMER.into(),
            protocol: protocol.into(),
            // No member assigns.
            leader: Arc::default(),
            member_id: beat.member_id.into(),
            members: Vec::new(),
            skip_assignment: false,
        };
        Ok(ClassicJoined { joined, has_new_subscription: advance.has_new_subscription })
    }

    /// Returns the first protocol of a member that joins. Another one of them must be known to all classic members.
    pub(super) fn check_protocols(&self, join: &Join) -> Result<String, ErrorCode> {
        let others =
            || self.members.iter().filter(|(id, _)| **id != join.member_id).map(|(_, member)| member);
        let knows = |member: &Member, name: &str| {
            let classic = member.profile.classic.as_ref();
            classic.is_none_or(|classic| classic.protocols.iter().any(|(other, _)| other == name))
        };
        let is_common = |name: &str| others().all(|member| knows(member, name));
        match join.protocols.first() {
            Some((first, _))
                if join.protocol_type == CONSUMER
                    && join.protocols.iter().any(|(name, _)| is_common(name)) =>
            {
                Ok(first.clone())
            }
            _ => Err(ErrorCode::InconsistentGroupProtocol),
        }
    }

    /// Handles SyncGroup.
    pub(crate) fn sync_classic(
        &mut self,
        now: Instant,
        now_ms: i64,
        request: ClassicRequest<'_>,
        (protocol_type, protocol): (Option<&str>, Option<&str>),
        settings: &GroupSettings,
        lookup: &dyn TopicLookup,
    ) -> Result<Synced, ErrorCode> {
        let is_outdated = self.is_assignment_due(now_ms, settings);
        let assignment_epoch = self.assignment_epoch;
        let member = self.classic_member(request)?;
        let classic = member.profile.classic.as_ref().ok_or(ErrorCode::UnknownMemberId)?;
        let (name, metadata) = classic.protocols.first().cloned().unwrap_or_default();
        if protocol_type.is_some_and(|kind| kind != CONSUMER) || protocol.is_some_and(|other| *other != name)
        {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        let is_behind = is_outdated || assignment_epoch > member.epoch;
        // A member that gives up partitions joins again when it has done so.
        if is_behind && member.state != MemberState::UnrevokedPartitions {
            member.expect_join(now);
            return Err(ErrorCode::RebalanceInProgress);
        }
        (member.sync_by, member.heard_at) = (None, now);
        let assignment = encode_assignment(&member.assigned, &metadata, lookup);
        Ok(Synced { protocol_type: CONSUMER.into(), protocol: name.into(), assignment })
    }

    /// Handles Heartbeat: the member must join again if there is a step for it towards its target.
    pub(crate) fn heartbeat_classic(
        &mut self,
        now: Instant,
        now_ms: i64,
        request: ClassicRequest<'_>,
        settings: &GroupSettings,
    ) -> Result<(), ErrorCode> {
        // Until the assignment is due, a member would join again for nothing.
        let is_outdated = self.is_assignment_due(now_ms, settings);
        let assignment_epoch = self.assignment_epoch;
        let is_released = self.is_released(request.member_id);
        let member = self.classic_member(request)?;
        member.heard_at = now;
        let has_step = match member.state {
            MemberState::UnrevokedPartitions => true,
            MemberState::UnreleasedPartitions => is_released,
            MemberState::Stable | MemberState::Unknown => false,
        };
        if !is_outdated && assignment_epoch <= member.epoch && !has_step {
            return Ok(());
        }
        member.expect_join(now);
        Err(ErrorCode::RebalanceInProgress)
    }

    /// Returns whether no other member has a partition of this member's target.
    fn is_released(&self, member_id: &str) -> bool {
        let is_other = |place: &Place| self.owners.get(place).is_some_and(|owner| &**owner != member_id);
        !self.target(member_id).any(is_other)
    }

    /// The member that sends a request of the classic protocol.
    fn classic_member(&mut self, request: ClassicRequest<'_>) -> Result<&mut Member, ErrorCode> {
        self.check_instance(request.member_id, request.instance_id)?;
        let member = self.members.get_mut(request.member_id).ok_or(ErrorCode::UnknownMemberId)?;
        if !member.is_classic() {
            return Err(ErrorCode::UnknownMemberId);
        }
        if request.generation != member.epoch {
            return Err(ErrorCode::IllegalGeneration);
        }
        Ok(member)
    }

    fn check_instance(&self, member_id: &str, instance_id: Option<&str>) -> Result<(), ErrorCode> {
        match instance_id.map(|instance| self.instances.get(instance)) {
            Some(None) => Err(ErrorCode::UnknownMemberId),
            Some(Some(holder)) if holder != member_id => Err(ErrorCode::FencedInstanceId),
            _ => Ok(()),
        }
    }

    /// Handles LeaveGroup, which may name the member by its instance id only.
    pub(crate) fn leave_classic(
        &mut self,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Result<(), ErrorCode> {
        let id = match instance_id {
            Some(instance) if member_id.is_empty() => {
                self.instances.get(instance).cloned().ok_or(ErrorCode::UnknownMemberId)?
            }
            instance => {
                self.check_instance(member_id, instance)?;
                member_id.to_owned()
            }
        };
        if !self.members.contains_key(&id) {
            return Err(ErrorCode::UnknownMemberId);
        }
        self.dismiss(&[id]);
        Ok(())
    }
}

impl Member {
    fn expect_join(&mut self, now: Instant) {
        let timeout = Duration::from_millis(self.profile.rebalance_timeout_ms.max(0) as u64);
        self.join_by = self.join_by.or(Some(now + timeout));
    }
}

/// A join as a heartbeat with its subscription.
fn beat_of(join: Join, lookup: &dyn TopicLookup) -> Result<Beat, ErrorCode> {
    let metadata = join.protocols.first().map(|(_, metadata)| metadata.clone()).unwrap_or_default();
    let subscription = ConsumerProtocolSubscription::from_bytes(metadata);
    let subscription = subscription.map_err(|_| ErrorCode::InconsistentGroupProtocol)?;
    Ok(Beat {
        member_id: join.member_id,
        instance_id: join.instance_id,
        rack_id: subscription.rack_id,
        client_id: join.client_id.to_string(),
        client_host: join.client_host.to_string(),
        rebalance_timeout_ms: Some(i32::try_from(join.rebalance_timeout.as_millis()).unwrap_or(i32::MAX)),
        names: Some(subscription.topics.into_iter().collect()),
        // Classic members match patterns themselves.
        pattern: Some(String::new()),
        owned: Some(places_of(&subscription.owned_partitions, lookup).collect()),
        classic: Some(ClassicProfile { session_timeout: join.session_timeout, protocols: join.protocols }),
        ..Beat::default()
    })
}

/// The partitions of topics that exist.
pub(super) fn places_of<'a>(
    topics: &'a [TopicPartition],
    lookup: &'a dyn TopicLookup,
) -> impl Iterator<Item = Place> + 'a {
    let of_topic = |topic: &'a TopicPartition| {
        let (id, count) = lookup.by_name(&topic.topic).unwrap_or((Uuid::ZERO, 0));
        let exist = topic.partitions.iter().filter(move |partition| (0..count).contains(*partition));
        exist.map(move |partition| (id, *partition))
    };
    topics.iter().flat_map(of_topic)
}

/// The partitions in the version of the member's subscription.
pub(super) fn encode_assignment(assigned: &Assigned, metadata: &Bytes, lookup: &dyn TopicLookup) -> Bytes {
    let version = metadata.first_chunk().map_or(0, |version| i16::from_be_bytes(*version));
    let topics = by_topic(assigned.keys().copied()).into_iter();
    let topics =
        topics.filter_map(|(id, partitions)| Some(TopicPartition { topic: lookup.name_of(id)?, partitions }));
    let assignment = ConsumerProtocolAssignment { assigned_partitions: topics.collect(), user_data: None };
    let newest = *<ConsumerProtocolAssignment as ottla_protocol::Message>::VERSIONS.end();
    // Topic names are short: they fit.
    assignment.to_bytes(version.clamp(0, newest)).unwrap_or_default()
}
