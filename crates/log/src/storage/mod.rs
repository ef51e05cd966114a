//! The interface between the log and a disk: a few calls, each with its documented durability.
//!
//! | call | durable when it returns? | made durable by |
//! |---|---|---|
//! | [`File::write_at`], [`File::set_len`] | no | [`File::sync_data`] of that file |
//! | [`Storage::open`] that creates, [`Storage::rename`], [`Storage::remove`] | no | [`Storage::sync_dir`] of the
//! parent |
//!
//! [`fs`] is a real directory. [`mem`] is in memory; it can lose unsynced changes, and each call can be made to fail. [`faulty`]
//! fails or delays the calls to another storage.

pub mod faulty;
pub mod fs;
pub mod mem;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ottla_wire::ReadAt;

/// A directory tree that holds logs.
///
/// Paths are relative, of plain names joined by `/`: see [`check_path`].
pub trait Storage: Send + Sync + fmt::Debug {
    /// Returns the directory of the operating system that contains the files, if there is one, for messages.
    fn root(&self) -> Option<&Path> {
        None
    }

    /// Returns how many more files can be opened. Callers close idle ones before none is left.
    fn files_left(&self) -> usize {
        usize::MAX
    }

    /// Creates a directory and its parents. An existing directory is no error.
    fn create_dir(&self, path: &str) -> io::Result<()>;

    /// Opens a file for reading and writing.
    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn File>>;

    /// Lists a directory, sorted by name, without names that are not UTF-8. `""` is the storage's root.
    fn list(&self, dir: &str) -> io::Result<Vec<Entry>>;

    /// Returns the size of a file in bytes.
    fn file_len(&self, path: &str) -> io::Result<u64>;

    /// Returns when a file was last written, in milliseconds since 1970; `None` if the storage does not know.
    fn modified_ms(&self, path: &str) -> io::Result<Option<i64>> {
        let _ = path;
        Ok(None)
    }

    /// Sets the time that [`Storage::modified_ms`] returns, for a file with a part of another one's bytes. Does nothing by default.
    fn set_modified_ms(&self, path: &str, modified_ms: i64) -> io::Result<()> {
        let _ = (path, modified_ms);
        Ok(())
    }

    /// Renames a file in its directory, and replaces a file that has the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file. Open handles can still read it.
    fn remove(&self, path: &str) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_dir(&self, path: &str) -> io::Result<()>;

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
}

/// An open file, read and written at positions by any number of threads.
pub trait File: ReadAt {
    /// Writes all of `bytes` at `offset`. After an error any part of them may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Truncates the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Returns the length of the file.
    fn len(&self) -> io::Result<u64>;

    /// Returns `true` if the file is empty.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Makes the bytes and the length of the file durable. After an error the state of earlier writes is unknown, even
    /// if a second call succeeds.
    fn sync_data(&self) -> io::Result<()>;
}

/// The treatment of existing and missing files by [`Storage::open`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Open {
    /// The file must exist.
    Existing,
    /// The file is created if it does not exist.
    Create,
    /// The file is created, or emptied if it exists.
    Empty,
}

/// One name in a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// The name, without the directory.
    pub name: String,
    /// `true` for a directory.
    pub is_dir: bool,
}

/// Rejects paths that could leave the storage's root: absolute paths, `.` and `..`, NUL, empty names.
pub fn check_path(path: &str) -> io::Result<()> {
    let plain = |name: &str| !name.is_empty() && name != "." && name != ".." && !name.contains(['\0', '\\']);
    if path.split('/').all(plain) {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("path {path:?} is not made of plain names")))
    }
}

/// Reads a whole small file, at most `max` bytes of it.
pub fn read_file(storage: &dyn Storage, path: &str, max: u64) -> io::Result<Vec<u8>> {
    let file = storage.open(path, Open::Existing)?;
    let len = file.len()?;
    if len > max {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{path}: {len} bytes, at most {max}"),
        ));
    }
    let mut bytes = vec![0; len as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// The suffix of files that will replace another file. After a crash such a file is ignored.
pub(crate) const FRESH_SUFFIX: &str = ".tmp";

/// Replaces a small file atomically: after a crash it has either the old or the new bytes. The new bytes are durable
/// when this returns. `""` as the directory is the storage's root.
pub fn replace_file(storage: &dyn Storage, dir: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let path = if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") };
    replace_file_loosely(storage, &path, bytes)?;
    storage.sync_dir(dir)
}

/// [`replace_file`] without the sync of the directory: after a power cut the file has either the old or the new bytes.
pub(crate) fn replace_file_loosely(storage: &dyn Storage, path: &str, bytes: &[u8]) -> io::Result<()> {
    let fresh = format!("{path}{FRESH_SUFFIX}");
    let file = storage.open(&fresh, Open::Empty)?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    storage.rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_could_leave_the_root_are_refused() {
        for path in ["", "/etc/passwd", "..", "a/../b", "a//b", "./a", "a/", "a\0b", "a\\b"] {
            assert!(check_path(path).is_err(), "{path:?}");
        }
        for path in ["orders-0", "orders-0/00000000000000000000.log", "..a", "a..b-1"] {
            check_path(path).expect(path);
        }
    }
}
