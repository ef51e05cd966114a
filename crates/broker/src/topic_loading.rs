//! Opening the topics of the journal at the start.

use std::path::Path;
use std::sync::Arc;

use ottla_log::{Log, LogError, repair_step};
use ottla_protocol::Uuid;

use crate::cluster::{Cluster, OpenError, lock};
use crate::config::TopicConfig;
use crate::data_dir::{self, Format, Metadata};
use crate::internal_topics;
use crate::lifecycle::topic_record;
use crate::offset_floors::floor_of;
use crate::partition::{Partition, PartitionIdentity};
use crate::topics::{OngoingReassignments, TOPIC_KEY, Topic, TopicRecord, partition_dir};

impl Cluster {
    /// Opens every topic, completes interrupted creations and deletions, and reports directories without a record.
    pub(crate) fn load_topics(&self, format: Format) -> Result<(), OpenError> {
        let records: Vec<(String, Uuid, TopicRecord)> = {
            let journal = lock(&self.journal);
            let prefix = TOPIC_KEY.as_bytes();
            let entries = journal.iter_prefix(prefix).map(|(key, value)| topic_record(key, value));
            entries.collect::<Result<_, _>>()?
        };
        let mut known = Vec::new();
        let mut topics = Vec::new();
        let mut partitions = Vec::new();
        for (name, id, record) in records {
            known.extend((0..record.partitions).map(|index| partition_dir(&name, index)));
            let name: Arc<str> = name.into();
            let journal = lock(&self.journal);
            partitions.extend((0..record.partitions).map(|index| {
                let floor = floor_of(&journal, id, index).unwrap_or(0);
                (topics.len(), PartitionIdentity { topic: name.clone(), topic_id: id, index, floor })
            }));
            let mut config = TopicConfig::from_values(record.configs);
            internal_topics::add_missing_settings(&name, &mut config);
            let replication = self.loaded_replication(&name, record.replication);
            let assignments = self.assignments_of_stored(&record.replicas);
            // Those that were in progress are complete: the journal has the replicas at their ends.
            let reassignments = OngoingReassignments::new();
            let partitions = Vec::new();
            topics.push(Topic { name, id, config, replication, assignments, reassignments, partitions });
        }
        let opened = self.syncer.map_all(&partitions, |(topic, identity)| {
            self.open_partition(identity.clone(), &topics[*topic], format)
        });
        for ((topic, _), partition) in partitions.iter().zip(opened) {
            topics[*topic].partitions.push(partition?);
        }
        for topic in topics {
            self.add(Arc::new(topic));
        }
        self.write_missing_floors()?;
        self.finish_pending();
        self.initialize_lost_share_states();
        known.sort_unstable();
        let strays: Vec<String> = data_dir::partition_dirs(&*self.storage)
            .map_err(|source| LogError::Io {
                dir: String::new(),
                doing: "list the directories".into(),
                source,
            })?
            .into_iter()
            .filter(|dir| known.binary_search(dir).is_err())
            .collect();
        if !strays.is_empty() {
            tracing::error!(
                directories = strays.join(" "),
                "no topic has these directories; they are left alone: move them away, or delete them"
            );
        }
        Ok(())
    }

    /// Opens a partition that is known to exist. If its data is lost or damaged, the partition is unavailable: the
    /// reason is logged, and no file is changed.
    fn open_partition(
        &self,
        identity: PartitionIdentity,
        known: &Topic,
        format: Format,
    ) -> Result<Arc<Partition>, LogError> {
        let PartitionIdentity { ref topic, topic_id: id, index, floor } = identity;
        let config = &known.config;
        let log_config = self.log_config(topic, config);
        let dir = partition_dir(topic, index);
        let wrong = match data_dir::read_metadata(&*self.storage, &dir)? {
            // The log reports that its directory is missing.
            Metadata::NoDirectory => None,
            Metadata::Id(found) if found == id => None,
            // Earlier versions did not write the partition's number, which distinguishes the partitions of a topic.
            Metadata::IdOnly(found) if found == id => {
                data_dir::write_metadata(&*self.storage, &dir, id)?;
                None
            }
            Metadata::Missing if format == Format::Unmarked => {
                data_dir::write_metadata(&*self.storage, &dir, id)?;
                None
            }
            Metadata::WrongKind(what) => Some(WrongMetadata::Kind(what)),
            Metadata::Missing => Some(WrongMetadata::File("is missing".to_owned())),
            Metadata::OtherPartition { id: found, index } if found == id => {
                let owner = partition_dir(topic, index);
                Some(WrongMetadata::File(format!("names the directory {owner}: rename it back")))
            }
            Metadata::Id(found) | Metadata::IdOnly(found) | Metadata::OtherPartition { id: found, .. } => {
                Some(WrongMetadata::File(format!("names the topic id {found}")))
            }
            Metadata::Damaged(text) => Some(WrongMetadata::File(format!("is damaged: {text:?}"))),
        };
        let opened = match wrong {
            None => {
                let (storage, now_ms) = (self.storage.clone(), self.clock.now_ms());
                Log::open_existing(storage, &dir, log_config.clone(), now_ms, floor).map(|(log, _)| log)
            }
            Some(what) => {
                let reason = what.reason(&dir, id, self.storage.root());
                tracing::error!(%topic, partition = index, reason, "the partition is offline");
                Ok(Log::unavailable(self.storage.clone(), &dir, log_config.clone(), reason))
            }
        };
        let log = match opened {
            Ok(mut log) => match self.load_internal(topic, index, &mut log) {
                Ok(()) => log,
                Err(error) => {
                    tracing::error!(%error, %topic, partition = index, "the partition is offline, and its groups with it");
                    let reason = format!("{error}; {}", repair_step(self.storage.root()));
                    Log::unavailable(self.storage.clone(), &dir, log_config, reason)
                }
            },
            // An I/O error may be temporary, so it stops the start.
            Err(error) if error.is_loss() || matches!(error, LogError::NewerFormat { .. }) => {
                tracing::error!(%error, %topic, partition = index, "the partition is offline");
                let log_config = self.log_config(topic, config);
                Log::unavailable(self.storage.clone(), &dir, log_config, error.to_string())
            }
            Err(error) => return Err(error),
        };
        let leader = self.first_leader(&known.assignments, known.replication, index);
        Ok(Partition::new(identity, log, leader, self.leader_epochs.first))
    }
}

/// A `partition.metadata` that keeps its partition offline.
enum WrongMetadata {
    /// The content of the file; a predicate.
    File(String),
    /// A file where a directory belongs, or a directory where a file belongs; a predicate of the partition directory.
    Kind(&'static str),
}

impl WrongMetadata {
    fn reason(&self, dir: &str, id: Uuid, data_dir: Option<&Path>) -> String {
        match self {
            Self::File(what) => format!(
                "log {dir}: {} {what}; the topic's id is {id}; nothing was changed; {}",
                data_dir::METADATA_FILE,
                repair_step(data_dir)
            ),
            Self::Kind(what) => {
                let path = data_dir.map_or_else(|| dir.into(), |root| root.join(dir));
                format!(
                    "log {dir}: {} {what}; nothing was changed; move it to another place and start the broker again",
                    path.display()
                )
            }
        }
    }
}
