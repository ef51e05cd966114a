//! The guards of transactions whose coordinators are being asked (KIP-890).

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

/// The guard of a producer's next transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Verification {
    pub(crate) guard: VerificationGuard,
    pub(crate) producer_epoch: i16,
    /// A batch with a higher sequence was sent after one that is not in the log yet.
    pub(crate) lowest_sequence: i32,
    pub(crate) supports_epoch_bump: bool,
    pub(crate) created_ms: i64,
}
