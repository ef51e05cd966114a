//! Acquiring: which of the records that were read a member gets a lock on.

use std::sync::Arc;

use tokio::time::Instant;

use super::batches::BatchSpan;
use super::window::{Lock, RecordState, Run, RunState, ShareLimits, SharePartition};
use crate::coordinator::share_state::StateBatch;

/// The meaning of the maximum number of records (KIP-1206).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AcquireMode {
    /// A member gets whole batches of the log, even if they have a few records more.
    BatchOptimized,
    /// A member gets no record more.
    RecordLimit,
}

/// A member that acquires records.
#[derive(Clone, Debug)]
pub(crate) struct Acquirer {
    pub(crate) member: Arc<str>,
    pub(crate) mode: AcquireMode,
    /// The most records that it wants.
    pub(crate) records_max: i64,
    /// The least records of an acquired batch, if the fetch has more.
    pub(crate) batch_size: i64,
}

/// Records that a member has acquired.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Acquired {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) delivery_count: i16,
}

/// An acquisition in progress.
struct Round<'a> {
    now: Instant,
    acquirer: &'a Acquirer,
    mode: AcquireMode,
    limits: &'a ShareLimits,
    spans: &'a [BatchSpan],
    /// The last offset that may be acquired.
    last: i64,
    /// Records that may still be acquired.
    left: i64,
    acquired: Vec<Acquired>,
}

impl Round<'_> {
    /// The last offset to acquire of the records from `first` to `last`.
    fn limit(&self, first: i64, last: i64) -> i64 {
        let last = last.min(self.last);
        if last - first < self.left {
            return last;
        }
        let exact = first + self.left - 1;
        match self.mode {
            AcquireMode::RecordLimit => exact,
            AcquireMode::BatchOptimized => {
                let span = self.spans.iter().find(|span| span.last >= exact);
                span.map_or(exact, |span| span.last).min(last)
            }
        }
    }

    fn lock(&self) -> RunState {
        let until = self.now + self.limits.lock_duration;
        RunState::Acquired(Lock { member: self.acquirer.member.clone(), until, pending: None })
    }

    fn add(&mut self, first: i64, last: i64, delivery_count: i16) {
        self.left -= last - first + 1;
        self.acquired.push(Acquired { first, last, delivery_count });
    }
}

impl SharePartition {
    /// The offset beyond which [`SharePartition::acquire`] needs no batches.
    pub(crate) fn last_wanted(&self, acquirer: &Acquirer, limits: &ShareLimits) -> i64 {
        let mut left = acquirer.records_max.min(limits.locks_max);
        for (first, run) in &self.runs {
            if matches!(run.state, RunState::Available) {
                left -= run.last - first + 1;
                if left <= 0 {
                    return run.last;
                }
            }
        }
        self.next.saturating_add(left)
    }

    /// Acquires records for a member. `spans` are the batches of a read at `fetch_offset`, in order.
    ///
    /// Available records that the read should have had, but has not, were removed by compaction and are archived. So are
    /// records of aborted transactions, which no consumer sees, and control records that no consumer has acknowledged the first time.
    pub(crate) fn acquire(
        &mut self,
        now: Instant,
        acquirer: &Acquirer,
        limits: &ShareLimits,
        fetch_offset: i64,
        spans: &[BatchSpan],
    ) -> Vec<Acquired> {
        let (Some(first_span), Some(last_span)) = (spans.first(), spans.last()) else { return Vec::new() };
        let start = self.start;
        let mut archived = self.archive_removed(fetch_offset, first_span.base);
        for span in spans.iter().filter(|span| span.is_unseen || span.is_control) {
            archived.extend(self.archive(span.base, span.last));
        }
        let (left, last) = (acquirer.records_max, last_span.last);
        let mode = if limits.splits_batches { AcquireMode::RecordLimit } else { acquirer.mode };
        let mut round = Round { now, acquirer, mode, limits, spans, last, left, acquired: Vec::new() };
        if self.acquire_again(&mut round, first_span.base.max(self.start)) {
            archived.extend(self.acquire_new(&mut round, first_span.base));
        }
        if !round.acquired.is_empty() {
            let until = now + limits.lock_duration;
            self.earliest_end = Some(self.earliest_end.map_or(until, |end| end.min(until)));
        }
        if !archived.is_empty() {
            self.enqueue(archived);
            self.merge();
            self.advance_start();
        } else if self.runs.is_empty() && self.start != start && !self.has_changes() {
            // No later change may come, and the group's lag is computed from the stored start.
            self.enqueue(Vec::new());
        }
        round.acquired
    }

    /// Acquires available records of the window. Returns `false` if nothing else may be delivered with them.
    fn acquire_again(&mut self, round: &mut Round<'_>, from: i64) -> bool {
        let is_available = |run: &Run| matches!(run.state, RunState::Available);
        let found = self.overlapping(from, round.last).filter(|(_, run)| is_available(run));
        let found: Vec<(i64, i64, i16, i64)> =
            found.map(|(first, run)| (first, run.last, run.delivery_count, run.batch_records)).collect();
        let max = round.limits.delivery_count_max;
        let throttled_from = ((max + 1) / 2).max(2);
        for (first, last, count, batch_records) in found {
            if round.left <= 0 {
                return false;
            }
            let first = first.max(from);
            let mut last = round.limit(first, last);
            let is_throttled = count >= throttled_from;
            if is_throttled {
                // A record that always fails must not use up the deliveries of its neighbours: fewer records are
                // delivered together each time, and in the end each one alone.
                if !round.acquired.is_empty() {
                    return false;
                }
                let shift = u32::from((count - throttled_from + 1).unsigned_abs());
                let is_last_delivery = max > 2 && count >= max - 1;
                let together =
                    if is_last_delivery { 1 } else { batch_records.checked_shr(shift).unwrap_or(0).max(1) };
                last = last.min(first + together - 1);
            }
            self.split_at(first);
            self.split_at(last + 1);
            // A client may have written any count with WriteShareGroupState.
            let count = count.saturating_add(1);
            if let Some(run) = self.runs.get_mut(&first) {
                run.state = round.lock();
                run.delivery_count = count;
            }
            round.add(first, last, count);
            if is_throttled {
                return false;
            }
        }
        true
    }

    /// Acquires records behind the window, if it has room. Returns the records that it has archived.
    fn acquire_new(&mut self, round: &mut Round<'_>, first_base: i64) -> Vec<StateBatch> {
        let from = first_base.max(self.next);
        let spans = round.spans;
        round.left = round.left.min(round.limits.locks_max - self.in_flight());
        let mut archived = Vec::new();
        let mut group: Option<(i64, i64)> = None;
        for span in spans.iter().filter(|span| span.last >= from) {
            if round.left <= group.map_or(0, |(first, last)| last - first + 1) {
                break;
            }
            let first = span.base.max(from);
            if span.is_unseen {
                self.add_group(round, group.take());
                archived.extend(self.pass_unseen(first, span.last));
                continue;
            }
            let (mode, batch_size) = (round.mode, round.acquirer.batch_size.max(1));
            let is_apart = |(begin, end): (i64, i64)| {
                end + 1 != first || mode == AcquireMode::BatchOptimized && first - begin >= batch_size
            };
            if group.is_some_and(is_apart) {
                self.add_group(round, group.take());
            }
            let (begin, _) = *group.get_or_insert((first, span.last));
            let last = match mode {
                AcquireMode::BatchOptimized => span.last,
                AcquireMode::RecordLimit => span.last.min(begin + round.left - 1),
            };
            group = Some((begin, last));
        }
        self.add_group(round, group);
        archived
    }

    /// Acquires a group of new records.
    fn add_group(&mut self, round: &mut Round<'_>, group: Option<(i64, i64)>) {
        let Some((first, last)) = group else { return };
        let run = Run { last, state: round.lock(), delivery_count: 1, batch_records: last - first + 1 };
        if self.runs.is_empty() {
            self.start = first;
        }
        self.runs.insert(first, run);
        self.next = last + 1;
        round.add(first, last, 1);
    }

    /// Archives new records that no consumer sees. At the start of the window they are passed only.
    fn pass_unseen(&mut self, first: i64, last: i64) -> Option<StateBatch> {
        self.next = last + 1;
        if self.runs.is_empty() {
            self.start = self.next;
            return None;
        }
        let run = Run { last, state: RunState::Archived, delivery_count: 0, batch_records: last - first + 1 };
        self.runs.insert(first, run);
        Some(StateBatch { first, last, state: RecordState::Archived as i8, delivery_count: 0 })
    }

    /// Archives the available records between the offset of a read and the first batch that it found.
    fn archive_removed(&mut self, fetch_offset: i64, first_base: i64) -> Vec<StateBatch> {
        if fetch_offset >= first_base { Vec::new() } else { self.archive(fetch_offset, first_base - 1) }
    }

    /// Archives the available records of a range.
    fn archive(&mut self, first: i64, last: i64) -> Vec<StateBatch> {
        self.split_at(first);
        self.split_at(last + 1);
        let mut archived = Vec::new();
        for (first, run) in self.runs.range_mut(first..=last) {
            if matches!(run.state, RunState::Available) {
                run.state = RunState::Archived;
                archived.push(StateBatch {
                    first: *first,
                    last: run.last,
                    state: RecordState::Archived as i8,
                    delivery_count: run.delivery_count,
                });
            }
        }
        archived
    }

    /// Returns records that were acquired but not sent: as if they had not been delivered. Those that the member has acquired again stay.
    pub(crate) fn return_unsent(&mut self, member: &str, unsent: &[Acquired]) {
        for Acquired { first, last, delivery_count } in unsent {
            for (_, run) in self.runs.range_mut(first..=last) {
                let is_own = |lock: &Lock| lock.pending.is_none() && &*lock.member == member;
                let is_same = run.delivery_count == *delivery_count;
                if is_same && matches!(&run.state, RunState::Acquired(lock) if is_own(lock)) {
                    run.state = RunState::Available;
                    run.delivery_count -= 1;
                }
            }
        }
    }
}
