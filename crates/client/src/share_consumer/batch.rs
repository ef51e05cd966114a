//! Batches of a share group's records, as returned by a poll.

use std::ops::{Deref, RangeInclusive};
use std::sync::Arc;

use ottla_protocol::Uuid;
use ottla_wire::{RecordIter, Records};

use crate::consumer::{Batch, RecordView};
use crate::record::OwnedRecord;
use crate::share::queue::AcquiredRange;
use crate::types::TopicPartition;

/// Records of one partition that the group delivered to this consumer. It owns its bytes, so it can move to another thread and
/// outlive the consumer.
///
/// While it or a record that shares its bytes exists, they count against `queued.max.messages.kbytes`.
#[derive(Clone, Debug)]
pub struct ShareBatch {
    pub(super) at: TopicPartition,
    pub(super) topic_id: Uuid,
    pub(super) node: i32,
    /// Verified sets in the order of their offsets. They may have records that are not acquired.
    pub(super) sets: Arc<[Records]>,
    /// The offsets of the acquired records, in order: each offset in them has a record.
    pub(super) acquired: Arc<[AcquiredRange]>,
}

/// A record of a [`ShareBatch`], in place.
#[derive(Clone, Copy, Debug)]
pub struct ShareRecord<'a> {
    view: RecordView<'a>,
    delivery_count: i16,
}

impl ShareRecord<'_> {
    /// The number of deliveries of this record to members of the group, including this one.
    pub fn delivery_count(&self) -> i16 {
        self.delivery_count
    }

    /// Returns a record that shares the memory of the response and keeps it alive: see [`OwnedRecord::compact`].
    pub fn to_owned(&self) -> OwnedRecord {
        self.view.to_owned()
    }
}

impl<'a> Deref for ShareRecord<'a> {
    type Target = RecordView<'a>;

    fn deref(&self) -> &RecordView<'a> {
        &self.view
    }
}

impl ShareBatch {
    /// The topic and the partition.
    pub fn at(&self) -> &TopicPartition {
        &self.at
    }

    /// The topic.
    pub fn topic(&self) -> &Arc<str> {
        &self.at.topic
    }

    /// The partition.
    pub fn partition(&self) -> i32 {
        self.at.partition
    }

    /// The id of the topic: another one after the topic was created again.
    pub fn topic_id(&self) -> Uuid {
        self.topic_id
    }

    /// The offsets of the delivered records, in order, with their delivery count. Each offset has a record.
    pub fn ranges(&self) -> impl Iterator<Item = (RangeInclusive<i64>, i16)> {
        self.acquired.iter().map(|range| (range.first..=range.last, range.delivery_count))
    }

    /// The delivered records at `offsets`, which lie in one of [`ranges`](Self::ranges), as a batch that shares their bytes; `None`
    /// if one of the offsets is not delivered.
    pub fn records_at(&self, offsets: RangeInclusive<i64>) -> Option<Batch> {
        let (first, last) = offsets.into_inner();
        let found = self.acquired.partition_point(|range| range.last < first);
        let is_delivered =
            |range: &&AcquiredRange| first >= range.first && (first..=range.last).contains(&last);
        let range = self.acquired.get(found).filter(is_delivered)?;
        let has_some = |set: &&Records| {
            let header = set.header();
            header.base_offset <= last && first <= header.last_offset()
        };
        let sets = self.sets.iter().filter(has_some).cloned().collect();
        Some(Batch::delivered(self.at.clone(), (first, last + 1), range.delivery_count, self.node, sets))
    }

    /// The number of the delivered records in this batch.
    pub fn len(&self) -> usize {
        self.acquired.iter().map(|range| (range.last - range.first + 1) as usize).sum()
    }

    /// Returns `true` if the batch has no records. A poll returns no such batch.
    pub fn is_empty(&self) -> bool {
        self.acquired.is_empty()
    }

    /// Iterates over the records in the order of their offsets, without copying them.
    #[inline]
    pub fn iter(&self) -> ShareRecords<'_> {
        ShareRecords { batch: self, sets: self.sets.iter(), current: None, ranges: &self.acquired }
    }

    /// Returns the records, each owning slices of the response.
    pub fn to_owned_records(&self) -> Vec<OwnedRecord> {
        self.iter().map(|record| record.to_owned()).collect()
    }

    /// The records at these offsets; `None` if the batch has none of them.
    pub(super) fn restricted(&self, offsets: &[(i64, i64)]) -> Option<Self> {
        let cut = |range: &AcquiredRange, (first, last): &(i64, i64)| {
            let (first, last) = (range.first.max(*first), range.last.min(*last));
            (first <= last).then_some(AcquiredRange { first, last, ..*range })
        };
        let cuts = |range: &AcquiredRange| {
            offsets.iter().filter_map(|offsets| cut(range, offsets)).collect::<Vec<_>>()
        };
        let acquired: Arc<[AcquiredRange]> = self.acquired.iter().flat_map(cuts).collect();
        (!acquired.is_empty()).then(|| Self { acquired, ..self.clone() })
    }
}

impl<'a> IntoIterator for &'a ShareBatch {
    type Item = ShareRecord<'a>;
    type IntoIter = ShareRecords<'a>;

    fn into_iter(self) -> ShareRecords<'a> {
        self.iter()
    }
}

/// An iterator over the records of a [`ShareBatch`].
#[derive(Clone, Debug)]
pub struct ShareRecords<'a> {
    batch: &'a ShareBatch,
    sets: std::slice::Iter<'a, Records>,
    current: Option<(RecordIter<'a>, &'a Records)>,
    /// The acquired ranges that are not passed.
    ranges: &'a [AcquiredRange],
}

impl<'a> Iterator for ShareRecords<'a> {
    type Item = ShareRecord<'a>;

    #[inline]
    fn next(&mut self) -> Option<ShareRecord<'a>> {
        loop {
            if let Some((records, set)) = &mut self.current {
                // The records were read once when the poll opened the batch: there is no error.
                while let Some(Ok(record)) = records.next() {
                    while self.ranges.first().is_some_and(|range| range.last < record.offset) {
                        self.ranges = &self.ranges[1..];
                    }
                    let range = self.ranges.first()?;
                    if range.first <= record.offset {
                        let view = RecordView::new(&self.batch.at, record, set, self.batch.node);
                        return Some(ShareRecord { view, delivery_count: range.delivery_count });
                    }
                }
            }
            let set = self.sets.next()?;
            self.current = Some((set.iter(), set));
        }
    }
}
