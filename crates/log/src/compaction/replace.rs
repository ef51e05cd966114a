//! The replacement of segments by cleaned ones in an open log. The files' part is in [`crate::swap`].

use std::io;
use std::sync::Arc;

use super::output::CleanedSegment;
use super::{CompactionError, Source};
use crate::error::LogError;
use crate::log::Log;
use crate::segment::Segment;
use crate::segment_name::{INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, file_name};
use crate::storage::{File, Open, Storage};
use crate::swap::{INDEX_CLEANED, LOG_CLEANED, LOG_DELETED, LOG_SWAP, TIME_INDEX_CLEANED, TXN_INDEX_CLEANED};
use crate::txn_index::{self, AbortedTransaction, TxnIndex};

/// Cleaned segments for a group of segments, durable under other names. Dropping it removes their files.
#[derive(Debug)]
#[must_use = "the log has the old segments until it is replaced"]
pub struct CleanedGroup {
    storage: Arc<dyn Storage>,
    dir: Arc<str>,
    sources: Vec<Source>,
    outputs: Vec<CleanedSegment>,
    aborted: Vec<AbortedTransaction>,
    is_pending: bool,
}

impl CleanedGroup {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        dir: Arc<str>,
        sources: Vec<Source>,
        outputs: Vec<CleanedSegment>,
        aborted: Vec<AbortedTransaction>,
    ) -> Self {
        Self { storage, dir, sources, outputs, aborted, is_pending: true }
    }

    /// Returns the size of the cleaned segments in bytes.
    pub fn bytes(&self) -> u64 {
        self.outputs.iter().map(|output| output.size).sum()
    }

    /// Returns the aborted transactions that end in these segments and still had data: the new content of their
    /// transaction indexes.
    pub fn aborted(&self) -> &[AbortedTransaction] {
        &self.aborted
    }

    /// Writes the transaction indexes of the cleaned segments, durably. An index without entries is written as well: it
    /// replaces one that has some.
    pub(super) fn write_transaction_indexes(&mut self) -> io::Result<()> {
        for output in &mut self.outputs {
            let offsets = output.base_offset..output.end_offset;
            let entries: Vec<AbortedTransaction> =
                self.aborted.iter().filter(|entry| offsets.contains(&entry.last_offset)).copied().collect();
            let path = format!("{}/{}", self.dir, file_name(output.base_offset, TXN_INDEX_CLEANED));
            txn_index::write(&*self.storage, &path, &entries)?.sync_data()?;
            output.aborted = Some(TxnIndex::of_entries(&entries));
        }
        self.storage.sync_dir(&self.dir)
    }

    fn path(&self, base_offset: i64, suffix: &str) -> String {
        format!("{}/{}", self.dir, file_name(base_offset, suffix))
    }

    fn remove_cleaned(&self) {
        for output in &self.outputs {
            for suffix in [LOG_CLEANED, INDEX_CLEANED, TIME_INDEX_CLEANED, TXN_INDEX_CLEANED] {
                remove_if_there(&*self.storage, &self.path(output.base_offset, suffix));
            }
        }
    }
}

impl Drop for CleanedGroup {
    fn drop(&mut self) {
        if self.is_pending {
            self.remove_cleaned();
        }
    }
}

/// A replacement whose decision must become durable. Needs no lock.
#[derive(Debug)]
#[must_use = "run it and report it with `Log::finish_replacement`"]
pub struct PendingReplacement {
    group: CleanedGroup,
    synced: Option<io::Result<()>>,
    overwritten: Vec<Arc<dyn File>>,
}

impl PendingReplacement {
    /// Makes the decision durable. Blocks for a sync.
    pub fn run(mut self) -> Self {
        let group = &self.group;
        self.synced = Some(group.storage.sync_dir(&group.dir));
        // A file that cannot be opened is only freed earlier.
        let open = |output: &CleanedSegment| {
            group.storage.open(&group.path(output.base_offset, LOG_SUFFIX), Open::Existing).ok()
        };
        self.overwritten = group.outputs.iter().filter_map(open).collect();
        self
    }
}

/// The files of replaced segments. Removing them can take long and needs no lock: [`ReplacedFiles::run`], or drop it.
#[derive(Debug)]
pub struct ReplacedFiles {
    storage: Arc<dyn Storage>,
    dir: Arc<str>,
    segments: Vec<i64>,
    /// Those whose names the cleaned files have taken: the storage frees their bytes when they are closed, which takes long as well.
    _overwritten: Vec<Arc<dyn File>>,
    is_durable: bool,
    is_pending: bool,
}

impl ReplacedFiles {
    /// Makes the replacement durable, and removes the files.
    pub fn run(mut self) -> Result<(), LogError> {
        self.is_pending = false;
        self.finish()
    }

    /// Makes the replacement durable. Blocks for a sync.
    pub fn sync(&mut self) -> Result<(), LogError> {
        if !self.is_durable {
            self.storage
                .sync_dir(&self.dir)
                .map_err(|source| self.failed("sync its replaced segments", source))?;
            self.is_durable = true;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), LogError> {
        self.sync()?;
        self.remove().map_err(|source| self.failed("remove replaced segments", source))
    }

    fn failed(&self, doing: &str, source: io::Error) -> LogError {
        LogError::Io { dir: self.dir.to_string(), doing: doing.into(), source }
    }

    fn remove(&self) -> io::Result<()> {
        for base_offset in &self.segments {
            self.storage.remove(&format!("{}/{}", self.dir, file_name(*base_offset, LOG_DELETED)))?;
        }
        Ok(())
    }
}

impl Drop for ReplacedFiles {
    fn drop(&mut self) {
        if self.is_pending
            && let Err(error) = self.finish()
        {
            tracing::warn!(dir = &*self.dir, %error, "cannot remove replaced segments; the next opening does");
        }
    }
}

impl Log {
    /// Begins the replacement of a group of segments: after a crash it is complete or undone.
    ///
    /// Fails with [`CompactionError::Changed`] if the log does not have these segments any more.
    pub fn begin_replacement(&mut self, group: CleanedGroup) -> Result<PendingReplacement, CompactionError> {
        self.check_online()?;
        self.find_sources(&group)?;
        // The mark has the sizes of the old segments.
        self.drop_clean_mark(true)
            .map_err(|source| self.failed("remove the mark of a clean close", source))?;
        self.replacing = group.outputs.iter().map(|output| output.base_offset).collect();
        for output in group.outputs.iter().rev() {
            let (from, to) =
                (group.path(output.base_offset, LOG_CLEANED), group.path(output.base_offset, LOG_SWAP));
            if let Err(source) = self.storage.rename(&from, &to) {
                return Err(self.give_up(&group, self.failed("rename a cleaned segment", source).into()));
            }
        }
        Ok(PendingReplacement { group, synced: None, overwritten: Vec::new() })
    }

    /// Completes a replacement: readers see the new segments from now on. Reads under way continue in the old files.
    pub fn finish_replacement(
        &mut self,
        pending: PendingReplacement,
    ) -> Result<ReplacedFiles, CompactionError> {
        let PendingReplacement { mut group, synced, overwritten } = pending;
        let failed = |log: &Self, source| log.failed("sync its directory", source);
        match synced {
            Some(Ok(())) => {}
            Some(Err(source)) => return Err(self.give_up(&group, failed(self, source).into())),
            None => {
                let source = io::Error::other("the replacement was not run");
                return Err(self.give_up(&group, failed(self, source).into()));
            }
        }
        self.check_online()?;
        if self.replacing.is_empty() {
            // A truncation has removed the `.swap` files.
            return Err(CompactionError::Changed { dir: self.dir.to_string() });
        }
        let first = match self.find_sources(&group) {
            Ok(first) => first,
            Err(error) => return Err(self.give_up(&group, error)),
        };
        let deleted = match self.replace_files(&group) {
            Ok(deleted) => deleted,
            Err(source) => {
                let reason = format!("a replacement of segments failed half-way: {source}");
                return Err(self.go_offline(reason).into());
            }
        };
        group.is_pending = false;
        self.replacing.clear();
        self.replace_segments(first, &group);
        Ok(ReplacedFiles {
            storage: self.storage.clone(),
            dir: self.dir.clone(),
            segments: deleted,
            _overwritten: overwritten,
            is_durable: false,
            is_pending: true,
        })
    }

    /// Removes the `.swap` files of a replacement that is not complete, durably.
    pub(crate) fn cancel_replacement(&mut self) -> io::Result<()> {
        if self.replacing.is_empty() {
            return Ok(());
        }
        for base_offset in self.replacing.drain(..) {
            remove_if_there(&*self.storage, &format!("{}/{}", self.dir, file_name(base_offset, LOG_SWAP)));
        }
        self.storage.sync_dir(&self.dir)
    }

    /// Gives up a replacement. If its files stay, the next opening would complete it: the log goes offline.
    fn give_up(&mut self, group: &CleanedGroup, error: CompactionError) -> CompactionError {
        if self.offline.is_some() {
            return error;
        }
        let base_offset = group.outputs[0].base_offset;
        match self.cancel_replacement() {
            Ok(()) => error,
            Err(source) => {
                let name = file_name(base_offset, LOG_SWAP);
                self.go_offline(format!("{name} cannot be removed ({source}) after: {error}")).into()
            }
        }
    }

    /// Returns the number of the first replaced segment.
    fn find_sources(&self, group: &CleanedGroup) -> Result<usize, CompactionError> {
        let changed = || CompactionError::Changed { dir: self.dir.to_string() };
        let first = &group.sources[0];
        let found = self.segments.iter().position(|segment| segment.base_offset == first.base_offset);
        let number = found.ok_or_else(changed)?;
        let closed = &self.segments[number..self.segments.len() - 1];
        let is_same = |(segment, source): (&Segment, &Source)| {
            Arc::ptr_eq(&segment.verified, &source.identity) && segment.size == source.size
        };
        let has_all = closed.len() >= group.sources.len() && closed.iter().zip(&group.sources).all(is_same);
        // Damage that a reader has found meanwhile keeps its place in its file.
        let sources = first.base_offset..group.sources.last().map_or(0, |last| last.end_offset);
        let is_damaged = self.bad.iter().any(|bad| sources.contains(&bad.segment));
        if has_all && !is_damaged { Ok(number) } else { Err(changed()) }
    }

    /// Gives the cleaned files their names. Returns the replaced segments whose files are to be removed.
    fn replace_files(&self, group: &CleanedGroup) -> io::Result<Vec<i64>> {
        for source in &group.sources {
            for suffix in [INDEX_SUFFIX, TIME_INDEX_SUFFIX] {
                remove_if_there(&*self.storage, &group.path(source.base_offset, suffix));
            }
        }
        let is_output =
            |base_offset: i64| group.outputs.iter().any(|output| output.base_offset == base_offset);
        // Before the logs: see `swap`.
        for output in group.outputs.iter().rev().filter(|output| output.aborted.is_some()) {
            let base_offset = output.base_offset;
            self.storage.rename(
                &group.path(base_offset, TXN_INDEX_CLEANED),
                &group.path(base_offset, TXN_INDEX_SUFFIX),
            )?;
        }
        let mut deleted = Vec::new();
        for source in group.sources.iter().filter(|source| !is_output(source.base_offset)) {
            let base_offset = source.base_offset;
            self.storage
                .rename(&group.path(base_offset, LOG_SUFFIX), &group.path(base_offset, LOG_DELETED))?;
            remove_if_there(&*self.storage, &group.path(base_offset, TXN_INDEX_SUFFIX));
            deleted.push(base_offset);
        }
        for output in group.outputs.iter().rev() {
            let base_offset = output.base_offset;
            let names = [
                (LOG_SWAP, LOG_SUFFIX),
                (INDEX_CLEANED, INDEX_SUFFIX),
                (TIME_INDEX_CLEANED, TIME_INDEX_SUFFIX),
            ];
            for (from, to) in names {
                self.storage.rename(&group.path(base_offset, from), &group.path(base_offset, to))?;
            }
        }
        Ok(deleted)
    }

    fn replace_segments(&mut self, first: usize, group: &CleanedGroup) {
        let end_offset = group.sources.last().map_or(0, |last| last.end_offset);
        let sources = group.sources[0].base_offset..end_offset;
        let created_ms = group.sources.last().map_or(0, |last| last.created_ms);
        let segments = group.outputs.iter().map(|output| {
            // Its batches were checked when they were read, and written by this process.
            let mut segment = Segment::existing(output.base_offset, output.end_offset, 0, created_ms);
            segment.size = output.size;
            segment.largest = Some(output.largest);
            segment.first_timestamp = output.first_timestamp;
            segment.aborted = output.aborted.unwrap_or_default();
            segment
        });
        let last = first + group.sources.len();
        self.segments.splice(first..last, segments.collect::<Vec<_>>());
        self.sync.older.retain(|older| !sources.contains(&older.segment));
        self.sync.dir_changes += 1;
        if self.gaps.iter().any(|gap| sources.contains(&gap.segment)) {
            self.gaps.retain(|gap| !sources.contains(&gap.segment));
            if let Err(error) = self.store_quarantine() {
                tracing::warn!(dir = &*self.dir, %error, "cannot remove filled gaps from the quarantine");
            }
        }
        // Positions in the cache are those of the old files, and its records may be superseded ones.
        self.cache.drop_up_to(end_offset);
        self.clear_ring();
    }
}

pub(super) fn remove_if_there(storage: &dyn Storage, path: &str) {
    match storage.remove(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(path, %error, "cannot remove a file"),
    }
}
