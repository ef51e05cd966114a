//! Segments whose damaged batches are sound again: an operator has put their files back from a backup.
//!
//! A range of the quarantine stays where it is through restarts, because nothing is scanned after a clean close. Without this look,
//! records that are there again could not be read, and the log would not be compacted.

use std::io;

use crate::bad_range::BadRange;
use crate::log::Log;
use crate::scan::{SCAN_CHUNK_BYTES, Window, scan, sound};
use crate::segment::Segment;
use crate::segment_name::{LOG_SUFFIX, file_name};
use crate::storage::Open;

/// A segment that had quarantined batches and has none any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestoredSegment {
    base_offset: i64,
    /// `true` if it may have a transaction index.
    has_control: bool,
}

impl Log {
    /// Removes the quarantine of the segments that are sound again, in memory only. The file keeps it until [`Log::serve_restored`]: the
    /// next opening does the same if this one fails.
    ///
    /// The first batch of each range is read. Only if all those of a segment are sound, its other batches are checked as well.
    pub(crate) fn take_restored(&mut self) -> Vec<RestoredSegment> {
        let has_damage = |number: &usize| {
            let base_offset = self.segments[*number].base_offset;
            self.bad.iter().any(|bad| bad.segment == base_offset)
        };
        // Bytes that cannot be read stay quarantined: they are no reason to stop the opening.
        let restored = (0..self.segments.len())
            .filter(has_damage)
            .filter_map(|number| self.restored(number).unwrap_or_default());
        let restored: Vec<RestoredSegment> = restored.collect();
        let is_restored = |bad: &BadRange| restored.iter().any(|segment| segment.base_offset == bad.segment);
        (self.restored, self.bad) = std::mem::take(&mut self.bad).into_iter().partition(is_restored);
        restored
    }

    /// `None` if the segment is still damaged.
    fn restored(&self, number: usize) -> io::Result<Option<RestoredSegment>> {
        let Segment { base_offset, size, .. } = self.segments[number];
        let file = self.storage.open(&self.path(&file_name(base_offset, LOG_SUFFIX)), Open::Existing)?;
        let mut window = Window::new(&*file, size, SCAN_CHUNK_BYTES);
        for bad in self.bad.iter().filter(|bad| bad.segment == base_offset) {
            let first = sound(&mut window, base_offset, bad.position, bad.offset)?;
            if first.is_none_or(|header| header.base_offset != bad.offset) {
                return Ok(None);
            }
        }
        let mut has_control = false;
        let scanned = scan(&*file, base_offset, size, |header, _| has_control |= header.is_control())?;
        let next_offset = scanned.next_offset;
        let is_accepted = |next: i64| {
            let is_it = |gap: &BadRange| {
                (gap.segment, gap.offset, gap.next_offset) == (base_offset, next_offset, next)
            };
            self.gaps.iter().any(is_it)
        };
        let next_base = self.segments.get(number + 1).map(|next| next.base_offset);
        let is_complete = next_base.is_none_or(|next| next_offset == next || is_accepted(next));
        let is_sound = scanned.bad.is_empty() && scanned.end == size && is_complete;
        Ok(is_sound.then_some(RestoredSegment { base_offset, has_control }))
    }

    /// Rebuilds what was made without the batches of restored segments, and stores the quarantine without them.
    ///
    /// The quarantine is stored last: until then, another opening does the same again.
    pub(crate) fn serve_restored(&mut self, restored: &[RestoredSegment], now_ms: i64) -> io::Result<()> {
        if restored.is_empty() {
            return Ok(());
        }
        let mut with_control = Vec::new();
        for number in 0..self.segments.len() {
            let base_offset = self.segments[number].base_offset;
            let Some(segment) = restored.iter().find(|segment| segment.base_offset == base_offset) else {
                continue;
            };
            if segment.has_control {
                with_control.push(base_offset);
            }
            // Indexes that were built around the damage lack its batches.
            self.segments[number].close();
            let [_, offsets, times, _] = Segment::paths(&self.dir, base_offset);
            for path in [offsets, times] {
                match self.storage.remove(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
            self.open_segment(number).map_err(|(error, _)| error)?;
            tracing::info!(
                dir = &*self.dir,
                segment = base_offset,
                "the damaged batches of a segment are sound again: they are served"
            );
        }
        if let Some(first) = with_control.first() {
            self.rebuild_transaction_indexes(&with_control)?;
            // In later snapshots, transactions that the markers have ended may be open.
            self.remove_snapshots_above(*first)?;
            self.load_producers(now_ms)?;
        }
        // A full disk is no reason to stop the opening.
        let stored = match with_control.first() {
            Some(_) => self.write_snapshot(self.end_offset(), true),
            None => Ok(()),
        };
        let stored = stored.and_then(|()| self.storage.sync_dir(&self.dir));
        let ranges = std::mem::take(&mut self.restored);
        if let Err(error) = stored.and_then(|()| self.store_quarantine()) {
            self.restored = ranges;
            tracing::warn!(dir = &*self.dir, %error, "cannot store the quarantine: the next opening does this again");
        }
        self.pause_files();
        Ok(())
    }
}
