//! Partitions that leave the share session of a member.

use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::share_fetch::{AcknowledgementBatch, ForgottenTopic};

use crate::share_fetch::{ACCEPT, Member, initialize, produce, start_with};

/// It stayed in the session: the member got records of a partition that it had given up, until they were delivered too often.
#[test]
fn a_partition_that_is_forgotten_with_its_last_acknowledgements_is_not_fetched() {
    let broker = start_with(&MemStorage::new(), &[]);
    initialize(&broker, 0);
    produce(&broker, 10);
    let mut a = Member::join(&broker, "a");
    assert_eq!(a.fetch(), [(0, 9, 1)]);
    produce(&broker, 10);
    let acks =
        vec![AcknowledgementBatch { first_offset: 0, last_offset: 9, acknowledge_types: vec![ACCEPT] }];
    let mut request = a.request(acks);
    request.forgotten_topics_data = vec![ForgottenTopic { topic_id: a.topic, partitions: vec![0] }];
    let response = a.send(&request);
    assert_eq!(response.error_code, ErrorCode::None);
    let data = &response.responses[0].partitions[0];
    assert_eq!((data.error_code, data.acknowledge_error_code), (ErrorCode::None, ErrorCode::None));
    assert!(data.acquired_records.is_empty(), "{data:?}");
    assert_eq!(a.fetch(), []);
    let mut b = Member::join(&broker, "b");
    assert_eq!(b.fetch(), [(10, 19, 1)], "the first delivery");
}
