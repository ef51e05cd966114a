//! A disk with a defect that shows behind an append.

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use ottla_log::storage::mem::MemStorage;
use ottla_log::storage::{Entry, File, Open, Storage};

thread_local! {
    /// The thread has just appended the record that the test waits for.
    pub(crate) static HAS_WRITTEN: Cell<bool> = const { Cell::new(false) };
}

/// Panics in the sync that follows an append, once after each time that [`HAS_WRITTEN`] is set.
#[derive(Debug)]
pub(crate) struct PanicsBehindAppends(pub(crate) MemStorage);

impl Storage for PanicsBehindAppends {
    fn files_left(&self) -> usize {
        assert!(!HAS_WRITTEN.take(), "a defect behind the append");
        self.0.files_left()
    }

    fn create_dir(&self, path: &str) -> io::Result<()> {
        self.0.create_dir(path)
    }

    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn File>> {
        self.0.open(path, how)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        self.0.list(dir)
    }

    fn file_len(&self, path: &str) -> io::Result<u64> {
        self.0.file_len(path)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        self.0.remove(path)
    }

    fn remove_dir(&self, path: &str) -> io::Result<()> {
        self.0.remove_dir(path)
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        self.0.sync_dir(dir)
    }
}
