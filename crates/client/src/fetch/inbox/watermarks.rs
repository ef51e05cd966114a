//! Watermarks, which stay known after the assignment of their partition.

use super::{Inbox, State};
use crate::fetch::progress::PartitionProgress;
use crate::types::{TopicPartition, Watermarks};

impl Inbox {
    /// The watermarks in the last fetch response for a partition, in this assignment or an earlier one.
    pub(crate) fn watermarks(&self, at: &TopicPartition) -> Option<Watermarks> {
        let state = self.lock();
        let assigned = state.index.get(at).and_then(|slot| state.partitions[slot.index()].as_ref());
        let known = assigned.and_then(|partition| watermarks_of(&partition.progress));
        known.or_else(|| state.kept_watermarks.get(at).copied())
    }
}

impl State {
    /// Keeps the watermarks of a partition whose assignment ends. librdkafka has them as long as the topic's object.
    pub(super) fn keep_watermarks(&mut self, progress: &PartitionProgress) {
        if let Some(watermarks) = watermarks_of(progress) {
            self.kept_watermarks.insert(progress.at.clone(), watermarks);
        }
    }
}

fn watermarks_of(progress: &PartitionProgress) -> Option<Watermarks> {
    let ends = progress.ends();
    (ends.high_watermark >= 0).then_some(Watermarks { low: ends.log_start, high: ends.high_watermark })
}
