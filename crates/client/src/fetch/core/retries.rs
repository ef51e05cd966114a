//! The core's decisions about partitions that are fetched again, because an answer had no records or there is no leader: no
//! runtime, no clock.

use super::harness::*;
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
