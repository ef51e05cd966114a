//! The files of a journal after any damage.

use std::collections::BTreeMap;

use bytes::Bytes;
use ottla_log::storage::mem::MemStorage;
use ottla_log::{Journal, JournalConfig, check_journal};

use crate::disk::{Image, contents, seed_of, storage};

const DIR: &str = "__meta";
const NOW_MS: i64 = 1_700_000_000_000;

type Map = BTreeMap<Bytes, Bytes>;

/// A journal is opened with the entries of its files, or refused without a change.
pub(crate) fn run(input: &[u8]) {
    let image = Image::read(input);
    let disk = image.disk(DIR);
    let before = contents(&disk);
    let _ = check_journal(&storage(&disk), DIR);
    assert_eq!(contents(&disk), before, "a check changes nothing");
    match open(&disk) {
        Some(map) => {
            assert_not_invented(&map, &image);
            assert_eq!(open(&disk).as_ref(), Some(&map), "a second start finds the same");
            append_and_open_again(&disk, map);
        }
        None => {
            if let Ok((journal, _)) = Journal::salvage(storage(&disk), DIR, JournalConfig::default(), NOW_MS)
            {
                let map = entries(&journal);
                drop(journal);
                assert_not_invented(&map, &image);
                assert_eq!(open(&disk), Some(map), "a repaired journal is sound");
            }
        }
    }
}

fn open(disk: &MemStorage) -> Option<Map> {
    let (journal, _) = Journal::open(storage(disk), DIR, JournalConfig::default(), NOW_MS).ok()?;
    Some(entries(&journal))
}

fn entries(journal: &Journal) -> Map {
    journal.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Every key and value is in a file.
fn assert_not_invented(map: &Map, image: &Image) {
    for part in map.iter().flat_map(|(key, value)| [key, value]).filter(|part| !part.is_empty()) {
        assert!(image.contains(part), "{part:?} is in no file");
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
