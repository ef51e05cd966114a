//! Checking batches that this process did not write before they are served for the first time, and again from time to
//! time: a disk can change its content, and no index shows that.

use std::io;
use std::sync::{Arc, Weak};

use crate::bad_range::BadRange;
use crate::error::{LogError, ReadError};
use crate::log::Log;
use crate::scan::{SCAN_CHUNK_BYTES, Window, next_sound};
use crate::segment::SegmentView;
use crate::verified::{Unsound, Verified};

impl SegmentView {
    /// Checks the batches from `from`, where a batch begins, until `to` is reached: checksums, and that offsets follow
    /// each other. `expected` is the offset of the first, where it is known. Returns where it ended, and the first
    /// unsound batch that it ended at.
    pub(crate) fn verify(
        &self,
        from: u64,
        to: u64,
        expected: Option<i64>,
    ) -> io::Result<(u64, Option<Unsound>, i64)> {
        let mut window =
            Window::new(&*self.log, self.size, SCAN_CHUNK_BYTES.min((to - from).max(4096) as usize));
        let (mut at, mut expected) = (from, expected);
        while at < to.min(self.size) {
            if let Some(bad) = self.bad.iter().find(|bad| bad.position == at && bad.bytes > 0) {
                at += bad.bytes;
                expected = Some(bad.next_offset);
                continue;
            }
            let parsed = window.header(at)?.ok();
            let follows =
                |base_offset| expected.is_none_or(|expected| self.may_follow(expected, base_offset));
            let sound = match parsed.filter(|header| follows(header.base_offset)) {
                Some(header) => window.crc_is_right(at, &header)?.then_some(header),
                None => None,
            };
            let Some(header) = sound else {
                let expected =
                    expected.or(parsed.map(|header| header.base_offset)).unwrap_or(self.base_offset);
                return Ok((at, Some(Unsound { position: at, expected }), expected));
            };
            at += header.total_bytes() as u64;
            expected = Some(header.next_offset());
        }
        Ok((at, None, expected.unwrap_or(self.base_offset)))
    }

    /// Returns whether a batch with this base offset may come after the last one: directly, or behind missing bytes
    /// that are known.
    fn may_follow(&self, expected: i64, base_offset: i64) -> bool {
        let is_known = |bad: &BadRange| bad.offset == expected && bad.next_offset == base_offset;
        base_offset == expected || self.bad.iter().any(is_known)
    }
}

/// The position at which a scrub continues.
#[derive(Clone, Debug, Default)]
pub struct ScrubCursor {
    /// The segment; `None` before the first.
    segment: Option<i64>,
    position: u64,
    expected: Option<i64>,
    /// Identifies the segment: after a compaction, its name belongs to another one with other positions.
    identity: Weak<Verified>,
}

/// A part of a closed segment to be checked, on a thread that may block.
#[derive(Debug)]
pub struct ScrubTask {
    view: SegmentView,
    from: ScrubCursor,
    to: u64,
}

/// The result.
#[derive(Debug)]
pub struct Scrubbed {
    from: ScrubCursor,
    to: u64,
    expected: i64,
    unsound: Option<Unsound>,
    /// Identifies the segment: compaction may have put another one in its place.
    identity: Arc<Verified>,
}

impl ScrubTask {
    /// Bytes that it reads.
    pub fn bytes(&self) -> u64 {
        self.to - self.from.position
    }

    /// Reads and checks.
    pub fn run(self) -> io::Result<Scrubbed> {
        let (to, unsound, expected) = self.view.verify(self.from.position, self.to, self.from.expected)?;
        let identity = self.view.verified.clone();
        Ok(Scrubbed { from: self.from, to, expected, unsound, identity })
    }
}

impl Log {
    /// The next part of the closed segments to be checked, about `bytes` of it; `None` behind the last.
    ///
    /// # Errors
    /// The segment's files cannot be opened.
    pub fn scrub(&mut self, cursor: ScrubCursor, bytes: u64) -> Result<Option<ScrubTask>, ReadError> {
        if self.offline_reason().is_some() {
            return Ok(None);
        }
        let closed = self.segments.len() - 1;
        let mut found = None;
        for (number, segment) in self.segments[..closed].iter().enumerate() {
            let base_offset = segment.base_offset;
            let is_same = std::ptr::eq(cursor.identity.as_ptr(), Arc::as_ptr(&segment.verified));
            if Some(base_offset) == cursor.segment && is_same && cursor.position < segment.size {
                found = Some((number, cursor));
                break;
            }
            if cursor.segment.is_none_or(|passed| base_offset > passed) && segment.size > 0 {
                let from = ScrubCursor {
                    segment: Some(base_offset),
                    position: 0,
                    expected: Some(base_offset),
                    identity: Arc::downgrade(&segment.verified),
                };
                found = Some((number, from));
                break;
            }
        }
        let Some((number, from)) = found else { return Ok(None) };
        let base_offset = self.segments[number].base_offset;
        self.open_segment(number).map_err(|(source, _)| self.read_failed(base_offset, source))?;
        let view = self.segments[number].view(&self.bad);
        let to = view.size.min(from.position + bytes.max(1));
        Ok(Some(ScrubTask { view, from, to }))
    }

    /// Takes the result of a part, sets damage aside, and says where to go on.
    ///
    /// # Errors
    /// The damage cannot be noted.
    pub fn scrubbed(&mut self, scrubbed: Scrubbed) -> Result<ScrubCursor, ReadError> {
        let Scrubbed { from, to, expected, unsound, identity } = scrubbed;
        let number = self.segment_of(from.segment.unwrap_or_default());
        let segment = &self.segments[number];
        let is_same = Some(segment.base_offset) == from.segment && Arc::ptr_eq(&segment.verified, &identity);
        // It was deleted or compacted meanwhile, or the log was closed: then its directory may be that of another log.
        if !is_same || self.offline_reason().is_some() {
            return Ok(ScrubCursor { position: u64::MAX, expected: None, ..from });
        }
        segment.verified.add(from.position, to);
        let mut next = ScrubCursor { position: to, expected: Some(expected), ..from };
        if let Some(unsound) = unsound {
            let bad = self
                .set_unsound_aside(number, unsound)
                .map_err(|source| self.read_failed(unsound.expected, source))?;
            next.position = bad.position + bad.bytes;
            next.expected = Some(bad.next_offset);
        }
        Ok(next)
    }

    /// Lets readers pass the damaged range that holds `offset`: they go on at the next sound batch. Returns the
    /// range, or `None` if the offset is in no damaged range.
    ///
    /// # Errors
    /// The decision cannot be stored; then it does not hold.
    pub fn skip_damage(&mut self, offset: i64) -> Result<Option<BadRange>, LogError> {
        let holds = |bad: &&mut BadRange| (bad.offset..bad.next_offset).contains(&offset);
        let Some(bad) = self.bad.iter_mut().find(holds) else { return Ok(None) };
        bad.skipped = true;
        let bad = *bad;
        if let Err(source) = self.store_quarantine() {
            self.bad.iter_mut().filter(|other| **other == bad).for_each(|bad| bad.skipped = false);
            let doing = "store which damage is skipped".into();
            return Err(LogError::Io { dir: self.dir.to_string(), doing, source });
        }
        Ok(Some(bad))
    }

    /// Finds the next sound batch behind an unsound one, and sets aside the bytes between them: reads of them fail
    /// from now on, and all else stays readable.
    pub(crate) fn set_unsound_aside(&mut self, number: usize, unsound: Unsound) -> io::Result<BadRange> {
        let Unsound { position, expected } = unsound;
        let base = self.segments[number].base_offset;
        // A scrub and a reader, which check without the lock, can find the same damage. It may be skipped already.
        let is_known = |bad: &&BadRange| {
            bad.segment == base && (bad.position..bad.position + bad.bytes).contains(&position)
        };
        if let Some(known) = self.bad.iter().find(is_known) {
            return Ok(*known);
        }
        // A scrub reads without the lock: the files may have been closed meanwhile.
        self.open_segment(number).map_err(|(source, _)| source)?;
        let segment = &self.segments[number];
        let (size, end_offset) = (segment.size, segment.end_offset);
        let file = segment.log().clone();
        let mut window = Window::new(&*file, size, SCAN_CHUNK_BYTES);
        let mut budget = size.saturating_mul(4) + (64 << 20);
        let found = next_sound(&mut window, base, position, expected, &mut budget)?;
        let (until, next_offset) = found.map_or((size, end_offset), |(at, header)| (at, header.base_offset));
        let mut bad = BadRange {
            segment: base,
            position,
            bytes: until - position,
            offset: expected,
            next_offset,
            skipped: false,
        };
        tracing::error!(
            dir = &*self.dir,
            segment = base,
            position,
            bytes = bad.bytes,
            offset = expected,
            next_offset,
            "a damaged batch is set aside: its records cannot be read; `ottla log skip` lets readers pass it"
        );
        // Neighbours become one range, so that a walk that passes one does not stop at the other.
        self.bad.retain(|other| {
            let before =
                other.segment == base && other.bytes > 0 && other.position + other.bytes == bad.position;
            let inside = other.segment == base && bad.position <= other.position && other.position < until;
            if before {
                (bad.position, bad.offset) = (other.position, other.offset);
                bad.bytes += other.bytes;
            }
            !before && !inside
        });
        self.bad.push(bad);
        self.bad.sort_by_key(|bad| (bad.segment, bad.position));
        self.store_quarantine()?;
        Ok(bad)
    }
}
