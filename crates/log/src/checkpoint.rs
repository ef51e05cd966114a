//! The small files beside the segments. Each is versioned and checksummed, and a damaged one is as good as none.
//!
//! ```text
//! version i16 | crc32c u32 of what follows | body
//! ```

use std::io;

use crate::segment::BadRange;
use crate::storage::{Open, Storage, read_file, replace_file};

/// Records below are deleted: the only file here whose loss would be noticed, so it is replaced durably.
pub(crate) const START_OFFSET: &str = "log-start-offset";
/// All below is known to be on disk: recovery starts at its segment.
pub(crate) const RECOVERY_POINT: &str = "recovery-point";
/// All below was on disk: see [`crate::synced`].
pub(crate) const SYNCED: &str = "synced";
/// Written by a clean close: nothing needs to be scanned.
pub(crate) const CLEAN_SHUTDOWN: &str = "clean-shutdown";
/// Left by a sync that failed. The kernel may hold bytes that it could not write and will not try to write again: the
/// next opening reads them and must write them once more. A power cut takes this file along, and those bytes too.
pub(crate) const SYNC_FAILED: &str = "sync-failed";
/// Damage found by recovery.
pub(crate) const QUARANTINE: &str = "quarantine";

const VERSION: i16 = 1;
const HEAD_BYTES: usize = 6;
/// Far above any real one: the quarantine of thousands of ranges.
const BYTES_MAX: u64 = 1 << 20;

/// What is in a checkpoint file.
pub(crate) enum Checkpoint {
    /// No file, or a damaged one.
    Unknown,
    /// The body.
    Body(Vec<u8>),
    /// A later program wrote it.
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

/// The newest version [`load`] understands.
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

/// Overwrites a checkpoint in place, durable some day: for files whose loss costs time only.
pub(crate) fn store_loosely(storage: &dyn Storage, dir: &str, name: &str, body: &[u8]) -> io::Result<()> {
    storage.open(&format!("{dir}/{name}"), Open::Create)?.write_at(&encode(body), 0)
}

/// Base offset and size of each segment, then the end offset: what the mark of a clean shutdown says. Version 1 of this
/// program wrote the last segment only.
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
        let segments = pairs.chunks_exact(2).map(|pair| (pair[0], pair[1] as u64)).collect();
        sound.then_some(Self { segments, end: *end })
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

/// A body of these numbers.
pub(crate) fn body(numbers: &[i64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// The quarantine as a body.
pub(crate) fn encode_bad(bad: &[BadRange]) -> Vec<u8> {
    // What is skipped has the complement of its bytes, a negative number.
    let bytes = |b: &BadRange| if b.skipped { !(b.bytes as i64) } else { b.bytes as i64 };
    let fields = |b: &BadRange| [b.segment, b.position as i64, bytes(b), b.offset, b.next_offset];
    body(&bad.iter().flat_map(fields).collect::<Vec<_>>())
}

/// The quarantine in a body.
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
}
