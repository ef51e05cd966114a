//! One partition's place in the fetching: what comes next, and what an answer does to that. Sync, without a clock.

use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::ErrorCode;
use ottla_wire::batch::BatchHeader;
use ottla_wire::{BatchError, legacy};
use tokio::time::Instant;

use super::aborted::Aborted;
use super::cursors::Slot;
use super::inbox::Chunk;
use super::place::{Ends, Place};
use crate::config::Isolation;
use crate::watchdog::cause::{Cause, Trouble};

/// Where to start.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StartAt {
    /// The oldest record.
    Beginning,
    /// The next record to be written.
    End,
    /// This offset.
    Offset(i64),
    /// This offset of the log in which the record before it was written by the leader of this epoch. If the partition has
    /// lost that record since, it goes on where the logs part, or says [`Error::LogTruncated`](crate::Error::LogTruncated)
    /// under `auto.offset.reset=error` (KIP-320).
    OffsetInEpoch {
        /// The offset.
        offset: i64,
        /// The epoch.
        leader_epoch: i32,
    },
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
    /// The same, while a new leader is asked whether its log is the one that was read.
    Validating(i64),
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
    /// The broker on whose list it waits to be fetched.
    pub(crate) listed_at: Option<i32>,
    /// The broker in whose session it is.
    pub(crate) session_at: Option<i32>,
    /// A replica to fetch from instead of the leader, and until when.
    pub(crate) replica: Option<(i32, Instant)>,
    /// The epoch of the leader that wrote the last record before the position; -1 where it is not known.
    last_epoch: i32,
    /// The epoch of the leader whose log has that record.
    pub(crate) proven_at: i32,
    /// Whether the fetcher is told already.
    pub(super) touched: bool,
    pub(crate) blocked_until: Option<Instant>,
    pub(crate) attempts: u32,
    /// The place's turn that the position belongs to. When the application has begun another, nothing is fetched until
    /// the position is set anew.
    pub(crate) turn: u64,
    /// The end that the application was told of.
    end_told: i64,
    /// What went wrong last, until something goes well.
    pub(crate) trouble: Option<Trouble>,
    /// When the question for the position was asked.
    pub(crate) asked_at: Option<Instant>,
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
            listed_at: None,
            session_at: None,
            replica: None,
            last_epoch: -1,
            proven_at: -1,
            touched: false,
            blocked_until: None,
            attempts: 0,
            turn: 0,
            end_told: -1,
            trouble: None,
            asked_at: None,
        };
        cursor.start(start);
        cursor
    }

    /// Goes on from elsewhere.
    pub(crate) fn seek(&mut self, to: StartAt) {
        self.turn = self.place.next_turn();
        self.blocked_until = None;
        self.end_told = -1;
        self.last_epoch = -1;
        self.trouble = None;
        self.start(to);
    }

    fn start(&mut self, start: StartAt) {
        match start {
            StartAt::Offset(offset) => self.go_to(offset),
            StartAt::OffsetInEpoch { offset, leader_epoch } => {
                (self.last_epoch, self.proven_at) = (leader_epoch, -1);
                self.go_to(offset);
            }
            StartAt::Beginning | StartAt::End | StartAt::Timestamp(_) | StartAt::Committed => {
                self.position = Position::Unresolved(start);
            }
        }
    }

    /// The offset to go on from is known.
    pub(crate) fn go_to(&mut self, offset: i64) {
        self.position = Position::At(offset);
        self.place.hand_out(offset);
    }

    /// The offset to fetch from, if it may be fetched now.
    pub(crate) fn fetchable(&self, now: Instant) -> Option<i64> {
        let ready = !self.paused && self.blocked_until.is_none_or(|until| until <= now);
        match self.position {
            Position::At(offset) if ready && self.turn == self.place.turn() => Some(offset),
            _ => None,
        }
    }

    /// Whether an answer to a fetch from `asked` is for it as it is now.
    pub(crate) fn is_at(&self, asked: i64) -> bool {
        self.position == Position::At(asked) && self.turn == self.place.turn()
    }

    /// The epoch of the last record, if this leader has not shown yet that its log has that record.
    pub(crate) fn unproven(&mut self, leader_epoch: i32) -> Option<i32> {
        if self.last_epoch < 0 || leader_epoch <= self.last_epoch {
            self.proven_at = self.proven_at.max(leader_epoch);
        }
        (leader_epoch > self.proven_at).then_some(self.last_epoch)
    }

    /// The partition's end, if everything up to it is fetched and the application was not told yet.
    pub(crate) fn arrives(&mut self, isolation: Isolation) -> Option<i64> {
        let Position::At(offset) = self.position else { return None };
        let ends = self.place.ends();
        let end = match isolation {
            Isolation::ReadCommitted if ends.last_stable >= 0 => ends.last_stable,
            _ => ends.high_watermark,
        };
        let news = offset >= end && end >= 0 && self.end_told != offset;
        news.then(|| {
            self.end_told = offset;
            offset
        })
    }

    /// Takes in an answer to a fetch.
    pub(crate) fn on_answer(&mut self, answer: Answer, decompressed_bytes_max: usize) -> Next {
        let Answer { asked, error, ends, records, aborted } = answer;
        self.trouble = (error != ErrorCode::None).then(|| Trouble::of_code(error));
        match error {
            ErrorCode::None => {}
            ErrorCode::OffsetOutOfRange => return Next::OutOfRange(asked),
            ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::InconsistentTopicId => return Next::Retry { refresh: true },
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
        match whole_batches(&records, asked) {
            // Not even one whole batch: only a broker older than KIP-74 does that, and more bytes will not come.
            Ok(Whole { bytes: 0, .. }) => {
                self.corrupt(asked, format!("no whole batch in {} bytes", records.len()))
            }
            Ok(Whole { bytes, next, count, epoch }) => {
                let next = next.max(asked);
                self.last_epoch = epoch;
                self.position = Position::At(next);
                Next::Deliver(Chunk {
                    place: self.place.clone(),
                    turn: self.turn,
                    from: asked,
                    next,
                    high_watermark: ends.high_watermark,
                    records: records.slice(..bytes),
                    count,
                    aborted: Aborted::new(aborted),
                })
            }
            Err(error) => self.corrupt(asked, error.to_string()),
        }
    }

    fn corrupt(&mut self, offset: i64, reason: String) -> Next {
        self.position = Position::Failed;
        self.trouble = Some(Trouble { cause: Cause::Stopped, text: reason.clone() });
        Next::Corrupt(offset, reason)
    }
}

/// The whole batches at the front of an answer.
struct Whole {
    bytes: usize,
    /// The offset after them.
    next: i64,
    /// Records from the offset on that was asked for, as the headers say.
    count: u64,
    /// The epoch of the leader that wrote the last of them.
    epoch: i32,
}

fn whole_batches(records: &[u8], from: i64) -> Result<Whole, BatchError> {
    let mut whole = Whole { bytes: 0, next: -1, count: 0, epoch: -1 };
    loop {
        let rest = &records[whole.bytes..];
        match BatchHeader::parse(rest) {
            Ok(header) if header.total_bytes() <= rest.len() => {
                whole.bytes += header.total_bytes();
                whole.next = header.next_offset();
                whole.epoch = header.partition_leader_epoch;
                let wanted = (header.last_offset() - from + 1).clamp(0, header.record_count.max(0).into());
                whole.count += wanted as u64;
            }
            Ok(_) | Err(BatchError::Truncated { .. }) => return Ok(whole),
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
