//! `compression.type`: the codec in which batches are stored.

use std::sync::Arc;

use ottla_broker::{Broker, BrokerThread, TopicConfig};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use ottla_wire::batch::HEADER_BYTES;
use ottla_wire::{BatchHeader, Compression, Records, Seal};

use crate::common::{Raw, batch, bomb, numbered, set_crc};

const NAMES: [(&str, Compression); 5] = [
    ("uncompressed", Compression::None),
    ("gzip", Compression::Gzip),
    ("snappy", Compression::Snappy),
    ("lz4", Compression::Lz4),
    ("zstd", Compression::Zstd),
];

fn start(settings: &[(&str, &str)]) -> (BrokerThread, Raw) {
    let mut config = TopicConfig::default();
    for (name, value) in settings {
        config.set(name, value).expect("a setting");
    }
    let builder = Broker::builder().storage(Arc::new(MemStorage::new())).topic_with("orders", 1, config);
    let broker = builder.spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

/// The batches of the topic: header, and the values of the records.
fn stored(connection: &mut Raw) -> Vec<(BatchHeader, Vec<Vec<u8>>)> {
    let partition =
        FetchPartition { partition: 0, fetch_offset: 0, partition_max_bytes: 1 << 26, ..Default::default() };
    let topic = FetchTopic { topic: "orders".into(), partitions: vec![partition], ..Default::default() };
    let request = FetchRequest { max_bytes: 1 << 26, topics: vec![topic], ..Default::default() };
    let answer = connection.ask(12, &request).expect("an answer");
    let bytes = answer.responses[0].partitions[0].records.as_ref().and_then(|chain| chain.to_bytes().ok());
    let mut bytes = bytes.unwrap_or_default();
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let header = BatchHeader::parse(&bytes).expect("a batch");
        let batch = bytes.split_to(header.total_bytes());
        header.verify_crc(&batch).expect("a sound batch");
        let records = Records::of_batch(&batch, 1 << 26).expect("records");
        records.validate().expect("sound records");
        let values = records.iter().map(|record| record.expect("sound").value.unwrap_or_default().to_vec());
        all.push((header, values.collect()));
    }
    all
}

fn seal(compression: Compression) -> Seal {
    Seal { compression, ..Seal::default() }
}

fn value(n: usize) -> Vec<u8> {
    format!("{n} {}", "a line that can be compressed; ".repeat(40)).into_bytes()
}

#[test]
fn batches_are_stored_in_the_codec_of_the_topic() {
    for (name, codec) in NAMES {
        let (_broker, mut connection) = start(&[("compression.type", name)]);
        for (n, from) in Compression::ALL.into_iter().enumerate() {
            let response = connection.produce("orders", -1, &batch(&[&value(n), b"x"], &seal(from)));
            assert_eq!(
                (response.error_code, response.base_offset),
                (ErrorCode::None, 2 * n as i64),
                "{name}"
            );
        }
        let stored = stored(&mut connection);
        assert_eq!(stored.len(), 5);
        for (n, (header, values)) in stored.into_iter().enumerate() {
            assert_eq!(header.compression(), Ok(codec), "{name}, batch {n}");
            assert_eq!((header.base_offset, header.base_timestamp), (2 * n as i64, header.max_timestamp));
            assert_eq!(values, [value(n), b"x".to_vec()]);
        }
    }
}

#[test]
fn the_codec_of_the_producer_is_kept_by_default() {
    let (_broker, mut connection) = start(&[]);
    for from in Compression::ALL {
        connection.produce("orders", -1, &batch(&[&value(0)], &seal(from)));
    }
    let codecs: Vec<_> = stored(&mut connection).iter().map(|(header, _)| header.compression()).collect();
    assert_eq!(codecs, Compression::ALL.map(Ok));
}

#[test]
fn a_change_of_the_codec_applies_to_the_next_batch() {
    let (_broker, mut connection) = start(&[]);
    for name in ["producer", "zstd", "uncompressed", "producer"] {
        let config = AlterableConfig {
            name: "compression.type".into(),
            config_operation: 0,
            value: Some(name.into()),
        };
        let resource =
            AlterConfigsResource { resource_type: 2, resource_name: "orders".into(), configs: vec![config] };
        let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
        let answer = connection.ask(1, &request).expect("an answer");
        assert_eq!(answer.responses[0].error_code, ErrorCode::None);
        connection.produce("orders", -1, &batch(&[&value(0)], &seal(Compression::Lz4)));
    }
    let codecs: Vec<_> = stored(&mut connection).iter().map(|(header, _)| header.compression()).collect();
    assert_eq!(codecs, [Compression::Lz4, Compression::Zstd, Compression::None, Compression::Lz4].map(Ok));
}

/// The codec of stored batches differs from that of a retry. A retry is found by its sequence.
#[test]
fn a_retry_of_a_recompressed_batch_is_a_duplicate() {
    let (_broker, mut connection) = start(&[("compression.type", "gzip")]);
    let (first, second) = (numbered((7, 0), 0, &[b"a", b"b"]), numbered((7, 0), 2, &[b"c"]));
    assert_eq!(connection.produce("orders", -1, &first).base_offset, 0);
    assert_eq!(connection.produce("orders", -1, &second).base_offset, 2);
    let again = connection.produce("orders", -1, &first);
    assert_eq!((again.error_code, again.base_offset), (ErrorCode::None, 0));
    let stored = stored(&mut connection);
    assert_eq!(stored.len(), 2);
    for (header, _) in stored {
        assert_eq!((header.producer_id, header.producer_epoch), (7, 0));
        assert_eq!(header.compression(), Ok(Compression::Gzip));
    }
    let gap = connection.produce("orders", -1, &numbered((7, 0), 9, &[b"z"]));
    assert_eq!(gap.error_code, ErrorCode::OutOfOrderSequenceNumber);
}

#[test]
fn limits_apply_to_what_is_stored() {
    let settings = [("compression.type", "uncompressed"), ("max.message.bytes", "1000")];
    let (_broker, mut connection) = start(&settings);
    let small = batch(&[&value(0)], &seal(Compression::Zstd));
    assert!(small.len() < 1000 && value(0).len() > 1000);
    let response = connection.produce("orders", -1, &small);
    assert_eq!(response.error_code, ErrorCode::MessageTooLarge, "{:?}", response.error_message);
    let (_broker, mut connection) = start(&[("compression.type", "zstd")]);
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4] {
        let response = connection.produce("orders", -1, &bomb(codec));
        assert_eq!(response.error_code, ErrorCode::InvalidRecord, "{codec:?}: {:?}", response.error_message);
    }
    let mut damaged = batch(&[&value(0)], &seal(Compression::Lz4));
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    assert_eq!(connection.produce("orders", -1, &damaged).error_code, ErrorCode::CorruptMessage);
    assert_eq!(connection.produce("orders", -1, &batch(&[b"x"], &Seal::default())).base_offset, 0);
}

/// Kafka's broker reads the records with the reader of its clients, so it stores no frame that they cannot read.
#[test]
fn lz4_frames_that_java_cannot_read_are_refused() {
    const INDEPENDENT: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
    const LINKED: [u8; 7] = [0x04, 0x22, 0x4d, 0x18, 0x40, 0x40, 0xc0];
    let (_broker, mut connection) = start(&[]);
    let mut state = 1_u64;
    let mut noise = Vec::new();
    for _ in 0..30_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.push(state as u8);
    }
    // The large one is checked on another thread.
    for value in [value(0), [noise, vec![0; 30_000]].concat()] {
        let sound = batch(&[&value], &seal(Compression::Lz4));
        assert_eq!(sound[HEADER_BYTES..HEADER_BYTES + 7], INDEPENDENT);
        let mut linked = sound.clone();
        linked[HEADER_BYTES..HEADER_BYTES + 7].copy_from_slice(&LINKED);
        let mut without_end = sound[..sound.len() - 4].to_vec();
        let length = without_end.len() as i32 - 12;
        without_end[8..12].copy_from_slice(&length.to_be_bytes());
        for mut refused in [linked, without_end] {
            set_crc(&mut refused);
            let response = connection.produce("orders", -1, &refused);
            assert_eq!(response.error_code, ErrorCode::InvalidRecord, "{:?}", response.error_message);
        }
        assert_eq!(connection.produce("orders", -1, &sound).error_code, ErrorCode::None);
    }
    assert_eq!(stored(&mut connection).len(), 2);
}

#[test]
fn the_level_of_the_topic_counts() {
    let sizes = ["1", "9"].map(|level| {
        let settings = [("compression.type", "gzip"), ("compression.gzip.level", level)];
        let (_broker, mut connection) = start(&settings);
        let words: Vec<u8> = (0..30_000_u32).flat_map(|n| format!("{} ", n * n % 977).into_bytes()).collect();
        connection.produce("orders", -1, &batch(&[&words], &Seal::default()));
        stored(&mut connection)[0].0.total_bytes()
    });
    assert!(sizes[1] < sizes[0], "{sizes:?}");
}
