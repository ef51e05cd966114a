//! ElectLeaders gives a partition back to its preferred leader, and a leader to a partition without one.

use ottla_broker::{Broker, BrokerThread};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_cluster::DescribeClusterRequest;
use ottla_protocol::messages::elect_leaders::{ElectLeadersRequest, TopicPartitions};

use crate::common;
use crate::common::Raw;

const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;
/// The leader of a partition that no node leads.
const NO_LEADER: i32 = -1;

fn three_nodes() -> BrokerThread {
    Broker::builder().memory().nodes(3).topic("orders", 3).spawn().expect("a broker")
}

/// Holds elections in partitions of `orders`, or in every partition. Returns the partitions with their error codes.
fn elect(
    connection: &mut Raw,
    election_type: i8,
    partitions: Option<&[i32]>,
) -> (ErrorCode, Vec<(i32, ErrorCode)>) {
    let topics = partitions
        .map(|partitions| vec![TopicPartitions { topic: "orders".into(), partitions: partitions.to_vec() }]);
    let request = ElectLeadersRequest { election_type, topic_partitions: topics, timeout_ms: 1000 };
    let answer = connection.ask(2, &request).expect("an answer");
    let results = answer.replica_election_results.iter().flat_map(|topic| &topic.partition_result);
    (answer.error_code, results.map(|result| (result.partition_id, result.error_code)).collect())
}

fn leader(connection: &mut Raw, partition: usize) -> i32 {
    let answer = connection.ask(12, &common::metadata_of("orders")).expect("an answer");
    answer.topics[0].partitions[partition].leader_id
}

#[test]
fn a_preferred_election_returns_leadership_to_the_first_replica() {
    let broker = three_nodes();
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert!(broker.cluster().set_leader("orders", 1, 3));
    let results = vec![
        (0, ErrorCode::ElectionNotNeeded),
        (1, ErrorCode::None),
        (9, ErrorCode::UnknownTopicOrPartition),
        (-1, ErrorCode::UnknownTopicOrPartition),
    ];
    assert_eq!(elect(&mut connection, PREFERRED, Some(&[0, 1, 9, -1])), (ErrorCode::None, results));
    assert_eq!(leader(&mut connection, 1), 2);
}

#[test]
fn a_preferred_leader_that_is_down_is_not_elected() {
    let broker = three_nodes();
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert!(broker.cluster().take_down(2));
    let before = leader(&mut connection, 1);
    let results = vec![(1, ErrorCode::PreferredLeaderNotAvailable)];
    assert_eq!(elect(&mut connection, PREFERRED, Some(&[1])), (ErrorCode::None, results));
    assert_eq!(leader(&mut connection, 1), before);
}

/// It was missing, although it is the one that can be unregistered (KIP-1073).
#[test]
fn a_node_that_is_down_is_described_as_fenced_to_those_who_ask() {
    let broker = three_nodes();
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert!(broker.cluster().take_down(2));
    for (include_fenced_brokers, expected) in
        [(false, vec![(1, false), (3, false)]), (true, vec![(1, false), (3, false), (2, true)])]
    {
        let request =
            DescribeClusterRequest { endpoint_type: 1, include_fenced_brokers, ..Default::default() };
        let described = connection.ask(2, &request).expect("an answer");
        let brokers: Vec<_> =
            described.brokers.iter().map(|broker| (broker.broker_id, broker.is_fenced)).collect();
        assert_eq!(brokers, expected);
    }
}

#[test]
fn an_election_of_all_partitions_reports_those_that_changed() {
    let broker = three_nodes();
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert!(broker.cluster().set_leader("orders", 2, 1));
    let results = vec![(2, ErrorCode::None)];
    assert_eq!(elect(&mut connection, PREFERRED, None), (ErrorCode::None, results));
    assert_eq!(elect(&mut connection, PREFERRED, None), (ErrorCode::None, Vec::new()));
}

#[test]
fn an_unclean_election_gives_a_leader_to_a_partition_without_one() {
    let broker = three_nodes();
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert!(broker.cluster().set_leader("orders", 0, NO_LEADER));
    let results = vec![(0, ErrorCode::None), (1, ErrorCode::ElectionNotNeeded)];
    assert_eq!(elect(&mut connection, UNCLEAN, Some(&[0, 1])), (ErrorCode::None, results));
    assert_eq!(leader(&mut connection, 0), 1);
}

#[test]
fn an_unknown_type_of_election_is_refused() {
    let broker = three_nodes();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let results = vec![(0, ErrorCode::InvalidRequest)];
    assert_eq!(elect(&mut connection, 2, Some(&[0])), (ErrorCode::InvalidRequest, results));
}
