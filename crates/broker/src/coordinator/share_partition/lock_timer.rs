//! The timer of acquisition locks: records whose locks end become available, or are archived, without a request.
//!
//! As in Kafka's `SharePartition`, a lock ends at its time. Without the timer, the start of a share partition that no member fetches
//! would not move, and dead letters would not be written.

use std::sync::Arc;

use tokio::time::Instant;

use super::leader::{LedPartition, LedState, ShareLeader};
use super::settings::settings_of;
use crate::cluster::{Cluster, lock};
use crate::coordinator::deadlines::keep_time;

impl ShareLeader {
    /// Ends the locks of share partitions at their times, until the future is dropped.
    pub(crate) async fn keep_locks(&self, cluster: &Arc<Cluster>) {
        let tick = |now| {
            // One share partition at a time: other tasks have their turns in between.
            if let Some(led) = self.lock_ends.take_ended(now) {
                led.end_locks(cluster, now);
            }
            self.lock_ends.first()
        };
        keep_time(&self.lock_ends.changed, tick).await;
    }
}

impl LedPartition {
    /// Notes the end of the first lock.
    pub(super) fn note_lock_end(self: &Arc<Self>, state: &mut LedState) {
        let end = state.window.next_lock_end();
        state.lock_end.set(end, || Arc::downgrade(self));
    }

    /// Ends the locks whose time is over, and begins to write that.
    fn end_locks(self: &Arc<Self>, cluster: &Arc<Cluster>, now: Instant) {
        let limits = settings_of(cluster, &self.key.group).limits;
        {
            let mut state = lock(&self.state);
            // The timer has taken the entry. It is set again if there are later locks.
            state.lock_end.remove();
            if self.is_closed() {
                return;
            }
            if state.window.expire(now, &limits) {
                state.count(cluster);
                self.notify_changed();
            }
        }
        self.start_write(cluster);
    }
}
