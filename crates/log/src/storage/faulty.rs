//! A storage whose calls fail or take longer while a rule applies, for tests of programs that must survive a bad disk.
//!
//! Without a rule, a call costs one relaxed load more than that of the storage behind it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_wire::ReadAt;

use super::{Entry, File, Open, Storage};

/// A kind of call to a disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DiskCall {
    /// Reads of files, those of the kernel for `sendfile` included, and listings.
    Read,
    /// Writes to files, and the creation, renaming and removal of files and directories.
    Write,
    /// Syncs of files and directories.
    Sync,
}

/// The effect of a rule on a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DiskEffect {
    /// The call has no effect and fails with `EIO`.
    Fail,
    /// The call has no effect and fails with `ENOSPC`. Calls that need no room work: reads, truncation, renaming and removal.
    Full,
    /// The call takes this much longer, in real time, or until the rule is removed. It blocks its thread, as a slow disk does: a thread
    /// that also removes rules cannot do that meanwhile.
    Slow(Duration),
}

/// The files that a rule is for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum DiskFiles {
    /// All, journals included.
    #[default]
    All,
    /// Those in the directory of one partition, such as `orders-0`.
    Directory(String),
    /// Those in the directories of a topic's partitions: its name, a hyphen and a number.
    Topic(String),
}

impl DiskFiles {
    fn have(&self, path: &str) -> bool {
        let dir = path.split('/').next().unwrap_or_default();
        match self {
            Self::All => true,
            Self::Directory(name) => dir == name,
            Self::Topic(topic) => {
                let number = dir.strip_prefix(&**topic).and_then(|rest| rest.strip_prefix('-'));
                number.is_some_and(|number| {
                    !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
                })
            }
        }
    }
}

/// The effect on the next calls of a kind.
///
/// ```
/// use ottla_log::storage::faulty::{DiskCall, DiskEffect, DiskFiles, DiskRule};
///
/// let rule = DiskRule { count: 3, files: DiskFiles::Topic("orders".into()), ..DiskRule::new(DiskCall::Write, DiskEffect::Full) };
/// assert_eq!(rule.call, DiskCall::Write);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DiskRule {
    /// The calls.
    pub call: DiskCall,
    /// Their effect.
    pub effect: DiskEffect,
    /// The files.
    pub files: DiskFiles,
    /// The number of calls that still have the effect; [`u32::MAX`] is every call.
    pub count: u32,
}

impl DiskRule {
    /// An effect on every call of this kind, of any file.
    pub fn new(call: DiskCall, effect: DiskEffect) -> Self {
        Self { call, effect, files: DiskFiles::All, count: u32::MAX }
    }
}

impl fmt::Display for DiskRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = match self.call {
            DiskCall::Read => "read",
            DiskCall::Write => "write",
            DiskCall::Sync => "sync",
        };
        write!(f, "{call} calls of ")?;
        match &self.files {
            DiskFiles::All => write!(f, "all files")?,
            DiskFiles::Directory(name) => write!(f, "{name}")?,
            DiskFiles::Topic(topic) => write!(f, "topic {topic}")?,
        }
        match self.effect {
            DiskEffect::Fail => write!(f, " fail")?,
            DiskEffect::Full => write!(f, " have no room")?,
            DiskEffect::Slow(time) => write!(f, " take {} ms longer", time.as_millis())?,
        }
        if self.count < u32::MAX { write!(f, " (count {})", self.count) } else { Ok(()) }
    }
}

/// The rules of a [`FaultyStorage`].
#[derive(Debug, Default)]
pub struct DiskFaults {
    /// `true` if there is a rule. Calls do not take the lock otherwise.
    any: AtomicBool,
    rules: Mutex<Rules>,
    /// Wakes slow calls when a rule is removed.
    removed: Condvar,
}

#[derive(Debug, Default)]
struct Rules {
    last_id: u64,
    by_id: BTreeMap<u64, DiskRule>,
    /// The number of slow calls that wait, by rule. A removal takes them out.
    waiting: BTreeMap<u64, usize>,
}

impl DiskFaults {
    /// Adds a rule and returns its id. One with a count of 0 has no effect.
    pub fn add(&self, rule: DiskRule) -> u64 {
        let mut rules = self.lock();
        rules.last_id += 1;
        let id = rules.last_id;
        if rule.count > 0 {
            rules.by_id.insert(id, rule);
            self.any.store(true, Ordering::Release);
        }
        id
    }

    /// Continues the ids of the rules of a disk that this one replaces: none of them becomes that of another rule.
    pub fn continue_ids(&self, before: &Self) {
        let last_id = before.lock().last_id;
        let mut rules = self.lock();
        rules.last_id = rules.last_id.max(last_id);
    }

    /// Returns the rules that still have calls to come, oldest first, with their ids.
    pub fn all(&self) -> Vec<(u64, DiskRule)> {
        self.lock().by_id.iter().map(|(id, rule)| (*id, rule.clone())).collect()
    }

    /// Removes a rule. Returns `false` if there is none with this id: its last call may have come.
    pub fn remove(&self, id: u64) -> bool {
        let mut rules = self.lock();
        let was_there = rules.by_id.remove(&id).is_some();
        // Also the calls of a rule whose last call has come.
        rules.waiting.remove(&id);
        self.removed.notify_all();
        self.any.store(!rules.by_id.is_empty(), Ordering::Release);
        was_there
    }

    /// Removes all rules.
    pub fn clear(&self) {
        let mut rules = self.lock();
        rules.by_id.clear();
        rules.waiting.clear();
        self.removed.notify_all();
        self.any.store(false, Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The effect of the oldest rule for this call, which counts it.
    fn take(&self, call: DiskCall, room: Room, path: &str) -> Option<(u64, DiskEffect)> {
        if !self.is_active() {
            return None;
        }
        let mut rules = self.lock();
        let matching = |(_, rule): &(&u64, &mut DiskRule)| {
            let concerned = room == Room::Needed || rule.effect != DiskEffect::Full;
            rule.call == call && concerned && rule.files.have(path)
        };
        let (id, rule) = rules.by_id.iter_mut().find(matching)?;
        let (id, effect) = (*id, rule.effect);
        if rule.count < u32::MAX {
            rule.count -= 1;
        }
        if rule.count == 0 {
            rules.by_id.remove(&id);
            self.any.store(!rules.by_id.is_empty(), Ordering::Release);
        }
        if matches!(effect, DiskEffect::Slow(_)) {
            *rules.waiting.entry(id).or_default() += 1;
        }
        Some((id, effect))
    }

    /// Blocks the thread for a slow call.
    fn wait(&self, rule: u64, time: Duration) {
        let is_waiting = |rules: &mut Rules| rules.waiting.contains_key(&rule);
        let waited = self.removed.wait_timeout_while(self.lock(), time, is_waiting);
        let (mut rules, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = rules.waiting.get_mut(&rule) {
            *count -= 1;
            if *count == 0 {
                rules.waiting.remove(&rule);
            }
        }
    }

    fn is_active(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// `true` if the next read of this file has a rule.
    fn affect_reads_of(&self, path: &str) -> bool {
        let affects = |rule: &DiskRule| {
            rule.call == DiskCall::Read && rule.effect != DiskEffect::Full && rule.files.have(path)
        };
        self.is_active() && self.lock().by_id.values().any(affects)
    }

    /// Fails or delays a call that has a rule.
    fn begin(&self, call: DiskCall, path: &str) -> io::Result<()> {
        let room = match call {
            DiskCall::Read => Room::NotNeeded,
            DiskCall::Write | DiskCall::Sync => Room::Needed,
        };
        self.begin_with(call, room, path)
    }

    fn begin_with(&self, call: DiskCall, room: Room, path: &str) -> io::Result<()> {
        match self.take(call, room, path) {
            None => Ok(()),
            Some((_, DiskEffect::Fail)) => Err(rustix::io::Errno::IO.into()),
            Some((_, DiskEffect::Full)) => Err(rustix::io::Errno::NOSPC.into()),
            Some((rule, DiskEffect::Slow(time))) => {
                self.wait(rule, time);
                Ok(())
            }
        }
    }
}

/// The need of a call for room on the disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Room {
    Needed,
    NotNeeded,
}

/// A storage with the effects of [`DiskFaults`].
#[derive(Debug)]
pub struct FaultyStorage {
    inner: Arc<dyn Storage>,
    faults: Arc<DiskFaults>,
}

impl FaultyStorage {
    /// A storage in front of `inner`, with the effects of the rules that `faults` has at the time of each call.
    pub fn new(inner: Arc<dyn Storage>, faults: Arc<DiskFaults>) -> Self {
        Self { inner, faults }
    }
}

impl Storage for FaultyStorage {
    fn root(&self) -> Option<&Path> {
        self.inner.root()
    }

    fn files_left(&self) -> usize {
        self.inner.files_left()
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.faults.begin(DiskCall::Write, path)?;
        self.inner.create_dir(path)
    }

    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn File>> {
        if how != Open::Existing {
            self.faults.begin(DiskCall::Write, path)?;
        }
        let (inner, faults) = (self.inner.open(path, how)?, self.faults.clone());
        Ok(Arc::new(FaultyFile { inner, faults, path: path.into() }))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        self.faults.begin(DiskCall::Read, dir)?;
        self.inner.list(dir)
    }

    fn file_len(&self, path: &str) -> io::Result<u64> {
        self.inner.file_len(path)
    }

    fn modified_ms(&self, path: &str) -> io::Result<Option<i64>> {
        self.inner.modified_ms(path)
    }

    fn set_modified_ms(&self, path: &str, modified_ms: i64) -> io::Result<()> {
        self.inner.set_modified_ms(path, modified_ms)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.faults.begin_with(DiskCall::Write, Room::NotNeeded, from)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.faults.begin_with(DiskCall::Write, Room::NotNeeded, path)?;
        self.inner.remove(path)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.faults.begin_with(DiskCall::Write, Room::NotNeeded, path)?;
        self.inner.remove_dir(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.faults.begin(DiskCall::Sync, dir)?;
        self.inner.sync_dir(dir)
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn File>,
    faults: Arc<DiskFaults>,
    path: Box<str>,
}

impl ReadAt for FaultyFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.faults.begin(DiskCall::Read, &self.path)?;
        self.inner.read_exact_at(buf, offset)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        // The kernel would read without asking for the rules.
        if self.faults.affect_reads_of(&self.path) { None } else { self.inner.fd() }
    }

    fn is_cached(&self, offset: u64, len: usize) -> bool {
        !self.faults.affect_reads_of(&self.path) && self.inner.is_cached(offset, len)
    }
}

impl File for FaultyFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.faults.begin(DiskCall::Write, &self.path)?;
        self.inner.write_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let grows = || self.inner.len().is_ok_and(|now| len > now);
        let room = if self.faults.is_active() && grows() { Room::Needed } else { Room::NotNeeded };
        self.faults.begin_with(DiskCall::Write, room, &self.path)?;
        self.inner.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.faults.begin(DiskCall::Sync, &self.path)?;
        self.inner.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::mem::MemStorage;

    fn disk() -> (FaultyStorage, Arc<DiskFaults>) {
        let faults = Arc::new(DiskFaults::default());
        let storage = FaultyStorage::new(Arc::new(MemStorage::new()), faults.clone());
        storage.create_dir("orders-0").expect("created");
        storage.create_dir("orders-eu-0").expect("created");
        (storage, faults)
    }

    #[test]
    fn a_rule_is_for_its_calls_its_files_and_its_count() {
        let (storage, faults) = disk();
        let orders = storage.open("orders-0/a.log", Open::Create).expect("created");
        let other = storage.open("orders-eu-0/a.log", Open::Create).expect("created");
        let files = DiskFiles::Topic("orders".to_owned());
        faults.add(DiskRule { files, count: 2, ..DiskRule::new(DiskCall::Write, DiskEffect::Full) });
        other.write_at(b"x", 0).expect("another topic");
        orders.sync_data().expect("no write");
        for _ in 0..2 {
            let error = orders.write_at(b"x", 0).expect_err("the disk is full");
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
            orders.set_len(0).expect("a truncation needs no room");
        }
        orders.write_at(b"x", 0).expect("the rule has ended");
        assert_eq!(faults.all(), []);
    }

    #[test]
    fn a_rule_is_described_in_words() {
        let files = DiskFiles::Directory("orders-0".to_owned());
        let full = DiskRule { files, count: 3, ..DiskRule::new(DiskCall::Write, DiskEffect::Full) };
        assert_eq!(full.to_string(), "write calls of orders-0 have no room (count 3)");
        let slow = DiskRule::new(DiskCall::Sync, DiskEffect::Slow(Duration::from_millis(50)));
        assert_eq!(slow.to_string(), "sync calls of all files take 50 ms longer");
        let files = DiskFiles::Topic("orders".to_owned());
        let failing = DiskRule { files, ..DiskRule::new(DiskCall::Read, DiskEffect::Fail) };
        assert_eq!(failing.to_string(), "read calls of topic orders fail");
    }

    #[test]
    fn a_removed_rule_has_no_effect() {
        let (storage, faults) = disk();
        let file = storage.open("orders-0/a.log", Open::Create).expect("created");
        let id = faults.add(DiskRule::new(DiskCall::Sync, DiskEffect::Fail));
        file.sync_data().expect_err("a rule for every call");
        file.sync_data().expect_err("a rule for every call");
        assert!(faults.remove(id) && !faults.remove(id));
        file.sync_data().expect("no rule");
    }

    #[test]
    fn reads_with_a_rule_are_neither_cached_nor_the_kernels() {
        let dir = tempfile::tempdir().expect("a directory");
        let inner = Arc::new(crate::storage::fs::FsStorage::new(dir.path()).expect("opened"));
        let faults = Arc::new(DiskFaults::default());
        let storage = FaultyStorage::new(inner, faults.clone());
        storage.create_dir("orders-0").expect("created");
        let file = storage.open("orders-0/a.log", Open::Create).expect("created");
        file.write_at(b"x", 0).expect("written");
        assert!(file.fd().is_some());
        let files = DiskFiles::Directory("orders-0".to_owned());
        faults.add(DiskRule { files, ..DiskRule::new(DiskCall::Read, DiskEffect::Fail) });
        assert!(file.fd().is_none() && !file.is_cached(0, 1));
        file.read_exact_at(&mut [0], 0).expect_err("the disk fails");
    }

    /// Reads failed with `ENOSPC`, which no disk returns for them.
    #[test]
    fn a_full_disk_can_be_read() {
        let (storage, faults) = disk();
        let file = storage.open("orders-0/a.log", Open::Create).expect("created");
        file.write_at(b"x", 0).expect("written");
        for call in [DiskCall::Read, DiskCall::Write, DiskCall::Sync] {
            faults.add(DiskRule::new(call, DiskEffect::Full));
        }
        file.read_exact_at(&mut [0], 0).expect("a read needs no room");
        assert!(!storage.list("orders-0").expect("nor does a listing").is_empty());
        file.write_at(b"x", 1).expect_err("a write does");
    }

    /// It blocked its thread for its whole time, whatever a test did.
    #[test]
    fn a_slow_call_ends_when_its_rule_is_removed() {
        let (storage, faults) = disk();
        for count in [1, u32::MAX] {
            let slow = DiskEffect::Slow(Duration::from_secs(3600));
            let id = faults.add(DiskRule { count, ..DiskRule::new(DiskCall::Sync, slow) });
            std::thread::scope(|scope| {
                let slow = scope.spawn(|| storage.sync_dir("orders-0"));
                while faults.lock().waiting.is_empty() {
                    std::thread::yield_now();
                }
                assert_eq!(faults.remove(id), count != 1, "the last call of a rule has come");
                slow.join().expect("no panic").expect("it was only slow");
            });
            assert!(faults.lock().waiting.is_empty());
        }
    }
}
