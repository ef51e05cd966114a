//! Quotas: they are checked, stored and described with filters, and they are enforced.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it waits")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_broker::{
    Broker, BrokerThread, DiskCall, DiskEffect, DiskFiles, DiskRule, Durability, Listener, SaslMechanism,
    SaslSettings,
};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_client_quotas::{
    AlterClientQuotasRequest, EntityData, EntryData, OpData,
};
use ottla_protocol::messages::api_versions::ApiVersionsRequest;
use ottla_protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use ottla_protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use ottla_protocol::messages::delete_topics::DeleteTopicsRequest;
use ottla_protocol::messages::describe_client_quotas::{ComponentData, DescribeClientQuotasRequest};
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::metadata::MetadataRequest;
use ottla_wire::{Compression, Seal};

use crate::common::{Heard, PATIENCE, Raw, batch, framed, metadata_of, produce_request};
use crate::security;

const EXACT: i8 = 0;
const DEFAULT: i8 = 1;
const ANY: i8 = 2;

type Entity<'a> = &'a [(&'a str, Option<&'a str>)];

fn start(disk: &MemStorage) -> (BrokerThread, Raw) {
    let broker = Broker::builder().storage(Arc::new(disk.clone())).spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

fn entry(entity: Entity<'_>, ops: &[(&str, Option<f64>)]) -> EntryData {
    let part = |(entity_type, name): &(&str, Option<&str>)| EntityData {
        entity_type: (*entity_type).into(),
        entity_name: name.map(Into::into),
    };
    let op = |(key, value): &(&str, Option<f64>)| OpData {
        key: (*key).into(),
        value: value.unwrap_or_default(),
        remove: value.is_none(),
    };
    EntryData { entity: entity.iter().map(part).collect(), ops: ops.iter().map(op).collect() }
}

fn alter(connection: &mut Raw, entries: Vec<EntryData>, validate_only: bool) -> Vec<ErrorCode> {
    let answer = connection.ask(1, &AlterClientQuotasRequest { entries, validate_only }).expect("an answer");
    answer.entries.iter().map(|entry| entry.error_code).collect()
}

/// The entities that a filter matches, with the values of their quotas, as one text each.
fn describe(
    connection: &mut Raw,
    components: &[(&str, i8, Option<&str>)],
    strict: bool,
) -> Result<Vec<String>, ErrorCode> {
    let component = |(entity_type, match_type, name): &(&str, i8, Option<&str>)| ComponentData {
        entity_type: (*entity_type).into(),
        match_type: *match_type,
        r#match: name.map(Into::into),
    };
    let components = components.iter().map(component).collect();
    let answer = connection.ask(1, &DescribeClientQuotasRequest { components, strict }).expect("an answer");
    if answer.error_code != ErrorCode::None {
        assert!(answer.entries.is_none());
        return Err(answer.error_code);
    }
    let text = answer.entries.into_iter().flatten().map(|entry| {
        let names = entry.entity.iter().map(|part| {
            format!("{}={}", part.entity_type, part.entity_name.as_deref().unwrap_or("<default>"))
        });
        let values = entry.values.iter().map(|value| format!("{}={}", value.key, value.value));
        names.chain(values).collect::<Vec<_>>().join(" ")
    });
    Ok(text.collect())
}

#[test]
fn quotas_are_stored_removed_and_described_with_filters() {
    let disk = MemStorage::new();
    let (broker, mut connection) = start(&disk);
    let rate = [("producer_byte_rate", Some(1000.0))];
    let entities: [Entity<'_>; 5] = [
        &[("user", Some("anna")), ("client-id", Some("till"))],
        &[("user", Some("anna"))],
        &[("user", None)],
        &[("client-id", None)],
        &[("user", None), ("client-id", Some("till"))],
    ];
    let entries = entities.map(|entity| entry(entity, &rate)).to_vec();
    assert_eq!(alter(&mut connection, entries, false), [ErrorCode::None; 5]);
    let address = entry(&[("ip", Some("10.0.0.1"))], &[("connection_creation_rate", Some(7.0))]);
    assert_eq!(alter(&mut connection, vec![address], false), [ErrorCode::None]);
    let dry = entry(&[("user", Some("dry"))], &rate);
    assert_eq!(alter(&mut connection, vec![dry], true), [ErrorCode::None]);

    let both = "client-id=till user=anna producer_byte_rate=1000".to_owned();
    let anna = "user=anna producer_byte_rate=1000".to_owned();
    let of_anna = [("user", EXACT, Some("anna"))];
    assert_eq!(describe(&mut connection, &of_anna, false), Ok(vec![both.clone(), anna.clone()]));
    assert_eq!(describe(&mut connection, &of_anna, true), Ok(vec![anna]));
    assert_eq!(describe(&mut connection, &[("user", DEFAULT, None)], false).map(|all| all.len()), Ok(2));
    assert_eq!(describe(&mut connection, &[("client-id", ANY, None)], false).map(|all| all.len()), Ok(3));
    let two = [("user", ANY, None), ("client-id", EXACT, Some("till"))];
    assert_eq!(describe(&mut connection, &two, true).map(|all| all.len()), Ok(2));
    assert_eq!(describe(&mut connection, &[], true), Ok(Vec::new()));
    let all = describe(&mut connection, &[], false).expect("all");
    assert_eq!(all.len(), 6, "{all:?}");

    let removed = entry(
        &[("user", Some("anna")), ("client-id", Some("till"))],
        &[("producer_byte_rate", None), ("consumer_byte_rate", None)],
    );
    assert_eq!(alter(&mut connection, vec![removed], false), [ErrorCode::None]);
    let left: Vec<String> = all.into_iter().filter(|text| *text != both).collect();
    assert_eq!(describe(&mut connection, &[], false), Ok(left.clone()));
    broker.stop();
    let (_broker, mut connection) = start(&disk);
    assert_eq!(describe(&mut connection, &[], false), Ok(left), "after a restart");
}

#[test]
fn quotas_that_kafka_refuses_are_refused() {
    let (_broker, mut connection) = start(&MemStorage::new());
    let user: Entity<'_> = &[("user", Some("bo"))];
    let ip: Entity<'_> = &[("ip", Some("10.0.0.1"))];
    let rate = "producer_byte_rate";
    for bad in [
        entry(&[], &[(rate, Some(1.0))]),
        entry(&[("team", Some("a"))], &[(rate, Some(1.0))]),
        entry(&[("user", Some(""))], &[(rate, Some(1.0))]),
        entry(&[("ip", Some("nowhere"))], &[("connection_creation_rate", Some(1.0))]),
        entry(&[("ip", Some("10.0.0.1")), ("user", Some("bo"))], &[(rate, Some(1.0))]),
        entry(user, &[("no_such_rate", Some(1.0))]),
        entry(user, &[("connection_creation_rate", Some(1.0))]),
        entry(ip, &[(rate, Some(1.0))]),
        entry(ip, &[("connection_creation_rate", Some(3e9))]),
        entry(user, &[(rate, Some(1.5))]),
        entry(user, &[(rate, Some(0.0))]),
        entry(user, &[(rate, Some(-1.0))]),
        entry(user, &[("request_percentage", Some(f64::NAN))]),
        entry(user, &[(rate, Some(1.0)), (rate, None)]),
    ] {
        let text = format!("{bad:?}");
        assert_eq!(alter(&mut connection, vec![bad], false), [ErrorCode::InvalidRequest], "{text}");
    }
    let twice = vec![entry(user, &[(rate, Some(1.0))]), entry(user, &[(rate, Some(2.0))])];
    assert_eq!(alter(&mut connection, twice, false), [ErrorCode::None, ErrorCode::InvalidRequest]);
    assert_eq!(describe(&mut connection, &[], false), Ok(vec!["user=bo producer_byte_rate=1".to_owned()]));
}

#[test]
fn filters_that_kafka_refuses_are_refused() {
    let (_broker, mut connection) = start(&MemStorage::new());
    let user = ("user", ANY, None);
    for (bad, code) in [
        (&[("team", ANY, None)][..], ErrorCode::UnsupportedVersion),
        (&[("", ANY, None)], ErrorCode::InvalidRequest),
        (&[user, user], ErrorCode::InvalidRequest),
        (&[user, ("ip", ANY, None)], ErrorCode::InvalidRequest),
        (&[("user", EXACT, None)], ErrorCode::InvalidRequest),
        (&[("user", DEFAULT, Some("bo"))], ErrorCode::InvalidRequest),
        (&[("user", ANY, Some("bo"))], ErrorCode::InvalidRequest),
        (&[("user", 3, None)], ErrorCode::InvalidRequest),
    ] {
        assert_eq!(describe(&mut connection, bad, false), Err(code), "{bad:?}");
    }
}

/// A broker with one window for rates, so that a quota allows one second of its rate at once.
fn start_with_quota(entity: Entity<'_>, key: &str, value: f64) -> (BrokerThread, Raw) {
    let broker = Broker::builder().memory().topic("orders", 1).configure(|config| {
        config.set("quota.window.num", "2").expect("a property");
        config.set("controller.quota.window.num", "1").expect("a property");
    });
    let broker = broker.spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let quota = entry(entity, &[(key, Some(value))]);
    assert_eq!(alter(&mut connection, vec![quota], false), [ErrorCode::None]);
    (broker, connection)
}

fn open_connections(broker: &BrokerThread) -> usize {
    let text = broker.cluster().metrics_text(10);
    let connections = text.lines().filter(|line| line.starts_with("ottla_connections{"));
    connections.filter_map(|line| line.rsplit_once(' ')?.1.parse::<usize>().ok()).sum()
}

fn throttles(broker: &BrokerThread, quota: &str) -> u64 {
    let text = broker.cluster().metrics_text(10);
    let name = format!("ottla_throttled_total{{quota=\"{quota}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name)).expect("a metric");
    line.parse().expect("a number")
}

#[test]
fn a_producer_above_its_quota_is_answered_and_then_pauses() {
    let (broker, mut connection) = start_with_quota(&[("user", None)], "producer_byte_rate", 100_000.0);
    let records = batch(&[&vec![7; 50_000]], &Seal::default());
    let mut produce = || {
        let request = produce_request("orders", 1, &records);
        let response = connection.ask(12, &request).expect("an answer");
        assert_eq!(response.responses[0].partition_responses[0].error_code, ErrorCode::None);
        response.throttle_time_ms
    };
    assert_eq!(produce(), 0);
    produce();
    let throttle_ms = produce();
    assert!((300..=600).contains(&throttle_ms), "{throttle_ms} ms");
    let began = Instant::now();
    assert!(connection.is_served());
    let waited = began.elapsed();
    assert!(waited + Duration::from_millis(50) > Duration::from_millis(throttle_ms as u64), "{waited:?}");
    assert!(throttles(&broker, "producer_byte_rate") >= 1);
    let mut other = Raw::connect(broker.addresses()[0]);
    let began = Instant::now();
    assert!(other.is_served() && began.elapsed() < Duration::from_millis(300), "others do not pause");
}

/// The bytes were charged with the response: a client that closed its connection before produced without a quota.
#[test]
fn a_producer_that_leaves_before_its_responses_uses_its_quota() {
    const REQUESTS: i64 = 5;
    let builder = Broker::builder().storage(Arc::new(MemStorage::new())).topic("orders", 1);
    let broker = builder.configure(|config| config.durability = Durability::Disk).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    // It allows 100,000 bytes at once.
    let quota = entry(&[("user", None)], &[("producer_byte_rate", Some(10_000.0))]);
    assert_eq!(alter(&mut connection, vec![quota], false), [ErrorCode::None]);
    // All clients leave before the first sync is over.
    let slow = DiskRule::new(DiskCall::Sync, DiskEffect::Slow(Duration::from_secs(2)));
    broker.cluster().add_disk_fault(DiskRule { files: DiskFiles::Topic("orders".to_owned()), ..slow });
    let records = batch(&[&vec![7; 50_000]], &Seal::default());
    for _ in 0..REQUESTS {
        Raw::connect(broker.addresses()[0]).send(&framed(12, &produce_request("orders", -1, &records)));
    }
    let deadline = Instant::now() + PATIENCE;
    while broker.cluster().offsets_of("orders", 0).expect("a partition").1 < REQUESTS {
        assert!(Instant::now() < deadline, "the batches are not appended");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The broker notices the ends of the connections after the appends. These requests wait for no sync. They alone remain below the
    // quota.
    let request = produce_request("orders", 1, &batch(&[b"a"], &Seal::default()));
    while connection.ask(12, &request).expect("an answer").throttle_time_ms == 0 {
        assert!(Instant::now() < deadline, "the requests of the clients that left do not count");
        std::thread::sleep(Duration::from_millis(100));
    }
    broker.cluster().clear_disk_faults();
}

/// The connection stayed until the pause was over, for days, and filled `max.connections` without a client.
#[test]
fn a_connection_whose_client_leaves_during_its_pause_ends() {
    let (broker, mut connection) = start_with_quota(&[("user", None)], "producer_byte_rate", 1.0);
    let records = batch(&[&vec![7; 50_000]], &Seal::default());
    let response = connection.ask(12, &produce_request("orders", 1, &records)).expect("an answer");
    assert!(response.throttle_time_ms > 60_000, "{} ms", response.throttle_time_ms);
    assert_eq!(open_connections(&broker), 1);
    drop(connection);
    let deadline = Instant::now() + PATIENCE;
    while open_connections(&broker) > 0 {
        assert!(Instant::now() < deadline, "the connection is kept");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// It had the memory of its next request until its pause was over, which can take hours: six bytes of a header were enough for it.
#[test]
fn a_client_that_pauses_has_no_memory_for_its_next_request() {
    let (broker, mut connection) = start_with_quota(&[("user", None)], "producer_byte_rate", 1.0);
    let records = batch(&[&vec![7; 50_000]], &Seal::default());
    let request = framed(12, &produce_request("orders", 1, &records));
    let next = [&(100_i32 << 20).to_be_bytes()[..], &[0, 0]].concat();
    connection.send(&[request, next].concat());
    assert!(matches!(connection.hear(), Heard::Answer(_)));
    // The broker's thread has served the first connection before another one.
    assert!(Raw::connect(broker.addresses()[0]).is_served());
    let text = broker.cluster().metrics_text(10);
    assert!(text.contains("ottla_memory_used_bytes{part=\"requests\"} 0\n"), "{text}");
}

/// After a quota was lowered, connections of its address waited for hours, and filled `max.connections`.
#[test]
fn connections_that_a_quota_refuses_end_within_a_window_and_do_not_count() {
    let (broker, mut connection) = start_with_quota(&[("ip", None)], "connection_creation_rate", 200.0);
    let served: Vec<_> = (0..100).map(|_| Raw::connect(broker.addresses()[0])).collect();
    let quota = entry(&[("ip", None)], &[("connection_creation_rate", Some(1.0))]);
    assert_eq!(alter(&mut connection, vec![quota], false), [ErrorCode::None]);
    let began = Instant::now();
    let refused: Vec<_> = (0..20).map(|_| Raw::connect(broker.addresses()[0])).collect();
    let open = open_connections(&broker);
    // On a slow machine, a window passes meanwhile.
    let late = refused.into_iter().filter_map(|mut it| it.is_served().then_some(it)).count();
    assert!(late < 20 && open <= 1 + served.len() + late, "{open} connections count, {late} were served");
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
}

#[test]
fn a_consumer_above_its_quota_gets_records_after_its_pause() {
    let (broker, mut connection) = start_with_quota(&[("client-id", None)], "consumer_byte_rate", 100_000.0);
    for _ in 0..3 {
        assert_eq!(
            connection.produce("orders", 1, &batch(&[&vec![7; 60_000]], &Seal::default())).error_code,
            ErrorCode::None
        );
    }
    let mut offset = 0;
    let mut pauses = 0;
    while offset < 3 {
        let partition = FetchPartition {
            fetch_offset: offset,
            partition_max_bytes: 65_000,
            current_leader_epoch: -1,
            ..Default::default()
        };
        let topic = FetchTopic { topic: "orders".into(), partitions: vec![partition], ..Default::default() };
        let request = FetchRequest {
            replica_id: -1,
            max_bytes: 65_000,
            max_wait_ms: 0,
            min_bytes: 0,
            session_epoch: -1,
            topics: vec![topic],
            ..Default::default()
        };
        let response = connection.ask(11, &request).expect("an answer");
        assert_eq!(response.error_code, ErrorCode::None);
        if response.throttle_time_ms > 0 {
            assert!(response.responses.is_empty());
            pauses += 1;
        } else {
            let records = response.responses[0].partitions[0].records.as_ref().expect("records");
            assert!(!records.is_empty());
            offset += 1;
        }
    }
    assert!(pauses >= 1);
    assert_eq!(throttles(&broker, "consumer_byte_rate"), pauses);
}

#[test]
fn topics_above_the_quota_of_mutations_are_refused_in_versions_that_know_the_error() {
    let (_broker, mut connection) =
        start_with_quota(&[("user", Some("ANONYMOUS"))], "controller_mutation_rate", 2.0);
    let topic = |name: &str| CreatableTopic {
        name: name.into(),
        num_partitions: 4,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic("a"), topic("b")], ..Default::default() };
    let created = connection.ask(7, &request).expect("an answer");
    let codes =
        created.topics.iter().map(|topic| (topic.name.as_str(), topic.error_code)).collect::<Vec<_>>();
    assert_eq!(codes, [("a", ErrorCode::None), ("b", ErrorCode::ThrottlingQuotaExceeded)]);
    assert!(created.throttle_time_ms > 0);
    let request = CreateTopicsRequest { topics: vec![topic("b"), topic("c")], ..Default::default() };
    let created = connection.ask(5, &request).expect("an answer");
    assert!(created.topics.iter().all(|topic| topic.error_code == ErrorCode::None), "{created:?}");
    assert!(created.throttle_time_ms > 0);
}

/// A creation of a million partitions was charged, although it is refused: the client could change no topic for days.
#[test]
fn changes_of_topics_that_are_refused_do_not_use_the_quota() {
    let (broker, mut connection) =
        start_with_quota(&[("user", Some("ANONYMOUS"))], "controller_mutation_rate", 2.0);
    let topic = |name: &str, num_partitions| CreatableTopic {
        name: name.into(),
        num_partitions,
        replication_factor: 1,
        ..Default::default()
    };
    let mut create = |topic: CreatableTopic| {
        let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        let created = connection.ask(7, &request).expect("an answer");
        (created.topics[0].error_code, created.throttle_time_ms)
    };
    let setting = CreatableTopicConfig { name: "no.such".into(), value: Some("1".into()) };
    let refused = [
        (topic("large", 1_000_000), ErrorCode::PolicyViolation),
        (topic("a b", 1_000), ErrorCode::InvalidTopicException),
        (topic("orders", 1_000), ErrorCode::TopicAlreadyExists),
        (CreatableTopic { replication_factor: 9, ..topic("b", 1_000) }, ErrorCode::InvalidReplicationFactor),
        (CreatableTopic { configs: vec![setting], ..topic("c", 1_000) }, ErrorCode::InvalidConfig),
    ];
    for (bad, code) in refused.clone() {
        assert_eq!(create(bad), (code, 0));
    }
    // It overdraws the quota: at two partitions per second, that lasts longer than the rest of the test.
    assert_eq!(create(topic("d", 200)), (ErrorCode::None, 0));
    for (bad, code) in refused {
        assert_eq!(create(bad), (code, 0), "the quota is the last check");
    }
    let mut other = Raw::connect(broker.addresses()[0]);
    let request = DeleteTopicsRequest { topic_names: vec!["missing".into()], ..Default::default() };
    let deleted = other.ask(5, &request).expect("an answer");
    let result = (deleted.responses[0].error_code, deleted.throttle_time_ms);
    assert_eq!(result, (ErrorCode::UnknownTopicOrPartition, 0));
    let mut grow = |count| {
        let grown = CreatePartitionsTopic { name: "orders".into(), count, assignments: None };
        let request = CreatePartitionsRequest { topics: vec![grown], ..Default::default() };
        let grown = other.ask(3, &request).expect("an answer");
        (grown.results[0].error_code, grown.throttle_time_ms)
    };
    assert_eq!(grow(1_000_000), (ErrorCode::PolicyViolation, 0));
    let (code, throttle_ms) = grow(2);
    assert!(code == ErrorCode::ThrottlingQuotaExceeded && throttle_ms > 0, "{code}, {throttle_ms} ms");
    let (code, throttle_ms) = create(topic("e", 1));
    assert!(code == ErrorCode::ThrottlingQuotaExceeded && throttle_ms > 0, "{code}, {throttle_ms} ms");
}

/// Each request for the name made the client pause.
#[test]
fn a_name_that_metadata_cannot_create_does_not_use_the_quota() {
    let (broker, mut connection) =
        start_with_quota(&[("user", Some("ANONYMOUS"))], "controller_mutation_rate", 1.0);
    let names = ["a b", "c d", "e f", "g h"];
    let topics = names.iter().flat_map(|name| metadata_of(name).topics.into_iter().flatten());
    let topics = Some(topics.collect());
    let request = MetadataRequest { topics, allow_auto_topic_creation: true, ..Default::default() };
    let answer = connection.ask(12, &request).expect("an answer");
    assert!(answer.topics.iter().all(|topic| topic.error_code == ErrorCode::InvalidTopicException));
    assert_eq!((answer.topics.len(), answer.throttle_time_ms), (4, 0));
    assert_eq!(throttles(&broker, "controller_mutation_rate"), 0);
}

#[test]
fn topics_that_metadata_creates_count_for_the_quota_of_mutations() {
    let (broker, mut connection) =
        start_with_quota(&[("user", Some("ANONYMOUS"))], "controller_mutation_rate", 1.0);
    let topics = Some(
        metadata_of("refunds")
            .topics
            .into_iter()
            .flatten()
            .chain(metadata_of("payments").topics.into_iter().flatten())
            .collect(),
    );
    let request = MetadataRequest { topics, allow_auto_topic_creation: true, ..Default::default() };
    let first = connection.ask(12, &request).expect("an answer");
    assert_eq!(first.topics.len(), 2);
    assert!(first.topics.iter().all(|topic| topic.error_code != ErrorCode::ThrottlingQuotaExceeded));
    assert!(throttles(&broker, "controller_mutation_rate") >= 1);
}

#[test]
fn a_client_above_its_share_of_the_processor_pauses() {
    let (broker, mut connection) = start_with_quota(&[("user", None)], "request_percentage", 0.001);
    let began = Instant::now();
    while throttles(&broker, "request_percentage") == 0 {
        assert!(connection.is_served() && began.elapsed() < PATIENCE);
    }
}

/// The time of other threads did not count: the decompression of a produced batch, for instance.
#[test]
fn a_client_whose_requests_are_handled_on_other_threads_pauses() {
    // It allows five milliseconds at once.
    let (_broker, mut connection) = start_with_quota(&[("user", None)], "request_percentage", 0.5);
    let seal = Seal { compression: Compression::Gzip, ..Seal::default() };
    // Many small records: a large one inflates faster.
    let values = vec![&b"xxxxxxxxxxxxxxxx"[..]; 300_000];
    let records = batch(&values, &seal);
    let response = connection.ask(12, &produce_request("orders", 1, &records)).expect("an answer");
    assert_eq!(response.responses[0].partition_responses[0].error_code, ErrorCode::None);
    assert!(response.throttle_time_ms > 0);
}

/// Another thread checks batches that an earlier process has written. Its time did not count.
#[test]
fn a_consumer_whose_batches_are_checked_before_they_are_served_pauses() {
    const BATCHES: i64 = 40;
    let disk = MemStorage::new();
    let builder = || Broker::builder().storage(Arc::new(disk.clone())).topic("orders", 1);
    let broker = builder().spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let records = batch(&[&vec![7; 1_000_000]], &Seal::default());
    for _ in 0..BATCHES {
        assert_eq!(connection.produce("orders", 1, &records).error_code, ErrorCode::None);
    }
    broker.stop();
    let broker =
        builder().configure(|config| config.set("quota.window.num", "2").expect("a property")).spawn();
    let broker = broker.expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    // It allows two milliseconds at once: more than the request itself takes, and less than the check of 40 MB.
    let quota = entry(&[("user", None)], &[("request_percentage", Some(0.2))]);
    assert_eq!(alter(&mut connection, vec![quota], false), [ErrorCode::None]);
    let partition =
        FetchPartition { partition_max_bytes: i32::MAX, current_leader_epoch: -1, ..Default::default() };
    let topic = FetchTopic { topic: "orders".into(), partitions: vec![partition], ..Default::default() };
    let request = FetchRequest {
        replica_id: -1,
        max_bytes: i32::MAX,
        max_wait_ms: 0,
        session_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    };
    let response = connection.ask(11, &request).expect("an answer");
    assert_eq!(response.error_code, ErrorCode::None);
    assert!(response.throttle_time_ms > 0, "not throttled");
}

/// They paused although they do not learn of it: a producer with `acks=0` filled its buffer.
#[test]
fn requests_without_a_response_do_not_use_the_share_of_the_processor() {
    const REQUESTS: i64 = 20;
    let (broker, mut connection) = start_with_quota(&[("user", None)], "request_percentage", 0.001);
    let records = batch(&[b"a"], &Seal::default());
    for _ in 0..REQUESTS {
        connection.send(&framed(12, &produce_request("orders", 0, &records)));
    }
    let deadline = Instant::now() + PATIENCE;
    while broker.cluster().offsets_of("orders", 0).expect("a partition").1 < REQUESTS {
        assert!(Instant::now() < deadline, "the batches are not appended");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(throttles(&broker, "request_percentage"), 0);
}

/// They were charged to `User:ANONYMOUS`: a stranger that did not log in made the logins of all clients pause.
#[test]
fn requests_before_the_login_have_no_quota() {
    let sasl = SaslSettings::new([SaslMechanism::Plain]).user("alice", "secret");
    let broker = security::broker(Listener::new("SECURE", security::any_port()).sasl(sasl));
    let mut anonymous = Raw::connect(broker.addresses()[0]);
    let quota = entry(&[("user", None)], &[("request_percentage", Some(0.001))]);
    assert_eq!(alter(&mut anonymous, vec![quota], false), [ErrorCode::None]);
    let began = Instant::now();
    while throttles(&broker, "request_percentage") == 0 {
        assert!(anonymous.is_served() && began.elapsed() < PATIENCE);
    }
    let mut stranger = Raw::connect(security::address(&broker, "SECURE"));
    let request =
        ApiVersionsRequest { client_software_name: "a".into(), client_software_version: "1".into() };
    for _ in 0..10 {
        let versions = stranger.ask(3, &request).expect("an answer");
        assert_eq!(versions.throttle_time_ms, 0);
    }
}

#[test]
fn an_address_with_too_many_new_connections_is_refused_some() {
    let (broker, _connection) = start_with_quota(&[("ip", None)], "connection_creation_rate", 3.0);
    let served = (0..8).filter(|_| Raw::connect(broker.addresses()[0]).is_served()).count();
    assert!((3..8).contains(&served), "{served} connections are served");
    assert!(throttles(&broker, "connection_creation_rate") >= 1);
}

/// Connections were counted after their TLS handshake. Those that did not finish it were not counted at all.
#[test]
fn connections_that_do_not_finish_their_tls_handshake_count_for_the_quota() {
    let settings = security::tls(crate::tls::certificate());
    let broker = security::broker(Listener::new("TLS", security::any_port()).tls(settings));
    let mut connection = Raw::connect(broker.addresses()[0]);
    let quota = entry(&[("ip", None)], &[("connection_creation_rate", Some(1.0))]);
    assert_eq!(alter(&mut connection, vec![quota], false), [ErrorCode::None]);
    let address = security::address(&broker, "TLS");
    let connect = |_| {
        let mut raw = Raw::connect(address);
        raw.send(&[0]);
        raw
    };
    let _unfinished: Vec<Raw> = (0..30).map(connect).collect();
    let deadline = Instant::now() + PATIENCE;
    while throttles(&broker, "connection_creation_rate") == 0 {
        assert!(Instant::now() < deadline, "no connection counts");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn entities_with_long_names_are_refused() {
    let (_broker, mut connection) = start(&MemStorage::new());
    let rate = [("producer_byte_rate", Some(1e6))];
    let name = |bytes| "x".repeat(bytes);
    let (user, too_long, client, too_long_too) = (name(1024), name(1025), name(255), name(256));
    let entries = vec![
        entry(&[("user", Some(&user))], &rate),
        entry(&[("user", Some(&too_long))], &rate),
        entry(&[("client-id", Some(&client))], &rate),
        entry(&[("client-id", Some(&too_long_too))], &rate),
    ];
    let (good, bad) = (ErrorCode::None, ErrorCode::InvalidRequest);
    assert_eq!(alter(&mut connection, entries, false), [good, bad, good, bad]);
}
