//! The effect of versions on values: added and removed fields, nulls, tags, frames.

#![allow(clippy::unwrap_used, reason = "a test may panic, helpers included")]

use bytes::{BufMut, Bytes};
use ottla_protocol::encode::STRING_BYTES_MAX;
use ottla_protocol::messages::create_topics::{CreatableTopicResult, CreateTopicsResponse};
use ottla_protocol::messages::fetch::{FetchableTopicResponse, PartitionData};
use ottla_protocol::messages::produce::{PartitionProduceData, TopicProduceData};
use ottla_protocol::messages::write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest,
};
use ottla_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, FetchRequest, FetchResponse, MetadataRequest, ProduceRequest,
};
use ottla_protocol::{
    ApiKey, Decoder, EncodeFault, Encoder, ErrorCode, Message, RequestHeader, Uuid, decode_request,
    decode_response, encode_request, encode_response, frame::encode_response_with_errors,
};
use ottla_wire::chain::{Chain, FileSlice, Piece, ReadAt};

fn encoded<M: Message>(message: &M, version: i16) -> Bytes {
    let mut out = Encoder::new();
    message.encode(&mut out, version).unwrap();
    out.finish().to_bytes().unwrap()
}

fn produce(records: impl Into<Chain>) -> ProduceRequest {
    let partition = PartitionProduceData { index: 3, records: Some(records.into()) };
    ProduceRequest {
        acks: -1,
        timeout_ms: 30_000,
        topic_data: vec![TopicProduceData {
            name: "orders".into(),
            partition_data: vec![partition],
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[test]
fn a_request_crosses_the_wire_in_a_frame() {
    let request = produce(Bytes::from_static(b"batch"));
    let frame = encode_request(7, Some("till-1"), 9, &request).unwrap().to_bytes().unwrap();
    assert_eq!(i32::from_be_bytes(*frame.first_chunk().unwrap()) as usize, frame.len() - 4);

    let mut input = Decoder::new(frame.slice(4..));
    let header = RequestHeader::decode(&mut input).unwrap();
    assert_eq!((header.api_key, header.api_version, header.correlation_id), (ApiKey::Produce, 9, 7));
    assert_eq!(header.client_id.as_deref(), Some("till-1"));
    assert_eq!(decode_request::<ProduceRequest>(input, 9), Ok(request));
}

/// librdkafka 2.16's encoding of "all topics" is three bytes longer than the schema; Kafka's brokers accept it.
#[test]
fn librdkafkas_request_for_all_topics_is_understood() {
    let frame = b"\x00\x03\x00\x0d\x00\x00\x00\x03\x00\x07rdkafka\x00\x00\x00\x00\x00\x01\x00\x00";
    let mut input = Decoder::new(Bytes::from_static(frame));
    let header = RequestHeader::decode(&mut input).unwrap();
    assert_eq!((header.api_key, header.api_version), (ApiKey::Metadata, 13));
    let request = decode_request::<MetadataRequest>(input, 13).unwrap();
    assert_eq!(request.topics, None, "all topics");
}

#[test]
fn records_are_linked_into_requests_and_sliced_out_of_them() {
    let records = Bytes::from(vec![7; 5000]);
    let chain = encode_request(7, None, 9, &produce(records.clone())).unwrap();
    let linked = chain.pieces().iter().any(|piece| match piece {
        Piece::Memory(bytes) => bytes.as_ptr() == records.as_ptr(),
        Piece::File(_) => false,
    });
    assert!(linked, "the records were copied");

    let frame = chain.to_bytes().unwrap();
    let mut input = Decoder::new(frame.slice(4..));
    RequestHeader::decode(&mut input).unwrap();
    let request = decode_request::<ProduceRequest>(input, 9).unwrap();
    let read = request.topic_data[0].partition_data[0].records.as_ref().unwrap().as_single().unwrap();
    assert!(frame.as_ptr_range().contains(&read.as_ptr()), "the records were copied");
    assert_eq!(read, &records);
}

#[derive(Debug)]
struct Sevens;

impl ReadAt for Sevens {
    fn read_exact_at(&self, buf: &mut [u8], _: u64) -> std::io::Result<()> {
        buf.fill(7);
        Ok(())
    }
}

#[test]
fn a_response_can_leave_its_records_in_the_file() {
    let file = FileSlice { file: std::sync::Arc::new(Sevens), offset: 0, len: 9 };
    let partition = PartitionData { records: Some(file.into()), ..Default::default() };
    let topic = FetchableTopicResponse { partitions: vec![partition], ..Default::default() };
    let response = FetchResponse { responses: vec![topic], ..Default::default() };
    let chain = encode_response::<FetchRequest>(1, 12, &response).unwrap();
    assert!(chain.pieces().iter().any(|piece| matches!(piece, Piece::File(_))));
    let frame = chain.to_bytes().unwrap();
    assert_eq!(decode_response::<FetchRequest>(frame.slice(4..), 12), Ok((1, response)));
}

#[test]
fn the_error_codes_of_a_response_are_counted_where_they_are() {
    let partition = |code| PartitionData { error_code: ErrorCode::from_i16(code), ..Default::default() };
    let partitions = [0, 6, 1, 6].map(partition).to_vec();
    let topic = FetchableTopicResponse { partitions, ..Default::default() };
    let response = FetchResponse { responses: vec![topic], ..Default::default() };
    let (chain, errors) = encode_response_with_errors::<FetchRequest>(1, 12, &response).unwrap();
    let counted: Vec<_> = errors.iter().collect();
    assert_eq!(counted, [(ErrorCode::NotLeaderOrFollower, 2), (ErrorCode::OffsetOutOfRange, 1)]);
    assert_eq!(chain.len(), encode_response::<FetchRequest>(1, 12, &response).unwrap().len());
}

#[test]
fn the_answer_to_api_versions_has_no_tags_in_its_header() {
    let response = ApiVersionsResponse { error_code: ErrorCode::UnsupportedVersion, ..Default::default() };
    let frame = encode_response::<ApiVersionsRequest>(5, 3, &response).unwrap().to_bytes().unwrap();
    // Size, correlation id, and the error code after them.
    assert_eq!(frame[4..10], [0, 0, 0, 5, 0, 35]);
    assert_eq!(decode_response::<ApiVersionsRequest>(frame.slice(4..), 3), Ok((5, response)));
}

#[test]
fn a_value_the_version_cannot_carry_is_an_error_unless_it_is_ignorable() {
    let request = MetadataRequest { include_topic_authorized_operations: true, ..Default::default() };
    let error = request.encode(&mut Encoder::new(), 7).unwrap_err();
    assert_eq!(error.field(), "include_topic_authorized_operations");
    assert_eq!(*error.fault(), EncodeFault::UnsupportedField { version: 7 });
    assert_eq!(
        error.to_string(),
        "MetadataRequest v7: field `include_topic_authorized_operations` is set, but version 7 has no such field"
    );
    assert!(request.encode(&mut Encoder::new(), 8).is_ok());

    // The topic's name is removed in version 13, and may be dropped.
    let mut request = produce(Bytes::new());
    request.topic_data[0].topic_id = Uuid::from(9);
    let bytes = encoded(&request, 13);
    let read = ProduceRequest::decode(&mut Decoder::new(bytes), 13).unwrap();
    assert_eq!((read.topic_data[0].name.as_str(), read.topic_data[0].topic_id), ("", Uuid::from(9)));
}

#[test]
fn null_is_refused_in_versions_that_do_not_allow_it() {
    let all_topics = MetadataRequest { topics: None, ..Default::default() };
    let error = all_topics.encode(&mut Encoder::new(), 0).unwrap_err();
    assert_eq!((error.field().as_str(), error.fault()), ("topics", &EncodeFault::Null));
    assert_eq!(encoded(&all_topics, 1)[..], [0xff; 4]);

    let null = Bytes::from_static(&[0xff; 4]);
    let error = MetadataRequest::decode(&mut Decoder::new(null.clone()), 0).unwrap_err();
    assert_eq!(
        error.to_string(),
        "MetadataRequest v0: field `topics` is null before byte 4, where a value is required"
    );
    assert_eq!(MetadataRequest::decode(&mut Decoder::new(null), 1), Ok(all_topics));
}

#[test]
fn versions_outside_the_range_are_refused() {
    let error = ProduceRequest::default().encode(&mut Encoder::new(), 2).unwrap_err();
    assert_eq!(error.to_string(), "ProduceRequest v2: version 2 is not one of 3-13");
    assert!(ProduceRequest::decode(&mut Decoder::new(Bytes::new()), 14).is_err());
}

#[test]
fn tagged_fields_are_written_when_they_matter_and_skipped_when_unknown() {
    let plain = ApiVersionsResponse::default();
    let bytes = encoded(&plain, 3);
    // Error code, empty array, throttle time, no tags.
    assert_eq!(bytes[..], [0, 0, 1, 0, 0, 0, 0, 0]);

    let migrating = ApiVersionsResponse { zk_migration_ready: true, ..Default::default() };
    let bytes = encoded(&migrating, 3);
    assert_eq!(bytes[7..], [1, 3, 1, 1]);

    // An unknown tag after the known one.
    let mut newer = bytes[..7].to_vec();
    newer.put_slice(&[2, 3, 1, 1, 99, 4, b'n', b'e', b'w', b'!']);
    let mut input = Decoder::new(newer.into());
    assert_eq!(ApiVersionsResponse::decode(&mut input, 3), Ok(migrating));
    assert_eq!(input.finish(), Ok(()));

    // A tag whose declared size exceeds its value.
    let mut longer = bytes[..7].to_vec();
    longer.put_slice(&[1, 3, 2, 1, 0]);
    let error = ApiVersionsResponse::decode(&mut Decoder::new(longer.into()), 3).unwrap_err();
    assert_eq!(error.to_string(), "ApiVersionsResponse v3: tag 3 declares 2 bytes but contains 1");
}

#[test]
fn errors_name_the_way_to_the_field() {
    let bytes = encoded(&produce(Bytes::from_static(b"batch")), 3);
    let cut = bytes.slice(..bytes.len() - 1);
    let error = ProduceRequest::decode(&mut Decoder::new(cut), 3).unwrap_err();
    assert_eq!(
        error.to_string(),
        "ProduceRequest v3: field `topic_data.partition_data.records` needs 5 bytes at byte 32, but 4 remain"
    );
}

/// Version 2 adds the transaction version (KIP-1228); the jar that the other messages are compared with lacks it.
#[test]
fn a_marker_has_a_transaction_version_since_version_2() {
    let marker = WritableTxnMarker {
        producer_id: 1,
        producer_epoch: 2,
        transaction_result: true,
        topics: vec![WritableTxnMarkerTopic { name: "t".into(), partition_indexes: vec![3] }],
        coordinator_epoch: 4,
        transaction_version: 2,
    };
    let request = WriteTxnMarkersRequest { markers: vec![marker] };
    let v1 = b"\x02\0\0\0\0\0\0\0\x01\0\x02\x01\x02\x02t\x02\0\0\0\x03\0\0\0\0\x04\0\0";
    assert_eq!(encoded(&request, 1)[..], v1[..]);
    let mut v2 = v1.to_vec();
    v2.insert(v1.len() - 2, 2);
    assert_eq!(encoded(&request, 2)[..], v2[..]);
}

#[test]
fn a_long_text_of_an_error_is_cut_at_a_character() {
    for (version, long) in [(2, "ö".repeat(20_000)), (7, format!("x{}", "ö".repeat(20_000)))] {
        let failed = CreatableTopicResult {
            name: "orders".into(),
            error_code: ErrorCode::InvalidRequest,
            error_message: Some(long.clone()),
            ..Default::default()
        };
        let response = CreateTopicsResponse { topics: vec![failed], ..Default::default() };
        let mut input = Decoder::new(encoded(&response, version));
        let decoded = CreateTopicsResponse::decode(&mut input, version).unwrap();
        let text = decoded.topics[0].error_message.as_deref().unwrap();
        assert!(long.starts_with(text), "version {version}");
        assert!((STRING_BYTES_MAX - 1..=STRING_BYTES_MAX).contains(&text.len()), "version {version}");
    }
}
