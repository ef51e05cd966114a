//! `__share_group_state` is pruned although its states do not fit into one batch.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use ottla_broker::{Broker, Clock};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use ottla_protocol::messages::initialize_share_group_state as init;
use ottla_protocol::messages::write_share_group_state as write;
use ottla_protocol::{ErrorCode, Uuid};

use crate::common::{PATIENCE, Raw};
use crate::share_groups::{GROUP, read_state, topic_id};

const STATES: &str = "__share_group_state";
const PARTITIONS: i32 = 20;
/// The batches of each state: some 2 KB.
const BATCHES: i64 = 100;

fn initialize(connection: &mut Raw, topic_id: Uuid) {
    let partitions =
        (0..PARTITIONS).map(|partition| init::PartitionData { partition, state_epoch: 1, start_offset: 0 });
    let topics = vec![init::InitializeStateData { topic_id, partitions: partitions.collect() }];
    let request = init::InitializeShareGroupStateRequest { group_id: GROUP.into(), topics };
    let begun = connection.ask(0, &request).expect("an answer").results.remove(0).partitions;
    assert!(begun.iter().all(|partition| partition.error_code == ErrorCode::None), "{begun:?}");
}

fn write_states(connection: &mut Raw, topic_id: Uuid) {
    let batches = (0..BATCHES).map(|at| write::StateBatch {
        first_offset: 2 * at,
        last_offset: 2 * at,
        delivery_state: 2,
        delivery_count: 1,
    });
    let state_batches: Vec<write::StateBatch> = batches.collect();
    let partitions = (0..PARTITIONS).map(|partition| write::PartitionData {
        partition,
        state_epoch: 1,
        leader_epoch: 0,
        start_offset: 0,
        delivery_complete_count: 0,
        state_batches: state_batches.clone(),
    });
    let topics = vec![write::WriteStateData { topic_id, partitions: partitions.collect() }];
    let request = write::WriteShareGroupStateRequest { group_id: GROUP.into(), topics };
    let written = connection.ask(1, &request).expect("an answer").results.remove(0).partitions;
    assert!(written.iter().all(|partition| partition.error_code == ErrorCode::None), "{written:?}");
}

/// The new snapshots of all quiet states were one batch. If it was larger than `max.message.bytes`, no record was deleted any more.
#[test]
fn states_that_do_not_fit_into_one_batch_are_pruned() {
    let now = Arc::new(AtomicI64::new(1_700_000_000_000));
    let builder = Broker::builder().storage(Arc::new(MemStorage::new())).topic("wide", PARTITIONS);
    let builder = builder.clock(Clock::Fixed(now.clone())).configure(|config| {
        config.share_coordinator.state_topic_partitions = 1;
        config.share_coordinator.prune_interval = Duration::from_millis(20);
        config.share_coordinator.cold_snapshot_interval = Duration::from_secs(60);
        // Each change is a snapshot.
        config.share_coordinator.updates_per_snapshot = 0;
    });
    let broker = builder.spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let id = topic_id(&mut connection, "wide");
    initialize(&mut connection, id);
    let value = Some("8000".into());
    let configs = vec![AlterableConfig { name: "max.message.bytes".into(), value, ..Default::default() }];
    let resource = AlterConfigsResource { resource_type: 2, resource_name: STATES.into(), configs };
    let alter = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    assert_eq!(connection.ask(1, &alter).expect("an answer").responses[0].error_code, ErrorCode::None);
    write_states(&mut connection, id);
    let (_, end) = broker.cluster().offsets_of(STATES, 0).expect("the topic");
    now.fetch_add(100_000, Ordering::SeqCst);
    let deadline = Instant::now() + PATIENCE;
    while broker.cluster().offsets_of(STATES, 0).is_none_or(|(start, _)| start < end) {
        assert!(
            Instant::now() < deadline,
            "the states are not pruned: {:?}",
            broker.cluster().offsets_of(STATES, 0)
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    let read = read_state(&mut connection, id, 0);
    assert_eq!((read.error_code, read.state_batches.len()), (ErrorCode::None, BATCHES as usize));
    broker.stop();
}
