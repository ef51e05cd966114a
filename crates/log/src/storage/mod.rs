//! The seam between the log and a disk: a handful of calls, each with the durability it promises and no more.
//!
//! | call | durable when it returns? | made durable by |
//! |---|---|---|
//! | [`File::write_at`], [`File::set_len`] | no | [`File::sync_data`] of that file |
//! | [`Storage::open`] that creates, [`Storage::rename`], [`Storage::remove`] | no | [`Storage::sync_dir`] of the parent |
//!
//! [`fs`] is a real directory; [`mem`] lives in memory, can forget what was not made durable, and can fail at any call.

pub mod fs;
pub mod mem;

use std::fmt;
use std::io;
use std::sync::Arc;

use ottla_wire::ReadAt;

/// A directory tree that holds logs.
///
/// Paths are relative, of plain names joined by `/`: see [`check_path`].
pub trait Storage: Send + Sync + fmt::Debug {
    /// Creates a directory and those above it; one that exists is fine.
    fn create_dir(&self, path: &str) -> io::Result<()>;

    /// Opens a file for reading and writing.
    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn File>>;

    /// What a directory holds, sorted by name; names that are not UTF-8 are left out. `""` is the storage's root.
    fn list(&self, dir: &str) -> io::Result<Vec<Entry>>;

    /// Gives a file another name in the same directory, in place of any file of that name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file; open handles go on reading it.
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

    /// Cuts the file, or extends it with zeros.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Its length.
    fn len(&self) -> io::Result<u64>;

    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        self.len().map(|len| len == 0)
    }

    /// Makes its bytes and its length durable. After an error nothing is known about what had been written before,
    /// and a second call that succeeds proves nothing.
    fn sync_data(&self) -> io::Result<()>;
}

/// How [`Storage::open`] treats files that exist or do not.
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
    /// Bytes; 0 for a directory.
    pub len: u64,
    /// Whether it is a directory.
    pub is_dir: bool,
}

/// Refuses every path that could leave the storage's root: absolute ones, `.` and `..`, NUL, empty names.
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

/// Of files that are about to replace another; left behind by a crash, they mean nothing.
pub(crate) const FRESH_SUFFIX: &str = ".tmp";

/// Replaces a small file so that after a crash either the old or the new bytes are there, and durably the new ones
/// once this returns. `""` as the directory is the storage's root.
pub fn replace_file(storage: &dyn Storage, dir: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let path = if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") };
    let fresh = format!("{path}{FRESH_SUFFIX}");
    let file = storage.open(&fresh, Open::Empty)?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    storage.rename(&fresh, &path)?;
    storage.sync_dir(dir)
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
