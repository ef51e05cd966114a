//! What decides: which record is handled when, and up to where all are done. No clock, no lock, no thread.

pub(crate) mod breaker;
pub(crate) mod lanes;
#[cfg(test)]
mod model;
pub(crate) mod tracker;
pub(crate) mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use self::breaker::{Breaker, BreakerSettings};
use self::lanes::Lanes;
use self::tracker::{Committable, Tracker};
use self::work::{Offsets, Origin, Outcome, Size, Unsettled, Work};
use crate::retry::Retry;

/// Before anything was measured a record is taken to be slow: then each goes to a worker of its own.
const RECORD_TIME_UNKNOWN: Duration = Duration::from_millis(1);

/// What is tried again is older than all that is new: commits wait for it.
const FRESH: u64 = 1 << 63;

/// What the processor has under way, of all partitions.
#[derive(Debug)]
pub(crate) struct Core<P> {
    retry: Retry,
    /// Whether anybody wants to know what is done.
    tracked: bool,
    rng: fastrand::Rng,
    slots: Vec<Slot>,
    lanes: Lanes<P>,
    /// What is due later; numbered, since two may be due at the same time.
    delayed: BTreeMap<(Instant, u64), Delayed<P>>,
    /// Numbers given so far, to work and to what is delayed.
    numbers: u64,
    breaker: Breaker,
    record_time: Duration,
    pub(crate) counts: Counts,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) handled: u64,
    pub(crate) failures: u64,
    pub(crate) retries: u64,
    /// Results that came after the partition was gone.
    pub(crate) late: u64,
}

#[derive(Debug)]
enum Delayed<P> {
    Lane(u32),
    Free(Work<P>),
}

/// A partition.
#[derive(Debug)]
struct Slot {
    turn: u32,
    state: SlotState,
    tracker: Tracker,
    in_flight: Size,
    /// Pieces of work that workers have, and records whose outputs or dead letters are being written.
    running: usize,
    blocking_since: Instant,
    tracked: bool,
    stopped: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SlotState {
    Assigned,
    /// Nothing of it is begun any more.
    Stopping,
    Free,
}

/// Where a partition stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    pub(crate) committable: Committable,
    pub(crate) blocking: Option<(i64, Instant)>,
    pub(crate) in_flight: Size,
}

impl<P> Core<P> {
    pub(crate) fn new(retry: Retry, breaker: Option<BreakerSettings>, rng: fastrand::Rng) -> Self {
        Self {
            retry,
            tracked: true,
            rng,
            slots: Vec::new(),
            lanes: Lanes::new(),
            delayed: BTreeMap::new(),
            numbers: 0,
            breaker: Breaker::new(breaker),
            record_time: RECORD_TIME_UNKNOWN,
            counts: Counts::default(),
        }
    }

    /// Nobody wants to know what is done.
    pub(crate) fn untracked(mut self) -> Self {
        self.tracked = false;
        self
    }

    /// A partition is ours, and everything before `start` is done. The flag is up when nothing more of it is to be begun.
    pub(crate) fn assign(&mut self, start: i64, now: Instant) -> (Origin, Arc<AtomicBool>) {
        let stopped = Arc::new(AtomicBool::new(false));
        let free = self.slots.iter().position(|slot| slot.state == SlotState::Free);
        let index = free.unwrap_or(self.slots.len());
        let turn = free.map_or(0, |index| self.slots[index].turn);
        let slot = Slot {
            turn,
            state: SlotState::Assigned,
            tracker: Tracker::new(start),
            in_flight: Size::default(),
            running: 0,
            blocking_since: now,
            tracked: self.tracked,
            stopped: stopped.clone(),
        };
        match free {
            Some(index) => self.slots[index] = slot,
            None => self.slots.push(slot),
        }
        (Origin { slot: index as u32, turn }, stopped)
    }

    /// Whether offsets from `from` to before `next` can be taken now; if not, when more are done.
    pub(crate) fn has_room(&self, of: Origin, from: i64, next: i64) -> bool {
        self.slot(of).is_none_or(|slot| slot.tracker.has_room(from, next))
    }

    /// These records are under way. All of a partition are taken in order, whatever lanes they go to with
    /// [`Core::admit`] then.
    pub(crate) fn take_offsets(&mut self, of: Origin, offsets: &Offsets, size: Size, now: Instant) {
        if let Some(slot) = self.slot_mut(of) {
            slot.take(offsets, size, now);
        }
    }

    /// Work to be done, behind what its lane has already; its records are taken.
    pub(crate) fn admit(&mut self, mut work: Work<P>) {
        work.age = FRESH | self.age();
        if self.is_assigned(work.of) {
            self.lanes.push(work);
        }
    }

    /// There are no records up to `next`.
    pub(crate) fn pass(&mut self, of: Origin, next: i64) {
        if let Some(slot) = self.slot_mut(of).filter(|slot| slot.tracked) {
            slot.tracker.pass(next);
        }
    }

    /// The leader with this epoch wrote what is taken from `from` on.
    pub(crate) fn note_epoch(&mut self, of: Origin, from: i64, epoch: Option<i32>) {
        if let Some(slot) = self.slot_mut(of) {
            slot.tracker.note_epoch(from, epoch);
        }
    }

    /// Work for a worker, who must tell its [`Outcome`].
    pub(crate) fn take(&mut self, now: Instant) -> Option<Work<P>> {
        if !self.lanes.has_ready() || !self.breaker.lets_through(now) {
            return None;
        }
        let Some(work) = self.lanes.take() else {
            self.breaker.forget_try(now);
            return None;
        };
        let slot = self.slot_mut(work.of).expect("what is queued of a partition goes with it");
        assert_eq!(slot.state, SlotState::Assigned, "nothing is begun of a partition that is taken back");
        slot.running += 1;
        Some(work)
    }

    /// A piece of work is over. What has failed too often comes back.
    pub(crate) fn finish(&mut self, outcome: Outcome<P>, now: Instant) -> Vec<Work<P>> {
        let Outcome { of, lane, offsets, until, open, done, deferred, failed, held, rest, took } = outcome;
        self.measure(done.records + failed.len() + usize::from(held.is_some()), took);
        if done.records > 0 {
            self.breaker.on_success();
        }
        if done.records == 0 && failed.is_empty() && held.is_none() {
            self.breaker.forget_try(now);
        }
        self.counts.handled += done.records as u64;
        let Some(slot) = self.slot_mut(of) else {
            self.counts.late += done.records as u64;
            if let Some(lane) = lane {
                self.lanes.leave(lane, of);
            }
            return Vec::new();
        };
        if !deferred {
            slot.running -= 1;
            slot.in_flight -= done;
            slot.finish(&offsets, until, &open, now);
        }
        let mut given_up = Vec::new();
        let assigned = slot.state == SlotState::Assigned;
        if let Some(rest) = rest.filter(|_| assigned) {
            self.lanes.put_back(rest);
        }
        for work in failed {
            given_up.extend(self.fail(work, now));
        }
        let holds = held.is_some_and(|held| {
            let (kept, lost) = self.hold(held, now);
            given_up.extend(lost);
            kept
        });
        if let Some(lane) = lane {
            if holds {
                self.lanes.hold(lane);
            } else {
                self.lanes.leave(lane, of);
            }
        }
        given_up
    }

    /// A record that its lane waits for has failed: whether it does, and what is given up.
    fn hold(&mut self, work: Work<P>, now: Instant) -> (bool, Option<Work<P>>) {
        let Some(lane) = work.lane else { return (false, self.fail(work, now)) };
        let Some(delay) = self.failed(&work, now) else { return (false, self.give_up(work)) };
        if !self.is_assigned(work.of) {
            return (false, None);
        }
        self.lanes.put_back(work);
        self.delay(now + delay, Delayed::Lane(lane));
        (true, None)
    }

    /// Work that no lane waits for has failed once more; it comes back if that was once too often.
    fn fail(&mut self, mut work: Work<P>, now: Instant) -> Option<Work<P>> {
        let Some(delay) = self.failed(&work, now) else { return self.give_up(work) };
        if self.is_assigned(work.of) {
            (work.lane, work.age) = (None, self.age());
            self.delay(now + delay, Delayed::Free(work));
        }
        None
    }

    /// After which time it is tried again, if it is.
    fn failed(&mut self, work: &Work<P>, now: Instant) -> Option<Duration> {
        self.counts.failures += 1;
        self.breaker.on_failure(now);
        let delay = self.retry.after(work.failures, &mut self.rng)?;
        self.counts.retries += 1;
        Some(delay)
    }

    /// Records wait for somebody else: for dead letters to be written, or outputs. See [`Core::settle`].
    pub(crate) fn give_up(&mut self, work: Work<P>) -> Option<Work<P>> {
        let slot = self.slot_mut(work.of)?;
        slot.running += 1;
        Some(work)
    }

    /// What was open is done.
    pub(crate) fn settle(&mut self, done: &Unsettled, now: Instant) {
        match self.slot_mut(done.of) {
            Some(slot) => {
                slot.running -= 1;
                slot.in_flight -= done.size;
                slot.finish(&done.offsets, done.until, &done.except, now);
            }
            None => self.counts.late += done.size.records as u64,
        }
    }

    /// What was open will never be done: nobody is to wait for it.
    pub(crate) fn abandon(&mut self, of: Origin) {
        if let Some(slot) = self.slot_mut(of) {
            slot.running -= 1;
        }
    }

    /// Makes ready what is due, and says when the next is.
    pub(crate) fn wake(&mut self, now: Instant) -> Option<Instant> {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            match entry.remove() {
                Delayed::Lane(lane) => self.lanes.release(lane),
                Delayed::Free(work) => self.lanes.push(work),
            }
        }
        let due = self.delayed.keys().next().map(|(due, _)| *due);
        let closes = self.breaker.open_until().filter(|_| self.lanes.has_ready());
        [due, closes].into_iter().flatten().min()
    }

    /// Nothing more of the partition is begun; what waits is thrown away, for its next owner to handle.
    pub(crate) fn stop(&mut self, of: Origin) {
        let Some(slot) = self.slot_mut(of) else { return };
        slot.state = SlotState::Stopping;
        slot.stopped.store(true, Ordering::Release);
        self.lanes.purge(of);
        self.delayed.retain(|_, delayed| !matches!(delayed, Delayed::Free(work) if work.of == of));
    }

    /// Whether nothing of it is being handled.
    pub(crate) fn is_quiet(&self, of: Origin) -> bool {
        self.slot(of).is_none_or(|slot| slot.running == 0)
    }

    /// Whether everything that was taken of it is done.
    pub(crate) fn is_through(&self, of: Origin) -> bool {
        self.slot(of).is_none_or(|slot| slot.running == 0 && slot.tracker.is_idle())
    }

    /// The partition is somebody else's: what comes of it from now on is late.
    pub(crate) fn remove(&mut self, of: Origin) {
        self.stop(of);
        self.lanes.abandon(of);
        if let Some(slot) = self.slot_mut(of) {
            slot.state = SlotState::Free;
            slot.turn += 1;
        }
    }

    pub(crate) fn standing(&mut self, of: Origin) -> Option<Standing> {
        let slot = self.slot_mut(of)?;
        Some(Standing {
            committable: slot.tracker.committable(),
            blocking: slot.tracker.blocking().map(|offset| (offset, slot.blocking_since)),
            in_flight: slot.in_flight,
        })
    }

    pub(crate) fn in_flight(&self, of: Origin) -> Size {
        self.slot(of).map(|slot| slot.in_flight).unwrap_or_default()
    }

    pub(crate) const fn lanes(&self) -> &Lanes<P> {
        &self.lanes
    }

    pub(crate) const fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// How long a record takes, of late.
    pub(crate) const fn record_time(&self) -> Duration {
        self.record_time
    }

    fn measure(&mut self, records: usize, took: Duration) {
        if records > 0 {
            let each = took / records as u32;
            self.record_time = (self.record_time * 3 + each) / 4;
        }
    }

    fn delay(&mut self, due: Instant, delayed: Delayed<P>) {
        let number = self.age();
        self.delayed.insert((due, number), delayed);
    }

    /// How old something is: a number above all before it.
    fn age(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn is_assigned(&self, of: Origin) -> bool {
        self.slot(of).is_some_and(|slot| slot.state == SlotState::Assigned)
    }

    fn slot(&self, of: Origin) -> Option<&Slot> {
        self.slots.get(of.slot as usize).filter(|slot| slot.turn == of.turn && slot.state != SlotState::Free)
    }

    fn slot_mut(&mut self, of: Origin) -> Option<&mut Slot> {
        let slot = self.slots.get_mut(of.slot as usize);
        slot.filter(|slot| slot.turn == of.turn && slot.state != SlotState::Free)
    }
}

impl Slot {
    fn take(&mut self, offsets: &Offsets, size: Size, now: Instant) {
        self.in_flight += size;
        if !self.tracked {
            return;
        }
        if self.tracker.is_idle() {
            self.blocking_since = now;
        }
        match offsets {
            Offsets::Range(from, next) => self.tracker.take_range(*from, *next),
            Offsets::Each(offsets) => offsets.iter().for_each(|offset| self.tracker.take(*offset)),
        }
    }

    fn finish(&mut self, offsets: &Offsets, until: i64, open: &[i64], now: Instant) {
        if !self.tracked {
            return;
        }
        let mut grown = false;
        match offsets {
            Offsets::Range(from, next) => {
                let (mut from, next) = (*from, (*next).min(until));
                for open in open {
                    grown |= self.tracker.finish_range(from, *open);
                    from = open + 1;
                }
                grown |= self.tracker.finish_range(from, next);
            }
            Offsets::Each(offsets) => {
                let mut open = open.iter().peekable();
                for offset in offsets.iter().take_while(|offset| **offset < until) {
                    if open.next_if_eq(&offset).is_none() {
                        grown |= self.tracker.finish(*offset);
                    }
                }
            }
        }
        if grown {
            self.blocking_since = now;
        }
    }
}
