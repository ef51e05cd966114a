//! The sessions of one node: their steps, limits and memory.

use super::*;
use ottla_protocol::messages::fetch::{FetchTopic, ForgottenTopic};

const LIMITS: SessionLimits = SessionLimits { count: 2, bytes: 1 << 20 };

fn request(session_id: i32, session_epoch: i32, partitions: &[i32]) -> FetchRequest {
    let partition = |partition: &i32| FetchPartition { partition: *partition, ..Default::default() };
    let topic = FetchTopic {
        topic: "t".into(),
        partitions: partitions.iter().map(partition).collect(),
        ..Default::default()
    };
    FetchRequest { session_id, session_epoch, topics: vec![topic], ..Default::default() }
}

fn select(
    sessions: &FetchSessions,
    request: &FetchRequest,
    version: i16,
    now: Instant,
) -> Result<Selected, ErrorCode> {
    sessions.select(request, sessions.remembered(request), version, now, |_| None)
}

/// The table of a session had hashes without a key. A client that chose ids with equal ones made each of its requests compare
/// all partitions with each other, in the thread that serves all clients.
#[test]
fn chosen_topic_ids_have_different_hashes() {
    // The factor of rustc-hash becomes 0 with these eight bytes.
    const FIRST: u64 = 0x243f_6a88_85a3_08d3;
    let names = (0..1000_u64).map(|count| {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&FIRST.to_le_bytes());
        id[8..].copy_from_slice(&count.to_le_bytes());
        Name { topic: TopicName::new(""), id, partition: 0, known_as: None }
    });
    let places = Partitions::default().places;
    let hashes: std::collections::BTreeSet<u64> = names.map(|name| places.hasher().hash_one(&name)).collect();
    assert_eq!(hashes.len(), 1000);
}

#[test]
fn a_session_grows_shrinks_and_refuses_what_is_out_of_step() {
    let now = Instant::now();
    let sessions = FetchSessions::new(LIMITS, fastrand::Rng::with_seed(7));
    let full = select(&sessions, &request(0, 0, &[0, 1]), 12, now).expect("begun");
    assert!(!full.incremental && full.session_id != 0 && full.partitions.len() == 2);
    let id = full.session_id;
    let more = select(&sessions, &request(id, 1, &[2]), 12, now).expect("continued");
    assert!(more.incremental && more.partitions.len() == 3);
    assert_eq!(
        select(&sessions, &request(id, 1, &[]), 12, now).expect_err("again"),
        ErrorCode::InvalidFetchSessionEpoch
    );
    let mut less = request(id, 2, &[]);
    less.forgotten_topics_data =
        vec![ForgottenTopic { topic: "t".into(), partitions: vec![0, 1], ..Default::default() }];
    assert_eq!(select(&sessions, &less, 12, now).expect("continued").partitions.len(), 1);
    let error = select(&sessions, &request(id, 3, &[]), 13, now).expect_err("by id now");
    assert_eq!(error, ErrorCode::FetchSessionTopicIdError);
}

#[test]
fn a_new_session_takes_the_place_of_one_that_is_not_in_use_and_of_no_other() {
    let now = Instant::now();
    let sessions = FetchSessions::new(LIMITS, fastrand::Rng::with_seed(7));
    let begin = |now| select(&sessions, &request(0, 0, &[0]), 12, now).expect("answered").session_id;
    let (first, second) = (begin(now), begin(now));
    assert_eq!(begin(now), 0, "answered without a session");
    let later = now + EVICTED_AFTER;
    assert!(select(&sessions, &request(second, 1, &[]), 12, later).is_ok());
    assert_ne!(begin(later), 0);
    let gone = select(&sessions, &request(first, 1, &[]), 12, later).expect_err("it made room");
    assert_eq!(gone, ErrorCode::FetchSessionIdNotFound);
    assert!(select(&sessions, &request(second, 2, &[]), 12, later).is_ok());
}

/// One name of 32,000 bytes with 60,000 partitions used 1.9 GB, which stayed in the session.
#[test]
fn the_memory_of_sessions_is_limited_and_freed() {
    let now = Instant::now();
    let limits = SessionLimits { count: 1_000, bytes: 1 << 20 };
    let sessions = FetchSessions::new(limits, fastrand::Rng::with_seed(7));
    let bytes = || sessions.state.lock().expect("no panic").bytes;
    let many: Vec<i32> = (0..60_000).collect();
    let mut huge = request(0, 0, &many);
    huge.topics[0].topic = "x".repeat(32_000);
    let selected = select(&sessions, &huge, 12, now).expect("answered");
    assert_eq!((selected.session_id, selected.partitions.len(), bytes()), (0, 60_000, 0));
    let shared = &selected.partitions[0].0.topic.text;
    assert!(selected.partitions.iter().all(|(name, _)| Arc::ptr_eq(&name.topic.text, shared)));

    let hundred: Vec<i32> = (0..100).collect();
    let ids: Vec<i32> = (0..1_000)
        .map(|_| select(&sessions, &request(0, 0, &hundred), 12, now).expect("answered").session_id)
        .take_while(|id| *id != 0)
        .collect();
    assert!(ids.len() > 10 && bytes() <= limits.bytes, "{} sessions, {} bytes", ids.len(), bytes());
    // A session cannot grow beyond its part either.
    let grown = select(&sessions, &request(ids[0], 1, &many), 12, now).expect_err("too large");
    assert_eq!(grown, ErrorCode::FetchSessionIdNotFound);
    for id in &ids[1..] {
        let mut less = request(*id, 1, &[]);
        less.forgotten_topics_data =
            vec![ForgottenTopic { topic: "t".into(), partitions: hundred.clone(), ..Default::default() }];
        let _ = select(&sessions, &less, 12, now);
    }
    assert_eq!(bytes(), 0);
    let _ = select(&sessions, &request(0, 0, &hundred), 12, now);
    assert!(bytes() > 0);
    let _ = select(&sessions, &request(0, -1, &[]), 12, now + EXPIRED_AFTER);
    assert_eq!(bytes(), 0, "idle sessions expire");
}

#[test]
fn a_session_of_an_earlier_process_does_not_meet_another_clients_session() {
    let now = Instant::now();
    let before = FetchSessions::new(LIMITS, fastrand::Rng::with_seed(1));
    let stale = select(&before, &request(0, 0, &[0]), 12, now).expect("begun").session_id;
    let after = FetchSessions::new(LIMITS, fastrand::Rng::with_seed(2));
    let _ = select(&after, &request(0, 0, &[1]), 12, now).expect("another client's");
    assert_eq!(
        select(&after, &request(stale, 1, &[]), 12, now).expect_err("unknown"),
        ErrorCode::FetchSessionIdNotFound
    );
}

/// A request of 45 bytes, which was not charged, fetched all partitions of its session.
#[test]
fn a_fetch_is_charged_for_the_partitions_of_its_session() {
    let now = Instant::now();
    let sessions = FetchSessions::new(LIMITS, fastrand::Rng::with_seed(7));
    let few: Vec<i32> = (0..UNCHARGED_PARTITIONS_MAX as i32).collect();
    let begin = request(0, 0, &few);
    assert_eq!(sessions.remembered(&begin).charge(), None, "the request names them itself");
    let id = select(&sessions, &begin, 12, now).expect("begun").session_id;
    let (grow, next) = (request(id, 1, &[1_000]), request(id, 2, &[]));
    let before = sessions.remembered(&next);
    assert_eq!(before.charge(), None);
    assert_eq!(select(&sessions, &grow, 12, now).expect("continued").partitions.len(), few.len() + 1);
    let error =
        sessions.select(&next, before, 12, now, |_| None).expect_err("another request has added partitions");
    assert_eq!(error, ErrorCode::FetchSessionIdNotFound);
    let after = sessions.remembered(&next);
    assert_eq!(after.charge(), Some((few.len() + 1) * FETCHED_BYTES));
    assert_eq!(
        sessions.select(&next, after, 12, now, |_| None).expect("continued").partitions.len(),
        few.len() + 1
    );
}

#[test]
fn without_a_session_nothing_is_remembered() {
    let now = Instant::now();
    let sessions = FetchSessions::new(LIMITS, fastrand::Rng::with_seed(7));
    let once = select(&sessions, &request(0, -1, &[0]), 12, now).expect("answered");
    assert_eq!((once.session_id, once.incremental), (0, false));
}
