//! Snapshots, restores and forks of a broker in memory.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it waits")]

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread, Snapshot, SnapshotError};
use ottla_client::{Config, Consumer, Polled, Producer, Record, TopicPartition};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchResponse, FetchTopic};
use ottla_protocol::messages::init_producer_id::InitProducerIdRequest;
use ottla_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use ottla_protocol::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use serde_json::{Value, json};

use crate::common::{Raw, metadata_of};

const PATIENCE: Duration = Duration::from_secs(60);

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory")
}

fn producer(broker: &BrokerThread) -> Producer {
    Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer")
}

fn write(producer: &Producer, values: &[&str]) {
    for value in values {
        let delivery = producer.enqueue_blocking(Record::to("orders").value(value)).expect("taken");
        delivery.wait(PATIENCE).expect("in time").expect("written");
    }
}

fn consumer(broker: &BrokerThread) -> Consumer {
    let consumer = without_topics(broker);
    consumer.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    consumer
}

fn without_topics(broker: &BrokerThread) -> Consumer {
    let mut config = Config::new(broker.bootstrap_servers());
    config.set_all([("group.id", "g"), ("auto.offset.reset", "earliest")]).expect("known properties");
    Consumer::new(config).expect("a consumer")
}

/// The next values, until the last one is this.
fn read_until(consumer: &mut Consumer, last: &str) -> Vec<String> {
    let mut read: Vec<String> = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while read.last().is_none_or(|value| value != last) {
        assert!(Instant::now() < deadline, "nothing more after {read:?}");
        if let Some(Polled::Records(batch)) = consumer.poll_blocking(Duration::from_secs(1)).expect("a poll")
        {
            for record in &batch {
                let record = record.expect("sound");
                read.push(String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned());
            }
        }
    }
    read
}

fn end(broker: &BrokerThread) -> i64 {
    broker.cluster().offsets_of("orders", 0).expect("a partition").1
}

#[test]
fn a_restore_brings_back_topics_records_and_offsets_at_the_same_addresses() {
    let broker = broker();
    write(&producer(&broker), &["a", "b"]);
    let committing = without_topics(&broker);
    let at = TopicPartition::new("orders", 0);
    committing.control().commit_offsets(&[(at.clone(), 1.into())]).wait(PATIENCE).expect("committed");
    let snapshot = broker.snapshot().expect("in memory");
    let addresses = broker.addresses().to_vec();

    write(&producer(&broker), &["c"]);
    committing.control().commit_offsets(&[(at, 3.into())]).wait(PATIENCE).expect("committed");
    broker.cluster().add_topic("scratch", 2).expect("new");
    drop(committing);
    broker.restore(&snapshot).expect("in memory");

    assert_eq!((end(&broker), broker.cluster().partitions_of("scratch")), (2, None));
    assert_eq!(broker.cluster().committed_offset("g", "orders", 0), Some(1));
    assert_eq!(broker.addresses(), addresses);
    write(&producer(&broker), &["d"]);
    assert_eq!(read_until(&mut consumer(&broker), "d"), ["b", "d"]);
}

#[test]
fn clients_that_were_connected_go_on_after_a_restore() {
    let broker = broker();
    let producer = producer(&broker);
    let mut consumer = consumer(&broker);
    write(&producer, &["a"]);
    assert_eq!(read_until(&mut consumer, "a"), ["a"]);
    let snapshot = broker.snapshot().expect("in memory");
    for round in ["x", "y", "z"] {
        write(&producer, &["lost", round]);
        let read = read_until(&mut consumer, round);
        assert_eq!(read.last().map(String::as_str), Some(round));
        broker.restore(&snapshot).expect("in memory");
        assert_eq!(end(&broker), 1);
    }
    write(&producer, &["after"]);
    let read = read_until(&mut consumer, "after");
    assert_eq!(read.last().map(String::as_str), Some("after"), "{read:?}");
    assert_eq!(end(&broker), 2, "nothing is there twice");
}

/// A leader that had not written answered that it does not know the epoch, and consumers kept their positions in the log that is gone:
/// they waited behind its end.
#[test]
fn an_epoch_whose_records_are_gone_ends_where_the_next_leader_begins() {
    let broker = broker();
    let producer = producer(&broker);
    write(&producer, &["a"]);
    let snapshot = broker.snapshot().expect("in memory");
    let epoch = |broker: &BrokerThread| {
        let answer = Raw::connect(broker.addresses()[0]).ask(9, &metadata_of("orders")).expect("an answer");
        answer.topics[0].partitions[0].leader_epoch
    };
    let of_records = epoch(&broker);
    broker.restore(&snapshot).expect("in memory");
    write(&producer, &["lost"]);
    let of_lost = epoch(&broker);
    broker.restore(&snapshot).expect("in memory");
    let of_leader = epoch(&broker);
    assert!(of_records < of_lost && of_lost < of_leader);
    let end_of = |leader_epoch| {
        let partition =
            OffsetForLeaderPartition { partition: 0, current_leader_epoch: of_leader, leader_epoch };
        let topics = vec![OffsetForLeaderTopic { topic: "orders".into(), partitions: vec![partition] }];
        let request = OffsetForLeaderEpochRequest { replica_id: -1, topics };
        let answer = Raw::connect(broker.addresses()[0]).ask(4, &request).expect("an answer");
        let end = &answer.topics[0].partitions[0];
        (end.leader_epoch, end.end_offset)
    };
    assert_eq!(end_of(of_lost), (of_records, 1));
    assert_eq!(end_of(of_leader), (of_leader, 1));
    assert_eq!(end_of(of_leader + 1), (-1, -1));
    // The answer to a fetch by the lost epoch has the place where the logs part.
    let fetched = FetchPartition {
        fetch_offset: 1,
        current_leader_epoch: of_leader,
        last_fetched_epoch: of_lost,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let topics = vec![FetchTopic { topic: "orders".into(), partitions: vec![fetched], ..Default::default() }];
    let mut request = FetchRequest { max_bytes: 1 << 20, session_epoch: 0, topics, ..Default::default() };
    let mut connection = Raw::connect(broker.addresses()[0]);
    let answer = connection.ask(12, &request).expect("an answer");
    let parted = |answer: &FetchResponse| {
        let parted = &answer.responses.first().expect("news of the partition").partitions[0].diverging_epoch;
        (parted.epoch, parted.end_offset)
    };
    assert_eq!(parted(&answer), (of_records, 1));
    // It is news in every response of a session: the ones after the first had nothing, and the client asked again at once.
    (request.session_id, request.session_epoch) = (answer.session_id, 1);
    assert_ne!(answer.session_id, 0);
    let answer = connection.ask(12, &request).expect("an answer");
    assert_eq!(parted(&answer), (of_records, 1));
    // The first offset has the epoch of its record, and not that of the leader.
    let partition = ListOffsetsPartition { timestamp: -2, current_leader_epoch: -1, ..Default::default() };
    let topics = vec![ListOffsetsTopic { name: "orders".into(), partitions: vec![partition] }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    let answer = connection.ask(4, &request).expect("an answer");
    let first = &answer.topics[0].partitions[0];
    assert_eq!((first.offset, first.leader_epoch), (0, of_records));
}

/// A new producer of a transactional id: its producer id and its epoch.
fn init(broker: &BrokerThread) -> (i64, i16) {
    let request = InitProducerIdRequest {
        transactional_id: Some("till".into()),
        transaction_timeout_ms: 60_000,
        ..Default::default()
    };
    let mut connection = Raw::connect(broker.addresses()[0]);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = connection.ask(4, &request).expect("an answer");
        if answer.error_code == ErrorCode::None {
            return (answer.producer_id, answer.producer_epoch);
        }
        assert!(answer.error_code.is_retriable() && Instant::now() < deadline, "{}", answer.error_code);
    }
}

/// The producer after a restore had the id and the epoch of one that had come after the snapshot. That one was not fenced, and its
/// batches were taken for those of the new one.
#[test]
fn a_transactional_producer_after_a_restore_is_none_that_was_there_before() {
    let broker = broker();
    let (id, _) = init(&broker);
    let snapshot = broker.snapshot().expect("in memory");
    let mut before = vec![init(&broker)];
    assert_eq!(before[0].0, id, "the next epoch of the same producer id");
    for _ in 0..2 {
        broker.restore(&snapshot).expect("in memory");
        let after = [init(&broker), init(&broker)];
        assert!(after.iter().all(|producer| !before.contains(producer)), "{after:?} after {before:?}");
        before.extend(after);
    }
}

#[test]
fn a_fork_and_its_broker_do_not_see_each_others_changes() {
    let broker = broker();
    write(&producer(&broker), &["a"]);
    let fork = broker.fork().expect("in memory");
    assert_ne!(fork.bootstrap_servers(), broker.bootstrap_servers());
    write(&producer(&fork), &["b", "c"]);
    write(&producer(&broker), &["d"]);
    assert_eq!((end(&broker), end(&fork)), (2, 3));
    assert_eq!(read_until(&mut consumer(&fork), "c"), ["a", "b", "c"]);
    drop(broker);
    write(&producer(&fork), &["e"]);
    assert_eq!(end(&fork), 4, "a fork outlives its broker");
}

#[test]
fn many_brokers_start_from_one_snapshot() {
    let snapshot: Snapshot = {
        let broker = broker();
        write(&producer(&broker), &["a"]);
        broker.snapshot().expect("in memory")
    };
    let brokers: Vec<BrokerThread> =
        (0..5).map(|_| snapshot.builder().spawn().expect("a broker in memory")).collect();
    for (number, broker) in brokers.iter().enumerate() {
        write(&producer(broker), &vec!["x"; number]);
    }
    let ends: Vec<i64> = brokers.iter().map(end).collect();
    assert_eq!(ends, [1, 2, 3, 4, 5]);
}

#[test]
fn nodes_that_were_added_are_part_of_a_snapshot() {
    let broker = broker();
    broker.add_node(2).expect("a node");
    let snapshot = broker.snapshot().expect("in memory");
    assert!(broker.cluster().decommission(2));
    broker.restore(&snapshot).expect("in memory");
    assert_eq!(broker.cluster().nodes(), [1, 2]);
    assert_eq!(broker.bootstrap_servers().split(',').count(), 2);
    let fork = broker.fork().expect("in memory");
    assert_eq!(fork.cluster().nodes(), [1, 2]);
}

#[test]
fn a_broker_with_a_directory_has_no_snapshots() {
    let dir = tempfile::tempdir().expect("a directory");
    let broker = Broker::builder().data_dir(dir.path()).spawn().expect("a broker");
    let refused = broker.snapshot().expect_err("its data is in a directory");
    assert!(matches!(refused, SnapshotError::NotInMemory), "{refused}");
    let snapshot = Broker::builder().memory().spawn().expect("a broker").snapshot().expect("in memory");
    let refused = broker.restore(&snapshot).expect_err("its data is in a directory");
    assert!(matches!(refused, SnapshotError::NotInMemory), "{refused}");
}

fn ask(broker: &BrokerThread, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let answer = broker.control(method, path, body.to_string().as_bytes());
    (answer.status, answer.body)
}

/// They began at 1 again: a test that removed its fault of before the restore removed another one.
#[test]
fn the_ids_of_faults_continue_after_a_restore() {
    let broker = broker();
    let fault = json!({ "api": "Produce", "action": "cut", "count": 5 });
    let disk_fault = json!({ "call": "sync", "action": "fail" });
    for (path, body) in [("/faults", fault), ("/disk-faults", disk_fault)] {
        assert_eq!(ask(&broker, "POST", path, &body), (200, json!({ "id": 1 })), "{path}");
        let snapshot = broker.snapshot().expect("in memory");
        broker.restore(&snapshot).expect("in memory");
        assert_eq!(ask(&broker, "POST", path, &body), (200, json!({ "id": 2 })), "{path}");
        assert_eq!(ask(&broker, "DELETE", &format!("{path}/1"), &json!({})).0, 404, "{path}");
        assert_eq!(ask(&broker, "DELETE", &format!("{path}/2"), &json!({})).0, 200, "{path}");
    }
}

#[test]
fn requests_of_a_control_address_take_and_restore_snapshots() {
    let broker = broker();
    assert_eq!(ask(&broker, "POST", "/snapshots", &json!({ "name": "empty" })), (200, json!({})));
    write(&producer(&broker), &["a"]);
    assert_eq!(ask(&broker, "GET", "/snapshots", &json!({})), (200, json!({ "snapshots": ["empty"] })));
    assert_eq!(ask(&broker, "POST", "/snapshots/empty/restore", &json!({})), (200, json!({})));
    assert_eq!(end(&broker), 0);
    assert_eq!(ask(&broker, "DELETE", "/snapshots/empty", &json!({})), (200, json!({})));
    let (status, refused) = ask(&broker, "POST", "/snapshots/empty/restore", &json!({}));
    assert_eq!((status, refused), (404, json!({ "error": "there is no snapshot `empty`" })));
}

#[test]
fn a_fork_of_a_control_address_has_faults_of_its_own() {
    let broker = broker();
    let (status, fork) = ask(&broker, "POST", "/forks", &json!({}));
    assert_eq!((status, &fork["id"]), (200, &json!(1)), "{fork}");
    let fault = json!({ "api": "Produce", "action": "fail", "error": "NOT_ENOUGH_REPLICAS" });
    assert_eq!(ask(&broker, "POST", "/forks/1/faults", &fault), (200, json!({ "id": 1 })));
    let faults_of = |path| ask(&broker, "GET", path, &json!({})).1["faults"].as_array().map(Vec::len);
    assert_eq!((faults_of("/faults"), faults_of("/forks/1/faults")), (Some(0), Some(1)));
    let servers = fork["bootstrap_servers"].as_str().expect("a text");
    let at_fork = Producer::new(Config::new(servers)).expect("a producer");
    write(&at_fork, &["a"]);
    assert_eq!(end(&broker), 0);
    assert_eq!(ask(&broker, "DELETE", "/forks/1", &json!({})), (200, json!({})));
    let (status, refused) = ask(&broker, "GET", "/forks/1/faults", &json!({}));
    assert_eq!((status, refused), (404, json!({ "error": "there is no fork 1" })));
}

/// Clients that resolve `/snapshots/..` asked for another path.
#[test]
fn the_name_of_a_snapshot_is_a_plain_part_of_a_path() {
    let broker = broker();
    for name in ["", ".", "..", "a/b", "a b"] {
        let (status, refused) = ask(&broker, "POST", "/snapshots", &json!({ "name": name }));
        assert_eq!(status, 400, "`{name}`: {refused}");
    }
    assert_eq!(ask(&broker, "POST", "/snapshots", &json!({ "name": "v1.2" })).0, 200);
}

#[test]
fn the_number_of_snapshots_is_limited() {
    let broker = broker();
    for number in 0..64 {
        assert_eq!(ask(&broker, "POST", "/snapshots", &json!({ "name": number.to_string() })).0, 200);
    }
    let (status, refused) = ask(&broker, "POST", "/snapshots", &json!({ "name": "another" }));
    assert_eq!(status, 409, "{refused}");
    assert_eq!(ask(&broker, "POST", "/snapshots", &json!({ "name": "7" })).0, 200, "it replaces another");
}

/// The count stopped, and a wait looked at the broker that is gone: it ended with 504.
#[test]
fn the_count_of_requests_and_waits_continue_after_a_restore() {
    let broker = broker();
    let snapshot = broker.snapshot().expect("in memory");
    assert_eq!(ask(&broker, "GET", "/requests", &json!({})).0, 200, "requests are counted from here on");
    write(&producer(&broker), &["a"]);
    let counted = |broker: &BrokerThread| ask(broker, "GET", "/requests", &json!({})).1["Produce"].clone();
    assert_eq!(counted(&broker), json!(1));
    let wait = json!({ "api": "Produce", "count": 2, "within_ms": 30_000 });
    let waited = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ask(&broker, "POST", "/wait", &wait));
        broker.restore(&snapshot).expect("in memory");
        assert_eq!(counted(&broker), json!(1));
        write(&producer(&broker), &["b"]);
        waiting.join().expect("no panic")
    });
    assert_eq!(waited, (200, json!({})));
    assert_eq!(counted(&broker), json!(2));
}

/// Binds an address as a process does that wants no address of others.
fn is_free(address: SocketAddr) -> bool {
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind(address).is_ok()
}

/// The port was free for a moment: another process could take it, and the broker listened nowhere.
#[test]
fn the_port_stays_taken_during_a_restore() {
    let broker = broker();
    let snapshot = broker.snapshot().expect("in memory");
    let address = broker.addresses()[0];
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let probe = || {
            let mut taken = 0;
            while !is_done.load(Ordering::Relaxed) {
                assert!(!is_free(address), "free after {taken} attempts");
                taken += 1;
            }
        };
        let probing = scope.spawn(probe);
        for _ in 0..20 {
            broker.restore(&snapshot).expect("in memory");
            write(&producer(&broker), &["a"]);
        }
        is_done.store(true, Ordering::Relaxed);
        probing.join().expect("never free");
    });
}

/// The answer came before the listener had changed, and the port was free as long as the node was cut off. A node that was stopped
/// accepted connections, up to the end of the TLS handshake, and closed them then.
#[test]
fn a_node_that_is_cut_off_or_stopped_refuses_clients_at_once_and_keeps_its_port() {
    let broker = broker();
    let address = broker.addresses()[0];
    for round in 0..20 {
        let change = |on: bool| if round % 2 == 0 { json!({ "reachable": on }) } else { json!({ "up": on }) };
        assert_eq!(ask(&broker, "POST", "/nodes/1", &change(false)), (200, json!({})));
        let refused = TcpStream::connect(address).expect_err("it is closed");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        assert!(!is_free(address));
        assert_eq!(ask(&broker, "POST", "/nodes/1", &change(true)), (200, json!({})));
        assert!(TcpStream::connect(address).is_ok());
    }
    // It is open if it is up and reachable.
    assert_eq!(
        ask(&broker, "POST", "/nodes/1", &json!({ "up": false, "reachable": false })),
        (200, json!({}))
    );
    assert_eq!(ask(&broker, "POST", "/nodes/1", &json!({ "up": true })), (200, json!({})));
    assert!(TcpStream::connect(address).is_err());
    assert_eq!(ask(&broker, "POST", "/nodes/1", &json!({ "reachable": true })), (200, json!({})));
    write(&producer(&broker), &["a"]);
}

/// Its listener was opened with each change and closed at once. A client that connected meanwhile saw a broker that breaks connections.
#[test]
fn a_node_that_is_down_takes_no_client_while_it_is_cut_off_too() {
    let broker = broker();
    let (address, is_done) = (broker.addresses()[0], AtomicBool::new(false));
    assert_eq!(ask(&broker, "POST", "/nodes/1", &json!({ "up": false })), (200, json!({})));
    std::thread::scope(|scope| {
        let connect = || {
            let mut connected = 0;
            while !is_done.load(Ordering::Relaxed) {
                connected += usize::from(TcpStream::connect(address).is_ok());
            }
            connected
        };
        let connecting = scope.spawn(connect);
        for round in 0..500 {
            assert!(broker.cluster().set_reachable(1, round % 2 == 1));
            broker.block_on(|cluster| async move { cluster.listeners_followed(1).await });
        }
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(connecting.join().expect("no panic"), 0);
    });
}

/// The lag was refused after five seconds, as the node could not listen.
#[test]
fn a_node_whose_address_is_taken_gets_a_lag() {
    let broker = broker();
    let address = broker.addresses()[0];
    assert_eq!(ask(&broker, "POST", "/nodes/1", &json!({ "reachable": false })), (200, json!({})));
    let taken = TcpListener::bind(address).expect("nothing listens there");
    assert!(broker.cluster().set_reachable(1, true));
    assert_eq!(ask(&broker, "POST", "/nodes/1", &json!({ "lag_ms": 1 })), (200, json!({})));
    assert_eq!(ask(&broker, "POST", "/nodes/1", &json!({ "reachable": true })).0, 409);
    drop(taken);
}

/// It continued for up to ten minutes, and had one of the 32 places of waits.
#[test]
fn a_wait_for_a_state_of_a_fork_ends_with_the_fork() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let broker = Broker::builder().memory().start().await.expect("a broker in memory");
        let control = broker.control();
        assert_eq!(control.answer("POST", "/forks", b"").await.body["id"], json!(1));
        let body = br#"{ "group": "billing", "state": "Stable", "within_ms": 600000 }"#;
        let mut wait = Box::pin(control.answer("POST", "/forks/1/wait", body));
        assert!(tokio::time::timeout(Duration::ZERO, wait.as_mut()).await.is_err(), "it waits");
        assert_eq!(control.answer("DELETE", "/forks/1", b"").await.status, 200);
        let ended = tokio::time::timeout(PATIENCE, wait).await.expect("it has ended");
        assert_eq!((ended.status, &ended.body["error"]), (409, &json!("the broker has stopped")));
        broker.stop().await;
    });
}

#[test]
fn a_node_of_an_earlier_snapshot_finds_its_port_again() {
    let broker = broker();
    let one = broker.snapshot().expect("in memory");
    broker.add_node(2).expect("a node");
    let (two, servers) = (broker.snapshot().expect("in memory"), broker.bootstrap_servers());
    broker.restore(&one).expect("in memory");
    assert_eq!(broker.bootstrap_servers().split(',').count(), 1);
    broker.restore(&two).expect("in memory");
    assert_eq!(broker.bootstrap_servers(), servers);
}

/// After a restore an added node advertised the port of `advertise`, which is another node's or closed. A fork advertised the address
/// that it listens on, which can be the wildcard.
#[test]
fn added_nodes_and_forks_advertise_the_host_with_their_own_ports() {
    let builder = Broker::builder().memory().advertise("localhost:19092").topic("orders", 1);
    let broker = builder.listen(([0, 0, 0, 0], 0).into()).spawn().expect("a broker in memory");
    broker.add_node(2).expect("a node");
    let servers = broker.bootstrap_servers();
    let (first, added) = servers.split_once(',').expect("two nodes");
    assert_eq!(first, "localhost:19092");
    let port: u16 = added.strip_prefix("localhost:").expect("the host").parse().expect("a port");
    assert!(port != 19_093 && TcpStream::connect(("127.0.0.1", port)).is_ok(), "{added}");
    let snapshot = broker.snapshot().expect("in memory");
    broker.restore(&snapshot).expect("in memory");
    assert_eq!(broker.bootstrap_servers(), servers);
    let fork = broker.fork().expect("in memory");
    let own: Vec<String> = fork.addresses().iter().map(|at| format!("localhost:{}", at.port())).collect();
    assert_eq!(fork.bootstrap_servers(), own.join(","));
}
