//! Segments whose damaged batches are sound again: an operator has put their files back from a backup.
//!
//! A range of the quarantine stays where it is through restarts, because nothing is scanned after a clean close. Without this look,
//! records that are there again could not be read, and the log would not be compacted.

use std::io;

use ottla_wire::BatchHeader;

use crate::bad_range::BadRange;
use crate::error::is_no_space;
use crate::log::Log;
use crate::producer_map::ProducerSet;
use crate::scan::{SCAN_CHUNK_BYTES, Window, scan, sound};
use crate::segment::Segment;
use crate::segment_name::{LOG_SUFFIX, file_name};
use crate::storage::Open;

/// A segment that had quarantined batches and has none any more.
#[derive(Debug)]
pub(crate) struct RestoredSegment {
    base_offset: i64,
    /// The producers of the batches that were quarantined.
    producers: ProducerSet,
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
        let found = (0..self.segments.len())
            .filter(has_damage)
            .filter_map(|number| self.restored_segment(number).unwrap_or_default());
        let mut restored: Vec<RestoredSegment> = found.collect();
        let is_left = |bad: &BadRange| {
            self.has_segment(bad.segment) && restored.iter().all(|segment| segment.base_offset != bad.segment)
        };
        if self.bad.iter().any(is_left) {
            // See `serve_restored`.
            restored.retain(|segment| segment.producers.is_empty());
        }
        let is_restored = |bad: &BadRange| restored.iter().any(|segment| segment.base_offset == bad.segment);
        (self.restored, self.bad) = std::mem::take(&mut self.bad).into_iter().partition(is_restored);
        restored
    }

    /// The quarantine may have ranges of segments that were deleted.
    fn has_segment(&self, base_offset: i64) -> bool {
        self.segments.binary_search_by_key(&base_offset, |segment| segment.base_offset).is_ok()
    }

    /// `None` if the segment is still damaged.
    fn restored_segment(&self, number: usize) -> io::Result<Option<RestoredSegment>> {
        let Segment { base_offset, size, .. } = self.segments[number];
        let file = self.storage.open(&self.path(&file_name(base_offset, LOG_SUFFIX)), Open::Existing)?;
        let mut window = Window::new(&*file, size, SCAN_CHUNK_BYTES);
        let ranges = || self.bad.iter().filter(move |bad| bad.segment == base_offset);
        for bad in ranges() {
            let first = sound(&mut window, base_offset, bad.position, bad.offset)?;
            if first.is_none_or(|header| header.base_offset != bad.offset) {
                return Ok(None);
            }
        }
        let mut producers = ProducerSet::default();
        let was_damaged = |header: &BatchHeader| {
            ranges().any(|bad| (bad.offset..bad.next_offset).contains(&header.base_offset))
        };
        let scanned = scan(&*file, base_offset, size, |header, _| {
            if header.has_producer_id() && was_damaged(header) {
                producers.insert(header.producer_id);
            }
        })?;
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
        Ok(is_sound.then_some(RestoredSegment { base_offset, producers }))
    }

    /// Makes again what was made without the batches of restored segments, and stores the quarantine without them.
    ///
    /// Restored batches of producers wait while other batches of the log are damaged: a marker in them ends a transaction, or is the reason
    /// why its records are not delivered. Without it, the transaction would be open again.
    ///
    /// The quarantine is stored last: until then, another opening does the same again.
    pub(crate) fn serve_restored(&mut self, restored: Vec<RestoredSegment>, now_ms: i64) -> io::Result<()> {
        if restored.is_empty() {
            return Ok(());
        }
        // This opening may have found other damage.
        let is_damaged = self.bad.iter().any(|bad| self.has_segment(bad.segment));
        let (waiting, served): (Vec<_>, Vec<_>) =
            restored.into_iter().partition(|segment| is_damaged && !segment.producers.is_empty());
        self.set_aside_again(&waiting);
        let Some(first) = served.first() else { return Ok(()) };
        let producers: ProducerSet = served.iter().flat_map(|segment| &segment.producers).copied().collect();
        match self.make_again(&served, &producers, now_ms) {
            Ok(()) => {}
            // A full disk is no reason to stop the opening.
            Err(error) if is_no_space(&error) => {
                tracing::warn!(dir = &*self.dir, %error, "cannot serve restored batches: the next opening tries it again");
                self.set_aside_again(&served);
                self.pause_files();
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let stored = if producers.is_empty() { Ok(()) } else { self.replace_snapshots(first.base_offset) };
        let stored = stored.and_then(|()| self.storage.sync_dir(&self.dir));
        let ranges = std::mem::take(&mut self.restored);
        if let Err(error) = stored.and_then(|()| self.store_quarantine()) {
            self.restored = ranges;
            tracing::warn!(dir = &*self.dir, %error, "cannot store the quarantine: the next opening does this again");
        }
        self.pause_files();
        Ok(())
    }

    /// Makes again what was made without the batches of these segments. The files that can only be written as a whole come first: if
    /// the disk is full, nothing else has changed.
    fn make_again(
        &mut self,
        served: &[RestoredSegment],
        producers: &ProducerSet,
        now_ms: i64,
    ) -> io::Result<()> {
        if let Some(first) = served.first().filter(|_| !producers.is_empty()) {
            self.replay_restored(first.base_offset, producers, now_ms)?;
        }
        self.note_restored_epochs(served)?;
        for segment in served {
            self.rebuild_indexes(segment.base_offset)?;
        }
        Ok(())
    }

    /// Epochs that were collected from the batches around damage lack those of its batches.
    fn note_restored_epochs(&mut self, served: &[RestoredSegment]) -> io::Result<()> {
        let mut epochs = self.epochs.clone();
        for segment in served {
            let base_offset = |segment: &Segment| segment.base_offset;
            let Ok(number) = self.segments.binary_search_by_key(&segment.base_offset, base_offset) else {
                continue;
            };
            self.walk_segment(number, 0, |_, header, _| {
                epochs.note_restored(header.partition_leader_epoch, header.base_offset);
                Ok(())
            })?;
        }
        epochs.forget_before(self.start_offset);
        if epochs != self.epochs {
            epochs.replace(&*self.storage, &self.dir)?;
            self.epochs = epochs;
        }
        Ok(())
    }

    /// Returns the ranges of these segments to the quarantine.
    fn set_aside_again(&mut self, aside: &[RestoredSegment]) {
        let is_waiting = |bad: &BadRange| aside.iter().any(|segment| segment.base_offset == bad.segment);
        let (mut again, others): (Vec<BadRange>, Vec<BadRange>) =
            std::mem::take(&mut self.restored).into_iter().partition(is_waiting);
        again.retain(|bad| self.has_segment(bad.segment));
        self.restored = others;
        self.bad.extend(again);
        self.bad.sort_by_key(|bad| (bad.segment, bad.position));
    }

    /// Indexes that were built around damage lack its batches.
    fn rebuild_indexes(&mut self, base_offset: i64) -> io::Result<()> {
        let found = self.segments.binary_search_by_key(&base_offset, |segment| segment.base_offset);
        // Recovery may have truncated the log.
        let Ok(number) = found else { return Ok(()) };
        self.open_segment(number).map_err(|(error, _)| error)?;
        let (storage, interval) = (self.storage.clone(), self.config.index_interval_bytes);
        let segment = &mut self.segments[number];
        segment.rebuild(&*storage, &self.dir, interval, &self.bad)?;
        for file in segment.open_files() {
            file.sync_data()?;
        }
        tracing::info!(
            dir = &*self.dir,
            segment = base_offset,
            "the damaged batches of a segment are sound again: they are served"
        );
        Ok(())
    }

    /// Writes the snapshot of the producers at the end of the log, durably, before it removes those that were taken from `first` on.
    fn replace_snapshots(&mut self, first: i64) -> io::Result<()> {
        let end = self.end_offset();
        self.write_snapshot(end, true)?;
        self.storage.sync_dir(&self.dir)?;
        let is_stale = |offset: &i64| *offset > first && *offset != end;
        let (stale, kept): (Vec<i64>, Vec<i64>) = self.take_snapshots()?.into_iter().partition(is_stale);
        for offset in stale {
            self.remove_snapshot(offset)?;
        }
        self.snapshots = Some(kept);
        Ok(())
    }
}
