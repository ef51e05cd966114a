//! From fetched batches to pieces of work: as much of each partition as its limits allow.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ottla_client::{Batch, CorruptBatch, Cut, Position, TopicPartition};
use rustc_hash::FxHasher;
use tokio::time::Instant;

use crate::core::work::{Offsets, Origin, Size, Work};
use crate::exchange::Exchange;
use crate::message::{Pick, Picks, Piece, Pieces};
use crate::retry::GIVEN_UP;
use crate::settings::{Builder, Order};

/// Keys share so many lanes for each worker: enough that all have something to do, and no more than can be kept.
const LANES_PER_WORKER: usize = 16;
const LANES_MAX: usize = 4096;

/// What a record takes beside its key and value.
const RECORD_BYTES: usize = 24;

/// How work is cut.
#[derive(Clone, Debug)]
pub(crate) struct Cutting {
    order: Order,
    /// Records of a batch, in the modes that hand out batches.
    pub(crate) batch: Option<usize>,
    lanes: usize,
    pub(crate) queue: usize,
}

/// What one partition may have under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

/// What a poll has brought of a partition.
#[derive(Debug)]
pub(crate) enum Fetched {
    Records(Batch),
    /// What cannot be decoded: one record's room, whatever it was, keeps commits from passing it.
    Corrupt(CorruptBatch),
}

impl Fetched {
    pub(crate) fn at(&self) -> &TopicPartition {
        match self {
            Self::Records(batch) => batch.at(),
            Self::Corrupt(corrupt) => corrupt.at(),
        }
    }

    fn offsets(&self) -> (i64, i64) {
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

/// One partition of the assignment.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) at: TopicPartition,
    pub(crate) owned: Option<(Origin, Arc<AtomicBool>)>,
    /// What was fetched and is not under way.
    pub(crate) waiting: VecDeque<Fetched>,
    pub(crate) paused: bool,
    pub(crate) committed: Option<i64>,
    /// Where it began, or begins again after a transaction was aborted.
    pub(crate) start: Option<i64>,
    /// By lane what is to become a batch.
    building: Vec<Building>,
}

#[derive(Debug)]
struct Building {
    lane: Option<u32>,
    list: Vec<Piece>,
    offsets: Offsets,
    size: Size,
    since: Instant,
}

/// Records of one lane, out of one fetched batch.
#[derive(Debug, Default)]
struct Sorted {
    picks: Vec<Pick>,
    size: Size,
    /// So many make a piece of work, or the rest of a batch.
    most: usize,
}

/// What is taken at once, before any of it goes to a lane.
#[derive(Debug, Default)]
struct Taken {
    offsets: Vec<(Offsets, Size)>,
    work: Vec<Work<Pieces>>,
    corrupt: Vec<CorruptBatch>,
    pass: i64,
}

impl Taken {
    /// Of what cannot be decoded the first offset is under way, and the rest has no records.
    fn take_corrupt(&mut self, corrupt: CorruptBatch) {
        self.offsets.push((Offsets::Each(vec![corrupt.first_offset()]), Self::size_of(&corrupt)));
        self.pass = self.pass.max(corrupt.next_offset());
        self.corrupt.push(corrupt);
    }

    fn size_of(corrupt: &CorruptBatch) -> Size {
        Size { records: 1, bytes: corrupt.bytes().len() }
    }
}

impl Cutting {
    pub(crate) fn new(settings: &Builder) -> Self {
        let lanes = (settings.workers_count() * LANES_PER_WORKER).next_power_of_two().min(LANES_MAX);
        let batch = settings.mode.is_batch().then_some(settings.batch);
        Self { order: settings.ordered(), batch, lanes, queue: settings.queue }
    }
}

impl Part {
    pub(crate) fn new(at: TopicPartition) -> Self {
        let (owned, waiting, building) = (None, VecDeque::new(), Vec::new());
        Self { at, owned, waiting, paused: false, committed: None, start: None, building }
    }

    /// What is in flight of it is forgotten: it begins anew.
    pub(crate) fn reset(&mut self) {
        self.owned = None;
        self.waiting.clear();
        self.building.clear();
    }

    /// Puts as much of what is waiting under way as there is room for, and says whether all of it is.
    pub(crate) fn admit(
        &mut self,
        exchange: &Exchange,
        cutting: &Cutting,
        share: Share,
        now: Instant,
    ) -> bool {
        while let Some(fetched) = self.waiting.front() {
            let (from, next) = fetched.offsets();
            let (of, mut room, pieces, piece, fits) = {
                let mut inner = exchange.lock();
                let (of, _) = self.owned.get_or_insert_with(|| inner.core.assign(from, now));
                let of = *of;
                inner.partitions.entry(self.at.clone()).or_default().of = Some(of);
                self.start.get_or_insert(from);
                let in_flight = inner.core.in_flight(of);
                let queued = inner.core.lanes().queued();
                if queued >= cutting.queue {
                    return false;
                }
                if in_flight.records >= share.records || in_flight.bytes >= share.bytes {
                    drop(inner);
                    // A batch that waits for more would wait in vain.
                    self.flush(exchange, now);
                    return false;
                }
                let room =
                    Size { records: share.records - in_flight.records, bytes: share.bytes - in_flight.bytes };
                inner.core.note_epoch(of, from, fetched.leader_epoch());
                let fits = inner.core.has_room(of, from, next);
                (of, room, cutting.queue - queued, exchange.piece(&inner), fits)
            };
            let mut taken = Taken { pass: from, ..Taken::default() };
            if let Some(Fetched::Corrupt(corrupt)) = self.waiting.front() {
                if !exchange.lock().core.has_room(of, from, from + 1) {
                    return false;
                }
                let corrupt = corrupt.clone();
                self.take_corrupt(&mut taken, corrupt);
                self.waiting.pop_front();
                self.apply(exchange, taken, now);
                continue;
            }
            if !fits && !self.admit_one(exchange, cutting, of, now) {
                return false;
            }
            if fits {
                if cutting.order == Order::Key {
                    self.cut_by_key(cutting, &mut taken, &mut room, piece, now);
                } else {
                    self.cut(cutting, &mut taken, &mut room, (piece, pieces), now);
                }
                self.apply(exchange, taken, now);
            }
            if self.waiting.front().is_some_and(|fetched| fetched.offsets().0 >= fetched.offsets().1) {
                self.waiting.pop_front();
            }
        }
        true
    }

    /// What cannot be decoded is under way, too. No batch that is being built goes across: its end would be done with it.
    fn take_corrupt(&mut self, taken: &mut Taken, corrupt: CorruptBatch) {
        for building in std::mem::take(&mut self.building) {
            taken.work.extend(self.finish(building));
        }
        taken.take_corrupt(corrupt);
    }

    /// How many records the batch that is being built for this lane has.
    fn built(&self, lane: Option<u32>) -> usize {
        let building = self.building.iter().find(|building| building.lane == lane);
        building.map_or(0, |building| building.size.records)
    }

    /// Takes so many records off the batch at the front; if these cannot be read they are to be given up instead.
    fn split(&mut self, records: usize, taken: &mut Taken) -> Option<Cut> {
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

    /// One record whose partition has holes so large that the rest cannot be under way with it.
    fn admit_one(&mut self, exchange: &Exchange, cutting: &Cutting, of: Origin, now: Instant) -> bool {
        let Some(Fetched::Records(batch)) = self.waiting.front_mut() else { return true };
        let mut rest = batch.clone();
        let mut taken = Taken::default();
        let cut = match rest.split_to(1) {
            Ok(cut) => cut,
            Err(error) => {
                let corrupt = rest.split_corrupt(&error);
                let from = corrupt.first_offset();
                if !exchange.lock().core.has_room(of, from, from + 1) {
                    return false;
                }
                *batch = rest;
                self.take_corrupt(&mut taken, corrupt);
                self.apply(exchange, taken, now);
                return true;
            }
        };
        taken.pass = cut.batch.next_offset();
        let mut position = Position::default();
        let first = cut.batch.next_at(&mut position);
        if let Some(Err(error)) = &first {
            let corrupt = cut.batch.corrupt_at(&position, error);
            let from = corrupt.first_offset();
            if !exchange.lock().core.has_room(of, from, from + 1) {
                return false;
            }
            self.take_corrupt(&mut taken, corrupt);
        } else if let Some(Ok(record)) = first {
            let offset = record.offset();
            if !exchange.lock().core.has_room(of, offset, offset + 1) {
                return false;
            }
            let size = Size { records: 1, bytes: cut.bytes };
            let lane = lane_of(cutting, of, record.key());
            taken.offsets.push((Offsets::Each(vec![offset]), size));
            let piece = Piece { batch: Arc::new(cut.batch), picks: Picks::All };
            self.place(cutting, &mut taken, lane, piece, Offsets::Each(vec![offset]), size, now);
        }
        if let Some(fetched) = self.waiting.front_mut() {
            *fetched = Fetched::Records(rest);
        }
        self.apply(exchange, taken, now);
        true
    }

    /// Cuts runs of records off the front.
    fn cut(
        &mut self,
        cutting: &Cutting,
        taken: &mut Taken,
        room: &mut Size,
        (piece, mut pieces): (usize, usize),
        now: Instant,
    ) {
        let Some((of, _)) = self.owned.clone() else { return };
        let lane = lane_of(cutting, of, None).filter(|_| cutting.order == Order::Partition);
        while room.records > 0 && room.bytes > 0 && pieces > 0 {
            let built = self.building.first().map_or(0, |building| building.size.records);
            let want = cutting.batch.map_or(piece, |batch| batch - built).min(room.records);
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
            pieces -= usize::from(cutting.batch.is_none() || want == cut.records);
            taken.offsets.push((Offsets::Range(from, next), size));
            let piece = Piece { batch: Arc::new(cut.batch), picks: Picks::All };
            self.place(cutting, taken, lane, piece, Offsets::Range(from, next), size, now);
        }
    }

    /// Sorts the records of the first batch by their keys' lanes.
    fn cut_by_key(
        &mut self,
        cutting: &Cutting,
        taken: &mut Taken,
        room: &mut Size,
        piece: usize,
        now: Instant,
    ) {
        let Some((of, _)) = self.owned.clone() else { return };
        let Some(cut) = self.split(room.records, taken) else { return };
        let batch = Arc::new(cut.batch);
        let mut lanes: Vec<Sorted> = Vec::new();
        lanes.resize_with(cutting.lanes + 1, Default::default);
        let mut offsets = Vec::with_capacity(cut.records);
        let mut all = Size::default();
        let mut position = Position::default();
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
            let lane = lane_of(cutting, of, record.key());
            let sorted = &mut lanes[lane.map_or(cutting.lanes, |lane| lane as usize)];
            if sorted.picks.is_empty() {
                sorted.most = cutting.batch.map_or(piece, |batch| batch - self.built(lane));
            }
            sorted.picks.push(Pick { position: before, offset: record.offset() });
            let bytes = record.key().map_or(0, <[u8]>::len) + record.value().map_or(0, <[u8]>::len);
            let this = Size { records: 1, bytes: bytes + RECORD_BYTES };
            sorted.size += this;
            all += this;
            offsets.push(record.offset());
            if sorted.picks.len() >= sorted.most {
                let Sorted { picks, size, .. } = std::mem::take(sorted);
                self.place_picks(cutting, taken, lane, &batch, picks, size, now);
            }
        }
        taken.offsets.push((Offsets::Each(offsets), all));
        *room -= all;
        for (lane, Sorted { picks, size, .. }) in lanes.into_iter().enumerate() {
            if !picks.is_empty() {
                let lane = (lane < cutting.lanes).then_some(lane as u32);
                self.place_picks(cutting, taken, lane, &batch, picks, size, now);
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one piece of work")]
    fn place_picks(
        &mut self,
        cutting: &Cutting,
        taken: &mut Taken,
        lane: Option<u32>,
        batch: &Arc<Batch>,
        picks: Vec<Pick>,
        size: Size,
        now: Instant,
    ) {
        let offsets = Offsets::Each(picks.iter().map(|pick| pick.offset).collect());
        let piece = Piece { batch: batch.clone(), picks: Picks::At(picks) };
        self.place(cutting, taken, lane, piece, offsets, size, now);
    }

    /// Makes work of it, or a part of a batch.
    #[expect(clippy::too_many_arguments, reason = "the parts of one piece of work")]
    fn place(
        &mut self,
        cutting: &Cutting,
        taken: &mut Taken,
        lane: Option<u32>,
        piece: Piece,
        offsets: Offsets,
        size: Size,
        now: Instant,
    ) {
        let Some(batch) = cutting.batch else {
            taken.work.extend(self.work(lane, vec![piece], offsets, size));
            return;
        };
        let at = self.building.iter().position(|building| building.lane == lane);
        let at = at.unwrap_or_else(|| {
            let offsets = Offsets::Each(Vec::new());
            self.building.push(Building {
                lane,
                list: Vec::new(),
                offsets,
                size: Size::default(),
                since: now,
            });
            self.building.len() - 1
        });
        let building = &mut self.building[at];
        building.list.push(piece);
        building.size += size;
        building.offsets =
            match (std::mem::replace(&mut building.offsets, Offsets::Each(Vec::new())), offsets) {
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
        if building.size.records >= batch {
            let building = self.building.swap_remove(at);
            taken.work.extend(self.finish(building));
        }
    }

    /// When the first batch that is not full has waited long enough.
    pub(crate) fn flush_at(&self, wait: std::time::Duration) -> Option<Instant> {
        self.building.iter().map(|building| building.since + wait).min()
    }

    /// Batches that have waited long enough go as they are.
    pub(crate) fn flush(&mut self, exchange: &Exchange, since: Instant) {
        let mut work = Vec::new();
        while let Some(at) = self.building.iter().position(|building| building.since <= since) {
            let building = self.building.swap_remove(at);
            work.extend(self.finish(building));
        }
        if !work.is_empty() {
            let mut inner = exchange.lock();
            for work in work {
                inner.core.admit(work);
            }
            exchange.wake_workers(&mut inner);
        }
    }

    fn finish(&self, building: Building) -> Option<Work<Pieces>> {
        let Building { lane, list, offsets, size, .. } = building;
        self.work(lane, list, offsets, size)
    }

    fn work(
        &self,
        lane: Option<u32>,
        list: Vec<Piece>,
        offsets: Offsets,
        size: Size,
    ) -> Option<Work<Pieces>> {
        let (of, stopped) = self.owned.clone()?;
        let payload = Pieces { list, stopped, failure: None, attempts: 0, corrupt: None };
        Some(Work { of, age: 0, lane, offsets, size, failures: 0, payload })
    }

    fn apply(&self, exchange: &Exchange, taken: Taken, now: Instant) {
        let Some((of, stopped)) = self.owned.clone() else { return };
        let mut inner = exchange.lock();
        for (offsets, size) in &taken.offsets {
            inner.core.take_offsets(of, offsets, *size, now);
        }
        inner.core.pass(of, taken.pass);
        for corrupt in taken.corrupt {
            let offsets = Offsets::Each(vec![corrupt.first_offset()]);
            let size = Taken::size_of(&corrupt);
            let payload = Pieces::corrupt(corrupt, stopped.clone());
            let work = Work { of, age: 0, lane: None, offsets, size, failures: GIVEN_UP, payload };
            let given_up = inner.core.give_up(work);
            inner.given_up.extend(given_up);
        }
        for work in taken.work {
            inner.core.admit(work);
        }
        exchange.wake_workers(&mut inner);
    }
}

fn lane_of(cutting: &Cutting, of: Origin, key: Option<&[u8]>) -> Option<u32> {
    match cutting.order {
        Order::None => None,
        Order::Partition => Some(of.slot),
        Order::Key => key.map(|key| {
            let mut hasher = FxHasher::default();
            hasher.write(key);
            // The high bits are the better mixed ones.
            (hasher.finish() >> 40) as u32 & (cutting.lanes as u32 - 1)
        }),
    }
}
