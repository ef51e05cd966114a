//! Checks of commits and reads of offsets by the epoch of their member.

use ottla_protocol::{ErrorCode, Uuid};

use super::group::ConsumerGroup;
use super::member::Member;

impl ConsumerGroup {
    /// Returns whether a member may commit offsets of these partitions. An older epoch is good for a partition that the
    /// member has had since (KAFKA-20066). `has_epochs`: the request's version has member epochs.
    pub(crate) fn check_commit(
        &self,
        member_id: &str,
        epoch: i32,
        has_epochs: bool,
        places: impl Iterator<Item = (Option<Uuid>, i32)>,
    ) -> Result<(), ErrorCode> {
        if epoch < 0 && self.members.is_empty() {
            return Ok(());
        }
        let member = self.members.get(member_id).ok_or(ErrorCode::UnknownMemberId)?;
        if !has_epochs && !member.is_classic() {
            return Err(ErrorCode::UnsupportedVersion);
        }
        if epoch == member.epoch {
            return Ok(());
        }
        if epoch > member.epoch {
            return Err(wrong_epoch(member));
        }
        for (topic, partition) in places {
            let place = topic.map(|topic| (topic, partition));
            let since = place.and_then(|at| member.assigned.get(&at).or_else(|| member.revoking.get(&at)));
            if since.is_none_or(|since| epoch < *since) {
                return Err(wrong_epoch(member));
            }
        }
        Ok(())
    }

    /// Returns whether a member may read the group's offsets. A client that names no member may read them as well; an empty id is the name
    /// of a member that the group does not have, as in Kafka.
    pub(crate) fn check_fetch(&self, member_id: Option<&str>, epoch: i32) -> Result<(), ErrorCode> {
        if member_id.is_none() && epoch < 0 {
            return Ok(());
        }
        let member = member_id.and_then(|id| self.members.get(id)).ok_or(ErrorCode::UnknownMemberId)?;
        if epoch == member.epoch { Ok(()) } else { Err(wrong_epoch(member)) }
    }
}

/// A classic member knows its epoch as a generation.
fn wrong_epoch(member: &Member) -> ErrorCode {
    if member.is_classic() { ErrorCode::IllegalGeneration } else { ErrorCode::StaleMemberEpoch }
}
