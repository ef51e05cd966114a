//! The replicas that clients choose: AlterPartitionReassignments, and the assignments of CreateTopics and CreatePartitions.

use std::sync::Arc;

use ottla_broker::{Broker, BrokerThread};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use ottla_protocol::messages::create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsTopic,
};
use ottla_protocol::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest,
};
use ottla_protocol::messages::elect_leaders::{ElectLeadersRequest, TopicPartitions};
use ottla_protocol::messages::list_partition_reassignments::ListPartitionReassignmentsRequest;
use ottla_wire::Seal;

use crate::common::{Raw, batch, metadata_of};

fn start(disk: &MemStorage) -> (BrokerThread, Raw) {
    let builder = Broker::builder().storage(Arc::new(disk.clone())).nodes(3);
    let broker = builder.topic("orders", 2).spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

/// Leader, replicas and replicas in sync of each partition.
pub(crate) fn shown(connection: &mut Raw, topic: &str) -> Vec<(i32, Vec<i32>, Vec<i32>)> {
    let answer = connection.ask(13, &metadata_of(topic)).expect("an answer");
    let partitions = answer.topics[0].partitions.iter();
    partitions.map(|one| (one.leader_id, one.replica_nodes.clone(), one.isr_nodes.clone())).collect()
}

/// Changes the replicas of partitions; `None` cancels.
pub(crate) fn reassign(
    connection: &mut Raw,
    topic: &str,
    changes: &[(i32, Option<&[i32]>)],
    count: bool,
) -> Vec<ErrorCode> {
    let partitions = changes.iter().map(|(partition_index, replicas)| ReassignablePartition {
        partition_index: *partition_index,
        replicas: replicas.map(<[i32]>::to_vec),
    });
    let request = AlterPartitionReassignmentsRequest {
        timeout_ms: 1000,
        allow_replication_factor_change: count,
        topics: vec![ReassignableTopic { name: topic.into(), partitions: partitions.collect() }],
    };
    let answer = connection.ask(1, &request).expect("an answer");
    assert_eq!((answer.error_code, answer.allow_replication_factor_change), (ErrorCode::None, count));
    answer.responses[0].partitions.iter().map(|one| one.error_code).collect()
}

#[test]
fn new_replicas_are_shown_at_once_and_after_a_restart() {
    let disk = MemStorage::new();
    let (broker, mut connection) = start(&disk);
    let produced = connection.produce("orders", -1, &batch(&[b"one"], &Seal::default()));
    assert_eq!(produced.error_code, ErrorCode::None);
    let changes: [(i32, Option<&[i32]>); 2] = [(0, Some(&[3, 2])), (1, Some(&[1, 2, 3]))];
    assert_eq!(reassign(&mut connection, "orders", &changes, true), [ErrorCode::None; 2]);
    // The leader of partition 0 is no replica any more; that of partition 1 stays until an election.
    let all = [(3, vec![3, 2], vec![3, 2]), (2, vec![1, 2, 3], vec![1, 2, 3])];
    assert_eq!(shown(&mut connection, "orders"), all);
    let listed = connection.ask(0, &ListPartitionReassignmentsRequest::default()).expect("an answer");
    assert_eq!((listed.error_code, listed.topics.len()), (ErrorCode::None, 0));
    // The data is where it was: another leader of the same log.
    let mut third = Raw::connect(broker.addresses()[2]);
    let produced = third.produce("orders", -1, &batch(&[b"two"], &Seal::default()));
    assert_eq!((produced.error_code, produced.base_offset), (ErrorCode::None, 1));
    let refused = connection.produce("orders", -1, &batch(&[b"no"], &Seal::default()));
    assert_eq!(refused.error_code, ErrorCode::NotLeaderOrFollower);

    let topic_partitions = Some(vec![TopicPartitions { topic: "orders".into(), partitions: vec![0, 1] }]);
    let elect = ElectLeadersRequest { topic_partitions, timeout_ms: 1000, ..Default::default() };
    let elected = connection.ask(2, &elect).expect("an answer");
    let codes = elected.replica_election_results[0].partition_result.iter().map(|one| one.error_code);
    assert_eq!(codes.collect::<Vec<_>>(), [ErrorCode::ElectionNotNeeded, ErrorCode::None]);
    let all = [(3, vec![3, 2], vec![3, 2]), (1, vec![1, 2, 3], vec![1, 2, 3])];
    assert_eq!(shown(&mut connection, "orders"), all);

    broker.stop();
    let (_broker, mut connection) = start(&disk);
    assert_eq!(shown(&mut connection, "orders"), all, "after a restart");
}

#[test]
fn leaders_of_chosen_replicas_fail_over_and_come_back() {
    let (broker, mut connection) = start(&MemStorage::new());
    assert_eq!(reassign(&mut connection, "orders", &[(1, Some(&[3, 2]))], true), [ErrorCode::None]);
    assert!(broker.cluster().take_down(3));
    assert_eq!(shown(&mut connection, "orders")[1], (2, vec![3, 2], vec![2]));
    assert!(broker.cluster().take_up(3));
    assert_eq!(shown(&mut connection, "orders")[1], (3, vec![3, 2], vec![3, 2]));
}

#[test]
fn changes_that_kafka_refuses_are_refused() {
    let (broker, mut connection) = start(&MemStorage::new());
    let before = shown(&mut connection, "orders");
    let changes: [(i32, Option<&[i32]>); 7] = [
        (0, None),
        (0, Some(&[])),
        (0, Some(&[9])),
        (0, Some(&[1, 1])),
        (0, Some(&[-1])),
        (9, Some(&[1])),
        (-1, None),
    ];
    let expected = [
        ErrorCode::NoReassignmentInProgress,
        ErrorCode::InvalidReplicaAssignment,
        ErrorCode::InvalidReplicaAssignment,
        ErrorCode::InvalidReplicaAssignment,
        ErrorCode::InvalidReplicaAssignment,
        ErrorCode::UnknownTopicOrPartition,
        ErrorCode::UnknownTopicOrPartition,
    ];
    assert_eq!(reassign(&mut connection, "orders", &changes, true), expected);
    let missing = reassign(&mut connection, "missing", &[(0, Some(&[1]))], true);
    assert_eq!(missing, [ErrorCode::UnknownTopicOrPartition]);
    let count = reassign(&mut connection, "orders", &[(0, Some(&[1, 2])), (1, Some(&[3]))], false);
    assert_eq!(count, [ErrorCode::InvalidReplicationFactor, ErrorCode::None]);
    assert_eq!(shown(&mut connection, "orders")[0], before[0]);
    // Without a node that is up, no node could lead the partition.
    assert!(broker.cluster().take_down(2));
    let down = reassign(&mut connection, "orders", &[(0, Some(&[2])), (0, Some(&[2, 3]))], true);
    assert_eq!(down, [ErrorCode::InvalidReplicaAssignment, ErrorCode::None]);
    assert_eq!(shown(&mut connection, "orders")[0], (3, vec![2, 3], vec![3]));
}

#[test]
fn topics_and_partitions_are_created_with_chosen_replicas() {
    let disk = MemStorage::new();
    let (broker, mut connection) = start(&disk);
    let assigned = |(partition_index, nodes): (i32, &[i32])| CreatableReplicaAssignment {
        partition_index,
        broker_ids: nodes.to_vec(),
    };
    let topic = CreatableTopic {
        name: "chosen".into(),
        num_partitions: -1,
        replication_factor: -1,
        assignments: [(0, &[3, 1][..]), (1, &[3, 2])].map(assigned).into(),
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 1000, ..Default::default() };
    assert_eq!(connection.ask(7, &request).expect("an answer").topics[0].error_code, ErrorCode::None);
    let grow = |connection: &mut Raw, count, chosen: &[&[i32]]| {
        let assignments =
            chosen.iter().map(|nodes| CreatePartitionsAssignment { broker_ids: nodes.to_vec() });
        let topic =
            CreatePartitionsTopic { name: "chosen".into(), count, assignments: Some(assignments.collect()) };
        let request = CreatePartitionsRequest { topics: vec![topic], timeout_ms: 1000, validate_only: false };
        connection.ask(3, &request).expect("an answer").results[0].error_code
    };
    for bad in [&[&[9, 1][..]][..], &[&[1, 1]], &[&[1]], &[&[1, 2], &[2, 3]], &[]] {
        assert_eq!(grow(&mut connection, 3, bad), ErrorCode::InvalidReplicaAssignment, "{bad:?}");
    }
    assert_eq!(grow(&mut connection, 3, &[&[2, 3]]), ErrorCode::None);
    let all = [(3, vec![3, 1], vec![3, 1]), (3, vec![3, 2], vec![3, 2]), (2, vec![2, 3], vec![2, 3])];
    assert_eq!(shown(&mut connection, "chosen"), all);
    broker.stop();
    let (_broker, mut connection) = start(&disk);
    assert_eq!(shown(&mut connection, "chosen"), all, "after a restart");
}

/// Another node led, which was no replica. Kafka refuses it: no replica can lead.
#[test]
fn partitions_are_not_created_on_nodes_that_are_all_down() {
    let (broker, mut connection) = start(&MemStorage::new());
    assert!(broker.cluster().take_down(2) && broker.cluster().take_down(3));
    let mut create = |name: &str, nodes: &[i32]| {
        let assignment = CreatableReplicaAssignment { partition_index: 0, broker_ids: nodes.to_vec() };
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions: -1,
            replication_factor: -1,
            assignments: vec![assignment],
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 1000, ..Default::default() };
        connection.ask(7, &request).expect("an answer").topics[0].error_code
    };
    assert_eq!(create("down", &[2, 3]), ErrorCode::InvalidReplicaAssignment);
    assert_eq!(create("up", &[2, 1]), ErrorCode::None);
    let mut grow = |nodes: &[i32]| {
        let assignments = Some(vec![CreatePartitionsAssignment { broker_ids: nodes.to_vec() }]);
        let topic = CreatePartitionsTopic { name: "up".into(), count: 2, assignments };
        let request = CreatePartitionsRequest { topics: vec![topic], timeout_ms: 1000, validate_only: false };
        connection.ask(3, &request).expect("an answer").results[0].error_code
    };
    assert_eq!(grow(&[3, 2]), ErrorCode::InvalidReplicaAssignment);
    assert_eq!(grow(&[3, 1]), ErrorCode::None);
    let all = [(1, vec![2, 1], vec![1]), (1, vec![3, 1], vec![1])];
    assert_eq!(shown(&mut connection, "up"), all);
}
