//! A connection without a client: frames as the test wants them, sound or not.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod memory;
pub(crate) mod sound;
pub(crate) mod world;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use ottla_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, ProduceRequest, TopicProduceData,
};
use ottla_protocol::{ErrorCode, Request, frame};
use ottla_wire::batch::{CRC_FROM, HEADER_BYTES};
use ottla_wire::{BatchBuilder, Chain, Compression, Seal};

/// Timeout of each response; only a defect exhausts it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
pub(crate) const CORRELATION_ID: i32 = 77;

/// The reaction of the broker.
#[derive(Debug)]
pub(crate) enum Heard {
    /// A frame without its size.
    Answer(Bytes),
    /// The end of the connection.
    Closed,
}

/// A plain connection.
#[derive(Debug)]
pub(crate) struct Raw {
    stream: TcpStream,
}

impl Raw {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the broker listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Self { stream }
    }

    /// Writes bytes as they are; a peer that has closed already is heard of in [`Raw::hear`].
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// No more will be written.
    pub(crate) fn finish(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
    }

    /// The socket, for a peer that answers without frames.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// The next answer, or the end.
    pub(crate) fn hear(&mut self) -> Heard {
        let mut size = [0; 4];
        if !self.fill(&mut size) {
            return Heard::Closed;
        }
        let mut answer = vec![0; i32::from_be_bytes(size) as usize];
        assert!(self.fill(&mut answer), "an answer that is cut off");
        Heard::Answer(answer.into())
    }

    /// Returns `true` if nothing arrives for a moment, neither bytes nor the end.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        peeked.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut))
    }

    fn fill(&mut self, buf: &mut [u8]) -> bool {
        match self.stream.read_exact(buf) {
            Ok(()) => true,
            Err(error) => {
                let late = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                assert!(!late, "neither an answer nor the end after {PATIENCE:?}");
                false
            }
        }
    }

    /// Sends a request and decodes its answer; `None` when the connection was closed instead.
    pub(crate) fn ask<R: Request>(&mut self, version: i16, request: &R) -> Option<R::Response> {
        self.send(&framed(version, request));
        self.answer_to::<R>(version)
    }

    /// Decodes the next answer; `None` when the connection was closed instead.
    pub(crate) fn answer_to<R: Request>(&mut self, version: i16) -> Option<R::Response> {
        match self.hear() {
            Heard::Answer(answer) => {
                let (id, response) =
                    frame::decode_response::<R>(answer, version).expect("an answer that can be read");
                assert_eq!(id, CORRELATION_ID);
                Some(response)
            }
            Heard::Closed => None,
        }
    }

    /// Produces batches to partition 0 of a topic.
    pub(crate) fn produce(&mut self, topic: &str, acks: i16, batch: &[u8]) -> PartitionProduceResponse {
        let response = self.ask(12, &produce_request(topic, acks, batch)).expect("an answer");
        response.responses[0].partition_responses[0].clone()
    }

    /// Returns `true` if the broker answers a Metadata request without an error.
    pub(crate) fn is_served(&mut self) -> bool {
        let request = MetadataRequest { topics: Some(Vec::new()), ..Default::default() };
        self.ask(9, &request).is_some_and(|response| response.error_code == ErrorCode::None)
    }
}

/// Returns the bytes of a request frame, including its size.
pub(crate) fn framed<R: Request>(version: i16, request: &R) -> Vec<u8> {
    let chain = frame::encode_request(CORRELATION_ID, Some("story"), version, request);
    chain.expect("a request of this version").to_bytes().expect("in memory").to_vec()
}

/// `body` with its size in front.
pub(crate) fn sized(body: &[u8]) -> Vec<u8> {
    [&(body.len() as i32).to_be_bytes(), body].concat()
}

pub(crate) fn produce_request(topic: &str, acks: i16, batch: &[u8]) -> ProduceRequest {
    let records = Some(Chain::from(Bytes::copy_from_slice(batch)));
    let partition_data = vec![PartitionProduceData { index: 0, records }];
    let topic_data = vec![TopicProduceData { name: topic.into(), partition_data, ..Default::default() }];
    ProduceRequest { acks, timeout_ms: 10_000, topic_data, ..Default::default() }
}

/// A commit of an offset of `orders` partition 0, as from a client that is no member of the group.
pub(crate) fn commit_request(group: &str, offset: i64) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition {
        committed_offset: offset,
        committed_leader_epoch: -1,
        ..Default::default()
    };
    let topic =
        OffsetCommitRequestTopic { name: "orders".into(), partitions: vec![partition], ..Default::default() };
    OffsetCommitRequest {
        group_id: group.into(),
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    }
}

pub(crate) fn metadata_of(topic: &str) -> MetadataRequest {
    let topics = Some(vec![MetadataRequestTopic { name: Some(topic.into()), ..Default::default() }]);
    MetadataRequest { topics, allow_auto_topic_creation: true, ..Default::default() }
}

/// A batch with these values.
pub(crate) fn batch(values: &[&[u8]], seal: &Seal) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(1_700_000_000_000, None, Some(value), &[]);
    }
    builder.seal(seal).expect("a batch").to_bytes().to_vec()
}

/// A batch of an idempotent producer.
pub(crate) fn numbered(producer: (i64, i16), sequence: i32, values: &[&[u8]]) -> Vec<u8> {
    let (producer_id, producer_epoch) = producer;
    batch(values, &Seal { producer_id, producer_epoch, base_sequence: sequence, ..Seal::default() })
}

/// A small batch that inflates beyond every limit.
pub(crate) fn bomb(codec: Compression) -> Vec<u8> {
    if codec == Compression::Snappy {
        // A raw block with a declared length of 4 GiB - 1.
        let mut forged = batch(&[b"x"], &Seal::default());
        forged.truncate(HEADER_BYTES);
        forged.extend([0xff, 0xff, 0xff, 0xff, 0x0f]);
        forged.extend([0xfe; 1000]);
        let length = forged.len() as i32 - 12;
        forged[8..12].copy_from_slice(&length.to_be_bytes());
        forged[22] |= 2;
        set_crc(&mut forged);
        return forged;
    }
    let zeros = vec![0; 66 << 20];
    batch(&[&zeros], &Seal { compression: codec, ..Seal::default() })
}

/// Makes the checksum right for the bytes as they are.
pub(crate) fn set_crc(batch: &mut [u8]) {
    let crc = ottla_wire::crc::crc32c(&batch[CRC_FROM..]);
    batch[CRC_FROM - 4..CRC_FROM].copy_from_slice(&crc.to_be_bytes());
}
