//! What can go wrong, sorted by who is at fault and by what the caller can still do.

use std::io;
use std::sync::Arc;

use ottla_protocol::ErrorCode;

use crate::net::tls::TlsFailure;
use crate::transaction::error::TransactionError;

/// An operation of the client failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A property has a bad value or an unknown name: the caller's to mend.
    #[error("configuration: {0}")]
    Config(String),
    /// No broker could be reached within the time the operation had.
    #[error("no broker could be reached at {brokers} within {waited_ms} ms: {reason}")]
    Unreachable {
        /// The addresses tried.
        brokers: String,
        /// How long.
        waited_ms: u128,
        /// What the last attempt said.
        reason: String,
    },
    /// A connection failed or was closed by the peer.
    #[error("connection to {address}: {reason}")]
    Transport {
        /// The peer.
        address: String,
        /// What happened.
        reason: Arc<str>,
    },
    /// No TLS with the peer: its certificate, ours, or what it speaks. Tried again with backoff; waiting alone does not
    /// mend it.
    #[error("TLS with {address}: {reason}")]
    Tls {
        /// The peer.
        address: String,
        /// What is wrong, and what to do.
        reason: Arc<str>,
    },
    /// The broker does not take us for who we say we are, or does not prove who it is. Tried again with backoff;
    /// waiting alone does not mend it.
    #[error("authentication with {address}: {reason}")]
    Authentication {
        /// The peer.
        address: String,
        /// What was refused; never a secret.
        reason: Arc<str>,
    },
    /// The broker answered with an error.
    #[error("{what}: {code}")]
    Broker {
        /// What was asked for, of which thing.
        what: String,
        /// The code in the answer.
        code: ErrorCode,
    },
    /// The broker answered with an error, and said why in its own words.
    #[error("{what}: {}: {code}", message.trim().trim_end_matches('.'))]
    Refused {
        /// What was asked for, of which thing.
        what: String,
        /// The code in the answer.
        code: ErrorCode,
        /// The broker's words.
        message: String,
    },
    /// The broker is too old, or too new, for what is asked of it.
    #[error("broker {address}: {reason}")]
    Unsupported {
        /// The peer.
        address: String,
        /// What it does not know, and which broker would.
        reason: String,
    },
    /// The broker's bytes make no sense.
    #[error("broker {address}: {reason}")]
    Protocol {
        /// The peer.
        address: String,
        /// What is wrong.
        reason: String,
    },
    /// Fetched data cannot be decoded: checksum, codec, cap or format.
    #[error("topic `{topic}` partition {partition} offset {offset}: {reason}")]
    Corrupt {
        /// Topic.
        topic: String,
        /// Partition.
        partition: i32,
        /// Offset of the batch.
        offset: i64,
        /// What is wrong.
        reason: String,
    },
    /// The position does not exist (any more) and `auto.offset.reset` is `error`.
    #[error(
        "topic `{topic}` partition {partition}: offset {offset} is out of range and auto.offset.reset is `error`"
    )]
    OffsetOutOfRange {
        /// Topic.
        topic: String,
        /// Partition.
        partition: i32,
        /// The offset asked for.
        offset: i64,
    },
    /// The log was cut off before the position, by an election that lost records, and `auto.offset.reset` is `error`.
    /// Seek to where reading shall go on.
    #[error(
        "topic `{topic}` partition {partition}: read up to offset {offset}, but the leader's log parts from what was read at \
         offset {end}, and auto.offset.reset is `error`"
    )]
    LogTruncated {
        /// Topic.
        topic: String,
        /// Partition.
        partition: i32,
        /// The position.
        offset: i64,
        /// The first offset at which the leader's log is another.
        end: i64,
    },
    /// The topic has fewer partitions.
    #[error("topic `{topic}` has {partitions} partitions, and no partition {partition}")]
    UnknownPartition {
        /// The topic.
        topic: String,
        /// The partition that was named.
        partition: i32,
        /// How many there are.
        partitions: usize,
    },
    /// The partition is not this consumer's, or no longer: nothing was done.
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
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The operation did not finish in its time.
    #[error("{what}: no result after {waited_ms} ms")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        waited_ms: u128,
    },
    /// The application did not poll for longer than `max.poll.interval.ms`: its member has left the group, and joins
    /// again with the next poll.
    #[error(
        "no poll for more than max.poll.interval.ms ({max_ms}): the group goes on without this consumer until it polls again; poll more often, or raise the limit"
    )]
    PollIntervalExceeded {
        /// The limit.
        max_ms: u128,
    },
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

/// A record was not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
#[error("topic `{topic}` partition {partition}: {kind}")]
pub struct ProduceError {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition; -1 if none was chosen yet.
    pub partition: i32,
    /// What went wrong.
    pub kind: ProduceErrorKind,
    /// Whether the broker may have it all the same.
    pub persisted: Persisted,
}

/// Whether a record that was reported as failed may be in the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Persisted {
    /// It never left this process, or the broker said that it did not write it.
    NotWritten,
    /// It was sent and no answer came.
    PossiblyWritten,
}

/// Why a record was not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProduceErrorKind {
    /// `delivery.timeout.ms` passed first.
    #[error("not delivered within {timeout_ms} ms; last problem: {last}")]
    TimedOut {
        /// The time it had.
        timeout_ms: u64,
        /// The last thing that went wrong.
        last: String,
    },
    /// The broker refused it.
    #[error("{code}{detail}")]
    Broker {
        /// The code in the answer.
        code: ErrorCode,
        /// The broker's own words, after a colon.
        detail: String,
    },
    /// It is larger than `message.max.bytes` allows.
    #[error("the record takes {bytes} bytes with its batch's header, message.max.bytes is {max}")]
    TooLarge {
        /// Bytes it takes.
        bytes: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// `buffer.memory` or `queue.buffering.max.messages` is used up by records that are not acknowledged yet; the
    /// record was not taken.
    #[error("the send buffer is full: {used} of {max} bytes{}", of_records(*records, *records_max))]
    QueueFull {
        /// Bytes in use.
        used: usize,
        /// Bytes allowed.
        max: usize,
        /// Records waiting, if they are limited.
        records: usize,
        /// Records allowed; 0 is no limit.
        records_max: usize,
    },
    /// The request that carried it failed, and `retries` are used up.
    #[error("{0}")]
    Request(Box<Error>),
    /// The application purged it.
    #[error("purged by the application")]
    Purged {
        /// Whether a request carried it.
        in_flight: bool,
    },
    /// The partition does not exist, or the partitioner declined.
    #[error("no such partition: the topic has {count}")]
    NoSuchPartition {
        /// Partitions there are.
        count: usize,
    },
    /// The topic's partitions are not known yet; `enqueue` and `send` wait for them, `try_send` does not.
    #[error("the topic's metadata has not arrived yet")]
    NoMetadata,
    /// The batch could not be compressed.
    #[error("{0}")]
    Compress(String),
    /// The producer's state on the broker is lost or fenced, and going on could double or lose records.
    #[error("fatal: {0}")]
    Fatal(String),
    /// A record was lost, and with `enable.gapless.guarantee` none may follow it: the producer is of no more use.
    #[error("fatal: enable.gapless.guarantee is set, and a record is missing: {0}")]
    Gapless(Arc<ProduceError>),
    /// No transaction takes it, or its transaction was aborted.
    #[error("{0}")]
    Transaction(Arc<TransactionError>),
    /// The client was closed first.
    #[error("the client is closed")]
    Closed,
}

fn of_records(records: usize, max: usize) -> String {
    if max == 0 { String::new() } else { format!(", {records} of {max} records") }
}

impl Error {
    /// Whether the same call may succeed later without anybody changing anything.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Transport { .. } | Self::TimedOut { .. } => true,
            Self::Broker { code, .. } | Self::Refused { code, .. } => code.is_retriable(),
            Self::Produce(error) => error.is_retriable(),
            Self::Transaction(error) => error.is_retriable(),
            Self::Config(_)
            | Self::Tls { .. }
            | Self::Authentication { .. }
            | Self::Unsupported { .. }
            | Self::Protocol { .. }
            | Self::Corrupt { .. }
            | Self::LogTruncated { .. }
            | Self::NotAssigned { .. }
            | Self::UnknownPartition { .. }
            | Self::OffsetFile { .. }
            | Self::OffsetOutOfRange { .. }
            | Self::PollIntervalExceeded { .. }
            | Self::Closed => false,
        }
    }

    /// The code of the broker's answer, if it answered with an error.
    pub fn broker_code(&self) -> Option<ErrorCode> {
        match self {
            Self::Broker { code, .. } | Self::Refused { code, .. } => Some(*code),
            // As the broker would have said, had it been asked.
            Self::UnknownPartition { .. } => Some(ErrorCode::UnknownTopicOrPartition),
            _ => None,
        }
    }

    pub(crate) fn transport(address: &str, error: &io::Error) -> Self {
        let (address, reason) = (address.to_owned(), error.to_string().into());
        match error.get_ref() {
            Some(inner) if inner.is::<TlsFailure>() => Self::Tls { address, reason },
            _ => Self::Transport { address, reason },
        }
    }

    /// Whether the peer was reached and refused, or was refused by us: another attempt will hardly go better.
    pub(crate) fn is_security(&self) -> bool {
        matches!(self, Self::Tls { .. } | Self::Authentication { .. })
    }
}

impl ProduceError {
    /// Whether the same record may succeed later without anybody changing anything.
    pub fn is_retriable(&self) -> bool {
        match &self.kind {
            ProduceErrorKind::TimedOut { .. }
            | ProduceErrorKind::QueueFull { .. }
            | ProduceErrorKind::NoMetadata => true,
            ProduceErrorKind::Broker { code, .. } => code.is_retriable(),
            ProduceErrorKind::Request(error) => error.is_retriable(),
            ProduceErrorKind::Purged { .. }
            | ProduceErrorKind::TooLarge { .. }
            | ProduceErrorKind::NoSuchPartition { .. }
            | ProduceErrorKind::Compress(_)
            | ProduceErrorKind::Fatal(_)
            | ProduceErrorKind::Gapless(_)
            | ProduceErrorKind::Transaction(_)
            | ProduceErrorKind::Closed => false,
        }
    }
}
