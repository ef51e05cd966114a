//! Share groups whose log has lost records that the group had acknowledged.

use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::write_share_group_state::{
    PartitionData, StateBatch, WriteShareGroupStateRequest, WriteStateData,
};

use crate::common::Raw;
use crate::share_fetch::{ACCEPT, GROUP, Member, RELEASE, initialize, produce, start_with};

const AVAILABLE: i8 = 0;
const ACKNOWLEDGED: i8 = 2;

/// The records at these offsets counted as acknowledged: no member got them.
#[test]
fn records_at_the_offsets_of_lost_ones_are_delivered() {
    let storage = MemStorage::new();
    let broker = start_with(&storage, &[]);
    initialize(&broker, 0);
    produce(&broker, 10);
    let mut a = Member::join(&broker, "a");
    // The state of a log that had 20 records before a power cut.
    let batch = |first_offset, last_offset, delivery_state, delivery_count| StateBatch {
        first_offset,
        last_offset,
        delivery_state,
        delivery_count,
    };
    let partition = PartitionData {
        partition: 0,
        state_epoch: 0,
        leader_epoch: -1,
        start_offset: 0,
        delivery_complete_count: 13,
        state_batches: vec![batch(2, 14, ACKNOWLEDGED, 1), batch(15, 19, AVAILABLE, 2)],
    };
    let topics = vec![WriteStateData { topic_id: a.topic, partitions: vec![partition] }];
    let request = WriteShareGroupStateRequest { group_id: GROUP.into(), topics };
    let written = Raw::connect(broker.addresses()[0]).ask(1, &request).expect("an answer");
    assert_eq!(written.results[0].partitions[0].error_code, ErrorCode::None);
    assert_eq!(a.fetch(), [(0, 1, 1)], "2 to 9 are done with");
    produce(&broker, 10);
    assert_eq!(a.fetch(), [(10, 19, 1)]);
    assert_eq!(a.acknowledge(0, 1, ACCEPT), ErrorCode::None);
    assert_eq!(a.acknowledge(10, 12, ACCEPT), ErrorCode::None);
    assert_eq!(a.acknowledge(15, 16, RELEASE), ErrorCode::None);
    let killed = start_with(&storage.fork(), &[]);
    let mut b = Member::join(&killed, "b");
    assert_eq!(b.fetch(), [(13, 14, 1), (15, 16, 2), (17, 19, 1)]);
}
