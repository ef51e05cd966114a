//! `ottla log skip`: lets readers of a stopped broker's partition pass a damaged range.

use std::path::Path;
use std::sync::Arc;

use ottla_log::storage::Storage;
use ottla_log::storage::fs::{FsStorage, lock};
use ottla_log::{BadRange, Log, LogConfig, ReadError, check_log};

use crate::data_dir::METADATA_FILE;
use crate::repair::{RepairError, refuse_other_formats};

/// The number of bytes that are read at a time in the search for damage.
const READ_BYTES: usize = 1 << 20;

/// Reads the partition in `dir` whole and returns its damaged ranges; with `accept_loss`, readers pass them from now
/// on: those that hold `offset`, or all. Without it no file is changed.
///
/// The broker must be stopped, with `accept_loss` cleanly: after a crash only a start of the broker distinguishes damage from a torn
/// write that no client has seen. The damaged bytes stay in the file.
///
/// # Errors
/// The directory is not a partition of a data directory, that has another format, a broker uses it, or its files cannot be read or
/// written.
pub fn skip_damage(
    dir: &Path,
    offset: Option<i64>,
    accept_loss: bool,
    now_ms: i64,
) -> Result<Vec<BadRange>, RepairError> {
    let io = |source| RepairError::Io { dir: dir.to_path_buf(), source };
    let full = dir.canonicalize().map_err(io)?;
    let (Some(root), Some(name)) = (full.parent(), full.file_name().and_then(|name| name.to_str())) else {
        return Err(RepairError::NotOurs { dir: full });
    };
    if !full.join(METADATA_FILE).exists() {
        return Err(RepairError::NotOurs { dir: full.clone() });
    }
    let _lock = lock(root)?;
    let storage: Arc<dyn Storage> = Arc::new(FsStorage::new(root).map_err(io)?);
    refuse_other_formats(&*storage, root)?;
    let is_meant =
        |bad: &BadRange| !bad.skipped && offset.is_none_or(|it| (bad.offset..bad.next_offset).contains(&it));
    let check = check_log(&storage, name)?;
    if !accept_loss {
        return Ok(check.damaged().into_iter().filter(is_meant).collect());
    }
    if !check.is_clean {
        return Err(RepairError::NotClosed { dir: full.clone() });
    }
    let (mut log, _) = Log::open_existing(storage, name, LogConfig::default(), now_ms, 0)?;
    find_damage(&mut log)
        .map_err(|error| RepairError::Io { dir: full.clone(), source: std::io::Error::other(error) })?;
    let meant: Vec<BadRange> = log.quarantined().iter().filter(|bad| is_meant(bad)).copied().collect();
    for bad in &meant {
        log.skip_damage(bad.offset)?;
    }
    log.close()?;
    Ok(meant)
}

/// Lets readers pass every damaged range of a log, and returns these.
pub(crate) fn skip_all(log: &mut Log) -> Result<Vec<BadRange>, RepairError> {
    find_damage(log)
        .map_err(|error| RepairError::Io { dir: log.dir().into(), source: std::io::Error::other(error) })?;
    let meant: Vec<BadRange> = log.quarantined().iter().filter(|bad| !bad.skipped).copied().collect();
    for bad in &meant {
        log.skip_damage(bad.offset)?;
    }
    Ok(meant)
}

/// Reads every batch, so that all damage is known.
fn find_damage(log: &mut Log) -> Result<(), ReadError> {
    let mut from = log.start_offset();
    while from < log.end_offset() {
        let next = match log.read(from, READ_BYTES, i64::MAX, true) {
            Ok(read) => {
                let bytes = read.chain.to_bytes().map_err(|source| ReadError::Io {
                    dir: log.dir().to_owned(),
                    offset: from,
                    source,
                })?;
                let batches = ottla_wire::Batches::new(&bytes).map_while(Result::ok);
                batches.last().map(|(header, _)| header.next_offset()).or(read.next_offset)
            }
            Err(ReadError::Corrupt { next, .. }) => Some(next),
            Err(error) => return Err(error),
        };
        // Never while reads keep their word: one batch at least, or where to go on.
        let Some(next) = next.filter(|next| *next > from) else { return Ok(()) };
        from = next;
    }
    Ok(())
}
