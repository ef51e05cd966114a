//! Readers: without a group, or as group members.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_client::{Client, OffsetReset, Polled, StartAt, TopicPartition};
use tokio::task::JoinSet;

use crate::checker::Reader;
use crate::host::TOPIC;
use crate::producer::World;

pub(crate) const GROUP: &str = "billing";

/// Reads in several incarnations until the run ends. `current` is the current incarnation.
pub(crate) async fn read(
    world: World,
    base: Reader,
    current: Rc<Cell<Option<Reader>>>,
    mut rng: fastrand::Rng,
) {
    let mut incarnation = 0;
    loop {
        let reader = Reader { id: base.id * 100 + incarnation, ..base };
        current.set(Some(reader));
        // Some incarnations last to the end, others end early.
        let polls = if rng.bool() { rng.u32(1..30) } else { u32::MAX };
        run_incarnation(&world, reader, polls, &mut rng).await;
        incarnation += 1;
    }
}

async fn run_incarnation(world: &World, reader: Reader, polls: u32, rng: &mut fastrand::Rng) {
    let mut config = World::config();
    // Not 0: fetches that never wait, on a network without latency, would stop time.
    config.fetch_wait_max = Duration::from_millis(rng.u64(1..500));
    config.session_timeout = Duration::from_secs(3);
    config.heartbeat_interval = Duration::from_millis(300);
    config.auto_commit_interval = Duration::from_millis(200);
    config.auto_offset_reset = OffsetReset::Earliest;
    if rng.bool() {
        // Small, so that batches arrive one by one and are truncated.
        config.max_partition_fetch_bytes = rng.usize(1..5_000);
    }
    config.client_id = format!("reader-{}", reader.id);
    config.group_id = reader.in_group.then(|| GROUP.to_owned());
    let (client, engine) =
        Client::with_engine(config, Arc::new(world.net.clone()), rng.u64(..)).expect("a sound configuration");
    let mut tasks = JoinSet::new();
    tasks.spawn_local(async move {
        let _ = engine.run().await;
    });
    let mut consumer = client.consumer();
    let started = if reader.in_group {
        consumer.subscribe(&[TOPIC]).await
    } else {
        let all: Vec<_> = (0..world.options.partitions)
            .map(|partition| (TopicPartition::new(TOPIC, partition), StartAt::Beginning))
            .collect();
        consumer.assign(&all).await
    };
    if let Err(error) = started {
        world.trace.note(format_args!("reader {}: {error}", reader.id));
    }
    let mut polled = 0;
    while polled < polls || !world.faults.get() {
        polled += 1;
        match consumer.poll(Duration::from_millis(500)).await {
            Ok(Some(Polled::Records(batch))) => {
                for record in &batch {
                    match record {
                        Ok(record) => {
                            let value = record.value.unwrap_or_default();
                            world.history.borrow_mut().read(reader, batch.partition(), record.offset, value);
                        }
                        Err(error) => world.trace.note(format_args!("reader {}: {error}", reader.id)),
                    }
                }
                world.trace.note(format_args!(
                    "reader {}: {} up to {}",
                    reader.id,
                    batch.partition(),
                    batch.next_offset()
                ));
            }
            Ok(Some(Polled::Event(event))) => {
                world.trace.note(format_args!("reader {}: {event:?}", reader.id));
            }
            Ok(Some(_) | None) => {}
            Err(error) => {
                world.trace.note(format_args!("reader {}: {error}", reader.id));
                // A repeated immediate error must not stop the clock.
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    world.trace.note(format_args!("reader {}: crash", reader.id));
    tasks.shutdown().await;
}
