//! A repair brings back topics that the damaged journal has lost.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use ottla_broker::{Broker, repair};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use ottla_protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use ottla_wire::Seal;

use crate::common::world::{Served, connect, create, produce, start, view};
use crate::common::{batch, commit_request, metadata_of};
use crate::data_loss::{NOW, find, flip, repaired, story};

const JOURNAL: &str = "__ottla-meta/00000000000000000000.log";

/// The journal was saved first: the next repair found it sound, and did not look for the topics that it had lost.
#[test]
fn a_repair_that_fails_leaves_all_for_the_next_one() {
    let story = story();
    let dir = &story.clean;
    flip(&dir.join(JOURNAL), find(&dir.join(JOURNAL), b"partitions"));
    let unreadable = dir.join("__consumer_offsets-0/00000000000000009999.log");
    symlink(&unreadable, &unreadable).expect("a link to itself");
    let before = journal(dir);
    let error = repair(dir, true, NOW).expect_err("a file cannot be read").to_string();
    assert!(error.contains("__consumer_offsets-0"), "{error}");
    assert!(journal(dir) == before, "the journal has changed");
    fs::remove_file(&unreadable).expect("removed");
    let broker = repaired(dir);
    assert!(view(&mut connect(&broker)).topics.contains_key("orders"));
    broker.stop();
}

/// The journal was saved before the partitions: after an error in one of them, the next repair began the others at offset 0.
#[test]
fn a_repair_that_fails_in_a_partition_leaves_the_journal_for_the_next_one() {
    let story = story();
    let dir = &story.clean;
    let path = dir.join(JOURNAL);
    flip(&path, find(&path, b"partitions"));
    let metadata = fs::read_to_string(dir.join("stock-0/partition.metadata")).expect("there");
    let id = metadata.lines().find_map(|line| line.strip_prefix("topic_id: ")).expect("an id");
    for at in positions(dir, &format!("floor/{id}/0")) {
        flip(&path, at);
    }
    fs::remove_dir_all(dir.join("stock-0")).expect("removed");
    let unreadable = dir.join("orders-0/00000000000000009999.log");
    symlink(&unreadable, &unreadable).expect("a link to itself");
    let before = journal(dir);
    let error = repair(dir, true, NOW).expect_err("a file cannot be read").to_string();
    assert!(error.contains("orders-0"), "{error}");
    assert!(journal(dir) == before, "the journal has changed");
    fs::remove_file(&unreadable).expect("removed");
    let broker = repaired(dir);
    let found = view(&mut connect(&broker));
    broker.stop();
    assert!(found.topics.contains_key("orders"));
    let Served::All { start, .. } = &found.partitions[&("stock".to_owned(), 0)] else {
        panic!("nothing is served")
    };
    assert_eq!(*start, found.committed[&("stock".to_owned(), 0)].0);
    assert!(*start > 0, "the story commits an offset");
}

fn journal(dir: &Path) -> Vec<u8> {
    fs::read(dir.join(JOURNAL)).expect("there")
}

/// The positions of a key in the journal.
fn positions(dir: &Path, key: &str) -> Vec<usize> {
    let bytes = journal(dir);
    let windows = bytes.windows(key.len()).enumerate();
    windows.filter(|(_, window)| *window == key.as_bytes()).map(|(at, _)| at).collect()
}

/// It had one replica after the repair, and the report said that its settings were lost.
#[test]
fn a_topic_that_has_lost_its_last_partitions_keeps_its_replication_factor_and_settings() {
    let tmp = tempfile::tempdir().expect("a scratch directory");
    let builder = || Broker::builder().nodes(3).data_dir(tmp.path());
    let broker = builder().spawn().expect("a broker");
    let mut connection = connect(&broker);
    let retention = CreatableTopicConfig { name: "retention.ms".into(), value: Some("1000".into()) };
    let topic = CreatableTopic {
        name: "orders".into(),
        num_partitions: 2,
        replication_factor: 3,
        configs: vec![retention],
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..Default::default() };
    let created = connection.ask(5, &request).expect("an answer");
    assert_eq!(created.topics[0].error_code, ErrorCode::None);
    let topic = CreatePartitionsTopic { name: "orders".into(), count: 4, assignments: None };
    let request = CreatePartitionsRequest { topics: vec![topic], timeout_ms: 10_000, ..Default::default() };
    let grown = connection.ask(2, &request).expect("an answer");
    assert_eq!(grown.results[0].error_code, ErrorCode::None);
    broker.stop();
    let path = tmp.path().join(JOURNAL);
    let bytes = fs::read(&path).expect("there");
    let needle = b"\"partitions\":4";
    let at = bytes.windows(needle.len()).rposition(|window| window == needle).expect("in the journal");
    flip(&path, at);
    let report = repair(tmp.path(), true, NOW).expect("repaired");
    assert!(report.repaired && report.notes.is_empty(), "{report:?}");
    let broker = builder().spawn().expect("a broker");
    let described = connect(&broker).ask(12, &metadata_of("orders")).expect("an answer");
    let replicas: Vec<usize> =
        described.topics[0].partitions.iter().map(|partition| partition.replica_nodes.len()).collect();
    assert_eq!(replicas, [3; 4]);
    broker.stop();
}

/// The newest offset floor was damaged, and an older one was left: the partition began there again. Its offsets were given to other
/// records, and a group skipped them.
#[test]
fn a_partition_whose_newest_floor_is_lost_begins_at_the_committed_offset() {
    let tmp = tempfile::tempdir().expect("a scratch directory");
    let dir = tmp.path();
    let three = batch(&[b"a", b"b", b"c"], &Seal::default());
    let broker = start(dir).expect("a broker");
    let mut connection = connect(&broker);
    assert_eq!(create(&mut connection, "orders", 1).0, ErrorCode::None);
    assert_eq!(produce(&mut connection, "orders", 0, &three), (ErrorCode::None, 0));
    // A clean stop writes the floor 3.
    broker.stop();
    let broker = start(dir).expect("a broker");
    let mut connection = connect(&broker);
    assert_eq!(produce(&mut connection, "orders", 0, &three), (ErrorCode::None, 3));
    let committed = connection.ask(8, &commit_request("billing", 6)).expect("an answer");
    assert_eq!(committed.topics[0].partitions[0].error_code, ErrorCode::None);
    let id = view(&mut connection).topics["orders"].0;
    broker.stop();
    let floors = positions(dir, &format!("floor/{id}/0"));
    // Each life has raised the floor and then settled it.
    assert_eq!(floors.len(), 4);
    for at in &floors[2..] {
        flip(&dir.join(JOURNAL), *at);
    }
    fs::remove_dir_all(dir.join("orders-0")).expect("removed");
    let broker = repaired(dir);
    let found = view(&mut connect(&broker)).partitions.remove(&("orders".into(), 0));
    assert_eq!(found, Some(Served::All { start: 6, end: 6, records: Vec::new(), gaps: Vec::new() }));
    broker.stop();
}
