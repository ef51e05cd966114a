//! The checker of share groups finds what it must find, and nothing else.

use std::time::Duration;

use ottla_broker::ShareEventKind;
use ottla_client::AcknowledgeType;
use tokio::time::Instant;

use super::history::ShareHistory;
use crate::checker::Anomaly;

const LOCK: Duration = Duration::from_secs(1);

/// A story of two members and the records 0 to 9 of slot 0.
struct Story {
    now: Instant,
    history: ShareHistory,
}

impl Story {
    fn new() -> Self {
        let mut story = Self { now: Instant::now(), history: ShareHistory::new(3, true) };
        story.history.restarted();
        story
    }

    fn acquire(&mut self, member: &str, offset: i64, delivery_count: i16) {
        let kind = ShareEventKind::Acquired {
            first: offset,
            last: offset,
            delivery_count,
            lock: LOCK,
            leader_epoch: 0,
        };
        self.history.observe(self.now, 0, member, kind);
        self.history.delivered(0, offset, delivery_count);
    }

    fn acknowledge(&mut self, member: &str, offset: i64, acknowledge_type: i8) {
        let kind = ShareEventKind::Acknowledged { first: offset, last: offset, acknowledge_type };
        self.history.observe(self.now, 0, member, kind);
    }

    fn names(&self) -> Vec<String> {
        self.history.check().iter().map(Anomaly::name).collect()
    }
}

#[test]
fn records_that_are_released_expired_and_accepted_are_no_anomaly() {
    let mut story = Story::new();
    story.acquire("a", 0, 1);
    story.acknowledge("a", 0, 2);
    story.history.confirmed(0, 0, AcknowledgeType::Release, 1);
    story.acquire("b", 0, 2);
    story.acknowledge("b", 0, 1);
    story.history.confirmed(0, 0, AcknowledgeType::Accept, 2);
    story.acquire("a", 1, 1);
    story.now += LOCK;
    story.acquire("b", 1, 2);
    story.history.observe(story.now, 0, "b", ShareEventKind::Released);
    story.acquire("a", 1, 3);
    story.history.set_starts([(0, 2)].into());
    assert_eq!(story.names(), Vec::<String>::new());
    assert_eq!(story.history.accepted(), 1);
}

#[test]
fn a_confirmed_record_that_comes_again_is_found() {
    let mut story = Story::new();
    story.acquire("a", 0, 1);
    story.acknowledge("a", 0, 1);
    story.history.restarted();
    story.acquire("b", 0, 1);
    assert_eq!(story.names(), Vec::<String>::new(), "it was not confirmed");
    story.history.confirmed(0, 0, AcknowledgeType::Accept, 1);
    story.history.restarted();
    story.acquire("b", 0, 1);
    assert_eq!(story.names(), ["DeliveredAgain"]);
}

#[test]
fn two_locks_and_wrong_counts_are_found() {
    let mut story = Story::new();
    story.acquire("a", 0, 1);
    story.now += LOCK / 2;
    story.acknowledge("a", 0, 4);
    story.now += LOCK / 2;
    story.acquire("b", 0, 2);
    assert_eq!(story.names(), ["LockedTwice"], "the lock was renewed");
    story.now += LOCK;
    story.acquire("a", 0, 2);
    story.acquire("a", 1, 4);
    story.history.delivered(0, 1, 2);
    assert_eq!(story.names()[1..], ["DeliveryCount", "DeliveryCount", "DeliveryCount"]);
}

#[test]
fn a_record_that_is_passed_without_a_reason_is_found() {
    let mut story = Story::new();
    story.acquire("a", 0, 1);
    story.history.set_starts([(0, 1)].into());
    assert_eq!(story.names(), ["ShareSkip"]);
    story.acknowledge("a", 0, 3);
    assert_eq!(story.names(), Vec::<String>::new());
}
