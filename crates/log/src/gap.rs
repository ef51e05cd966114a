//! Offsets that no record has any more, at the end of a log: a batch without records leads readers over them.
//!
//! A gap between two batches needs nothing: a read from inside it returns the batch behind it. Behind a gap at the end
//! there is no batch, and a consumer would fetch the same offset until the next append. An empty batch moves every client
//! on: compaction leaves such batches in Apache Kafka's logs as well.

use std::io;

use ottla_wire::batch::{BatchHeader, CRC_FROM, HEADER_BYTES, LOG_OVERHEAD_BYTES, NONE};
use ottla_wire::crc::crc32c;

use crate::log::Log;
use crate::segment::Segment;

/// The leader epoch of an empty batch in a log without epochs; a journal requires it.
const FIRST_EPOCH: i32 = 0;
/// The most offsets that are skipped: a segment is written for each 31 bits of them. Found by the fuzz target `log_files`.
const SKIPPED_OFFSETS_MAX: i64 = 1 << 40;

impl Log {
    /// Fills the offsets from the end of the log up to `offset` with empty batches, durably.
    pub(crate) fn skip_to(&mut self, offset: i64, now_ms: i64) -> io::Result<()> {
        if offset <= self.end_offset() {
            return Ok(());
        }
        let end = self.end_offset();
        if offset.saturating_sub(end) > SKIPPED_OFFSETS_MAX {
            let what = format!("the log ends at {end}, and no log has lost all offsets up to {offset}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        self.open_active()?;
        self.drop_clean_mark(true)?;
        while self.end_offset() < offset {
            let active = self.active();
            // The last offset of a segment is at most 31 bits above its base.
            let reach = active.base_offset.saturating_add(i64::from(i32::MAX));
            if reach <= active.end_offset {
                self.roll_now(now_ms)?;
                continue;
            }
            self.fill(self.segments.len() - 1, offset.min(reach))?;
        }
        self.sync_everything()?;
        self.sync.synced_offset = self.end_offset();
        match &self.sync.note {
            Some(note) => note.store(self.promise()),
            None => Ok(()),
        }
    }

    /// Fills the accepted gaps that earlier versions have left at the end of the log, in front of empty segments.
    pub(crate) fn fill_gaps_at_end(&mut self) -> io::Result<()> {
        let Some(last) = self.segments.iter().rposition(|segment| segment.size > 0) else { return Ok(()) };
        let Segment { base_offset, end_offset, .. } = self.segments[last];
        let is_it = |gap: &&crate::bad_range::BadRange| {
            gap.segment == base_offset && gap.next_offset == end_offset && end_offset == self.end_offset()
        };
        let Some(gap) = self.gaps.iter().find(is_it).copied() else { return Ok(()) };
        if i32::try_from(gap.next_offset - 1 - base_offset).is_err() {
            return Ok(());
        }
        self.drop_clean_mark(true)?;
        self.open_segment(last).map_err(|(error, _)| error)?;
        self.segments[last].end_offset = gap.offset;
        self.fill(last, gap.next_offset)?;
        for file in self.segments[last].open_files() {
            file.sync_data()?;
        }
        self.gaps.retain(|other| *other != gap);
        self.store_quarantine()
    }

    /// Writes an empty batch over the offsets from the end of a segment up to `next_offset`.
    fn fill(&mut self, number: usize, next_offset: i64) -> io::Result<()> {
        let epoch = self.epochs.latest().unwrap_or(FIRST_EPOCH);
        let (storage, interval) = (self.storage.clone(), self.config.index_interval_bytes);
        let segment = &mut self.segments[number];
        let (position, base_offset) = (segment.size, segment.end_offset);
        let (header, bytes) = empty_batch(base_offset, next_offset, epoch);
        segment.log().write_at(&bytes, position)?;
        segment.note(&*storage, &header, position, interval);
        assert_eq!(segment.end_offset, next_offset, "an empty batch ends where the gap ends");
        Ok(())
    }
}

/// A batch without records that spans the offsets from `base_offset` up to `next_offset`.
///
/// # Panics
/// If there is no offset between the two, or more than `i32::MAX`.
pub fn empty_batch(base_offset: i64, next_offset: i64, epoch: i32) -> (BatchHeader, [u8; HEADER_BYTES]) {
    let span = next_offset - base_offset;
    let last_offset_delta = i32::try_from(span - 1).expect("the caller keeps the batch inside its segment");
    assert!(last_offset_delta >= 0, "a gap from {base_offset} to {next_offset} has no offset");
    let mut header = BatchHeader {
        base_offset,
        batch_length: (HEADER_BYTES - LOG_OVERHEAD_BYTES) as i32,
        partition_leader_epoch: epoch,
        crc: 0,
        attributes: 0,
        last_offset_delta,
        base_timestamp: NONE,
        max_timestamp: NONE,
        producer_id: NONE,
        producer_epoch: NONE as i16,
        base_sequence: NONE as i32,
        record_count: 0,
    };
    let mut bytes = [0; HEADER_BYTES];
    header.write(&mut bytes);
    header.crc = crc32c(&bytes[CRC_FROM..]);
    header.write(&mut bytes);
    (header, bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::LogConfig;
    use crate::storage::mem::MemStorage;

    /// Found by the fuzz target `log_files`: it wrote a segment for each 31 bits of offsets.
    #[test]
    fn a_gap_that_no_log_can_have_is_refused() {
        let disk = Arc::new(MemStorage::new());
        let (mut log, _) = Log::open(disk, "orders-0", LogConfig::default(), 0).expect("a new log");
        let refused = log.skip_to(i64::MAX, 0).expect_err("too far").to_string();
        assert!(refused.contains("the log ends at 0"), "{refused}");
        assert_eq!((log.end_offset(), log.segment_count()), (0, 1));
        log.skip_to(3 << 31, 0).expect("possible");
        assert_eq!(log.end_offset(), 3 << 31);
    }

    #[test]
    fn an_empty_batch_is_a_sound_batch() {
        let (header, bytes) = empty_batch(7, 12, 3);
        let parsed = BatchHeader::parse(&bytes).expect("a header");
        assert_eq!((parsed, parsed.next_offset(), parsed.total_bytes()), (header, 12, bytes.len()));
        parsed.verify_crc(&bytes).expect("the checksum is right");
    }
}
