//! The guards of transactions whose coordinators are being asked (KIP-890).

use crate::producer_map::ProducerMap;
use crate::producer_total::{ProducerCount, ProducerTotal};

/// The guards of batches that were sent in this time are not forgotten: their coordinators may be about to approve them.
const ASKED_MS: i64 = 60_000;
/// Older guards may be forgotten although batches are sent for them: these are denied again and again.
const AGE_MAX_MS: i64 = 5 * 60_000;
/// A log whose guards are all that young looks for older ones again after this time.
const LOOK_AGAIN_MS: i64 = 1000;

/// A proof that a transaction has not ended since the coordinator was asked about it (KIP-890).
///
/// [`Log::verification_guard`](crate::Log::verification_guard) creates it before the coordinator is asked. [`Log::append`](crate::Log::append) accepts the first batch of a
/// transaction only with the guard that is still the current one of its producer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VerificationGuard(pub(crate) u64);

/// The first batch of a transaction in a partition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FirstBatch {
    /// The producer.
    pub producer_id: i64,
    /// Its epoch.
    pub producer_epoch: i16,
    /// The sequence of the first record.
    pub base_sequence: i32,
    /// `true` if the producer gets a new epoch with each transaction (transaction version 2). Its first sequence is 0 then.
    pub supports_epoch_bump: bool,
}

/// The refusal of a guard: as many transactions as a log may have guards for wait for their coordinators. The batch can be sent again.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("too many transactions wait for the approval of their coordinators")]
pub struct GuardsFull;

/// The guard of a producer's next transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verification {
    pub(crate) guard: VerificationGuard,
    producer_epoch: i16,
    /// A batch with a higher sequence was sent after one that is not in the log yet.
    pub(crate) lowest_sequence: i32,
    pub(crate) supports_epoch_bump: bool,
    /// When a batch was last sent for it.
    asked_ms: i64,
    created_ms: i64,
}

/// The guards of a log by producer. They count in the total of the producers of all logs: clients make up the ids.
#[derive(Debug, Default)]
pub(crate) struct Verifications {
    by_producer: ProducerMap<Verification>,
    count: ProducerCount,
    /// The number of guards that were created so far.
    created: u64,
    /// When all guards were too young to be forgotten.
    full_ms: Option<i64>,
}

impl Verifications {
    pub(crate) fn new(total: ProducerTotal) -> Self {
        Self { count: ProducerCount::new(total), ..Self::default() }
    }

    pub(crate) fn get(&self, producer_id: i64) -> Option<&Verification> {
        self.by_producer.get(&producer_id)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_producer.is_empty()
    }

    /// Returns the guard of the producer's next transaction, of at most `max` guards.
    pub(crate) fn guard(
        &mut self,
        first: FirstBatch,
        now_ms: i64,
        max: usize,
    ) -> Result<VerificationGuard, GuardsFull> {
        if let Some(known) = self.by_producer.get_mut(&first.producer_id) {
            // Batches may come out of order while the coordinator is asked: the lowest sequence is the next one.
            if first.producer_epoch > known.producer_epoch {
                known.producer_epoch = first.producer_epoch;
                known.lowest_sequence = first.base_sequence;
            } else if first.producer_epoch == known.producer_epoch {
                known.lowest_sequence = known.lowest_sequence.min(first.base_sequence);
            }
            known.asked_ms = now_ms;
            return Ok(known.guard);
        }
        let max = self.count.max(max);
        if self.by_producer.len() >= max {
            self.forget_oldest(max, now_ms);
            if self.by_producer.len() >= max {
                return Err(GuardsFull);
            }
        }
        self.created += 1;
        let guard = VerificationGuard(self.created);
        self.by_producer.insert(
            first.producer_id,
            Verification {
                guard,
                producer_epoch: first.producer_epoch,
                lowest_sequence: first.base_sequence,
                supports_epoch_bump: first.supports_epoch_bump,
                asked_ms: now_ms,
                created_ms: now_ms,
            },
        );
        self.recount();
        Ok(guard)
    }

    /// Forgets the guard of a producer whose batch was appended, or whose transaction has ended.
    pub(crate) fn remove(&mut self, producer_id: i64) {
        if self.by_producer.remove(&producer_id).is_some() {
            self.recount();
        }
    }

    /// Forgets a guard, unless it is not the current one or serves a later epoch as well.
    pub(crate) fn discard(&mut self, first: FirstBatch, guard: VerificationGuard) {
        let is_current =
            |known: &Verification| known.guard == guard && known.producer_epoch == first.producer_epoch;
        if self.get(first.producer_id).is_some_and(is_current) {
            self.remove(first.producer_id);
        }
    }

    /// Forgets guards that are as old as a producer that expires: their requests ended long ago. Producers may expire sooner than a
    /// coordinator answers; guards do not.
    pub(crate) fn expire(&mut self, now_ms: i64, expiration_ms: i64) {
        let expiration_ms = expiration_ms.max(ASKED_MS);
        if !self.is_empty() {
            self.by_producer.retain(|_, known| now_ms.saturating_sub(known.asked_ms) < expiration_ms);
            self.recount();
        }
    }

    pub(crate) fn clear(&mut self) {
        self.by_producer.clear();
        self.recount();
    }

    /// Makes room for an eighth at once, if so many guards are old: their requests ended long ago, or are denied again and again. A young
    /// one may be approved in a moment, and its batch would be refused for good.
    #[cold]
    fn forget_oldest(&mut self, max: usize, now_ms: i64) {
        let is_within = |since: i64, ms: i64| (0..ms).contains(&now_ms.saturating_sub(since));
        if self.full_ms.is_some_and(|full| is_within(full, LOOK_AGAIN_MS)) {
            return;
        }
        let old = |(id, known): (&i64, &Verification)| {
            let is_young = is_within(known.asked_ms, ASKED_MS) && is_within(known.created_ms, AGE_MAX_MS);
            (!is_young).then_some((known.guard.0, *id))
        };
        let mut guards: Vec<(u64, i64)> = self.by_producer.iter().filter_map(old).collect();
        self.full_ms = guards.is_empty().then_some(now_ms);
        guards.sort_unstable();
        let goes = self.by_producer.len().saturating_sub(max) + (max / 8).max(1);
        for (_, id) in guards.into_iter().take(goes) {
            self.by_producer.remove(&id);
        }
        self.recount();
    }

    fn recount(&mut self) {
        self.count.set(self.by_producer.len());
    }
}
