//! One partition's place in the fetching: what comes next, and what an answer does to that. Sync, without a clock.

use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::ErrorCode;
use ottla_wire::batch::BatchHeader;
use ottla_wire::{BatchError, legacy};
use tokio::time::Instant;

use super::cursors::Slot;
use super::inbox::Chunk;
use super::place::{Ends, Place};

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
    pub(crate) slot: Slot,
    pub(crate) place: Arc<Place>,
    pub(crate) position: Position,
    pub(crate) paused: bool,
    /// Whether a fetch that names this partition is under way.
    pub(crate) in_flight: bool,
    /// The leader on whose list it waits to be fetched.
    pub(crate) listed_at: Option<i32>,
    /// Whether the fetcher is told already.
    pub(super) touched: bool,
    pub(crate) blocked_until: Option<Instant>,
    pub(crate) attempts: u32,
}

/// One partition's answer to a fetch.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The offset that was asked for.
    pub(crate) asked: i64,
    pub(crate) error: ErrorCode,
    pub(crate) ends: Ends,
    pub(crate) records: Option<Bytes>,
    pub(crate) aborted: Vec<(i64, i64)>,
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
    pub(crate) fn new(slot: Slot, place: Arc<Place>, start: StartAt) -> Self {
        let mut cursor = Self {
            slot,
            place,
            position: Position::Unresolved(start),
            paused: false,
            in_flight: false,
            listed_at: None,
            touched: false,
            blocked_until: None,
            attempts: 0,
        };
        cursor.start(start);
        cursor
    }

    /// Goes on from elsewhere.
    pub(crate) fn seek(&mut self, to: StartAt) {
        self.place.next_turn();
        self.blocked_until = None;
        self.start(to);
    }

    fn start(&mut self, start: StartAt) {
        self.position = Position::Unresolved(start);
        if let StartAt::Offset(offset) = start {
            self.go_to(offset);
        }
    }

    /// The offset to go on from is known.
    pub(crate) fn go_to(&mut self, offset: i64) {
        self.position = Position::At(offset);
        self.place.hand_out(offset);
    }

    /// The offset to fetch from, if it may be fetched now.
    pub(crate) fn fetchable(&self, now: Instant) -> Option<i64> {
        let ready = !self.paused && !self.in_flight && self.blocked_until.is_none_or(|until| until <= now);
        match self.position {
            Position::At(offset) if ready => Some(offset),
            _ => None,
        }
    }

    /// Takes in an answer to a fetch.
    pub(crate) fn on_answer(&mut self, answer: Answer, decompressed_bytes_max: usize) -> Next {
        let Answer { asked, error, ends, records, aborted } = answer;
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
        self.place.set_ends(ends);
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
                    place: self.place.clone(),
                    turn: self.place.turn(),
                    from: asked,
                    next,
                    high_watermark: ends.high_watermark,
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
