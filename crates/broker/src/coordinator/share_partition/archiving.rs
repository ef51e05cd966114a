//! Records on their way to the dead-letter queue (KIP-1191): from the end of their deliveries until their letters are written.
//!
//! ```text
//! Storing --stored--> Stored --taken--> Writing --written, or given up--> Finishing --stored--> archived
//!    | ^                                                                    | ^
//!    v |                                                                    v |
//!  Unstored                                                               Unfinished      (a write of the state failed)
//! ```
//!
//! The state is stored before the letter is written, so that a record with a letter is never delivered again. After a crash in
//! between, the stored state brings the record back to `Stored`, and it can get a second letter.

use super::acknowledge::{push, state_batch};
use super::window::{ChangeId, RecordState, Run, RunState, SharePartition};
use crate::coordinator::dead_letters::{DeadLetterCause, DeadLetters};

/// The state of adjacent records that are being archived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Archiving {
    /// `None` after a restart: the cause is not stored.
    pub(super) cause: Option<DeadLetterCause>,
    pub(super) step: ArchivingStep,
}

/// The progress of records that are being archived.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ArchivingStep {
    /// The write of this state has failed, and is tried again.
    Unstored,
    /// This state is being written, with this change.
    Storing(ChangeId),
    /// The records wait for their letters.
    Stored,
    /// The letters are being written.
    Writing,
    /// The write of the last state has failed, and is tried again.
    Unfinished,
    /// The last state is being written, with this change.
    Finishing(ChangeId),
}

impl Archiving {
    pub(super) const fn stored(cause: Option<DeadLetterCause>) -> Self {
        Self { cause, step: ArchivingStep::Stored }
    }

    /// The state after the write of these changes; `None` if none of them concerns the records.
    pub(super) fn after_write(self, changes: &[ChangeId], is_stored: bool) -> Option<RunState> {
        let step = match self.step {
            ArchivingStep::Storing(id) if changes.contains(&id) => {
                if is_stored {
                    ArchivingStep::Stored
                } else {
                    ArchivingStep::Unstored
                }
            }
            ArchivingStep::Finishing(id) if changes.contains(&id) => {
                if is_stored {
                    return Some(RunState::Archived);
                }
                ArchivingStep::Unfinished
            }
            ArchivingStep::Unstored
            | ArchivingStep::Storing(_)
            | ArchivingStep::Stored
            | ArchivingStep::Writing
            | ArchivingStep::Unfinished
            | ArchivingStep::Finishing(_) => return None,
        };
        Some(RunState::Archiving(Self { step, ..self }))
    }
}

impl SharePartition {
    /// Takes the records that wait for their dead letters, in the order of their offsets.
    /// [`SharePartition::finish_dead_letters`] ends each of them.
    ///
    /// `delivery_count_max` gives records the cause that a restart has forgotten, as in Kafka.
    pub(crate) fn take_dead_letters(&mut self, delivery_count_max: i16) -> Vec<DeadLetters> {
        let mut taken: Vec<DeadLetters> = Vec::new();
        if !std::mem::take(&mut self.may_have_dead_letters) {
            return taken;
        }
        for (first, run) in &mut self.runs {
            let RunState::Archiving(archiving) = &mut run.state else { continue };
            if archiving.step != ArchivingStep::Stored {
                continue;
            }
            archiving.step = ArchivingStep::Writing;
            let cause = archiving.cause.unwrap_or(if run.delivery_count >= delivery_count_max {
                DeadLetterCause::DeliveryCountExceeded
            } else {
                DeadLetterCause::ClientReject
            });
            let letters =
                DeadLetters { first: *first, last: run.last, delivery_count: run.delivery_count, cause };
            match taken.last_mut() {
                Some(before) if before.is_continued_by(&letters) => before.last = letters.last,
                _ => taken.push(letters),
            }
        }
        taken
    }

    /// Returns `true` if records may wait for their dead letters.
    pub(crate) const fn may_have_dead_letters(&self) -> bool {
        self.may_have_dead_letters
    }

    /// Archives records whose dead letters are written, or given up. The change must be written.
    pub(crate) fn finish_dead_letters(&mut self, first: i64, last: i64) {
        self.split_at(first);
        self.split_at(last + 1);
        let id = self.peek_id();
        let mut batches = Vec::new();
        for (first, run) in self.runs.range_mut(first..=last) {
            let RunState::Archiving(archiving) = &mut run.state else { continue };
            if archiving.step == ArchivingStep::Writing {
                archiving.step = ArchivingStep::Finishing(id);
                push(&mut batches, state_batch(*first, run, RecordState::Archived));
            }
        }
        if !batches.is_empty() {
            self.enqueue(batches);
        }
    }

    /// Returns `true` if the write of a state of records that are being archived has failed.
    pub(crate) fn has_failed_archiving(&self) -> bool {
        let has_failed = |run: &Run| match &run.state {
            RunState::Archiving(archiving) => {
                matches!(archiving.step, ArchivingStep::Unstored | ArchivingStep::Unfinished)
            }
            RunState::Available | RunState::Acquired(_) | RunState::Acknowledged | RunState::Archived => {
                false
            }
        };
        self.runs.values().any(has_failed)
    }

    /// Enqueues again the states whose writes have failed: no request waits for them.
    pub(crate) fn retry_archiving(&mut self) {
        let id = self.peek_id();
        let mut batches = Vec::new();
        for (first, run) in &mut self.runs {
            let RunState::Archiving(archiving) = &mut run.state else { continue };
            let state = match archiving.step {
                ArchivingStep::Unstored => {
                    archiving.step = ArchivingStep::Storing(id);
                    RecordState::Archiving
                }
                ArchivingStep::Unfinished => {
                    archiving.step = ArchivingStep::Finishing(id);
                    RecordState::Archived
                }
                ArchivingStep::Storing(_)
                | ArchivingStep::Stored
                | ArchivingStep::Writing
                | ArchivingStep::Finishing(_) => continue,
            };
            push(&mut batches, state_batch(*first, run, state));
        }
        if !batches.is_empty() {
            self.enqueue(batches);
        }
    }
}
