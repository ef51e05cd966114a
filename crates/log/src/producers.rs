//! The producer state: the epoch and the last five batches of each idempotent producer, so that a batch sent twice is
//! found and one sent too early refused; and the open transaction of each transactional one.
//!
//! The state is kept in Kafka's `.snapshot` files. Kafka's own entries remember only the last batch; ours have the
//! other four in a section behind them, which Kafka's tools do not read.

use std::collections::BTreeMap;

use ottla_wire::batch::BatchHeader;

use crate::deliberate::{DeliberateFault, has_deliberate_fault};
use crate::producer_map::{ProducerMap, ProducerSet};

/// Kafka's clients have at most five requests in flight, so that a retry can be that far behind.
pub(crate) const WINDOW: usize = 5;

/// A batch whose check takes long has a time before that of the last look at the clock. A clock that goes back by no more only delays
/// the expiration.
const STEP_BACK_MS_MAX: i64 = 10_000;

/// Kafka's version of the entries.
const SNAPSHOT_VERSION: i16 = 1;
/// The position of the checksummed part of a snapshot: after version and checksum.
const CHECKED_FROM: usize = 6;
const KAFKA_ENTRY_BYTES: usize = 46;
/// Marks the section with the windows.
const WINDOWS_MAGIC: [u8; 4] = *b"OTWN";
const WINDOWS_VERSION: i16 = 2;
/// The version of the windows without the time.
const WINDOWS_WITHOUT_CLOCK: i16 = 1;
const WINDOW_BATCH_BYTES: usize = 32;
/// Marks the section with the sizes of the transaction indexes, which is missing if there are none.
const INDEXES_MAGIC: [u8; 4] = *b"OTTX";
const INDEXES_VERSION: i16 = 1;
const INDEX_BYTES: usize = 16;

/// A batch in a producer's window.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Written {
    pub(crate) base_sequence: i32,
    pub(crate) last_sequence: i32,
    pub(crate) base_offset: i64,
    pub(crate) last_offset: i64,
    pub(crate) timestamp: i64,
}

impl Written {
    /// `true` if a batch can have these numbers. Others, in a snapshot whose checksum is right, would overflow.
    fn is_possible(&self) -> bool {
        let distance = self.last_offset.checked_sub(self.base_offset);
        let fits = distance.is_some_and(|distance| (0..=i64::from(i32::MAX)).contains(&distance));
        fits && self.base_offset >= 0 && self.base_sequence >= 0 && self.last_sequence >= 0
    }
}

/// One producer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Producer {
    pub(crate) epoch: i16,
    /// When it was last heard of.
    seen_ms: i64,
    batches: [Written; WINDOW],
    len: u8,
    /// The coordinator epoch of its last marker, or -1.
    pub(crate) coordinator_epoch: i32,
    /// The first offset of its open transaction, or -1.
    transaction_first: i64,
    /// The largest timestamp of its last batch or marker, or -1.
    last_timestamp: i64,
}

/// A producer, for those who describe a partition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ProducerState {
    /// Its id.
    pub producer_id: i64,
    /// Its latest epoch.
    pub epoch: i16,
    /// Sequence of its last record, or -1.
    pub last_sequence: i32,
    /// The largest timestamp of its last batch or marker, or -1.
    pub last_timestamp: i64,
    /// The coordinator epoch of its last marker, or -1.
    pub coordinator_epoch: i32,
    /// The first offset of its open transaction.
    pub transaction_first_offset: Option<i64>,
}

/// The last batch of a producer, which compaction keeps.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct LastBatch {
    pub(crate) epoch: i16,
    /// The offset of its last record; `None` if only a marker is known.
    pub(crate) offset: Option<i64>,
}

/// The decision about a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// It is the next one.
    Append,
    /// It is in the log already.
    Duplicate(Written),
    /// Its producer was fenced.
    Fenced { current: i16 },
    /// It does not follow the last one.
    OutOfOrder { last: Option<i32> },
}

/// The sequence `count` records after `sequence`: after `i32::MAX` comes 0.
pub(crate) fn sequence_after(sequence: i32, count: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(count);
    (sum % (i64::from(i32::MAX) + 1)) as i32
}

impl Producer {
    pub(crate) fn new(epoch: i16, seen_ms: i64) -> Self {
        Self {
            epoch,
            seen_ms,
            batches: [Written::default(); WINDOW],
            len: 0,
            coordinator_epoch: -1,
            transaction_first: -1,
            last_timestamp: -1,
        }
    }

    /// Returns `true` if it has an open transaction, of whichever epoch.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.transaction_first >= 0
    }

    /// The first offset of its open transaction.
    pub(crate) fn transaction_first(&self) -> Option<i64> {
        Some(self.transaction_first).filter(|first| *first >= 0)
    }

    fn window(&self) -> &[Written] {
        &self.batches[..usize::from(self.len)]
    }

    fn last(&self) -> Option<&Written> {
        self.window().last()
    }

    /// Books the batch with this header, whose first record got `base_offset`.
    pub(crate) fn note(&mut self, header: &BatchHeader, base_offset: i64, now_ms: i64) {
        if header.producer_epoch != self.epoch {
            self.epoch = header.producer_epoch;
            self.len = 0;
        }
        self.seen_ms = self.seen_ms.max(now_ms);
        self.last_timestamp = header.max_timestamp;
        if header.is_control() {
            return;
        }
        if header.is_transactional() && self.transaction_first < 0 {
            self.transaction_first = base_offset;
        }
        // Batches of a coordinator have an epoch but no sequence.
        if header.base_sequence < 0 {
            return;
        }
        let batch = Written {
            base_sequence: header.base_sequence,
            last_sequence: sequence_after(header.base_sequence, header.last_offset_delta),
            base_offset,
            last_offset: base_offset + i64::from(header.last_offset_delta),
            timestamp: header.max_timestamp,
        };
        if usize::from(self.len) == WINDOW {
            self.batches.rotate_left(1);
            self.batches[WINDOW - 1] = batch;
        } else {
            self.batches[usize::from(self.len)] = batch;
            self.len += 1;
        }
    }
}

/// Decides about a batch of a producer of whom `current` is known.
pub(crate) fn judge(current: Option<&Producer>, header: &BatchHeader) -> Verdict {
    // Nothing known: expired, deleted with its records, or new here. Kafka takes any sequence then (KIP-360).
    let Some(current) = current else { return Verdict::Append };
    let is_fenced = header.producer_epoch < current.epoch;
    if is_fenced && has_deliberate_fault(DeliberateFault::NoProducerEpochs) {
        return Verdict::Append;
    }
    if is_fenced {
        return Verdict::Fenced { current: current.epoch };
    }
    if header.producer_epoch > current.epoch {
        let starts_anew = header.base_sequence == 0;
        return if starts_anew { Verdict::Append } else { Verdict::OutOfOrder { last: None } };
    }
    let last_sequence = sequence_after(header.base_sequence, header.last_offset_delta);
    let same = |b: &&Written| b.base_sequence == header.base_sequence && b.last_sequence == last_sequence;
    if let Some(written) = current.window().iter().find(same) {
        if has_deliberate_fault(DeliberateFault::NoDuplicates) {
            return Verdict::Append;
        }
        return Verdict::Duplicate(*written);
    }
    if has_deliberate_fault(DeliberateFault::NoSequences) {
        return Verdict::Append;
    }
    match current.last() {
        Some(last) if header.base_sequence != sequence_after(last.last_sequence, 1) => {
            Verdict::OutOfOrder { last: Some(last.last_sequence) }
        }
        // A marker has begun the epoch.
        None if header.base_sequence != 0 => Verdict::OutOfOrder { last: None },
        _ => Verdict::Append,
    }
}

/// Returns whether a step of the wall clock is not the passing of time.
fn is_jump(step_ms: i64, step_ms_max: i64) -> bool {
    !(-STEP_BACK_MS_MAX..=step_ms_max).contains(&step_ms)
}

/// All producers of a log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Producers {
    map: ProducerMap<Producer>,
    /// The producers of open transactions by the first offset.
    open: BTreeMap<i64, i64>,
    /// The wall clock when it was last looked at.
    clock_ms: Option<i64>,
    /// The wall clock of the snapshot from which they were loaded, if it has producers.
    snapshot_ms: Option<i64>,
    /// The base offsets of segments with transaction indexes and their entries, as the snapshot has them: a missing index
    /// file would not be noticed otherwise.
    pub(crate) indexes: Vec<(i64, u64)>,
}

impl PartialEq for Producers {
    fn eq(&self, other: &Self) -> bool {
        self.map == other.map
    }
}

impl Producers {
    pub(crate) fn get(&self, producer_id: i64) -> Option<&Producer> {
        self.map.get(&producer_id)
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// Books a batch; above `max` producers the longest idle ones are forgotten.
    pub(crate) fn note(&mut self, header: &BatchHeader, base_offset: i64, now_ms: i64, max: usize) {
        if !header.has_producer_id() {
            return;
        }
        let id = header.producer_id;
        if let Some(producer) = self.map.get_mut(&id) {
            let before = producer.transaction_first;
            producer.note(header, base_offset, now_ms);
            if producer.transaction_first != before {
                self.open.insert(producer.transaction_first, id);
            }
            return;
        }
        if self.map.len() >= max {
            self.forget_idlest(max);
        }
        let mut producer = Producer::new(header.producer_epoch, now_ms);
        producer.note(header, base_offset, now_ms);
        if producer.is_in_transaction() {
            self.open.insert(producer.transaction_first, id);
        }
        self.map.insert(id, producer);
    }

    /// Ends the transaction of a producer whose marker was booked with [`Producers::note`]. Returns its first offset;
    /// `None` if none was open.
    pub(crate) fn end_transaction(&mut self, producer_id: i64, coordinator_epoch: i32) -> Option<i64> {
        let producer = self.map.get_mut(&producer_id)?;
        producer.coordinator_epoch = coordinator_epoch;
        let first = producer.transaction_first()?;
        producer.transaction_first = -1;
        self.open.remove(&first);
        Some(first)
    }

    /// The first offset of the first open transaction.
    #[inline]
    pub(crate) fn first_open_offset(&self) -> Option<i64> {
        self.open.first_key_value().map(|(first, _)| *first)
    }

    /// The first offset of the first open transaction of another producer.
    pub(crate) fn first_open_besides(&self, producer_id: i64) -> Option<i64> {
        self.open.iter().find(|(_, other)| **other != producer_id).map(|(first, _)| *first)
    }

    /// Takes the state of these producers from `other`, where it has them.
    pub(crate) fn take_from(&mut self, mut other: Self, producers: &ProducerSet) {
        for id in producers {
            let Some(producer) = other.map.remove(id) else { continue };
            let first = producer.transaction_first();
            let before = self.map.insert(*id, producer);
            if let Some(closed) = before.and_then(|before| before.transaction_first()) {
                self.open.remove(&closed);
            }
            if let Some(first) = first {
                self.open.insert(first, *id);
            }
        }
    }

    /// Makes room for an eighth at once: a sort for each new producer would be dear.
    #[cold]
    fn forget_idlest(&mut self, max: usize) {
        // Without its producer a transaction would have no first offset.
        let closed = self.map.iter().filter(|(_, producer)| !producer.is_in_transaction());
        let mut idle: Vec<(i64, i64)> = closed.map(|(id, p)| (p.seen_ms, *id)).collect();
        idle.sort_unstable();
        let goes = self.map.len().saturating_sub(max) + (max / 8).max(1);
        for (_, id) in idle.into_iter().take(goes) {
            self.map.remove(&id);
        }
    }

    /// Looks at the wall clock. Where it has jumped, the producers keep their ages: a batch that is sent again after the
    /// jump is still found. A step is a jump if it goes back, or if it is longer than `step_ms_max`.
    #[inline]
    pub(crate) fn observe_clock(&mut self, now_ms: i64, step_ms_max: i64) {
        let last = self.clock_ms.replace(now_ms);
        if last.is_none_or(|last| is_jump(now_ms.saturating_sub(last), step_ms_max)) {
            self.shift_ages(last, now_ms, step_ms_max);
        }
    }

    #[cold]
    fn shift_ages(&mut self, last: Option<i64>, now_ms: i64, step_ms_max: i64) {
        // Snapshots of Kafka and of earlier versions have the times of the producers alone.
        let Some(last) = last.or_else(|| self.newest_ms()) else { return };
        let step = now_ms.saturating_sub(last);
        if !is_jump(step, step_ms_max) {
            return;
        }
        tracing::info!(
            step,
            "the wall clock has jumped, or the log was not in use: producers keep their ages"
        );
        for producer in self.map.values_mut() {
            producer.seen_ms = producer.seen_ms.saturating_add(step);
        }
    }

    fn newest_ms(&self) -> Option<i64> {
        self.map.values().map(|producer| producer.seen_ms).max()
    }

    /// Returns `true` if the snapshot is so old that its producers would be younger after the next start.
    pub(crate) fn is_snapshot_stale(&self, expiration_ms: i64) -> bool {
        let times = self.snapshot_ms.zip(self.clock_ms);
        times.is_some_and(|(snapshot, clock)| clock.saturating_sub(snapshot) >= expiration_ms / 8)
    }

    /// Forgets producers without an open transaction that were not heard of for `expiration_ms`.
    pub(crate) fn expire(&mut self, now_ms: i64, expiration_ms: i64, step_ms_max: i64) {
        self.observe_clock(now_ms, step_ms_max);
        self.map.retain(|_, producer| {
            producer.is_in_transaction() || now_ms.saturating_sub(producer.seen_ms) < expiration_ms
        });
    }

    fn sorted(&self) -> Vec<(i64, &Producer)> {
        let mut all: Vec<_> = self.map.iter().map(|(id, producer)| (*id, producer)).collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all
    }

    /// All producers, by id.
    pub(crate) fn describe(&self) -> Vec<ProducerState> {
        self.sorted()
            .into_iter()
            .map(|(producer_id, producer)| ProducerState {
                producer_id,
                epoch: producer.epoch,
                last_sequence: producer.last().map_or(-1, |last| last.last_sequence),
                last_timestamp: producer.last_timestamp,
                coordinator_epoch: producer.coordinator_epoch,
                transaction_first_offset: producer.transaction_first(),
            })
            .collect()
    }

    /// The last batch of each producer.
    pub(crate) fn last_batches(&self) -> ProducerMap<LastBatch> {
        let last = |producer: &Producer| LastBatch {
            epoch: producer.epoch,
            offset: producer.last().map(|last| last.last_offset),
        };
        self.map.iter().map(|(id, producer)| (*id, last(producer))).collect()
    }

    /// The bytes of a snapshot file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let all = self.sorted();
        let mut out = Vec::with_capacity(16 + all.len() * 128);
        out.extend(SNAPSHOT_VERSION.to_be_bytes());
        out.extend([0; 4]);
        out.extend((all.len() as i32).to_be_bytes());
        for (id, producer) in &all {
            let last = producer.last().copied().unwrap_or(Written {
                base_sequence: -1,
                last_sequence: -1,
                base_offset: -1,
                last_offset: -1,
                timestamp: -1,
            });
            out.extend(id.to_be_bytes());
            out.extend(producer.epoch.to_be_bytes());
            out.extend(last.last_sequence.to_be_bytes());
            out.extend(last.last_offset.to_be_bytes());
            out.extend(((last.last_offset - last.base_offset) as i32).to_be_bytes());
            out.extend(producer.last_timestamp.to_be_bytes());
            out.extend(producer.coordinator_epoch.to_be_bytes());
            out.extend(producer.transaction_first.to_be_bytes());
        }
        out.extend(WINDOWS_MAGIC);
        out.extend(WINDOWS_VERSION.to_be_bytes());
        out.extend(self.clock_ms.unwrap_or(-1).to_be_bytes());
        for (_, producer) in &all {
            out.extend(producer.seen_ms.to_be_bytes());
            out.push(producer.len);
            for batch in producer.window() {
                out.extend(batch.base_sequence.to_be_bytes());
                out.extend(batch.last_sequence.to_be_bytes());
                out.extend(batch.base_offset.to_be_bytes());
                out.extend(batch.last_offset.to_be_bytes());
                out.extend(batch.timestamp.to_be_bytes());
            }
        }
        if !self.indexes.is_empty() {
            out.extend(INDEXES_MAGIC);
            out.extend(INDEXES_VERSION.to_be_bytes());
            for (base_offset, entries) in &self.indexes {
                out.extend(base_offset.to_be_bytes());
                out.extend(entries.to_be_bytes());
            }
        }
        let crc = ottla_wire::crc::crc32c(&out[CHECKED_FROM..]);
        out[2..CHECKED_FROM].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// Reads a snapshot; `None` if the bytes are not one. Kafka's own snapshots are read as well.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut input = Input { rest: bytes };
        let version = input.i16()?;
        let crc = input.i32()? as u32;
        if version != SNAPSHOT_VERSION || ottla_wire::crc::crc32c(&bytes[CHECKED_FROM..]) != crc {
            return None;
        }
        let count = usize::try_from(input.i32()?).ok()?;
        if count > input.rest.len() / KAFKA_ENTRY_BYTES {
            return None;
        }
        let mut ids = Vec::with_capacity(count);
        let mut map = ProducerMap::default();
        let mut open = BTreeMap::new();
        for _ in 0..count {
            let (id, epoch) = (input.i64()?, input.i16()?);
            let (last_sequence, last_offset) = (input.i32()?, input.i64()?);
            let (delta, timestamp) = (input.i32()?, input.i64()?);
            let mut producer = Producer::new(epoch, timestamp);
            producer.last_timestamp = timestamp;
            (producer.coordinator_epoch, producer.transaction_first) = (input.i32()?, input.i64()?);
            if producer.transaction_first < -1 || producer.coordinator_epoch < -1 {
                return None;
            }
            if last_sequence >= 0 {
                // The first sequence may lie before the wrap.
                let base = i64::from(last_sequence) - i64::from(delta);
                let base = if base < 0 { base + i64::from(i32::MAX) + 1 } else { base };
                producer.batches[0] = Written {
                    base_sequence: i32::try_from(base).ok()?,
                    last_sequence,
                    base_offset: last_offset.checked_sub(i64::from(delta))?,
                    last_offset,
                    timestamp,
                };
                if !producer.batches[0].is_possible() {
                    return None;
                }
                producer.len = 1;
            }
            if let Some(first) = producer.transaction_first() {
                open.insert(first, id);
            }
            ids.push(id);
            map.insert(id, producer);
        }
        if input.rest.is_empty() {
            return Some(Self { map, open, ..Self::default() }.loaded());
        }
        let clock_ms = Some(input.clock_of_windows()?).filter(|clock| *clock >= 0);
        for id in ids {
            let producer = map.get_mut(&id)?;
            producer.seen_ms = input.i64()?;
            producer.len = input.u8()?;
            if usize::from(producer.len) > WINDOW
                || input.rest.len() < usize::from(producer.len) * WINDOW_BATCH_BYTES
            {
                return None;
            }
            for batch in &mut producer.batches[..usize::from(producer.len)] {
                *batch = Written {
                    base_sequence: input.i32()?,
                    last_sequence: input.i32()?,
                    base_offset: input.i64()?,
                    last_offset: input.i64()?,
                    timestamp: input.i64()?,
                };
                if !batch.is_possible() {
                    return None;
                }
            }
        }
        Some(Self { map, open, clock_ms, snapshot_ms: None, indexes: input.indexes() }.loaded())
    }

    fn loaded(mut self) -> Self {
        let newest_ms = self.newest_ms();
        self.snapshot_ms = newest_ms.map(|newest| self.clock_ms.unwrap_or(newest));
        self
    }
}

/// Big-endian numbers off the front of a slice.
struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// The wall clock at the start of the section with the windows, or -1; `None` if the version of the section is not known.
    fn clock_of_windows(&mut self) -> Option<i64> {
        if self.take(4)? != WINDOWS_MAGIC {
            return None;
        }
        match self.i16()? {
            WINDOWS_VERSION => self.i64(),
            WINDOWS_WITHOUT_CLOCK => Some(-1),
            _ => None,
        }
    }

    /// The sizes of the transaction indexes. A section that is not known has none.
    fn indexes(&mut self) -> Vec<(i64, u64)> {
        if self.take(4) != Some(&INDEXES_MAGIC) || self.i16() != Some(INDEXES_VERSION) {
            return Vec::new();
        }
        let mut all = Vec::with_capacity(self.rest.len() / INDEX_BYTES);
        while let (Some(base_offset), Some(entries)) = (self.i64(), self.i64()) {
            all.extend(u64::try_from(entries).ok().map(|entries| (base_offset, entries)));
        }
        all
    }

    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn i16(&mut self) -> Option<i16> {
        self.array().map(i16::from_be_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_be_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests;
