//! Splits fetched batches into work items, within the limits of each partition.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::sync::Arc;

use ottla_client::{Batch, BatchPosition, CorruptBatch, SplitBatch, TopicPartition};
use rustc_hash::FxHasher;
use tokio::time::Instant;

use crate::core::work::{AssignmentId, Offsets, Size, StopOffset, Work};
use crate::deadline::after;
use crate::exchange::{Exchange, Inner};
use crate::message::{Piece, Pieces, RecordPosition, Selection};
use crate::retry::GIVEN_UP;
use crate::settings::{Builder, Order};

/// Lanes per worker that keys are hashed to: enough to keep all workers busy, with bounded memory.
const LANES_PER_WORKER: usize = 16;
const LANES_MAX: usize = 4096;

/// The least number of work items that a partition may have queued with [`Order::Partition`], so that not each of them needs a round of
/// the dispatcher.
const PARTITION_QUEUE_MIN: usize = 8;

/// Memory per record in addition to key, value and headers.
const RECORD_BYTES: usize = 24;

/// The settings for splitting.
#[derive(Clone, Debug)]
pub(crate) struct WorkSizing {
    order: Order,
    /// Maximum records of a batch, in the batch modes.
    pub(crate) batch: Option<usize>,
    lanes: usize,
    queue: usize,
    /// `true` if work items list their offsets: the records of a share group have gaps between them that other work items have.
    lists_offsets: bool,
}

/// The limits of one partition's records in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlightLimits {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
    /// Maximum number of work items, as counted by [`WorkSizing::queued`].
    pub(crate) queue: usize,
}

/// The result of a poll for one partition.
#[derive(Debug)]
pub(crate) enum Fetched {
    Records(Batch),
    /// Records that cannot be decoded. They occupy one offset, so that commits do not pass them.
    Corrupt(CorruptBatch),
}

impl Fetched {
    pub(crate) fn at(&self) -> &TopicPartition {
        match self {
            Self::Records(batch) => batch.at(),
            Self::Corrupt(corrupt) => corrupt.at(),
        }
    }

    /// The first offset, and the one after the last.
    pub(crate) fn offsets(&self) -> (i64, i64) {
        match self {
            Self::Records(batch) => (batch.first_offset(), batch.next_offset()),
            Self::Corrupt(corrupt) => (corrupt.first_offset(), corrupt.next_offset()),
        }
    }

    fn leader_epoch(&self) -> Option<i32> {
        match self {
            Self::Records(batch) => batch.leader_epoch(),
            Self::Corrupt(_) => None,
        }
    }
}

/// An assigned partition.
#[derive(Debug)]
pub(crate) struct AssignedPartition {
    pub(crate) at: TopicPartition,
    pub(crate) owned: Option<(AssignmentId, Arc<StopOffset>)>,
    /// Fetched records that are not yet in flight.
    pub(crate) waiting: VecDeque<Fetched>,
    pub(crate) paused: bool,
    pub(crate) committed: Option<i64>,
    /// The offset at which it started, and restarts after an aborted transaction.
    pub(crate) start: Option<i64>,
    /// The offset after the last one fetched.
    fetched_end: i64,
    /// The incomplete batch of each lane.
    open_batches: Vec<OpenBatch>,
}

#[derive(Debug)]
struct OpenBatch {
    lane: Option<u32>,
    list: Vec<Piece>,
    offsets: Offsets,
    size: Size,
    since: Instant,
}

/// The records of one lane from one fetched batch.
#[derive(Debug, Default)]
struct LaneRecords {
    selection: Vec<RecordPosition>,
    size: Size,
    /// Number of records that completes a work item or the open batch.
    most: usize,
}

/// Sorts the records of a fetched batch by lane. The dispatcher has one for all cuts: they may be of few records, and the lanes thousands.
#[derive(Debug, Default)]
pub(crate) struct LaneSorter {
    lanes: Vec<LaneRecords>,
    /// The lanes that got records in this cut, in the order of their first ones.
    used: Vec<usize>,
}

/// Records taken together, before they are assigned to lanes.
#[derive(Debug, Default)]
struct TakenRecords {
    offsets: Vec<(Offsets, Size)>,
    work: Vec<Work<Pieces>>,
    corrupt: Vec<CorruptBatch>,
    pass: i64,
}

impl TakenRecords {
    /// Takes undecodable records: their first offset is in flight, and the others count as without records.
    fn take_corrupt(&mut self, corrupt: CorruptBatch) {
        if corrupt.first_offset() >= corrupt.next_offset() {
            // A damaged offset: the records before them have all offsets of their batch, and the next offset is that of another one.
            let (at, next, error) = (corrupt.at(), corrupt.next_offset(), corrupt.error());
            tracing::warn!(%at, next, %error, "undecodable records without offsets are left out");
            return;
        }
        self.offsets.push((Offsets::Each(vec![corrupt.first_offset()]), Self::size_of(&corrupt)));
        self.pass = self.pass.max(corrupt.next_offset());
        self.corrupt.push(corrupt);
    }

    fn size_of(corrupt: &CorruptBatch) -> Size {
        Size { records: 1, bytes: corrupt.bytes().len() }
    }
}

impl WorkSizing {
    pub(crate) fn new(settings: &Builder) -> Self {
        let lanes = (settings.workers_count() * LANES_PER_WORKER).next_power_of_two().min(LANES_MAX);
        let batch = settings.mode.is_batch().then_some(settings.batch);
        Self { order: settings.ordered(), batch, lanes, queue: settings.queue, lists_offsets: settings.share }
    }

    /// The limit of [`WorkSizing::queued`]. With [`Order::Partition`], several partitions share it equally.
    pub(crate) fn queue_limit(&self, partitions: usize) -> usize {
        match self.order {
            Order::Partition => (self.queue / partitions.max(1)).max(PARTITION_QUEUE_MIN.min(self.queue)),
            Order::None | Order::Key => self.queue,
        }
    }

    /// `true` if each partition is a lane, which counts alone.
    pub(crate) fn counts_partitions(&self) -> bool {
        self.order == Order::Partition
    }

    /// The work items that count against the limit of the queue. Those in a stuck lane of a key do not count, and a stuck partition
    /// counts alone, so that the others continue.
    fn queued(&self, inner: &Inner, assignment: AssignmentId) -> usize {
        inner.queued(self.counts_partitions(), assignment)
    }
}

impl AssignedPartition {
    pub(crate) fn new(at: TopicPartition) -> Self {
        let (owned, waiting, open_batches) = (None, VecDeque::new(), Vec::new());
        let (paused, committed, start, fetched_end) = (false, None, None, i64::MIN);
        Self { at, owned, waiting, paused, committed, start, fetched_end, open_batches }
    }

    /// `true` if the records precede those that were fetched before: the topic was truncated or created again.
    pub(crate) fn went_back(&self, fetched: &Fetched) -> bool {
        self.is_ahead_of(fetched.offsets().0)
    }

    /// `true` if records from this position on were fetched before.
    pub(crate) fn is_ahead_of(&self, position: i64) -> bool {
        position < self.fetched_end
    }

    /// Appends fetched records, which follow those fetched before.
    pub(crate) fn receive(&mut self, fetched: Fetched) {
        let (from, next) = fetched.offsets();
        // Also of records that wait for the end of a transaction: if it is aborted, they are read again.
        self.start.get_or_insert(from);
        self.fetched_end = next;
        self.waiting.push_back(fetched);
    }

    /// Notes that the offsets before `next` have no more records.
    pub(crate) fn note_passed(&mut self, next: i64) {
        self.fetched_end = self.fetched_end.max(next);
    }

    /// Forgets all records and offsets: the partition starts at `offset`, whatever was committed.
    pub(crate) fn start_again(&mut self, offset: i64) {
        self.reset();
        (self.committed, self.start) = (None, Some(offset));
    }

    /// Forgets all records: the partition starts again.
    pub(crate) fn reset(&mut self) {
        self.owned = None;
        self.fetched_end = i64::MIN;
        self.waiting.clear();
        self.open_batches.clear();
    }

    /// Removes the records that are not in flight, and returns their offsets. Open batches are in flight.
    pub(crate) fn take_waiting(&mut self) -> Vec<i64> {
        self.waiting.drain(..).map(|fetched| fetched.offsets()).flat_map(|(from, next)| from..next).collect()
    }

    /// The number of offsets that wait, and of records in incomplete batches.
    pub(crate) fn unstarted(&self) -> usize {
        let offsets = |fetched: &Fetched| (fetched.offsets().1 - fetched.offsets().0) as usize;
        let open: usize = self.open_batches.iter().map(|open_batch| open_batch.size.records).sum();
        self.waiting.iter().map(offsets).sum::<usize>() + open
    }

    /// Moves waiting records into flight, up to the limits. Returns `true` if none are left waiting.
    pub(crate) fn admit(
        &mut self,
        exchange: &Exchange,
        sizing: &WorkSizing,
        sorter: &mut LaneSorter,
        limits: InFlightLimits,
        now: Instant,
    ) -> bool {
        while let Some(fetched) = self.waiting.front() {
            let (from, next) = fetched.offsets();
            let (assignment, mut room, pieces, piece, fits) = {
                let mut inner = exchange.lock();
                let (assignment, _) = self.owned.get_or_insert_with(|| inner.core.assign(from, now));
                let assignment = *assignment;
                inner.partitions.entry(self.at.clone()).or_default().assignment = Some(assignment);
                let in_flight = inner.core.in_flight(assignment);
                let queued = sizing.queued(&inner, assignment);
                if queued >= limits.queue {
                    inner.refuse(assignment, !sizing.counts_partitions());
                    return false;
                }
                if in_flight.records >= limits.records || in_flight.bytes >= limits.bytes {
                    inner.refuse(assignment, false);
                    drop(inner);
                    // An incomplete batch cannot grow any more at the limit.
                    self.flush(exchange, now);
                    return false;
                }
                let room = Size {
                    records: limits.records - in_flight.records,
                    bytes: limits.bytes - in_flight.bytes,
                };
                inner.core.note_epoch(assignment, from, fetched.leader_epoch());
                let fits = inner.core.has_room(assignment, from, next);
                (assignment, room, limits.queue - queued, exchange.piece(&inner), fits)
            };
            let mut taken = TakenRecords { pass: from, ..TakenRecords::default() };
            if let Some(Fetched::Corrupt(corrupt)) = self.waiting.front() {
                if !exchange.lock().core.has_room(assignment, from, from + 1) {
                    exchange.lock().refuse(assignment, false);
                    return false;
                }
                let corrupt = corrupt.clone();
                self.take_corrupt(&mut taken, corrupt);
                self.waiting.pop_front();
                self.apply(exchange, taken, now);
                continue;
            }
            if !fits && !self.admit_one(exchange, sizing, assignment, now) {
                exchange.lock().refuse(assignment, false);
                return false;
            }
            if fits {
                if sizing.order == Order::Key {
                    self.cut_by_key(sizing, sorter, &mut taken, room, (piece, pieces), now);
                } else {
                    self.cut(sizing, &mut taken, &mut room, (piece, pieces), now);
                }
                self.apply(exchange, taken, now);
            }
            if self.waiting.front().is_some_and(|fetched| fetched.offsets().0 >= fetched.offsets().1) {
                self.waiting.pop_front();
            }
        }
        true
    }

    /// Takes undecodable records. Open batches are closed first: an offset range must not span these records.
    fn take_corrupt(&mut self, taken: &mut TakenRecords, corrupt: CorruptBatch) {
        for open_batch in std::mem::take(&mut self.open_batches) {
            taken.work.extend(self.finish(open_batch));
        }
        taken.take_corrupt(corrupt);
    }

    /// Number of records in the open batch of this lane.
    fn built(&self, lane: Option<u32>) -> usize {
        let open_batch = self.open_batches.iter().find(|open_batch| open_batch.lane == lane);
        open_batch.map_or(0, |open_batch| open_batch.size.records)
    }

    /// Takes up to `records` from the front batch. Unreadable ones are taken as corrupt, and `None` is returned.
    fn split(&mut self, records: usize, taken: &mut TakenRecords) -> Option<SplitBatch> {
        let Some(Fetched::Records(batch)) = self.waiting.front_mut() else { return None };
        match batch.split_to(records) {
            Ok(cut) => {
                taken.pass = cut.batch.next_offset();
                Some(cut)
            }
            Err(error) => {
                let corrupt = batch.split_corrupt(&error);
                self.take_corrupt(taken, corrupt);
                None
            }
        }
    }

    /// Admits a single record. The gaps in its partition are too large for the rest to be in flight with it.
    fn admit_one(
        &mut self,
        exchange: &Exchange,
        sizing: &WorkSizing,
        assignment: AssignmentId,
        now: Instant,
    ) -> bool {
        let Some(Fetched::Records(batch)) = self.waiting.front_mut() else { return true };
        let mut rest = batch.clone();
        let mut taken = TakenRecords::default();
        let cut = match rest.split_to(1) {
            Ok(cut) => cut,
            Err(error) => {
                let corrupt = rest.split_corrupt(&error);
                let from = corrupt.first_offset();
                if !exchange.lock().core.has_room(assignment, from, from + 1) {
                    return false;
                }
                *batch = rest;
                self.take_corrupt(&mut taken, corrupt);
                self.apply(exchange, taken, now);
                return true;
            }
        };
        taken.pass = cut.batch.next_offset();
        let mut position = BatchPosition::default();
        let first = cut.batch.next_at(&mut position);
        if let Some(Err(error)) = &first {
            let corrupt = cut.batch.corrupt_at(&position, error);
            let from = corrupt.first_offset();
            if !exchange.lock().core.has_room(assignment, from, from + 1) {
                return false;
            }
            self.take_corrupt(&mut taken, corrupt);
        } else if let Some(Ok(record)) = first {
            let offset = record.offset();
            if !exchange.lock().core.has_room(assignment, offset, offset + 1) {
                return false;
            }
            let size = Size { records: 1, bytes: cut.bytes };
            let lane = lane_of(sizing, assignment, record.key());
            taken.offsets.push((Offsets::Each(vec![offset]), size));
            let piece = Piece { batch: Arc::new(cut.batch), selection: Selection::All };
            self.place(sizing, &mut taken, lane, piece, Offsets::Each(vec![offset]), size, now);
        }
        if let Some(fetched) = self.waiting.front_mut() {
            *fetched = Fetched::Records(rest);
        }
        self.apply(exchange, taken, now);
        true
    }

    /// Splits consecutive records off the front batch.
    fn cut(
        &mut self,
        sizing: &WorkSizing,
        taken: &mut TakenRecords,
        room: &mut Size,
        (piece, mut pieces): (usize, usize),
        now: Instant,
    ) {
        let Some((assignment, _)) = self.owned.clone() else { return };
        let lane = lane_of(sizing, assignment, None).filter(|_| sizing.order == Order::Partition);
        while room.records > 0 && room.bytes > 0 && pieces > 0 {
            let built = self.open_batches.first().map_or(0, |open_batch| open_batch.size.records);
            let want = sizing.batch.map_or(piece, |batch| batch - built).min(room.records);
            let Some((from, end)) = self.waiting.front().map(Fetched::offsets) else { break };
            if from >= end {
                break;
            }
            let Some(cut) = self.split(want, taken) else { continue };
            let next = cut.batch.next_offset();
            if cut.records == 0 {
                continue;
            }
            let size = Size { records: cut.records, bytes: cut.bytes };
            *room -= size;
            pieces -= usize::from(sizing.batch.is_none() || want == cut.records);
            taken.offsets.push((Offsets::Range(from, next), size));
            let piece = Piece { batch: Arc::new(cut.batch), selection: Selection::All };
            let offsets = if sizing.lists_offsets {
                Offsets::Each((from..next).collect())
            } else {
                Offsets::Range(from, next)
            };
            self.place(sizing, taken, lane, piece, offsets, size, now);
        }
    }

    /// Distributes the records of the front batch over the lanes of their keys, as many as fill the free places of the queue if they
    /// make full work items.
    fn cut_by_key(
        &mut self,
        sizing: &WorkSizing,
        LaneSorter { lanes, used }: &mut LaneSorter,
        taken: &mut TakenRecords,
        room: Size,
        (piece, pieces): (usize, usize),
        now: Instant,
    ) {
        let Some((assignment, _)) = self.owned.clone() else { return };
        let most = pieces.saturating_mul(sizing.batch.unwrap_or(piece));
        let Some(cut) = self.split(room.records.min(most), taken) else { return };
        let batch = Arc::new(cut.batch);
        lanes.resize_with(sizing.lanes + 1, Default::default);
        let mut offsets = Vec::with_capacity(cut.records);
        let mut all = Size::default();
        let mut position = BatchPosition::default();
        loop {
            let before = position;
            let Some(record) = batch.next_at(&mut position) else { break };
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    let behind = offsets.last().map_or(i64::MIN, |last| last + 1);
                    taken.offsets.push((Offsets::Each(std::mem::take(&mut offsets)), Size::default()));
                    self.take_corrupt(taken, batch.corrupt_at(&position, &error).behind(behind));
                    continue;
                }
            };
            let lane = lane_of(sizing, assignment, record.key());
            let index = lane.map_or(sizing.lanes, |lane| lane as usize);
            let sorted = &mut lanes[index];
            if sorted.selection.is_empty() {
                used.push(index);
                sorted.most = sizing.batch.map_or(piece, |batch| batch - self.built(lane));
            }
            sorted.selection.push(RecordPosition { position: before, offset: record.offset() });
            let payload = record.key().map_or(0, <[u8]>::len) + record.value().map_or(0, <[u8]>::len);
            let bytes = payload + record.raw_headers().encoded_bytes() + RECORD_BYTES;
            let this = Size { records: 1, bytes };
            sorted.size += this;
            all += this;
            offsets.push(record.offset());
            if sorted.selection.len() >= sorted.most {
                let LaneRecords { selection, size, .. } = std::mem::take(sorted);
                self.place_records(sizing, taken, lane, &batch, selection, size, now);
            }
        }
        taken.offsets.push((Offsets::Each(offsets), all));
        for index in used.drain(..) {
            let LaneRecords { selection, size, .. } = std::mem::take(&mut lanes[index]);
            if !selection.is_empty() {
                let lane = (index < sizing.lanes).then_some(index as u32);
                self.place_records(sizing, taken, lane, &batch, selection, size, now);
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one piece of work")]
    fn place_records(
        &mut self,
        sizing: &WorkSizing,
        taken: &mut TakenRecords,
        lane: Option<u32>,
        batch: &Arc<Batch>,
        selection: Vec<RecordPosition>,
        size: Size,
        now: Instant,
    ) {
        let offsets = Offsets::Each(selection.iter().map(|record| record.offset).collect());
        let piece = Piece { batch: batch.clone(), selection: Selection::At(selection) };
        self.place(sizing, taken, lane, piece, offsets, size, now);
    }

    /// Makes a work item, or adds to the open batch of the lane.
    #[expect(clippy::too_many_arguments, reason = "the parts of one piece of work")]
    fn place(
        &mut self,
        sizing: &WorkSizing,
        taken: &mut TakenRecords,
        lane: Option<u32>,
        piece: Piece,
        offsets: Offsets,
        size: Size,
        now: Instant,
    ) {
        let Some(batch) = sizing.batch else {
            taken.work.extend(self.work(lane, vec![piece], offsets, size));
            return;
        };
        let at = self.open_batches.iter().position(|open_batch| open_batch.lane == lane);
        let at = at.unwrap_or_else(|| {
            let offsets = Offsets::Each(Vec::new());
            self.open_batches.push(OpenBatch {
                lane,
                list: Vec::new(),
                offsets,
                size: Size::default(),
                since: now,
            });
            self.open_batches.len() - 1
        });
        let open_batch = &mut self.open_batches[at];
        open_batch.list.push(piece);
        open_batch.size += size;
        open_batch.offsets =
            match (std::mem::replace(&mut open_batch.offsets, Offsets::Each(Vec::new())), offsets) {
                (Offsets::Each(none), offsets) if none.is_empty() => offsets,
                (Offsets::Range(from, _), Offsets::Range(_, next)) => Offsets::Range(from, next),
                (Offsets::Each(mut first), Offsets::Each(more)) => {
                    first.extend(more);
                    Offsets::Each(first)
                }
                (Offsets::Range(from, _), Offsets::Each(more)) => {
                    Offsets::Range(from, more.last().map_or(from, |last| last + 1))
                }
                (Offsets::Each(first), Offsets::Range(_, next)) => Offsets::Range(first[0], next),
            };
        if open_batch.size.records >= batch {
            let open_batch = self.open_batches.swap_remove(at);
            taken.work.extend(self.finish(open_batch));
        }
    }

    /// The time at which the first open batch has waited long enough.
    pub(crate) fn flush_at(&self, wait: std::time::Duration) -> Option<Instant> {
        self.open_batches.iter().map(|open_batch| after(open_batch.since, wait)).min()
    }

    /// `true` if all fetched records are in flight, in work items.
    pub(crate) fn has_no_unstarted(&self) -> bool {
        self.waiting.is_empty() && self.open_batches.is_empty()
    }

    /// `true` if records wait in incomplete batches.
    pub(crate) fn has_open_batches(&self) -> bool {
        !self.open_batches.is_empty()
    }

    /// `true` if an incomplete batch has an idle lane, or none.
    pub(crate) fn can_flush_to_idle(&self, inner: &Inner) -> bool {
        let ready = |lane| inner.core.lanes().is_idle(lane);
        self.open_batches.iter().any(|open_batch| open_batch.lane.is_none_or(ready))
    }

    /// Closes incomplete batches for idle workers, as far as their lanes are idle: waiting for more records would
    /// only add latency.
    pub(crate) fn flush_to_idle(&mut self, exchange: &Exchange) {
        if self.open_batches.is_empty() {
            return;
        }
        let mut inner = exchange.lock();
        let mut free = Exchange::free_workers(&inner);
        // The oldest batches are first, except where a complete one was taken out.
        let mut at = 0;
        while free > 0 && at < self.open_batches.len() {
            if self.open_batches[at].lane.is_some_and(|lane| !inner.core.lanes().is_idle(lane)) {
                at += 1;
                continue;
            }
            let open_batch = self.open_batches.remove(at);
            free -= 1;
            if let Some(work) = self.finish(open_batch) {
                inner.core.admit(work);
            }
        }
        exchange.wake_workers(&mut inner, Instant::now());
    }

    /// Closes the batches that were opened before `since`.
    pub(crate) fn flush(&mut self, exchange: &Exchange, since: Instant) {
        let mut work = Vec::new();
        while let Some(at) = self.open_batches.iter().position(|open_batch| open_batch.since <= since) {
            let open_batch = self.open_batches.swap_remove(at);
            work.extend(self.finish(open_batch));
        }
        if !work.is_empty() {
            let mut inner = exchange.lock();
            for work in work {
                inner.core.admit(work);
            }
            exchange.wake_workers(&mut inner, Instant::now());
        }
    }

    fn finish(&self, open_batch: OpenBatch) -> Option<Work<Pieces>> {
        let OpenBatch { lane, list, offsets, size, .. } = open_batch;
        self.work(lane, list, offsets, size)
    }

    fn work(
        &self,
        lane: Option<u32>,
        list: Vec<Piece>,
        offsets: Offsets,
        size: Size,
    ) -> Option<Work<Pieces>> {
        let (assignment, stopped) = self.owned.clone()?;
        let payload = Pieces::new(list, stopped);
        Some(Work { assignment, age: 0, lane, offsets, size, failures: 0, payload })
    }

    fn apply(&self, exchange: &Exchange, taken: TakenRecords, now: Instant) {
        let Some((assignment, stopped)) = self.owned.clone() else { return };
        let mut inner = exchange.lock();
        for (offsets, size) in &taken.offsets {
            inner.core.take_offsets(assignment, offsets, *size, now);
        }
        inner.core.pass(assignment, taken.pass);
        for corrupt in taken.corrupt {
            let offsets = Offsets::Each(vec![corrupt.first_offset()]);
            let size = TakenRecords::size_of(&corrupt);
            let payload = Pieces::corrupt(corrupt, stopped.clone());
            let work = Work { assignment, age: 0, lane: None, offsets, size, failures: GIVEN_UP, payload };
            let given_up = inner.core.give_up(work);
            inner.given_up.extend(given_up);
        }
        for work in taken.work {
            inner.core.admit(work);
        }
        exchange.wake_workers(&mut inner, Instant::now());
    }
}

fn lane_of(sizing: &WorkSizing, assignment: AssignmentId, key: Option<&[u8]>) -> Option<u32> {
    match sizing.order {
        Order::None => None,
        Order::Partition => Some(assignment.slot),
        Order::Key => key.map(|key| {
            let mut hasher = FxHasher::default();
            hasher.write(key);
            // The high bits are better mixed.
            (hasher.finish() >> 40) as u32 & (sizing.lanes as u32 - 1)
        }),
    }
}
