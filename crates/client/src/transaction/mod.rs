//! Transactions: records and offsets that become visible together, or not at all.
//!
//! [`machine`] decides, [`operations`] talks: one linear function per call of the application, run in the engine. The
//! sender asks the machine what may go, and adds partitions to the transaction where the coordinator wants to be told.

mod api;
mod calls;
pub(crate) mod error;
pub(crate) mod machine;
mod operations;
pub(crate) mod verdict;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustc_hash::FxHashMap;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::calls::Coordinates;
use self::error::{Then, TransactionError, TransactionErrorKind};
use self::machine::{Machine, View};
use self::verdict::Protocol;
use crate::config::Config;
use crate::error::{ProduceError, ProduceErrorKind};
use crate::produce::idempotence::ProducerId;

pub(crate) use self::operations::{FEATURE, prepare};

/// What producing threads, the sender and the transactional calls share.
#[derive(Debug)]
pub(crate) struct Transactions {
    /// Whether records are taken; always, without a `transactional.id`.
    gate: AtomicBool,
    pub(crate) id: Option<Arc<str>>,
    /// The record that is missing where no gap may be: nothing is taken after it.
    gap: OnceLock<Arc<ProduceError>>,
    machine: Mutex<Machine>,
    history: Mutex<History>,
    /// Which node coordinates what, as far as is known.
    nodes: Mutex<FxHashMap<Coordinates, i32>>,
    /// One transactional call at a time.
    turn: tokio::sync::Mutex<()>,
    /// One request for an epoch at a time.
    epoch: tokio::sync::Mutex<()>,
    /// Told when nothing is in flight.
    quiet: Mutex<Option<oneshot::Sender<()>>>,
}

/// What the statistics remember of the machine.
#[derive(Clone, Copy, Debug, Default)]
struct History {
    /// When the state last became another one.
    changed_at: Option<Instant>,
    /// How many producer ids and epochs there were.
    producer_ids: u64,
}

/// What statistics say of transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    pub(crate) state: &'static str,
    pub(crate) changed_at: Option<Instant>,
    pub(crate) takes_records: bool,
    /// Whether the coordinator must give an epoch before anything is sent.
    pub(crate) needs_epoch: bool,
    pub(crate) producer: ProducerId,
    pub(crate) producer_ids: u64,
}

/// Who commits offsets: what a consumer is in its group, from [`Consumer::group_metadata`](crate::ConsumerControl::group_metadata).
///
/// The coordinator refuses the offsets of a member that is out of its group.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct GroupMetadata {
    /// `group.id`.
    pub group_id: String,
    /// The generation; -1 outside a membership.
    pub generation: i32,
    /// The member id; empty outside a membership.
    pub member_id: String,
    /// `group.instance.id`, of a static member.
    pub instance_id: Option<String>,
}

impl GroupMetadata {
    /// A group whose members are not checked: for offsets that no membership guards.
    pub fn new(group_id: impl Into<String>) -> Self {
        Self { group_id: group_id.into(), generation: -1, member_id: String::new(), instance_id: None }
    }
}

impl Transactions {
    pub(crate) fn new(config: &Config) -> Self {
        let id: Option<Arc<str>> = config.transactional_id.as_deref().map(Arc::from);
        Self {
            gate: AtomicBool::new(id.is_none()),
            gap: OnceLock::new(),
            machine: Mutex::new(Machine::new(id.clone().unwrap_or_default())),
            id,
            history: Mutex::default(),
            nodes: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            epoch: tokio::sync::Mutex::default(),
            quiet: Mutex::default(),
        }
    }

    /// Whether the producer takes records at the moment.
    #[inline]
    pub(crate) fn takes_records(&self) -> bool {
        self.gate.load(Ordering::Relaxed)
    }

    pub(crate) fn view(&self) -> View {
        lock(&self.machine).view()
    }

    /// A step of the machine; the gate follows it.
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
        self.gate.store(self.id.is_none() || machine.takes_records(), Ordering::Relaxed);
        result
    }

    /// A record is missing that others may not follow: the producer ends. `false` if it had ended already.
    pub(crate) fn end_at_gap(&self, error: &Arc<ProduceError>) -> bool {
        self.gate.store(false, Ordering::Relaxed);
        self.gap.set(error.clone()).is_ok()
    }

    /// Whether the producer has ended because a record is missing.
    pub(crate) fn has_gap(&self) -> bool {
        self.gap.get().is_some()
    }

    /// Why the producer is of no more use, if it is.
    pub(crate) fn fatal(&self) -> Option<ProduceErrorKind> {
        let gap = self.gap.get().map(|error| ProduceErrorKind::Gapless(error.clone()));
        gap.or_else(|| lock(&self.machine).fatal().map(ProduceErrorKind::Transaction))
    }

    /// The cluster's level of `transaction.version`, as the newest connection has it.
    pub(crate) fn follow_level(&self, level: i16) {
        self.update(|machine| machine.follow(Protocol::at_level(level)));
    }

    /// A record has failed; what it does to the transaction, if there is one.
    pub(crate) fn record_failed(&self, error: &Arc<ProduceError>) {
        if self.id.is_some() {
            self.update(|machine| machine.record_failed(error));
        }
    }

    /// What statistics say of transactions.
    pub(crate) fn told(&self) -> Told {
        let machine = lock(&self.machine);
        let History { changed_at, producer_ids } = *lock(&self.history);
        Told {
            state: machine.state_name(),
            changed_at,
            takes_records: self.id.is_some() && machine.takes_records(),
            needs_epoch: machine.needs_epoch(),
            producer: machine.producer(),
            producer_ids,
        }
    }

    /// The error of a record that may not go.
    pub(crate) fn refuse_record(&self) -> ProduceErrorKind {
        match self.gap.get() {
            Some(error) => ProduceErrorKind::Gapless(error.clone()),
            None => lock(&self.machine).refuse_record(),
        }
    }

    /// Asks the sender to say when nothing is in flight.
    fn ask_quiet(&self) -> oneshot::Receiver<()> {
        let (told, quiet) = oneshot::channel();
        *lock(&self.quiet) = Some(told);
        quiet
    }

    /// Whether somebody waits until nothing is in flight.
    pub(crate) fn is_quiet_wanted(&self) -> bool {
        lock(&self.quiet).is_some()
    }

    /// Nothing is in flight.
    pub(crate) fn tell_quiet(&self) {
        if let Some(quiet) = lock(&self.quiet).take() {
            let _ = quiet.send(());
        }
    }

    fn error(&self, kind: TransactionErrorKind, then: Then) -> TransactionError {
        let transactional_id = self.id.clone().unwrap_or_default();
        TransactionError { transactional_id, kind, then, outcome_unknown: false }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
