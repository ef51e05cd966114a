//! The requests of administrators about features, the quorum, credentials, ACLs and tokens.

use std::sync::Arc;

use bytes::Bytes;
use ottla_broker::{Broker, BrokerThread, KafkaLevel};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages as m;
use ottla_protocol::messages::alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, ScramCredentialDeletion, ScramCredentialUpsertion,
};
use ottla_protocol::messages::describe_quorum::requested;
use ottla_protocol::messages::describe_user_scram_credentials::{
    DescribeUserScramCredentialsRequest, UserName,
};
use ottla_protocol::messages::update_features::{FeatureUpdateKey, UpdateFeaturesRequest};

use crate::common::{Raw, metadata_of};

const UPGRADE: i8 = 1;
const SAFE_DOWNGRADE: i8 = 2;
const TRANSACTION_VERSION: &str = "transaction.version";

fn start(disk: &MemStorage) -> (BrokerThread, Raw) {
    let builder = Broker::builder().storage(Arc::new(disk.clone())).topic("orders", 1);
    let broker = builder.spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

fn update(connection: &mut Raw, feature: &str, level: i16, upgrade_type: i8, dry: bool) -> ErrorCode {
    let update = FeatureUpdateKey {
        feature: feature.into(),
        max_version_level: level,
        upgrade_type,
        ..Default::default()
    };
    let request =
        UpdateFeaturesRequest { timeout_ms: 1000, feature_updates: vec![update], validate_only: dry };
    connection.ask(2, &request).expect("an answer").error_code
}

/// The finalized level of transactions, and the epoch.
fn finalized(connection: &mut Raw) -> (Option<i16>, i64) {
    let request =
        m::ApiVersionsRequest { client_software_name: "story".into(), client_software_version: "1".into() };
    let answer = connection.ask(4, &request).expect("an answer");
    let mut features = answer.finalized_features.iter();
    let transactions = features.find(|feature| feature.name == TRANSACTION_VERSION);
    (transactions.map(|feature| feature.max_version_level), answer.finalized_features_epoch)
}

#[test]
fn levels_of_features_change_and_survive_a_restart() {
    let disk = MemStorage::new();
    let (broker, mut connection) = start(&disk);
    assert_eq!(finalized(&mut connection), (Some(2), 0));
    for (feature, level, kind) in [
        (TRANSACTION_VERSION, 3, UPGRADE),
        (TRANSACTION_VERSION, -1, SAFE_DOWNGRADE),
        (TRANSACTION_VERSION, 1, UPGRADE),
        (TRANSACTION_VERSION, 1, 9),
        ("metadata.version", 25, UPGRADE),
    ] {
        let code = update(&mut connection, feature, level, kind, false);
        assert_eq!(code, ErrorCode::InvalidUpdateVersion, "{feature} {level} {kind}");
    }
    assert_eq!(update(&mut connection, TRANSACTION_VERSION, 1, SAFE_DOWNGRADE, true), ErrorCode::None);
    assert_eq!(update(&mut connection, TRANSACTION_VERSION, 2, UPGRADE, false), ErrorCode::None);
    assert_eq!(finalized(&mut connection), (Some(2), 0), "a dry run and the same level change nothing");
    assert_eq!(update(&mut connection, TRANSACTION_VERSION, 1, SAFE_DOWNGRADE, false), ErrorCode::None);
    assert_eq!(finalized(&mut connection), (Some(1), 1));
    let code = update(&mut connection, TRANSACTION_VERSION, 2, SAFE_DOWNGRADE, false);
    assert_eq!(code, ErrorCode::InvalidUpdateVersion);
    broker.stop();
    let (_broker, mut connection) = start(&disk);
    assert_eq!(finalized(&mut connection), (Some(1), 1), "after a restart");
    assert_eq!(update(&mut connection, TRANSACTION_VERSION, 0, SAFE_DOWNGRADE, false), ErrorCode::None);
    assert_eq!(finalized(&mut connection), (None, 2), "level 0 is off");
}

#[test]
fn a_level_without_features_has_none_to_update() {
    let builder = Broker::builder().memory().configure(|config| config.as_version = KafkaLevel::V3_9);
    let broker = builder.spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let update = FeatureUpdateKey {
        feature: TRANSACTION_VERSION.into(),
        max_version_level: 2,
        upgrade_type: UPGRADE,
        ..Default::default()
    };
    let request =
        UpdateFeaturesRequest { feature_updates: vec![update], timeout_ms: 1000, validate_only: false };
    let answer = connection.ask(1, &request).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::InvalidUpdateVersion);
}

#[test]
fn the_quorum_has_one_voter_and_it_stays() {
    let broker = Broker::builder().memory().nodes(2).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[1]);
    let ask = |connection: &mut Raw, topic: &str, partition_index| {
        let partitions = vec![requested::PartitionData { partition_index }];
        let topics = vec![requested::TopicData { topic_name: topic.into(), partitions }];
        let request = m::describe_quorum::DescribeQuorumRequest { topics };
        connection.ask(2, &request).expect("an answer")
    };
    let answer = ask(&mut connection, "__cluster_metadata", 0);
    let partition = &answer.topics[0].partitions[0];
    let ids = |states: &[m::describe_quorum::ReplicaState]| -> Vec<i32> {
        states.iter().map(|state| state.replica_id).collect()
    };
    assert_eq!((answer.error_code, partition.error_code), (ErrorCode::None, ErrorCode::None));
    assert_eq!((partition.leader_id, ids(&partition.current_voters)), (1, vec![1]));
    assert_eq!(ids(&partition.observers), [2]);
    assert!(partition.high_watermark > 0 && partition.leader_epoch > 0, "{partition:?}");
    assert_eq!(answer.nodes[0].listeners[0].port, broker.addresses()[0].port());
    for (topic, index) in [("orders", 0), ("__cluster_metadata", 1)] {
        let answer = ask(&mut connection, topic, index);
        assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::UnknownTopicOrPartition);
    }
    for (cluster_id, code) in
        [(None, ErrorCode::UnsupportedVersion), (Some("x"), ErrorCode::InconsistentClusterId)]
    {
        let cluster_id = cluster_id.map(str::to_owned);
        let add = m::add_raft_voter::AddRaftVoterRequest {
            cluster_id: cluster_id.clone(),
            voter_id: 2,
            ..Default::default()
        };
        assert_eq!(connection.ask(1, &add).expect("an answer").error_code, code);
        let remove =
            m::remove_raft_voter::RemoveRaftVoterRequest { cluster_id, voter_id: 2, ..Default::default() };
        assert_eq!(connection.ask(0, &remove).expect("an answer").error_code, code);
    }
}

#[test]
fn only_a_node_that_is_down_is_unregistered() {
    let broker = Broker::builder().memory().nodes(2).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let mut unregister = |broker_id| {
        let request = m::unregister_broker::UnregisterBrokerRequest { broker_id };
        connection.ask(0, &request).expect("an answer").error_code
    };
    assert_eq!(unregister(9), ErrorCode::BrokerIdNotRegistered);
    assert_eq!(unregister(2), ErrorCode::InvalidRequest);
    assert!(broker.cluster().take_down(2));
    assert_eq!(unregister(2), ErrorCode::None);
    assert_eq!(unregister(2), ErrorCode::BrokerIdNotRegistered);
}

/// A user, its error, and the mechanisms and iterations of its credentials.
type UserCredentials = (String, ErrorCode, Vec<(i8, i32)>);

fn credentials(connection: &mut Raw, users: Option<&[&str]>) -> Vec<UserCredentials> {
    let users = users.map(|users| users.iter().map(|name| UserName { name: (*name).into() }).collect());
    let answer = connection.ask(0, &DescribeUserScramCredentialsRequest { users }).expect("an answer");
    let results = answer.results.into_iter().map(|result| {
        let infos = result.credential_infos.iter().map(|info| (info.mechanism, info.iterations)).collect();
        (result.user, result.error_code, infos)
    });
    results.collect()
}

#[test]
fn scram_credentials_are_checked_stored_and_deleted() {
    let disk = MemStorage::new();
    let (broker, mut connection) = start(&disk);
    let set = |name: &str, mechanism, iterations| ScramCredentialUpsertion {
        name: name.into(),
        mechanism,
        iterations,
        salt: Bytes::from_static(b"salt"),
        salted_password: Bytes::from_static(b"not a password of anybody"),
    };
    let delete = |name: &str, mechanism| ScramCredentialDeletion { name: name.into(), mechanism };
    let alter = |connection: &mut Raw, deletions, upsertions| {
        let request = AlterUserScramCredentialsRequest { deletions, upsertions };
        let answer = connection.ask(0, &request).expect("an answer");
        answer.results.into_iter().map(|result| (result.user, result.error_code)).collect::<Vec<_>>()
    };
    let upsertions = vec![
        set("anna", 1, 4096),
        set("bo", 2, 16384),
        set("few", 1, 4095),
        set("many", 1, 16385),
        set("", 1, 4096),
        set("odd", 3, 4096),
        set("twice", 1, 4096),
        set("twice", 2, 4096),
    ];
    let named = |name: &str, code| (name.to_owned(), code);
    let expected = [
        named("", ErrorCode::UnacceptableCredential),
        named("anna", ErrorCode::None),
        named("bo", ErrorCode::None),
        named("few", ErrorCode::UnacceptableCredential),
        named("gone", ErrorCode::ResourceNotFound),
        named("many", ErrorCode::UnacceptableCredential),
        named("odd", ErrorCode::UnsupportedSaslMechanism),
        named("twice", ErrorCode::DuplicateResource),
    ];
    assert_eq!(alter(&mut connection, vec![delete("gone", 1)], upsertions), expected);
    let anna = ("anna".to_owned(), ErrorCode::None, vec![(1, 4096)]);
    let bo = ("bo".to_owned(), ErrorCode::None, vec![(2, 16384)]);
    assert_eq!(credentials(&mut connection, None), [anna.clone(), bo.clone()]);
    let missing = ("gone".to_owned(), ErrorCode::ResourceNotFound, Vec::new());
    let twice = ("bo".to_owned(), ErrorCode::DuplicateResource, Vec::new());
    assert_eq!(credentials(&mut connection, Some(&["bo", "gone", "bo"])), [twice, missing]);
    broker.stop();
    let (_broker, mut connection) = start(&disk);
    assert_eq!(credentials(&mut connection, None), [anna, bo.clone()], "after a restart");
    let deletions = vec![delete("anna", 1), delete("bo", 1)];
    let expected = [named("anna", ErrorCode::None), named("bo", ErrorCode::ResourceNotFound)];
    assert_eq!(alter(&mut connection, deletions, Vec::new()), expected);
    assert_eq!(credentials(&mut connection, Some(&[])), [bo]);
}

#[test]
fn acls_and_delegation_tokens_have_the_errors_of_a_broker_without_them() {
    let (_broker, mut connection) = start(&MemStorage::new());
    let described = connection.ask(3, &m::DescribeAclsRequest::default()).expect("an answer");
    assert_eq!(described.error_code, ErrorCode::SecurityDisabled);
    assert!(described.error_message.is_some());
    let creations = vec![m::create_acls::AclCreation::default(); 2];
    let created = connection.ask(3, &m::CreateAclsRequest { creations }).expect("an answer");
    let codes = created.results.iter().map(|result| result.error_code);
    assert_eq!(codes.collect::<Vec<_>>(), [ErrorCode::SecurityDisabled; 2]);
    let filters = vec![m::delete_acls::DeleteAclsFilter::default(); 2];
    let deleted = connection.ask(3, &m::DeleteAclsRequest { filters }).expect("an answer");
    let codes = deleted.filter_results.iter().map(|result| result.error_code);
    assert_eq!(codes.collect::<Vec<_>>(), [ErrorCode::SecurityDisabled; 2]);

    let not_allowed = ErrorCode::DelegationTokenRequestNotAllowed;
    let created = connection.ask(3, &m::CreateDelegationTokenRequest::default()).expect("an answer");
    let renewed = connection.ask(2, &m::RenewDelegationTokenRequest::default()).expect("an answer");
    let expired = connection.ask(2, &m::ExpireDelegationTokenRequest::default()).expect("an answer");
    let described = connection.ask(3, &m::DescribeDelegationTokenRequest::default()).expect("an answer");
    assert_eq!((created.error_code, created.expiry_timestamp_ms), (not_allowed, -1));
    assert_eq!((renewed.error_code, expired.error_code), (not_allowed, not_allowed));
    assert_eq!(described.error_code, not_allowed);
}

#[test]
fn a_client_may_do_everything_and_learns_it_if_it_asks() {
    const TOPIC: i32 = 0b1101_1111_1000;
    const CLUSTER: i32 = 0b1_1111_1010_0000;
    let (_broker, mut connection) = start(&MemStorage::new());
    let mut request = metadata_of("orders");
    let quiet = connection.ask(10, &request).expect("an answer");
    assert_eq!(quiet.topics[0].topic_authorized_operations, i32::MIN);
    assert_eq!(quiet.cluster_authorized_operations, i32::MIN);
    request.include_topic_authorized_operations = true;
    request.include_cluster_authorized_operations = true;
    let answer = connection.ask(10, &request).expect("an answer");
    assert_eq!(answer.topics[0].topic_authorized_operations, TOPIC);
    assert_eq!(answer.cluster_authorized_operations, CLUSTER);
    let mut describe = |endpoint_type, include_cluster_authorized_operations| {
        let request = m::DescribeClusterRequest {
            endpoint_type,
            include_cluster_authorized_operations,
            ..Default::default()
        };
        let answer = connection.ask(2, &request).expect("an answer");
        (answer.error_code, answer.cluster_authorized_operations)
    };
    assert_eq!(describe(1, true), (ErrorCode::None, CLUSTER));
    assert_eq!(describe(1, false), (ErrorCode::None, i32::MIN));
    assert_eq!(describe(2, true), (ErrorCode::MismatchedEndpointType, i32::MIN));
    assert_eq!(describe(3, true), (ErrorCode::UnsupportedEndpointType, i32::MIN));
}

/// A request had as many new users as it liked, with names and salts of any length.
#[test]
fn the_credentials_that_are_kept_have_limits() {
    let (_broker, mut connection) = start(&MemStorage::new());
    let set = |name: String, salt: usize| ScramCredentialUpsertion {
        name,
        mechanism: 1,
        iterations: 4096,
        salt: vec![7; salt].into(),
        salted_password: Bytes::from_static(b"not a password of anybody"),
    };
    let mut alter = |upsertions| {
        let request = AlterUserScramCredentialsRequest { deletions: Vec::new(), upsertions };
        let answer = connection.ask(0, &request).expect("an answer");
        answer.results.into_iter().map(|result| result.error_code).collect::<Vec<_>>()
    };
    let long = vec![set("a".repeat(256), 16), set("b".into(), 65)];
    assert_eq!(alter(long), [ErrorCode::UnacceptableCredential; 2]);
    let users = (0..10_010).map(|number| set(format!("user-{number}"), 16));
    let codes = alter(users.collect());
    let count = |wanted| codes.iter().filter(|code| **code == wanted).count();
    assert_eq!((count(ErrorCode::None), count(ErrorCode::PolicyViolation)), (10_000, 10));
    assert_eq!(alter(vec![set("user-0".into(), 64)]), [ErrorCode::None], "it is replaced");
}
