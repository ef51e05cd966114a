//! Copiers: members of a group that copy each entry in a transaction with the offsets that they have consumed.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_client::{
    Batch, Consumer, Error, Polled, Producer, Record, StartAt, TopicPartition, TransactionError,
};
use ottla_testkit::EPOCH_MS;

use super::{
    CALL_WITHIN, COPIERS, COPIES, ERROR_PAUSE, LEDGER, SharedHistory, TRANSACTION_PAUSE, consumer_config,
    producer_config,
};
use crate::producer::AGE_MS;
use crate::world::World;

/// Copies until the run ends.
pub(super) async fn copy(world: World, history: SharedHistory, id: u32, mut rng: fastrand::Rng) {
    loop {
        run_incarnation(&world, &history, id, &mut rng).await;
        tokio::time::sleep(ERROR_PAUSE).await;
    }
}

async fn run_incarnation(world: &World, history: &SharedHistory, id: u32, rng: &mut fastrand::Rng) {
    let name = format!("copier-{id}");
    let config = producer_config(world, &name);
    let (producing, mut producer_tasks) = world.client(config, rng.u64(..)).expect("a sound configuration");
    let mut config = consumer_config(world, rng);
    config.client_id = name;
    config.group_id = Some(COPIERS.to_owned());
    let (consuming, mut consumer_tasks) = world.client(config, rng.u64(..)).expect("a sound configuration");
    let mut copier =
        Copier { world, history, id, producer: producing.producer(), consumer: consuming.consumer() };
    let polls = if rng.bool() { rng.u32(1..40) } else { u32::MAX };
    if copier.start().await {
        let mut polled = 0;
        while (polled < polls || !world.faults.get()) && copier.step(rng).await {
            polled += 1;
        }
    }
    copier.note(format_args!("the incarnation ends"));
    producer_tasks.shutdown().await;
    consumer_tasks.shutdown().await;
}

struct Copier<'a> {
    world: &'a World,
    history: &'a SharedHistory,
    id: u32,
    producer: Producer,
    consumer: Consumer,
}

impl Copier<'_> {
    /// Returns `false` if a new incarnation must follow.
    async fn start(&mut self) -> bool {
        while let Err(error) = self.producer.init_transactions(CALL_WITHIN).await {
            self.note(format_args!("init: {error}"));
            if !error.is_retriable() && !error.requires_init() {
                return false;
            }
            tokio::time::sleep(ERROR_PAUSE).await;
        }
        if let Err(error) = self.consumer.subscribe(&[LEDGER]).await {
            self.note(format_args!("subscribe: {error}"));
            return false;
        }
        true
    }

    /// One poll, and the transaction that copies its records. Returns `false` if a new incarnation must follow.
    async fn step(&mut self, rng: &mut fastrand::Rng) -> bool {
        let batch = match self.consumer.poll(Duration::from_millis(500)).await {
            Ok(Some(Polled::Records(batch))) => batch,
            Ok(Some(Polled::Corrupt(corrupt))) => return self.again(corrupt.at().clone()).await,
            Err(Error::Corrupt { topic, partition, .. }) => {
                return self.again(TopicPartition::new(&topic, partition)).await;
            }
            Ok(event) => {
                if let Some(Polled::Event(event)) = event {
                    self.note(format_args!("{event:?}"));
                }
                return true;
            }
            Err(error) => {
                self.note(format_args!("{error}"));
                tokio::time::sleep(ERROR_PAUSE).await;
                return true;
            }
        };
        let copied = self.copy(&batch, rng).await;
        tokio::time::sleep(TRANSACTION_PAUSE).await;
        let Err(error) = copied else { return true };
        self.note(format_args!("{} up to {}: {error}", batch.at(), batch.next_offset()));
        if error.requires_abort() && self.abort().await {
            return self.again(batch.at().clone()).await;
        }
        false
    }

    async fn copy(&mut self, batch: &Batch, rng: &mut fastrand::Rng) -> Result<(), TransactionError> {
        self.producer.begin_transaction()?;
        for record in batch {
            // The poll after the next seek returns it again.
            let Ok(record) = record else { break };
            let bytes = record.value.unwrap_or_default();
            let checked =
                self.history.borrow_mut().check_visible(LEDGER, batch.partition(), record.offset, bytes);
            if checked.is_none() {
                continue;
            }
            let copy =
                Record::to(COPIES).partition(batch.partition()).value(bytes).timestamp_ms(EPOCH_MS - AGE_MS);
            if let Err(error) = self.producer.send_unobserved(copy).await {
                // The commit fails as well, and says what to do.
                self.note(format_args!("{error}"));
                break;
            }
        }
        if rng.u8(0..4) == 0 {
            tokio::time::sleep(Duration::from_millis(rng.u64(0..300))).await;
        }
        let offsets = BTreeMap::from([(batch.at().clone(), batch.next_offset())]);
        let Ok(group) = self.consumer.group_metadata().await else { return Ok(()) };
        loop {
            match self.producer.send_offsets_to_transaction(&offsets, &group, CALL_WITHIN).await {
                Ok(()) => break,
                Err(error) if error.is_retriable() => tokio::time::sleep(ERROR_PAUSE).await,
                Err(error) => return Err(error),
            }
        }
        loop {
            match self.producer.commit_transaction(CALL_WITHIN).await {
                Ok(()) => break,
                Err(error) if error.is_retriable() => tokio::time::sleep(ERROR_PAUSE).await,
                Err(error) => return Err(error),
            }
        }
        self.note(format_args!("{} is copied up to {}", batch.at(), batch.next_offset()));
        Ok(())
    }

    async fn abort(&self) -> bool {
        loop {
            match self.producer.abort_transaction(CALL_WITHIN).await {
                Ok(()) => return true,
                Err(error) => {
                    self.note(format_args!("abort: {error}"));
                    if !error.is_retriable() {
                        return false;
                    }
                    tokio::time::sleep(ERROR_PAUSE).await;
                }
            }
        }
    }

    /// Continues at the committed offset. Returns `false` if a new incarnation must follow.
    async fn again(&mut self, at: TopicPartition) -> bool {
        tokio::time::sleep(ERROR_PAUSE).await;
        if !self.consumer.assignment().contains(&at) {
            return true;
        }
        let sought = self.consumer.seek(&at, StartAt::Committed).await;
        self.note(format_args!("{at} again: {sought:?}"));
        sought.is_ok()
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        self.world.trace.note(format_args!("copier {}: {what}", self.id));
    }
}
