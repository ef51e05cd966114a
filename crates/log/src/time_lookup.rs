//! Finds offsets by time. The log says which segments to look at; they are read without it.

use std::cell::{RefCell, RefMut};
use std::ops::DerefMut;
use std::sync::Arc;

use ottla_wire::RecordStream;
use ottla_wire::batch::{BatchHeader, Compression};
use ottla_wire::compress::CompressError;
use ottla_wire::reader::{RecordError, Records};

use crate::error::ReadError;
use crate::log::Log;
use crate::read::lookup_failed;
use crate::retention::{NewestTimestamp, TimestampRead};
use crate::scan::walk;
use crate::segment::{LookupError, Segment, SegmentView};

/// An offset found by its timestamp.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TimestampOffset {
    /// The record's timestamp.
    pub timestamp: i64,
    /// Its offset.
    pub offset: i64,
    /// The leader epoch of its batch, or -1.
    pub leader_epoch: i32,
}

/// The search for a timestamp in one segment. It owns its state, so that it can run on a thread that may block, without the
/// log's lock.
#[derive(Debug)]
pub struct TimeLookup {
    dir: Arc<str>,
    view: SegmentView,
    from: i64,
    timestamp: i64,
    decompressed_bytes_max: usize,
}

/// The next step of a lookup by time: see [`Log::plan_time_lookup`].
#[derive(Debug)]
pub enum TimeLookupStep {
    /// A segment may have the record. Without it there, plan again from [`TimeLookup::end_offset`] on.
    Search(TimeLookup),
    /// The timestamps of a segment have to be read. Report them with [`Log::note_newest`], and plan the same step again.
    Read(TimestampRead),
    /// The timestamps of the segment that ends at this offset were loaded, and all are older. Plan again from there on.
    Passed(i64),
    /// There is no such record.
    Done,
}

/// The largest timestamp of a segment.
enum Newest {
    /// It is this one; -1 without one.
    Known(i64),
    /// Its time index is empty. It may have lost its entries: the batches were not read yet.
    Unread(TimestampRead),
}

/// Finds the first record whose timestamp is `timestamp` or later. `lock` locks the log for one step: others use it between the steps,
/// and while batches are read. Blocks for reads.
pub fn find_by_time<L: DerefMut<Target = Log>>(
    timestamp: i64,
    mut lock: impl FnMut() -> L,
) -> Result<Option<TimestampOffset>, ReadError> {
    let mut searched = 0;
    loop {
        // The lock is released at the end of the statement.
        let step = lock().plan_time_lookup(timestamp, searched)?;
        match step {
            TimeLookupStep::Search(lookup) => {
                if let Some(found) = lookup.run()? {
                    return Ok(Some(found));
                }
                searched = lookup.end_offset();
            }
            TimeLookupStep::Read(read) => {
                let read = read.run();
                lock().note_read(read)?;
            }
            TimeLookupStep::Passed(end_offset) => searched = end_offset,
            TimeLookupStep::Done => return Ok(None),
        }
    }
}

/// Finds the first record with the largest timestamp of all (KIP-734), with `lock` as for [`find_by_time`]. Blocks for reads.
pub fn find_newest<L: DerefMut<Target = Log>>(
    mut lock: impl FnMut() -> L,
) -> Result<Option<TimestampOffset>, ReadError> {
    loop {
        let step = lock().load_next_timestamps()?;
        match step {
            TimeLookupStep::Read(read) => {
                let read = read.run();
                lock().note_read(read)?;
            }
            TimeLookupStep::Search(_) | TimeLookupStep::Passed(_) => {}
            TimeLookupStep::Done => break,
        }
    }
    let newest = lock().newest_timestamp()?;
    let Some(newest) = newest else { return Ok(None) };
    if let Some(found) = find_by_time(newest, &mut lock)? {
        return Ok(Some(found));
    }
    // The record was deleted, but its segment has others: the newest one that is left is looked for.
    let (first, others) = lock().first_and_others()?;
    match first.newest()?.max(others) {
        Some(newest) => find_by_time(newest, lock),
        None => Ok(None),
    }
}

impl TimeLookup {
    /// The end of the segment in which it searches, for [`Log::plan_time_lookup`].
    pub fn end_offset(&self) -> i64 {
        self.view.end_offset
    }

    /// Returns the first record of the segment whose timestamp is the wanted one or later. Reads and decompresses batches.
    pub fn run(&self) -> Result<Option<TimestampOffset>, ReadError> {
        let mut from = self.from;
        loop {
            let found = self.view.locate_time(self.timestamp, from);
            let found = found.map_err(|error| lookup_failed(&self.dir, &self.view, from, error))?;
            let Some((position, header)) = found else { return Ok(None) };
            if let Some(found) = self.first_record(position, &header, from)? {
                return Ok(Some(found));
            }
            from = header.next_offset();
        }
    }

    fn first_record(
        &self,
        position: u64,
        header: &BatchHeader,
        from: i64,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        let leader_epoch = header.partition_leader_epoch;
        let mut first = None;
        let mut next = header.base_offset.max(from);
        let is_read = self.each_record(position, header, |timestamp, offset| {
            if timestamp >= self.timestamp && offset >= from {
                first = Some(TimestampOffset { timestamp, offset, leader_epoch });
            }
            next = next.max(offset + 1);
            first.is_some()
        })?;
        if first.is_none() && !is_read {
            // The record is one of those that are left: a consumer that begins at the first one gets it.
            let (timestamp, offset) = (header.max_timestamp, next.min(header.last_offset()));
            first = Some(TimestampOffset { timestamp, offset, leader_epoch });
        }
        Ok(first)
    }

    /// Returns the largest timestamp of the segment's records from the start of the log on.
    fn newest(&self) -> Result<Option<i64>, ReadError> {
        let from = self.from;
        let failed = |error| lookup_failed(&self.dir, &self.view, from, error);
        let start = self.view.position_below(from).map_err(failed)?;
        let mut newest: Option<i64> = None;
        let mut cut: Option<(u64, BatchHeader)> = None;
        let walked = walk(&*self.view.log, start, self.view.size, &self.view.bad, |header, position| {
            if header.last_offset() < from || header.record_count == 0 {
                return;
            }
            if header.base_offset < from {
                cut = Some((position, *header));
            } else {
                newest = newest.max(Some(header.max_timestamp));
            }
        });
        let walked = walked.map_err(|error| failed(LookupError::Io(error)))?;
        walked.map_err(|position| failed(LookupError::Damaged(position)))?;
        // The header of a batch with deleted records may have the timestamp of one of them.
        if let Some((position, header)) = cut {
            let is_read = self.each_record(position, &header, |timestamp, offset| {
                if offset >= from {
                    newest = newest.max(Some(timestamp));
                }
                false
            })?;
            if !is_read {
                newest = newest.max(Some(header.max_timestamp));
            }
        }
        Ok(newest.filter(|timestamp| *timestamp >= 0))
    }

    /// Passes the timestamp and the offset of each record of a batch to `on_record`, until that returns `true`.
    ///
    /// Returns `false` if the last records were not read: the batch inflates to more than the limit, which was a higher one when it was
    /// appended, or another broker's.
    fn each_record(
        &self,
        position: u64,
        header: &BatchHeader,
        mut on_record: impl FnMut(i64, i64) -> bool,
    ) -> Result<bool, ReadError> {
        let failed = |error| lookup_failed(&self.dir, &self.view, header.base_offset, error);
        let bytes = self.view.load(position, header).map_err(|error| failed(LookupError::Io(error)))?;
        let mut read = || -> Result<(), RecordError> {
            if header.compression()? == Compression::None {
                for record in &Records::of_batch(&bytes, self.decompressed_bytes_max)? {
                    let record = record?;
                    if on_record(record.timestamp, record.offset) {
                        return Ok(());
                    }
                }
                return Ok(());
            }
            // Part by part: a batch can inflate to a thousand times its size.
            let mut records = RecordStream::new(header, bytes.clone(), self.decompressed_bytes_max)?;
            let mut is_found = false;
            while !is_found {
                let has_more = records.read_part(|record| {
                    is_found = is_found || on_record(record.timestamp, record.offset);
                })?;
                if !has_more {
                    break;
                }
            }
            Ok(())
        };
        match read() {
            Ok(()) => Ok(true),
            Err(error) if is_over(&error, self.decompressed_bytes_max) => Ok(false),
            Err(_) => Err(failed(LookupError::Damaged(position))),
        }
    }
}

impl Log {
    /// Returns the first record whose timestamp is `timestamp` or later. Blocks for reads; with [`find_by_time`] other callers use
    /// the log meanwhile.
    pub fn offset_for_timestamp(&mut self, timestamp: i64) -> Result<Option<TimestampOffset>, ReadError> {
        let log = RefCell::new(self);
        find_by_time(timestamp, || RefMut::map(log.borrow_mut(), |log| &mut **log))
    }

    /// Returns the first record with the largest timestamp of all (KIP-734). Blocks for reads; with [`find_newest`] other callers
    /// use the log meanwhile.
    pub fn max_timestamp(&mut self) -> Result<Option<TimestampOffset>, ReadError> {
        let log = RefCell::new(self);
        find_newest(|| RefMut::map(log.borrow_mut(), |log| &mut **log))
    }

    /// The largest timestamp of all records, if one has a timestamp. Reads what [`Log::load_next_timestamps`] has not loaded.
    pub fn newest_timestamp(&mut self) -> Result<Option<i64>, ReadError> {
        self.newest_from(0)
    }

    /// The largest timestamp of the segments from this number on.
    fn newest_from(&mut self, first: usize) -> Result<Option<i64>, ReadError> {
        self.check_readable()?;
        let mut newest = None;
        for number in first..self.segments.len() {
            let timestamp = loop {
                match self.newest_of(number)? {
                    Newest::Known(timestamp) => break timestamp,
                    Newest::Unread(read) => self.note_read(read.run())?,
                }
            };
            newest = newest.max(Some(timestamp).filter(|timestamp| *timestamp >= 0));
        }
        Ok(newest)
    }

    /// Loads the largest timestamp of a segment where it is not known, or returns the read that finds it. [`TimeLookupStep::Done`]
    /// if all are known.
    ///
    /// After a start none is known. A log has thousands of segments: other callers use it between two of these calls.
    pub fn load_next_timestamps(&mut self) -> Result<TimeLookupStep, ReadError> {
        self.check_readable()?;
        let Some(number) = self.segments.iter().position(has_unknown_timestamps) else {
            return Ok(TimeLookupStep::Done);
        };
        if let Newest::Unread(read) = self.newest_of(number)? {
            return Ok(TimeLookupStep::Read(read));
        }
        let segment = &self.segments[number];
        let is_unknown = has_unknown_timestamps(segment);
        Ok(if is_unknown { TimeLookupStep::Done } else { TimeLookupStep::Passed(segment.end_offset) })
    }

    /// The next step of the search for a record with this timestamp or a later one, from the offset `searched` on. Loads the timestamps
    /// of one segment at most. The active segment is searched once.
    ///
    /// An offset, not a segment, says what was searched: a compaction can merge the segment with later ones meanwhile.
    pub fn plan_time_lookup(&mut self, timestamp: i64, searched: i64) -> Result<TimeLookupStep, ReadError> {
        self.check_readable()?;
        for number in 0..self.segments.len() {
            let segment = &self.segments[number];
            let (base_offset, end_offset) = (segment.base_offset, segment.end_offset);
            // With steady appends, the search for more records in the active segment would not end.
            let is_active = number + 1 == self.segments.len();
            if end_offset <= searched || is_active && base_offset < searched {
                continue;
            }
            let was_unknown = has_unknown_timestamps(&self.segments[number]);
            let newest = match self.newest_of(number)? {
                Newest::Known(newest) => newest,
                Newest::Unread(read) => return Ok(TimeLookupStep::Read(read)),
            };
            if newest < timestamp {
                if was_unknown {
                    return Ok(TimeLookupStep::Passed(end_offset));
                }
                continue;
            }
            return Ok(TimeLookupStep::Search(self.time_lookup(number, timestamp, searched)?));
        }
        Ok(TimeLookupStep::Done)
    }

    /// Returns the first segment, which alone can have deleted records, and the largest timestamp of the others.
    fn first_and_others(&mut self) -> Result<(TimeLookup, Option<i64>), ReadError> {
        let others = self.newest_from(1)?;
        Ok((self.time_lookup(0, 0, 0)?, others))
    }

    fn time_lookup(&mut self, number: usize, timestamp: i64, from: i64) -> Result<TimeLookup, ReadError> {
        let base_offset = self.segments[number].base_offset;
        self.open_segment(number).map_err(|(source, _)| self.read_failed(base_offset, source))?;
        Ok(TimeLookup {
            dir: self.dir.clone(),
            view: self.segments[number].view(&self.bad),
            from: self.start_offset.max(from),
            timestamp,
            decompressed_bytes_max: self.config.decompressed_bytes_max,
        })
    }

    /// The largest timestamp of a segment.
    fn newest_of(&mut self, number: usize) -> Result<Newest, ReadError> {
        let base_offset = self.segments[number].base_offset;
        if self.segments[number].largest.is_none() {
            self.open_segment(number).map_err(|(source, _)| self.read_failed(base_offset, source))?;
        }
        // A segment that is skipped is not seen.
        if self.segments[number].is_largest_unread() {
            self.open_segment(number).map_err(|(source, _)| self.read_failed(base_offset, source))?;
            if self.segments[number].newest.is_none_or(|newest| newest.timestamp.is_none()) {
                return Ok(Newest::Unread(self.timestamp_read(number)));
            }
            // The batches have timestamps: the index has lost its entries.
            let (storage, interval) = (self.storage.clone(), self.config.index_interval_bytes);
            let confirmed = self.segments[number].confirm_largest(&*storage, &self.dir, interval, &self.bad);
            confirmed.map_err(|source| self.read_failed(base_offset, source))?;
        }
        self.confirm_last_time(number).map_err(|(source, _)| self.read_failed(base_offset, source))?;
        Ok(Newest::Known(self.segments[number].largest.map_or(-1, |largest| largest.timestamp)))
    }

    /// Reports what a [`TimestampRead`] has found.
    fn note_read(&mut self, read: NewestTimestamp) -> Result<(), ReadError> {
        let segment = read.segment();
        self.note_timestamps(read).map_err(|source| self.read_failed(segment, source))
    }
}

/// Returns `true` if a batch, or one of its records, is larger than the limit.
fn is_over(error: &RecordError, bytes_max: usize) -> bool {
    match error {
        RecordError::Compress { source: CompressError::TooLarge { .. }, .. } => true,
        RecordError::Length { length, .. } => usize::try_from(*length).is_ok_and(|length| length > bytes_max),
        _ => false,
    }
}

fn has_unknown_timestamps(segment: &Segment) -> bool {
    segment.largest.is_none() || segment.is_largest_unread() || segment.is_largest_unconfirmed()
}
