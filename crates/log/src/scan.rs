//! Walking the batches of a segment file: header by header to find something, or checksum by checksum to learn what a
//! crash has left.

use std::io;

use ottla_wire::batch::{BatchError, BatchHeader, CRC_FROM, HEADER_BYTES, MAGIC_AT, MAGIC_V2};
use ottla_wire::crc::Crc32c;

use crate::bad_range::BadRange;
use crate::deliberate::{DeliberateFault, has_deliberate_fault};
use crate::storage::File;

/// For a walk over a few headers behind an index entry.
pub(crate) const LOOKUP_CHUNK_BYTES: usize = 8 * 1024;
/// For a walk over a whole file.
pub(crate) const SCAN_CHUNK_BYTES: usize = 1 << 20;

/// A moving window on a file.
pub(crate) struct Window<'a> {
    file: &'a dyn File,
    end: u64,
    chunk: usize,
    start: u64,
    buf: Vec<u8>,
}

impl<'a> Window<'a> {
    /// Sees the first `end` bytes of `file`, at least `chunk` at a time.
    pub(crate) fn new(file: &'a dyn File, end: u64, chunk: usize) -> Self {
        Self { file, end, chunk, start: 0, buf: Vec::new() }
    }

    /// The bytes from `at` on: `len` of them, or fewer where the file ends.
    pub(crate) fn bytes(&mut self, at: u64, len: usize) -> io::Result<&[u8]> {
        let left = self.end.saturating_sub(at);
        let len = left.min(len as u64) as usize;
        let inside = at >= self.start && at + len as u64 <= self.start + self.buf.len() as u64;
        if !inside {
            let take = left.min(self.chunk.max(len) as u64) as usize;
            self.buf.resize(take, 0);
            self.start = at;
            if let Err(error) = self.file.read_exact_at(&mut self.buf, at) {
                self.buf.clear();
                return Err(error);
            }
        }
        let from = (at - self.start) as usize;
        Ok(&self.buf[from..from + len])
    }

    /// The bytes from `at` on that were read already, at most `len`.
    pub(crate) fn held(&self, at: u64, len: u64) -> &[u8] {
        let Some(from) = at.checked_sub(self.start).filter(|from| *from < self.buf.len() as u64) else {
            return &[];
        };
        let rest = &self.buf[from as usize..];
        &rest[..len.min(rest.len() as u64) as usize]
    }

    /// The header at `at`, if the file holds the whole of its batch.
    pub(crate) fn header(&mut self, at: u64) -> io::Result<Result<BatchHeader, BatchError>> {
        let left = self.end.saturating_sub(at);
        let header = BatchHeader::parse(self.bytes(at, HEADER_BYTES)?);
        Ok(match header {
            Ok(header) if header.total_bytes() as u64 > left => {
                Err(BatchError::Truncated { have: left as usize, need: header.total_bytes() })
            }
            other => other,
        })
    }

    /// Returns whether the checksum of the batch at `at` is right. Reads in chunks: no length makes it allocate more.
    pub(crate) fn crc_is_right(&mut self, at: u64, header: &BatchHeader) -> io::Result<bool> {
        let end = at + header.total_bytes() as u64;
        let mut crc = Crc32c::new();
        let mut from = at + CRC_FROM as u64;
        while from < end {
            let len = (end - from).min(self.chunk as u64) as usize;
            crc.update(self.bytes(from, len)?);
            from += len as u64;
        }
        Ok(crc.finish() == header.crc || has_deliberate_fault(DeliberateFault::NoChecksums))
    }
}

/// The result of a scan of a segment.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    /// The position at which the last sound batch ends.
    pub(crate) end: u64,
    /// The offset after it.
    pub(crate) next_offset: i64,
    /// Damage with sound batches behind it.
    pub(crate) bad: Vec<BadRange>,
}

/// Checks every batch of the first `size` bytes of a segment and calls `on_batch` for the sound ones.
pub(crate) fn scan(
    file: &dyn File,
    segment: i64,
    size: u64,
    mut on_batch: impl FnMut(&BatchHeader, u64),
) -> io::Result<Scanned> {
    let mut window = Window::new(file, size, SCAN_CHUNK_BYTES);
    let mut scanned = Scanned { next_offset: segment, ..Scanned::default() };
    // Looking for sound batches behind damage must not take forever, whatever the bytes are.
    let mut search_budget = size.saturating_mul(4) + (64 << 20);
    let mut at = 0;
    while at < size {
        // The offsets of a segment have no gaps: no checksum covers a batch's base offset, but its neighbours do.
        if let Some(header) = sound(&mut window, segment, at, scanned.next_offset)?
            .filter(|header| header.base_offset == scanned.next_offset)
        {
            on_batch(&header, at);
            at += header.total_bytes() as u64;
            scanned.next_offset = header.next_offset();
            scanned.end = at;
            continue;
        }
        let Some((found, header)) =
            next_sound(&mut window, segment, at, scanned.next_offset, &mut search_budget)?
        else {
            break;
        };
        scanned.bad.push(BadRange {
            segment,
            position: at,
            bytes: found - at,
            offset: scanned.next_offset,
            next_offset: header.base_offset,
            skipped: false,
        });
        at = found;
        scanned.next_offset = header.base_offset;
    }
    Ok(scanned)
}

/// Walks the headers of a segment that was checked before, around its known damage: `bad` has no ranges of other segments.
pub(crate) fn walk(
    file: &dyn File,
    from: u64,
    size: u64,
    bad: &[BadRange],
    mut on_batch: impl FnMut(&BatchHeader, u64),
) -> io::Result<Result<(), u64>> {
    walk_batches(file, from, size, bad, |_, header, position| {
        on_batch(header, position);
        Ok(())
    })
}

/// [`walk`] for callers that read the bytes of some of the batches.
pub(crate) fn walk_batches(
    file: &dyn File,
    from: u64,
    size: u64,
    bad: &[BadRange],
    mut on_batch: impl FnMut(&mut Window<'_>, &BatchHeader, u64) -> io::Result<()>,
) -> io::Result<Result<(), u64>> {
    let mut window = Window::new(file, size, SCAN_CHUNK_BYTES);
    let mut at = from;
    while at < size {
        if let Some(range) = bad.iter().find(|range| range.position == at && range.bytes > 0) {
            at += range.bytes;
            continue;
        }
        let Ok(header) = window.header(at)? else { return Ok(Err(at)) };
        on_batch(&mut window, &header, at)?;
        at += header.total_bytes() as u64;
    }
    Ok(Ok(()))
}

/// The batch at `at`, if all about it is right and its offsets may come after `expected`.
pub(crate) fn sound(
    window: &mut Window<'_>,
    segment: i64,
    at: u64,
    expected: i64,
) -> io::Result<Option<BatchHeader>> {
    let Ok(header) = window.header(at)? else { return Ok(None) };
    let fits = header.base_offset >= expected
        && header.base_offset.checked_add(i64::from(header.last_offset_delta)).is_some()
        && i32::try_from(header.last_offset() - segment).is_ok();
    Ok((fits && window.crc_is_right(at, &header)?).then_some(header))
}

/// The first sound batch behind the damage at `at`.
pub(crate) fn next_sound(
    window: &mut Window<'_>,
    segment: i64,
    at: u64,
    expected: i64,
    budget: &mut u64,
) -> io::Result<Option<(u64, BatchHeader)>> {
    // The damage has one offset at least: a batch that claims the first one has a damaged base offset.
    let expected = expected.saturating_add(1);
    let damaged = window.header(at)?;
    // Usually only the records are damaged, and the length still leads to the next batch.
    if let Ok(header) = &damaged {
        let next = at + header.total_bytes() as u64;
        if let Some(found) = sound(window, segment, next, expected)?
            && fits_its_successor(window, segment, next, &found)?
        {
            return Ok(Some((next, found)));
        }
    }
    // A batch that claims to go on beyond the file is most likely the last one, torn; what looks like a batch in it is
    // a client's payload. Only batches that lead to the end of the file prove that its length is what is damaged.
    let torn = matches!(damaged, Err(BatchError::Truncated { .. }));
    let mut failed = FailedChain::default();
    let mut from = at + 1;
    while from + HEADER_BYTES as u64 <= window.end {
        let Some(candidate) = next_candidate(window, segment, from, expected)? else { break };
        from = candidate + 1;
        let Ok(header) = window.header(candidate)? else { continue };
        if failed.has(candidate, &header) {
            continue;
        }
        if !charge(budget, &header) {
            break;
        }
        let Some(found) = sound(window, segment, candidate, expected)? else { continue };
        if !fits_its_successor(window, segment, candidate, &found)? {
            continue;
        }
        if !torn {
            return Ok(Some((candidate, found)));
        }
        match chain_end(window, segment, candidate, &found, budget)? {
            Some(end) if end == window.end => return Ok(Some((candidate, found))),
            Some(end) => failed.note(candidate + found.total_bytes() as u64, end),
            None => break,
        }
    }
    Ok(None)
}

/// Takes the bytes of a batch from those that a search may check. Returns `false` if too few are left.
fn charge(budget: &mut u64, header: &BatchHeader) -> bool {
    let left = budget.checked_sub(header.total_bytes() as u64);
    *budget = left.unwrap_or(*budget);
    left.is_some()
}

/// A run of sound batches that does not lead to the end of the file. No batch on it does: a payload of batches is walked once, and not
/// once for each of them.
#[derive(Debug, Default)]
struct FailedChain {
    /// The next batch on it.
    next: u64,
    end: u64,
}

impl FailedChain {
    /// Returns whether the batch at `at` is on the chain. Batches are looked at in the order of their positions.
    fn has(&mut self, at: u64, header: &BatchHeader) -> bool {
        let is_on_it = at == self.next && at < self.end;
        if is_on_it {
            self.next = at + header.total_bytes() as u64;
        }
        is_on_it
    }

    /// Takes a chain in place of one that ends earlier, which may be in the payload of a batch on the other.
    fn note(&mut self, next: u64, end: u64) {
        if end > self.end {
            *self = Self { next, end };
        }
    }
}

/// Returns `false` if a sound batch follows that has other offsets. No checksum covers a base offset, and the batch before
/// this one cannot confirm it: the damage may reach into this one's first bytes.
fn fits_its_successor(
    window: &mut Window<'_>,
    segment: i64,
    at: u64,
    header: &BatchHeader,
) -> io::Result<bool> {
    let next = sound(window, segment, at + header.total_bytes() as u64, segment)?;
    Ok(next.is_none_or(|next| next.base_offset == header.next_offset()))
}

/// The next position whose bytes could be a header: the magic is right, the offset plausible.
fn next_candidate(
    window: &mut Window<'_>,
    segment: i64,
    from: u64,
    expected: i64,
) -> io::Result<Option<u64>> {
    let mut at = from;
    while at + HEADER_BYTES as u64 <= window.end {
        // A search that continues in the window must not read it again for each candidate.
        let held = window.held(at, SCAN_CHUNK_BYTES as u64).len();
        let bytes = window.bytes(at, if held < HEADER_BYTES { SCAN_CHUNK_BYTES } else { held })?;
        let candidates = bytes.len() + 1 - HEADER_BYTES;
        let found = (0..candidates).find(|&i| {
            bytes[i + MAGIC_AT] == MAGIC_V2 as u8 && {
                let mut offset = [0; 8];
                offset.copy_from_slice(&bytes[i..i + 8]);
                let offset = i64::from_be_bytes(offset);
                offset >= expected && offset - segment <= i64::from(i32::MAX)
            }
        });
        if let Some(i) = found {
            return Ok(Some(at + i as u64));
        }
        at += candidates as u64;
    }
    Ok(None)
}

/// Returns the end of the sound batches that begin with `first`; `None` if the search may check no more bytes.
///
/// A torn batch at the end is none of them: it can be in a client's payload, as the batches before it.
fn chain_end(
    window: &mut Window<'_>,
    segment: i64,
    at: u64,
    first: &BatchHeader,
    budget: &mut u64,
) -> io::Result<Option<u64>> {
    let (mut at, mut header) = (at, *first);
    loop {
        at += header.total_bytes() as u64;
        if at == window.end {
            return Ok(Some(at));
        }
        if window.header(at)?.is_ok_and(|next| !charge(budget, &next)) {
            return Ok(None);
        }
        match sound(window, segment, at, header.next_offset())? {
            Some(next) => header = next,
            None => return Ok(Some(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::storage::mem::{MemStorage, OpKind};
    use crate::storage::{Open, Storage};
    use bytes::BytesMut;
    use ottla_wire::{BatchBuilder, Seal, batch};

    fn batch(base_offset: i64, value: &[u8]) -> BytesMut {
        let mut builder = BatchBuilder::new();
        builder.push(1, None, Some(value), &[]);
        let mut bytes = BytesMut::from(&builder.seal(&Seal::default()).expect("no codec").to_bytes()[..]);
        batch::set_base_offset(&mut bytes, base_offset);
        bytes
    }

    fn scanned(bytes: &[u8]) -> (Vec<i64>, Scanned) {
        scanned_from(10, bytes)
    }

    fn scanned_from(segment: i64, bytes: &[u8]) -> (Vec<i64>, Scanned) {
        let disk = MemStorage::new();
        disk.set_contents("f", bytes);
        let file = disk.open("f", Open::Existing).expect("there");
        let mut offsets = Vec::new();
        let scanned = scan(&*file, segment, bytes.len() as u64, |header, _| offsets.push(header.base_offset));
        (offsets, scanned.expect("memory does not fail"))
    }

    fn four() -> (Vec<u8>, usize) {
        let one = batch(10, &[1; 100]).len();
        ((10..14).flat_map(|offset| batch(offset, &[1; 100])).collect(), one)
    }

    #[test]
    fn a_tail_torn_at_any_byte_ends_before_the_torn_batch() {
        let (bytes, one) = four();
        for len in 0..bytes.len() {
            let (offsets, found) = scanned(&bytes[..len]);
            assert_eq!(offsets.len(), len / one);
            assert_eq!((found.end, found.next_offset), ((len / one * one) as u64, 10 + (len / one) as i64));
            assert!(found.bad.is_empty());
            // A batch ends with a zero: the count of the last record's headers.
            if len % one == one - 1 {
                continue;
            }
            let mut zeros = bytes[..len].to_vec();
            zeros.resize(len + 5000, 0);
            let (offsets, found) = scanned(&zeros);
            assert!(offsets.len() == len / one && found.bad.is_empty(), "zeros behind byte {len}");
        }
    }

    #[test]
    fn damage_at_any_byte_costs_one_batch_and_not_the_rest() {
        let (bytes, one) = four();
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            let hit = at / one;
            let (offsets, found) = scanned(&bad);
            let in_crc_or_frame = !(12..16).contains(&(at % one));
            if !in_crc_or_frame {
                assert_eq!(offsets.len(), 4, "byte {at}: the leader epoch is not checksummed");
                continue;
            }
            // An offset that only jumped ahead makes the batches behind it look stale.
            let expected: Vec<i64> = (10..14).filter(|o| *o != 10 + hit as i64).collect();
            if at % one < 8 {
                assert!(offsets.len() >= hit, "byte {at}");
                continue;
            }
            assert_eq!(offsets, expected, "byte {at}");
            if hit < 3 {
                let next_offset = 11 + hit as i64;
                let range = BadRange {
                    segment: 10,
                    position: (hit * one) as u64,
                    bytes: one as u64,
                    offset: 10 + hit as i64,
                    next_offset,
                    skipped: false,
                };
                assert_eq!(found.bad, [range], "byte {at}");
            } else {
                assert!(found.bad.is_empty() && found.end == 3 * one as u64, "byte {at}");
            }
        }
    }

    /// Zeros in a sector that ended within the base offset of the next batch made that batch the first one.
    #[test]
    fn a_batch_with_a_damaged_base_offset_behind_damage_gets_no_other_offset() {
        let one = batch(0, &[1; 100]).len();
        let mut bytes: Vec<u8> = (0..4).flat_map(|offset| batch(offset, &[1; 100])).collect();
        bytes[..one + 8].fill(0);
        let (offsets, found) = scanned_from(0, &bytes);
        assert_eq!(offsets, [2, 3]);
        assert_eq!((found.bad[0].offset, found.bad[0].next_offset), (0, 2));

        let mut bytes: Vec<u8> = (255..260).flat_map(|offset| batch(offset, &[1; 100])).collect();
        // The base offset 0x0101 becomes 0x0001 in a segment that begins at 0, and the damage before it reaches back to 0.
        bytes[..2 * one + 7].fill(0);
        let (offsets, found) = scanned_from(0, &bytes);
        assert_eq!(offsets, [258, 259]);
        assert_eq!((found.bad[0].offset, found.bad[0].next_offset), (0, 258));
    }

    #[test]
    fn a_batch_inside_a_torn_payload_is_not_taken_for_one_of_ours() {
        let mut value = vec![0; 50];
        value.extend(batch(12, b"a mirrored batch"));
        value.extend([7; 500]);
        let mut bytes = batch(10, b"first").to_vec();
        let sound = bytes.len() as u64;
        bytes.extend(batch(11, &value));
        bytes.truncate(bytes.len() - 100);
        let (offsets, found) = scanned(&bytes);
        assert_eq!((offsets, found.end, found.bad.len()), (vec![10], sound, 0));
    }

    /// A payload that is a run of batches leads to a torn batch at every cut, as the segment does.
    #[test]
    fn a_run_of_batches_inside_a_torn_payload_is_not_taken_for_ours() {
        let value: Vec<u8> = (12..30).flat_map(|offset| batch(offset, b"a mirrored batch")).collect();
        let one = batch(12, b"a mirrored batch").len();
        let mut bytes = batch(10, b"first").to_vec();
        let sound = bytes.len() as u64;
        bytes.extend(batch(11, &value));
        // The payload ends with the count of the record's headers.
        let payload_end = bytes.len() - 1;
        for cut in (1..2 * one).filter(|cut| !cut.is_multiple_of(one)) {
            let (offsets, found) = scanned(&bytes[..payload_end - cut]);
            assert_eq!((offsets, found.end, found.bad.len()), (vec![10], sound, 0), "cut {cut}");
        }
    }

    /// Each of the batches was walked from to the end of them all.
    #[test]
    fn a_torn_payload_of_many_batches_is_walked_once() {
        let mut value: Vec<u8> = (12..16_012).flat_map(|offset| batch(offset, b"x")).collect();
        value.extend([7; 500]);
        let mut bytes = batch(10, b"first").to_vec();
        bytes.extend(batch(11, &value));
        bytes.truncate(bytes.len() - 50);
        let size = bytes.len() as u64;
        assert!(size > SCAN_CHUNK_BYTES as u64, "a walk from the front to the end reads again");
        let disk = MemStorage::new();
        disk.set_contents("f", &bytes);
        let reads = Arc::new(AtomicU64::new(0));
        let counted = reads.clone();
        disk.inject(move |op| {
            counted.fetch_add(u64::from(op.kind == OpKind::Read), Ordering::Relaxed);
            None
        });
        let file = disk.open("f", Open::Existing).expect("there");
        let scanned = scan(&*file, 10, size, |_, _| {}).expect("memory does not fail");
        assert_eq!((scanned.next_offset, scanned.bad.len()), (11, 0));
        let reads = reads.load(Ordering::Relaxed);
        assert!(reads < 20, "{reads} reads");
    }

    /// A walk that may check no more bytes ends the search.
    #[test]
    fn batches_that_are_walked_are_charged_to_the_search() {
        let (mut bytes, one) = four();
        // The length of the second batch leads beyond the end.
        bytes[one + 9] = 0x7f;
        let disk = MemStorage::new();
        disk.set_contents("f", &bytes);
        let file = disk.open("f", Open::Existing).expect("there");
        let found = |mut budget: u64| {
            let mut window = Window::new(&*file, bytes.len() as u64, SCAN_CHUNK_BYTES);
            let found = next_sound(&mut window, 10, one as u64, 11, &mut budget);
            found.expect("memory does not fail").map(|(at, header)| (at, header.base_offset))
        };
        assert_eq!(found(2 * one as u64), Some((2 * one as u64, 12)));
        assert_eq!(found(2 * one as u64 - 1), None);
    }
}
