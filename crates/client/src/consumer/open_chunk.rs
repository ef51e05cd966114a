//! A chunk that the polling thread took from the inbox. Its batches are verified and decompressed one after the
//! other, so that at most one is in memory twice.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use ottla_wire::{BatchHeader, Compression, Mark, Records};

use super::batch::{Batch, CorruptBatch};
use super::{DECOMPRESSED_BYTES_ENOUGH, TopicPartition};
use crate::config::{Config, Isolation};
use crate::error::Error;
use crate::fetch::budget::Budget;
use crate::fetch::inbox::Chunk;
use crate::fetch::progress::PartitionProgress;
use crate::stats::Observer;

/// The context for reading a chunk.
#[derive(Clone, Debug)]
pub(crate) struct ReadContext {
    pub(crate) config: Arc<Config>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) observer: Arc<Observer>,
}

impl ReadContext {
    /// Records that all records before `next` were returned. Returns `next` if they count as processed only at the
    /// next call.
    #[inline]
    pub(super) fn give(&self, progress: &PartitionProgress, generation: u64, next: i64) -> Option<i64> {
        progress.set_position_in(generation, next);
        if !self.config.done_when_returned {
            return Some(next);
        }
        if self.config.enable_auto_offset_store {
            progress.set_done_in(generation, next);
        }
        None
    }
}

/// The unread part of a chunk, and the batch at its front.
#[derive(Debug)]
pub(crate) struct OpenChunk {
    pub(super) chunk: Chunk,
    /// The open batch, and the position in it.
    pub(super) set: Option<(Records, Mark)>,
    /// The chunk's bytes from the open batch on.
    from_set: Bytes,
    /// The offset after the last record that was returned. The shared position may belong to a later generation.
    pub(super) reached: i64,
}

impl OpenChunk {
    pub(crate) fn new(chunk: Chunk) -> Self {
        Self { from_set: chunk.records.clone(), reached: chunk.from, chunk, set: None }
    }

    pub(crate) fn progress(&self) -> &Arc<PartitionProgress> {
        &self.chunk.progress
    }

    /// Returns `true` if the chunk may return more records: it is current, not paused and not fully read.
    pub(super) fn is_readable(&self) -> bool {
        let has_more = self.set.as_ref().is_some_and(|(set, mark)| set.has_more(mark));
        let through = self.chunk.records.is_empty() && !has_more;
        self.chunk.is_readable() && !through
    }

    /// The number of records that were not returned and may be.
    pub(super) fn unread(&self) -> usize {
        if !self.is_readable() {
            return 0;
        }
        let of_set = self.set.as_ref().map_or(0, |(set, mark)| set.left(mark));
        self.chunk.count as usize + of_set as usize
    }

    /// Skips control records and aborted records at the end. They count as processed if all records returned before
    /// them do.
    pub(super) fn skip_rest(&self, store: bool) {
        let Chunk { progress, generation, from, next, .. } = &self.chunk;
        let reached = self.reached;
        let done = progress.done();
        // Without a processed offset, records before this chunk may be held by the application.
        let is_first = done.is_none() && reached == *from && progress.consumed_position().is_none();
        if store && (done == Some(reached) || is_first) {
            progress.set_done_in(*generation, *next);
        } else {
            progress.note_skipped(reached, *next);
        }
        progress.set_position_in(*generation, *next);
    }

    /// The unread part, as a chunk.
    pub(super) fn into_rest(mut self) -> Chunk {
        if let Some((set, mark)) = self.set.filter(|(set, mark)| set.has_more(mark)) {
            self.chunk.count += u64::from(set.left(&mark));
            self.chunk.records = self.from_set;
        }
        self.chunk.from = self.reached;
        self.chunk
    }

    /// Moves to the next batch that has records for the application. Returns `false` when the chunk is fully read.
    pub(super) fn advance(&mut self, reading: &ReadContext) -> Result<bool, Error> {
        self.set = None;
        let Some(set) = self.next_set(reading)? else { return Ok(false) };
        let mut mark = Mark::default();
        // A fetch from the middle of a batch returns the whole batch.
        let mut before = mark;
        while let Some(record) = set.next_at(&mut mark) {
            let offset = record
                .map_err(|error| corrupt(&self.chunk.progress.at, set.header().base_offset, &error))?
                .offset;
            if offset >= self.chunk.from {
                self.set = Some((set, before));
                return Ok(true);
            }
            before = mark;
        }
        Ok(!self.chunk.records.is_empty())
    }

    /// The rest of the open batch and the batches after it, up to a decompressed size; `None` when the chunk is fully
    /// read.
    pub(super) fn batch(&mut self, reading: &ReadContext) -> Result<Option<Batch>, Error> {
        // Records that were already taken out of the chunk were returned to the application.
        let from = self.reached;
        let (high_watermark, node) = (self.chunk.high_watermark, self.chunk.node);
        let at = self.chunk.progress.at.clone();
        let (sets, start) = (Vec::new(), Mark::default());
        let mut batch =
            Batch { at, from, next: from, high_watermark, node, sets, start, delivery_count: None };
        if let Some((set, _)) = self.set.take().filter(|(set, mark)| set.has_more(mark)) {
            batch.next = set.header().next_offset();
            batch.sets.push(set);
        }
        let mut decompressed = 0;
        while decompressed < DECOMPRESSED_BYTES_ENOUGH {
            let set = match self.next_set(reading) {
                Ok(Some(set)) => set,
                Ok(None) => break,
                // The batches before the error are returned first.
                Err(_) if !batch.sets.is_empty() => break,
                Err(error) => return Err(error),
            };
            if set.header().compression() != Ok(Compression::None) {
                decompressed += set.block().len();
            }
            batch.next = set.header().next_offset();
            batch.sets.push(set);
        }
        if self.chunk.records.is_empty() {
            batch.next = self.chunk.next;
        }
        let found = !batch.sets.is_empty();
        if found {
            self.reached = batch.next;
            self.chunk.progress.set_position_in(self.chunk.generation, batch.next);
        }
        Ok(found.then_some(batch))
    }

    /// Removes the corrupt batch at the front, if the start of the next one is certain. The failed checksum does not
    /// confirm the length of the batch.
    pub(super) fn pass_corrupt(&mut self, error: &Error) -> Option<CorruptBatch> {
        let chunk = &mut self.chunk;
        let header = BatchHeader::parse(&chunk.records).ok()?;
        let size = header.total_bytes().min(chunk.records.len());
        let next = if size < chunk.records.len() {
            BatchHeader::parse(&chunk.records[size..]).ok()?.base_offset
        } else {
            // Two fields agree, unless the batch was compacted.
            let is_certain = i64::from(header.record_count) == header.next_offset() - header.base_offset;
            Some(header.next_offset()).filter(|next| is_certain && *next <= chunk.high_watermark)?
        };
        let from = header.base_offset.max(chunk.from);
        if next <= from {
            return None;
        }
        let bytes = chunk.records.split_to(size);
        let at = chunk.progress.at.clone();
        chunk.progress.set_position_in(chunk.generation, next);
        self.reached = next;
        self.set = None;
        self.from_set = chunk.records.clone();
        Some(CorruptBatch { at, from, next, bytes, error: error.clone() })
    }

    /// Verifies and decompresses the next batch that has records for the application. A corrupt batch stays at the
    /// front.
    fn next_set(&mut self, reading: &ReadContext) -> Result<Option<Records>, Error> {
        let chunk = &mut self.chunk;
        let config = &reading.config;
        while !chunk.records.is_empty() {
            let header = BatchHeader::parse(&chunk.records)
                .map_err(|error| corrupt(&chunk.progress.at, chunk.from, &error))?;
            let broken = |error: &dyn ToString| corrupt(&chunk.progress.at, header.base_offset, error);
            if config.check_crcs {
                header.verify_crc(&chunk.records).map_err(|error| broken(&error))?;
            }
            let bytes = chunk.records.slice(..header.total_bytes().min(chunk.records.len()));
            let committed_only = config.isolation_level == Isolation::ReadCommitted;
            let skip = committed_only && chunk.aborted.covers(&header);
            if skip || header.is_control() || header.record_count == 0 || header.last_offset() < chunk.from {
                chunk.records.advance(bytes.len());
                continue;
            }
            let keep = |block| reading.budget.hold(block);
            let set = Records::of_batch_in(&bytes, config.decompressed_max_bytes, keep)
                .map_err(|error| broken(&error))?;
            // The rest of the chunk may begin here. The skipped batches before must not be read again: the filter has passed the
            // transactions that they belong to.
            self.from_set = chunk.records.clone();
            chunk.records.advance(bytes.len());
            chunk.progress.set_epoch(header.partition_leader_epoch);
            let count = i64::from(header.record_count).min(header.last_offset() - chunk.from + 1) as u64;
            chunk.count = chunk.count.saturating_sub(count);
            let TopicPartition { topic, partition } = &chunk.progress.at;
            let next = header.next_offset();
            reading.observer.consumed(topic, *partition, count, bytes.len() as u64, next);
            return Ok(Some(set));
        }
        Ok(None)
    }
}

pub(super) fn corrupt(at: &TopicPartition, offset: i64, error: &dyn ToString) -> Error {
    let (topic, partition) = (at.topic.to_string(), at.partition);
    Error::Corrupt { topic, partition, offset, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use ottla_wire::{BatchBuilder, Seal, batch};

    use super::*;
    use crate::fetch::aborted::AbortedTransactions;

    /// A chunk with only a transaction marker.
    fn marker(progress: &Arc<PartitionProgress>, from: i64) -> OpenChunk {
        OpenChunk::new(Chunk {
            progress: progress.clone(),
            generation: progress.generation(),
            from,
            next: from + 1,
            high_watermark: from + 1,
            node: 1,
            records: Bytes::new(),
            count: 0,
            aborted: AbortedTransactions::new(Vec::new()),
        })
    }

    fn started_at(offset: i64) -> Arc<PartitionProgress> {
        let progress = Arc::new(PartitionProgress::new(TopicPartition::new("orders", 0)));
        progress.begin_at(offset);
        progress
    }

    /// A batch of one record, with the key of a transaction marker that aborts.
    fn batch_at(base_offset: i64, seal: &Seal) -> Vec<u8> {
        let mut builder = BatchBuilder::new();
        builder.push(0, Some(&[0, 0, 0, 0]), Some(b"value"), &[]);
        let mut bytes = builder.seal(seal).expect("no codec").to_bytes().to_vec();
        batch::set_base_offset(&mut bytes, base_offset);
        bytes
    }

    fn read_committed() -> ReadContext {
        let mut config = Config::new("a");
        config.isolation_level = Isolation::ReadCommitted;
        let observer = Observer::new(&config, 1);
        ReadContext { config: Arc::new(config), budget: Budget::new(1 << 20, Arc::default()), observer }
    }

    /// The rest of the chunk began with the aborted batch, whose transaction the filter had passed: its record was returned.
    #[test]
    fn a_partition_that_is_paused_while_a_batch_is_opened_returns_no_aborted_record() {
        let progress = started_at(0);
        let transactional =
            Seal { producer_id: 7, producer_epoch: 0, transactional: true, ..Seal::default() };
        let aborted = batch_at(0, &transactional);
        let mut marker = batch_at(1, &transactional);
        batch::set_control(&mut marker);
        let committed = batch_at(2, &Seal::default());
        let mut opened = OpenChunk::new(Chunk {
            progress: progress.clone(),
            generation: progress.generation(),
            from: 0,
            next: 3,
            high_watermark: 3,
            node: 1,
            records: Bytes::from([aborted, marker, committed].concat()),
            count: 3,
            aborted: AbortedTransactions::new(vec![(0, 7)]),
        });
        let reading = read_committed();
        // The application pauses the partition before the record of the batch that was opened is returned.
        for time in ["at first", "after the pause"] {
            assert!(opened.advance(&reading).expect("sound batches"), "{time}");
            let (set, _) = opened.set.as_ref().expect("an open batch");
            assert_eq!(set.header().base_offset, 2, "{time}");
            opened = OpenChunk::new(opened.into_rest());
        }
    }

    /// The producer stayed in the filter behind a marker that could not be read: its later records, which were committed, were left out.
    #[test]
    fn a_damaged_marker_ends_its_transaction_without_checksums() {
        let progress = started_at(0);
        let transactional =
            Seal { producer_id: 7, producer_epoch: 0, transactional: true, ..Seal::default() };
        let aborted = batch_at(0, &transactional);
        let mut marker = batch_at(1, &transactional);
        batch::set_control(&mut marker);
        // The records of the batch, among them the type of the marker.
        marker[batch::HEADER_BYTES..].fill(0xff);
        let committed = batch_at(2, &transactional);
        let mut opened = OpenChunk::new(Chunk {
            progress: progress.clone(),
            generation: progress.generation(),
            from: 0,
            next: 3,
            high_watermark: 3,
            node: 1,
            records: Bytes::from([aborted, marker, committed].concat()),
            count: 3,
            aborted: AbortedTransactions::new(vec![(0, 7)]),
        });
        let mut reading = read_committed();
        let mut config = (*reading.config).clone();
        config.check_crcs = false;
        reading.config = Arc::new(config);
        assert!(opened.advance(&reading).expect("checksums are off"));
        let (set, _) = opened.set.as_ref().expect("an open batch");
        assert_eq!(set.header().base_offset, 2);
    }

    /// The position that a poll set during a seek was taken for that of the seek's records: the ones before it were skipped.
    #[test]
    fn a_position_of_an_earlier_generation_does_not_cut_the_next_chunk() {
        let progress = started_at(57);
        let earlier = marker(&progress, 57);
        progress.next_generation();
        progress.begin_at(10);
        let later = marker(&progress, 10);
        earlier.skip_rest(false);
        assert_eq!(progress.position(), Some(10));
        assert_eq!(later.into_rest().from, 10);
    }

    #[test]
    fn a_marker_before_the_first_record_counts_as_processed() {
        let progress = started_at(7);
        marker(&progress, 7).skip_rest(true);
        assert_eq!((progress.position(), progress.done()), (Some(8), Some(8)));
    }

    /// The marker's offset was committed, although the application had not finished the records before it.
    #[test]
    fn a_marker_behind_unfinished_records_does_not_count_as_processed() {
        let progress = started_at(0);
        progress.set_position(5);
        marker(&progress, 5).skip_rest(true);
        assert_eq!((progress.position(), progress.done()), (Some(6), None));
        assert_eq!(progress.after_skipped(5), 6, "it does when they are finished");
    }
}
