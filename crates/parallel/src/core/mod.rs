//! Decides the order in which records are handled, and the offset up to which all are done. No clock, no lock, no
//! thread.

pub(crate) mod breaker;
pub(crate) mod lanes;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
pub(crate) mod tracker;
pub(crate) mod work;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::breaker::{Breaker, BreakerSettings};
use self::lanes::Lanes;
use self::tracker::{Committable, Tracker};
use self::work::{AssignmentId, Offsets, Outcome, PendingRecords, Size, StopOffset, Work};
use crate::deadline::after;
use crate::retry::{FATAL, GIVEN_UP, Retry};

/// Assumed handling time before any measurement. Records are assumed to be slow, so each becomes its own work item.
const RECORD_TIME_UNKNOWN: Duration = Duration::from_millis(1);

/// Added to the age of new work. Retried work comes first, because commits wait for it.
const NEW_WORK_AGE: u64 = 1 << 63;

/// The work of all partitions.
#[derive(Debug)]
pub(crate) struct Core<P> {
    retry: Retry,
    /// `false` if finished offsets are not tracked; see [`Core::untracked`].
    tracked: bool,
    rng: fastrand::Rng,
    slots: Vec<Slot<P>>,
    lanes: Lanes<P>,
    /// Delayed work by due time. The number makes keys unique.
    delayed: BTreeMap<(Instant, u64), Delayed<P>>,
    /// The last number assigned to work or to a delay.
    numbers: u64,
    breaker: Breaker,
    /// `true` if a record that is given up stops the processor.
    stops: bool,
    /// `true` after a failure that stops the processor; see [`Core::is_halted`].
    halted: bool,
    /// `true` after [`Core::stop_all`].
    stopped: bool,
    record_time: Duration,
    pub(crate) counts: Counts,
}

/// Counters for the metrics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) handled: u64,
    pub(crate) failures: u64,
    pub(crate) retries: u64,
    /// Results that arrived after the partition was revoked.
    pub(crate) late: u64,
}

#[derive(Debug)]
enum Delayed<P> {
    /// A lane, and the number of its hold.
    Lane(u32, u64),
    Free(Work<P>),
}

/// An assigned partition.
#[derive(Debug)]
struct Slot<P> {
    generation: u32,
    state: SlotState,
    tracker: Tracker,
    in_flight: Size,
    /// Work items in progress, and records whose outputs or dead letters are being written.
    running: usize,
    blocking_since: Instant,
    tracked: bool,
    stopped: Arc<StopOffset>,
    /// Queued work, in order, while the partition is [`SlotState::Draining`].
    retained: Vec<Work<P>>,
    /// The offsets of retained records that wait for a retry. They are tried once in the drain, at once; if they fail, they are
    /// dropped for the next owner, and not given up before their time.
    retried: Vec<i64>,
    /// The first offset of the records that stop the processor, or that failed while the partition was being drained. No commit
    /// passes it.
    dropped: i64,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SlotState {
    Assigned,
    /// Only records before the last finished one are started: the commit then covers all that is finished.
    Draining,
    /// No more of its work is started.
    Stopping,
    Free,
}

/// The progress of a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitProgress {
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
            stops: false,
            halted: false,
            stopped: false,
            record_time: RECORD_TIME_UNKNOWN,
            counts: Counts::default(),
        }
    }

    /// Turns off the tracking of finished offsets.
    pub(crate) fn untracked(mut self) -> Self {
        self.tracked = false;
        self
    }

    /// With `true`, a record that is given up stops the processor.
    pub(crate) fn stopping(mut self, stops: bool) -> Self {
        self.stops = stops;
        self
    }

    /// Adds an assigned partition; everything before `start` is done. The returned offset is lowered when no more of
    /// its records may be started.
    pub(crate) fn assign(&mut self, start: i64, now: Instant) -> (AssignmentId, Arc<StopOffset>) {
        let stopped = Arc::new(StopOffset::unlimited());
        let free = self.slots.iter().position(|slot| slot.state == SlotState::Free);
        let index = free.unwrap_or(self.slots.len());
        let generation = free.map_or(0, |index| self.slots[index].generation);
        let slot = Slot {
            generation,
            state: SlotState::Assigned,
            tracker: Tracker::new(start),
            in_flight: Size::default(),
            running: 0,
            blocking_since: now,
            tracked: self.tracked,
            stopped: stopped.clone(),
            retained: Vec::new(),
            retried: Vec::new(),
            dropped: i64::MAX,
        };
        match free {
            Some(index) => self.slots[index] = slot,
            None => self.slots.push(slot),
        }
        let assignment = AssignmentId { slot: index as u32, generation };
        if self.stopped {
            self.stop(assignment);
        }
        (assignment, stopped)
    }

    /// `true` if the offsets `from..next` fit into the tracker's window now.
    pub(crate) fn has_room(&self, assignment: AssignmentId, from: i64, next: i64) -> bool {
        self.slot(assignment).is_none_or(|slot| slot.tracker.has_room(from, next))
    }

    /// Marks the records as in flight. A partition's records are taken in offset order; [`Core::admit`] then assigns
    /// them to lanes.
    pub(crate) fn take_offsets(
        &mut self,
        assignment: AssignmentId,
        offsets: &Offsets,
        size: Size,
        now: Instant,
    ) {
        if let Some(slot) = self.slot_mut(assignment) {
            slot.take(offsets, size, now);
        }
    }

    /// Appends work to its lane. Its records were taken with [`Core::take_offsets`].
    pub(crate) fn admit(&mut self, mut work: Work<P>) {
        work.age = NEW_WORK_AGE | self.age();
        if self.slot(work.assignment).is_some_and(Slot::is_handled) {
            self.lanes.push(work);
        }
    }

    /// Advances over the offsets before `next`, which have no records.
    pub(crate) fn pass(&mut self, assignment: AssignmentId, next: i64) {
        if let Some(slot) = self.slot_mut(assignment).filter(|slot| slot.tracked) {
            slot.tracker.pass(next);
        }
    }

    /// Records the epoch of the leader that wrote the records from `from`.
    pub(crate) fn note_epoch(&mut self, assignment: AssignmentId, from: i64, epoch: Option<i32>) {
        if let Some(slot) = self.slot_mut(assignment) {
            slot.tracker.note_epoch(from, epoch);
        }
    }

    /// `true` if a worker may start work. A lane that was emptied may still count; see [`Lanes::has_ready`].
    pub(crate) fn can_start(&self, now: Instant) -> bool {
        self.lanes.has_ready() && self.breaker.lets_through(now) && !self.is_halted()
    }

    /// The end of the circuit breaker's pause, if work waits for it.
    pub(crate) fn resumes_at(&self, now: Instant) -> Option<Instant> {
        self.breaker.open_until().filter(|until| *until > now && self.lanes.has_ready())
    }

    /// Takes a work item for a worker. The worker must report its [`Outcome`].
    pub(crate) fn take(&mut self, now: Instant) -> Option<Work<P>> {
        if !self.can_start(now) {
            return None;
        }
        let work = self.lanes.take()?;
        self.breaker.on_start(work.assignment, work.age);
        let slot = self.slot_mut(work.assignment).expect("what is queued of a partition goes with it");
        assert!(slot.is_handled(), "nothing is begun of a partition that is taken back");
        slot.running += 1;
        Some(work)
    }

    /// Ends a work item. Returns the work whose retries are used up.
    pub(crate) fn finish(&mut self, outcome: Outcome<P>, now: Instant) -> Vec<Work<P>> {
        let Outcome {
            assignment,
            age,
            lane,
            offsets,
            until,
            open,
            done,
            runs,
            deferred,
            failed,
            held,
            rest,
            took,
        } = outcome;
        self.measure(done.records + failed.len() + usize::from(held.is_some()), took);
        self.breaker.on_outcome(age, runs, now);
        self.counts.handled += done.records as u64;
        let Some(slot) = self.slot_mut(assignment) else {
            self.counts.late += done.records as u64;
            if let Some(lane) = lane {
                self.lanes.leave(lane, assignment);
            }
            return Vec::new();
        };
        if !deferred {
            slot.running -= 1;
            slot.in_flight -= done;
            slot.finish(&offsets, until, &open, now);
        }
        let mut given_up = Vec::new();
        match (slot.state, rest) {
            (SlotState::Draining, Some(rest)) if slot.stopped.stops(rest.offsets.first()) => {
                slot.retained.push(rest);
            }
            (SlotState::Assigned | SlotState::Draining, Some(rest)) => self.lanes.put_back(rest),
            (SlotState::Stopping | SlotState::Free, _) | (_, None) => {}
        }
        for work in failed {
            given_up.extend(self.fail(work, now));
        }
        let hold = held.and_then(|held| {
            let (hold, lost) = self.hold(held, now);
            given_up.extend(lost);
            hold
        });
        match (lane, hold) {
            (Some(lane), Some(hold)) => self.lanes.hold(lane, hold),
            (Some(lane), None) => self.lanes.leave(lane, assignment),
            (None, _) => {}
        }
        // Before the same worker takes the next record of the lane.
        self.halted |= given_up.iter().any(|work| self.stops || work.failures == FATAL);
        given_up
    }

    /// Handles a failure for which the lane must wait. Returns the number of the hold if the lane is held, and the work whose
    /// retries are used up.
    fn hold(&mut self, work: Work<P>, now: Instant) -> (Option<u64>, Option<Work<P>>) {
        let Some(lane) = work.lane else { return (None, self.fail(work, now)) };
        if self.fails_in_drain(&work) {
            return (None, None);
        }
        let Some(delay) = self.failed(&work) else { return (None, self.give_up(work)) };
        if !self.is_assigned(work.assignment) {
            self.note_dropped(&work);
            return (None, None);
        }
        self.lanes.put_back(work);
        let hold = self.age();
        self.delay(after(now, delay), Delayed::Lane(lane, hold));
        (Some(hold), None)
    }

    /// Schedules failed work that no lane waits for. Returns it if its retries are used up.
    fn fail(&mut self, mut work: Work<P>, now: Instant) -> Option<Work<P>> {
        if self.fails_in_drain(&work) {
            return None;
        }
        let Some(delay) = self.failed(&work) else { return self.give_up(work) };
        if self.is_assigned(work.assignment) {
            (work.lane, work.age) = (None, self.age());
            self.delay(after(now, delay), Delayed::Free(work));
        } else {
            self.note_dropped(&work);
        }
        None
    }

    /// Drops a record that was retried before its time, in the drain, and has failed again. Returns `true` if it was one.
    fn fails_in_drain(&mut self, work: &Work<P>) -> bool {
        let Some(slot) = self.slot(work.assignment) else { return false };
        let is_retriable = work.failures < GIVEN_UP;
        if !is_retriable || slot.state != SlotState::Draining || !slot.retried.contains(&work.offsets.first())
        {
            return false;
        }
        self.counts.failures += 1;
        self.note_dropped(work);
        true
    }

    /// Counts a failure. Returns the delay before the retry, or `None` if the retries are used up.
    fn failed(&mut self, work: &Work<P>) -> Option<Duration> {
        self.counts.failures += 1;
        let delay = self.retry.after(work.failures, &mut self.rng)?;
        self.counts.retries += 1;
        Some(delay)
    }

    /// Keeps records in flight while a dead letter or an output is written for them. See [`Core::settle`].
    pub(crate) fn give_up(&mut self, work: Work<P>) -> Option<Work<P>> {
        let slot = self.slot_mut(work.assignment)?;
        slot.running += 1;
        Some(work)
    }

    /// `true` after a failure that stops the processor, until all partitions are being drained: a record after the failed one must
    /// not be started.
    fn is_halted(&self) -> bool {
        self.halted && self.slots.iter().any(|slot| slot.state == SlotState::Assigned)
    }

    /// Starts records again: the work that has stopped them was removed, and its records will be handled again.
    pub(crate) fn resume(&mut self) {
        self.halted = false;
    }

    /// Finishes the records: what they waited for was written.
    pub(crate) fn settle(&mut self, done: &PendingRecords, now: Instant) {
        match self.slot_mut(done.assignment) {
            Some(slot) => {
                slot.running -= 1;
                slot.in_flight -= done.size;
                slot.finish(&done.offsets, done.until, &done.except, now);
            }
            None => self.counts.late += done.size.records as u64,
        }
    }

    /// Removes the records without finishing them: the write has failed, or they stop the processor.
    pub(crate) fn abandon(&mut self, records: &PendingRecords) {
        if let Some(slot) = self.slot_mut(records.assignment) {
            slot.running -= 1;
            slot.dropped = slot.dropped.min(records.offsets.first());
            self.halted = true;
        }
    }

    /// Makes due work ready. Returns the time of the next delay.
    pub(crate) fn wake(&mut self, now: Instant) -> Option<Instant> {
        while let Some(entry) = self.delayed.first_entry() {
            if entry.key().0 > now {
                break;
            }
            match entry.remove() {
                Delayed::Lane(lane, hold) => self.lanes.release(lane, hold),
                Delayed::Free(work) => self.lanes.push(work),
            }
        }
        [self.next_due(), self.resumes_at(now)].into_iter().flatten().min()
    }

    /// The time of the next delay.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.delayed.keys().next().map(|(due, _)| *due)
    }

    /// The offset up to which all records of a partition are done.
    pub(crate) fn finished_offset(&mut self, assignment: AssignmentId) -> Option<i64> {
        self.slot_mut(assignment).map(|slot| slot.tracker.committable().offset)
    }

    /// Begins to drain a partition: nothing of it is started until [`Core::finish_gaps`].
    pub(crate) fn drain(&mut self, assignment: AssignmentId) {
        let (mut retained, mut retried) = self.lanes.remove(assignment);
        let is_free =
            |delayed: &Delayed<P>| matches!(delayed, Delayed::Free(work) if work.assignment == assignment);
        let keys: Vec<_> = self.delayed.iter().filter(|(_, it)| is_free(it)).map(|(key, _)| *key).collect();
        for key in keys {
            if let Some(Delayed::Free(work)) = self.delayed.remove(&key) {
                retried.extend(work.offsets.each());
                retained.push(work);
            }
        }
        let Some(slot) = self.slot_mut(assignment) else { return };
        slot.state = SlotState::Draining;
        slot.stopped.set(i64::MIN);
        (slot.retained, slot.retried) = (retained, retried);
    }

    /// Starts the records before the last finished one, once nothing of a draining partition is being handled.
    /// Returns `true` if there are none: the partition is drained.
    pub(crate) fn finish_gaps(&mut self, assignment: AssignmentId, now: Instant) -> bool {
        if !self.is_idle(assignment) {
            return false;
        }
        if !self.breaker.lets_through(now) {
            self.drop_retried(assignment);
        }
        if self.lanes.has_work_of(assignment) {
            return false;
        }
        let Some(slot) = self.slot_mut(assignment) else { return true };
        let limit = slot.tracker.finished_end().min(slot.dropped);
        slot.stopped.set(limit);
        slot.retained.sort_by_key(|work| work.offsets.first());
        let count = slot.retained.partition_point(|work| work.offsets.first() < limit);
        let gaps: Vec<_> = slot.retained.drain(..count).collect();
        for work in gaps {
            self.admit(work);
        }
        count == 0
    }

    /// Drops the records of a draining partition that wait for a retry, for the next owner: the circuit breaker keeps them from being
    /// tried at once.
    fn drop_retried(&mut self, assignment: AssignmentId) {
        let (queued, _) = self.lanes.remove(assignment);
        let Some(slot) = self.slot_mut(assignment) else { return };
        slot.retained.extend(queued);
        let mut retried = std::mem::take(&mut slot.retried);
        retried.sort_unstable();
        let offsets = slot.retained.iter().map(|work| work.offsets.first());
        let first = offsets.filter(|offset| retried.binary_search(offset).is_ok()).min();
        slot.dropped = slot.dropped.min(first.unwrap_or(i64::MAX));
    }

    /// Removes the queued work of a partition that has not failed, and returns it. Work that waits for a retry stays.
    pub(crate) fn withdraw(&mut self, assignment: AssignmentId) -> Vec<Work<P>> {
        let (queued, _) = self.lanes.remove(assignment);
        let (fresh, failed): (Vec<_>, Vec<_>) = queued.into_iter().partition(|work| work.failures == 0);
        for work in failed {
            self.lanes.push(work);
        }
        if let Some(slot) = self.slot_mut(assignment) {
            for work in &fresh {
                slot.in_flight -= work.size;
            }
        }
        fresh
    }

    /// `true` if work waits for its retry.
    pub(crate) fn has_delayed(&self) -> bool {
        !self.delayed.is_empty()
    }

    fn note_dropped(&mut self, work: &Work<P>) {
        if let Some(slot) = self.slot_mut(work.assignment) {
            slot.dropped = slot.dropped.min(work.offsets.first());
            slot.stopped.set(i64::MIN);
        }
    }

    /// Stops a partition: no more of its records are started, and its queued work is dropped for the next owner.
    pub(crate) fn stop(&mut self, assignment: AssignmentId) {
        let Some(slot) = self.slot_mut(assignment) else { return };
        slot.state = SlotState::Stopping;
        slot.stopped.set(i64::MIN);
        slot.retained.clear();
        let _dropped = self.lanes.remove(assignment);
        self.delayed
            .retain(|_, delayed| !matches!(delayed, Delayed::Free(work) if work.assignment == assignment));
    }

    /// Stops all partitions, also those that are assigned later.
    pub(crate) fn stop_all(&mut self) {
        self.stopped = true;
        for index in 0..self.slots.len() {
            let generation = self.slots[index].generation;
            self.stop(AssignmentId { slot: index as u32, generation });
        }
    }

    /// `true` if none of its records are being handled.
    pub(crate) fn is_idle(&self, assignment: AssignmentId) -> bool {
        self.slot(assignment).is_none_or(|slot| slot.running == 0)
    }

    /// `true` if all of its taken records are done.
    pub(crate) fn is_finished(&self, assignment: AssignmentId) -> bool {
        self.slot(assignment).is_none_or(|slot| slot.running == 0 && slot.tracker.is_idle())
    }

    /// Removes a revoked partition. Later results count as late.
    pub(crate) fn remove(&mut self, assignment: AssignmentId) {
        self.stop(assignment);
        self.lanes.abandon(assignment);
        self.breaker.remove(assignment);
        if let Some(slot) = self.slot_mut(assignment) {
            slot.state = SlotState::Free;
            slot.generation += 1;
        }
    }

    pub(crate) fn progress(&mut self, assignment: AssignmentId) -> Option<CommitProgress> {
        let slot = self.slot_mut(assignment)?;
        Some(CommitProgress {
            committable: slot.tracker.committable(),
            blocking: slot.tracker.blocking().map(|offset| (offset, slot.blocking_since)),
            in_flight: slot.in_flight,
        })
    }

    /// Returns `true` until the partition is removed.
    pub(crate) fn is_known(&self, assignment: AssignmentId) -> bool {
        self.slot(assignment).is_some()
    }

    pub(crate) fn in_flight(&self, assignment: AssignmentId) -> Size {
        self.slot(assignment).map(|slot| slot.in_flight).unwrap_or_default()
    }

    pub(crate) const fn lanes(&self) -> &Lanes<P> {
        &self.lanes
    }

    pub(crate) const fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// The moving average of the handling time of a record.
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

    /// The next number. Numbers increase, so the smallest is the oldest.
    fn age(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    fn is_assigned(&self, assignment: AssignmentId) -> bool {
        self.slot(assignment).is_some_and(|slot| slot.state == SlotState::Assigned)
    }

    fn slot(&self, assignment: AssignmentId) -> Option<&Slot<P>> {
        self.slots
            .get(assignment.slot as usize)
            .filter(|slot| slot.generation == assignment.generation && slot.state != SlotState::Free)
    }

    fn slot_mut(&mut self, assignment: AssignmentId) -> Option<&mut Slot<P>> {
        let slot = self.slots.get_mut(assignment.slot as usize);
        slot.filter(|slot| slot.generation == assignment.generation && slot.state != SlotState::Free)
    }
}

impl<P> Slot<P> {
    /// `true` if records may be started.
    fn is_handled(&self) -> bool {
        matches!(self.state, SlotState::Assigned | SlotState::Draining)
    }

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
                let mut from = *from;
                for open in open.iter().chain([next]) {
                    grown |= self.tracker.finish_range(from, until.min(*open));
                    // The offsets from `until` that are not open have no record, and no other work item finishes them.
                    grown |= self.tracker.clear_range(from.max(until), *open);
                    from = open + 1;
                }
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
