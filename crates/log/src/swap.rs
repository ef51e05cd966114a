//! Replacing segments by cleaned ones so that a crash leaves either the old or the new ones.
//!
//! ```text
//! 1  write   B.log.cleaned  B.index.cleaned  B.timeindex.cleaned  B.txnindex.cleaned  sync the files
//! 2  rename  B.log.cleaned -> B.log.swap, the lowest base offset last                 sync the directory
//! 3  rename  B.txnindex.cleaned -> B.txnindex
//!            the other replaced segments .log -> .log.deleted, B.log.swap -> B.log    sync the directory
//! 4  remove  the .deleted files
//! ```
//!
//! There is a `.txnindex.cleaned` for each cleaned segment, even an empty one, if a replaced segment has a transaction index.
//! After step 2 it is therefore the only source of the entries: where it is missing, it has its final name.
//!
//! Step 2 decides. A crash before it leaves `.cleaned` files, which the next opening removes. A crash after it leaves a
//! `.swap` file: the next opening removes the segments inside of its offsets and completes step 3. The names are Apache
//! Kafka's.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use crate::scan::walk;
use crate::segment_name::{
    INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, file_name, parse_name,
};
use crate::storage::{Entry, File, Open, Storage};

pub(crate) const LOG_CLEANED: &str = "log.cleaned";
pub(crate) const INDEX_CLEANED: &str = "index.cleaned";
pub(crate) const TIME_INDEX_CLEANED: &str = "timeindex.cleaned";
pub(crate) const TXN_INDEX_CLEANED: &str = "txnindex.cleaned";
pub(crate) const LOG_SWAP: &str = "log.swap";
pub(crate) const LOG_DELETED: &str = "log.deleted";

/// Suffixes of files that an interrupted replacement leaves and the next opening removes.
pub(crate) const LEFTOVERS: [&str; 5] =
    [LOG_CLEANED, INDEX_CLEANED, TIME_INDEX_CLEANED, TXN_INDEX_CLEANED, LOG_DELETED];

/// The changes of names that complete or undo an interrupted replacement.
#[derive(Debug, Default, Eq, PartialEq)]
struct Changes {
    removals: Vec<String>,
    renames: Vec<(String, String)>,
}

/// Completes or undoes the replacement that a crash has interrupted. Returns `true` if it was undone: transaction indexes
/// of the old segments may be missing then.
///
/// It can be interrupted and repeated. A replacement is complete or undone before anything else looks at the files.
pub(crate) fn settle(storage: &dyn Storage, dir: &str) -> io::Result<bool> {
    let Some(changes) = find_changes(storage, dir)? else { return Ok(false) };
    let is_undone = !changes.renames.iter().any(|(from, _)| from.ends_with(LOG_SWAP));
    for name in &changes.removals {
        storage.remove(&format!("{dir}/{name}"))?;
    }
    for (from, to) in &changes.renames {
        storage.rename(&format!("{dir}/{from}"), &format!("{dir}/{to}"))?;
    }
    storage.sync_dir(dir)?;
    tracing::info!(dir, ?changes, "settled a replacement of segments that was interrupted");
    Ok(is_undone)
}

/// `None` if no replacement was interrupted after its decision.
fn find_changes(storage: &dyn Storage, dir: &str) -> io::Result<Option<Changes>> {
    let entries = match storage.list(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let of_suffix = |wanted: &'static str| {
        let files = entries.iter().filter(|entry| !entry.is_dir);
        let named = files.filter_map(|entry| parse_name(&entry.name));
        named.filter(move |(_, suffix)| *suffix == wanted).map(|(base, _)| base)
    };
    let swaps: Vec<i64> = of_suffix(LOG_SWAP).collect();
    if swaps.is_empty() {
        return Ok(None);
    }
    let mut changes = Changes::default();
    let ends = swaps.iter().map(|base| {
        let len = storage.file_len(&format!("{dir}/{}", file_name(*base, LOG_SWAP)))?;
        end_of(storage, dir, *base, len)
    });
    let ends: Vec<Option<i64>> = ends.collect::<io::Result<_>>()?;
    // The lowest output of a replacement is renamed last: while it is `.cleaned`, nothing is decided.
    let is_undecided = of_suffix(LOG_CLEANED).any(|base| swaps.iter().any(|swap| *swap > base));
    if is_undecided || ends.contains(&None) {
        changes.removals.extend(swaps.iter().map(|base| file_name(*base, LOG_SWAP)));
        let deleted = of_suffix(LOG_DELETED);
        changes
            .renames
            .extend(deleted.map(|base| (file_name(base, LOG_DELETED), file_name(base, LOG_SUFFIX))));
        return Ok(Some(changes));
    }
    for (base, end) in swaps.iter().zip(ends.into_iter().flatten()) {
        // The indexes are those of the replaced segments; new ones are built when they are needed.
        for suffix in [INDEX_SUFFIX, TIME_INDEX_SUFFIX] {
            let inside = of_suffix(suffix).filter(|at| (*base..end).contains(at));
            changes.removals.extend(inside.map(|at| file_name(at, suffix)));
        }
        for suffix in [LOG_SUFFIX, TXN_INDEX_SUFFIX] {
            let inside = of_suffix(suffix).filter(|at| (base + 1..end).contains(at));
            changes.removals.extend(inside.map(|at| file_name(at, suffix)));
        }
        changes.renames.push((file_name(*base, LOG_SWAP), file_name(*base, LOG_SUFFIX)));
        // Reversed below: before the log, because without the `.swap` file this would not be repeated.
        if of_suffix(TXN_INDEX_CLEANED).any(|at| at == *base) {
            changes.renames.push((file_name(*base, TXN_INDEX_CLEANED), file_name(*base, TXN_INDEX_SUFFIX)));
        }
    }
    // The lowest one last, as in the replacement itself.
    changes.renames.reverse();
    Ok(Some(changes))
}

/// Returns the offset after the last batch of a `.swap` file. `None` if its batches do not lead to its end: it was durable
/// before it got its name, so that the disk has changed it.
fn end_of(storage: &dyn Storage, dir: &str, base_offset: i64, len: u64) -> io::Result<Option<i64>> {
    let file = storage.open(&format!("{dir}/{}", file_name(base_offset, LOG_SWAP)), Open::Existing)?;
    let (mut end, mut is_dense) = (base_offset, true);
    let walked = walk(&*file, 0, len, &[], |header, _| {
        is_dense &= header.base_offset == end;
        end = header.next_offset();
    })?;
    Ok((walked.is_ok() && is_dense && end > base_offset).then_some(end))
}

/// Shows a directory as [`settle`] would leave it, for checks that must not change it.
#[derive(Debug)]
pub(crate) struct SettledView {
    inner: Arc<dyn Storage>,
    dir: String,
    removed: Vec<String>,
    /// The name on disk by the name that is shown.
    renamed: BTreeMap<String, String>,
}

impl SettledView {
    /// Returns the storage itself if no replacement was interrupted.
    pub(crate) fn of(inner: &Arc<dyn Storage>, dir: &str) -> io::Result<Arc<dyn Storage>> {
        let Some(changes) = find_changes(&**inner, dir)? else { return Ok(inner.clone()) };
        let renamed = changes.renames.into_iter().map(|(from, to)| (to, from)).collect();
        let (inner, dir) = (inner.clone(), dir.to_owned());
        Ok(Arc::new(Self { inner, dir, removed: changes.removals, renamed }))
    }

    /// The path on disk of a path that is shown.
    fn on_disk<'p>(&self, path: &'p str) -> io::Result<Cow<'p, str>> {
        let name = path.strip_prefix(&self.dir).and_then(|rest| rest.strip_prefix('/'));
        let Some(name) = name else { return Ok(path.into()) };
        if self.removed.iter().any(|removed| removed == name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(self.renamed.get(name).map_or(path.into(), |name| format!("{}/{name}", self.dir).into()))
    }

    fn refused(&self) -> io::Error {
        io::Error::new(io::ErrorKind::ReadOnlyFilesystem, format!("{} is only checked", self.dir))
    }
}

impl Storage for SettledView {
    fn create_dir(&self, _path: &str) -> io::Result<()> {
        Err(self.refused())
    }

    fn open(&self, path: &str, how: Open) -> io::Result<Arc<dyn File>> {
        self.inner.open(&self.on_disk(path)?, how)
    }

    fn file_len(&self, path: &str) -> io::Result<u64> {
        self.inner.file_len(&self.on_disk(path)?)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<Entry>> {
        let mut entries = self.inner.list(dir)?;
        if dir != self.dir {
            return Ok(entries);
        }
        entries
            .retain(|entry| !self.removed.contains(&entry.name) && !self.renamed.contains_key(&entry.name));
        for entry in &mut entries {
            let shown = self.renamed.iter().find(|(_, on_disk)| **on_disk == entry.name);
            if let Some((name, _)) = shown {
                entry.name.clone_from(name);
            }
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn modified_ms(&self, path: &str) -> io::Result<Option<i64>> {
        self.inner.modified_ms(&self.on_disk(path)?)
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Err(self.refused())
    }

    fn remove(&self, _path: &str) -> io::Result<()> {
        Err(self.refused())
    }

    fn remove_dir(&self, _path: &str) -> io::Result<()> {
        Err(self.refused())
    }

    fn sync_dir(&self, _dir: &str) -> io::Result<()> {
        Err(self.refused())
    }
}
