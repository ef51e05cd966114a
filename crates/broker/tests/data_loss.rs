//! Lost or damaged data that was acknowledged is reported and can be repaired; a broker deletes no further data.

use std::fs;
use std::path::Path;

use ottla_broker::{BrokerThread, RepairReport, repair};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use ottla_protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use ottla_wire::Seal;

use crate::common::world::{Served, TOPICS, connect, copy, create, fetch, files, fill, produce, start, view};
use crate::common::{Raw, batch};

pub(crate) const NOW: i64 = 1_700_000_000_000;

pub(crate) struct Story {
    _tmp: tempfile::TempDir,
    pub(crate) clean: std::path::PathBuf,
    killed: std::path::PathBuf,
}

pub(crate) fn story() -> Story {
    let tmp = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a scratch directory");
    let (clean, killed) = (tmp.path().join("clean"), tmp.path().join("killed"));
    fill(&clean, &killed);
    Story { _tmp: tmp, clean, killed }
}

fn is_log(path: &str) -> bool {
    Path::new(path).extension().is_some_and(|extension| extension == "log")
}

pub(crate) fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("there");
    bytes[at] ^= 0x10;
    fs::write(path, bytes).expect("written");
}

pub(crate) fn find(dir: &Path, needle: &[u8]) -> usize {
    let bytes = fs::read(dir).expect("there");
    bytes.windows(needle.len()).position(|window| window == needle).expect("in the file")
}

pub(crate) fn image(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |path: &String| fs::read(dir.join(path)).expect("there");
    files(dir).into_iter().filter(|path| path != ".lock").map(|path| (path.clone(), read(&path))).collect()
}

fn served(connection: &mut Raw, topic: &str, index: i32) -> Served {
    view(connection).partitions.remove(&(topic.to_owned(), index)).expect("known")
}

fn delete(connection: &mut Raw, topic: &str) -> ErrorCode {
    let state = DeleteTopicState { name: Some(topic.into()), ..Default::default() };
    let request = DeleteTopicsRequest { topics: vec![state], timeout_ms: 1000, ..Default::default() };
    connection.ask(6, &request).expect("an answer").responses[0].error_code
}

pub(crate) fn examined(dir: &Path) -> RepairReport {
    repair(dir, false, NOW).expect("examined")
}

pub(crate) fn repaired(dir: &Path) -> BrokerThread {
    let report = repair(dir, true, NOW).expect("repaired");
    assert!(report.repaired && !report.damage.is_empty());
    let again = examined(dir);
    assert!(again.damage.is_empty(), "{again:?}");
    start(dir).expect("the broker starts after a repair")
}

#[test]
fn a_flipped_byte_in_a_topic_record_does_not_delete_the_topic() {
    let story = story();
    for dir in [&story.clean, &story.killed] {
        let sound = {
            let broker = start(&copied(dir)).expect("sound");
            let found = view(&mut connect(&broker));
            broker.stop();
            found
        };
        let meta = dir.join("__ottla-meta/00000000000000000000.log");
        flip(&meta, find(&meta, b"partitions"));
        let before = image(dir);
        let error = start(dir).expect_err("damaged").to_string();
        let command = format!("`ottla log repair {}`", dir.display());
        for part in ["__ottla-meta", "00000000000000000000.log", "position", &command] {
            assert!(error.contains(part), "{error}");
        }
        assert!(image(dir) == before, "the refusal has changed the directory");
        let report = examined(dir);
        assert!(!report.repaired && report.damage.len() == 1, "{report:?}");
        assert!(report.damage[0].what[0].contains("topic/orders"), "{report:?}");
        assert!(image(dir) == before, "the examination has changed the directory");

        // The directories of the topic agree about it: the repair brings it back, with all its records.
        assert!(report.damage[0].saved.contains("topic `orders` with 3 partitions"), "{report:?}");
        let broker = repaired(dir);
        let found = view(&mut connect(&broker));
        broker.stop();
        assert_eq!((found.topics, found.partitions), (sound.topics, sound.partitions));
        let is_record = |path: &&(String, Vec<u8>)| path.0.starts_with("orders-") && is_log(&path.0);
        let after = image(dir);
        assert!(before.iter().filter(is_record).eq(after.iter().filter(is_record)), "records are gone");
        assert_eq!(examined(dir).notes, [""; 0]);
    }
}

#[test]
fn a_topic_whose_directories_disagree_is_not_restored() {
    let story = story();
    let meta = "__ottla-meta/00000000000000000000.log";
    flip(&story.clean.join(meta), find(&story.clean.join(meta), b"partitions"));
    type Harm = fn(&Path);
    let harms: [(&str, Harm); 4] = [
        ("orders-1 is missing", |dir| fs::remove_dir_all(dir.join("orders-1")).expect("removed")),
        ("orders-1/partition.metadata is missing", |dir| {
            fs::remove_file(dir.join("orders-1/partition.metadata")).expect("removed");
        }),
        ("orders-1/partition.metadata names the topic id", |dir| {
            let text = fs::read_to_string(dir.join("orders-1/partition.metadata")).expect("there");
            let id = text.lines().nth(1).expect("an id").to_owned();
            let other = "topic_id: AAAAAAAAQACAAAAAAAAAAA";
            fs::write(dir.join("orders-1/partition.metadata"), text.replace(&id, other)).expect("written");
        }),
        ("orders-1/partition.metadata does not name the partition", |dir| {
            let text = fs::read_to_string(dir.join("orders-1/partition.metadata")).expect("there");
            let old: String = text.split_inclusive('\n').take(2).collect();
            fs::write(dir.join("orders-1/partition.metadata"), old).expect("written");
        }),
    ];
    for (what, harm) in harms {
        let dir = copied(&story.clean);
        harm(&dir);
        let before = image(&dir);
        let report = examined(&dir);
        let note = format!("topic `orders` cannot be restored: the directory {what}");
        let note = if what.contains('/') { note.replace("the directory ", "") } else { note };
        assert!(report.notes.iter().any(|it| it.starts_with(&note)), "{note}: {report:?}");
        assert!(image(&dir) == before, "the examination has changed the directory");
        let broker = repaired(&dir);
        let mut connection = connect(&broker);
        assert_eq!(view(&mut connection).topics.into_keys().collect::<Vec<_>>(), ["stock"]);
        let (code, reason) = create(&mut connection, "orders", 3);
        assert_eq!(code, ErrorCode::KafkaStorageError);
        assert!(reason.contains("orders-0") && reason.contains("move it away"), "{reason}");
        broker.stop();
    }
}

/// A kind of damage, and the function that does it to a copy of the data directory.
type Harm = (&'static str, Box<dyn Fn(&Path)>);

/// The losses of files that take `stock-0` offline.
fn harms(clean: &Path) -> Vec<Harm> {
    let dir = clean.join("stock-0");
    let logs: Vec<String> = files(&dir)
        .into_iter()
        .filter(|file| Path::new(file).extension().is_some_and(|it| it == "log"))
        .collect();
    let cut = |path: std::path::PathBuf, less: u64| {
        let file = fs::OpenOptions::new().write(true).open(path).expect("there");
        file.set_len(file.metadata().expect("there").len().saturating_sub(less)).expect("cut");
    };
    let has_records = |log: &&String| fs::metadata(dir.join(log)).expect("there").len() > 0;
    let last = logs.iter().rfind(has_records).expect("one").clone();
    let middle = logs[1].clone();
    vec![
        ("7 bytes less", Box::new(move |dir| cut(dir.join("stock-0").join(&last), 7))),
        (
            "no segments",
            Box::new(move |dir| {
                for log in &logs {
                    fs::remove_file(dir.join("stock-0").join(log)).expect("removed");
                }
            }),
        ),
        (
            "no segment in the middle",
            Box::new(move |dir| fs::remove_file(dir.join("stock-0").join(&middle)).expect("removed")),
        ),
        ("no directory", Box::new(|dir| fs::remove_dir_all(dir.join("stock-0")).expect("removed"))),
        (
            "no partition.metadata",
            Box::new(|dir| fs::remove_file(dir.join("stock-0/partition.metadata")).expect("removed")),
        ),
    ]
}

#[test]
fn a_cut_segment_takes_its_partition_offline_and_no_other() {
    let story = story();
    let sound = {
        let broker = start(&story.clean).expect("sound");
        let found = view(&mut connect(&broker));
        broker.stop();
        found
    };
    for (name, harm) in harms(&story.clean) {
        let trial = story.clean.with_file_name("trial");
        let _ = fs::remove_dir_all(&trial);
        copy(&story.clean, &trial);
        harm(&trial);
        let keep = |(path, _): &(String, Vec<u8>)| path.starts_with("stock-0/");
        let before: Vec<_> = image(&trial).into_iter().filter(keep).collect();
        let broker = start(&trial).expect(name);
        let mut connection = connect(&broker);
        let found = view(&mut connection);
        assert_eq!((&found.topics, &found.committed), (&sound.topics, &sound.committed), "{name}");
        for (place, expected) in &sound.partitions {
            let offline = *place == ("stock".to_owned(), 0);
            let served = &found.partitions[place];
            assert_eq!(served, if offline { &Served::Offline } else { expected }, "{name}: {place:?}");
        }
        broker.stop();
        assert!(image(&trial).into_iter().filter(keep).eq(before), "{name}: the partition was changed");
        let report = examined(&trial);
        assert_eq!(report.damage.len(), 1, "{name}: {report:?}");
        assert_eq!(report.damage[0].place, "stock-0", "{name}");

        let broker = repaired(&trial);
        let mut connection = connect(&broker);
        let found = view(&mut connection);
        assert_eq!(found.topics, sound.topics, "{name}");
        let Served::All { records, end, .. } = &found.partitions[&("stock".to_owned(), 0)] else {
            panic!("{name}: nothing is served")
        };
        let Served::All { records: all, end: was, .. } = &sound.partitions[&("stock".to_owned(), 0)] else {
            panic!("the story begins sound")
        };
        assert!(records.iter().all(|record| all.contains(record)), "{name}");
        assert!(
            name.contains("directory") || name.contains("metadata") || records.len() < all.len(),
            "{name}"
        );
        assert_eq!(end, was, "{name}: an offset that was acknowledged is used again");
        assert!(
            *end >= sound.committed[&("stock".to_owned(), 0)].0,
            "{name}: below what a group has committed"
        );
        let produced = produce(&mut connection, "stock", 0, &batch(&[b"on"], &Seal::default()));
        assert_eq!(produced, (ErrorCode::None, *end), "{name}");
        broker.stop();
        // The repair is durable, and consumers skip the lost records.
        let broker = start(&trial).expect(name);
        let Served::All { records: again, end: now, .. } = served(&mut connect(&broker), "stock", 0) else {
            panic!("{name}: nothing is served")
        };
        assert_eq!((again.len(), now), (records.len() + 1, end + 1), "{name}");
        broker.stop();
    }
}

/// Earlier, a consumer waited at the gap after the last record until another record was produced.
#[test]
fn every_fetch_of_a_repaired_partition_moves_the_consumer_on() {
    let story = story();
    let dir = story.clean.join("stock-0");
    let is_log = |file: &&String| is_log(file) && fs::metadata(dir.join(file)).is_ok_and(|it| it.len() > 0);
    let logs = files(&dir);
    let last = logs.iter().rfind(is_log).expect("a segment with records");
    let file = fs::OpenOptions::new().write(true).open(dir.join(last)).expect("there");
    file.set_len(file.metadata().expect("there").len() - 7).expect("cut");
    let broker = repaired(&story.clean);
    let mut connection = connect(&broker);
    let Served::All { start, end, .. } = served(&mut connection, "stock", 0) else { panic!("not served") };
    let mut from = start;
    while from < end {
        let bytes = fetch(&mut connection, "stock", 0, from).expect("readable");
        let batches = ottla_wire::Batches::new(&bytes).map_while(Result::ok);
        let next = batches.map(|(header, _)| header.next_offset()).last();
        from = next.unwrap_or_else(|| panic!("nothing moves a consumer on from offset {from} to {end}"));
    }
    assert_eq!(from, end);
    broker.stop();
}

/// The directory was removed with all its files, and no group had committed: the partition began at offset 0 again.
#[test]
fn a_partition_that_is_rebuilt_uses_no_offset_again() {
    let story = story();
    for (dir, is_clean) in [(&story.clean, true), (&story.killed, false)] {
        for harm in ["directory", "synced and segments"] {
            let trial = copied(dir);
            // Partition 1 of `orders` has no committed offset as high as its end.
            let place = trial.join("orders-1");
            if harm == "directory" {
                fs::remove_dir_all(&place).expect("removed");
            } else {
                for file in files(&place).into_iter().filter(|it| it != "partition.metadata") {
                    fs::remove_file(place.join(file)).expect("removed");
                }
            }
            let context = format!("clean: {is_clean}, {harm}");
            let end = 24;
            let broker = repaired(&trial);
            let mut connection = connect(&broker);
            let (code, offset) = produce(&mut connection, "orders", 1, &batch(&[b"on"], &Seal::default()));
            assert_eq!(code, ErrorCode::None, "{context}");
            assert!(if is_clean { offset == end } else { offset >= end }, "{context}: offset {offset}");
            let Served::All { records, .. } = served(&mut connection, "orders", 1) else {
                panic!("{context}: nothing is served")
            };
            assert_eq!(records, [(offset, b"on".to_vec())], "{context}");
            broker.stop();
        }
    }
}

/// A repair of a damaged partition moved its start to the committed offset.
#[test]
fn a_repair_keeps_the_records_below_a_committed_offset() {
    let story = story();
    let dir = story.clean.join("stock-0");
    let sound = {
        let broker = start(&copied(&story.clean)).expect("sound");
        let found = view(&mut connect(&broker));
        broker.stop();
        found
    };
    assert!(sound.committed[&("stock".to_owned(), 0)].0 > 0);
    let last = files(&dir).into_iter().rfind(|file| is_log(file)).expect("a segment");
    fs::remove_file(dir.join(last)).expect("removed");
    let broker = repaired(&story.clean);
    let Served::All { start, records, .. } = served(&mut connect(&broker), "stock", 0) else {
        panic!("nothing is served")
    };
    assert_eq!((start, records[0].0), (0, 0));
    broker.stop();
}

#[test]
fn a_directory_of_another_partition_is_not_adopted() {
    let story = story();
    type Harm = fn(&Path);
    let copy_metadata = |dir: &Path| {
        let from = dir.join("orders-0/partition.metadata");
        fs::copy(from, dir.join("stock-0/partition.metadata")).map(drop).expect("copied");
    };
    let swap: Harm = |dir| {
        for (from, to) in [("orders-1", "aside"), ("orders-2", "orders-1"), ("aside", "orders-2")] {
            fs::rename(dir.join(from), dir.join(to)).expect("renamed");
        }
    };
    for (owner, places, harm) in
        [("orders-0", &["stock-0"][..], copy_metadata as Harm), ("orders-2", &["orders-1", "orders-2"], swap)]
    {
        let dir = copied(&story.clean);
        harm(&dir);
        let before: Vec<_> = image(&dir);
        let report = repair(&dir, true, NOW).expect("examined");
        assert!(report.needs_operator());
        assert_eq!(report.damage.iter().map(|it| &*it.place).collect::<Vec<_>>(), places);
        let step = report.damage[0].next_step.as_deref().unwrap_or_default();
        assert!(step.contains(owner) && step.contains(&*dir.to_string_lossy()), "{step}");
        let same = |(path, _): &&(String, Vec<u8>)| places.iter().any(|place| path.starts_with(place));
        let after = image(&dir);
        assert!(before.iter().filter(same).eq(after.iter().filter(same)), "the repair has changed it");
    }
}

#[test]
fn a_directory_whose_owner_nobody_knows_is_adopted() {
    let story = story();
    let path = story.clean.join("stock-0/partition.metadata");
    fs::write(path, "version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAA\npartition: 0\n").expect("written");
    let broker = repaired(&story.clean);
    let Served::All { records, .. } = served(&mut connect(&broker), "stock", 0) else {
        panic!("nothing is served")
    };
    assert_eq!(records.len(), 24);
    broker.stop();
}

#[test]
fn a_start_adds_the_partition_to_the_metadata_of_earlier_versions() {
    let story = story();
    let path = story.clean.join("orders-1/partition.metadata");
    let text = fs::read_to_string(&path).expect("there");
    let old: String = text.split_inclusive('\n').take(2).collect();
    assert_ne!(old, text);
    fs::write(&path, old).expect("written");
    start(&story.clean).expect("starts").stop();
    assert_eq!(fs::read_to_string(&path).expect("there"), text);
}

/// It stopped the whole broker, and the repair, without the name of the file.
#[test]
fn a_directory_named_like_a_file_of_a_log_takes_one_partition_offline() {
    let story = story();
    for name in ["00000000000000000099.log", "partition.metadata", "synced", "00000000000000000000.timeindex"]
    {
        let dir = copied(&story.clean);
        let place = dir.join("stock-0").join(name);
        let _ = fs::remove_file(&place);
        fs::create_dir(&place).expect("created");
        let broker = start(&dir).expect(name);
        let found = view(&mut connect(&broker));
        for (place, served) in &found.partitions {
            let offline = *place == ("stock".to_owned(), 0);
            assert_eq!(*served == Served::Offline, offline, "{name}: {place:?}");
        }
        broker.stop();
        for accept_loss in [false, true] {
            let report = repair(&dir, accept_loss, NOW).expect("examined");
            assert!(report.needs_operator() && report.damage.len() == 1, "{name}: {report:?}");
            let step = report.damage[0].next_step.as_deref().unwrap_or_default();
            assert!(step.contains("move") && step.contains("stock-0"), "{step}");
        }
    }
}

#[test]
fn partitions_that_were_renamed_are_reported_and_not_served_under_each_others_names() {
    let story = story();
    for dir in [&story.clean, &story.killed] {
        let sound = {
            let broker = start(&copied(dir)).expect("sound");
            let found = view(&mut connect(&broker));
            broker.stop();
            found
        };
        let swap = || {
            for (from, to) in [("orders-1", "aside"), ("orders-2", "orders-1"), ("aside", "orders-2")] {
                fs::rename(dir.join(from), dir.join(to)).expect("renamed");
            }
        };
        swap();
        let broker = start(dir).expect("starts");
        let found = view(&mut connect(&broker));
        for (place, expected) in &sound.partitions {
            let moved = place.0 == "orders" && place.1 > 0;
            assert_eq!(
                &found.partitions[place],
                if moved { &Served::Offline } else { expected },
                "{place:?}"
            );
        }
        broker.stop();
        let report = examined(dir);
        assert_eq!(report.damage.len(), 2, "{report:?}");
        let what = &report.damage[0].what[0];
        assert!(what.contains("names the directory orders-2"), "{what}");
        assert!(report.needs_operator());
        swap();
        let broker = start(dir).expect("starts");
        assert_eq!(view(&mut connect(&broker)).partitions, sound.partitions);
        broker.stop();
    }
}

#[test]
fn a_topic_that_is_named_like_a_journal_is_repaired_as_a_topic() {
    let story = story();
    let name = "__ottla-meta";
    let broker = start(&story.clean).expect("starts");
    let mut connection = connect(&broker);
    assert_eq!(create(&mut connection, name, 1).0, ErrorCode::None);
    for value in [&b"first"[..], b"second", b"third"] {
        produce(&mut connection, name, 0, &batch(&[value], &Seal::default()));
    }
    broker.stop();
    let dir = story.clean.join("__ottla-meta-0");
    let log = dir.join("00000000000000000000.log");
    flip(&log, find(&log, b"second"));
    assert!(repair(&dir, true, NOW).expect("repaired").repaired);
    let broker = start(&story.clean).expect("starts");
    let expected = Served::Damaged { at: 1, records: vec![(0, b"first".to_vec())] };
    assert_eq!(served(&mut connect(&broker), name, 0), expected);
    broker.stop();
}

pub(crate) fn copied(dir: &Path) -> std::path::PathBuf {
    let trial = dir.with_file_name("trial");
    let _ = fs::remove_dir_all(&trial);
    copy(dir, &trial);
    trial
}

#[test]
fn an_offline_partition_can_be_deleted_with_its_topic() {
    let story = story();
    fs::remove_dir_all(story.clean.join("stock-0")).expect("removed");
    let broker = start(&story.clean).expect("starts");
    let mut connection = connect(&broker);
    assert_eq!(served(&mut connection, "stock", 0), Served::Offline);
    let cluster = broker.cluster();
    let moved = [cluster.set_leader("stock", 0, 1), cluster.reelect_leader("stock", 0, 1)];
    assert_eq!(moved, [false, false], "the calls succeeded, and nothing had moved");
    assert_eq!(delete(&mut connection, "stock"), ErrorCode::None);
    assert_eq!(create(&mut connection, "stock", 2).0, ErrorCode::None);
    let found = view(&mut connection);
    assert!(matches!(&found.partitions[&("stock".into(), 1)], Served::All { end: 0, .. }));
    assert_eq!(found.committed[&("stock".into(), 1)].0, -1, "offsets of the deleted topic are back");
    broker.stop();
}

#[test]
fn a_deletion_that_a_kill_has_interrupted_is_finished_and_touches_nothing_else() {
    let story = story();
    let (at_rest, trial) = (story.killed.clone(), story.clean.with_file_name("trial"));
    let broker = start(&at_rest).expect("starts");
    let mut connection = connect(&broker);
    assert_eq!(delete(&mut connection, "orders"), ErrorCode::None);
    assert!(!at_rest.join("orders-0").exists());
    broker.stop();
    // The directories are restored, as after a kill right after the record or during the deletion.
    let journal = at_rest.join("__ottla-meta");
    copy(&at_rest, &trial);
    let pending = |dir: &Path| {
        String::from_utf8_lossy(&fs::read(dir.join("00000000000000000000.log")).expect("there"))
            .contains("deleting/")
    };
    assert!(pending(&journal));
    // A directory that no record names is left alone, whatever its name.
    fs::create_dir(trial.join("orders-0")).expect("created");
    fs::write(trial.join("orders-0/00000000000000000000.log"), b"somebody's records").expect("written");
    let broker = start(&trial).expect("starts");
    let mut connection = connect(&broker);
    assert_eq!(create(&mut connection, "orders", 1).0, ErrorCode::KafkaStorageError);
    assert_eq!(create(&mut connection, "fresh", 1).0, ErrorCode::None);
    broker.stop();
    assert_eq!(
        fs::read(trial.join("orders-0/00000000000000000000.log")).expect("there"),
        b"somebody's records"
    );
}

#[test]
fn a_topic_does_not_grow_over_a_directory_with_data() {
    let story = story();
    let stray = story.clean.join("stock-2");
    fs::create_dir(&stray).expect("created");
    fs::write(stray.join("00000000000000000000.log"), b"somebody's records").expect("written");
    let broker = start(&story.clean).expect("starts");
    let mut connection = connect(&broker);
    let grow = |connection: &mut Raw, name: &str, count: i32| {
        let topic = CreatePartitionsTopic { name: name.into(), count, assignments: None };
        let request = CreatePartitionsRequest { topics: vec![topic], timeout_ms: 1000, ..Default::default() };
        let answer = connection.ask(2, &request).expect("an answer").results[0].clone();
        (answer.error_code, answer.error_message.unwrap_or_default())
    };
    let (code, reason) = grow(&mut connection, "stock", 4);
    assert!(code == ErrorCode::KafkaStorageError && reason.contains("stock-2"), "{reason}");
    assert_eq!(grow(&mut connection, "orders", 5).0, ErrorCode::None);
    broker.stop();
    assert_eq!(fs::read(stray.join("00000000000000000000.log")).expect("there"), b"somebody's records");
    let broker = start(&story.clean).expect("starts");
    let found = view(&mut connect(&broker));
    assert_eq!((found.topics["orders"].1, found.topics["stock"].1), (5, 2));
    broker.stop();
}

#[test]
fn a_directory_from_before_the_format_mark_is_accepted_and_gets_one() {
    let story = story();
    for file in files(&story.clean) {
        if file.ends_with("partition.metadata") || file == "ottla-format" {
            fs::remove_file(story.clean.join(file)).expect("removed");
        }
    }
    let broker = start(&story.clean).expect("an old directory");
    let found = view(&mut connect(&broker));
    assert!(found.partitions.values().all(|served| matches!(served, Served::All { .. })));
    broker.stop();
    for (name, partitions) in TOPICS {
        for index in 0..partitions {
            let text = fs::read_to_string(story.clean.join(format!("{name}-{index}/partition.metadata")));
            let id = found.topics[name].0;
            assert_eq!(text.expect("there"), format!("version: 0\ntopic_id: {id}\npartition: {index}\n"));
        }
    }
    assert_eq!(fs::read_to_string(story.clean.join("ottla-format")).expect("there"), "version: 2\n");
    fs::write(story.clean.join("ottla-format"), "version: 3\n").expect("written");
    let error = start(&story.clean).expect_err("a newer format").to_string();
    assert!(error.contains("version 3") && error.contains("ottla-format"), "{error}");
}

/// Damage that a start has found is not passed by readers: the repair must pass it, or the group would never be served.
#[test]
fn a_repair_brings_back_a_group_whose_offsets_are_damaged() {
    let story = story();
    let offsets =
        |index: i32| story.clean.join(format!("__consumer_offsets-{index}/00000000000000000000.log"));
    let log =
        (0..2).map(offsets).find(|log| fs::metadata(log).is_ok_and(|log| log.len() > 0)).expect("commits");
    flip(&log, find(&log, b"note 1"));
    for is_known in [false, true] {
        let dir = copied(&story.clean);
        if is_known {
            let broker = start(&dir).expect("the topics are sound");
            assert!(view(&mut connect(&broker)).committed.is_empty());
            broker.stop();
        }
        assert!(examined(&dir).damage[0].place.starts_with("__consumer_offsets-"), "{is_known}");
        let broker = repaired(&dir);
        let found = view(&mut connect(&broker)).committed;
        assert!(found.values().any(|(_, note)| note.as_deref() == Some("note 2")), "{is_known}: {found:?}");
        broker.stop();
    }
}

#[test]
fn a_missing_journal_is_refused_and_not_begun_anew() {
    let story = story();
    let journal = "__ottla-meta";
    fs::remove_dir_all(story.clean.join(journal)).expect("removed");
    let error = start(&story.clean).expect_err(journal).to_string();
    assert!(error.contains(journal) && error.contains("missing"), "{error}");
    assert_eq!(examined(&story.clean).damage[0].place, journal);
    let broker = repaired(&story.clean);
    assert!(view(&mut connect(&broker)).committed.values().all(|(offset, _)| *offset >= 0));
    broker.stop();
}

/// Without its offsets, the group would start at `auto.offset.reset`.
#[test]
fn a_group_whose_offsets_are_missing_is_not_served_until_a_repair() {
    let story = story();
    for index in 0..2 {
        fs::remove_dir_all(story.clean.join(format!("__consumer_offsets-{index}"))).expect("removed");
    }
    let broker = start(&story.clean).expect("the topics are sound");
    let found = view(&mut connect(&broker));
    assert!(found.partitions.values().all(|served| matches!(served, Served::All { .. })));
    assert!(found.committed.is_empty());
    broker.stop();
    assert_eq!(examined(&story.clean).damage[0].place, "__consumer_offsets-0");
    let broker = repaired(&story.clean);
    assert!(view(&mut connect(&broker)).committed.values().all(|(offset, _)| *offset == -1));
    broker.stop();
}

/// The examination opened a copy of the journals, and the log said that a torn tail was cut off.
#[test]
fn an_examination_logs_nothing_and_a_repair_logs_sentences() {
    let story = story();
    let meta = story.killed.join("__ottla-meta/00000000000000000000.log");
    let mut bytes = fs::read(&meta).expect("there");
    bytes.extend([0x55; 100]);
    fs::write(&meta, bytes).expect("written");
    let dir = story.killed.join("stock-0");
    let log = dir.join("00000000000000000000.log");
    flip(&log, find(&log, b"record 1"));
    fs::remove_file(dir.join("clean-shutdown")).unwrap_or_default();
    for accept_loss in [false, true] {
        let lines = Lines::default();
        let captured = tracing_subscriber::fmt().with_writer(lines.clone()).with_ansi(false).finish();
        let repaired =
            tracing::subscriber::with_default(captured, || repair(&story.killed, accept_loss, NOW));
        assert!(!repaired.expect("examined").damage.is_empty());
        let text = lines.text();
        assert_eq!(text.is_empty(), !accept_loss, "{text}");
        assert!(!text.contains("BadRange") && !text.contains(" { "), "{text}");
    }
}

/// The log lines.
#[derive(Clone, Default)]
pub(crate) struct Lines(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Lines {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("no panic")).into_owned()
    }
}

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl tracing_subscriber::fmt::MakeWriter<'_> for Lines {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
