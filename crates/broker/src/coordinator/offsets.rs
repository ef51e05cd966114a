//! Committed offsets, in a journal of their own: the log of changes is bounded by writing the map anew.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ottla_log::{Journal, JournalError, PendingSync};
use serde::{Deserialize, Serialize};

/// Separates group, topic and partition in a key; neither a topic's name nor a number has it.
const SEPARATOR: u8 = 0;
/// Version of the values written now.
const VALUE_VERSION: u32 = 1;

/// Where a group is in a partition.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Committed {
    version: u32,
    pub(crate) offset: i64,
    pub(crate) leader_epoch: i32,
    pub(crate) metadata: String,
    pub(crate) at_ms: i64,
}

impl Committed {
    pub(crate) fn new(offset: i64, leader_epoch: i32, metadata: String, at_ms: i64) -> Self {
        Self { version: VALUE_VERSION, offset, leader_epoch, metadata, at_ms }
    }
}

/// Every group's offsets.
#[derive(Debug)]
pub(crate) struct Offsets {
    journal: Mutex<Journal>,
}

impl Offsets {
    pub(crate) fn new(journal: Journal) -> Self {
        Self { journal: Mutex::new(journal) }
    }

    /// Stores offsets of one group, all or none; returns what must be synced for them to survive a power cut.
    pub(crate) fn commit(
        &self,
        now_ms: i64,
        group: &str,
        offsets: &[(String, i32, Committed)],
    ) -> Result<Option<PendingSync>, JournalError> {
        let entries: Vec<(Bytes, Option<Bytes>)> = offsets
            .iter()
            .map(|(topic, partition, committed)| {
                let value = serde_json::to_vec(committed).unwrap_or_default();
                (key(group, topic, *partition), Some(value.into()))
            })
            .collect();
        let mut journal = self.lock();
        journal.put_all(now_ms, &entries)?;
        Ok(journal.pending_sync())
    }

    /// Reports a sync that [`Offsets::commit`] asked for.
    pub(crate) fn sync_done(&self, synced: ottla_log::Synced) -> Result<(), JournalError> {
        self.lock().sync_done(synced).map(drop)
    }

    /// Whether the journal has grown so much that a sync would let it shrink.
    pub(crate) fn wants_sync(&self) -> bool {
        self.lock().wants_sync()
    }

    /// The offset of one partition.
    pub(crate) fn get(&self, group: &str, topic: &str, partition: i32) -> Option<Committed> {
        let journal = self.lock();
        decode(journal.get(&key(group, topic, partition))?)
    }

    /// All offsets of a group, by topic and partition.
    pub(crate) fn of_group(&self, group: &str) -> BTreeMap<(String, i32), Committed> {
        let journal = self.lock();
        let prefix = group_prefix(group);
        journal
            .iter_prefix(&prefix)
            .filter_map(|(key, value)| {
                let (topic, partition) = split(&key[prefix.len()..])?;
                Some(((topic, partition), decode(value)?))
            })
            .collect()
    }

    /// The highest offset that any group has committed for a partition; 0 if none has.
    pub(crate) fn highest(&self, topic: &str, partition: i32) -> i64 {
        let journal = self.lock();
        let of_partition = journal.iter().filter_map(|(key, value)| {
            let end = key.iter().position(|byte| *byte == SEPARATOR)?;
            let (name, index) = split(&key[end + 1..])?;
            (name == topic && index == partition).then(|| decode(value))?
        });
        of_partition.map(|committed| committed.offset).max().unwrap_or(0).max(0)
    }

    /// Every group that has offsets, by name.
    pub(crate) fn groups(&self) -> Vec<String> {
        let journal = self.lock();
        let mut names: Vec<String> = journal
            .iter()
            .filter_map(|(key, _)| {
                let end = key.iter().position(|byte| *byte == SEPARATOR)?;
                Some(String::from_utf8_lossy(&key[..end]).into_owned())
            })
            .collect();
        names.dedup();
        names
    }

    /// Forgets some of a group's offsets.
    pub(crate) fn forget(
        &self,
        now_ms: i64,
        group: &str,
        which: &[(String, i32)],
    ) -> Result<(), JournalError> {
        let entries: Vec<_> =
            which.iter().map(|(topic, partition)| (key(group, topic, *partition), None)).collect();
        self.lock().put_all(now_ms, &entries).map(drop)
    }

    /// Forgets every group's offsets of a topic, durably: a topic of the same name starts without any.
    pub(crate) fn forget_topic(&self, now_ms: i64, topic: &str) -> Result<(), JournalError> {
        let mut journal = self.lock();
        let gone: Vec<(Bytes, Option<Bytes>)> = journal
            .iter()
            .filter(|(key, _)| {
                let rest = key.iter().position(|byte| *byte == SEPARATOR).map(|end| &key[end + 1..]);
                rest.and_then(split).is_some_and(|(name, _)| name == topic)
            })
            .map(|(key, _)| (key.clone(), None))
            .collect();
        journal.put_all(now_ms, &gone)?;
        journal.sync_now().map(drop)
    }

    /// Closes the journal cleanly.
    pub(crate) fn shut(&self) -> Result<(), JournalError> {
        self.lock().shut()
    }

    fn lock(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn group_prefix(group: &str) -> Vec<u8> {
    let mut prefix = group.as_bytes().to_vec();
    prefix.push(SEPARATOR);
    prefix
}

fn key(group: &str, topic: &str, partition: i32) -> Bytes {
    let mut key = group_prefix(group);
    key.extend(topic.as_bytes());
    key.push(SEPARATOR);
    key.extend(partition.to_be_bytes());
    key.into()
}

/// Topic and partition of a key without its group.
fn split(rest: &[u8]) -> Option<(String, i32)> {
    let (front, partition) = rest.split_last_chunk::<4>()?;
    let topic = front.strip_suffix(&[SEPARATOR])?;
    Some((String::from_utf8_lossy(topic).into_owned(), i32::from_be_bytes(*partition)))
}

fn decode(value: &[u8]) -> Option<Committed> {
    serde_json::from_slice::<Committed>(value)
        .inspect_err(|error| tracing::error!(%error, "a committed offset cannot be read"))
        .ok()
        .filter(|committed| committed.version <= VALUE_VERSION)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use ottla_log::JournalConfig;
    use ottla_log::storage::Storage;
    use ottla_log::storage::mem::MemStorage;

    fn open(storage: Arc<dyn Storage>) -> Offsets {
        Offsets::new(Journal::open(storage, "offsets", JournalConfig::default(), 0).expect("opened").0)
    }

    #[test]
    fn offsets_come_back_after_a_restart_and_go_with_their_topic() {
        let storage: Arc<dyn Storage> = Arc::new(MemStorage::new());
        let offsets = open(storage.clone());
        let at = |offset| Committed::new(offset, -1, "note".into(), 7);
        let both = [("t".to_owned(), 0, at(5)), ("u".to_owned(), 3, at(9))];
        let _ = offsets.commit(1, "g", &both).expect("stored");
        let _ = offsets.commit(1, "other", &both[..1]).expect("stored");
        drop(offsets);
        let offsets = open(storage);
        assert_eq!(offsets.get("g", "t", 0), Some(at(5)));
        assert_eq!(offsets.get("g", "t", 1), None);
        assert_eq!(offsets.of_group("g").len(), 2);
        assert_eq!(offsets.groups(), ["g", "other"]);
        offsets.forget_topic(2, "t").expect("stored");
        assert_eq!(offsets.groups(), ["g"]);
        assert_eq!(offsets.of_group("g").into_keys().collect::<Vec<_>>(), [("u".to_owned(), 3)]);
    }
}
