//! Random histories of requests, stored records, markers, timeouts and crashes.
//!
//! Whatever happens: an id has one live producer, a commit that was answered is in every partition of its transaction, and
//! no transaction ends both ways.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;
use ottla_protocol::ErrorCode;

use super::metadata::{EPOCH_MAX, ProducerIdentity, TopicPartition, TransactionMetadata, TransactionVersion};
use super::records::{self, StateRecord};
use super::table::{Decision, Markers, NewRecord, TransactionLimits, Transactions};
use crate::memory::KeptMemory;

const HISTORIES: u64 = 400;
const STEPS: usize = 1500;
const PARTITIONS: i32 = 3;
const TIMEOUT_MS: i32 = 1_000;

/// A program with a producer. Its transactions have numbers.
#[derive(Debug)]
struct Client {
    id: Arc<str>,
    version: TransactionVersion,
    identity: Option<ProducerIdentity>,
    /// The open transaction, and whether partitions were added to it.
    transaction: Option<usize>,
    /// The request whose record is being stored.
    waits_for: Option<Waiting>,
}

#[derive(Clone, Copy, Debug)]
enum Waiting {
    Init,
    InitRetry,
    Add,
    End { transaction: usize, committed: bool },
}

/// The transaction of a producer in one partition.
#[derive(Debug, Default)]
struct Data {
    epochs: BTreeMap<i64, i16>,
    open: BTreeMap<i64, BTreeSet<usize>>,
}

struct World {
    rng: Rng,
    table: Transactions,
    now_ms: i64,
    next_producer_id: i64,
    durable: Vec<StateRecord>,
    /// Records in the log that are not durable, with the client that waits.
    stored_next: Vec<(Arc<str>, StateRecord, Option<usize>)>,
    markers: Vec<Markers>,
    partitions: Vec<Data>,
    clients: Vec<Client>,
    /// The last client of an id that got an answer to InitProducerId.
    owners: BTreeMap<Arc<str>, usize>,
    transactions: usize,
    outcomes: BTreeMap<usize, BTreeSet<bool>>,
    /// Transactions with records, and the answers that their producers got.
    written: BTreeSet<usize>,
    answered: BTreeMap<usize, bool>,
}

impl Client {
    /// Without the epoch bump, a producer that does not know whether its transaction has ended cannot go on: the next one
    /// would look the same.
    fn lose_answer(&mut self, waiting: Waiting) {
        if matches!(waiting, Waiting::End { .. }) && !self.version.bumps_epoch() {
            self.identity = None;
            self.transaction = None;
        }
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let ids: [Arc<str>; 2] = ["till-1".into(), "till-2".into()];
        let mut clients = Vec::new();
        for number in 0..5 {
            let version = if rng.u8(..4) == 0 { TransactionVersion::V0 } else { TransactionVersion::V2 };
            let id = ids[number % 2].clone();
            clients.push(Client { id, version, identity: None, transaction: None, waits_for: None });
        }
        let partitions = (0..PARTITIONS).map(|_| Data::default()).collect();
        let mut world = Self {
            rng,
            table: table(),
            now_ms: 0,
            next_producer_id: 100,
            durable: Vec::new(),
            stored_next: Vec::new(),
            markers: Vec::new(),
            partitions,
            clients,
            owners: BTreeMap::new(),
            transactions: 0,
            outcomes: BTreeMap::new(),
            written: BTreeSet::new(),
            answered: BTreeMap::new(),
        };
        // Some ids have few epochs left.
        if world.rng.bool() {
            for (number, id) in ids.into_iter().enumerate() {
                let mut old = TransactionMetadata::new(number as i64, TIMEOUT_MS, 0);
                old.producer_epoch = EPOCH_MAX - world.rng.i16(0..4);
                world.table.load(id.clone(), Some(old.clone()), world.now_ms);
                world.durable.push(StateRecord::State(id, old));
            }
        }
        world
    }

    fn step(&mut self) {
        match self.rng.u32(..100) {
            0..50 => self.request(),
            50..75 => self.become_durable(),
            75..96 => self.write_marker(),
            96..98 => self.pass_time(),
            _ => self.crash(),
        }
    }

    /// One request of one client.
    fn request(&mut self) {
        let at = self.rng.usize(..self.clients.len());
        if self.clients[at].waits_for.is_some() {
            return;
        }
        let Client { id, version, identity, transaction, .. } = &self.clients[at];
        let (id, version, identity, transaction) = (id.clone(), *version, *identity, *transaction);
        let Some(identity) = identity else {
            // Programs rarely start; otherwise none would get as far as a commit.
            if self.rng.u8(..10) == 0 {
                self.init(at, None);
            }
            return;
        };
        match self.rng.u32(..60) {
            0 => self.init(at, None),
            1 => self.init(at, Some(identity)),
            2..20 => {
                let partition = orders(self.rng.i32(0..PARTITIONS));
                let number = transaction.unwrap_or_else(|| {
                    self.transactions += 1;
                    self.transactions
                });
                self.clients[at].transaction = Some(number);
                let now_ms = self.now_ms;
                let decided = self.table.add_partitions(now_ms, &id, identity, &[partition], version);
                self.check_owner(at, decided.as_ref().err());
                self.follow(at, Waiting::Add, decided);
            }
            20..45 => self.produce(at),
            _ => {
                let Some(transaction) = transaction else { return };
                let committed = self.rng.u8(..3) > 0;
                let waiting = Waiting::End { transaction, committed };
                let decide = |table: &mut Transactions, now_ms, fresh| {
                    table.end(now_ms, &id, identity, committed, version, fresh)
                };
                let decided = self.decide(decide);
                self.check_owner(at, decided.as_ref().err());
                self.follow(at, waiting, decided);
            }
        }
    }

    fn init(&mut self, at: usize, expected: Option<ProducerIdentity>) {
        let id = self.clients[at].id.clone();
        self.clients[at].transaction = None;
        let decided = self
            .decide(|table, now_ms, fresh| table.init_producer_id(now_ms, &id, TIMEOUT_MS, expected, fresh));
        self.follow(at, Waiting::Init, decided);
    }

    /// The log's part: a batch of a verified transaction whose epoch is not fenced.
    fn produce(&mut self, at: usize) {
        let client = &self.clients[at];
        let (Some(identity), Some(transaction)) = (client.identity, client.transaction) else { return };
        let index = self.rng.i32(0..PARTITIONS);
        let data = &mut self.partitions[index as usize];
        let is_fenced = data.epochs.get(&identity.id).is_some_and(|epoch| *epoch > identity.epoch);
        if is_fenced || self.table.verify(&client.id, identity, &orders(index)).is_err() {
            return;
        }
        data.epochs.insert(identity.id, identity.epoch);
        data.open.entry(identity.id).or_default().insert(transaction);
        self.written.insert(transaction);
        self.check_owner(at, None);
    }

    fn decide(
        &mut self,
        mut decide: impl FnMut(&mut Transactions, i64, Option<i64>) -> Result<Decision, ErrorCode>,
    ) -> Result<Decision, ErrorCode> {
        match decide(&mut self.table, self.now_ms, None)? {
            Decision::NeedsProducerId => {
                self.next_producer_id += 1;
                decide(&mut self.table, self.now_ms, Some(self.next_producer_id))
            }
            decision => Ok(decision),
        }
    }

    fn follow(&mut self, at: usize, waiting: Waiting, decided: Result<Decision, ErrorCode>) {
        match decided {
            Ok(Decision::Answer(identity)) => self.answer(at, waiting, identity),
            Ok(Decision::Store(record)) => {
                self.clients[at].waits_for = Some(waiting);
                self.append(record, Some(at));
            }
            Ok(Decision::StoreAndRetry(record)) => {
                self.clients[at].waits_for = Some(Waiting::InitRetry);
                self.append(record, Some(at));
            }
            Ok(Decision::NeedsProducerId) => panic!("it has one"),
            Err(ErrorCode::ConcurrentTransactions) => {}
            Err(_) => {
                // A client that is fenced, or whose transaction is gone, starts again some time.
                if self.rng.bool() {
                    self.clients[at].identity = None;
                    self.clients[at].transaction = None;
                }
            }
        }
    }

    fn append(&mut self, record: NewRecord, waits: Option<usize>) {
        let read = records::read(record.key, record.value).expect("ours");
        self.stored_next.push((record.id, read, waits));
    }

    fn become_durable(&mut self) {
        if self.stored_next.is_empty() {
            return;
        }
        let (id, record, waits) = self.stored_next.remove(0);
        self.durable.push(record);
        let stored = self.table.stored(&id);
        self.markers.extend(stored.markers);
        if let Some(at) = waits
            && let Some(waiting) = self.clients[at].waits_for.take()
        {
            self.answer(at, waiting, stored.identity);
        }
        self.complete_markers();
    }

    /// The answer may be lost: the client then repeats its request, or gives up.
    fn answer(&mut self, at: usize, waiting: Waiting, identity: ProducerIdentity) {
        let is_lost = self.rng.u8(..8) == 0;
        let client = &mut self.clients[at];
        if is_lost {
            client.lose_answer(waiting);
            return;
        }
        match waiting {
            Waiting::Init => {
                client.identity = Some(identity);
                self.owners.insert(client.id.clone(), at);
            }
            Waiting::InitRetry | Waiting::Add => {}
            Waiting::End { transaction, committed } => {
                client.identity = Some(identity);
                client.transaction = None;
                let known = self.answered.insert(transaction, committed);
                assert!(known.is_none_or(|known| known == committed), "{transaction} was answered both ways");
            }
        }
    }

    /// A request that succeeds comes from the client that initialized the id last.
    fn check_owner(&self, at: usize, error: Option<&ErrorCode>) {
        if error.is_none() {
            let id = &self.clients[at].id;
            assert_eq!(self.owners.get(id), Some(&at), "two live producers of {id}");
        }
    }

    fn write_marker(&mut self) {
        if self.markers.is_empty() {
            return;
        }
        let which = self.rng.usize(..self.markers.len());
        let markers = &mut self.markers[which];
        if let Some(partition) = markers.partitions.pop() {
            let data = &mut self.partitions[partition.index as usize];
            let ProducerIdentity { id, epoch } = markers.producer;
            let known = data.epochs.entry(id).or_insert(epoch);
            assert!(*known <= epoch, "a marker older than the data");
            *known = epoch;
            for transaction in data.open.remove(&id).unwrap_or_default() {
                self.outcomes.entry(transaction).or_default().insert(markers.committed);
            }
            let id = markers.id.clone();
            self.table.marker_written(&id, &partition);
        }
        self.complete_markers();
    }

    fn complete_markers(&mut self) {
        while let Some(at) = self.markers.iter().position(|markers| markers.partitions.is_empty()) {
            let markers = self.markers.swap_remove(at);
            let id = markers.id;
            match self.table.markers_written(self.now_ms, &id) {
                Ok(Decision::Store(record)) => self.append(record, None),
                other => panic!("{other:?}"),
            }
        }
    }

    fn pass_time(&mut self) {
        self.now_ms += self.rng.i64(0..i64::from(TIMEOUT_MS));
        for id in self.table.timed_out(self.now_ms) {
            match self.decide(|table, now_ms, fresh| table.time_out(now_ms, &id, fresh)) {
                Ok(Decision::Store(record)) => self.append(record, None),
                Ok(other) => panic!("{other:?}"),
                Err(_) => {}
            }
        }
    }

    /// Any number of records that are not durable survives. Markers that were written do.
    fn crash(&mut self) {
        let kept = self.rng.usize(..=self.stored_next.len());
        let records = std::mem::take(&mut self.stored_next).into_iter().take(kept);
        self.durable.extend(records.map(|(_, record, _)| record));
        for client in &mut self.clients {
            if let Some(waiting) = client.waits_for.take() {
                client.lose_answer(waiting);
            }
        }
        self.table = table();
        for record in &self.durable {
            match record {
                StateRecord::State(id, metadata) => {
                    self.table.load(id.clone(), Some(metadata.clone()), self.now_ms);
                }
                StateRecord::Removed(id) => self.table.load(id.clone(), None, self.now_ms),
                StateRecord::Unknown => {}
            }
        }
        self.markers = self.table.resume();
        self.complete_markers();
    }

    /// Everything that was begun ends, open transactions by their timeout.
    fn quiesce(&mut self) {
        for _ in 0..20 {
            self.now_ms += 10 * i64::from(TIMEOUT_MS);
            self.pass_time();
            while !self.stored_next.is_empty() || !self.markers.is_empty() {
                self.become_durable();
                self.write_marker();
            }
        }
    }

    fn check(&self) {
        for data in &self.partitions {
            assert!(data.open.values().all(BTreeSet::is_empty), "a transaction never ends: {:?}", data.open);
        }
        for transaction in &self.written {
            let outcomes = &self.outcomes[transaction];
            assert_eq!(outcomes.len(), 1, "transaction {transaction} ended both ways");
            if let Some(committed) = self.answered.get(transaction) {
                assert!(outcomes.contains(committed), "{transaction} was answered {committed}: {outcomes:?}");
            }
        }
    }
}

fn table() -> Transactions {
    let limits = TransactionLimits { timeout_ms_max: 900_000, id_expiration_ms: i64::MAX };
    Transactions::new(limits, KeptMemory::new(1 << 20))
}

fn orders(index: i32) -> TopicPartition {
    TopicPartition { topic: "orders".into(), index }
}

#[test]
fn random_histories_have_one_owner_and_one_outcome() {
    let (mut committed, mut aborted) = (0, 0);
    for seed in 0..HISTORIES {
        let mut world = World::new(seed);
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..STEPS {
                world.step();
            }
            world.quiesce();
            world.check();
        }));
        if let Err(panic) = told {
            println!("seed {seed}");
            std::panic::resume_unwind(panic);
        }
        let outcomes = world.outcomes.values();
        committed += outcomes.clone().filter(|outcomes| outcomes.contains(&true)).count();
        aborted += outcomes.filter(|outcomes| outcomes.contains(&false)).count();
    }
    assert!(committed > 500 && aborted > 500, "{committed} commits and {aborted} aborts show little");
}
