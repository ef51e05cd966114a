//! Writers: producers that write several entries in a transaction, and commit or abort it.

use std::time::Duration;

use ottla_client::{Producer, Record, TransactionError};
use ottla_testkit::EPOCH_MS;
use tokio::task::JoinSet;

use super::history::{Entry, Outcome};
use super::{CALL_WITHIN, ERROR_PAUSE, LEDGER, SharedHistory, TRANSACTION_PAUSE, producer_config};
use crate::checker::Anomaly;
use crate::options::ms;
use crate::producer::AGE_MS;
use crate::world::World;

/// Runs all transactions of a writer, in several incarnations with the same `transactional.id`.
pub(super) async fn write(world: World, history: SharedHistory, id: u32, mut rng: fastrand::Rng) {
    let mut writer = Writer { world, history, id, transactions: 0, zombie: None };
    while i64::from(writer.transactions) < writer.world.options.transactions {
        writer.run_incarnation(&mut rng).await;
        tokio::time::sleep(ERROR_PAUSE).await;
    }
}

/// A producer that its successor has not fenced yet.
struct Zombie {
    producer: Producer,
    tasks: JoinSet<()>,
    transaction: (u32, u32),
}

struct Writer {
    world: World,
    history: SharedHistory,
    id: u32,
    /// The number of transactions that have begun.
    transactions: u32,
    zombie: Option<Zombie>,
}

/// The next step of an incarnation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Next {
    Transaction,
    /// The producer cannot continue: a new one follows.
    Incarnation,
}

impl Writer {
    async fn run_incarnation(&mut self, rng: &mut fastrand::Rng) {
        let config = producer_config(&self.world, &format!("writer-{}", self.id));
        let (client, mut tasks) = self.world.client(config, rng.u64(..)).expect("a sound configuration");
        let producer = client.producer();
        if !self.init(&producer).await {
            tasks.shutdown().await;
            return;
        }
        if rng.bool() {
            self.check_zombie().await;
        }
        let lasts = if rng.bool() { rng.u32(1..10) } else { u32::MAX };
        let mut count = 0;
        while i64::from(self.transactions) < self.world.options.transactions {
            let ends = count >= lasts && self.world.faults.get();
            let transaction = (self.id, self.transactions);
            if ends && !self.fill(&producer, rng).await {
                break;
            } else if ends {
                self.note(format_args!("an end within transaction {transaction:?}"));
                if rng.bool() {
                    self.zombie = Some(Zombie { producer, tasks, transaction });
                    return;
                }
                break;
            }
            if self.transact(&producer, rng).await == Next::Incarnation {
                break;
            }
            count += 1;
            tokio::time::sleep(TRANSACTION_PAUSE + self.pause(rng)).await;
        }
        tasks.shutdown().await;
    }

    /// Initializes the transactions. Returns `false` if the producer cannot be used.
    async fn init(&self, producer: &Producer) -> bool {
        loop {
            match producer.init_transactions(CALL_WITHIN).await {
                Ok(()) => return true,
                Err(error) => {
                    self.note(format_args!("init: {error}"));
                    if !error.is_retriable() && !error.requires_init() {
                        return false;
                    }
                    tokio::time::sleep(ERROR_PAUSE).await;
                }
            }
        }
    }

    /// A producer whose successor is initialized must not be able to commit.
    async fn check_zombie(&mut self) {
        let Some(Zombie { producer, mut tasks, transaction }) = self.zombie.take() else { return };
        let result = producer.commit_transaction(CALL_WITHIN).await;
        self.note(format_args!("the zombie's commit of {transaction:?}: {result:?}"));
        if result.is_ok() {
            let what = format!("transaction {transaction:?} was committed after it was fenced");
            self.history.borrow_mut().report(Anomaly::ZombieCommit { what });
        }
        tasks.shutdown().await;
    }

    /// Begins the next transaction and writes its entries. Returns `false` if none is open afterwards.
    async fn fill(&mut self, producer: &Producer, rng: &mut fastrand::Rng) -> bool {
        if let Err(error) = producer.begin_transaction() {
            self.note(format_args!("begin: {error}"));
            return false;
        }
        let transaction = (self.id, self.transactions);
        self.transactions += 1;
        self.history.borrow_mut().begun(transaction);
        let options = self.world.options.clone();
        for number in 0..rng.u32(1..=options.entries_max as u32) {
            let partition = rng.i32(0..options.ledger_partitions as i32);
            let entry = Entry { transaction, partition, number };
            self.history.borrow_mut().sent(entry);
            let text = entry.to_string();
            let record = Record::to(LEDGER).partition(partition).value(&text).timestamp_ms(EPOCH_MS - AGE_MS);
            if let Err(error) = producer.send_unobserved(record).await {
                self.note(format_args!("{entry}: {error}"));
                // The commit fails as well, and says what to do.
                break;
            }
            if rng.u8(0..4) == 0 {
                tokio::time::sleep(self.pause(rng)).await;
            }
        }
        true
    }

    async fn transact(&mut self, producer: &Producer, rng: &mut fastrand::Rng) -> Next {
        let transaction = (self.id, self.transactions);
        if !self.fill(producer, rng).await {
            return Next::Incarnation;
        }
        self.check_zombie().await;
        if rng.u8(0..5) > 0 {
            self.commit(producer, transaction).await
        } else {
            self.abort(producer, transaction).await
        }
    }

    async fn commit(&self, producer: &Producer, transaction: (u32, u32)) -> Next {
        self.history.borrow_mut().set(transaction, Outcome::Committing);
        loop {
            match producer.commit_transaction(CALL_WITHIN).await {
                Ok(()) => {
                    self.settle(transaction, Outcome::Committed);
                    return Next::Transaction;
                }
                Err(error) => {
                    self.note(format_args!("commit of {transaction:?}: {error}"));
                    if error.is_retriable() {
                        tokio::time::sleep(ERROR_PAUSE).await;
                        continue;
                    }
                    return self.give_up(producer, transaction, &error).await;
                }
            }
        }
    }

    /// Follows the remedy of an error that a commit returned.
    async fn give_up(&self, producer: &Producer, transaction: (u32, u32), error: &TransactionError) -> Next {
        if !error.outcome_is_unknown() {
            // Nothing of it may be visible, whatever follows.
            self.settle(transaction, Outcome::Aborted);
        }
        if error.requires_abort() {
            return self.abort(producer, transaction).await;
        }
        Next::Incarnation
    }

    async fn abort(&self, producer: &Producer, transaction: (u32, u32)) -> Next {
        loop {
            match producer.abort_transaction(CALL_WITHIN).await {
                Ok(()) => {
                    self.settle(transaction, Outcome::Aborted);
                    return Next::Transaction;
                }
                Err(error) => {
                    self.note(format_args!("abort of {transaction:?}: {error}"));
                    if !error.is_retriable() {
                        return Next::Incarnation;
                    }
                    tokio::time::sleep(ERROR_PAUSE).await;
                }
            }
        }
    }

    fn settle(&self, transaction: (u32, u32), outcome: Outcome) {
        self.note(format_args!("transaction {transaction:?}: {outcome:?}"));
        self.history.borrow_mut().set(transaction, outcome);
    }

    fn pause(&self, rng: &mut fastrand::Rng) -> Duration {
        Duration::from_micros(rng.u64(0..=ms(self.world.options.pause_max).as_micros() as u64))
    }

    fn note(&self, what: std::fmt::Arguments<'_>) {
        self.world.trace.note(format_args!("writer {}: {what}", self.id));
    }
}
