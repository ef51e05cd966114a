//! Errors, by the party at fault and by the remedy that the caller has.

mod invalid_records;
pub(crate) mod named_attempt;
pub(crate) mod transaction;

use std::io;
use std::sync::Arc;

use ottla_protocol::ErrorCode;

pub use self::invalid_records::InvalidRecords;
use self::transaction::TransactionError;

/// An operation of the client failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A property has an invalid value or an unknown name; the caller must change it.
    #[error("configuration: {0}")]
    Config(String),
    /// No broker could be reached within the time the operation had.
    #[error("no broker could be reached at {brokers} within {waited_ms} ms: {reason}")]
    Unreachable {
        /// The addresses tried.
        brokers: String,
        /// The time waited, in milliseconds.
        waited_ms: u128,
        /// The error of the last attempt.
        reason: String,
    },
    /// A connection failed or was closed by the peer.
    #[error("connection to {address}: {reason}")]
    Transport {
        /// The peer.
        address: String,
        /// The cause.
        reason: Arc<str>,
    },
    /// The name of a host has no address, or could not be looked up.
    #[error("connection to {address}: {reason}")]
    UnknownHost {
        /// The peer.
        address: String,
        /// The cause.
        reason: Arc<str>,
    },
    /// The TLS handshake failed, because of the peer's certificate, ours, or the protocol. The client retries with
    /// backoff; the error remains until the configuration changes.
    #[error("TLS with {address}: {reason}")]
    Tls {
        /// The peer.
        address: String,
        /// The cause and the remedy.
        reason: Arc<str>,
    },
    /// The broker rejected the client's credentials, or did not prove its identity. The client retries with backoff; the
    /// error remains until the configuration changes.
    #[error("authentication with {address}: {reason}")]
    Authentication {
        /// The peer.
        address: String,
        /// The cause; it contains no secret.
        reason: Arc<str>,
    },
    /// The broker responded with an error code.
    #[error("{what}: {code}")]
    Broker {
        /// The operation and its target.
        what: String,
        /// The error code of the response.
        code: ErrorCode,
    },
    /// The broker responded with an error code and a message.
    #[error("{what}: {}: {code}", message.trim().trim_end_matches('.'))]
    Refused {
        /// The operation and its target.
        what: String,
        /// The error code of the response.
        code: ErrorCode,
        /// The broker's message.
        message: String,
    },
    /// The broker refused a consumer's request about one partition.
    #[error("{request} topic `{topic}` partition {partition}: {code}")]
    Partition {
        /// The request.
        request: PartitionRequest,
        /// Topic.
        topic: String,
        /// Partition.
        partition: i32,
        /// The offset in the request: -1 is the end, and -2 the beginning; -1001 if it has none.
        offset: i64,
        /// The error code of the response.
        code: ErrorCode,
    },
    /// The broker is too old, or too new, for the request.
    #[error("broker {address}: {reason}")]
    Unsupported {
        /// The peer.
        address: String,
        /// The missing feature, and the version that has it.
        reason: String,
    },
    /// The broker's response cannot be decoded.
    #[error("broker {address}: {reason}")]
    Protocol {
        /// The peer.
        address: String,
        /// The cause.
        reason: String,
    },
    /// Fetched data cannot be decoded: checksum, codec, size limit or format.
    #[error("topic `{topic}` partition {partition} offset {offset}: {reason}")]
    Corrupt {
        /// Topic.
        topic: String,
        /// Partition.
        partition: i32,
        /// Offset of the batch.
        offset: i64,
        /// The cause.
        reason: String,
    },
    /// The position does not exist and `auto.offset.reset` is `error`.
    #[error(
        "topic `{topic}` partition {partition}: offset {offset} is out of range and auto.offset.reset is `error`"
    )]
    OffsetOutOfRange {
        /// Topic.
        topic: String,
        /// Partition.
        partition: i32,
        /// The requested offset.
        offset: i64,
    },
    /// The leader refuses to look up the position where a partition starts, and `auto.offset.reset` is `error`.
    #[error(
        "topic `{topic}` partition {partition}: the start offset is unknown and auto.offset.reset is `error`: {code}"
    )]
    NoStartOffset {
        /// Topic.
        topic: String,
        /// Partition.
        partition: i32,
        /// The error code of the leader's response.
        code: ErrorCode,
    },
    /// A leader election truncated the log before the position, and `auto.offset.reset` is `error`. Seek to continue.
    #[error(
        "topic `{topic}` partition {partition}: read up to offset {offset}, but the leader's log parts from what was read \
         {}, and auto.offset.reset is `error`",
        parting(*end)
    )]
    LogTruncated {
        /// Topic.
        topic: String,
        /// Partition.
        partition: i32,
        /// The position.
        offset: i64,
        /// The first offset at which the leader's log differs; `None` if the leader does not know the epoch of the records
        /// that were read.
        end: Option<i64>,
    },
    /// The topic has fewer partitions.
    #[error("topic `{topic}` has {partitions} partitions, and no partition {partition}")]
    UnknownPartition {
        /// The topic.
        topic: String,
        /// The requested partition.
        partition: i32,
        /// The number of partitions.
        partitions: usize,
    },
    /// The partition is not assigned to this consumer; the call had no effect.
    #[error("topic `{topic}` partition {partition} is not assigned to this consumer")]
    NotAssigned {
        /// Topic.
        topic: String,
        /// Partition.
        partition: i32,
    },
    /// An offset could not be read from its file or written to it (`offset.store.method=file`).
    #[error("offset file {path}: {reason}")]
    OffsetFile {
        /// The file.
        path: String,
        /// The cause and the remedy.
        reason: String,
    },
    /// The operation exceeded its time limit.
    #[error("{what}: no result after {waited_ms} ms")]
    TimedOut {
        /// The operation.
        what: String,
        /// The time waited, in milliseconds.
        waited_ms: u128,
    },
    /// The application did not poll within `max.poll.interval.ms`: the consumer left the group, and rejoins with the next
    /// poll.
    #[error(
        "no poll for more than max.poll.interval.ms ({max_ms}): the group continues without this consumer until it polls again; poll more often, or raise the limit"
    )]
    PollIntervalExceeded {
        /// The limit in milliseconds.
        max_ms: u128,
    },
    /// The call is not allowed in the consumer's present state; it had no effect. [`Client::errors`](crate::Client::errors) has it
    /// when a panic has ended the client; calls then return [`Error::Closed`].
    #[error("{0}")]
    IllegalState(String),
    /// The cluster gives this idempotent producer no producer id, so that no record can be written.
    #[error("an idempotent producer needs a producer id: {0}")]
    NoProducerId(Box<Self>),
    /// A record could not be produced.
    #[error(transparent)]
    Produce(#[from] ProduceError),
    /// A transactional call failed.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// The client was closed while the operation ran, or before.
    #[error("the client is closed")]
    Closed,
}

/// A request about one partition in [`Error::Partition`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PartitionRequest {
    /// Records from an offset on.
    Fetch {
        /// The id of the node that refused; -1 if unknown.
        node: i32,
        /// The epoch of the record before the offset; -1 if unknown.
        leader_epoch: i32,
    },
    /// The offset at which the partition begins or ends.
    ListOffsets,
    /// The committed offset of the consumer's group.
    OffsetFetch,
}

/// The beginning of the error's text.
impl std::fmt::Display for PartitionRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Fetch { .. } => "fetch of",
            Self::ListOffsets => "offsets of",
            Self::OffsetFetch => "the committed offset of",
        })
    }
}

/// The description of a failed lookup of a host's addresses, inside the `io::Error` of a [`Connector`](crate::Connector). The client
/// reports [`Error::UnknownHost`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct HostLookupFailure(pub String);

/// The description of a TLS error, inside the `io::Error` of a connector.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct TlsFailure(pub(crate) String);

/// A record was not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
#[error("topic `{topic}`{}: {kind}", of_partition(*partition))]
pub struct ProduceError {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition; -1 if none was chosen yet.
    pub partition: i32,
    /// The cause.
    pub kind: ProduceErrorKind,
    /// The presence of the record in the log despite the error.
    pub persisted: Persisted,
}

/// The presence of a failed record in the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Persisted {
    /// The record never left this process, or the broker confirmed that it did not write it.
    NotWritten,
    /// The record was sent and the broker did not respond.
    PossiblyWritten,
}

/// The reason why a record was not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProduceErrorKind {
    /// `delivery.timeout.ms` passed first.
    #[error("not delivered within {timeout_ms} ms; last problem: {last}")]
    TimedOut {
        /// The time limit in milliseconds.
        timeout_ms: u64,
        /// The last error.
        last: String,
    },
    /// The broker refused the record.
    #[error("{code}{detail}")]
    Broker {
        /// The error code of the response.
        code: ErrorCode,
        /// The broker's message, after a colon.
        detail: String,
    },
    /// The broker refused a batch because of some of its records.
    #[error("{} record(s) of the batch are invalid", .0.len())]
    InvalidRecords(Arc<InvalidRecords>),
    /// The broker refused the batch because of other records in it; this record can be sent again.
    #[error("other records of the same batch are invalid")]
    OtherRecordInvalid,
    /// The record exceeds `message.max.bytes`.
    #[error("the record takes up to {bytes} bytes, message.max.bytes is {max}")]
    TooLarge {
        /// The size of the record with its batch's header.
        bytes: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// `buffer.memory` or `queue.buffering.max.messages` is used up by records that are not acknowledged yet; the
    /// record was not taken.
    #[error("the send buffer is full: {used} of {max} bytes{}", of_records(*records, *records_max))]
    QueueFull {
        /// Bytes in use.
        used: usize,
        /// The limit in bytes.
        max: usize,
        /// Records waiting, if they are limited.
        records: usize,
        /// Records allowed; 0 is no limit.
        records_max: usize,
    },
    /// The request with the record failed, and `retries` are exhausted; or no request can be sent, because the cluster gives
    /// the producer no producer id ([`Error::NoProducerId`]).
    #[error("{0}")]
    Request(Box<Error>),
    /// The application purged the record.
    #[error("purged by the application")]
    Purged {
        /// `true` if a request with the record was in flight.
        in_flight: bool,
    },
    /// The partition does not exist, or the partitioner chose none.
    #[error("no such partition: the topic has {count}")]
    NoSuchPartition {
        /// The number of partitions.
        count: usize,
    },
    /// The record names another topic than the [`TopicProducer`](crate::TopicProducer) that it was given to.
    #[error("the record was given to a producer of topic `{producer}`")]
    OtherTopic {
        /// The topic of the producer.
        producer: Arc<str>,
    },
    /// The batch could not be compressed.
    #[error("{0}")]
    Compress(String),
    /// The application ended the producer for this reason: [`Producer::end`](crate::Producer::end).
    #[error("fatal: {0}")]
    Fatal(String),
    /// A record was lost, and `enable.gapless.guarantee` allows none after it: the producer cannot be used any more.
    #[error("fatal: enable.gapless.guarantee is set, and a record is missing: {0}")]
    Gapless(Arc<ProduceError>),
    /// No transaction is open for the record, or its transaction was aborted.
    #[error("{0}")]
    Transaction(Arc<TransactionError>),
    /// The client was closed first.
    #[error("the client is closed")]
    Closed,
}

fn parting(end: Option<i64>) -> String {
    end.map_or_else(|| "at an offset that it does not know".to_owned(), |end| format!("at offset {end}"))
}

/// The partition of a record, if one was chosen: -1 has no meaning for a user.
fn of_partition(partition: i32) -> String {
    if partition < 0 { String::new() } else { format!(" partition {partition}") }
}

fn of_records(records: usize, max: usize) -> String {
    if max == 0 { String::new() } else { format!(", {records} of {max} records") }
}

impl Error {
    /// Returns `true` if the same call may succeed later without any change.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Transport { .. }
            | Self::UnknownHost { .. }
            | Self::TimedOut { .. } => true,
            Self::Broker { code, .. } | Self::Refused { code, .. } | Self::Partition { code, .. } => {
                code.is_retriable()
            }
            Self::Produce(error) => error.is_retriable(),
            Self::Transaction(error) => error.is_retriable(),
            Self::Config(_)
            | Self::Tls { .. }
            | Self::Authentication { .. }
            | Self::Unsupported { .. }
            | Self::NoProducerId(_)
            | Self::Protocol { .. }
            | Self::Corrupt { .. }
            | Self::LogTruncated { .. }
            | Self::NotAssigned { .. }
            | Self::UnknownPartition { .. }
            | Self::OffsetFile { .. }
            | Self::OffsetOutOfRange { .. }
            | Self::NoStartOffset { .. }
            | Self::PollIntervalExceeded { .. }
            | Self::IllegalState(_)
            | Self::Closed => false,
        }
    }

    /// The error code of the broker's response, if it has one.
    pub fn broker_code(&self) -> Option<ErrorCode> {
        match self {
            Self::Broker { code, .. } | Self::Refused { code, .. } | Self::Partition { code, .. } => {
                Some(*code)
            }
            // The code that a broker responds with for such a partition.
            Self::UnknownPartition { .. } => Some(ErrorCode::UnknownTopicOrPartition),
            Self::NoProducerId(error) => error.broker_code(),
            _ => None,
        }
    }

    pub(crate) fn transport(address: &str, error: &io::Error) -> Self {
        let (address, reason) = (address.to_owned(), error.to_string().into());
        match error.get_ref() {
            Some(inner) if inner.is::<TlsFailure>() => Self::Tls { address, reason },
            Some(inner) if inner.is::<HostLookupFailure>() => Self::UnknownHost { address, reason },
            _ => Self::Transport { address, reason },
        }
    }

    /// Returns `true` if a later attempt may succeed although nothing changes here: also after a failure of TLS or SASL,
    /// which says nothing about the group. The broker may restart, and its certificate or the user's password may change.
    pub(crate) fn may_pass(&self) -> bool {
        self.is_retriable() || self.is_security()
    }

    /// Returns `true` if TLS or SASL failed, so that another attempt is unlikely to succeed.
    pub(crate) fn is_security(&self) -> bool {
        matches!(self, Self::Tls { .. } | Self::Authentication { .. })
    }
}

impl ProduceError {
    /// Returns `true` if a broker does not let the client write to the topic.
    pub(crate) fn is_forbidden(&self) -> bool {
        matches!(self.kind, ProduceErrorKind::Broker { code: ErrorCode::TopicAuthorizationFailed, .. })
    }

    /// Returns `true` if the same record may succeed later without any change.
    pub fn is_retriable(&self) -> bool {
        match &self.kind {
            ProduceErrorKind::TimedOut { .. }
            | ProduceErrorKind::QueueFull { .. }
            | ProduceErrorKind::OtherRecordInvalid => true,
            ProduceErrorKind::Broker { code, .. } => code.is_retriable(),
            ProduceErrorKind::Request(error) => error.is_retriable(),
            ProduceErrorKind::Purged { .. }
            | ProduceErrorKind::InvalidRecords(_)
            | ProduceErrorKind::TooLarge { .. }
            | ProduceErrorKind::NoSuchPartition { .. }
            | ProduceErrorKind::OtherTopic { .. }
            | ProduceErrorKind::Compress(_)
            | ProduceErrorKind::Fatal(_)
            | ProduceErrorKind::Gapless(_)
            | ProduceErrorKind::Transaction(_)
            | ProduceErrorKind::Closed => false,
        }
    }
}
