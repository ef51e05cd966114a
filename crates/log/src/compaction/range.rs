//! The segments that a compaction may clean.

use std::collections::VecDeque;
use std::io;

use super::newest::NewestOffsets;
use super::offset_map::OffsetMap;
use super::runs::Runs;
use super::transactions::Transactions;
use super::{Compaction, CompactionError, CompactionOptions, CompactionReport, Filter, KeyHasher, Rules};
use super::{SEGMENT_BYTES_MAX, Source};
use crate::error::LogError;
use crate::log::Log;
use crate::scan::{LOOKUP_CHUNK_BYTES, Window};
use crate::segment::Segment;
use crate::segment_name::{LOG_SUFFIX, file_name};

/// The parts of the memory for keys that bits of offsets and runs of batches may take: there are then bits for 8 times as
/// many offsets as there is room for keys.
const HELPERS_PART: usize = 30;
/// The first batches of a segment that are read until one has a timestamp. Their headers can be in as many places of the file, and other
/// callers of the log wait meanwhile.
const FIRST_BATCHES_MAX: usize = 16;

/// The clean and the dirty part of a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cleanable {
    /// The first offset that was not cleaned yet.
    pub first_dirty: i64,
    /// The first offset that cannot be cleaned yet: of the active segment, of one that is not stable, or of a young one.
    pub end: i64,
    /// Bytes of the segments below [`Cleanable::first_dirty`].
    pub clean_bytes: u64,
    /// Bytes of the segments from there to [`Cleanable::end`].
    pub dirty_bytes: u64,
    /// `true` if a dirty record is older than `max.compaction.lag.ms`.
    pub is_overdue: bool,
}

impl Cleanable {
    /// Returns the part of the bytes that is dirty, from 0 to 1.
    pub fn dirty_ratio(&self) -> f64 {
        match self.clean_bytes + self.dirty_bytes {
            0 => 0.0,
            all => self.dirty_bytes as f64 / all as f64,
        }
    }
}

impl Log {
    /// Returns what a compaction would clean, given the cleaner point of the last one.
    ///
    /// A cleaner point outside of the log counts as its start. Closes the active segment if its records are older than
    /// `max.compaction.lag.ms`: they can be cleaned then.
    pub fn cleanable(
        &mut self,
        first_dirty: i64,
        stable_end: i64,
        now_ms: i64,
    ) -> Result<Cleanable, LogError> {
        self.check_online()?;
        let max_lag_ms = self.config.max_compaction_lag_ms;
        let is_overdue = |first: Option<i64>| {
            first.is_some_and(|first| now_ms.saturating_sub(first) > max_lag_ms) && max_lag_ms < i64::MAX
        };
        if max_lag_ms < i64::MAX {
            let last = self.segments.len() - 1;
            if is_overdue(self.first_timestamp_of(last)?) {
                self.roll(now_ms)?;
            }
        }
        let is_inside = (self.start_offset..=self.end_offset()).contains(&first_dirty);
        let first_dirty = if is_inside { first_dirty } else { self.start_offset };
        let mut cleanable = Cleanable {
            first_dirty,
            end: self.segments[0].base_offset,
            clean_bytes: 0,
            dirty_bytes: 0,
            is_overdue: false,
        };
        for number in 0..self.segments.len() - 1 {
            let Segment { end_offset, size, .. } = self.segments[number];
            let is_dirty = end_offset > first_dirty;
            if end_offset > stable_end || (is_dirty && self.is_young(number, now_ms)?) {
                break;
            }
            cleanable.end = end_offset;
            if !is_dirty {
                cleanable.clean_bytes += size;
                continue;
            }
            // As in Kafka, the oldest of all counts. Once one is overdue, the others need not be read.
            if max_lag_ms < i64::MAX && !cleanable.is_overdue {
                cleanable.is_overdue = is_overdue(self.first_timestamp_of(number)?);
            }
            cleanable.dirty_bytes += size;
        }
        Ok(cleanable)
    }

    /// Loads the largest and the first timestamp of a closed segment above the cleaner point, if [`Log::cleanable`] needs them and they
    /// are not known. Returns `false` if all are known. Other callers use the log between two of these calls.
    pub fn load_next_dirty(&mut self, first_dirty: i64) -> Result<bool, LogError> {
        self.check_online()?;
        let needs_largest = self.config.min_compaction_lag_ms > 0;
        let needs_first = self.config.max_compaction_lag_ms < i64::MAX;
        let lacks_largest = |segment: &Segment| {
            needs_largest && (segment.largest.is_none() || segment.is_largest_unconfirmed())
        };
        let lacks_first = |segment: &Segment| needs_first && segment.lacks_first_timestamp();
        let is_unknown = |segment: &Segment| {
            segment.end_offset > first_dirty && (lacks_largest(segment) || lacks_first(segment))
        };
        let closed = &self.segments[..self.segments.len() - 1];
        let Some(number) = closed.iter().position(is_unknown) else { return Ok(false) };
        self.open_segment(number).map_err(|(source, file)| self.failed(&format!("open {file}"), source))?;
        if needs_largest {
            self.confirm_last_time(number)
                .map_err(|(source, file)| self.failed(&format!("read {file}"), source))?;
        }
        if lacks_first(&self.segments[number]) {
            self.first_timestamp_of(number)?;
        }
        Ok(!lacks_largest(&self.segments[number]))
    }

    /// Begins a compaction. Its passes read closed segments without the log.
    ///
    /// Before the first replacement the closed segments must be durable: see [`Log::pending_closed_sync`]. Otherwise a power cut can
    /// lose the newest value of a key whose earlier one was removed.
    ///
    /// It ends before the first segment with quarantined batches, whose keys are not known. Fails with [`CompactionError::Damaged`] if
    /// nothing below that segment is dirty.
    pub fn begin_compaction(&mut self, options: CompactionOptions) -> Result<Compaction, CompactionError> {
        let CompactionOptions { now_ms, age_ms, first_dirty, stable_end, .. } = options;
        let CompactionOptions { map_bytes_max, secret, aborted, segment_bytes_max, .. } = options;
        let mut cleanable = self.cleanable(first_dirty, stable_end, age_ms)?;
        let quarantined = self.bad.iter().filter(|bad| bad.segment < cleanable.end);
        if let Some(bad) = quarantined.min_by_key(|bad| (bad.segment, bad.position)) {
            if bad.segment <= cleanable.first_dirty {
                return Err(CompactionError::Damaged {
                    dir: self.dir.to_string(),
                    file: file_name(bad.segment, LOG_SUFFIX),
                    position: bad.position,
                    reason: format!("{bad} are quarantined"),
                });
            }
            cleanable.end = bad.segment;
        }
        let sources = self.segments.iter().filter(|segment| segment.end_offset <= cleanable.end);
        let sources = sources.take(self.segments.len() - 1).map(|segment| Source {
            base_offset: segment.base_offset,
            end_offset: segment.end_offset,
            size: segment.size,
            created_ms: segment.created_ms,
            has_aborted: !segment.aborted.is_empty(),
            identity: segment.verified.clone(),
        });
        // An operator has accepted the loss of so many offsets that no empty batch covers them.
        let spans = |source: &Source| i32::try_from(source.end_offset - 1 - source.base_offset).is_ok();
        let sources: VecDeque<Source> = sources.collect();
        if let Some(source) = sources.iter().find(|source| !spans(source)) {
            return Err(CompactionError::Damaged {
                dir: self.dir.to_string(),
                file: file_name(source.base_offset, LOG_SUFFIX),
                position: source.size,
                reason: format!("the offsets up to {} are missing", source.end_offset - 1),
            });
        }
        let keys = cleanable.end.saturating_sub(cleanable.first_dirty).max(0) as u64;
        let part = map_bytes_max / HELPERS_PART;
        let newest = NewestOffsets::new(cleanable.first_dirty, cleanable.end, part);
        let producers = self.producers.last_batches();
        let mut last_offsets: Vec<i64> = producers.values().filter_map(|last| last.offset).collect();
        last_offsets.sort_unstable();
        Ok(Compaction {
            storage: self.storage.clone(),
            dir: self.dir.clone(),
            sources,
            first_dirty: cleanable.first_dirty,
            transactions: Transactions::new(aborted.clone()),
            aborted,
            rules: Rules {
                map: OffsetMap::new(keys, map_bytes_max - newest.bytes() - part, KeyHasher::new(secret)),
                newest,
                without_key: 0,
                latest: cleanable.first_dirty - 1,
                now_ms,
                age_ms,
                delete_retention_ms: self.config.delete_retention_ms,
                producers,
                last_offsets,
                decompressed_bytes_max: self.config.decompressed_bytes_max,
            },
            runs: Runs::new(part, self.config.index_interval_bytes),
            is_mapped: false,
            filter: Filter::default(),
            scratch: Vec::new(),
            group_bytes_max: u64::from(self.config.segment_bytes),
            segment_bytes_max: segment_bytes_max.map_or(SEGMENT_BYTES_MAX, u64::from),
            index_interval: self.config.index_interval_bytes,
            report: CompactionReport { first_dirty: cleanable.first_dirty, ..CompactionReport::default() },
            damage: None,
        })
    }

    /// Returns `true` if a segment has records that are younger than `min.compaction.lag.ms`.
    fn is_young(&mut self, number: usize, now_ms: i64) -> Result<bool, LogError> {
        let min_lag_ms = self.config.min_compaction_lag_ms;
        if min_lag_ms <= 0 {
            return Ok(false);
        }
        if self.segments[number].largest.is_none() {
            self.open_segment(number)
                .map_err(|(source, file)| self.failed(&format!("open {file}"), source))?;
        }
        self.confirm_last_time(number)
            .map_err(|(source, file)| self.failed(&format!("read {file}"), source))?;
        let segment = &self.segments[number];
        let largest = segment.largest.map(|largest| largest.timestamp).filter(|timestamp| *timestamp >= 0);
        let largest = largest.unwrap_or_else(|| self.written_ms(segment));
        Ok(largest > now_ms.saturating_sub(min_lag_ms))
    }

    /// Returns the first timestamp of a segment: as in Kafka, 0 is none. Batches without records have the time of those that were removed.
    fn first_timestamp_of(&mut self, number: usize) -> Result<Option<i64>, LogError> {
        if self.segments[number].lacks_first_timestamp() {
            self.open_segment(number)
                .map_err(|(source, file)| self.failed(&format!("open {file}"), source))?;
            let first = read_first_timestamp(&self.segments[number]).map_err(|source| {
                let file = file_name(self.segments[number].base_offset, LOG_SUFFIX);
                self.failed(&format!("read {file}"), source)
            })?;
            let segment = &mut self.segments[number];
            (segment.first_timestamp, segment.is_first_read) = (first, true);
        }
        Ok(self.segments[number].first_timestamp.filter(|timestamp| *timestamp > 0))
    }
}

/// Reads the timestamp of the first batch that has records and a timestamp.
fn read_first_timestamp(segment: &Segment) -> io::Result<Option<i64>> {
    let log = segment.log().clone();
    let mut window = Window::new(&*log, segment.size, LOOKUP_CHUNK_BYTES);
    let mut position = 0;
    for _ in 0..FIRST_BATCHES_MAX {
        // The end of the segment, or damage.
        let Ok(header) = window.header(position)? else { break };
        if header.record_count > 0 && header.max_timestamp >= 0 {
            return Ok(Some(header.max_timestamp));
        }
        position += header.total_bytes() as u64;
    }
    Ok(None)
}
