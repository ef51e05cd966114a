//! Topics whose partitions are copied from elsewhere. Until the last step they are recorded as imports, so that a start after a crash
//! removes what was copied.
//!
//! ```text
//! import:  put importing/<id>       directories        put topic/<name> and remove importing/<id> of all topics
//! ```

use bytes::Bytes;
use ottla_protocol::{ErrorCode, Uuid};

use super::{IMPORTING_KEY, Planned, check_name, json, pending_key, record_of, topic_key};
use crate::cluster::{
    Cluster, IdFloors, LEADER_EPOCH_KEY, PRODUCER_IDS_KEY, Refusal, lock, next_leader_epoch_of,
    next_producer_id_of, storage_refusal,
};
use crate::config::TopicConfig;
use crate::topics::{Assignments, PendingRecord, TOPIC_RECORD_VERSION, folded_name};

/// A topic that is imported.
#[derive(Clone, Debug)]
pub(crate) struct ImportedTopic {
    pub(crate) name: String,
    pub(crate) id: Uuid,
    pub(crate) partitions: i32,
    pub(crate) config: TopicConfig,
}

impl Cluster {
    /// Checks that no topic and no directory is in the way. Returns a reason for each topic that cannot be imported.
    pub(crate) fn check_import(&self, topics: &[ImportedTopic]) -> Vec<Refusal> {
        let mut planned = Planned::default();
        let check = |topic: &ImportedTopic| {
            let name = &topic.name;
            check_name(name)?;
            self.check_free(name, &planned)?;
            if let Some(other) = self.topic_by_id(topic.id) {
                let reason = format!("topic `{name}` has the id of the topic `{}`", other.name);
                return Err((ErrorCode::TopicAlreadyExists, reason));
            }
            self.check_directories(name, 0..topic.partitions)?;
            planned.names.insert(folded_name(name), name.clone());
            Ok(())
        };
        topics.iter().map(check).filter_map(Result::err).collect()
    }

    /// Records durably the directories that will be filled.
    pub(crate) fn begin_import(&self, topics: &[ImportedTopic]) -> Result<(), Refusal> {
        let entries = topics.iter().map(|topic| {
            let record = PendingRecord {
                version: TOPIC_RECORD_VERSION,
                name: topic.name.clone(),
                from: 0,
                to: topic.partitions,
            };
            Ok((pending_key(IMPORTING_KEY, topic.id), Some(json(&record)?)))
        });
        self.put_durably(&entries.collect::<Result<Vec<_>, Refusal>>()?)
    }

    /// Records durably that the topics exist, all of them at once. Producers get ids from the floor on, and leaders
    /// epochs.
    pub(crate) fn end_import(&self, topics: &[ImportedTopic], floors: IdFloors) -> Result<(), Refusal> {
        self.storage.sync_dir("").map_err(|error| storage_refusal(&error))?;
        let mut entries = Vec::with_capacity(2 * topics.len() + 2);
        for topic in topics {
            let record = record_of(topic.id, topic.partitions, &topic.config, 1, Assignments::new());
            entries.push((topic_key(&topic.name), Some(json(&record)?)));
            entries.push((pending_key(IMPORTING_KEY, topic.id), None));
        }
        let (producer_id, leader_epoch) = {
            let journal = lock(&self.journal);
            (next_producer_id_of(&journal), next_leader_epoch_of(&journal))
        };
        let producer_id = producer_id.max(floors.producer_id).to_be_bytes();
        entries.push((Bytes::from_static(PRODUCER_IDS_KEY), Some(Bytes::copy_from_slice(&producer_id))));
        let leader_epoch = leader_epoch.max(floors.leader_epoch).to_be_bytes();
        entries.push((Bytes::from_static(LEADER_EPOCH_KEY), Some(Bytes::copy_from_slice(&leader_epoch))));
        self.put_durably(&entries)
    }
}
