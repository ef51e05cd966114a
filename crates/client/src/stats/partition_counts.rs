//! The number of partitions of each topic in the metadata, for threads that do not wait for the engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The numbers of partitions by topic. The engine writes them with each metadata response.
#[derive(Debug, Default)]
pub(crate) struct PartitionCounts(Mutex<BTreeMap<Arc<str>, Option<usize>>>);

impl PartitionCounts {
    /// The number of partitions of a topic, which is 0 if the topic does not exist. `None` if it is unknown.
    pub(crate) fn of(&self, topic: &str) -> Option<usize> {
        self.lock().get(topic).copied().flatten()
    }

    /// Replaces the numbers of these topics.
    pub(crate) fn extend(&self, counts: impl Iterator<Item = (Arc<str>, Option<usize>)>) {
        self.lock().extend(counts);
    }

    /// Removes the topics that are not known any more.
    pub(crate) fn retain(&self, is_known: impl Fn(&str) -> bool) {
        self.lock().retain(|topic, _| is_known(topic));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Option<usize>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
