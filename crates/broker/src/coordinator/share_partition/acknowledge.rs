//! Acknowledgements, releases and ends of locks.

use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use super::archiving::{Archiving, ArchivingStep};
use super::window::{
    ChangeId, Lock, NextState, RUNS_WITHOUT_MEMORY_MAX, RecordState, Run, RunState, ShareLimits,
    SharePartition,
};
use crate::coordinator::dead_letters::DeadLetterCause;
use crate::coordinator::share_state::StateBatch;

/// The types of acknowledgements, with Kafka's numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AckType {
    /// There is no record at the offset.
    Gap,
    Accept,
    Release,
    Reject,
    /// The member needs the lock longer (KIP-1222).
    Renew,
}

impl AckType {
    /// The type of a number in a request.
    pub(crate) const fn of_number(number: i8) -> Option<Self> {
        match number {
            0 => Some(Self::Gap),
            1 => Some(Self::Accept),
            2 => Some(Self::Release),
            3 => Some(Self::Reject),
            4 => Some(Self::Renew),
            _ => None,
        }
    }

    /// Kafka's number of the type.
    pub(crate) const fn number(self) -> i8 {
        match self {
            Self::Gap => 0,
            Self::Accept => 1,
            Self::Release => 2,
            Self::Reject => 3,
            Self::Renew => 4,
        }
    }

    /// The state of the records afterwards; `None` if it does not change.
    const fn next_state(self, limits: &ShareLimits) -> Option<NextState> {
        match self {
            Self::Reject if limits.has_dead_letters => {
                Some(NextState::Archiving(DeadLetterCause::ClientReject))
            }
            Self::Gap | Self::Reject => Some(NextState::Archived),
            Self::Accept => Some(NextState::Acknowledged),
            Self::Release => Some(NextState::Available),
            Self::Renew => None,
        }
    }
}

/// Acknowledged records.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AckBatch {
    pub(crate) first: i64,
    pub(crate) last: i64,
    /// One type for all records, or one for each.
    pub(crate) types: Vec<AckType>,
}

impl AckBatch {
    /// The ranges of equal types.
    pub(super) fn ranges(&self) -> Vec<(i64, i64, AckType)> {
        if let [all] = self.types[..] {
            return vec![(self.first, self.last, all)];
        }
        let mut ranges: Vec<(i64, i64, AckType)> = Vec::new();
        for (offset, ack) in (self.first..=self.last).zip(&self.types) {
            match ranges.last_mut() {
                Some((_, last, same)) if same == ack => *last = offset,
                _ => ranges.push((offset, offset, *ack)),
            }
        }
        ranges
    }
}

impl SharePartition {
    /// Marks what a member acknowledges. Returns the change that must be written, if there is one; renewals are not stored.
    ///
    /// # Errors
    /// INVALID_RECORD_STATE if the member has no lock on one of the records, or has acknowledged it before, and for renewals if the
    /// group does not allow them. INVALID_REQUEST for records that were not acquired yet. Nothing changes then.
    pub(crate) fn acknowledge(
        &mut self,
        now: Instant,
        member: &str,
        batches: &[AckBatch],
        limits: &ShareLimits,
    ) -> Result<Option<ChangeId>, ErrorCode> {
        let mut ranges = Vec::new();
        for batch in batches {
            // Records below the start are done with: the log or another acknowledgement has passed them.
            if batch.last < self.start {
                continue;
            }
            if batch.last >= self.next {
                return Err(ErrorCode::InvalidRequest);
            }
            for (first, last, ack) in batch.ranges() {
                if ack == AckType::Renew && !limits.renews {
                    return Err(ErrorCode::InvalidRecordState);
                }
                let first = first.max(self.start);
                let is_owned = |run: &Run| match &run.state {
                    RunState::Acquired(lock) => &*lock.member == member && lock.pending.is_none(),
                    RunState::Available
                    | RunState::Acknowledged
                    | RunState::Archiving(_)
                    | RunState::Archived => false,
                };
                if self.overlapping(first, last).any(|(_, run)| !is_owned(run)) {
                    return Err(ErrorCode::InvalidRecordState);
                }
                ranges.push((first, last, ack));
            }
        }
        let mut marked = Vec::new();
        for (first, last, ack) in ranges {
            if first > last {
                continue;
            }
            self.split_at(first);
            self.split_at(last + 1);
            let records: i64 = self.runs.range(first..=last).map(|(first, run)| run.last - first + 1).sum();
            self.counts.acknowledge(ack, records.unsigned_abs());
            match ack.next_state(limits) {
                Some(next) => self.mark(first, last, next, limits, &mut marked),
                None => self.renew(first, last, now + limits.lock_duration),
            }
        }
        Ok((!marked.is_empty()).then(|| self.enqueue(marked)))
    }

    /// Returns `true` if acknowledgements would split the window into more runs than it may have while there is no memory.
    pub(super) fn is_split_too_far_by(&self, batches: &[AckBatch]) -> bool {
        let is_inside = |at: i64| self.runs.range(..at).next_back().is_some_and(|(_, run)| run.last >= at);
        let ranges = batches.iter().flat_map(AckBatch::ranges);
        let mut bounds: Vec<i64> = ranges.flat_map(|(first, last, _)| [first, last + 1]).collect();
        bounds.dedup();
        let splits = bounds.into_iter().filter(|at| is_inside(*at)).count();
        splits > 0 && self.runs.len() + splits > RUNS_WITHOUT_MEMORY_MAX
    }

    /// Marks all records that a member has acquired as released, as its session ends. This delivery counts, as in Kafka 4.2 and
    /// later (KAFKA-19972): otherwise a member that crashes would get the same records without an end. Kafka 4.1 did not count it.
    pub(crate) fn release(&mut self, member: &str, limits: &ShareLimits) -> Option<ChangeId> {
        let is_locked = |run: &Run| matches!(&run.state, RunState::Acquired(Lock { member: of, pending: None, .. }) if **of == *member);
        let locked: Vec<(i64, i64)> = self
            .runs
            .iter()
            .filter(|(_, run)| is_locked(run))
            .map(|(first, run)| (*first, run.last))
            .collect();
        let mut marked = Vec::new();
        for (first, last) in locked {
            self.mark(first, last, NextState::Available, limits, &mut marked);
        }
        (!marked.is_empty()).then(|| self.enqueue(marked))
    }

    /// Makes records available whose locks have ended. The change is written without that anyone waits for it. Returns `true`
    /// if there were some.
    pub(crate) fn expire(&mut self, now: Instant, limits: &ShareLimits) -> bool {
        if self.earliest_end.is_none_or(|end| end > now) {
            return false;
        }
        let (mut earliest_end, mut expired) = (None::<Instant>, Vec::new());
        let id = self.peek_id();
        for (first, run) in &mut self.runs {
            let RunState::Acquired(Lock { until, pending: None, .. }) = &run.state else { continue };
            if *until > now {
                earliest_end = Some(earliest_end.map_or(*until, |end| end.min(*until)));
                continue;
            }
            let next = state_after(NextState::Available, run.delivery_count, limits);
            let records = (run.last - first + 1).unsigned_abs();
            self.counts.lock_timeouts += records;
            run.state = match next {
                NextState::Available => RunState::Available,
                NextState::Acknowledged => RunState::Acknowledged,
                // A record gets its dead letter when this state is stored: a crash before delivers it again.
                NextState::Archiving(cause) => {
                    RunState::Archiving(Archiving { cause: Some(cause), step: ArchivingStep::Storing(id) })
                }
                NextState::Archived => RunState::Archived,
            };
            if next != NextState::Available {
                self.counts.out_of_deliveries += records;
            }
            push(&mut expired, state_batch(*first, run, next.record_state()));
        }
        self.earliest_end = earliest_end;
        let has_expired = !expired.is_empty();
        if has_expired {
            self.enqueue(expired);
            self.merge();
            self.advance_start();
        }
        has_expired
    }

    fn mark(
        &mut self,
        first: i64,
        last: i64,
        wanted: NextState,
        limits: &ShareLimits,
        marked: &mut Vec<StateBatch>,
    ) {
        let id = self.peek_id();
        for (first, run) in self.runs.range_mut(first..=last) {
            let next = state_after(wanted, run.delivery_count, limits);
            if next != wanted {
                self.counts.out_of_deliveries += (run.last - first + 1).unsigned_abs();
            }
            if let RunState::Acquired(lock) = &mut run.state {
                lock.pending = Some((id, next));
            }
            push(marked, state_batch(*first, run, next.record_state()));
        }
    }

    fn renew(&mut self, first: i64, last: i64, until: Instant) {
        for run in self.runs.range_mut(first..=last).map(|(_, run)| run) {
            if let RunState::Acquired(lock) = &mut run.state {
                lock.until = until;
            }
        }
    }
}

/// A record that was delivered as often as allowed is archived instead of becoming available.
fn state_after(next: NextState, delivery_count: i16, limits: &ShareLimits) -> NextState {
    match next {
        NextState::Available if delivery_count >= limits.delivery_count_max => {
            if limits.has_dead_letters {
                NextState::Archiving(DeadLetterCause::DeliveryCountExceeded)
            } else {
                NextState::Archived
            }
        }
        next => next,
    }
}

pub(super) fn state_batch(first: i64, run: &Run, state: RecordState) -> StateBatch {
    StateBatch { first, last: run.last, state: state as i8, delivery_count: run.delivery_count }
}

/// Adds a batch, joined with the one before if nothing else distinguishes them.
pub(super) fn push(batches: &mut Vec<StateBatch>, batch: StateBatch) {
    match batches.last_mut() {
        Some(before)
            if before.last + 1 == batch.first
                && before.state == batch.state
                && before.delivery_count == batch.delivery_count =>
        {
            before.last = batch.last;
        }
        _ => batches.push(batch),
    }
}
