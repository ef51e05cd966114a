//! The transaction index of a segment, in Kafka's bytes: the aborted transactions whose markers are in the segment.
//!
//! ```text
//! .txnindex   version i16 = 0 | producer id i64 | first offset i64 | last offset i64 | last stable offset i64
//! ```
//!
//! Entries are in the order of their markers. There is no file before the first entry, and no file stays open. An entry is
//! written before its marker: a marker without an entry would make aborted records visible. After a crash the entries of
//! the segments that may not be durable are collected from the log again: see [`crate::producer_recovery`].

use std::io;
use std::sync::Arc;

use ottla_wire::BatchHeader;

use crate::producer_map::ProducerSet;
use crate::producers::Producers;
use crate::segment_name::{TXN_INDEX_SUFFIX, file_name};
use crate::storage::{File, Open, Storage, replace_file_loosely};

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 34;
/// Kafka's version of an entry.
const VERSION: i16 = 0;
/// Entries that are read at a time: about 16 KiB.
const CHUNK_ENTRIES: u64 = 480;

/// An aborted transaction, as an entry of Kafka's `.txnindex` has it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AbortedTransaction {
    /// The producer.
    pub producer_id: i64,
    /// The offset of its first record.
    pub first_offset: i64,
    /// The offset of its abort marker.
    pub last_offset: i64,
    /// The last stable offset when the marker was written.
    pub last_stable_offset: i64,
}

impl AbortedTransaction {
    /// The transaction that began at `first_offset` and that the marker with this header aborts.
    pub(crate) fn ending(producers: &Producers, marker: &BatchHeader, first_offset: i64) -> Self {
        let open = producers.first_open_besides(marker.producer_id);
        Self {
            producer_id: marker.producer_id,
            first_offset,
            last_offset: marker.base_offset,
            last_stable_offset: open.unwrap_or(marker.next_offset()),
        }
    }

    pub(crate) fn encode(&self) -> [u8; ENTRY_BYTES] {
        let mut out = [0; ENTRY_BYTES];
        out[..2].copy_from_slice(&VERSION.to_be_bytes());
        let numbers = [self.producer_id, self.first_offset, self.last_offset, self.last_stable_offset];
        for (number, out) in numbers.iter().zip(out[2..].chunks_exact_mut(8)) {
            out.copy_from_slice(&number.to_be_bytes());
        }
        out
    }

    /// `None` if these are not the bytes of an entry.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (version, numbers) = bytes.split_first_chunk::<2>()?;
        let mut numbers = numbers.chunks_exact(8).filter_map(|number| number.try_into().ok());
        let mut next = || numbers.next().map(i64::from_be_bytes);
        let entry = Self {
            producer_id: next()?,
            first_offset: next()?,
            last_offset: next()?,
            last_stable_offset: next()?,
        };
        let is_possible = entry.producer_id >= 0
            && entry.first_offset >= 0
            && entry.first_offset < entry.last_offset
            && entry.last_stable_offset >= 0;
        (i16::from_be_bytes(*version) == VERSION && bytes.len() == ENTRY_BYTES && is_possible)
            .then_some(entry)
    }
}

/// The transaction index of one segment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct TxnIndex {
    entries: u64,
}

impl TxnIndex {
    /// An index whose file has this length. A part of an entry counts as one: the index is damaged then.
    pub(crate) fn of_len(bytes: u64) -> Self {
        Self { entries: bytes.div_ceil(ENTRY_BYTES as u64) }
    }

    pub(crate) fn of_entries(entries: &[AbortedTransaction]) -> Self {
        Self { entries: entries.len() as u64 }
    }

    pub(crate) fn is_empty(self) -> bool {
        self.entries == 0
    }

    pub(crate) fn len(self) -> u64 {
        self.entries
    }

    /// Appends an entry. After an error the index is as before.
    pub(crate) fn append(
        &mut self,
        storage: &dyn Storage,
        dir: &str,
        base_offset: i64,
        entry: &AbortedTransaction,
    ) -> io::Result<()> {
        let how = if self.entries == 0 { Open::Empty } else { Open::Existing };
        let file = storage.open(&path(dir, base_offset), how)?;
        file.write_at(&entry.encode(), self.len_bytes())?;
        self.entries += 1;
        Ok(())
    }

    /// Removes the last entry, whose marker could not be written.
    pub(crate) fn take_back(&mut self, storage: &dyn Storage, dir: &str, base_offset: i64) {
        self.entries = self.entries.saturating_sub(1);
        // If this fails, the next entry is written over it, and `finish` trims the file.
        if let Err(error) = self.finish(storage, dir, base_offset) {
            tracing::warn!(dir, segment = base_offset, %error, "cannot remove an entry of the transaction index");
        }
    }

    /// Trims the file to its entries and returns it for a sync; `None` if there is none.
    pub(crate) fn finish(
        self,
        storage: &dyn Storage,
        dir: &str,
        base_offset: i64,
    ) -> io::Result<Option<Arc<dyn File>>> {
        if self.entries == 0 {
            return remove(storage, dir, base_offset).map(|()| None);
        }
        let file = storage.open(&path(dir, base_offset), Open::Existing)?;
        if file.len()? > self.len_bytes() {
            file.set_len(self.len_bytes())?;
        }
        Ok(Some(file))
    }

    /// Replaces all entries and returns the file for a sync; `None` if there are no entries. A file that begins with them is
    /// kept: on a full disk it could not be written again.
    pub(crate) fn replace(
        &mut self,
        storage: &dyn Storage,
        dir: &str,
        base_offset: i64,
        entries: &[AbortedTransaction],
    ) -> io::Result<Option<Arc<dyn File>>> {
        self.entries = entries.len() as u64;
        if entries.is_empty() {
            return remove(storage, dir, base_offset).map(|()| None);
        }
        let path = path(dir, base_offset);
        match beginning_with(storage, &path, &encoded(entries))? {
            Some(file) => Ok(Some(file)),
            None => write(storage, &path, entries).map(Some),
        }
    }

    /// [`TxnIndex::replace`] and the sync. After an error of the write, the file has the entries that it had.
    pub(crate) fn replace_durably(
        &mut self,
        storage: &dyn Storage,
        dir: &str,
        base_offset: i64,
        entries: &[AbortedTransaction],
    ) -> io::Result<()> {
        let path = path(dir, base_offset);
        if entries.is_empty() {
            remove(storage, dir, base_offset)?;
        } else if let Some(file) = beginning_with(storage, &path, &encoded(entries))? {
            file.sync_data()?;
        } else {
            replace_file_loosely(storage, &path, &encoded(entries))?;
        }
        self.entries = entries.len() as u64;
        Ok(())
    }

    /// Reads all entries; `None` if the file is missing or is not an index of these offsets.
    pub(crate) fn load(
        self,
        storage: &dyn Storage,
        dir: &str,
        offsets: std::ops::Range<i64>,
    ) -> io::Result<Option<Vec<AbortedTransaction>>> {
        if self.entries == 0 {
            return Ok(Some(Vec::new()));
        }
        let file = match storage.open(&path(dir, offsets.start), Open::Existing) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let len = file.len()?;
        if len != self.len_bytes() {
            return Ok(None);
        }
        let mut all = Vec::new();
        let mut last = -1;
        let mut at = 0;
        while at < self.entries {
            let chunk = read_chunk(&*file, at, self.entries)?;
            for bytes in chunk.chunks_exact(ENTRY_BYTES) {
                let entry = AbortedTransaction::decode(bytes);
                let entry =
                    entry.filter(|entry| entry.last_offset > last && offsets.contains(&entry.last_offset));
                let Some(entry) = entry else { return Ok(None) };
                last = entry.last_offset;
                all.push(entry);
            }
            at += CHUNK_ENTRIES;
        }
        Ok(Some(all))
    }

    /// Adds the transactions that are searched for. Returns `true` if later segments have no others.
    pub(crate) fn search(
        self,
        storage: &dyn Storage,
        dir: &str,
        base_offset: i64,
        search: &mut Search<'_>,
    ) -> io::Result<bool> {
        if self.entries == 0 {
            return Ok(false);
        }
        let file = storage.open(&path(dir, base_offset), Open::Existing)?;
        let from = search.from;
        // The first entry whose marker is at `from` or above.
        let (mut low, mut high) = (0, self.entries);
        while high - low > CHUNK_ENTRIES {
            let middle = low.midpoint(high);
            if read_entry(&*file, middle)?.last_offset < from {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        while low < self.entries {
            let chunk = read_chunk(&*file, low, self.entries)?;
            for bytes in chunk.chunks_exact(ENTRY_BYTES) {
                let entry = AbortedTransaction::decode(bytes).ok_or_else(|| damaged(dir, base_offset))?;
                search.add(entry);
                // Later markers end transactions that begin there or above.
                if entry.last_stable_offset >= search.to {
                    return Ok(true);
                }
            }
            low += CHUNK_ENTRIES;
        }
        Ok(false)
    }

    fn len_bytes(self) -> u64 {
        self.entries * ENTRY_BYTES as u64
    }
}

/// A search for aborted transactions with records in a range of offsets.
#[derive(Debug)]
pub(crate) struct Search<'a> {
    from: i64,
    /// The range ends earlier once a transaction that begins there is not searched for any more.
    to: i64,
    /// The most transactions, of those that begin first.
    max: usize,
    /// Only transactions of these producers.
    producers: Option<&'a ProducerSet>,
    /// The transactions, in the order of their markers or of their first offsets.
    pub(crate) found: Vec<AbortedTransaction>,
}

impl<'a> Search<'a> {
    /// All transactions with records from `from` to below `to`.
    pub(crate) fn all_of(from: i64, to: i64) -> Self {
        Self { from, to, max: usize::MAX, producers: None, found: Vec::new() }
    }

    /// At most `max` of them, which is not 0: those that begin first.
    pub(crate) fn first_of(from: i64, to: i64, max: usize) -> Self {
        Self { max, ..Self::all_of(from, to) }
    }

    /// Those of these producers.
    pub(crate) fn of_producers(from: i64, to: i64, producers: &'a ProducerSet) -> Self {
        Self { producers: Some(producers), ..Self::all_of(from, to) }
    }

    pub(crate) fn from(&self) -> i64 {
        self.from
    }

    /// The transactions that were found, by their first offset.
    pub(crate) fn into_sorted(mut self) -> Vec<AbortedTransaction> {
        self.shorten();
        self.found
    }

    fn add(&mut self, entry: AbortedTransaction) {
        let is_inside = entry.last_offset >= self.from && entry.first_offset < self.to;
        if is_inside && self.producers.is_none_or(|producers| producers.contains(&entry.producer_id)) {
            self.found.push(entry);
            // A sort for each entry would be dear.
            if self.found.len() / 2 >= self.max {
                self.shorten();
            }
        }
    }

    /// Drops those that begin last, and ends the range with the last that stays.
    fn shorten(&mut self) {
        self.found.sort_unstable_by_key(|transaction| transaction.first_offset);
        self.found.truncate(self.max);
        if self.found.len() == self.max
            && let Some(last) = self.found.last()
        {
            self.to = self.to.min(last.first_offset);
        }
    }
}

/// Writes the file of an index.
pub(crate) fn write(
    storage: &dyn Storage,
    path: &str,
    entries: &[AbortedTransaction],
) -> io::Result<Arc<dyn File>> {
    let file = storage.open(path, Open::Empty)?;
    file.write_at(&encoded(entries), 0)?;
    Ok(file)
}

fn encoded(entries: &[AbortedTransaction]) -> Vec<u8> {
    entries.iter().flat_map(AbortedTransaction::encode).collect()
}

/// Returns a file if it begins with these bytes, without the others that it has.
fn beginning_with(storage: &dyn Storage, path: &str, bytes: &[u8]) -> io::Result<Option<Arc<dyn File>>> {
    let file = match storage.open(path, Open::Existing) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let (len, wanted) = (file.len()?, bytes.len() as u64);
    let mut found = vec![0; bytes.len()];
    if len < wanted || file.read_exact_at(&mut found, 0).is_err() || found != bytes {
        return Ok(None);
    }
    if len > wanted {
        file.set_len(wanted)?;
    }
    Ok(Some(file))
}

fn remove(storage: &dyn Storage, dir: &str, base_offset: i64) -> io::Result<()> {
    match storage.remove(&path(dir, base_offset)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Reads up to [`CHUNK_ENTRIES`] entries from the one with number `at` on.
fn read_chunk(file: &dyn File, at: u64, entries: u64) -> io::Result<Vec<u8>> {
    let count = CHUNK_ENTRIES.min(entries.saturating_sub(at));
    let mut bytes = vec![0; count as usize * ENTRY_BYTES];
    file.read_exact_at(&mut bytes, at * ENTRY_BYTES as u64)?;
    Ok(bytes)
}

fn read_entry(file: &dyn File, number: u64) -> io::Result<AbortedTransaction> {
    let mut bytes = [0; ENTRY_BYTES];
    file.read_exact_at(&mut bytes, number * ENTRY_BYTES as u64)?;
    AbortedTransaction::decode(&bytes)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("entry {number} is damaged")))
}

fn damaged(dir: &str, base_offset: i64) -> io::Error {
    let what = format!("{} is damaged; open the log again to rebuild it", path(dir, base_offset));
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn path(dir: &str, base_offset: i64) -> String {
    format!("{dir}/{}", file_name(base_offset, TXN_INDEX_SUFFIX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::mem::MemStorage;

    fn aborted(first_offset: i64, last_offset: i64, last_stable_offset: i64) -> AbortedTransaction {
        AbortedTransaction { producer_id: first_offset % 7, first_offset, last_offset, last_stable_offset }
    }

    #[test]
    fn an_entry_has_kafkas_34_bytes() {
        let entry =
            AbortedTransaction { producer_id: 1, first_offset: 2, last_offset: 3, last_stable_offset: 4 };
        let mut bytes = vec![0, 0];
        for number in [1_u8, 2, 3, 4] {
            bytes.extend([0, 0, 0, 0, 0, 0, 0, number]);
        }
        assert_eq!(entry.encode()[..], bytes[..]);
        assert_eq!(AbortedTransaction::decode(&bytes), Some(entry));
        assert_eq!(AbortedTransaction::decode(&bytes[..33]), None);
        bytes[1] = 1;
        assert_eq!(AbortedTransaction::decode(&bytes), None, "another version");
    }

    #[test]
    fn a_search_finds_the_transactions_that_overlap_a_range() {
        let disk = MemStorage::new();
        disk.create_dir("d").expect("created");
        let mut index = TxnIndex::default();
        let entries: Vec<_> = (0..2000).map(|n| aborted(n * 10, n * 10 + 15, n * 10)).collect();
        for entry in &entries {
            index.append(&disk, "d", 0, entry).expect("appended");
        }
        for (from, to) in
            [(0, 1), (0, 30_000), (7_777, 7_778), (9_995, 10_020), (19_999, 20_005), (30_000, 30_001)]
        {
            let mut search = Search::all_of(from, to);
            let is_complete = index.search(&disk, "d", 0, &mut search).expect("searched");
            let found = search.found;
            let overlaps = |entry: &&AbortedTransaction| entry.last_offset >= from && entry.first_offset < to;
            let expected: Vec<_> = entries.iter().filter(overlaps).copied().collect();
            assert_eq!(found, expected, "{from}..{to}");
            assert_eq!(is_complete, to <= 19_990, "{from}..{to}");
        }
        for max in [1, 10, 700] {
            let mut search = Search::first_of(7_777, 30_000, max);
            let is_complete = index.search(&disk, "d", 0, &mut search).expect("searched");
            let ends_inside = entries.iter().filter(|entry| entry.last_offset >= 7_777);
            let first: Vec<AbortedTransaction> = ends_inside.take(max).copied().collect();
            assert_eq!((search.into_sorted(), is_complete), (first, max < 700), "{max}");
        }
        assert_eq!(index.load(&disk, "d", 0..30_000).expect("read").map(|all| all.len()), Some(2000));
        assert_eq!(index.load(&disk, "d", 0..20_000).expect("read"), None, "a marker behind the segment");
    }
}
