//! The core's decisions about partitions that are fetched again, because an answer had no records or there is no leader: no
//! runtime, no clock.

use super::harness::*;
use super::tests::{question_of_next_leader, take_questions};
use super::*;

const SESSION: i32 = 77;

/// A node that the metadata does not have.
const UNKNOWN: i32 = 9;

fn at(offset: i64) -> StartAt {
    StartAt::Offset(offset)
}

/// The number of requests for metadata since the last call. Other actions are dropped.
fn refreshes(harness: &mut Harness) -> usize {
    let sent = std::mem::take(&mut harness.sent);
    sent.iter().filter(|action| matches!(action, Action::RefreshMetadata)).count()
}

/// The partition got no records until the metadata was five minutes old.
#[test]
fn a_preferred_replica_that_is_unknown_causes_fresh_metadata_and_fetches_from_the_leader() {
    let mut harness = Harness::new(&[at(0)]);
    let mut redirected = empty(0);
    redirected.preferred_read_replica = UNKNOWN;
    let spec = harness.one_fetch();
    harness.answer(&spec, response(SESSION, vec![redirected.clone()]));
    assert_eq!(refreshes(&mut harness), 1);
    let again = harness.one_fetch();
    assert_eq!(again.node, ONE, "the leader");
    harness.answer(&again, response(SESSION, vec![redirected.clone()]));
    assert_eq!(refreshes(&mut harness), 1);
    harness.update();
    assert!(harness.fetches().iter().all(|spec| named(spec).is_empty()), "the pause is not over");

    harness.facts.nodes.insert(UNKNOWN);
    harness.table.touch_all();
    harness.pass(Duration::from_secs(2));
    let fetches = harness.fetches();
    let again = fetches.iter().find(|spec| spec.node == ONE).expect("a fetch from the leader");
    harness.answer(again, response(SESSION, vec![redirected]));
    harness.update();
    let fetches = harness.fetches();
    assert!(fetches.iter().any(|spec| spec.node == UNKNOWN && named(spec) == [(0, 0)]), "{fetches:?}");
}

/// The partition stopped until a seek. The broker may recover.
#[test]
fn an_unknown_server_error_of_a_fetch_is_repeated_after_growing_pauses() {
    let mut harness = Harness::new(&[at(7)]);
    let mut spec = harness.one_fetch();
    let mut pauses = Vec::new();
    for _ in 0..3 {
        harness.answer(&spec, response(SESSION, vec![failed(0, ErrorCode::UnknownServerError)]));
        assert!(harness.poll_all().is_empty(), "the application gets no error");
        let failed_at = harness.now;
        harness.update();
        assert!(harness.fetches().iter().all(|spec| named(spec).is_empty()), "a pause comes first");
        spec = loop {
            harness.now = harness.core.wake_at().expect("the end of the pause");
            harness.update();
            let mut fetches = harness.fetches();
            fetches.retain(|spec| !named(spec).is_empty());
            if let Some(spec) = fetches.pop() {
                break spec;
            }
        };
        assert_eq!(named(&spec), [(0, 7)]);
        pauses.push(harness.now - failed_at);
    }
    assert!(pauses.is_sorted_by(|before, after| before < after), "{pauses:?}");
    harness.answer(&spec, response(SESSION, vec![records(0, 7, 3)]));
    assert_eq!(harness.poll_offsets(), [(0, 7, 10)]);
}

/// The partition stopped until a seek.
#[test]
fn a_start_is_requested_again_after_an_unknown_server_error() {
    let mut harness = Harness::new(&[StartAt::Beginning]);
    harness.update();
    let code = ErrorCode::UnknownServerError;
    let refused = Error::Broker { what: "offsets".into(), code };
    let questions = take_questions(&mut harness);
    assert_eq!(questions.len(), 1);
    let answers =
        questions.into_iter().map(|(cursor, start)| (cursor, start, Err(refused.clone()))).collect();
    harness.answer_offsets(answers);
    assert!(harness.poll_all().is_empty(), "the application gets no error");
    harness.update();
    assert!(take_questions(&mut harness).is_empty(), "a pause comes first");
    harness.pass(Duration::from_secs(2));
    assert_eq!(take_questions(&mut harness).len(), 1);
}

/// The error of a request to a broker that is down.
fn unreachable() -> Error {
    Error::Transport { address: "node 1".into(), reason: "connection refused".into() }
}

/// The metadata named the leader that was down until its maximum age, and nothing was fetched for minutes.
#[test]
fn a_leader_that_cannot_be_asked_for_a_start_causes_fresh_metadata() {
    let mut harness = Harness::new(&[StartAt::Beginning]);
    harness.update();
    let questions = take_questions(&mut harness);
    assert_eq!((questions.len(), refreshes(&mut harness)), (1, 0));
    let answers = questions.into_iter().map(|(cursor, start)| (cursor, start, Err(unreachable()))).collect();
    harness.answer_offsets(answers);
    assert_eq!(refreshes(&mut harness), 1);
    harness.move_leader(0, TWO, 6);
    harness.pass(Duration::from_secs(2));
    let is_to_leader = |action: &Action| matches!(action, Action::ListOffsets { leader: TWO, .. });
    assert!(harness.sent.iter().any(is_to_leader), "{:?}", harness.sent);
}

/// So did a partition whose next leader went down before it confirmed the position.
#[test]
fn a_leader_that_cannot_be_asked_about_an_epoch_causes_fresh_metadata() {
    let mut harness = Harness::new(&[at(0)]);
    let question = question_of_next_leader(&mut harness);
    refreshes(&mut harness);
    harness.answer_epoch_end(&question, Err(unreachable()));
    assert_eq!(refreshes(&mut harness), 1);
}

/// Each response woke the fetcher, which requested metadata again: ten times a second. Several partitions did so in turn.
#[test]
fn partitions_without_a_leader_cause_requests_for_metadata_after_growing_pauses() {
    for (start, partitions) in [(at(0), 1), (StartAt::Beginning, 1), (at(0), 20), (StartAt::Beginning, 20)] {
        let mut harness = Harness::new(&vec![start; partitions]);
        harness.facts.leaders.clear();
        harness.update();
        let mut requests = refreshes(&mut harness);
        assert_eq!(requests, 1, "the first one comes at once");
        let begin = harness.now;
        while harness.now < begin + Duration::from_secs(10) {
            // Metadata without a leader arrives.
            harness.table.touch_all();
            harness.pass(Duration::from_millis(20));
            requests += refreshes(&mut harness);
        }
        assert!((8..=15).contains(&requests), "{requests} requests in ten seconds, {partitions} partitions");
        harness.move_leader(0, TWO, 6);
        harness.update();
        let is_to_leader = |action: &Action| {
            matches!(
                action,
                Action::Fetch(FetchSpec { node: TWO, .. }) | Action::ListOffsets { leader: TWO, .. }
            )
        };
        assert!(harness.sent.iter().any(is_to_leader), "the leader is used at once: {:?}", harness.sent);
    }
}

/// The long pause of the others must not delay it.
#[test]
fn a_partition_that_loses_its_leader_after_others_causes_a_request_at_once() {
    let mut harness = Harness::new(&[at(0); 3]);
    harness.facts.leaders.remove(&0);
    harness.facts.leaders.remove(&1);
    harness.update();
    for _ in 0..100 {
        harness.table.touch_all();
        harness.pass(Duration::from_millis(20));
    }
    refreshes(&mut harness);
    harness.facts.leaders.remove(&2);
    harness.table.touch_all();
    harness.pass(Duration::from_millis(20));
    assert_eq!(refreshes(&mut harness), 1);
}
