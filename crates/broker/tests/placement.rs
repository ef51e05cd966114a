//! The nodes that get the replicas of new partitions: they are in different racks, up, and registered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_broker::{Broker, BrokerThread};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use ottla_protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use ottla_protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use ottla_protocol::messages::unregister_broker::UnregisterBrokerRequest;
use ottla_wire::Seal;

use crate::common::{Raw, batch, metadata_of};

/// A broker with so many nodes in these racks.
fn start(disk: &MemStorage, nodes: i32, racks: &[&str]) -> (BrokerThread, Raw) {
    let builder = Broker::builder().storage(Arc::new(disk.clone())).nodes(nodes);
    let broker = builder.racks(racks.iter().copied()).spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

fn create(connection: &mut Raw, topic: CreatableTopic) -> ErrorCode {
    let topics = vec![CreatableTopic { name: "orders".into(), ..topic }];
    let request = CreateTopicsRequest { topics, timeout_ms: 10_000, ..Default::default() };
    connection.ask(7, &request).expect("an answer").topics[0].error_code
}

fn topic(num_partitions: i32, replication_factor: i16) -> CreatableTopic {
    CreatableTopic { num_partitions, replication_factor, ..Default::default() }
}

fn grow(connection: &mut Raw, count: i32) -> ErrorCode {
    let topic = CreatePartitionsTopic { name: "orders".into(), count, assignments: None };
    let request = CreatePartitionsRequest { topics: vec![topic], timeout_ms: 10_000, validate_only: false };
    connection.ask(3, &request).expect("an answer").results[0].error_code
}

/// The replicas of each partition, the leader first in all of them.
fn replicas(connection: &mut Raw) -> Vec<Vec<i32>> {
    let answer = connection.ask(12, &metadata_of("orders")).expect("an answer");
    let partitions = answer.topics[0].partitions.iter().map(|partition| {
        assert_eq!(partition.replica_nodes.first(), Some(&partition.leader_id));
        partition.replica_nodes.clone()
    });
    partitions.collect()
}

/// They were consecutive nodes, which can be in one rack. Kafka's placement is rack-aware.
#[test]
fn replicas_are_in_different_racks_and_even() {
    let (racks, disk) = (["a", "a", "b", "b"], MemStorage::new());
    let (broker, mut connection) = start(&disk, 4, &racks);
    assert_eq!(create(&mut connection, topic(6, 2)), ErrorCode::None);
    assert_eq!(grow(&mut connection, 8), ErrorCode::None);
    let placed = replicas(&mut connection);
    let (mut of_node, mut led) = (BTreeMap::<i32, usize>::new(), BTreeMap::<i32, usize>::new());
    for nodes in &placed {
        let distinct: BTreeSet<&str> = nodes.iter().map(|id| racks[*id as usize - 1]).collect();
        assert_eq!((nodes.len(), distinct.len()), (2, 2), "{placed:?}");
        *led.entry(nodes[0]).or_default() += 1;
        for id in nodes {
            *of_node.entry(*id).or_default() += 1;
        }
    }
    assert_eq!(of_node, BTreeMap::from([1, 2, 3, 4].map(|id| (id, 4))), "{placed:?}");
    assert_eq!(led, BTreeMap::from([1, 2, 3, 4].map(|id| (id, 2))), "{placed:?}");
    // Other racks move nothing.
    broker.stop();
    let (_broker, mut connection) = start(&disk, 4, &["a", "b", "a", "b"]);
    assert_eq!(replicas(&mut connection), placed);
}

/// A write with acks=all had NOT_ENOUGH_REPLICAS: the node that was down was one of the two replicas.
#[test]
fn new_partitions_are_on_nodes_that_are_up() {
    let (broker, mut connection) = start(&MemStorage::new(), 3, &[]);
    assert!(broker.cluster().take_down(2));
    let config = CreatableTopicConfig { name: "min.insync.replicas".into(), value: Some("2".into()) };
    let strict = CreatableTopic { configs: vec![config], ..topic(2, 2) };
    assert_eq!(create(&mut connection, strict), ErrorCode::None);
    assert_eq!(replicas(&mut connection), [[1, 3], [3, 1]]);
    let written = connection.produce("orders", -1, &batch(&[b"v"], &Seal::default()));
    assert_eq!(written.error_code, ErrorCode::None);
    assert!(broker.cluster().take_up(2));
    assert_eq!(grow(&mut connection, 3), ErrorCode::None);
    assert_eq!(replicas(&mut connection), [[1, 3], [3, 1], [3, 1]]);
}

/// It counted, and was listed as a replica of new partitions.
#[test]
fn a_node_that_is_unregistered_gets_no_replicas() {
    let (broker, mut connection) = start(&MemStorage::new(), 3, &[]);
    assert!(broker.cluster().take_down(3));
    let unregistered = connection.ask(0, &UnregisterBrokerRequest { broker_id: 3 }).expect("an answer");
    assert_eq!(unregistered.error_code, ErrorCode::None);
    assert_eq!(create(&mut connection, topic(3, 3)), ErrorCode::InvalidReplicationFactor);
    assert_eq!(create(&mut connection, topic(3, 2)), ErrorCode::None);
    assert_eq!(replicas(&mut connection), [[1, 2], [2, 1], [1, 2]]);
}

/// They had fewer replicas than the other partitions.
#[test]
fn partitions_are_not_added_with_fewer_nodes_than_replicas() {
    let (broker, mut connection) = start(&MemStorage::new(), 3, &[]);
    assert_eq!(create(&mut connection, topic(1, 3)), ErrorCode::None);
    // A node that is down has replicas; one that is unregistered has none.
    assert!(broker.cluster().take_down(3));
    assert_eq!(grow(&mut connection, 2), ErrorCode::None);
    let unregistered = connection.ask(0, &UnregisterBrokerRequest { broker_id: 3 }).expect("an answer");
    assert_eq!(unregistered.error_code, ErrorCode::None);
    assert_eq!(grow(&mut connection, 3), ErrorCode::InvalidReplicationFactor);
    assert_eq!(broker.add_node(3), Ok(()));
    assert_eq!(grow(&mut connection, 3), ErrorCode::None);
    assert_eq!(replicas(&mut connection)[2], [3, 1, 2]);
}

/// They had as many as the topic had when it was created. Kafka counts those of partition 0.
#[test]
fn new_partitions_have_as_many_replicas_as_partition_0() {
    let disk = MemStorage::new();
    let (broker, mut connection) = start(&disk, 3, &[]);
    assert_eq!(create(&mut connection, topic(1, 1)), ErrorCode::None);
    let reassign = |connection: &mut Raw, nodes: &[i32]| {
        let partition = ReassignablePartition { partition_index: 0, replicas: Some(nodes.to_vec()) };
        let request = AlterPartitionReassignmentsRequest {
            timeout_ms: 1000,
            allow_replication_factor_change: true,
            topics: vec![ReassignableTopic { name: "orders".into(), partitions: vec![partition] }],
        };
        let answer = connection.ask(1, &request).expect("an answer");
        assert_eq!(answer.responses[0].partitions[0].error_code, ErrorCode::None);
    };
    reassign(&mut connection, &[1, 2, 3]);
    assert_eq!(grow(&mut connection, 2), ErrorCode::None);
    reassign(&mut connection, &[1]);
    assert_eq!(grow(&mut connection, 3), ErrorCode::None);
    let all = [vec![1], vec![2, 3, 1], vec![3]];
    assert_eq!(replicas(&mut connection), all);
    broker.stop();
    let (_broker, mut connection) = start(&disk, 3, &[]);
    assert_eq!(replicas(&mut connection), all, "after a restart");
}
