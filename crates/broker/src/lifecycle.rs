//! The creation and deletion of topics. The order of journal records and directory changes makes every crash
//! recoverable.
//!
//! ```text
//! create:  put creating/<id>            directories            put topic/<name>, remove creating/<id>
//! delete:  remove topic/<name>, put deleting/<id>       directories       remove deleting/<id>
//! ```
//!
//! A directory is removed only if a durable `creating/`, `importing/` or `deleting/` record names it and its `partition.metadata` has
//! the same id. Any other directory is left alone, and no topic is created over it.
//!
//! These calls block for syncs. Requests make them through [`Cluster::change_topics`], on a thread that may block. One
//! change runs at a time; the journal's lock is free during syncs and directory changes, because appends need it, too.

pub(crate) mod import;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ottla_log::{Log, LogConfig, LogError};
use ottla_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

use crate::cleaner_points;
use crate::cluster::{Cluster, OpenError, Refusal, json, lock, random_uuid, storage_refusal};
use crate::config::TopicConfig;
use crate::data_dir;
use crate::internal_topics::{self, is_internal};
use crate::offset_floors::without_floors;
use crate::partition::{Partition, PartitionIdentity};
use crate::topics::{
    Assignments, METADATA_TOPIC, NewTopic, OngoingReassignments, PendingRecord, TOPIC_KEY,
    TOPIC_RECORD_VERSION, Topic, TopicRecord, check_name, folded_name, partition_dir, record_of, topic_key,
};

pub(crate) const CREATING_KEY: &str = "creating/";
pub(crate) const DELETING_KEY: &str = "deleting/";
/// An import that is not complete: a start removes its directories. A repair does not, as the damage may be in its completion.
pub(crate) const IMPORTING_KEY: &str = "importing/";

/// The partitions of a topic that are created; the topic may have others already.
struct Creation {
    name: Arc<str>,
    id: Uuid,
    config: TopicConfig,
    replication: i32,
    assignments: Assignments,
    partitions: Range<i32>,
}

impl Creation {
    fn into_topic(self, partitions: Vec<Arc<Partition>>) -> Topic {
        let Self { name, id, config, replication, assignments, .. } = self;
        let reassignments = OngoingReassignments::new();
        Topic { name, id, config, replication, assignments, reassignments, partitions }
    }
}

/// The names and the number of partitions that earlier topics of the same request take.
#[derive(Default)]
struct Planned {
    names: BTreeMap<String, String>,
    partitions: usize,
    /// Names of deleted topics that coordinators have records of.
    remembered: BTreeSet<String>,
}

impl Cluster {
    /// Creates a topic; it is durable when this returns.
    pub(crate) fn create_topic(&self, topic: NewTopic, dry_run: bool) -> Result<Arc<Topic>, Refusal> {
        let mut created = self.create_topics(vec![topic], dry_run, &mut |_| Ok(()));
        created.pop().unwrap_or_else(|| Err(storage_refusal("no result")))
    }

    /// Creates topics, each of them or not at all; they are durable when this returns. Several topics share their syncs. `admit` is
    /// called with the number of partitions of each topic that passes the other checks.
    pub(crate) fn create_topics(
        &self,
        topics: Vec<NewTopic>,
        dry_run: bool,
        admit: &mut dyn FnMut(usize) -> Result<(), Refusal>,
    ) -> Vec<Result<Arc<Topic>, Refusal>> {
        let _change = lock(&self.topic_changes);
        let mut planned = Planned::default();
        if !dry_run {
            planned.remembered = self.finish_pending();
        }
        let checked = topics.into_iter().map(|topic| {
            let creation = self.check_new(topic, &planned)?;
            let count = creation.partitions.end as usize;
            admit(count)?;
            let name = creation.name.to_string();
            planned.partitions += if is_internal(&name) { 0 } else { count };
            planned.names.insert(folded_name(&name), name);
            Ok(creation)
        });
        let checked: Vec<Result<Creation, Refusal>> = checked.collect();
        if dry_run {
            let described = |creation: Creation| Arc::new(creation.into_topic(Vec::new()));
            return checked.into_iter().map(|creation| creation.map(described)).collect();
        }
        let creations: Vec<&Creation> = checked.iter().flatten().collect();
        let mut made = self.create_all(&creations).into_iter();
        let results = checked.into_iter().map(|creation| {
            let creation = creation?;
            let partitions = made.next().unwrap_or_else(|| Err(storage_refusal("no result")))?;
            let topic = Arc::new(creation.into_topic(partitions));
            self.add(topic.clone());
            self.lead_created(&topic, 0);
            Ok(topic)
        });
        results.collect()
    }

    /// Checks everything that needs no change.
    fn check_new(&self, topic: NewTopic, planned: &Planned) -> Result<Creation, Refusal> {
        let NewTopic { name, partitions, config, replication, assignments } = topic;
        self.check_may_create(&name)?;
        self.check_config(&config)?;
        let count = if partitions == -1 { self.config.partitions_default } else { partitions };
        if count < 1 {
            let reason = format!("topic `{name}`: {count} partitions; use 1 or more, or -1");
            return Err((ErrorCode::InvalidPartitions, reason));
        }
        self.check_count(&name, count)?;
        check_replica_lists(&config, count as usize)?;
        let replication = self.check_replication(&name, replication)?;
        self.check_free(&name, planned)?;
        if planned.remembered.contains(&name) {
            let reason = format!(
                "topic `{name}` was deleted, and offsets that groups have committed to it could not be removed: the log names the \
                 partition that cannot be read or written; the next creation and the next start try again"
            );
            return Err(storage_refusal(&reason));
        }
        self.check_total(&name, planned.partitions, count)?;
        self.check_directories(&name, 0..count)?;
        let placed = if assignments.is_empty() {
            self.place(0..count, replication as usize, replication)
        } else {
            assignments
        };
        let id = random_uuid(&mut lock(&self.rng));
        let (name, partitions) = (name.into(), 0..count);
        Ok(Creation { name, id, config, replication, assignments: placed, partitions })
    }

    /// Refuses more partitions than a topic may have. As in Kafka, too many are not a wrong number, but against a policy.
    fn check_count(&self, name: &str, partitions: i32) -> Result<(), Refusal> {
        let max = self.config.topic_partitions_max;
        if partitions <= max {
            return Ok(());
        }
        let reason = format!("topic `{name}`: {partitions} partitions, a topic has at most {max}");
        Err((ErrorCode::PolicyViolation, reason))
    }

    /// Refuses a name that no topic can have, or that a topic has.
    pub(crate) fn check_may_create(&self, name: &str) -> Result<(), Refusal> {
        check_name(name)?;
        if name == METADATA_TOPIC {
            let reason = format!("topic `{name}` is Kafka's own: no client may create it");
            return Err((ErrorCode::InvalidRequest, reason));
        }
        self.check_free(name, &Planned::default())
    }

    /// Refuses settings of a topic that contradict each other, or the broker's.
    pub(crate) fn check_config(&self, config: &TopicConfig) -> Result<(), Refusal> {
        config.check_together(&self.topic_defaults()).map_err(|reason| (ErrorCode::InvalidConfig, reason))
    }

    /// Returns the replication factor of new partitions. Refuses more replicas than there are nodes.
    pub(crate) fn check_replication(&self, name: &str, replication: i32) -> Result<i32, Refusal> {
        let nodes = self.node_ids().count() as i32;
        if replication < 1 {
            return Ok(self.config.replication_default.min(nodes));
        }
        if replication <= nodes {
            return Ok(replication);
        }
        let there = if nodes == 1 { "is 1 node".to_owned() } else { format!("are {nodes} nodes") };
        let reason = format!(
            "topic `{name}`: replication factor {replication}, but there {there}; start the broker with --nodes {replication}"
        );
        Err((ErrorCode::InvalidReplicationFactor, reason))
    }

    /// Refuses a name that is used or collides with a used one: `a.b` and `a_b` collide in Kafka's metrics.
    fn check_free(&self, name: &str, planned: &Planned) -> Result<(), Refusal> {
        let folded = folded_name(name);
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let other = state.by_folded_name.get(&folded).map(|other| &**other);
        match other.or_else(|| planned.names.get(&folded).map(String::as_str)) {
            None => Ok(()),
            Some(other) if other == name => {
                Err((ErrorCode::TopicAlreadyExists, format!("topic `{name}` already exists")))
            }
            Some(other) => {
                let reason = format!(
                    "topic `{name}` collides with `{other}`: `.` and `_` are the same in metric names"
                );
                Err((ErrorCode::InvalidTopicException, reason))
            }
        }
    }

    /// Refuses more partitions than the broker may have in all.
    fn check_total(&self, name: &str, planned: usize, more: i32) -> Result<(), Refusal> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        if is_internal(name) {
            return Ok(());
        }
        // The coordinators' own topics leave the clients' share as it is.
        let topics = state.topics.values().filter(|topic| !is_internal(&topic.name));
        let have = planned + topics.map(|topic| topic.partitions.len()).sum::<usize>();
        let max = self.config.partitions_total_max;
        if have + more.max(0) as usize <= max {
            return Ok(());
        }
        let reason = format!(
            "topic `{name}`: the broker has {have} partitions, {more} more would exceed partitions.total.max={max}"
        );
        Err((ErrorCode::PolicyViolation, reason))
    }

    /// Refuses directories that exist although no topic has them.
    fn check_directories(&self, name: &str, partitions: Range<i32>) -> Result<(), Refusal> {
        for index in partitions {
            let dir = partition_dir(name, index);
            if data_dir::exists(&*self.storage, &dir).map_err(|error| storage_refusal(&error))? {
                let reason = format!(
                    "topic `{name}`: the directory {dir} exists, and no topic has it: it may hold records of an earlier \
                     one; move it away or delete it, then create the topic"
                );
                return Err(storage_refusal(&reason));
            }
        }
        Ok(())
    }

    /// Creates the partitions of each creation and records them in the journal. A creation that fails leaves nothing.
    fn create_all(&self, creations: &[&Creation]) -> Vec<Result<Vec<Arc<Partition>>, Refusal>> {
        if creations.is_empty() {
            return Vec::new();
        }
        let stored = self.cleaner_points.store_if_dirty();
        let failed = |error| storage_refusal(&format!("cannot store {}: {error}", cleaner_points::FILE_NAME));
        let begun = stored.map_err(failed).and_then(|()| self.begin_creations(creations));
        let made = begun.map(|()| {
            let made = creations.iter().map(|creation| self.create_partitions(creation));
            self.end_creations(creations, made.collect())
        });
        let made = made.unwrap_or_else(|refusal| creations.iter().map(|_| Err(refusal.clone())).collect());
        if made.iter().any(Result::is_err) {
            self.finish_pending();
        }
        made
    }

    /// Records durably the directories that will be created.
    fn begin_creations(&self, creations: &[&Creation]) -> Result<(), Refusal> {
        let entries = creations.iter().map(|creation| {
            let record = PendingRecord {
                version: TOPIC_RECORD_VERSION,
                name: creation.name.to_string(),
                from: creation.partitions.start,
                to: creation.partitions.end,
            };
            Ok((pending_key(CREATING_KEY, creation.id), Some(json(&record)?)))
        });
        self.put_durably(&entries.collect::<Result<Vec<_>, Refusal>>()?)
    }

    /// Creates the partitions of a topic in directories that do not exist; a `creating/` record names them.
    fn create_partitions(&self, creation: &Creation) -> Result<Vec<Arc<Partition>>, Refusal> {
        let indexes: Vec<i32> = creation.partitions.clone().collect();
        let made = self.syncer.map_all(&indexes, |index| self.create_partition(creation, *index));
        made.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| storage_refusal(&error))
    }

    /// The settings of a topic's logs.
    pub(crate) fn log_config(&self, topic: &str, config: &TopicConfig) -> LogConfig {
        let mut log_config = config.log_config(&self.topic_defaults(), self.config.durability);
        internal_topics::limit_memory(topic, &mut log_config);
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        log_config.producer_expiration_ms = ms(self.live.broker().producer_expiration);
        log_config.producer_check_ms = ms(self.config.producer_expiration_check);
        log_config.producer_total = self.producer_total.clone();
        log_config.cache_total = self.cache_total.clone();
        log_config.jitter_seed = self.jitter_seed;
        log_config
    }

    fn create_partition(&self, creation: &Creation, index: i32) -> Result<Arc<Partition>, LogError> {
        let Creation { name, id, config, replication, assignments, .. } = creation;
        let log_config = self.log_config(name, config);
        let dir = partition_dir(name, index);
        let failed = |source| LogError::Io { dir: dir.clone(), doing: "create it".into(), source };
        self.storage.create_dir(&dir).map_err(failed)?;
        data_dir::write_metadata(&*self.storage, &dir, *id)?;
        let (log, _) = Log::open(self.storage.clone(), &dir, log_config, self.clock.now_ms())?;
        let identity = PartitionIdentity { topic: name.clone(), topic_id: *id, index, floor: 0 };
        let leader = self.first_leader(assignments, *replication, index);
        Ok(Partition::new(identity, log, leader, self.leader_epochs.first))
    }

    /// Records durably that the topics exist whose partitions were created, with their number of partitions.
    fn end_creations(
        &self,
        creations: &[&Creation],
        made: Vec<Result<Vec<Arc<Partition>>, Refusal>>,
    ) -> Vec<Result<Vec<Arc<Partition>>, Refusal>> {
        let mut entries = Vec::new();
        for creation in
            creations.iter().zip(&made).filter_map(|(creation, made)| made.is_ok().then_some(creation))
        {
            match json(&record_of(
                creation.id,
                creation.partitions.end,
                &creation.config,
                creation.replication,
                self.stored_assignments(&creation.assignments),
            )) {
                Ok(record) => entries.push((topic_key(&creation.name), Some(record))),
                Err(refusal) => return made.into_iter().map(|made| made.and(Err(refusal.clone()))).collect(),
            }
            entries.push((pending_key(CREATING_KEY, creation.id), None));
        }
        let recorded = match self.storage.sync_dir("") {
            Ok(()) => self.put_durably(&entries),
            Err(error) => Err(storage_refusal(&error)),
        };
        match recorded {
            Ok(()) => made,
            Err(refusal) => made.into_iter().map(|made| made.and(Err(refusal.clone()))).collect(),
        }
    }

    /// Writes entries to the journal as one batch, and makes them durable.
    pub(crate) fn put_durably(&self, entries: &[(Bytes, Option<Bytes>)]) -> Result<(), Refusal> {
        let put = lock(&self.journal).put_all(self.clock.now_ms(), entries);
        put.and_then(|record| self.sync_journal(record)).map_err(|error| storage_refusal(&error))
    }

    /// Removes the directories of every recorded deletion and of every creation that was not completed. A record that cannot be
    /// completed is logged and stays, until the next call: it must not stop the other topics.
    ///
    /// Returns the names of deleted topics of which coordinators have records yet: no topic may have them.
    pub(crate) fn finish_pending(&self) -> BTreeSet<String> {
        let mut remembered = BTreeSet::new();
        // A record that is not durable removes nothing: its topic may still be served.
        let record = lock(&self.journal).end_offset();
        if let Err(error) = self.sync_journal(record) {
            tracing::error!(%error, "deletions and creations of topics are not completed: the journal of topics cannot be synced");
            return remembered;
        }
        for (prefix, only_begun) in [(CREATING_KEY, true), (IMPORTING_KEY, false), (DELETING_KEY, false)] {
            let pending: Vec<_> = lock(&self.journal)
                .iter_prefix(prefix.as_bytes())
                .map(|(key, value)| pending_record(prefix, key, value))
                .collect();
            for record in pending {
                let (key, id, record) = match record {
                    Ok(record) => record,
                    Err(error) => {
                        tracing::error!(%error, "a deletion or creation of a topic cannot be completed");
                        continue;
                    }
                };
                if let Err(error) = self.finish_record(key, id, &record, only_begun, &mut remembered) {
                    tracing::error!(%error, topic = record.name,
                        "a deletion or creation of a topic cannot be completed: remove what is left in its directories, or make \
                         it removable; the next creation of a topic and the next start try again");
                }
            }
        }
        remembered
    }

    fn finish_record(
        &self,
        key: Bytes,
        id: Uuid,
        record: &PendingRecord,
        only_begun: bool,
        remembered: &mut BTreeSet<String>,
    ) -> Result<(), OpenError> {
        let removed = self.remove_directories(id, record, only_begun);
        if !only_begun {
            // Also if a directory is left: a topic of that name can be created in other ones.
            self.forget_deleted(id, &record.name).inspect_err(|_| {
                remembered.insert(record.name.clone());
            })?;
        }
        removed?;
        let done = {
            let mut journal = lock(&self.journal);
            let mut entries = vec![(key, None)];
            // An append that was under way during the deletion may have written a floor.
            if !only_begun {
                entries.extend(without_floors(&journal, id));
            }
            journal.put_all(self.clock.now_ms(), &entries)?
        };
        Ok(self.sync_journal(done)?)
    }

    /// Removes the directories of a record, also those behind one that cannot be removed.
    fn remove_directories(&self, id: Uuid, record: &PendingRecord, only_begun: bool) -> Result<(), LogError> {
        let mut first_error = Ok(());
        // Partitions of a topic that was created with this name meanwhile, for which the directories were free.
        let key = topic_key(&record.name);
        let others = lock(&self.journal).get(&key).map_or(0, |value| {
            topic_record(&key, value).map_or(i32::MAX, |(_, _, record)| record.partitions)
        });
        for index in record.from.max(others)..record.to {
            let dir = partition_dir(&record.name, index);
            match data_dir::remove_partition(&*self.storage, &dir, id, only_begun) {
                Ok(true) => {}
                Ok(false) => tracing::error!(
                    dir,
                    topic = record.name,
                    "directory is left alone: it belongs to another topic or has records"
                ),
                Err(error) => first_error = first_error.and(Err(error)),
            }
        }
        first_error?;
        self.storage.sync_dir("").map_err(|source| LogError::Io {
            dir: String::new(),
            doing: "sync the data directory".into(),
            source,
        })
    }

    /// Removes the coordinators' records of a deleted topic.
    fn forget_deleted(&self, id: Uuid, name: &str) -> Result<(), OpenError> {
        let exists = lock(&self.journal).get(&topic_key(name)).is_some();
        // An error of one stops none of the others.
        let offsets = if exists { Ok(()) } else { self.forget_topic(name) };
        let groups = self.forget_share_topic(id);
        self.share_leader.forget_topic(id);
        let states = self.forget_share_states(id);
        offsets.and(groups).and(states)
    }

    /// Deletes a topic with its data.
    pub(crate) fn delete_topic(
        &self,
        name: &str,
        admit: &mut dyn FnMut(usize) -> Result<(), Refusal>,
    ) -> Result<Arc<Topic>, Refusal> {
        let _change = lock(&self.topic_changes);
        let topic = self.topic(name).ok_or_else(|| unknown_topic(name))?;
        check_not_internal(name, "deleted")?;
        admit(topic.partitions.len())?;
        let record = PendingRecord {
            version: TOPIC_RECORD_VERSION,
            name: name.to_owned(),
            from: 0,
            to: topic.partitions.len() as i32,
        };
        let mut entries =
            vec![(topic_key(name), None), (pending_key(DELETING_KEY, topic.id), Some(json(&record)?))];
        entries.extend(without_floors(&lock(&self.journal), topic.id));
        if let Err(refusal) = self.put_durably(&entries) {
            if lock(&self.journal).offline_reason().is_some() {
                // The journal may have the deletion: the next start would remove what is acknowledged from now on.
                topic.partitions.iter().for_each(|partition| partition.log().note_half_deleted());
            }
            return Err(refusal);
        }
        self.remove(&topic);
        self.overrides.forget_topic(name);
        for partition in &topic.partitions {
            partition.delete();
        }
        for partition in &topic.partitions {
            partition.await_compaction();
            partition.close_deleted_log();
        }
        // Its deletion makes room on a full disk.
        self.finish_pending();
        self.forget_cleaner_points();
        Ok(topic)
    }

    /// Adds partitions up to `count`; `chosen` has their replicas if the client chooses them.
    pub(crate) fn grow_topic(
        &self,
        name: &str,
        count: i32,
        chosen: Option<Vec<Vec<i32>>>,
        dry_run: bool,
        admit: &mut dyn FnMut(usize) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let _change = lock(&self.topic_changes);
        let topic = self.topic(name).ok_or_else(|| unknown_topic(name))?;
        check_not_internal(name, "given more partitions")?;
        let have = topic.partitions.len() as i32;
        if count <= have {
            let reason = format!("topic `{name}` has {have} partitions: {count} is not above that");
            return Err((ErrorCode::InvalidPartitions, reason));
        }
        self.check_count(name, count)?;
        let assignments = self.grown_assignments(&topic, count - have, chosen)?;
        self.check_total(name, 0, count - have)?;
        if !dry_run {
            self.finish_pending();
        }
        self.check_directories(name, have..count)?;
        if dry_run {
            return Ok(());
        }
        admit((count - have) as usize)?;
        let creation = Creation {
            name: topic.name.clone(),
            id: topic.id,
            config: topic.config.clone(),
            replication: topic.replication,
            assignments: assignments.clone(),
            partitions: have..count,
        };
        let made =
            self.create_all(&[&creation]).pop().unwrap_or_else(|| Err(storage_refusal("no result")))?;
        let partitions = topic.partitions.iter().cloned().chain(made).collect();
        let grown = Topic { assignments, partitions, ..(*topic).clone() };
        self.replace(grown.clone());
        self.lead_created(&grown, have as usize);
        Ok(())
    }

    /// Changes the settings of a topic. They apply to its logs at once.
    pub(crate) fn configure_topic(
        &self,
        name: &str,
        change: impl FnOnce(&TopicConfig) -> Result<TopicConfig, Refusal>,
        dry_run: bool,
    ) -> Result<(), Refusal> {
        let _change = lock(&self.topic_changes);
        if name.is_empty() {
            let reason = "settings of all topics are settings of the broker: name a topic".to_owned();
            return Err((ErrorCode::InvalidRequest, reason));
        }
        check_name(name)?;
        self.settle_reassignments_of(name, Instant::now());
        let topic = self.topic(name).ok_or_else(|| unknown_topic(name))?;
        let config = change(&topic.config)?;
        self.check_config(&config)?;
        check_replica_lists(&config, topic.partitions.len())?;
        if dry_run {
            return Ok(());
        }
        let partitions = topic.partitions.len() as i32;
        let replicas = self.stored_assignments(&topic.assignments);
        let record = record_of(topic.id, partitions, &config, topic.replication, replicas);
        self.put_durably(&[(topic_key(name), Some(json(&record)?))])?;
        for partition in &topic.partitions {
            partition.update_config(self.log_config(name, &config));
        }
        self.replace(Topic { config, ..(*topic).clone() });
        self.settle_reassignments_of(name, Instant::now());
        Ok(())
    }
}

fn check_replica_lists(config: &TopicConfig, partitions: usize) -> Result<(), Refusal> {
    config.check_replica_lists(partitions).map_err(|reason| (ErrorCode::InvalidConfig, reason))
}

/// The name, the id and the record of an entry `topic/<name>`.
pub(crate) fn topic_record(key: &[u8], value: &[u8]) -> Result<(String, Uuid, TopicRecord), OpenError> {
    let text = String::from_utf8_lossy(key).into_owned();
    let bad = |reason: String| OpenError::Record { journal: data_dir::META_DIR, key: text.clone(), reason };
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
    let bad = |reason: String| OpenError::Record { journal: data_dir::META_DIR, key: text.clone(), reason };
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

pub(crate) fn pending_key(prefix: &str, id: Uuid) -> Bytes {
    format!("{prefix}{id}").into()
}

/// Refuses changes that would take the coordinators' records away from them.
fn check_not_internal(name: &str, change: &str) -> Result<(), Refusal> {
    if !is_internal(name) {
        return Ok(());
    }
    let reason = format!("topic `{name}` has the state of groups or transactions: it cannot be {change}");
    Err((ErrorCode::InvalidTopicException, reason))
}

fn unknown_topic(name: &str) -> Refusal {
    (ErrorCode::UnknownTopicOrPartition, format!("topic `{name}` does not exist"))
}
