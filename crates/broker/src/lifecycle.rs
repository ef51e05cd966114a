//! The creation and deletion of topics. The order of journal records and directory changes makes every crash
//! recoverable.
//!
//! ```text
//! create:  put creating/<id>            directories            put topic/<name>, remove creating/<id>
//! delete:  remove topic/<name>, put deleting/<id>       directories       remove deleting/<id>
//! ```
//!
//! A directory is removed only if a durable `creating/` or `deleting/` record names it and its `partition.metadata` has
//! the same id. Any other directory is left alone, and no topic is created over it.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use ottla_log::{Journal, Log, LogError, repair_step};
use ottla_protocol::{ErrorCode, Uuid};

use crate::cluster::{Cluster, OpenError, Refusal, lock, random_uuid, storage_refusal};
use crate::config::TopicConfig;
use crate::data_dir::{self, Format, Metadata};
use crate::offset_floors::{floor_of, without_floors};
use crate::partition::{Partition, PartitionIdentity};
use crate::topics::{PendingRecord, TOPIC_RECORD_VERSION, Topic, TopicRecord, check_name, partition_dir};

pub(crate) const TOPIC_KEY: &str = "topic/";
pub(crate) const CREATING_KEY: &str = "creating/";
pub(crate) const DELETING_KEY: &str = "deleting/";

impl Cluster {
    /// Completes interrupted creations and deletions, opens every topic, and reports directories without a record.
    pub(crate) fn load_topics(&self, format: Format) -> Result<(), OpenError> {
        self.finish_pending(&mut lock(&self.journal))?;
        let records: Vec<(String, Uuid, TopicRecord)> = {
            let journal = lock(&self.journal);
            let prefix = TOPIC_KEY.as_bytes();
            let entries = journal.iter_prefix(prefix).map(|(key, value)| topic_record(key, value));
            entries.collect::<Result<_, _>>()?
        };
        let mut known = Vec::new();
        for (name, id, record) in records {
            known.extend((0..record.partitions).map(|index| partition_dir(&name, index)));
            let config = TopicConfig::from_values(record.configs);
            self.open_topic(&name, id, record.partitions, config, format)?;
        }
        self.write_missing_floors()?;
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

    /// Opens the logs of a topic of the journal and publishes the topic.
    fn open_topic(
        &self,
        name: &str,
        id: Uuid,
        count: i32,
        config: TopicConfig,
        format: Format,
    ) -> Result<(), LogError> {
        let name: Arc<str> = name.into();
        let floors: Vec<Option<i64>> = {
            let journal = lock(&self.journal);
            (0..count).map(|index| floor_of(&journal, id, index)).collect()
        };
        let partitions = (0..count)
            .zip(floors)
            .map(|(index, floor)| {
                let identity =
                    PartitionIdentity { topic: name.clone(), topic_id: id, index, floor: floor.unwrap_or(0) };
                self.open_partition(identity, &config, format)
            })
            .collect::<Result<Vec<_>, _>>()?;
        self.add(Arc::new(Topic { name, id, config, partitions }));
        Ok(())
    }

    fn add(&self, topic: Arc<Topic>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.by_id.insert(topic.id, topic.name.clone());
        state.topics.insert(topic.name.clone(), topic);
    }

    /// Opens a partition that is known to exist. If its data is lost or damaged, the partition is unavailable: the
    /// reason is logged, and no file is changed.
    fn open_partition(
        &self,
        identity: PartitionIdentity,
        config: &TopicConfig,
        format: Format,
    ) -> Result<Arc<Partition>, LogError> {
        let PartitionIdentity { ref topic, topic_id: id, index, floor } = identity;
        let log_config = config.log_config(&self.config.topic_defaults, self.config.durability);
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
                Ok(Log::unavailable(self.storage.clone(), &dir, log_config, reason))
            }
        };
        let log = match opened {
            Ok(log) => log,
            // An I/O error may be temporary, so it stops the start.
            Err(error) if error.is_loss() || matches!(error, LogError::NewerFormat { .. }) => {
                tracing::error!(%error, %topic, partition = index, "the partition is offline");
                let log_config = config.log_config(&self.config.topic_defaults, self.config.durability);
                Log::unavailable(self.storage.clone(), &dir, log_config, error.to_string())
            }
            Err(error) => return Err(error),
        };
        let leader = self.preferred_leader(index);
        Ok(Partition::new(identity, log, leader, self.leader_epochs.first))
    }

    /// Creates a partition in a directory that does not exist; a `creating/` record names it.
    fn create_partition(
        &self,
        topic: &Arc<str>,
        id: Uuid,
        index: i32,
        config: &TopicConfig,
    ) -> Result<Arc<Partition>, LogError> {
        let log_config = config.log_config(&self.config.topic_defaults, self.config.durability);
        let dir = partition_dir(topic, index);
        let failed = |source| LogError::Io { dir: dir.clone(), doing: "create it".into(), source };
        self.storage.create_dir(&dir).map_err(failed)?;
        self.storage.sync_dir("").map_err(failed)?;
        data_dir::write_metadata(&*self.storage, &dir, id)?;
        let (log, _) = Log::open(self.storage.clone(), &dir, log_config, self.clock.now_ms())?;
        let identity = PartitionIdentity { topic: topic.clone(), topic_id: id, index, floor: 0 };
        Ok(Partition::new(identity, log, self.preferred_leader(index), self.leader_epochs.first))
    }

    /// Creates a topic; it is durable when this returns.
    pub(crate) fn create_topic(
        &self,
        name: &str,
        partitions: i32,
        config: TopicConfig,
        dry_run: bool,
    ) -> Result<Arc<Topic>, Refusal> {
        check_name(name)?;
        let count = if partitions == -1 { self.config.partitions_default } else { partitions };
        let max = self.config.topic_partitions_max;
        if !(1..=max).contains(&count) {
            let reason = format!("topic `{name}`: {count} partitions, allowed are 1 to {max}");
            return Err((ErrorCode::InvalidPartitions, reason));
        }
        // The journal's lock is held throughout: two creations of one name cannot both succeed.
        let mut journal = lock(&self.journal);
        self.check_free(name)?;
        let id = random_uuid(&mut lock(&self.rng));
        self.begin_creation(&mut journal, name, id, 0..count, dry_run)?;
        if dry_run {
            return Ok(Arc::new(Topic { name: name.into(), id, config, partitions: Vec::new() }));
        }
        let name: Arc<str> = name.into();
        let made = (0..count)
            .map(|index| self.create_partition(&name, id, index, &config))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| storage_refusal(&error))
            .and_then(|partitions| {
                self.end_creation(&mut journal, &name, id, count, &config)?;
                Ok(Arc::new(Topic { name: name.clone(), id, config, partitions }))
            });
        match made {
            Ok(topic) => {
                self.add(topic.clone());
                Ok(topic)
            }
            Err(refusal) => {
                self.undo_creation(&mut journal);
                Err(refusal)
            }
        }
    }

    /// Records durably the directories that will be created. Fails if one of them exists.
    fn begin_creation(
        &self,
        journal: &mut Journal,
        name: &str,
        id: Uuid,
        partitions: std::ops::Range<i32>,
        dry_run: bool,
    ) -> Result<(), Refusal> {
        if !dry_run {
            self.finish_pending(journal).map_err(|error| storage_refusal(&error))?;
        }
        for index in partitions.clone() {
            let dir = partition_dir(name, index);
            if data_dir::exists(&*self.storage, &dir).map_err(|error| storage_refusal(&error))? {
                let reason = format!(
                    "topic `{name}`: the directory {dir} exists, and no topic has it: it may hold records of an earlier \
                     one; move it away or delete it, then create the topic"
                );
                return Err(storage_refusal(&reason));
            }
        }
        if dry_run {
            return Ok(());
        }
        let record = PendingRecord {
            version: TOPIC_RECORD_VERSION,
            name: name.to_owned(),
            from: partitions.start,
            to: partitions.end,
        };
        self.put_durably(journal, &[(pending_key(CREATING_KEY, id), Some(json(&record)?))])
    }

    /// Writes entries to the journal as one batch, and makes them durable.
    fn put_durably(&self, journal: &mut Journal, entries: &[(Bytes, Option<Bytes>)]) -> Result<(), Refusal> {
        let put = journal.put_all(self.clock.now_ms(), entries);
        put.and_then(|_| self.make_durable(journal)).map_err(|error| storage_refusal(&error))
    }

    /// Records durably that the topic exists, with its number of partitions.
    fn end_creation(
        &self,
        journal: &mut Journal,
        name: &str,
        id: Uuid,
        partitions: i32,
        config: &TopicConfig,
    ) -> Result<(), Refusal> {
        let entries = [
            (topic_key(name), Some(json(&record_of(id, partitions, config))?)),
            (pending_key(CREATING_KEY, id), None),
        ];
        self.put_durably(journal, &entries)
    }

    fn undo_creation(&self, journal: &mut Journal) {
        if let Err(error) = self.finish_pending(journal) {
            tracing::warn!(%error, "a topic that was not created has left directories; the next start removes them");
        }
    }

    /// Removes the directories of every recorded deletion and of every creation that was not completed.
    fn finish_pending(&self, journal: &mut Journal) -> Result<(), OpenError> {
        for (prefix, only_begun) in [(CREATING_KEY, true), (DELETING_KEY, false)] {
            let pending: Vec<(Bytes, Uuid, PendingRecord)> = journal
                .iter_prefix(prefix.as_bytes())
                .map(|(key, value)| pending_record(prefix, key, value))
                .collect::<Result<_, _>>()?;
            for (key, id, record) in pending {
                for index in record.from..record.to {
                    let dir = partition_dir(&record.name, index);
                    if !data_dir::remove_partition(&*self.storage, &dir, id, only_begun)? {
                        tracing::error!(
                            dir,
                            topic = record.name,
                            "directory is left alone: it belongs to another topic or has records"
                        );
                    }
                }
                self.storage.sync_dir("").map_err(|source| LogError::Io {
                    dir: String::new(),
                    doing: "sync the data directory".into(),
                    source,
                })?;
                if !only_begun && journal.get(&topic_key(&record.name)).is_none() {
                    self.offsets.forget_topic(self.clock.now_ms(), &record.name)?;
                }
                journal.put(self.clock.now_ms(), key, None)?;
                self.make_durable(journal)?;
            }
        }
        Ok(())
    }

    /// Returns `true` if a name is used or collides with a used one: `a.b` and `a_b` collide in Kafka's metrics.
    fn check_free(&self, name: &str) -> Result<(), Refusal> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if state.topics.contains_key(name) {
            return Err((ErrorCode::TopicAlreadyExists, format!("topic `{name}` already exists")));
        }
        let folded = name.replace('.', "_");
        if let Some(other) = state.topics.keys().find(|other| other.replace('.', "_") == folded) {
            let reason =
                format!("topic `{name}` collides with `{other}`: `.` and `_` are the same in metric names");
            return Err((ErrorCode::InvalidTopicException, reason));
        }
        Ok(())
    }

    fn put_topic(
        &self,
        journal: &mut Journal,
        name: &str,
        id: Uuid,
        partitions: i32,
        config: &TopicConfig,
    ) -> Result<(), Refusal> {
        let value = json(&record_of(id, partitions, config))?;
        self.put_durably(journal, &[(topic_key(name), Some(value))])
    }

    /// Deletes a topic with its data.
    pub(crate) fn delete_topic(&self, name: &str) -> Result<Arc<Topic>, Refusal> {
        let mut journal = lock(&self.journal);
        let topic = self.topic(name).ok_or_else(|| unknown_topic(name))?;
        let record = PendingRecord {
            version: TOPIC_RECORD_VERSION,
            name: name.to_owned(),
            from: 0,
            to: topic.partitions.len() as i32,
        };
        let mut entries =
            vec![(topic_key(name), None), (pending_key(DELETING_KEY, topic.id), Some(json(&record)?))];
        entries.extend(without_floors(&journal, topic.id));
        self.put_durably(&mut journal, &entries)?;
        {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            state.topics.remove(name);
            state.by_id.remove(&topic.id);
        }
        for partition in &topic.partitions {
            partition.delete();
        }
        if let Err(error) = self.finish_pending(&mut journal) {
            tracing::warn!(%error, "files of a deleted topic are left; the next start removes them");
        }
        Ok(topic)
    }

    /// Adds partitions up to `count`.
    pub(crate) fn grow_topic(&self, name: &str, count: i32, dry_run: bool) -> Result<(), Refusal> {
        let mut journal = lock(&self.journal);
        let topic = self.topic(name).ok_or_else(|| unknown_topic(name))?;
        let have = topic.partitions.len() as i32;
        let max = self.config.topic_partitions_max;
        if count <= have || count > max {
            let reason =
                format!("topic `{name}` has {have} partitions: {count} is not above that and at most {max}");
            return Err((ErrorCode::InvalidPartitions, reason));
        }
        self.begin_creation(&mut journal, name, topic.id, have..count, dry_run)?;
        if dry_run {
            return Ok(());
        }
        let made = (have..count)
            .map(|index| self.create_partition(&topic.name, topic.id, index, &topic.config))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| storage_refusal(&error))
            .and_then(|made| {
                self.end_creation(&mut journal, name, topic.id, count, &topic.config)?;
                Ok(made)
            });
        match made {
            Ok(made) => {
                let partitions = topic.partitions.iter().cloned().chain(made).collect();
                self.replace(Topic { partitions, ..(*topic).clone() });
                Ok(())
            }
            Err(refusal) => {
                self.undo_creation(&mut journal);
                Err(refusal)
            }
        }
    }

    /// Sets new settings of a topic. They apply to its logs at once.
    pub(crate) fn configure_topic(
        &self,
        name: &str,
        config: TopicConfig,
        dry_run: bool,
    ) -> Result<(), Refusal> {
        let mut journal = lock(&self.journal);
        let topic = self.topic(name).ok_or_else(|| unknown_topic(name))?;
        if dry_run {
            return Ok(());
        }
        self.put_topic(&mut journal, name, topic.id, topic.partitions.len() as i32, &config)?;
        for partition in &topic.partitions {
            partition
                .log()
                .update_config(config.log_config(&self.config.topic_defaults, self.config.durability));
        }
        self.replace(Topic { config, ..(*topic).clone() });
        Ok(())
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

/// The name, the id and the record of an entry `topic/<name>`.
pub(crate) fn topic_record(key: &[u8], value: &[u8]) -> Result<(String, Uuid, TopicRecord), OpenError> {
    let text = String::from_utf8_lossy(key).into_owned();
    let bad = |reason: String| OpenError::Record { key: text.clone(), reason };
    let name = text.strip_prefix(TOPIC_KEY).unwrap_or_default().to_owned();
    check_name(&name).map_err(|(_, reason)| bad(reason))?;
    let record: TopicRecord = serde_json::from_slice(value).map_err(|error| bad(error.to_string()))?;
    check_version(record.version).map_err(bad)?;
    let id = record.id.parse().map_err(|_| bad(format!("`{}` is no topic id", record.id)))?;
    Ok((name, id, record))
}

fn pending_record(
    prefix: &str,
    key: &Bytes,
    value: &[u8],
) -> Result<(Bytes, Uuid, PendingRecord), OpenError> {
    let text = String::from_utf8_lossy(key).into_owned();
    let bad = |reason: String| OpenError::Record { key: text.clone(), reason };
    let record: PendingRecord = serde_json::from_slice(value).map_err(|error| bad(error.to_string()))?;
    check_version(record.version).map_err(bad)?;
    check_name(&record.name).map_err(|(_, reason)| bad(reason))?;
    let id = text.strip_prefix(prefix).and_then(|id| id.parse().ok());
    let id = id.ok_or_else(|| bad("the key has no topic id".to_owned()))?;
    Ok((key.clone(), id, record))
}

fn check_version(found: u32) -> Result<(), String> {
    if found <= TOPIC_RECORD_VERSION {
        return Ok(());
    }
    Err(format!("version {found}; this program knows versions up to {TOPIC_RECORD_VERSION}: run a newer one"))
}

fn record_of(id: Uuid, partitions: i32, config: &TopicConfig) -> TopicRecord {
    TopicRecord {
        version: TOPIC_RECORD_VERSION,
        id: id.to_string(),
        partitions,
        configs: config.values().clone(),
    }
}

fn json(record: &impl serde::Serialize) -> Result<Bytes, Refusal> {
    serde_json::to_vec(record)
        .map(Bytes::from)
        .map_err(|error| (ErrorCode::UnknownServerError, error.to_string()))
}

pub(crate) fn topic_key(name: &str) -> Bytes {
    format!("{TOPIC_KEY}{name}").into()
}

pub(crate) fn pending_key(prefix: &str, id: Uuid) -> Bytes {
    format!("{prefix}{id}").into()
}

fn unknown_topic(name: &str) -> Refusal {
    (ErrorCode::UnknownTopicOrPartition, format!("topic `{name}` does not exist"))
}
