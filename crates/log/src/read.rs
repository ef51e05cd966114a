//! Reading: at the tail from memory, below it as a range of a file. Also finds offsets by time.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::{Chain, FileSlice};

use crate::bad_range::BadRange;
use crate::deliberate::{DeliberateFault, has_deliberate_fault};
use crate::error::ReadError;
use crate::log::Log;
use crate::scan::scan;
use crate::segment::{LookupError, SegmentView};
use crate::segment_name::{LOG_SUFFIX, file_name};

/// A read of at most this size is answered from the bytes that the lookup has read, if they are enough.
const SMALL_READ_BYTES: usize = 16 * 1024;

/// The result of a read.
#[derive(Debug, Default)]
pub struct ReadResult {
    /// Whole batches from the one with the requested offset on. In a range of a file the last batch may be cut off, as
    /// in Kafka's fetch responses. Empty if no batch below the limit is left.
    pub chain: Chain,
    /// The offset of the next read, if it is known without the bytes.
    pub next_offset: Option<i64>,
    /// The segment of a range of a file, and the position at which the range ends.
    pub(crate) file_end: Option<(i64, u64)>,
}

/// The readable records that a read has left out.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LeftOut {
    /// None, or too few to matter.
    #[default]
    Nothing,
    /// At least one batch that had no room.
    NoRoom,
    /// The read began in an older segment than the one with the last readable record.
    LaterSegments,
}

/// The part of a read that needs no file.
#[derive(Debug)]
pub enum ReadPlan {
    /// The read is complete: the bytes are in memory, or there are none.
    Ready(ReadResult),
    /// The read needs files. It can be completed without the log.
    Cold(ColdRead),
}

/// A read from a file. It owns its state, so that it can run on a thread that may block, without the log's lock.
#[derive(Debug)]
pub struct ColdRead {
    dir: Arc<str>,
    view: SegmentView,
    offset: i64,
    max_bytes: usize,
    limit: Limit,
    min_one_batch: bool,
}

/// The end of a read.
#[derive(Clone, Copy, Debug)]
enum Limit {
    /// With the segment.
    End,
    /// Before this position.
    Position(u64),
    /// Before the batch that reaches this offset.
    Offset(i64),
}

impl Log {
    /// Reads whole batches from the one with `offset` on: at most `max_bytes`, and none that reaches `max_offset`. With
    /// `min_one_batch` the first batch is returned even if it is larger.
    ///
    /// The bytes are in memory or a range of one file. For an offset at or above `max_offset` the result is empty; an
    /// offset outside of the log is an error. Damaged bytes are quarantined, and the batches after them stay readable.
    pub fn read(
        &mut self,
        offset: i64,
        max_bytes: usize,
        max_offset: i64,
        min_one_batch: bool,
    ) -> Result<ReadResult, ReadError> {
        let mut from = offset;
        let mut repaired = false;
        loop {
            let cold = match self.plan_read(from, max_bytes, max_offset, min_one_batch)? {
                ReadPlan::Ready(result) => return Ok(result),
                ReadPlan::Cold(cold) => cold,
            };
            match cold.find(false) {
                Ok(Some(result)) => return Ok(result),
                // A gap at the end of a segment.
                Ok(None) => from = cold.view.end_offset,
                Err(LookupError::Damaged(_)) if !repaired => {
                    repaired = true;
                    self.set_damage_aside(cold.view.base_offset)
                        .map_err(|source| self.read_failed(offset, source))?;
                }
                Err(LookupError::Unsound(unsound)) => {
                    let number = self.segment_of(cold.view.base_offset);
                    self.set_unsound_aside(number, unsound)
                        .map_err(|source| self.read_failed(offset, source))?;
                }
                Err(error) => return Err(cold.failed(error)),
            }
        }
    }

    /// Returns the records below `max_offset` that a read at `offset` has left out. Reads no file.
    ///
    /// A range of a file that had no room for more ends inside a batch: it has all the bytes that it could have, and leaves out
    /// nothing that matters.
    pub fn left_out(&self, offset: i64, read: &ReadResult, max_offset: i64, min_one_batch: bool) -> LeftOut {
        let is_empty = read.chain.is_empty();
        // A segment that was just started has no record yet.
        let last = max_offset.saturating_sub(1).max(offset);
        if !is_empty && self.segment_of(offset) < self.segment_of(last) {
            return LeftOut::LaterSegments;
        }
        // One batch had room: if there is none, it reaches above `max_offset`.
        let is_over = is_empty && min_one_batch;
        match read.next_offset {
            Some(next_offset) if next_offset < max_offset && !is_over => LeftOut::NoRoom,
            Some(_) | None => LeftOut::Nothing,
        }
    }

    pub(crate) fn check_readable(&self) -> Result<(), ReadError> {
        match &self.offline {
            None => Ok(()),
            Some(reason) => Err(ReadError::Offline { dir: self.dir.to_string(), reason: reason.clone() }),
        }
    }

    /// The part of [`Log::read`] that reads no file. It may open one.
    pub fn plan_read(
        &mut self,
        offset: i64,
        max_bytes: usize,
        max_offset: i64,
        min_one_batch: bool,
    ) -> Result<ReadPlan, ReadError> {
        self.check_readable()?;
        let (start, end) = (self.start_offset, self.end_offset());
        if offset < start || offset > end {
            return Err(ReadError::OutOfRange { dir: self.dir.to_string(), offset, start, end });
        }
        let max_offset = max_offset.min(end);
        let skips = has_deliberate_fault(DeliberateFault::SkippedReads) && offset % 7 == 3;
        let offset = if skips { (offset + 1).min(max_offset) } else { offset };
        let nothing_fits = max_bytes == 0 && !min_one_batch;
        if offset >= max_offset || nothing_fits {
            return Ok(ReadPlan::Ready(ReadResult { next_offset: Some(offset), ..ReadResult::default() }));
        }
        if let Some(read) = self.cache.read(offset, max_bytes, max_offset, min_one_batch) {
            return Ok(ReadPlan::Ready(ReadResult {
                chain: read.chain,
                next_offset: Some(read.next_offset),
                file_end: None,
            }));
        }
        let number = self.segment_of(offset);
        self.open_segment(number).map_err(|(source, _)| self.read_failed(offset, source))?;
        let segment = &self.segments[number];
        let limit = if max_offset >= segment.end_offset {
            Limit::End
        } else {
            match self.cache.position_of(max_offset) {
                Some((base, position)) if base == segment.base_offset => Limit::Position(position),
                _ => Limit::Offset(max_offset),
            }
        };
        Ok(ReadPlan::Cold(ColdRead {
            dir: self.dir.clone(),
            view: segment.view(&self.bad),
            offset,
            max_bytes,
            limit,
            min_one_batch,
        }))
    }

    /// Scans a segment with new damage and quarantines the damaged ranges, so that the rest can be read.
    fn set_damage_aside(&mut self, base_offset: i64) -> io::Result<()> {
        let number = self.segment_of(base_offset);
        let segment = &self.segments[number];
        let (log, size, end_offset) = (segment.log().clone(), segment.size, segment.end_offset);
        let scanned = scan(&*log, base_offset, size, |_, _| {})?;
        let mut found = scanned.bad;
        if scanned.end < size {
            found.push(BadRange {
                segment: base_offset,
                position: scanned.end,
                bytes: size - scanned.end,
                offset: scanned.next_offset,
                next_offset: end_offset,
                skipped: false,
            });
        }
        // Ranges that the operator has accepted stay accepted.
        for range in &mut found {
            range.skipped = self.bad.contains(&BadRange { skipped: true, ..*range });
        }
        // A scan does not find offsets that are missing between two batches or at the end.
        let is_missing = |bad: &BadRange| bad.bytes == 0 && found.iter().all(|it| it.offset != bad.offset);
        self.bad.retain(|bad| bad.segment != base_offset || is_missing(bad));
        self.bad.extend(found);
        self.bad.sort_by_key(|bad| (bad.segment, bad.position));
        for bad in self.bad.iter().filter(|bad| bad.segment == base_offset && !bad.skipped) {
            tracing::error!(dir = &*self.dir, "{bad} are damaged: fetches of these offsets fail");
        }
        self.store_quarantine()
    }

    pub(crate) fn read_failed(&self, offset: i64, source: io::Error) -> ReadError {
        ReadError::Io { dir: self.dir.to_string(), offset, source }
    }
}

impl ColdRead {
    /// Finds the range to send. Reads index entries and headers, so it can block.
    ///
    /// An empty chain with a `next_offset` means that the next batches start there. A small read can return fewer bytes than have room.
    pub fn run(self) -> Result<ReadResult, ReadError> {
        match self.find(true) {
            Ok(Some(result)) => Ok(result),
            Ok(None) => Ok(ReadResult { next_offset: Some(self.view.end_offset), ..ReadResult::default() }),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// `None` if the segment has no batch at the offset or above. With `may_be_short`, the first batch is enough if no more bytes are
    /// at hand.
    fn find(&self, may_be_short: bool) -> Result<Option<ReadResult>, LookupError> {
        let mut window = self.view.window();
        let Some((start, first)) = self.view.locate_in(&mut window, self.offset)? else {
            self.check_end()?;
            return Ok(None);
        };
        assert!(first.next_offset() > self.offset, "the first batch of a read reaches its offset");
        let end = match self.limit {
            Limit::End => self.view.size,
            Limit::Position(position) => position,
            Limit::Offset(offset) => match self.view.locate(offset) {
                Ok(found) => found.map_or(self.view.size, |(position, _)| position),
                // The limit is inside damaged bytes: the bytes before them can be read.
                Err(LookupError::Bad(bad)) => bad.position,
                Err(error) => return Err(error),
            },
        };
        let available = end.min(self.view.sound_until(start)).saturating_sub(start);
        let first_bytes = first.total_bytes() as u64;
        let len = if available < first_bytes {
            0
        } else if self.min_one_batch {
            available.min((self.max_bytes as u64).max(first_bytes))
        } else if self.max_bytes as u64 >= first_bytes {
            available.min(self.max_bytes as u64)
        } else {
            0
        };
        let len = self.checked(start, len)?;
        let held = if self.max_bytes <= SMALL_READ_BYTES { window.held(start, len) } else { &[] };
        let needed = if may_be_short { first_bytes } else { len };
        let chain = if len > 0 && held.len() as u64 >= needed {
            Chain::from(Bytes::copy_from_slice(held))
        } else {
            let file = self.view.log.clone();
            Chain::from(FileSlice { file, offset: start, len: len as usize })
        };
        let file_end = Some((self.view.base_offset, start + len));
        Ok(Some(ReadResult { chain, next_offset: (len == 0).then_some(self.offset), file_end }))
    }

    /// Returns `true` if the read first checks bytes that another process wrote. Reads at most one index entry.
    pub fn is_unchecked(&self) -> bool {
        let view = &self.view;
        if view.verified.covers(0, view.size) {
            return false;
        }
        let end = |from: u64| view.size.min(from.saturating_add(self.max_bytes as u64));
        view.position_below(self.offset).map_or(true, |from| !view.verified.covers(from, end(from)))
    }

    /// Returns how many of `len` bytes from `start` on can be served: all after a check, or those before damage.
    fn checked(&self, start: u64, len: u64) -> Result<u64, LookupError> {
        let view = &self.view;
        let end = start + len;
        if len == 0 || view.verified.covers(start, end) {
            return Ok(len);
        }
        // From the batch that the index names, whose offset it proves; the front of a segment proves its own.
        let from = view.position_below(self.offset)?.min(start);
        let expected = (from == 0).then_some(view.base_offset);
        let (to, unsound, _) = view.verify(from, end, expected)?;
        view.verified.add(from, to);
        match unsound {
            None => Ok(len),
            Some(unsound) if unsound.position > start => Ok((unsound.position - start).min(len)),
            Some(unsound) => Err(LookupError::Unsound(unsound)),
        }
    }

    /// Checks the batches that a lookup has passed up to the end of the segment: one whose base offset has changed is
    /// not found under its own offsets.
    fn check_end(&self) -> Result<(), LookupError> {
        let view = &self.view;
        let from = view.position_below(self.offset)?;
        if self.offset >= view.end_offset || view.verified.covers(from, view.size) {
            return Ok(());
        }
        let (to, unsound, _) = view.verify(from, view.size, (from == 0).then_some(view.base_offset))?;
        view.verified.add(from, to);
        unsound.map_or(Ok(()), |unsound| Err(LookupError::Unsound(unsound)))
    }

    fn failed(&self, error: LookupError) -> ReadError {
        lookup_failed(&self.dir, &self.view, self.offset, error)
    }
}

pub(crate) fn lookup_failed(dir: &str, view: &SegmentView, offset: i64, error: LookupError) -> ReadError {
    let corrupt = |position, next| ReadError::Corrupt {
        dir: dir.to_owned(),
        file: file_name(view.base_offset, LOG_SUFFIX),
        offset,
        position,
        next,
    };
    match error {
        LookupError::Io(source) => ReadError::Io { dir: dir.to_owned(), offset, source },
        LookupError::Bad(bad) => corrupt(bad.position, bad.next_offset),
        LookupError::Damaged(position) => corrupt(position, view.end_offset),
        LookupError::Unsound(unsound) => corrupt(unsound.position, view.end_offset),
    }
}
