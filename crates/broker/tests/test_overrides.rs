//! Settings of tests that change the responses of a broker, most of them for librdkafka's mock cluster.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_broker::{
    ApiKey, Broker, BrokerThread, DiskCall, DiskEffect, DiskFiles, DiskRule, ErrorCode, Fault,
};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::messages::add_partitions_to_txn::{AddPartitionsToTxnRequest, AddPartitionsToTxnTopic};
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic, PartitionData};
use ottla_protocol::messages::find_coordinator::FindCoordinatorRequest;
use ottla_protocol::messages::metadata::MetadataRequest;
use ottla_protocol::messages::produce::ProduceRequest;
use ottla_wire::Seal;

use crate::common::{PATIENCE, Raw, batch, framed, metadata_of, produce_request};

fn broker() -> BrokerThread {
    Broker::builder().memory().nodes(2).topic("orders", 2).spawn().expect("a broker in memory")
}

/// Fetches the first records of two partitions outside of a session.
fn fetch_both(connection: &mut Raw) -> Vec<PartitionData> {
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
    let mut response = connection.ask(12, &request).expect("an answer");
    response.responses.remove(0).partitions
}

/// The error and the leader of each partition in the answer to a fetch.
fn fetched(connection: &mut Raw) -> Vec<(ErrorCode, i32)> {
    let partitions = fetch_both(connection).into_iter();
    partitions.map(|data| (data.error_code, data.current_leader.leader_id)).collect()
}

/// The node to which a fetch redirects the consumers of each partition.
fn redirected(connection: &mut Raw) -> Vec<i32> {
    fetch_both(connection).into_iter().map(|data| data.preferred_read_replica).collect()
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

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

/// The coordinator of a group or of a transactional id.
fn coordinator(connection: &mut Raw, key_type: i8, key: &str) -> (ErrorCode, i32) {
    let request = FindCoordinatorRequest { key: key.into(), key_type, ..Default::default() };
    let response = connection.ask(3, &request).expect("an answer");
    (response.error_code, response.node_id)
}

#[test]
fn a_coordinator_that_does_not_exist_is_not_available_until_it_is_added() {
    let broker = broker();
    let cluster = broker.cluster();
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert!(cluster.set_coordinator("billing", 7) && cluster.set_transaction_coordinator("till", 7));
    let mut both = || {
        [(GROUP, "billing"), (TRANSACTION, "till")].map(|(kind, key)| coordinator(&mut connection, kind, key))
    };
    assert_eq!(both(), [(ErrorCode::CoordinatorNotAvailable, -1); 2]);
    broker.add_node(7).expect("a new node");
    assert_eq!(both(), [(ErrorCode::None, 7); 2]);
    assert!(cluster.decommission(7));
    assert!(both().iter().all(|(code, node)| *code == ErrorCode::None && *node != 7), "as without the calls");
    // A node that is down may not become one.
    assert!(cluster.take_down(2));
    assert!(!cluster.set_coordinator("billing", 2) && !cluster.set_transaction_coordinator("till", 2));
    let answer = broker.control("POST", "/coordinators", br#"{"group":"billing","node":7}"#);
    assert_eq!(answer.status, 404, "{answer:?}");
    assert_eq!(both(), [(ErrorCode::None, 1); 2]);
}

#[test]
fn metadata_has_the_controller_that_is_set_whatever_nodes_there_are() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    for controller in [-1, 9, 2] {
        broker.cluster().set_controller(controller);
        let metadata = connection.ask(12, &metadata_of("orders")).expect("an answer");
        assert_eq!(metadata.controller_id, controller);
    }
}

#[test]
fn a_response_that_waits_for_the_lag_of_its_node_is_sent_when_that_ends() {
    let broker = broker();
    let cluster = broker.cluster();
    let mut connection = Raw::connect(broker.addresses()[0]);
    // The socket's patience ends long before the lag.
    assert!(cluster.set_lag(1, PATIENCE * 10) && !cluster.set_lag(9, PATIENCE));
    assert_eq!(cluster.requests(ApiKey::Metadata), 0);
    connection.send(&framed(12, &metadata_of("orders")));
    let arrived = broker
        .block_on(|cluster| async move { cluster.wait_for_requests(ApiKey::Metadata, 1, PATIENCE).await });
    arrived.expect("the request has arrived");
    // A shorter lag counts from the time at which the response was complete.
    assert!(cluster.set_lag(1, PATIENCE * 5) && cluster.set_lag(1, Duration::ZERO));
    assert!(connection.answer_to::<MetadataRequest>(12).is_some());
}

/// The lags of pipelined requests were added up: each request was handled when the earlier response was sent.
#[test]
fn requests_behind_a_response_that_waits_for_the_lag_of_its_node_are_handled_meanwhile() {
    let broker = broker();
    let cluster = broker.cluster();
    assert!(cluster.set_lag(1, PATIENCE * 10));
    assert_eq!(cluster.requests(ApiKey::Metadata), 0);
    let mut connection = Raw::connect(broker.addresses()[0]);
    let topics = ["orders", "returns", "stock"];
    let handled = |count: u64| {
        let arrived = broker.block_on(|cluster| async move {
            cluster.wait_for_requests(ApiKey::Metadata, count, PATIENCE).await
        });
        arrived.expect("the requests are handled");
    };
    // Two at once, and one while their responses wait.
    let both = topics[..2].iter().flat_map(|topic| framed(12, &metadata_of(topic))).collect::<Vec<u8>>();
    connection.send(&both);
    handled(2);
    connection.send(&framed(12, &metadata_of(topics[2])));
    handled(3);
    assert!(cluster.set_lag(1, Duration::ZERO));
    for topic in topics {
        let answer = connection.answer_to::<MetadataRequest>(12).expect("an answer");
        assert_eq!(answer.topics[0].name.as_deref(), Some(topic), "the responses keep their order");
    }
}

/// The connection waited for a higher number of lags than there had been: the lag of the second request had ended before that of the
/// first began.
#[test]
fn a_request_is_handled_when_the_last_one_before_it_begins_to_wait_for_the_lag() {
    let builder = Broker::builder().storage(Arc::new(MemStorage::new()));
    let broker = builder.topic("orders", 1).topic("returns", 1).spawn().expect("a broker");
    let cluster = broker.cluster();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let records = batch(&[b"x"], &Seal::default());
    for topic in ["orders", "returns"] {
        // The offsets of the next records are reserved.
        assert_eq!(connection.produce(topic, -1, &records).error_code, ErrorCode::None);
    }
    assert_eq!(cluster.requests(ApiKey::Metadata), 0);
    let handled = |api: ApiKey, count: u64| {
        let arrived = broker
            .block_on(move |cluster| async move { cluster.wait_for_requests(api, count, PATIENCE).await });
        arrived.expect("the requests are handled");
    };
    let slow = DiskRule::new(DiskCall::Sync, DiskEffect::Slow(PATIENCE));
    let slow = cluster.add_disk_fault(DiskRule { files: DiskFiles::Topic("orders".into()), ..slow });
    assert!(cluster.set_lag(1, PATIENCE * 10));
    // The first one waits for its sync, and the second one for the lag.
    let (first, second) = (produce_request("orders", -1, &records), produce_request("returns", 1, &records));
    let all = [framed(12, &first), framed(12, &second), framed(12, &metadata_of("orders"))].concat();
    connection.send(&all);
    handled(ApiKey::Produce, 2);
    assert!(cluster.set_lag(1, Duration::ZERO));
    // The connection notices that the lag has ended.
    broker.block_on(|_| async {
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    });
    assert!(cluster.set_lag(1, PATIENCE * 10));
    assert_eq!(cluster.requests(ApiKey::Metadata), 0);
    assert!(cluster.remove_disk_fault(slow));
    handled(ApiKey::Metadata, 1);
    assert!(cluster.set_lag(1, Duration::ZERO));
    for _ in 0..2 {
        let answer = connection.answer_to::<ProduceRequest>(12).expect("an answer");
        assert_eq!(answer.responses[0].partition_responses[0].error_code, ErrorCode::None);
    }
    assert!(connection.answer_to::<MetadataRequest>(12).is_some());
}

#[test]
fn the_delay_of_a_fault_and_the_lag_of_a_node_are_added() {
    let broker = broker();
    let cluster = broker.cluster();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let each = Duration::from_millis(400);
    assert!(cluster.set_lag(1, each));
    cluster.intercept(ApiKey::Metadata, None, 1, Fault::AnswerAfter(each));
    let began = Instant::now();
    assert!(connection.ask(12, &metadata_of("orders")).is_some());
    assert!(began.elapsed() >= each * 2, "{:?}", began.elapsed());
}

/// The error of the topic in metadata, and its number of partitions.
fn topic(connection: &mut Raw) -> (ErrorCode, usize) {
    let metadata = connection.ask(12, &metadata_of("orders")).expect("an answer");
    (metadata.topics[0].error_code, metadata.topics[0].partitions.len())
}

#[test]
fn a_topic_with_an_error_may_have_partitions_in_metadata_unless_it_is_unknown() {
    let broker = broker();
    let cluster = broker.cluster();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let forbidden = ErrorCode::TopicAuthorizationFailed;
    cluster.set_topic_error("orders", forbidden);
    assert_eq!(topic(&mut connection), (forbidden, 0));
    cluster.set_topic_errors_keep_partitions(true);
    assert_eq!(topic(&mut connection), (forbidden, 2));
    for unknown in [ErrorCode::UnknownTopicOrPartition, ErrorCode::UnknownTopicId] {
        cluster.set_topic_error("orders", unknown);
        assert_eq!(topic(&mut connection), (unknown, 0));
    }
}

#[test]
fn the_error_of_a_topic_is_that_of_its_partitions_in_a_transaction() {
    let broker = broker();
    let cluster = broker.cluster();
    assert!(cluster.set_transaction_coordinator("till", 1));
    let mut connection = Raw::connect(broker.addresses()[0]);
    let orders = AddPartitionsToTxnTopic { name: "orders".into(), partitions: vec![0, 7] };
    let request = AddPartitionsToTxnRequest {
        v3_and_below_transactional_id: "till".into(),
        v3_and_below_topics: vec![orders],
        ..Default::default()
    };
    cluster.set_topic_error("orders", ErrorCode::TopicAuthorizationFailed);
    let response = connection.ask(3, &request).expect("an answer");
    let results = &response.results_by_topic_v3_and_below[0].results_by_partition;
    let codes: Vec<_> = results.iter().map(|result| result.partition_error_code).collect();
    assert_eq!(codes, [ErrorCode::TopicAuthorizationFailed, ErrorCode::UnknownTopicOrPartition]);
}

#[test]
fn what_was_set_for_a_topic_ends_with_it() {
    let broker = broker();
    let cluster = broker.cluster();
    let mut connection = Raw::connect(broker.addresses()[0]);
    cluster.set_topic_error("orders", ErrorCode::TopicAuthorizationFailed);
    cluster.set_replicas_shown("orders", 2);
    cluster.add_partition_error(ApiKey::Produce, "orders", 0, ErrorCode::MessageTooLarge);
    assert!(cluster.tell_leader("orders", 0, 2, 9) && cluster.set_follower("orders", 0, Some(2)));
    cluster.set_fetch_error("orders", 0, ErrorCode::KafkaStorageError);
    cluster.remove_topic("orders").expect("deleted");
    cluster.add_topic("orders", 2).expect("created again");
    assert!(cluster.set_leader("orders", 1, 1));
    assert_eq!(fetched(&mut connection), [(ErrorCode::None, -1); 2], "it has no error in fetches");
    let metadata = connection.ask(12, &metadata_of("orders")).expect("an answer");
    assert_eq!(metadata.topics[0].error_code, ErrorCode::None);
    let partition = &metadata.topics[0].partitions[0];
    assert_eq!((partition.leader_id, partition.replica_nodes.len()), (1, 1));
    let records = batch(&[b"one"], &Seal::default());
    assert_eq!(connection.produce("orders", -1, &records).error_code, ErrorCode::None);
}

/// The call reported that there is no such partition, and the one that was created later had the follower.
#[test]
fn a_follower_of_an_unknown_partition_is_not_kept() {
    let broker = broker();
    let cluster = broker.cluster();
    cluster.remove_topic("orders").expect("deleted");
    assert!(!cluster.set_follower("orders", 0, Some(2)));
    cluster.add_topic("orders", 2).expect("created again");
    assert!(cluster.set_leader("orders", 0, 1) && cluster.set_leader("orders", 1, 1));
    assert_eq!(redirected(&mut Raw::connect(broker.addresses()[0])), [-1, -1]);
}

/// Only Rust had the call.
#[test]
fn a_request_of_the_control_address_sends_consumers_to_a_follower() {
    let broker = broker();
    assert!(broker.cluster().set_leader("orders", 0, 1) && broker.cluster().set_leader("orders", 1, 1));
    let (mut leader, mut follower) =
        (Raw::connect(broker.addresses()[0]), Raw::connect(broker.addresses()[1]));
    let follow = |body: &str| broker.control("POST", "/followers", body.as_bytes()).status;
    assert_eq!(follow(r#"{"topic":"orders","partition":0,"node":2,"low":3}"#), 200);
    assert_eq!(redirected(&mut leader), [2, -1]);
    let codes: Vec<_> = fetched(&mut follower).into_iter().map(|(code, _)| code).collect();
    assert_eq!(codes, [ErrorCode::OffsetOutOfRange, ErrorCode::NotLeaderOrFollower], "it begins at 3");
    assert_eq!(follow(r#"{"topic":"orders","partition":0,"node":2}"#), 200);
    assert_eq!(fetched(&mut follower)[0].0, ErrorCode::None);
    assert_eq!(follow(r#"{"topic":"orders","partition":0,"node":-1}"#), 200);
    assert_eq!(redirected(&mut leader), [-1, -1]);
    for (status, body) in [
        (404, r#"{"topic":"orders","partition":9,"node":2}"#),
        (404, r#"{"topic":"orders","partition":0,"node":9}"#),
        (400, r#"{"topic":"orders","partition":0,"node":-1,"low":3}"#),
        (400, r#"{"topic":"orders","partition":0}"#),
    ] {
        assert_eq!(follow(body), status, "{body}");
    }
}

/// A leader redirected the consumers of a partition to a follower that was down, for as long as it was. A node that was removed and added
/// again had the address and the partitions of before.
#[test]
fn what_was_set_for_a_node_has_no_effect_while_it_is_down_and_ends_with_it() {
    let broker = broker();
    let cluster = broker.cluster();
    assert!(cluster.set_leader("orders", 0, 1) && cluster.set_leader("orders", 1, 1));
    let mut leader = Raw::connect(broker.addresses()[0]);
    assert!(cluster.set_follower("orders", 0, Some(2)));
    assert_eq!(redirected(&mut leader), [2, -1]);
    assert!(cluster.take_down(2));
    assert_eq!(redirected(&mut leader), [-1, -1]);
    assert!(cluster.take_up(2) && cluster.set_leader("orders", 1, 1));
    assert_eq!(redirected(&mut leader), [2, -1]);

    let own = broker.bootstrap_servers();
    assert!(cluster.advertise(2, "proxy.test", 9));
    assert!(broker.bootstrap_servers().ends_with(",proxy.test:9"));
    assert!(cluster.decommission(2));
    broker.add_node(2).expect("added again");
    assert_eq!(broker.bootstrap_servers(), own);
    assert!(cluster.set_leader("orders", 1, 1));
    assert_eq!(redirected(&mut leader), [-1, -1]);
}
