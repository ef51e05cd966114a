//! From fetched batches to pieces of work: as much of each partition as its limits allow.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ottla_client::{Batch, Error, Position, TopicPartition};
use rustc_hash::FxHasher;
use tokio::time::Instant;

use crate::core::work::{Offsets, Origin, Size, Work};
use crate::exchange::Exchange;
use crate::message::{Pick, Picks, Piece, Pieces};
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

/// One partition of the assignment.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) at: TopicPartition,
    pub(crate) owned: Option<(Origin, Arc<AtomicBool>)>,
    /// What was fetched and is not under way.
    pub(crate) waiting: VecDeque<Batch>,
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

/// What is taken at once, before any of it goes to a lane.
#[derive(Debug, Default)]
struct Taken {
    offsets: Vec<(Offsets, Size)>,
    work: Vec<Work<Pieces>>,
    pass: i64,
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
    ) -> Result<bool, Error> {
        while let Some(batch) = self.waiting.front() {
            let (from, next) = (batch.first_offset(), batch.next_offset());
            let (of, mut room, pieces, piece, fits) = {
                let mut inner = exchange.lock();
                let (of, _) = self.owned.get_or_insert_with(|| inner.core.assign(from, now));
                let of = *of;
                inner.partitions.entry(self.at.clone()).or_default().of = Some(of);
                self.start.get_or_insert(from);
                let in_flight = inner.core.in_flight(of);
                let queued = inner.core.lanes().queued();
                if queued >= cutting.queue {
                    return Ok(false);
                }
                if in_flight.records >= share.records || in_flight.bytes >= share.bytes {
                    drop(inner);
                    // A batch that waits for more would wait in vain.
                    self.flush(exchange, now);
                    return Ok(false);
                }
                let room =
                    Size { records: share.records - in_flight.records, bytes: share.bytes - in_flight.bytes };
                inner.core.note_epoch(of, from, batch.leader_epoch());
                let fits = inner.core.has_room(of, from, next);
                (of, room, cutting.queue - queued, exchange.piece(&inner), fits)
            };
            if !fits && !self.admit_one(exchange, cutting, of, now)? {
                return Ok(false);
            }
            let mut taken = Taken { pass: from, ..Taken::default() };
            if fits {
                if cutting.order == Order::Key {
                    self.cut_by_key(cutting, &mut taken, &mut room, piece, now)?;
                } else {
                    self.cut(cutting, &mut taken, &mut room, (piece, pieces), now)?;
                }
                Self::apply(exchange, taken, of, now);
            }
            if self.waiting.front().is_some_and(|batch| batch.first_offset() >= batch.next_offset()) {
                self.waiting.pop_front();
            }
        }
        Ok(true)
    }

    /// One record whose partition has holes so large that the rest cannot be under way with it.
    fn admit_one(
        &mut self,
        exchange: &Exchange,
        cutting: &Cutting,
        of: Origin,
        now: Instant,
    ) -> Result<bool, Error> {
        let Some(batch) = self.waiting.front_mut() else { return Ok(true) };
        let mut rest = batch.clone();
        let cut = rest.split_to(1)?;
        let mut taken = Taken { pass: cut.batch.next_offset(), ..Taken::default() };
        if let Some(record) = cut.batch.next_at(&mut Position::default()) {
            let record = record?;
            let offset = record.offset();
            if !exchange.lock().core.has_room(of, offset, offset + 1) {
                return Ok(false);
            }
            let size = Size { records: 1, bytes: cut.bytes };
            let lane = lane_of(cutting, of, record.key());
            taken.offsets.push((Offsets::Each(vec![offset]), size));
            let piece = Piece { batch: Arc::new(cut.batch), picks: Picks::All };
            self.place(cutting, &mut taken, lane, piece, Offsets::Each(vec![offset]), size, now);
        }
        if let Some(batch) = self.waiting.front_mut() {
            *batch = rest;
        }
        Self::apply(exchange, taken, of, now);
        Ok(true)
    }

    /// Cuts runs of records off the front.
    fn cut(
        &mut self,
        cutting: &Cutting,
        taken: &mut Taken,
        room: &mut Size,
        (piece, mut pieces): (usize, usize),
        now: Instant,
    ) -> Result<(), Error> {
        let Some((of, _)) = self.owned.clone() else { return Ok(()) };
        let lane = lane_of(cutting, of, None).filter(|_| cutting.order == Order::Partition);
        while room.records > 0 && room.bytes > 0 && pieces > 0 {
            let built = self.building.first().map_or(0, |building| building.size.records);
            let want = cutting.batch.map_or(piece, |batch| batch - built).min(room.records);
            let Some(batch) = self.waiting.front_mut() else { break };
            if batch.first_offset() >= batch.next_offset() {
                break;
            }
            let from = batch.first_offset();
            let cut = batch.split_to(want)?;
            let next = cut.batch.next_offset();
            taken.pass = next;
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
        Ok(())
    }

    /// Sorts the records of the first batch by their keys' lanes.
    fn cut_by_key(
        &mut self,
        cutting: &Cutting,
        taken: &mut Taken,
        room: &mut Size,
        piece: usize,
        now: Instant,
    ) -> Result<(), Error> {
        let (Some(batch), Some((of, _))) = (self.waiting.front_mut(), self.owned.clone()) else {
            return Ok(());
        };
        let cut = batch.split_to(room.records)?;
        let batch = Arc::new(cut.batch);
        taken.pass = batch.next_offset();
        let mut lanes: Vec<(Vec<Pick>, Size)> = Vec::new();
        lanes.resize_with(cutting.lanes + 1, Default::default);
        let mut offsets = Vec::with_capacity(cut.records);
        let mut all = Size::default();
        let mut position = Position::default();
        loop {
            let before = position;
            let Some(record) = batch.next_at(&mut position) else { break };
            let record = record?;
            let lane = lane_of(cutting, of, record.key());
            let (picks, size) = &mut lanes[lane.map_or(cutting.lanes, |lane| lane as usize)];
            picks.push(Pick { position: before, offset: record.offset() });
            let bytes = record.key().map_or(0, <[u8]>::len) + record.value().map_or(0, <[u8]>::len);
            let this = Size { records: 1, bytes: bytes + RECORD_BYTES };
            *size += this;
            all += this;
            offsets.push(record.offset());
            if cutting.batch.is_none() && picks.len() >= piece {
                let (picks, size) =
                    std::mem::take(&mut lanes[lane.map_or(cutting.lanes, |lane| lane as usize)]);
                self.place_picks(cutting, taken, lane, &batch, picks, size, now);
            }
        }
        taken.offsets.push((Offsets::Each(offsets), all));
        *room -= all;
        for (lane, (picks, size)) in lanes.into_iter().enumerate() {
            if !picks.is_empty() {
                let lane = (lane < cutting.lanes).then_some(lane as u32);
                self.place_picks(cutting, taken, lane, &batch, picks, size, now);
            }
        }
        Ok(())
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
        let payload = Pieces { list, stopped, failure: None, attempts: 0 };
        Some(Work { of, age: 0, lane, offsets, size, failures: 0, payload })
    }

    fn apply(exchange: &Exchange, taken: Taken, of: Origin, now: Instant) {
        let mut inner = exchange.lock();
        for (offsets, size) in &taken.offsets {
            inner.core.take_offsets(of, offsets, *size, now);
        }
        inner.core.pass(of, taken.pass);
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
