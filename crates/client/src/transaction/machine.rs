//! Where a transactional producer stands: every state, and every step between them. No clocks, no sockets.

use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;

use super::error::{Then, TransactionError, TransactionErrorKind};
use super::verdict::{Call, Protocol, Verdict, judge};
use crate::error::{Error, ProduceError, ProduceErrorKind};
use crate::produce::idempotence::ProducerId;

/// What the producer is doing, or waits for.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Uninitialized,
    /// Between transactions.
    Ready,
    /// Takes records.
    InTransaction,
    /// A commit waits for the records' acknowledgements; nothing is decided yet.
    Flushing,
    /// The commit may have been sent: nothing but a commit is allowed.
    Committing,
    Aborting,
    /// Something failed: nothing but an abort is allowed.
    Abortable(Arc<TransactionError>),
    /// Nothing says what became of the transaction: nothing but a new start is allowed.
    Undecided(Arc<TransactionError>),
    Fatal(Arc<TransactionError>),
}

/// A transactional producer's state, and what it knows of its coordinator.
#[derive(Debug)]
pub(crate) struct Machine {
    id: Arc<str>,
    state: State,
    producer: Option<ProducerId>,
    pub(crate) protocol: Protocol,
    /// The epoch must change before anything else is sent.
    stale: bool,
    /// The coordinator does not know our producer id any more.
    forgotten: bool,
    /// The coordinator may know of this transaction.
    touched: bool,
    /// The coordinator knows of this transaction.
    added: bool,
    /// A batch that had its sequence number failed: those after it would not follow.
    gap: bool,
    /// Requests that were sent and not answered: a copy may still arrive, whenever it likes.
    unanswered: u32,
    /// Counts transactions.
    serial: u64,
    last_problem: String,
}

/// What the sender needs to know.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct View {
    /// Whether batches may go; otherwise they fail.
    pub(crate) sends: bool,
    /// Whose batches they are; none while a new epoch is needed first.
    pub(crate) producer: Option<ProducerId>,
    pub(crate) protocol: Protocol,
    pub(crate) serial: u64,
}

impl Machine {
    pub(crate) fn new(id: Arc<str>) -> Self {
        Self {
            id,
            state: State::Uninitialized,
            producer: None,
            protocol: Protocol::V1,
            stale: false,
            forgotten: false,
            touched: false,
            added: false,
            gap: false,
            unanswered: 0,
            serial: 0,
            last_problem: String::new(),
        }
    }

    /// What the statistics call its state: librdkafka's word. What can only be initialized anew is at its beginning.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            State::Uninitialized | State::Undecided(_) => "Init",
            State::Ready => "Ready",
            State::InTransaction => "InTransaction",
            State::Flushing => "BeginCommit",
            State::Committing => "CommittingTransaction",
            State::Aborting => "AbortingTransaction",
            State::Abortable(_) => "AbortableError",
            State::Fatal(_) => "FatalError",
        }
    }

    /// Whether records are taken.
    pub(crate) fn takes_records(&self) -> bool {
        matches!(self.state, State::InTransaction)
    }

    /// Whether batches of the transaction may go.
    pub(crate) fn sends(&self) -> bool {
        matches!(self.state, State::InTransaction | State::Flushing)
    }

    pub(crate) fn view(&self) -> View {
        let producer = self.producer.filter(|_| !self.needs_epoch());
        View { sends: self.sends(), producer, protocol: self.protocol, serial: self.serial }
    }

    /// The producer id and epoch that requests carry.
    pub(crate) fn producer(&self) -> ProducerId {
        self.producer.unwrap_or(ProducerId { id: -1, epoch: -1 })
    }

    /// Whether InitProducerId must come before anything else is sent.
    pub(crate) fn needs_epoch(&self) -> bool {
        self.stale || self.forgotten || self.producer.is_none()
    }

    /// What InitProducerId is asked with: the id whose epoch is to be raised, or nothing for whatever the coordinator
    /// has. An epoch that is not the latest is refused, so that a zombie does not fence its successor (KIP-360).
    pub(crate) fn epoch_of(&self) -> Option<ProducerId> {
        self.producer.filter(|_| !self.forgotten)
    }

    /// `init_transactions` is called.
    pub(crate) fn begin_init(&mut self) -> Result<(), TransactionError> {
        match self.state {
            State::Uninitialized | State::Undecided(_) => Ok(()),
            _ => Err(self.refuse("init_transactions")),
        }
    }

    /// The coordinator has given an epoch.
    pub(crate) fn initialized(&mut self, producer: ProducerId, protocol: Protocol) {
        (self.producer, self.protocol) = (Some(producer), protocol);
        (self.stale, self.forgotten, self.unanswered) = (false, false, 0);
        if matches!(self.state, State::Uninitialized | State::Undecided(_)) {
            self.close();
        }
    }

    /// `begin_transaction` is called.
    pub(crate) fn begin(&mut self) -> Result<(), TransactionError> {
        if !matches!(self.state, State::Ready) {
            return Err(self.refuse("begin_transaction"));
        }
        self.state = State::InTransaction;
        self.serial += 1;
        Ok(())
    }

    /// `send_offsets_to_transaction` is called.
    pub(crate) fn begin_offsets(&mut self) -> Result<(), TransactionError> {
        if !matches!(self.state, State::InTransaction) {
            return Err(self.refuse("send_offsets_to_transaction"));
        }
        Ok(())
    }

    /// The cluster speaks this protocol now. A transaction that no coordinator can know of yet changes over, with a new
    /// epoch.
    pub(crate) fn follow(&mut self, protocol: Protocol) {
        if protocol != self.protocol && matches!(self.state, State::InTransaction) && !self.touched {
            self.stale = true;
        }
    }

    /// The coordinator is about to learn of the transaction.
    pub(crate) fn touch(&mut self) {
        self.touched = true;
    }

    /// The coordinator has learned of the transaction.
    pub(crate) fn added(&mut self) {
        self.added = true;
    }

    /// `commit_transaction` is called: records are not taken any more.
    pub(crate) fn begin_commit(&mut self) -> Result<(), TransactionError> {
        match self.state {
            State::InTransaction | State::Flushing => {
                self.state = State::Flushing;
                Ok(())
            }
            State::Committing => Ok(()),
            _ => Err(self.refuse("commit_transaction")),
        }
    }

    /// Every record has its fate. `true`: the coordinator must be told of the commit. An empty transaction is committed
    /// by forgetting it.
    pub(crate) fn flushed(&mut self) -> Result<bool, TransactionError> {
        match self.state {
            State::Flushing if !self.touched => {
                self.close();
                Ok(false)
            }
            State::Flushing | State::Committing => {
                self.state = State::Committing;
                Ok(true)
            }
            _ => Err(self.refuse("commit_transaction")),
        }
    }

    /// `abort_transaction` is called: what is not sent is not sent any more.
    pub(crate) fn begin_abort(&mut self) -> Result<(), TransactionError> {
        match self.state {
            State::InTransaction | State::Flushing | State::Abortable(_) | State::Aborting => {
                self.state = State::Aborting;
                Ok(())
            }
            _ => Err(self.refuse("abort_transaction")),
        }
    }

    /// Nothing is in flight any more. `true`: the coordinator must be told of the abort.
    pub(crate) fn drained(&mut self) -> Result<bool, TransactionError> {
        match self.state {
            // What the coordinator has forgotten it has aborted.
            State::Aborting if !self.touched || self.forgotten => {
                self.close();
                Ok(false)
            }
            State::Aborting => Ok(true),
            _ => Err(self.refuse("abort_transaction")),
        }
    }

    /// A request is about to be sent.
    pub(crate) fn asked(&mut self) {
        self.unanswered += 1;
    }

    /// Its answer is here.
    pub(crate) fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// What an answer means here.
    pub(crate) fn judge(&mut self, call: Call, code: ErrorCode) -> Verdict {
        match (call, judge(call, code, self.protocol)) {
            // It never heard of the transaction: there is nothing to abort.
            (Call::Abort, Verdict::Fatal) if code == ErrorCode::InvalidTxnState && !self.added => {
                Verdict::Done
            }
            // What it has forgotten it has aborted.
            (Call::Abort, Verdict::Forgotten) => {
                self.forgotten = true;
                Verdict::Done
            }
            (Call::InitProducerId, Verdict::Forgotten) if self.epoch_of().is_some() => {
                self.forgotten = true;
                Verdict::Again
            }
            (_, verdict) => verdict,
        }
    }

    /// EndTxn is done; KIP-890's brings the next epoch.
    pub(crate) fn ended(&mut self, next: Option<ProducerId>) {
        match (self.protocol, next) {
            (Protocol::V2, Some(next)) => (self.producer, self.unanswered) = (Some(next), 0),
            (Protocol::V2, None) => self.stale = true,
            // What was lost on the way may arrive in the middle of the next transaction: under an old epoch it does nothing.
            (Protocol::V1, _) => self.stale |= self.gap || self.unanswered > 0,
        }
        self.close();
    }

    fn close(&mut self) {
        self.state = State::Ready;
        (self.touched, self.added, self.gap) = (false, false, false);
    }

    /// An answer ends the call. The error, and the state that goes with it; `what` is what the broker says of it.
    pub(crate) fn refused(
        &mut self,
        call: Call,
        code: ErrorCode,
        what: &str,
        verdict: Verdict,
    ) -> TransactionError {
        let kind = match verdict {
            Verdict::Fenced => TransactionErrorKind::Fenced { code },
            _ => TransactionErrorKind::Coordinator { request: call.request(), what: what.to_owned(), code },
        };
        // An earlier copy of the commit may have done its work before somebody took over, or could not be asked.
        let lost = self.unanswered > 0 && (verdict >= Verdict::Fatal || call == Call::FindCoordinator);
        let unknown = matches!(self.state, State::Committing) && (verdict == Verdict::Unknown || lost);
        let then = match verdict {
            Verdict::Done | Verdict::Again | Verdict::Elsewhere => Then::Retry,
            Verdict::Forgotten => {
                self.forgotten = true;
                if call == Call::InitProducerId { Then::Close } else { Then::Abort }
            }
            Verdict::Abortable if unknown => Then::Init,
            // There is nothing to abort.
            Verdict::Abortable if matches!(self.state, State::Uninitialized | State::Undecided(_)) => {
                Then::Close
            }
            Verdict::Abortable => Then::Abort,
            Verdict::Unknown => Then::Init,
            Verdict::Fatal | Verdict::Fenced => Then::Close,
        };
        self.fall(kind, then, unknown)
    }

    /// A request failed in a way that repeating it does not mend.
    pub(crate) fn impossible(&mut self, call: Call, error: Error) -> TransactionError {
        let kind = match error {
            Error::Closed => TransactionErrorKind::Closed,
            error => TransactionErrorKind::Request { request: call.request(), error: Box::new(error) },
        };
        let unknown = matches!(self.state, State::Committing) && self.unanswered > 0;
        self.fall(kind, Then::Close, unknown)
    }

    /// A record of the transaction has failed.
    pub(crate) fn record_failed(&mut self, error: &Arc<ProduceError>) {
        if !self.sends() {
            return;
        }
        match error.kind {
            ProduceErrorKind::Broker {
                code: code @ (ErrorCode::ProducerFenced | ErrorCode::InvalidProducerEpoch),
                ..
            } => self.fall(TransactionErrorKind::Fenced { code }, Then::Close, false),
            _ => self.fall(TransactionErrorKind::Record(error.clone()), Then::Abort, false),
        };
    }

    /// A batch that had its sequence number has failed.
    pub(crate) fn sequence_broken(&mut self) {
        self.gap = true;
    }

    /// The error after which nothing goes on.
    pub(crate) fn fatal(&self) -> Option<Arc<TransactionError>> {
        match &self.state {
            State::Fatal(error) => Some(error.clone()),
            State::Uninitialized
            | State::Ready
            | State::InTransaction
            | State::Flushing
            | State::Committing
            | State::Aborting
            | State::Abortable(_)
            | State::Undecided(_) => None,
        }
    }

    fn fall(&mut self, kind: TransactionErrorKind, then: Then, outcome_unknown: bool) -> TransactionError {
        let error = TransactionError { transactional_id: self.id.clone(), kind, then, outcome_unknown };
        let state = match then {
            Then::Abort => State::Abortable(error.clone().into()),
            Then::Init => State::Undecided(error.clone().into()),
            Then::Close => State::Fatal(error.clone().into()),
            Then::Mend | Then::Retry => return error,
        };
        // An abort that goes on stays one.
        if !(then == Then::Abort && matches!(self.state, State::Aborting)) {
            self.state = state;
        }
        error
    }

    /// Notes what went wrong with an attempt.
    pub(crate) fn note(&mut self, problem: String) {
        self.last_problem = problem;
    }

    /// The error of a call whose time is over. The state stays: the call can be made again.
    pub(crate) fn timed_out(&self, call: &'static str, waited: Duration) -> TransactionError {
        let last = match self.last_problem.as_str() {
            "" => "no answer yet".into(),
            problem => problem.into(),
        };
        TransactionError {
            transactional_id: self.id.clone(),
            kind: TransactionErrorKind::TimedOut { call, waited_ms: waited.as_millis(), last },
            then: Then::Retry,
            outcome_unknown: matches!(self.state, State::Committing),
        }
    }

    /// The error of a call that does not belong here; after a failure, that failure.
    pub(crate) fn refuse(&self, call: &'static str) -> TransactionError {
        let (state, then) = match &self.state {
            State::Abortable(error) | State::Undecided(error) | State::Fatal(error) => {
                return (**error).clone();
            }
            State::Uninitialized => ("before init_transactions", Then::Mend),
            State::Ready => ("outside a transaction: begin_transaction first", Then::Mend),
            State::InTransaction => ("inside a transaction", Then::Mend),
            State::Flushing => ("while the transaction is being committed", Then::Mend),
            State::Committing => {
                ("after a commit was sent: commit_transaction again tells its outcome", Then::Mend)
            }
            State::Aborting => {
                ("while the transaction is being aborted: abort_transaction again", Then::Mend)
            }
        };
        let kind = TransactionErrorKind::State { call, state };
        TransactionError { transactional_id: self.id.clone(), kind, then, outcome_unknown: false }
    }

    /// The error of a record that may not go.
    pub(crate) fn refuse_record(&self) -> ProduceErrorKind {
        let mut error = self.refuse("producing");
        if matches!(self.state, State::Aborting) {
            error.kind = TransactionErrorKind::Aborted;
        }
        ProduceErrorKind::Transaction(Arc::new(error))
    }
}

#[cfg(test)]
mod tests;
