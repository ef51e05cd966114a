//! Share fetches that wait for `min_bytes`: bytes that have no room in a response count as available, as in Kafka.

use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::share_fetch::{FetchPartition, ShareFetchRequest};
use ottla_wire::Seal;

use crate::common::{Raw, batch, produce_request};
use crate::share_fetch::{Member, acquired_in, start_group};

/// The request waited although the rest had no room in any response.
#[test]
fn a_fetch_does_not_wait_for_bytes_that_have_no_room() {
    let broker = start_group(&MemStorage::new(), 0);
    let mut connection = Raw::connect(broker.addresses()[0]);
    for _ in 0..11 {
        connection.produce("orders", -1, &batch(&[&vec![b'x'; 100_000]], &Seal::default()));
    }
    let mut member = Member::join(&broker, "a");
    // The connection does not wait as long for an answer.
    member.wait_ms = 600_000;
    let request = ShareFetchRequest { min_bytes: 4 << 20, ..member.request(Vec::new()) };
    assert!(!acquired_in(&member.send(&request)).is_empty());
}

/// A partition whose first batch had no room beside that of another one did not count, and the request waited.
#[test]
fn a_batch_without_room_beside_that_of_another_partition_counts() {
    let broker = start_group(&MemStorage::new(), 0);
    let mut connection = Raw::connect(broker.addresses()[0]);
    for index in 0..2 {
        let mut request = produce_request("orders", -1, &batch(&[&vec![b'x'; 100_000]], &Seal::default()));
        request.topic_data[0].partition_data[0].index = index;
        let response = connection.ask(11, &request).expect("an answer");
        assert_eq!(response.responses[0].partition_responses[0].error_code, ErrorCode::None);
    }
    let mut member = Member::join(&broker, "a");
    // The connection does not wait as long for an answer.
    member.wait_ms = 600_000;
    // The first partition may exceed its half, because one batch always has room.
    let bytes = 150_000;
    let mut request = ShareFetchRequest { min_bytes: bytes, max_bytes: bytes, ..member.request(Vec::new()) };
    let other = FetchPartition { partition_index: 1, acknowledgement_batches: Vec::new() };
    request.topics[0].partitions.push(other);
    assert_eq!(acquired_in(&member.send(&request)), [(0, 0, 1)], "of one partition");
}
