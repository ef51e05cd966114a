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
    records: BTreeMap<i64, HeldRecord>,
    /// The number of records that are done and wait for the result of their renewal.
    waiting: usize,
}

#[derive(Clone, Copy, Debug)]
struct HeldRecord {
    /// The begin of the acquisition lock.
    locked_at: Instant,
    state: State,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// An acknowledgement is possible.
    Locked,
    /// The lock is being renewed. An acknowledgement waits until the record comes again.
    Renewing { done: Option<AcknowledgeType> },
    /// The renewal was refused: the group delivers the record again, perhaps to this process.
    Lost,
}

/// The action for a record that is done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum OnDone {
    /// Acknowledge it.
    Acknowledge,
    /// Its acknowledgement waits for its renewal: [`HeldRecords::deliver`] returns it.
    Wait,
    /// This process does not hold it any more.
    Lost,
}

/// The result of [`HeldRecords::deliver`].
#[derive(Debug, Default)]
pub(crate) struct Delivered {
    /// Consecutive records to handle.
    pub(crate) new: Vec<RangeInclusive<i64>>,
    /// Records that are done already, to acknowledge now.
    pub(crate) done: Vec<(i64, AcknowledgeType)>,
}

impl HeldRecords {
    /// Holds delivered records. A record that this process already has in progress comes again after its renewal, or because its
    /// lock has expired. Its handler continues under the new lock.
    pub(crate) fn deliver(&mut self, offsets: RangeInclusive<i64>, now: Instant, delivered: &mut Delivered) {
        let locked = HeldRecord { locked_at: now, state: State::Locked };
        let mut from = *offsets.start();
        let known: Vec<i64> = self.records.range(offsets.clone()).map(|(offset, _)| *offset).collect();
        for offset in known {
            self.add(from..=offset - 1, locked, delivered);
            from = offset + 1;
            match self.records.insert(offset, locked).map(|record| record.state) {
                Some(State::Renewing { done: Some(outcome) }) => {
                    self.records.remove(&offset);
                    self.waiting -= 1;
                    delivered.done.push((offset, outcome));
                }
                Some(State::Locked | State::Renewing { done: None } | State::Lost) | None => {}
            }
        }
        self.add(from..=*offsets.end(), locked, delivered);
    }

    fn add(&mut self, offsets: RangeInclusive<i64>, locked: HeldRecord, delivered: &mut Delivered) {
        if !offsets.is_empty() {
            self.records.extend(offsets.clone().map(|offset| (offset, locked)));
            delivered.new.push(offsets);
        }
    }

    /// Decides what happens to a record that is done, with this acknowledgement.
    pub(crate) fn done(&mut self, offset: i64, outcome: AcknowledgeType) -> OnDone {
        let Some(record) = self.records.get_mut(&offset) else { return OnDone::Lost };
        match &mut record.state {
            State::Renewing { done } => {
                self.waiting += usize::from(done.is_none());
                *done = Some(outcome);
                OnDone::Wait
            }
            State::Locked => {
                self.records.remove(&offset);
                OnDone::Acknowledge
            }
            State::Lost => {
                self.records.remove(&offset);
                OnDone::Lost
            }
        }
    }

    /// Begins to renew the locks that are older than `age`. Returns their records.
    pub(crate) fn renew(&mut self, now: Instant, age: Duration) -> Vec<i64> {
        let is_due = |record: &HeldRecord| record.state == State::Locked && record.locked_at + age <= now;
        let mut due = Vec::new();
        for (offset, record) in self.records.iter_mut().filter(|(_, record)| is_due(record)) {
            record.state = State::Renewing { done: None };
            due.push(*offset);
        }
        due
    }

    /// The time at which [`HeldRecords::renew`] has something to do.
    pub(crate) fn renew_at(&self, age: Duration) -> Option<Instant> {
        let locked = self.records.values().filter(|record| record.state == State::Locked);
        locked.map(|record| record.locked_at + age).min()
    }

    /// The broker has refused acknowledgements of these offsets. Returns the number of records that are lost by that and were done.
    pub(crate) fn refuse(&mut self, offsets: RangeInclusive<i64>) -> usize {
        let mut lost = Vec::new();
        for (offset, record) in self.records.range_mut(offsets) {
            match record.state {
                State::Renewing { done: None } => record.state = State::Lost,
                State::Renewing { done: Some(_) } => lost.push(*offset),
                State::Locked | State::Lost => {}
            }
        }
        for offset in &lost {
            self.records.remove(offset);
        }
        self.waiting -= lost.len();
        lost.len()
    }

    /// `true` if a record is done and waits for the result of its renewal.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting > 0
    }

    /// Removes all records. Returns those that can be acknowledged.
    pub(crate) fn take_locked(&mut self) -> Vec<i64> {
        self.waiting = 0;
        let records = std::mem::take(&mut self.records);
        let is_locked = |record: &HeldRecord| record.state == State::Locked;
        records.into_iter().filter(|(_, record)| is_locked(record)).map(|(offset, _)| offset).collect()
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

    #[test]
    fn a_renewed_record_is_not_handled_again_and_its_acknowledgement_follows_the_renewal() {
        let (mut held, now) = (HeldRecords::default(), Instant::now());
        assert_eq!(deliver(&mut held, 0..=2, now).new, [0..=2]);
        assert_eq!(held.done(0, AcknowledgeType::Accept), OnDone::Acknowledge);
        assert_eq!(held.renew_at(LOCK), Some(now + LOCK));
        assert!(held.renew(now, LOCK).is_empty(), "not due");
        assert_eq!(held.renew(now + LOCK, LOCK), [1, 2]);
        assert_eq!(held.done(1, AcknowledgeType::Accept), OnDone::Wait);
        assert!(held.has_waiting() && held.renew_at(LOCK).is_none());
        let again = deliver(&mut held, 1..=2, now + LOCK);
        assert_eq!((again.new, again.done), (vec![], vec![(1, AcknowledgeType::Accept)]));
        assert!(!held.has_waiting());
        assert_eq!(held.renew_at(LOCK), Some(now + LOCK + LOCK));
        assert_eq!(held.done(2, AcknowledgeType::Reject), OnDone::Acknowledge);
    }

    #[test]
    fn a_refused_renewal_loses_the_record_until_the_group_delivers_it_again() {
        let (mut held, now) = (HeldRecords::default(), Instant::now());
        deliver(&mut held, 0..=3, now);
        held.renew(now + LOCK, LOCK);
        assert_eq!(held.done(0, AcknowledgeType::Accept), OnDone::Wait);
        assert_eq!(held.refuse(0..=2), 1, "the record that was done");
        assert_eq!(held.done(0, AcknowledgeType::Accept), OnDone::Lost);
        assert_eq!(held.done(1, AcknowledgeType::Accept), OnDone::Lost);
        let again = deliver(&mut held, 0..=2, now + LOCK);
        assert_eq!(again.new, [0..=1], "the handler of record 2 still runs");
        assert_eq!(held.done(2, AcknowledgeType::Accept), OnDone::Acknowledge);
        assert_eq!(held.take_locked(), [0, 1]);
    }
}
