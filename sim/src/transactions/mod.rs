//! Transactions: writers that commit and abort, copiers that consume, transform and produce, and readers with
//! `read_committed`.
//!
//! ```text
//!   writer --> ledger --> copier --> copies --> reader
//!                 \--------------------------> reader
//! ```
//!
//! They have topics of their own: markers make gaps in offsets, which the checks of other topics exclude.

mod copier;
mod history;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use ottla_broker::Cluster;
use ottla_client::{Config, Isolation, OffsetReset};
use tokio::task::JoinSet;

pub(crate) use self::history::TransactionHistory;
use crate::options::{Options, ms};
use crate::world::World;

/// The topic of the writers.
pub(crate) const LEDGER: &str = "ledger";
/// The topic of the copiers: each committed entry of the ledger once.
pub(crate) const COPIES: &str = "copies";
/// The group of the copiers.
pub(crate) const COPIERS: &str = "copiers";
/// Time limit of one transactional call. A retriable error follows, and the call is repeated.
const CALL_WITHIN: Duration = Duration::from_secs(2);
/// Pause after an error, so that one that returns at once does not stop the clock.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// The shortest time between two transactions of a producer: `rates` limits requests that move no records.
const TRANSACTION_PAUSE: Duration = Duration::from_millis(20);

/// The history of the transactions, shared by all their clients.
pub(crate) type SharedHistory = Rc<RefCell<TransactionHistory>>;

/// The transactional clients of a run.
#[derive(Default)]
pub(crate) struct Transactions {
    writers: JoinSet<()>,
    others: JoinSet<()>,
    pub(crate) history: SharedHistory,
}

impl Options {
    /// The topics of the transactions, with their numbers of partitions.
    pub(crate) fn transactional_topics(&self) -> impl Iterator<Item = (&'static str, i32)> + use<> {
        let partitions = self.ledger_partitions as i32;
        let topics = if self.writers > 0 { &[LEDGER, COPIES][..] } else { &[] };
        topics.iter().map(move |topic| (*topic, partitions))
    }

    /// The transactional ids of all writers and copiers.
    pub(crate) fn transactional_ids(&self) -> Vec<String> {
        let copiers = if self.writers > 0 { self.copiers } else { 0 };
        let writers = (0..self.writers).map(|id| format!("writer-{id}"));
        writers.chain((0..copiers).map(|id| format!("copier-{id}"))).collect()
    }
}

impl Transactions {
    /// Starts the clients that the options name.
    pub(crate) fn start(&mut self, world: &World, seed: u64) {
        let options = &world.options;
        if options.writers == 0 {
            return;
        }
        for id in 0..options.writers as u32 {
            let (world, history) = (world.clone(), self.history.clone());
            self.writers.spawn_local(writer::write(world, history, id, World::rng(seed, 3, u64::from(id))));
        }
        for id in 0..options.copiers as u32 {
            let (world, history) = (world.clone(), self.history.clone());
            self.others.spawn_local(copier::copy(world, history, id, World::rng(seed, 4, u64::from(id))));
        }
        for id in 0..options.ledger_readers as u32 {
            let (world, history) = (world.clone(), self.history.clone());
            self.others.spawn_local(reader::read(world, history, id, World::rng(seed, 5, u64::from(id))));
        }
    }

    /// The work that is not finished: writers with transactions left, open transactions in the logs, and readers that have not
    /// seen a committed entry.
    pub(crate) fn unfinished(&mut self, options: &Options, cluster: Option<&Cluster>) -> Vec<String> {
        let mut unfinished = Vec::new();
        while self.writers.try_join_next().is_some() {}
        if !self.writers.is_empty() {
            unfinished.push(format!("{} writers have transactions left", self.writers.len()));
        }
        for (topic, partitions) in options.transactional_topics() {
            for partition in 0..partitions {
                let at = cluster.and_then(|cluster| {
                    Some((
                        cluster.last_stable_offset(topic, partition)?,
                        cluster.offsets_of(topic, partition)?.1,
                    ))
                });
                match at {
                    Some((stable, end)) if stable == end => {}
                    Some((stable, end)) => {
                        unfinished.push(format!("{topic}-{partition} is stable up to {stable} of {end}"));
                    }
                    None => unfinished.push(format!("{topic}-{partition} is not served")),
                }
            }
        }
        unfinished.extend(self.history.borrow().unseen(options.copiers > 0));
        unfinished
    }

    /// Ends all clients.
    pub(crate) async fn shutdown(&mut self) {
        self.writers.shutdown().await;
        self.others.shutdown().await;
    }
}

/// The properties of a transactional producer.
fn producer_config(world: &World, id: &str) -> Config {
    let options = &world.options;
    let mut config = world.config();
    id.clone_into(&mut config.client_id);
    config.transactional_id = Some(id.to_owned());
    config.transaction_timeout = ms(options.transaction_timeout);
    config.compression_codec = options.codec();
    config.linger = (options.linger >= 0).then(|| ms(options.linger));
    config.batch_size = options.batch_size();
    config
}

/// The properties of a consumer with `read_committed`.
fn consumer_config(world: &World, rng: &mut fastrand::Rng) -> Config {
    let mut config = world.config();
    config.fetch_wait_max = Duration::from_millis(rng.u64(1..500));
    config.session_timeout = Duration::from_secs(3);
    config.heartbeat_interval = Duration::from_millis(300);
    config.auto_offset_reset = OffsetReset::Earliest;
    config.isolation_level = Isolation::ReadCommitted;
    config.enable_auto_commit = false;
    config.corrupt_returned = true;
    if rng.bool() {
        config.max_partition_fetch_bytes = rng.usize(1..5_000);
    }
    config
}
