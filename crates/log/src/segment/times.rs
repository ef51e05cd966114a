//! The entries of a time index and the batches that they name. No checksum covers an index.

use std::io;
use std::sync::atomic::Ordering;

use ottla_wire::batch::BatchHeader;

use super::{LookupError, Segment, SegmentView};
use crate::bad_range::BadRange;
use crate::index::TimeEntry;
use crate::scan::Window;
use crate::storage::Storage;

impl Segment {
    /// Returns `true` if the largest timestamp is that of a time entry whose batch was not looked at.
    pub(crate) fn is_largest_unconfirmed(&self) -> bool {
        self.unconfirmed.is_some()
    }

    /// Looks at the batch that the last time entry of an open segment names. If it has another timestamp, the indexes are built again:
    /// lookups by time would pass the segment although it has records that are as late.
    pub(crate) fn confirm_last_time(
        &mut self,
        storage: &dyn Storage,
        dir: &str,
        interval: u32,
        bad: &[BadRange],
    ) -> io::Result<()> {
        let Some(entry) = self.unconfirmed else { return Ok(()) };
        let view = self.view(bad);
        // A batch that cannot be read says nothing about the index.
        if view.has_named_batch(&mut view.window(), entry).unwrap_or(true) {
            self.unconfirmed = None;
            return Ok(());
        }
        self.rebuild(storage, dir, interval, bad)
    }
}

impl SegmentView {
    /// The first batch from `from` on whose largest timestamp is `timestamp` or above, and its position.
    pub(crate) fn locate_time(
        &self,
        timestamp: i64,
        from: i64,
    ) -> Result<Option<(u64, BatchHeader)>, LookupError> {
        let mut window = self.window();
        let entry = self.times.last_where(|entry: TimeEntry| entry.timestamp <= timestamp)?;
        let from = from.max(self.base_offset);
        let from = match entry.filter(|entry| self.offset_of(*entry) > from) {
            Some(entry) if self.has_named_batch(&mut window, entry)? => self.offset_of(entry),
            Some(_) => {
                // Batches in front of it may be as late.
                self.misled.store(true, Ordering::Relaxed);
                from
            }
            None => from,
        };
        let start = self.position_in(&mut window, from)?;
        self.find_from(&mut window, start, from, |h| h.last_offset() >= from && h.max_timestamp >= timestamp)
    }

    /// Returns `true` if the batch that a time entry names has the entry's timestamp. A damaged batch says nothing about the index: then
    /// the entry counts.
    fn has_named_batch(&self, window: &mut Window<'_>, entry: TimeEntry) -> Result<bool, LookupError> {
        let offset = self.offset_of(entry);
        let start = self.position_in(window, offset)?;
        let found = self.find_from(window, start, offset, |header| header.last_offset() >= offset)?;
        let Some((position, header)) = found else { return Ok(false) };
        // Segments of Apache Kafka may name a record in the middle of a batch.
        let is_named = header.base_offset <= offset && header.max_timestamp == entry.timestamp;
        Ok(is_named || !window.crc_is_right(position, &header)?)
    }

    fn offset_of(&self, entry: TimeEntry) -> i64 {
        self.base_offset + i64::from(entry.relative_offset)
    }
}
