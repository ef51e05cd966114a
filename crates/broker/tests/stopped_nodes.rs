//! A node that is stopped: its partitions are led by other replicas, or by none until one starts, as in Kafka.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use ottla_broker::{Broker, BrokerConfig, BrokerThread, Clock, Cluster};
use ottla_log::storage::Storage;
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use ottla_protocol::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest,
};
use ottla_protocol::messages::describe_topic_partitions::{DescribeTopicPartitionsRequest, TopicRequest};
use ottla_protocol::messages::elect_leaders::{ElectLeadersRequest, TopicPartitions};
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::find_coordinator::FindCoordinatorRequest;
use ottla_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use ottla_protocol::messages::metadata::MetadataResponsePartition;
use ottla_protocol::messages::unregister_broker::UnregisterBrokerRequest;
use ottla_wire::{Chain, Seal};

use crate::common::{Raw, batch, commit_request, metadata_of};

const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;
/// The keys of FindCoordinator.
const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

/// Three nodes with the topic `orders` of three partitions, which have so many replicas.
fn three_nodes(replicas: i32, property: Option<(&str, &str)>) -> BrokerThread {
    let configure = |config: &mut BrokerConfig| {
        config.replication_default = replicas;
        if let Some((name, value)) = property {
            config.set(name, value).expect("a property");
        }
    };
    let builder = Broker::builder().memory().nodes(3).topic("orders", 3);
    builder.configure(configure).spawn().expect("a broker")
}

fn partition(connection: &mut Raw, version: i16, topic: &str, index: usize) -> MetadataResponsePartition {
    let mut answer = connection.ask(version, &metadata_of(topic)).expect("an answer");
    answer.topics.remove(0).partitions.remove(index)
}

/// The error, leader, replicas, replicas in sync and offline replicas of a partition of `orders` in metadata.
fn shown(connection: &mut Raw, index: usize) -> (ErrorCode, i32, Vec<i32>, Vec<i32>, Vec<i32>) {
    let one = partition(connection, 12, "orders", index);
    (one.error_code, one.leader_id, one.replica_nodes, one.isr_nodes, one.offline_replicas)
}

fn leader(connection: &mut Raw, index: usize) -> i32 {
    partition(connection, 12, "orders", index).leader_id
}

fn elect(connection: &mut Raw, election_type: i8, index: i32) -> ErrorCode {
    let topics = vec![TopicPartitions { topic: "orders".into(), partitions: vec![index] }];
    let request = ElectLeadersRequest { election_type, topic_partitions: Some(topics), timeout_ms: 1000 };
    let answer = connection.ask(2, &request).expect("an answer");
    answer.replica_election_results[0].partition_result[0].error_code
}

/// The answers to a fetch and to a lookup of the end of a partition of `orders`: the codes, and the bytes of records.
fn read(connection: &mut Raw, index: i32) -> (ErrorCode, ErrorCode, usize) {
    let partition = FetchPartition {
        partition: index,
        current_leader_epoch: -1,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let topics =
        vec![FetchTopic { topic: "orders".into(), partitions: vec![partition], ..Default::default() }];
    let fetch = FetchRequest { replica_id: -1, session_epoch: -1, topics, ..Default::default() };
    let fetched = connection.ask(12, &fetch).expect("an answer").responses.remove(0).partitions.remove(0);
    let partition = ListOffsetsPartition { partition_index: index, timestamp: -1, current_leader_epoch: -1 };
    let topics = vec![ListOffsetsTopic { name: "orders".into(), partitions: vec![partition] }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    let listed = connection.ask(7, &request).expect("an answer").topics.remove(0).partitions.remove(0);
    (fetched.error_code, listed.error_code, fetched.records.as_ref().map_or(0, Chain::len))
}

/// Another node led it, which was no replica.
#[test]
fn a_partition_whose_only_replica_is_stopped_has_no_leader_until_that_starts() {
    let broker = three_nodes(1, None);
    let (cluster, one) = (broker.cluster(), batch(&[b"v"], &Seal::default()));
    let mut first = Raw::connect(broker.addresses()[0]);
    assert_eq!(first.produce("orders", -1, &one).error_code, ErrorCode::None);
    let mut second = Raw::connect(broker.addresses()[1]);
    let before = partition(&mut second, 12, "orders", 0).leader_epoch;
    assert!(cluster.take_down(1));
    let none = ErrorCode::LeaderNotAvailable;
    assert_eq!(shown(&mut second, 0), (none, -1, vec![1], vec![1], vec![1]));
    for (index, node) in [(1, 2), (2, 3)] {
        assert_eq!(shown(&mut second, index), (ErrorCode::None, node, vec![node], vec![node], Vec::new()));
    }
    // Version 0 has no nodes that are down.
    let oldest = partition(&mut second, 0, "orders", 0);
    assert_eq!((oldest.error_code, oldest.leader_id), (none, -1));
    assert_eq!((oldest.replica_nodes, oldest.isr_nodes), (Vec::new(), Vec::new()));
    let topics = vec![TopicRequest { name: "orders".into() }];
    let request = DescribeTopicPartitionsRequest { topics, ..Default::default() };
    let described = second.ask(0, &request).expect("an answer").topics.remove(0).partitions.remove(0);
    assert_eq!((described.error_code, described.leader_id), (none, -1));
    let nodes = [described.replica_nodes, described.isr_nodes, described.offline_replicas];
    assert_eq!(nodes, [[1], [1], [1]]);

    let moved = ErrorCode::NotLeaderOrFollower;
    assert_eq!(second.produce("orders", -1, &one).error_code, moved);
    assert_eq!(read(&mut second, 0), (moved, moved, 0));
    assert_eq!(elect(&mut second, PREFERRED, 0), ErrorCode::PreferredLeaderNotAvailable);
    assert_eq!(elect(&mut second, UNCLEAN, 0), ErrorCode::EligibleLeadersNotAvailable);
    // Neither a node that starts nor one that is added is a replica.
    assert!(cluster.take_down(3) && cluster.take_up(3));
    broker.add_node(4).expect("a new node");
    assert_eq!(leader(&mut second, 0), -1);

    assert!(cluster.take_up(1));
    broker.block_on(|cluster| async move { cluster.listeners_followed(1).await });
    assert_eq!(shown(&mut second, 0), (ErrorCode::None, 1, vec![1], vec![1], Vec::new()));
    assert_eq!(partition(&mut second, 12, "orders", 0).leader_epoch, before + 2, "none, and node 1 again");
    assert_eq!(elect(&mut second, UNCLEAN, 0), ErrorCode::ElectionNotNeeded);
    let mut first = Raw::connect(broker.addresses()[0]);
    assert_eq!(read(&mut first, 0), (ErrorCode::None, ErrorCode::None, one.len()));
}

#[test]
fn the_last_replica_in_sync_stays_one_and_the_first_replica_that_starts_leads() {
    let broker = three_nodes(2, None);
    let cluster = broker.cluster();
    let mut first = Raw::connect(broker.addresses()[0]);
    let (led, none) = (ErrorCode::None, ErrorCode::LeaderNotAvailable);
    assert_eq!(shown(&mut first, 1), (led, 2, vec![2, 3], vec![2, 3], Vec::new()));
    assert!(cluster.take_down(3));
    assert_eq!(shown(&mut first, 1), (led, 2, vec![2, 3], vec![2], vec![3]));
    assert!(cluster.take_down(2));
    assert_eq!(shown(&mut first, 1), (none, -1, vec![2, 3], vec![2], vec![2, 3]));
    // The records of the other one are there, too: the nodes share their logs.
    assert!(cluster.take_up(3));
    assert_eq!(shown(&mut first, 1), (led, 3, vec![2, 3], vec![3], vec![2]));
    assert_eq!(elect(&mut first, PREFERRED, 1), ErrorCode::PreferredLeaderNotAvailable);
    assert!(cluster.take_up(2));
    assert_eq!(shown(&mut first, 1), (led, 2, vec![2, 3], vec![2, 3], Vec::new()));
}

/// The second replica took the leadership from the third one, and the first one from it.
#[test]
fn a_node_that_starts_leads_only_the_partitions_whose_first_replica_it_is() {
    let broker = three_nodes(3, None);
    let cluster = broker.cluster();
    let mut third = Raw::connect(broker.addresses()[2]);
    assert!(cluster.take_down(1) && cluster.take_down(2));
    assert_eq!([0, 1].map(|index| leader(&mut third, index)), [3, 3]);
    assert!(cluster.take_up(2));
    assert_eq!([0, 1].map(|index| leader(&mut third, index)), [3, 2]);
    let epoch = partition(&mut third, 12, "orders", 0).leader_epoch;
    assert!(cluster.take_up(1));
    assert_eq!([0, 1, 2].map(|index| leader(&mut third, index)), [1, 2, 3]);
    assert_eq!(partition(&mut third, 12, "orders", 0).leader_epoch, epoch + 1);
}

/// The property had no effect.
#[test]
fn a_node_that_starts_waits_for_an_election_without_automatic_rebalances() {
    let broker = three_nodes(2, Some(("auto.leader.rebalance.enable", "false")));
    let cluster = broker.cluster();
    let mut third = Raw::connect(broker.addresses()[2]);
    assert!(cluster.take_down(1) && cluster.take_up(1));
    assert_eq!(shown(&mut third, 0), (ErrorCode::None, 2, vec![1, 2], vec![1, 2], Vec::new()));
    assert_eq!(elect(&mut third, PREFERRED, 0), ErrorCode::None);
    assert_eq!(leader(&mut third, 0), 1);
    assert_eq!(elect(&mut third, PREFERRED, 0), ErrorCode::ElectionNotNeeded);
    // A partition without a leader waits for no election.
    assert!(cluster.take_down(1) && cluster.take_down(2));
    assert_eq!(leader(&mut third, 0), -1);
    assert!(cluster.take_up(1));
    assert_eq!(leader(&mut third, 0), 1);
}

#[test]
fn a_node_that_a_test_has_made_the_leader_is_the_replica_that_stops() {
    let broker = three_nodes(1, None);
    let cluster = broker.cluster();
    let mut first = Raw::connect(broker.addresses()[0]);
    assert!(cluster.set_leader("orders", 1, 3) && cluster.take_down(3));
    assert_eq!(shown(&mut first, 1), (ErrorCode::LeaderNotAvailable, -1, vec![3], vec![3], vec![3]));
    assert_eq!(elect(&mut first, PREFERRED, 1), ErrorCode::PreferredLeaderNotAvailable);
    assert!(cluster.take_up(3));
    assert_eq!(leader(&mut first, 1), 3);
    // As ever, the node that had the partition at first leads it again when it starts.
    assert!(cluster.take_down(2) && cluster.take_up(2));
    assert_eq!(leader(&mut first, 1), 2);
}

#[test]
fn a_partition_without_a_leader_gets_one_with_other_replicas_or_without_the_node() {
    let broker = three_nodes(1, None);
    let cluster = broker.cluster();
    let mut first = Raw::connect(broker.addresses()[0]);
    assert!(cluster.take_down(2) && cluster.take_down(3));
    assert_eq!([1, 2].map(|index| leader(&mut first, index)), [-1, -1]);
    let partition = ReassignablePartition { partition_index: 1, replicas: Some(vec![2, 1]) };
    let request = AlterPartitionReassignmentsRequest {
        timeout_ms: 1000,
        allow_replication_factor_change: true,
        topics: vec![ReassignableTopic { name: "orders".into(), partitions: vec![partition] }],
    };
    let answer = first.ask(1, &request).expect("an answer");
    assert_eq!(answer.responses[0].partitions[0].error_code, ErrorCode::None);
    assert_eq!(shown(&mut first, 1), (ErrorCode::None, 1, vec![2, 1], vec![1], vec![2]));
    // A node that is removed never returns with its replica.
    assert!(cluster.decommission(3));
    assert_eq!(shown(&mut first, 2), (ErrorCode::None, 1, vec![1], vec![1], Vec::new()));
}

/// The creation of a topic takes a while. The node led the partition that was created before it stopped, until it started again.
#[test]
fn a_node_that_stops_during_the_creation_of_a_topic_leads_no_partition_of_it() {
    let disk = MemStorage::new();
    let cluster: Arc<OnceLock<Weak<Cluster>>> = Arc::default();
    let (seen, stopping, is_stopped) = (disk.clone(), cluster.clone(), AtomicBool::new(false));
    let now_ms = move || {
        // The first partition has its leader when the third one is created.
        if let Some(cluster) = stopping.get().and_then(Weak::upgrade)
            && seen.file_len("orders-2/partition.metadata").is_ok()
            && !is_stopped.swap(true, Ordering::Relaxed)
        {
            assert!(cluster.take_down(1));
        }
        1_000_000
    };
    let builder = Broker::builder().storage(Arc::new(disk)).nodes(3).clock(Clock::Custom(Arc::new(now_ms)));
    let broker = builder.spawn().expect("a broker");
    cluster.set(Arc::downgrade(&broker.cluster())).expect("it was empty");
    let mut third = Raw::connect(broker.addresses()[2]);
    let topic = CreatableTopic {
        name: "orders".into(),
        num_partitions: 3,
        replication_factor: 2,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 1000, ..Default::default() };
    let created = third.ask(7, &request).expect("an answer");
    assert_eq!(created.topics[0].error_code, ErrorCode::None);
    assert!(!broker.cluster().is_up(1), "it stopped during the creation");
    let led = ErrorCode::None;
    assert_eq!(shown(&mut third, 0), (led, 2, vec![1, 2], vec![2], vec![1]));
    assert_eq!(shown(&mut third, 2), (led, 3, vec![3, 1], vec![3], vec![1]));
}

/// The first node led it, which is no replica: the added node was not there when the partition was opened.
#[test]
fn a_partition_of_a_fork_is_led_by_its_replica_on_an_added_node() {
    let builder = Broker::builder().memory();
    let configure = |config: &mut BrokerConfig| {
        config.set("auto.leader.rebalance.enable", "false").expect("a property");
    };
    let broker = builder.configure(configure).spawn().expect("a broker");
    broker.add_node(2).expect("a new node");
    let assignment = CreatableReplicaAssignment { partition_index: 0, broker_ids: vec![2] };
    let topic = CreatableTopic {
        name: "orders".into(),
        num_partitions: -1,
        replication_factor: -1,
        assignments: vec![assignment],
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 1000, ..Default::default() };
    let created = Raw::connect(broker.addresses()[0]).ask(7, &request).expect("an answer");
    assert_eq!(created.topics[0].error_code, ErrorCode::None);
    let fork = broker.fork().expect("in memory");
    let mut first = Raw::connect(fork.addresses()[0]);
    assert_eq!(shown(&mut first, 0), (ErrorCode::None, 2, vec![2], vec![2], Vec::new()));
}

/// The error and the node of a coordinator.
fn coordinator(connection: &mut Raw, key_type: i8, key: &str) -> (ErrorCode, i32) {
    let version = if key_type == SHARE { 6 } else { 4 };
    let request =
        FindCoordinatorRequest { key_type, coordinator_keys: vec![key.into()], ..Default::default() };
    let found = connection.ask(version, &request).expect("an answer").coordinators.remove(0);
    (found.error_code, found.node_id)
}

const SHARE_KEY: &str = "billing:AAAAAAAAAAAAAAAAAAAAAg:0";

/// The topics of the coordinators had one replica, and all nodes took over for it.
#[test]
fn coordinators_move_to_other_replicas_of_their_topics() {
    let broker = three_nodes(1, None);
    let (cluster, addresses) = (broker.cluster(), broker.addresses().to_vec());
    for (key_type, key, topic) in [
        (GROUP, "billing", "__consumer_offsets"),
        (TRANSACTION, "till", "__transaction_state"),
        (SHARE, SHARE_KEY, "__share_group_state"),
    ] {
        let (code, node) = coordinator(&mut Raw::connect(addresses[0]), key_type, key);
        assert_eq!(code, ErrorCode::None, "{topic}");
        let other = node % 3 + 1;
        let mut connection = Raw::connect(addresses[other as usize - 1]);
        let mut replicas = partition(&mut connection, 12, topic, 0).replica_nodes;
        replicas.sort_unstable();
        assert_eq!(replicas, [1, 2, 3], "{topic}");
        assert!(cluster.take_down(node));
        let (code, moved) = coordinator(&mut connection, key_type, key);
        assert!(code == ErrorCode::None && moved != node && moved > 0, "{topic}: {code} {moved}");
        if key_type == GROUP {
            let mut moved = Raw::connect(addresses[moved as usize - 1]);
            let committed = moved.ask(8, &commit_request(key, 0)).expect("an answer");
            assert_eq!(committed.topics[0].partitions[0].error_code, ErrorCode::None);
        }
        assert!(cluster.take_up(node));
        broker.block_on(|cluster| async move { cluster.listeners_followed(node).await });
        assert_eq!(coordinator(&mut connection, key_type, key), (ErrorCode::None, node), "{topic}");
    }
}

#[test]
fn a_coordinator_without_another_replica_is_not_available() {
    let property = ("offsets.topic.replication.factor", "1");
    let broker = three_nodes(1, Some(property));
    let (_, node) = coordinator(&mut Raw::connect(broker.addresses()[0]), GROUP, "billing");
    let mut connection = Raw::connect(broker.addresses()[(node % 3) as usize]);
    assert!(broker.cluster().take_down(node));
    assert_eq!(coordinator(&mut connection, GROUP, "billing"), (ErrorCode::CoordinatorNotAvailable, -1));
    assert!(broker.cluster().take_up(node));
    assert_eq!(coordinator(&mut connection, GROUP, "billing"), (ErrorCode::None, node));
}

/// A coordinator that was moved to the node stayed there, and was not available any more.
#[test]
fn a_node_that_is_unregistered_is_no_coordinator() {
    let broker = three_nodes(1, None);
    let cluster = broker.cluster();
    let mut first = Raw::connect(broker.addresses()[0]);
    assert!(cluster.set_coordinator("billing", 2) && cluster.set_transaction_coordinator("till", 2));
    let keys = [(GROUP, "billing"), (TRANSACTION, "till")];
    for (kind, key) in keys {
        assert_eq!(coordinator(&mut first, kind, key), (ErrorCode::None, 2));
    }
    assert!(cluster.take_down(2));
    let unregistered = first.ask(0, &UnregisterBrokerRequest { broker_id: 2 }).expect("an answer");
    assert_eq!(unregistered.error_code, ErrorCode::None);
    for (kind, key) in keys {
        let (code, node) = coordinator(&mut first, kind, key);
        assert!(code == ErrorCode::None && [1, 3].contains(&node), "{key}: {code} {node}");
    }
}

/// The groups of such a directory would have no coordinator while a node is stopped.
#[test]
fn topics_of_coordinators_of_earlier_versions_have_replicas_after_a_start() {
    let disk = MemStorage::new();
    let start = |factor: i32| {
        let builder = Broker::builder().storage(Arc::new(disk.clone())).nodes(3);
        let builder = builder.configure(|config| config.offsets_topic_replication = factor);
        builder.spawn().expect("a broker")
    };
    for (factor, replicas) in [(1, vec![1]), (3, vec![1, 2, 3]), (2, vec![1, 2])] {
        let broker = start(factor);
        let mut connection = Raw::connect(broker.addresses()[0]);
        assert_eq!(coordinator(&mut connection, GROUP, "billing").0, ErrorCode::None);
        let first = partition(&mut connection, 12, "__consumer_offsets", 0);
        assert_eq!(first.replica_nodes, replicas, "{factor}");
        broker.stop();
    }
}
