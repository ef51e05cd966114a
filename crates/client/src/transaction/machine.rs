//! The state of a transactional producer: every state, and every transition. No clocks, no sockets.

use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;

use super::error_table::{ResponseAction, TransactionProtocol, TxnRequest, action_for};
use crate::error::transaction::{Recovery, TransactionError, TransactionErrorKind};
use crate::error::{Error, ProduceError, ProduceErrorKind};
use crate::types::producer_id::ProducerId;

/// The producer's state, or the event that it waits for.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Uninitialized,
    /// Between transactions.
    Ready,
    /// Takes records.
    InTransaction,
    /// A commit waits for the records' acknowledgements; its outcome is still open.
    Flushing,
    /// The commit may have been sent: only a commit is allowed.
    Committing,
    Aborting,
    /// An error occurred: only an abort is allowed.
    Abortable(Arc<TransactionError>),
    /// The outcome of the transaction is unknown: only a new initialization is allowed.
    Undecided(Arc<TransactionError>),
    Fatal(Arc<TransactionError>),
}

/// The state of a transactional producer, and its knowledge of the coordinator.
#[derive(Debug)]
pub(crate) struct Machine {
    id: Arc<str>,
    state: State,
    producer: Option<ProducerId>,
    pub(crate) protocol: TransactionProtocol,
    /// The epoch must change before anything else is sent.
    stale: bool,
    /// The coordinator no longer knows the producer id.
    forgotten: bool,
    /// The coordinator may know of this transaction.
    touched: bool,
    /// The coordinator knows of this transaction.
    added: bool,
    /// Batches of this transaction were sent.
    has_batches: bool,
    /// A batch with a sequence number failed, so later batches would be out of order.
    gap: bool,
    /// The last transaction was aborted, and a higher epoch is to follow.
    owes_epoch: bool,
    /// Requests without a response: a copy may still arrive at any time.
    unanswered: u32,
    /// Counts transactions.
    serial: u64,
    last_problem: String,
    /// The code of the last response, unless a later attempt had none.
    last_code: Option<ErrorCode>,
    /// The error of each call after the application has ended the producer.
    end: Option<Arc<TransactionError>>,
}

/// The parts of the state that the sender needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MachineView {
    /// `true` if batches may be sent; otherwise they fail.
    pub(crate) sends: bool,
    /// The producer id and epoch of the batches; `None` while a new epoch is required.
    pub(crate) producer: Option<ProducerId>,
    pub(crate) protocol: TransactionProtocol,
    pub(crate) serial: u64,
}

impl Machine {
    pub(crate) fn new(id: Arc<str>) -> Self {
        Self {
            id,
            state: State::Uninitialized,
            producer: None,
            protocol: TransactionProtocol::V1,
            stale: false,
            forgotten: false,
            touched: false,
            added: false,
            has_batches: false,
            gap: false,
            owes_epoch: false,
            unanswered: 0,
            serial: 0,
            last_problem: String::new(),
            last_code: None,
            end: None,
        }
    }

    /// The state's name in librdkafka's statistics. A producer that must be initialized again counts as `Init`.
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

    /// Returns `true` if records are accepted.
    pub(crate) fn takes_records(&self) -> bool {
        self.end.is_none() && matches!(self.state, State::InTransaction)
    }

    /// Returns `true` if batches of the transaction may be sent.
    pub(crate) fn sends(&self) -> bool {
        self.end.is_none() && matches!(self.state, State::InTransaction | State::Flushing)
    }

    /// The application ends the producer: no call begins any more. A commit or an abort that was sent continues.
    pub(crate) fn end(&mut self, reason: ProduceErrorKind) {
        let kind = TransactionErrorKind::Ended(Box::new(reason));
        let transactional_id = self.id.clone();
        let error =
            TransactionError { transactional_id, kind, then: Recovery::Close, outcome_unknown: false };
        self.end = Some(Arc::new(error));
    }

    /// Refuses a call after [`end`](Self::end). A repeated commit returns the outcome of the one that was sent.
    fn require_open(&self, call: &'static str) -> Result<(), TransactionError> {
        if self.end.is_some() && !self.is_committing() { Err(self.refuse(call)) } else { Ok(()) }
    }

    pub(crate) fn view(&self) -> MachineView {
        let producer = self.producer.filter(|_| !self.needs_epoch());
        MachineView { sends: self.sends(), producer, protocol: self.protocol, serial: self.serial }
    }

    /// The producer id and epoch that requests carry.
    pub(crate) fn producer(&self) -> ProducerId {
        self.producer.unwrap_or(ProducerId { id: -1, epoch: -1 })
    }

    /// Returns `true` if InitProducerId must precede all other requests.
    pub(crate) fn needs_epoch(&self) -> bool {
        self.stale || self.forgotten || self.producer.is_none()
    }

    /// The producer id and epoch to send in InitProducerId; `None` before the first one.
    ///
    /// The coordinator refuses an epoch that is not the latest, so a zombie cannot fence its successor (KIP-360). An id
    /// that the coordinator does not know is sent, too: it may have forgotten the id, which it replaces, or the id was
    /// replaced for a successor.
    pub(crate) fn epoch_of(&self) -> Option<ProducerId> {
        self.producer
    }

    /// Handles `init_transactions`.
    pub(crate) fn begin_init(&mut self) -> Result<(), TransactionError> {
        self.require_open("init_transactions")?;
        match self.state {
            State::Uninitialized | State::Undecided(_) => Ok(()),
            _ => Err(self.refuse("init_transactions")),
        }
    }

    /// The coordinator assigned an epoch.
    pub(crate) fn initialized(&mut self, producer: ProducerId, protocol: TransactionProtocol) {
        (self.producer, self.protocol) = (Some(producer), protocol);
        (self.stale, self.forgotten, self.unanswered) = (false, false, 0);
        if matches!(self.state, State::Uninitialized | State::Undecided(_)) {
            self.close();
        }
    }

    /// Handles `begin_transaction`.
    pub(crate) fn begin(&mut self) -> Result<(), TransactionError> {
        if self.end.is_some() || !matches!(self.state, State::Ready) {
            return Err(self.refuse("begin_transaction"));
        }
        self.state = State::InTransaction;
        self.serial += 1;
        Ok(())
    }

    /// Handles `send_offsets_to_transaction`.
    pub(crate) fn begin_offsets(&mut self) -> Result<(), TransactionError> {
        if self.end.is_some() || !matches!(self.state, State::InTransaction) {
            return Err(self.refuse("send_offsets_to_transaction"));
        }
        Ok(())
    }

    /// Applies the cluster's protocol. A transaction that no coordinator can know yet changes to it, with a new
    /// epoch.
    pub(crate) fn follow(&mut self, protocol: TransactionProtocol) {
        if protocol != self.protocol && matches!(self.state, State::InTransaction) && !self.touched {
            self.stale = true;
        }
    }

    /// Called before the coordinator is informed of the transaction.
    pub(crate) fn touch(&mut self) {
        self.touched = true;
    }

    /// Called before a batch of the transaction is sent.
    pub(crate) fn touch_with_batch(&mut self) {
        (self.touched, self.has_batches) = (true, true);
    }

    /// Called when the coordinator knows the transaction.
    pub(crate) fn added(&mut self) {
        self.added = true;
    }

    /// Handles `commit_transaction`: records are no longer accepted.
    pub(crate) fn begin_commit(&mut self) -> Result<(), TransactionError> {
        self.require_open("commit_transaction")?;
        match self.state {
            State::InTransaction | State::Flushing => {
                self.state = State::Flushing;
                Ok(())
            }
            State::Committing => Ok(()),
            _ => Err(self.refuse("commit_transaction")),
        }
    }

    /// Called when all records are settled. Returns `true` if the coordinator must be informed of the commit. An
    /// empty transaction commits without a request.
    pub(crate) fn flushed(&mut self) -> Result<bool, TransactionError> {
        self.require_open("commit_transaction")?;
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

    /// Handles `abort_transaction`: unsent batches are no longer sent.
    pub(crate) fn begin_abort(&mut self) -> Result<(), TransactionError> {
        self.require_open("abort_transaction")?;
        match self.state {
            State::InTransaction | State::Flushing | State::Abortable(_) | State::Aborting => {
                self.state = State::Aborting;
                Ok(())
            }
            // The call was repeated: the transaction is aborted, and the epoch is not raised yet.
            State::Ready if self.owes_epoch && self.needs_epoch() => {
                self.state = State::Aborting;
                Ok(())
            }
            _ => Err(self.refuse("abort_transaction")),
        }
    }

    /// Called when nothing is in flight. Returns `true` if the coordinator must be informed of the abort.
    pub(crate) fn drained(&mut self) -> Result<bool, TransactionError> {
        match self.state {
            // A coordinator that has forgotten the transaction has aborted it.
            State::Aborting if !self.touched || self.forgotten => {
                self.close();
                Ok(false)
            }
            State::Aborting => Ok(true),
            _ => Err(self.refuse("abort_transaction")),
        }
    }

    /// Called before a request is sent.
    pub(crate) fn asked(&mut self) {
        self.unanswered += 1;
    }

    /// Called when its response arrives.
    pub(crate) fn answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }

    /// The action for a response in the current state.
    pub(crate) fn action_for(&mut self, call: TxnRequest, code: ErrorCode) -> ResponseAction {
        match (call, action_for(call, code, self.protocol)) {
            // The coordinator never received the transaction: there is nothing to abort.
            (TxnRequest::Abort, ResponseAction::Fatal)
                if code == ErrorCode::InvalidTxnState && !self.added =>
            {
                ResponseAction::Done
            }
            // Offsets that ran out of time never arrived, and nothing else is part of the transaction.
            (TxnRequest::Commit, ResponseAction::Fatal)
                if code == ErrorCode::InvalidTxnState && !self.added && !self.has_batches =>
            {
                ResponseAction::Done
            }
            // There is no transaction to abort. As in librdkafka, only a missing permission ends the search.
            (TxnRequest::FindCoordinator, ResponseAction::Abortable)
                if matches!(self.state, State::Uninitialized | State::Undecided(_)) =>
            {
                ResponseAction::Again
            }
            // A coordinator that has forgotten the transaction has aborted it.
            (TxnRequest::Abort, ResponseAction::Forgotten) => {
                self.forgotten = true;
                ResponseAction::Done
            }
            (_, action) => action,
        }
    }

    /// EndTxn succeeded; in the KIP-890 protocol, it returns the next epoch.
    pub(crate) fn ended(&mut self, next: Option<ProducerId>) {
        match (self.protocol, next) {
            (TransactionProtocol::V2, Some(next)) => (self.producer, self.unanswered) = (Some(next), 0),
            (TransactionProtocol::V2, None) => self.stale = true,
            // A delayed request may arrive during the next transaction; under an old epoch it has no effect.
            (TransactionProtocol::V1, _) => self.stale |= self.gap || self.unanswered > 0,
        }
        self.close();
    }

    fn close(&mut self) {
        self.owes_epoch = matches!(self.state, State::Aborting) && self.needs_epoch();
        self.state = State::Ready;
        (self.touched, self.added, self.has_batches, self.gap) = (false, false, false, false);
    }

    /// A response ends the call. Enters the state for the error and returns it; `what` contains the broker's message.
    pub(crate) fn refused(
        &mut self,
        call: TxnRequest,
        code: ErrorCode,
        what: &str,
        action: ResponseAction,
    ) -> TransactionError {
        let kind = match action {
            ResponseAction::Fenced => TransactionErrorKind::Fenced { code },
            _ => TransactionErrorKind::Coordinator { request: call.request(), what: what.to_owned(), code },
        };
        // An earlier copy of the commit may have succeeded before the producer was fenced, the coordinator was lost or
        // lost the id, or the permission was withdrawn. TRANSACTION_ABORTABLE says that it has not.
        let is_silent_on_copies = match action {
            ResponseAction::Abortable => code != ErrorCode::TransactionAbortable,
            action => action >= ResponseAction::Forgotten,
        };
        let lost = self.unanswered > 0 && (is_silent_on_copies || call == TxnRequest::FindCoordinator);
        let unknown = matches!(self.state, State::Committing) && (action == ResponseAction::Unknown || lost);
        let then = match action {
            ResponseAction::Done | ResponseAction::Again | ResponseAction::Elsewhere => Recovery::Retry,
            ResponseAction::Forgotten => {
                self.forgotten = true;
                if call == TxnRequest::InitProducerId {
                    Recovery::Close
                } else if unknown {
                    Recovery::Init
                } else {
                    Recovery::Abort
                }
            }
            ResponseAction::Abortable if unknown => Recovery::Init,
            // There is nothing to abort.
            ResponseAction::Abortable if matches!(self.state, State::Uninitialized | State::Undecided(_)) => {
                Recovery::Close
            }
            ResponseAction::Abortable => Recovery::Abort,
            ResponseAction::Unknown => Recovery::Init,
            ResponseAction::Fatal | ResponseAction::Fenced => Recovery::Close,
        };
        self.fall(kind, then, unknown)
    }

    /// A request failed, and the call ends.
    ///
    /// As in librdkafka, a failed login does not end the producer: the source of tokens or the Kerberos server may be down, or the
    /// application sets other credentials.
    pub(crate) fn impossible(&mut self, call: TxnRequest, error: Error) -> TransactionError {
        let then = if error.is_security() { Recovery::Retry } else { Recovery::Close };
        let kind = match error {
            Error::Closed => TransactionErrorKind::Closed,
            error => TransactionErrorKind::Request { request: call.request(), error: Box::new(error) },
        };
        let unknown = matches!(self.state, State::Committing) && self.unanswered > 0;
        self.fall(kind, then, unknown)
    }

    /// A record of the transaction failed.
    pub(crate) fn record_failed(&mut self, error: &Arc<ProduceError>) {
        if !self.sends() {
            return;
        }
        match error.kind {
            ProduceErrorKind::Broker {
                code: code @ (ErrorCode::ProducerFenced | ErrorCode::InvalidProducerEpoch),
                ..
            } => self.fall(TransactionErrorKind::Fenced { code }, Recovery::Close, false),
            _ => self.fall(TransactionErrorKind::Record(error.clone()), Recovery::Abort, false),
        };
    }

    /// A batch with a sequence number failed.
    pub(crate) fn sequence_broken(&mut self) {
        self.gap = true;
    }

    /// The error that ended the producer.
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

    fn fall(
        &mut self,
        kind: TransactionErrorKind,
        then: Recovery,
        outcome_unknown: bool,
    ) -> TransactionError {
        let error = TransactionError { transactional_id: self.id.clone(), kind, then, outcome_unknown };
        let state = match then {
            Recovery::Abort => State::Abortable(error.clone().into()),
            Recovery::Init => State::Undecided(error.clone().into()),
            Recovery::Close => State::Fatal(error.clone().into()),
            Recovery::Mend | Recovery::Retry => return error,
        };
        // An abort in progress stays one.
        if !(then == Recovery::Abort && matches!(self.state, State::Aborting)) {
            self.state = state;
        }
        error
    }

    /// Records the problem of an attempt, and the code of its response.
    pub(crate) fn note(&mut self, problem: String, code: Option<ErrorCode>) {
        (self.last_problem, self.last_code) = (problem, code);
    }

    /// A new call has no problem yet.
    pub(crate) fn forget_problem(&mut self) {
        self.note(String::new(), None);
    }

    /// Returns `true` after a commit was sent, until its outcome is known.
    pub(crate) fn is_committing(&self) -> bool {
        matches!(self.state, State::Committing)
    }

    /// The error of a call that exceeded its time limit. The state stays, so the call can be repeated.
    pub(crate) fn timed_out(&self, call: &'static str, waited: Duration) -> TransactionError {
        let last = match self.last_problem.as_str() {
            "" => "no answer yet".into(),
            problem => problem.into(),
        };
        TransactionError {
            transactional_id: self.id.clone(),
            kind: TransactionErrorKind::TimedOut {
                call,
                waited_ms: waited.as_millis(),
                last,
                code: self.last_code,
            },
            then: Recovery::Retry,
            outcome_unknown: matches!(self.state, State::Committing),
        }
    }

    /// The error of a call that is not allowed in the current state; after a failure or the end of the producer, that one.
    pub(crate) fn refuse(&self, call: &'static str) -> TransactionError {
        if let Some(end) = &self.end {
            return match &self.state {
                // The outcome of the transaction stays unknown, and no initialization can follow.
                State::Undecided(error) => TransactionError { then: Recovery::Close, ..(**error).clone() },
                State::Fatal(error) => (**error).clone(),
                State::Uninitialized
                | State::Ready
                | State::InTransaction
                | State::Flushing
                | State::Committing
                | State::Aborting
                | State::Abortable(_) => (**end).clone(),
            };
        }
        let (state, then) = match &self.state {
            State::Abortable(error) | State::Undecided(error) | State::Fatal(error) => {
                return (**error).clone();
            }
            State::Uninitialized => ("before init_transactions", Recovery::Mend),
            State::Ready => ("outside a transaction: begin_transaction first", Recovery::Mend),
            State::InTransaction => ("inside a transaction", Recovery::Mend),
            State::Flushing => ("while the transaction is being committed", Recovery::Mend),
            State::Committing => {
                ("after a commit was sent: commit_transaction again returns its outcome", Recovery::Mend)
            }
            State::Aborting => {
                ("while the transaction is being aborted: abort_transaction again", Recovery::Mend)
            }
        };
        let kind = TransactionErrorKind::State { call, state, name: self.state_name() };
        TransactionError { transactional_id: self.id.clone(), kind, then, outcome_unknown: false }
    }

    /// The error of a record that is not accepted.
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
