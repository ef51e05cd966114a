//! The members of classic groups in `__consumer_offsets`: after a restart they continue under their generation.
//!
//! A group is written when its members have their assignments, when one of them has a new id, and when it has no members left, as in
//! Kafka. Kafka also writes a group when its first member joins: that record is here together with the next one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::consumer_offsets::{
    GroupMetadataKey, GroupMetadataValue, GroupMetadataValueMember,
};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::coordinator::classic_member::{Member, shared};
use crate::coordinator::group::{Group, State};
use crate::coordinator::offset_log::too_long;
use crate::coordinator::shared_names::SharedNames;
use crate::internal_topics::{InternalRecord, InternalTopic, Written};
use crate::memory::KeptMemory;
use crate::panics;
use crate::partition::Partition;

/// The pause before a record that could not be written is written again, unless a request needs it earlier. It doubles with each failure:
/// a log that has failed stays so, and thousands of groups may have records in it.
const RETRY_AFTER: Duration = Duration::from_secs(5);
const RETRY_DOUBLINGS_MAX: u32 = 6;

/// The partition that has a group's record, and the offset behind the record.
type LogPlace = (Arc<Partition>, i64);

/// The state of a group's record.
#[derive(Debug, Default)]
pub(crate) struct StoredGroup {
    /// The log has a record of the group.
    has_record: bool,
    /// The record is older than the group.
    pub(super) is_stale: bool,
    /// The members of the last generation have their assignments, and none has left or has another subscription since.
    pub(super) is_whole: bool,
    /// The time of the next attempt, after one that failed.
    retry_at: Option<Instant>,
    /// The attempts that failed since the last one that did not.
    failures: u32,
    /// The place of the record, if it is in the log and what follows its append has failed: the next attempt does only that.
    unfinished: Option<LogPlace>,
    /// The last write of it.
    pub(super) written: Option<Result<Written, ErrorCode>>,
    /// The time of the last write.
    pub(super) state_since_ms: i64,
}

impl StoredGroup {
    /// Forgets that the record of the last generation could not be written: the next generation does not need it.
    pub(super) fn forget_failure(&mut self) {
        self.written.take_if(|written| written.is_err());
    }
}

impl Group {
    /// The time at which the record must be written: none if it is current, or will change when the group has formed.
    pub(super) fn save_at(&self, now: Instant) -> Option<Instant> {
        self.must_save().then(|| self.stored.retry_at.unwrap_or(now))
    }

    fn must_save(&self) -> bool {
        // While members join, the record has those of the last generation.
        (self.stored.is_stale || self.stored.unfinished.is_some()) && !matches!(self.state, State::Syncing)
    }

    /// Writes the group's record if it is stale. Members learn of a failure from
    /// [`Groups::await_stored`](super::groups::Groups::await_stored); the next call continues where this one failed.
    pub(super) fn save(&mut self, cluster: &Arc<Cluster>, group_id: &str) {
        if !self.must_save() {
            return;
        }
        let mut in_log = self.stored.unfinished.take().filter(|_| !self.stored.is_stale);
        // A panic must not leave the other groups of a tick without their deadlines.
        let written = panics::caught_call(|| match in_log.clone() {
            Some((partition, end)) => cluster.resume_write(&partition, end),
            None => self.append(cluster, group_id, &mut in_log),
        });
        let written = written.unwrap_or_else(|reason| {
            tracing::error!(
                group_id,
                reason,
                "the write of a group's record has panicked: it is tried again; please report this defect"
            );
            Err(ErrorCode::CoordinatorNotAvailable)
        });
        self.stored.has_record |= in_log.is_some();
        self.stored.is_stale = in_log.is_none();
        self.stored.unfinished = in_log.filter(|_| written.is_err());
        let pause = RETRY_AFTER * (1 << self.stored.failures.min(RETRY_DOUBLINGS_MAX));
        self.stored.retry_at = written.is_err().then(|| Instant::now() + pause);
        self.stored.failures = if written.is_err() { self.stored.failures.saturating_add(1) } else { 0 };
        self.stored.written = Some(written);
    }

    /// Appends the group's record. `in_log` becomes its place.
    fn append(
        &mut self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        in_log: &mut Option<LogPlace>,
    ) -> Result<Written, ErrorCode> {
        let now_ms = cluster.clock.now_ms();
        self.stored.state_since_ms = now_ms;
        let (first, mut value) = (self.first_record(cluster, group_id, now_ms), self.to_record(now_ms));
        let mut written = cluster.write_group(group_id, first.iter().chain([&value]), in_log);
        if first.is_some() && matches!(written, Err(ErrorCode::MessageTooLarge)) {
            // The members' record may fit alone.
            written = cluster.write_group(group_id, [&value], in_log);
        }
        if matches!(written, Err(ErrorCode::MessageTooLarge)) {
            if self.stored.retry_at.is_none() {
                tracing::warn!(
                    group_id,
                    members = value.members.len(),
                    "the group's members exceed max.message.bytes of __consumer_offsets: they join again after a restart"
                );
            }
            value.members.clear();
            value.leader = None;
            written = cluster.write_group(group_id, [&value], in_log);
        }
        written
    }

    /// The record of a group that is new: it has no protocol type yet, and no generation. A group with committed offsets exists in Kafka
    /// before its first member joins.
    fn first_record(&self, cluster: &Cluster, group_id: &str, now_ms: i64) -> Option<GroupMetadataValue> {
        let is_new = !self.stored.has_record && !cluster.offsets.has_offsets(group_id);
        is_new.then(|| GroupMetadataValue {
            protocol: None,
            leader: None,
            current_state_timestamp: now_ms,
            ..Default::default()
        })
    }

    pub(super) fn to_record(&self, now_ms: i64) -> GroupMetadataValue {
        let ms = |time: Duration| i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
        // While members join, those that do not belong to the generation are left out: after a restart they join as new ones, which starts
        // a rebalance. If a member of it has changed or left, all are: the others would not learn that they have to join again.
        let is_current = !matches!(self.state, State::Joining { .. }) || self.stored.is_whole;
        let formed = self.members.iter().filter(|(_, member)| is_current && !member.is_new);
        let members = formed.map(|(id, member)| GroupMetadataValueMember {
            member_id: id.to_string(),
            group_instance_id: member.instance_id.clone(),
            client_id: member.client_id.to_string(),
            client_host: member.client_host.to_string(),
            rebalance_timeout: ms(member.rebalance_timeout),
            session_timeout: ms(member.session_timeout),
            subscription: member.metadata(&self.protocol),
            assignment: member.assignment.clone(),
        });
        let members: Vec<GroupMetadataValueMember> = members.collect();
        GroupMetadataValue {
            protocol_type: self.protocol_type.to_string(),
            generation: self.generation,
            protocol: Some(self.protocol.to_string()).filter(|_| !members.is_empty()),
            leader: self.leader.as_deref().map(str::to_owned).filter(|_| !members.is_empty()),
            current_state_timestamp: now_ms,
            members,
        }
    }

    /// A group as its record describes it. Every member has its whole session timeout from `now` on.
    pub(super) fn from_record(
        group_id: &str,
        value: GroupMetadataValue,
        now: Instant,
        memory: &KeptMemory,
        names: &SharedNames,
    ) -> Self {
        let GroupMetadataValue { protocol_type, generation, protocol, leader, members, .. } = value;
        let protocol = names.get(&protocol.unwrap_or_default());
        let ms = |ms: i32| Duration::from_millis(ms.max(0) as u64);
        let mut group = Self::new(memory.keep_known(Self::bytes(group_id)));
        let assigned = members.iter().map(|member| member.assignment.len()).sum();
        group.assignments = Some(memory.keep_known(assigned));
        for member in members {
            let mut known = Member {
                instance_id: member.group_instance_id,
                client_id: names.get(&member.client_id),
                client_host: names.get(&member.client_host),
                // Copied: slices would keep the whole record in memory.
                protocols: vec![(protocol.clone(), Bytes::copy_from_slice(&member.subscription))],
                kept: memory.keep_known(0),
                session_timeout: ms(member.session_timeout),
                rebalance_timeout: ms(member.rebalance_timeout),
                heard_at: now,
                number: 0,
                assignment: Bytes::copy_from_slice(&member.assignment),
                is_new: false,
                joining: None,
                must_sync: false,
                syncing: None,
            };
            known.kept.add(known.bytes(&member.member_id));
            group.add(member.member_id.into(), known);
        }
        group.state = if group.members.is_empty() { State::Empty } else { State::Stable };
        group.generation = generation;
        group.protocol_type = names.get(&protocol_type);
        group.protocol = protocol;
        // The name of a member is in memory once.
        let known = |leader: &String| group.members.get_key(&**leader).cloned();
        group.leader = leader.map(|leader| known(&leader).unwrap_or_else(|| leader.into()));
        (group.stored.has_record, group.stored.is_whole) = (true, true);
        group.stored.state_since_ms = value.current_state_timestamp;
        group
    }
}

impl Group {
    /// Replaces the protocols of a member: a record has one of them.
    pub(super) fn put_protocols(
        &mut self,
        member_id: &str,
        protocols: Vec<(String, Bytes)>,
        memory: &KeptMemory,
        names: &SharedNames,
    ) {
        let Some(member) = self.members.get_mut(member_id) else { return };
        member.protocols = shared(protocols, names);
        member.kept = memory.keep_known(member.bytes(member_id));
    }
}

impl Cluster {
    /// Removes the record of a group that is deleted.
    pub(super) fn remove_group_record(self: &Arc<Self>, group_id: &str) -> Result<Written, ErrorCode> {
        self.write_of_group(group_id, &[group_record(group_id, None)?], &mut None)
    }

    /// Appends records of a group as one batch. `in_log` becomes their place.
    fn write_group<'a>(
        self: &Arc<Self>,
        group_id: &str,
        values: impl IntoIterator<Item = &'a GroupMetadataValue>,
        in_log: &mut Option<LogPlace>,
    ) -> Result<Written, ErrorCode> {
        let records = values.into_iter().map(|value| group_record(group_id, Some(value)));
        self.write_of_group(group_id, &records.collect::<Result<Vec<_>, _>>()?, in_log)
    }

    fn write_of_group(
        self: &Arc<Self>,
        group_id: &str,
        records: &[InternalRecord],
        in_log: &mut Option<LogPlace>,
    ) -> Result<Written, ErrorCode> {
        let partition = self.internal_partition(InternalTopic::ConsumerOffsets, group_id);
        let partition = partition.ok_or(ErrorCode::CoordinatorNotAvailable)?;
        let note = |first: i64| *in_log = Some((partition.clone(), first + records.len() as i64));
        let (written, ()) = self.write_internal(&partition, records, None, note)?;
        Ok(written)
    }
}

/// The record of a group; without a value it removes the group.
pub(super) fn group_record(
    group_id: &str,
    value: Option<&GroupMetadataValue>,
) -> Result<InternalRecord, ErrorCode> {
    let key = GroupMetadataKey { group: group_id.to_owned() }.to_bytes().map_err(too_long)?;
    let value = value.map(GroupMetadataValue::to_bytes).transpose().map_err(too_long)?;
    Ok(InternalRecord { key, value })
}
