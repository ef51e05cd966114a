//! Compares bytes and schemas with Apache Kafka's Java client.
//!
//! Rust writes random messages in every version, and Java reads and rewrites them. Java creates random messages, and
//! Rust does the same. Then every schema is compared with the one in the client's jar.

#![allow(clippy::unwrap_used, reason = "a test may panic, helpers included")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bytes::Bytes;
use fastrand::Rng;
use ottla_protocol::api::{Recode, recode};
use ottla_protocol::header::is_response_header_flexible;
use ottla_protocol::messages::{ConsumerProtocolAssignment, ConsumerProtocolSubscription, REQUESTS};
use ottla_protocol::schema::{FieldSchema, FieldType, Schema, Versions};
use ottla_protocol::{ApiKey, Encoder, ErrorCode, Message, RequestHeader, Uuid};
use support::{java, schema_json};

const SEED: u64 = 41;

/// Random messages per version that Rust writes for Java.
const WRITTEN_PER_VERSION: usize = 40;

fn messages() -> BTreeMap<&'static str, (Schema, Recode)> {
    let mut all = BTreeMap::new();
    for api in REQUESTS {
        let messages = api.messages();
        all.insert(messages.request.name, (messages.request, messages.recode_request));
        all.insert(messages.response.name, (messages.response, messages.recode_response));
    }
    for (schema, recode) in [
        (ConsumerProtocolSubscription::SCHEMA, recode::<ConsumerProtocolSubscription> as Recode),
        (ConsumerProtocolAssignment::SCHEMA, recode::<ConsumerProtocolAssignment>),
    ] {
        all.insert(schema.name, (schema, recode));
    }
    all
}

#[test]
fn messages_and_schemas_are_the_java_clients() {
    let directory = tempfile::tempdir().unwrap();
    let classpath = match java::classpath(directory.path()) {
        Ok(classpath) => classpath,
        Err(why) => return java::skip(&why),
    };
    let written = write_messages(directory.path());
    java::run_conformance(&classpath, directory.path(), SEED).unwrap();

    let failures = fs::read_to_string(directory.path().join("failures")).unwrap();
    let shown: Vec<&str> = failures.lines().take(20).collect();
    assert!(
        shown.is_empty(),
        "Java read {} of our messages differently:\n{shown:#?}",
        failures.lines().count()
    );
    let facts = fs::read_to_string(directory.path().join("facts")).unwrap();
    assert_eq!(facts.lines().next(), Some(format!("read {written}").as_str()));

    let made = check_made(directory.path());
    assert!(made > written / 2, "Java made only {made} messages");
    check_facts(&facts);

    let mut differences = Vec::new();
    for (name, (schema, _)) in messages() {
        let json = fs::read_to_string(directory.path().join(format!("schemas/{name}.json"))).unwrap();
        differences.extend(schema_json::differences(&schema, &schema_json::parse(&json)));
    }
    assert!(differences.is_empty(), "{differences:#?}");
}

/// Writes random messages for Java and returns their number.
fn write_messages(directory: &Path) -> usize {
    let mut rng = Rng::with_seed(SEED);
    let mut out = Vec::new();
    let mut count = 0;
    let mut put = |name: &str, version: i16, bytes: &[u8]| {
        out.extend((name.len() as u16).to_be_bytes());
        out.extend(name.bytes());
        out.extend(version.to_be_bytes());
        out.extend((bytes.len() as u32).to_be_bytes());
        out.extend(bytes);
        count += 1;
    };
    for (name, (schema, recode)) in messages() {
        for version in schema.versions.min..=schema.versions.max {
            for _ in 0..WRITTEN_PER_VERSION {
                // Java receives the output of the encoder under test, not of the schema walker.
                let bytes = support::random_message(&schema, version, &mut rng);
                let ours = recode(bytes, version).unwrap().to_bytes().unwrap();
                put(name, version, &ours);
            }
        }
    }
    for api in REQUESTS {
        for api_version in api.versions.min..=api.versions.max {
            let flexible = api_version >= api.flexible_from;
            for client_id in [None, Some(String::new()), Some("orders-é".to_owned())] {
                let correlation_id = rng.i32(..);
                let header = RequestHeader { api_key: api.key, api_version, correlation_id, client_id };
                let mut head = Encoder::new();
                header.encode(&mut head, flexible).unwrap();
                put("RequestHeader", 1 + i16::from(flexible), &head.finish().to_bytes().unwrap());
            }
        }
    }
    fs::write(directory.join("messages"), out).unwrap();
    count
}

/// Recodes the messages from Java and returns their number.
fn check_made(directory: &Path) -> usize {
    let messages = messages();
    let mut made = Bytes::from(fs::read(directory.join("made")).unwrap());
    let mut count = 0;
    while !made.is_empty() {
        let name_len = u16::from_be_bytes(*made.first_chunk().unwrap()) as usize;
        let name = made.split_to(2 + name_len).slice(2..);
        let name = std::str::from_utf8(&name).unwrap();
        let version = i16::from_be_bytes(*made.split_to(2).first_chunk().unwrap());
        let len = u32::from_be_bytes(*made.split_to(4).first_chunk().unwrap()) as usize;
        let bytes = made.split_to(len);
        if name == "RequestHeader" {
            // A header with a random key and version does not determine its own form.
            continue;
        }
        let again = (messages[name].1)(bytes.clone(), version)
            .unwrap_or_else(|error| panic!("{error}\n{bytes:02x?}"))
            .to_bytes()
            .unwrap();
        assert!(bytes == again, "{name} v{version}\n{bytes:02x?}\n{again:02x?}");
        count += 1;
    }
    count
}

/// Compares error codes, keys, header versions and the text of UUIDs.
fn check_facts(facts: &str) {
    let mut errors = 0;
    let mut keys = 0;
    for line in facts.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["error", code, name, retriable, stale_metadata] => {
                let error = ErrorCode::from_i16(code.parse().unwrap());
                assert_eq!(error.name(), name);
                assert_eq!(error.is_retriable().to_string(), retriable, "{name}");
                assert_eq!(error.needs_metadata_refresh().to_string(), stale_metadata, "{name}");
                errors += 1;
            }
            ["api", code, name] => {
                let key = ApiKey::from_i16(code.parse().unwrap());
                assert_eq!(key.name().to_lowercase(), name.to_lowercase());
                keys += 1;
            }
            ["version", code, version, request_header, response_header, stable] => {
                let key = ApiKey::from_i16(code.parse().unwrap());
                let version = version.parse().unwrap();
                let Some(api) = key.api() else { continue };
                let flexible = key.is_flexible(version);
                assert_eq!((1 + i16::from(flexible)).to_string(), request_header, "{key} v{version}");
                let response = is_response_header_flexible(key, flexible);
                assert_eq!(i16::from(response).to_string(), response_header, "{key} v{version}");
                assert_eq!(api.stable_versions.contains(version).to_string(), stable, "{key} v{version}");
            }
            ["uuid", high, low, text] => {
                let (high, low): (u64, u64) = (high.parse().unwrap(), low.parse().unwrap());
                let id = Uuid::from(u128::from(high) << 64 | u128::from(low));
                assert_eq!(id.to_string(), text);
                assert_eq!(text.parse(), Ok(id));
            }
            _ => assert_eq!(words[0], "read"),
        }
    }
    assert_eq!(errors, ErrorCode::KNOWN.len());
    assert_eq!(keys, ApiKey::KNOWN.len());
}

#[test]
fn the_comparison_of_schemas_sees_every_fact() {
    const ALL: Versions = Versions { min: 0, max: i16::MAX };
    let json = schema_json::parse(
        r#"{ "name": "Orders", "validVersions": "2-5", "flexibleVersions": "3+", "fields": [ // a comment
            { "name": "OrderId", "type": "int64", "versions": "0+", "default": "0x10" },
            { "name": "Note", "type": "string", "versions": "3+", "taggedVersions": "3+", "tag": 1,
              "nullableVersions": "3+", "default": "null", "ignorable": true } ] }"#,
    );
    let id = FieldSchema {
        name: "order_id",
        ty: FieldType::Int64,
        versions: ALL,
        nullable: Versions { min: 0, max: -1 },
        tag: None,
        default: "16",
        ignorable: false,
    };
    let from_3 = Versions { min: 3, max: i16::MAX };
    let note = FieldSchema {
        name: "note",
        ty: FieldType::String,
        versions: from_3,
        nullable: from_3,
        tag: Some(1),
        default: "null",
        ignorable: true,
    };
    let compare = |versions, id: FieldSchema, note: FieldSchema| {
        let fields = Box::leak(Box::new([id, note]));
        let schema = Schema { name: "Orders", versions, flexible_from: 3, fields };
        schema_json::differences(&schema, &json)
    };
    let versions = Versions { min: 2, max: 5 };
    assert_eq!(compare(versions, id, note), Vec::<String>::new());
    for differences in [
        compare(Versions { min: 2, max: 6 }, id, note),
        compare(versions, FieldSchema { name: "order", ..id }, note),
        compare(versions, FieldSchema { ty: FieldType::Int32, ..id }, note),
        compare(versions, FieldSchema { default: "", ..id }, note),
        compare(versions, FieldSchema { ignorable: true, ..id }, note),
        compare(versions, FieldSchema { versions: from_3, ..id }, note),
        compare(versions, id, FieldSchema { nullable: Versions { min: 4, max: i16::MAX }, ..note }),
        compare(versions, id, FieldSchema { tag: Some(2), ..note }),
    ] {
        assert_eq!(differences.len(), 1, "{differences:?}");
    }
}
