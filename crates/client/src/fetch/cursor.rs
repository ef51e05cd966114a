//! One partition's place in the fetching: what comes next, and what an answer does to that. Sync, without a clock.

use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::ErrorCode;
use ottla_wire::batch::BatchHeader;
use ottla_wire::{BatchError, legacy};
use tokio::time::Instant;

use super::inbox::Chunk;

/// Where to start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StartAt {
    /// The oldest record.
    Beginning,
    /// The next record to be written.
    End,
    /// This offset.
    Offset(i64),
    /// The first record with this timestamp or a later one, milliseconds since 1970.
    Timestamp(i64),
    /// The group's committed offset; where there is none, by `auto.offset.reset`.
    Committed,
}

/// What a cursor waits for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Position {
    /// The offset is still to be asked for.
    Unresolved(StartAt),
    /// A question for the offset is under way.
    Resolving(StartAt),
    /// The next offset to fetch.
    At(i64),
    /// Nothing more can be fetched: an error was given to the application.
    Failed,
}

/// A partition that is consumed.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) position: Position,
    pub(crate) paused: bool,
    /// Whether a fetch that names this partition is under way.
    pub(crate) in_flight: bool,
    pub(crate) blocked_until: Option<Instant>,
    pub(crate) high_watermark: i64,
    pub(crate) attempts: u32,
    /// Changes with each seek: an answer to a fetch from before it is thrown away.
    pub(crate) seeks: u64,
}

/// What the engine does after an answer.
#[derive(Debug)]
pub(crate) enum Next {
    /// Hand these records over.
    Deliver(Chunk),
    /// Nothing new.
    Nothing,
    /// Ask again after a pause, with fresh metadata if `refresh`.
    Retry {
        /// Whether the leader is another one.
        refresh: bool,
    },
    /// The position does not exist.
    OutOfRange(i64),
    /// Tell the application.
    Fail(ErrorCode),
    /// Tell the application: the bytes cannot be walked.
    Corrupt(i64, String),
}

impl Cursor {
    pub(crate) fn new(topic: Arc<str>, partition: i32, start: StartAt) -> Self {
        let position = match start {
            StartAt::Offset(offset) => Position::At(offset),
            other => Position::Unresolved(other),
        };
        Self {
            topic,
            partition,
            position,
            paused: false,
            in_flight: false,
            blocked_until: None,
            high_watermark: -1,
            attempts: 0,
            seeks: 0,
        }
    }

    /// The offset to fetch from, if it may be fetched now.
    pub(crate) fn fetchable(&self, now: Instant) -> Option<i64> {
        let ready = !self.paused && !self.in_flight && self.blocked_until.is_none_or(|until| until <= now);
        match self.position {
            Position::At(offset) if ready => Some(offset),
            _ => None,
        }
    }

    /// Takes in an answer to a fetch from `asked`.
    #[expect(clippy::too_many_arguments, reason = "the parts of one answer, taken apart by its only caller")]
    pub(crate) fn on_answer(
        &mut self,
        asked: i64,
        error: ErrorCode,
        high_watermark: i64,
        records: Option<Bytes>,
        aborted: Vec<(i64, i64)>,
        generation: u64,
        decompressed_bytes_max: usize,
    ) -> Next {
        match error {
            ErrorCode::None => {}
            ErrorCode::OffsetOutOfRange => return Next::OutOfRange(asked),
            ErrorCode::UnknownTopicOrPartition => return Next::Retry { refresh: true },
            code if code.is_retriable() => return Next::Retry { refresh: code.needs_metadata_refresh() },
            code => {
                self.position = Position::Failed;
                return Next::Fail(code);
            }
        }
        self.attempts = 0;
        self.high_watermark = high_watermark;
        let Some(records) = records.filter(|records| !records.is_empty()) else { return Next::Nothing };
        let records = match upgrade(records, decompressed_bytes_max) {
            Ok(records) => records,
            Err(reason) => return self.corrupt(asked, reason),
        };
        match whole_batches(&records) {
            // Not even one whole batch: only a broker older than KIP-74 does that, and more bytes will not come.
            Ok((0, _)) => self.corrupt(asked, format!("no whole batch in {} bytes", records.len())),
            Ok((bytes, next)) => {
                let next = next.max(asked);
                self.position = Position::At(next);
                Next::Deliver(Chunk {
                    topic: self.topic.clone(),
                    partition: self.partition,
                    generation,
                    from: asked,
                    next,
                    high_watermark,
                    records: records.slice(..bytes),
                    aborted,
                })
            }
            Err(error) => self.corrupt(asked, error.to_string()),
        }
    }

    fn corrupt(&mut self, offset: i64, reason: String) -> Next {
        self.position = Position::Failed;
        Next::Corrupt(offset, reason)
    }
}

/// How many bytes of `records` are whole batches, and the offset after them.
fn whole_batches(records: &[u8]) -> Result<(usize, i64), BatchError> {
    let mut at = 0;
    let mut next = -1;
    loop {
        match BatchHeader::parse(&records[at..]) {
            Ok(header) if header.total_bytes() <= records.len() - at => {
                at += header.total_bytes();
                next = header.next_offset();
            }
            Ok(_) | Err(BatchError::Truncated { .. }) => return Ok((at, next)),
            Err(error) => return Err(error),
        }
    }
}

/// Turns messages of formats v0 and v1 into v2 batches; a response without them, the rule, passes untouched.
fn upgrade(records: Bytes, cap: usize) -> Result<Bytes, String> {
    if !legacy::is_legacy(&records) {
        return Ok(records);
    }
    let mut out = bytes::BytesMut::new();
    let mut rest = &records[..];
    while legacy::is_legacy(rest) {
        match legacy::to_v2(rest, cap).map_err(|error| error.to_string())? {
            Some((batch, consumed)) => {
                out.extend_from_slice(&batch);
                rest = &rest[consumed..];
            }
            None => return Ok(out.freeze()),
        }
    }
    out.extend_from_slice(rest);
    Ok(out.freeze())
}
