//! Offsets requested from brokers, and the metadata of commits.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread, Fault};
use ottla_client::{
    Acl, AclOperation, AclPermission, Client, Config, Consumer, Error, ErrorCode, OffsetAndMetadata,
    PatternType, PolledRecord, Rebalance, Record, ResourceType, StartAt, Timeouts, TopicPartition,
};
use ottla_protocol::ApiKey;
use ottla_protocol::messages::offset_commit::OffsetCommitRequest;
use ottla_protocol::messages::offset_for_leader_epoch::OffsetForLeaderEpochRequest;

use crate::recorder::{PATIENCE, Recorder};

fn broker(partitions: i32) -> BrokerThread {
    Broker::builder().memory().nodes(2).topic("orders", partitions).spawn().expect("a broker in memory")
}

fn client(broker: &BrokerThread, properties: &[(&str, &str)]) -> (Client, Recorder) {
    let recorder = Recorder::default();
    let mut config = Config::new(broker.bootstrap_servers());
    let common = [("group.id", "billing"), ("retry.backoff.ms", "10"), ("enable.auto.commit", "false")];
    config.set_all(common).expect("known properties");
    config.set_all(properties.iter().copied()).expect("known properties");
    (Client::with_connector(config, Arc::new(recorder.clone())).expect("a client"), recorder)
}

fn at(partition: i32) -> TopicPartition {
    TopicPartition::new("orders", partition)
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

/// Writes a record with each of these timestamps, each in its own batch.
fn produce(client: &Client, partition: i32, timestamps: impl IntoIterator<Item = i64>) {
    let producer = client.producer();
    for timestamp in timestamps {
        let record = Record::to("orders").partition(partition).timestamp_ms(timestamp).value("v");
        run(producer.send(record)).expect("written");
    }
}

fn next_offset(consumer: &mut Consumer) -> i64 {
    match consumer.next_record_blocking(PATIENCE).expect("no error") {
        Some(PolledRecord::Record(record)) => record.offset(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn times_are_looked_up_and_past_the_last_record_is_the_end() {
    let broker = broker(3);
    let (client, _) = client(&broker, &[]);
    produce(&client, 0, [1000, 2000, 3000]);
    produce(&client, 1, [1500]);
    let consumer = client.consumer();
    let found = |wanted: &[(i32, i64)]| {
        let wanted: Vec<_> = wanted.iter().map(|(partition, time)| (at(*partition), *time)).collect();
        run(consumer.offsets_for_times(&wanted)).expect("an answer")
    };
    assert_eq!(found(&[(0, 1001), (1, 1500)]), BTreeMap::from([(at(0), 1), (at(1), 0)]));
    assert_eq!(found(&[(0, 0), (1, 1501)]), BTreeMap::from([(at(0), 0), (at(1), 1)]));
    assert_eq!(found(&[(0, 3001), (2, 0)]), BTreeMap::from([(at(0), 3), (at(2), 0)]));
}

#[test]
fn watermarks_are_asked_for_and_are_known_without_asking_after_a_fetch() {
    let broker = broker(2);
    let (client, _) = client(&broker, &[]);
    produce(&client, 0, [1, 2, 3]);
    let mut consumer = client.consumer();
    let asked = run(consumer.query_watermarks(&at(0))).expect("an answer");
    assert_eq!((asked.low, asked.high), (0, 3));
    let asked = run(consumer.query_watermarks(&at(1))).expect("an answer");
    assert_eq!((asked.low, asked.high), (0, 0));
    let missing = run(consumer.query_watermarks(&at(7)));
    assert!(missing.is_err(), "{missing:?}");

    assert!(consumer.watermarks(&at(0)).is_none(), "nothing is fetched");
    run(consumer.assign(&[(at(0), StartAt::Offset(1))])).expect("assigned");
    assert_eq!(next_offset(&mut consumer), 1);
    let known = consumer.watermarks(&at(0)).expect("fetched");
    assert_eq!((known.low, known.high), (0, 3));
}

#[test]
fn a_commit_carries_the_epoch_of_the_last_record_and_who_goes_on_from_it_asks_whether_the_log_has_that() {
    let broker = broker(1);
    let (client, recorder) = client(&broker, &[]);
    assert!(broker.cluster().set_leader("orders", 0, 2));
    produce(&client, 0, [1, 2, 3]);
    let mut consumer = client.consumer();
    run(consumer.assign(&[(at(0), StartAt::Beginning)])).expect("assigned");
    assert_eq!([0; 3].map(|_| next_offset(&mut consumer)), [0, 1, 2]);
    run(consumer.commit()).expect("committed");
    let commits = recorder.requests::<OffsetCommitRequest>();
    let commit = &commits.last().expect("a commit").2.topics[0].partitions[0];
    // The commit covers at least the first two records.
    assert!(commit.committed_offset >= 2, "{commit:?}");
    let epoch = commit.committed_leader_epoch;
    assert!(epoch >= 1, "the leader has moved once: {commit:?}");

    assert!(broker.cluster().set_leader("orders", 0, 1));
    run(consumer.assign(&[(at(0), StartAt::Committed)])).expect("assigned");
    produce(&client, 0, [4]);
    while next_offset(&mut consumer) < 3 {}
    let questions = recorder.requests::<OffsetForLeaderEpochRequest>();
    let asked = questions.iter().flat_map(|(_, _, request)| &request.topics[0].partitions);
    let asked: Vec<i32> = asked.map(|partition| partition.leader_epoch).collect();
    assert!(asked.contains(&epoch), "of the epoch that was committed: {asked:?}");
}

/// Offset 4 was committed after a record of epoch 0; in the current log, that epoch ends at 2.
fn truncated(broker: &BrokerThread, reset: &str) -> Consumer {
    let (client, _) = client(broker, &[("auto.offset.reset", reset)]);
    produce(&client, 0, [1, 2]);
    let lost = OffsetAndMetadata { offset: 4, leader_epoch: Some(0), metadata: "a note".into() };
    let mut consumer = client.consumer();
    run(consumer.commit_offsets(&[(at(0), lost)])).expect("committed");
    assert!(broker.cluster().set_leader("orders", 0, 2));
    produce(&client, 0, [3, 4, 5]);
    run(consumer.assign(&[(at(0), StartAt::Committed)])).expect("assigned");
    consumer
}

#[test]
fn a_committed_offset_of_a_log_that_was_cut_off_goes_on_where_the_logs_part() {
    let broker = broker(1);
    assert_eq!(next_offset(&mut truncated(&broker, "latest")), 2);
}

#[test]
fn a_committed_offset_of_a_log_that_was_cut_off_is_an_error_where_resets_are() {
    let broker = broker(1);
    match truncated(&broker, "error").next_record_blocking(PATIENCE) {
        Err(Error::LogTruncated { offset: 4, end: Some(2), .. }) => {}
        other => panic!("{other:?}"),
    }
}

/// A client of a broker with ACLs, and with the topics `orders`, which has two records, and `secret`.
fn client_with_topics(rebalance: Rebalance) -> (BrokerThread, Client) {
    let broker = Broker::builder().memory().topic("orders", 1).topic("secret", 1).configure(|config| {
        let authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
        config.set("authorizer.class.name", authorizer).expect("an authorizer");
        config.set("allow.everyone.if.no.acl.found", "true").expect("a property");
    });
    let broker = broker.spawn().expect("a broker in memory");
    let mut config = Config::new(broker.bootstrap_servers());
    config.set_all([("group.id", "billing"), ("auto.offset.reset", "earliest")]).expect("known properties");
    config.rebalance = rebalance;
    let client = Client::new(config).expect("a client");
    produce(&client, 0, [1000, 2000]);
    (broker, client)
}

fn deny_secret(client: &Client) {
    let refused = Acl {
        resource: ResourceType::Topic,
        name: "secret".into(),
        pattern: PatternType::Literal,
        principal: "User:ANONYMOUS".into(),
        host: "*".into(),
        operation: AclOperation::All,
        permission: AclPermission::Deny,
    };
    run(client.admin().create_acls(&[refused], Timeouts::default())).expect("created");
}

/// No partition started while the offset of one was refused, and the error was reported ten times a second.
#[test]
fn a_partition_whose_offset_is_refused_does_not_stop_the_others() {
    let (_broker, client) = client_with_topics(Rebalance::Application);
    deny_secret(&client);
    let mut consumer = client.consumer();
    let both = [at(0), TopicPartition::new("secret", 0)].map(|at| (at, StartAt::Committed));
    run(consumer.control().assign(&both)).expect("assigned");
    assert_reads_orders_and_reports_secret(&mut consumer);
}

fn assert_reads_orders_and_reports_secret(consumer: &mut Consumer) {
    let (mut records, mut errors) = (0, Vec::new());
    let deadline = Instant::now() + PATIENCE;
    while records < 2 || errors.is_empty() {
        assert!(Instant::now() < deadline, "{records} records, {errors:?}");
        match consumer.next_record_blocking(Duration::from_millis(100)) {
            Ok(found) => records += usize::from(matches!(found, Some(PolledRecord::Record(_)))),
            Err(error) => errors.push(error),
        }
    }
    let later = consumer.next_record_blocking(Duration::from_millis(500));
    assert!(matches!(later, Ok(None)), "it is reported once: {later:?}");
    let is_refusal = |error: &Error| error.broker_code() == Some(ErrorCode::TopicAuthorizationFailed);
    assert!(errors.len() == 1 && is_refusal(&errors[0]), "{errors:?}");
}

/// The member left the group and joined again and again, and read nothing.
#[test]
fn a_refused_offset_does_not_stop_the_other_partitions_of_a_member() {
    let (broker, client) = client_with_topics(Rebalance::Silent);
    // The topic is seen and assigned, and then denied before the broker looks at the request for its offset.
    broker.cluster().intercept(ApiKey::OffsetFetch, Some(1), 1, Fault::Delay(Duration::from_secs(2)));
    let mut consumer = client.consumer();
    run(consumer.subscribe(&["orders", "secret"])).expect("subscribed");
    let deadline = Instant::now() + PATIENCE;
    while broker.cluster().intercepts_left(ApiKey::OffsetFetch, 1) > 0 {
        assert!(Instant::now() < deadline, "no offset is fetched");
        assert!(matches!(consumer.next_record_blocking(Duration::from_millis(10)), Ok(None)));
    }
    deny_secret(&client);
    assert_reads_orders_and_reports_secret(&mut consumer);
}
