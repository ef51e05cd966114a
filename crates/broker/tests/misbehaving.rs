//! The broker misbehaves on request, and the real client neither loses nor doubles anything.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it waits")]

use std::io::Read;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ottla_broker::{
    AnsweredRequest, Broker, BrokerThread, Fault, FaultRule, FaultRuleError, RequestObserver,
};
use ottla_client::{Client, Config, Consumer, Polled, Producer, Record, StartAt, TopicPartition};
use ottla_protocol::messages::api_versions::ApiVersionsRequest;
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::metadata::MetadataRequest;
use ottla_protocol::{ApiKey, ErrorCode};
use ottla_wire::Seal;

use crate::common::{Heard, Raw, batch, framed, metadata_of, produce_request};

const PATIENCE: Duration = Duration::from_secs(30);

fn broker(partitions: i32) -> BrokerThread {
    Broker::builder().memory().nodes(2).topic("orders", partitions).spawn().expect("a broker in memory")
}

/// Two nodes that can both lead each of two partitions: one of them takes over when the other one goes down.
fn replicated() -> BrokerThread {
    let builder = Broker::builder().memory().nodes(2).topic("orders", 2);
    builder.configure(|config| config.replication_default = 2).spawn().expect("a broker in memory")
}

fn config(broker: &BrokerThread) -> Config {
    let mut config = Config::new(broker.bootstrap_servers());
    config.retry_backoff = Duration::from_millis(5);
    config.reconnect_backoff = Duration::from_millis(5);
    config
}

/// Sends `count` numbered records, doing `meanwhile(i)` before each, and checks that they stand where they were
/// acknowledged, once each and in order.
fn produce_all(broker: &BrokerThread, count: i32, meanwhile: impl FnMut(i32)) {
    produce_with(broker, config(broker), count, meanwhile);
}

fn produce_with(broker: &BrokerThread, config: Config, count: i32, mut meanwhile: impl FnMut(i32)) {
    let producer = Producer::new(config).expect("a producer");
    let mut deliveries = Vec::new();
    for i in 0..count {
        meanwhile(i);
        let value = format!("{i}");
        let record = Record::to("orders").partition(i % 2).value(&value);
        deliveries.push(producer.enqueue_blocking(record).expect("taken"));
        if i % 10 == 9 {
            // A batch at least for every ten, so that there are many requests to go wrong.
            producer.flush_blocking(PATIENCE).expect("in time");
        }
    }
    for delivery in deliveries {
        delivery.wait(PATIENCE).expect("in time").expect("written");
    }
    let seen = read_all(broker, count as usize);
    for partition in 0..2 {
        let wanted: Vec<String> = (0..count).filter(|i| i % 2 == partition).map(|i| i.to_string()).collect();
        assert_eq!(seen[partition as usize], wanted);
        let end = broker.cluster().offsets_of("orders", partition).expect("a partition").1;
        assert_eq!(end, wanted.len() as i64, "nothing twice");
    }
}

fn read_all(broker: &BrokerThread, count: usize) -> [Vec<String>; 2] {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = Client::new(config(broker)).expect("a client");
    let mut consumer = client.consumer();
    let both = [0, 1].map(|partition| (TopicPartition::new("orders", partition), StartAt::Beginning));
    runtime.block_on(consumer.assign(&both)).expect("assigned");
    let mut seen = [Vec::new(), Vec::new()];
    while seen.iter().map(Vec::len).sum::<usize>() < count {
        match consumer.poll_blocking(PATIENCE).expect("a poll without error") {
            Some(Polled::Records(batch)) => {
                for record in batch.to_owned_records().expect("sound records") {
                    let value = record.value.expect("a value");
                    seen[batch.partition() as usize].push(String::from_utf8_lossy(&value).into_owned());
                }
            }
            Some(_) => {}
            None => panic!("{seen:?} after {PATIENCE:?}"),
        }
    }
    seen
}

#[test]
fn produce_requests_that_fail_wait_or_are_cut_lose_and_double_nothing() {
    let faults = [
        Fault::Fail(ErrorCode::NotLeaderOrFollower),
        Fault::Fail(ErrorCode::RequestTimedOut),
        Fault::Fail(ErrorCode::KafkaStorageError),
        Fault::Fail(ErrorCode::UnknownTopicOrPartition),
        Fault::Delay(Duration::from_millis(30)),
        Fault::Cut,
        Fault::CutAfter,
        Fault::CutAt(0),
        Fault::CutAt(9),
    ];
    for fault in faults {
        let broker = broker(2);
        produce_all(&broker, 200, |i| {
            if i % 40 == 5 {
                broker.cluster().intercept(ApiKey::Produce, None, 2, fault);
            }
        });
    }
}

#[test]
fn every_request_of_a_producer_may_meet_every_fault_once() {
    for api in
        [ApiKey::ApiVersions, ApiKey::Metadata, ApiKey::InitProducerId, ApiKey::ListOffsets, ApiKey::Fetch]
    {
        let faults =
            [Fault::Fail(ErrorCode::NotLeaderOrFollower), Fault::Cut, Fault::CutAfter, Fault::CutAt(11)];
        for fault in faults {
            let broker = broker(2);
            broker.cluster().intercept(api, None, 1, fault);
            produce_all(&broker, 20, |_| {});
        }
    }
}

#[test]
fn requests_without_a_response_are_sent_again_and_double_nothing() {
    for fault in [Fault::Hang, Fault::HangAfter] {
        let broker = broker(2);
        let cluster = broker.cluster();
        let mut impatient = config(&broker);
        impatient.set("socket.timeout.ms", "500").expect("a known property");
        produce_with(&broker, impatient, 20, |i| {
            if i == 5 {
                cluster.intercept(ApiKey::Produce, None, 1, fault);
            }
        });
    }
}

#[test]
fn a_fault_is_only_for_the_requests_that_match_its_rule() {
    let broker = Broker::builder().memory().topic("orders", 1).topic("bills", 1).spawn().expect("a broker");
    let cluster = broker.cluster();
    let producer = |name: &str| {
        let mut config = config(&broker);
        config.set_all([("client.id", name), ("retries", "0")]).expect("known properties");
        Producer::new(config).expect("a producer")
    };
    let (till, office) = (producer("till"), producer("office"));
    let send = |producer: &Producer, topic| {
        let delivery = producer.enqueue_blocking(Record::to(topic).value("v")).expect("taken");
        delivery.wait(PATIENCE).expect("in time")
    };
    let too_large = Fault::Fail(ErrorCode::MessageTooLarge);
    let rule = FaultRule::new(ApiKey::Produce, too_large).client_id("till").topic("bills").times(2);
    let id = cluster.add_fault(rule.clone()).expect("a rule");
    assert_eq!(cluster.faults(), [(id, rule)]);
    send(&till, "orders").expect("another topic");
    send(&office, "bills").expect("another client");
    assert!(send(&till, "bills").is_err());
    assert_eq!(cluster.faults()[0].1.count, 1, "one request is left");
    assert!(cluster.remove_fault(id) && !cluster.remove_fault(id));
    send(&till, "bills").expect("the fault is removed");
}

/// A fetch of a session names only the partitions that it adds.
#[test]
fn a_fault_of_a_topic_meets_the_fetches_of_a_session() {
    let broker = broker(2);
    produce_all(&broker, 20, |_| {});
    let client = Client::new(config(&broker)).expect("a client");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut consumer = client.consumer();
    let start = [(TopicPartition::new("orders", 0), StartAt::Beginning)];
    runtime.block_on(consumer.assign(&start)).expect("assigned");
    while !matches!(consumer.poll_blocking(PATIENCE).expect("a poll"), Some(Polled::Records(_))) {}
    let cluster = broker.cluster();
    let rule =
        |topic| FaultRule::new(ApiKey::Fetch, Fault::Fail(ErrorCode::NotLeaderOrFollower)).topic(topic);
    cluster.add_fault(rule("bills")).expect("a rule");
    cluster.add_fault(rule("orders")).expect("a rule");
    let deadline = Instant::now() + PATIENCE;
    while cluster.faults().len() > 1 {
        assert!(Instant::now() < deadline, "a fetch has the fault");
        let _nothing = consumer.poll_blocking(Duration::from_millis(20)).expect("a retriable error");
    }
    assert_eq!(cluster.faults()[0].1.topic.as_deref(), Some("bills"));
}

#[test]
fn a_rule_that_no_request_can_match_is_refused() {
    let broker = broker(1);
    let cluster = broker.cluster();
    let rule = |api| FaultRule::new(api, Fault::Cut);
    let of_topic = cluster.add_fault(rule(ApiKey::Heartbeat).topic("orders"));
    assert_eq!(of_topic, Err(FaultRuleError::NoTopics(ApiKey::Heartbeat)));
    // Its requests name topics, and no filter looks at them.
    let shared =
        cluster.add_fault(rule(ApiKey::ShareFetch).topic("orders")).expect_err("no filter").to_string();
    assert!(
        shared.starts_with("a rule for ShareFetch takes no topic") && shared.contains("Fetch, "),
        "{shared}"
    );
    assert_eq!(cluster.add_fault(rule(ApiKey::Produce).times(0)), Err(FaultRuleError::NoRequests));
    let not_answered = cluster.add_fault(rule(ApiKey::Vote));
    assert_eq!(not_answered, Err(FaultRuleError::NotAnswered(ApiKey::Vote)));
    // An API of which a test has disabled all versions is none, and neither can its requests be waited for.
    assert!(cluster.set_versions(ApiKey::Heartbeat, None));
    assert_eq!(
        cluster.add_fault(rule(ApiKey::Heartbeat)),
        Err(FaultRuleError::NotAnswered(ApiKey::Heartbeat))
    );
    for api in ["Vote", "Heartbeat"] {
        let wait = format!(r#"{{ "api": "{api}", "count": 1, "within_ms": 600000 }}"#);
        let answer = broker.control("POST", "/wait", wait.as_bytes());
        assert_eq!(
            (answer.status, answer.body["error"].as_str()),
            (400, Some(&*format!("the broker does not answer {api}")))
        );
    }
    assert_eq!(cluster.faults(), []);
}

#[test]
fn leaders_that_move_and_nodes_that_go_down_are_followed() {
    let broker = replicated();
    let cluster = broker.cluster();
    produce_all(&broker, 400, |i| match i % 50 {
        10 => assert!(cluster.set_leader("orders", 0, 2)),
        20 => assert!(cluster.set_leader("orders", 0, 1)),
        30 => assert!(cluster.take_down(1 + i / 50 % 2)),
        40 => assert!(cluster.take_up(1 + i / 50 % 2)),
        _ => {}
    });
}

#[test]
fn a_group_reads_on_when_its_coordinator_moves_and_nodes_go_down() {
    let broker = replicated();
    let mut config = config(&broker);
    config
        .set_all([
            ("group.id", "billing"),
            ("auto.offset.reset", "earliest"),
            ("heartbeat.interval.ms", "20"),
            ("session.timeout.ms", "2000"),
        ])
        .expect("known properties");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let producer = Producer::new(config.clone()).expect("a producer");
    let mut consumer = Consumer::new(config).expect("a consumer");
    runtime.block_on(consumer.subscribe(&["orders"])).expect("subscribed");
    let cluster = broker.cluster();
    let mut next = [0, 0];
    for round in 0..8 {
        for partition in 0..2 {
            let record = Record::to("orders").partition(partition).value("v");
            let delivery = producer.enqueue_blocking(record).expect("taken");
            delivery.wait(PATIENCE).expect("in time").expect("written");
        }
        match round % 4 {
            0 => assert!(cluster.set_coordinator("billing", 2)),
            1 => assert!(cluster.take_down(2)),
            2 => assert!(cluster.take_up(2)),
            _ => assert!(cluster.set_coordinator("billing", 1)),
        }
        // At least once: a partition that changes hands may be read again from what was committed, never with a gap.
        while next.iter().any(|next| *next <= round) {
            match consumer.poll_blocking(PATIENCE) {
                Ok(Some(Polled::Records(batch))) => {
                    let at = &mut next[batch.partition() as usize];
                    for record in &batch {
                        let offset = record.expect("a sound record").offset as i32;
                        assert!(offset <= *at, "a gap: {offset} after {at}");
                        *at = (*at).max(offset + 1);
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => panic!("{next:?} in round {round} after {PATIENCE:?}"),
                Err(error) => assert!(error.is_retriable(), "{error}"),
            }
        }
    }
}

/// The fault had no effect, because there is no response that could be cut.
#[test]
fn a_cut_of_a_response_closes_the_connection_of_a_request_without_one() {
    let broker = broker(1);
    broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::CutAt(4));
    let mut connection = Raw::connect(broker.addresses()[0]);
    let records = batch(&[b"one"], &Seal::default());
    connection.send(&framed(12, &produce_request("orders", 0, &records)));
    assert!(matches!(connection.hear(), Heard::Closed));
    assert_eq!(broker.cluster().offsets_of("orders", 0), Some((0, 1)), "the request is handled");
}

/// Such a request was answered before faults and counts.
#[test]
fn api_versions_of_a_version_that_is_not_supported_meets_faults_and_is_counted() {
    let broker = broker(1);
    let cluster = broker.cluster();
    let supported = cluster.set_versions(ApiKey::ApiVersions, Some((0, 2)));
    assert!(supported && cluster.requests(ApiKey::ApiVersions) == 0);
    let ask = || {
        let request = ApiVersionsRequest { client_software_name: "x".into(), ..Default::default() };
        let mut connection = Raw::connect(broker.addresses()[0]);
        connection.send(&framed(3, &request));
        connection.answer_to::<ApiVersionsRequest>(0)
    };
    let answer = ask().expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::UnsupportedVersion);
    let listed: Vec<_> = answer.api_keys.iter().map(|api| (api.api_key, api.max_version)).collect();
    assert_eq!(listed, [(ApiKey::ApiVersions.code(), 2)]);
    for (fault, error) in [
        (Fault::Fail(ErrorCode::CoordinatorNotAvailable), Some(ErrorCode::CoordinatorNotAvailable)),
        (Fault::Delay(Duration::from_millis(1)), Some(ErrorCode::UnsupportedVersion)),
        (Fault::Cut, None),
        (Fault::CutAfter, None),
    ] {
        cluster.intercept(ApiKey::ApiVersions, None, 1, fault);
        assert_eq!(ask().map(|answer| answer.error_code), error, "{fault:?}");
    }
    assert_eq!((cluster.requests(ApiKey::ApiVersions), cluster.faults().len()), (5, 0));
}

/// The durations of the requests, and `true` for those whose response was sent.
#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<(Duration, bool)>>);

impl RequestObserver for Recorder {
    fn on_answered(&self, request: AnsweredRequest<'_>) {
        self.0.lock().expect("no panic").push((request.took, request.is_sent));
    }
}

/// They were called before the delay of a response, and for one of which the client received nothing as if it was sent.
#[test]
fn observers_get_the_delay_of_a_response_and_whether_all_of_it_is_sent() {
    let broker = broker(1);
    let recorder = Arc::new(Recorder::default());
    broker.cluster().observe_requests(recorder.clone());
    let late = Duration::from_millis(200);
    for (fault, is_whole, took_min) in [
        (Fault::AnswerAfter(late), true, late),
        (Fault::CutAt(0), false, Duration::ZERO),
        (Fault::CutAt(2), false, Duration::ZERO),
        (Fault::CutAt(1_000_000), true, Duration::ZERO),
    ] {
        broker.cluster().intercept(ApiKey::Metadata, None, 1, fault);
        let mut connection = Raw::connect(broker.addresses()[0]);
        assert_eq!(connection.ask(12, &metadata_of("orders")).is_some(), is_whole, "{fault:?}");
        let (took, is_sent) = recorder.0.lock().expect("no panic").pop().expect("an answered request");
        assert!(took >= took_min && is_sent == is_whole, "{fault:?}: {took:?}, {is_sent}");
    }
    assert!(broker.cluster().set_lag(1, late));
    assert!(Raw::connect(broker.addresses()[0]).ask(12, &metadata_of("orders")).is_some());
    let (took, is_sent) = recorder.0.lock().expect("no panic").pop().expect("an answered request");
    assert!(took >= late && is_sent, "{took:?}, {is_sent}");
}

/// A request of version 0 for all topics had no fault of a rule for a topic.
#[test]
fn a_metadata_request_of_version_0_with_an_empty_list_names_each_topic() {
    let broker = broker(1);
    let request = MetadataRequest { topics: Some(Vec::new()), ..metadata_of("orders") };
    let rule = FaultRule::new(ApiKey::Metadata, Fault::Cut).topic("orders");
    broker.cluster().add_fault(rule).expect("a rule");
    let ask = |version| Raw::connect(broker.addresses()[0]).ask(version, &request);
    assert!(ask(1).is_some(), "it names no topic");
    assert!(ask(0).is_none(), "it names all");
}

/// The requests behind it were unread when the connection was closed. The system reset it, and the client got a part of the bytes.
#[test]
fn a_response_is_sent_up_to_its_cut_although_more_requests_have_come() {
    /// More than the system sends before the client reads.
    const BYTES: usize = 200_000;
    let broker = broker(1);
    let cluster = broker.cluster();
    assert!(cluster.set_leader("orders", 0, 1));
    let mut client = Raw::connect(broker.addresses()[0]);
    let records = batch(&[&vec![b'x'; 2 * BYTES]], &Seal::default());
    assert_eq!(client.produce("orders", 1, &records).error_code, ErrorCode::None);
    cluster.intercept(ApiKey::Fetch, None, 1, Fault::CutAt(BYTES));
    let partition =
        FetchPartition { partition_max_bytes: i32::MAX, current_leader_epoch: -1, ..Default::default() };
    let topic = FetchTopic { topic: "orders".into(), partitions: vec![partition], ..Default::default() };
    let fetch = FetchRequest { max_bytes: i32::MAX, topics: vec![topic], ..Default::default() };
    let behind = framed(9, &MetadataRequest::default()).repeat(5_000);
    client.send(&[framed(12, &fetch), behind].concat());
    let deadline = Instant::now() + PATIENCE;
    while cluster.connections_open() > 0 {
        assert!(Instant::now() < deadline, "it is open");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let mut received = Vec::new();
    client.into_stream().read_to_end(&mut received).expect("it is not reset");
    assert_eq!(received.len(), BYTES);
}
