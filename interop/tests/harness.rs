//! Tests the harness: Apache Kafka starts, answers its own tools, and stops.

#![allow(clippy::disallowed_methods, reason = "measures real time")]

use ottla_interop::{Failure, KafkaCluster, Peer, console, java_tool, probe, require};

#[test]
fn kafka_with_two_nodes_knows_both_and_stops() -> Result<(), Failure> {
    require!(Peer::Java);
    let mut cluster = KafkaCluster::start(2)?;
    for address in cluster.addresses() {
        let brokers = probe::brokers(address).map_err(|error| Failure::new(error.to_string()))?;
        assert_eq!(brokers.len(), 2, "{brokers:?}");
    }
    let bootstrap = cluster.bootstrap();
    java_tool(console::TOPICS, &["--bootstrap-server", &bootstrap, "--list"], b"")?.succeeded()?;

    cluster.kill_node(2)?;
    assert!(probe::brokers(cluster.addresses()[1]).is_err(), "node 2 is gone");
    cluster.start_node(2)?;
    let ids: Vec<Option<u32>> = vec![cluster.process_id(1), cluster.process_id(2)];
    assert!(ids.iter().all(Option::is_some));
    Ok(())
}
