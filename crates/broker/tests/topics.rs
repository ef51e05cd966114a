//! Topic settings from the creation of a topic apply, and they survive a restart.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerConfig, BrokerThread, Clock};
use ottla_log::storage::Storage;
use ottla_log::storage::mem::{Fault, MemStorage, OpKind};
use ottla_protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use ottla_protocol::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use ottla_protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use ottla_protocol::messages::describe_topic_partitions::{
    Cursor, DescribeTopicPartitionsRequest, TopicRequest,
};
use ottla_protocol::{ErrorCode, Uuid};
use ottla_wire::Seal;

use crate::common::{PATIENCE, Raw, batch, metadata_of, produce_request};

const NOW_MS: i64 = 1_700_000_000_000;

fn create(connection: &mut Raw, name: &str, configs: &[(&str, &str)]) -> ErrorCode {
    let configs = configs
        .iter()
        .map(|(name, value)| CreatableTopicConfig { name: (*name).into(), value: Some((*value).into()) });
    let topic = CreatableTopic {
        name: name.into(),
        num_partitions: 1,
        replication_factor: 1,
        configs: configs.collect(),
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 1000, validate_only: false };
    connection.ask(7, &request).expect("an answer").topics[0].error_code
}

fn delete(connection: &mut Raw, name: &str) -> ErrorCode {
    let topics = vec![DeleteTopicState { name: Some(name.into()), ..Default::default() }];
    let request = DeleteTopicsRequest { topics, timeout_ms: 1000, ..Default::default() };
    connection.ask(6, &request).expect("an answer").responses[0].error_code
}

fn id_of(connection: &mut Raw, name: &str) -> Uuid {
    connection.ask(12, &metadata_of(name)).expect("an answer").topics[0].topic_id
}

fn on(disk: &MemStorage, clock: &Arc<AtomicI64>) -> BrokerThread {
    Broker::builder()
        .storage(Arc::new(disk.clone()))
        .clock(Clock::Fixed(clock.clone()))
        .configure(|config| config.retention_check = Duration::from_millis(5))
        .spawn()
        .expect("a broker")
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a deadline for what the broker does in the background")]
fn settings_of_a_topic_hold_across_a_restart() {
    let (disk, clock) = (MemStorage::forgetful(), Arc::new(AtomicI64::new(NOW_MS)));
    let broker = on(&disk, &clock);
    let mut connection = Raw::connect(broker.addresses()[0]);
    let configs = [
        ("max.message.bytes", "300"),
        ("segment.bytes", "1024"),
        ("retention.ms", "60000"),
        ("message.timestamp.type", "LogAppendTime"),
    ];
    assert_eq!(create(&mut connection, "orders", &configs), ErrorCode::None);
    assert_eq!(create(&mut connection, "orders", &[]), ErrorCode::TopicAlreadyExists);
    assert_eq!(create(&mut connection, "other", &[("retention.ms", "soon")]), ErrorCode::InvalidConfig);
    assert_eq!(create(&mut connection, "other", &[("no.such.thing", "1")]), ErrorCode::InvalidConfig);
    broker.stop();

    let broker = on(&disk, &clock);
    let mut connection = Raw::connect(broker.addresses()[0]);
    clock.store(NOW_MS + 5, Ordering::Relaxed);
    let answer = connection.produce("orders", -1, &batch(&[&[b'x'; 300]], &Seal::default()));
    assert_eq!(answer.error_code, ErrorCode::MessageTooLarge);
    for _ in 0..20 {
        let answer = connection.produce("orders", -1, &batch(&[&[b'x'; 200]], &Seal::default()));
        assert_eq!((answer.error_code, answer.log_append_time_ms), (ErrorCode::None, NOW_MS + 5));
    }
    let segments = disk
        .paths()
        .iter()
        .filter(|path| path.starts_with("orders-0/") && path.rsplit('.').next() == Some("log"))
        .count();
    assert!(segments >= 5, "{segments} segments of 1024 bytes for 20 batches of 270");

    clock.store(NOW_MS + 120_000, Ordering::Relaxed);
    let deadline = Instant::now() + PATIENCE;
    while broker.cluster().offsets_of("orders", 0).expect("a partition").0 < 10 {
        assert!(Instant::now() < deadline, "retention.ms passed and nothing went");
        std::thread::yield_now();
    }
    assert_eq!(broker.cluster().offsets_of("orders", 0).expect("a partition").1, 20);
}

/// It was that of the arrival of the request: while a batch was checked, others were appended with later times.
#[test]
fn log_append_time_is_the_time_of_the_append() {
    // It advances with each look at it.
    let clock = AtomicI64::new(NOW_MS);
    let clock = Clock::Custom(Arc::new(move || clock.fetch_add(1, Ordering::Relaxed)));
    let broker = Broker::builder().memory().clock(clock).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let config =
        CreatableTopicConfig { name: "message.timestamp.type".into(), value: Some("LogAppendTime".into()) };
    let topic = CreatableTopic {
        name: "orders".into(),
        num_partitions: 2,
        replication_factor: 1,
        configs: vec![config],
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 1000, validate_only: false };
    let created = connection.ask(7, &request).expect("an answer");
    assert_eq!(created.topics[0].error_code, ErrorCode::None);
    let of = |index| {
        let mut topic = produce_request("orders", -1, &batch(&[b"v"], &Seal::default())).topic_data.remove(0);
        topic.partition_data[0].index = index;
        topic
    };
    let mut request = produce_request("orders", -1, &[]);
    request.topic_data = vec![of(0), of(1)];
    let answer = connection.ask(12, &request).expect("an answer");
    let parts: Vec<_> = answer.responses.iter().flat_map(|topic| &topic.partition_responses).collect();
    assert!(parts.iter().all(|part| part.error_code == ErrorCode::None), "{parts:?}");
    assert!(parts[0].log_append_time_ms < parts[1].log_append_time_ms, "{parts:?}");
}

/// As in Apache Kafka. They were written, and made a segment that was larger than the setting.
#[test]
fn batches_above_segment_bytes_are_refused_as_a_list_that_is_too_large() {
    let (disk, clock) = (MemStorage::forgetful(), Arc::new(AtomicI64::new(NOW_MS)));
    let broker = on(&disk, &clock);
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(create(&mut connection, "orders", &[("segment.bytes", "1024")]), ErrorCode::None);
    let refused = connection.produce("orders", -1, &batch(&[&[b'x'; 1024]], &Seal::default()));
    let message = refused.error_message.unwrap_or_default();
    assert_eq!(refused.error_code, ErrorCode::RecordListTooLarge, "{message}");
    assert!(message.contains("orders-0") && message.contains("`segment.bytes`"), "{message}");
    let stored = connection.produce("orders", -1, &batch(&[&[b'x'; 600]], &Seal::default()));
    assert_eq!((stored.error_code, stored.base_offset), (ErrorCode::None, 0));
}

#[test]
fn a_topic_that_is_created_anew_is_another_one() {
    let (disk, clock) = (MemStorage::forgetful(), Arc::new(AtomicI64::new(NOW_MS)));
    let broker = on(&disk, &clock);
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(create(&mut connection, "orders", &[]), ErrorCode::None);
    let first = id_of(&mut connection, "orders");
    connection.produce("orders", -1, &batch(&[b"old"], &Seal::default()));
    assert_eq!(delete(&mut connection, "orders"), ErrorCode::None);
    assert_eq!(delete(&mut connection, "orders"), ErrorCode::UnknownTopicOrPartition);
    assert_eq!(create(&mut connection, "orders", &[]), ErrorCode::None);
    let second = id_of(&mut connection, "orders");
    assert_ne!(first, second);
    assert_eq!(broker.cluster().offsets_of("orders", 0), Some((0, 0)), "nothing of the old one is left");
    broker.stop();
    let broker = on(&disk, &clock);
    assert_eq!(id_of(&mut Raw::connect(broker.addresses()[0]), "orders"), second, "and it stays so");
}

/// One directory that could not be removed stopped every later start and every creation of a topic.
#[test]
fn a_deletion_that_cannot_finish_stops_no_other_topic() {
    let (disk, clock) = (MemStorage::forgetful(), Arc::new(AtomicI64::new(NOW_MS)));
    let broker = on(&disk, &clock);
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(create(&mut connection, "orders", &[]), ErrorCode::None);
    disk.inject(|op| (op.kind == OpKind::Remove && op.path.starts_with("orders-0")).then_some(Fault::Io));
    assert_eq!(delete(&mut connection, "orders"), ErrorCode::None);
    assert_eq!(create(&mut connection, "bills", &[]), ErrorCode::None);
    assert_eq!(create(&mut connection, "orders", &[]), ErrorCode::KafkaStorageError, "its directory is left");
    broker.stop();

    let broker = on(&disk, &clock);
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(create(&mut connection, "returns", &[]), ErrorCode::None);
    disk.heal();
    assert_eq!(create(&mut connection, "orders", &[]), ErrorCode::None, "the deletion was tried again");
    assert_eq!(broker.cluster().offsets_of("orders", 0), Some((0, 0)));
}

/// `delete.topic.enable` had no effect.
#[test]
fn a_broker_without_topic_deletion_refuses_it() {
    let set = |config: &mut BrokerConfig| config.set("delete.topic.enable", "false").expect("a boolean");
    let builder = Broker::builder().memory().topic("orders", 1).configure(set);
    let broker = builder.spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(delete(&mut connection, "orders"), ErrorCode::TopicDeletionDisabled);
    let topic_names = vec!["orders".into()];
    let request = DeleteTopicsRequest { topic_names, timeout_ms: 1000, ..Default::default() };
    for (version, code) in [(1, ErrorCode::InvalidRequest), (3, ErrorCode::TopicDeletionDisabled)] {
        let answer = connection.ask(version, &request).expect("an answer");
        assert_eq!(answer.responses[0].error_code, code, "version {version}");
    }
    assert_eq!(broker.cluster().partitions_of("orders"), Some(1));
}

#[test]
fn partitions_beyond_the_total_are_refused_at_creation_and_growth() {
    let small = Broker::builder().memory().configure(|config| config.partitions_total_max = 3);
    let broker = small.topic("orders", 2).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let grow = |connection: &mut Raw, count| {
        let topic = CreatePartitionsTopic { name: "orders".into(), count, assignments: None };
        let request = CreatePartitionsRequest { topics: vec![topic], timeout_ms: 1000, validate_only: false };
        connection.ask(3, &request).expect("an answer").results[0].clone()
    };
    let refused = grow(&mut connection, 4);
    assert_eq!(refused.error_code, ErrorCode::PolicyViolation);
    let reason = refused.error_message.unwrap_or_default();
    assert!(reason.contains("partitions.total.max=3"), "{reason}");
    assert_eq!(create(&mut connection, "third", &[]), ErrorCode::None);
    assert_eq!(create(&mut connection, "fourth", &[]), ErrorCode::PolicyViolation);
    assert_eq!(delete(&mut connection, "third"), ErrorCode::None);
    assert_eq!(grow(&mut connection, 3).error_code, ErrorCode::None);
}

/// Programs that create a topic unless it exists ask with a replication factor for a cluster, and know one error.
#[test]
fn a_topic_that_exists_is_reported_before_anything_else_that_is_wrong() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let setting = CreatableTopicConfig { name: "no.such.thing".into(), value: Some("1".into()) };
    let assignment = CreatableReplicaAssignment { partition_index: 3, broker_ids: vec![9] };
    let wrong = [
        CreatableTopic { num_partitions: 1, replication_factor: 3, ..Default::default() },
        CreatableTopic { num_partitions: 0, replication_factor: 1, ..Default::default() },
        CreatableTopic { num_partitions: 1, replication_factor: 0, ..Default::default() },
        CreatableTopic { configs: vec![setting], ..Default::default() },
        CreatableTopic { assignments: vec![assignment], ..Default::default() },
    ];
    for (topic, validate_only) in wrong.into_iter().flat_map(|topic| [(topic.clone(), false), (topic, true)])
    {
        let topic = CreatableTopic { name: "orders".into(), ..topic };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 1000, validate_only };
        let answer = connection.ask(7, &request).expect("an answer");
        assert_eq!(answer.topics[0].error_code, ErrorCode::TopicAlreadyExists, "{request:?}");
    }
}

/// Null was an empty value, which a list allows.
#[test]
fn a_setting_without_a_value_is_refused() {
    let broker = Broker::builder().memory().spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    for name in ["cleanup.policy", "leader.replication.throttled.replicas", "retention.ms"] {
        let configs = vec![CreatableTopicConfig { name: name.into(), value: None }];
        let topic = CreatableTopic {
            name: "orders".into(),
            num_partitions: 1,
            replication_factor: 1,
            configs,
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 1000, validate_only: false };
        let answer = connection.ask(7, &request).expect("an answer");
        assert_eq!(answer.topics[0].error_code, ErrorCode::InvalidConfig, "{name}");
    }
}

/// It was null in a result with an error. Kafka's is empty.
#[test]
fn a_topic_that_is_not_created_has_an_empty_list_of_settings() {
    let broker = Broker::builder().memory().spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    for (name, code) in [("orders", ErrorCode::None), ("a b", ErrorCode::InvalidTopicException)] {
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 1000, validate_only: false };
        let topic = connection.ask(5, &request).expect("an answer").topics.remove(0);
        let configs = topic.configs.expect("a list");
        let is_created = code == ErrorCode::None;
        assert_eq!((topic.error_code, configs.is_empty()), (code, !is_created), "{name}");
        assert_eq!(topic.num_partitions, if is_created { 1 } else { -1 }, "{name}");
    }
}

/// It was refused with TOPIC_AUTHORIZATION_FAILED, also in Metadata. Kafka's controller answers INVALID_REQUEST, and its broker does
/// not report errors of topics that it would create.
#[test]
fn the_log_of_the_controllers_is_refused_as_an_invalid_request() {
    let broker = Broker::builder().memory().spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(create(&mut connection, "__cluster_metadata", &[]), ErrorCode::InvalidRequest);
    let answer = connection.ask(12, &metadata_of("__cluster_metadata")).expect("an answer");
    assert_eq!(answer.topics[0].error_code, ErrorCode::UnknownTopicOrPartition);
}

#[test]
fn an_assignment_leaves_the_numbers_of_partitions_and_replicas_open() {
    let broker = Broker::builder().memory().spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let assignment = CreatableReplicaAssignment { partition_index: 0, broker_ids: vec![1] };
    for (num_partitions, replication_factor, code) in
        [(1, -1, ErrorCode::InvalidRequest), (-1, 1, ErrorCode::InvalidRequest), (-1, -1, ErrorCode::None)]
    {
        let topic = CreatableTopic {
            name: "orders".into(),
            num_partitions,
            replication_factor,
            assignments: vec![assignment.clone()],
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 1000, validate_only: false };
        let answer = connection.ask(7, &request).expect("an answer");
        assert_eq!(answer.topics[0].error_code, code, "{num_partitions} {replication_factor}");
    }
}

#[test]
fn a_page_of_partitions_ends_with_its_topic_and_a_cursor_names_one_of_the_topics() {
    let broker = Broker::builder().memory().topic("bills", 2).topic("orders", 2).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let mut page = |cursor: Option<(&str, i32)>| {
        let topics = ["bills", "orders"].map(|name| TopicRequest { name: name.into() });
        let cursor = cursor.map(|(topic, at)| Cursor { topic_name: topic.into(), partition_index: at });
        let request =
            DescribeTopicPartitionsRequest { topics: topics.to_vec(), response_partition_limit: 2, cursor };
        connection.ask(0, &request).expect("an answer")
    };
    let first = page(None);
    assert_eq!(first.topics.len(), 1);
    let next = first.next_cursor.expect("a cursor");
    assert_eq!((&*next.topic_name, next.partition_index), ("orders", 0));
    let last = page(Some(("orders", 0)));
    assert_eq!((last.topics.len(), last.topics[0].partitions.len()), (1, 2));
    assert!(last.next_cursor.is_none());
    for wrong in [("bills", -1), ("missing", 0)] {
        let refused = page(Some(wrong));
        assert!(
            refused.topics.iter().all(|topic| topic.error_code == ErrorCode::InvalidRequest),
            "{wrong:?}"
        );
    }
}

/// Every file of the topic was removed when the next topic was created, and what was produced to it since was acknowledged.
#[test]
fn a_topic_whose_deletion_failed_keeps_its_files_and_acknowledges_nothing() {
    let (disk, clock) = (MemStorage::forgetful(), Arc::new(AtomicI64::new(NOW_MS)));
    let broker = on(&disk, &clock);
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(create(&mut connection, "orders", &[]), ErrorCode::None);
    let produced = connection.produce("orders", -1, &batch(&[b"a"], &Seal::default()));
    assert_eq!(produced.error_code, ErrorCode::None);
    let files = disk.list("orders-0").expect("a directory");
    disk.inject(|op| {
        (op.kind == OpKind::SyncData && op.path.starts_with("__ottla-meta")).then_some(Fault::Io)
    });
    assert_eq!(delete(&mut connection, "orders"), ErrorCode::KafkaStorageError);
    disk.heal();
    assert_eq!(create(&mut connection, "bills", &[]), ErrorCode::KafkaStorageError);
    assert_eq!(disk.list("orders-0").expect("a directory"), files);
    let produced = connection.produce("orders", -1, &batch(&[b"b"], &Seal::default()));
    assert_eq!(produced.error_code, ErrorCode::KafkaStorageError, "the next start may delete it");
}
