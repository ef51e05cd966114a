//! Readers with `read_committed`: they read both topics from the start, in several incarnations.

use ottla_client::{Batch, Consumer, Error, Polled, StartAt, TopicPartition};

use super::{COPIES, ERROR_PAUSE, LEDGER, SharedHistory, consumer_config};
use crate::world::World;

use std::collections::BTreeMap;
use std::time::Duration;

/// Incarnations of one reader at most.
const INCARNATIONS_MAX: u32 = 1000;

/// Reads until the run ends.
pub(super) async fn read(world: World, history: SharedHistory, id: u32, mut rng: fastrand::Rng) {
    for number in 0..INCARNATIONS_MAX {
        let incarnation = id * INCARNATIONS_MAX + number;
        history.borrow_mut().reads_as(id, incarnation);
        let polls = if rng.bool() { rng.u32(1..30) } else { u32::MAX };
        let mut config = consumer_config(&world, &mut rng);
        config.client_id = format!("ledger-reader-{incarnation}");
        let (client, mut tasks) = world.client(config, rng.u64(..)).expect("a sound configuration");
        let mut reader = Reader {
            world: &world,
            history: &history,
            incarnation,
            consumer: client.consumer(),
            next: BTreeMap::new(),
        };
        reader.start().await;
        let mut polled = 0;
        while polled < polls || !world.faults.get() {
            polled += 1;
            reader.step().await;
        }
        world.trace.note(format_args!("ledger reader {incarnation}: crash"));
        tasks.shutdown().await;
    }
}

struct Reader<'a> {
    world: &'a World,
    history: &'a SharedHistory,
    incarnation: u32,
    consumer: Consumer,
    /// The offset after the last record of each partition.
    next: BTreeMap<TopicPartition, i64>,
}

impl Reader<'_> {
    async fn start(&mut self) {
        let topics = self.world.options.transactional_topics();
        let all: Vec<_> = topics
            .flat_map(|(topic, partitions)| {
                (0..partitions).map(move |partition| TopicPartition::new(topic, partition))
            })
            .map(|at| (at, StartAt::Beginning))
            .collect();
        if let Err(error) = self.consumer.assign(&all).await {
            self.note(format_args!("{error}"));
        }
    }

    async fn step(&mut self) {
        match self.consumer.poll(Duration::from_millis(500)).await {
            Ok(Some(Polled::Records(batch))) => self.receive(&batch),
            // The file is repaired in the course of the run.
            Ok(Some(Polled::Corrupt(corrupt))) => {
                self.note(format_args!("{}", corrupt.error()));
                self.again(corrupt.at().clone()).await;
            }
            Err(Error::Corrupt { topic, partition, reason, .. }) => {
                self.note(format_args!("{topic}-{partition}: {reason}"));
                self.again(TopicPartition::new(&topic, partition)).await;
            }
            Ok(_) => {}
            Err(error) => {
                self.note(format_args!("{error}"));
                tokio::time::sleep(ERROR_PAUSE).await;
            }
        }
    }

    fn receive(&mut self, batch: &Batch) {
        let topic = if &**batch.topic() == LEDGER { LEDGER } else { COPIES };
        for record in batch {
            match record {
                Ok(record) => {
                    let value = record.value.unwrap_or_default();
                    let mut history = self.history.borrow_mut();
                    history.read(self.incarnation, topic, batch.partition(), record.offset, value);
                }
                Err(error) => self.note(format_args!("{error}")),
            }
        }
        self.note(format_args!("{topic}-{} up to {}", batch.partition(), batch.next_offset()));
        self.next.insert(batch.at().clone(), batch.next_offset());
    }

    /// Reads a partition again that has stopped.
    async fn again(&mut self, at: TopicPartition) {
        tokio::time::sleep(ERROR_PAUSE * 2).await;
        let from = self.next.get(&at).map_or(StartAt::Beginning, |next| StartAt::Offset(*next));
        let sought = self.consumer.seek(&at, from).await;
        self.note(format_args!("{from:?} of {at} again, {sought:?}"));
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        self.world.trace.note(format_args!("ledger reader {}: {what}", self.incarnation));
    }
}
