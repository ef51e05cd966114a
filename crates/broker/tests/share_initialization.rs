//! The states of a share group's partitions are initialized also if the disk is slow or the client leaves.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread, Syncer};
use ottla_log::storage::mem::{MemStorage, OpKind};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::share_group_heartbeat::ShareGroupHeartbeatRequest;

use crate::common::{PATIENCE, Raw, framed};
use crate::share_groups::{GROUP, beat, describe, offsets, partitions};

/// The partitions of the topic `wide`.
const WIDE: u64 = 500;

/// A broker whose syncs take as long as this. The topics of the coordinators exist, and the group with two partitions of `other`.
fn start(storage: &MemStorage, sync: Duration, properties: &[(&str, &str)]) -> (BrokerThread, Raw) {
    let builder = Broker::builder().storage(Arc::new(storage.clone())).syncer(Syncer::Inline(sync));
    let builder = builder.topic("orders", 4).topic("other", 2).topic("wide", WIDE as i32);
    let builder = builder.configure(|config| {
        for (name, value) in properties.iter().chain(&[("group.share.assignment.interval.ms", "0")]) {
            config.set(name, value).expect("a property");
        }
    });
    let broker = builder.spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(beat(&mut connection, "m0", 0, &["other"]).error_code, ErrorCode::None);
    await_initialized(&mut connection, 2);
    (broker, connection)
}

fn await_initialized(connection: &mut Raw, expected: usize) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let initialized = offsets(connection, None).len();
        if initialized == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{initialized} of {expected} states are initialized");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The states that had been initialized by then were lost, and the member that came back began again.
#[test]
fn states_are_initialized_although_the_client_leaves() {
    let (broker, mut connection) = start(&MemStorage::new(), Duration::from_millis(300), &[]);
    let mut leaving = Raw::connect(broker.addresses()[0]);
    let request = ShareGroupHeartbeatRequest {
        group_id: GROUP.into(),
        member_id: "m1".into(),
        subscribed_topic_names: Some(vec!["orders".into()]),
        ..Default::default()
    };
    leaving.send(&framed(1, &request));
    let deadline = Instant::now() + PATIENCE;
    while describe(&mut connection).members.len() < 2 {
        assert!(Instant::now() < deadline, "the member does not join");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(leaving);
    await_initialized(&mut connection, 6);
}

#[test]
fn a_heartbeat_does_not_wait_longer_than_its_interval_for_states() {
    let properties =
        [("group.share.min.heartbeat.interval.ms", "100"), ("group.share.heartbeat.interval.ms", "100")];
    // A note of the group and a state after it take twice as long.
    let (_broker, mut connection) = start(&MemStorage::new(), Duration::from_secs(1), &properties);
    let mut answer = beat(&mut connection, "m1", 0, &["orders"]);
    assert_eq!((partitions(&answer), answer.heartbeat_interval_ms), (0, 100));
    let deadline = Instant::now() + PATIENCE;
    while answer.assignment.is_none() || partitions(&answer) < 4 {
        assert!(Instant::now() < deadline, "the member has no partitions");
        std::thread::sleep(Duration::from_millis(20));
        answer = beat(&mut connection, "m1", answer.member_epoch, &[]);
        assert_eq!(answer.error_code, ErrorCode::None, "{:?}", answer.error_message);
    }
}

/// Each state waited for a sync of its own: 500 partitions took 50 seconds.
#[test]
fn states_share_the_syncs_of_their_logs() {
    let storage = MemStorage::new();
    let (_broker, mut connection) = start(&storage, Duration::from_millis(100), &[]);
    let syncs = Arc::new(AtomicU64::new(0));
    let counted = syncs.clone();
    storage.inject(move |op| {
        if op.kind == OpKind::SyncData && op.path.starts_with("__share_group_state") {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        None
    });
    assert_eq!(beat(&mut connection, "m1", 0, &["wide"]).error_code, ErrorCode::None);
    await_initialized(&mut connection, WIDE as usize + 2);
    let syncs = syncs.load(Ordering::Relaxed);
    assert!(syncs < WIDE, "{syncs} syncs of {WIDE} states");
}
