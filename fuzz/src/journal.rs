//! The files of a journal after any damage.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ottla_log::storage::Storage;
use ottla_log::storage::mem::MemStorage;
use ottla_log::{Journal, JournalConfig, check_journal};

use crate::input::{Input, push_part};
use crate::wire::repair_checksums;

const DIR: &str = "__meta";
const NOW_MS: i64 = 1_700_000_000_000;

/// The files that an input may contain, by number.
const FILES: [&str; 10] = [
    "00000000000000000000.log",
    "00000000000000000000.index",
    "00000000000000000000.timeindex",
    "00000000000000000003.log",
    "synced",
    "recovery-point",
    "clean-shutdown",
    "log-start-offset",
    "quarantine",
    "leader-epoch-checkpoint",
];

type Map = BTreeMap<Bytes, Bytes>;

/// A journal is opened with the entries of its files, or refused without a change.
pub(crate) fn run(input: &[u8]) {
    let files = files_of(input);
    let disk = disk_of(&files);
    let before = contents(&disk);
    let _ = check_journal(&storage(&disk), DIR);
    assert_eq!(contents(&disk), before, "a check changes nothing");
    match open(&disk) {
        Some(map) => {
            assert_not_invented(&map, &files);
            assert_eq!(open(&disk).as_ref(), Some(&map), "a second start finds the same");
            append_and_open_again(&disk, map);
        }
        None => {
            if let Ok((journal, _)) = Journal::salvage(storage(&disk), DIR, JournalConfig::default(), NOW_MS)
            {
                let map = entries(&journal);
                drop(journal);
                assert_not_invented(&map, &files);
                assert_eq!(open(&disk), Some(map), "a repaired journal is sound");
            }
        }
    }
}

/// The files of an input: a byte of choices, and a number and a part for each file.
fn files_of(input: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut input = Input::new(input);
    let choices = input.byte();
    let mut files = Vec::new();
    while !input.is_empty() {
        let name = FILES[usize::from(input.byte()) % FILES.len()];
        let mut bytes = input.part().to_vec();
        if choices & 1 == 0 && name.ends_with(".log") {
            repair_checksums(&mut bytes);
        }
        files.push((name, bytes));
    }
    files
}

fn disk_of(files: &[(&'static str, Vec<u8>)]) -> MemStorage {
    let disk = MemStorage::new();
    disk.create_dir(DIR).expect("a disk in memory");
    for (name, bytes) in files {
        disk.set_contents(&format!("{DIR}/{name}"), bytes);
    }
    disk
}

fn storage(disk: &MemStorage) -> Arc<dyn Storage> {
    Arc::new(disk.clone())
}

fn contents(disk: &MemStorage) -> Vec<(String, Option<Vec<u8>>)> {
    disk.paths().into_iter().map(|path| (path.clone(), disk.contents(&path))).collect()
}

fn open(disk: &MemStorage) -> Option<Map> {
    let (journal, _) = Journal::open(storage(disk), DIR, JournalConfig::default(), NOW_MS).ok()?;
    Some(entries(&journal))
}

fn entries(journal: &Journal) -> Map {
    journal.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Every key and value is in a file.
fn assert_not_invented(map: &Map, files: &[(&'static str, Vec<u8>)]) {
    for part in map.iter().flat_map(|(key, value)| [key, value]).filter(|part| !part.is_empty()) {
        let is_in = |bytes: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        assert!(files.iter().any(|(_, bytes)| is_in(bytes)), "{part:?} is in no file");
    }
}

fn append_and_open_again(disk: &MemStorage, mut map: Map) {
    let (mut journal, _) =
        Journal::open(storage(disk), DIR, JournalConfig::default(), NOW_MS).expect("opened before");
    let (key, value) = (Bytes::from_static(b"topic/new"), Bytes::from_static(b"3 partitions"));
    // The last offset may be used up.
    if journal.put(NOW_MS, key.clone(), Some(value.clone())).is_ok() {
        map.insert(key, value);
        let _ = journal.sync_now().expect("a disk in memory");
    }
    drop(journal);
    assert_eq!(open(disk), Some(map), "an acknowledged entry is there");
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let disk = MemStorage::new();
    let config = JournalConfig::default();
    let (mut journal, _) = Journal::open(storage(&disk), DIR, config.clone(), NOW_MS).expect("a new journal");
    let mut seeds = vec![seed_of(&disk)];
    let put = |journal: &mut Journal, key: &'static str, value: Option<&'static str>| {
        journal.put(NOW_MS, key.into(), value.map(Into::into)).expect("appended");
    };
    put(&mut journal, "topic/orders", Some("12 partitions"));
    put(&mut journal, "topic/users", Some("1 partition"));
    put(&mut journal, "producer-ids", Some("4000"));
    seeds.push(seed_of(&disk));
    journal.sync_now().expect("synced");
    seeds.push(seed_of(&disk));
    put(&mut journal, "topic/users", None);
    journal.sync_now().expect("synced");
    journal.close().expect("closed");
    seeds.push(seed_of(&disk));
    Journal::salvage(storage(&disk), DIR, config, NOW_MS).expect("salvaged");
    seeds.push(seed_of(&disk));
    seeds
}

fn seed_of(disk: &MemStorage) -> Vec<u8> {
    let mut seed = vec![0];
    for path in disk.paths() {
        let name = path.rsplit('/').next().unwrap_or_default();
        if let (Some(number), Some(bytes)) =
            (FILES.iter().position(|file| *file == name), disk.contents(&path))
        {
            seed.push(number as u8);
            push_part(&mut seed, &bytes);
        }
    }
    seed
}
