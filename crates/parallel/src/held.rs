//! The records of a share partition that this process holds: which of them can be acknowledged, and which locks are renewed.
//! No clock, no lock, no thread.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use ottla_client::AcknowledgeType;
use tokio::time::Instant;

/// The records that the group delivered and that are not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct HeldRecords {
    /// By their first offset. They do not overlap.
    runs: BTreeMap<i64, HeldRun>,
    /// The number of records that are done and wait for the result of their renewal.
    waiting: usize,
}

/// Consecutive offsets whose acquisition lock began at one time.
#[derive(Debug)]
struct HeldRun {
    locked_at: Instant,
    /// One per offset.
    states: Vec<State>,
    /// The number of records that are not [`State::Gone`].
    held: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// An acknowledgement is possible.
    Locked,
    /// The lock is being renewed. An acknowledgement waits until the record comes again.
    Renewing { done: Option<AcknowledgeType> },
    /// The renewal was refused: the group delivers the record again, perhaps to this process.
    Lost,
    /// This process does not hold the record.
    Gone,
}

/// The result of [`HeldRecords::deliver`].
#[derive(Debug, Default)]
pub(crate) struct Delivered {
    /// Consecutive records to handle.
    pub(crate) new: Vec<RangeInclusive<i64>>,
    /// Records that are done already: [`HeldRecords::done`] follows, now that they can be acknowledged.
    pub(crate) done: Vec<(i64, AcknowledgeType)>,
    /// `true` if records have come again whose locks were being renewed.
    pub(crate) has_renewed: bool,
}

/// The result of [`HeldRecords::done`].
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Done {
    /// Consecutive records to acknowledge.
    pub(crate) acknowledge: Vec<RangeInclusive<i64>>,
    /// The number of records that this process does not hold any more.
    pub(crate) lost: u64,
}

impl HeldRun {
    fn new(locked_at: Instant, states: Vec<State>) -> Self {
        let held = states.iter().filter(|state| **state != State::Gone).count();
        Self { locked_at, states, held }
    }

    fn has_locked(&self) -> bool {
        self.states.contains(&State::Locked)
    }
}

impl HeldRecords {
    /// Holds delivered records. A record that this process already has in progress comes again after its renewal, or because its
    /// lock has expired. Its handler continues under the new lock.
    pub(crate) fn deliver(&mut self, offsets: RangeInclusive<i64>, now: Instant, delivered: &mut Delivered) {
        let first = *offsets.start();
        let known = self.take(&offsets);
        let states = vec![State::Locked; (offsets.end() - first + 1).max(0) as usize];
        let mut new_from = first;
        for (offset, state) in known {
            push_range(&mut delivered.new, new_from, offset - 1);
            new_from = offset + 1;
            delivered.has_renewed |= matches!(state, State::Renewing { .. });
            if let State::Renewing { done: Some(outcome) } = state {
                self.waiting -= 1;
                delivered.done.push((offset, outcome));
            }
        }
        push_range(&mut delivered.new, new_from, *offsets.end());
        self.insert(first, HeldRun::new(now, states));
    }

    /// Removes the held records at these offsets, and returns their states.
    fn take(&mut self, offsets: &RangeInclusive<i64>) -> Vec<(i64, State)> {
        let mut taken = Vec::new();
        for first in self.overlapping(offsets) {
            let Some(HeldRun { locked_at, states: mut before, .. }) = self.runs.remove(&first) else {
                continue;
            };
            let inside_from = (offsets.start() - first).max(0);
            let mut inside = before.split_off(inside_from as usize);
            let inside_len = (offsets.end() - (first + inside_from) + 1).min(inside.len() as i64);
            let after = inside.split_off(inside_len as usize);
            let held = (first + inside_from..).zip(inside).filter(|(_, state)| *state != State::Gone);
            taken.extend(held);
            self.insert(first, HeldRun::new(locked_at, before));
            self.insert(first + inside_from + inside_len, HeldRun::new(locked_at, after));
        }
        taken
    }

    fn insert(&mut self, first: i64, run: HeldRun) {
        if run.held > 0 {
            self.runs.insert(first, run);
        }
    }

    /// The first offsets of the runs that have some of these offsets.
    fn overlapping(&self, offsets: &RangeInclusive<i64>) -> Vec<i64> {
        let before = self.runs.range(..offsets.start()).next_back();
        let reaches = |(first, run): &(&i64, &HeldRun)| **first + run.states.len() as i64 > *offsets.start();
        let inside = self.runs.range(offsets.clone());
        before.filter(reaches).into_iter().chain(inside).map(|(first, _)| *first).collect()
    }

    /// Decides what happens to consecutive records that are done, with this acknowledgement. One whose lock is being renewed
    /// waits: [`HeldRecords::deliver`] returns it.
    pub(crate) fn done(
        &mut self,
        offsets: RangeInclusive<i64>,
        outcome: AcknowledgeType,
        decided: &mut Done,
    ) {
        let mut next = *offsets.start();
        while next <= *offsets.end() {
            let run = self.runs.range_mut(..=next).next_back();
            let found = run.filter(|(first, run)| next < **first + run.states.len() as i64);
            let Some((first, run)) = found else {
                // The records up to the next run are not held.
                let following = self.runs.range(next..).next().map_or(i64::MAX, |(first, _)| *first);
                let end = following.min(offsets.end() + 1);
                decided.lost += (end - next) as u64;
                next = end;
                continue;
            };
            let first = *first;
            let end = (first + run.states.len() as i64).min(offsets.end() + 1);
            for (offset, state) in
                (next..end).zip(&mut run.states[(next - first) as usize..(end - first) as usize])
            {
                match state {
                    State::Locked => push_range(&mut decided.acknowledge, offset, offset),
                    State::Lost | State::Gone => decided.lost += 1,
                    State::Renewing { done } => {
                        self.waiting += usize::from(done.is_none());
                        *done = Some(outcome);
                        continue;
                    }
                }
                run.held -= usize::from(*state != State::Gone);
                *state = State::Gone;
            }
            if run.held == 0 {
                self.runs.remove(&first);
            }
            next = end;
        }
    }

    /// Begins to renew the locks that are older than `age`. Returns their records.
    pub(crate) fn renew(&mut self, now: Instant, age: Duration) -> Vec<RangeInclusive<i64>> {
        let mut due = Vec::new();
        for (first, run) in self.runs.iter_mut().filter(|(_, run)| run.locked_at + age <= now) {
            let locked = (*first..).zip(&mut run.states).filter(|(_, state)| **state == State::Locked);
            for (offset, state) in locked {
                *state = State::Renewing { done: None };
                push_range(&mut due, offset, offset);
            }
        }
        due
    }

    /// The time at which [`HeldRecords::renew`] has something to do.
    pub(crate) fn renew_at(&self, age: Duration) -> Option<Instant> {
        self.runs.values().filter(|run| run.has_locked()).map(|run| run.locked_at + age).min()
    }

    /// `true` if the lock of one of these records is being renewed.
    pub(crate) fn is_renewing(&self, offsets: &RangeInclusive<i64>) -> bool {
        let runs =
            self.overlapping(offsets).into_iter().filter_map(|first| Some((first, self.runs.get(&first)?)));
        let mut states = runs.flat_map(|(first, run)| (first..).zip(&run.states));
        states.any(|(offset, state)| offsets.contains(&offset) && matches!(state, State::Renewing { .. }))
    }

    /// The broker has refused acknowledgements of these offsets. Returns the number of records that are lost by that and were done.
    pub(crate) fn refuse(&mut self, offsets: RangeInclusive<i64>) -> usize {
        let mut lost = 0;
        for first in self.overlapping(&offsets) {
            let Some(run) = self.runs.get_mut(&first) else { continue };
            for (_, state) in (first..).zip(&mut run.states).filter(|(offset, _)| offsets.contains(offset)) {
                match state {
                    State::Renewing { done: None } => *state = State::Lost,
                    State::Renewing { done: Some(_) } => {
                        *state = State::Gone;
                        run.held -= 1;
                        lost += 1;
                    }
                    State::Locked | State::Lost | State::Gone => {}
                }
            }
            if run.held == 0 {
                self.runs.remove(&first);
            }
        }
        self.waiting -= lost;
        lost
    }

    /// `true` if a record is done and waits for the result of its renewal.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Removes all records. Returns those that can be acknowledged.
    pub(crate) fn take_locked(&mut self) -> Vec<RangeInclusive<i64>> {
        self.waiting = 0;
        let mut locked = Vec::new();
        for (first, run) in std::mem::take(&mut self.runs) {
            for (offset, _) in (first..).zip(run.states).filter(|(_, state)| *state == State::Locked) {
                push_range(&mut locked, offset, offset);
            }
        }
        locked
    }
}

/// Appends `first..=last`, joined with the last range if it follows it.
pub(crate) fn push_range(ranges: &mut Vec<RangeInclusive<i64>>, first: i64, last: i64) {
    if first > last {
        return;
    }
    match ranges.last_mut() {
        Some(before) if *before.end() + 1 == first => *before = *before.start()..=last,
        _ => ranges.push(first..=last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCK: Duration = Duration::from_secs(10);

    fn deliver(held: &mut HeldRecords, offsets: RangeInclusive<i64>, now: Instant) -> Delivered {
        let mut delivered = Delivered::default();
        held.deliver(offsets, now, &mut delivered);
        delivered
    }

    fn done(held: &mut HeldRecords, offsets: RangeInclusive<i64>, outcome: AcknowledgeType) -> Done {
        let mut decided = Done::default();
        held.done(offsets, outcome, &mut decided);
        decided
    }

    fn acknowledge(offsets: RangeInclusive<i64>) -> Done {
        Done { acknowledge: vec![offsets], lost: 0 }
    }

    fn lost(records: u64) -> Done {
        Done { acknowledge: vec![], lost: records }
    }

    #[test]
    fn a_renewed_record_is_not_handled_again_and_its_acknowledgement_follows_the_renewal() {
        let (mut held, now) = (HeldRecords::default(), Instant::now());
        assert_eq!(deliver(&mut held, 0..=2, now).new, [0..=2]);
        assert_eq!(done(&mut held, 0..=0, AcknowledgeType::Accept), acknowledge(0..=0));
        assert_eq!(held.renew_at(LOCK), Some(now + LOCK));
        assert!(held.renew(now, LOCK).is_empty(), "not due");
        assert_eq!(held.renew(now + LOCK, LOCK), [1..=2]);
        assert_eq!(done(&mut held, 1..=1, AcknowledgeType::Accept), Done::default());
        assert!(held.has_waiting() && held.renew_at(LOCK).is_none());
        let again = deliver(&mut held, 1..=2, now + LOCK);
        assert_eq!((again.new, again.done), (vec![], vec![(1, AcknowledgeType::Accept)]));
        assert!(!held.has_waiting());
        assert_eq!(done(&mut held, 1..=1, AcknowledgeType::Accept), acknowledge(1..=1));
        assert_eq!(held.renew_at(LOCK), Some(now + LOCK + LOCK));
        assert_eq!(done(&mut held, 2..=2, AcknowledgeType::Reject), acknowledge(2..=2));
        assert_eq!(held.renew_at(LOCK), None);
    }

    #[test]
    fn a_refused_renewal_loses_the_record_until_the_group_delivers_it_again() {
        let (mut held, now) = (HeldRecords::default(), Instant::now());
        deliver(&mut held, 0..=3, now);
        held.renew(now + LOCK, LOCK);
        assert_eq!(done(&mut held, 0..=0, AcknowledgeType::Accept), Done::default());
        assert_eq!(held.refuse(0..=2), 1, "the record that was done");
        assert_eq!(done(&mut held, 0..=1, AcknowledgeType::Accept), lost(2));
        let again = deliver(&mut held, 0..=2, now + LOCK);
        assert_eq!(again.new, [0..=1], "the handler of record 2 still runs");
        assert_eq!(done(&mut held, 2..=2, AcknowledgeType::Accept), acknowledge(2..=2));
        assert_eq!(held.take_locked(), [0..=1], "the renewal of record 3 has no result");
    }

    #[test]
    fn ranges_of_done_records_may_cross_deliveries_and_records_that_are_not_held() {
        let (mut held, now) = (HeldRecords::default(), Instant::now());
        deliver(&mut held, 0..=4, now);
        deliver(&mut held, 5..=9, now);
        deliver(&mut held, 20..=24, now);
        assert_eq!(done(&mut held, 6..=6, AcknowledgeType::Accept), acknowledge(6..=6));
        let crossing = done(&mut held, 3..=21, AcknowledgeType::Accept);
        assert_eq!(crossing, Done { acknowledge: vec![3..=5, 7..=9, 20..=21], lost: 11 });
        assert_eq!(held.take_locked(), [0..=2, 22..=24]);
        assert_eq!(done(&mut held, 0..=1, AcknowledgeType::Accept), lost(2));
    }

    #[test]
    fn a_record_that_comes_again_has_its_own_lock() {
        let (mut held, now) = (HeldRecords::default(), Instant::now());
        deliver(&mut held, 0..=9, now);
        assert_eq!(deliver(&mut held, 4..=5, now + LOCK).new, [], "their handlers still run");
        assert_eq!(held.renew(now + LOCK, LOCK), [0..=3, 6..=9]);
        assert_eq!(held.renew_at(LOCK), Some(now + LOCK + LOCK));
        assert_eq!(done(&mut held, 0..=9, AcknowledgeType::Accept), acknowledge(4..=5));
        let again = deliver(&mut held, 0..=12, now + LOCK);
        assert_eq!(again.new, [4..=5, 10..=12]);
        assert_eq!(again.done.len(), 8);
        for (offset, outcome) in again.done {
            assert_eq!(done(&mut held, offset..=offset, outcome), acknowledge(offset..=offset));
        }
        assert_eq!(held.take_locked(), [4..=5, 10..=12]);
    }
}
