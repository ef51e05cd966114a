//! A member of a consumer group, and its states.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::Uuid;
use tokio::time::Instant;

use crate::memory::Kept;

/// A partition by its topic's id.
pub(crate) type Place = (Uuid, i32);
/// The partitions that a member has, with the epoch in which it got each.
pub(crate) type Assigned = BTreeMap<Place, i32>;

/// The epoch of a static member that has left for a while.
pub(crate) const LEFT_FOR_NOW: i32 = -2;
/// The epoch with which a member leaves.
pub(crate) const LEFT: i32 = -1;

/// The step of a member on its way to its target assignment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MemberState {
    /// The member has its target.
    Stable,
    /// The coordinator waits until the member has given up partitions.
    UnrevokedPartitions,
    /// The member waits until others have given up partitions.
    UnreleasedPartitions,
    /// A later version of Kafka wrote the member's record.
    Unknown,
}

impl MemberState {
    /// The number in the record.
    pub(super) const fn code(self) -> i8 {
        match self {
            Self::Stable => 0,
            Self::UnrevokedPartitions => 1,
            Self::UnreleasedPartitions => 2,
            Self::Unknown => 127,
        }
    }

    /// The state of that number.
    pub(super) const fn of_code(code: i8) -> Self {
        match code {
            0 => Self::Stable,
            1 => Self::UnrevokedPartitions,
            2 => Self::UnreleasedPartitions,
            _ => Self::Unknown,
        }
    }
}

/// The properties that a member reports about itself.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Profile {
    pub(crate) instance_id: Option<String>,
    pub(crate) rack_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) names: BTreeSet<String>,
    pub(crate) pattern: Option<String>,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) assignor: Option<String>,
    /// Present while the member uses the classic protocol.
    pub(crate) classic: Option<ClassicProfile>,
}

/// The protocols of a classic member: name and subscription, in order of preference.
pub(crate) type Protocols = Vec<(String, Bytes)>;

/// The properties of a member that uses the classic protocol.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct ClassicProfile {
    pub(crate) session_timeout: Duration,
    pub(crate) protocols: Protocols,
}

impl Profile {
    /// The memory of its texts.
    pub(super) fn bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let names: usize = self.names.iter().map(|name| NAME_BYTES + name.len()).sum();
        let texts =
            text(&self.instance_id) + text(&self.rack_id) + text(&self.pattern) + text(&self.assignor);
        let protocols = self.classic.iter().flat_map(|classic| &classic.protocols);
        let classic: usize =
            protocols.map(|(name, metadata)| PROTOCOL_BYTES + name.len() + metadata.len()).sum();
        names + texts + classic + self.client_id.len() + self.client_host.len()
    }
}

/// A subscribed name in its set, whose nodes are at least five elevenths full.
const NAME_BYTES: usize = 3 * size_of::<String>();

/// A protocol in its list, which has room for twice as many.
const PROTOCOL_BYTES: usize = 2 * size_of::<(String, Bytes)>();

/// A member.
#[derive(Debug)]
pub(crate) struct Member {
    pub(super) id: Arc<str>,
    pub(crate) profile: Profile,
    pub(crate) epoch: i32,
    pub(crate) previous_epoch: i32,
    pub(crate) state: MemberState,
    pub(crate) assigned: Assigned,
    /// The partitions that the member has to give up and may still use.
    pub(crate) revoking: Assigned,
    pub(super) heard_at: Instant,
    /// The member must have given up `revoking` by this time.
    pub(super) revoke_by: Option<Instant>,
    /// A classic member that was notified of a rebalance must have joined again by this time.
    pub(super) join_by: Option<Instant>,
    /// A classic member that has joined must have requested its assignment by this time.
    pub(super) sync_by: Option<Instant>,
    /// The memory of the member.
    pub(super) kept: Kept,
}

impl Member {
    /// The memory of a member with this id and profile, without its partitions.
    pub(super) fn bytes(id: &str, profile: &Profile) -> usize {
        3 * size_of::<(String, Self)>() + 4 * id.len() + profile.bytes()
    }

    pub(super) fn new(id: &str, profile: Profile, now: Instant, kept: Kept) -> Self {
        Self {
            id: id.into(),
            profile,
            epoch: 0,
            previous_epoch: -1,
            state: MemberState::Stable,
            assigned: Assigned::new(),
            revoking: Assigned::new(),
            heard_at: now,
            revoke_by: None,
            join_by: None,
            sync_by: None,
            kept,
        }
    }

    /// The time at which the member is late, if it sends nothing until then.
    pub(super) fn deadline(&self, session_timeout: Duration) -> Instant {
        let own = self.profile.classic.as_ref().map(|classic| classic.session_timeout);
        let session = self.heard_at + own.unwrap_or(session_timeout);
        [self.revoke_by, self.join_by, self.sync_by].into_iter().flatten().fold(session, Instant::min)
    }

    /// The time of the member's last heartbeat.
    #[cfg(test)]
    pub(crate) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// The time by which the member must have given up the partitions that it begins to give up now.
    pub(super) fn revocation_end(&self, now: Instant) -> Instant {
        now + Duration::from_millis(self.profile.rebalance_timeout_ms.max(0) as u64)
    }

    /// Returns whether the member uses the classic protocol.
    pub(crate) fn is_classic(&self) -> bool {
        self.profile.classic.is_some()
    }
}
