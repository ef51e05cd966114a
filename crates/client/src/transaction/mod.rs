//! Transactions: records and offsets that become visible together, or not at all.
//!
//! [`machine`] decides and [`requests`] sends requests. The calls of the application are in
//! `produce/transactional_calls.rs`: one linear function each, run in the engine. The sender queries the machine before it sends batches, and adds partitions to the transaction where the
//! protocol requires it.

pub(crate) mod coordinator_calls;
pub(crate) mod error_table;
pub(crate) mod machine;
pub(crate) mod requests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustc_hash::FxHashMap;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::coordinator_calls::Coordinates;
use self::error_table::TransactionProtocol;
use self::machine::{Machine, MachineView};
use crate::config::Config;
use crate::error::transaction::{Recovery, TransactionError, TransactionErrorKind};
use crate::error::{ProduceError, ProduceErrorKind};
use crate::stats::facts::TransactionStatus;
use crate::types::producer_id::ProducerId;

pub(crate) use self::requests::prepare;

/// State that producing threads, the sender and the transactional calls share.
#[derive(Debug)]
pub(crate) struct Transactions {
    /// `true` if records are accepted; always without a `transactional.id`.
    gate: AtomicBool,
    pub(crate) id: Option<Arc<str>>,
    /// The reason why no record is accepted any more: a record that a producer without gaps has lost, or the application's.
    end: OnceLock<ProduceErrorKind>,
    machine: Mutex<Machine>,
    history: Mutex<History>,
    /// The known coordinators' nodes.
    nodes: Mutex<FxHashMap<Coordinates, i32>>,
    /// One transactional call at a time.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// One request for an epoch at a time.
    epoch: tokio::sync::Mutex<()>,
    /// The request for a commit. It continues after the call that began it has run out of time, and a repeated call returns its result.
    pub(crate) commit: tokio::sync::Mutex<Option<SentCommit>>,
    /// Notified when nothing is in flight.
    quiet: Mutex<Option<oneshot::Sender<()>>>,
}

/// A task that sends EndTxn until the response is final. It returns the next producer id and epoch, if the response has them.
pub(crate) type SentCommit = JoinHandle<Result<Option<ProducerId>, TransactionError>>;

/// Statistics about the machine.
#[derive(Clone, Copy, Debug, Default)]
struct History {
    /// The time of the last state change.
    changed_at: Option<Instant>,
    /// The number of producer ids and epochs so far.
    producer_ids: u64,
}

impl Transactions {
    pub(crate) fn new(config: &Config) -> Self {
        let id: Option<Arc<str>> = config.transactional_id.as_deref().map(Arc::from);
        Self {
            gate: AtomicBool::new(id.is_none()),
            end: OnceLock::new(),
            machine: Mutex::new(Machine::new(id.clone().unwrap_or_default())),
            id,
            history: Mutex::default(),
            nodes: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            epoch: tokio::sync::Mutex::default(),
            commit: tokio::sync::Mutex::default(),
            quiet: Mutex::default(),
        }
    }

    /// Returns `true` if the producer currently accepts records.
    #[inline]
    pub(crate) fn takes_records(&self) -> bool {
        self.gate.load(Ordering::Relaxed)
    }

    pub(crate) fn view(&self) -> MachineView {
        lock(&self.machine).view()
    }

    /// Performs a step of the machine and updates the gate.
    pub(crate) fn update<T>(&self, step: impl FnOnce(&mut Machine) -> T) -> T {
        let mut machine = lock(&self.machine);
        let (state, producer) = (machine.state_name(), machine.producer());
        let result = step(&mut machine);
        if state != machine.state_name() {
            lock(&self.history).changed_at = Some(Instant::now());
        }
        if producer != machine.producer() {
            lock(&self.history).producer_ids += 1;
        }
        let takes_records = self.id.is_none() || machine.takes_records();
        self.gate.store(takes_records && !self.has_ended(), Ordering::Relaxed);
        result
    }

    /// The producer ends: it accepts no record, sends none, and begins no transactional call, for this reason. Returns `false` if it had
    /// already ended.
    pub(crate) fn end(&self, reason: ProduceErrorKind) -> bool {
        let is_first = self.end.set(reason.clone()).is_ok();
        if is_first {
            // A step of the machine: another one at the same time must not open the gate again.
            self.update(|machine| machine.end(reason));
        }
        is_first
    }

    /// Returns `true` after [`end`](Self::end).
    pub(crate) fn has_ended(&self) -> bool {
        self.end.get().is_some()
    }

    /// The reason why the producer cannot be used any more.
    pub(crate) fn fatal(&self) -> Option<ProduceErrorKind> {
        let end = self.end.get().cloned();
        end.or_else(|| lock(&self.machine).fatal().map(ProduceErrorKind::Transaction))
    }

    /// Applies the cluster's level of `transaction.version`, as reported by the newest connection.
    pub(crate) fn follow_level(&self, level: i16) {
        self.update(|machine| machine.follow(TransactionProtocol::at_level(level)));
    }

    /// Applies the failure of a record to the transaction, if there is one. Returns the error if it has just ended the producer.
    pub(crate) fn record_failed(&self, error: &Arc<ProduceError>) -> Option<Arc<TransactionError>> {
        self.id.as_ref()?;
        self.update(|machine| {
            let had_ended = machine.fatal().is_some();
            machine.record_failed(error);
            machine.fatal().filter(|_| !had_ended)
        })
    }

    /// The transaction state that statistics show.
    pub(crate) fn status(&self) -> TransactionStatus {
        let machine = lock(&self.machine);
        let History { changed_at, producer_ids } = *lock(&self.history);
        TransactionStatus {
            state: machine.state_name(),
            changed_at,
            takes_records: self.id.is_some() && machine.takes_records(),
            needs_epoch: machine.needs_epoch(),
            producer: machine.producer(),
            producer_ids,
        }
    }

    /// The error of a record that is not accepted.
    pub(crate) fn refuse_record(&self) -> ProduceErrorKind {
        self.end.get().cloned().unwrap_or_else(|| lock(&self.machine).refuse_record())
    }

    /// Requests a notification from the sender when nothing is in flight.
    pub(crate) fn subscribe_idle(&self) -> oneshot::Receiver<()> {
        let (sender, quiet) = oneshot::channel();
        *lock(&self.quiet) = Some(sender);
        quiet
    }

    /// Returns `true` if a task waits until nothing is in flight.
    pub(crate) fn has_idle_waiter(&self) -> bool {
        lock(&self.quiet).is_some()
    }

    /// Notifies the waiting task that nothing is in flight.
    pub(crate) fn notify_idle(&self) {
        if let Some(quiet) = lock(&self.quiet).take() {
            let _ = quiet.send(());
        }
    }

    pub(crate) fn error(&self, kind: TransactionErrorKind, then: Recovery) -> TransactionError {
        let transactional_id = self.id.clone().unwrap_or_default();
        TransactionError { transactional_id, kind, then, outcome_unknown: false }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
