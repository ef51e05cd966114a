//! Files in memory: for tests and simulation, where crashes can tear them and calls can fail, and for brokers without
//! durable data.
//!
//! The crash model is stricter than most disks: bytes that were not synced survive in any part, by prefix or by
//! sector; a name that was not synced with its directory may be gone even though the file's bytes were synced; a
//! failed sync drops what it should have written, and later syncs do not bring it back.

mod damage;
mod model;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla_wire::ReadAt;

use self::model::{DataOp, Inode, NameOp, Names, Pages, apply_data, parent};
use super::{Entry, File, Open, Storage, check_path};

/// A disk in memory. Clones are the same disk.
#[derive(Clone)]
pub struct MemStorage {
    disk: Arc<Disk>,
}

/// A call that changes the disk or reads from it, as a fault hook sees it.
#[derive(Clone, Copy, Debug)]
pub struct Op<'a> {
    /// The number of changing calls before this one. Reads do not count.
    pub index: u64,
    /// The operation.
    pub kind: OpKind,
    /// The file or directory.
    pub path: &'a str,
}

/// The operations that a hook can make fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[expect(missing_docs, reason = "the names of the calls")]
pub enum OpKind {
    CreateDir,
    Create,
    Write,
    SetLen,
    SyncData,
    SyncDir,
    Rename,
    Remove,
    Read,
}

/// The faults of the disk.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// `EIO`: nothing is written.
    Io,
    /// `ENOSPC`: nothing is written.
    NoSpace,
    /// `ENOSPC` after half of the bytes; on other calls the same as [`Fault::NoSpace`].
    ShortWrite,
    /// The call may or may not reach the disk, and every later one fails until [`MemStorage::crash`].
    PowerCut,
}

impl Fault {
    fn error(self) -> io::Error {
        match self {
            Self::Io => rustix::io::Errno::IO.into(),
            Self::NoSpace | Self::ShortWrite => rustix::io::Errno::NOSPC.into(),
            Self::PowerCut => io::Error::other("the power is cut"),
        }
    }
}

type Hook = Box<dyn FnMut(&Op<'_>) -> Option<Fault> + Send>;

struct Disk {
    names: Mutex<Names>,
    hook: Mutex<Option<Hook>>,
    hooked: AtomicBool,
    dead: AtomicBool,
    ops: AtomicU64,
    /// The number of crashes: handles from before the last one are rejected.
    life: AtomicU64,
    /// `true` if the disk records which bytes a crash would lose.
    forgetful: bool,
    /// `true` if syncs succeed without an effect.
    syncs_ignored: AtomicBool,
}

impl MemStorage {
    /// Returns an empty disk that does not model crashes, which is the fastest.
    pub fn new() -> Self {
        Self::build(false)
    }

    /// Returns an empty disk that records unsynced changes, so that [`MemStorage::crash`] can lose them.
    pub fn forgetful() -> Self {
        Self::build(true)
    }

    fn build(forgetful: bool) -> Self {
        Self {
            disk: Arc::new(Disk {
                names: Mutex::default(),
                hook: Mutex::default(),
                hooked: AtomicBool::new(false),
                dead: AtomicBool::new(false),
                ops: AtomicU64::new(0),
                life: AtomicU64::new(0),
                forgetful,
                syncs_ignored: AtomicBool::new(false),
            }),
        }
    }

    /// Simulates a power cut. `rng` determines which unsynced changes survive.
    ///
    /// Earlier handles are rejected afterwards, and a hook from [`MemStorage::inject`] is removed. On a disk that is
    /// not forgetful all changes survive, as after a kill of the process.
    pub fn crash(&self, rng: &mut fastrand::Rng) {
        let mut names = lock(&self.disk.names);
        self.disk.life.fetch_add(1, Ordering::SeqCst);
        self.disk.dead.store(false, Ordering::SeqCst);
        self.disk.hooked.store(false, Ordering::SeqCst);
        *lock(&self.disk.hook) = None;
        if !self.disk.forgetful {
            return;
        }
        // Within one directory a journal keeps the order; between directories there is none.
        let parents: BTreeSet<String> = names.pending.iter().map(|op| op.parent().to_owned()).collect();
        for parent in parents {
            let ops: Vec<NameOp> = names.pending.iter().filter(|op| op.parent() == parent).cloned().collect();
            let kept = rng.usize(0..=ops.len());
            for op in &ops[..kept] {
                names.durable.apply(op);
            }
        }
        names.pending.clear();
        let mut tree = names.durable.clone();
        tree.files.retain(|path, _| parent(path).is_empty() || names.durable.dirs.contains(parent(path)));
        for inode in tree.files.values_mut() {
            let bytes = lock(inode).after_crash(rng);
            *inode = Arc::new(Mutex::new(Inode {
                live: Pages::from(&bytes[..]),
                durable: bytes,
                pending: Vec::new(),
            }));
        }
        names.durable = tree.clone();
        names.live = tree;
    }

    /// Returns a durable copy of the disk at this instant, as after a kill of the process. The copy shares the bytes until
    /// one of both changes them; a forgetful disk copies them.
    pub fn fork(&self) -> Self {
        let copy = Self::build(self.disk.forgetful);
        {
            let names = lock(&self.disk.names);
            let mut tree = names.live.clone();
            // No file changes until all are copied.
            let held: Vec<MutexGuard<'_, Inode>> =
                names.live.files.values().map(|inode| lock(inode)).collect();
            for (inode, held) in tree.files.values_mut().zip(&held) {
                let durable = if self.disk.forgetful { held.live.to_vec() } else { Vec::new() };
                *inode =
                    Arc::new(Mutex::new(Inode { live: held.live.clone(), durable, pending: Vec::new() }));
            }
            let mut names = lock(&copy.disk.names);
            names.durable = tree.clone();
            names.live = tree;
        }
        copy
    }

    /// Sets a hook that is called before each operation and can make it fail. Replaces an earlier hook.
    pub fn inject(&self, hook: impl FnMut(&Op<'_>) -> Option<Fault> + Send + 'static) {
        *lock(&self.disk.hook) = Some(Box::new(hook));
        self.disk.hooked.store(true, Ordering::SeqCst);
    }

    /// Makes the `nth` changing call from now fail (0 is the next one), and with `forever` all later ones too.
    pub fn fail_nth(&self, nth: u64, fault: Fault, forever: bool) {
        let at = self.ops() + nth;
        self.inject(move |op| {
            (op.kind != OpKind::Read && (op.index == at || (forever && op.index > at))).then_some(fault)
        });
    }

    /// Removes the hook.
    pub fn heal(&self) {
        self.disk.hooked.store(false, Ordering::SeqCst);
        *lock(&self.disk.hook) = None;
    }

    /// Returns the number of changing calls.
    pub fn ops(&self) -> u64 {
        self.disk.ops.load(Ordering::SeqCst)
    }

    /// Returns the bytes of a file without calling the hook; `None` if there is no such file.
    pub fn contents(&self, path: &str) -> Option<Vec<u8>> {
        let names = lock(&self.disk.names);
        names.live.files.get(path).map(|inode| lock(inode).live.to_vec())
    }

    /// Replaces the bytes of a file, or creates it, durably and without calling the hook: for tests that damage a disk.
    pub fn set_contents(&self, path: &str, bytes: &[u8]) {
        let mut names = lock(&self.disk.names);
        let fresh = Inode { live: Pages::from(bytes), durable: bytes.to_vec(), pending: Vec::new() };
        if let Some(inode) = names.live.files.get(path) {
            *lock(inode) = fresh;
        } else {
            let inode = Arc::new(Mutex::new(fresh));
            names.live.files.insert(path.to_owned(), inode.clone());
            names.durable.files.insert(path.to_owned(), inode);
        }
    }

    /// Returns the paths of all files, sorted.
    pub fn paths(&self) -> Vec<String> {
        lock(&self.disk.names).live.files.keys().cloned().collect()
    }
}

impl Default for MemStorage {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemStorage").field("ops", &self.ops()).finish_non_exhaustive()
    }
}

impl Disk {
    /// Counts the call and calls the hook. `Ok(Some(fault))` is a fault that has an effect before the call fails.
    fn begin(&self, kind: OpKind, path: &str) -> io::Result<Option<Fault>> {
        if self.dead.load(Ordering::SeqCst) {
            return Err(Fault::PowerCut.error());
        }
        let index = if kind == OpKind::Read {
            self.ops.load(Ordering::SeqCst)
        } else {
            self.ops.fetch_add(1, Ordering::SeqCst)
        };
        if !self.hooked.load(Ordering::SeqCst) {
            return Ok(None);
        }
        let fault = lock(&self.hook).as_mut().and_then(|hook| hook(&Op { index, kind, path }));
        match fault {
            Some(Fault::PowerCut) => {
                self.dead.store(true, Ordering::SeqCst);
                Ok(Some(Fault::PowerCut))
            }
            Some(Fault::ShortWrite) if kind == OpKind::Write => Ok(fault),
            Some(Fault::Io) if kind == OpKind::SyncData => Ok(fault),
            Some(other) => Err(other.error()),
            None => Ok(None),
        }
    }

    /// Performs a change of names in the live tree and in the list of unsynced changes.
    fn change(&self, kind: OpKind, path: &str, op: NameOp) -> io::Result<()> {
        let fault = self.begin(kind, path)?;
        let mut names = lock(&self.names);
        names.live.apply(&op);
        if self.forgetful {
            names.pending.push(op);
        }
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }
}

impl Storage for MemStorage {
    fn create_dir(&self, path: &str) -> io::Result<()> {
        check_path(path)?;
        let ends: Vec<usize> = path.match_indices('/').map(|(at, _)| at).chain([path.len()]).collect();
        for end in ends {
            let dir = &path[..end];
            if !lock(&self.disk.names).live.dirs.contains(dir) {
                self.disk.change(OpKind::CreateDir, dir, NameOp::CreateDir(dir.to_owned()))?;
            }
        }
        Ok(())
    }

    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn File>> {
        check_path(path)?;
        if self.disk.dead.load(Ordering::SeqCst) {
            return Err(Fault::PowerCut.error());
        }
        let found = {
            let names = lock(&self.disk.names);
            if !parent(path).is_empty() && !names.live.dirs.contains(parent(path)) {
                return Err(not_found(path));
            }
            names.live.files.get(path).cloned()
        };
        let inode = match (found, how) {
            (Some(inode), _) => inode,
            (None, Open::Existing) => return Err(not_found(path)),
            (None, Open::Create | Open::Empty) => {
                let inode = Arc::new(Mutex::new(Inode::default()));
                self.disk.change(OpKind::Create, path, NameOp::Create(path.to_owned(), inode.clone()))?;
                inode
            }
        };
        let file = MemFile {
            inode,
            disk: self.disk.clone(),
            life: self.disk.life.load(Ordering::SeqCst),
            path: path.into(),
        };
        if how == Open::Empty && file.len()? > 0 {
            file.set_len(0)?;
        }
        Ok(Arc::new(file))
    }

    fn file_len(&self, path: &str) -> io::Result<u64> {
        check_path(path)?;
        self.disk.begin(OpKind::Read, path)?;
        let names = lock(&self.disk.names);
        let inode = names.live.files.get(path).ok_or_else(|| not_found(path))?;
        let len = lock(inode).live.len;
        Ok(len as u64)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let is_root = dir.is_empty();
        if !is_root {
            check_path(dir)?;
        }
        self.disk.begin(OpKind::Read, dir)?;
        let names = lock(&self.disk.names);
        if !is_root && !names.live.dirs.contains(dir) {
            return Err(not_found(dir));
        }
        let prefix = if is_root { String::new() } else { format!("{dir}/") };
        let child =
            |path: &str| path.strip_prefix(&prefix).filter(|name| !name.contains('/')).map(ToOwned::to_owned);
        // Only the paths below the directory: each of very many partitions is listed when it is created.
        let live = &names.live;
        let files = live.files.range(prefix.clone()..).map(|(path, _)| path);
        let files = files.take_while(|path| path.starts_with(&prefix));
        let dirs = live.dirs.range(prefix.clone()..).take_while(|path| path.starts_with(&prefix));
        let mut entries: Vec<Entry> = files
            .filter_map(|path| Some(Entry { name: child(path)?, is_dir: false }))
            .chain(dirs.filter_map(|path| Some(Entry { name: child(path)?, is_dir: true })))
            .collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_path(from)?;
        check_path(to)?;
        if parent(from) != parent(to) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "renamed into another directory"));
        }
        if !lock(&self.disk.names).live.files.contains_key(from) {
            return Err(not_found(from));
        }
        self.disk.change(OpKind::Rename, from, NameOp::Rename(from.to_owned(), to.to_owned()))
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        check_path(path)?;
        if !lock(&self.disk.names).live.files.contains_key(path) {
            return Err(not_found(path));
        }
        self.disk.change(OpKind::Remove, path, NameOp::Remove(path.to_owned()))
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        if !lock(&self.disk.names).live.dirs.contains(path) {
            return Err(not_found(path));
        }
        if !self.list(path)?.is_empty() {
            return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, path.to_owned()));
        }
        self.disk.change(OpKind::Remove, path, NameOp::RemoveDir(path.to_owned()))
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        if let Some(fault) = self.disk.begin(OpKind::SyncDir, dir)? {
            return Err(fault.error());
        }
        if self.disk.syncs_ignored.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut names = lock(&self.disk.names);
        let (now, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut names.pending).into_iter().partition(|op| op.parent() == dir);
        for op in &now {
            names.durable.apply(op);
        }
        names.pending = later;
        Ok(())
    }
}

struct MemFile {
    inode: Arc<Mutex<Inode>>,
    disk: Arc<Disk>,
    life: u64,
    path: Box<str>,
}

impl MemFile {
    fn begin(&self, kind: OpKind) -> io::Result<Option<Fault>> {
        if self.life != self.disk.life.load(Ordering::SeqCst) {
            return Err(io::Error::other("the handle was opened before the crash"));
        }
        self.disk.begin(kind, &self.path)
    }
}

impl fmt::Debug for MemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ReadAt for MemFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.begin(OpKind::Read)?;
        lock(&self.inode).live.read(buf, offset as usize)
    }
}

impl File for MemFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let fault = self.begin(OpKind::Write)?;
        let bytes = if fault == Some(Fault::ShortWrite) { &bytes[..bytes.len() / 2] } else { bytes };
        let mut inode = lock(&self.inode);
        inode.live.write(bytes, offset as usize);
        if self.disk.forgetful {
            inode.pending.push(DataOp::Write(offset, bytes.to_vec()));
        }
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let fault = self.begin(OpKind::SetLen)?;
        let mut inode = lock(&self.inode);
        inode.live.set_len(len as usize);
        if self.disk.forgetful {
            inode.pending.push(DataOp::SetLen(len));
        }
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.inode).live.len as u64)
    }

    fn sync_data(&self) -> io::Result<()> {
        let fault = self.begin(OpKind::SyncData)?;
        if fault.is_none() && self.disk.syncs_ignored.load(Ordering::Relaxed) {
            return Ok(());
        }
        let mut inode = lock(&self.inode);
        if let Some(fault) = fault {
            if fault == Fault::Io {
                inode.pending.clear();
            }
            return Err(fault.error());
        }
        let Inode { durable, pending, .. } = &mut *inode;
        for op in pending.drain(..) {
            apply_data(durable, &op, usize::MAX);
        }
        Ok(())
    }
}

fn not_found(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{path}: no such file or directory"))
}

/// Locks the mutex even if it is poisoned: a panic in one test thread does not invalidate the bytes.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> (MemStorage, Arc<dyn File>) {
        let disk = MemStorage::forgetful();
        disk.create_dir("d").expect("created");
        disk.sync_dir("").expect("synced");
        let file = disk.open("d/f", Open::Create).expect("created");
        (disk, file)
    }

    #[test]
    fn a_listing_has_the_names_of_its_directory_alone() {
        let disk = MemStorage::default();
        for dir in ["many-1", "many-1.old", "many-1/inner", "many-10"] {
            disk.create_dir(dir).expect("created");
            disk.open(&format!("{dir}/00.log"), Open::Create).expect("created");
        }
        let names = |dir: &str| -> Vec<String> {
            disk.list(dir).expect("listed").into_iter().map(|entry| entry.name).collect()
        };
        assert_eq!(names("many-1"), ["00.log", "inner"]);
        assert_eq!(names("many-10"), ["00.log"]);
        assert_eq!(names(""), ["many-1", "many-1.old", "many-10"]);
        assert!(disk.list("many").is_err(), "there is no such directory");
    }

    #[test]
    fn what_was_synced_survives_every_crash_and_what_was_not_survives_some() {
        let (mut tails, mut heads) = (0, 0);
        for seed in 0..200 {
            let (disk, file) = disk();
            file.write_at(&[1; 2000], 0).expect("written");
            file.sync_data().expect("synced");
            disk.sync_dir("d").expect("synced");
            file.write_at(&[2; 2000], 2000).expect("written");
            disk.crash(&mut fastrand::Rng::with_seed(seed));
            let bytes = disk.contents("d/f").expect("the name was synced");
            assert_eq!(bytes[..2000], [1; 2000]);
            tails += usize::from(bytes.len() == 4000);
            heads += usize::from(bytes.len() == 2000);
            assert!(file.write_at(&[3], 0).is_err(), "a handle from before the crash");
        }
        assert!(tails > 20 && heads > 20 && tails + heads < 200, "{tails} {heads}: some are torn");
    }

    #[test]
    fn a_name_that_was_not_synced_can_be_lost_with_synced_bytes() {
        let lost = (0..50).filter(|&seed| {
            let (disk, file) = disk();
            file.write_at(b"x", 0).expect("written");
            file.sync_data().expect("synced");
            disk.crash(&mut fastrand::Rng::with_seed(seed));
            disk.contents("d/f").is_none()
        });
        assert!((5..45).contains(&lost.count()));
    }

    #[test]
    fn a_failed_sync_is_not_made_good_by_the_next_one() {
        let (disk, file) = disk();
        disk.sync_dir("d").expect("synced");
        file.write_at(b"lost", 0).expect("written");
        disk.fail_nth(0, Fault::Io, false);
        assert!(file.sync_data().is_err());
        file.sync_data().expect("the lie");
        disk.crash(&mut fastrand::Rng::with_seed(1));
        assert_eq!(disk.contents("d/f").expect("there"), b"");
    }

    #[test]
    fn faults_come_where_they_are_asked_for() {
        let (disk, file) = disk();
        disk.fail_nth(1, Fault::ShortWrite, true);
        file.write_at(b"abcd", 0).expect("the call before");
        assert_eq!(file.write_at(b"efgh", 4).expect_err("full").kind(), io::ErrorKind::StorageFull);
        assert_eq!(disk.contents("d/f").expect("there"), b"abcdef");
        assert!(disk.open("d/g", Open::Create).is_err() && disk.open("d/f", Open::Create).is_ok());
        disk.heal();
        file.write_at(b"efgh", 4).expect("space again");
        disk.fail_nth(0, Fault::PowerCut, false);
        assert!(file.set_len(0).is_err() && file.len().is_ok() && file.sync_data().is_err());
        assert!(disk.list("d").is_err());
    }
}
