//! The producers of a log that is opened or truncated, and its transaction indexes: read from snapshots and from the
//! batches after them.

use std::io;

use ottla_wire::BatchHeader;

use crate::bad_range::BadRange;
use crate::log::Log;
use crate::marker::{Control, TransactionOutcome};
use crate::producer_map::ProducerSet;
use crate::producers::Producers;
use crate::scan::{Window, walk_batches};
use crate::segment_name::{SNAPSHOT_SUFFIX, file_name};
use crate::storage::{Storage, read_file};
use crate::txn_index::AbortedTransaction;

/// Maximum size of a snapshot of the producers, whose number is limited.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;

impl Log {
    /// Loads the producers from the newest sound snapshot and the batches after it.
    pub(crate) fn load_producers(&mut self, now_ms: i64) -> io::Result<()> {
        let (storage, end) = (self.storage.clone(), self.end_offset());
        // A snapshot from before the first segment lacks the batches that were deleted in between: with it the next batch of
        // a producer would be out of order.
        let start = self.segments[0].base_offset;
        let mut from = start;
        let mut producers = Producers::default();
        let mut removed = false;
        let mut known = self.take_snapshots()?;
        while let Some(offset) = known.last().copied() {
            let path = self.path(&file_name(offset, SNAPSHOT_SUFFIX));
            let read = if (start..=end).contains(&offset) { read_snapshot(&*storage, &path)? } else { None };
            if let Some(read) = read {
                (producers, from) = (read, offset);
                break;
            }
            self.remove_snapshot(offset)?;
            known.pop();
            removed = true;
        }
        self.snapshots = Some(known);
        if removed {
            // A stale snapshot that reappears after a crash would contain batches that are not in the log.
            storage.sync_dir(&self.dir)?;
        }
        let step_ms_max = self.config.producer_step_ms_max();
        producers.observe_clock(now_ms, step_ms_max);
        for number in self.segment_of(from)..self.segments.len() {
            replay(self, number, from, now_ms, &mut producers, |_| {})?;
        }
        producers.expire(now_ms, self.config.producer_expiration_ms, step_ms_max);
        self.producers = producers;
        self.producer_count.set(self.producers.len());
        self.verifications.clear();
        Ok(())
    }

    /// Collects the transaction indexes of these segments from the log, durably.
    pub(crate) fn rebuild_transaction_indexes(&mut self, segments: &[i64]) -> io::Result<()> {
        let Some(first) = segments.first() else { return Ok(()) };
        let last = segments.last().unwrap_or(first);
        let (storage, dir) = (self.storage.clone(), self.dir.clone());
        let (from, mut producers) = state_before(self, *first)?;
        for number in self.segment_of(from)..=self.segment_of(*last) {
            let mut entries = Vec::new();
            replay(self, number, from, 0, &mut producers, |entry| entries.push(entry))?;
            let segment = &mut self.segments[number];
            if !segments.contains(&segment.base_offset) {
                continue;
            }
            if let Some(file) = segment.aborted.replace(&*storage, &dir, segment.base_offset, &entries)? {
                file.sync_data()?;
            }
        }
        storage.sync_dir(&dir)
    }

    /// Collects the transaction indexes from the segment `first` on again, durably, and the state of these producers: both were made
    /// without batches that are there again. A transaction that begins in such a batch may end in a later segment. Other producers keep
    /// their state, because their batches may be deleted. After an error of a write, each index has its old entries or the new ones.
    pub(crate) fn replay_restored(
        &mut self,
        first: i64,
        restored: &ProducerSet,
        now_ms: i64,
    ) -> io::Result<()> {
        let (storage, dir) = (self.storage.clone(), self.dir.clone());
        let (from, mut producers) = state_before(self, first)?;
        for number in self.segment_of(from)..self.segments.len() {
            let mut entries = Vec::new();
            replay(self, number, from, now_ms, &mut producers, |entry| entries.push(entry))?;
            let segment = &mut self.segments[number];
            if segment.base_offset >= first {
                segment.aborted.replace_durably(&*storage, &dir, segment.base_offset, &entries)?;
            }
        }
        self.producers.take_from(producers, restored);
        self.producer_count.set(self.producers.len());
        storage.sync_dir(&dir)
    }

    /// Rebuilds the transaction indexes that are damaged, and those that are smaller than the snapshot of the producers says:
    /// a missing file is no index without entries. Compaction makes indexes smaller as well; then a rebuild changes nothing.
    pub(crate) fn repair_transaction_indexes(&mut self) -> io::Result<()> {
        let mut damaged = Vec::new();
        for segment in &self.segments {
            let known = self.producers.indexes.iter().find(|(base, _)| *base == segment.base_offset);
            let is_short = known.is_some_and(|(_, entries)| segment.aborted.len() < *entries);
            let offsets = segment.base_offset..segment.end_offset;
            if is_short || segment.aborted.load(&*self.storage, &self.dir, offsets)?.is_none() {
                tracing::warn!(
                    dir = &*self.dir,
                    segment = segment.base_offset,
                    "rebuilds a damaged transaction index"
                );
                damaged.push(segment.base_offset);
            }
        }
        self.rebuild_transaction_indexes(&damaged)
    }

    /// Calls `on_batch` for the batches of a segment from the one that holds `from` on.
    pub(crate) fn walk_segment(
        &mut self,
        number: usize,
        from: i64,
        on_batch: impl FnMut(&mut Window<'_>, &BatchHeader, u64) -> io::Result<()>,
    ) -> io::Result<()> {
        if from >= self.segments[number].end_offset {
            return Ok(());
        }
        self.open_segment(number).map_err(|(error, _)| error)?;
        let segment = &self.segments[number];
        let start = match segment.view(&self.bad).locate(from) {
            Ok(Some((position, _))) => position,
            _ => 0,
        };
        let bad: Vec<BadRange> =
            self.bad.iter().filter(|bad| bad.segment == segment.base_offset).copied().collect();
        let walked = walk_batches(&**segment.log(), start, segment.size, &bad, on_batch)?;
        if let Err(position) = walked {
            // The segment was sound when it was closed. Readers will find the damage and quarantine it.
            tracing::warn!(dir = &*self.dir, segment = segment.base_offset, position, "a segment is damaged");
        }
        Ok(())
    }
}

/// Returns the newest snapshot at or below `offset`, or no producers at the start of the log.
fn state_before(log: &mut Log, offset: i64) -> io::Result<(i64, Producers)> {
    let start = log.segments[0].base_offset;
    let known = log.take_snapshots()?;
    log.snapshots = Some(known.clone());
    for at in known.into_iter().rev().filter(|at| (start..=offset).contains(at)) {
        let path = log.path(&file_name(at, SNAPSHOT_SUFFIX));
        if let Some(read) = read_snapshot(&*log.storage, &path)? {
            return Ok((at, read));
        }
    }
    Ok((start, Producers::default()))
}

/// Books the batches of a segment from `from` on, and reports the transactions that they abort.
fn replay(
    log: &mut Log,
    number: usize,
    from: i64,
    now_ms: i64,
    producers: &mut Producers,
    mut on_abort: impl FnMut(AbortedTransaction),
) -> io::Result<()> {
    let max = log.config.producers_max;
    log.walk_segment(number, from, |window, header, position| {
        if header.base_offset < from || !header.has_producer_id() {
            return Ok(());
        }
        if !header.is_control() {
            producers.note(header, header.base_offset, now_ms, max);
            return Ok(());
        }
        // The batch is sound, and a control batch has no records of a kind that is not known: others change nothing.
        let batch = window.bytes(position, header.total_bytes())?;
        let control = Control::of_batch(header, batch).unwrap_or(Control::Other);
        producers.note(header, header.base_offset, now_ms, max);
        let Control::Marker { outcome, coordinator_epoch } = control else { return Ok(()) };
        let first = producers.end_transaction(header.producer_id, coordinator_epoch);
        if let Some(first) = first.filter(|_| outcome == TransactionOutcome::Abort) {
            on_abort(AbortedTransaction::ending(producers, header, first));
        }
        Ok(())
    })
}

fn read_snapshot(storage: &dyn Storage, path: &str) -> io::Result<Option<Producers>> {
    match read_file(storage, path, SNAPSHOT_BYTES_MAX) {
        Ok(bytes) => Ok(Producers::decode(&bytes)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
