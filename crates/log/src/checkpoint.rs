//! The small files in addition to the segments. Each has a version and a checksum. A damaged file counts as missing.
//!
//! ```text
//! version i16 | crc32c u32 of what follows | body
//! ```

use std::io;

use crate::bad_range::BadRange;
use crate::storage::{Open, Storage, read_file, replace_file};

/// Records below this offset are deleted. Only the loss of this file has an effect, so it is replaced durably.
pub(crate) const START_OFFSET: &str = "log-start-offset";
/// All records below this offset are on disk. Recovery starts at its segment.
pub(crate) const RECOVERY_POINT: &str = "recovery-point";
/// All records below this offset were on disk: see [`crate::synced`].
pub(crate) const SYNCED: &str = "synced";
/// The mark of a clean close, after which nothing needs to be scanned.
pub(crate) const CLEAN_SHUTDOWN: &str = "clean-shutdown";
/// The mark of a failed sync. The kernel may hold bytes that it could not write and will not write again, so the next
/// opening reads them and writes them again. A power cut removes both this file and those bytes.
pub(crate) const SYNC_FAILED: &str = "sync-failed";
/// The damaged ranges that recovery found.
pub(crate) const QUARANTINE: &str = "quarantine";

/// The names of all files in this module.
pub(crate) const ALL: [&str; 6] =
    [START_OFFSET, RECOVERY_POINT, SYNCED, CLEAN_SHUTDOWN, SYNC_FAILED, QUARANTINE];

const VERSION: i16 = 1;
const HEAD_BYTES: usize = 6;
/// Maximum size of a file: a quarantine of thousands of ranges is smaller.
const BYTES_MAX: u64 = 1 << 20;

/// The content of a checkpoint file.
pub(crate) enum Checkpoint {
    /// The file is missing or damaged.
    Unknown,
    /// The body.
    Body(Vec<u8>),
    /// A later version of this program wrote the file.
    Newer(i16),
}

pub(crate) fn load(storage: &dyn Storage, dir: &str, name: &str) -> io::Result<Checkpoint> {
    let bytes = match read_file(storage, &format!("{dir}/{name}"), BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
            ) =>
        {
            return Ok(Checkpoint::Unknown);
        }
        Err(error) => return Err(error),
    };
    let Some((head, body)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(Checkpoint::Unknown) };
    let version = i16::from_be_bytes([head[0], head[1]]);
    if u32::from_be_bytes([head[2], head[3], head[4], head[5]]) != ottla_wire::crc::crc32c(body) {
        return Ok(Checkpoint::Unknown);
    }
    Ok(if version > VERSION { Checkpoint::Newer(version) } else { Checkpoint::Body(body.to_vec()) })
}

/// The newest version that [`load`] can read.
pub(crate) const fn version() -> i16 {
    VERSION
}

fn encode(body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
    bytes.extend(VERSION.to_be_bytes());
    bytes.extend(ottla_wire::crc::crc32c(body).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// Replaces a checkpoint; durable when this returns.
pub(crate) fn store(storage: &dyn Storage, dir: &str, name: &str, body: &[u8]) -> io::Result<()> {
    replace_file(storage, dir, name, &encode(body))
}

/// Overwrites a checkpoint in place without a sync, for files whose loss only costs time.
pub(crate) fn store_loosely(storage: &dyn Storage, dir: &str, name: &str, body: &[u8]) -> io::Result<()> {
    storage.open(&format!("{dir}/{name}"), Open::Create)?.write_at(&encode(body), 0)
}

/// The contents of the mark of a clean close: base offset and size of each segment, then the end offset. Version 1 of
/// this program wrote only the last segment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct CleanMark {
    pub(crate) segments: Vec<(i64, u64)>,
    pub(crate) end: i64,
}

impl CleanMark {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let pairs = self.segments.iter().flat_map(|(base, size)| [*base, *size as i64]);
        body(&pairs.chain([self.end]).collect::<Vec<_>>())
    }

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let all: Vec<i64> = body.chunks_exact(8).filter_map(numbers::<1>).map(|[number]| number).collect();
        let (end, pairs) = all.split_last()?;
        let sound = body.len().is_multiple_of(8) && !pairs.is_empty() && pairs.len().is_multiple_of(2);
        let bases: Vec<i64> = pairs.iter().step_by(2).copied().collect();
        let is_possible = all.iter().all(|number| *number >= 0)
            && bases.is_sorted_by(|base, next| base < next)
            && bases.last() <= Some(end);
        let segments = pairs.chunks_exact(2).map(|pair| (pair[0], pair[1] as u64)).collect();
        (sound && is_possible).then_some(Self { segments, end: *end })
    }
}

/// Numbers of a body, if it has exactly as many.
pub(crate) fn numbers<const N: usize>(body: &[u8]) -> Option<[i64; N]> {
    let mut out = [0; N];
    if body.len() != N * 8 {
        return None;
    }
    for (number, bytes) in out.iter_mut().zip(body.chunks_exact(8)) {
        *number = i64::from_be_bytes(bytes.try_into().ok()?);
    }
    Some(out)
}

/// Returns a body with these numbers.
pub(crate) fn body(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// Encodes the quarantine as a body.
pub(crate) fn encode_bad(bad: &[BadRange]) -> Vec<u8> {
    // A skipped range stores the complement of its length, which is a negative number.
    let bytes = |b: &BadRange| if b.skipped { !(b.bytes as i64) } else { b.bytes as i64 };
    let fields = |b: &BadRange| [b.segment, b.position as i64, bytes(b), b.offset, b.next_offset];
    body(&bad.iter().flat_map(fields).collect::<Vec<_>>())
}

/// Decodes the quarantine from a body.
pub(crate) fn decode_bad(body: &[u8]) -> Vec<BadRange> {
    body.chunks_exact(40)
        .filter_map(numbers::<5>)
        .map(|[segment, position, bytes, offset, next_offset]| BadRange {
            segment,
            position: position as u64,
            bytes: if bytes < 0 { !bytes as u64 } else { bytes as u64 },
            offset,
            next_offset,
            skipped: bytes < 0 || position as u64 == u64::MAX,
        })
        .filter(|range| range.segment >= 0 && range.offset >= 0 && range.offset <= range.next_offset)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::mem::MemStorage;

    #[test]
    fn what_was_stored_comes_back_and_damage_does_not() {
        let disk = MemStorage::new();
        disk.create_dir("d").expect("created");
        let read = || load(&disk, "d", START_OFFSET).expect("read");
        assert!(matches!(read(), Checkpoint::Unknown));
        store(&disk, "d", START_OFFSET, &body(&[17])).expect("stored");
        assert!(matches!(read(), Checkpoint::Body(body) if numbers(&body) == Some([17])));
        let good = disk.contents("d/log-start-offset").expect("there");
        for at in 2..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            disk.set_contents("d/log-start-offset", &bad);
            assert!(matches!(read(), Checkpoint::Unknown), "byte {at}");
        }
        let mut newer = good.clone();
        newer[1] = 2;
        disk.set_contents("d/log-start-offset", &newer);
        assert!(matches!(read(), Checkpoint::Newer(2)));
        disk.set_contents("d/log-start-offset", &vec![0; 2 << 20]);
        assert!(matches!(read(), Checkpoint::Unknown));
    }

    #[test]
    fn the_quarantine_comes_back() {
        let bad = [1, 2].map(|n| BadRange {
            segment: n,
            position: 5,
            bytes: 7,
            offset: 8,
            next_offset: 9,
            skipped: n == 2,
        });
        assert_eq!(decode_bad(&encode_bad(&bad)), bad);
    }

    /// Found by the fuzz target `checkpoints`: the message about such a range overflowed.
    #[test]
    fn ranges_with_impossible_offsets_are_dropped() {
        let sound = [0, 100, 61, 7, 9];
        for bad in [[0, 100, 61, i64::MIN, i64::MIN], [0, 100, 61, 9, 7], [-1, 100, 61, 7, 9]] {
            let ranges = decode_bad(&body(&[bad, sound].concat()));
            assert_eq!(ranges.iter().map(|range| range.offset).collect::<Vec<_>>(), [7], "{bad:?}");
        }
    }

    /// Found by the fuzz target `journal`: it opened without the entries of its segment.
    #[test]
    fn a_mark_with_impossible_numbers_is_no_mark() {
        for numbers in [[0, 100, -1], [-1, 100, 5], [0, -1, 5], [7, 100, 6]] {
            assert_eq!(CleanMark::decode(&body(&numbers)), None, "{numbers:?}");
        }
        assert_eq!(CleanMark::decode(&body(&[5, 100, 5, 100, 9])), None, "the segments do not rise");
        assert!(CleanMark::decode(&body(&[0, 100, 5, 0, 5])).is_some());
    }
}
