//! A producer of transactions, and the result of each record.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ottla_client::{Config, Producer, Record, TransactionError};

/// Time limit of a call: a broker can restart within it.
const CALL_WITHIN: Duration = Duration::from_secs(60);
/// Pause between transactions, which leaves the brokers time for the groups.
const PAUSE: Duration = Duration::from_millis(30);
const RECORDS_MAX: u64 = 200;
/// One of this many transactions is aborted.
const ABORTED_OF: u64 = 4;

/// The committed records of each partition, in order: their numbers, and the times of their commits.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) committed: Vec<Vec<(u64, Instant)>>,
    pub(crate) transactions: usize,
    pub(crate) aborted: usize,
}

pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    written: Arc<Mutex<Written>>,
    thread: JoinHandle<()>,
}

impl Load {
    pub(crate) fn start(bootstrap: &str, topic: &str, partitions: usize, seed: u64) -> Self {
        let mut config = Config::new(bootstrap);
        let properties =
            [("transactional.id", topic), ("transaction.timeout.ms", "30000"), ("linger.ms", "0")];
        config.set_all(properties).expect("known properties");
        let written = Written { committed: vec![Vec::new(); partitions], transactions: 0, aborted: 0 };
        let (stop, written) = (Arc::<AtomicBool>::default(), Arc::new(Mutex::new(written)));
        let (stops, writes, topic) = (stop.clone(), written.clone(), topic.to_owned());
        let thread = std::thread::spawn(move || {
            let producer = Producer::new(config).expect("a producer");
            again(|| producer.init_transactions_blocking(CALL_WITHIN)).expect("initialized");
            let mut random = fastrand::Rng::with_seed(seed);
            let mut next = vec![0; partitions];
            while !stops.load(Ordering::Relaxed) {
                transaction(&producer, &topic, &mut next, &mut random, &writes);
                std::thread::sleep(PAUSE);
            }
        });
        Self { stop, written, thread }
    }

    /// Stops after the current transaction.
    pub(crate) fn stop(self) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the producer's thread");
        Arc::into_inner(self.written).expect("the thread is gone").into_inner().expect("not poisoned")
    }
}

fn transaction(
    producer: &Producer,
    topic: &str,
    next: &mut [u64],
    random: &mut fastrand::Rng,
    written: &Mutex<Written>,
) {
    producer.begin_transaction().expect("ready");
    let mut numbers = Vec::new();
    for _ in 0..random.u64(1..=RECORDS_MAX) {
        let partition = random.usize(..next.len());
        let value = next[partition].to_string();
        let record = Record::to(topic).partition(partition as i32).value(&value);
        producer.topic(topic).send_unobserved_blocking(&record).expect("a transaction takes records");
        numbers.push((partition, next[partition]));
        next[partition] += 1;
    }
    let aborts = random.u64(..ABORTED_OF) == 0;
    // Half of the aborted transactions have written to the log.
    if aborts && random.bool() {
        let _whether_or_not = producer.flush_blocking(CALL_WITHIN);
    }
    let committed = !aborts && commits(producer);
    if !committed {
        again(|| producer.abort_transaction_blocking(CALL_WITHIN)).expect("aborted");
    }
    let mut written = written.lock().expect("not poisoned");
    written.transactions += 1;
    written.aborted += usize::from(!committed);
    if committed {
        let now = Instant::now();
        for (partition, number) in numbers {
            written.committed[partition].push((number, now));
        }
    }
}

/// Returns `true` if the transaction is committed. Otherwise it must be aborted.
fn commits(producer: &Producer) -> bool {
    match again(|| producer.commit_transaction_blocking(CALL_WITHIN)) {
        Ok(()) => true,
        Err(error) if error.requires_abort() => false,
        Err(error) => panic!("commit: {error}"),
    }
}

fn again(mut call: impl FnMut() -> Result<(), TransactionError>) -> Result<(), TransactionError> {
    loop {
        match call() {
            Err(error) if error.is_retriable() => {}
            result => return result,
        }
    }
}
