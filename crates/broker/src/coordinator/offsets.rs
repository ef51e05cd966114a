//! Committed offsets, in a journal of their own, which compacts itself.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use ottla_log::deliberate::{DeliberateFault, has_deliberate_fault};
use ottla_log::{Journal, JournalError, PendingSync};
use serde::{Deserialize, Serialize};

/// The first byte of a key: `1 | length of the group's name u16 | name | topic | partition i32`, big-endian.
const KEY_VERSION: u8 = 1;
/// Separated group, topic and partition in keys before they had a version.
const OLD_SEPARATOR: u8 = 0;
/// Version of the values written now.
const VALUE_VERSION: u32 = 1;

/// A committed offset of a group.
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

    /// Renames the keys from before keys had a version.
    pub(crate) fn rename_old_keys(&self, now_ms: i64) -> Result<(), JournalError> {
        let mut journal = self.lock();
        let renamed: Vec<(Bytes, Option<Bytes>)> = journal
            .iter()
            .filter_map(|(old, value)| Some((old.clone(), key_of_old(old)?, value.clone())))
            .flat_map(|(old, new, value)| [(new, Some(value)), (old, None)])
            .collect();
        journal.put_all(now_ms, &renamed).map(drop)
    }

    /// Checks that every offset can be read. One that cannot would make its group start at `auto.offset.reset`.
    ///
    /// # Errors
    /// The key and the reason.
    pub(crate) fn check_values(&self) -> Result<(), (String, String)> {
        for (key, value) in self.lock().iter() {
            let name = || {
                let group = split_group(key).map_or(&key[..], |(group, _)| group);
                format!("group {}", String::from_utf8_lossy(group))
            };
            read_value(value).map_err(|reason| (name(), reason))?;
        }
        Ok(())
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
        if has_deliberate_fault(DeliberateFault::ForgottenCommits) && now_ms % 4 == 0 {
            return Ok(None);
        }
        journal.put_all(now_ms, &entries)?;
        Ok(journal.pending_sync())
    }

    /// Reports a sync that [`Offsets::commit`] asked for.
    pub(crate) fn sync_done(&self, synced: ottla_log::Synced) -> Result<(), JournalError> {
        self.lock().sync_done(synced).map(drop)
    }

    /// Returns whether the journal has grown so much that a sync would let it shrink.
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
            let (name, index) = split(split_group(key)?.1)?;
            (name == topic && index == partition).then(|| decode(value))?
        });
        of_partition.map(|committed| committed.offset).max().unwrap_or(0).max(0)
    }

    /// Every group that has offsets, by name.
    pub(crate) fn groups(&self) -> Vec<String> {
        let journal = self.lock();
        let mut names: Vec<String> = journal
            .iter()
            .filter_map(|(key, _)| Some(String::from_utf8_lossy(split_group(key)?.0).into_owned()))
            .collect();
        names.sort_unstable();
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
        let pending = {
            let mut journal = self.lock();
            let gone: Vec<(Bytes, Option<Bytes>)> = journal
                .iter()
                .filter(|(key, _)| {
                    let rest = split_group(key).and_then(|(_, rest)| split(rest));
                    rest.is_some_and(|(name, _)| name == topic)
                })
                .map(|(key, _)| (key.clone(), None))
                .collect();
            journal.put_all(now_ms, &gone)?;
            journal.pending_sync()
        };
        // Commits go on meanwhile.
        match pending {
            Some(pending) => self.sync_done(pending.run()),
            None => Ok(()),
        }
    }

    /// Closes the journal cleanly.
    pub(crate) fn shut(&self) -> Result<(), JournalError> {
        self.lock().shut()
    }

    fn lock(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether a group can have this name: one that logs and tools can show.
pub(crate) fn is_group_name(name: &str) -> bool {
    !name.chars().any(char::is_control)
}

/// Returns the common prefix of a group's keys, which no other group's keys have.
fn group_prefix(group: &str) -> Vec<u8> {
    let mut prefix = vec![KEY_VERSION];
    // Strings of the protocol that need more than 15 bits for their length do not exist.
    prefix.extend((group.len() as u16).to_be_bytes());
    prefix.extend(group.as_bytes());
    prefix
}

fn key(group: &str, topic: &str, partition: i32) -> Bytes {
    let mut key = group_prefix(group);
    key.extend(topic.as_bytes());
    key.extend(partition.to_be_bytes());
    key.into()
}

/// The group's name, and the key without it.
fn split_group(key: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = key.strip_prefix(&[KEY_VERSION])?;
    let (length, rest) = rest.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

/// Topic and partition of a key without its group.
fn split(rest: &[u8]) -> Option<(String, i32)> {
    let (topic, partition) = rest.split_last_chunk::<4>()?;
    Some((String::from_utf8_lossy(topic).into_owned(), i32::from_be_bytes(*partition)))
}

/// Converts a key without a version: `group 0 topic 0 partition`.
fn key_of_old(old: &[u8]) -> Option<Bytes> {
    if split_group(old).and_then(|(_, rest)| split(rest)).is_some() {
        return None;
    }
    let end = old.iter().position(|byte| *byte == OLD_SEPARATOR)?;
    let (topic, partition) = old[end + 1..].split_last_chunk::<4>()?;
    let topic = std::str::from_utf8(topic.strip_suffix(&[OLD_SEPARATOR])?).ok()?;
    let group = std::str::from_utf8(&old[..end]).ok()?;
    Some(key(group, topic, i32::from_be_bytes(*partition)))
}

fn decode(value: &[u8]) -> Option<Committed> {
    let read = read_value(value);
    read.inspect_err(|reason| tracing::error!(%reason, "a committed offset cannot be read")).ok()
}

fn read_value(value: &[u8]) -> Result<Committed, String> {
    let committed: Committed = serde_json::from_slice(value).map_err(|error| error.to_string())?;
    if committed.version <= VALUE_VERSION {
        return Ok(committed);
    }
    let found = committed.version;
    Err(format!("version {found}; this program knows versions up to {VALUE_VERSION}: run a newer one"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use ottla_log::JournalConfig;
    use ottla_log::storage::Storage;
    use ottla_log::storage::mem::MemStorage;

    fn open(storage: Arc<dyn Storage>) -> Offsets {
        let (journal, _) = Journal::open(storage, "offsets", JournalConfig::default(), 0).expect("opened");
        let offsets = Offsets::new(journal);
        offsets.rename_old_keys(0).expect("the journal can be written");
        offsets
    }

    /// It was ignored: the group would have started at `auto.offset.reset`.
    #[test]
    fn an_offset_of_a_newer_version_is_reported() {
        let offsets = open(Arc::new(MemStorage::new()));
        let mut newer = Committed::new(7, -1, String::new(), 0);
        newer.version = VALUE_VERSION + 1;
        offsets.commit(0, "billing", &[("orders".into(), 0, newer)]).expect("written");
        let (key, reason) = offsets.check_values().expect_err("a newer version");
        assert_eq!(key, "group billing");
        assert!(reason.starts_with("version 2; this program knows versions up to 1"), "{reason}");
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
    #[test]
    fn a_group_whose_name_begins_with_the_name_of_another_keeps_its_offsets() {
        let storage: Arc<dyn Storage> = Arc::new(MemStorage::new());
        let offsets = open(storage);
        let at = [("t".to_owned(), 0, Committed::new(5, -1, String::new(), 7))];
        for group in ["victim", "victim\0evil", "victim2", ""] {
            let _ = offsets.commit(1, group, &at).expect("stored");
        }
        assert_eq!(offsets.of_group("victim").len(), 1);
        let all: Vec<_> = offsets.of_group("victim").into_keys().collect();
        offsets.forget(2, "victim", &all).expect("stored");
        assert_eq!(offsets.groups(), ["", "victim\0evil", "victim2"]);
        assert!(!is_group_name("victim\0evil") && is_group_name("billing, Zürich"));
    }

    #[test]
    fn keys_without_a_version_are_renamed_when_the_journal_is_opened() {
        let storage: Arc<dyn Storage> = Arc::new(MemStorage::new());
        let (mut journal, _) =
            Journal::open(storage.clone(), "offsets", JournalConfig::default(), 0).expect("opened");
        let value = serde_json::to_vec(&Committed::new(5, -1, String::new(), 7)).expect("JSON");
        let old = Bytes::from_static(b"billing\0orders\0\0\0\0\x03");
        journal.put(0, old, Some(value.into())).expect("stored");
        drop(journal);
        for _ in 0..2 {
            let offsets = open(storage.clone());
            assert_eq!(offsets.groups(), ["billing"]);
            assert_eq!(offsets.get("billing", "orders", 3).map(|committed| committed.offset), Some(5));
        }
    }
}
