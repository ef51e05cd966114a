//! ACLs: Kafka's rules and errors, for every API.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_broker::{Broker, BrokerThread};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::messages as m;
use ottla_protocol::{ApiKey, ErrorCode, Uuid};
use ottla_wire::Seal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::common;
use crate::common::sound::{TOPIC, in_outer_versions};
use crate::common::{Heard, PATIENCE, Raw, batch, framed, metadata_of};
use crate::data_loss::Lines;

const STANDARD: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";
const EVERYONE: &str = "User:ANONYMOUS";

/// Types of resources, patterns, operations and permissions by their numbers.
const ANY: i8 = 1;
const TOPICS: i8 = 2;
const GROUPS: i8 = 3;
const CLUSTER: i8 = 4;
const MATCH: i8 = 2;
const LITERAL: i8 = 3;
const PREFIXED: i8 = 4;
const ALL: i8 = 2;
const READ: i8 = 3;
const WRITE: i8 = 4;
const CREATE: i8 = 5;
const DELETE: i8 = 6;
const ALTER: i8 = 7;
const DESCRIBE: i8 = 8;
const CLUSTER_ACTION: i8 = 9;
const DENY: i8 = 2;
const ALLOW: i8 = 3;

pub(crate) fn start(disk: &MemStorage, properties: &[(&str, &str)]) -> (BrokerThread, Raw) {
    let broker = Broker::builder().storage(Arc::new(disk.clone())).configure(|config| {
        config.set("authorizer.class.name", STANDARD).expect("an authorizer");
        for (name, value) in properties {
            config.set(name, value).expect("a property");
        }
    });
    let broker = broker.spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

fn acl(
    resource_type: i8,
    pattern: i8,
    name: &str,
    operation: i8,
    permission: i8,
) -> m::create_acls::AclCreation {
    m::create_acls::AclCreation {
        resource_type,
        resource_name: name.into(),
        resource_pattern_type: pattern,
        principal: EVERYONE.into(),
        host: "*".into(),
        operation,
        permission_type: permission,
    }
}

fn create(connection: &mut Raw, creations: Vec<m::create_acls::AclCreation>) -> Vec<ErrorCode> {
    let created = connection.ask(3, &m::create_acls::CreateAclsRequest { creations }).expect("an answer");
    created.results.iter().map(|result| result.error_code).collect()
}

/// Stores what a super user has made, for a broker in which everyone is an ordinary client.
pub(crate) fn world(acls: Vec<m::create_acls::AclCreation>) -> MemStorage {
    let disk = MemStorage::new();
    let (broker, mut connection) = start(&disk, &[("super.users", EVERYONE)]);
    for topic in [TOPIC, "secret"] {
        let made = connection.ask(9, &metadata_of(topic)).expect("an answer");
        assert_eq!(made.topics[0].error_code, ErrorCode::None);
    }
    let expected = vec![ErrorCode::None; acls.len()];
    assert_eq!(create(&mut connection, acls), expected);
    broker.stop();
    disk
}

fn filter(resource_type: i8, pattern: i8, name: Option<&str>) -> m::describe_acls::DescribeAclsRequest {
    m::describe_acls::DescribeAclsRequest {
        resource_type_filter: resource_type,
        resource_name_filter: name.map(Into::into),
        pattern_type_filter: pattern,
        principal_filter: None,
        host_filter: None,
        operation: ANY,
        permission_type: ANY,
    }
}

/// The names and the pattern types of the ACLs that a filter selects, with the number of their ACLs.
fn selected(
    connection: &mut Raw,
    request: &m::describe_acls::DescribeAclsRequest,
) -> Vec<(String, i8, usize)> {
    let described = connection.ask(3, request).expect("an answer");
    assert_eq!(described.error_code, ErrorCode::None);
    let resources = described.resources.into_iter();
    resources.map(|found| (found.resource_name, found.pattern_type, found.acls.len())).collect()
}

/// The pattern of a group was matched again only after a change of the topics.
#[test]
fn a_pattern_is_matched_again_after_a_change_of_the_acls() {
    let disk = world(vec![
        acl(TOPICS, LITERAL, TOPIC, DESCRIBE, ALLOW),
        acl(GROUPS, LITERAL, "billing", READ, ALLOW),
        acl(CLUSTER, LITERAL, "kafka-cluster", ALTER, ALLOW),
    ]);
    let (_broker, mut connection) = start(&disk, &[("group.consumer.assignment.interval.ms", "0")]);
    let join = m::consumer_group_heartbeat::ConsumerGroupHeartbeatRequest {
        group_id: "billing".into(),
        member_id: "a".into(),
        rebalance_timeout_ms: 60_000,
        subscribed_topic_regex: Some(".*".into()),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    let joined = connection.ask(1, &join).expect("an answer");
    assert_eq!(joined.error_code, ErrorCode::None, "{:?}", joined.error_message);
    let topics = |answer: &m::consumer_group_heartbeat::ConsumerGroupHeartbeatResponse| {
        answer.assignment.as_ref().map(|assignment| assignment.topic_partitions.len())
    };
    assert_eq!(topics(&joined), Some(1));
    let allowed = create(&mut connection, vec![acl(TOPICS, LITERAL, "secret", DESCRIBE, ALLOW)]);
    assert_eq!(allowed, [ErrorCode::None]);
    let stay = m::consumer_group_heartbeat::ConsumerGroupHeartbeatRequest {
        group_id: "billing".into(),
        member_id: "a".into(),
        member_epoch: joined.member_epoch,
        ..Default::default()
    };
    let stayed = connection.ask(1, &stay).expect("an answer");
    assert_eq!((stayed.error_code, topics(&stayed)), (ErrorCode::None, Some(2)));
}

#[test]
fn a_member_of_the_new_protocol_must_be_allowed_to_describe_its_topics() {
    let disk = world(vec![
        acl(TOPICS, LITERAL, TOPIC, DESCRIBE, ALLOW),
        acl(GROUPS, LITERAL, "billing", READ, ALLOW),
    ]);
    let (_broker, mut connection) = start(&disk, &[]);
    let mut join = |topics: &[&str]| {
        let request = m::consumer_group_heartbeat::ConsumerGroupHeartbeatRequest {
            group_id: "billing".into(),
            member_id: "a".into(),
            rebalance_timeout_ms: 60_000,
            subscribed_topic_names: Some(topics.iter().map(|topic| (*topic).to_owned()).collect()),
            topic_partitions: Some(Vec::new()),
            ..Default::default()
        };
        connection.ask(1, &request).expect("an answer").error_code
    };
    assert_eq!(join(&[TOPIC, "secret"]), ErrorCode::TopicAuthorizationFailed);
    assert_eq!(join(&[TOPIC, "missing"]), ErrorCode::TopicAuthorizationFailed);
    assert_eq!(join(&[TOPIC]), ErrorCode::None);
}

/// As in Kafka, the assigned topics decide. A member's subscription to a topic that the client may not describe hid the whole group.
#[test]
fn a_group_is_described_to_a_client_that_may_describe_its_assigned_topics() {
    let disk = world(vec![
        acl(TOPICS, LITERAL, "*", DESCRIBE, ALLOW),
        acl(GROUPS, LITERAL, "billing", READ, ALLOW),
        acl(CLUSTER, LITERAL, "kafka-cluster", ALTER, ALLOW),
    ]);
    let (_broker, mut connection) = start(&disk, &[("group.consumer.assignment.interval.ms", "0")]);
    let join = m::consumer_group_heartbeat::ConsumerGroupHeartbeatRequest {
        group_id: "billing".into(),
        member_id: "a".into(),
        rebalance_timeout_ms: 60_000,
        subscribed_topic_names: Some(vec![TOPIC.into(), "missing".into()]),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    let joined = connection.ask(1, &join).expect("an answer");
    assert_eq!(joined.error_code, ErrorCode::None, "{:?}", joined.error_message);
    let group_ids = vec!["billing".into()];
    let describe = m::ConsumerGroupDescribeRequest { group_ids, ..Default::default() };
    let mut described_without = |denied: &str| {
        let denied = create(&mut connection, vec![acl(TOPICS, LITERAL, denied, DESCRIBE, DENY)]);
        assert_eq!(denied, [ErrorCode::None]);
        connection.ask(1, &describe).expect("an answer").groups.remove(0)
    };
    let group = described_without("missing");
    assert_eq!((group.error_code, group.members.len()), (ErrorCode::None, 1), "{group:?}");
    let group = described_without(TOPIC);
    assert_eq!((group.error_code, group.members.len()), (ErrorCode::TopicAuthorizationFailed, 0));
    let message = group.error_message.expect("Kafka's text");
    assert_eq!(message, "The group has described topic(s) that the client is not authorized to describe.");
}

#[test]
fn acls_are_created_described_deleted_and_survive_a_restart() {
    let disk = world(vec![
        acl(TOPICS, LITERAL, "orders", READ, ALLOW),
        acl(TOPICS, LITERAL, "orders", WRITE, DENY),
        acl(TOPICS, LITERAL, "orders", READ, ALLOW),
        acl(TOPICS, LITERAL, "*", DESCRIBE, ALLOW),
        acl(TOPICS, PREFIXED, "ord", READ, ALLOW),
        acl(GROUPS, LITERAL, "orders", READ, ALLOW),
    ]);
    let (_broker, mut connection) = start(&disk, &[("super.users", "User:admin; User:ANONYMOUS")]);
    let of = |name: &str, pattern, count| (name.to_owned(), pattern, count);
    assert_eq!(selected(&mut connection, &filter(ANY, ANY, None)).len(), 4);
    assert_eq!(
        selected(&mut connection, &filter(TOPICS, ANY, Some("orders"))),
        [of("orders", LITERAL, 2)],
        "two equal ACLs are one"
    );
    let matching = selected(&mut connection, &filter(TOPICS, MATCH, Some("orders")));
    assert_eq!(matching, [of("*", LITERAL, 1), of("orders", LITERAL, 2), of("ord", PREFIXED, 1)]);
    let filters = vec![
        m::delete_acls::DeleteAclsFilter {
            resource_type_filter: TOPICS,
            resource_name_filter: None,
            pattern_type_filter: LITERAL,
            principal_filter: None,
            host_filter: None,
            operation: ANY,
            permission_type: DENY,
        },
        m::delete_acls::DeleteAclsFilter { pattern_type_filter: 0, ..Default::default() },
    ];
    let deleted = connection.ask(3, &m::delete_acls::DeleteAclsRequest { filters }).expect("an answer");
    let results = deleted.filter_results.iter().map(|result| (result.error_code, result.matching_acls.len()));
    assert_eq!(results.collect::<Vec<_>>(), [(ErrorCode::None, 1), (ErrorCode::InvalidRequest, 0)]);
    assert_eq!(
        selected(&mut connection, &filter(TOPICS, LITERAL, Some("orders"))),
        [of("orders", LITERAL, 1)]
    );
}

/// A description is made in steps of a thousand ACLs, and the end of a step can be within a resource.
#[test]
fn each_resource_is_described_once_with_all_its_acls() {
    let (_broker, mut connection) = start(&MemStorage::new(), &[("super.users", EVERYONE)]);
    let names = (0..1000).map(|number| format!("topic-{number}"));
    let of = |name: String| [READ, WRITE, DESCRIBE].map(|it| acl(TOPICS, LITERAL, &name, it, ALLOW));
    let created = create(&mut connection, names.flat_map(of).collect());
    assert_eq!(created, [ErrorCode::None; 3000]);
    let described = selected(&mut connection, &filter(ANY, ANY, None));
    assert_eq!(described.len(), 1000);
    assert!(described.iter().all(|(_, _, acls)| *acls == 3), "{described:?}");
}

#[test]
fn acls_that_kafka_refuses_are_refused() {
    let (_broker, mut connection) = start(&MemStorage::new(), &[("super.users", EVERYONE)]);
    let sound = || acl(TOPICS, LITERAL, "orders", READ, ALLOW);
    let bad = [
        acl(ANY, LITERAL, "orders", READ, ALLOW),
        acl(TOPICS, MATCH, "orders", READ, ALLOW),
        acl(TOPICS, LITERAL, "", READ, ALLOW),
        acl(TOPICS, LITERAL, "orders", ANY, ALLOW),
        acl(TOPICS, LITERAL, "orders", READ, ANY),
        acl(CLUSTER, LITERAL, "another", READ, ALLOW),
        m::create_acls::AclCreation { principal: "anna".into(), ..sound() },
    ];
    let expected = [vec![ErrorCode::InvalidRequest; bad.len()], vec![ErrorCode::None]].concat();
    let creations = bad.into_iter().chain([sound()]).collect();
    assert_eq!(create(&mut connection, creations), expected);
    assert_eq!(selected(&mut connection, &filter(ANY, ANY, None)).len(), 1);
}

/// The APIs that do not refuse a client without rights: they list nothing, or they refuse everyone.
const OPEN: &[ApiKey] = &[
    ApiKey::ApiVersions,
    ApiKey::CreateDelegationToken,
    ApiKey::DescribeCluster,
    ApiKey::DescribeDelegationToken,
    ApiKey::ExpireDelegationToken,
    ApiKey::ListGroups,
    ApiKey::ListTransactions,
    ApiKey::RenewDelegationToken,
    ApiKey::SaslAuthenticate,
    ApiKey::SaslHandshake,
];

/// The numbers of TOPIC_, GROUP_, CLUSTER_ and TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
const DENIED: [i16; 4] = [29, 30, 31, 53];

#[test]
fn a_client_without_rights_is_refused_by_every_api() {
    let disk = world(Vec::new());
    let (broker, _) = start(&disk, &[]);
    let address = broker.addresses()[0];
    let mut granted: BTreeMap<String, String> = BTreeMap::new();
    for sound in in_outer_versions(address) {
        let mut connection = Raw::connect(address);
        connection.send(&sound.frame);
        let Heard::Answer(answer) = connection.hear() else {
            granted.insert(sound.name(), "closed".into());
            continue;
        };
        if OPEN.contains(&sound.api) {
            continue;
        }
        // Ids reveal nothing: there is no topic with the id of this request.
        let ids_from = [(ApiKey::Fetch, 13), (ApiKey::Produce, 13)];
        let has_ids = ids_from.iter().any(|(api, from)| sound.api == *api && sound.version >= *from);
        let denied = &DENIED[..];
        let denied = if has_ids { &[ErrorCode::UnknownTopicId.code()] } else { denied };
        let has_denial = answer.windows(2).any(|two| denied.contains(&i16::from_be_bytes([two[0], two[1]])));
        // The first versions have no error code.
        let is_empty = sound.api == ApiKey::DescribeLogDirs && answer.len() <= 16;
        if !has_denial && !is_empty {
            granted.insert(sound.name(), format!("{:?}", &answer[..answer.len().min(80)]));
        }
    }
    assert!(granted.is_empty(), "{granted:#?}");
}

#[test]
fn a_client_sees_what_its_acls_allow_and_no_more() {
    let disk = world(vec![
        acl(TOPICS, PREFIXED, "ord", READ, ALLOW),
        acl(TOPICS, LITERAL, "orders", WRITE, ALLOW),
        acl(GROUPS, LITERAL, "g", READ, ALLOW),
    ]);
    let (_broker, mut connection) = start(&disk, &[]);
    let all = m::metadata::MetadataRequest {
        include_topic_authorized_operations: true,
        include_cluster_authorized_operations: true,
        ..Default::default()
    };
    let all = connection.ask(9, &m::metadata::MetadataRequest { topics: None, ..all }).expect("an answer");
    let names: Vec<_> = all.topics.iter().map(|topic| topic.name.as_deref().unwrap_or_default()).collect();
    assert_eq!(names, [TOPIC]);
    assert_eq!(all.topics[0].topic_authorized_operations, 1 << READ | 1 << WRITE | 1 << DESCRIBE);
    assert_eq!(all.cluster_authorized_operations, 0);

    // A topic that exists and one that does not look alike.
    let code_of = |connection: &mut Raw, topic: &str| {
        connection.ask(9, &metadata_of(topic)).expect("an answer").topics[0].error_code
    };
    assert_eq!(code_of(&mut connection, "secret"), ErrorCode::TopicAuthorizationFailed);
    assert_eq!(code_of(&mut connection, "missing"), ErrorCode::TopicAuthorizationFailed);
    assert_eq!(
        code_of(&mut connection, "ordinary"),
        ErrorCode::TopicAuthorizationFailed,
        "CREATE is missing"
    );
    assert_eq!(code_of(&mut connection, TOPIC), ErrorCode::None);

    let records = batch(&[b"one"], &Seal::default());
    assert_eq!(connection.produce(TOPIC, 1, &records).error_code, ErrorCode::None);
    assert_eq!(connection.produce("secret", 1, &records).error_code, ErrorCode::TopicAuthorizationFailed);
    let idempotent = m::init_producer_id::InitProducerIdRequest {
        transactional_id: None,
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    };
    let begun = connection.ask(4, &idempotent).expect("an answer");
    assert_eq!(begun.error_code, ErrorCode::None, "the right to write to some topic suffices");
    let transactional =
        m::init_producer_id::InitProducerIdRequest { transactional_id: Some("t".into()), ..idempotent };
    let begun = connection.ask(4, &transactional).expect("an answer");
    assert_eq!(begun.error_code, ErrorCode::TransactionalIdAuthorizationFailed);
}

/// Kafka sends a text or nothing. An empty text came from the default of a nullable field.
#[test]
fn no_refusal_has_an_empty_message() {
    let disk = world(Vec::new());
    let (broker, _) = start(&disk, &[]);
    let address = broker.addresses()[0];
    let mut empty = Vec::new();
    for sound in in_outer_versions(address) {
        let mut connection = Raw::connect(address);
        connection.send(&sound.frame);
        let Heard::Answer(answer) = connection.hear() else { continue };
        let text = (sound.response_text)(answer, sound.version);
        // Kafka's refusals of FindCoordinator have an empty text. Version 0 of DescribeQuorum has no text.
        let has_none = sound.api == ApiKey::FindCoordinator
            || (sound.api == ApiKey::DescribeQuorum && sound.version < 2);
        let has_message = !has_none && text.contains("AuthorizationFailed, error_message: Some(\"\")");
        if has_message {
            empty.push(format!("{}: {text}", sound.name()));
        }
    }
    assert!(empty.is_empty(), "{empty:#?}");
}

/// Kafka: by its name, a topic is deleted by those who may also describe it.
#[test]
fn a_topic_that_a_client_may_not_see_is_not_deleted_by_its_name() {
    let disk =
        world(vec![acl(TOPICS, LITERAL, "*", DELETE, ALLOW), acl(TOPICS, LITERAL, "secret", DESCRIBE, DENY)]);
    let (_broker, mut connection) = start(&disk, &[]);
    assert_eq!(delete(&mut connection, "secret"), ErrorCode::TopicAuthorizationFailed);
    assert_eq!(delete(&mut connection, "seen"), ErrorCode::UnknownTopicOrPartition);
    assert_eq!(delete(&mut connection, TOPIC), ErrorCode::None);
}

fn delete(connection: &mut Raw, topic: &str) -> ErrorCode {
    let topics = vec![m::delete_topics::DeleteTopicState { name: Some(topic.into()), ..Default::default() }];
    let request = m::DeleteTopicsRequest { topics, timeout_ms: 10_000, ..Default::default() };
    connection.ask(6, &request).expect("an answer").responses[0].error_code
}

/// It got TOPIC_AUTHORIZATION_FAILED, as if another client could delete the topics.
#[test]
fn a_broker_without_topic_deletion_says_so_to_clients_without_rights() {
    let (broker, mut connection) = start(&world(Vec::new()), &[("delete.topic.enable", "false")]);
    for topic in ["secret", TOPIC, "missing"] {
        assert_eq!(delete(&mut connection, topic), ErrorCode::TopicDeletionDisabled, "{topic}");
    }
    assert!(broker.cluster().offsets_of("secret", 0).is_some());
}

/// Kafka's controller asks for DELETE of the cluster before it asks for the topics. Each topic was refused.
#[test]
fn a_client_that_may_delete_in_the_cluster_deletes_every_topic() {
    let disk = world(vec![
        acl(CLUSTER, LITERAL, "kafka-cluster", DELETE, ALLOW),
        acl(TOPICS, LITERAL, TOPIC, DESCRIBE, ALLOW),
    ]);
    let (_broker, mut connection) = start(&disk, &[]);
    assert_eq!(delete(&mut connection, "secret"), ErrorCode::None);
    let topic_id = connection.ask(12, &metadata_of(TOPIC)).expect("an answer").topics[0].topic_id;
    let topics = vec![m::delete_topics::DeleteTopicState { name: None, topic_id }];
    let request = m::DeleteTopicsRequest { topics, timeout_ms: 10_000, ..Default::default() };
    let answer = connection.ask(6, &request).expect("an answer");
    assert_eq!(answer.responses[0].error_code, ErrorCode::None);
    assert_eq!(delete(&mut connection, "missing"), ErrorCode::UnknownTopicOrPartition);
}

/// An item with a name and an unknown id was authorized by the id and deleted by the name.
#[test]
fn a_topic_is_not_deleted_by_its_name_beside_an_id() {
    let disk = world(vec![acl(TOPICS, LITERAL, TOPIC, ALL, ALLOW)]);
    let (broker, mut connection) = start(&disk, &[]);
    let own = connection.ask(12, &metadata_of(TOPIC)).expect("an answer").topics[0].topic_id;
    for topic_id in [own, Uuid([7; 16])] {
        let topics = vec![m::delete_topics::DeleteTopicState { name: Some("secret".into()), topic_id }];
        let request = m::DeleteTopicsRequest { topics, timeout_ms: 10_000, ..Default::default() };
        let answer = connection.ask(6, &request).expect("an answer");
        assert_eq!(answer.responses[0].error_code, ErrorCode::InvalidRequest);
    }
    for topic in ["secret", TOPIC] {
        assert!(broker.cluster().offsets_of(topic, 0).is_some(), "{topic} is gone");
    }
}

/// The list was null. Kafka's is empty, and has an error of its own.
#[test]
fn a_client_that_may_only_create_a_topic_gets_an_empty_list_of_its_settings() {
    let disk = world(vec![acl(TOPICS, LITERAL, "new", CREATE, ALLOW)]);
    let (_broker, mut connection) = start(&disk, &[]);
    let new = m::create_topics::CreatableTopic {
        name: "new".into(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request = m::CreateTopicsRequest { topics: vec![new], timeout_ms: 10_000, ..Default::default() };
    let topic = connection.ask(7, &request).expect("an answer").topics.remove(0);
    assert_eq!(topic.error_code, ErrorCode::None);
    assert_eq!(topic.topic_config_error_code, ErrorCode::TopicAuthorizationFailed);
    assert_eq!((topic.configs, topic.num_partitions), (Some(Vec::new()), -1));
}

/// The log had a denial of DESCRIBE_CONFIGS, which a client that creates a topic does not need. Kafka's has none.
#[test]
fn a_topic_is_created_without_a_denial_in_the_log() {
    let disk = world(vec![acl(TOPICS, LITERAL, "new", CREATE, ALLOW)]);
    let topic = |name: &str| m::create_topics::CreatableTopic {
        name: name.into(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let topics = vec![topic("new"), topic("other")];
    let request = m::CreateTopicsRequest { topics, timeout_ms: 10_000, ..Default::default() };
    let lines = Lines::default();
    let log = tracing_subscriber::fmt().with_writer(lines.clone()).with_ansi(false).finish();
    // The broker runs on this thread, whose log is captured.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let created = async {
        let broker = Broker::builder().storage(Arc::new(disk)).no_listener();
        let broker =
            broker.configure(|config| config.set("authorizer.class.name", STANDARD).expect("an authorizer"));
        let mut broker = broker.start().await.expect("a broker");
        let mut connection = broker.connect(1);
        connection.write_all(&framed(7, &request)).await.expect("sent");
        let answer = tokio::time::timeout(PATIENCE, connection.read_i32()).await;
        answer.expect("in time").expect("an answer");
        assert!(broker.cluster().partitions_of("new").is_some(), "created");
        broker.stop().await;
    };
    tracing::subscriber::with_default(log, || runtime.block_on(created));
    let text = lines.text();
    assert!(text.contains("other"), "{text}");
    assert!(!text.contains("DescribeConfigs"), "{text}");
}

/// Kafka: the right of a replica suffices for OffsetForLeaderEpoch.
#[test]
fn a_replica_learns_the_ends_of_epochs_without_a_right_to_the_topic() {
    let disk = world(vec![acl(CLUSTER, LITERAL, "kafka-cluster", CLUSTER_ACTION, ALLOW)]);
    let (_broker, mut connection) = start(&disk, &[]);
    let partitions = vec![m::offset_for_leader_epoch::OffsetForLeaderPartition {
        current_leader_epoch: -1,
        ..Default::default()
    }];
    let topic = |topic: &str| m::offset_for_leader_epoch::OffsetForLeaderTopic {
        topic: topic.into(),
        partitions: partitions.clone(),
    };
    let topics = vec![topic("secret"), topic("missing")];
    let request = m::OffsetForLeaderEpochRequest { topics, ..Default::default() };
    let answer = connection.ask(4, &request).expect("an answer");
    let codes: Vec<_> = answer.topics.iter().map(|topic| topic.partitions[0].error_code).collect();
    assert_eq!(codes, [ErrorCode::None, ErrorCode::UnknownTopicOrPartition]);
}

#[test]
fn the_rights_to_a_topic_that_does_not_exist_are_listed() {
    let disk = world(vec![acl(TOPICS, PREFIXED, "mis", WRITE, ALLOW)]);
    let (_broker, mut connection) = start(&disk, &[]);
    let mut request = metadata_of("missing");
    request.allow_auto_topic_creation = false;
    request.include_topic_authorized_operations = true;
    let answer = connection.ask(9, &request).expect("an answer");
    let topic = &answer.topics[0];
    let expected = (ErrorCode::UnknownTopicOrPartition, 1 << WRITE | 1 << DESCRIBE);
    assert_eq!((topic.error_code, topic.topic_authorized_operations), expected);
}

/// A client that names no topic at all learns nothing, and gets the error of an id that does not exist.
#[test]
fn a_topic_without_an_id_is_unknown() {
    let disk = world(Vec::new());
    let (_broker, mut connection) = start(&disk, &[]);
    let produce = common::produce_request("", 1, &batch(&[b"one"], &Seal::default()));
    let answer = connection.ask(13, &produce).expect("an answer");
    assert_eq!(answer.responses[0].partition_responses[0].error_code, ErrorCode::UnknownTopicId);

    let (_broker, mut connection) = start(&world(vec![acl(GROUPS, LITERAL, "g", READ, ALLOW)]), &[]);
    let topics = vec![m::offset_commit::OffsetCommitRequestTopic {
        partitions: vec![m::offset_commit::OffsetCommitRequestPartition::default()],
        ..Default::default()
    }];
    let commit = m::OffsetCommitRequest {
        group_id: "g".into(),
        generation_id_or_member_epoch: -1,
        topics,
        ..Default::default()
    };
    let answer = connection.ask(10, &commit).expect("an answer");
    assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::UnknownTopicId);
}

/// The item that is refused has the error, where Kafka's response has a place for it there.
#[test]
fn refusals_of_the_cluster_have_kafkas_form() {
    const REFUSED: ErrorCode = ErrorCode::ClusterAuthorizationFailed;
    let (_broker, mut connection) = start(&world(Vec::new()), &[]);
    let partitions = vec![m::describe_quorum::requested::PartitionData { partition_index: 0 }];
    let topics = vec![m::describe_quorum::requested::TopicData {
        topic_name: "__cluster_metadata".into(),
        partitions,
    }];
    let answer = connection.ask(2, &m::DescribeQuorumRequest { topics }).expect("an answer");
    assert_eq!((answer.error_code, answer.topics.len(), answer.nodes.len()), (REFUSED, 0, 0));
    assert!(answer.error_message.is_some_and(|text| !text.is_empty()));

    let partitions = vec![m::alter_partition_reassignments::ReassignablePartition {
        partition_index: 3,
        replicas: Some(vec![1]),
    }];
    let topics = vec![m::alter_partition_reassignments::ReassignableTopic { name: TOPIC.into(), partitions }];
    let request = m::AlterPartitionReassignmentsRequest { timeout_ms: 1000, topics, ..Default::default() };
    let answer = connection.ask(0, &request).expect("an answer");
    assert_eq!(answer.error_code, REFUSED);
    let partition = &answer.responses[0].partitions[0];
    let of_partition = (answer.responses[0].name.as_str(), partition.partition_index, partition.error_code);
    assert_eq!(of_partition, (TOPIC, 3, REFUSED));
    assert_eq!(partition.error_message, answer.error_message);

    let users = Some(vec![m::describe_user_scram_credentials::UserName { name: "alice".into() }]);
    let request = m::DescribeUserScramCredentialsRequest { users };
    let answer = connection.ask(0, &request).expect("an answer");
    assert_eq!((answer.error_code, answer.error_message), (REFUSED, None));
    let result = &answer.results[0];
    assert_eq!(
        (result.user.as_str(), result.error_code, result.error_message.as_deref()),
        ("alice", REFUSED, None)
    );
    assert!(result.credential_infos.is_empty());
}

/// Items of one request are checked one by one.
#[test]
fn the_allowed_items_of_a_request_are_handled() {
    let disk = world(vec![acl(TOPICS, LITERAL, TOPIC, READ, ALLOW), acl(GROUPS, LITERAL, "g", READ, ALLOW)]);
    let (_broker, mut connection) = start(&disk, &[]);
    let topic = |name: &str| m::list_offsets::ListOffsetsTopic {
        name: name.into(),
        partitions: vec![m::list_offsets::ListOffsetsPartition {
            timestamp: -1,
            current_leader_epoch: -1,
            ..Default::default()
        }],
    };
    let request = m::list_offsets::ListOffsetsRequest {
        replica_id: -1,
        topics: ["secret", TOPIC, "missing"].map(topic).to_vec(),
        ..Default::default()
    };
    let answer = connection.ask(5, &request).expect("an answer");
    let codes = answer.topics.iter().map(|topic| (topic.name.as_str(), topic.partitions[0].error_code));
    let denied = ErrorCode::TopicAuthorizationFailed;
    assert_eq!(
        codes.collect::<Vec<_>>(),
        [(TOPIC, ErrorCode::None), ("secret", denied), ("missing", denied)]
    );

    let mut commit = common::commit_request("g", 7);
    let mut secret = commit.topics[0].clone();
    secret.name = "secret".into();
    commit.topics.push(secret);
    let answer = connection.ask(8, &commit).expect("an answer");
    let codes = answer.topics.iter().map(|topic| topic.partitions[0].error_code).collect::<Vec<_>>();
    assert_eq!(codes, [ErrorCode::None, denied]);
}

#[test]
fn a_denial_wins_and_changes_apply_at_once() {
    let disk = world(vec![
        acl(TOPICS, LITERAL, "*", ALL, ALLOW),
        acl(CLUSTER, LITERAL, "kafka-cluster", ALL, ALLOW),
    ]);
    let (_broker, mut connection) = start(&disk, &[]);
    let records = batch(&[b"one"], &Seal::default());
    assert_eq!(connection.produce(TOPIC, 1, &records).error_code, ErrorCode::None);
    assert_eq!(create(&mut connection, vec![acl(TOPICS, PREFIXED, "ord", WRITE, DENY)]), [ErrorCode::None]);
    assert_eq!(connection.produce(TOPIC, 1, &records).error_code, ErrorCode::TopicAuthorizationFailed);
    assert_eq!(connection.produce("secret", 1, &records).error_code, ErrorCode::None);
}

#[test]
fn without_acls_for_a_resource_everyone_may_use_it_if_so_configured() {
    let disk = world(vec![acl(TOPICS, LITERAL, "secret", CREATE, ALLOW)]);
    let (_broker, mut connection) = start(&disk, &[("allow.everyone.if.no.acl.found", "true")]);
    let records = batch(&[b"one"], &Seal::default());
    assert_eq!(connection.produce(TOPIC, 1, &records).error_code, ErrorCode::None);
    assert_eq!(connection.produce("secret", 1, &records).error_code, ErrorCode::TopicAuthorizationFailed);
}

/// Each of the filters had a copy of every ACL: a request of a megabyte had a response of gigabytes.
#[test]
fn filters_that_select_the_same_acls_again_and_again_are_refused() {
    let (_broker, mut connection) = start(&MemStorage::new(), &[("super.users", EVERYONE)]);
    let acls = (0..400).map(|number| acl(TOPICS, LITERAL, &format!("topic-{number}"), READ, ALLOW));
    assert!(create(&mut connection, acls.collect()).iter().all(|code| *code == ErrorCode::None));
    let filter = m::delete_acls::DeleteAclsFilter {
        resource_type_filter: ANY,
        resource_name_filter: None,
        pattern_type_filter: ANY,
        principal_filter: None,
        host_filter: None,
        operation: ANY,
        permission_type: ANY,
    };
    let request = m::delete_acls::DeleteAclsRequest { filters: vec![filter; 300] };
    let results = connection.ask(3, &request).expect("an answer").filter_results;
    let (found, refused) = results.split_at(250);
    assert!(found.iter().all(|result| result.matching_acls.len() == 400));
    assert!(refused.iter().all(|result| result.error_code == ErrorCode::PolicyViolation));
    assert!(refused.iter().all(|result| result.matching_acls.is_empty()));
}

#[test]
fn acls_with_long_names_are_refused() {
    let (_broker, mut connection) = start(&MemStorage::new(), &[("super.users", EVERYONE)]);
    let named = |bytes: usize| acl(GROUPS, LITERAL, &"x".repeat(bytes), READ, ALLOW);
    let of = |bytes: usize| m::create_acls::AclCreation {
        principal: format!("User:{}", "x".repeat(bytes - 5)),
        ..named(9)
    };
    let at = |bytes: usize| m::create_acls::AclCreation { host: "x".repeat(bytes), ..named(9) };
    let creations = vec![named(255), named(256), of(1024), of(1025), at(255), at(256)];
    let (good, bad) = (ErrorCode::None, ErrorCode::InvalidRequest);
    assert_eq!(create(&mut connection, creations), [good, bad, good, bad, good, bad]);
}
