//! Records of one partition, as a poll gives them.

use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::{BatchHeader, RecordIter, RecordRef, Records};

use crate::error::Error;
use crate::record::OwnedRecord;

/// Records of one partition, fetched together. Owns its bytes: it can go to another thread and outlive the consumer.
///
/// As long as it or a record that shares its bytes is held, they count against `queued.max.messages.kbytes`.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) from: i64,
    pub(super) next: i64,
    pub(super) high_watermark: i64,
    pub(super) sets: Vec<Records>,
}

impl Batch {
    /// The topic.
    pub fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// The partition.
    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// The offset after the last record: what to commit when all of them are done.
    pub fn next_offset(&self) -> i64 {
        self.next
    }

    /// The partition's high watermark when this was fetched; minus [`Batch::next_offset`], the lag.
    pub fn high_watermark(&self) -> i64 {
        self.high_watermark
    }

    /// The records, borrowed: nothing is copied.
    ///
    /// # Errors
    /// Records that contradict their batch; those before stand.
    #[inline]
    pub fn iter(&self) -> BatchIter<'_> {
        BatchIter { batch: self, sets: self.sets.iter(), current: None }
    }

    /// The records, each owning slices of the response they came in.
    pub fn to_owned_records(&self) -> Result<Vec<OwnedRecord>, Error> {
        let mut out = Vec::new();
        for set in &self.sets {
            for record in set {
                let record = record.map_err(|error| self.corrupt(set.header(), &error))?;
                if record.offset >= self.from {
                    out.push(own(&record, set.block()));
                }
            }
        }
        Ok(out)
    }

    fn corrupt(&self, header: &BatchHeader, error: &impl ToString) -> Error {
        Error::Corrupt {
            topic: self.topic.to_string(),
            partition: self.partition,
            offset: header.base_offset,
            reason: error.to_string(),
        }
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = Result<RecordRef<'a>, Error>;
    type IntoIter = BatchIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Walks the records of a [`Batch`].
#[derive(Clone, Debug)]
pub struct BatchIter<'a> {
    batch: &'a Batch,
    sets: std::slice::Iter<'a, Records>,
    current: Option<(RecordIter<'a>, &'a BatchHeader)>,
}

impl<'a> Iterator for BatchIter<'a> {
    type Item = Result<RecordRef<'a>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((records, header)) = &mut self.current {
                match records.next() {
                    // A fetch from the middle of a batch brings the whole batch.
                    Some(Ok(record)) if record.offset < self.batch.from => continue,
                    Some(Ok(record)) => return Some(Ok(record)),
                    Some(Err(error)) => return Some(Err(self.batch.corrupt(header, &error))),
                    None => {}
                }
            }
            let set = self.sets.next()?;
            self.current = Some((set.iter(), set.header()));
        }
    }
}

/// The record with slices of the block it lies in.
pub(super) fn own(record: &RecordRef<'_>, block: &Bytes) -> OwnedRecord {
    let slice = |part: &[u8]| if part.is_empty() { Bytes::new() } else { block.slice_ref(part) };
    OwnedRecord {
        offset: record.offset,
        timestamp_ms: record.timestamp,
        key: record.key.map(slice),
        value: record.value.map(slice),
        headers: record
            .headers
            .iter()
            .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.map(slice)))
            .collect(),
    }
}
