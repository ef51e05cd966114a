//! Share groups whose states cannot be read, or were left by an earlier group of the same name.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::time::{Duration, Instant};

use ottla_log::storage::Storage;
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::initialize_share_group_state::{
    InitializeShareGroupStateRequest, InitializeStateData, PartitionData,
};

use crate::common::{PATIENCE, Raw};
use crate::share_groups::{GROUP, alter, beat, delete_group, partitions, read_state, start, topic_id};

/// Joins, and waits until the member has each partition of `orders`.
fn await_assigned(connection: &mut Raw) {
    let mut answer = beat(connection, "m1", 0, &["orders"]);
    let deadline = Instant::now() + PATIENCE;
    while answer.assignment.is_none() || partitions(&answer) < 4 {
        assert!(Instant::now() < deadline, "the member has no partitions");
        std::thread::sleep(Duration::from_millis(20));
        answer = beat(connection, "m1", answer.member_epoch, &[]);
        assert_eq!(answer.error_code, ErrorCode::None, "{:?}", answer.error_message);
    }
}

/// The group was deleted without its state, and the next group of that name had no partitions.
#[test]
fn a_group_is_not_deleted_while_a_state_of_it_is_offline() {
    let storage = MemStorage::new();
    let (broker, mut connection) = start(&storage);
    let id = topic_id(&mut connection, "orders");
    assert_eq!(alter(&mut connection, "orders", &[(0, 5)]), (ErrorCode::None, vec![ErrorCode::None]));
    assert_eq!(read_state(&mut connection, id, 0).start_offset, 5);
    broker.stop();
    let is_log =
        |path: &String| path.starts_with("__share_group_state-") && path.rsplit('.').next() == Some("log");
    let logs = storage.paths().into_iter().filter(is_log);
    let logs = logs.filter_map(|path| storage.contents(&path).map(|bytes| (path, bytes)));
    let sound: Vec<(String, Vec<u8>)> = logs.filter(|(_, bytes)| !bytes.is_empty()).collect();
    assert!(!sound.is_empty());
    for (path, bytes) in &sound {
        let mut damaged = bytes.clone();
        let last = damaged.len() - 3;
        damaged[last] ^= 1;
        storage.set_contents(path, &damaged);
    }
    let (broker, mut connection) = start(&storage);
    assert_eq!(read_state(&mut connection, id, 0).error_code, ErrorCode::NotCoordinator, "it has no leader");
    assert_eq!(delete_group(&mut connection), ErrorCode::CoordinatorNotAvailable);
    broker.stop();
    for (path, bytes) in &sound {
        storage.set_contents(path, bytes);
        // The range that the broker has found damaged.
        let dir = path.split('/').next().unwrap_or_default();
        drop(storage.remove(&format!("{dir}/quarantine")));
    }
    let (broker, mut connection) = start(&storage);
    assert_eq!(delete_group(&mut connection), ErrorCode::None);
    assert_eq!(read_state(&mut connection, id, 0).error_code, ErrorCode::InvalidRequest);
    await_assigned(&mut connection);
    broker.stop();
}

/// The epochs of the states were above that of the new group: their initialization failed again and again.
#[test]
fn a_group_begins_above_the_states_of_an_earlier_group_of_its_name() {
    let (broker, mut connection) = start(&MemStorage::new());
    let id = topic_id(&mut connection, "orders");
    let states = (0..4).map(|partition| PartitionData { partition, state_epoch: 9, start_offset: 3 });
    let topics = vec![InitializeStateData { topic_id: id, partitions: states.collect() }];
    let request = InitializeShareGroupStateRequest { group_id: GROUP.into(), topics };
    let begun = connection.ask(0, &request).expect("an answer").results.remove(0).partitions;
    assert!(begun.iter().all(|partition| partition.error_code == ErrorCode::None), "{begun:?}");
    await_assigned(&mut connection);
    let state = read_state(&mut connection, id, 0);
    assert_eq!((state.error_code, state.start_offset), (ErrorCode::None, -1));
    assert!(state.state_epoch > 9, "state epoch {}", state.state_epoch);
    broker.stop();
}
