//! The cleaned segments of a group: batches in their order, and an empty batch over each run of removed ones.
//!
//! No checksum covers the base offset of a batch. The log finds a changed one because batches have no gaps between their
//! offsets. An empty batch over removed ones keeps that true, costs 61 bytes, and has the leader epoch of the removed
//! batches, so that the epochs can be read from a compacted log as from any other.

use std::io;
use std::sync::Arc;

use ottla_wire::BatchHeader;

use super::replace::remove_if_there;
use crate::gap::empty_batch;
use crate::index::IndexEntry;
use crate::scan::SCAN_CHUNK_BYTES;
use crate::segment::{IndexBuilder, Largest};
use crate::segment_name::file_name;
use crate::storage::{File, Open, Storage};
use crate::swap::{INDEX_CLEANED, LOG_CLEANED, TIME_INDEX_CLEANED};
use crate::txn_index::TxnIndex;

/// A write to the cleaned file.
const WRITE_BYTES: usize = 1 << 20;

/// Writes the cleaned segments of one group.
#[derive(Debug)]
pub(crate) struct Output {
    storage: Arc<dyn Storage>,
    dir: Arc<str>,
    index_interval: u32,
    /// A segment that would grow beyond this is followed by another.
    segment_bytes_max: u64,
    current: Current,
    done: Vec<CleanedSegment>,
    gap: Option<Gap>,
    /// When the newest source was written. It is the age of records without timestamps, which compaction does not change.
    modified_ms: Option<i64>,
    /// The source that was not changed so far: its bytes are not written again.
    unchanged: Option<Arc<dyn File>>,
    /// The files belong to nothing yet.
    is_pending: bool,
}

impl Drop for Output {
    /// Removes the files of a group that was not completed, as on a full disk: they would keep it full.
    fn drop(&mut self) {
        if !self.is_pending || self.unchanged.is_some() {
            return;
        }
        let bases = self.done.iter().map(|segment| segment.base_offset).chain([self.current.base_offset]);
        for base_offset in bases {
            for suffix in [LOG_CLEANED, INDEX_CLEANED, TIME_INDEX_CLEANED] {
                let path = format!("{}/{}", self.dir, file_name(base_offset, suffix));
                remove_if_there(&*self.storage, &path);
            }
        }
    }
}

#[derive(Debug)]
struct Current {
    base_offset: i64,
    next_offset: i64,
    /// The file, once there is one.
    file: Option<Arc<dyn File>>,
    buffer: Vec<u8>,
    /// Bytes of the segment, with those in the buffer.
    position: u64,
    built: IndexBuilder,
}

/// Offsets whose batches were removed.
#[derive(Clone, Copy, Debug)]
struct Gap {
    base_offset: i64,
    next_offset: i64,
    epoch: i32,
    /// It is one empty batch of the source.
    is_of_source: bool,
}

/// A segment that is complete and durable under its `.cleaned` names.
#[derive(Debug)]
pub(crate) struct CleanedSegment {
    pub(crate) base_offset: i64,
    pub(crate) end_offset: i64,
    pub(crate) size: u64,
    pub(crate) largest: Largest,
    pub(crate) first_timestamp: Option<i64>,
    /// Its transaction index, if a replaced segment has one.
    pub(crate) aborted: Option<TxnIndex>,
}

impl Output {
    /// Begins at `base_offset`. A group of one source is written from its first change on.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        dir: Arc<str>,
        base_offset: i64,
        index_interval: u32,
        segment_bytes_max: u64,
        modified_ms: Option<i64>,
        only_source: Option<Arc<dyn File>>,
    ) -> Self {
        Self {
            storage,
            dir,
            index_interval,
            segment_bytes_max,
            current: Current::new(base_offset, index_interval),
            done: Vec::new(),
            gap: None,
            modified_ms,
            unchanged: only_source,
            is_pending: true,
        }
    }

    /// Adds a batch that stays as it is.
    #[inline]
    pub(crate) fn keep(&mut self, header: &BatchHeader, batch: &[u8]) -> io::Result<()> {
        self.add(header, batch)
    }

    /// Adds a rewritten batch.
    pub(crate) fn rewritten(&mut self, header: &BatchHeader, batch: &[u8]) -> io::Result<()> {
        self.flush_gap()?;
        self.change()?;
        self.add(header, batch)
    }

    /// Notes the offsets of a removed batch.
    pub(crate) fn remove(&mut self, header: &BatchHeader) -> io::Result<()> {
        let epoch = header.partition_leader_epoch;
        let is_ours = header.record_count == 0
            && empty_batch(header.base_offset, header.next_offset(), epoch).0 == *header;
        self.gap_to(header.next_offset(), epoch, is_ours)
    }

    /// Notes that the source has no batch up to `next_offset`.
    pub(crate) fn gap_to(&mut self, next_offset: i64, epoch: i32, is_of_source: bool) -> io::Result<()> {
        let at = self.next_offset();
        if next_offset <= at {
            return Ok(());
        }
        match &mut self.gap {
            Some(gap) if gap.epoch == epoch && i32::try_from(next_offset - 1 - gap.base_offset).is_ok() => {
                gap.next_offset = next_offset;
                gap.is_of_source = false;
            }
            _ => {
                self.flush_gap()?;
                self.gap = Some(Gap { base_offset: at, next_offset, epoch, is_of_source });
            }
        }
        Ok(())
    }

    /// The offset after what was added and removed so far.
    pub(crate) fn next_offset(&self) -> i64 {
        self.gap.map_or(self.current.next_offset, |gap| gap.next_offset)
    }

    /// Completes the group and makes it durable. `None` if nothing has changed.
    pub(crate) fn finish(mut self) -> io::Result<Option<Vec<CleanedSegment>>> {
        self.flush_gap()?;
        if self.unchanged.is_some() {
            return Ok(None);
        }
        self.end_segment()?;
        self.storage.sync_dir(&self.dir)?;
        self.is_pending = false;
        Ok(Some(std::mem::take(&mut self.done)))
    }

    fn flush_gap(&mut self) -> io::Result<()> {
        let Some(gap) = self.gap.take() else { return Ok(()) };
        if !gap.is_of_source {
            self.change()?;
        }
        let (header, bytes) = empty_batch(gap.base_offset, gap.next_offset, gap.epoch);
        self.add_bytes(&header, &bytes)
    }

    fn add(&mut self, header: &BatchHeader, batch: &[u8]) -> io::Result<()> {
        self.flush_gap()?;
        self.add_bytes(header, batch)
    }

    fn add_bytes(&mut self, header: &BatchHeader, batch: &[u8]) -> io::Result<()> {
        let at = self.current.next_offset;
        assert_eq!(header.base_offset, at, "the offsets of a cleaned segment are contiguous");
        let is_too_large = self.current.position + batch.len() as u64 > self.segment_bytes_max;
        let is_too_far = i32::try_from(header.last_offset() - self.current.base_offset).is_err();
        if (is_too_large || is_too_far) && self.current.position > 0 {
            self.change()?;
            self.end_segment()?;
            self.current = Current::new(at, self.index_interval);
        }
        let current = &mut self.current;
        current.built.note(header, current.position);
        current.position += batch.len() as u64;
        current.next_offset = header.next_offset();
        if self.unchanged.is_some() {
            return Ok(());
        }
        current.buffer.extend_from_slice(batch);
        if current.buffer.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    /// The output differs from its source from here on: copies the bytes before.
    fn change(&mut self) -> io::Result<()> {
        let Some(source) = self.unchanged.take() else { return Ok(()) };
        let end = self.current.position;
        let mut at = 0;
        while at < end {
            let len = (end - at).min(SCAN_CHUNK_BYTES as u64) as usize;
            let from = self.current.buffer.len();
            self.current.buffer.resize(from + len, 0);
            source.read_exact_at(&mut self.current.buffer[from..], at)?;
            at += len as u64;
            // The file is as long as what it has: the position counts what is in the buffer, too.
            self.current.position = at;
            self.write()?;
        }
        self.current.position = end;
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        let current = &mut self.current;
        let file = if let Some(file) = &current.file {
            file.clone()
        } else {
            let path = format!("{}/{}", self.dir, file_name(current.base_offset, LOG_CLEANED));
            current.file.insert(self.storage.open(&path, Open::Empty)?).clone()
        };
        let at = current.position - current.buffer.len() as u64;
        file.write_at(&current.buffer, at)?;
        current.buffer.clear();
        Ok(())
    }

    /// Completes the files of a segment.
    fn end_segment(&mut self) -> io::Result<()> {
        self.write()?;
        let current = &mut self.current;
        current.built.finish();
        let base_offset = current.base_offset;
        let file = current.file.take().expect("written above");
        if let Some(modified_ms) = self.modified_ms {
            let path = format!("{}/{}", self.dir, file_name(base_offset, LOG_CLEANED));
            if let Err(error) = self.storage.set_modified_ms(&path, modified_ms) {
                tracing::warn!(%path, %error, "cannot set the time of a cleaned segment");
            }
        }
        file.sync_data()?;
        write_index(&*self.storage, &self.dir, base_offset, INDEX_CLEANED, &current.built.offsets)?;
        write_index(&*self.storage, &self.dir, base_offset, TIME_INDEX_CLEANED, &current.built.times)?;
        self.done.push(CleanedSegment {
            base_offset,
            end_offset: current.next_offset,
            size: current.position,
            largest: current.built.largest,
            first_timestamp: current.built.first_timestamp,
            aborted: None,
        });
        Ok(())
    }
}

impl Current {
    fn new(base_offset: i64, index_interval: u32) -> Self {
        Self {
            base_offset,
            next_offset: base_offset,
            file: None,
            buffer: Vec::with_capacity(WRITE_BYTES + WRITE_BYTES / 4),
            position: 0,
            built: IndexBuilder::new(base_offset, index_interval),
        }
    }
}

/// Writes an index durably; a small segment has no entries and no file.
fn write_index<E: IndexEntry>(
    storage: &dyn Storage,
    dir: &str,
    base_offset: i64,
    suffix: &str,
    entries: &[E],
) -> io::Result<()> {
    let path = format!("{dir}/{}", file_name(base_offset, suffix));
    let mut bytes = vec![0; entries.len() * E::BYTES];
    for (entry, out) in entries.iter().zip(bytes.chunks_exact_mut(E::BYTES)) {
        entry.encode(out);
    }
    let file = storage.open(&path, Open::Empty)?;
    file.write_at(&bytes, 0)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::mem::MemStorage;

    #[test]
    fn a_group_that_is_not_completed_leaves_no_files() {
        let storage = MemStorage::new();
        storage.create_dir("orders-0").expect("made");
        let mut output = Output::new(Arc::new(storage.clone()), "orders-0".into(), 0, 4096, 100, None, None);
        for offset in 0..4 {
            let (header, bytes) = empty_batch(offset, offset + 1, 0);
            output.keep(&header, &bytes).expect("written");
        }
        output.write().expect("written");
        assert!(storage.paths().len() > 3, "segments and their indexes: {:?}", storage.paths());
        drop(output);
        assert!(storage.paths().is_empty(), "{:?}", storage.paths());
    }
}
