//! A member of a group with the classic protocol.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::ErrorCode;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::consumer_group::member::Protocols;
use super::group::{Join, JoinAnswer, SyncAnswer};
use super::shared_names::SharedNames;
use super::small_map::SmallMap;
use crate::memory::Kept;

/// Protocols of one member. Clients have one for each of their assignors, which are a few; each join compares them.
const PROTOCOLS_MAX: usize = 100;

/// The memory of a protocol in the list of a member, besides its name and subscription. The name has two counters.
const PROTOCOL_BYTES: usize = size_of::<(Arc<str>, Bytes)>() + 2 * size_of::<usize>();

/// A member.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: Arc<str>,
    pub(crate) client_host: Arc<str>,
    pub(super) protocols: Vec<(Arc<str>, Bytes)>,
    /// The memory of the member without its assignment.
    pub(super) kept: Kept,
    pub(super) session_timeout: Duration,
    pub(super) rebalance_timeout: Duration,
    pub(super) heard_at: Instant,
    /// Members that joined before it have lower numbers. The lowest becomes the leader.
    pub(super) number: u64,
    pub(crate) assignment: Bytes,
    /// It has joined since the group formed: it does not belong to the generation.
    pub(super) is_new: bool,
    pub(super) joining: Option<oneshot::Sender<JoinAnswer>>,
    /// It has not sent SyncGroup since the group formed.
    pub(super) must_sync: bool,
    pub(super) syncing: Option<oneshot::Sender<SyncAnswer>>,
}

impl Member {
    /// The protocols with their names.
    pub(crate) fn named_protocols(&self) -> Protocols {
        self.protocols.iter().map(|(name, metadata)| (name.to_string(), metadata.clone())).collect()
    }

    /// The subscription under a protocol.
    pub(crate) fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|(name, _)| &**name == protocol)
            .map(|(_, bytes)| bytes.clone())
            .unwrap_or_default()
    }

    /// Keeps the request of a member that joins until the group has formed. One that the member sent on another connection ends.
    pub(super) fn await_group(&mut self, answer: oneshot::Sender<JoinAnswer>) {
        if let Some(old) = self.joining.replace(answer) {
            let _ = old.send(Err(ErrorCode::UnknownMemberId));
        }
    }
}

impl Join {
    /// Refuses protocols that no group can have.
    pub(super) fn check_protocols(&self) -> Result<(), ErrorCode> {
        if self.protocol_type.is_empty() || self.protocols.is_empty() {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        if self.protocols.len() > PROTOCOLS_MAX {
            let (count, max) = (self.protocols.len(), PROTOCOLS_MAX);
            let (member_id, client_id) = (&self.member_id, &*self.client_id);
            tracing::warn!(
                member_id,
                client_id,
                count,
                max,
                "a member is refused: it has too many protocols"
            );
            return Err(ErrorCode::InvalidRequest);
        }
        Ok(())
    }

    /// The memory of the member that joins. Its instance id is in the group, too.
    pub(super) fn member_bytes(&self) -> usize {
        let instance_id = self.instance_id.as_ref().map_or(0, String::len);
        let texts = self.client_id.len() + self.client_host.len() + 2 * instance_id;
        let protocols: usize =
            self.protocols.iter().map(|(name, metadata)| name.len() + metadata.len()).sum();
        bytes(self.member_id.len() + texts, self.protocols.len(), protocols)
    }
}

impl Member {
    /// The memory of the member with this id, without its assignment.
    pub(super) fn bytes(&self, id: &str) -> usize {
        let instance_id = self.instance_id.as_ref().map_or(0, String::len);
        let texts = self.client_id.len() + self.client_host.len() + 2 * instance_id;
        let protocols: usize =
            self.protocols.iter().map(|(name, metadata)| name.len() + metadata.len()).sum();
        bytes(id.len() + texts, self.protocols.len(), protocols)
    }
}

fn bytes(texts: usize, protocol_count: usize, protocol_bytes: usize) -> usize {
    let member = size_of::<Member>() + SmallMap::<Arc<str>, Box<Member>>::ENTRY_BYTES;
    member + texts + protocol_count * PROTOCOL_BYTES + protocol_bytes
}

/// The protocol that all members know and most of them prefer.
pub(super) fn preferred(members: &SmallMap<Arc<str>, Box<Member>>) -> Option<&Arc<str>> {
    let of_first = members.values().next()?.protocols.iter().map(|(name, _)| &**name);
    let candidates = known_to_all(of_first, members.values().map(|member| &**member));
    let mut votes: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
    for member in members.values() {
        if let Some((name, _)) = member.protocols.iter().find(|(name, _)| candidates.contains(&**name)) {
            *votes.entry(name).or_default() += 1;
        }
    }
    votes.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name)
}

/// The names that all members have among their protocols. Each name of a member is looked up once.
pub(super) fn known_to_all<'a>(
    names: impl Iterator<Item = &'a str>,
    members: impl Iterator<Item = &'a Member>,
) -> BTreeSet<&'a str> {
    let mut counts: BTreeMap<&str, usize> = names.map(|name| (name, 0)).collect();
    let mut all = 0;
    for member in members {
        all += 1;
        for (name, _) in &member.protocols {
            if let Some(count) = counts.get_mut(&**name) {
                *count += 1;
            }
        }
    }
    counts.into_iter().filter(|(_, count)| *count == all).map(|(name, _)| name).collect()
}

/// Protocols with the names in shared memory, each name once.
pub(super) fn shared(protocols: Protocols, names: &SharedNames) -> Vec<(Arc<str>, Bytes)> {
    let mut seen = BTreeSet::new();
    let named = protocols.into_iter().map(|(name, metadata)| (names.get(&name), metadata));
    named.filter(|(name, _)| seen.insert(name.clone())).collect()
}
