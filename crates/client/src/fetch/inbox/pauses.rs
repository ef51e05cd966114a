//! Partitions that the application has paused.

use super::{Inbox, notify};
use crate::types::TopicPartition;

impl Inbox {
    /// Pauses or resumes a partition; its items stay.
    pub(crate) fn pause(&self, at: &TopicPartition, paused: bool) {
        let mut state = self.lock();
        let Some(slot) = state.index.get(at).copied() else { return };
        if let Some(partition) = state.partition(slot) {
            partition.paused = paused;
            partition.progress.set_paused(paused);
        }
        let signal = state.list(slot);
        drop(state);
        notify(signal);
    }

    /// Pauses or resumes a partition in this assignment, if it is assigned, and in later ones.
    pub(crate) fn pause_in_each_assignment(&self, at: &TopicPartition, paused: bool) {
        let mut state = self.lock();
        if paused {
            state.kept_pauses.insert(at.clone());
        } else {
            state.kept_pauses.remove(at);
        }
        drop(state);
        self.pause(at, paused);
    }
}
