//! Reassignments in progress: a replication throttle makes them last, so that they can be watched, cancelled and changed.

use std::sync::Arc;
use std::time::Duration;

use ottla_broker::{Broker, BrokerConfig, BrokerThread};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::delete_topics::DeleteTopicsRequest;
use ottla_protocol::messages::elect_leaders::{ElectLeadersRequest, TopicPartitions};
use ottla_protocol::messages::list_partition_reassignments::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsTopics,
};
use ottla_wire::Seal;

use crate::common::{Raw, batch};
use crate::configs::{BROKER, DELETE, SET, altered};
use crate::reassignments::{reassign, shown};

const TOPIC: i8 = 2;
const LEADER_REPLICAS: &str = "leader.replication.throttled.replicas";
const FOLLOWER_REPLICAS: &str = "follower.replication.throttled.replicas";
const LEADER_RATE: &str = "leader.replication.throttled.rate";
const FOLLOWER_RATE: &str = "follower.replication.throttled.rate";
const DEADLINE: Duration = Duration::from_secs(30);

const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;

/// A partition's number, its replicas, and those that are added and removed.
type Listed = (i32, Vec<i32>, Vec<i32>, Vec<i32>);

/// Five nodes with a partition on the first three, which has a record of 2,000 bytes. At one byte per second no copy ends within a test.
fn start(disk: &MemStorage) -> (BrokerThread, Raw) {
    let builder = Broker::builder().storage(Arc::new(disk.clone())).nodes(5).topic("orders", 1);
    let configure = |config: &mut BrokerConfig| {
        config.set("auto.leader.rebalance.enable", "false").expect("a property");
    };
    let broker = builder.configure(configure).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(change(&mut connection, &[1, 2, 3]), ErrorCode::None);
    let produced = connection.produce("orders", -1, &batch(&[&[7; 2000][..]], &Seal::default()));
    assert_eq!(produced.error_code, ErrorCode::None);
    (broker, connection)
}

fn change(connection: &mut Raw, replicas: &[i32]) -> ErrorCode {
    reassign(connection, "orders", &[(0, Some(replicas))], true)[0]
}

fn cancel(connection: &mut Raw) -> ErrorCode {
    reassign(connection, "orders", &[(0, None)], true)[0]
}

/// Throttles the copies of these replicas, as `kafka-reassign-partitions.sh --throttle` does.
fn throttle(connection: &mut Raw, replicas: &str, rate: &str) {
    altered(connection, TOPIC, "orders", &[(SET, FOLLOWER_REPLICAS, replicas)]);
    for node in ["1", "2", "3", "4", "5"] {
        altered(connection, BROKER, node, &[(SET, FOLLOWER_RATE, rate)]);
    }
}

fn listed(connection: &mut Raw, names: Option<&[(&str, &[i32])]>) -> Vec<Listed> {
    let topic = |(name, indexes): &(&str, &[i32])| ListPartitionReassignmentsTopics {
        name: (*name).to_owned(),
        partition_indexes: indexes.to_vec(),
    };
    let topics = names.map(|names| names.iter().map(topic).collect());
    let request = ListPartitionReassignmentsRequest { timeout_ms: 1000, topics };
    let answer = connection.ask(0, &request).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::None);
    let partitions = answer.topics.into_iter().flat_map(|topic| topic.partitions);
    partitions
        .map(|one| (one.partition_index, one.replicas, one.adding_replicas, one.removing_replicas))
        .collect()
}

fn one(connection: &mut Raw) -> (i32, Vec<i32>, Vec<i32>) {
    shown(connection, "orders").remove(0)
}

fn elect(connection: &mut Raw, election_type: i8) -> ErrorCode {
    let topics = vec![TopicPartitions { topic: "orders".into(), partitions: vec![0] }];
    let request = ElectLeadersRequest { election_type, topic_partitions: Some(topics), timeout_ms: 1000 };
    let answer = connection.ask(2, &request).expect("an answer");
    answer.replica_election_results[0].partition_result[0].error_code
}

#[test]
fn a_throttled_reassignment_is_listed_until_it_is_cancelled() {
    let (_broker, mut connection) = start(&MemStorage::new());
    throttle(&mut connection, "0:4", "1");
    assert_eq!(change(&mut connection, &[1, 4, 2]), ErrorCode::None);
    let ongoing = vec![(0, vec![1, 4, 2, 3], vec![4], vec![3])];
    assert_eq!(listed(&mut connection, None), ongoing);
    assert_eq!(listed(&mut connection, Some(&[("orders", &[0, 7][..]), ("missing", &[0][..])])), ongoing);
    assert!(listed(&mut connection, Some(&[("orders", &[1][..])])).is_empty());
    assert_eq!(one(&mut connection), (1, vec![1, 4, 2, 3], vec![1, 2, 3]));
    // The count is that of the end.
    let count = reassign(&mut connection, "orders", &[(0, Some(&[1, 5, 2, 3]))], false);
    assert_eq!(count, [ErrorCode::InvalidReplicationFactor]);

    assert_eq!(cancel(&mut connection), ErrorCode::None);
    assert!(listed(&mut connection, None).is_empty());
    assert_eq!(one(&mut connection), (1, vec![1, 2, 3], vec![1, 2, 3]));
    assert_eq!(cancel(&mut connection), ErrorCode::NoReassignmentInProgress);
}

/// The order after a cancellation is Kafka's: that of the cancelled reassignment.
#[test]
fn other_replicas_replace_those_that_are_being_added() {
    let (_broker, mut connection) = start(&MemStorage::new());
    throttle(&mut connection, "*", "1");
    assert_eq!(change(&mut connection, &[4, 2, 1]), ErrorCode::None);
    assert_eq!(listed(&mut connection, None), [(0, vec![4, 2, 1, 3], vec![4], vec![3])]);
    assert_eq!(change(&mut connection, &[5, 3, 2]), ErrorCode::None);
    assert_eq!(listed(&mut connection, None), [(0, vec![5, 3, 2, 1], vec![5], vec![1])]);
    assert_eq!(one(&mut connection), (1, vec![5, 3, 2, 1], vec![3, 2, 1]));
    assert_eq!(cancel(&mut connection), ErrorCode::None);
    assert_eq!(one(&mut connection), (1, vec![3, 2, 1], vec![3, 2, 1]));
    // Without an added replica nothing lasts.
    assert_eq!(change(&mut connection, &[4, 1]), ErrorCode::None);
    assert_eq!(change(&mut connection, &[2, 1]), ErrorCode::None);
    assert_eq!((listed(&mut connection, None), one(&mut connection)), (vec![], (1, vec![2, 1], vec![2, 1])));
}

#[test]
fn only_throttled_replicas_are_out_of_sync() {
    let (_broker, mut connection) = start(&MemStorage::new());
    throttle(&mut connection, "0:5,1:4", "1");
    assert_eq!(change(&mut connection, &[1, 4, 5]), ErrorCode::None);
    assert_eq!(listed(&mut connection, None), [(0, vec![1, 4, 5, 2, 3], vec![4, 5], vec![2, 3])]);
    assert_eq!(one(&mut connection), (1, vec![1, 4, 5, 2, 3], vec![1, 4, 2, 3]));
    assert_eq!(cancel(&mut connection), ErrorCode::None);
    assert_eq!(one(&mut connection), (1, vec![1, 2, 3], vec![1, 2, 3]));
}

#[test]
fn a_throttle_of_the_leader_makes_a_reassignment_last_too() {
    let (_broker, mut connection) = start(&MemStorage::new());
    altered(&mut connection, BROKER, "", &[(SET, LEADER_RATE, "1")]);
    for (list, lasts) in [("0:2", false), ("0:1", true)] {
        assert_eq!(change(&mut connection, &[1, 2, 3]), ErrorCode::None);
        altered(&mut connection, TOPIC, "orders", &[(SET, LEADER_REPLICAS, list)]);
        assert_eq!(change(&mut connection, &[1, 2, 4]), ErrorCode::None);
        assert_eq!(!listed(&mut connection, None).is_empty(), lasts, "{list}");
    }
    altered(&mut connection, BROKER, "", &[(DELETE, LEADER_RATE, "")]);
    assert!(listed(&mut connection, None).is_empty());
}

/// A leader that is removed leads until the end.
#[test]
fn a_raised_or_removed_throttle_completes_a_reassignment() {
    let (_broker, mut connection) = start(&MemStorage::new());
    throttle(&mut connection, "*", "1");
    assert_eq!(change(&mut connection, &[4, 5]), ErrorCode::None);
    assert_eq!(one(&mut connection), (1, vec![4, 5, 1, 2, 3], vec![1, 2, 3]));
    altered(&mut connection, TOPIC, "orders", &[(DELETE, FOLLOWER_REPLICAS, "")]);
    assert_eq!((listed(&mut connection, None), one(&mut connection)), (vec![], (4, vec![4, 5], vec![4, 5])));

    throttle(&mut connection, "*", "0");
    assert_eq!(change(&mut connection, &[1]), ErrorCode::None);
    // It ends when the time of the copy is over: that of 2,000 bytes, and some for the batch.
    altered(&mut connection, BROKER, "1", &[(SET, FOLLOWER_RATE, "20000")]);
    let deadline = std::time::Instant::now() + DEADLINE;
    while !listed(&mut connection, None).is_empty() {
        assert!(std::time::Instant::now() < deadline, "{:?}", one(&mut connection));
        std::thread::yield_now();
    }
    assert_eq!(one(&mut connection), (1, vec![1], vec![1]));
}

#[test]
fn a_replica_that_has_not_caught_up_leads_after_an_unclean_election_only() {
    let (broker, mut connection) = start(&MemStorage::new());
    let mut fifth = Raw::connect(broker.addresses()[4]);
    throttle(&mut connection, "*", "1");
    assert_eq!(change(&mut connection, &[4, 5]), ErrorCode::None);
    assert_eq!(elect(&mut connection, PREFERRED), ErrorCode::PreferredLeaderNotAvailable);
    assert!(broker.cluster().take_down(1));
    assert_eq!(one(&mut fifth), (2, vec![4, 5, 1, 2, 3], vec![2, 3]));
    assert!(broker.cluster().take_down(2) && broker.cluster().take_down(3));
    let (leader, replicas, _) = one(&mut fifth);
    assert_eq!((leader, replicas), (-1, vec![4, 5, 1, 2, 3]));
    // None of the original replicas could lead.
    assert_eq!(cancel(&mut fifth), ErrorCode::InvalidReplicaAssignment);
    assert_eq!(elect(&mut fifth, UNCLEAN), ErrorCode::None);
    assert_eq!(one(&mut fifth), (4, vec![4, 5, 1, 2, 3], vec![4]));
    assert!(broker.cluster().take_up(3));
    assert_eq!(cancel(&mut fifth), ErrorCode::None);
    assert_eq!(one(&mut fifth), (3, vec![1, 2, 3], vec![3]));
}

#[test]
fn a_copy_to_a_node_that_is_down_waits_for_it() {
    let (broker, mut connection) = start(&MemStorage::new());
    throttle(&mut connection, "*", "1");
    assert_eq!(change(&mut connection, &[1, 4]), ErrorCode::None);
    assert!(broker.cluster().take_down(4));
    altered(&mut connection, BROKER, "4", &[(SET, FOLLOWER_RATE, "9223372036854775807")]);
    assert_eq!(listed(&mut connection, None).len(), 1);
    assert!(broker.cluster().take_up(4));
    let deadline = std::time::Instant::now() + DEADLINE;
    while !listed(&mut connection, None).is_empty() {
        assert!(std::time::Instant::now() < deadline, "{:?}", one(&mut connection));
        std::thread::yield_now();
    }
    assert_eq!(one(&mut connection), (1, vec![1, 4], vec![1, 4]));
}

#[test]
fn the_deletion_of_a_topic_and_a_restart_end_its_reassignments() {
    let disk = MemStorage::new();
    let (broker, mut connection) = start(&disk);
    throttle(&mut connection, "*", "1");
    assert_eq!(change(&mut connection, &[1, 4]), ErrorCode::None);
    assert_eq!(listed(&mut connection, None).len(), 1);
    broker.stop();
    let builder = Broker::builder().storage(Arc::new(disk.clone())).nodes(5);
    let broker = builder.spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!((listed(&mut connection, None), one(&mut connection)), (vec![], (1, vec![1, 4], vec![1, 4])));

    assert_eq!(change(&mut connection, &[1, 5]), ErrorCode::None);
    assert_eq!(listed(&mut connection, None).len(), 1);
    let names = vec!["orders".to_owned()];
    let delete = DeleteTopicsRequest { topic_names: names, timeout_ms: 1000, ..Default::default() };
    let deleted = connection.ask(5, &delete).expect("an answer");
    assert_eq!(deleted.responses[0].error_code, ErrorCode::None);
    assert!(listed(&mut connection, None).is_empty());
}
