//! Levels of features, `metadata.version` above all: their ranges, changes, errors and effects.

use std::sync::Arc;

use ottla_broker::{Broker, BrokerConfig, BrokerThread, KafkaLevel};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::ApiVersionsRequest;
use ottla_protocol::messages::alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, ScramCredentialDeletion,
};
use ottla_protocol::messages::consumer_group_describe::ConsumerGroupDescribeRequest;
use ottla_protocol::messages::share_group_describe::ShareGroupDescribeRequest;
use ottla_protocol::messages::update_features::{FeatureUpdateKey, UpdateFeaturesRequest};

use crate::common::Raw;

const UPGRADE: i8 = 1;
const SAFE_DOWNGRADE: i8 = 2;
const UNSAFE_DOWNGRADE: i8 = 3;
const METADATA: &str = "metadata.version";

/// A name, the lowest and the highest level of a node, and the level of the cluster.
type Row = (String, i16, i16, i16);

fn start(disk: &MemStorage, configure: impl FnOnce(&mut BrokerConfig)) -> (BrokerThread, Raw) {
    let builder = Broker::builder().storage(Arc::new(disk.clone())).configure(configure);
    let broker = builder.spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

/// The rows in the order of their names.
fn features(connection: &mut Raw, version: i16) -> Vec<Row> {
    let request =
        ApiVersionsRequest { client_software_name: "story".into(), client_software_version: "1".into() };
    let answer = connection.ask(version, &request).expect("an answer");
    let level = |name: &str| {
        let mut finalized = answer.finalized_features.iter();
        let found = finalized.find(|feature| feature.name == name);
        found.map_or(0, |feature| {
            assert_eq!(feature.min_version_level, feature.max_version_level);
            feature.max_version_level
        })
    };
    let row = |feature: &ottla_protocol::messages::api_versions::SupportedFeatureKey| {
        (feature.name.clone(), feature.min_version, feature.max_version, level(&feature.name))
    };
    let mut rows: Vec<Row> = answer.supported_features.iter().map(row).collect();
    rows.sort();
    rows
}

fn metadata_version(connection: &mut Raw) -> (i16, i16, i16) {
    let rows = features(connection, 4);
    let (_, min, max, level) = rows.into_iter().find(|(name, ..)| name == METADATA).expect("the feature");
    (min, max, level)
}

fn update(connection: &mut Raw, changes: &[(&str, i16, i8)], dry: bool) -> (ErrorCode, Option<String>) {
    let updates = changes.iter().map(|(feature, level, kind)| FeatureUpdateKey {
        feature: (*feature).to_owned(),
        max_version_level: *level,
        upgrade_type: *kind,
        ..Default::default()
    });
    let feature_updates = updates.collect();
    let request = UpdateFeaturesRequest { timeout_ms: 1000, feature_updates, validate_only: dry };
    let answer = connection.ask(2, &request).expect("an answer");
    (answer.error_code, answer.error_message)
}

/// The text of Kafka for an update that fails.
fn failed(reason: &str) -> (ErrorCode, Option<String>) {
    let start = "The update failed for all features since the following feature had an error: ";
    (ErrorCode::InvalidUpdateVersion, Some(format!("{start}{reason}")))
}

const DONE: (ErrorCode, Option<String>) = (ErrorCode::None, None);

fn row(name: &str, min: i16, max: i16, level: i16) -> Row {
    (name.to_owned(), min, max, level)
}

/// The broker had no feature `metadata.version`.
#[test]
fn a_new_cluster_has_the_highest_level_of_its_release() {
    let (_broker, mut connection) = start(&MemStorage::new(), |_| {});
    let expected = |lowest: i16| {
        [
            row("eligible.leader.replicas.version", lowest, 1, 0),
            row("group.version", lowest, 1, 1),
            row("kraft.version", lowest, 1, 0),
            row(METADATA, 7, 30, 30),
            row("share.version", lowest, 1, 1),
            row("streams.version", lowest, 1, 0),
            row("transaction.version", lowest, 2, 2),
        ]
    };
    assert_eq!(features(&mut connection, 4), expected(0));
    // KAFKA-17011: version 3 of Java's client fails on a minimum of 0.
    assert_eq!(features(&mut connection, 3), expected(1));

    let older = |config: &mut BrokerConfig| config.as_version = KafkaLevel::V4_1;
    let (_broker, mut connection) = start(&MemStorage::new(), older);
    let expected = [
        row("eligible.leader.replicas.version", 0, 1, 0),
        row("group.version", 0, 1, 1),
        row("kraft.version", 0, 1, 0),
        row(METADATA, 7, 27, 27),
        row("transaction.version", 0, 2, 2),
    ];
    assert_eq!(features(&mut connection, 4), expected);
}

#[test]
fn metadata_version_changes_by_the_rules_of_kafka_and_survives_a_restart() {
    let disk = MemStorage::new();
    let release = |config: &mut BrokerConfig| config.set_release_version("3.8");
    let (broker, mut connection) = start(&disk, release);
    assert_eq!(metadata_version(&mut connection), (7, 30, 20));
    let lower = "Invalid update version 18 for feature metadata.version. Can't downgrade the version of this feature \
                 without setting the upgrade type to either safe or unsafe downgrade.";
    assert_eq!(update(&mut connection, &[(METADATA, 18, UPGRADE)], false), failed(lower));
    assert_eq!(update(&mut connection, &[(METADATA, 21, UPGRADE)], true), DONE, "a dry run");
    assert_eq!(update(&mut connection, &[(METADATA, 20, UPGRADE)], false), DONE, "the same level");
    assert_eq!(metadata_version(&mut connection).2, 20);
    assert_eq!(
        update(&mut connection, &[("kraft.version", 1, UPGRADE), (METADATA, 21, UPGRADE)], false),
        DONE
    );
    broker.stop();

    // A cluster that exists keeps its levels.
    let (_broker, mut connection) = start(&disk, release);
    assert_eq!(metadata_version(&mut connection).2, 21);
    assert_eq!(
        update(&mut connection, &[(METADATA, 18, SAFE_DOWNGRADE)], false),
        DONE,
        "the records are the same"
    );
    let unsafe_downgrade = "Unsupported metadata.version downgrade from 18 to 16. Unsafe metadata downgrade is not supported \
                            in this version.";
    assert_eq!(update(&mut connection, &[(METADATA, 16, UNSAFE_DOWNGRADE)], false), failed(unsafe_downgrade));
    let off = "Invalid update version 0 for feature metadata.version. Local controller 1 only supports versions 7-30";
    assert_eq!(update(&mut connection, &[(METADATA, 0, SAFE_DOWNGRADE)], false), failed(off));
    let kraft =
        "Invalid update version 0 for feature kraft.version. Can't downgrade the version of this feature.";
    assert_eq!(update(&mut connection, &[("kraft.version", 0, SAFE_DOWNGRADE)], false), failed(kraft));
    assert_eq!(metadata_version(&mut connection).2, 18);
}

/// All changes of a request are made or none, and a level can depend on another one of the same request.
#[test]
fn a_feature_can_depend_on_a_level_of_the_same_request() {
    let release = |config: &mut BrokerConfig| config.set_release_version("3.9");
    let (_broker, mut connection) = start(&MemStorage::new(), release);
    let elr = "eligible.leader.replicas.version";
    let refused = format!(
        "Invalid update version 1 for feature {elr}. {elr} could not be set to 1 because it depends on metadata.version level 23"
    );
    let both = |level| [("group.version", 1, UPGRADE), (elr, 1, UPGRADE), (METADATA, level, UPGRADE)];
    assert_eq!(update(&mut connection, &both(22), false), failed(&refused));
    assert!(features(&mut connection, 4).contains(&row("group.version", 0, 1, 0)));
    assert_eq!(update(&mut connection, &both(23), false), DONE);
    let rows = features(&mut connection, 4);
    for expected in [row("group.version", 0, 1, 1), row(elr, 0, 1, 1), row(METADATA, 7, 30, 23)] {
        assert!(rows.contains(&expected), "{rows:?}");
    }
}

#[test]
fn each_node_announces_its_levels_and_an_update_needs_all_nodes() {
    let set = |config: &mut BrokerConfig| {
        config.set("unstable.feature.versions.enable", "true,false").expect("a list");
        config.set("controller.quorum.voters", "3000@localhost:9093").expect("voters");
    };
    let broker = Broker::builder().memory().nodes(2).configure(set).spawn().expect("a broker");
    let mut connections = broker.addresses().iter().map(|address| Raw::connect(*address));
    let (mut first, mut second) = (connections.next().expect("a node"), connections.next().expect("a node"));
    assert_eq!(metadata_version(&mut first), (7, 31, 30));
    assert_eq!(metadata_version(&mut second), (7, 30, 30));
    let refused =
        "Invalid update version 31 for feature metadata.version. Broker 2 only supports versions 7-30";
    assert_eq!(update(&mut first, &[(METADATA, 31, UPGRADE)], false), failed(refused));
    let refused = "Invalid update version 32 for feature metadata.version. Local controller 3000 only supports versions 7-31";
    assert_eq!(update(&mut first, &[(METADATA, 32, UPGRADE)], false), failed(refused));
}

/// The errors of ConsumerGroupDescribe, of ShareGroupDescribe and of AlterUserScramCredentials.
fn codes(connection: &mut Raw) -> [ErrorCode; 3] {
    let group_ids = vec!["billing".to_owned()];
    let request = ConsumerGroupDescribeRequest { group_ids: group_ids.clone(), ..Default::default() };
    let consumer = connection.ask(1, &request).expect("an answer").groups.remove(0).error_code;
    let request = ShareGroupDescribeRequest { group_ids, ..Default::default() };
    let share = connection.ask(1, &request).expect("an answer").groups.remove(0).error_code;
    let deletion = ScramCredentialDeletion { name: "anna".into(), mechanism: 1 };
    let request = AlterUserScramCredentialsRequest { deletions: vec![deletion], upsertions: Vec::new() };
    let scram = connection.ask(0, &request).expect("an answer").results.remove(0).error_code;
    [consumer, share, scram]
}

#[test]
fn protocols_below_their_levels_get_unsupported_version() {
    let release = |config: &mut BrokerConfig| config.set_release_version("3.3-IV3");
    let (_broker, mut connection) = start(&MemStorage::new(), release);
    assert_eq!(codes(&mut connection), [ErrorCode::UnsupportedVersion; 3]);
    let changes = [("group.version", 1, UPGRADE), ("share.version", 1, UPGRADE), (METADATA, 11, UPGRADE)];
    assert_eq!(update(&mut connection, &changes, false), DONE);
    let answered = [ErrorCode::GroupIdNotFound, ErrorCode::GroupIdNotFound, ErrorCode::ResourceNotFound];
    assert_eq!(codes(&mut connection), answered);
    assert_eq!(update(&mut connection, &[("group.version", 0, SAFE_DOWNGRADE)], false), DONE);
    assert_eq!(codes(&mut connection)[0], ErrorCode::UnsupportedVersion);
}

#[test]
fn a_release_that_does_not_exist_starts_no_broker() {
    let builder = Broker::builder().memory().configure(|config| config.set_release_version("3.3-IV1"));
    let error = builder.spawn().expect_err("it does not start").to_string();
    assert!(
        error.starts_with("Unknown metadata.version '3.3-IV1'. Supported metadata.version are: "),
        "{error}"
    );
}
