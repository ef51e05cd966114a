//! Producers: they send numbered values to random partitions and record the results.

use std::time::Duration;

use ottla_client::{Persisted, Record};
use ottla_testkit::EPOCH_MS;
use tokio::task::JoinSet;

use crate::checker::{SendResult, Value};
use crate::options::ms;
use crate::world::World;

/// Records of producers are that old: a wall clock that jumps back does not make them records of the future.
pub(crate) const AGE_MS: i64 = 100 * 24 * 3_600_000;

/// Sends all records of this producer, in several incarnations. Returns when the last result is known.
pub(crate) async fn produce(world: World, id: u32, mut rng: fastrand::Rng) {
    let mut left = world.options.records as u32;
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
    let mut config = world.config();
    config.compression_codec = options.codec();
    config.client_id = format!("producer-{id}");
    config.linger = (options.linger >= 0).then(|| ms(options.linger));
    config.batch_size = options.batch_size();
    config.delivery_timeout = ms(options.delivery_timeout);
    let (client, mut tasks) = world.client(config, rng.u64(..)).expect("a sound configuration");
    let mut waiting = JoinSet::new();
    let producer = client.producer();
    let mut next = vec![0; options.slots() as usize];
    for n in 0..count {
        let slot = rng.i32(0..options.slots());
        let number = next[slot as usize];
        let value = Value { producer: id, slot, number };
        next[slot as usize] += 1;
        let text = value.text(rng.usize(0..=options.value_padding_max()));
        let (topic, partition) = options.place(slot);
        let timestamp_ms = EPOCH_MS - AGE_MS + i64::from(n);
        let record = Record::to(topic).partition(partition).value(&text).timestamp_ms(timestamp_ms);
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
            let pause = rng.u64(0..=options.producer_pause().as_micros() as u64);
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
