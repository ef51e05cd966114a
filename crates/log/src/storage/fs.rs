//! Files of the operating system below one directory.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ottla_wire::ReadAt;

use super::{Entry, File, Open, Storage, check_path};

/// Other users must not read the records.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;
/// Mode bits with which other users can replace files.
const OTHERS_WRITE: u32 = 0o022;
/// A link in the place of a file is not followed: its author would have the broker read or write another file. Directories
/// above the file, the data directory among them, may be links.
const NO_LINK: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
/// Kafka's own name for the file that guards a data directory.
const LOCK_NAME: &str = ".lock";

/// A directory of the operating system.
#[derive(Debug)]
pub struct FsStorage {
    root: PathBuf,
    files_max: usize,
    files_open: Arc<AtomicUsize>,
}

impl FsStorage {
    /// Uses `root`, creating it if it is missing. Take its [`lock`] first if other processes might use it.
    pub fn new(root: impl Into<PathBuf>) -> io::Result<Self> {
        let root = root.into();
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(&root)?;
        Ok(Self { root, files_max: usize::MAX, files_open: Arc::default() })
    }

    /// Limits the number of open files: more are an error, as if the process had no more file descriptors. The rest of them
    /// is for connections.
    #[must_use]
    pub fn with_files_max(mut self, files_max: usize) -> Self {
        self.files_max = files_max;
        self
    }

    /// The directory to which all paths are relative.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, path: &str) -> io::Result<PathBuf> {
        check_path(path)?;
        Ok(self.root.join(path))
    }
}

impl Storage for FsStorage {
    fn root(&self) -> Option<&Path> {
        Some(&self.root)
    }

    fn files_left(&self) -> usize {
        self.files_max.saturating_sub(self.files_open.load(Ordering::Relaxed))
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(self.path(path)?)
    }

    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn File>> {
        if self.files_left() == 0 {
            return Err(rustix::io::Errno::MFILE.into());
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(how != Open::Existing)
            .truncate(how == Open::Empty)
            .mode(FILE_MODE)
            .custom_flags(NO_LINK)
            .open(self.path(path)?)?;
        self.files_open.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(FsFile { file, files_open: self.files_open.clone() }))
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let path = if dir.is_empty() { self.root.clone() } else { self.path(dir)? };
        for entry in std::fs::read_dir(path)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // The listing has the kind of each file. Its size would be another system call.
            entries.push(Entry { name, is_dir: entry.file_type()?.is_dir() });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn file_len(&self, path: &str) -> io::Result<u64> {
        Ok(std::fs::metadata(self.path(path)?)?.len())
    }

    fn modified_ms(&self, path: &str) -> io::Result<Option<i64>> {
        let modified = std::fs::metadata(self.path(path)?)?.modified()?;
        let since_1970 = modified.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Ok(i64::try_from(since_1970.as_millis()).ok())
    }

    fn set_modified_ms(&self, path: &str, modified_ms: i64) -> io::Result<()> {
        let since_1970 = Duration::from_millis(modified_ms.max(0) as u64);
        let file = OpenOptions::new().write(true).custom_flags(NO_LINK).open(self.path(path)?)?;
        file.set_modified(std::time::UNIX_EPOCH + since_1970)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path(from)?, self.path(to)?)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        std::fs::remove_file(self.path(path)?)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        std::fs::remove_dir(self.path(path)?)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        // The storage's own root has no name below itself; everything else goes through the check.
        let path = if dir.is_empty() { self.root.clone() } else { self.path(dir)? };
        std::fs::File::open(path)?.sync_all()
    }
}

#[derive(Debug)]
struct FsFile {
    file: std::fs::File,
    files_open: Arc<AtomicUsize>,
}

impl Drop for FsFile {
    fn drop(&mut self) {
        self.files_open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ReadAt for FsFile {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.read_exact_at(buf, offset)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }

    #[cfg(target_os = "linux")]
    fn is_cached(&self, offset: u64, len: usize) -> bool {
        // Pages are read ahead and dropped in runs: when both ends are there, so, nearly always, is the middle.
        let there = |at| {
            let mut byte = [0];
            let mut bufs = [io::IoSliceMut::new(&mut byte)];
            rustix::io::preadv2(&self.file, &mut bufs, at, rustix::io::ReadWriteFlags::NOWAIT).is_ok()
        };
        len == 0 || (there(offset) && there(offset + len as u64 - 1))
    }
}

impl File for FsFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        self.file.metadata().map(|meta| meta.len())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// The exclusive lock on a data directory. It is released when it is dropped, and at the end of the process.
#[derive(Debug)]
pub struct DirLock {
    _file: std::fs::File,
}

/// Takes the exclusive lock on `dir` and creates the directory if it is missing.
///
/// In a second process, or for a second call in this one, returns an error that names the directory.
pub fn lock(dir: &Path) -> Result<DirLock, LockError> {
    let failed = |source| LockError::Io { dir: dir.to_path_buf(), source };
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir).map_err(failed)?;
    let found = std::fs::metadata(dir).map_err(failed)?;
    let (owner, user) = (found.uid(), rustix::process::geteuid().as_raw());
    if owner != user {
        // Not an error: in a container the broker may run as root on a directory of the host.
        let dir = dir.display();
        tracing::warn!(%dir, owner, user, "the data directory belongs to another user, who can change its files");
    }
    let mode = found.permissions().mode();
    if mode & OTHERS_WRITE != 0 {
        return Err(LockError::Writable { dir: dir.to_path_buf(), mode: mode & 0o7777 });
    }
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE)
        .custom_flags(NO_LINK)
        .open(dir.join(LOCK_NAME));
    let mut file = opened.map_err(|source| match rustix::io::Errno::from_io_error(&source) {
        Some(rustix::io::Errno::LOOP) => LockError::Link { file: dir.join(LOCK_NAME) },
        _ => failed(source),
    })?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            // For the message of another process; the lock itself does not depend on it.
            let _ = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
            Ok(DirLock { _file: file })
        }
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(LockError::InUse { dir: dir.to_path_buf(), process: process_in(&mut file) })
        }
        Err(errno) => Err(failed(errno.into())),
    }
}

/// The id of the process that has written a lock file.
fn process_in(file: &mut std::fs::File) -> Option<u32> {
    /// More digits than a process id has.
    const ID_BYTES_MAX: u64 = 16;
    let mut text = String::new();
    file.take(ID_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

fn of_process(process: Option<u32>) -> String {
    process.map_or_else(String::new, |id| format!(" (process {id})"))
}

/// The reason of the operating system, with the remedy for wrong owners and for files in the place of a directory.
fn not_locked(dir: &Path, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory if dir.is_file() => {
            "is a file, not a directory".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            let user = rustix::process::geteuid().as_raw();
            // A file of another user in a directory of this one: the lock was held by a process of root.
            let lock = dir.join(LOCK_NAME);
            let mut paths = std::iter::once(&*lock).chain(dir.ancestors());
            let found = paths.find_map(|path| Some((path, std::fs::metadata(path).ok()?.uid())));
            if let Some((path, _)) = found.filter(|(_, owner)| *owner == user) {
                let path = path.display();
                return format!(
                    "cannot be locked: {source}: {path} belongs to user {user}, as whom this process runs, and its mode denies the \
                     access: change it with `chmod u+rwX {path}`"
                );
            }
            let owner = found.map_or_else(String::new, |(path, owner)| {
                format!(" and {} belongs to user {owner}", path.display())
            });
            format!(
                "cannot be locked: {source}: this process runs as user {user}{owner}; run it as the owner, or change \
                 the owner with `chown -R {user} DIR`"
            )
        }
        _ => format!("cannot be locked: {source}"),
    }
}

/// The reasons why a data directory cannot be locked.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds the lock.
    #[error("data directory {} is in use by another process{}", dir.display(), of_process(*process))]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// The process, if its id is in the lock file.
        process: Option<u32>,
    },
    /// Other users of the machine can change the files.
    #[error(
        "data directory {}: mode {mode:04o} lets other users change its files; run `chmod 700 {}`",
        dir.display(),
        dir.display()
    )]
    Writable {
        /// The directory.
        dir: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The lock file is a symbolic link: a lock on its target would not protect this directory.
    #[error("{} is a symbolic link; remove it, and start again", file.display())]
    Link {
        /// The lock file.
        file: PathBuf,
    },
    /// The lock file cannot be created or locked.
    #[error("data directory {}: {}", dir.display(), not_locked(dir, source))]
    Io {
        /// The directory.
        dir: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_directories_are_for_their_owner_only() {
        let tmp = tempfile::tempdir().expect("a scratch directory");
        let storage = FsStorage::new(tmp.path().join("data")).expect("created");
        storage.create_dir("orders-0").expect("created");
        let file = storage.open("orders-0/x.log", Open::Create).expect("created");
        file.write_at(b"abc", 2).expect("written");
        file.sync_data().expect("synced");
        storage.sync_dir("orders-0").expect("synced");
        storage.sync_dir("").expect("synced");
        let mode =
            |p: &str| std::fs::metadata(tmp.path().join(p)).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode("data"), mode("data/orders-0"), mode("data/orders-0/x.log")), (0o700, 0o700, 0o600));
        assert!(file.is_cached(0, 5) && file.fd().is_some());
        assert_eq!(storage.list("orders-0").expect("listed").len(), 1);
        assert_eq!(storage.file_len("orders-0/x.log").expect("a size"), 5);
        assert!(storage.open("../x", Open::Create).is_err());
    }

    /// The owner was advised to run the process as the owner, or to change the owner to the same one.
    #[test]
    fn the_remedy_for_a_denied_lock_depends_on_the_owner() {
        let tmp = tempfile::tempdir().expect("a scratch directory");
        let denied = || not_locked(tmp.path(), &io::ErrorKind::PermissionDenied.into());
        let path = tmp.path().display().to_string();
        assert!(denied().ends_with(&format!("change it with `chmod u+rwX {path}`")), "{}", denied());
        std::fs::write(tmp.path().join(LOCK_NAME), "").expect("written");
        assert!(denied().ends_with(&format!("`chmod u+rwX {path}/{LOCK_NAME}`")), "{}", denied());
        // A directory of root, for all other users: no directory has a name with a line feed.
        if !rustix::process::geteuid().is_root() {
            let text = not_locked(Path::new("/\n"), &io::ErrorKind::PermissionDenied.into());
            assert!(text.contains("/ belongs to user 0; run it as the owner"), "{text}");
        }
    }

    /// A link to a file of another user of the machine, or to a device, was read and written.
    #[test]
    fn a_link_in_the_place_of_a_file_is_not_followed() {
        let tmp = tempfile::tempdir().expect("a scratch directory");
        let (data, target) = (tmp.path().join("data"), tmp.path().join("other"));
        std::fs::write(&target, "of another program").expect("written");
        let storage = FsStorage::new(&data).expect("created");
        storage.create_dir("orders-0").expect("created");
        std::os::unix::fs::symlink(&target, data.join("orders-0/x.log")).expect("linked");
        for how in [Open::Existing, Open::Create, Open::Empty] {
            assert!(storage.open("orders-0/x.log", how).is_err(), "{how:?}");
        }
        assert!(storage.set_modified_ms("orders-0/x.log", 0).is_err());
        assert_eq!(std::fs::read(&target).expect("there"), b"of another program");
        // The data directory itself may be a link.
        std::os::unix::fs::symlink(&data, tmp.path().join("link")).expect("linked");
        let storage = FsStorage::new(tmp.path().join("link")).expect("there");
        storage.open("orders-0/y.log", Open::Create).expect("created");
    }

    #[test]
    fn a_directory_has_one_user_at_a_time() {
        let tmp = tempfile::tempdir().expect("a scratch directory");
        let held = lock(tmp.path()).expect("free");
        let error = lock(tmp.path()).expect_err("taken").to_string();
        assert!(
            error.contains(&*tmp.path().to_string_lossy()) && error.contains("another process"),
            "{error}"
        );
        assert!(error.ends_with(&format!("(process {})", std::process::id())), "{error}");
        drop(held);
        lock(tmp.path()).expect("free again");
    }

    #[test]
    fn a_file_in_the_place_of_a_data_directory_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a scratch file");
        let error = lock(file.path()).expect_err("a file").to_string();
        assert!(error.ends_with("is a file, not a directory"), "{error}");
    }

    #[test]
    fn a_lock_that_is_a_link_is_refused_and_its_target_stays() {
        let tmp = tempfile::tempdir().expect("a scratch directory");
        let data = tmp.path().join("data");
        std::fs::create_dir(&data).expect("created");
        let target = tmp.path().join("elsewhere");
        std::os::unix::fs::symlink(&target, data.join(LOCK_NAME)).expect("linked");
        let error = lock(&data).expect_err("a link").to_string();
        assert!(error.contains("symbolic link") && error.contains(LOCK_NAME), "{error}");
        assert!(!target.exists());
    }

    #[test]
    fn a_directory_that_others_can_write_to_is_refused() {
        let tmp = tempfile::tempdir().expect("a scratch directory");
        for (mode, refused) in [(0o777, true), (0o770, true), (0o702, true), (0o755, false), (0o700, false)] {
            std::fs::set_permissions(tmp.path(), std::fs::Permissions::from_mode(mode)).expect("set");
            match lock(tmp.path()) {
                Ok(_) => assert!(!refused, "{mode:o}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(
                        refused && text.contains("chmod 700") && text.contains("0777") == (mode == 0o777),
                        "{text}"
                    );
                }
            }
        }
    }
}
