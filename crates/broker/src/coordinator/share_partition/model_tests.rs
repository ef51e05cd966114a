//! Random members, acknowledgements, failed writes and crashes against a model that has one entry for each record.
//!
//! The model also has the stored state. After each write it looks at the window that a broker would load from there: a crash must
//! lose no record without a completion, and deliver none again whose acknowledgement was confirmed.
//!
//! Half of the groups have a dead-letter queue. The model has the letters of each record: a record gets one only when its state is
//! stored, is never delivered after it, and has one at the end unless a member has accepted it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::acknowledge::{AckBatch, AckType};
use super::acquire::{AcquireMode, Acquirer};
use super::batches::BatchSpan;
use super::window::{RecordState, ShareLimits, SharePartition};
use crate::coordinator::dead_letters::DeadLetters;
use crate::coordinator::share_state::StateBatch;

const MEMBERS: [&str; 3] = ["a", "b", "c"];
const LOCK: Duration = Duration::from_secs(30);

/// The share coordinator: the stored state of each record.
#[derive(Clone, Debug, Default)]
struct Stored {
    start: i64,
    records: BTreeMap<i64, (i8, i16)>,
}

impl Stored {
    fn batches(&self) -> Vec<StateBatch> {
        let records = self.records.range(self.start..);
        records
            .map(|(offset, (state, delivery_count))| StateBatch {
                first: *offset,
                last: *offset,
                state: *state,
                delivery_count: *delivery_count,
            })
            .collect()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Record {
    deliveries: i16,
    /// The member with the lock, and its end.
    lock: Option<(usize, Instant)>,
    /// The share coordinator has stored that a member has accepted or rejected it, whatever the answer was.
    is_stored: bool,
    /// Its last delivery has ended without an acknowledgement that completes it.
    is_given_up: bool,
    /// The member has received the answer that its acknowledgement is stored.
    is_done: bool,
    /// A member has accepted it, or has reported that it does not exist, whatever the answer was.
    is_accepted: bool,
    /// The number of its dead letters.
    letters: u32,
}

impl Record {
    /// Returns `true` if there is a reason to deliver the record no more.
    const fn may_be_complete(&self) -> bool {
        self.is_done || self.is_stored || self.is_given_up
    }

    /// The end of a lock that leaves the record for another delivery, if there is one.
    fn end_lock(&mut self, delivery_count_max: i16) {
        self.lock = None;
        self.is_given_up |= self.deliveries >= delivery_count_max;
    }
}

struct World {
    rng: fastrand::Rng,
    now: Instant,
    limits: ShareLimits,
    partition: SharePartition,
    stored: Stored,
    log: Vec<BatchSpan>,
    records: BTreeMap<i64, Record>,
    /// Changes whose writes have not ended, with their records and the promised end of each.
    pending: Vec<(u64, Vec<(i64, AckType)>)>,
    /// Letters that are being written.
    taken: Vec<DeadLetters>,
    /// Letters that are written, and whose records are not archived yet.
    written: Vec<DeadLetters>,
}

/// Returns `true` if a record in this state is never delivered again.
fn is_over(state: Option<(RecordState, i16)>) -> bool {
    state.is_some_and(|(state, _)| state.is_terminal() || state == RecordState::Archiving)
}

impl World {
    #[allow(clippy::disallowed_methods, reason = "the start of a virtual time")]
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let limits = ShareLimits {
            lock_duration: LOCK,
            delivery_count_max: rng.i16(2..7),
            locks_max: rng.i64(20..100),
            renews: true,
            splits_batches: false,
            has_dead_letters: rng.bool(),
        };
        Self {
            rng,
            now: Instant::now(),
            limits,
            partition: SharePartition::new(0, &[]),
            stored: Stored::default(),
            log: Vec::new(),
            records: BTreeMap::new(),
            pending: Vec::new(),
            taken: Vec::new(),
            written: Vec::new(),
        }
    }

    fn append(&mut self) {
        let base = self.log.last().map_or(0, |span| span.last + 1);
        let last = base + self.rng.i64(0..12);
        let is_unseen = self.rng.u8(..8) == 0;
        self.log.push(BatchSpan { base, last, is_unseen, is_control: false, begin: 0, end: 0 });
        if !is_unseen {
            self.records.extend((base..=last).map(|offset| (offset, Record::default())));
        }
    }

    fn expire(&mut self) {
        self.partition.expire(self.now, &self.limits);
        let being_written: Vec<i64> = self.being_written();
        for (offset, record) in &mut self.records {
            if record.lock.is_some_and(|(_, until)| until <= self.now) && !being_written.contains(offset) {
                record.end_lock(self.limits.delivery_count_max);
            }
        }
    }

    fn being_written(&self) -> Vec<i64> {
        self.pending.iter().flat_map(|(_, records)| records.iter().map(|(offset, _)| *offset)).collect()
    }

    fn acquire(&mut self) -> usize {
        self.expire();
        let member = self.rng.usize(..MEMBERS.len());
        let mode = if self.rng.bool() { AcquireMode::BatchOptimized } else { AcquireMode::RecordLimit };
        let records_max = self.rng.i64(1..30);
        let batch_size = self.rng.i64(1..20);
        let acquirer = Acquirer { member: MEMBERS[member].into(), mode, records_max, batch_size };
        let offset = self.partition.next_fetch_offset();
        if !self.partition.can_acquire(&self.limits) {
            return 0;
        }
        let spans: Vec<BatchSpan> = self.log.iter().filter(|span| span.last >= offset).copied().collect();
        let wanted = self.partition.last_wanted(&acquirer, &self.limits);
        let enough = spans.iter().position(|span| span.last >= wanted).map_or(spans.len(), |at| at + 1);
        let acquired = self.partition.acquire(self.now, &acquirer, &self.limits, offset, &spans[..enough]);
        let mut count = 0;
        for batch in acquired {
            for offset in batch.first..=batch.last {
                let record = self.records.get_mut(&offset).expect("only records that consumers see");
                assert!(!record.is_done, "{offset} was acknowledged before");
                assert_eq!(record.letters, 0, "{offset} is a dead letter");
                assert_eq!(record.lock, None, "{offset} is locked");
                record.lock = Some((member, self.now + LOCK));
                record.deliveries += 1;
                assert!(
                    record.deliveries >= batch.delivery_count,
                    "a crash forgets deliveries, nothing adds any"
                );
                assert!(batch.delivery_count <= self.limits.delivery_count_max);
                count += 1;
            }
        }
        if mode == AcquireMode::RecordLimit {
            assert!(count <= records_max, "{count} of {records_max}");
        }
        count as usize
    }

    fn acknowledge(&mut self) {
        self.expire();
        let member = self.rng.usize(..MEMBERS.len());
        let being_written = self.being_written();
        let has_lock = |(offset, record): (&i64, &Record)| {
            let is_own = record.lock.is_some_and(|(of, _)| of == member) && !being_written.contains(offset);
            is_own.then_some(*offset)
        };
        let owned: Vec<i64> = self.records.iter().filter_map(has_lock).collect();
        let mut batches: Vec<AckBatch> = Vec::new();
        let mut acked = Vec::new();
        for offset in owned {
            if self.rng.bool() {
                continue;
            }
            let types = [AckType::Accept, AckType::Accept, AckType::Release, AckType::Reject, AckType::Renew];
            let ack = types[self.rng.usize(..types.len())];
            match batches.last_mut().filter(|batch| batch.last + 1 == offset) {
                Some(batch) => {
                    batch.last = offset;
                    batch.types.push(ack);
                }
                None => batches.push(AckBatch { first: offset, last: offset, types: vec![ack] }),
            }
            if ack == AckType::Renew {
                self.records.get_mut(&offset).expect("owned").lock = Some((member, self.now + LOCK));
            } else {
                acked.push((offset, ack));
            }
        }
        if self.rng.u8(..5) == 0 {
            // Another member may not acknowledge them.
            let other = MEMBERS[(member + 1) % MEMBERS.len()];
            let before = format!("{:?}", self.partition);
            let refused = self.partition.acknowledge(self.now, other, &batches, &self.limits);
            assert!(refused.is_err() || batches.is_empty());
            assert_eq!(before, format!("{:?}", self.partition));
        }
        let change = self.partition.acknowledge(self.now, MEMBERS[member], &batches, &self.limits);
        let change = change.expect("the member has the locks");
        assert_eq!(change.is_some(), !acked.is_empty());
        self.pending.extend(change.map(|id| (id, acked)));
    }

    fn release(&mut self) {
        let member = self.rng.usize(..MEMBERS.len());
        let being_written = self.being_written();
        let change = self.partition.release(MEMBERS[member], &self.limits);
        let is_own = |(offset, record): &(&i64, &Record)| {
            record.lock.is_some_and(|(of, _)| of == member) && !being_written.contains(*offset)
        };
        let released = self.records.iter().filter(is_own).map(|(offset, _)| (*offset, AckType::Release));
        let released: Vec<(i64, AckType)> = released.collect();
        assert_eq!(change.is_some(), !released.is_empty());
        self.pending.extend(change.map(|id| (id, released)));
    }

    /// One write: it is stored, fails, or fails although it is stored.
    fn write(&mut self) {
        let Some(write) = self.partition.next_write() else { return };
        let outcome = self.rng.u8(..8);
        if outcome != 0 {
            self.stored.start = self.stored.start.max(write.start_offset);
            for batch in &write.batches {
                for offset in batch.first..=batch.last {
                    let before = self.stored.records.insert(offset, (batch.state, batch.delivery_count));
                    let was_terminal = before.is_some_and(|(state, _)| matches!(state, 2..=4));
                    let is_same = before.is_some_and(|(state, _)| state == batch.state)
                        || before.is_some_and(|(state, _)| state == 3 && batch.state == 4);
                    let may_differ = self.records.get(&offset).is_none_or(|record| !record.is_done);
                    assert!(!was_terminal || is_same || may_differ, "{offset} has left its last state");
                }
            }
        }
        let is_confirmed = outcome > 1;
        let done = self.partition.complete_write(is_confirmed);
        let (ended, pending) =
            std::mem::take(&mut self.pending).into_iter().partition::<Vec<_>, _>(|(id, _)| done.contains(id));
        self.pending = pending;
        for (offset, ack) in ended.into_iter().flat_map(|(_, records)| records) {
            let Some(record) = self.records.get_mut(&offset) else { continue };
            let is_last = record.deliveries >= self.limits.delivery_count_max;
            if outcome != 0 {
                record.is_stored |= ack != AckType::Release;
                record.is_accepted |= ack == AckType::Accept;
                record.is_given_up |= is_last;
            }
            if is_confirmed {
                record.end_lock(self.limits.delivery_count_max);
                record.is_done |= ack != AckType::Release;
            }
        }
        if !is_confirmed && self.partition.has_failed_archiving() {
            self.partition.retry_archiving();
        }
        self.check_reloaded();
    }

    /// Takes letters, writes some, and archives the records of some.
    fn write_letters(&mut self) {
        self.taken.extend(self.partition.take_dead_letters(self.limits.delivery_count_max));
        assert!(self.limits.has_dead_letters || self.taken.is_empty());
        while self.rng.u8(..3) != 0
            && let Some(letters) = self.taken.pop()
        {
            for offset in letters.first..=letters.last {
                let stored = self.stored.records.get(&offset).map(|(state, _)| *state);
                assert_eq!(stored, Some(3), "{offset} can be delivered again after a crash");
                self.records.get_mut(&offset).expect("a record").letters += 1;
            }
            self.written.push(letters);
        }
        while self.rng.bool()
            && let Some(letters) = self.written.pop()
        {
            self.partition.finish_dead_letters(letters.first, letters.last);
        }
    }

    /// Checks the window that another broker would load now.
    fn check_reloaded(&self) {
        let reloaded = SharePartition::new(self.stored.start, &self.stored.batches());
        reloaded.check();
        for (offset, record) in &self.records {
            let state = reloaded.state_of(*offset);
            let is_passed = *offset < reloaded.start_offset();
            let is_complete = is_passed || is_over(state);
            if record.is_done || record.letters > 0 {
                assert!(is_complete, "{offset} is delivered again after a crash: {state:?}");
            }
            if is_complete {
                assert!(record.may_be_complete(), "a crash loses {offset}, which no member has completed");
            }
        }
    }

    /// The broker is killed: only what is stored remains.
    fn crash(&mut self) {
        self.partition = SharePartition::new(self.stored.start, &self.stored.batches());
        self.pending.clear();
        self.taken.clear();
        self.written.clear();
        for record in self.records.values_mut() {
            record.lock = None;
        }
    }

    fn check(&self) {
        self.partition.check();
        let end = self.log.last().map_or(0, |span| span.last + 1);
        let next = self.partition.next_fetch_offset();
        for (offset, record) in self.records.range(..end) {
            let state = self.partition.state_of(*offset);
            let is_passed = *offset < self.partition.start_offset();
            if record.is_done {
                assert!(is_passed || is_over(state), "{offset} was acknowledged: {state:?}");
            } else if record.lock.is_some() {
                assert_eq!(state.map(|(state, _)| state), Some(RecordState::Acquired), "{offset}");
            } else if is_passed || is_over(state) {
                // It was delivered as often as allowed, or the answer to its acknowledgement was lost.
                assert!(record.may_be_complete(), "{offset} is lost");
            } else if state.is_none() {
                assert!(next <= *offset, "{offset} is skipped: the next fetch begins at {next}");
            }
        }
    }

    fn step(&mut self) {
        match self.rng.u8(..20) {
            0..3 => self.append(),
            3..8 => drop(self.acquire()),
            8..13 => self.acknowledge(),
            13 => self.release(),
            14..17 => self.write(),
            17 => self.write_letters(),
            18 => self.now += Duration::from_secs(self.rng.u64(1..40)),
            _ if self.rng.u8(..6) == 0 => self.crash(),
            _ => {}
        }
        self.expire();
        self.check();
    }

    /// Every record ends: it is acknowledged, or was delivered as often as allowed.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            while self.partition.has_changes() {
                self.write();
            }
            self.write_letters();
            self.now += LOCK;
            self.expire();
            self.check();
            let acquired = self.acquire();
            let end = self.log.last().map_or(0, |span| span.last + 1);
            let is_over = self.partition.next_fetch_offset() >= end && self.partition.start_offset() >= end;
            if acquired == 0 && !self.partition.has_changes() && is_over {
                break;
            }
            for member in MEMBERS {
                let own = self
                    .records
                    .iter()
                    .filter(|(_, record)| record.lock.is_some_and(|(of, _)| MEMBERS[of] == member));
                let own: Vec<i64> = own.map(|(offset, _)| *offset).collect();
                let batches: Vec<AckBatch> = own
                    .iter()
                    .map(|offset| AckBatch { first: *offset, last: *offset, types: vec![AckType::Accept] })
                    .collect();
                let change = self.partition.acknowledge(self.now, member, &batches, &self.limits);
                let acked = own.into_iter().map(|offset| (offset, AckType::Accept)).collect();
                self.pending.extend(change.expect("the member has the locks").map(|id| (id, acked)));
            }
        }
        let end = self.log.last().map_or(0, |span| span.last + 1);
        assert_eq!(self.partition.start_offset(), end, "everything is done: {:?}", self.partition);
        for (offset, record) in self.records.iter().filter(|_| self.limits.has_dead_letters) {
            assert!(record.is_accepted || record.letters > 0, "{offset} has no letter");
        }
    }
}

#[test]
fn each_record_is_acknowledged_once_or_delivered_as_often_as_allowed() {
    for seed in 0..150 {
        let mut world = World::new(seed);
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..400 {
                world.step();
            }
            world.finish();
        }));
        if let Err(panic) = run {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
