//! DescribeClientQuotas and AlterClientQuotas: quotas are checked, stored and described with filters.

mod common;

use std::sync::Arc;

use common::Raw;
use ottla_broker::{Broker, BrokerThread};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_client_quotas::{
    AlterClientQuotasRequest, EntityData, EntryData, OpData,
};
use ottla_protocol::messages::describe_client_quotas::{ComponentData, DescribeClientQuotasRequest};

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
