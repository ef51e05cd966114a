//! Hours of Kafka's time-outs on virtual time: each test takes a part of a second.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it measures real time")]

#[allow(dead_code, reason = "the example has a `main`")]
#[path = "../examples/virtual_time.rs"]
mod example;

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_broker::{AddNodeError, AnsweredRequest, ApiKey, Broker, RequestObserver, TopicConfig};
use ottla_client::{
    Config, Connector, Consumer, Error, GroupProtocol, OffsetReset, Polled, Record, StartAt, TopicPartition,
};
use ottla_testkit::{EPOCH_MS, VirtualBroker, VirtualClient, VirtualTime, run};
use tokio::time::Instant as VirtualInstant;

const HOUR: Duration = Duration::from_secs(3600);
/// Real time for a test, which takes some tenths of a second on an idle machine.
const REAL_TIME_MAX: Duration = Duration::from_secs(30);

async fn broker(time: &VirtualTime) -> VirtualBroker {
    time.start_broker(Broker::builder().topic("orders", 2)).await.expect("a new broker")
}

fn client(time: &VirtualTime, broker: &VirtualBroker) -> VirtualClient {
    time.client(Config::new(broker.bootstrap_servers())).expect("a valid configuration")
}

/// Writes a record and returns its offset.
async fn write(client: &VirtualClient, value: &str) -> Result<Option<i64>, ottla_client::ProduceError> {
    let delivery = client.producer().enqueue(Record::to("orders").partition(0).value(value)).await;
    delivery.expect("a queue with room").await.map(|written| written.offset)
}

/// Reads all values of partition 0.
async fn read(client: &VirtualClient, count: usize) -> Vec<(String, i64)> {
    let mut consumer = client.consumer();
    consumer.assign(&[(TopicPartition::new("orders", 0), StartAt::Beginning)]).await.expect("a partition");
    let mut values = Vec::new();
    while values.len() < count {
        if let Ok(Some(Polled::Records(batch))) = consumer.poll(Duration::from_secs(1)).await {
            let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
            let records = batch.to_owned_records().expect("sound records");
            let texts = records
                .iter()
                .map(|record| (text(record.value.as_deref().unwrap_or_default()), record.timestamp_ms));
            values.extend(texts);
        }
    }
    values
}

#[test]
fn a_dead_members_partitions_move_after_its_session_timeout_in_little_real_time() {
    let started = Instant::now();
    let trace = example::story(7);
    assert!(started.elapsed() < REAL_TIME_MAX, "{:?}", started.elapsed());
    assert!(
        trace.iter().any(|line| line.contains("two: Assigned") && line.contains("partition: 0")),
        "{trace:#?}"
    );
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another_one() {
    let first = example::story(11);
    assert_eq!(first, example::story(11));
    assert_ne!(first, example::story(12), "latencies depend on the seed");
}

#[test]
fn records_expire_after_a_week_of_virtual_time() {
    let started = Instant::now();
    run(1, async |time| {
        let mut config = TopicConfig::default();
        config.set("retention.ms", "604800000").expect("a value in range");
        let builder = Broker::builder().topic_with("orders", 1, config);
        let broker = time.start_broker(builder).await.expect("a new broker");
        let client = client(&time, &broker);
        write(&client, "old").await.expect("a broker that works");
        tokio::time::sleep(HOUR * 24 * 6).await;
        assert_eq!(broker.cluster().offsets_of("orders", 0), Some((0, 1)), "kept for a week");
        tokio::time::sleep(HOUR * 24 * 2).await;
        assert_eq!(broker.cluster().offsets_of("orders", 0), Some((1, 1)), "expired");
        broker.stop().await;
    });
    assert!(started.elapsed() < REAL_TIME_MAX, "{:?}", started.elapsed());
}

#[test]
fn a_jump_of_the_wall_clock_changes_timestamps_and_no_timer() {
    run(2, async |time| {
        let broker = broker(&time).await;
        let client = client(&time, &broker);
        assert_eq!(time.now_ms(), EPOCH_MS);
        write(&client, "before").await.expect("a broker that works");
        time.wall_clock().jump_ms(-3_600_000);
        write(&client, "after").await.expect("a broker that works");
        let ages: Vec<i64> = read(&client, 2).await.iter().map(|(_, at_ms)| at_ms - EPOCH_MS).collect();
        assert!((0..100).contains(&ages[0]), "{ages:?}");
        assert!((-3_600_000..-3_599_000).contains(&ages[1]), "{ages:?}");
        assert!(time.elapsed() < Duration::from_secs(10), "{:?}", time.elapsed());
        broker.stop().await;
    });
}

/// A wrong answer of a time server deleted all that was older than a week, for good.
#[test]
fn a_wall_clock_that_is_wrong_for_half_an_hour_deletes_nothing() {
    run(8, async |time| {
        const MONTH_MS: i64 = 30 * 24 * 3_600_000;
        let mut config = TopicConfig::default();
        config.set("retention.ms", "604800000").expect("a value in range");
        let builder = Broker::builder().topic_with("orders", 1, config);
        // Each check comes several times within half an hour.
        let check = Duration::from_secs(300);
        let broker = time.start_broker(builder.configure(|config| {
            (config.retention_check, config.offsets_retention_check) = (check, check);
            config.transactional_id_expiration_check = check;
        }));
        let broker = broker.await.expect("a new broker");
        let at = TopicPartition::new("orders", 0);
        let mut config = Config::new(broker.bootstrap_servers());
        config.group_id = Some("billing".into());
        let reader = time.client(config).expect("a valid configuration");
        reader.consumer().commit_offsets(&[(at, 1_i64.into())]).await.expect("committed");
        let mut config = Config::new(broker.bootstrap_servers());
        config.transactional_id = Some("till-1".into());
        let till = time.client(config).expect("a valid configuration");
        let producer = till.producer();
        producer.init_transactions(HOUR).await.expect("initialized");
        let pay = async || {
            producer.begin_transaction().expect("ready");
            write(&till, "paid").await.expect("written");
            producer.commit_transaction(HOUR).await
        };
        pay().await.expect("committed");
        let found = || {
            let (start, _) = broker.cluster().offsets_of("orders", 0).expect("a partition");
            (start, broker.cluster().committed_offset("billing", "orders", 0))
        };

        time.wall_clock().jump_ms(MONTH_MS);
        tokio::time::sleep(HOUR / 2).await;
        time.wall_clock().jump_ms(-MONTH_MS);
        tokio::time::sleep(HOUR / 2).await;
        assert_eq!(found(), (0, Some(1)));
        pay().await.expect("the coordinator knows the id");

        time.wall_clock().jump_ms(MONTH_MS);
        tokio::time::sleep(HOUR * 2).await;
        let (start, committed) = found();
        assert!(start > 0 && committed.is_none(), "a jump that lasts counts: {start}, {committed:?}");
        broker.stop().await;
    });
}

#[test]
fn a_producer_retries_through_an_outage_of_ten_minutes_and_gives_up_after_its_timeout() {
    run(3, async |time| {
        let broker = broker(&time).await;
        let mut config = Config::new(broker.bootstrap_servers());
        config.delivery_timeout = Duration::from_secs(900);
        let patient = time.client(config).expect("a valid configuration");
        let hasty = client(&time, &broker);
        for client in [&patient, &hasty] {
            write(client, "first").await.expect("a broker that works");
        }
        broker.cluster().set_reachable(1, false);
        time.network().cut("node-1", 1000);
        let (outage, began) = (Duration::from_secs(600), VirtualInstant::now());
        let restore = async {
            tokio::time::sleep(outage).await;
            broker.cluster().set_reachable(1, true);
        };
        let hasty = async { (write(&hasty, "lost").await, began.elapsed()) };
        let patient = async { (write(&patient, "late").await, began.elapsed()) };
        let ((), (lost, gave_up), (late, delivered)) = tokio::join!(restore, hasty, patient);
        assert!(lost.is_err(), "{lost:?}");
        // The default of delivery.timeout.ms is 2 minutes.
        assert!(gave_up >= Duration::from_secs(120) && gave_up < Duration::from_secs(130), "{gave_up:?}");
        assert_eq!(late.expect("delivered"), Some(2));
        assert!(delivered >= outage && delivered < outage + Duration::from_secs(30), "{delivered:?}");
        broker.stop().await;
    });
}

/// The host accepted connections and closed them: no client saw a broker that is gone.
#[test]
fn a_node_that_is_stopped_or_cut_off_refuses_connections() {
    run(23, async |time| {
        let broker = time.start_broker(Broker::builder().nodes(2)).await.expect("a new broker");
        let cluster = broker.cluster();
        let connect = async |host: &'static str| {
            let connected = time.network().connect(host, 9092).await;
            connected.map(drop).map_err(|error| error.kind())
        };
        let stop = |on| if on { cluster.take_up(1) } else { cluster.take_down(1) };
        let cut_off = |on| cluster.set_reachable(1, on);
        for turn in [&stop as &dyn Fn(bool) -> bool, &cut_off] {
            assert_eq!(connect("node-1").await, Ok(()));
            assert!(turn(false));
            assert_eq!(connect("node-1").await, Err(ErrorKind::ConnectionRefused));
            assert!(!time.network().is_listening("node-1") && time.network().is_listening("node-2"));
            assert_eq!(connect("node-2").await, Ok(()));
            assert!(turn(true) && time.network().is_listening("node-1"));
        }
        let client = client(&time, &broker);
        broker.cluster().add_topic("orders", 1).expect("a new topic");
        assert_eq!(write(&client, "v").await.expect("a broker that works"), Some(0));
        broker.stop().await;
    });
}

/// A test on virtual time had the nodes of its beginning.
#[test]
fn nodes_are_added_removed_and_added_again_on_virtual_time() {
    run(24, async |time| {
        let mut broker = broker(&time).await;
        let client = client(&time, &broker);
        assert_eq!(write(&client, "by the first").await.expect("a broker that works"), Some(0));
        broker.add_node(2).await.expect("a new node");
        assert_eq!(broker.add_node(2).await, Err(AddNodeError::Exists(2)));
        assert_eq!(broker.bootstrap_servers(), "node-1:9092,node-2:9092");
        for (round, offset) in [1, 3].into_iter().enumerate() {
            assert!(broker.cluster().set_leader("orders", 0, 2));
            assert_eq!(write(&client, "by the second").await.expect("it is served"), Some(offset));
            assert!(broker.cluster().decommission(2));
            assert!(!time.network().is_listening("node-2"));
            assert_eq!(write(&client, "by the first").await.expect("it leads again"), Some(offset + 1));
            if round == 0 {
                broker.add_node(2).await.expect("it was removed");
            }
        }
        let snapshot = broker.snapshot().expect("a broker in memory");
        broker.add_node(7).await.expect("a new node");
        broker.restore(&snapshot).await.expect("a sound snapshot");
        assert_eq!(broker.bootstrap_servers(), "node-1:9092");
        assert_eq!(broker.cluster().nodes(), [1]);
        broker.stop().await;
    });
}

/// The hosts of the new broker were closed at the end of the old one, and no client found it.
#[test]
fn a_broker_that_starts_while_the_old_one_stops_keeps_its_hosts() {
    run(25, async |time| {
        let old = broker(&time).await;
        let client = client(&time, &old);
        let mut stops = Box::pin(old.stop());
        // Its hosts are closed from its first step on, and its logs later.
        let _ended = tokio::time::timeout(Duration::ZERO, stops.as_mut()).await;
        let mut new = None;
        while new.is_none() {
            if !time.network().is_listening("node-1") {
                new = Some(broker(&time).await);
            }
            tokio::task::yield_now().await;
        }
        let new = new.expect("it has started");
        stops.await;
        assert!(time.network().is_listening("node-1"));
        assert_eq!(write(&client, "v").await.expect("a broker that works"), Some(0));
        new.stop().await;
    });
}

#[test]
fn a_snapshot_is_restored_at_the_same_hosts_and_forked_to_another_network() {
    run(4, async |time| {
        let mut broker = broker(&time).await;
        let first = client(&time, &broker);
        write(&first, "kept").await.expect("a broker that works");
        let snapshot = broker.snapshot().expect("a broker in memory");
        write(&first, "gone").await.expect("a broker that works");
        broker.restore(&snapshot).await.expect("a sound snapshot");

        let other = time.on_another_network();
        let fork = other.start_broker(snapshot.builder()).await.expect("a sound snapshot");
        assert_eq!(write(&client(&other, &fork), "forked").await.expect("a broker that works"), Some(1));
        let client = client(&time, &broker);
        assert_eq!(write(&client, "new").await.expect("a broker that works"), Some(1));
        let values: Vec<String> = read(&client, 2).await.into_iter().map(|(value, _)| value).collect();
        assert_eq!(values, ["kept", "new"]);
        fork.stop().await;
        broker.stop().await;
    });
}

#[test]
fn a_member_of_the_new_protocol_that_dies_is_replaced_too() {
    run(5, async |time| {
        let broker = broker(&time).await;
        let member = |name: &str| {
            let mut config = Config::new(broker.bootstrap_servers());
            config.client_id = name.to_owned();
            config.group_id = Some("billing".to_owned());
            config.group_protocol = GroupProtocol::Consumer;
            config.auto_offset_reset = OffsetReset::Earliest;
            time.client(config).expect("a valid configuration")
        };
        let (one, two) = (member("one"), member("two"));
        let (mut first, mut second) = (one.consumer(), two.consumer());
        for consumer in [&mut first, &mut second] {
            consumer.subscribe(&["orders"]).await.expect("a valid topic");
        }
        let both = async { tokio::join!(until_assigned(&mut first, 1), until_assigned(&mut second, 1)) };
        tokio::time::timeout(Duration::from_secs(60), both).await.expect("one partition each");
        let died = VirtualInstant::now();
        one.crash().await;
        let (polled, committed) = (first.poll(Duration::from_secs(1)).await, first.commit().await);
        assert!(matches!(polled, Ok(None)), "{polled:?}");
        assert!(matches!(committed, Err(Error::Closed)), "{committed:?}");
        tokio::time::timeout(Duration::from_secs(60), until_assigned(&mut second, 2)).await.expect("both");
        let took = died.elapsed();
        // The default of group.consumer.session.timeout.ms is 45 seconds.
        assert!(took > Duration::from_secs(39) && took < Duration::from_secs(52), "{took:?}");
        broker.stop().await;
    });
}

/// Each metadata request of a client named all topics that it had ever used. So a deleted one was created again, by the first request
/// after its deletion, or where brokers do not do that requested once a second.
#[test]
fn a_topic_that_nothing_uses_any_more_is_not_created_again() {
    run(6, async |time| {
        let broker = broker(&time).await;
        let (idle, other) = (client(&time, &broker), client(&time, &broker));
        write(&idle, "before").await.expect("a broker that works");
        tokio::time::sleep(HOUR).await;
        other.admin().delete_topics(&["orders"]).await.expect("deleted");
        broker.cluster().requests(ApiKey::Metadata);
        tokio::time::sleep(HOUR).await;
        assert_eq!(broker.cluster().offsets_of("orders", 0), None, "it is created again");
        let requests = broker.cluster().requests(ApiKey::Metadata);
        assert!(requests < 100, "{requests} requests in an hour");
        assert_eq!(write(&idle, "after").await.expect("a broker that works"), Some(0), "it is used again");
        broker.stop().await;
    });
}

async fn until_assigned(consumer: &mut Consumer, partitions: usize) {
    while consumer.assignment().len() != partitions {
        drop(consumer.poll(Duration::from_millis(500)).await);
    }
}

#[test]
#[should_panic(expected = "a broker of this network is running")]
fn two_brokers_on_one_network_are_refused() {
    run(6, async |time| {
        let _first = broker(&time).await;
        let _second = broker(&time).await;
    });
}

/// An observer that panics in the task of a connection.
#[derive(Debug)]
struct Panicking;

impl RequestObserver for Panicking {
    fn on_answered(&self, _request: AnsweredRequest<'_>) {
        panic!("a deliberate panic");
    }
}

async fn with_a_panic_in_the_broker(time: &VirtualTime) {
    let broker = broker(time).await;
    broker.cluster().observe_requests(Arc::new(Panicking));
    let client = client(time, &broker);
    let written = tokio::time::timeout(Duration::from_secs(5), write(&client, "a")).await;
    assert!(!matches!(written, Ok(Ok(_))), "no request is answered");
    client.crash().await;
    broker.stop().await;
}

/// Tokio catches the panics of tasks, and the run succeeded.
#[test]
fn a_panic_of_a_task_fails_the_run() {
    let in_broker = || run(7, async |time| with_a_panic_in_the_broker(&time).await);
    let in_task = || {
        run(7, async |_| {
            tokio::task::spawn_local(async { panic!("a deliberate panic") });
            tokio::time::sleep(Duration::from_secs(1)).await;
        });
    };
    let text = |failed: Box<dyn std::any::Any + Send>| *failed.downcast::<String>().expect("a text");
    let failed = text(std::panic::catch_unwind(in_broker).expect_err("a task of the broker panicked"));
    assert!(failed.contains("panics of tasks") && failed.contains("a deliberate panic"), "{failed}");
    let failed = text(std::panic::catch_unwind(in_task).expect_err("a task of the test panicked"));
    assert!(failed.starts_with("1 panics of tasks"), "{failed}");
}

#[test]
fn a_test_that_expects_panics_takes_them() {
    let panics = run(7, async |time| {
        with_a_panic_in_the_broker(&time).await;
        time.take_panics()
    });
    assert!(panics.iter().any(|panic| panic.contains("a deliberate panic")), "{panics:?}");
    run(7, async |time| {
        assert_eq!(time.take_panics(), Vec::<String>::new(), "those of earlier runs are gone");
    });
}

/// The hosts of the first broker stayed until its tasks had ended, and the start of the second one panicked.
#[test]
fn after_a_drop_another_broker_starts_at_once() {
    run(7, async |time| {
        let first = broker(&time).await;
        let client = client(&time, &first);
        write(&client, "a").await.expect("written");
        drop(first);
        let second = broker(&time).await;
        let offset = write(&client, "b").await.expect("the client finds the second broker");
        assert_eq!(offset, Some(0), "it is empty");
        second.stop().await;
    });
}
