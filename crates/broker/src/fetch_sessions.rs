//! Fetch sessions (KIP-227): the broker remembers what a client fetches, so that a request names only what changed and
//! an answer only what has news.

use std::collections::hash_map;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Deref;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, PartitionData};
use ottla_protocol::{ErrorCode, Uuid};
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use crate::config::BrokerConfig;
use crate::keyed_map::KeyedMap;
use crate::memory::Parts;

/// A request of epoch -1 wants no session, one of 0 a new one.
const FINAL_EPOCH: i32 = -1;
const INITIAL_EPOCH: i32 = 0;

/// A session may be removed for another one when it was not used for this time, as in Apache Kafka
/// (`min.incremental.fetch.session.eviction.ms`). Younger ones stay: a client that begins many takes nothing from others.
const EVICTED_AFTER: Duration = Duration::from_secs(120);
/// A session that was not used for this time is removed.
const EXPIRED_AFTER: Duration = Duration::from_secs(600);
/// Interval at which expired sessions are searched for.
const SWEEP_EVERY: Duration = Duration::from_secs(10);

/// The memory of a topic in a session, besides its names.
const TOPIC_BYTES: usize = size_of::<((TopicName, [u8; 16]), TopicEntry)>() + 48;

/// The memory of a partition in a session, besides its topic's name: its entries in the list and in the map, and the
/// header of its shared name.
const PARTITION_BYTES: usize = size_of::<(Arc<Name>, Wanted)>() + size_of::<Name>() + 48;

/// The partitions that an uncharged request may fetch: those that it can name itself.
const UNCHARGED_PARTITIONS_MAX: usize = 32;
/// The memory of a partition that is fetched: its target, its answer, the wait for its next records, and the response.
const FETCHED_BYTES: usize = 400;

/// A topic's name, which all partitions of a request and of a session share. It is hashed once: a request can have one
/// long name for 60,000 partitions.
#[derive(Clone, Debug)]
pub(crate) struct TopicName {
    text: Arc<str>,
    hash: u64,
}

impl TopicName {
    pub(crate) fn new(text: &str) -> Self {
        /// Clients choose the names.
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self { text: text.into(), hash: KEY.hash_one(text) }
    }
}

impl Deref for TopicName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl PartialEq for TopicName {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.text, &other.text) || (self.hash == other.hash && self.text == other.text)
    }
}

impl Eq for TopicName {}

impl Hash for TopicName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// A partition as requests name it: by name before version 13, by id from then on.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    pub(crate) topic: TopicName,
    pub(crate) id: [u8; 16],
    pub(crate) partition: i32,
    /// The name of a topic that a session has by id, from the time when it was added; none if there was no such topic.
    pub(crate) known_as: Option<Arc<str>>,
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && self.partition == other.partition && self.topic == other.topic
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.topic, self.id, self.partition).hash(state);
    }
}

/// One partition of a session.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) requested: FetchPartition,
    /// The high watermark in the last answer: an answer leaves out a partition without changes.
    pub(crate) high_watermark: i64,
    pub(crate) log_start_offset: i64,
}

/// The sessions of one node.
#[derive(Debug)]
pub(crate) struct FetchSessions {
    limits: SessionLimits,
    state: Mutex<State>,
}

/// The limits of one node's sessions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionLimits {
    pub(crate) count: usize,
    /// The memory of all sessions. One may have an eighth of it; a larger request is answered without a session.
    pub(crate) bytes: usize,
}

impl SessionLimits {
    pub(crate) fn of(config: &BrokerConfig) -> Self {
        let bytes = Parts::of(config.memory_bytes_max).fetch_sessions;
        Self { count: config.fetch_sessions_max, bytes }
    }
}

/// The lock of all sessions is held for a moment only. The work for a request with many partitions happens under
/// the lock of its session, or before: other clients do not wait for it.
#[derive(Debug)]
struct State {
    sessions: FxHashMap<i32, Entry>,
    rng: fastrand::Rng,
    /// The memory of all sessions.
    bytes: usize,
    sweep_at: Option<Instant>,
}

#[derive(Debug)]
struct Entry {
    used: Instant,
    bytes: usize,
    session: Arc<Mutex<Session>>,
}

#[derive(Debug)]
struct Session {
    epoch: i32,
    by_id: bool,
    partitions: Partitions,
    /// The partition that is first in the next answer: a partition with much data must not starve those behind it.
    turn: usize,
}

/// The partitions that a request fetches, including those of its session.
#[derive(Debug)]
pub(crate) struct Selected {
    /// 0 without a session.
    pub(crate) session_id: i32,
    /// True if partitions without news are left out of the answer.
    pub(crate) incremental: bool,
    pub(crate) partitions: Vec<(Arc<Name>, Wanted)>,
}

/// A number of partitions that a session adds to a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remembered(usize);

impl Remembered {
    pub(crate) const fn new(partitions: usize) -> Self {
        Self(partitions)
    }

    /// Returns `true` if a session that has so many partitions now has more than were charged.
    pub(crate) fn is_exceeded_by(self, partitions: usize) -> bool {
        partitions > self.0.max(UNCHARGED_PARTITIONS_MAX)
    }

    /// The memory of a fetch of these partitions, if it must be charged.
    pub(crate) fn charge(self) -> Option<usize> {
        (self.0 > UNCHARGED_PARTITIONS_MAX).then(|| self.0 * FETCHED_BYTES)
    }
}

/// A session's partitions, in the order in which they came, which is that of their topics mostly.
///
/// A fetch walks them all, and most fetches change one or two.
#[derive(Debug, Default)]
struct Partitions {
    list: Vec<(Arc<Name>, Wanted)>,
    places: KeyedMap<Arc<Name>, usize>,
    /// The topics, by their names or ids.
    topics: KeyedMap<(TopicName, [u8; 16]), TopicEntry>,
    bytes: usize,
}

/// A topic of a session.
#[derive(Debug)]
struct TopicEntry {
    /// The number of the partitions that belong to it.
    partitions: usize,
    known_as: Option<Arc<str>>,
}

impl TopicEntry {
    /// The memory of the topic in a session that has it as `name`. Its partitions share it.
    fn bytes(&self, name: &TopicName) -> usize {
        TOPIC_BYTES + name.len() + self.known_as.as_ref().map_or(0, |name| name.len())
    }
}

impl Partitions {
    /// Adds a partition, or changes what is wanted of it. `name_of` finds the topic's name by its id.
    fn set(&mut self, mut name: Name, wanted: Wanted, name_of: impl FnOnce(Uuid) -> Option<Arc<str>>) {
        if let Some(&place) = self.places.get(&name) {
            self.list[place].1.requested = wanted.requested;
            return;
        }
        // Names of later requests are not kept in addition to the first one's.
        match self.topics.entry((name.topic.clone(), name.id)) {
            hash_map::Entry::Occupied(mut known) => {
                name.topic = known.key().0.clone();
                name.known_as.clone_from(&known.get().known_as);
                known.get_mut().partitions += 1;
            }
            hash_map::Entry::Vacant(new) => {
                let is_by_id = name.id != Uuid::ZERO.0;
                name.known_as = is_by_id.then(|| name_of(name.topic_id())).flatten();
                let topic = TopicEntry { partitions: 1, known_as: name.known_as.clone() };
                self.bytes += topic.bytes(&name.topic);
                new.insert(topic);
            }
        }
        self.bytes += PARTITION_BYTES;
        let name = Arc::new(name);
        self.places.insert(name.clone(), self.list.len());
        self.list.push((name, wanted));
    }

    fn remove(&mut self, name: &Name) {
        let Some(place) = self.places.remove(name) else { return };
        self.bytes -= PARTITION_BYTES;
        if let hash_map::Entry::Occupied(mut topic) = self.topics.entry((name.topic.clone(), name.id)) {
            topic.get_mut().partitions -= 1;
            if topic.get().partitions == 0 {
                self.bytes -= topic.remove().bytes(&name.topic);
            }
        }
        self.list.swap_remove(place);
        if let Some((moved, _)) = self.list.get(place)
            && let Some(its_place) = self.places.get_mut(moved)
        {
            *its_place = place;
        }
    }
}

impl FetchSessions {
    /// No sessions yet. Their ids are random: a client that comes back with a session of an earlier process must not
    /// meet the session of another client, as it would if ids were counted.
    pub(crate) fn new(limits: SessionLimits, rng: fastrand::Rng) -> Self {
        let state = State { sessions: FxHashMap::default(), rng, bytes: 0, sweep_at: None };
        Self { limits, state: Mutex::new(state) }
    }

    /// The partitions of the session that a request continues, which the request does not name itself.
    pub(crate) fn remembered(&self, request: &FetchRequest) -> Remembered {
        if request.session_epoch == FINAL_EPOCH || request.session_epoch == INITIAL_EPOCH {
            return Remembered(0);
        }
        let session = self.lock().sessions.get(&request.session_id).map(|entry| entry.session.clone());
        Remembered(session.map_or(0, |session| {
            session.lock().unwrap_or_else(PoisonError::into_inner).partitions.list.len()
        }))
    }

    /// Takes in a request: begins, continues or ends a session. The memory of `remembered` partitions is charged. `name_of` finds the
    /// name of a topic that the session gets, by its id.
    pub(crate) fn select(
        &self,
        request: &FetchRequest,
        remembered: Remembered,
        version: i16,
        now: Instant,
        name_of: impl Fn(Uuid) -> Option<Arc<str>>,
    ) -> Result<Selected, ErrorCode> {
        let by_id = version >= 13;
        if request.session_epoch == FINAL_EPOCH || request.session_epoch == INITIAL_EPOCH {
            return Ok(self.begin(request, version, now, name_of));
        }
        let session = {
            let mut state = self.lock();
            let _expired = state.sweep(now);
            let entry = state.sessions.get_mut(&request.session_id);
            let entry = entry.ok_or(ErrorCode::FetchSessionIdNotFound)?;
            entry.used = now;
            entry.session.clone()
        };
        let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
        if session.epoch != request.session_epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.by_id != by_id {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        if remembered.is_exceeded_by(session.partitions.list.len()) {
            // Another request has added some while this one waited for memory. No client has two at a time: it begins again.
            return Err(ErrorCode::FetchSessionIdNotFound);
        }
        // After the largest epoch comes 1: 0 would begin a new session.
        session.epoch = session.epoch.checked_add(1).unwrap_or(1);
        let before = session.partitions.bytes;
        for topic in &request.forgotten_topics_data {
            let name = TopicName::new(&topic.topic);
            for partition in &topic.partitions {
                let id = topic.topic_id.0;
                let name = Name { topic: name.clone(), id, partition: *partition, known_as: None };
                session.partitions.remove(&name);
            }
        }
        wanted(request).for_each(|(name, wanted)| session.partitions.set(name, wanted, &name_of));
        if session.partitions.list.is_empty() {
            // As in Kafka, it ends. The caller holds the session itself.
            self.end(request.session_id);
            return Ok(Selected { session_id: 0, incremental: false, partitions: Vec::new() });
        }
        let bytes = session.partitions.bytes;
        if bytes != before && !self.resize(request.session_id, bytes) {
            // The client begins again, as after a restart of the broker, and is then answered without a session.
            return Err(ErrorCode::FetchSessionIdNotFound);
        }
        let mut partitions = session.partitions.list.clone();
        session.turn = (session.turn + 1) % partitions.len();
        partitions.rotate_left(session.turn);
        Ok(Selected { session_id: request.session_id, incremental: true, partitions })
    }

    /// Ends the request's session, and begins another one if the request wants that.
    fn begin(
        &self,
        request: &FetchRequest,
        version: i16,
        now: Instant,
        name_of: impl Fn(Uuid) -> Option<Arc<str>>,
    ) -> Selected {
        let wanted = wanted(request);
        let nothing = request.topics.iter().all(|topic| topic.partitions.is_empty());
        if version < 7 || request.session_epoch == FINAL_EPOCH || nothing {
            let partitions = wanted.map(|(name, wanted)| (Arc::new(name), wanted)).collect();
            let mut state = self.lock();
            let _gone = (state.sweep(now), state.remove(request.session_id));
            drop(state);
            return Selected { session_id: 0, incremental: false, partitions };
        }
        let mut session = Partitions::default();
        wanted.for_each(|(name, wanted)| session.set(name, wanted, &name_of));
        let partitions = session.list.clone();
        // The partitions of sessions that end are freed after the lock.
        let mut ended = Vec::new();
        let session_id = {
            let mut state = self.lock();
            ended.extend(state.sweep(now));
            ended.extend(state.remove(request.session_id));
            state.begin(&self.limits, version >= 13, session, now, &mut ended)
        };
        Selected { session_id, incremental: false, partitions }
    }

    /// The memory of all sessions.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Ends a session that its client does not learn of.
    pub(crate) fn end(&self, session_id: i32) {
        let ended = self.lock().remove(session_id);
        drop(ended);
    }

    /// Ends all sessions: the node has stopped.
    pub(crate) fn end_all(&self) {
        let mut state = self.lock();
        (state.sessions, state.bytes) = (FxHashMap::default(), 0);
    }

    /// Counts the new size of a session. Returns `false` if there is no room for it: the session is removed.
    fn resize(&self, id: i32, bytes: usize) -> bool {
        let mut state = self.lock();
        let Some(entry) = state.sessions.get_mut(&id) else { return true };
        let before = std::mem::replace(&mut entry.bytes, bytes);
        state.bytes = state.bytes + bytes - before;
        let has_room = bytes <= self.limits.one() && state.bytes <= self.limits.bytes;
        if !has_room {
            // The caller holds the session itself.
            let _held = state.remove(id);
        }
        has_room
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns `true` if a session has a partition of this topic.
    pub(crate) fn names(&self, session_id: i32, topic: &str, id: Uuid) -> bool {
        let Some(session) = self.lock().sessions.get(&session_id).map(|entry| entry.session.clone()) else {
            return false;
        };
        let session = session.lock().unwrap_or_else(PoisonError::into_inner);
        let is = |(name, _): &(Arc<Name>, Wanted)| {
            if session.by_id { name.id == id.0 } else { &*name.topic == topic }
        };
        session.partitions.list.iter().any(is)
    }

    /// Notes what an answer says of partitions.
    pub(crate) fn note<'a>(&self, session_id: i32, said: impl Iterator<Item = Said<'a>>) {
        if session_id == 0 {
            return;
        }
        let Some(session) = self.lock().sessions.get(&session_id).map(|entry| entry.session.clone()) else {
            return;
        };
        let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
        let partitions = &mut session.partitions;
        for Said { name, high_watermark, log_start_offset } in said {
            if let Some(place) = partitions.places.get(name) {
                let wanted = &mut partitions.list[*place].1;
                (wanted.high_watermark, wanted.log_start_offset) = (high_watermark, log_start_offset);
            }
        }
    }
}

/// The offsets of a partition in the last answer.
#[derive(Debug)]
pub(crate) struct Said<'a> {
    pub(crate) name: &'a Name,
    pub(crate) high_watermark: i64,
    pub(crate) log_start_offset: i64,
}

impl<'a> Said<'a> {
    pub(crate) fn of(name: &'a Name, data: &PartitionData) -> Self {
        if data.error_code == ErrorCode::None {
            let (high_watermark, log_start_offset) = (data.high_watermark, data.log_start_offset);
            return Self { name, high_watermark, log_start_offset };
        }
        Self::refused(name)
    }

    /// A partition with an error. The next answer without one names it, even if it has neither records nor another high watermark: a
    /// client that has changed its offset learns that it is at the end.
    pub(crate) const fn refused(name: &'a Name) -> Self {
        Self { name, high_watermark: -1, log_start_offset: -1 }
    }
}

impl SessionLimits {
    /// The memory of one session.
    const fn one(&self) -> usize {
        self.bytes / 8
    }
}

impl State {
    fn remove(&mut self, id: i32) -> Option<Entry> {
        let entry = self.sessions.remove(&id)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// Removes and returns the sessions of clients that have not fetched for a long time.
    fn sweep(&mut self, now: Instant) -> Vec<Entry> {
        if self.sweep_at.is_some_and(|at| now < at) {
            return Vec::new();
        }
        self.sweep_at = Some(now + SWEEP_EVERY);
        let expired = |entry: &Entry| now.saturating_duration_since(entry.used) >= EXPIRED_AFTER;
        let ids: Vec<i32> = self.sessions.iter().filter(|(_, it)| expired(it)).map(|(id, _)| *id).collect();
        ids.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// Begins a session and returns its id; 0 if there is no room for it. Sessions that are not in use make room.
    fn begin(
        &mut self,
        limits: &SessionLimits,
        by_id: bool,
        partitions: Partitions,
        now: Instant,
        ended: &mut Vec<Entry>,
    ) -> i32 {
        let bytes = partitions.bytes;
        if limits.count == 0 || bytes > limits.one() {
            return 0;
        }
        while self.sessions.len() >= limits.count || self.bytes + bytes > limits.bytes {
            let oldest = self.sessions.iter().min_by_key(|(_, entry)| entry.used);
            let unused = oldest
                .filter(|(_, entry)| now.saturating_duration_since(entry.used) >= EVICTED_AFTER)
                .map(|(id, _)| *id);
            let Some(unused) = unused else { return 0 };
            ended.extend(self.remove(unused));
        }
        let mut id = self.rng.i32(1..);
        while self.sessions.contains_key(&id) {
            id = self.rng.i32(1..);
        }
        self.bytes += bytes;
        let session = Arc::new(Mutex::new(Session { epoch: 1, by_id, partitions, turn: 0 }));
        self.sessions.insert(id, Entry { used: now, bytes, session });
        id
    }
}

fn wanted(request: &FetchRequest) -> impl Iterator<Item = (Name, Wanted)> {
    request.topics.iter().flat_map(|topic| {
        let name = TopicName::new(&topic.topic);
        topic.partitions.iter().map(move |requested| {
            let (topic, id) = (name.clone(), topic.topic_id.0);
            let name = Name { topic, id, partition: requested.partition, known_as: None };
            (name, Wanted { requested: requested.clone(), high_watermark: -1, log_start_offset: -1 })
        })
    })
}

impl Name {
    pub(crate) fn topic_id(&self) -> Uuid {
        Uuid(self.id)
    }
}

#[cfg(test)]
mod tests;
