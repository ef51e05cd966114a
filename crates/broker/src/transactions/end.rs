//! The ends of transactions: EndTxn in both protocols, fencing, timeouts, and the removal of idle ids.

use ottla_log::deliberate::{DeliberateFault, has_deliberate_fault};
use std::ops::Bound;
use std::sync::Arc;

use ottla_protocol::ErrorCode;

use super::metadata::{EPOCH_MAX, NO_PRODUCER_ID, ProducerIdentity, TransactionMetadata, TransactionVersion};
use super::records;
use super::state::TransactionState;
use super::table::{Decision, NewRecord, Pending, Transactions};

impl Transactions {
    /// EndTxn.
    ///
    /// The client gets its answer when the decision is stored. The markers follow.
    pub(crate) fn end(
        &mut self,
        now_ms: i64,
        id: &str,
        producer: ProducerIdentity,
        committed: bool,
        version: TransactionVersion,
        fresh: Option<i64>,
    ) -> Result<Decision, ErrorCode> {
        if id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        let entry = self.by_id.get(id).ok_or(ErrorCode::InvalidProducerIdMapping)?;
        // First what is under way: a producer may already have the id and the epoch that it ends with (KAFKA-18660).
        if entry.pending.is_some() {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        let current = &entry.current;
        let step = if version.bumps_epoch() {
            end_with_bump(current, producer, committed)?
        } else {
            end_without_bump(current, producer, committed)?
        };
        match step {
            End::Repeated => Ok(Decision::Answer(current.identity())),
            End::Prepare => {
                // After a restore, the next epoch may be that of a client which is still there.
                let rotates = current.is_epoch_exhausted() || current.producer_id < self.renewed_below;
                self.prepare(now_ms, id, committed, version, fresh, rotates)
            }
        }
    }

    /// Begins the abort of an ongoing transaction whose producer is replaced, or too slow. The epoch is bumped once: by the
    /// abort (KAFKA-19367).
    pub(super) fn fence(&mut self, now_ms: i64, id: &str, fresh: Option<i64>) -> Result<Decision, ErrorCode> {
        // Also where the producer is fenced: its transaction would never end otherwise (KAFKA-20090).
        let rotates = self.by_id.get(id).is_some_and(|entry| entry.current.is_epoch_exhausted());
        self.prepare(now_ms, id, false, TransactionVersion::SERVER, fresh, rotates)
    }

    /// The ids whose transactions are older than their timeout.
    pub(crate) fn timed_out(&self, now_ms: i64) -> Vec<Arc<str>> {
        let steady_ms = self.steady_ms(now_ms);
        let expired = self.deadlines.iter().take_while(|(deadline_ms, _)| *deadline_ms < steady_ms);
        expired.map(|(_, id)| id.clone()).collect()
    }

    /// Begins the abort of a transaction if it is older than its timeout.
    ///
    /// # Errors
    /// It has ended meanwhile, or is ending.
    pub(crate) fn time_out(
        &mut self,
        now_ms: i64,
        id: &str,
        fresh: Option<i64>,
    ) -> Result<Decision, ErrorCode> {
        let entry = self.by_id.get(id).ok_or(ErrorCode::InvalidTxnState)?;
        let is_late = entry.deadline_ms.is_some_and(|deadline_ms| deadline_ms < self.steady_ms(now_ms));
        if !is_late {
            return Err(ErrorCode::InvalidTxnState);
        }
        if entry.pending.is_some() {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        self.fence(now_ms, id, fresh)
    }

    /// Begins the removal of up to `max` ids after `after` that were idle for `transactional.id.expiration.ms`. Returns
    /// the tombstones, and the last id that was looked at unless it was the last one of all.
    pub(crate) fn remove_idle(
        &mut self,
        now_ms: i64,
        after: Option<&str>,
        max: usize,
    ) -> (Vec<NewRecord>, Option<Arc<str>>) {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let idle_since = now_ms.saturating_sub(self.limits.id_expiration_ms);
        let (mut records, mut last, mut seen) = (Vec::new(), None, 0);
        for (id, entry) in self.by_id.range_mut::<str, _>((start, Bound::Unbounded)).take(max) {
            seen += 1;
            last = Some(id.clone());
            let is_idle = match entry.current.state {
                TransactionState::Empty
                | TransactionState::CompleteCommit
                | TransactionState::CompleteAbort => entry.current.updated_ms <= idle_since,
                TransactionState::Ongoing
                | TransactionState::PrepareCommit
                | TransactionState::PrepareAbort => false,
            };
            if let (true, None, Ok(key)) = (is_idle, &entry.pending, records::key(id)) {
                entry.pending = Some(Pending::Removal);
                records.push(NewRecord { id: id.clone(), key, value: None });
            }
        }
        (records, last.filter(|_| seen == max))
    }

    fn prepare(
        &mut self,
        now_ms: i64,
        id: &str,
        committed: bool,
        version: TransactionVersion,
        fresh: Option<i64>,
        rotates: bool,
    ) -> Result<Decision, ErrorCode> {
        let current = &self.by_id.get(id).ok_or(ErrorCode::InvalidTxnState)?.current;
        let next_producer_id = match fresh {
            _ if !version.bumps_epoch() || !rotates => NO_PRODUCER_ID,
            Some(fresh) => fresh,
            None => return Ok(Decision::NeedsProducerId),
        };
        let next = current.prepared(committed, version, next_producer_id, now_ms);
        self.change(id, next)
    }
}

/// A legal EndTxn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// The transaction has ended so already: the answer was lost.
    Repeated,
    /// The decision is stored.
    Prepare,
}

/// EndTxn below version 5: the epoch stays, so a repetition looks like the first request.
fn end_without_bump(
    current: &TransactionMetadata,
    producer: ProducerIdentity,
    committed: bool,
) -> Result<End, ErrorCode> {
    if current.producer_id != producer.id {
        return Err(ErrorCode::InvalidProducerIdMapping);
    }
    if current.producer_epoch != producer.epoch {
        return Err(ErrorCode::ProducerFenced);
    }
    match (current.state, committed) {
        (TransactionState::Ongoing, _) => Ok(End::Prepare),
        (TransactionState::CompleteCommit, true) | (TransactionState::CompleteAbort, false) => {
            Ok(End::Repeated)
        }
        (TransactionState::PrepareCommit, true) | (TransactionState::PrepareAbort, false) => {
            Err(ErrorCode::ConcurrentTransactions)
        }
        (
            TransactionState::Empty
            | TransactionState::CompleteCommit
            | TransactionState::CompleteAbort
            | TransactionState::PrepareCommit
            | TransactionState::PrepareAbort,
            _,
        ) => Err(ErrorCode::InvalidTxnState),
    }
}

/// EndTxn from version 5 on (KIP-890): the epoch distinguishes a repetition from the next request.
fn end_with_bump(
    current: &TransactionMetadata,
    producer: ProducerIdentity,
    committed: bool,
) -> Result<End, ErrorCode> {
    let is_current =
        current.producer_epoch == producer.epoch || has_deliberate_fault(DeliberateFault::NoProducerEpochs);
    // The answer with the bumped epoch was lost, or the one with the next producer id. After an end without a bump there is
    // none to repeat: this is an older producer, which Kafka takes for the one that replaced it.
    let bumped_before = current.client_version.bumps_epoch();
    let was_bumped = bumped_before && producer.epoch.checked_add(1) == Some(current.producer_epoch);
    // Without a transaction since: an epoch that is not the last one can be 0, which is that of the next producer id, too.
    let is_last = matches!(current.state, TransactionState::CompleteCommit | TransactionState::CompleteAbort)
        && producer.epoch == current.last_producer_epoch;
    let was_rotated = bumped_before
        && current.previous_producer_id == producer.id
        && (producer.epoch == EPOCH_MAX || is_last)
        && current.producer_epoch == 0;
    let is_repeated = was_bumped || was_rotated;
    if current.producer_id != producer.id && !was_rotated {
        return Err(ErrorCode::InvalidProducerIdMapping);
    }
    let is_valid = match current.state {
        TransactionState::Ongoing | TransactionState::Empty => is_current,
        TransactionState::PrepareCommit | TransactionState::PrepareAbort => was_bumped,
        TransactionState::CompleteCommit | TransactionState::CompleteAbort => is_repeated || is_current,
    };
    if !is_valid {
        return Err(ErrorCode::ProducerFenced);
    }
    match (current.state, committed) {
        (TransactionState::Ongoing, _) | (TransactionState::Empty, false) => Ok(End::Prepare),
        (TransactionState::CompleteCommit, true) | (TransactionState::CompleteAbort, false)
            if is_repeated =>
        {
            Ok(End::Repeated)
        }
        (TransactionState::CompleteCommit | TransactionState::CompleteAbort, false) if !is_repeated => {
            Ok(End::Prepare)
        }
        (TransactionState::PrepareCommit, true) | (TransactionState::PrepareAbort, false) => {
            Err(ErrorCode::ConcurrentTransactions)
        }
        (
            TransactionState::Empty
            | TransactionState::CompleteCommit
            | TransactionState::CompleteAbort
            | TransactionState::PrepareCommit
            | TransactionState::PrepareAbort,
            _,
        ) => Err(ErrorCode::InvalidTxnState),
    }
}
