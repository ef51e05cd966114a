//! Bad input: the broker closes the connection or answers with an error code. It writes nothing, and other clients are
//! not affected.

#[path = "common/hostile.rs"]
mod hostile;

use std::time::{SystemTime, UNIX_EPOCH};

use ottla_broker::{Broker, BrokerThread};
use ottla_protocol::messages::api_versions::ApiVersionsRequest;
use ottla_protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use ottla_protocol::{ErrorCode, frame};
use ottla_wire::{BatchBuilder, Compression, Seal};

use crate::common::sound;
use crate::common::{CORRELATION_ID, Heard, Raw, batch, bomb, framed, metadata_of, set_crc, sized};

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory")
}

fn appended(broker: &BrokerThread) -> i64 {
    broker.cluster().offsets_of("orders", 0).expect("a partition").1
}

#[test]
fn each_prefix_of_a_sound_request_closes_its_connection_and_no_other() {
    let broker = broker();
    let address = broker.addresses()[0];
    let mut bystander = Raw::connect(address);
    for sound in sound::in_outer_versions(address) {
        let (what, request) = (sound.name(), sound.frame);
        let body = &request[4..];
        let mut answered = Vec::new();
        for len in 0..body.len() {
            // The size matches the bytes, but the message ends too early.
            let mut connection = Raw::connect(address);
            connection.send(&sized(&body[..len]));
            match connection.hear() {
                Heard::Closed => {}
                Heard::Answer(answer) => {
                    assert_eq!(answer[..4], CORRELATION_ID.to_be_bytes(), "{what}, {len} bytes");
                    answered.push(len);
                }
            }
            // The size is larger than the bytes, and the rest is not sent.
            let mut connection = Raw::connect(address);
            connection.send(&request[..4 + len]);
            connection.finish();
            assert!(matches!(connection.hear(), Heard::Closed), "{what}, {len} bytes and the end");
        }
        // ApiVersions is answered even if its body cannot be read; no prefix of another request is a valid request.
        assert!(answered.is_empty(), "{what}: prefixes of {answered:?} bytes were answered");
        assert!(bystander.is_served(), "after the prefixes of {what}");
        let mut connection = Raw::connect(address);
        connection.send(&request);
        assert!(matches!(connection.hear(), Heard::Answer(_)), "{what} as a whole is sound");
    }
}

#[test]
fn impossible_frames_are_refused() {
    let broker = broker();
    let address = broker.addresses()[0];
    let mut bystander = Raw::connect(address);
    for (what, bytes) in hostile::refused().into_iter().chain(hostile::bombs()).chain([hostile::swollen()]) {
        let mut connection = Raw::connect(address);
        connection.send(&bytes);
        match connection.hear() {
            Heard::Closed => {}
            Heard::Answer(answer) => assert_eq!(answer[..4], CORRELATION_ID.to_be_bytes(), "{what}"),
        }
        assert!(bystander.is_served(), "after {what}");
        assert_eq!(appended(&broker), 0, "after {what}");
    }
}

#[test]
fn a_wrong_checksum_is_a_corrupt_message() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let sound = batch(&[b"one", b"two"], &Seal::default());
    for at in ottla_wire::batch::CRC_FROM..sound.len() {
        let mut flipped = sound.clone();
        flipped[at] ^= 0x10;
        let answer = connection.produce("orders", -1, &flipped);
        // This bit makes it a batch of a transaction, which needs the right to an id.
        let is_transactional = at == ottla_wire::batch::CRC_FROM + 1;
        let expected = if is_transactional {
            ErrorCode::TransactionalIdAuthorizationFailed
        } else {
            ErrorCode::CorruptMessage
        };
        assert_eq!(answer.error_code, expected, "byte {at}");
    }
    assert_eq!(appended(&broker), 0);
    assert_eq!(connection.produce("orders", -1, &sound).error_code, ErrorCode::None);
    assert_eq!(appended(&broker), 2);
}

/// CORRUPT_MESSAGE would make the producer send it again until its delivery time-out.
#[test]
fn a_batch_that_contradicts_itself_under_a_right_checksum_is_an_invalid_record() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let sound = batch(&[b"one", b"two"], &Seal::default());
    for (at, value) in [(57, 1_i32), (57, -1), (57, 3), (23, 0), (23, -1)] {
        let mut wrong = sound.clone();
        wrong[at..at + 4].copy_from_slice(&value.to_be_bytes());
        let crc = ottla_wire::crc::crc32c(&wrong[ottla_wire::batch::CRC_FROM..]);
        wrong[17..21].copy_from_slice(&crc.to_be_bytes());
        let answer = connection.produce("orders", -1, &wrong);
        assert_eq!(answer.error_code, ErrorCode::InvalidRecord, "{value} at {at}");
    }
    assert_eq!(appended(&broker), 0);
}

/// It was CORRUPT_MESSAGE, for which producers send it again until their delivery time-out.
#[test]
fn a_batch_of_an_unknown_codec_under_a_right_checksum_is_an_invalid_record() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let long = vec![b'x'; 100_000];
    for (codec, value) in [(5, &b"short"[..]), (7, &long)] {
        let mut wrong = batch(&[value], &Seal::default());
        wrong[22] |= codec;
        assert_eq!(connection.produce("orders", -1, &wrong).error_code, ErrorCode::CorruptMessage, "{codec}");
        set_crc(&mut wrong);
        assert_eq!(connection.produce("orders", -1, &wrong).error_code, ErrorCode::InvalidRecord, "{codec}");
    }
    assert_eq!(appended(&broker), 0);
}

/// It was written with the offsets of the log. A producer that passes here would fail at Kafka.
#[test]
fn a_batch_with_another_base_offset_than_0_is_an_invalid_record() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let sound = batch(&[b"one", b"two"], &Seal::default());
    for base_offset in [1_i64, -1, 1 << 40] {
        // No checksum covers it.
        let mut wrong = sound.clone();
        wrong[..8].copy_from_slice(&base_offset.to_be_bytes());
        let answer = connection.produce("orders", -1, &wrong);
        assert_eq!(answer.error_code, ErrorCode::InvalidRecord, "{base_offset}");
    }
    assert_eq!(appended(&broker), 0);
    assert_eq!(connection.produce("orders", -1, &sound).error_code, ErrorCode::None);
}

/// Java's producer fails the named records with the error, and the others of the batch as not at fault (KIP-467).
#[test]
fn a_batch_with_timestamps_out_of_range_names_their_records() {
    let broker = Broker::builder().memory().spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let limit = CreatableTopicConfig {
        name: "message.timestamp.before.max.ms".into(),
        value: Some("86400000".into()),
    };
    let topic = CreatableTopic {
        name: "orders".into(),
        num_partitions: 1,
        replication_factor: 1,
        configs: vec![limit],
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 1000, validate_only: false };
    let created = connection.ask(5, &request).expect("an answer");
    assert_eq!(created.topics[0].error_code, ErrorCode::None);
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64;
    let long = vec![b'x'; 100_000];
    let cases = Compression::ALL.into_iter().flat_map(|codec| [(codec, &b"short"[..]), (codec, &long)]);
    for (codec, value) in cases {
        let mut builder = BatchBuilder::new();
        for timestamp in [now_ms, 1000, -1, 2000] {
            builder.push(timestamp, Some(b"key"), Some(value), &[]);
        }
        let seal = Seal { compression: codec, ..Seal::default() };
        let bytes = builder.seal(&seal).expect("a batch").to_bytes();
        let answer = connection.produce("orders", -1, &bytes);
        assert_eq!(answer.error_code, ErrorCode::InvalidTimestamp, "{codec:?}");
        let named: Vec<i32> = answer.record_errors.iter().map(|error| error.batch_index).collect();
        assert_eq!(named, [1, 3], "{codec:?}");
        let texts =
            answer.record_errors.iter().filter_map(|error| error.batch_index_error_message.as_deref());
        for (text, timestamp) in texts.zip(["timestamp 1000 ", "timestamp 2000 "]) {
            assert!(text.starts_with(timestamp), "{text}");
        }
    }
    assert_eq!(appended(&broker), 0);
}

/// Records without a key were not named beside one with a wrong timestamp. Kafka names each record with one error, that of the key
/// first; the batch has the error of the timestamps if one is named for its timestamp.
#[test]
fn a_batch_without_keys_and_with_timestamps_out_of_range_names_all_their_records() {
    let broker = Broker::builder().memory().spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let settings = [("cleanup.policy", "compact"), ("message.timestamp.before.max.ms", "86400000")];
    let configs = settings
        .map(|(name, value)| CreatableTopicConfig { name: name.into(), value: Some(value.into()) })
        .to_vec();
    let topic = CreatableTopic {
        name: "orders".into(),
        num_partitions: 1,
        replication_factor: 1,
        configs,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 1000, validate_only: false };
    let created = connection.ask(5, &request).expect("an answer");
    assert_eq!(created.topics[0].error_code, ErrorCode::None);
    let (key, none) = (Some(&b"key"[..]), None);
    for (records, code, named) in [
        (
            [(-1, key), (-1, none), (1000, key), (1000, none)],
            ErrorCode::InvalidTimestamp,
            [(1, "the record has no key"), (2, "timestamp 1000 "), (3, "the record has no key")].as_slice(),
        ),
        (
            [(-1, key), (-1, key), (-1, key), (1000, none)],
            ErrorCode::InvalidRecord,
            [(3, "the record has no key")].as_slice(),
        ),
    ] {
        let mut builder = BatchBuilder::new();
        for (timestamp, key) in records {
            builder.push(timestamp, key, Some(b"value"), &[]);
        }
        let bytes = builder.seal(&Seal::default()).expect("a batch").to_bytes();
        let answer = connection.produce("orders", -1, &bytes);
        assert_eq!(answer.error_code, code);
        let found = answer.record_errors.iter();
        let found = found.map(|one| (one.batch_index, one.batch_index_error_message.as_deref()));
        let found: Vec<(i32, &str)> = found.map(|(at, text)| (at, text.unwrap_or_default())).collect();
        assert_eq!(found.len(), named.len(), "{found:?}");
        for ((at, text), (expected_at, expected)) in found.iter().zip(named) {
            assert!(at == expected_at && text.starts_with(expected), "{found:?}");
        }
    }
    assert_eq!(appended(&broker), 0);
}

#[test]
fn bombs_are_refused_with_every_codec() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    for codec in Compression::ALL.into_iter().filter(|codec| *codec != Compression::None) {
        let answer = connection.produce("orders", -1, &bomb(codec));
        assert_eq!(answer.error_code, ErrorCode::InvalidRecord, "{codec:?}: {:?}", answer.error_message);
    }
    assert_eq!(appended(&broker), 0);
}

#[test]
fn no_name_leads_out_of_the_data_directory() {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let data = dir.path().join("a").join("b").join("data");
    let broker = Broker::builder().data_dir(&data).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let long = "x".repeat(250);
    for name in [hostile::EVIL_NAME, "..", ".", "", "a/b", "/etc", "a\0b", "a\\b", "é", &long] {
        let metadata = connection.ask(12, &metadata_of(name)).expect("an answer");
        assert_eq!(metadata.topics[0].error_code, ErrorCode::InvalidTopicException, "{name:?}");
        let topics = vec![CreatableTopic {
            name: name.into(),
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        }];
        let request = CreateTopicsRequest { topics, timeout_ms: 1000, validate_only: false };
        let created = connection.ask(7, &request).expect("an answer");
        assert_eq!(created.topics[0].error_code, ErrorCode::InvalidTopicException, "{name:?}");
    }
    let outside = std::fs::read_dir(dir.path().join("a")).expect("a directory").count();
    assert_eq!(outside, 1, "nothing beside the data directory's parent");
    let beside = std::fs::read_dir(dir.path().join("a").join("b")).expect("a directory").count();
    assert_eq!(beside, 1, "nothing beside the data directory");
}

/// The text of the refusal is longer than a string may be. The response could not be encoded, and answered no topic.
#[test]
fn a_refusal_that_names_a_very_long_name_is_answered() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let long = "x".repeat(i16::MAX as usize);
    let topic = |name: &str| CreatableTopic {
        name: name.into(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let topics = vec![topic(&long), topic(&long), topic("bills")];
    let request = CreateTopicsRequest { topics, timeout_ms: 10_000, validate_only: false };
    for version in [4, 7] {
        let response = connection.ask(version, &request).expect("an answer");
        assert_eq!(response.topics.len(), 2, "version {version}");
        assert_eq!(response.topics[0].error_code, ErrorCode::InvalidRequest, "version {version}");
        let text = response.topics[0].error_message.as_deref().unwrap_or_default();
        assert!(text.starts_with("topic `xxx"), "version {version}: {} bytes", text.len());
    }
    assert!(broker.cluster().offsets_of("bills", 0).is_some());
}

#[test]
fn an_unknown_version_of_api_versions_is_answered_in_version_0() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let mut request = framed(
        4,
        &ApiVersionsRequest { client_software_name: "story".into(), client_software_version: "1".into() },
    );
    for version in [5_i16, 99, i16::MAX] {
        request[6..8].copy_from_slice(&version.to_be_bytes());
        connection.send(&request);
        let Heard::Answer(answer) = connection.hear() else { panic!("closed at version {version}") };
        let (id, response) =
            frame::decode_response::<ApiVersionsRequest>(answer, 0).expect("an answer in version 0");
        assert_eq!((id, response.error_code), (CORRELATION_ID, ErrorCode::UnsupportedVersion));
        let own = response.api_keys.iter().find(|api| api.api_key == 18).expect("its own entry");
        assert_eq!((own.min_version, own.max_version), (0, 4));
    }
    assert!(connection.is_served(), "the connection goes on");
}

/// Such a client could not connect: each of its requests closed the connection.
#[test]
fn a_client_id_that_is_not_utf_8_is_served() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let client_id = b"M\xfcller";
    // ApiVersions, in version 0.
    let mut request = [0, 18, 0, 0].to_vec();
    request.extend(CORRELATION_ID.to_be_bytes());
    request.extend((client_id.len() as i16).to_be_bytes());
    request.extend(client_id);
    connection.send(&sized(&request));
    let answer = connection.answer_to::<ApiVersionsRequest>(0).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::None);
}
