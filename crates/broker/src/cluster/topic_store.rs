//! The topics of a cluster, by name and by id.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use ottla_protocol::Uuid;
use rustc_hash::FxHashMap;

use crate::cluster::Cluster;
use crate::partition::Partition;
use crate::topics::{Topic, folded_name};

#[derive(Debug, Default)]
pub(crate) struct TopicStore {
    /// Changes with every change of a topic.
    pub(crate) version: u64,
    pub(crate) topics: BTreeMap<Arc<str>, Arc<Topic>>,
    pub(crate) by_id: FxHashMap<Uuid, Arc<str>>,
    /// Names by [`folded_name`]; no two topics share one.
    pub(crate) by_folded_name: BTreeMap<String, Arc<str>>,
}

impl Cluster {
    pub(crate) fn add(&self, topic: Arc<Topic>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.version += 1;
        state.by_id.insert(topic.id, topic.name.clone());
        state.by_folded_name.insert(folded_name(&topic.name), topic.name.clone());
        state.topics.insert(topic.name.clone(), topic);
    }

    /// Removes a topic: requests that name it fail from now on.
    pub(crate) fn remove(&self, topic: &Topic) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.version += 1;
        state.topics.remove(&topic.name);
        state.by_id.remove(&topic.id);
        state.by_folded_name.remove(&folded_name(&topic.name));
    }

    pub(crate) fn replace(&self, topic: Topic) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.version += 1;
        state.topics.insert(topic.name.clone(), Arc::new(topic));
    }

    /// A number that changes with every creation, deletion and change of a topic.
    pub(crate) fn topics_version(&self) -> u64 {
        self.state.read().unwrap_or_else(PoisonError::into_inner).version
    }

    /// The topic of that name.
    pub(crate) fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).topics.get(name).cloned()
    }

    /// The topic with that id.
    pub(crate) fn topic_by_id(&self, id: Uuid) -> Option<Arc<Topic>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.topics.get(state.by_id.get(&id)?).cloned()
    }

    /// Every topic, in order of name.
    pub(crate) fn topics(&self) -> Vec<Arc<Topic>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).topics.values().cloned().collect()
    }

    /// One partition.
    pub(crate) fn partition(&self, topic: &str, index: i32) -> Option<Arc<Partition>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.topics.get(topic)?.partitions.get(usize::try_from(index).ok()?).cloned()
    }
}
