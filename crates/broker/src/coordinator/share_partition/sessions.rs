//! Share sessions: the partitions that each member of a share group fetches from a broker.
//!
//! A request of epoch 0 begins a session, the next ones have the epochs 1, 2 and so on, and one of epoch -1 ends it. A session
//! also ends with its connection.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_protocol::{ErrorCode, Uuid};

/// The epoch that ends a session, and the one that begins it.
pub(crate) const FINAL_EPOCH: i32 = -1;
pub(crate) const INITIAL_EPOCH: i32 = 0;

/// Partitions in all sessions together: 20 MB.
const PARTITIONS_MAX: usize = 1_000_000;

/// A topic's id and the number of a partition.
pub(crate) type Place = (Uuid, i32);

/// The owner of a session.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct SessionKey {
    pub(crate) node: i32,
    pub(crate) group: Arc<str>,
    pub(crate) member: Arc<str>,
}

#[derive(Debug)]
struct Session {
    /// The epoch of the next request.
    epoch: i32,
    connection: u64,
    /// In the order in which the client has named them.
    partitions: Vec<Place>,
}

/// The sessions of all nodes.
#[derive(Debug, Default)]
pub(crate) struct ShareSessions {
    sessions: BTreeMap<SessionKey, Session>,
    /// Partitions in all sessions.
    total: usize,
}

impl ShareSessions {
    /// Begins a session, in place of an earlier one of the member. A node has at most `max` sessions.
    pub(crate) fn open(
        &mut self,
        key: SessionKey,
        connection: u64,
        partitions: Vec<Place>,
        max: usize,
    ) -> Result<(), ErrorCode> {
        self.remove(&key);
        let of_node = self.sessions.keys().filter(|other| other.node == key.node).count();
        let mut session = Session { epoch: next_epoch(INITIAL_EPOCH), connection, partitions: Vec::new() };
        if of_node >= max || self.total + partitions.len() > PARTITIONS_MAX {
            return Err(ErrorCode::ShareSessionLimitReached);
        }
        add(&mut session.partitions, partitions);
        self.total += session.partitions.len();
        self.sessions.insert(key, session);
        Ok(())
    }

    /// Continues a session with more or fewer partitions. Returns its partitions.
    pub(crate) fn update(
        &mut self,
        key: &SessionKey,
        epoch: i32,
        added: Vec<Place>,
        forgotten: &BTreeSet<Place>,
    ) -> Result<Vec<Place>, ErrorCode> {
        let total = self.total;
        let session = self.step(key, epoch)?;
        let before = session.partitions.len();
        if total + added.len() > PARTITIONS_MAX {
            return Err(ErrorCode::ShareSessionLimitReached);
        }
        if !forgotten.is_empty() {
            session.partitions.retain(|place| !forgotten.contains(place));
        }
        add(&mut session.partitions, added);
        let partitions = session.partitions.clone();
        self.total = total - before + partitions.len();
        Ok(partitions)
    }

    /// Continues a session with a request that only acknowledges.
    pub(crate) fn advance(&mut self, key: &SessionKey, epoch: i32) -> Result<(), ErrorCode> {
        self.step(key, epoch).map(|_| ())
    }

    fn step(&mut self, key: &SessionKey, epoch: i32) -> Result<&mut Session, ErrorCode> {
        let session = self.sessions.get_mut(key).ok_or(ErrorCode::ShareSessionNotFound)?;
        if session.epoch != epoch {
            return Err(ErrorCode::InvalidShareSessionEpoch);
        }
        session.epoch = next_epoch(epoch);
        Ok(session)
    }

    /// Returns `true` if the member has a session.
    pub(crate) fn contains(&self, key: &SessionKey) -> bool {
        self.sessions.contains_key(key)
    }

    /// Ends a session. Returns its partitions, whose records are released.
    pub(crate) fn close(&mut self, key: &SessionKey) -> Result<Vec<Place>, ErrorCode> {
        self.remove(key).ok_or(ErrorCode::ShareSessionNotFound)
    }

    /// Ends the sessions of a connection.
    pub(crate) fn end_connection(&mut self, connection: u64) -> Vec<(SessionKey, Vec<Place>)> {
        self.end_all(|_, session| session.connection == connection)
    }

    /// Ends the sessions of a group, or of one of its members.
    pub(crate) fn end_group(&mut self, group: &str, member: Option<&str>) -> Vec<(SessionKey, Vec<Place>)> {
        self.end_all(|key, _| *key.group == *group && member.is_none_or(|member| *key.member == *member))
    }

    fn end_all(&mut self, ends: impl Fn(&SessionKey, &Session) -> bool) -> Vec<(SessionKey, Vec<Place>)> {
        let ending = self.sessions.iter().filter(|(key, session)| ends(key, session));
        let keys: Vec<SessionKey> = ending.map(|(key, _)| key.clone()).collect();
        let ended = keys.into_iter().filter_map(|key| Some((key.clone(), self.remove(&key)?)));
        ended.collect()
    }

    /// Returns `true` if a member of the group fetches the partition.
    pub(crate) fn has(&self, group: &str, place: Place) -> bool {
        let mut sessions = self.sessions.iter().filter(|(key, _)| *key.group == *group);
        sessions.any(|(_, session)| session.partitions.contains(&place))
    }

    /// The number of sessions.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    fn remove(&mut self, key: &SessionKey) -> Option<Vec<Place>> {
        let session = self.sessions.remove(key)?;
        self.total -= session.partitions.len();
        Some(session.partitions)
    }
}

fn add(partitions: &mut Vec<Place>, added: Vec<Place>) {
    let known: BTreeSet<Place> = partitions.iter().copied().collect();
    let mut seen = known;
    partitions.extend(added.into_iter().filter(|place| seen.insert(*place)));
}

/// The epoch of the next request: after the largest number comes 1.
const fn next_epoch(epoch: i32) -> i32 {
    match epoch.checked_add(1) {
        Some(next) => next,
        None => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(member: &str) -> SessionKey {
        SessionKey { node: 1, group: "billing".into(), member: member.into() }
    }

    const PLACES: [Place; 2] = [(Uuid([1; 16]), 0), (Uuid([1; 16]), 1)];

    #[test]
    fn a_session_continues_with_the_next_epoch_only() {
        let mut sessions = ShareSessions::default();
        assert_eq!(sessions.advance(&key("a"), 1), Err(ErrorCode::ShareSessionNotFound));
        sessions.open(key("a"), 7, PLACES.to_vec(), 2000).expect("there is room");
        assert_eq!(
            sessions.update(&key("a"), 1, Vec::new(), &BTreeSet::from([PLACES[0]])),
            Ok(PLACES[1..].to_vec())
        );
        assert_eq!(sessions.advance(&key("a"), 1), Err(ErrorCode::InvalidShareSessionEpoch));
        sessions.advance(&key("a"), 2).expect("the next epoch");
        assert_eq!(sessions.close(&key("a")), Ok(PLACES[1..].to_vec()));
        assert_eq!(sessions.total, 0);
        assert_eq!(next_epoch(i32::MAX), 1);
    }

    #[test]
    fn a_node_has_a_limited_number_of_sessions() {
        let mut sessions = ShareSessions::default();
        for member in ["a", "b"] {
            sessions.open(key(member), 7, Vec::new(), 2).expect("there is room");
        }
        assert_eq!(sessions.open(key("c"), 7, Vec::new(), 2), Err(ErrorCode::ShareSessionLimitReached));
        sessions.open(key("a"), 8, PLACES.to_vec(), 2).expect("it replaces its own");
        assert_eq!(sessions.end_connection(7).len(), 1);
        assert!(sessions.has("billing", PLACES[0]) && !sessions.has("other", PLACES[0]));
        assert_eq!(sessions.end_group("billing", Some("a")), [(key("a"), PLACES.to_vec())]);
        assert_eq!(sessions.len(), 0);
    }
}
