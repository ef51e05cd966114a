//! The racks of the nodes, `broker.rack`, and the replicas that consumers read from, `replica.selector.class`.

use ottla_broker::{Broker, BrokerBuilder, BrokerThread};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest,
};
use ottla_protocol::messages::describe_cluster::DescribeClusterRequest;
use ottla_protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_wire::{Chain, Seal};

use crate::common::{Raw, batch, metadata_of, produce_request};

const BROKER: i8 = 4;
const STATIC: i8 = 4;
const DEFAULT: i8 = 5;
const RACK_AWARE: &str = "org.apache.kafka.common.replica.RackAwareReplicaSelector";

fn start(nodes: i32, racks: &str) -> (BrokerThread, Raw) {
    let builder = Broker::builder().memory().nodes(nodes).topic("orders", 1);
    let broker = set(builder, "broker.rack", racks).spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

fn set(builder: BrokerBuilder, name: &str, value: &str) -> BrokerBuilder {
    builder.configure(|config| config.set(name, value).expect("a property"))
}

/// The racks in Metadata; those in DescribeCluster are the same.
fn racks(connection: &mut Raw) -> Vec<(i32, Option<String>)> {
    let answer = connection.ask(12, &metadata_of("orders")).expect("an answer");
    let shown = answer.brokers.iter().map(|broker| (broker.node_id, broker.rack.clone()));
    let shown: Vec<(i32, Option<String>)> = shown.collect();
    let request = DescribeClusterRequest { endpoint_type: 1, ..Default::default() };
    let answer = connection.ask(2, &request).expect("an answer");
    let described = answer.brokers.iter().map(|broker| (broker.broker_id, broker.rack.clone()));
    assert_eq!(described.collect::<Vec<_>>(), shown);
    shown
}

/// The value of `broker.rack` in DescribeConfigs, and its source.
fn described(connection: &mut Raw, node: i32) -> (Option<String>, i8) {
    let resource = DescribeConfigsResource {
        resource_type: BROKER,
        resource_name: node.to_string(),
        configuration_keys: Some(vec!["broker.rack".into()]),
    };
    let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
    let mut result = connection.ask(4, &request).expect("an answer").results.remove(0);
    assert_eq!(result.error_code, ErrorCode::None);
    let config = result.configs.remove(0);
    assert!(config.read_only);
    (config.value, config.config_source)
}

/// The property had no effect.
#[test]
fn each_node_has_its_rack_of_the_list() {
    let (_broker, mut connection) = start(3, "east,, west");
    assert_eq!(
        racks(&mut connection),
        [(1, Some("east".to_owned())), (2, None), (3, Some("west".to_owned()))]
    );
    assert_eq!(described(&mut connection, 1), (Some("east".to_owned()), STATIC));
    assert_eq!(described(&mut connection, 2), (None, DEFAULT));
    assert_eq!(described(&mut connection, 3), (Some("west".to_owned()), STATIC));
}

#[test]
fn a_single_rack_is_that_of_all_nodes() {
    let (broker, mut connection) = start(2, "east");
    assert_eq!(broker.add_node(9), Ok(()));
    assert_eq!(racks(&mut connection), [1, 2, 9].map(|id| (id, Some("east".to_owned()))));
    let (_broker, mut connection) = start(2, "");
    assert_eq!(racks(&mut connection), [(1, None), (2, None)]);
}

#[test]
fn the_racks_of_the_builder_follow_node_id() {
    let builder = Broker::builder().memory().nodes(2).node_id(0).racks(["east", "west"]);
    let broker = builder.topic("orders", 1).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(racks(&mut connection), [(0, Some("east".to_owned())), (1, Some("west".to_owned()))]);
    let fork = broker.fork().expect("a fork");
    assert_eq!(
        racks(&mut Raw::connect(fork.addresses()[0])),
        [(0, Some("east".to_owned())), (1, Some("west".to_owned()))],
        "a fork"
    );
}

#[test]
fn a_list_that_is_not_of_all_nodes_is_refused() {
    for (nodes, list) in [(1, "a,b"), (3, "a,b"), (2, "a,b,c")] {
        let builder = Broker::builder().memory().nodes(nodes);
        let Err(error) = set(builder, "broker.rack", list).spawn() else { panic!("it has started: {list}") };
        let reason = error.to_string();
        let (racks, of_nodes) = (list.split(',').count(), format!("for {nodes} node"));
        assert!(reason.contains(&format!("broker.rack=`{list}`: {racks} racks")), "{reason}");
        assert!(reason.contains(&of_nodes), "{reason}");
    }
}

#[test]
fn a_rack_of_a_test_takes_the_place_of_the_configured_one() {
    let (broker, mut connection) = start(2, "east,west");
    let cluster = broker.cluster();
    assert!(cluster.set_rack(1, Some("north")) && cluster.set_rack(2, None));
    assert_eq!(racks(&mut connection), [(1, Some("north".to_owned())), (2, None)]);
    assert!(cluster.decommission(2));
    assert_eq!(broker.add_node(2), Ok(()));
    assert_eq!(racks(&mut connection), [(1, Some("north".to_owned())), (2, Some("west".to_owned()))]);
    assert!(!cluster.set_rack(7, Some("south")));
}

/// The call reported that there is no such node, and a node that was added later had the rack.
#[test]
fn a_rack_of_an_unknown_node_is_not_kept() {
    let (broker, mut connection) = start(2, "east,west");
    let cluster = broker.cluster();
    assert!(cluster.decommission(2));
    assert!(!cluster.set_rack(2, Some("north")));
    assert_eq!(broker.add_node(2), Ok(()));
    assert_eq!(racks(&mut connection), [(1, Some("east".to_owned())), (2, Some("west".to_owned()))]);
}

/// Answers that name the leader (KIP-951) had no rack.
#[test]
fn the_endpoint_of_a_leader_has_its_rack() {
    let (broker, mut leader) = start(2, "east,west");
    let topic_id = leader.ask(12, &metadata_of("orders")).expect("an answer").topics[0].topic_id;
    let mut other = Raw::connect(broker.addresses()[1]);
    let produce = produce_request("orders", -1, &batch(&[b"v"], &Seal::default()));
    let answer = other.ask(12, &produce).expect("an answer");
    let endpoints: Vec<_> =
        answer.node_endpoints.into_iter().map(|endpoint| (endpoint.node_id, endpoint.rack)).collect();
    assert_eq!(endpoints, [(1, Some("east".to_owned()))], "Produce");
    let partition = FetchPartition { current_leader_epoch: -1, partition_max_bytes: 1, ..Default::default() };
    let topics = vec![FetchTopic { topic_id, partitions: vec![partition], ..Default::default() }];
    let fetch = FetchRequest { session_epoch: -1, topics, ..Default::default() };
    let answer = other.ask(16, &fetch).expect("an answer");
    let endpoints: Vec<_> =
        answer.node_endpoints.into_iter().map(|endpoint| (endpoint.node_id, endpoint.rack)).collect();
    assert_eq!(endpoints, [(1, Some("east".to_owned()))], "Fetch");
}

/// Four nodes with a topic of one record on the first three, which node 1 leads.
fn four_nodes(selector: &str) -> (BrokerThread, [Raw; 4], usize) {
    let builder = set(Broker::builder().memory().nodes(4), "broker.rack", "a,b,b,c");
    let broker = set(builder, "replica.selector.class", selector).spawn().expect("a broker");
    let mut nodes = broker.addresses().iter().map(|address| Raw::connect(*address));
    let mut nodes: [Raw; 4] = std::array::from_fn(|_| nodes.next().expect("four nodes"));
    let assignment = CreatableReplicaAssignment { partition_index: 0, broker_ids: vec![1, 2, 3] };
    let topic = CreatableTopic {
        name: "orders".into(),
        num_partitions: -1,
        replication_factor: -1,
        assignments: vec![assignment],
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 1000, ..Default::default() };
    let created = nodes[0].ask(7, &request).expect("an answer");
    assert_eq!(created.topics[0].error_code, ErrorCode::None);
    let batch = batch(&[b"v"], &Seal::default());
    assert_eq!(nodes[0].produce("orders", -1, &batch).error_code, ErrorCode::None);
    (broker, nodes, batch.len())
}

/// A fetch of `orders` partition 0 that waits for a record for twice the patience of a test. Returns the error, the number of bytes,
/// the preferred replica and the high watermark.
fn fetched(
    connection: &mut Raw,
    (version, replica_id): (i16, i32),
    rack: &str,
    offset: i64,
) -> (ErrorCode, usize, i32, i64) {
    let partition = FetchPartition {
        current_leader_epoch: -1,
        fetch_offset: offset,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let topics =
        vec![FetchTopic { topic: "orders".into(), partitions: vec![partition], ..Default::default() }];
    let (max_wait_ms, rack_id) = (60_000, rack.to_owned());
    let fetch = FetchRequest { replica_id, max_wait_ms, min_bytes: 1, topics, rack_id, ..Default::default() };
    let answer = connection.ask(version, &fetch).expect("an answer");
    let partition = &answer.responses[0].partitions[0];
    let bytes = partition.records.as_ref().map_or(0, Chain::len);
    (partition.error_code, bytes, partition.preferred_read_replica, partition.high_watermark)
}

/// The property had no effect: consumers read from the leader, unless a test had set a follower.
#[test]
fn a_leader_redirects_consumers_to_the_replica_in_their_rack() {
    const CONSUMER: (i16, i32) = (12, -1);
    let (broker, [mut leader, mut second, mut third, _fourth], bytes) = four_nodes(RACK_AWARE);
    let read = (ErrorCode::None, bytes, -1, 1);
    let sent_to = |node| (ErrorCode::None, 0, node, 1);
    assert_eq!(fetched(&mut leader, CONSUMER, "b", 0), sent_to(3));
    assert_eq!(fetched(&mut leader, (11, -1), "b", 0), sent_to(3));
    // At the end of the log, too, and at once.
    assert_eq!(fetched(&mut leader, CONSUMER, "b", 1), sent_to(3));
    // The leader is in the rack, no replica is, there is no such rack, there is no rack.
    for rack in ["a", "c", "d", "B", ""] {
        assert_eq!(fetched(&mut leader, CONSUMER, rack, 0), read, "{rack}");
    }
    // A fetch of a follower, and one of a version without racks.
    for other in [(12, 2), (10, -1)] {
        assert_eq!(fetched(&mut leader, other, "b", 0), read, "{other:?}");
    }
    let (code, _, preferred, _) = fetched(&mut leader, CONSUMER, "b", 2);
    assert_eq!((code, preferred), (ErrorCode::OffsetOutOfRange, -1));
    // Only the leader redirects.
    for rack in ["a", "b"] {
        assert_eq!(fetched(&mut second, CONSUMER, rack, 0), read, "{rack}");
        assert_eq!(fetched(&mut third, CONSUMER, rack, 0), read, "{rack}");
    }

    assert!(broker.cluster().set_leader("orders", 0, 2));
    assert_eq!(fetched(&mut second, CONSUMER, "b", 0), read, "the leader is in the rack");
    assert_eq!(fetched(&mut second, CONSUMER, "a", 0), sent_to(1));
    assert_eq!(fetched(&mut leader, CONSUMER, "a", 0), read);
}

#[test]
fn a_leader_redirects_consumers_to_replicas_in_sync_that_metadata_lists() {
    const CONSUMER: (i16, i32) = (12, -1);
    let (broker, [mut leader, ..], bytes) = four_nodes(RACK_AWARE);
    let cluster = broker.cluster();
    let sent_to = |node| (ErrorCode::None, 0, node, 1);
    assert!(cluster.set_hidden(3, true));
    assert_eq!(fetched(&mut leader, CONSUMER, "b", 0), sent_to(2));
    assert!(cluster.set_hidden(3, false));
    assert!(cluster.take_down(3));
    assert_eq!(fetched(&mut leader, CONSUMER, "b", 0), sent_to(2));
    assert!(cluster.take_down(2));
    assert_eq!(fetched(&mut leader, CONSUMER, "b", 0), (ErrorCode::None, bytes, -1, 1));
    assert!(cluster.take_up(2) && cluster.take_up(3));
    assert_eq!(fetched(&mut leader, CONSUMER, "b", 0), sent_to(3));
    // A follower that a test has set comes before the racks.
    assert!(cluster.set_follower("orders", 0, Some(4)));
    assert_eq!(fetched(&mut leader, CONSUMER, "b", 0), sent_to(4));
}

#[test]
fn without_a_selector_consumers_read_from_the_leader() {
    for selector in ["", "org.apache.kafka.common.replica.LeaderSelector"] {
        let (_broker, [mut leader, ..], bytes) = four_nodes(selector);
        assert_eq!(fetched(&mut leader, (12, -1), "b", 0), (ErrorCode::None, bytes, -1, 1), "{selector}");
    }
}
