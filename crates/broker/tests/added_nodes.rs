//! A test adds nodes to a running cluster, and removes them.

use std::net::SocketAddr;

use ottla_broker::{AddNodeError, Broker, BrokerThread};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::metadata::MetadataResponse;

use crate::common;
use crate::common::Raw;

fn one_node() -> BrokerThread {
    Broker::builder().memory().topic("orders", 4).spawn().expect("a broker")
}

fn metadata(connection: &mut Raw) -> MetadataResponse {
    connection.ask(12, &common::metadata_of("orders")).expect("an answer")
}

/// Ids of the nodes in metadata.
fn nodes(connection: &mut Raw) -> Vec<i32> {
    metadata(connection).brokers.iter().map(|broker| broker.node_id).collect()
}

#[test]
fn an_added_node_is_in_metadata_leads_partitions_and_answers() {
    let broker = one_node();
    let mut first = Raw::connect(broker.addresses()[0]);
    assert_eq!(broker.add_node(7), Ok(()));
    assert_eq!(nodes(&mut first), [1, 7]);
    let leaders: Vec<i32> =
        metadata(&mut first).topics[0].partitions.iter().map(|partition| partition.leader_id).collect();
    assert_eq!(leaders, [1, 7, 1, 7]);
    let answer = metadata(&mut first);
    let address = format!("{}:{}", answer.brokers[1].host, answer.brokers[1].port);
    let mut added = Raw::connect(address.parse::<SocketAddr>().expect("an address"));
    assert_eq!(nodes(&mut added), [1, 7]);
}

#[test]
fn a_removed_node_leads_nothing_and_can_be_added_again() {
    let broker = one_node();
    broker.add_node(2).expect("a new node");
    let mut second = {
        let answer = metadata(&mut Raw::connect(broker.addresses()[0]));
        let address = format!("{}:{}", answer.brokers[1].host, answer.brokers[1].port);
        Raw::connect(address.parse::<SocketAddr>().expect("an address"))
    };
    assert!(broker.cluster().decommission(1));
    assert!(!broker.cluster().decommission(1), "it is gone");
    assert!(!broker.cluster().take_up(1), "it is gone");
    assert_eq!(broker.cluster().nodes(), [2]);
    let answer = metadata(&mut second);
    assert!(answer.topics[0].partitions.iter().all(|partition| partition.leader_id == 2));
    assert_eq!(nodes(&mut second), [2]);

    assert_eq!(broker.add_node(1), Ok(()));
    assert_eq!(nodes(&mut second), [1, 2]);
    assert_eq!(nodes(&mut Raw::connect(broker.addresses()[0])), [1, 2]);
}

/// The leader and the leader epoch of each partition.
fn leaders(connection: &mut Raw) -> Vec<(i32, i32)> {
    let answer = metadata(connection);
    let partitions = answer.topics[0].partitions.iter();
    partitions.map(|partition| (partition.leader_id, partition.leader_epoch)).collect()
}

#[test]
fn a_node_that_is_removed_from_metadata_leads_nothing_until_it_is_added_again() {
    let builder = Broker::builder().memory().nodes(3).topic("orders", 3);
    let builder = builder.configure(|config| config.replication_default = 3);
    let broker = builder.spawn().expect("a broker");
    let cluster = broker.cluster();
    cluster.set_unreachable_hidden(true);
    let mut third = Raw::connect(broker.addresses()[2]);
    let before = leaders(&mut third);
    assert!(cluster.remove_from_metadata(1) && !cluster.remove_from_metadata(9));
    assert_eq!(nodes(&mut third), [2, 3]);
    let (epoch, of_first) = (before[0].1, leaders(&mut third)[0]);
    assert_eq!(of_first, (2, epoch + 1));
    assert_eq!(leaders(&mut third)[1..], before[1..], "the others keep their leaders");
    // It gets no partition of another node, either.
    assert!(cluster.take_down(2));
    assert!(leaders(&mut third).iter().all(|(leader, _)| *leader == 3));

    assert!(cluster.set_reachable(1, false) && cluster.decommission(1));
    broker.add_node(1).expect("added again");
    assert_eq!(nodes(&mut third), [1, 3]);
    assert_eq!(leaders(&mut third)[0].0, 1);
    // One that was unknown when it was to be removed is not hidden.
    broker.add_node(9).expect("a new node");
    assert_eq!(nodes(&mut third), [1, 3, 9]);
}

#[test]
fn a_node_that_exists_and_an_id_below_zero_are_refused() {
    let broker = one_node();
    assert_eq!(broker.add_node(1), Err(AddNodeError::Exists(1)));
    assert_eq!(broker.add_node(-1), Err(AddNodeError::InvalidId(-1)));
    assert_eq!(broker.add_node(2), Ok(()));
    assert_eq!(broker.add_node(2), Err(AddNodeError::Exists(2)));
    for id in 3..66 {
        assert_eq!(broker.add_node(id), Ok(()));
    }
    assert_eq!(broker.add_node(66), Err(AddNodeError::TooMany(66)));
}

/// A client continued the session of the node that was gone.
#[test]
fn a_node_that_starts_again_knows_no_fetch_session_of_before() {
    let broker = one_node();
    let fetch = |session_id, session_epoch| {
        let partition = FetchPartition { current_leader_epoch: -1, ..Default::default() };
        let topic = FetchTopic { topic: "orders".into(), partitions: vec![partition], ..Default::default() };
        let request = FetchRequest { session_id, session_epoch, topics: vec![topic], ..Default::default() };
        let response = Raw::connect(broker.addresses()[0]).ask(12, &request).expect("an answer");
        (response.error_code, response.session_id)
    };
    let restart = || assert!(broker.cluster().take_down(1) && broker.cluster().take_up(1));
    let replace = || {
        assert!(broker.cluster().decommission(1));
        assert_eq!(broker.add_node(1), Ok(()));
    };
    for start_again in [&restart as &dyn Fn(), &replace] {
        let (_, session_id) = fetch(0, 0);
        assert_ne!(session_id, 0);
        assert_eq!(fetch(session_id, 1), (ErrorCode::None, session_id));
        start_again();
        broker.block_on(|cluster| async move { cluster.listeners_followed(1).await });
        assert_eq!(fetch(session_id, 2).0, ErrorCode::FetchSessionIdNotFound);
    }
}

#[test]
fn unreachable_nodes_can_be_left_out_of_metadata() {
    let broker = one_node();
    broker.add_node(2).expect("a new node");
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert!(broker.cluster().set_reachable(2, false));
    assert_eq!(nodes(&mut connection), [1, 2]);
    broker.cluster().set_unreachable_hidden(true);
    assert_eq!(nodes(&mut connection), [1]);
    assert!(broker.cluster().set_reachable(2, true));
    assert_eq!(nodes(&mut connection), [1, 2]);
}
