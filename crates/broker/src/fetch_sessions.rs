//! Fetch sessions (KIP-227): the broker remembers what a client fetches, so that a request names only what changed and
//! an answer only what has news.

use std::sync::{Arc, Mutex, PoisonError};

use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest};
use ottla_protocol::{ErrorCode, Uuid};
use rustc_hash::FxHashMap;

/// A request of epoch -1 wants no session, one of 0 a new one.
const FINAL_EPOCH: i32 = -1;
const INITIAL_EPOCH: i32 = 0;

/// A partition as requests name it: by name before version 13, by id from then on.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Name {
    pub(crate) topic: String,
    pub(crate) id: [u8; 16],
    pub(crate) partition: i32,
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
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    sessions: FxHashMap<i32, Session>,
    rng: fastrand::Rng,
    clock: u64,
}

#[derive(Debug)]
struct Session {
    epoch: i32,
    by_id: bool,
    used: u64,
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

/// A session's partitions, in the order in which they came, which is that of their topics mostly.
///
/// A fetch walks them all, and most fetches change one or two.
#[derive(Debug, Default)]
struct Partitions {
    list: Vec<(Arc<Name>, Wanted)>,
    places: FxHashMap<Arc<Name>, usize>,
}

impl Partitions {
    fn set(&mut self, name: Name, wanted: Wanted) {
        if let Some(&place) = self.places.get(&name) {
            self.list[place].1.requested = wanted.requested;
            return;
        }
        let name = Arc::new(name);
        self.places.insert(name.clone(), self.list.len());
        self.list.push((name, wanted));
    }

    fn remove(&mut self, name: &Name) {
        let Some(place) = self.places.remove(name) else { return };
        self.list.swap_remove(place);
        if let Some((moved, _)) = self.list.get(place)
            && let Some(its_place) = self.places.get_mut(moved)
        {
            *its_place = place;
        }
    }
}

impl FetchSessions {
    /// At most `max` sessions. Their ids are random: a client that comes back with a session of an earlier process must
    /// not meet the session of another client, as it would if ids were counted.
    pub(crate) fn new(max: usize, rng: fastrand::Rng) -> Self {
        Self { max, state: Mutex::new(State { sessions: FxHashMap::default(), rng, clock: 0 }) }
    }

    /// Takes in a request: begins, continues or ends a session.
    pub(crate) fn select(&self, request: &FetchRequest, version: i16) -> Result<Selected, ErrorCode> {
        let by_id = version >= 13;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if request.session_epoch == FINAL_EPOCH || request.session_epoch == INITIAL_EPOCH {
            state.sessions.remove(&request.session_id);
            let wanted = wanted(request);
            let nothing = request.topics.iter().all(|topic| topic.partitions.is_empty());
            if version < 7 || request.session_epoch == FINAL_EPOCH || nothing {
                let partitions = wanted.map(|(name, wanted)| (Arc::new(name), wanted)).collect();
                return Ok(Selected { session_id: 0, incremental: false, partitions });
            }
            let mut session = Partitions::default();
            wanted.for_each(|(name, wanted)| session.set(name, wanted));
            let partitions = session.list.clone();
            let session_id = state.begin(self.max, by_id, session);
            return Ok(Selected { session_id, incremental: false, partitions });
        }
        state.clock += 1;
        let used = state.clock;
        let session = state.sessions.get_mut(&request.session_id).ok_or(ErrorCode::FetchSessionIdNotFound)?;
        if session.epoch != request.session_epoch {
            return Err(ErrorCode::InvalidFetchSessionEpoch);
        }
        if session.by_id != by_id {
            return Err(ErrorCode::FetchSessionTopicIdError);
        }
        // After the largest epoch comes 1: 0 would begin a new session.
        session.epoch = session.epoch.checked_add(1).unwrap_or(1);
        session.used = used;
        for topic in &request.forgotten_topics_data {
            for partition in &topic.partitions {
                let name = Name { topic: topic.topic.clone(), id: topic.topic_id.0, partition: *partition };
                session.partitions.remove(&name);
            }
        }
        wanted(request).for_each(|(name, wanted)| session.partitions.set(name, wanted));
        let mut partitions = session.partitions.list.clone();
        if !partitions.is_empty() {
            session.turn = (session.turn + 1) % partitions.len();
            partitions.rotate_left(session.turn);
        }
        Ok(Selected { session_id: request.session_id, incremental: true, partitions })
    }

    /// Notes what an answer says of partitions.
    pub(crate) fn note<'a>(&self, session_id: i32, said: impl Iterator<Item = Said<'a>>) {
        if session_id == 0 {
            return;
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Session { partitions, .. }) = state.sessions.get_mut(&session_id) else { return };
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

impl State {
    /// Begins a session; the one unused for longest makes room when there are too many.
    fn begin(&mut self, max: usize, by_id: bool, partitions: Partitions) -> i32 {
        if max == 0 {
            return 0;
        }
        if self.sessions.len() >= max
            && let Some(oldest) =
                self.sessions.iter().min_by_key(|(_, session)| session.used).map(|(id, _)| *id)
        {
            self.sessions.remove(&oldest);
        }
        let mut id = self.rng.i32(1..);
        while self.sessions.contains_key(&id) {
            id = self.rng.i32(1..);
        }
        self.clock += 1;
        let session = Session { epoch: 1, by_id, used: self.clock, partitions, turn: 0 };
        self.sessions.insert(id, session);
        id
    }
}

fn wanted(request: &FetchRequest) -> impl Iterator<Item = (Name, Wanted)> {
    request.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|requested| {
            let name =
                Name { topic: topic.topic.clone(), id: topic.topic_id.0, partition: requested.partition };
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
mod tests {
    use super::*;
    use ottla_protocol::messages::fetch::{FetchTopic, ForgottenTopic};

    fn request(session_id: i32, session_epoch: i32, partitions: &[i32]) -> FetchRequest {
        let partition = |partition: &i32| FetchPartition { partition: *partition, ..Default::default() };
        let topic = FetchTopic {
            topic: "t".into(),
            partitions: partitions.iter().map(partition).collect(),
            ..Default::default()
        };
        FetchRequest { session_id, session_epoch, topics: vec![topic], ..Default::default() }
    }

    #[test]
    fn a_session_grows_shrinks_and_refuses_what_is_out_of_step() {
        let sessions = FetchSessions::new(2, fastrand::Rng::with_seed(7));
        let full = sessions.select(&request(0, 0, &[0, 1]), 12).expect("begun");
        assert!(!full.incremental && full.session_id != 0 && full.partitions.len() == 2);
        let id = full.session_id;
        let more = sessions.select(&request(id, 1, &[2]), 12).expect("continued");
        assert!(more.incremental && more.partitions.len() == 3);
        assert_eq!(
            sessions.select(&request(id, 1, &[]), 12).expect_err("again"),
            ErrorCode::InvalidFetchSessionEpoch
        );
        let mut less = request(id, 2, &[]);
        less.forgotten_topics_data =
            vec![ForgottenTopic { topic: "t".into(), partitions: vec![0, 1], ..Default::default() }];
        assert_eq!(sessions.select(&less, 12).expect("continued").partitions.len(), 1);
        let error = sessions.select(&request(id, 3, &[]), 13).expect_err("by id now");
        assert_eq!(error, ErrorCode::FetchSessionTopicIdError);
        // Two more sessions push the oldest out.
        let _ = sessions.select(&request(0, 0, &[0]), 12);
        let _ = sessions.select(&request(0, 0, &[0]), 12);
        assert_eq!(
            sessions.select(&request(id, 3, &[]), 12).expect_err("gone"),
            ErrorCode::FetchSessionIdNotFound
        );
    }

    #[test]
    fn a_session_of_an_earlier_process_does_not_meet_another_clients_session() {
        let before = FetchSessions::new(2, fastrand::Rng::with_seed(1));
        let stale = before.select(&request(0, 0, &[0]), 12).expect("begun").session_id;
        let after = FetchSessions::new(2, fastrand::Rng::with_seed(2));
        let _ = after.select(&request(0, 0, &[1]), 12).expect("another client's");
        assert_eq!(
            after.select(&request(stale, 1, &[]), 12).expect_err("unknown"),
            ErrorCode::FetchSessionIdNotFound
        );
    }

    #[test]
    fn without_a_session_nothing_is_remembered() {
        let sessions = FetchSessions::new(2, fastrand::Rng::with_seed(7));
        let once = sessions.select(&request(0, -1, &[0]), 12).expect("answered");
        assert_eq!((once.session_id, once.incremental), (0, false));
    }
}
