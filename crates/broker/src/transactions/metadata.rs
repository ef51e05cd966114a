//! The stored state of a transactional id, and its changes by requests.
//!
//! Each method returns the metadata after a change, and leaves the current one alone: a change counts once it is stored.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_protocol::ErrorCode;

use super::state::TransactionState;

/// No producer id.
pub(crate) const NO_PRODUCER_ID: i64 = -1;
/// No producer epoch: of an id whose first InitProducerId is under way, or of a producer without an earlier epoch.
pub(crate) const NO_PRODUCER_EPOCH: i16 = -1;
/// The last epoch that a producer gets. One more is left to fence it.
pub(crate) const EPOCH_MAX: i16 = i16::MAX - 1;

/// A partition of a transaction.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct TopicPartition {
    pub(crate) topic: Arc<str>,
    pub(crate) index: i32,
}

/// A producer as brokers know it: its id and its epoch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ProducerIdentity {
    pub(crate) id: i64,
    pub(crate) epoch: i16,
}

impl ProducerIdentity {
    /// No producer: the answer of a request that failed.
    pub(crate) const NONE: Self = Self { id: NO_PRODUCER_ID, epoch: NO_PRODUCER_EPOCH };
}

/// The version of the transaction protocol that a client uses (`transaction.version`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum TransactionVersion {
    /// As in Kafka 0.11.
    #[default]
    V0,
    /// The same for clients; the records have tagged fields.
    V1,
    /// Each end of a transaction bumps the epoch (KIP-890).
    V2,
}

impl TransactionVersion {
    /// The version of this broker.
    pub(crate) const SERVER: Self = Self::V2;

    /// The number in a record and in a feature.
    pub(crate) const fn level(self) -> i16 {
        match self {
            Self::V0 => 0,
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// The version with this number.
    pub(crate) const fn of_level(level: i16) -> Option<Self> {
        match level {
            0 => Some(Self::V0),
            1 => Some(Self::V1),
            2 => Some(Self::V2),
            _ => None,
        }
    }

    /// Returns `true` if each end of a transaction bumps the epoch.
    pub(crate) const fn bumps_epoch(self) -> bool {
        matches!(self, Self::V2)
    }
}

/// The state of a transactional id: one record of `__transaction_state`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TransactionMetadata {
    pub(crate) producer_id: i64,
    /// The producer id before the last change. It differs from `producer_id` after a rotation.
    pub(crate) previous_producer_id: i64,
    /// The producer id that the completion of a prepared transaction changes to, because the epochs are used up.
    pub(crate) next_producer_id: i64,
    pub(crate) producer_epoch: i16,
    /// The epoch before the last bump, if the same producer may repeat the request that bumped. It is not stored.
    pub(crate) last_producer_epoch: i16,
    pub(crate) timeout_ms: i32,
    pub(crate) state: TransactionState,
    pub(crate) partitions: BTreeSet<TopicPartition>,
    /// When the transaction began; -1 if there was none.
    pub(crate) started_ms: i64,
    pub(crate) updated_ms: i64,
    pub(crate) client_version: TransactionVersion,
}

impl TransactionMetadata {
    /// A new transactional id, whose first epoch comes with [`TransactionMetadata::initialized`].
    pub(crate) fn new(producer_id: i64, timeout_ms: i32, now_ms: i64) -> Self {
        Self {
            producer_id,
            previous_producer_id: NO_PRODUCER_ID,
            next_producer_id: NO_PRODUCER_ID,
            producer_epoch: NO_PRODUCER_EPOCH,
            last_producer_epoch: NO_PRODUCER_EPOCH,
            timeout_ms,
            state: TransactionState::Empty,
            partitions: BTreeSet::new(),
            started_ms: -1,
            updated_ms: now_ms,
            client_version: TransactionVersion::V0,
        }
    }

    /// The producer that may use the id.
    pub(crate) fn identity(&self) -> ProducerIdentity {
        ProducerIdentity { id: self.producer_id, epoch: self.producer_epoch }
    }

    /// Returns `true` if the next producer needs another producer id.
    pub(crate) fn is_epoch_exhausted(&self) -> bool {
        self.producer_epoch >= EPOCH_MAX
    }

    /// Time after which an ongoing transaction is aborted.
    pub(crate) fn deadline_ms(&self) -> i64 {
        self.started_ms.saturating_add(i64::from(self.timeout_ms))
    }

    /// Returns `true` if a producer that continues as `expected` may initialize the id.
    pub(crate) fn may_continue(&self, expected: ProducerIdentity) -> bool {
        // The first: the id was forgotten, and a new producer id serves its producer as well as any other. The last: its request that has
        // begun the current producer id is repeated.
        self.producer_epoch == NO_PRODUCER_EPOCH
            || expected.id == self.producer_id
            || (expected.id == self.previous_producer_id
                && (expected.epoch >= EPOCH_MAX || expected.epoch == self.last_producer_epoch))
    }

    /// InitProducerId under the same producer id: the next epoch.
    ///
    /// # Errors
    /// The epoch was fenced: neither the current one nor, as in a repeated request, the one before.
    pub(crate) fn initialized(
        &self,
        timeout_ms: i32,
        expected_epoch: Option<i16>,
        now_ms: i64,
    ) -> Result<Self, ErrorCode> {
        let current = self.producer_epoch;
        let bumped = current.checked_add(1).ok_or(ErrorCode::ProducerFenced);
        let (epoch, last) = match expected_epoch {
            // Another producer: no request of the earlier ones is a repetition.
            None => (bumped?, NO_PRODUCER_EPOCH),
            Some(epoch) if current == NO_PRODUCER_EPOCH || epoch == current => (bumped?, current),
            Some(epoch) if epoch == self.last_producer_epoch => (current, epoch),
            Some(_) => return Err(ErrorCode::ProducerFenced),
        };
        Ok(self.emptied(ProducerIdentity { id: self.producer_id, epoch }, last, timeout_ms, now_ms))
    }

    /// InitProducerId when the epochs are used up, or when those that follow may be in use: epoch 0 of another producer id.
    pub(crate) fn rotated(
        &self,
        producer_id: i64,
        timeout_ms: i32,
        expected_epoch: Option<i16>,
        now_ms: i64,
    ) -> Self {
        let last = expected_epoch.unwrap_or(NO_PRODUCER_EPOCH);
        self.emptied(ProducerIdentity { id: producer_id, epoch: 0 }, last, timeout_ms, now_ms)
    }

    fn emptied(&self, identity: ProducerIdentity, last_epoch: i16, timeout_ms: i32, now_ms: i64) -> Self {
        Self {
            producer_id: identity.id,
            previous_producer_id: self.producer_id,
            producer_epoch: identity.epoch,
            last_producer_epoch: last_epoch,
            timeout_ms,
            state: TransactionState::Empty,
            partitions: BTreeSet::new(),
            started_ms: -1,
            updated_ms: now_ms,
            ..*self
        }
    }

    /// Adds partitions: the first ones begin the transaction.
    pub(crate) fn with_partitions(
        &self,
        partitions: impl IntoIterator<Item = TopicPartition>,
        version: TransactionVersion,
        now_ms: i64,
    ) -> Self {
        let began = self.state == TransactionState::Ongoing;
        let mut all = if began { self.partitions.clone() } else { BTreeSet::new() };
        all.extend(partitions);
        Self {
            previous_producer_id: self.producer_id,
            state: TransactionState::Ongoing,
            partitions: all,
            started_ms: if began { self.started_ms } else { now_ms },
            updated_ms: now_ms,
            client_version: version,
            ..*self
        }
    }

    /// Decides the transaction's end. From here on it can only complete that way.
    ///
    /// `next_producer_id` is taken if the epochs are used up, else [`NO_PRODUCER_ID`].
    pub(crate) fn prepared(
        &self,
        committed: bool,
        version: TransactionVersion,
        next_producer_id: i64,
        now_ms: i64,
    ) -> Self {
        let (epoch, last) = if version.bumps_epoch() {
            // An epoch at its very end is the trace of an old fault (KAFKA-20090). Its abort must go through.
            (self.producer_epoch.saturating_add(1), self.producer_epoch)
        } else {
            (self.producer_epoch, self.last_producer_epoch)
        };
        // An abort without partitions begins and ends now.
        let began = self.state == TransactionState::Ongoing;
        Self {
            previous_producer_id: self.producer_id,
            next_producer_id,
            producer_epoch: epoch,
            last_producer_epoch: last,
            state: if committed { TransactionState::PrepareCommit } else { TransactionState::PrepareAbort },
            partitions: if began { self.partitions.clone() } else { BTreeSet::new() },
            started_ms: if began { self.started_ms } else { now_ms },
            updated_ms: now_ms,
            client_version: version,
            ..*self
        }
    }

    /// Ends the transaction after its markers. If the epochs were used up, the producer continues with its next id.
    pub(crate) fn completed(&self, now_ms: i64) -> Self {
        let rotates = self.client_version.bumps_epoch() && self.next_producer_id != NO_PRODUCER_ID;
        Self {
            producer_id: if rotates { self.next_producer_id } else { self.producer_id },
            previous_producer_id: self.producer_id,
            next_producer_id: NO_PRODUCER_ID,
            producer_epoch: if rotates { 0 } else { self.producer_epoch },
            state: match self.state {
                TransactionState::PrepareCommit => TransactionState::CompleteCommit,
                _ => TransactionState::CompleteAbort,
            },
            partitions: BTreeSet::new(),
            updated_ms: now_ms,
            ..*self
        }
    }
}
