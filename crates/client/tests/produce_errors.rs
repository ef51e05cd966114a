//! The effect of every error of a produce request on its records, as a table. The embedded broker returns the errors
//! and counts the requests.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread, Fault, KafkaLevel};
use ottla_client::{
    Client, Config, Connecting, Connector, Delivery, Error, ErrorCode, Persisted, ProduceError,
    ProduceErrorKind, Producer, Record, TcpConnector,
};
use ottla_protocol::ApiKey;

/// The time limit for the result of a record.
const PATIENCE: Duration = Duration::from_secs(30);

const RETRIES: u32 = 3;

/// The expected result if every request fails with this code.
struct Expected {
    code: ErrorCode,
    /// Requests with the record: one, and one for each retry.
    requests: u64,
    persisted: Persisted,
    refreshes_metadata: bool,
}

const fn temporary(code: ErrorCode, persisted: Persisted) -> Expected {
    Expected { code, requests: 1 + RETRIES as u64, persisted, refreshes_metadata: false }
}

const fn stale(code: ErrorCode, persisted: Persisted) -> Expected {
    Expected { refreshes_metadata: true, ..temporary(code, persisted) }
}

const fn permanent(code: ErrorCode) -> Expected {
    Expected { code, requests: 1, persisted: Persisted::NotWritten, refreshes_metadata: false }
}

/// A broker, and a producer that gives up after three retries.
fn world(tune: impl FnOnce(&mut Config)) -> (BrokerThread, Producer) {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let mut config = producer_config(&broker);
    tune(&mut config);
    let producer = Client::new(config).expect("a client").producer();
    // The topic is known and the producer has its id, so later requests concern only the record.
    send(&producer).expect("written");
    (broker, producer)
}

fn producer_config(broker: &BrokerThread) -> Config {
    let mut config = Config::new(broker.bootstrap_servers());
    config.retries = RETRIES;
    config.retry_backoff = Duration::from_millis(5);
    config.retry_backoff_max = Duration::from_millis(10);
    config
}

fn send(producer: &Producer) -> Result<i64, ProduceError> {
    let delivery = producer.try_enqueue(Record::to("orders").value("x"))?;
    delivery.wait(PATIENCE).expect("its fate is known in time").map(|written| written.offset.expect("known"))
}

#[test]
fn each_error_is_retried_reported_and_followed_by_metadata_as_the_introduction_says() {
    use Persisted::{NotWritten, PossiblyWritten};
    let table = [
        temporary(ErrorCode::RequestTimedOut, PossiblyWritten),
        temporary(ErrorCode::NotEnoughReplicas, NotWritten),
        temporary(ErrorCode::NotEnoughReplicasAfterAppend, PossiblyWritten),
        stale(ErrorCode::KafkaStorageError, PossiblyWritten),
        temporary(ErrorCode::CorruptMessage, NotWritten),
        permanent(ErrorCode::MessageTooLarge),
        permanent(ErrorCode::RecordListTooLarge),
        permanent(ErrorCode::InvalidRequiredAcks),
        permanent(ErrorCode::TopicAuthorizationFailed),
        permanent(ErrorCode::UnsupportedForMessageFormat),
        permanent(ErrorCode::ClusterAuthorizationFailed),
    ];
    for expected in table {
        let (broker, producer) = world(|_| {});
        let cluster = broker.cluster();
        let (produce, metadata) = (cluster.requests(ApiKey::Produce), cluster.requests(ApiKey::Metadata));
        cluster.intercept(ApiKey::Produce, None, u32::MAX, Fault::Fail(expected.code));
        let error = send(&producer).expect_err("it never succeeds");
        let code = expected.code;
        assert!(matches!(error.kind, ProduceErrorKind::Broker { code: got, .. } if got == code), "{error}");
        assert_eq!(error.persisted, expected.persisted, "{code:?}");
        assert_eq!(cluster.requests(ApiKey::Produce) - produce, expected.requests, "{code:?}");
        if expected.refreshes_metadata {
            assert!(cluster.requests(ApiKey::Metadata) > metadata, "{code:?}");
        } else {
            assert_eq!(cluster.requests(ApiKey::Metadata), metadata, "{code:?}");
        }
        cluster.clear_intercepts();
        send(&producer).expect("the next record is not concerned");
    }
}

/// As librdkafka does it: the broker's metadata is newer than the client's, and the record is not at fault.
#[test]
fn refusals_by_brokers_that_do_not_lead_are_no_attempts() {
    use ErrorCode::{LeaderNotAvailable, NotLeaderOrFollower, UnknownTopicOrPartition};
    for code in [LeaderNotAvailable, NotLeaderOrFollower, UnknownTopicOrPartition] {
        let (broker, producer) = world(|config| config.delivery_timeout = Duration::from_secs(30));
        let cluster = broker.cluster();
        let (produce, metadata) = (cluster.requests(ApiKey::Produce), cluster.requests(ApiKey::Metadata));
        cluster.intercept(ApiKey::Produce, None, 3 * RETRIES, Fault::Fail(code));
        assert_eq!(send(&producer).expect("written in the end"), 1, "{code:?}");
        assert_eq!(cluster.requests(ApiKey::Produce) - produce, 3 * u64::from(RETRIES) + 1, "{code:?}");
        assert!(cluster.requests(ApiKey::Metadata) > metadata, "{code:?}");
    }
}

/// The broker takes the request and answers too late.
#[test]
fn a_record_in_flight_expires_and_a_late_answer_does_not_change_its_outcome() {
    let (broker, producer) = world(|config| {
        config.delivery_timeout = Duration::from_millis(700);
        config.linger = Some(Duration::ZERO);
    });
    broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Delay(Duration::from_secs(3)));
    let begun = Instant::now();
    let error = send(&producer).expect_err("the answer is late");
    assert!(begun.elapsed() < Duration::from_secs(2), "after {:?}", begun.elapsed());
    assert!(matches!(error.kind, ProduceErrorKind::TimedOut { timeout_ms: 700, .. }), "{error}");
    assert_eq!(error.persisted, Persisted::PossiblyWritten);
    // The late answer concerns no record any more, and later records are written.
    let deadline = Instant::now() + PATIENCE;
    while send(&producer).is_err() {
        assert!(Instant::now() < deadline, "no record is written after one that expired");
    }
}

#[test]
fn an_error_that_ends_in_time_is_not_seen() {
    for code in [ErrorCode::RequestTimedOut, ErrorCode::NotEnoughReplicas, ErrorCode::NotLeaderOrFollower] {
        let (broker, producer) = world(|_| {});
        broker.cluster().intercept(ApiKey::Produce, None, RETRIES, Fault::Fail(code));
        assert_eq!(send(&producer).expect("written in the end"), 1, "{code:?}");
    }
}

#[test]
fn retries_end_after_message_send_max_retries() {
    let (broker, producer) = world(|config| {
        config.enable_idempotence = false;
        config.retries = 0;
    });
    broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Fail(ErrorCode::NotEnoughReplicas));
    let error = send(&producer).expect_err("there is no retry");
    assert!(matches!(error.kind, ProduceErrorKind::Broker { code: ErrorCode::NotEnoughReplicas, .. }));
}

#[test]
fn an_unknown_topic_is_waited_for_and_then_fails_for_good() {
    let (broker, producer) = world(|config| {
        config.topic_metadata_propagation_max = Duration::from_millis(300);
        config.retries = u32::MAX;
    });
    let gone = Fault::Fail(ErrorCode::UnknownTopicOrPartition);
    broker.cluster().intercept(ApiKey::Produce, None, 3, gone);
    assert_eq!(send(&producer).expect("it was only news that had not got round"), 1);
    broker.cluster().intercept(ApiKey::Produce, None, u32::MAX, gone);
    let error = send(&producer).expect_err("it stays unknown");
    assert!(
        matches!(error.kind, ProduceErrorKind::Broker { code: ErrorCode::UnknownTopicOrPartition, .. }),
        "{error}"
    );
    assert_eq!(error.persisted, Persisted::NotWritten);
    // The same for a topic that never existed and that no client may create.
    let mut config = producer_config(&broker);
    config.allow_auto_create_topics = false;
    config.topic_metadata_propagation_max = Duration::from_millis(300);
    let producer = Producer::new(config).expect("a producer");
    let nowhere = producer.try_enqueue(Record::to("nowhere").value("x")).expect("taken");
    let error = nowhere.wait(PATIENCE).expect("in time").expect_err("it stays unknown");
    assert!(
        matches!(error.kind, ProduceErrorKind::Broker { code: ErrorCode::UnknownTopicOrPartition, .. }),
        "{error}"
    );
}

#[test]
fn a_request_that_is_cut_off_was_possibly_written_and_is_retried() {
    let (broker, producer) = world(|_| {});
    // The broker wrote the batch and the response was lost: with idempotence, the retry is recognized.
    broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::CutAfter);
    assert_eq!(send(&producer).expect("acknowledged by the retry"), 1);
    broker.cluster().intercept(ApiKey::Produce, None, u32::MAX, Fault::Cut);
    let error = send(&producer).expect_err("no answer ever comes");
    assert!(matches!(error.kind, ProduceErrorKind::Request(_)), "{error}");
    assert_eq!(error.persisted, Persisted::PossiblyWritten);
}

/// Sends records with one request each, without waiting for the responses.
fn send_apart(broker: &BrokerThread, producer: &Producer, count: u64) -> Vec<Delivery> {
    let cluster = broker.cluster();
    let before = cluster.requests(ApiKey::Produce);
    let send = |request| {
        let delivery = producer.try_enqueue(Record::to("orders").value("x")).expect("taken");
        while cluster.requests(ApiKey::Produce) < before + request {
            std::thread::sleep(Duration::from_millis(1));
        }
        delivery
    };
    (1..=count).map(send).collect()
}

/// A restarted Apache Kafka broker knows only the last batch of a producer. Of several batches without a response, it
/// rejects the others as out of order. They are in the log nevertheless, and must not be written again.
#[test]
fn what_a_broker_has_forgotten_is_not_written_twice_when_it_knows_what_came_later() {
    let (broker, producer) = world(|config| config.socket_timeout = Duration::from_secs(1));
    let cluster = broker.cluster();
    cluster.intercept(ApiKey::Produce, None, 3, Fault::AnswerAfter(Duration::from_secs(60)));
    let sent = send_apart(&broker, &producer, 3);
    // All three are in the log, and the producer got no response.
    cluster.intercept(ApiKey::Produce, None, 2, Fault::Fail(ErrorCode::OutOfOrderSequenceNumber));
    for delivery in sent {
        delivery.wait(PATIENCE).expect("in time").expect("written");
    }
    assert_eq!(send(&producer).expect("written"), 4, "one before them, three of them, and this one");
}

/// If the broker knows none of the batches, none is written, and all are sent under a new epoch.
#[test]
fn what_a_broker_has_lost_is_written_again_under_a_new_epoch() {
    let (broker, producer) = world(|config| config.socket_timeout = Duration::from_secs(1));
    let cluster = broker.cluster();
    cluster.intercept(ApiKey::Produce, None, 2, Fault::Delay(Duration::from_secs(60)));
    let sent = send_apart(&broker, &producer, 2);
    cluster.intercept(ApiKey::Produce, None, 2, Fault::Fail(ErrorCode::OutOfOrderSequenceNumber));
    for (offset, delivery) in (1..).zip(sent) {
        assert_eq!(delivery.wait(PATIENCE).expect("in time").expect("written").offset, Some(offset));
    }
    assert_eq!(send(&producer).expect("written"), 3);
}

/// Accepts one connection, for metadata, and refuses all others.
struct OnlyMetadata(AtomicU32);

impl Connector for OnlyMetadata {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            return Box::pin(async move { TcpConnector::default().connect(host, port).await });
        }
        Box::pin(std::future::ready(Err(std::io::ErrorKind::ConnectionRefused.into())))
    }
}

#[test]
fn what_cannot_be_connected_was_certainly_not_written_and_is_no_retry() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let mut config = Config::new(broker.bootstrap_servers());
    config.retries = 1;
    config.retry_backoff = Duration::from_millis(5);
    config.reconnect_backoff = Duration::from_millis(5);
    config.delivery_timeout = Duration::from_secs(2);
    let connector = Arc::new(OnlyMetadata(AtomicU32::new(0)));
    let client = Client::with_connector(config, connector.clone()).expect("a client");
    let error = send(&client.producer()).expect_err("its leader cannot be reached");
    // The time permits many more than two attempts, and none of them counts: only the timeout ends the record.
    assert!(matches!(error.kind, ProduceErrorKind::TimedOut { timeout_ms: 2000, .. }), "{error}");
    assert!(connector.0.load(Ordering::Relaxed) > 3, "it was tried again and again");
    assert_eq!(error.persisted, Persisted::NotWritten, "{error}");
}

#[test]
fn a_request_without_an_answer_times_out_and_is_retried() {
    let (broker, producer) = world(|config| {
        config.socket_timeout = Duration::from_millis(300);
        config.retries = 1;
    });
    let cluster = broker.cluster();
    let before = cluster.requests(ApiKey::Produce);
    cluster.intercept(ApiKey::Produce, None, 2, Fault::Delay(Duration::from_secs(3)));
    let error = send(&producer).expect_err("no answer in time");
    assert!(matches!(error.kind, ProduceErrorKind::Request(_)), "{error}");
    assert_eq!(error.persisted, Persisted::PossiblyWritten);
    assert_eq!(cluster.requests(ApiKey::Produce) - before, 2);
}

#[test]
fn metadata_is_asked_for_once_for_a_topic_however_many_records_it_gets() {
    let (broker, producer) = world(|_| {});
    let cluster = broker.cluster();
    let before = cluster.requests(ApiKey::Metadata);
    for _ in 0..200 {
        send(&producer).expect("written");
    }
    assert_eq!(cluster.requests(ApiKey::Metadata), before, "a topic that is known is not asked for");
    let other = producer.try_enqueue(Record::to("other").value("x")).expect("taken");
    other.wait(PATIENCE).expect("in time").expect("written");
    let asked = cluster.requests(ApiKey::Metadata) - before;
    // One request to create the topic, and perhaps more until it has a leader.
    assert!((1..=3).contains(&asked), "{asked} requests for one new topic");
}

/// The records of a request that failed were sent again, as after a purge.
#[test]
fn a_producer_that_is_ended_repeats_no_request() {
    let (broker, producer) = world(|config| config.retries = u32::MAX);
    let cluster = broker.cluster();
    let before = cluster.requests(ApiKey::Produce);
    let fault = Fault::FailAfter(ErrorCode::NotEnoughReplicas, Duration::from_millis(300));
    cluster.intercept(ApiKey::Produce, None, u32::MAX, fault);
    let in_flight = producer.try_enqueue(Record::to("orders").value("x")).expect("taken");
    while cluster.requests(ApiKey::Produce) == before {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(producer.end("a test") && !producer.end("another one"));
    let failed = in_flight.wait(PATIENCE).expect("in time").expect_err("not written");
    let refused = producer.try_enqueue(Record::to("orders").value("later")).expect_err("nothing is taken");
    for (kind, persisted) in [(&failed.kind, failed.persisted), (&refused.kind, refused.persisted)] {
        assert!(matches!(kind, ProduceErrorKind::Fatal(reason) if reason == "a test"), "{kind}");
        assert_eq!(persisted, Persisted::NotWritten);
    }
    let fatal = producer.fatal_error().expect("it is of no more use").to_string();
    assert_eq!(fatal, "fatal: a test");
}

/// `enable.gapless.guarantee`: records after a lost record are not written, and no more records are accepted. Without
/// it, the other records are written.
#[test]
fn a_gap_ends_the_producer_where_none_may_be() {
    for gapless in [false, true] {
        let (broker, producer) = world(|config| {
            config.enable_gapless_guarantee = gapless;
            config.max_in_flight_requests_per_connection = 1;
            config.batch_num_messages = 1;
        });
        assert!(producer.fatal_error().is_none());
        let cluster = broker.cluster();
        let before = cluster.requests(ApiKey::Produce);
        cluster.intercept(ApiKey::Produce, None, 1, Fault::Delay(Duration::from_millis(300)));
        let first = producer.try_enqueue(Record::to("orders").value("written")).expect("taken");
        while cluster.requests(ApiKey::Produce) == before {
            std::thread::sleep(Duration::from_millis(2));
        }
        // These records follow the first; the first of them is lost.
        cluster.intercept(ApiKey::Produce, None, 1, Fault::Fail(ErrorCode::MessageTooLarge));
        let behind: Vec<_> =
            (0..4).map(|_| producer.try_enqueue(Record::to("orders").value("x")).expect("taken")).collect();
        first.wait(PATIENCE).expect("in time").expect("written");
        let fates: Vec<_> = behind.iter().map(|delivery| delivery.wait(PATIENCE).expect("in time")).collect();
        let lost = fates[0].as_ref().expect_err("refused");
        assert!(
            matches!(lost.kind, ProduceErrorKind::Broker { code: ErrorCode::MessageTooLarge, .. }),
            "{lost}"
        );
        if !gapless {
            assert!(fates[1..].iter().all(Result::is_ok), "{fates:?}");
            assert!(producer.fatal_error().is_none());
            continue;
        }
        for fate in &fates[1..] {
            let error = fate.as_ref().expect_err("it would follow a gap");
            assert!(matches!(error.kind, ProduceErrorKind::Gapless(_)), "{error}");
            assert_eq!(error.persisted, Persisted::NotWritten);
        }
        let fatal = producer.fatal_error().expect("it is of no more use").to_string();
        assert!(fatal.contains("enable.gapless.guarantee") && fatal.contains("partition 0"), "{fatal}");
        let refused =
            producer.try_enqueue(Record::to("orders").value("later")).expect_err("nothing is taken");
        assert!(matches!(refused.kind, ProduceErrorKind::Gapless(_)), "{}", refused);
        producer.flush_blocking(PATIENCE).expect("nothing is left");
        assert_eq!(cluster.requests(ApiKey::Produce) - before, 2, "the written one and the lost one");
    }
    // An expired record causes a gap like any other loss.
    let (broker, producer) = world(|config| {
        config.enable_gapless_guarantee = true;
        config.retries = u32::MAX;
        config.delivery_timeout = Duration::from_millis(200);
    });
    broker.cluster().intercept(ApiKey::Produce, None, u32::MAX, Fault::Fail(ErrorCode::NotEnoughReplicas));
    let error = send(&producer).expect_err("its time is over");
    assert!(matches!(error.kind, ProduceErrorKind::TimedOut { .. }), "{error}");
    broker.cluster().clear_intercepts();
    assert!(matches!(send(&producer).expect_err("no more").kind, ProduceErrorKind::Gapless(_)));
    // Without idempotence, the guarantee is not available.
    let mut config = Config::new("127.0.0.1:9092");
    config.set_all([("enable.idempotence", "false"), ("enable.gapless.guarantee", "true")]).expect("known");
    let error = Client::new(config).expect_err("a contradiction").to_string();
    assert!(error.contains("enable.gapless.guarantee=true needs enable.idempotence=true"), "{error}");
}

/// A gap was only logged, and a fenced producer noticed it with its next call.
#[test]
fn an_error_that_ends_the_producer_is_reported_once() {
    let end_of = |level: KafkaLevel, tune: &dyn Fn(&mut Config), fault: (ApiKey, ErrorCode)| {
        let builder = Broker::builder().memory().topic("orders", 1);
        let builder = builder.configure(move |config| config.as_version = level);
        let broker = builder.spawn().expect("a broker in memory");
        let mut config = producer_config(&broker);
        tune(&mut config);
        let is_transactional = config.transactional_id.is_some();
        let client = Client::new(config).expect("a client");
        let (errors, producer) = (client.errors(), client.producer());
        if is_transactional {
            producer.init_transactions_blocking(PATIENCE).expect("initialized");
            producer.begin_transaction().expect("begun");
        }
        broker.cluster().intercept(fault.0, None, 1, Fault::Fail(fault.1));
        send(&producer).expect_err("refused");
        let error = errors.next_blocking(PATIENCE).expect("a report");
        send(&producer).expect_err("the producer has ended");
        assert!(errors.try_next().is_none(), "one report is enough");
        error
    };
    let latest = KafkaLevel::V4_3;
    let gapless = |config: &mut Config| config.enable_gapless_guarantee = true;
    let gap = end_of(latest, &gapless, (ApiKey::Produce, ErrorCode::MessageTooLarge));
    assert!(
        matches!(&gap, Error::Produce(error) if matches!(error.kind, ProduceErrorKind::Gapless(_))),
        "{gap}"
    );
    let transactional = |config: &mut Config| config.transactional_id = Some("payments".into());
    // Before KIP-890, the client adds the partitions to the transaction.
    for (level, api, code) in [
        (latest, ApiKey::Produce, ErrorCode::InvalidProducerEpoch),
        (KafkaLevel::V3_9, ApiKey::AddPartitionsToTxn, ErrorCode::ProducerFenced),
    ] {
        let fenced = end_of(level, &transactional, (api, code));
        assert!(matches!(&fenced, Error::Transaction(error) if error.is_fatal()), "{fenced}");
    }
}
