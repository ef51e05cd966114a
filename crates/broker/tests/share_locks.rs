//! Locks on records of share groups that end while no member sends a request.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it waits")]

use std::time::{Duration, Instant};

use ottla_broker::BrokerThread;
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::messages::read_share_group_state_summary::{
    PartitionData, ReadShareGroupStateSummaryRequest, ReadStateSummaryData,
};
use ottla_protocol::{ErrorCode, Uuid};

use crate::common::{PATIENCE, Raw};
use crate::share_fetch::{GROUP, Member, WAIT_MS, initialize, metric, produce, start_with};

/// The stored start of partition 0. The request is one of the coordinator: the leader of the partition is not concerned.
fn stored_start(broker: &BrokerThread, topic_id: Uuid) -> i64 {
    let partitions = vec![PartitionData { partition: 0, leader_epoch: -1 }];
    let topics = vec![ReadStateSummaryData { topic_id, partitions }];
    let request = ReadShareGroupStateSummaryRequest { group_id: GROUP.into(), topics };
    let answer = Raw::connect(broker.addresses()[0]).ask(1, &request).expect("an answer");
    let partition = &answer.results[0].partitions[0];
    assert_eq!(partition.error_code, ErrorCode::None);
    partition.start_offset
}

/// The ends of locks were noticed by the next fetch or acknowledgement only: without one, the start of the group did not move.
#[test]
fn records_whose_last_locks_end_are_given_up_without_a_request() {
    let limits = [("group.share.record.lock.duration.ms", "1000"), ("group.share.delivery.count.limit", "2")];
    let broker = start_with(&MemStorage::new(), &limits);
    initialize(&broker, 0);
    produce(&broker, 10);
    let mut member = Member::join(&broker, "a");
    assert_eq!(member.fetch(), [(0, 9, 1)]);
    member.wait_ms = WAIT_MS;
    let mut again = member.fetch();
    while again.is_empty() {
        again = member.fetch();
    }
    assert_eq!(again, [(0, 9, 2)], "the last delivery");
    let deadline = Instant::now() + PATIENCE;
    while stored_start(&broker, member.topic) != 10 {
        assert!(Instant::now() < deadline, "the start of the group does not move");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(metric(&broker, "ottla_share_lock_timeouts_total"), Some(20));
    assert_eq!(metric(&broker, "ottla_share_out_of_deliveries_total"), Some(10));
    member.wait_ms = 0;
    assert!(member.fetch().is_empty(), "they are not delivered again");
}
