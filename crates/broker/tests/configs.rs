//! The settings of topics, brokers, groups and client metrics: described, changed while the broker runs, and kept.

use std::sync::Arc;

use ottla_broker::{Broker, BrokerBuilder, BrokerThread, Scope, Setting, settings};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_configs as replace;
use ottla_protocol::messages::describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResult,
};
use ottla_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use ottla_protocol::messages::list_config_resources::ListConfigResourcesRequest;

use crate::acls;
use crate::common;
use crate::common::Raw;

const TOPIC: i8 = 2;
pub(crate) const BROKER: i8 = 4;
const METRICS: i8 = 16;
const GROUP: i8 = 32;
pub(crate) const SET: i8 = 0;
pub(crate) const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

fn describe(connection: &mut Raw, kind: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsResult {
    let resource = DescribeConfigsResource {
        resource_type: kind,
        resource_name: name.into(),
        configuration_keys: keys.map(|keys| keys.iter().map(|key| (*key).to_owned()).collect()),
    };
    let request = DescribeConfigsRequest {
        resources: vec![resource],
        include_synonyms: true,
        include_documentation: true,
    };
    connection.ask(4, &request).expect("an answer").results.remove(0)
}

pub(crate) fn one(connection: &mut Raw, kind: i8, name: &str, key: &str) -> DescribeConfigsResourceResult {
    let mut described = describe(connection, kind, name, Some(&[key]));
    assert_eq!((described.error_code, described.configs.len()), (ErrorCode::None, 1), "{described:?}");
    described.configs.remove(0)
}

fn value(connection: &mut Raw, kind: i8, name: &str, key: &str) -> (String, i8) {
    let config = one(connection, kind, name, key);
    (config.value.unwrap_or_default(), config.config_source)
}

pub(crate) fn alter(
    connection: &mut Raw,
    kind: i8,
    name: &str,
    changes: &[(i8, &str, &str)],
) -> (ErrorCode, String) {
    let configs = changes.iter().map(|(operation, name, value)| AlterableConfig {
        name: (*name).into(),
        config_operation: *operation,
        value: (*operation != DELETE).then(|| (*value).to_owned()),
    });
    let resource =
        AlterConfigsResource { resource_type: kind, resource_name: name.into(), configs: configs.collect() };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    let answer = connection.ask(1, &request).expect("an answer").responses.remove(0);
    (answer.error_code, answer.error_message.unwrap_or_default())
}

pub(crate) fn altered(connection: &mut Raw, kind: i8, name: &str, changes: &[(i8, &str, &str)]) {
    assert_eq!(alter(connection, kind, name, changes), (ErrorCode::None, String::new()), "{changes:?}");
}

fn start(disk: &MemStorage, change: impl FnOnce(BrokerBuilder) -> BrokerBuilder) -> (BrokerThread, Raw) {
    let builder = Broker::builder().storage(Arc::new(disk.clone())).topic("orders", 1).nodes(2);
    let broker = change(builder).spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

#[test]
fn every_topic_setting_of_kafka_can_be_set_and_is_described() {
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| builder);
    for keys in [None, Some(&[][..])] {
        let described = describe(&mut connection, TOPIC, "orders", keys);
        let names: Vec<&str> = described.configs.iter().map(|config| &*config.name).collect();
        // Those of Apache Kafka 4.4 and internal ones are described once they are set.
        let is_described = |setting: &&Setting| setting.since.is_none() && !setting.is_internal;
        let all = settings(Scope::Topic).iter().filter(is_described);
        let all: Vec<&str> = all.map(|setting| setting.name).collect();
        assert_eq!((names, described.configs.len()), (all, 33));
        assert!(described.configs.iter().all(|config| config.config_source == 5 && config.config_type > 0));
        assert!(described.configs.iter().all(|config| config.documentation.is_some()));
    }
    for setting in settings(Scope::Topic) {
        let Some(default) = setting.default else { continue };
        altered(&mut connection, TOPIC, "orders", &[(SET, setting.name, default)]);
        assert_eq!(value(&mut connection, TOPIC, "orders", setting.name), (default.to_owned(), 1));
    }
    for (name, bad) in
        [("retention.ms", "-2"), ("compression.type", "best"), ("flush.ms", "x"), ("no.such", "1")]
    {
        let (code, reason) = alter(&mut connection, TOPIC, "orders", &[(SET, name, bad)]);
        assert_eq!(code, ErrorCode::InvalidConfig, "{reason}");
        assert!(reason.contains(name), "{reason}");
    }
}

/// No topic setting had this name.
#[test]
fn an_internal_topic_setting_is_accepted_and_described_where_it_is_set() {
    const NAME: &str = "internal.segment.bytes";
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| builder);
    let shown = |connection: &mut Raw| {
        let described = describe(connection, TOPIC, "orders", None).configs;
        described.into_iter().find(|config| config.name == NAME).and_then(|config| config.value)
    };
    assert_eq!(shown(&mut connection), None);
    altered(&mut connection, TOPIC, "orders", &[(SET, NAME, "1000")]);
    assert_eq!(shown(&mut connection).as_deref(), Some("1000"));
    assert_eq!(value(&mut connection, TOPIC, "orders", NAME), ("1000".into(), 1));
}

#[test]
fn a_topic_setting_names_its_sources_and_follows_the_brokers() {
    let disk = MemStorage::new();
    let hours = |builder: BrokerBuilder| {
        builder.configure(|config| config.set("log.retention.hours", "1").expect("allowed"))
    };
    let (broker, mut connection) = start(&disk, hours);
    assert_eq!(value(&mut connection, TOPIC, "orders", "retention.ms"), ("3600000".into(), 4));
    altered(&mut connection, BROKER, "", &[(SET, "log.retention.ms", "5000")]);
    assert_eq!(value(&mut connection, TOPIC, "orders", "retention.ms"), ("5000".into(), 3));
    altered(&mut connection, BROKER, "1", &[(SET, "log.retention.ms", "6000")]);
    assert_eq!(value(&mut connection, TOPIC, "orders", "retention.ms"), ("6000".into(), 2));
    altered(&mut connection, TOPIC, "orders", &[(SET, "retention.ms", "7000")]);
    let config = one(&mut connection, TOPIC, "orders", "retention.ms");
    let synonyms = config.synonyms.iter();
    let synonyms: Vec<_> =
        synonyms.map(|one| (&*one.name, one.value.as_deref().unwrap_or_default(), one.source)).collect();
    let expected = [
        ("retention.ms", "7000", 1),
        ("log.retention.ms", "6000", 2),
        ("log.retention.ms", "5000", 3),
        ("log.retention.hours", "1", 4),
        ("log.retention.ms", "604800000", 5),
    ];
    assert_eq!(synonyms, expected);
    // The settings survive a restart.
    drop(broker);
    let (_broker, mut connection) = start(&disk, hours);
    altered(&mut connection, TOPIC, "orders", &[(DELETE, "retention.ms", "")]);
    assert_eq!(value(&mut connection, TOPIC, "orders", "retention.ms"), ("6000".into(), 2));
    altered(&mut connection, BROKER, "1", &[(DELETE, "log.retention.ms", "")]);
    assert_eq!(value(&mut connection, TOPIC, "orders", "retention.ms"), ("5000".into(), 3));
}

#[test]
fn a_change_of_a_broker_setting_applies_to_produced_batches_at_once() {
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| builder);
    let batch = common::batch(&[&[b'x'; 500]], &ottla_wire::Seal::default());
    assert_eq!(connection.produce("orders", 1, &batch).error_code, ErrorCode::None);
    altered(&mut connection, BROKER, "", &[(SET, "message.max.bytes", "100")]);
    assert_eq!(connection.produce("orders", 1, &batch).error_code, ErrorCode::MessageTooLarge);
    altered(&mut connection, BROKER, "", &[(DELETE, "message.max.bytes", "")]);
    assert_eq!(connection.produce("orders", 1, &batch).error_code, ErrorCode::None);
}

#[test]
fn broker_settings_change_only_where_kafka_allows_it() {
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| builder);
    let described = describe(&mut connection, BROKER, "1", None);
    let is_of_4_3 = |setting: &&Setting| setting.since.is_none() && !setting.is_internal;
    let of_4_3 = settings(Scope::Broker).iter().filter(is_of_4_3);
    assert_eq!(described.configs.len(), of_4_3.count());
    assert!(described.configs.iter().all(|config| config.name != "retention.ms"), "topic names");
    assert!(one(&mut connection, BROKER, "1", "num.partitions").read_only);
    assert!(!one(&mut connection, BROKER, "1", "log.retention.ms").read_only);
    assert_eq!(describe(&mut connection, BROKER, "", None).configs.len(), 0, "only what is set");
    for (name, changes, code) in [
        ("1", (SET, "num.partitions", "3"), ErrorCode::InvalidRequest),
        ("", (SET, "listeners", "PLAINTEXT://:1"), ErrorCode::InvalidRequest),
        ("", (SET, "log.retention.ms", "x"), ErrorCode::InvalidRequest),
        ("", (SET, "log.cleaner.backoff.ms", "-1"), ErrorCode::InvalidRequest),
        ("", (SET, "listener.name.in.ssl.keystore.location", "x"), ErrorCode::InvalidRequest),
        ("1", (SET, "ssl.keystore.location", "x"), ErrorCode::InvalidRequest),
        ("", (APPEND, "log.retention.ms", "1"), ErrorCode::InvalidConfig),
        ("3", (SET, "log.retention.ms", "1"), ErrorCode::InvalidRequest),
        ("one", (SET, "log.retention.ms", "1"), ErrorCode::InvalidRequest),
    ] {
        assert_eq!(alter(&mut connection, BROKER, name, &[changes]).0, code, "{changes:?}");
    }
    let twice = [(SET, "log.retention.ms", "1"), (SET, "log.retention.ms", "2")];
    assert_eq!(alter(&mut connection, BROKER, "", &twice).0, ErrorCode::InvalidRequest);
    assert_eq!(describe(&mut connection, BROKER, "3", None).error_code, ErrorCode::InvalidRequest);
    altered(&mut connection, BROKER, "2", &[(SET, "listener.name.in.ssl.key.password", "secret")]);
    let hidden = one(&mut connection, BROKER, "2", "listener.name.in.ssl.key.password");
    assert_eq!((hidden.value, hidden.is_sensitive, hidden.synonyms[0].value.clone()), (None, true, None));
}

/// Kafka's text. The change was accepted.
#[test]
fn a_cleaner_has_a_mebibyte_for_each_of_its_threads() {
    const BUFFER: &str = "log.cleaner.dedupe.buffer.size";
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| {
        builder.configure(|config| config.set(BUFFER, "2097152").expect("a property"))
    });
    let refused = "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.";
    let threads = [(SET, "log.cleaner.threads", "2")];
    assert_eq!(
        alter(&mut connection, BROKER, "1", &threads),
        (ErrorCode::InvalidRequest, refused.to_owned())
    );
    altered(&mut connection, BROKER, "", &[(SET, BUFFER, "2097154")]);
    altered(&mut connection, BROKER, "1", &threads);
    let smaller = alter(&mut connection, BROKER, "", &[(SET, BUFFER, "2097152")]);
    assert_eq!(smaller, (ErrorCode::InvalidRequest, refused.to_owned()));
}

/// A broker with one of them did not start.
#[test]
fn internal_properties_of_kafka_are_accepted_and_described_where_they_are_set() {
    let given = [
        ("log.initial.task.delay.ms", "100"),
        ("producer.id.expiration.check.interval.ms", "1000"),
        ("unstable.api.versions.enable", "true"),
    ];
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| {
        builder.configure(|config| {
            for (name, value) in given {
                config.set(name, value).expect("a property");
            }
            assert!(config.set("unstable.feature.versions.enable", "maybe").is_err(), "values are checked");
        })
    });
    let is_internal = |name: &str| {
        settings(Scope::Broker).iter().any(|setting| setting.is_internal && setting.name == name)
    };
    let described = describe(&mut connection, BROKER, "1", None).configs;
    let internal = described.iter().filter(|config| is_internal(&config.name));
    let found: Vec<_> =
        internal.map(|config| (&*config.name, config.value.as_deref().unwrap_or_default())).collect();
    assert_eq!(found, given);
}

/// Apache Kafka stores them for plugins (KIP-226), and does not show their values. They were refused.
#[test]
fn settings_of_brokers_that_are_none_of_their_properties_are_stored() {
    const NAME: &str = "org.example.plugin.rate";
    let disk = MemStorage::new();
    let (broker, mut connection) = start(&disk, |builder| builder);
    altered(&mut connection, BROKER, "", &[(SET, NAME, "7")]);
    altered(&mut connection, BROKER, "2", &[(SET, NAME, "8"), (SET, "log.retention.ms", "5000")]);
    drop(broker);
    let (_broker, mut connection) = start(&disk, |builder| builder);
    for (broker, sources) in [("", vec![3_i8]), ("1", vec![3]), ("2", vec![2, 3])] {
        let found = one(&mut connection, BROKER, broker, NAME);
        assert_eq!((found.value, found.config_source, found.config_type), (None, sources[0], 0), "{broker}");
        assert!(found.is_sensitive && found.read_only, "{broker}");
        let synonyms: Vec<i8> = found.synonyms.iter().map(|synonym| synonym.source).collect();
        assert!(synonyms == sources && found.synonyms.iter().all(|one| one.value.is_none()), "{synonyms:?}");
        let all = describe(&mut connection, BROKER, broker, None).configs;
        assert!(all.iter().any(|config| config.name == NAME), "{broker}");
    }
    let refused = alter(&mut connection, BROKER, "", &[(APPEND, NAME, "9")]);
    assert_eq!(refused.0, ErrorCode::InvalidConfig, "it is no list");
    altered(&mut connection, BROKER, "", &[(DELETE, NAME, "")]);
    assert_eq!(describe(&mut connection, BROKER, "", None).configs.len(), 0);
}

/// `kafka-reassign-partitions.sh --throttle` sets them and reads them back. They were described without their values.
#[test]
fn limits_of_replication_are_described_while_they_are_set() {
    const NAME: &str = "leader.replication.throttled.rate";
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| builder);
    let names = |connection: &mut Raw| -> Vec<String> {
        describe(connection, BROKER, "1", None).configs.into_iter().map(|config| config.name).collect()
    };
    assert!(!names(&mut connection).contains(&NAME.to_owned()));
    altered(&mut connection, BROKER, "1", &[(SET, NAME, "1000000")]);
    let found = one(&mut connection, BROKER, "1", NAME);
    assert_eq!((found.value.as_deref(), found.config_source, found.config_type), (Some("1000000"), 2, 5));
    assert!(!found.is_sensitive && !found.read_only);
    for wrong in ["-1", "fast"] {
        let (code, reason) = alter(&mut connection, BROKER, "1", &[(SET, NAME, wrong)]);
        assert_eq!(code, ErrorCode::InvalidRequest, "{reason}");
    }
    altered(&mut connection, BROKER, "1", &[(DELETE, NAME, "")]);
    assert!(!names(&mut connection).contains(&NAME.to_owned()));
}

#[test]
fn few_settings_that_are_no_properties_of_a_broker_are_stored() {
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| builder);
    let names: Vec<String> = (0..=100).map(|n| format!("plugin.{n}")).collect();
    let settings: Vec<(i8, &str, &str)> = names.iter().map(|name| (SET, name.as_str(), "x")).collect();
    let (code, reason) = alter(&mut connection, BROKER, "", &settings);
    assert_eq!(code, ErrorCode::PolicyViolation, "{reason}");
    assert_eq!(describe(&mut connection, BROKER, "", None).configs.len(), 0);
    altered(&mut connection, BROKER, "", &settings[1..]);
    assert_eq!(alter(&mut connection, BROKER, "", &settings[..1]).0, ErrorCode::PolicyViolation);
    altered(&mut connection, BROKER, "", &[(SET, "plugin.1", "y"), (SET, "log.retention.ms", "5000")]);
    let (long_name, long_value) = ("n".repeat(256), "x".repeat(4097));
    for (name, value) in [(&*long_name, "x"), ("", "x"), ("plugin.1", &*long_value)] {
        let (code, reason) = alter(&mut connection, BROKER, "1", &[(SET, name, value)]);
        assert_eq!(code, ErrorCode::InvalidConfig, "{reason}");
    }
}

#[test]
fn items_are_appended_to_lists_and_subtracted_from_them() {
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| builder);
    altered(&mut connection, TOPIC, "orders", &[(APPEND, "cleanup.policy", "compact")]);
    assert_eq!(value(&mut connection, TOPIC, "orders", "cleanup.policy"), ("delete,compact".into(), 1));
    altered(&mut connection, TOPIC, "orders", &[(SUBTRACT, "cleanup.policy", "delete")]);
    assert_eq!(value(&mut connection, TOPIC, "orders", "cleanup.policy"), ("compact".into(), 1));
    altered(&mut connection, BROKER, "", &[(APPEND, "log.cleanup.policy", "compact")]);
    assert_eq!(value(&mut connection, BROKER, "1", "log.cleanup.policy"), ("delete,compact".into(), 3));
}

#[test]
fn settings_of_a_topic_are_checked_together_with_the_others() {
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| builder);
    let mut set = |name: &str, value: &str| alter(&mut connection, TOPIC, "orders", &[(SET, name, value)]).0;
    assert_eq!(set("max.compaction.lag.ms", "5"), ErrorCode::None);
    assert_eq!(set("min.compaction.lag.ms", "10"), ErrorCode::InvalidConfig);
    assert_eq!(set("remote.storage.enable", "true"), ErrorCode::InvalidConfig);
    assert_eq!(set("leader.replication.throttled.replicas", "nonsense"), ErrorCode::InvalidConfig);
    assert_eq!(set("leader.replication.throttled.replicas", "0:1,1:2"), ErrorCode::None);
    assert_eq!(set("retention.bytes", "-2"), ErrorCode::None);
    assert_eq!(set("cleanup.policy", "delete,delete"), ErrorCode::InvalidConfig);
    assert_eq!(set("cleanup.policy", ""), ErrorCode::None);
    assert_eq!(alter(&mut connection, TOPIC, "a b", &[]).0, ErrorCode::InvalidTopicException);
    assert_eq!(alter(&mut connection, TOPIC, "", &[]).0, ErrorCode::InvalidRequest);
    assert_eq!(describe(&mut connection, TOPIC, "a b", None).error_code, ErrorCode::InvalidTopicException);
}

#[test]
fn a_resource_that_is_in_a_request_twice_stays_as_it_is() {
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| builder);
    let resource = |value: &str| AlterConfigsResource {
        resource_type: TOPIC,
        resource_name: "orders".into(),
        configs: vec![AlterableConfig {
            name: "retention.ms".into(),
            config_operation: SET,
            value: Some(value.into()),
        }],
    };
    let resources = vec![resource("1000"), resource("2000")];
    let request = IncrementalAlterConfigsRequest { resources, validate_only: false };
    let answer = connection.ask(1, &request).expect("an answer");
    assert!(answer.responses.iter().all(|one| one.error_code == ErrorCode::InvalidRequest), "{answer:?}");
    assert_eq!(value(&mut connection, TOPIC, "orders", "retention.ms"), ("604800000".into(), 5));
}

/// As in Kafka, such a resource is an error of the request, without a look at the resource. It was denied, or the topic was unknown.
#[test]
fn a_setting_that_is_named_again_or_has_no_value_is_invalid_whatever_the_rights_are() {
    let (broker, mut connection) = acls::start(&acls::world(Vec::new()), &[]);
    let (invalid, denied) = (ErrorCode::InvalidRequest, ErrorCode::TopicAuthorizationFailed);
    let set = |value: Option<&str>| AlterableConfig {
        name: "retention.ms".into(),
        config_operation: SET,
        value: value.map(Into::into),
    };
    for (configs, code) in [
        (vec![set(Some("1")), set(Some("2"))], invalid),
        (vec![set(None)], invalid),
        (vec![AlterableConfig { config_operation: DELETE, ..set(None) }], denied),
        (vec![set(Some("1"))], denied),
    ] {
        for name in ["secret", "missing"] {
            let resource = AlterConfigsResource {
                resource_type: TOPIC,
                resource_name: name.into(),
                configs: configs.clone(),
            };
            let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
            let answer = connection.ask(1, &request).expect("an answer");
            assert_eq!(answer.responses[0].error_code, code, "{name}: {configs:?}");
        }
    }
    let replaced = |values: &[Option<&str>]| replace::AlterConfigsResource {
        resource_type: TOPIC,
        resource_name: "secret".into(),
        configs: values
            .iter()
            .map(|value| replace::AlterableConfig {
                name: "retention.ms".into(),
                value: value.map(Into::into),
            })
            .collect(),
    };
    for (values, code) in [(&[Some("1"), Some("2")][..], invalid), (&[None], invalid), (&[Some("1")], denied)]
    {
        let resources = vec![replaced(values)];
        let request = replace::AlterConfigsRequest { resources, validate_only: false };
        let answer = connection.ask(2, &request).expect("an answer");
        assert_eq!(answer.responses[0].error_code, code, "{values:?}");
    }
    broker.stop();
}

/// A session timeout below the broker's limit was stored, and the limit applied.
#[test]
fn settings_of_a_group_outside_the_limits_of_the_broker_are_refused() {
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| {
        builder.configure(|config| {
            config.set("group.share.min.session.timeout.ms", "100").expect("a property");
        })
    });
    let mut set = |name: &str, value: &str| alter(&mut connection, GROUP, "billing", &[(SET, name, value)]);
    let (code, reason) = set("consumer.session.timeout.ms", "10000");
    assert_eq!(code, ErrorCode::InvalidConfig);
    let text = "consumer.session.timeout.ms must be greater than or equal to group.consumer.min.session.timeout.ms: it is `10000`, and \
                 this broker allows 45000 to 60000";
    assert_eq!(reason, text);
    let (code, reason) = set("consumer.heartbeat.interval.ms", "20000");
    assert_eq!(code, ErrorCode::InvalidConfig);
    let text = "consumer.heartbeat.interval.ms must be less than or equal to group.consumer.max.heartbeat.interval.ms: ";
    assert!(reason.starts_with(text), "{reason}");
    assert_eq!(set("share.record.lock.duration.ms", "1000").0, ErrorCode::InvalidConfig);
    assert_eq!(set("share.session.timeout.ms", "6000").0, ErrorCode::None);
}

/// They were stored, whatever their values.
#[test]
fn settings_of_a_streams_group_outside_the_limits_of_the_broker_are_refused() {
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| {
        builder.configure(|config| {
            config.set("group.streams.max.standby.replicas", "3").expect("a property");
            config.set("group.streams.max.heartbeat.interval.ms", "50000").expect("a property");
        })
    });
    let mut set = |name: &str, value: &str| alter(&mut connection, GROUP, "billing", &[(SET, name, value)]);
    for (name, refused, allowed) in [
        ("streams.heartbeat.interval.ms", [("4999", "min.heartbeat"), ("50001", "max.heartbeat")], "6000"),
        ("streams.session.timeout.ms", [("44999", "min.session"), ("60001", "max.session")], "50000"),
        ("streams.assignment.interval.ms", [("15001", "max.assignment"), ("20000", "max.assignment")], "0"),
        ("streams.num.standby.replicas", [("4", "max.standby.replicas"), ("5", "max.standby.replicas")], "3"),
    ] {
        for (value, limit) in refused {
            let (code, reason) = set(name, value);
            assert_eq!(code, ErrorCode::InvalidConfig, "{name}={value}");
            let bound = if limit.starts_with("min.") { "greater" } else { "less" };
            let text = format!("{name} must be {bound} than or equal to group.streams.{limit}");
            assert!(reason.starts_with(&text), "{reason}");
        }
        assert_eq!(set(name, allowed).0, ErrorCode::None, "{name}={allowed}");
    }
    let (code, reason) = set("streams.heartbeat.interval.ms", "50000");
    assert_eq!(code, ErrorCode::InvalidConfig, "it is not below the session timeout");
    assert!(reason.contains("streams.session.timeout.ms"), "{reason}");
}

/// A session timeout below the time between two heartbeats was stored, and the group removed its members between them.
#[test]
fn the_session_timeout_of_a_group_exceeds_its_heartbeat_interval() {
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| {
        builder.configure(|config| {
            config.set("group.consumer.max.heartbeat.interval.ms", "60000").expect("a property");
            config.set("group.share.min.heartbeat.interval.ms", "50").expect("a property");
            config.set("group.share.min.session.timeout.ms", "100").expect("a property");
        })
    });
    let mut set = |values: &[(i8, &str, &str)]| alter(&mut connection, GROUP, "billing", values);
    let (session, heartbeat) = ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms");
    // The session timeout of the broker is 45 seconds.
    let (code, reason) = set(&[(SET, heartbeat, "50000")]);
    assert_eq!(code, ErrorCode::InvalidConfig);
    assert!(reason.contains(session) && reason.contains(heartbeat), "{reason}");
    assert_eq!(set(&[(SET, heartbeat, "45000")]).0, ErrorCode::InvalidConfig, "both are equal");
    assert_eq!(set(&[(SET, heartbeat, "50000"), (SET, session, "60000")]).0, ErrorCode::None);
    assert_eq!(set(&[(DELETE, session, "")]).0, ErrorCode::InvalidConfig, "the broker's would apply");
    assert_eq!(set(&[(DELETE, session, ""), (DELETE, heartbeat, "")]).0, ErrorCode::None);

    let (session, heartbeat) = ("share.session.timeout.ms", "share.heartbeat.interval.ms");
    assert_eq!(set(&[(SET, session, "100")]).0, ErrorCode::InvalidConfig);
    assert_eq!(set(&[(SET, session, "100"), (SET, heartbeat, "50")]).0, ErrorCode::None);
}

/// Such a broker started, and all of its groups removed their members between two heartbeats.
#[test]
fn a_broker_whose_session_timeout_does_not_exceed_its_heartbeat_interval_does_not_start() {
    for kind in ["consumer", "share", "streams"] {
        let text = refusal(&[
            (&format!("group.{kind}.min.session.timeout.ms"), "5000"),
            (&format!("group.{kind}.session.timeout.ms"), "5000"),
        ]);
        assert!(text.contains(&format!("group.{kind}.heartbeat.interval.ms")), "{text}");
    }
}

/// Starts a broker with properties that contradict each other. Returns the reason of its refusal.
fn refusal(properties: &[(&str, &str)]) -> String {
    let builder = Broker::builder().memory().configure(|config| {
        for (name, value) in properties {
            config.set(name, value).expect("a property");
        }
    });
    let Err(error) = builder.spawn() else { panic!("it has started with {properties:?}") };
    error.to_string()
}

/// Such a broker started, and the limit applied instead of its value.
#[test]
fn a_broker_whose_settings_of_groups_are_outside_their_limits_does_not_start() {
    for kind in ["consumer", "share", "streams"] {
        for (rest, value) in [
            ("session.timeout.ms", "44999"),
            ("session.timeout.ms", "60001"),
            ("max.session.timeout.ms", "44999"),
            ("heartbeat.interval.ms", "4999"),
            ("heartbeat.interval.ms", "15001"),
            ("min.heartbeat.interval.ms", "5001"),
            ("assignment.interval.ms", "15001"),
            ("min.assignment.interval.ms", "1001"),
        ] {
            let name = format!("group.{kind}.{rest}");
            let setting = rest.trim_start_matches("min.").trim_start_matches("max.");
            let text = refusal(&[(&name, value)]);
            assert!(text.contains(&format!("group.{kind}.max.{setting}")), "{name}={value}: {text}");
        }
    }
    let deliveries = ("group.share.delivery.count.limit", "6");
    let locks = ("group.share.partition.max.record.locks", "1999");
    for properties in [
        &[("group.share.record.lock.duration.ms", "14999")][..],
        &[("group.share.max.delivery.count.limit", "5"), deliveries],
        &[("group.share.min.partition.max.record.locks", "2000"), locks],
        &[("group.streams.num.standby.replicas", "3")],
        &[("group.share.max.share.sessions", "199")],
    ] {
        let text = refusal(properties);
        assert!(text.contains(properties[0].0), "{properties:?}: {text}");
    }
}

/// The settings of a group showed Kafka's defaults although the broker's property is the default.
#[test]
fn the_default_of_a_group_is_the_property_of_the_broker() {
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| {
        builder.configure(|config| {
            config.set("group.consumer.session.timeout.ms", "50000").expect("a property");
        })
    });
    let described = one(&mut connection, GROUP, "billing", "consumer.session.timeout.ms");
    assert_eq!((described.value.as_deref(), described.config_source), (Some("50000"), 4));
    assert_eq!(described.synonyms[0].name, "group.consumer.session.timeout.ms");
}

#[test]
fn groups_and_client_metrics_have_settings_and_are_listed() {
    let disk = MemStorage::new();
    let (broker, mut connection) = start(&disk, |builder| builder);
    assert_eq!(value(&mut connection, GROUP, "billing", "consumer.session.timeout.ms"), ("45000".into(), 5));
    altered(&mut connection, GROUP, "billing", &[(SET, "consumer.session.timeout.ms", "50000")]);
    altered(&mut connection, METRICS, "slow", &[(SET, "interval.ms", "1000")]);
    assert_eq!(alter(&mut connection, GROUP, "", &[(SET, "x", "1")]).0, ErrorCode::InvalidRequest);
    assert_eq!(alter(&mut connection, GROUP, "billing", &[(SET, "x", "1")]).0, ErrorCode::InvalidConfig);
    drop(broker);
    let (_broker, mut connection) = start(&disk, |builder| builder);
    assert_eq!(value(&mut connection, GROUP, "billing", "consumer.session.timeout.ms"), ("50000".into(), 8));
    assert_eq!(value(&mut connection, METRICS, "slow", "interval.ms"), ("1000".into(), 7));
    let mut list = |version, kinds: &[i8]| {
        let request = ListConfigResourcesRequest { resource_types: kinds.to_vec() };
        let answer = connection.ask(version, &request).expect("an answer");
        let listed = answer.config_resources.into_iter().map(|one| (one.resource_type, one.resource_name));
        (answer.error_code, listed.collect::<Vec<_>>())
    };
    let named = |kind: i8, name: &str| (kind, name.to_owned());
    assert_eq!(list(0, &[]), (ErrorCode::None, vec![named(METRICS, "slow")]));
    assert_eq!(list(1, &[GROUP]), (ErrorCode::None, vec![named(GROUP, "billing")]));
    assert_eq!(list(1, &[]).1.len(), 1 + 2 + 2 + 1 + 1);
    assert_eq!(list(1, &[3]), (ErrorCode::UnsupportedVersion, Vec::new()));
}

/// The default was a synonym of a value that is set, too.
#[test]
fn a_setting_of_client_metrics_has_one_synonym() {
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| builder);
    altered(&mut connection, METRICS, "slow", &[(SET, "interval.ms", "1000")]);
    for (setting, value, source) in [("interval.ms", "1000", 7), ("metrics", "", 5)] {
        let synonyms = one(&mut connection, METRICS, "slow", setting).synonyms;
        let found: Vec<_> = synonyms.iter().map(|it| (&*it.name, it.value.as_deref(), it.source)).collect();
        assert_eq!(found, [(setting, Some(value), source)]);
    }
}

/// Ten thousand resources of each kind are kept, and all topics.
#[test]
fn long_names_and_values_of_settings_are_refused() {
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| builder);
    let mut code = |kind, name: &str, setting: &str, value: &str| {
        alter(&mut connection, kind, name, &[(SET, setting, value)]).0
    };
    let long = "x".repeat(256);
    assert_eq!(code(GROUP, &long, "share.delivery.count.limit", "5"), ErrorCode::InvalidRequest);
    assert_eq!(code(METRICS, &long, "interval.ms", "1000"), ErrorCode::InvalidRequest);
    assert_eq!(code(METRICS, &long[1..], "metrics", "org.a"), ErrorCode::None);
    let list = |items: usize| (0..items).map(|number| format!("{number}:1")).collect::<Vec<_>>().join(",");
    assert_eq!(code(METRICS, "all", "metrics", &list(2000)), ErrorCode::InvalidConfig);
    let throttled = "leader.replication.throttled.replicas";
    assert_eq!(code(TOPIC, "orders", throttled, &list(2)), ErrorCode::None);
    assert_eq!(
        code(TOPIC, "orders", throttled, &list(200)),
        ErrorCode::InvalidConfig,
        "the topic has one partition"
    );
}

/// A number with 4 KiB of zeros was kept as it was written, for each setting of each topic and group.
#[test]
fn numbers_and_words_of_very_many_characters_are_refused() {
    let (_broker, mut connection) = start(&MemStorage::new(), |builder| builder);
    let mut set = |kind, name: &str, setting: &str, value: &str| {
        alter(&mut connection, kind, name, &[(SET, setting, value)])
    };
    let number = |bytes: usize| format!("{}2000", "0".repeat(bytes - 4));
    let numbers = [
        (TOPIC, "orders", "retention.ms"),
        (TOPIC, "orders", "segment.bytes"),
        (GROUP, "billing", "streams.initial.rebalance.delay.ms"),
    ];
    for (kind, name, setting) in numbers {
        assert_eq!(set(kind, name, setting, &number(32)).0, ErrorCode::None, "{setting}");
        let (code, reason) = set(kind, name, setting, &number(33));
        assert_eq!(code, ErrorCode::InvalidConfig, "{setting}");
        assert_eq!(reason, format!("{setting}: the value has 33 bytes, at most 32 are allowed"));
    }
    let words = [
        (TOPIC, "orders", "preallocate", format!("{}true", " ".repeat(100))),
        (TOPIC, "orders", "cleanup.policy", format!("delete{}", ",".repeat(250))),
        (GROUP, "billing", "share.auto.offset.reset", format!("{}latest", " ".repeat(250))),
    ];
    for (kind, name, setting, value) in words {
        assert_eq!(set(kind, name, setting, &value).0, ErrorCode::InvalidConfig, "{setting}");
    }
}
