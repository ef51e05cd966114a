//! Synced records are missing: opening the log fails, changes no file, and reports the next step.

use std::sync::Arc;

use ottla_log::storage::Storage;
use ottla_log::storage::mem::MemStorage;
use ottla_log::{Log, LogConfig, LogError, Loss, Visible, check_log};

use crate::common::{DIR, NOW, append, log_files, open, records, small, sync};

/// The bytes of an entry of a time index: a timestamp and a relative offset.
const TIME_ENTRY_BYTES: usize = 12;

fn numbered(n: usize) -> Vec<u8> {
    format!("value {n}").into_bytes()
}

/// Returns a disk with a log of this number of synced records, closed cleanly or not.
fn synced(config: &LogConfig, count: usize, clean: bool) -> MemStorage {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, config);
    for n in 0..count {
        append(&mut log, &numbered(n)).expect("appended");
        if n % 10 == 9 {
            sync(&mut log);
        }
    }
    sync(&mut log);
    if clean {
        log.close().expect("closed");
    }
    disk
}

fn image(disk: &MemStorage) -> Vec<(String, Vec<u8>)> {
    disk.paths().into_iter().map(|path| (path.clone(), disk.contents(&path).expect("there"))).collect()
}

/// Opening is refused with this loss, and the disk is as it was.
fn refused(disk: &MemStorage, config: &LogConfig, context: &str) -> Vec<Loss> {
    let before = image(disk);
    let error = Log::open(Arc::new(disk.clone()), DIR, config.clone(), NOW).expect_err(context);
    let text = error.to_string();
    assert!(text.contains(DIR) && text.contains("ottla log repair"), "{context}: {text}");
    let LogError::Lost { losses, .. } = error else { panic!("{context}: {text}") };
    assert!(!losses.is_empty(), "{context}");
    assert!(image(disk) == before, "{context}: the disk was changed");
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    assert!(!check_log(&storage, DIR).expect("examined").losses.is_empty(), "{context}");
    assert!(image(disk) == before, "{context}: a check has changed the disk");
    losses
}

#[test]
fn a_tail_cut_off_below_what_was_synced_is_a_loss_and_not_a_shorter_log() {
    for visible in [Visible::Synced, Visible::End] {
        for clean in [true, false] {
            let config = LogConfig { visible, ..LogConfig::default() };
            let disk = synced(&config, 100, clean);
            let path = &log_files(&disk)[0];
            let whole = disk.contents(path).expect("there");
            for cut in [1, 7, whole.len() / 2, whole.len()] {
                let disk = disk.fork();
                disk.set_contents(path, &whole[..whole.len() - cut]);
                let context = format!("{visible:?}, clean: {clean}, cut: {cut}");
                let losses = refused(&disk, &config, &context);
                if !clean {
                    let left = (whole.len() - cut) as i64 * 100 / whole.len() as i64;
                    let found = losses.iter().any(|loss| {
                        matches!(loss, Loss::End { end, synced: 100, .. } if (left - 1..=left + 1).contains(end))
                    });
                    assert!(found, "{context}: {losses:?}");
                }
            }
        }
    }
}

#[test]
fn a_missing_segment_is_a_loss_wherever_it_was() {
    for visible in [Visible::Synced, Visible::End] {
        for clean in [true, false] {
            let config = LogConfig { visible, ..small() };
            let disk = synced(&config, 100, clean);
            let files = log_files(&disk);
            assert!(files.len() > 5);
            for path in &files {
                let disk = disk.fork();
                disk.remove(path).expect("removed");
                refused(&disk, &config, &format!("{visible:?}, clean: {clean}, without {path}"));
            }
            for path in &files {
                refused(&disk.fork_without(&files), &config, "without any segment");
                let disk = disk.fork();
                let whole = disk.contents(path).expect("there");
                if whole.is_empty() {
                    continue;
                }
                disk.set_contents(path, &whole[..whole.len() - 1]);
                refused(&disk, &config, &format!("{visible:?}, clean: {clean}, one byte less of {path}"));
            }
        }
    }
}

#[test]
fn bytes_behind_the_last_batch_of_a_closed_segment_are_no_loss_and_cut_off() {
    for visible in [Visible::Synced, Visible::End] {
        for clean in [true, false] {
            let config = LogConfig { visible, ..small() };
            let disk = synced(&config, 100, clean);
            for path in &log_files(&disk)[..3] {
                let disk = disk.fork();
                let whole = disk.contents(path).expect("there");
                disk.set_contents(path, &[&whole[..], b"left over"].concat());
                let storage: Arc<dyn Storage> = Arc::new(disk.clone());
                assert!(check_log(&storage, DIR).expect("examined").losses.is_empty());
                let (mut log, _) = open(&disk, &config);
                let expected: Vec<_> = (0..100).map(|n| (n as i64, numbered(n))).collect();
                assert_eq!(records(&mut log), expected, "{visible:?}, clean: {clean}, {path}");
                assert_eq!(disk.contents(path).expect("there"), whole);
            }
        }
    }
}

trait Without {
    fn fork_without(&self, paths: &[String]) -> MemStorage;
}

impl Without for MemStorage {
    fn fork_without(&self, paths: &[String]) -> MemStorage {
        let disk = self.fork();
        for path in paths {
            disk.remove(path).expect("removed");
        }
        disk
    }
}

#[test]
fn without_the_synced_file_a_sound_log_opens_and_a_torn_one_does_not() {
    for visible in [Visible::Synced, Visible::End] {
        let config = LogConfig { visible, ..LogConfig::default() };
        let disk = synced(&config, 50, false);
        for harm in [None, Some(&b""[..]), Some(&[0x55; 1100][..])] {
            let disk = disk.fork();
            match harm {
                None => disk.remove("orders-0/synced").expect("removed"),
                Some(bytes) => disk.set_contents("orders-0/synced", bytes),
            }
            let torn = disk.fork();
            let (mut log, report) = open(&disk, &config);
            assert_eq!((log.end_offset(), report.truncated_bytes), (50, 0));
            assert_eq!(records(&mut log).len(), 50);
            drop(log);
            // The file is back.
            let path = &log_files(&disk)[0];
            let whole = disk.contents(path).expect("there");
            disk.set_contents(path, &whole[..whole.len() - 3]);
            refused(&disk, &config, "with the file again");

            torn.set_contents(path, &whole[..whole.len() - 3]);
            let losses = refused(&torn, &config, "torn and without the file");
            assert!(matches!(losses[0], Loss::Unknown { offset: 49, .. }), "{losses:?}");
        }
    }
}

#[test]
fn deleted_records_are_not_lost_ones() {
    for clean in [true, false] {
        let config = LogConfig { retention_bytes: Some(2000), visible: Visible::Synced, ..small() };
        let disk = synced(&config, 200, false);
        let (mut log, _) = open(&disk, &config);
        let gone = log.enforce_retention(NOW).expect("enforced");
        assert!(gone.segments > 3);
        drop(gone);
        let start = log.start_offset();
        append(&mut log, b"more").expect("appended");
        sync(&mut log);
        let all = if clean { log.close().map(|()| 201).expect("closed") } else { 201 };
        let (mut log, report) = open(&disk, &config);
        assert_eq!((report.clean, log.start_offset(), log.end_offset()), (clean, start, all));
        log.delete_records_before(201).expect("deleted");
        if clean {
            log.close().expect("closed");
        } else {
            drop(log);
        }
        // Deleted records stay deleted if one of the two files with the start offset is missing.
        for path in ["orders-0/log-start-offset", "orders-0/synced"] {
            let disk = disk.fork();
            disk.remove(path).expect("removed");
            let (mut log, _) = open(&disk, &config);
            assert_eq!((log.start_offset(), log.end_offset()), (201, 201), "without {path}");
            assert!(records(&mut log).is_empty());
        }
    }
}

#[test]
fn a_truncated_log_is_not_a_lost_one() {
    for clean in [true, false] {
        let config = LogConfig { visible: Visible::Synced, ..small() };
        let disk = synced(&config, 100, false);
        let (mut log, _) = open(&disk, &config);
        log.truncate_to(33, NOW).expect("cut");
        if clean {
            log.close().expect("closed");
        } else {
            drop(log);
        }
        for slot in 0..3 {
            let disk = disk.fork();
            let mut bytes = disk.contents("orders-0/synced").expect("there");
            bytes[slot * 512 + 9] ^= 1;
            disk.set_contents("orders-0/synced", &bytes);
            assert_eq!(open(&disk, &config).0.end_offset(), 33);
        }
    }
}

#[test]
fn a_salvage_keeps_what_is_sound_and_never_uses_an_offset_again() {
    for visible in [Visible::Synced, Visible::End] {
        for clean in [true, false] {
            let config = LogConfig { visible, ..small() };
            let disk = synced(&config, 100, clean);
            let files = log_files(&disk);
            let cut = |disk: &MemStorage, path: &str| {
                let whole = disk.contents(path).expect("there");
                disk.set_contents(path, &whole[..whole.len() - 1]);
            };
            type Harm<'a> = (&'a str, Box<dyn Fn(&MemStorage) + 'a>);
            let harms: Vec<Harm<'_>> = vec![
                ("the first segment", Box::new(|disk| disk.remove(&files[0]).expect("removed"))),
                ("a segment in the middle", Box::new(|disk| disk.remove(&files[3]).expect("removed"))),
                (
                    "the last segment",
                    Box::new(|disk| disk.remove(files.last().expect("one")).expect("removed")),
                ),
                ("a byte in the middle", Box::new(|disk| cut(disk, &files[3]))),
                ("a byte at the end", Box::new(|disk| cut(disk, files.last().expect("one")))),
                (
                    "every segment",
                    Box::new(|disk| files.iter().for_each(|f| disk.remove(f).expect("removed"))),
                ),
            ];
            for (name, harm) in harms {
                let disk = disk.fork();
                harm(&disk);
                let context = format!("{visible:?}, clean: {clean}, without {name}");
                refused(&disk, &config, &context);
                let (mut log, report) =
                    Log::salvage(Arc::new(disk.clone()), DIR, config.clone(), NOW, 0).expect(&context);
                assert!(!report.losses.is_empty(), "{context}");
                assert_eq!(log.end_offset(), 100, "{context}");
                let left = records(&mut log);
                for (offset, value) in &left {
                    assert_eq!(*value, numbered(*offset as usize), "{context}");
                }
                assert!(
                    left.len() >= if name == "every segment" { 0 } else { 80 },
                    "{context}: {}",
                    left.len()
                );
                assert_eq!(append(&mut log, b"on").expect("appended").base_offset, 100, "{context}");
                sync(&mut log);
                for close in [false, true] {
                    if close {
                        log.close().expect("closed");
                    } else {
                        drop(log);
                    }
                    let report;
                    (log, report) = open(&disk, &config);
                    assert_eq!((report.clean, log.end_offset()), (close, 101), "{context}");
                    assert_eq!(records(&mut log).len(), left.len() + 1, "{context}");
                }
                drop(log);
                let storage: Arc<dyn Storage> = Arc::new(disk.clone());
                assert_eq!(check_log(&storage, DIR).expect("examined").losses, [], "{context}");
            }
        }
    }
}

#[test]
fn a_salvage_that_leaves_an_empty_segment_is_found_sound() {
    for clean in [true, false] {
        let disk = synced(&small(), 100, clean);
        let last = log_files(&disk).pop().expect("one");
        let zeros = vec![0; disk.contents(&last).expect("there").len()];
        for harm in [&zeros[..], &[]] {
            for close in [true, false] {
                let disk = disk.fork();
                disk.set_contents(&last, harm);
                let storage: Arc<dyn Storage> = Arc::new(disk.clone());
                let (log, _) = Log::salvage(storage.clone(), DIR, small(), NOW, 0).expect("salvaged");
                if close {
                    log.close().expect("closed");
                } else {
                    drop(log);
                }
                assert_eq!(check_log(&storage, DIR).expect("examined").losses, [], "{clean} {close}");
                assert_eq!(open(&disk, &small()).0.end_offset(), 100);
            }
        }
    }
}

#[test]
fn a_missing_directory_of_a_known_log_is_a_loss() {
    let disk = MemStorage::new();
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let error = Log::open_existing(storage.clone(), DIR, small(), NOW, 0).expect_err("missing");
    assert!(error.is_loss() && error.to_string().contains("directory is missing"), "{error}");
    assert!(disk.paths().is_empty());
    let (mut log, _) = Log::salvage(storage, DIR, small(), NOW, 77).expect("salvaged");
    assert_eq!((log.start_offset(), append(&mut log, b"on").expect("appended").base_offset), (77, 77));
    drop(log);
    assert_eq!(open(&disk, &small()).0.start_offset(), 77);
}

#[test]
fn a_damaged_time_index_deletes_nothing_early() {
    let config = LogConfig { retention_ms: Some(3_600_000), ..small() };
    let reference = synced(&config, 100, true);
    let indexes: Vec<String> =
        reference.paths().into_iter().filter(|path| path.rsplit('.').next() == Some("timeindex")).collect();
    assert!(indexes.len() > 5);
    for path in &indexes {
        for bit in 0..64 {
            let disk = reference.fork();
            let mut bytes = disk.contents(path).expect("there");
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
            disk.set_contents(path, &bytes);
            let (mut log, _) = open(&disk, &config);
            let gone = log.enforce_retention(NOW + 60_000).expect("enforced");
            assert_eq!((gone.segments, log.start_offset()), (0, 0), "{path}, bit {bit}");
        }
    }
    let (mut log, _) = open(&reference, &config);
    assert!(log.enforce_retention(NOW + 3_700_000).expect("enforced").segments > 5);
}

/// A segment with a later timestamp in its time index was never old enough, and neither were those behind it.
#[test]
fn a_damaged_time_index_keeps_nothing_for_ever() {
    let config = LogConfig { retention_ms: Some(3_600_000), ..small() };
    let reference = synced(&config, 100, true);
    let is_time_index = |path: &String| path.rsplit('.').next() == Some("timeindex");
    let indexes: Vec<String> = reference.paths().into_iter().filter(is_time_index).collect();
    assert!(indexes.len() > 5);
    for path in &indexes {
        for bit in 0..64 {
            let disk = reference.fork();
            let mut bytes = disk.contents(path).expect("there");
            let last = bytes.len() - TIME_ENTRY_BYTES;
            bytes[last + bit / 8] ^= 0x80 >> (bit % 8);
            disk.set_contents(path, &bytes);
            let (mut log, _) = open(&disk, &config);
            drop(log.enforce_retention(NOW + 3_700_000).expect("enforced"));
            assert_eq!(log.start_offset(), 100, "{path}, bit {bit}");
        }
    }
}

/// The offsets of every batch that a fetch returns, from `from` up to the end.
fn fetched(log: &mut Log, from: i64) -> Vec<(i64, i64)> {
    let mut next = from;
    let mut batches = Vec::new();
    while next < log.end_offset() {
        let read = log.read(next, 1 << 20, i64::MAX, true).expect("readable");
        let bytes = read.chain.to_bytes().expect("read");
        let before = next;
        for found in ottla_wire::Batches::new(&bytes) {
            let (header, range) = found.expect("a batch");
            header.verify_crc(&bytes[range]).expect("sound");
            batches.push((header.base_offset, header.next_offset()));
            next = header.next_offset();
        }
        assert!(next > before, "a consumer at {next} receives nothing that moves it on: {batches:?}");
    }
    batches
}

/// Earlier, a consumer at the gap after the last record waited for the next record.
#[test]
fn an_empty_batch_leads_consumers_over_the_gap_at_the_end_of_a_salvaged_log() {
    for clean in [true, false] {
        let config = LogConfig { visible: Visible::Synced, ..small() };
        let disk = synced(&config, 100, clean);
        let last = log_files(&disk).pop().expect("one");
        let whole = disk.contents(&last).expect("there");
        for harm in ["a byte", "a segment", "zeros"] {
            let disk = disk.fork();
            match harm {
                "a byte" => disk.set_contents(&last, &whole[..whole.len() - 1]),
                "a segment" => disk.remove(&last).expect("removed"),
                _ => disk.set_contents(&last, &vec![0; whole.len()]),
            }
            let context = format!("clean: {clean}, {harm}");
            let (mut log, _) =
                Log::salvage(Arc::new(disk.clone()), DIR, config.clone(), NOW, 0).expect(&context);
            let batches = fetched(&mut log, 0);
            let (gap, end) = *batches.last().expect("one");
            assert!(gap < 100 && end == 100, "{context}: {batches:?}");
            assert!(batches.windows(2).all(|pair| pair[0].1 == pair[1].0), "{context}: {batches:?}");
            assert_eq!(append(&mut log, b"on").expect("appended").base_offset, 100, "{context}");
            sync(&mut log);
            drop(log);
            let (mut log, _) = open(&disk, &config);
            assert_eq!(fetched(&mut log, gap), [(gap, 100), (100, 101)], "{context}");
        }
    }
}

/// Earlier, a repair moved the start of the log to a committed offset, so that the records below it were lost.
#[test]
fn a_salvage_keeps_the_records_below_the_lowest_next_offset() {
    let config = small();
    let disk = synced(&config, 100, true);
    let last = log_files(&disk).pop().expect("one");
    let whole = disk.contents(&last).expect("there");
    disk.set_contents(&last, &whole[..whole.len() - 1]);
    for without_synced in [false, true] {
        let disk = disk.fork();
        if without_synced {
            disk.remove("orders-0/synced").expect("removed");
        }
        let (mut log, _) = Log::salvage(Arc::new(disk), DIR, config.clone(), NOW, 120).expect("salvaged");
        // `synced` knows which offsets are used; without it the caller does.
        let end = if without_synced { 120 } else { 100 };
        assert_eq!((log.start_offset(), log.end_offset()), (0, end));
        let left = records(&mut log);
        assert!(left.len() > 90 && left[0].0 == 0, "{}", left.len());
        assert_eq!(fetched(&mut log, 0).last().map(|(_, next)| *next), Some(end));
    }
}

#[test]
fn a_loss_is_reported_once() {
    for clean in [true, false] {
        let disk = synced(&small(), 100, clean);
        let files = log_files(&disk);
        for path in [&files[0], &files[3], files.last().expect("one")] {
            let disk = disk.fork();
            disk.remove(path).expect("removed");
            let losses = refused(&disk, &small(), path);
            assert_eq!(losses.len(), 1, "{path}: {losses:?}");
            let storage: Arc<dyn Storage> = Arc::new(disk);
            let losses = check_log(&storage, DIR).expect("examined").losses;
            assert_eq!(losses.len(), 1, "{path}: {losses:?}");
        }
    }
}

#[test]
fn a_directory_that_is_named_like_a_segment_is_reported_with_its_name() {
    let disk = synced(&small(), 20, true);
    for name in ["00000000000000000099.log", "00000000000000000000.index", "quarantine"] {
        let disk = disk.fork();
        let path = format!("{DIR}/{name}");
        if disk.contents(&path).is_some() {
            disk.remove(&path).expect("removed");
        }
        disk.create_dir(&path).expect("created");
        let error = Log::open(Arc::new(disk.clone()), DIR, small(), NOW).expect_err(name);
        let text = error.to_string();
        assert!(error.is_loss() && text.contains(&format!("{name} is a directory")), "{text}");
        assert!(text.contains(&format!("move {path} to another place")), "{text}");
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        assert_eq!(check_log(&storage, DIR).expect("examined").losses.len(), 1, "{name}");
        assert!(Log::salvage(storage, DIR, small(), NOW, 0).is_err(), "{name}");
    }
}

/// The check took it for the torn end of a log of synced records and listed nothing. The next start of a log that shows all its records
/// quarantined it.
#[test]
fn a_check_names_damage_behind_the_synced_offset_if_records_follow() {
    for visible in [Visible::Synced, Visible::End] {
        let config = LogConfig { visible, ..LogConfig::default() };
        let disk = synced(&config, 40, false);
        let (mut log, _) = open(&disk, &config);
        for n in 40..100 {
            append(&mut log, &numbered(n)).expect("appended");
        }
        drop(log);
        let path = &log_files(&disk)[0];
        let whole = disk.contents(path).expect("there");
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        for (value, found) in [(b"value 50", Some((50, 51))), (b"value 99", None)] {
            let mut bytes = whole.clone();
            let at = bytes.windows(value.len()).position(|window| window == value).expect("in the file");
            bytes[at] ^= 1;
            disk.set_contents(path, &bytes);
            let check = check_log(&storage, DIR).expect("examined");
            assert_eq!(check.losses, [], "{visible:?}");
            assert_eq!(check.unsynced_damage.map(|bad| (bad.offset, bad.next_offset)), found, "{visible:?}");
        }
        disk.set_contents(path, &whole);
        assert_eq!(check_log(&storage, DIR).expect("examined").unsynced_damage, None, "{visible:?}");
    }
}
