//! A damaged batch in the middle of a partition: found before it is served, logged once, passed by readers on request.

#![allow(dead_code, reason = "the shared helpers serve several stories")]

mod common;
#[path = "../../client/tests/support/log.rs"]
mod log;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::world::{Served, connect, fill, start, view};
use log::Log;
use ottla_broker::skip_damage;

const NOW: i64 = 1_700_000_000_000;
const PLACE: (&str, i32) = ("orders", 1);

/// The files of a directory with their bytes.
fn files_of(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(dir).expect("there").map(|entry| entry.expect("an entry").path());
    entries.map(|path| (path.clone(), fs::read(&path).expect("read"))).collect()
}

/// It opened the log as a broker with durability `os`: an end that a crash had torn became a hole for ever.
#[test]
fn a_list_of_the_damage_changes_no_file_after_a_crash() {
    let tmp = tempfile::tempdir().expect("a scratch directory");
    let (dir, killed) = (tmp.path().join("clean"), tmp.path().join("killed"));
    fill(&dir, &killed);
    let partition = killed.join("orders-1");
    let before = files_of(&partition);
    assert_eq!(skip_damage(&partition, None, false, NOW).expect("listed"), []);
    let error = skip_damage(&partition, None, true, NOW).expect_err("the broker was not stopped");
    assert!(error.to_string().contains("start and stop it"), "{error}");
    assert_eq!(files_of(&partition), before);
}

#[test]
fn a_damaged_batch_is_logged_once_and_readers_pass_it_after_its_loss_was_accepted() {
    let log = Log::capture();
    let tmp = tempfile::tempdir().expect("a scratch directory");
    let (dir, killed) = (tmp.path().join("clean"), tmp.path().join("killed"));
    fill(&dir, &killed);
    let broker = start(&dir).expect("sound");
    let sound = view(&mut connect(&broker));
    broker.stop();
    let partition = dir.join("orders-1");
    let file = partition.join("00000000000000000000.log");
    let mut bytes = fs::read(&file).expect("there");
    let first = 12 + i32::from_be_bytes(bytes[8..12].try_into().expect("four bytes")) as usize;
    bytes[first + 70] ^= 1;
    fs::write(&file, bytes).expect("written");

    let broker = start(&dir).expect("a damaged batch is no reason not to start");
    let damaged_at =
        (0..3).map(|_| match view(&mut connect(&broker)).partitions.remove(&(PLACE.0.into(), PLACE.1)) {
            Some(Served::Damaged { at, .. }) => at,
            other => panic!("{other:?}"),
        });
    let at: Vec<i64> = damaged_at.collect();
    assert!(at.iter().all(|it| *it == at[0]), "{at:?}");
    broker.stop();
    let lines =
        log.text().lines().filter(|line| line.contains("ERROR")).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(lines.len(), 1, "one line for the range, whoever reads it: {lines:#?}");
    assert!(lines[0].contains("orders-1") && lines[0].contains("ottla log skip"), "{lines:?}");

    let listed = skip_damage(&partition, None, false, NOW).expect("listed");
    assert_eq!((listed.len(), listed[0].offset), (1, at[0]));
    assert!(skip_damage(&partition, Some(0), true, NOW).expect("none there").is_empty(), "0 is sound");
    let broker = start(&dir).expect("started");
    let seen = view(&mut connect(&broker)).partitions.remove(&(PLACE.0.into(), PLACE.1));
    assert!(matches!(seen, Some(Served::Damaged { .. })), "listing has changed nothing: {seen:?}");
    broker.stop();
    assert_eq!(skip_damage(&partition, Some(at[0]), true, NOW).expect("skipped"), listed);

    let broker = start(&dir).expect("started");
    let mut after = view(&mut connect(&broker));
    let (place, gap) = ((PLACE.0.to_owned(), PLACE.1), (listed[0].offset, listed[0].next_offset));
    let Some(Served::All { start, end, records, .. }) = sound.partitions.get(&place).cloned() else {
        panic!("the story begins sound");
    };
    let left: Vec<_> = records.into_iter().filter(|(it, _)| *it < gap.0 || *it >= gap.1).collect();
    let passed = Served::All { start, end, records: left, gaps: vec![gap] };
    assert_eq!(after.partitions.remove(&place), Some(passed));
    assert!(
        sound.partitions.iter().filter(|(it, _)| **it != place).all(|(it, was)| after.partitions[it] == *was)
    );
}
