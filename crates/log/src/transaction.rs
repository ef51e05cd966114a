//! Transactions in a log: the markers that end them, the last stable offset, and the guards of their first batch.
//!
//! ```text
//! data of producer 7   data of 9   data of 7   COMMIT of 7   data ...      high watermark
//! offset 10            12          15          16            17            20
//!                      `-- first offset of an open transaction: the last stable offset
//! ```
//!
//! A consumer with `isolation.level=read_committed` reads up to the last stable offset: the first offset of the first
//! transaction that is open, or that has ended with a marker above the high watermark. The producer state tracks open
//! transactions: see [`crate::producers`]. Aborted ones are in the transaction index: see [`crate::txn_index`].

use crate::deliberate::{DeliberateFault, has_deliberate_fault};
use std::io;

use ottla_wire::batch::BatchHeader;

use crate::append::Appended;
use crate::append_options::{AppendOptions, Check, Origin, Transactional};
use crate::error::{AppendError, LogError, ReadError};
use crate::log::Log;
use crate::marker::{Completed, EndMarker, marker_batch};
use crate::producers::Producer;
use crate::txn_index::{AbortedTransaction, Search};
use crate::verification::{FirstBatch, GuardsFull, VerificationGuard};

/// The transaction version whose markers have a new epoch (KIP-890).
const EPOCH_BUMP_VERSION: i16 = 2;

impl Log {
    /// Appends the marker that ends a producer's transaction.
    ///
    /// A marker without a transaction is appended as well: it carries the epoch of its producer, and a coordinator that
    /// did not receive the answer repeats it. Refused are an old producer epoch, an old coordinator epoch, and, from
    /// transaction version 2 on, a marker for an open transaction whose epoch is not above that of the data, unless that is the
    /// highest there is.
    pub fn append_marker(
        &mut self,
        marker: EndMarker,
        leader_epoch: i32,
        now_ms: i64,
    ) -> Result<Appended, AppendError> {
        self.check_marker(&marker)?;
        let options = AppendOptions {
            leader_epoch,
            origin: Origin::Coordinator,
            check: Check::Trusted,
            ..AppendOptions::default()
        };
        self.append(now_ms, marker_batch(&marker, now_ms), options)
    }

    /// Returns the offset below which every transaction has ended, given the high watermark.
    #[inline]
    pub fn last_stable_offset(&self, high_watermark: i64) -> i64 {
        let open = self.producers.first_open_offset();
        let is_stable = open.is_none() && self.completed.is_empty();
        if is_stable || has_deliberate_fault(DeliberateFault::UnstableReads) {
            return high_watermark;
        }
        self.stable_below(high_watermark, open)
    }

    #[cold]
    fn stable_below(&self, high_watermark: i64, open: Option<i64>) -> i64 {
        let undecided = self.completed.iter().filter(|completed| completed.last_offset >= high_watermark);
        let first = undecided.map(|completed| completed.first_offset).chain(open).min();
        // The first records of the transaction may have been deleted.
        first.map_or(high_watermark, |first| first.max(self.start_offset).min(high_watermark))
    }

    /// Returns the aborted transactions with records from `from` to below `to`, by their first offset.
    ///
    /// `to` is at most the last stable offset. A transaction that begins before `from` is included if it ends at or after
    /// it. Blocks for reads of the transaction indexes of the segments, if they have any entries. The list can be long: see
    /// [`Log::aborted_in`] for one that has a limit.
    pub fn aborted_transactions(&self, from: i64, to: i64) -> Result<Vec<AbortedTransaction>, ReadError> {
        let mut search = Search::all_of(from, to);
        self.search_aborted(&mut search)?;
        Ok(search.into_sorted())
    }

    /// Searches the transaction indexes of all segments that can have entries of the range.
    pub(crate) fn search_aborted(&self, search: &mut Search<'_>) -> Result<(), ReadError> {
        let from = search.from();
        for segment in &self.segments[self.segment_of(from)..] {
            let is_complete = segment
                .aborted
                .search(&*self.storage, &self.dir, segment.base_offset, search)
                .map_err(|source| self.read_failed(from, source))?;
            if is_complete {
                break;
            }
        }
        Ok(())
    }

    /// Returns the aborted transactions of the log that begin below `end`: for a compaction.
    pub fn all_aborted_transactions(&self, end: i64) -> Result<Vec<AbortedTransaction>, LogError> {
        let first = self.segments[0].base_offset;
        self.aborted_transactions(first, end).map_err(|error| match error {
            ReadError::Io { source, .. } => self.failed("read the transaction indexes", source),
            other => self.failed("read the transaction indexes", io::Error::other(other)),
        })
    }

    /// Returns `true` if a segment has entries in its transaction index.
    pub fn has_aborted_transactions(&self) -> bool {
        self.segments.iter().any(|segment| !segment.aborted.is_empty())
    }

    /// Returns `true` if a producer has an open transaction with this epoch.
    pub fn has_open_transaction(&self, producer_id: i64, producer_epoch: i16) -> bool {
        let producer = self.producers.get(producer_id);
        producer.is_some_and(|producer| producer.is_in_transaction() && producer.epoch == producer_epoch)
    }

    /// Returns the guard of the producer's next transaction; `None` if its transaction is open, so that none is needed.
    ///
    /// Call it before the coordinator is asked whether the partition belongs to the transaction.
    pub fn verification_guard(
        &mut self,
        first: FirstBatch,
        now_ms: i64,
    ) -> Result<Option<VerificationGuard>, GuardsFull> {
        if self.has_open_transaction(first.producer_id, first.producer_epoch) {
            return Ok(None);
        }
        self.verifications.guard(first, now_ms, self.config.producers_max).map(Some)
    }

    /// Returns `true` if a guard is the current one of its producer: no marker was appended since, and no batch that needed it.
    pub fn is_verification_guard_current(&self, producer_id: i64, guard: VerificationGuard) -> bool {
        self.verifications.get(producer_id).is_some_and(|known| known.guard == guard)
    }

    /// Forgets a guard whose batch is not appended, because the coordinator has denied it for good.
    ///
    /// The guard stays if it is not the current one of the producer any more, or if a batch with a higher epoch has it, too.
    pub fn discard_verification_guard(&mut self, first: FirstBatch, guard: VerificationGuard) {
        self.verifications.discard(first, guard);
    }

    /// Checks the epochs of a marker.
    fn check_marker(&self, marker: &EndMarker) -> Result<(), AppendError> {
        let Some(producer) = self.producers.get(marker.producer_id) else { return Ok(()) };
        let current = producer.epoch;
        // With the epoch of the data it would be a late marker of the transaction before. Above the highest epoch there is none:
        // data with it is the trace of an old fault of a coordinator (KAFKA-20090), and its transaction must end.
        let is_late = marker.transaction_version >= EPOCH_BUMP_VERSION
            && marker.producer_epoch == current
            && current < i16::MAX
            && producer.is_in_transaction();
        if marker.producer_epoch < current || is_late {
            return Err(AppendError::InvalidProducerEpoch {
                dir: self.dir.to_string(),
                producer_id: marker.producer_id,
                current,
                found: marker.producer_epoch,
            });
        }
        if marker.coordinator_epoch < producer.coordinator_epoch {
            return Err(AppendError::CoordinatorFenced {
                dir: self.dir.to_string(),
                producer_id: marker.producer_id,
                current: producer.coordinator_epoch,
                found: marker.coordinator_epoch,
            });
        }
        Ok(())
    }

    /// Checks that a transactional batch belongs to an open transaction, or begins one that its coordinator knows; and
    /// that no other batch comes into an open transaction.
    #[cold]
    pub(crate) fn check_transaction(
        &self,
        header: &BatchHeader,
        known: Option<&Producer>,
        options: AppendOptions,
    ) -> Result<(), AppendError> {
        let is_open =
            known.is_some_and(|known| known.is_in_transaction() && known.epoch == header.producer_epoch);
        let refused = |what| AppendError::InvalidTransaction {
            dir: self.dir.to_string(),
            producer_id: header.producer_id,
            producer_epoch: header.producer_epoch,
            what,
        };
        if !header.is_transactional() {
            // With another epoch, too: it would fence the coordinator, whose marker ends the transaction.
            let what = "a batch outside of the transaction that the producer has open";
            let has_transaction = known.is_some_and(Producer::is_in_transaction);
            return if has_transaction { Err(refused(what)) } else { Ok(()) };
        }
        if let Some(current) = known.map(|known| known.epoch).filter(|epoch| header.producer_epoch < *epoch) {
            return Err(AppendError::InvalidProducerEpoch {
                dir: self.dir.to_string(),
                producer_id: header.producer_id,
                current,
                found: header.producer_epoch,
            });
        }
        let Transactional::Verified(guard) = options.transactional else { return Ok(()) };
        if is_open {
            return Ok(());
        }
        let verification = self.verifications.get(header.producer_id);
        let Some(verification) = verification.filter(|known| Some(known.guard) == guard) else {
            return Err(refused("a batch that is not part of a transaction that its coordinator knows"));
        };
        // A producer of transaction version 2 begins each epoch with sequence 0.
        let is_first = header.base_sequence == 0 || known.is_some() || !verification.supports_epoch_bump;
        if !is_first || header.base_sequence > verification.lowest_sequence {
            return Err(AppendError::OutOfOrderSequence {
                dir: self.dir.to_string(),
                producer_id: header.producer_id,
                producer_epoch: header.producer_epoch,
                last: None,
                found: header.base_sequence,
            });
        }
        Ok(())
    }

    /// Records an ended transaction until its marker is below the high watermark.
    pub(crate) fn complete(&mut self, completed: Completed) {
        let high_watermark = self.tail.visible();
        self.completed.retain(|completed| completed.last_offset >= high_watermark);
        self.completed.push(completed);
    }
}
