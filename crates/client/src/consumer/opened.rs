//! A chunk that the polling thread has taken out of the inbox: checked and decompressed here, one batch after the other,
//! so that no more than one is in memory twice.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use ottla_wire::{BatchHeader, Compression, Mark, Records};

use super::batch::{Batch, CorruptBatch};
use super::{DECOMPRESSED_BYTES_ENOUGH, TopicPartition};
use crate::config::{Config, Isolation};
use crate::error::Error;
use crate::fetch::budget::Budget;
use crate::fetch::inbox::Chunk;
use crate::fetch::place::Place;
use crate::stats::Observer;

/// How a chunk is read.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) config: Arc<Config>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) observer: Arc<Observer>,
}

impl Reading {
    /// Everything before `next` is given to the application. `next` comes back if it is done only when more is asked for.
    #[inline]
    pub(super) fn give(&self, place: &Place, next: i64) -> Option<i64> {
        place.hand_out(next);
        if !self.config.done_when_handed_out {
            return Some(next);
        }
        if self.config.auto_offset_store {
            place.finish(next);
        }
        None
    }
}

/// What is left of a chunk, and the batch at its front.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(super) chunk: Chunk,
    /// The batch that is being walked, and how far.
    pub(super) set: Option<(Records, Mark)>,
    /// The chunk's bytes from that batch on.
    from_set: Bytes,
}

impl Opened {
    pub(crate) fn new(chunk: Chunk) -> Self {
        Self { from_set: chunk.records.clone(), chunk, set: None }
    }

    pub(crate) fn place(&self) -> &Arc<Place> {
        &self.chunk.place
    }

    /// Whether more may come from it: it is not void, not parked, not through.
    pub(super) fn is_readable(&self) -> bool {
        let has_more = self.set.as_ref().is_some_and(|(set, mark)| set.has_more(mark));
        let through = self.chunk.records.is_empty() && !has_more;
        self.chunk.is_readable() && !through
    }

    /// Nothing is left but markers and aborted records: they are done if what was handed out before them is.
    pub(super) fn skip_rest(&self, store: bool) {
        let Chunk { place, from, next, .. } = &self.chunk;
        let reached = place.position();
        let done = place.done();
        if store && (done == reached || (done.is_none() && reached == Some(*from))) {
            place.finish(*next);
        }
        place.hand_out(*next);
    }

    /// What was not handed out, as a chunk.
    pub(super) fn into_rest(mut self) -> Chunk {
        if let Some((set, mark)) = self.set.filter(|(set, mark)| set.has_more(mark)) {
            self.chunk.count += u64::from(set.left(&mark));
            self.chunk.records = self.from_set;
        }
        self.chunk.from = self.chunk.place.position().unwrap_or(self.chunk.from);
        self.chunk
    }

    /// Goes to the next batch that has records for the application; `false` when the chunk is through.
    pub(super) fn advance(&mut self, reading: &Reading) -> Result<bool, Error> {
        self.from_set = self.chunk.records.clone();
        self.set = None;
        let Some(set) = self.next_set(reading)? else { return Ok(false) };
        let mut mark = Mark::default();
        // A fetch from the middle of a batch brings the whole batch.
        let mut before = mark;
        while let Some(record) = set.next_at(&mut mark) {
            let offset = record
                .map_err(|error| corrupt(&self.chunk.place.at, set.header().base_offset, &error))?
                .offset;
            if offset >= self.chunk.from {
                self.set = Some((set, before));
                return Ok(true);
            }
            before = mark;
        }
        Ok(!self.chunk.records.is_empty())
    }

    /// All that is left of the batch at hand and those behind it, or enough of them; none when the chunk is through.
    pub(super) fn batch(&mut self, reading: &Reading) -> Result<Option<Batch>, Error> {
        // What was taken out of the chunk before is handed out.
        let from =
            self.chunk.place.position().map_or(self.chunk.from, |reached| reached.max(self.chunk.from));
        let high_watermark = self.chunk.high_watermark;
        let at = self.chunk.place.at.clone();
        let (sets, start) = (Vec::new(), Mark::default());
        let mut batch = Batch { at, from, next: from, high_watermark, sets, start };
        if let Some((set, _)) = self.set.take().filter(|(set, mark)| set.has_more(mark)) {
            batch.next = set.header().next_offset();
            batch.sets.push(set);
        }
        let mut decompressed = 0;
        while decompressed < DECOMPRESSED_BYTES_ENOUGH {
            let set = match self.next_set(reading) {
                Ok(Some(set)) => set,
                Ok(None) => break,
                // What is sound comes first.
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
            self.chunk.place.hand_out(batch.next);
        }
        Ok(found.then_some(batch))
    }

    /// Takes the batch at the front off, which is not sound, if it is certain where the next one begins: the checksum that
    /// would vouch for its extent is wrong.
    pub(super) fn pass_corrupt(&mut self, error: &Error) -> Option<CorruptBatch> {
        let chunk = &mut self.chunk;
        let header = BatchHeader::parse(&chunk.records).ok()?;
        let size = header.total_bytes().min(chunk.records.len());
        let next = if size < chunk.records.len() {
            BatchHeader::parse(&chunk.records[size..]).ok()?.base_offset
        } else {
            // Two fields say the same, as long as nothing was compacted.
            let is_certain = i64::from(header.record_count) == header.next_offset() - header.base_offset;
            Some(header.next_offset()).filter(|next| is_certain && *next <= chunk.high_watermark)?
        };
        let from = header.base_offset.max(chunk.from);
        if next <= from {
            return None;
        }
        let bytes = chunk.records.split_to(size);
        let at = chunk.place.at.clone();
        chunk.place.hand_out(next);
        self.set = None;
        self.from_set = chunk.records.clone();
        Some(CorruptBatch { at, from, next, bytes, error: error.clone() })
    }

    /// Verifies and decompresses the next batch that has records for the application. One that is not sound stays at the
    /// front.
    fn next_set(&mut self, reading: &Reading) -> Result<Option<Records>, Error> {
        let chunk = &mut self.chunk;
        let config = &reading.config;
        while !chunk.records.is_empty() {
            let header = BatchHeader::parse(&chunk.records)
                .map_err(|error| corrupt(&chunk.place.at, chunk.from, &error))?;
            let broken = |error: &dyn ToString| corrupt(&chunk.place.at, header.base_offset, error);
            if config.check_crcs {
                header.verify_crc(&chunk.records).map_err(|error| broken(&error))?;
            }
            let bytes = chunk.records.slice(..header.total_bytes().min(chunk.records.len()));
            let committed_only = config.isolation == Isolation::ReadCommitted;
            let skip = committed_only && chunk.aborted.covers(&header, &bytes);
            if skip || header.is_control() || header.record_count == 0 || header.last_offset() < chunk.from {
                chunk.records.advance(bytes.len());
                continue;
            }
            let keep = |block| reading.budget.hold(block);
            let set = Records::of_batch_in(&bytes, config.decompressed_bytes_max, keep)
                .map_err(|error| broken(&error))?;
            chunk.records.advance(bytes.len());
            chunk.place.set_epoch(header.partition_leader_epoch);
            let count = i64::from(header.record_count).min(header.last_offset() - chunk.from + 1) as u64;
            chunk.count = chunk.count.saturating_sub(count);
            let TopicPartition { topic, partition } = &chunk.place.at;
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
