//! A compacted topic: keepers update its keys, and readers must find the last update of each key, whatever is compacted,
//! killed and lost meanwhile.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use ottla_client::{Consumer, Error, OffsetReset, Persisted, Polled, Record, StartAt, TopicPartition};
use ottla_testkit::EPOCH_MS;
use tokio::task::JoinSet;

use crate::checker::Anomaly;
use crate::options::{Options, ms};
use crate::producer::AGE_MS;
use crate::world::World;

/// The topic. It has one partition.
pub(crate) const BALANCES: &str = "balances";
/// The settings of the topic: every closed segment is compacted soon.
pub(crate) const SETTINGS: [(&str, &str); 3] =
    [("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01"), ("segment.bytes", "1024")];
/// Pause after an error, so that one that returns at once does not stop the clock.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// One update of a key.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Update {
    keeper: u32,
    key: u32,
    /// The number among the updates of its keeper. It rises, and so it does in the log.
    number: u32,
}

impl fmt::Display for Update {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}/{}/{}", self.keeper, self.key, self.number)
    }
}

impl Update {
    fn parse(key: &[u8], value: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(value).ok()?.strip_prefix('b')?.split('/');
        let update = Self {
            keeper: parts.next()?.parse().ok()?,
            key: parts.next()?.parse().ok()?,
            number: parts.next()?.parse().ok()?,
        };
        (parts.next().is_none() && key == update.key().as_bytes()).then_some(update)
    }

    /// Each keeper has keys of its own.
    fn key(self) -> String {
        format!("{}/{}", self.keeper, self.key)
    }
}

/// The updates of a run, and what readers saw.
#[derive(Debug, Default)]
pub(crate) struct CompactedHistory {
    /// For each key the highest number that was sent, and the highest one that was acknowledged.
    sent: BTreeMap<(u32, u32), u32>,
    acknowledged: BTreeMap<(u32, u32), u32>,
    not_written: Vec<Update>,
    at: BTreeMap<i64, Update>,
    offsets: BTreeMap<Update, i64>,
    /// The last update of each key that the current incarnation of each reader saw.
    seen: BTreeMap<u32, BTreeMap<(u32, u32), u32>>,
    /// The readers whose current incarnation began after the faults.
    fresh: BTreeSet<u32>,
    found: Vec<Anomaly>,
}

impl CompactedHistory {
    /// A new incarnation of a reader begins at the start of the topic.
    fn begin(&mut self, reader: u32, after_faults: bool) {
        self.seen.insert(reader, BTreeMap::new());
        if after_faults {
            self.fresh.insert(reader);
        }
    }

    fn read(&mut self, reader: u32, offset: i64, key: &[u8], value: &[u8]) {
        let update = Update::parse(key, value).filter(|update| {
            self.sent.get(&(update.keeper, update.key)).is_some_and(|n| update.number <= *n)
        });
        let Some(update) = update else {
            let what = format!("{BALANCES}@{offset}: {}", String::from_utf8_lossy(value));
            self.found.push(Anomaly::Stranger { what });
            return;
        };
        if self.not_written.contains(&update) {
            let what = format!("{update} at {BALANCES}@{offset} was reported as not written");
            self.found.push(Anomaly::Stranger { what });
        }
        let there = *self.at.entry(offset).or_insert(update);
        if there != update {
            let what = format!("{there} and {update} at {BALANCES}@{offset}");
            self.found.push(Anomaly::TwoEntries { what });
        }
        let first = *self.offsets.entry(update).or_insert(offset);
        if first != offset {
            let what = format!("{update} at {first} and {offset} of {BALANCES}");
            self.found.push(Anomaly::CommittedTwice { what });
        }
        let seen = self.seen.entry(reader).or_default();
        if let Some(before) = seen.insert((update.keeper, update.key), update.number)
            && before >= update.number
        {
            let what = format!("reader {reader}: {update} at {BALANCES}@{offset} after number {before}");
            self.found.push(Anomaly::EntriesOutOfOrder { what });
        }
    }

    /// Readers that began before the end of the faults, and keys whose last acknowledged update, or a later one, a reader
    /// has not seen.
    fn unseen(&self) -> Vec<String> {
        if let Some(reader) = self.seen.keys().find(|reader| !self.fresh.contains(reader)) {
            return vec![format!("reader {reader} has not begun again")];
        }
        let missing = |(reader, seen): (&u32, &BTreeMap<(u32, u32), u32>)| {
            let (key, number) = self
                .acknowledged
                .iter()
                .find(|(key, number)| seen.get(key).is_none_or(|last| last < number))?;
            let last = seen.get(key);
            Some(format!(
                "reader {reader} has seen {last:?} of key {key:?}, of which {number} is acknowledged"
            ))
        };
        self.seen.iter().filter_map(missing).collect()
    }

    /// The anomalies.
    pub(crate) fn check(&self) -> Vec<Anomaly> {
        self.found.clone()
    }
}

/// The clients of the compacted topic.
#[derive(Default)]
pub(crate) struct CompactedLoad {
    keepers: JoinSet<()>,
    readers: JoinSet<()>,
    pub(crate) history: Rc<RefCell<CompactedHistory>>,
}

impl CompactedLoad {
    /// Starts the clients that the options name.
    pub(crate) fn start(&mut self, world: &World, seed: u64) {
        for id in 0..world.options.keepers as u32 {
            let rng = World::rng(seed, 6, u64::from(id));
            self.keepers.spawn_local(keep(world.clone(), self.history.clone(), id, rng));
            let rng = World::rng(seed, 7, u64::from(id));
            self.readers.spawn_local(read(world.clone(), self.history.clone(), id, rng));
        }
    }

    /// The work that is not finished. Empty if every key's last update was found by readers that began after the faults.
    pub(crate) fn unfinished(&mut self) -> Vec<String> {
        while self.keepers.try_join_next().is_some() {}
        if !self.keepers.is_empty() {
            return vec![format!("{} keepers have updates left", self.keepers.len())];
        }
        self.history.borrow().unseen()
    }

    /// Ends all clients.
    pub(crate) async fn shutdown(&mut self) {
        self.keepers.shutdown().await;
        self.readers.shutdown().await;
    }
}

impl Options {
    /// Returns `true` if the run has the compacted topic.
    pub(crate) fn has_compacted_topic(&self) -> bool {
        self.keepers > 0
    }
}

/// Updates random keys, one update at a time: so the log has them in the order of their numbers.
async fn keep(world: World, history: Rc<RefCell<CompactedHistory>>, id: u32, mut rng: fastrand::Rng) {
    let options = world.options.clone();
    let mut config = world.config();
    config.client_id = format!("keeper-{id}");
    config.delivery_timeout = Duration::from_secs(600);
    let (client, _tasks) = world.client(config, rng.u64(..)).expect("a sound configuration");
    let producer = client.producer();
    for number in 0..options.updates as u32 {
        let update = Update { keeper: id, key: rng.u32(0..options.keys as u32), number };
        history.borrow_mut().sent.insert((id, update.key), number);
        let (key, value) = (update.key(), update.to_string());
        let record = Record::to(BALANCES).key(&key).value(&value).timestamp_ms(EPOCH_MS - AGE_MS);
        let result = match producer.enqueue(record).await {
            Ok(delivery) => delivery.await.map(drop),
            Err(error) => Err(error),
        };
        world.trace.note(format_args!("keeper {id}: {update}: {}", result.is_ok()));
        match result {
            Ok(()) => drop(history.borrow_mut().acknowledged.insert((id, update.key), number)),
            Err(error) if error.persisted == Persisted::NotWritten => {
                history.borrow_mut().not_written.push(update);
            }
            Err(_) => {}
        }
        let pause = rng.u64(0..=ms(options.pause_max).as_micros() as u64);
        tokio::time::sleep(Duration::from_micros(pause)).await;
    }
}

/// Reads from the start, in several incarnations. The last one begins after the faults.
async fn read(world: World, history: Rc<RefCell<CompactedHistory>>, id: u32, mut rng: fastrand::Rng) {
    for incarnation in 0_u64.. {
        let began_in_faults = world.faults.get();
        history.borrow_mut().begin(id, !began_in_faults);
        let polls = if rng.bool() { rng.u32(1..30) } else { u32::MAX };
        let mut config = world.config();
        // Each incarnation is a client of its own: the limit of `rates` is for one, and many can begin at once.
        config.client_id = format!("balances-reader-{id}-{incarnation}");
        config.fetch_wait_max = Duration::from_millis(rng.u64(1..500));
        config.auto_offset_reset = OffsetReset::Earliest;
        config.corrupt_returned = true;
        if rng.bool() {
            config.max_partition_fetch_bytes = rng.usize(1..5_000);
        }
        let (client, mut tasks) = world.client(config, rng.u64(..)).expect("a sound configuration");
        let mut consumer = client.consumer();
        let mut next = None;
        let from = [(TopicPartition::new(BALANCES, 0), StartAt::Beginning)];
        if let Err(error) = consumer.assign(&from).await {
            world.trace.note(format_args!("balances reader {id}: {error}"));
        }
        let mut polled = 0;
        while (polled < polls || !world.faults.get()) && began_in_faults == world.faults.get() {
            polled += 1;
            step(&world, &history, id, &mut consumer, &mut next).await;
        }
        world.trace.note(format_args!("balances reader {id}: crash"));
        tasks.shutdown().await;
    }
}

async fn step(
    world: &World,
    history: &Rc<RefCell<CompactedHistory>>,
    id: u32,
    consumer: &mut Consumer,
    next: &mut Option<i64>,
) {
    match consumer.poll(Duration::from_millis(500)).await {
        Ok(Some(Polled::Records(batch))) => {
            for record in &batch {
                let Ok(record) = record else { continue };
                let (key, value) = (record.key.unwrap_or_default(), record.value.unwrap_or_default());
                history.borrow_mut().read(id, record.offset, key, value);
            }
            world.trace.note(format_args!("balances reader {id}: up to {}", batch.next_offset()));
            *next = Some(batch.next_offset());
        }
        // The file is repaired in the course of the run.
        Ok(Some(Polled::Corrupt(_))) | Err(Error::Corrupt { .. }) => {
            tokio::time::sleep(ERROR_PAUSE * 2).await;
            let from = next.map_or(StartAt::Beginning, StartAt::Offset);
            let sought = consumer.seek(&TopicPartition::new(BALANCES, 0), from).await;
            world.trace.note(format_args!("balances reader {id}: {from:?} again, {sought:?}"));
        }
        Ok(_) => {}
        Err(error) => {
            world.trace.note(format_args!("balances reader {id}: {error}"));
            tokio::time::sleep(ERROR_PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> CompactedHistory {
        let mut history = CompactedHistory::default();
        history.sent.insert((0, 1), 9);
        history.acknowledged.insert((0, 1), 7);
        history.begin(0, true);
        history
    }

    #[test]
    fn the_last_acknowledged_update_or_a_later_one_must_be_seen() {
        let mut history = history();
        history.read(0, 3, b"0/1", b"b0/1/5");
        assert_eq!(history.unseen().len(), 1);
        history.read(0, 6, b"0/1", b"b0/1/8");
        assert!(history.unseen().is_empty() && history.check().is_empty());
    }

    #[test]
    fn other_values_and_older_ones_are_found() {
        let mut history = history();
        history.read(0, 3, b"0/1", b"b0/1/5");
        history.read(0, 4, b"0/1", b"b0/1/4");
        history.read(0, 5, b"0/2", b"b0/1/6");
        history.read(0, 6, b"0/1", b"b0/1/12");
        history.read(0, 3, b"0/1", b"b0/1/7");
        let names: Vec<_> = history.check().iter().map(Anomaly::name).collect();
        assert_eq!(names, ["EntriesOutOfOrder", "Stranger", "Stranger", "TwoEntries"]);
    }
}
