//! Replication factors above 1: metadata lists several nodes, which share one copy of the data.

use std::sync::Arc;

use ottla_broker::{Broker, BrokerConfig};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use ottla_protocol::messages::describe_producers::{DescribeProducersRequest, TopicRequest};
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use ottla_protocol::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use ottla_wire::Chain;

use crate::common;
use crate::common::{Raw, metadata_of};

fn create(connection: &mut Raw, topics: Vec<CreatableTopic>) -> Vec<(ErrorCode, i16)> {
    let request = CreateTopicsRequest { topics, timeout_ms: 10_000, ..Default::default() };
    let answer = connection.ask(7, &request).expect("an answer");
    answer.topics.iter().map(|topic| (topic.error_code, topic.replication_factor)).collect()
}

fn topic(name: &str, replication_factor: i16) -> CreatableTopic {
    CreatableTopic { name: name.into(), num_partitions: 3, replication_factor, ..Default::default() }
}

/// Replicas, replicas in sync and leader of each partition.
fn shown(connection: &mut Raw, topic: &str) -> Vec<(Vec<i32>, Vec<i32>, i32)> {
    let answer = connection.ask(13, &metadata_of(topic)).expect("an answer");
    let partitions = answer.topics[0].partitions.iter();
    partitions.map(|one| (one.replica_nodes.clone(), one.isr_nodes.clone(), one.leader_id)).collect()
}

#[test]
fn a_replication_factor_up_to_the_number_of_nodes_is_shown_and_kept() {
    let disk = MemStorage::new();
    let start = || {
        let builder = Broker::builder().storage(Arc::new(disk.clone())).nodes(3);
        let broker = builder.spawn().expect("a broker");
        let connection = Raw::connect(broker.addresses()[0]);
        (broker, connection)
    };
    let (broker, mut connection) = start();
    assert_eq!(create(&mut connection, vec![topic("orders", 2)]), [(ErrorCode::None, 2)]);
    let all = [(vec![1, 2], vec![1, 2], 1), (vec![2, 3], vec![2, 3], 2), (vec![3, 1], vec![3, 1], 3)];
    assert_eq!(shown(&mut connection, "orders"), all);
    for bad in [4, 0, -2] {
        let (code, _) = create(&mut connection, vec![topic("bad", bad)])[0];
        assert_eq!(code, ErrorCode::InvalidReplicationFactor, "{bad}");
    }
    let assigned = |assignments: &[(i32, &[i32])]| CreatableTopic {
        num_partitions: -1,
        assignments: assignments
            .iter()
            .map(|(partition_index, nodes)| CreatableReplicaAssignment {
                partition_index: *partition_index,
                broker_ids: nodes.to_vec(),
            })
            .collect(),
        ..topic("assigned", -1)
    };
    for bad in
        [&[(0, &[1, 1][..])][..], &[(0, &[1, 4])], &[(1, &[1])], &[(0, &[1]), (1, &[1, 2])], &[(0, &[])]]
    {
        let (code, _) = create(&mut connection, vec![assigned(bad)])[0];
        assert_eq!(code, ErrorCode::InvalidReplicaAssignment, "{bad:?}");
    }
    assert_eq!(create(&mut connection, vec![assigned(&[(0, &[2, 3])])]), [(ErrorCode::None, 2)]);
    drop(broker);
    let (_broker, mut connection) = start();
    assert_eq!(shown(&mut connection, "orders"), all, "after a restart");
}

/// `default.replication.factor` had no effect: a topic without a number had one replica.
#[test]
fn a_topic_without_a_replication_factor_has_the_default_one() {
    for (factor, nodes, replicas) in [("1", 3, 1), ("2", 3, 2), ("5", 3, 3), ("3", 1, 1)] {
        let builder = Broker::builder().memory().nodes(nodes).topic("of_builder", 1);
        let set =
            |config: &mut BrokerConfig| config.set("default.replication.factor", factor).expect("a number");
        let broker = builder.configure(set).spawn().expect("a broker");
        let mut connection = Raw::connect(broker.addresses()[0]);
        assert_eq!(create(&mut connection, vec![topic("orders", -1)]), [(ErrorCode::None, replicas)]);
        assert_eq!(create(&mut connection, vec![topic("single", 1)]), [(ErrorCode::None, 1)]);
        for name in ["of_builder", "orders", "created_by_metadata"] {
            let counts: Vec<usize> =
                shown(&mut connection, name).iter().map(|(replicas, ..)| replicas.len()).collect();
            assert!(counts.iter().all(|count| *count == replicas as usize), "{name} {counts:?}");
            assert!(!counts.is_empty(), "{name}");
        }
        assert_eq!(shown(&mut connection, "single")[0].0.len(), 1);
    }
}

#[test]
fn writes_need_min_insync_replicas_and_the_leader_fails_over() {
    let broker = Broker::builder().memory().nodes(3).spawn().expect("a broker");
    let mut first = Raw::connect(broker.addresses()[0]);
    let config = CreatableTopicConfig { name: "min.insync.replicas".into(), value: Some("2".into()) };
    let strict = CreatableTopic { num_partitions: 1, configs: vec![config], ..topic("orders", 3) };
    assert_eq!(create(&mut first, vec![strict]), [(ErrorCode::None, 3)]);
    let batch = common::batch(&[b"v"], &ottla_wire::Seal::default());
    assert_eq!(first.produce("orders", -1, &batch).error_code, ErrorCode::None);
    broker.cluster().take_down(1);
    let mut second = Raw::connect(broker.addresses()[1]);
    assert_eq!(shown(&mut second, "orders"), [(vec![1, 2, 3], vec![2, 3], 2)]);
    assert_eq!(second.produce("orders", -1, &batch).error_code, ErrorCode::None);
    broker.cluster().take_down(3);
    assert_eq!(shown(&mut second, "orders"), [(vec![1, 2, 3], vec![2], 2)]);
    assert_eq!(second.produce("orders", -1, &batch).error_code, ErrorCode::NotEnoughReplicas);
    assert_eq!(second.produce("orders", 1, &batch).error_code, ErrorCode::None);
    broker.cluster().take_up(1);
    assert_eq!(shown(&mut second, "orders"), [(vec![1, 2, 3], vec![1, 2], 1)]);
}

/// They were listed as if they were up. Kafka leaves them out in version 0, which has an error for it.
#[test]
fn metadata_of_version_0_leaves_out_replicas_that_are_down() {
    let broker = Broker::builder().memory().nodes(3).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let single = |name, count| CreatableTopic { num_partitions: 1, ..topic(name, count) };
    let topics = vec![single("orders", 3), single("others", 1)];
    assert_eq!(create(&mut connection, topics), [(ErrorCode::None, 3), (ErrorCode::None, 1)]);
    let mut found = |version: i16, topic: &str| {
        let mut answer = connection.ask(version, &metadata_of(topic)).expect("an answer");
        let one = answer.topics.remove(0).partitions.remove(0);
        (one.error_code, one.leader_id, one.replica_nodes, one.isr_nodes)
    };
    assert_eq!(found(0, "orders"), (ErrorCode::None, 1, vec![1, 2, 3], vec![1, 2, 3]));
    assert!(broker.cluster().take_down(2));
    assert_eq!(found(0, "orders"), (ErrorCode::ReplicaNotAvailable, 1, vec![1, 3], vec![1, 3]));
    assert_eq!(found(1, "orders"), (ErrorCode::None, 1, vec![1, 2, 3], vec![1, 3]));
    assert_eq!(found(0, "others"), (ErrorCode::None, 1, vec![1], vec![1]));
}

/// The codes that a node answers to a fetch, a lookup of an offset and one of an epoch's end, for `orders` partition 0.
fn codes_with_epoch(connection: &mut Raw, current_leader_epoch: i32) -> [ErrorCode; 3] {
    let partition = FetchPartition { current_leader_epoch, partition_max_bytes: 1, ..Default::default() };
    let topics =
        vec![FetchTopic { topic: "orders".into(), partitions: vec![partition], ..Default::default() }];
    let fetch = FetchRequest { replica_id: -1, session_epoch: -1, topics, ..Default::default() };
    // Only leaders answer fetches of this version.
    let fetched = connection.ask(10, &fetch).expect("an answer");
    let partition = ListOffsetsPartition { timestamp: -1, current_leader_epoch, ..Default::default() };
    let topics = vec![ListOffsetsTopic { name: "orders".into(), partitions: vec![partition] }];
    let list = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    let listed = connection.ask(7, &list).expect("an answer");
    let partition = OffsetForLeaderPartition { partition: 0, current_leader_epoch, leader_epoch: 0 };
    let topics = vec![OffsetForLeaderTopic { topic: "orders".into(), partitions: vec![partition] }];
    let end = OffsetForLeaderEpochRequest { replica_id: -1, topics };
    let ended = connection.ask(4, &end).expect("an answer");
    [
        fetched.responses[0].partitions[0].error_code,
        listed.topics[0].partitions[0].error_code,
        ended.topics[0].partitions[0].error_code,
    ]
}

/// A replica that does not lead answered NOT_LEADER_OR_FOLLOWER whatever the client's epoch was.
#[test]
fn a_replica_compares_the_epochs_before_it_says_that_it_does_not_lead() {
    let broker = Broker::builder().memory().nodes(3).spawn().expect("a broker");
    let mut nodes = broker.addresses().iter().map(|address| Raw::connect(*address));
    let [mut leader, mut replica, mut other] = std::array::from_fn(|_| nodes.next().expect("three nodes"));
    assert_eq!(create(&mut leader, vec![topic("orders", 2)]), [(ErrorCode::None, 2)]);
    for node in [2, 1] {
        assert!(broker.cluster().set_leader("orders", 0, node));
    }
    let described = leader.ask(13, &metadata_of("orders")).expect("an answer");
    let partition = &described.topics[0].partitions[0];
    assert_eq!((&partition.replica_nodes[..], partition.leader_id), (&[1, 2][..], 1));
    let epoch = partition.leader_epoch;
    let (fenced, unknown) = (ErrorCode::FencedLeaderEpoch, ErrorCode::UnknownLeaderEpoch);
    let moved = ErrorCode::NotLeaderOrFollower;
    for (epoch, of_leader, of_replica) in [
        (epoch - 1, fenced, fenced),
        (epoch, ErrorCode::None, moved),
        (epoch + 1, unknown, unknown),
        (-1, ErrorCode::None, moved),
    ] {
        assert_eq!(codes_with_epoch(&mut leader, epoch), [of_leader; 3], "epoch {epoch}");
        assert_eq!(codes_with_epoch(&mut replica, epoch), [of_replica; 3], "epoch {epoch}");
        assert_eq!(codes_with_epoch(&mut other, epoch), [moved; 3], "epoch {epoch}");
    }
}

/// The error, the number of bytes and the preferred replica that a fetch of `orders` partition 0 is answered with.
fn fetched(connection: &mut Raw, version: i16, replica_id: i32, epoch: i32) -> (ErrorCode, usize, i32) {
    let partition =
        FetchPartition { current_leader_epoch: epoch, partition_max_bytes: 1 << 20, ..Default::default() };
    let topics =
        vec![FetchTopic { topic: "orders".into(), partitions: vec![partition], ..Default::default() }];
    let fetch = FetchRequest { replica_id, topics, ..Default::default() };
    let answer = connection.ask(version, &fetch).expect("an answer");
    let partition = &answer.responses[0].partitions[0];
    let bytes = partition.records.as_ref().map_or(0, Chain::len);
    (partition.error_code, bytes, partition.preferred_read_replica)
}

/// Only the leader did. In Kafka the consumers read from any replica in sync (KIP-392), and followers from the leader.
#[test]
fn every_replica_answers_fetches_of_consumers() {
    let broker = Broker::builder().memory().nodes(3).spawn().expect("a broker");
    let mut nodes = broker.addresses().iter().map(|address| Raw::connect(*address));
    let [mut leader, mut replica, mut other] = std::array::from_fn(|_| nodes.next().expect("three nodes"));
    assert_eq!(create(&mut leader, vec![topic("orders", 2)]), [(ErrorCode::None, 2)]);
    let batch = common::batch(&[b"v"], &ottla_wire::Seal::default());
    assert_eq!(leader.produce("orders", -1, &batch).error_code, ErrorCode::None);
    let described = leader.ask(12, &metadata_of("orders")).expect("an answer");
    let partition = &described.topics[0].partitions[0];
    assert_eq!((&partition.replica_nodes[..], partition.leader_id), (&[1, 2][..], 1));
    let epoch = partition.leader_epoch;
    let (read, moved) = ((ErrorCode::None, batch.len(), -1), (ErrorCode::NotLeaderOrFollower, 0, -1));
    for (version, replica_id, of_replica) in
        [(10, -1, moved), (11, -1, read), (12, -1, read), (11, 2, moved), (12, 2, moved)]
    {
        for epoch in [epoch, -1] {
            assert_eq!(fetched(&mut leader, version, replica_id, epoch), read, "version {version}");
            assert_eq!(fetched(&mut replica, version, replica_id, epoch), of_replica, "version {version}");
            assert_eq!(fetched(&mut other, version, replica_id, epoch), moved, "version {version}");
        }
    }
    assert_eq!(fetched(&mut replica, 12, -1, epoch + 1), (ErrorCode::UnknownLeaderEpoch, 0, -1));

    // A replica that does not lead redirects no consumer.
    assert!(broker.cluster().set_follower("orders", 0, Some(3)));
    assert_eq!(fetched(&mut leader, 12, -1, epoch), (ErrorCode::None, 0, 3));
    assert_eq!(fetched(&mut replica, 12, -1, epoch), read);
    assert_eq!(fetched(&mut other, 12, -1, epoch), read);
    assert!(broker.cluster().set_follower("orders", 0, None));

    // The former leader follows, and answers under the new epoch.
    assert!(broker.cluster().set_leader("orders", 0, 2));
    assert_eq!(fetched(&mut leader, 12, -1, epoch), (ErrorCode::FencedLeaderEpoch, 0, -1));
    assert_eq!(fetched(&mut leader, 12, -1, epoch + 1), read);
}

/// Only the leader did. Kafka's tools ask so to compare the replicas.
#[test]
fn every_replica_answers_a_lookup_of_offsets_for_debugging() {
    let broker = Broker::builder().memory().nodes(3).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(create(&mut connection, vec![topic("orders", 2)]), [(ErrorCode::None, 2)]);
    let written = connection.produce("orders", -1, &common::batch(&[b"v"], &ottla_wire::Seal::default()));
    assert_eq!(written.error_code, ErrorCode::None);
    let moved = (ErrorCode::NotLeaderOrFollower, -1);
    let answers =
        [((ErrorCode::None, 1), (ErrorCode::None, 1)), (moved, (ErrorCode::None, 1)), (moved, moved)];
    for (address, (of_clients, of_debugging)) in broker.addresses().iter().zip(answers) {
        for (replica_id, expected) in [(-1, of_clients), (-2, of_debugging)] {
            let partition =
                ListOffsetsPartition { timestamp: -1, current_leader_epoch: -1, ..Default::default() };
            let topics = vec![ListOffsetsTopic { name: "orders".into(), partitions: vec![partition] }];
            let request = ListOffsetsRequest { replica_id, topics, ..Default::default() };
            let answer = Raw::connect(*address).ask(7, &request).expect("an answer");
            let partition = &answer.topics[0].partitions[0];
            assert_eq!((partition.error_code, partition.offset), expected, "replica id {replica_id}");
        }
    }
}

/// Only the leader did. Kafka's Admin can ask a certain broker.
#[test]
fn every_replica_describes_the_producers_of_a_partition() {
    let broker = Broker::builder().memory().nodes(3).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(create(&mut connection, vec![topic("orders", 2)]), [(ErrorCode::None, 2)]);
    let written = connection.produce("orders", -1, &common::numbered((7, 0), 0, &[b"v"]));
    assert_eq!(written.error_code, ErrorCode::None);
    let none = ErrorCode::None;
    let answers = [(none, vec![7]), (none, vec![7]), (ErrorCode::NotLeaderOrFollower, Vec::new())];
    for (address, expected) in broker.addresses().iter().zip(answers) {
        let topics = vec![TopicRequest { name: "orders".into(), partition_indexes: vec![0] }];
        let answer = Raw::connect(*address).ask(0, &DescribeProducersRequest { topics }).expect("an answer");
        let partition = &answer.topics[0].partitions[0];
        let ids: Vec<i64> = partition.active_producers.iter().map(|one| one.producer_id).collect();
        assert_eq!((partition.error_code, ids), expected);
    }
}

#[test]
fn a_topic_that_is_twice_in_a_request_is_created_not_at_all() {
    let broker = Broker::builder().memory().spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let twice = vec![topic("orders", 1), topic("returns", 1), topic("orders", 1)];
    let codes: Vec<ErrorCode> = create(&mut connection, twice).into_iter().map(|(code, _)| code).collect();
    assert_eq!(codes, [ErrorCode::InvalidRequest, ErrorCode::None], "one result for each name");
    assert_eq!(create(&mut connection, vec![topic("orders", 1)]), [(ErrorCode::None, 1)]);
}
