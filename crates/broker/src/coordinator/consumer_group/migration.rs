//! The online migration of a group: from the classic protocol to the new one, and back.
//!
//! A classic group is converted when its first member of the new protocol joins, and converted back when its last one has gone.
//! `group.consumer.migration.policy` permits each direction.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::consumer_offsets::{GroupMetadataValue, GroupMetadataValueMember};
use ottla_protocol::messages::consumer_protocol::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
use tokio::time::Instant;

use super::classic::{encode_assignment, places_of};
use super::group::{Change, ConsumerGroup, Refusal, TopicLookup};
use super::member::{Assigned, ClassicProfile, Member, MemberState, Profile, Protocols};
use crate::coordinator::classic_member;
use crate::coordinator::group::{CONSUMER, Group};
use crate::memory::KeptMemory;

impl ConsumerGroup {
    /// Converts a classic group. Its members keep their partitions, and have its generation as their epoch.
    ///
    /// # Errors
    /// GROUP_ID_NOT_FOUND if the group does not have the protocol type `consumer`, if a subscription cannot be read, or if an
    /// assignor has data of its own in the assignment.
    pub(crate) fn from_classic(
        group_id: &str,
        classic: &Group,
        now: Instant,
        memory: &KeptMemory,
        lookup: &dyn TopicLookup,
    ) -> Result<Self, Refusal> {
        let refuse = |why: &str| {
            let message = format!("classic group `{group_id}` cannot be upgraded: {why}");
            Refusal::new(ErrorCode::GroupIdNotFound, message)
        };
        if &*classic.protocol_type != CONSUMER {
            return Err(refuse("it does not have the protocol type `consumer`"));
        }
        let mut group = Self::new(memory.clone(), memory.keep_known(Self::bytes(group_id)));
        group.epoch = classic.generation.max(1);
        group.assignment_epoch = group.epoch;
        for (id, member) in classic.members.iter() {
            let converted = member_of(id, member, (classic, group.epoch), now, memory, lookup);
            let converted = converted.map_err(refuse)?;
            group.adopt(id.to_string(), converted, now);
            let target = group.members.get(&**id).map(|member| member.assigned.keys().copied().collect());
            group.targets.insert(id.to_string(), target.unwrap_or_default());
            group.note_member(id);
        }
        group.count_targets(0);
        group.changed.extend([Change::Group, Change::TargetEpoch]);
        Ok(group)
    }

    /// Notes that every record must be written again: some may be gone.
    pub(super) fn note_all(&mut self) {
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in &ids {
            self.note_member(id);
        }
        self.changed.extend(self.patterns.keys().cloned().map(Change::Pattern));
        self.changed.extend([Change::Group, Change::TargetEpoch]);
    }

    /// Returns whether all members use the classic protocol.
    pub(crate) fn is_all_classic(&self) -> bool {
        !self.members.is_empty() && self.members.values().all(Member::is_classic)
    }

    /// The record of the classic group with the same members, whose protocols follow.
    pub(crate) fn to_classic(
        &self,
        now_ms: i64,
        lookup: &dyn TopicLookup,
    ) -> (GroupMetadataValue, Vec<(String, Protocols)>) {
        let of_member = |member: &Member| member.profile.classic.clone().unwrap_or_default().protocols;
        let all: Vec<(String, Protocols)> =
            self.members.iter().map(|(id, member)| (id.clone(), of_member(member))).collect();
        let is_common = |name: &str| all.iter().all(|(_, protocols)| protocols.iter().any(|it| it.0 == name));
        let mut names = all.iter().flat_map(|(_, protocols)| protocols).map(|(name, _)| name);
        let protocol = names.find(|name| is_common(name)).cloned().unwrap_or_default();
        let members = self.members.iter().map(|(id, member)| {
            let Profile { instance_id, client_id, client_host, rebalance_timeout_ms, classic, .. } =
                member.profile.clone();
            let ClassicProfile { session_timeout, protocols } = classic.unwrap_or_default();
            let subscription = protocols.into_iter().find(|(name, _)| *name == protocol);
            let subscription = subscription.map(|(_, metadata)| metadata).unwrap_or_default();
            GroupMetadataValueMember {
                member_id: id.clone(),
                group_instance_id: instance_id,
                client_id,
                client_host,
                rebalance_timeout: rebalance_timeout_ms,
                session_timeout: i32::try_from(session_timeout.as_millis()).unwrap_or(i32::MAX),
                assignment: encode_assignment(&member.assigned, &subscription, lookup),
                subscription,
            }
        });
        // The members may commit with the epoch that they know, until they have joined again.
        let generation = self.members.values().map(|member| member.epoch).max();
        let value = GroupMetadataValue {
            protocol_type: CONSUMER.to_owned(),
            generation: generation.unwrap_or(self.epoch),
            protocol: Some(protocol.clone()),
            leader: self.members.keys().next().cloned(),
            current_state_timestamp: now_ms,
            members: members.collect(),
        };
        (value, all)
    }
}

fn member_of(
    id: &str,
    member: &classic_member::Member,
    (classic, epoch): (&Group, i32),
    now: Instant,
    memory: &KeptMemory,
    lookup: &dyn TopicLookup,
) -> Result<Member, &'static str> {
    // A group that has never formed has no protocol yet.
    let metadata = match member.metadata(&classic.protocol) {
        none if none.is_empty() => member.protocols.first().map(|(_, it)| it.clone()).unwrap_or_default(),
        metadata => metadata,
    };
    let subscription = ConsumerProtocolSubscription::from_bytes(metadata);
    let subscription = subscription.map_err(|_| "a subscription cannot be read")?;
    let topics = if member.assignment.is_empty() {
        // The group waits for its assignment: a cooperative member still has these partitions.
        subscription.owned_partitions
    } else {
        let assignment = ConsumerProtocolAssignment::from_bytes(member.assignment.clone());
        let assignment = assignment.map_err(|_| "an assignment cannot be read")?;
        if assignment.user_data.is_some_and(|data| !data.is_empty()) {
            return Err("its assignor has data of its own in the assignment, which would be lost");
        }
        assignment.assigned_partitions
    };
    let profile = Profile {
        instance_id: member.instance_id.clone(),
        rack_id: subscription.rack_id,
        client_id: member.client_id.to_string(),
        client_host: member.client_host.to_string(),
        names: subscription.topics.into_iter().collect(),
        pattern: None,
        rebalance_timeout_ms: i32::try_from(member.rebalance_timeout.as_millis()).unwrap_or(i32::MAX),
        assignor: None,
        classic: Some(ClassicProfile {
            session_timeout: member.session_timeout,
            protocols: member.named_protocols(),
        }),
    };
    let kept = memory.keep_known(Member::bytes(id, &profile));
    let mut converted = Member::new(id, profile, now, kept);
    (converted.epoch, converted.previous_epoch) = (epoch, epoch);
    converted.state = MemberState::Stable;
    converted.assigned = places_of(&topics, lookup).map(|place| (place, epoch)).collect::<Assigned>();
    Ok(converted)
}
