//! The effect of properties: each test sets some by name and checks the requests on the wire, or the result.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and clocks")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread, Fault};
use ottla_client::{
    Acks, Client, Config, Connector, Consumer, Error, ErrorCode, Polled, ProduceErrorKind, Producer, Record,
    StartAt, TcpConnector, TopicConfig, TopicPartition,
};
use ottla_protocol::ApiKey;
use ottla_protocol::messages::fetch::FetchRequest;
use ottla_protocol::messages::join_group::JoinGroupRequest;
use ottla_protocol::messages::metadata::MetadataRequest;
use ottla_protocol::messages::produce::ProduceRequest;
use tokio::io::AsyncWriteExt;
use tokio::runtime::Runtime;

use crate::recorder::{PATIENCE, Recorder, wait_until};

/// Long enough for an unwanted event to occur.
const A_WHILE: Duration = Duration::from_millis(300);

fn broker(partitions: i32) -> BrokerThread {
    Broker::builder().memory().topic("orders", partitions).spawn().expect("a broker in memory")
}

fn client(servers: &str, recorder: &Recorder, properties: &[(&str, &str)]) -> Client {
    let mut config = Config::new(servers);
    config.set_all(properties.iter().copied()).expect("valid properties");
    Client::with_connector(config, Arc::new(recorder.clone())).expect("a client")
}

/// A client of this broker with these properties, and its recorder.
fn recorded(broker: &BrokerThread, properties: &[(&str, &str)]) -> (Client, Recorder) {
    let recorder = Recorder::default();
    (client(&broker.bootstrap_servers(), &recorder, properties), recorder)
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    Runtime::new().expect("a runtime").block_on(work)
}

fn produce(client: &Client, value: &[u8]) {
    let delivery =
        client.producer().try_enqueue(Record::to("orders").partition(0).value(value)).expect("taken");
    delivery.wait(PATIENCE).expect("in time").expect("written");
}

/// A consumer that reads partition 0 from its beginning.
fn reader(client: &Client) -> Consumer {
    let mut consumer = client.consumer();
    block_on(consumer.assign(&[(TopicPartition::new("orders", 0), StartAt::Beginning)])).expect("assigned");
    consumer
}

/// The first record's value, or the error.
fn first_value(consumer: &mut Consumer, within: Duration) -> Result<Option<Vec<u8>>, Error> {
    let deadline = Instant::now() + within;
    loop {
        match consumer.poll_blocking(deadline.saturating_duration_since(Instant::now()))? {
            Some(Polled::Records(batch)) => {
                let records = batch.to_owned_records()?;
                return Ok(records
                    .first()
                    .and_then(|record| record.value.clone())
                    .map(|value| value.to_vec()));
            }
            Some(_) => {}
            None => return Ok(None),
        }
    }
}

/// The bytes of every batch that was sent.
fn batches(recorder: &Recorder) -> Vec<Vec<u8>> {
    let mut batches = Vec::new();
    for (_, _, request) in recorder.requests::<ProduceRequest>() {
        for partition in request.topic_data.into_iter().flat_map(|topic| topic.partition_data) {
            let records = partition.records.expect("records");
            batches.push(records.to_bytes().expect("in memory").to_vec());
        }
    }
    batches
}

#[test]
fn requests_carry_what_the_properties_say() {
    let broker = broker(1);
    let (client, recorder) = recorded(
        &broker,
        &[
            ("client.id", "till-4"),
            ("allow.auto.create.topics", "false"),
            ("acks", "1"),
            ("request.timeout.ms", "7001"),
            ("compression.codec", "zstd"),
            ("fetch.min.bytes", "3"),
            ("fetch.wait.max.ms", "41"),
            ("fetch.max.bytes", "70000"),
            ("max.partition.fetch.bytes", "50000"),
            ("isolation.level", "read_uncommitted"),
            ("group.id", "billing"),
            ("session.timeout.ms", "11000"),
            ("max.poll.interval.ms", "22000"),
            ("auto.offset.reset", "earliest"),
            ("client.rack", "cellar"),
        ],
    );
    produce(&client, &[b'v'; 1000]);
    let mut consumer = client.consumer();
    block_on(consumer.subscribe(&["orders"])).expect("subscribed");
    assert!(first_value(&mut consumer, PATIENCE).expect("no error").is_some());

    let (_, header, metadata) = recorder.requests::<MetadataRequest>().pop().expect("asked");
    assert_eq!(header.client_id.as_deref(), Some("till-4"));
    assert!(!metadata.allow_auto_topic_creation);
    let (_, _, produce) = recorder.requests::<ProduceRequest>().pop().expect("sent");
    assert_eq!((produce.acks, produce.timeout_ms), (1, 7001));
    // The low bits of the attributes contain the codec.
    assert_eq!(batches(&recorder)[0][22] & 7, 4);
    assert_eq!(recorder.count(ApiKey::InitProducerId), 0, "acks=1 excludes idempotence");
    let (_, _, fetch) = recorder.requests::<FetchRequest>().remove(0);
    assert_eq!(
        (fetch.min_bytes, fetch.max_wait_ms, fetch.max_bytes, fetch.isolation_level),
        (3, 41, 70000, 0)
    );
    assert_eq!(fetch.topics[0].partitions[0].partition_max_bytes, 50000);
    assert_eq!(fetch.rack_id, "cellar");
    let (_, _, join) = recorder.requests::<JoinGroupRequest>().remove(0);
    assert_eq!(
        (join.group_id.as_str(), join.session_timeout_ms, join.rebalance_timeout_ms),
        ("billing", 11000, 22000)
    );

    let (client, recorder) = recorded(&broker, &[("enable.idempotence", "true")]);
    self::produce(&client, b"v");
    assert_eq!(recorder.count(ApiKey::InitProducerId), 1);
    assert_eq!(recorder.requests::<ProduceRequest>()[0].2.acks, -1);
}

#[test]
fn bootstrap_servers_are_tried_in_turn() {
    let broker = broker(1);
    let dead = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let servers = format!("{dead}, {}", broker.bootstrap_servers());
    let client = client(&servers, &Recorder::default(), &[]);
    assert!(!block_on(client.admin().describe_cluster()).expect("one answers").brokers.is_empty());
}

#[test]
fn a_response_above_receive_message_max_bytes_closes_the_connection() {
    let broker = broker(1);
    produce(&recorded(&broker, &[]).0, &vec![b'v'; 20_000]);
    for (max, comes) in [("30000", true), ("10000", false)] {
        let (client, _) =
            recorded(&broker, &[("fetch.max.bytes", "1000"), ("receive.message.max.bytes", max)]);
        let patience = if comes { PATIENCE } else { A_WHILE };
        let value = first_value(&mut reader(&client), patience);
        assert_eq!(matches!(value, Ok(Some(_))), comes, "{max}: {value:?}");
    }
}

#[test]
fn requests_in_flight_stay_within_max_in_flight() {
    for (max, together) in [("1", 1), ("3", 3)] {
        let broker = broker(1);
        let (client, recorder) =
            recorded(&broker, &[("max.in.flight", max), ("linger.ms", "0"), ("batch.size", "1000")]);
        produce(&client, b"first");
        broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Delay(Duration::from_secs(1)));
        let producer = client.producer();
        let deliveries: Vec<_> = (0..5)
            .map(|_| {
                let record = Record::to("orders").partition(0).value(&[b'v'; 900]);
                std::thread::sleep(Duration::from_millis(20));
                producer.try_enqueue(record).expect("taken")
            })
            .collect();
        recorder.wait_for(ApiKey::Produce, 1 + together);
        std::thread::sleep(A_WHILE);
        assert_eq!(recorder.count(ApiKey::Produce), 1 + together, "max.in.flight={max}");
        for delivery in deliveries {
            delivery.wait(PATIENCE).expect("in time").expect("written");
        }
    }
}

/// While the socket accepts no bytes, one request is being written and a limited number waits. Later records collect
/// in the next batch.
#[test]
fn a_new_request_waits_while_enough_are_outstanding() {
    for (threshold, requests) in [("1", 3), ("3", 5)] {
        let broker = broker(1);
        let (client, recorder) = recorded(
            &broker,
            &[
                ("queue.buffering.backpressure.threshold", threshold),
                ("linger.ms", "0"),
                ("enable.idempotence", "false"),
                ("max.in.flight", "100"),
            ],
        );
        produce(&client, b"the first finds its way");
        recorder.shut();
        let before = recorder.count(ApiKey::Produce);
        let producer = client.producer();
        let deliveries: Vec<_> = (0..8)
            .map(|_| {
                let record = Record::to("orders").partition(0).value("v");
                let delivery = producer.try_enqueue(record).expect("taken");
                // Long enough for a further request, if it is permitted.
                std::thread::sleep(A_WHILE / 4);
                delivery
            })
            .collect();
        recorder.open();
        for delivery in deliveries {
            delivery.wait(PATIENCE).expect("in time").expect("written");
        }
        assert_eq!(recorder.count(ApiKey::Produce) - before, requests, "threshold {threshold}");
    }
}

#[test]
fn an_unanswered_request_ends_after_socket_timeout() {
    let broker = broker(1);
    let (client, recorder) = recorded(&broker, &[("socket.timeout.ms", "200")]);
    produce(&client, b"first");
    broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Delay(PATIENCE * 2));
    produce(&client, b"second");
    let times: Vec<_> = recorder.requests::<ProduceRequest>().iter().map(|(at, ..)| *at).collect();
    assert_eq!(times.len(), 3, "the unanswered request and its repetition");
    assert!(times[2] - times[1] >= Duration::from_millis(200));
}

#[test]
fn socket_buffers_have_the_size_that_was_asked_for() {
    /// The number of bytes that a connection accepts in this direction while its peer reads nothing.
    async fn room(connector: TcpConnector, peer_writes: bool) -> usize {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let (ours, theirs) = tokio::join!(connector.connect("127.0.0.1", port), listener.accept());
        let (mut ours, (mut theirs, _)) = (ours.expect("connected"), theirs.expect("accepted"));
        let mut sent = 0;
        loop {
            let write = async {
                if peer_writes { theirs.write(&[0; 4096]).await } else { ours.write(&[0; 4096]).await }
            };
            match tokio::time::timeout(Duration::from_millis(100), write).await {
                Ok(count) => sent += count.expect("written"),
                Err(_) => return sent,
            }
        }
    }
    block_on(async {
        let mut config = Config::new("localhost");
        config.socket_send_buffer_bytes = 4096;
        let small = TcpConnector::new(&config);
        assert!(room(small, false).await < room(TcpConnector::default(), false).await);
        config = Config::new("localhost");
        config.socket_receive_buffer_bytes = 4096;
        let small = TcpConnector::new(&config);
        assert!(room(small, true).await < room(TcpConnector::default(), true).await);
    });
}

#[test]
fn a_connection_that_is_not_set_up_in_time_is_given_up() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let servers = silent.local_addr().expect("bound").to_string();
    let recorder = Recorder::default();
    let client = client(&servers, &recorder, &[("socket.connection.setup.timeout.ms", "1000")]);
    let _waits = client.producer().try_enqueue(Record::to("orders").value("v")).expect("taken");
    wait_until("second attempt", || recorder.look(|seen| seen.attempts.len() >= 2));
    let gap = recorder.look(|seen| seen.attempts[1].0 - seen.attempts[0].0);
    assert!(gap >= Duration::from_secs(1), "{gap:?}");
}

/// The pauses between attempts to reach a leader that refuses connections.
fn reconnects(properties: &[(&str, &str)], count: usize) -> Vec<Duration> {
    let broker = Broker::builder().memory().nodes(2).topic("orders", 1).spawn().expect("a broker in memory");
    assert!(broker.cluster().set_leader("orders", 0, 2), "node 2 leads");
    let [open, closed] = [0, 1].map(|node: usize| broker.addresses()[node]);
    let recorder = Recorder { refused_port: Some(closed.port()), ..Recorder::default() };
    let client = client(&open.to_string(), &recorder, properties);
    let _waits = client.producer().try_enqueue(Record::to("orders").value("v")).expect("taken");
    let attempts = || {
        recorder.look(|seen| {
            seen.attempts
                .iter()
                .filter(|(_, port)| *port == closed.port())
                .map(|(at, _)| *at)
                .collect::<Vec<_>>()
        })
    };
    wait_until("attempts to reconnect", || attempts().len() > count);
    attempts().windows(2).map(|pair| pair[1] - pair[0]).take(count).collect()
}

#[test]
fn reconnecting_backs_off_between_its_bounds() {
    let gaps = reconnects(&[("reconnect.backoff.ms", "100"), ("reconnect.backoff.max.ms", "400")], 4);
    for (gap, base) in gaps.iter().zip([100, 200, 400, 400]) {
        assert!(*gap >= Duration::from_millis(base / 2), "{gaps:?}");
    }
}

#[test]
fn the_older_reconnect_backoff_does_not_grow() {
    let gaps = reconnects(&[("reconnect.backoff.jitter.ms", "50")], 9);
    assert!(gaps.iter().all(|gap| *gap >= Duration::from_millis(25)), "{gaps:?}");
    // With doubling, nine pauses of 50 ms would take at least 12 s.
    assert!(gaps.iter().sum::<Duration>() < Duration::from_secs(10), "{gaps:?}");
}

#[test]
fn retries_back_off_between_their_bounds() {
    let broker = broker(1);
    let (client, recorder) =
        recorded(&broker, &[("retry.backoff.ms", "100"), ("retry.backoff.max.ms", "200")]);
    produce(&client, b"first");
    broker.cluster().intercept(ApiKey::Produce, None, 3, Fault::Fail(ErrorCode::NotEnoughReplicas));
    produce(&client, b"second");
    let times: Vec<_> = recorder.requests::<ProduceRequest>().iter().map(|(at, ..)| *at).collect();
    assert_eq!(times.len(), 5);
    // Within half of 100, 200 and 200 ms.
    for (gap, base) in times[1..].windows(2).map(|pair| pair[1] - pair[0]).zip([100, 200, 200]) {
        assert!(gap >= Duration::from_millis(base / 2), "{gap:?} is below half of {base} ms");
    }
}

#[test]
fn metadata_is_asked_for_again_when_it_is_old() {
    let broker = broker(1);
    for name in ["metadata.max.age.ms", "topic.metadata.refresh.interval.ms"] {
        let (client, recorder) = recorded(&broker, &[(name, "20")]);
        produce(&client, b"v");
        recorder.wait_for(ApiKey::Metadata, 10);
    }
    let (client, recorder) = recorded(&broker, &[]);
    produce(&client, b"v");
    std::thread::sleep(A_WHILE);
    assert!(recorder.count(ApiKey::Metadata) < 10);
}

#[test]
fn all_topics_are_asked_for_when_sparse_is_off() {
    let broker = broker(1);
    for (sparse, names) in [("true", Some(vec!["orders".to_owned()])), ("false", None)] {
        let (client, recorder) = recorded(&broker, &[("topic.metadata.refresh.sparse", sparse)]);
        produce(&client, b"v");
        let (_, _, request) = recorder.requests::<MetadataRequest>().pop().expect("asked");
        let asked = request.topics.map(|topics| topics.into_iter().filter_map(|topic| topic.name).collect());
        assert_eq!(asked, names, "topic.metadata.refresh.sparse={sparse}");
    }
}

#[test]
fn a_topic_without_a_leader_is_asked_for_at_the_fast_interval() {
    let broker = Broker::builder().memory().spawn().expect("a broker in memory");
    for (interval, often) in [("10", true), ("60000", false)] {
        let properties =
            [("topic.metadata.refresh.fast.interval.ms", interval), ("allow.auto.create.topics", "false")];
        let (client, recorder) = recorded(&broker, &properties);
        let _waits = client.producer().try_enqueue(Record::to("nowhere").value("v")).expect("taken");
        if often {
            recorder.wait_for(ApiKey::Metadata, 10);
        } else {
            std::thread::sleep(A_WHILE);
            assert!(recorder.count(ApiKey::Metadata) < 10);
        }
    }
}

#[test]
fn a_set_linger_makes_batches_wait() {
    let broker = broker(1);
    let (client, recorder) = recorded(&broker, &[("linger.ms", "250")]);
    let producer = client.producer();
    let started = Instant::now();
    let deliveries: Vec<_> = (0..3)
        .map(|_| producer.try_enqueue(Record::to("orders").partition(0).value("v")).expect("taken"))
        .collect();
    for delivery in deliveries {
        delivery.wait(PATIENCE).expect("in time").expect("written");
    }
    assert!(started.elapsed() >= Duration::from_millis(250));
    assert_eq!(recorder.count(ApiKey::Produce), 1);
}

#[test]
fn batches_end_at_batch_size() {
    let broker = broker(1);
    let (client, recorder) = recorded(&broker, &[("batch.size", "2000"), ("linger.ms", "50")]);
    let producer = client.producer();
    for _ in 0..100 {
        let record = Record::to("orders").partition(0).value(&[b'v'; 100]);
        drop(producer.try_enqueue(record).expect("taken"));
    }
    producer.flush_blocking(PATIENCE).expect("written");
    let batches = batches(&recorder);
    assert!(batches.len() >= 5, "{} batches", batches.len());
    assert!(batches.iter().all(|batch| batch.len() <= 2000), "a batch is larger");
}

#[test]
fn batches_end_at_message_max_bytes() {
    let broker = broker(1);
    let (client, recorder) = recorded(&broker, &[("message.max.bytes", "2000"), ("linger.ms", "50")]);
    let producer = client.producer();
    for _ in 0..100 {
        let record = Record::to("orders").partition(0).value(&[b'v'; 100]);
        drop(producer.try_enqueue(record).expect("taken"));
    }
    producer.flush_blocking(PATIENCE).expect("written");
    let batches = batches(&recorder);
    assert!(batches.len() >= 5, "{} batches", batches.len());
    assert!(batches.iter().all(|batch| batch.len() <= 2000), "a batch is larger");
}

#[test]
fn requests_end_at_max_request_size() {
    let broker = broker(10);
    let properties = [("batch.size", "1000"), ("max.request.size", "3000"), ("linger.ms", "50")];
    let (client, recorder) = recorded(&broker, &properties);
    let producer = client.producer();
    for partition in 0..10 {
        let record = Record::to("orders").partition(partition).value(&[b'v'; 800]);
        drop(producer.try_enqueue(record).expect("taken"));
    }
    producer.flush_blocking(PATIENCE).expect("written");
    let requests = recorder.requests::<ProduceRequest>();
    assert!(requests.len() >= 4, "{} requests", requests.len());
    for (_, _, request) in requests {
        let partitions = request.topic_data.iter().flat_map(|topic| &topic.partition_data);
        let bytes: usize = partitions.map(|it| it.records.as_ref().expect("records").len()).sum();
        assert!(bytes <= 3000, "{bytes} bytes");
    }
}

#[test]
fn the_queue_refuses_what_exceeds_buffer_memory() {
    let dead = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    for (name, value) in [("buffer.memory", "102400"), ("queue.buffering.max.kbytes", "100")] {
        let properties = [(name, value), ("batch.size", "10000")];
        let producer = client(&dead.to_string(), &Recorder::default(), &properties).producer();
        let mut taken = 0;
        let refused = loop {
            match producer.try_enqueue(Record::to("orders").partition(0).value(&[b'v'; 1000])) {
                Ok(_) => taken += 1,
                Err(error) => break error,
            }
            assert!(taken <= 102, "{taken} kB of 100 were taken");
        };
        assert!(taken >= 50, "{name}: only {taken} kB of 100 were taken");
        let text = format!("{refused:?}");
        assert!(text.contains("QueueFull"), "{text}");
    }
}

#[test]
fn what_is_fetched_ahead_stays_within_its_limit() {
    let broker = broker(1);
    let (filler, _) = recorded(&broker, &[]);
    for _ in 0..100 {
        produce(&filler, &[b'v'; 10_000]);
    }
    for (kib, most) in [("50", 200_000), ("65536", usize::MAX)] {
        let ahead = [
            ("queued.max.messages.kbytes", kib),
            ("queued.min.messages", "100000"),
            ("max.partition.fetch.bytes", "20000"),
        ];
        let (client, recorder) = recorded(&broker, &ahead);
        let _unpolled = reader(&client);
        if most == usize::MAX {
            wait_until("everything fetched ahead", || recorder.look(|seen| seen.read_bytes >= 1_000_000));
        } else {
            std::thread::sleep(A_WHILE);
            let bytes = recorder.look(|seen| seen.read_bytes);
            assert!((20_000..most).contains(&bytes), "{bytes}");
        }
    }
}

#[test]
fn a_damaged_batch_is_found_unless_check_crcs_is_off() {
    let broker = broker(1);
    produce(&recorded(&broker, &[]).0, b"precious cargo");
    for check in ["true", "false"] {
        let recorder = Recorder { damaged: Some(b"precious"), ..Recorder::default() };
        let client = client(&broker.bootstrap_servers(), &recorder, &[("check.crcs", check)]);
        match (check, first_value(&mut reader(&client), PATIENCE)) {
            ("true", Err(Error::Corrupt { .. })) => {}
            ("false", Ok(Some(value))) => assert_eq!(value, b"qrecious cargo"),
            (_, other) => panic!("check.crcs={check}: {other:?}"),
        }
    }
}

#[test]
fn a_batch_that_inflates_beyond_the_cap_is_refused() {
    let broker = broker(1);
    produce(&recorded(&broker, &[("compression.codec", "gzip")]).0, &vec![b'v'; 100_000]);
    for (cap, comes) in [("200000", true), ("50000", false)] {
        let (client, _) = recorded(&broker, &[("decompressed.max.bytes", cap)]);
        match first_value(&mut reader(&client), PATIENCE) {
            Ok(Some(_)) if comes => {}
            Err(Error::Corrupt { reason, .. }) if !comes => assert!(reason.contains("50000"), "{reason}"),
            other => panic!("decompressed.max.bytes={cap}: {other:?}"),
        }
    }
}

#[test]
fn a_higher_compression_level_makes_smaller_batches() {
    let broker = broker(1);
    let value: Vec<u8> =
        (0..20_000_u32).flat_map(|i| format!("{{\"n\":{}}}", i * i % 7919).into_bytes()).collect();
    let [low, high] = ["1", "9"].map(|level| {
        let (client, recorder) =
            recorded(&broker, &[("compression.codec", "gzip"), ("compression.level", level)]);
        produce(&client, &value);
        batches(&recorder)[0].len()
    });
    assert!(high < low, "level 9: {high} bytes, level 1: {low}");
}

#[test]
fn members_are_heard_of_at_the_heartbeat_interval() {
    let broker = broker(1);
    let (client, recorder) = recorded(&broker, &[("group.id", "billing"), ("heartbeat.interval.ms", "20")]);
    let mut consumer = client.consumer();
    block_on(consumer.subscribe(&["orders"])).expect("subscribed");
    recorder.wait_for(ApiKey::Heartbeat, 10);
}

#[test]
fn offsets_are_committed_at_the_interval_or_not_at_all() {
    let broker = broker(1);
    for (enabled, interval, while_open, at_the_end) in
        [("true", "20", true, true), ("true", "0", false, true), ("false", "20", false, false)]
    {
        let (client, recorder) = recorded(
            &broker,
            &[
                ("group.id", &format!("{enabled}-{interval}")),
                ("auto.offset.reset", "earliest"),
                ("enable.auto.commit", enabled),
                ("auto.commit.interval.ms", interval),
            ],
        );
        produce(&client, b"v");
        let mut consumer = client.consumer();
        block_on(consumer.subscribe(&["orders"])).expect("subscribed");
        assert!(first_value(&mut consumer, PATIENCE).expect("no error").is_some());
        // The next poll marks the first record as processed.
        consumer.poll_blocking(Duration::from_millis(10)).expect("no error");
        if while_open {
            recorder.wait_for(ApiKey::OffsetCommit, 1);
        } else {
            std::thread::sleep(A_WHILE);
            assert_eq!(recorder.count(ApiKey::OffsetCommit), 0, "{enabled} {interval}");
        }
        consumer.close_blocking(PATIENCE).expect("closed");
        assert_eq!(recorder.count(ApiKey::OffsetCommit) > 0, at_the_end, "{enabled} {interval}");
    }
}

#[test]
fn auto_offset_reset_decides_where_reading_starts() {
    let broker = broker(1);
    let (filler, _) = recorded(&broker, &[]);
    produce(&filler, b"old");
    for reset in ["earliest", "latest", "error", "by_duration:PT1H"] {
        let group = reset.replace(':', "-");
        let (client, recorder) = recorded(&broker, &[("group.id", &group), ("auto.offset.reset", reset)]);
        let mut consumer = client.consumer();
        block_on(consumer.subscribe(&["orders"])).expect("subscribed");
        let first = match reset {
            "latest" => {
                // The partition is assigned and its position looked up before more records exist.
                let deadline = Instant::now() + PATIENCE;
                while recorder.count(ApiKey::Fetch) == 0 {
                    consumer.poll_blocking(Duration::from_millis(10)).expect("no error");
                    assert!(Instant::now() < deadline, "nothing is fetched");
                }
                produce(&filler, b"new");
                first_value(&mut consumer, PATIENCE)
            }
            _ => first_value(&mut consumer, PATIENCE),
        };
        match (reset, first) {
            ("earliest" | "by_duration:PT1H", Ok(Some(value))) => assert_eq!(value, b"old"),
            ("latest", Ok(Some(value))) => assert_eq!(value, b"new"),
            ("error", Err(error)) => assert!(error.to_string().contains("orders"), "{error}"),
            (_, other) => panic!("auto.offset.reset={reset}: {other:?}"),
        }
    }
}

/// A Produce request has one `acks` and one timeout: topics with different values get separate requests.
#[test]
fn a_producer_honours_what_one_topic_has_otherwise() {
    let broker = Broker::builder()
        .memory()
        .topic("orders", 1)
        .topic("clicks", 1)
        .topic("views", 1)
        .topic("late", 1)
        .spawn()
        .expect("a broker in memory");
    let (client, recorder) = recorded(
        &broker,
        &[("enable.idempotence", "false"), ("linger.ms", "50"), ("compression.codec", "lz4")],
    );
    let producer = client.producer();
    let topic = |name: &str, settings: &[(&str, &str)]| {
        let mut own = TopicConfig::default();
        for (name, value) in settings {
            own.set(name, value).expect("a topic's property");
        }
        producer.topic_with(name, &own)
    };
    let clicks =
        topic("clicks", &[("acks", "1"), ("request.timeout.ms", "1234"), ("compression.codec", "zstd")])
            .expect("no contradiction");
    let views = topic("views", &[("request.required.acks", "0"), ("partitioner", "fnv1a")]).expect("none");
    let handles = [clicks, views, producer.topic("orders")];
    let value = "v".repeat(500);
    let deliveries: Vec<_> = handles
        .iter()
        .map(|topic| topic.try_enqueue(Record::to("").key("k").value(&value)).expect("taken"))
        .collect();
    let offsets: Vec<Option<i64>> = deliveries
        .iter()
        .map(|delivery| delivery.wait(PATIENCE).expect("in time").expect("written").offset)
        .collect();
    assert_eq!(offsets, [Some(0), None, Some(0)], "acks=0 returns no offset");
    let mut sent: Vec<(String, i16, i32, u8)> = Vec::new();
    for (_, _, request) in recorder.requests::<ProduceRequest>() {
        assert_eq!(request.topic_data.len(), 1, "each topic has terms of its own");
        for topic in request.topic_data {
            let records = topic.partition_data[0].records.as_ref().expect("records").to_bytes();
            let codec = records.expect("in memory")[22] & 7;
            sent.push((topic.name, request.acks, request.timeout_ms, codec));
        }
    }
    sent.sort();
    assert_eq!(
        sent,
        [
            ("clicks".to_owned(), 1, 1234, 4),
            ("orders".to_owned(), -1, 30_000, 3),
            ("views".to_owned(), 0, 30_000, 3)
        ]
    );

    // The topic's timeout elapses long before the client's.
    broker.cluster().intercept(ApiKey::Produce, None, u32::MAX, Fault::Fail(ErrorCode::NotEnoughReplicas));
    let late = topic("late", &[("message.timeout.ms", "200")]).expect("no contradiction");
    let delivery = late.try_enqueue(Record::to("").value("v")).expect("taken");
    let error = delivery.wait(PATIENCE).expect("in time").expect_err("its time is over");
    assert!(matches!(error.kind, ProduceErrorKind::TimedOut { timeout_ms: 200, .. }), "{error}");

    let error = topic("late", &[("acks", "1")]).expect_err("it is in use").to_string();
    assert!(error.contains("topic `late`") && error.contains("in use"), "{error}");
    let error =
        topic("new", &[("compression.codec", "gzip"), ("compression.level", "22")]).expect_err("no level");
    assert!(error.to_string().contains("compression.level=22"), "{error}");
    let idempotent = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
    let mut own = TopicConfig::default();
    own.acks = Some(Acks::Leader);
    let error = idempotent.topic_with("orders", &own).expect_err("idempotence needs all").to_string();
    assert!(
        error.contains("topic `orders`") && error.contains("enable.idempotence=true needs acks=all"),
        "{error}"
    );
}
