//! A node that a test pauses, as SIGSTOP pauses a process.

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread, Listener};
use ottla_client::{Config, Producer, Record};
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_wire::Seal;
use serde_json::json;

use crate::common::{Heard, PATIENCE, Raw, batch, framed, metadata_of, produce_request};
use crate::security::{any_port, tls};
use crate::tls::{TlsClient, certificate};

/// A broker with two nodes. The second one leads the partition.
fn two_nodes() -> BrokerThread {
    let broker = Broker::builder().memory().nodes(2).topic("orders", 1).spawn().expect("a broker in memory");
    assert!(broker.cluster().set_leader("orders", 0, 2));
    broker
}

fn ask_for_metadata(connection: &mut Raw) {
    connection.send(&framed(12, &metadata_of("orders")));
}

#[test]
fn a_paused_node_answers_nothing_until_it_is_resumed_and_stays_leader() {
    let broker = two_nodes();
    let cluster = broker.cluster();
    let [one, two] = [broker.addresses()[0], broker.addresses()[1]];
    let (mut first, mut known) = (Raw::connect(one), Raw::connect(two));
    assert!(known.is_served());
    assert!(cluster.pause(2) && cluster.is_paused(2) && !cluster.is_paused(1));
    // It waits in the queue of the listener.
    let mut new = Raw::connect(two);
    for connection in [&mut known, &mut new] {
        ask_for_metadata(connection);
        ask_for_metadata(connection);
    }
    assert!(known.is_silent() && new.is_silent());
    let metadata = first.ask(12, &metadata_of("orders")).expect("the other node answers");
    assert_eq!(metadata.topics[0].partitions[0].leader_id, 2);
    assert_eq!(metadata.brokers.len(), 2);

    assert!(cluster.resume(2) && !cluster.is_paused(2));
    for mut connection in [known, new] {
        assert!(matches!(connection.hear(), Heard::Answer(_)));
        assert!(matches!(connection.hear(), Heard::Answer(_)));
        assert!(connection.is_served());
    }
}

#[test]
fn the_requests_of_clients_that_have_left_are_handled_after_a_pause() {
    let broker = two_nodes();
    let cluster = broker.cluster();
    let produce = framed(12, &produce_request("orders", 1, &batch(&[b"paid"], &Seal::default())));
    let mut known = Raw::connect(broker.addresses()[1]);
    assert!(known.is_served());
    assert!(cluster.pause(2));
    for mut client in [known, Raw::connect(broker.addresses()[1])] {
        client.send(&produce);
        assert!(client.is_silent());
    }
    assert_eq!(cluster.offsets_of("orders", 0), Some((0, 0)));
    assert!(cluster.resume(2));
    let deadline = Instant::now() + PATIENCE;
    while cluster.offsets_of("orders", 0) != Some((0, 2)) {
        assert!(Instant::now() < deadline, "{:?}", cluster.offsets_of("orders", 0));
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn a_large_response_stops_in_a_pause_and_its_rest_comes_after_it() {
    let broker = two_nodes();
    let cluster = broker.cluster();
    let producer = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
    let value = vec![b'x'; 100_000];
    for _ in 0..300 {
        producer.send_unobserved_blocking(Record::to("orders").value(&value)).expect("taken");
    }
    producer.flush_blocking(PATIENCE).expect("written");
    let partition =
        FetchPartition { partition_max_bytes: i32::MAX, current_leader_epoch: -1, ..Default::default() };
    let topic = FetchTopic { topic: "orders".into(), partitions: vec![partition], ..Default::default() };
    let request = FetchRequest { max_bytes: i32::MAX, topics: vec![topic], ..Default::default() };
    let mut client = Raw::connect(broker.addresses()[1]);
    client.send(&framed(12, &request));
    let mut stream = client.into_stream();
    let mut size = [0; 4];
    stream.read_exact(&mut size).expect("the response begins");
    let size = usize::try_from(i32::from_be_bytes(size)).expect("a size");
    assert!(cluster.pause(2));

    // The bytes that the kernel has arrive.
    stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a socket");
    let (mut part, mut received) = (vec![0; 1 << 20], 0);
    let end = loop {
        match stream.read(&mut part) {
            Ok(0) => panic!("closed after {received} of {size} bytes"),
            Ok(bytes) => received += bytes,
            Err(error) => break error,
        }
    };
    assert!(matches!(end.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{end}");
    assert!(received < size, "all {size} bytes came");
    assert!(cluster.resume(2));
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let mut rest = vec![0; size - received];
    stream.read_exact(&mut rest).expect("the rest");
}

#[test]
fn a_client_shakes_hands_after_a_pause() {
    let secure = Listener::new("SECURE", any_port()).tls(tls(certificate()));
    let broker = Broker::builder().memory().listener(secure).spawn().expect("a broker in memory");
    let (cluster, address) = (broker.cluster(), broker.addresses()[0]);
    assert!(cluster.pause(1));
    let client = std::thread::spawn(move || TlsClient::connect(address, 1 << 16).is_some());
    std::thread::park_timeout(Duration::from_millis(200));
    assert!(!client.is_finished());
    assert!(cluster.resume(1));
    assert!(client.join().expect("no panic"), "it is connected");
}

#[test]
fn a_paused_node_can_be_stopped_and_starts_without_the_pause() {
    let broker = two_nodes();
    let cluster = broker.cluster();
    let mut client = Raw::connect(broker.addresses()[1]);
    assert!(client.is_served());
    let change = |body: serde_json::Value| {
        let answer = broker.control("POST", "/nodes/2", body.to_string().as_bytes());
        (answer.status, answer.body)
    };
    let done = (200, json!({}));
    assert_eq!(change(json!({ "paused": true })), done);
    ask_for_metadata(&mut client);
    assert!(client.is_silent());
    let overview = broker.control("GET", "/", b"").body;
    assert_eq!(overview["nodes"][1], json!({ "id": 2, "up": true, "paused": true }));
    assert_eq!(change(json!({ "up": false })), done);
    assert!(matches!(client.hear(), Heard::Closed), "without a response");
    assert_eq!(change(json!({ "paused": true })).0, 409);
    assert!(!cluster.pause(2) && !cluster.pause(9) && !cluster.resume(9));
    assert_eq!(change(json!({ "up": true })), done);
    assert!(Raw::connect(broker.addresses()[1]).is_served());
    // A node that is cut off ends its connections, too. Its process is still there, and paused.
    let mut client = Raw::connect(broker.addresses()[1]);
    assert!(client.is_served());
    assert_eq!(change(json!({ "paused": true, "reachable": false })), done);
    assert!(matches!(client.hear(), Heard::Closed));
    assert_eq!(change(json!({ "reachable": true })), done);
    let mut client = Raw::connect(broker.addresses()[1]);
    ask_for_metadata(&mut client);
    assert!(client.is_silent());
    assert_eq!(change(json!({ "paused": false })), done);
    assert!(matches!(client.hear(), Heard::Answer(_)));
}

/// It stopped the node before it was refused.
#[test]
fn a_change_of_a_node_that_is_refused_changes_nothing() {
    let broker = two_nodes();
    let body = json!({ "up": false, "paused": true }).to_string();
    assert_eq!(broker.control("POST", "/nodes/2", body.as_bytes()).status, 409);
    assert!(broker.cluster().is_up(2));
}
