//! The fetch position of one partition, and how the answers of brokers change it. Sync, without a clock.

use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::{ErrorCode, Uuid};
use ottla_wire::batch::BatchHeader;
use ottla_wire::{BatchError, legacy};
use tokio::time::Instant;

use super::aborted::AbortedTransactions;
use super::cursors::Slot;
use super::inbox::Chunk;
use super::progress::{Ends, PartitionProgress};
use crate::config::Isolation;
use crate::types::{Event, StartAt};
use crate::watchdog::cause::{Cause, StallReason};

/// [`Cursor::end_reported`] before the partition's end was reported.
const NONE_REPORTED: i64 = -1;

/// The state of a cursor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Position {
    /// The offset must be requested from the leader.
    Unresolved(StartAt),
    /// The offset was requested from the leader.
    Resolving(StartAt),
    /// The next offset to fetch.
    At(i64),
    /// The next offset to fetch, once the new leader has confirmed that its log is the one that was read.
    Validating(i64),
    /// An error was delivered to the application: nothing is fetched before the next seek.
    Failed,
}

/// An assigned partition.
#[derive(Debug)]
pub(crate) struct Cursor {
    pub(crate) slot: Slot,
    pub(crate) progress: Arc<PartitionProgress>,
    pub(crate) position: Position,
    /// The id of the topic whose records the position counts; zero if unknown.
    topic_id: Uuid,
    pub(crate) paused: bool,
    /// `false` while the committed offset that it starts from is looked up, and if that was refused.
    pub(crate) has_start: bool,
    /// `true` if the partition is revoked or lost: no seek opens it again.
    pub(crate) is_released: bool,
    /// The broker for whose next fetch it is queued.
    pub(crate) queued_at: Option<i32>,
    /// The broker whose session has it.
    pub(crate) session_at: Option<i32>,
    /// The replica to fetch from instead of the leader, and until when.
    pub(crate) replica: Option<(i32, Instant)>,
    /// The epoch of the leader that wrote the last record before the position; -1 if unknown.
    last_epoch: i32,
    /// The epoch of the newest leader that has confirmed that its log has that record.
    pub(crate) validated_epoch: i32,
    /// `true` if it is on the table's list of changed cursors.
    pub(super) touched: bool,
    pub(crate) blocked_until: Option<Instant>,
    /// Failed fetches in a row.
    pub(crate) failures: u32,
    /// Requests for metadata since the partition had a leader, with those for other partitions.
    pub(crate) leader_requests: u32,
    /// The time of the last of them.
    pub(crate) leader_requested_at: Option<Instant>,
    /// The generation of the progress to which the position belongs. If the application has begun another generation,
    /// nothing is fetched before the next seek.
    pub(crate) generation: u64,
    /// The last end offset that was reported to the application.
    end_reported: i64,
    /// The id of the node that answered last; -1 before the first answer.
    answered_by: i32,
    /// The last error, until a request succeeds.
    pub(crate) last_error: Option<StallReason>,
    /// The time at which the position was requested from the leader.
    pub(crate) requested_at: Option<Instant>,
}

/// One partition's answer to a fetch.
#[derive(Debug)]
pub(crate) struct PartitionAnswer {
    /// The id of the node that answered.
    pub(crate) node: i32,
    /// The requested offset.
    pub(crate) offset: i64,
    pub(crate) error: ErrorCode,
    pub(crate) ends: Ends,
    pub(crate) records: Option<Bytes>,
    pub(crate) aborted: Vec<(i64, i64)>,
}

/// The consequence of an answer.
#[derive(Debug)]
pub(crate) enum AnswerOutcome {
    /// Deliver these records.
    Deliver(Chunk),
    /// The answer has no records.
    Nothing,
    /// Fetch again after a pause.
    Retry {
        /// `true` if the leader may have changed.
        refresh: bool,
    },
    /// The client may not read the topic: fetch again after a pause, as permissions can change. The application learns of the first of
    /// several such answers.
    Unauthorized { is_new: bool },
    /// The broker failed, and has no code for the reason. It may pass: fetch again after a pause, as Java's client and librdkafka do.
    /// `is_new` is `true` for the first of several such answers.
    ServerFailed { is_new: bool },
    /// The position does not exist.
    OutOfRange(i64),
    /// Report this error to the application.
    Fail(ErrorCode),
    /// Report to the application that the bytes from this offset cannot be parsed.
    Corrupt(i64, String),
}

impl Cursor {
    pub(crate) fn new(slot: Slot, progress: Arc<PartitionProgress>, start: StartAt) -> Self {
        let mut cursor = Self {
            slot,
            progress,
            position: Position::Unresolved(start),
            topic_id: Uuid::ZERO,
            paused: false,
            has_start: false,
            is_released: false,
            queued_at: None,
            session_at: None,
            replica: None,
            last_epoch: -1,
            validated_epoch: -1,
            touched: false,
            blocked_until: None,
            failures: 0,
            leader_requests: 0,
            leader_requested_at: None,
            generation: 0,
            end_reported: NONE_REPORTED,
            answered_by: -1,
            last_error: None,
            requested_at: None,
        };
        cursor.start(start);
        cursor
    }

    /// Continues from another position and discards everything fetched before.
    pub(crate) fn seek(&mut self, to: StartAt) {
        self.generation = self.progress.next_generation();
        self.blocked_until = None;
        self.end_reported = NONE_REPORTED;
        self.last_epoch = -1;
        self.last_error = None;
        self.start(to);
    }

    /// Continues from an earlier offset of the same topic.
    pub(crate) fn truncate_to(&mut self, offset: i64) {
        let topic_id = self.topic_id;
        self.seek(StartAt::Offset(offset));
        self.topic_id = topic_id;
    }

    /// The partition has a leader: the next request for metadata comes at once.
    pub(crate) fn reset_leader_requests(&mut self) {
        (self.leader_requests, self.leader_requested_at) = (0, None);
    }

    /// Fetches the records from `offset` on again, in a generation that the polling thread has begun.
    pub(crate) fn refetch_from(&mut self, generation: u64, offset: i64) {
        self.generation = generation;
        self.end_reported = NONE_REPORTED;
        self.last_epoch = -1;
        self.last_error = None;
        self.position = Position::At(offset);
    }

    fn start(&mut self, start: StartAt) {
        self.has_start = start != StartAt::Committed;
        match start {
            StartAt::Offset(offset) => self.start_at(offset),
            StartAt::OffsetInEpoch { offset, leader_epoch } => {
                (self.last_epoch, self.validated_epoch) = (leader_epoch, -1);
                self.start_at(offset);
            }
            StartAt::Beginning
            | StartAt::End
            | StartAt::BeforeEnd(_)
            | StartAt::Timestamp(_)
            | StartAt::Committed => {
                self.position = Position::Unresolved(start);
            }
        }
    }

    /// Sets the offset at which fetching starts.
    pub(crate) fn start_at(&mut self, offset: i64) {
        self.position = Position::At(offset);
        self.topic_id = Uuid::ZERO;
        self.progress.begin_at(offset);
    }

    /// Records the id of the topic in which the position is, if it was unknown. Returns `false` if the position is in another
    /// topic of the same name, which was deleted: its offset belongs to other records.
    pub(crate) fn is_in_topic(&mut self, id: Uuid) -> bool {
        if self.topic_id.is_zero() {
            self.topic_id = id;
        }
        id.is_zero() || self.topic_id == id
    }

    /// The offset to fetch from, if the partition can be fetched now.
    pub(crate) fn fetchable(&self, now: Instant) -> Option<i64> {
        let ready = !self.paused && self.blocked_until.is_none_or(|until| until <= now);
        match self.position {
            Position::At(offset) if ready && self.generation == self.progress.generation() => Some(offset),
            _ => None,
        }
    }

    /// Returns `true` if a response to a fetch from `offset` is still valid.
    pub(crate) fn is_at(&self, offset: i64) -> bool {
        self.position == Position::At(offset) && self.generation == self.progress.generation()
    }

    /// The epoch of the last record, if this leader has not confirmed yet that its log has that record.
    pub(crate) fn epoch_to_validate(&mut self, leader_epoch: i32) -> Option<i32> {
        if self.last_epoch < 0 || leader_epoch <= self.last_epoch {
            self.validated_epoch = self.validated_epoch.max(leader_epoch);
        }
        (leader_epoch > self.validated_epoch).then_some(self.last_epoch)
    }

    /// The epoch of the leader that wrote the last record before the position; -1 if unknown.
    pub(crate) fn last_epoch(&self) -> i32 {
        self.last_epoch
    }

    /// Pauses or resumes fetching. A partition that is resumed at its end reports the end again.
    pub(crate) fn set_paused(&mut self, paused: bool) {
        if self.paused && !paused {
            self.end_reported = NONE_REPORTED;
        }
        self.paused = paused;
    }

    /// The partition's end in the last answer; -1 if unknown.
    fn end(&self, isolation: Isolation) -> i64 {
        let ends = self.progress.ends();
        match isolation {
            Isolation::ReadCommitted if ends.last_stable >= 0 => ends.last_stable,
            _ => ends.high_watermark,
        }
    }

    /// The partition's end, if a seek has led to exactly this offset. The session with the broker may request the same offset already, and
    /// it has no answer about a partition without news. A paused partition reports its end when it is resumed.
    pub(crate) fn end_after_seek(&mut self, isolation: Isolation) -> Option<i64> {
        let is_at_end = !self.paused && self.position == Position::At(self.end(isolation));
        if is_at_end { self.end_reached(isolation) } else { None }
    }

    /// The partition's end, if everything before it is fetched and the end was not reported yet.
    pub(crate) fn end_reached(&mut self, isolation: Isolation) -> Option<i64> {
        let Position::At(offset) = self.position else { return None };
        let end = self.end(isolation);
        let is_new = offset >= end && end >= 0 && self.end_reported != offset;
        is_new.then(|| {
            self.end_reported = offset;
            offset
        })
    }

    /// Returns the event of the end that [`Self::end_reached`] has found at `offset`.
    pub(crate) fn end_event(&self, offset: i64) -> Event {
        let high_watermark = self.progress.ends().high_watermark;
        Event::EndOfPartition { at: self.progress.at.clone(), offset, node: self.answered_by, high_watermark }
    }

    /// Processes the answer to a fetch.
    pub(crate) fn on_answer(
        &mut self,
        answer: PartitionAnswer,
        decompressed_max_bytes: usize,
    ) -> AnswerOutcome {
        let PartitionAnswer { node, offset, error, ends, records, aborted } = answer;
        self.answered_by = node;
        let last_error = (error != ErrorCode::None).then(|| StallReason::of_code(error));
        let last_error = std::mem::replace(&mut self.last_error, last_error);
        match error {
            ErrorCode::None => {}
            ErrorCode::TopicAuthorizationFailed => {
                let is_new = last_error.is_none_or(|last| last.cause != Cause::Unauthorized);
                return AnswerOutcome::Unauthorized { is_new };
            }
            ErrorCode::OffsetOutOfRange => return AnswerOutcome::OutOfRange(offset),
            ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::InconsistentTopicId => return AnswerOutcome::Retry { refresh: true },
            ErrorCode::UnknownServerError => {
                return AnswerOutcome::ServerFailed { is_new: last_error != self.last_error };
            }
            code if code.is_retriable() => {
                // The leader that does not know its high watermark may not be the leader any more.
                let refresh = code.needs_metadata_refresh() || code == ErrorCode::OffsetNotAvailable;
                return AnswerOutcome::Retry { refresh };
            }
            code => {
                self.position = Position::Failed;
                return AnswerOutcome::Fail(code);
            }
        }
        self.failures = 0;
        self.progress.set_ends(ends);
        let Some(records) = records.filter(|records| !records.is_empty()) else {
            return AnswerOutcome::Nothing;
        };
        let records = match upgrade(records, decompressed_max_bytes) {
            Ok(records) => records,
            Err(reason) => return self.corrupt(offset, reason),
        };
        match complete_batches(&records, offset) {
            // Brokers since KIP-74 return at least one complete batch, whatever its size.
            Ok(CompleteBatches { bytes: 0, .. }) => {
                self.corrupt(offset, format!("no complete batch in {} bytes", records.len()))
            }
            // The same request would get the same batches, without end.
            Ok(CompleteBatches { next, .. }) if next <= offset => {
                self.corrupt(offset, format!("the batches end at {next}"))
            }
            Ok(CompleteBatches { bytes, next, count, epoch }) => {
                self.last_epoch = epoch;
                self.position = Position::At(next);
                AnswerOutcome::Deliver(Chunk {
                    progress: self.progress.clone(),
                    generation: self.generation,
                    from: offset,
                    next,
                    high_watermark: ends.high_watermark,
                    node,
                    records: records.slice(..bytes),
                    count,
                    aborted: AbortedTransactions::new(aborted),
                })
            }
            Err(error) => self.corrupt(offset, error.to_string()),
        }
    }

    fn corrupt(&mut self, offset: i64, reason: String) -> AnswerOutcome {
        self.position = Position::Failed;
        self.last_error = Some(StallReason { cause: Cause::Stopped, text: reason.clone() });
        AnswerOutcome::Corrupt(offset, reason)
    }
}

/// The complete batches at the front of an answer, before the first damaged one.
struct CompleteBatches {
    bytes: usize,
    /// The offset after them.
    next: i64,
    /// Records from the requested offset on, according to the headers.
    count: u64,
    /// The epoch of the leader that wrote the last of them.
    epoch: i32,
}

fn complete_batches(records: &[u8], from: i64) -> Result<CompleteBatches, BatchError> {
    let mut complete = CompleteBatches { bytes: 0, next: -1, count: 0, epoch: -1 };
    loop {
        let rest = &records[complete.bytes..];
        match BatchHeader::parse(rest) {
            Ok(header) if header.total_bytes() <= rest.len() => {
                complete.bytes += header.total_bytes();
                complete.next = header.next_offset();
                complete.epoch = header.partition_leader_epoch;
                let wanted = (header.last_offset() - from + 1).clamp(0, header.record_count.max(0).into());
                complete.count += wanted as u64;
            }
            Ok(_) | Err(BatchError::Truncated { .. }) => return Ok(complete),
            // The next fetch begins with the damaged batch, and reports its offset.
            Err(_) if complete.bytes > 0 => return Ok(complete),
            Err(error) => return Err(error),
        }
    }
}

/// The converted bytes after which the rest of a response is left out, and fetched again: compressed messages can have a thousand
/// times their size, and none of it is counted as memory of the response.
const UPGRADED_BYTES_MAX: usize = 8 << 20;

/// Converts messages of formats v0 and v1 into v2 batches. Most responses have none and are returned unchanged.
fn upgrade(records: Bytes, cap: usize) -> Result<Bytes, String> {
    if !legacy::is_legacy(&records) {
        return Ok(records);
    }
    let mut out = bytes::BytesMut::new();
    let mut rest = &records[..];
    while legacy::is_legacy(rest) {
        if out.len() >= UPGRADED_BYTES_MAX {
            return Ok(out.freeze());
        }
        match legacy::to_v2(rest, cap) {
            Ok(Some((batch, consumed))) => {
                out.extend_from_slice(&batch);
                rest = &rest[consumed..];
            }
            Ok(None) => return Ok(out.freeze()),
            // The next fetch begins with the damaged message, and reports its offset.
            Err(_) if !out.is_empty() => return Ok(out.freeze()),
            Err(error) => return Err(error.to_string()),
        }
    }
    out.extend_from_slice(rest);
    Ok(out.freeze())
}
