//! The ids of the nodes: `node.id` is the first one's, and what is stored for a node belongs to it under another id, too.

use std::sync::Arc;

use ottla_broker::{Broker, BrokerBuilder, BrokerThread};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use ottla_protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::find_coordinator::FindCoordinatorRequest;
use ottla_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use ottla_wire::Seal;

use crate::common::{Raw, batch, metadata_of};

const BROKER: i8 = 4;
const STATIC: i8 = 4;
const OF_ONE_BROKER: i8 = 2;

fn set(builder: BrokerBuilder, name: &str, value: &str) -> BrokerBuilder {
    builder.configure(|config| config.set(name, value).expect("a property"))
}

/// Three nodes on a disk, the first one with this id.
fn start(disk: &MemStorage, first: i32) -> (BrokerThread, Raw) {
    let builder = Broker::builder().storage(Arc::new(disk.clone())).nodes(3).topic("orders", 3);
    let broker = set(builder, "node.id", &first.to_string()).spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

/// Ids of the nodes in metadata, and the controller.
fn nodes(connection: &mut Raw) -> (Vec<i32>, i32) {
    let answer = connection.ask(12, &metadata_of("orders")).expect("an answer");
    (answer.brokers.iter().map(|broker| broker.node_id).collect(), answer.controller_id)
}

/// Leader, replicas and replicas in sync of each partition.
fn shown(connection: &mut Raw) -> Vec<(i32, Vec<i32>, Vec<i32>)> {
    let answer = connection.ask(12, &metadata_of("orders")).expect("an answer");
    let partitions = answer.topics[0].partitions.iter();
    partitions.map(|one| (one.leader_id, one.replica_nodes.clone(), one.isr_nodes.clone())).collect()
}

fn alter(connection: &mut Raw, broker: &str, name: &str, value: &str) -> ErrorCode {
    let configs =
        vec![AlterableConfig { name: name.into(), value: Some(value.into()), ..Default::default() }];
    let resource = AlterConfigsResource { resource_type: BROKER, resource_name: broker.into(), configs };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    connection.ask(1, &request).expect("an answer").responses[0].error_code
}

/// The value of a broker's configuration, and its source; the error instead of a value if the broker is unknown.
fn described(connection: &mut Raw, broker: &str, key: &str) -> Result<(Option<String>, i8), ErrorCode> {
    let resource = DescribeConfigsResource {
        resource_type: BROKER,
        resource_name: broker.into(),
        configuration_keys: Some(vec![key.into()]),
    };
    let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
    let mut result = connection.ask(4, &request).expect("an answer").results.remove(0);
    match result.error_code {
        ErrorCode::None => {
            let config = result.configs.remove(0);
            Ok((config.value, config.config_source))
        }
        code => Err(code),
    }
}

fn reassign(connection: &mut Raw, partition_index: i32, replicas: &[i32]) -> ErrorCode {
    let partition = ReassignablePartition { partition_index, replicas: Some(replicas.to_vec()) };
    let request = AlterPartitionReassignmentsRequest {
        timeout_ms: 1000,
        allow_replication_factor_change: true,
        topics: vec![ReassignableTopic { name: "orders".into(), partitions: vec![partition] }],
    };
    let answer = connection.ask(1, &request).expect("an answer");
    answer.responses[0].partitions[0].error_code
}

/// Kafka begins with any id from 0 on. Here the first node was always 1.
#[test]
fn the_first_node_has_the_id_of_the_configuration_and_the_others_the_ids_after_it() {
    for first in [0, 1, 41, i32::MAX - 2] {
        let (broker, mut connection) = start(&MemStorage::new(), first);
        let all = [first, first + 1, first + 2];
        assert_eq!(broker.cluster().nodes(), all);
        assert_eq!(nodes(&mut connection), (all.to_vec(), first));
        let expected = all.map(|id| (id, vec![id], vec![id]));
        assert_eq!(shown(&mut connection), expected);
        // The first node leads partition 0, and answers for it.
        let written = connection.produce("orders", -1, &batch(&[b"v"], &Seal::default()));
        assert_eq!(written.error_code, ErrorCode::None);
        let partition =
            FetchPartition { current_leader_epoch: -1, partition_max_bytes: 1, ..Default::default() };
        let topics =
            vec![FetchTopic { topic: "orders".into(), partitions: vec![partition], ..Default::default() }];
        let fetch = FetchRequest { replica_id: -1, session_epoch: -1, topics, ..Default::default() };
        let fetched = connection.ask(12, &fetch).expect("an answer");
        assert_eq!(fetched.responses[0].partitions[0].error_code, ErrorCode::None);
        let find = FindCoordinatorRequest { coordinator_keys: vec!["billing".into()], ..Default::default() };
        let found = connection.ask(4, &find).expect("an answer").coordinators.remove(0);
        assert!(found.error_code == ErrorCode::None && all.contains(&found.node_id), "{found:?}");
        for id in all {
            let name = id.to_string();
            let own = Ok((Some(name.clone()), STATIC));
            assert_eq!(described(&mut connection, &name, "node.id"), own);
            assert_eq!(described(&mut connection, &name, "broker.id"), own);
        }
        let unknown = first.checked_add(3).unwrap_or(0).to_string();
        assert_eq!(described(&mut connection, &unknown, "node.id"), Err(ErrorCode::InvalidRequest));
        assert_eq!(broker.add_node(first), Err(ottla_broker::AddNodeError::Exists(first)));
    }
}

/// The journal has the replicas that clients have chosen. Under other ids they would be nodes that do not exist.
#[test]
fn replicas_and_configurations_of_nodes_follow_them_when_their_ids_change() {
    let disk = MemStorage::new();
    let (broker, mut connection) = start(&disk, 1);
    assert_eq!(reassign(&mut connection, 0, &[3, 2]), ErrorCode::None);
    for (id, value) in [("1", "111"), ("2", "222")] {
        assert_eq!(alter(&mut connection, id, "log.retention.ms", value), ErrorCode::None);
    }
    broker.stop();
    for first in [0, 7, 1] {
        let (broker, mut connection) = start(&disk, first);
        let [one, two, three] = [first, first + 1, first + 2];
        let all = [
            (three, vec![three, two], vec![three, two]),
            (two, vec![two], vec![two]),
            (three, vec![three], vec![three]),
        ];
        assert_eq!(shown(&mut connection), all, "node.id={first}");
        let of = |value: &str| Ok((Some(value.to_owned()), OF_ONE_BROKER));
        for (id, value) in [(one, "111"), (two, "222")] {
            assert_eq!(described(&mut connection, &id.to_string(), "log.retention.ms"), of(value));
        }
        // The logs have the configuration of the first node.
        let resource = DescribeConfigsResource {
            resource_type: 2,
            resource_name: "orders".into(),
            configuration_keys: Some(vec!["retention.ms".into()]),
        };
        let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
        let topic = connection.ask(4, &request).expect("an answer").results.remove(0);
        assert_eq!(topic.configs[0].value.as_deref(), Some("111"));
        // A change under these ids is the same change under others.
        assert_eq!(reassign(&mut connection, 1, &[two]), ErrorCode::None);
        broker.stop();
    }
}

/// A node that was added by a test can have an id that no node has under the next `node.id`.
#[test]
fn replicas_that_would_have_an_id_below_zero_are_forgotten() {
    let disk = MemStorage::new();
    let (broker, mut connection) = start(&disk, 1);
    assert_eq!(broker.add_node(0), Ok(()));
    assert_eq!(reassign(&mut connection, 0, &[0]), ErrorCode::None);
    assert_eq!(reassign(&mut connection, 1, &[0, 3]), ErrorCode::None);
    broker.stop();
    let (_broker, mut connection) = start(&disk, 0);
    let all = [(0, vec![0], vec![0]), (2, vec![2], vec![2]), (2, vec![2], vec![2])];
    assert_eq!(shown(&mut connection), all);
}

#[test]
fn broker_id_is_another_name_and_contradictions_are_refused() {
    let builder = || Broker::builder().memory().nodes(2);
    let started = set(set(builder(), "broker.id", "-1"), "broker.id", "5").spawn().expect("a broker");
    assert_eq!(started.cluster().nodes(), [5, 6]);
    let same = set(set(builder(), "node.id", "5"), "broker.id", "5").spawn().expect("a broker");
    assert_eq!(same.cluster().nodes(), [5, 6]);
    let method = builder().node_id(8).spawn().expect("a broker");
    assert_eq!(method.cluster().nodes(), [8, 9]);
    let contradicting = set(set(builder(), "node.id", "5"), "broker.id", "6");
    for (wrong, reason) in [
        (contradicting, "broker.id=`6`"),
        (builder().node_id(i32::MAX), "the ids of 2 nodes"),
        (builder().node_id(-1), "node.id=`-1`"),
    ] {
        let Err(error) = wrong.spawn() else { panic!("it has started") };
        assert!(error.to_string().contains(reason), "{error}");
    }
    let mut refused = Ok(());
    drop(builder().configure(|config| refused = config.set("node.id", "-1")));
    assert!(refused.is_err_and(|reason| reason.contains("node.id")));
}

#[test]
fn a_fork_and_a_restored_broker_have_the_ids_of_the_broker() {
    let mut builder = Broker::builder().memory().nodes(2).node_id(4).topic("orders", 2);
    builder = builder.advertise("localhost");
    let broker = builder.spawn().expect("a broker");
    let snapshot = broker.snapshot().expect("in memory");
    let fork = broker.fork().expect("a fork");
    assert_eq!(fork.cluster().nodes(), [4, 5]);
    let before = broker.bootstrap_servers();
    broker.restore(&snapshot).expect("restored");
    assert_eq!((broker.cluster().nodes(), broker.bootstrap_servers()), (vec![4, 5], before));
    let expected = [(4, vec![4], vec![4]), (5, vec![5], vec![5])];
    assert_eq!(shown(&mut Raw::connect(broker.addresses()[0])), expected);
}

/// Its nodes listened on other ports: the clients of the broker did not find them.
#[test]
fn the_snapshot_of_a_broker_with_other_ids_is_restored_at_the_same_addresses() {
    let other = Broker::builder().memory().nodes(2).node_id(4).topic("orders", 2).spawn().expect("a broker");
    let broker = Broker::builder().memory().nodes(2).spawn().expect("a broker");
    let snapshots = [other.snapshot(), broker.snapshot()].map(|taken| taken.expect("in memory"));
    let before = broker.bootstrap_servers();
    for (snapshot, ids) in snapshots.iter().zip([[4, 5], [1, 2]]) {
        broker.restore(snapshot).expect("restored");
        assert_eq!((broker.cluster().nodes(), broker.bootstrap_servers()), (ids.to_vec(), before.clone()));
    }
}
