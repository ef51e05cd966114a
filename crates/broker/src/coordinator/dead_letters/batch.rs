//! Dead letters as a batch: a record for each offset of the source, with Kafka's headers, and a copy of its key and value if the
//! group wants that. A control record (the marker of a transaction) has no letter: no application has written it.

use std::sync::Arc;

use bytes::BytesMut;
use ottla_log::ReadPlan;
use ottla_wire::batch::HEADER_BYTES;
use ottla_wire::{BatchBuilder, Chain, HeaderRef, Mark, RecordRef, Records, Seal};

use super::{BatchLimit, DeadLetters, LetterSource};
use crate::cluster::Cluster;
use crate::coordinator::share_partition::batches::spans;
use crate::partition::Partition;

/// Letters in one batch: each is at least some 250 bytes, and is read from a log of its own choice.
pub(super) const RECORDS_MAX: usize = 1000;
/// A batch grows up to this size; one letter alone may be larger.
const BATCH_BYTES: usize = 1 << 20;
/// The records of a batch of the source that inflates to more are not copied: the limit of their memory.
pub(super) const INFLATED_BYTES_MAX: usize = 16 << 20;

/// The letters that the next batch begins with.
#[derive(Debug)]
pub(super) struct BatchRequest {
    pub(super) source: LetterSource,
    /// In the order of their offsets, without overlaps.
    pub(super) letters: Vec<DeadLetters>,
    pub(super) copies_records: bool,
    pub(super) limit: BatchLimit,
    /// The largest batch of the dead-letter topic.
    pub(super) message_bytes_max: usize,
}

/// A batch of letters.
#[derive(Debug)]
pub(super) struct LetterBatch {
    /// `None` if all offsets are those of control records.
    pub(super) bytes: Option<BytesMut>,
    pub(super) letters: u64,
    /// The first and the last offset of the source that the batch covers.
    pub(super) offsets: (i64, i64),
    /// The letters whose record was to be copied and was not.
    pub(super) without_copy: usize,
}

/// Builds a batch. It reads the source's log, and so it can block. `None` if there are no letters.
pub(super) fn build(cluster: &Cluster, request: &BatchRequest) -> Option<LetterBatch> {
    let BatchRequest { source, letters, copies_records, limit, message_bytes_max } = request;
    let records_max = match limit {
        BatchLimit::Bytes => RECORDS_MAX,
        BatchLimit::OneRecord => 1,
    };
    let bytes_max = BATCH_BYTES.min(*message_bytes_max);
    let source_log = source.partition.as_deref();
    let mut reader = source_log.map(|partition| SourceReader::new(partition, *copies_records));
    let partition = source.index.to_string();
    let now_ms = cluster.clock.now_ms();
    let (mut batch, mut written, mut without_copy) = (BatchBuilder::new(), 0, 0);
    let mut offsets = None;
    let all = letters
        .iter()
        .flat_map(|letters| (letters.first..=letters.last).map(move |offset| (letters, offset)));
    for (letters, offset) in all.take(records_max) {
        let (first, _) = offsets.unwrap_or((offset, offset));
        if reader.as_mut().is_some_and(|reader| reader.is_control(cluster, offset)) {
            offsets = Some((first, offset));
            continue;
        }
        let (number, count) = (offset.to_string(), letters.delivery_count.to_string());
        let headers: [HeaderRef<'_>; 6] = [
            (b"__dlq.errors.topic", Some(source.topic.as_bytes())),
            (b"__dlq.errors.partition", Some(partition.as_bytes())),
            (b"__dlq.errors.offset", Some(number.as_bytes())),
            (b"__dlq.errors.group", Some(source.group.as_bytes())),
            (b"__dlq.errors.delivery.count", Some(count.as_bytes())),
            (b"__dlq.errors.message", Some(letters.cause.message().as_bytes())),
        ];
        let copy = reader.as_mut().and_then(|reader| reader.record(offset));
        let size_of = |copy: Option<RecordRef<'_>>| {
            let (key, value) = (copy.and_then(|record| record.key), copy.and_then(|record| record.value));
            BatchBuilder::record_bytes_max(key, value, &headers)
        };
        // A copy that does not fit into a batch of its own is left out: the letter names the place of the original.
        let copy = copy.filter(|record| HEADER_BYTES + size_of(Some(*record)) <= *message_bytes_max);
        if !batch.is_empty() && batch.len() + size_of(copy) > bytes_max {
            break;
        }
        batch.push(
            now_ms,
            copy.and_then(|record| record.key),
            copy.and_then(|record| record.value),
            &headers,
        );
        written += 1;
        without_copy += usize::from(*copies_records && copy.is_none());
        offsets = Some((first, offset));
    }
    let offsets = offsets?;
    if batch.is_empty() {
        return Some(LetterBatch { bytes: None, letters: 0, offsets, without_copy });
    }
    let sealed = batch.seal(&Seal::default());
    let sealed = sealed
        .inspect_err(|error| tracing::error!(%error, "cannot build a batch: please report this"))
        .ok()?;
    let bytes = sealed.to_bytes();
    drop(sealed);
    let bytes = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    Some(LetterBatch { bytes: Some(bytes), letters: written, offsets, without_copy })
}

/// Reads records of a log in the order of their offsets, batch by batch.
struct SourceReader<'a> {
    partition: &'a Partition,
    copies_records: bool,
    /// The batch that was read last, and the place in it. `None` without copies, or if it cannot be read.
    records: Option<Records>,
    mark: Mark,
    /// Offsets from here to the end are those of control records.
    control_from: i64,
    /// Offsets below are read, or cannot be.
    end: i64,
}

impl<'a> SourceReader<'a> {
    fn new(partition: &'a Partition, copies_records: bool) -> Self {
        let mark = Mark::default();
        Self { partition, copies_records, records: None, mark, control_from: i64::MAX, end: 0 }
    }

    /// Returns `true` if there is a control record at this offset, which is above the one before.
    fn is_control(&mut self, cluster: &Cluster, offset: i64) -> bool {
        if offset >= self.end {
            self.load(cluster, offset);
        }
        offset >= self.control_from
    }

    /// The record with this offset, for which [`Self::is_control`] was called. `None` if it does not exist any more, or cannot be
    /// read.
    fn record(&mut self, offset: i64) -> Option<RecordRef<'_>> {
        let Self { records, mark, .. } = self;
        let records = records.as_ref()?;
        loop {
            let before = *mark;
            let record = records.next_at(mark)?.ok()?;
            if record.offset == offset {
                return Some(record);
            }
            if record.offset > offset {
                // Compaction has removed it. The one that was found may be the next one.
                *mark = before;
                return None;
            }
        }
    }

    /// Reads the batch with this offset, or the first one after it: its header only if no record is copied.
    fn load(&mut self, cluster: &Cluster, offset: i64) {
        (self.records, self.mark, self.control_from, self.end) =
            (None, Mark::default(), i64::MAX, offset + 1);
        let Some(chain) = self.read(cluster, offset) else { return };
        let found = spans(&chain, &[], offset, self.partition.high_watermark());
        let Some(span) = found.ok().and_then(|spans| spans.first().copied()) else { return };
        self.end = self.end.max(span.last + 1);
        if span.is_control {
            self.control_from = span.base;
        } else if self.copies_records {
            self.load_records(&chain);
        }
    }

    fn load_records(&mut self, chain: &Chain) {
        let Ok(bytes) = chain.to_bytes() else { return };
        match Records::of_batch(&bytes, INFLATED_BYTES_MAX) {
            Ok(records) => self.records = Some(records),
            Err(error) => {
                tracing::warn!(%error, topic = %self.partition.topic, partition = self.partition.index,
                    "records are not copied to a dead-letter queue");
            }
        }
    }

    fn read(&self, cluster: &Cluster, offset: i64) -> Option<Chain> {
        let mut from = offset;
        loop {
            let end = self.partition.high_watermark();
            let plan = cluster.log_with_files(self.partition).plan_read(from, 1, end, true);
            let found = match plan {
                Ok(ReadPlan::Ready(found)) => Ok(found),
                // The log is free for others meanwhile.
                Ok(ReadPlan::Cold(cold)) => cold.run(),
                Err(error) => Err(error),
            };
            let found =
                found.inspect_err(|error| tracing::debug!(%error, "a dead letter has no copy")).ok()?;
            if !found.chain.is_empty() {
                return Some(found.chain);
            }
            // A gap at the end of a segment.
            from = found.next_offset.filter(|next| *next > from && *next < end)?;
        }
    }
}

/// The memory that the build of a batch needs.
pub(super) fn memory_bytes(source: Option<&Arc<Partition>>, message_bytes_max: usize) -> usize {
    let batch = 2 * BATCH_BYTES.max(message_bytes_max);
    let read =
        source.map_or(0, |source| source.log().config().message_bytes_max as usize + INFLATED_BYTES_MAX);
    batch.saturating_add(read)
}
