//! A damaged journal is not opened: half a map would look like one from which entries were removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use ottla_log::storage::Storage;
use ottla_log::storage::mem::{Fault, MemStorage};
use ottla_log::{Journal, JournalConfig, JournalError, RecoveryReport, check_journal};

use crate::common::NOW;

const DIR: &str = "__meta";

fn config() -> JournalConfig {
    JournalConfig { rewrite_bytes_min: 1 << 20, batch_bytes: 200, segment_bytes: 600 }
}

fn open(disk: &MemStorage) -> Result<(Journal, RecoveryReport), JournalError> {
    Journal::open(Arc::new(disk.clone()), DIR, config(), NOW)
}

/// A journal of 24 keys in several segments, all of it synced.
fn filled(clean: bool) -> MemStorage {
    let disk = MemStorage::new();
    let (mut journal, _) = open(&disk).expect("opened");
    for n in 0..24 {
        let key = Bytes::from(format!("topic/{n}"));
        journal.put(NOW, key, Some("3 partitions".into())).expect("put");
        journal.sync_now().expect("synced");
    }
    if clean {
        journal.close().expect("closed");
    }
    disk
}

fn map(journal: &Journal) -> BTreeMap<Bytes, Bytes> {
    journal.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn files(disk: &MemStorage) -> Vec<String> {
    disk.paths()
}

#[test]
fn no_flipped_bit_of_a_journal_removes_or_changes_an_entry() {
    for clean in [true, false] {
        let reference = filled(clean);
        let whole = map(&open(&reference.fork()).expect("opened").0);
        assert_eq!(whole.len(), 24);
        let (mut refused, mut unharmed) = (0, 0);
        for path in files(&reference) {
            let sound = reference.contents(&path).expect("there");
            for at in 0..sound.len() {
                let disk = reference.fork();
                let mut bad = sound.clone();
                bad[at] ^= 1 << (at % 8);
                disk.set_contents(&path, &bad);
                match open(&disk) {
                    Ok((journal, _)) => {
                        assert_eq!(map(&journal), whole, "{path} byte {at}, clean: {clean}");
                        unharmed += 1;
                    }
                    Err(error) => {
                        let text = error.to_string();
                        let name = path.rsplit('/').next().expect("a name");
                        assert!(text.contains(DIR) && text.contains(name), "{path} byte {at}: {text}");
                        refused += 1;
                    }
                }
            }
        }
        assert!(refused > 1500 && unharmed > 100, "{refused} {unharmed}");
    }
}

#[test]
fn no_cut_of_a_journal_removes_an_entry() {
    for clean in [true, false] {
        let reference = filled(clean);
        let whole = map(&open(&reference.fork()).expect("opened").0);
        for path in files(&reference) {
            let sound = reference.contents(&path).expect("there");
            for cut in [Some(1), Some(7), Some(sound.len() / 2), Some(sound.len()), None] {
                let disk = reference.fork();
                match cut {
                    Some(cut) => disk.set_contents(&path, &sound[..sound.len().saturating_sub(cut)]),
                    None => disk.remove(&path).expect("removed"),
                }
                let log = path.rsplit('.').next() == Some("log") && !sound.is_empty() && cut != Some(0);
                match open(&disk) {
                    Ok((journal, _)) => assert!(!log && map(&journal) == whole, "{path} cut {cut:?}"),
                    Err(error) => {
                        assert!(error.to_string().contains("repair"), "{path} cut {cut:?}: {error}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_torn_change_that_was_never_synced_is_cut_off() {
    let disk = filled(false);
    let (mut journal, _) = open(&disk).expect("opened");
    journal.put(NOW, "topic/new".into(), Some("1 partition".into())).expect("put");
    drop(journal);
    let last = disk.paths().into_iter().rfind(|path| path.rsplit('.').next() == Some("log")).expect("one");
    let whole = disk.contents(&last).expect("there");
    for cut in 1..70 {
        let disk = disk.fork();
        disk.set_contents(&last, &whole[..whole.len() - cut]);
        let (journal, report) = open(&disk).expect("a torn tail is no damage");
        assert!(report.truncated_bytes > 0 && journal.len() == 24 && journal.get(b"topic/new").is_none());
    }
}

#[test]
fn a_salvage_keeps_the_sound_entries_and_the_journal_opens_again() {
    for clean in [true, false] {
        let reference = filled(clean);
        for path in files(&reference).iter().filter(|path| path.rsplit('.').next() == Some("log")) {
            let sound = reference.contents(path).expect("there");
            for at in [0, 8, 13, 16, 40, 70, sound.len() / 2, sound.len().saturating_sub(1)] {
                let disk = reference.fork();
                let mut bad = sound.clone();
                let Some(byte) = bad.get_mut(at) else { continue };
                *byte ^= 0x10;
                disk.set_contents(path, &bad);
                let context = format!("{path} byte {at}, clean: {clean}");
                assert!(open(&disk).is_err(), "{context}");
                let storage: Arc<dyn Storage> = Arc::new(disk.clone());
                assert_ne!(check_journal(&storage, DIR).expect("examined").losses, [], "{context}");
                let (journal, report) =
                    Journal::salvage(storage.clone(), DIR, config(), NOW).expect(&context);
                let left = map(&journal);
                let lost = usize::from(!(12..16).contains(&at));
                assert!(left.len() >= 22 && left.len() <= 24 - lost, "{context}: {}", left.len());
                assert!(lost == 0 || !report.losses.is_empty(), "{context}");
                drop(journal);
                let (mut journal, _) = open(&disk).expect(&context);
                assert_eq!(map(&journal), left, "{context}");
                journal.put(NOW, "on".into(), Some("it goes".into())).expect("put");
                journal.close().expect("closed");
                assert_eq!(open(&disk).expect(&context).0.len(), left.len() + 1, "{context}");
                assert_eq!(check_journal(&storage, DIR).expect("examined").losses, [], "{context}");
            }
        }
    }
}

/// The changes were made after the older segments were gone. A repair that was interrupted before them looked finished.
#[test]
fn a_salvage_that_is_interrupted_is_refused_until_its_changes_are_made() {
    let reference = filled(true);
    let is_segment = |path: &String| {
        path.rsplit('.').next() == Some("log")
            && reference.contents(path).is_some_and(|bytes| !bytes.is_empty())
    };
    // After such a loss the first steps of a salvage leave a journal that looks sound.
    let path = files(&reference).into_iter().rfind(is_segment).expect("a segment");
    let bytes = reference.contents(&path).expect("there");
    reference.set_contents(&path, &bytes[..bytes.len() - 1]);
    let changes: [(Bytes, Option<Bytes>); 2] =
        [("topic/restored".into(), Some("2 partitions".into())), ("topic/3".into(), None)];
    let salvage =
        |disk: &MemStorage| Journal::salvage_with(Arc::new(disk.clone()), DIR, config(), NOW, &changes);
    let expected = map(&salvage(&reference.fork()).expect("salvaged").0);
    assert!(expected.contains_key(&b"topic/restored"[..]) && !expected.contains_key(&b"topic/3"[..]));
    let mut calls = 0;
    loop {
        let disk = reference.fork();
        disk.fail_nth(calls, Fault::Io, true);
        let is_done = salvage(&disk).is_ok();
        disk.heal();
        if is_done {
            break;
        }
        if let Ok((journal, _)) = open(&disk) {
            assert_eq!(map(&journal), expected, "after {calls} calls");
        } else {
            let storage: Arc<dyn Storage> = Arc::new(disk.clone());
            assert_ne!(check_journal(&storage, DIR).expect("examined").losses, [], "after {calls} calls");
            let (journal, _) = salvage(&disk).expect("salvaged");
            assert_eq!(map(&journal), expected, "after {calls} calls");
        }
        calls += 1;
    }
    assert!(calls > 10, "{calls}");
}
