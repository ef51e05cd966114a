//! The two sparse indexes of a segment, in Kafka's bytes: offset to position, timestamp to offset.
//!
//! ```text
//! .index      relative offset i32 | position i32          the last offset of the batch that starts at the position
//! .timeindex  timestamp i64       | relative offset i32   the largest timestamp so far, last offset of its batch
//! ```
//!
//! Entries go straight to the file; there is no file before the first entry. Every [`FENCE_EVERY`]th entry stays in
//! memory, so that a lookup reads the file once. Nothing here is ever trusted: an entry that does not lead to the batch it names gets the index
//! rebuilt from the log.

use std::io;
use std::sync::Arc;

use crate::storage::{File, Open, Storage};

/// The number of bytes of an index that are read at a time when it is checked.
const CHECK_BYTES: usize = 48 * 1024;

/// Entries between two that stay in memory: a lookup reads 4 KiB of an offset index, and a full segment of 1 GiB keeps as
/// much in memory.
const FENCE_EVERY: usize = 512;

/// Bytes of the longest entry.
const ENTRY_BYTES_MAX: usize = 12;

/// An entry of either index: two numbers, both of which rise.
pub(crate) trait IndexEntry: Copy + Eq + std::fmt::Debug {
    /// Bytes of an entry in the file.
    const BYTES: usize;
    /// Reads the entry from exactly that many bytes.
    fn decode(bytes: &[u8]) -> Self;
    /// Writes the entry over exactly that many bytes.
    fn encode(self, out: &mut [u8]);
    /// Returns whether `self` may come right before `next`.
    fn precedes(self, next: Self) -> bool;
    /// Returns whether the numbers are possible at all.
    fn is_plausible(self) -> bool;
}

/// Of the offset index.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct OffsetEntry {
    pub(crate) relative_offset: i32,
    pub(crate) position: u32,
}

/// Of the time index.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct TimeEntry {
    pub(crate) timestamp: i64,
    pub(crate) relative_offset: i32,
}

impl IndexEntry for OffsetEntry {
    const BYTES: usize = 8;

    fn decode(bytes: &[u8]) -> Self {
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { relative_offset: word(0) as i32, position: word(4) }
    }

    fn encode(self, out: &mut [u8]) {
        out[..4].copy_from_slice(&self.relative_offset.to_be_bytes());
        out[4..].copy_from_slice(&self.position.to_be_bytes());
    }

    fn precedes(self, next: Self) -> bool {
        self.relative_offset < next.relative_offset && self.position < next.position
    }

    fn is_plausible(self) -> bool {
        self.relative_offset >= 0 && i32::try_from(self.position).is_ok()
    }
}

impl IndexEntry for TimeEntry {
    const BYTES: usize = 12;

    fn decode(bytes: &[u8]) -> Self {
        let mut timestamp = [0; 8];
        timestamp.copy_from_slice(&bytes[..8]);
        let offset = [bytes[8], bytes[9], bytes[10], bytes[11]];
        Self { timestamp: i64::from_be_bytes(timestamp), relative_offset: i32::from_be_bytes(offset) }
    }

    fn encode(self, out: &mut [u8]) {
        out[..8].copy_from_slice(&self.timestamp.to_be_bytes());
        out[8..].copy_from_slice(&self.relative_offset.to_be_bytes());
    }

    fn precedes(self, next: Self) -> bool {
        self.timestamp < next.timestamp && self.relative_offset < next.relative_offset
    }

    fn is_plausible(self) -> bool {
        self.timestamp >= 0 && self.relative_offset >= 0
    }
}

/// One index file.
#[derive(Debug)]
pub(crate) struct Index<E> {
    path: String,
    file: Option<Arc<dyn File>>,
    entries: u64,
    last: Option<E>,
    /// Each [`FENCE_EVERY`]th entry, from the first on. Views share it.
    fences: Arc<Vec<E>>,
}

/// The state of an index file on disk.
pub(crate) enum Loaded<E> {
    /// Entries that rise as they should.
    Sound(Index<E>),
    /// There is no file: the index of a small segment, or a lost one.
    Missing,
    /// Bytes that are no index.
    Damaged,
}

impl<E: IndexEntry> Index<E> {
    /// An index without entries; a file of that name, if any, is emptied by the first one.
    pub(crate) fn empty(path: String) -> Self {
        Self { path, file: None, entries: 0, last: None, fences: Arc::default() }
    }

    /// Opens an index file and checks that its entries rise.
    pub(crate) fn load(storage: &dyn Storage, path: String) -> io::Result<Loaded<E>> {
        let file = match storage.open(&path, Open::Existing) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Loaded::Missing),
            Err(error) => return Err(error),
        };
        let len = file.len()?;
        if !len.is_multiple_of(E::BYTES as u64) {
            return Ok(Loaded::Damaged);
        }
        let mut last: Option<E> = None;
        let mut fences = Vec::with_capacity((len as usize / E::BYTES).div_ceil(FENCE_EVERY));
        let mut number = 0;
        let mut buf = vec![0; CHECK_BYTES.min(len as usize)];
        let mut at = 0;
        while at < len {
            let n = buf.len().min((len - at) as usize);
            file.read_exact_at(&mut buf[..n], at)?;
            for bytes in buf[..n].chunks_exact(E::BYTES) {
                let entry = E::decode(bytes);
                if !entry.is_plausible() || last.is_some_and(|last| !last.precedes(entry)) {
                    return Ok(Loaded::Damaged);
                }
                last = Some(entry);
                if number % FENCE_EVERY == 0 {
                    fences.push(entry);
                }
                number += 1;
            }
            at += n as u64;
        }
        let (entries, fences) = (number as u64, Arc::new(fences));
        Ok(Loaded::Sound(Self { path, file: Some(file), entries, last, fences }))
    }

    /// Closes the file. The next use needs [`Index::reopen_file`].
    pub(crate) fn close_file(&mut self) {
        self.file = None;
    }

    /// Opens the file again if there is one.
    pub(crate) fn reopen_file(&mut self, storage: &dyn Storage) -> io::Result<()> {
        if self.file.is_none() && self.entries > 0 {
            self.file = Some(storage.open(&self.path, Open::Existing)?);
        }
        Ok(())
    }

    /// Bytes of all entries.
    pub(crate) fn len_bytes(&self) -> u64 {
        self.entries * E::BYTES as u64
    }

    /// The entry appended last.
    pub(crate) fn last(&self) -> Option<E> {
        self.last
    }

    /// Appends an entry, unless it would not follow the last one.
    ///
    /// After an error the index is as before: an entry less makes lookups longer, not wrong.
    pub(crate) fn append(&mut self, storage: &dyn Storage, entry: E) -> io::Result<()> {
        if self.last.is_some_and(|last| !last.precedes(entry)) || !entry.is_plausible() {
            return Ok(());
        }
        let mut bytes = [0; 16];
        entry.encode(&mut bytes[..E::BYTES]);
        let at = self.len_bytes();
        if self.file.is_none() {
            self.file = Some(storage.open(&self.path, Open::Empty)?);
        }
        let file = self.file.as_ref().expect("opened above");
        file.write_at(&bytes[..E::BYTES], at)?;
        if self.entries.is_multiple_of(FENCE_EVERY as u64) {
            Arc::make_mut(&mut self.fences).push(entry);
        }
        self.entries += 1;
        self.last = Some(entry);
        Ok(())
    }

    /// Replaces all entries, with one write.
    pub(crate) fn replace(&mut self, storage: &dyn Storage, entries: &[E]) -> io::Result<()> {
        let mut bytes = vec![0; entries.len() * E::BYTES];
        for (entry, out) in entries.iter().zip(bytes.chunks_exact_mut(E::BYTES)) {
            entry.encode(out);
        }
        let file = storage.open(&self.path, Open::Empty)?;
        file.write_at(&bytes, 0)?;
        self.file = Some(file);
        self.entries = entries.len() as u64;
        self.last = entries.last().copied();
        self.fences = Arc::new(entries.iter().step_by(FENCE_EVERY).copied().collect());
        Ok(())
    }

    /// Drops the entries from the first that `goes` on.
    pub(crate) fn truncate(&mut self, goes: impl Fn(E) -> bool) -> io::Result<()> {
        let kept = self.view().search(|entry| !goes(entry))?;
        (self.entries, self.last) = kept.map_or((0, None), |(count, last)| (count, Some(last)));
        Arc::make_mut(&mut self.fences).truncate(self.entries.div_ceil(FENCE_EVERY as u64) as usize);
        self.trim()
    }

    /// Cuts off what a failed write may have left behind the last entry.
    pub(crate) fn trim(&self) -> io::Result<()> {
        self.file.as_ref().map_or(Ok(()), |file| file.set_len(self.len_bytes()))
    }

    /// The file, if there is one.
    pub(crate) fn file(&self) -> Option<Arc<dyn File>> {
        self.file.clone()
    }

    /// The entries as they are now.
    pub(crate) fn view(&self) -> IndexView<E> {
        IndexView { file: self.file.clone(), entries: self.entries, fences: self.fences.clone() }
    }
}

/// The entries an index has at one moment; can be searched without the log.
#[derive(Clone, Debug)]
pub(crate) struct IndexView<E> {
    file: Option<Arc<dyn File>>,
    entries: u64,
    fences: Arc<Vec<E>>,
}

impl<E: IndexEntry> IndexView<E> {
    /// The last entry for which `holds` is true, and the number of entries up to it. `holds` must be true for all entries
    /// before it. Reads the file at most once.
    fn search(&self, holds: impl Fn(E) -> bool) -> io::Result<Option<(u64, E)>> {
        let Some(block) = self.fences.partition_point(|fence| holds(*fence)).checked_sub(1) else {
            return Ok(None);
        };
        let first = (block * FENCE_EVERY) as u64;
        let count = self.entries.saturating_sub(first).min(FENCE_EVERY as u64) as usize;
        let Some(file) = &self.file else { return Err(io::ErrorKind::NotFound.into()) };
        let mut bytes = [0; FENCE_EVERY * ENTRY_BYTES_MAX];
        let bytes = &mut bytes[..count * E::BYTES];
        file.read_exact_at(bytes, first * E::BYTES as u64)?;
        let entry = |number: usize| E::decode(&bytes[number * E::BYTES..][..E::BYTES]);
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            if holds(entry(middle)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low.checked_sub(1).map(|last| (first + low as u64, entry(last))))
    }

    /// The last entry that `holds` is true for, which must be true for all before it.
    pub(crate) fn last_where(&self, holds: impl Fn(E) -> bool) -> io::Result<Option<E>> {
        Ok(self.search(holds)?.map(|(_, entry)| entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::mem::{Fault, MemStorage};

    fn disk() -> MemStorage {
        let disk = MemStorage::new();
        disk.create_dir("d").expect("created");
        disk
    }

    fn entry(relative_offset: i32, position: u32) -> OffsetEntry {
        OffsetEntry { relative_offset, position }
    }

    #[test]
    fn entries_are_found_again_and_the_bytes_are_kafkas() {
        let disk = disk();
        let mut index = Index::empty("d/i".into());
        assert!(disk.paths().is_empty(), "no file before the first entry");
        for n in 1..100 {
            index.append(&disk, entry(n * 10, n as u32 * 4096)).expect("appended");
        }
        index.append(&disk, entry(990, 1 << 20)).expect("ignored: the offset does not rise");
        assert_eq!(disk.contents("d/i").expect("there")[..8], [0, 0, 0, 10, 0, 0, 16, 0]);
        let floor =
            |target| index.view().last_where(|e: OffsetEntry| e.relative_offset <= target).expect("read");
        assert_eq!(floor(9), None);
        assert_eq!(floor(10), Some(entry(10, 4096)));
        assert_eq!(floor(19), Some(entry(10, 4096)));
        assert_eq!(floor(5000), Some(entry(990, 99 * 4096)));

        index.truncate(|e| e.relative_offset >= 500).expect("cut");
        assert_eq!((index.last(), index.len_bytes()), (Some(entry(490, 49 * 4096)), 49 * 8));
        let Ok(Loaded::Sound(again)) = Index::<OffsetEntry>::load(&disk, "d/i".into()) else {
            panic!("sound")
        };
        assert_eq!((again.last(), again.len_bytes()), (index.last(), index.len_bytes()));
    }

    /// Lookups in an index of several blocks, whose bounds stay in memory: after appends, a load, a replacement and a cut.
    #[test]
    fn a_lookup_reads_one_block_of_the_file() {
        let disk = disk();
        let count = 3 * FENCE_EVERY as i32 + 7;
        let entries: Vec<OffsetEntry> = (0..count).map(|n| entry(n * 10, n as u32 * 4096)).collect();
        let mut appended = Index::empty("d/a".into());
        for entry in &entries {
            appended.append(&disk, *entry).expect("appended");
        }
        let Ok(Loaded::Sound(loaded)) = Index::<OffsetEntry>::load(&disk, "d/a".into()) else {
            panic!("sound")
        };
        let mut replaced = Index::empty("d/r".into());
        replaced.replace(&disk, &entries).expect("written");
        for index in [&appended, &loaded, &replaced] {
            for n in (0..count).filter(|n| n % FENCE_EVERY as i32 <= 1 || n % 97 == 0) {
                let floor = |target| index.view().last_where(|e| e.relative_offset <= target).expect("read");
                let before = n.checked_sub(1).and_then(|n| entries.get(n as usize)).copied();
                assert_eq!(floor(n * 10 - 1), before, "below {n}");
                assert_eq!(floor(n * 10 + 9), Some(entries[n as usize]), "at {n}");
            }
        }
        for keep in [2 * FENCE_EVERY + 1, 2 * FENCE_EVERY, 5, 0] {
            replaced.truncate(|e| e.relative_offset >= keep as i32 * 10).expect("cut");
            assert_eq!(replaced.last(), keep.checked_sub(1).map(|n| entries[n]));
            assert_eq!(replaced.fences.len(), keep.div_ceil(FENCE_EVERY));
            let last = replaced.view().last_where(|_| true).expect("read");
            assert_eq!(last, replaced.last());
        }
        replaced.append(&disk, entry(8, 8)).expect("appended");
        assert_eq!(replaced.view().last_where(|_| true).expect("read"), Some(entry(8, 8)));
    }

    #[test]
    fn files_that_are_no_index_are_told_apart() {
        let disk = disk();
        let load = || Index::<TimeEntry>::load(&disk, "d/t".into()).expect("read");
        assert!(matches!(load(), Loaded::Missing));
        let mut index = Index::empty("d/t".into());
        let entries = [(5, 1), (9, 2), (20, 70)];
        let entries = entries.map(|(timestamp, relative_offset)| TimeEntry { timestamp, relative_offset });
        index.replace(&disk, &entries).expect("written");
        assert!(matches!(load(), Loaded::Sound(_)));
        let good = disk.contents("d/t").expect("there");
        disk.set_contents("d/t", &good[..35]);
        assert!(matches!(load(), Loaded::Damaged));
        for at in [0, 12, 20, 24] {
            let mut bad = good.clone();
            bad[at] ^= 0x80;
            disk.set_contents("d/t", &bad);
            assert!(matches!(load(), Loaded::Damaged), "byte {at}");
        }
    }

    #[test]
    fn an_entry_that_could_not_be_written_leaves_the_index_sound() {
        let disk = disk();
        let mut index = Index::empty("d/i".into());
        index.append(&disk, entry(1, 10)).expect("appended");
        disk.fail_nth(0, Fault::ShortWrite, false);
        assert!(index.append(&disk, entry(2, 20)).is_err());
        index.append(&disk, entry(3, 30)).expect("appended");
        assert_eq!(disk.contents("d/i").expect("there").len(), 16);
        assert_eq!(index.view().last_where(|_: OffsetEntry| true).expect("read"), Some(entry(3, 30)));
    }
}
