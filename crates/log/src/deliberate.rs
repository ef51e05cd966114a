//! Deliberate faults, for the proof that the simulation finds each of them.
//!
//! Without the feature `deliberate-faults`, which no other build enables, every question about a fault is the constant
//! `false`, and the compiler removes the fault.

/// A fault of the log or the broker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DeliberateFault {
    /// The broker acknowledges batches before it appends them.
    AcknowledgeBeforeAppend,
    /// The broker does not wait for syncs.
    AcknowledgeBeforeSync,
    /// Checksums of batches are not compared.
    NoChecksums,
    /// Batches out of their producer's order are appended.
    NoSequences,
    /// Batches that are sent again are appended again.
    NoDuplicates,
    /// Reads skip a record now and then.
    SkippedReads,
    /// Commits of offsets are acknowledged and forgotten.
    ForgottenCommits,
    /// The last stable offset is the high watermark.
    UnstableReads,
    /// Epochs of transactional producers are not compared.
    NoProducerEpochs,
    /// Markers are left out now and then.
    LostMarkers,
    /// Offsets of committed transactions are forgotten now and then.
    ForgottenTransactionOffsets,
    /// Acknowledgements of share groups are confirmed before they are stored.
    UnstoredAcknowledgements,
    /// Compactions remove the newest record of a key now and then.
    NewestRecordsRemoved,
}

#[cfg(feature = "deliberate-faults")]
mod current {
    use std::cell::Cell;

    use super::DeliberateFault;

    thread_local! {
        static CURRENT: Cell<Option<DeliberateFault>> = const { Cell::new(None) };
    }

    /// Sets the fault of everything that runs on this thread.
    pub fn set_deliberate_fault(fault: Option<DeliberateFault>) {
        CURRENT.set(fault);
    }

    /// Returns `true` if this thread has the fault.
    pub fn has_deliberate_fault(fault: DeliberateFault) -> bool {
        CURRENT.get() == Some(fault)
    }
}

#[cfg(not(feature = "deliberate-faults"))]
mod current {
    use super::DeliberateFault;

    /// Returns `false`: this build has no deliberate faults.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a constant, which removes the code behind it")]
    pub const fn has_deliberate_fault(_: DeliberateFault) -> bool {
        false
    }
}

pub use current::*;
