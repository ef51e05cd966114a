//! Settings of tests that change the responses of a broker, most of them for librdkafka's mock cluster.

use ottla_broker::{ApiKey, Broker, BrokerThread, ErrorCode};
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_wire::Seal;

use crate::common::{Raw, batch};

fn broker() -> BrokerThread {
    Broker::builder().memory().nodes(2).topic("orders", 2).spawn().expect("a broker in memory")
}

/// Fetches the first records of two partitions outside of a session, and returns the error and the leader of each.
fn fetched(connection: &mut Raw) -> Vec<(ErrorCode, i32)> {
    let partitions = (0..2).map(|partition| FetchPartition {
        partition,
        current_leader_epoch: -1,
        last_fetched_epoch: -1,
        partition_max_bytes: 1000,
        ..Default::default()
    });
    let topic = FetchTopic { topic: "orders".into(), partitions: partitions.collect(), ..Default::default() };
    let request = FetchRequest {
        replica_id: -1,
        max_bytes: 1000,
        session_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    };
    let response = connection.ask(12, &request).expect("an answer");
    let partitions = &response.responses[0].partitions;
    partitions.iter().map(|data| (data.error_code, data.current_leader.leader_id)).collect()
}

#[test]
fn errors_of_a_partition_are_for_one_produce_or_fetch_request_each_at_its_leader() {
    let broker = broker();
    let cluster = broker.cluster();
    assert!(cluster.set_leader("orders", 0, 1) && cluster.set_leader("orders", 1, 1));
    let mut leader = Raw::connect(broker.addresses()[0]);
    let mut other = Raw::connect(broker.addresses()[1]);
    let records = batch(&[b"one"], &Seal::default());
    let (too_large, moved) = (ErrorCode::MessageTooLarge, ErrorCode::NotLeaderOrFollower);
    for code in [too_large, ErrorCode::None, moved] {
        cluster.add_partition_error(ApiKey::Produce, "orders", 0, code);
    }
    // A node that does not lead answers with its own error, and takes none.
    assert_eq!(other.produce("orders", -1, &records).error_code, moved);
    let written: Vec<_> = (0..4)
        .map(|_| leader.produce("orders", -1, &records))
        .map(|it| (it.error_code, it.base_offset))
        .collect();
    let none = ErrorCode::None;
    assert_eq!(written, [(too_large, -1), (none, 0), (moved, -1), (none, 1)]);

    cluster.add_partition_error(ApiKey::Fetch, "orders", 1, ErrorCode::KafkaStorageError);
    cluster.add_partition_error(ApiKey::Fetch, "orders", 1, moved);
    assert_eq!(fetched(&mut other), [(moved, 1), (moved, 1)]);
    let codes =
        |fetched: Vec<(ErrorCode, i32)>| fetched.into_iter().map(|(code, _)| code).collect::<Vec<_>>();
    assert_eq!(codes(fetched(&mut leader)), [none, ErrorCode::KafkaStorageError]);
    assert_eq!(fetched(&mut leader), [(none, -1), (moved, 1)], "with the leader");
    assert_eq!(fetched(&mut leader), [(none, -1), (none, -1)]);
}
