//! Segments of an open log: starting one, opening an old one, and the snapshot of producers at their border.

use std::io;

use crate::error::LogError;
use crate::log::{Log, Unsynced};
use crate::scan::{LOOKUP_CHUNK_BYTES, Window};
use crate::segment::Segment;
use crate::segment_name::{LOG_SUFFIX, SNAPSHOT_SUFFIX, file_name, parse_name};
use crate::storage::{Open, replace_file_loosely};

/// Files of old segments that stay open for readers of the past.
const OLD_SEGMENTS_OPEN_MAX: usize = 4;
/// Snapshots of producers kept: the newest, and one more in case it is damaged.
const SNAPSHOTS_KEPT: usize = 2;

impl Log {
    /// Closes the active segment and starts another, unless it is empty.
    pub fn roll(&mut self, now_ms: i64) -> Result<(), LogError> {
        self.check_online()?;
        if self.active().size > 0 {
            self.roll_now(now_ms).map_err(|source| self.failed("start a segment", source))?;
        }
        Ok(())
    }

    /// Opens the files of a segment, and closes those of another when too many are open. An error names the segment's
    /// file.
    pub(crate) fn open_segment(&mut self, number: usize) -> Result<(), (io::Error, String)> {
        let last = self.segments.len() - 1;
        self.uses += 1;
        let (storage, interval) = (self.storage.clone(), self.config.index_interval_bytes);
        let segment = &mut self.segments[number];
        segment.used = self.uses;
        let fresh = !segment.is_open();
        let opened = segment.open(&*storage, &self.dir, interval, &self.bad).and_then(|_| {
            let is_active = number == last;
            // Its next entry would hide that the earlier ones are lost.
            if is_active {
                segment.confirm_largest(&*storage, &self.dir, interval, &self.bad)?;
            }
            // The next append does not open it again.
            if is_active && fresh { read_first_timestamp(segment) } else { Ok(()) }
        });
        opened.map_err(|error| (error, file_name(segment.base_offset, LOG_SUFFIX)))?;
        if fresh {
            self.close_idlest();
        }
        Ok(())
    }

    /// Looks at the batch that the last entry of a segment's time index names, unless that was done: see
    /// [`Segment::confirm_last_time`]. An error names the segment's file.
    pub(crate) fn confirm_last_time(&mut self, number: usize) -> Result<(), (io::Error, String)> {
        if !self.segments[number].is_largest_unconfirmed() {
            return Ok(());
        }
        self.open_segment(number)?;
        let (storage, interval) = (self.storage.clone(), self.config.index_interval_bytes);
        let segment = &mut self.segments[number];
        let confirmed = segment.confirm_last_time(&*storage, &self.dir, interval, &self.bad);
        confirmed.map_err(|error| (error, file_name(segment.base_offset, LOG_SUFFIX)))
    }

    /// Opens the files of the active segment, unless they are open.
    #[inline]
    pub(crate) fn open_active(&mut self) -> io::Result<()> {
        if self.active().is_open() { Ok(()) } else { self.reopen_active() }
    }

    #[cold]
    fn reopen_active(&mut self) -> io::Result<()> {
        let last = self.segments.len() - 1;
        let interval = self.config.index_interval_bytes;
        let segment = &mut self.segments[last];
        segment.open(&*self.storage, &self.dir, interval, &self.bad)?;
        segment.confirm_largest(&*self.storage, &self.dir, interval, &self.bad)?;
        read_first_timestamp(segment)
    }

    /// Returns `true` if the next append needs to open no file.
    #[inline]
    pub fn has_open_files(&self) -> bool {
        self.active().is_open()
    }

    /// Closes all files until they are needed: a log that is not used has none open. With `even_unsynced` also those of
    /// appends that were not synced. Returns `true` if there were files to close.
    pub fn close_idle_files(&mut self, even_unsynced: bool) -> bool {
        let is_synced = self.sync.synced_offset >= self.end_offset() && self.sync.older.is_empty();
        if !(is_synced || even_unsynced) || !self.segments.iter().any(Segment::is_open) {
            return false;
        }
        self.pause_files();
        true
    }

    pub(crate) fn pause_files(&mut self) {
        if let Some((active, old)) = self.segments.split_last_mut() {
            active.pause();
            old.iter_mut().for_each(Segment::close);
        }
        if let Some(note) = &self.sync.note {
            note.pause();
        }
    }

    /// The time by which the active segment is closed earlier than after `segment.ms`. As in Kafka, a change of the settings is for later
    /// segments.
    #[inline]
    pub(crate) fn roll_jitter_ms(&mut self) -> i64 {
        match self.active().roll_jitter_ms {
            Some(drawn) => drawn,
            None => self.draw_roll_jitter(),
        }
    }

    /// Draws the jitter of a segment that was not created by [`Log::roll_now`].
    #[cold]
    fn draw_roll_jitter(&mut self) -> i64 {
        let drawn = self.config.random_segment_jitter(&self.dir, self.active().base_offset);
        self.active_mut().roll_jitter_ms = Some(drawn);
        drawn
    }

    /// Starts a segment at the end of the log. After an error the log is as before.
    pub(crate) fn roll_now(&mut self, now_ms: i64) -> io::Result<()> {
        let storage = self.storage.clone();
        let end = self.end_offset();
        self.open_active()?;
        self.drop_clean_mark(false)?;
        let old = self.active();
        let aborted = old.aborted.finish(&*storage, &self.dir, old.base_offset)?;
        let mut next = Segment::create(&*storage, &self.dir, end, now_ms)?;
        next.roll_jitter_ms = Some(self.config.random_segment_jitter(&self.dir, end));
        self.sync.dir_changes += 1;
        let uses = self.uses;
        let dir = self.dir.clone();
        let old = self.active_mut();
        old.used = uses;
        let base_offset = old.base_offset;
        if let Err(error) = old.finish(&*storage) {
            // Without its last entry the time index would lie; without the file it is rebuilt.
            tracing::warn!(dir = &*dir, segment = base_offset, %error, "cannot finish the time index");
            let _ = storage.remove(&Segment::paths(&dir, base_offset)[2]);
            old.close_indexes();
        }
        let mut files = old.open_files();
        files.extend(aborted);
        let change = self.sync.dir_changes;
        let unsynced = |file| Unsynced { segment: base_offset, change, file };
        self.sync.older.extend(files.into_iter().map(unsynced));
        self.segments.push(next);
        self.close_idlest();
        if let Some(note) = &self.sync.note {
            note.set_due();
        }
        self.expire_producers(now_ms);
        if let Err(error) = self.write_snapshot(end, false) {
            // An older snapshot and the batches since say the same.
            tracing::warn!(dir = &*self.dir, %error, "cannot write a snapshot of the producers");
        }
        Ok(())
    }

    /// Writes the producers as they are at `end`, and removes snapshots that are no longer needed.
    pub(crate) fn write_snapshot(&mut self, end: i64, durably: bool) -> io::Result<()> {
        let name = file_name(end, SNAPSHOT_SUFFIX);
        let indexed = self.segments.iter().filter(|segment| !segment.aborted.is_empty());
        self.producers.indexes =
            indexed.map(|segment| (segment.base_offset, segment.aborted.len())).collect();
        let mut kept = self.take_snapshots()?;
        if kept.contains(&end) {
            // A log without batches has its producers in this file alone: it stays whole if the process is killed, or if the disk is full.
            // If a power cut brings the old one back, it has the same producers with other ages.
            replace_file_loosely(&*self.storage, &self.path(&name), &self.producers.encode())?;
        } else {
            let file = self.storage.open(&self.path(&name), Open::Empty)?;
            file.write_at(&self.producers.encode(), 0)?;
            if durably {
                file.sync_data()?;
            }
        }
        kept.retain(|offset| *offset != end);
        while kept.len() >= SNAPSHOTS_KEPT {
            self.remove_snapshot(kept.remove(0))?;
        }
        kept.push(end);
        self.snapshots = Some(kept);
        Ok(())
    }

    /// Removes the snapshots of producers behind the end of the log.
    pub(crate) fn remove_snapshots_above(&mut self, end: i64) -> io::Result<()> {
        let mut kept = self.take_snapshots()?;
        while let Some(offset) = kept.pop_if(|offset| *offset > end) {
            self.remove_snapshot(offset)?;
        }
        self.snapshots = Some(kept);
        Ok(())
    }

    /// Takes the offsets of the snapshots on disk, rising. They are listed only if they are not known: the names of thousands of
    /// segments take long. The caller puts them back once it has made its changes.
    pub(crate) fn take_snapshots(&mut self) -> io::Result<Vec<i64>> {
        if let Some(known) = self.snapshots.take() {
            return Ok(known);
        }
        let mut offsets: Vec<i64> = self
            .storage
            .list(&self.dir)?
            .iter()
            .filter_map(|entry| parse_name(&entry.name))
            .filter(|(_, suffix)| *suffix == SNAPSHOT_SUFFIX)
            .map(|(offset, _)| offset)
            .collect();
        offsets.sort_unstable();
        Ok(offsets)
    }

    /// Removes the file of a snapshot; a missing one is no error.
    pub(crate) fn remove_snapshot(&self, offset: i64) -> io::Result<()> {
        match self.storage.remove(&self.path(&file_name(offset, SNAPSHOT_SUFFIX))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Closes the files of the old segment that was not used for longest, if too many are open.
    fn close_idlest(&mut self) {
        let Some((_, old)) = self.segments.split_last_mut() else { return };
        let open = old.iter().filter(|segment| segment.is_open()).count();
        if open > OLD_SEGMENTS_OPEN_MAX
            && let Some(idle) = old.iter_mut().filter(|s| s.is_open()).min_by_key(|s| s.used)
        {
            idle.close();
        }
    }
}

fn read_first_timestamp(segment: &mut Segment) -> io::Result<()> {
    if segment.first_timestamp.is_none() && segment.size > 0 {
        let log = segment.log().clone();
        if let Ok(header) = Window::new(&*log, segment.size, LOOKUP_CHUNK_BYTES).header(0)? {
            segment.first_timestamp = (header.max_timestamp >= 0).then_some(header.max_timestamp);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ottla_wire::{BatchBuilder, Seal};

    use super::*;
    use crate::append_options::AppendOptions;
    use crate::config::LogConfig;
    use crate::storage::mem::{Fault, MemStorage, OpKind};

    fn append_and_roll(log: &mut Log, sequence: i32) {
        let mut builder = BatchBuilder::new();
        builder.push(0, None, Some(b"value"), &[]);
        let seal = Seal { producer_id: 7, producer_epoch: 0, base_sequence: sequence, ..Seal::default() };
        let bytes = builder.seal(&seal).expect("sealed").to_bytes();
        log.append(0, bytes[..].into(), AppendOptions::default()).expect("appended");
        log.roll(0).expect("rolled");
    }

    fn snapshots_of(disk: &MemStorage) -> usize {
        disk.paths().iter().filter(|path| path.ends_with(SNAPSHOT_SUFFIX)).count()
    }

    /// Each segment that was started listed the directory of the partition, in the thread that serves clients.
    #[test]
    fn a_new_segment_does_not_list_the_directory() {
        let disk = MemStorage::new();
        let opened = Log::open(Arc::new(disk.clone()), "orders-0", LogConfig::default(), 0);
        let (mut log, _) = opened.expect("opened");
        let lists = Arc::new(AtomicUsize::new(0));
        let seen = lists.clone();
        disk.inject(move |op| {
            if op.kind == OpKind::Read && op.path == "orders-0" {
                seen.fetch_add(1, Ordering::Relaxed);
            }
            None
        });
        for sequence in 0..100 {
            append_and_roll(&mut log, sequence);
        }
        assert_eq!((lists.load(Ordering::Relaxed), snapshots_of(&disk)), (0, SNAPSHOTS_KEPT));
        log.truncate_to(50, 0).expect("truncated");
        append_and_roll(&mut log, 50);
        assert_eq!((lists.load(Ordering::Relaxed), snapshots_of(&disk)), (0, 1));
        assert_eq!(log.producers()[0].last_sequence, 50);
    }

    #[test]
    fn snapshots_are_listed_again_after_an_error() {
        let disk = MemStorage::new();
        let opened = Log::open(Arc::new(disk.clone()), "orders-0", LogConfig::default(), 0);
        let (mut log, _) = opened.expect("opened");
        for sequence in 0..4 {
            append_and_roll(&mut log, sequence);
        }
        disk.inject(|op| {
            let is_write = op.kind == OpKind::Write && op.path.ends_with(SNAPSHOT_SUFFIX);
            is_write.then_some(Fault::NoSpace)
        });
        append_and_roll(&mut log, 4);
        assert_eq!(snapshots_of(&disk), SNAPSHOTS_KEPT + 1, "an empty one");
        disk.heal();
        append_and_roll(&mut log, 5);
        assert_eq!(snapshots_of(&disk), SNAPSHOTS_KEPT);
    }

    /// The files of segments stayed open after the next one was started: as many as the partition had segments since its start.
    #[test]
    fn few_old_segments_stay_open() {
        let opened = Log::open(Arc::new(MemStorage::new()), "orders-0", LogConfig::default(), 0);
        let (mut log, _) = opened.expect("opened");
        for sequence in 0..20 {
            append_and_roll(&mut log, sequence);
            let open = log.segments.iter().filter(|segment| segment.is_open()).count();
            assert!(open <= OLD_SEGMENTS_OPEN_MAX + 1, "{open} segments are open");
        }
    }
}
