//! The parts of a log that read its small files, for fuzz targets. Only with the feature `fuzzing`.

use crate::checkpoint::{CleanMark, decode_bad, encode_bad};
use crate::epochs::{self, Epochs};
use crate::index::{Index, IndexEntry, Loaded, OffsetEntry, TimeEntry};
use crate::producers::Producers;
use crate::segment_name::{TXN_INDEX_SUFFIX, file_name};
use crate::storage::Storage;
use crate::storage::mem::MemStorage;
use crate::synced::{self, Found};
use crate::txn_index::{AbortedTransaction, Search, TxnIndex};

const DIR: &str = "d";

/// An offset index with these bytes: a lookup finds what a walk over all entries finds.
pub fn offset_index(bytes: &[u8], wanted: i64) {
    index::<OffsetEntry>(bytes, |entry| i64::from(entry.relative_offset) <= wanted);
}

/// A time index with these bytes.
pub fn time_index(bytes: &[u8], wanted: i64) {
    index::<TimeEntry>(bytes, |entry| entry.timestamp < wanted);
}

fn index<E: IndexEntry>(bytes: &[u8], holds: impl Fn(E) -> bool) {
    let path = format!("{DIR}/index");
    let disk = disk_with(&path, bytes);
    let load = || Index::<E>::load(&disk, path.clone()).expect("a disk in memory");
    let Loaded::Sound(mut index) = load() else { return };
    let entries: Vec<E> = bytes.chunks_exact(E::BYTES).map(E::decode).collect();
    assert!(entries.windows(2).all(|pair| pair[0].precedes(pair[1])), "entries rise");
    assert_eq!(index.last(), entries.last().copied());
    let found = index.view().last_where(&holds).expect("a disk in memory");
    assert_eq!(found, entries.iter().copied().take_while(|entry| holds(*entry)).last());
    index.truncate(|entry| !holds(entry)).expect("a disk in memory");
    assert_eq!(index.last(), found, "a cut index ends at the entry");
    let Loaded::Sound(again) = load() else { panic!("a cut index is sound") };
    assert_eq!((again.last(), again.len_bytes()), (index.last(), index.len_bytes()));
}

/// A snapshot of the producers with these bytes, which is written again and read again.
pub fn producer_snapshot(bytes: &[u8]) {
    let Some(producers) = Producers::decode(bytes) else { return };
    assert!(producers.len() <= bytes.len() / 46, "an entry has 46 bytes");
    let _ = producers.describe();
    let written = producers.encode();
    let again = Producers::decode(&written).expect("what was written can be read");
    assert!(again.encode() == written, "the state survives");
}

/// A transaction index with these bytes: a search finds what a walk over all entries finds.
pub fn transaction_index(bytes: &[u8], from: i64, to: i64) {
    let disk = disk_with(&format!("{DIR}/{}", file_name(0, TXN_INDEX_SUFFIX)), bytes);
    let index = TxnIndex::of_len(bytes.len() as u64);
    let mut search = Search::all_of(from, to);
    let searched = index.search(&disk, DIR, 0, &mut search);
    let found = search.found;
    let Some(entries) = index.load(&disk, DIR, 0..i64::MAX).expect("a disk in memory") else { return };
    let written: Vec<u8> = entries.iter().flat_map(AbortedTransaction::encode).collect();
    assert_eq!(written, bytes, "every byte has a meaning");
    let is_complete = searched.expect("a sound index can be searched");
    let first = entries.partition_point(|entry| entry.last_offset < from);
    let ends = entries[first..].iter().position(|entry| entry.last_stable_offset >= to);
    // A search may begin before the first entry with its marker in the range.
    let until = ends.map_or(entries.len(), |at| first + at + 1);
    let overlaps = |entry: &&AbortedTransaction| entry.last_offset >= from && entry.first_offset < to;
    let expected: Vec<_> = entries[..until].iter().filter(overlaps).copied().collect();
    assert!(is_complete || found == expected, "{found:?} instead of {expected:?}");
}

/// The bodies of the mark of a clean close and of the quarantine.
pub fn checkpoints(body: &[u8]) {
    if let Some(mark) = CleanMark::decode(body) {
        assert_eq!(CleanMark::decode(&mark.encode()), Some(mark));
    }
    let bad = decode_bad(body);
    for range in &bad {
        let _ = range.to_string();
    }
    assert_eq!(decode_bad(&encode_bad(&bad)), bad);
}

/// A file of leader epochs with these bytes.
pub fn leader_epochs(bytes: &[u8], offset: i64) {
    let path = format!("{DIR}/{}", epochs::FILE_NAME);
    let disk = disk_with(&path, bytes);
    let Some(mut epochs) = Epochs::load(&disk, DIR) else { return };
    epochs.store(&disk, DIR).expect("a disk in memory");
    assert_eq!(Epochs::load(&disk, DIR).as_ref(), Some(&epochs), "what was written can be read");
    let latest = epochs.latest();
    for epoch in [0, 1, i32::MAX].into_iter().chain(latest) {
        let end = epochs.end_of(epoch, i64::MAX);
        assert!(end.is_none_or(|(known, _)| known <= epoch), "an earlier epoch, or the same");
    }
    epochs.forget_before(offset);
    assert_eq!(epochs.latest(), latest, "the latest epoch stays");
    epochs.truncate(offset);
    epochs.note(i32::MAX, offset);
}

/// A `synced` file with these bytes. Returns the durable offset and the start offset, as far as they are known.
pub fn synced(bytes: &[u8]) -> (Option<i64>, Option<i64>) {
    let disk = disk_with(&format!("{DIR}/synced"), bytes);
    let found = synced::load(&disk, DIR).expect("a disk in memory");
    assert!(!matches!(found, Found::Missing), "there is a file");
    (found.synced(), found.start())
}

fn disk_with(path: &str, bytes: &[u8]) -> MemStorage {
    let disk = MemStorage::new();
    disk.create_dir(DIR).expect("a disk in memory");
    disk.set_contents(path, bytes);
    disk
}

/// Seeds: files as this crate writes them.
pub mod seeds {
    use ottla_wire::BatchHeader;

    use super::{
        AbortedTransaction, CleanMark, DIR, Epochs, IndexEntry, MemStorage, OffsetEntry, Producers, Storage,
        TimeEntry, epochs,
    };

    fn bytes_of<E: IndexEntry>(entries: &[E]) -> Vec<u8> {
        let mut bytes = vec![0; entries.len() * E::BYTES];
        for (entry, out) in entries.iter().zip(bytes.chunks_exact_mut(E::BYTES)) {
            entry.encode(out);
        }
        bytes
    }

    /// An offset index of so many entries.
    pub fn offset_index(count: i32) -> Vec<u8> {
        let entry = |n| OffsetEntry { relative_offset: n * 10, position: n as u32 * 4096 };
        bytes_of(&(1..=count).map(entry).collect::<Vec<_>>())
    }

    /// A time index of so many entries.
    pub fn time_index(count: i32) -> Vec<u8> {
        let entry = |n| TimeEntry { timestamp: 1_700_000_000_000 + i64::from(n), relative_offset: n * 10 };
        bytes_of(&(1..=count).map(entry).collect::<Vec<_>>())
    }

    /// A transaction index of so many entries.
    pub fn transaction_index(count: i64) -> Vec<u8> {
        let entry = |n| AbortedTransaction {
            producer_id: 4000 + n % 3,
            first_offset: n * 10,
            last_offset: n * 10 + 15,
            last_stable_offset: n * 10,
        };
        (0..count).flat_map(|n| entry(n).encode()).collect()
    }

    /// A snapshot of so many producers, each with up to six batches.
    pub fn producer_snapshot(count: i64) -> Vec<u8> {
        let mut producers = Producers::default();
        for id in 0..count {
            for batch in 0..=id % 6 {
                let header = BatchHeader {
                    base_offset: 0,
                    batch_length: 100,
                    partition_leader_epoch: 0,
                    crc: 0,
                    attributes: 0,
                    last_offset_delta: 2,
                    base_timestamp: 1_700_000_000_000,
                    max_timestamp: 1_700_000_000_000 + id,
                    producer_id: 4000 + id,
                    producer_epoch: 1,
                    base_sequence: batch as i32 * 3,
                    record_count: 3,
                };
                producers.note(&header, id * 100 + batch * 3, 1_700_000_000_000, 1000);
            }
        }
        producers.encode()
    }

    /// The body of the mark of a clean close.
    pub fn clean_mark() -> Vec<u8> {
        CleanMark { segments: vec![(0, 4096), (77, 512)], end: 90 }.encode()
    }

    /// A file of leader epochs.
    pub fn leader_epochs() -> Vec<u8> {
        let mut epochs = Epochs::default();
        for (epoch, offset) in [(0, 0), (3, 17), (4, 170)] {
            epochs.note(epoch, offset);
        }
        let disk = MemStorage::new();
        disk.create_dir(DIR).expect("a disk in memory");
        epochs.store(&disk, DIR).expect("a disk in memory");
        disk.contents(&format!("{DIR}/{}", epochs::FILE_NAME)).expect("written above")
    }
}
