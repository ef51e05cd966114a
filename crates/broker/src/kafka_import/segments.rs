//! The segments of a log that Apache Kafka has written: every batch is checked, and nothing is changed.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use ottla_wire::batch::{BatchHeader, HEADER_BYTES};

use super::error::{ImportError, io_failed};

/// The part of a segment that is read at a time.
const READ_BYTES: usize = 1 << 20;
/// The position of the format's number in a batch.
const MAGIC_AT: usize = 16;
/// The first format with checksums over whole batches.
const MAGIC_MIN: u8 = 2;
const NAME_DIGITS: usize = 20;

/// One `.log` file.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) base_offset: i64,
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// The segments of a directory, in the order of their offsets.
pub(super) fn segments_of(dir: &Path) -> Result<Vec<Segment>, ImportError> {
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(|source| io_failed(dir, source))? {
        let entry = entry.map_err(|source| io_failed(dir, source))?;
        let name = entry.file_name();
        let Some(base_offset) = name.to_str().and_then(|name| offset_of(name, ".log")) else { continue };
        let path = entry.path();
        let bytes = entry.metadata().map_err(|source| io_failed(&path, source))?.len();
        segments.push(Segment { base_offset, path, bytes });
    }
    segments.sort_unstable_by_key(|segment| segment.base_offset);
    Ok(segments)
}

/// The offset in the name of a file with this suffix.
pub(super) fn offset_of(name: &str, suffix: &str) -> Option<i64> {
    let digits = name.strip_suffix(suffix)?;
    let is_offset = digits.len() == NAME_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_offset.then(|| digits.parse().ok())?
}

/// Receives a batch with its header.
pub(super) type OnBatch<'a> = dyn FnMut(&BatchHeader, &[u8]) -> Result<(), ImportError> + 'a;

/// Passes every batch of a file to `on_batch`, with its header, after a check of its checksum.
pub(super) fn walk(path: &Path, bytes: u64, on_batch: &mut OnBatch<'_>) -> Result<(), ImportError> {
    let file = File::open(path).map_err(|source| io_failed(path, source))?;
    let mut reader = BufReader::with_capacity(READ_BYTES, file);
    let mut batch = Vec::new();
    let mut position = 0;
    while position < bytes {
        let left = bytes - position;
        let damaged = |what: String| ImportError::Damaged { path: path.to_path_buf(), position, what };
        batch.resize(HEADER_BYTES.min(usize::try_from(left).unwrap_or(HEADER_BYTES)), 0);
        reader.read_exact(&mut batch).map_err(|source| io_failed(path, source))?;
        if let Some(magic) = batch.get(MAGIC_AT).copied().filter(|magic| *magic < MAGIC_MIN) {
            return Err(ImportError::OldFormat { path: path.to_path_buf(), position, magic });
        }
        let header = BatchHeader::parse(&batch).map_err(|error| damaged(error.to_string()))?;
        let total = header.total_bytes();
        if total as u64 > left {
            return Err(damaged(format!("a batch of {total} bytes, {left} are left in the file")));
        }
        batch.resize(total, 0);
        reader.read_exact(&mut batch[HEADER_BYTES..]).map_err(|source| io_failed(path, source))?;
        header.verify_crc(&batch).map_err(|error| damaged(error.to_string()))?;
        on_batch(&header, &batch)?;
        position += total as u64;
    }
    Ok(())
}
