//! The options of an append.

use crate::verification::VerificationGuard;

/// The options of an append.
#[derive(Clone, Copy, Debug, Default)]
pub struct AppendOptions {
    /// The epoch of this partition's leader, which is written into each batch. Below 0 there is none.
    pub leader_epoch: i32,
    /// The origin of the batches.
    pub origin: Origin,
    /// The checks before the append.
    pub check: Check,
    /// A limit of the decompressed size of a batch below that of the log.
    pub decompressed_bytes_max: Option<usize>,
    /// The treatment of transactional batches.
    pub transactional: Transactional,
}

/// The treatment of transactional batches of clients. Those of coordinators are always accepted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Transactional {
    /// They are refused.
    #[default]
    Refused,
    /// They are accepted without a check of the coordinator's decision.
    Accepted,
    /// The first batch of a transaction needs the guard from before the coordinator was asked, later ones need none: see
    /// [`Log::verification_guard`](crate::Log::verification_guard).
    Verified(Option<VerificationGuard>),
}

/// The origin of the batches.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Origin {
    /// A client: no control batches, transactions as [`Transactional`] says, producers in sequence.
    #[default]
    Client,
    /// The broker itself: anything it says.
    Coordinator,
}

/// The checks before an append. The headers are always checked.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Check {
    /// Checksum and every record; compressed records are decompressed for it, within a cap.
    #[default]
    Records,
    /// The checksum alone.
    Checksum,
    /// No checks: the caller built the batches itself.
    Trusted,
}
