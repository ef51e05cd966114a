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

/// Partitions in all sessions together. With their counts by group they take 20 MB at most.
const PARTITIONS_MAX: usize = 200_000;

/// A topic's id and the number of a partition.
pub(crate) type Place = (Uuid, i32);

/// The partitions of a session, in the order in which the client has named them, each once. Fetches share them.
pub(crate) type Places = Arc<[Place]>;

/// The owner of a session.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct SessionKey {
    pub(crate) node: i32,
    pub(crate) group: Arc<str>,
    pub(crate) member: Arc<str>,
}

/// The limits of sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionLimits {
    /// Sessions of a node.
    pub(crate) sessions: usize,
    /// Partitions of a session.
    pub(crate) partitions: usize,
}

#[derive(Debug)]
struct Session {
    /// No other session has this number: not even a later one of the same member.
    number: u64,
    /// The epoch of the next request.
    epoch: i32,
    connection: u64,
    partitions: Places,
}

/// The number of sessions that fetch each partition, by group.
#[derive(Debug, Default)]
struct Fetched(BTreeMap<Arc<str>, BTreeMap<Place, usize>>);

impl Fetched {
    fn add(&mut self, group: &Arc<str>, places: &[Place]) {
        if places.is_empty() {
            return;
        }
        let of_group = self.0.entry(group.clone()).or_default();
        for place in places {
            *of_group.entry(*place).or_default() += 1;
        }
    }

    fn remove(&mut self, group: &str, places: &[Place]) {
        let Some(of_group) = self.0.get_mut(group) else { return };
        for place in places {
            if let Some(count) = of_group.get_mut(place) {
                *count -= 1;
                if *count == 0 {
                    of_group.remove(place);
                }
            }
        }
        if of_group.is_empty() {
            self.0.remove(group);
        }
    }
}

/// The sessions of all nodes.
#[derive(Debug, Default)]
pub(crate) struct ShareSessions {
    sessions: BTreeMap<SessionKey, Session>,
    fetched: Fetched,
    /// Partitions in all sessions.
    total: usize,
    /// The number of the last session that began.
    last_number: u64,
}

impl ShareSessions {
    /// Begins a session, in place of an earlier one of the member. Returns its partitions.
    pub(crate) fn open(
        &mut self,
        key: SessionKey,
        connection: u64,
        partitions: Vec<Place>,
        limits: SessionLimits,
    ) -> Result<Places, ErrorCode> {
        self.remove(&key);
        let of_node = self.sessions.keys().filter(|other| other.node == key.node).count();
        let partitions: Places = joined(Vec::new(), partitions).into();
        let is_too_large =
            partitions.len() > limits.partitions || self.total + partitions.len() > PARTITIONS_MAX;
        if of_node >= limits.sessions || is_too_large {
            return Err(ErrorCode::ShareSessionLimitReached);
        }
        self.total += partitions.len();
        self.fetched.add(&key.group, &partitions);
        self.last_number += 1;
        let (number, epoch) = (self.last_number, next_epoch(INITIAL_EPOCH));
        self.sessions.insert(key, Session { number, epoch, connection, partitions: partitions.clone() });
        Ok(partitions)
    }

    /// Continues a session with more or fewer partitions. Returns its partitions. As in Kafka's `ShareSession`, one that is added and
    /// forgotten is forgotten: the request names it for its last acknowledgements.
    pub(crate) fn update(
        &mut self,
        key: &SessionKey,
        epoch: i32,
        added: Vec<Place>,
        forgotten: &BTreeSet<Place>,
        limits: SessionLimits,
    ) -> Result<Places, ErrorCode> {
        let Self { sessions, fetched, total, .. } = self;
        let session = step(sessions, key, epoch)?;
        if added.is_empty() && forgotten.is_empty() {
            return Ok(session.partitions.clone());
        }
        let mut partitions = joined(session.partitions.to_vec(), added);
        partitions.retain(|place| !forgotten.contains(place));
        let partitions: Places = partitions.into();
        let others = *total - session.partitions.len();
        if partitions.len() > limits.partitions || others + partitions.len() > PARTITIONS_MAX {
            return Err(ErrorCode::ShareSessionLimitReached);
        }
        fetched.add(&key.group, &partitions);
        fetched.remove(&key.group, &session.partitions);
        *total = others + partitions.len();
        session.partitions = partitions.clone();
        Ok(partitions)
    }

    /// Continues a session with a request that only acknowledges.
    pub(crate) fn advance(&mut self, key: &SessionKey, epoch: i32) -> Result<(), ErrorCode> {
        step(&mut self.sessions, key, epoch).map(|_| ())
    }

    /// Returns `true` if the member has a session.
    pub(crate) fn contains(&self, key: &SessionKey) -> bool {
        self.sessions.contains_key(key)
    }

    /// The number of the member's session, if it has one.
    pub(crate) fn number_of(&self, key: &SessionKey) -> Option<u64> {
        self.sessions.get(key).map(|session| session.number)
    }

    /// The number of partitions of a session; 0 without one.
    pub(crate) fn partitions_of(&self, key: &SessionKey) -> usize {
        self.sessions.get(key).map_or(0, |session| session.partitions.len())
    }

    /// Ends a session. Returns its partitions, whose records are released.
    pub(crate) fn close(&mut self, key: &SessionKey) -> Result<Places, ErrorCode> {
        self.remove(key).ok_or(ErrorCode::ShareSessionNotFound)
    }

    /// Ends the sessions of a connection.
    pub(crate) fn end_connection(&mut self, connection: u64) -> Vec<(SessionKey, Places)> {
        self.end_all(|_, session| session.connection == connection)
    }

    /// Ends the sessions of a group, or of one of its members.
    pub(crate) fn end_group(&mut self, group: &str, member: Option<&str>) -> Vec<(SessionKey, Places)> {
        self.end_all(|key, _| *key.group == *group && member.is_none_or(|member| *key.member == *member))
    }

    fn end_all(&mut self, ends: impl Fn(&SessionKey, &Session) -> bool) -> Vec<(SessionKey, Places)> {
        let ending = self.sessions.iter().filter(|(key, session)| ends(key, session));
        let keys: Vec<SessionKey> = ending.map(|(key, _)| key.clone()).collect();
        let ended = keys.into_iter().filter_map(|key| Some((key.clone(), self.remove(&key)?)));
        ended.collect()
    }

    /// Returns `true` if a member of the group fetches the partition.
    pub(crate) fn has(&self, group: &str, place: Place) -> bool {
        self.fetched.0.get(group).is_some_and(|fetched| fetched.contains_key(&place))
    }

    /// The number of sessions.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    fn remove(&mut self, key: &SessionKey) -> Option<Places> {
        let session = self.sessions.remove(key)?;
        self.total -= session.partitions.len();
        self.fetched.remove(&key.group, &session.partitions);
        Some(session.partitions)
    }
}

fn step<'a>(
    sessions: &'a mut BTreeMap<SessionKey, Session>,
    key: &SessionKey,
    epoch: i32,
) -> Result<&'a mut Session, ErrorCode> {
    let session = sessions.get_mut(key).ok_or(ErrorCode::ShareSessionNotFound)?;
    if session.epoch != epoch {
        return Err(ErrorCode::InvalidShareSessionEpoch);
    }
    session.epoch = next_epoch(epoch);
    Ok(session)
}

/// The partitions and those that are added, each once.
fn joined(mut partitions: Vec<Place>, added: Vec<Place>) -> Vec<Place> {
    let mut seen: BTreeSet<Place> = partitions.iter().copied().collect();
    partitions.extend(added.into_iter().filter(|place| seen.insert(*place)));
    partitions
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

    const LIMITS: SessionLimits = SessionLimits { sessions: 2, partitions: 2 };

    #[test]
    fn a_session_continues_with_the_next_epoch_only() {
        let mut sessions = ShareSessions::default();
        assert_eq!(sessions.advance(&key("a"), 1), Err(ErrorCode::ShareSessionNotFound));
        assert_eq!(sessions.partitions_of(&key("a")), 0);
        sessions.open(key("a"), 7, PLACES.to_vec(), LIMITS).expect("there is room");
        assert_eq!(
            sessions.update(&key("a"), 1, Vec::new(), &BTreeSet::from([PLACES[0]]), LIMITS),
            Ok(PLACES[1..].into())
        );
        assert_eq!(sessions.partitions_of(&key("a")), 1);
        assert_eq!(sessions.advance(&key("a"), 1), Err(ErrorCode::InvalidShareSessionEpoch));
        sessions.advance(&key("a"), 2).expect("the next epoch");
        assert_eq!(sessions.close(&key("a")), Ok(PLACES[1..].into()));
        assert_eq!(sessions.total, 0);
        assert_eq!(next_epoch(i32::MAX), 1);
    }

    #[test]
    fn a_node_has_a_limited_number_of_sessions() {
        let mut sessions = ShareSessions::default();
        for member in ["a", "b"] {
            sessions.open(key(member), 7, Vec::new(), LIMITS).expect("there is room");
        }
        assert_eq!(sessions.open(key("c"), 7, Vec::new(), LIMITS), Err(ErrorCode::ShareSessionLimitReached));
        sessions.open(key("a"), 8, PLACES.to_vec(), LIMITS).expect("it replaces its own");
        assert_eq!(sessions.end_connection(7).len(), 1);
        assert!(sessions.has("billing", PLACES[0]) && !sessions.has("other", PLACES[0]));
        assert_eq!(sessions.end_group("billing", Some("a")), [(key("a"), PLACES.into())]);
        assert_eq!(sessions.len(), 0);
    }

    #[test]
    fn a_session_has_a_limited_number_of_partitions() {
        let mut sessions = ShareSessions::default();
        let third = (Uuid([1; 16]), 2);
        let three = [PLACES[0], PLACES[1], third].to_vec();
        let full = Err(ErrorCode::ShareSessionLimitReached);
        assert_eq!(sessions.open(key("a"), 7, three, LIMITS), full);
        sessions.open(key("a"), 7, [PLACES[0]; 9].to_vec(), LIMITS).expect("it is one partition");
        let none = BTreeSet::new();
        let two_more = [PLACES[1], third].to_vec();
        assert_eq!(sessions.update(&key("a"), 1, two_more.clone(), &none, LIMITS), full);
        let first = BTreeSet::from([PLACES[0]]);
        assert_eq!(sessions.update(&key("a"), 2, two_more, &first, LIMITS), Ok([PLACES[1], third].into()));
        assert_eq!(sessions.total, 2);
    }

    #[test]
    fn a_partition_that_a_request_names_and_forgets_is_forgotten() {
        let mut sessions = ShareSessions::default();
        sessions.open(key("a"), 7, PLACES.to_vec(), LIMITS).expect("there is room");
        let first = BTreeSet::from([PLACES[0]]);
        assert_eq!(
            sessions.update(&key("a"), 1, PLACES[..1].to_vec(), &first, LIMITS),
            Ok(PLACES[1..].into())
        );
        assert!(!sessions.has("billing", PLACES[0]) && sessions.has("billing", PLACES[1]));
        assert_eq!((sessions.partitions_of(&key("a")), sessions.total), (1, 1));
    }

    /// The end of a session with N partitions looked through all partitions of the group N times.
    #[test]
    fn a_partition_is_fetched_until_its_last_session_ends() {
        let mut sessions = ShareSessions::default();
        for member in ["a", "b"] {
            sessions.open(key(member), 7, PLACES.to_vec(), LIMITS).expect("there is room");
        }
        let first = BTreeSet::from([PLACES[0]]);
        sessions.update(&key("a"), 1, Vec::new(), &first, LIMITS).expect("the next epoch");
        assert_eq!(sessions.fetched.0["billing"], BTreeMap::from([(PLACES[0], 1), (PLACES[1], 2)]));
        sessions.close(&key("b")).expect("it has a session");
        assert!(!sessions.has("billing", PLACES[0]) && sessions.has("billing", PLACES[1]));
        sessions.close(&key("a")).expect("it has a session");
        assert!(sessions.fetched.0.is_empty());
    }
}
