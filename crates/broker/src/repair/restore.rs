//! Topics whose journal records are lost, from the `partition.metadata` files of their directories.

use std::collections::BTreeMap;

use bytes::Bytes;
use ottla_log::Journal;
use ottla_protocol::Uuid;

use super::{Entry, Repair, RepairError, Topics, is_partition_of, topics_of};
use crate::config::BrokerConfig;
use crate::data_dir::{self, META_DIR, METADATA_FILE, Metadata};
use crate::internal_topics::InternalTopic;
use crate::lifecycle::{CREATING_KEY, DELETING_KEY, IMPORTING_KEY, pending_key};
use crate::topics::{TOPIC_RECORD_VERSION, TopicRecord, partition_dir, topic_key};

/// The settings of a topic are lost with its record. Without these, the defaults could delete what was just restored.
const RESTORED_SETTINGS: [(&str, &str); 2] = [("retention.bytes", "-1"), ("retention.ms", "-1")];

impl Repair {
    /// Adds the topics whose partition directories agree to `meta`, and returns the entries for the journal on disk.
    ///
    /// The report names the topics whose directories disagree, and how.
    pub(super) fn restorable_topics(&mut self, meta: &mut Journal) -> Result<Vec<Entry>, RepairError> {
        let topics = topics_of(meta)?;
        let mut by_name: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        let dirs = data_dir::partition_dirs(&*self.storage).map_err(|source| self.failed(source))?;
        for dir in dirs {
            let is_known = topics.iter().any(|(name, (_, record))| is_partition_of(&dir, name, record));
            let index = data_dir::partition_index(&dir).filter(|_| !is_known);
            if let (Some((name, _)), Some(index)) = (dir.rsplit_once('-'), index) {
                by_name.entry(name.to_owned()).or_default().push(index);
            }
        }
        let mut restored: Vec<(String, Uuid, TopicRecord)> = Vec::new();
        for (name, mut indexes) in by_name {
            indexes.sort_unstable();
            match self.agreed(meta, &topics, &name, &indexes)? {
                Ok((id, _)) if restored.iter().any(|(_, other, _)| *other == id) => {
                    self.report.notes.push(format!(
                        "topic `{name}` cannot be restored: another topic's directories name the id {id} as well"
                    ));
                }
                Ok((id, record)) => restored.push((name, id, record)),
                Err(reason) => {
                    self.report.notes.push(format!("topic `{name}` cannot be restored: {reason}"));
                }
            }
        }
        let imports: Vec<Bytes> =
            meta.iter_prefix(IMPORTING_KEY.as_bytes()).map(|(key, _)| key.clone()).collect();
        for (name, id, _) in &restored {
            if imports.contains(&pending_key(IMPORTING_KEY, *id)) {
                self.report.notes.push(format!(
                    "topic `{name}`: its import may not be complete: compare it with the original, or delete and import it again"
                ));
            }
        }
        let mut entries: Vec<Entry> = restored
            .iter()
            .flat_map(|(name, id, record)| {
                let value = serde_json::to_vec(record).expect("a record has strings and numbers only");
                // One batch wrote the topic and removed the record of its creation: both are lost together.
                [(topic_key(name), Some(value.into())), (pending_key(CREATING_KEY, *id), None)]
            })
            .collect();
        // The batch that completed an import may be what is lost: the next start must not remove the directories.
        entries.extend(imports.into_iter().map(|key| (key, None)));
        self.describe(&topics, &restored);
        meta.put_all(self.now_ms, &entries)?;
        Ok(entries)
    }

    /// The id and the record of the topic, if its directories agree about them; otherwise what disagrees.
    fn agreed(
        &self,
        meta: &Journal,
        topics: &Topics,
        name: &str,
        indexes: &[i32],
    ) -> Result<Result<(Uuid, TopicRecord), String>, RepairError> {
        let known = topics.get(name);
        let first = known.map_or(0, |(_, record)| record.partitions);
        let mut agreed = known.map(|(id, _)| *id);
        for (expected, index) in (first..).zip(indexes) {
            if expected != *index {
                return Ok(Err(format!("the directory {} is missing", partition_dir(name, expected))));
            }
            let dir = partition_dir(name, *index);
            let id = match data_dir::read_metadata(&*self.storage, &dir)? {
                Metadata::Id(id) => id,
                Metadata::NoDirectory => return Ok(Err(format!("the directory {dir} is missing"))),
                Metadata::WrongKind(what) => return Ok(Err(format!("{dir} {what}"))),
                Metadata::Missing => return Ok(Err(format!("{dir}/{METADATA_FILE} is missing"))),
                Metadata::IdOnly(_) => {
                    return Ok(Err(format!("{dir}/{METADATA_FILE} does not name the partition")));
                }
                Metadata::Damaged(text) => {
                    return Ok(Err(format!("{dir}/{METADATA_FILE} is damaged: {text:?}")));
                }
                Metadata::OtherPartition { index, .. } => {
                    return Ok(Err(format!("{dir}/{METADATA_FILE} names partition {index}")));
                }
            };
            match agreed {
                Some(agreed) if agreed != id => {
                    let reason =
                        format!("{dir}/{METADATA_FILE} names the topic id {id}, the others {agreed}");
                    return Ok(Err(reason));
                }
                _ => agreed = Some(id),
            }
        }
        let Some(id) = agreed else { return Ok(Err("it has no directory".to_owned())) };
        if let Some((other, _)) = topics.iter().find(|(other, (known, _))| *known == id && *other != name) {
            return Ok(Err(format!("the topic `{other}` has the id {id}")));
        }
        if meta.get(&pending_key(DELETING_KEY, id)).is_some() {
            return Ok(Err(
                "the journal has a record of its deletion, which the next start finishes".to_owned()
            ));
        }
        let replication = known.map_or(1, |(_, record)| record.replication);
        let replicas = known.as_ref().map(|(_, record)| record.replicas.clone()).unwrap_or_default();
        let configs = match known {
            Some((_, record)) => record.configs.clone(),
            None => match InternalTopic::of_name(name) {
                Some(topic) => topic.settings(&BrokerConfig::default()).values().clone(),
                None => RESTORED_SETTINGS.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            },
        };
        let partitions = first + indexes.len() as i32;
        Ok(Ok((
            id,
            TopicRecord {
                version: TOPIC_RECORD_VERSION,
                id: id.to_string(),
                partitions,
                configs,
                replication,
                replicas,
            },
        )))
    }

    /// Adds the restored topics to what the report says about the journal.
    fn describe(&mut self, topics: &Topics, restored: &[(String, Uuid, TopicRecord)]) {
        for (name, _, record) in restored {
            let count = record.partitions;
            if let Some(damage) = self.report.damage.iter_mut().find(|damage| damage.place == META_DIR) {
                let saved =
                    format!("{}; topic `{name}` with {count} partitions, from its directories", damage.saved);
                damage.saved = saved;
            }
            // A topic that has lost only some partitions has kept its settings.
            if InternalTopic::of_name(name).is_some() || topics.contains_key(name) {
                continue;
            }
            self.report.notes.push(format!(
                "topic `{name}`: its settings are lost; retention is off: set retention.ms and retention.bytes"
            ));
        }
    }
}
