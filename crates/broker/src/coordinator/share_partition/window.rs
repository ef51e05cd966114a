//! The in-flight window of a share partition: from the first record that is not done with to the last that was acquired.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::archiving::{Archiving, ArchivingStep};
use super::counts::ShareCounts;
use crate::coordinator::dead_letters::DeadLetterCause;
use crate::coordinator::share_state::StateBatch;

/// The states of records in `__share_group_state`, with Kafka's numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(i8)]
pub(crate) enum RecordState {
    /// A member may acquire it.
    Available = 0,
    /// A member has a lock on it. This state is not stored.
    Acquired = 1,
    /// A member has processed it.
    Acknowledged = 2,
    /// It is not delivered again, and is on its way to the dead-letter queue (KIP-1191).
    Archiving = 3,
    /// It is not delivered again: it was rejected, delivered too often, or does not exist any more.
    Archived = 4,
}

impl RecordState {
    /// Returns `true` if the record never leaves this state.
    pub(crate) const fn is_terminal(self) -> bool {
        matches!(self, Self::Acknowledged | Self::Archived)
    }
}

/// The limits of a share group that its partitions obey. They may change between two calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShareLimits {
    /// `share.record.lock.duration.ms`.
    pub(crate) lock_duration: Duration,
    /// `share.delivery.count.limit`.
    pub(crate) delivery_count_max: i16,
    /// `share.partition.max.record.locks`.
    pub(crate) locks_max: i64,
    /// `share.renew.acknowledge.enable`.
    pub(crate) renews: bool,
    /// Members get a part of a batch where a limit is within it.
    pub(crate) splits_batches: bool,
    /// Records that are archived undelivered go to a dead-letter queue first (KIP-1191).
    pub(crate) has_dead_letters: bool,
}

/// The number of a change that is being written.
pub(crate) type ChangeId = u64;

/// A lock of a member on records.
#[derive(Clone, Debug)]
pub(super) struct Lock {
    pub(super) member: Arc<str>,
    /// The end of the lock.
    pub(super) until: Instant,
    /// The change that is being written, and the state after it.
    pub(super) pending: Option<(ChangeId, NextState)>,
}

/// The state of a locked record after a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum NextState {
    Available,
    Acknowledged,
    Archiving(DeadLetterCause),
    Archived,
}

impl NextState {
    pub(super) const fn record_state(self) -> RecordState {
        match self {
            Self::Available => RecordState::Available,
            Self::Acknowledged => RecordState::Acknowledged,
            Self::Archiving(_) => RecordState::Archiving,
            Self::Archived => RecordState::Archived,
        }
    }

    /// The state once it is stored.
    const fn run_state(self) -> RunState {
        match self {
            Self::Available => RunState::Available,
            Self::Acknowledged => RunState::Acknowledged,
            Self::Archiving(cause) => RunState::Archiving(Archiving::stored(Some(cause))),
            Self::Archived => RunState::Archived,
        }
    }
}

/// The state of adjacent records.
#[derive(Clone, Debug)]
pub(super) enum RunState {
    Available,
    Acquired(Lock),
    Acknowledged,
    Archiving(Archiving),
    Archived,
}

impl RunState {
    pub(super) const fn record_state(&self) -> RecordState {
        match self {
            Self::Available => RecordState::Available,
            Self::Acquired(_) => RecordState::Acquired,
            Self::Acknowledged => RecordState::Acknowledged,
            Self::Archiving(_) => RecordState::Archiving,
            Self::Archived => RecordState::Archived,
        }
    }

    pub(super) const fn is_terminal(&self) -> bool {
        self.record_state().is_terminal()
    }
}

/// Adjacent records with the same state and delivery count.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) last: i64,
    pub(super) state: RunState,
    pub(super) delivery_count: i16,
    /// The records that were acquired together with these the first time: Kafka's in-flight batch.
    pub(super) batch_records: i64,
}

impl Run {
    /// Returns `true` if nothing but their offsets distinguishes the records. Each lock is a run of its own, and so is each
    /// change of records that are being archived.
    fn is_like(&self, other: &Self) -> bool {
        match (&self.state, &other.state) {
            (RunState::Acquired(_) | RunState::Archiving(_), _)
            | (_, RunState::Acquired(_) | RunState::Archiving(_)) => false,
            (RunState::Available, RunState::Available) => {
                self.delivery_count == other.delivery_count && self.batch_records == other.batch_records
            }
            (one, other) => one.record_state() == other.record_state(),
        }
    }
}

/// A change that waits for its write.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) id: ChangeId,
    pub(super) batches: Vec<StateBatch>,
}

/// The changes of one write to `__share_group_state`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct WindowWrite {
    /// The first record that is not done with after the write.
    pub(crate) start_offset: i64,
    /// Records above the start that are done with after the write.
    pub(crate) delivery_complete_count: i32,
    pub(crate) batches: Vec<StateBatch>,
}

/// Records in flight in each share partition while the memory of all windows is used up. Windows with more get smaller: their records
/// are delivered again, and acknowledged.
pub(super) const LOCKS_WITHOUT_MEMORY_MAX: i64 = 8;
/// The runs that acknowledgements may make of them.
pub(super) const RUNS_WITHOUT_MEMORY_MAX: usize = 4;

/// Changes of one write, at most. A change with more batches has a write of its own.
const WRITE_BATCHES_MAX: usize = 1000;

/// One topic partition as one share group reads it.
#[derive(Debug)]
pub(crate) struct SharePartition {
    /// The first record that is not done with: the share-partition start offset.
    pub(super) start: i64,
    /// The first record that was never acquired.
    pub(super) next: i64,
    /// The window by first offset. Offsets without a run have no record, because compaction has removed it.
    pub(super) runs: BTreeMap<i64, Run>,
    next_change: ChangeId,
    queue: VecDeque<Change>,
    writing: Vec<ChangeId>,
    /// No lock ends before.
    pub(super) earliest_end: Option<Instant>,
    pub(super) counts: ShareCounts,
    /// Records may wait for their dead letters.
    pub(super) may_have_dead_letters: bool,
}

impl SharePartition {
    /// A share partition that begins at `start`, with the batches that were stored. Records between stored batches were never
    /// acknowledged.
    pub(crate) fn new(start: i64, stored: &[StateBatch]) -> Self {
        let mut runs = BTreeMap::new();
        let mut next = start;
        let mut sorted: Vec<&StateBatch> = stored.iter().filter(|batch| batch.last >= start).collect();
        sorted.sort_by_key(|batch| batch.first);
        for batch in sorted {
            let first = batch.first.max(next);
            if first > batch.last {
                continue;
            }
            if first > next {
                runs.insert(next, available(next, first - 1, 0));
            }
            let state = match batch.state {
                2 => RunState::Acknowledged,
                // The cause is not stored.
                3 => RunState::Archiving(Archiving::stored(None)),
                4 => RunState::Archived,
                _ => RunState::Available,
            };
            let run = Run {
                last: batch.last,
                state,
                delivery_count: batch.delivery_count,
                batch_records: batch.last - first + 1,
            };
            runs.insert(first, run);
            next = batch.last + 1;
        }
        let may_have_dead_letters = runs.values().any(|run| matches!(run.state, RunState::Archiving(_)));
        let mut partition = Self {
            start,
            next,
            runs,
            next_change: 0,
            queue: VecDeque::new(),
            writing: Vec::new(),
            earliest_end: None,
            counts: ShareCounts::default(),
            may_have_dead_letters,
        };
        partition.advance_start();
        partition
    }

    /// The first record that is not done with.
    #[cfg(test)]
    pub(crate) fn start_offset(&self) -> i64 {
        self.start
    }

    /// The offset from which a fetch reads: the first record that a member may acquire.
    pub(crate) fn next_fetch_offset(&self) -> i64 {
        let mut runs = self.runs.iter();
        runs.find(|(_, run)| matches!(run.state, RunState::Available)).map_or(self.next, |(first, _)| *first)
    }

    /// Returns `true` if a member may acquire records: some were released, or the window has room.
    pub(crate) fn can_acquire(&self, limits: &ShareLimits) -> bool {
        self.next_fetch_offset() != self.next || self.in_flight() < limits.locks_max
    }

    /// The offsets of the window.
    pub(crate) fn in_flight(&self) -> i64 {
        if self.runs.is_empty() { 0 } else { self.next - self.start }
    }

    /// The memory of the window. The nodes of a map are at least half full.
    pub(super) fn memory_bytes(&self) -> usize {
        self.runs.len() * 2 * size_of::<(i64, Run)>()
    }

    /// Takes the numbers of records since the last call.
    pub(super) fn take_counts(&mut self) -> ShareCounts {
        std::mem::take(&mut self.counts)
    }

    /// The end of the first lock, or an earlier time.
    pub(crate) fn next_lock_end(&self) -> Option<Instant> {
        self.earliest_end
    }

    /// Returns `true` if no member has a lock, no record waits for its dead letter, and nothing is being written.
    pub(crate) fn is_idle(&self) -> bool {
        let is_idle = |run: &Run| !matches!(run.state, RunState::Acquired(_) | RunState::Archiving(_));
        self.queue.is_empty() && self.writing.is_empty() && self.runs.values().all(is_idle)
    }

    /// Takes the new start of the log: records below it are gone, locked or not.
    pub(crate) fn set_log_start(&mut self, log_start: i64) {
        if log_start <= self.start {
            return;
        }
        self.split_at(log_start);
        self.runs = self.runs.split_off(&log_start);
        self.start = log_start;
        self.next = self.next.max(log_start);
        self.advance_start();
    }

    /// Adds a change to the queue of writes.
    pub(super) fn enqueue(&mut self, batches: Vec<StateBatch>) -> ChangeId {
        let id = self.next_id();
        self.queue.push_back(Change { id, batches });
        id
    }

    /// The id of the next change that is enqueued.
    pub(super) const fn peek_id(&self) -> ChangeId {
        self.next_change
    }

    fn next_id(&mut self) -> ChangeId {
        let id = self.next_change;
        self.next_change += 1;
        id
    }

    /// Returns `true` if changes wait for a write.
    pub(crate) fn has_changes(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Takes the next changes that one write stores. [`SharePartition::complete_write`] ends it.
    ///
    /// # Panics
    /// If the write before has not ended.
    pub(crate) fn next_write(&mut self) -> Option<WindowWrite> {
        assert!(self.writing.is_empty(), "writes of a share partition are sequential");
        let mut batches: Vec<StateBatch> = Vec::new();
        while let Some(change) = self.queue.front() {
            // Two states of one record need two writes: their order is lost within one.
            let overlaps = |batch: &StateBatch| {
                batches.iter().any(|other| other.first <= batch.last && batch.first <= other.last)
            };
            let is_full = batches.len() + change.batches.len() > WRITE_BATCHES_MAX;
            if !self.writing.is_empty() && (is_full || change.batches.iter().any(overlaps)) {
                break;
            }
            let Some(change) = self.queue.pop_front() else { break };
            batches.extend(change.batches);
            self.writing.push(change.id);
        }
        if self.writing.is_empty() {
            return None;
        }
        let start_offset = self.start_after_writing();
        let complete = self.runs.range(start_offset..).filter(|(_, run)| self.is_terminal_after(run));
        let complete: i64 = complete.map(|(first, run)| run.last - first + 1).sum();
        batches.retain(|batch| batch.last >= start_offset);
        batches.sort_by_key(|batch| batch.first);
        let delivery_complete_count = i32::try_from(complete).unwrap_or(i32::MAX);
        Some(WindowWrite { start_offset, delivery_complete_count, batches })
    }

    /// Commits the changes of the write, or rolls them back. Returns their ids.
    ///
    /// Records that were rolled back keep the lock that they had; it may have ended meanwhile.
    pub(crate) fn complete_write(&mut self, is_stored: bool) -> Vec<ChangeId> {
        let done = std::mem::take(&mut self.writing);
        let mut earliest_end = self.earliest_end;
        for run in self.runs.values_mut() {
            let next = match &mut run.state {
                RunState::Acquired(lock) => {
                    let Some((_, next)) = lock.pending.filter(|(id, _)| done.contains(id)) else { continue };
                    if is_stored {
                        next.run_state()
                    } else {
                        lock.pending = None;
                        earliest_end = Some(earliest_end.map_or(lock.until, |end| end.min(lock.until)));
                        continue;
                    }
                }
                RunState::Archiving(archiving) => match archiving.after_write(&done, is_stored) {
                    Some(next) => next,
                    None => continue,
                },
                RunState::Available | RunState::Acknowledged | RunState::Archived => continue,
            };
            self.may_have_dead_letters |= matches!(next, RunState::Archiving(_));
            run.state = next;
        }
        self.earliest_end = earliest_end;
        if is_stored {
            self.merge();
            self.advance_start();
        }
        done
    }

    /// Returns whether a run is terminal once the current write is stored.
    fn is_terminal_after(&self, run: &Run) -> bool {
        match &run.state {
            RunState::Acquired(Lock { pending: Some((id, next)), .. }) => {
                next.record_state().is_terminal() && self.writing.contains(id)
            }
            RunState::Archiving(Archiving { step: ArchivingStep::Finishing(id), .. }) => {
                self.writing.contains(id)
            }
            state => state.is_terminal(),
        }
    }

    fn start_after_writing(&self) -> i64 {
        let open = self.runs.iter().find(|(_, run)| !self.is_terminal_after(run));
        open.map_or(self.next, |(first, _)| (*first).max(self.start))
    }

    /// Removes the records at the start that are done with.
    pub(super) fn advance_start(&mut self) {
        while let Some(entry) = self.runs.first_entry() {
            if !entry.get().state.is_terminal() {
                self.start = *entry.key();
                return;
            }
            entry.remove();
        }
        self.start = self.next;
    }

    /// Makes `at` the beginning of a run, if it is inside one.
    pub(super) fn split_at(&mut self, at: i64) {
        let Some((_, run)) = self.runs.range_mut(..at).next_back() else { return };
        if run.last >= at {
            let rest = run.clone();
            run.last = at - 1;
            self.runs.insert(at, rest);
        }
    }

    /// The runs that overlap these offsets, by first offset.
    pub(super) fn overlapping(&self, first: i64, last: i64) -> impl Iterator<Item = (i64, &Run)> {
        let before = self.runs.range(..first).next_back().filter(|(_, run)| run.last >= first);
        let within = if first <= last { Some(self.runs.range(first..=last)) } else { None };
        before.into_iter().chain(within.into_iter().flatten()).map(|(first, run)| (*first, run))
    }

    /// Joins adjacent runs of the same state, so that acknowledgements of single records do not leave a run each.
    pub(super) fn merge(&mut self) {
        let mut joined = Vec::new();
        let mut before: Option<(i64, &Run)> = None;
        let mut end = 0;
        for (&first, run) in &self.runs {
            match before {
                Some((into, other)) if end + 1 == first && other.is_like(run) => joined.push((into, first)),
                _ => before = Some((first, run)),
            }
            end = run.last;
        }
        for (into, first) in joined {
            if let Some(run) = self.runs.remove(&first)
                && let Some(before) = self.runs.get_mut(&into)
            {
                before.last = run.last;
            }
        }
    }

    /// Checks what must always be true.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut end = self.start;
        for (first, run) in &self.runs {
            assert!(*first >= end, "runs do not overlap: {self:?}");
            assert!(run.last >= *first, "a run has records");
            end = run.last + 1;
        }
        assert!(end <= self.next, "the window ends before the next record: {self:?}");
        let first = self.runs.first_key_value();
        assert_eq!(self.start, first.map_or(self.next, |(first, _)| *first), "{self:?}");
    }

    /// The state and delivery count of a record; `None` outside of the window.
    #[cfg(test)]
    pub(crate) fn state_of(&self, offset: i64) -> Option<(RecordState, i16)> {
        let (_, run) = self.overlapping(offset, offset).next()?;
        Some((run.state.record_state(), run.delivery_count))
    }
}

/// Records that a member may acquire.
pub(super) fn available(first: i64, last: i64, delivery_count: i16) -> Run {
    Run { last, state: RunState::Available, delivery_count, batch_records: last - first + 1 }
}
