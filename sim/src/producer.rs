//! Producers: they send numbered values to random partitions and record the results.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_client::{Client, Config, Persisted, Record};
use tokio::task::JoinSet;

use crate::checker::{History, SendResult, Value};
use crate::host::{EPOCH_MS, TOPIC};
use crate::net::Network;
use crate::options::Options;
use crate::trace::Trace;

/// The state that all clients share.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) options: Options,
    pub(crate) net: Network,
    pub(crate) trace: Trace,
    pub(crate) history: Rc<RefCell<History>>,
    /// `true` while clients may be crashed.
    pub(crate) faults: Rc<Cell<bool>>,
}

impl World {
    pub(crate) fn config() -> Config {
        let mut config = Config::new("node-1:9092,node-2:9092");
        config.socket_timeout = Duration::from_secs(2);
        config.socket_connection_setup_timeout = Duration::from_secs(1);
        config.metadata_max_age = Duration::from_secs(5);
        config
    }
}

/// Sends all records of this producer, in several incarnations. Returns when the last result is known.
pub(crate) async fn produce(world: World, id: u32, mut rng: fastrand::Rng) {
    let mut left = world.options.records;
    let mut incarnation = 0;
    while left > 0 {
        // Incarnations of a producer are distinguished: order holds within each.
        let count = if rng.u8(0..3) == 0 { rng.u32(1..=left) } else { left };
        left -= count;
        run_incarnation(&world, id * 100 + incarnation, count, left > 0, &mut rng).await;
        incarnation += 1;
    }
}

async fn run_incarnation(world: &World, id: u32, count: u32, crashes: bool, rng: &mut fastrand::Rng) {
    let options = &world.options;
    let mut config = World::config();
    config.compression_codec = options.compression;
    config.client_id = format!("producer-{id}");
    config.linger = options.linger;
    config.batch_size = options.batch_bytes_max;
    config.delivery_timeout = options.delivery_timeout;
    let (client, engine) =
        Client::with_engine(config, Arc::new(world.net.clone()), rng.u64(..)).expect("a sound configuration");
    // Dropped at the end of this incarnation: the engine and all waiting deliveries end together.
    let mut tasks = JoinSet::new();
    tasks.spawn_local(async move {
        let _ = engine.run().await;
    });
    let mut waiting = JoinSet::new();
    let producer = client.producer();
    let mut next = vec![0; options.partitions as usize];
    for n in 0..count {
        let partition = rng.i32(0..options.partitions);
        let number = next[partition as usize];
        let value = Value { producer: id, partition, number };
        next[partition as usize] += 1;
        let padding = "x".repeat(rng.usize(0..=options.padding_max));
        let text = format!("{value} {padding}");
        let record =
            Record::to(TOPIC).partition(partition).value(&text).timestamp_ms(EPOCH_MS + i64::from(n));
        world.history.borrow_mut().sent(value);
        match producer.enqueue(record).await {
            Ok(delivery) => {
                let world = world.clone();
                waiting.spawn_local(async move {
                    let result = delivery.await;
                    world.settled(value, result.map(|written| written.offset.unwrap_or(-1)));
                });
            }
            Err(error) => world.settled(value, Err(error)),
        }
        if rng.u8(0..4) > 0 {
            let pause = rng.u64(0..=options.pause_max.as_micros() as u64);
            tokio::time::sleep(Duration::from_micros(pause)).await;
        }
    }
    if crashes && world.faults.get() {
        world.trace.note(format_args!("producer {id}: crash"));
        waiting.shutdown().await;
        tasks.shutdown().await;
        return;
    }
    while waiting.join_next().await.is_some() {}
}

impl World {
    fn settled(&self, value: Value, result: Result<i64, ottla_client::ProduceError>) {
        let result = match result {
            Ok(offset) => SendResult::Acked(offset),
            Err(error) if error.persisted == Persisted::NotWritten => SendResult::NotWritten,
            Err(_) => SendResult::PossiblyWritten,
        };
        self.trace.note(format_args!("{value}: {result:?}"));
        self.history.borrow_mut().settled(value, result);
    }
}
