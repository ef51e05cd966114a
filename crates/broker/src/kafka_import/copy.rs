//! Copies the log of a partition: every batch with its bytes, and an empty batch in each gap that compaction has left.

use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use ottla_log::storage::{File, Open, Storage};
use ottla_log::{Log, LogConfig, empty_batch};
use ottla_protocol::Uuid;
use ottla_wire::batch::BatchHeader;

use super::error::{ImportError, io_failed};
use super::segments::{Segment, offset_of, segments_of, walk};
use super::source::SourcePartition;
use crate::data_dir;

/// The bytes that are written at a time.
const WRITE_BYTES: usize = 1 << 20;
const EPOCHS_FILE: &str = "leader-epoch-checkpoint";
const SNAPSHOT_SUFFIX: &str = ".snapshot";

/// Copies a partition into the directory `dir` of the storage, and makes it durable. `on_bytes` receives the number of bytes read.
pub(super) fn copy_partition(
    from: &SourcePartition,
    storage: &Arc<dyn Storage>,
    dir: &str,
    topic_id: Uuid,
    config: LogConfig,
    now_ms: i64,
    on_bytes: &mut dyn FnMut(u64),
) -> Result<(), ImportError> {
    let target = storage.root().map(|root| root.join(dir)).unwrap_or_default();
    let failed = |source| io_failed(&target, source);
    storage.create_dir(dir).map_err(failed)?;
    data_dir::write_metadata(&**storage, dir, topic_id)?;
    let segments = segments_of(&from.path)?;
    let mut end = segments.first().map_or(from.start_offset, |segment| segment.base_offset);
    let mut epoch = None;
    for (number, segment) in segments.iter().enumerate() {
        let next_base = segments.get(number + 1).map(|next| next.base_offset);
        let name = format!("{dir}/{:020}.log", segment.base_offset);
        let file = storage.open(&name, Open::Empty).map_err(failed)?;
        let mut writer = Writer { file, buffer: Vec::new(), position: 0 };
        copy_segment(segment, next_base, &mut writer, &mut end, &mut epoch, on_bytes)?;
        writer.flush().map_err(failed)?;
        // The age of records without timestamps.
        if let Some(modified_ms) = modified_ms(&segment.path)? {
            storage.set_modified_ms(&name, modified_ms).map_err(failed)?;
        }
    }
    copy_small_files(from, &**storage, dir, end)?;
    // Opening checks every batch again, collects the indexes, and makes the files durable.
    let (mut log, _) = Log::open(storage.clone(), dir, config, now_ms)?;
    if log.end_offset() != end {
        let reason = format!("the copy ends at offset {}, the original at {end}", log.end_offset());
        return Err(ImportError::Source { dir: from.path.clone(), reason });
    }
    if from.start_offset > log.start_offset() {
        log.delete_records_before(from.start_offset.min(end))?;
    }
    Ok(log.close()?)
}

/// Returns when a file was last written, in milliseconds since 1970.
fn modified_ms(path: &Path) -> Result<Option<i64>, ImportError> {
    let modified = std::fs::metadata(path).and_then(|metadata| metadata.modified());
    let modified = modified.map_err(|source| io_failed(path, source))?;
    let since_1970 = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(i64::try_from(since_1970.as_millis()).ok())
}

struct Writer {
    file: Arc<dyn File>,
    buffer: Vec<u8>,
    position: u64,
}

impl Writer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= WRITE_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.file.write_at(&self.buffer, self.position)?;
        self.position += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// Copies the batches of a segment. `end` is the offset behind the last batch, `epoch` that batch's leader epoch.
fn copy_segment(
    segment: &Segment,
    next_base: Option<i64>,
    writer: &mut Writer,
    end: &mut i64,
    epoch: &mut Option<i32>,
    on_bytes: &mut dyn FnMut(u64),
) -> Result<(), ImportError> {
    let refuse = |reason: String| ImportError::Source { dir: segment.path.clone(), reason };
    let failed = |source| io_failed(&segment.path, source);
    let fill = |writer: &mut Writer, from: i64, to: i64, epoch: i32| {
        // The last offset of a segment is at most 31 bits above its base.
        if i32::try_from(to - 1 - segment.base_offset).is_err() {
            return Err(refuse(format!(
                "no record from offset {from} to {to}: such a gap cannot be imported"
            )));
        }
        writer.write(&empty_batch(from, to, epoch).1).map_err(failed)
    };
    walk(&segment.path, segment.bytes, &mut |header: &BatchHeader, batch| {
        let base_offset = header.base_offset;
        if base_offset < *end || next_base.is_some_and(|next| header.last_offset() >= next) {
            return Err(refuse(format!(
                "the batch at offset {base_offset} overlaps others: offset {end} follows"
            )));
        }
        if base_offset > *end {
            fill(writer, *end, base_offset, epoch.unwrap_or(header.partition_leader_epoch))?;
        }
        writer.write(batch).map_err(failed)?;
        (*end, *epoch) = (header.next_offset(), Some(header.partition_leader_epoch));
        on_bytes(batch.len() as u64);
        Ok(())
    })?;
    if let Some(next) = next_base.filter(|next| next > end) {
        fill(writer, *end, next, epoch.unwrap_or(0))?;
        *end = next;
    }
    Ok(())
}

/// Copies the leader epochs and the snapshots of producers. Opening the log checks them, and drops those that are not sound.
fn copy_small_files(
    from: &SourcePartition,
    storage: &dyn Storage,
    dir: &str,
    end: i64,
) -> Result<(), ImportError> {
    for entry in std::fs::read_dir(&from.path).map_err(|source| io_failed(&from.path, source))? {
        let entry = entry.map_err(|source| io_failed(&from.path, source))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_snapshot = offset_of(&name, SNAPSHOT_SUFFIX).is_some_and(|offset| offset <= end);
        if name != EPOCHS_FILE && !is_snapshot {
            continue;
        }
        let path = entry.path();
        let bytes = std::fs::read(&path).map_err(|source| io_failed(&path, source))?;
        let written = storage.open(&format!("{dir}/{name}"), Open::Empty).and_then(|file| {
            file.write_at(&bytes, 0)?;
            file.sync_data()
        });
        written.map_err(|source| io_failed(&path, source))?;
    }
    Ok(())
}
