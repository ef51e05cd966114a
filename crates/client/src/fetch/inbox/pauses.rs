//! Partitions that the application pauses in each assignment.

use super::Inbox;
use crate::types::TopicPartition;

impl Inbox {
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
