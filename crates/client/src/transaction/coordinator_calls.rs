//! Requests to the coordinators, each repeated until the response is final.

use std::rc::Rc;
use std::time::Duration;

use ottla_protocol::{ErrorCode, Request};

use super::error_table::{ResponseAction, TxnRequest};
use super::machine::Machine;
use super::{Transactions, lock};
use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::error::Error;
use crate::error::transaction::TransactionError;
use crate::group::coordinator::{GROUP, TRANSACTION, find_coordinator};
use crate::net::connection::Connection;

/// The previous transaction is still being completed, which takes milliseconds.
const CONCURRENT_PAUSE: Duration = Duration::from_millis(20);

/// The key of a coordinator: the type and the id.
pub(super) type Coordinates = (i8, String);

/// The transaction `id`.
pub(super) fn of_transaction(id: &str) -> Coordinates {
    (TRANSACTION, id.to_owned())
}

/// The group `id`.
pub(super) fn of_group(id: &str) -> Coordinates {
    (GROUP, id.to_owned())
}

/// Sends requests to coordinators.
#[derive(Clone, Copy)]
pub(crate) struct CoordinatorCalls<'a> {
    pub(crate) cluster: &'a Rc<Cluster>,
    pub(crate) transactions: &'a Transactions,
    /// The condition for another attempt.
    pub(crate) goes_on: fn(&Machine) -> bool,
}

impl CoordinatorCalls<'_> {
    /// Sends a request to the coordinator of `whose` until the response is final. It has no time limit, because every
    /// call of the application has one.
    pub(super) async fn call<R: Request>(
        &self,
        call: TxnRequest,
        whose: &Coordinates,
        version_max: i16,
        make: impl Fn(i16) -> R,
        codes: impl Fn(&R::Response) -> Vec<ErrorCode>,
    ) -> Result<(R::Response, Rc<Connection>), TransactionError> {
        let mut attempts = 0;
        loop {
            let mut pause = self.backoff(attempts);
            attempts += 1;
            match self.call_once(whose, version_max, &make).await {
                Ok(answer) => {
                    let worst = codes(&answer.0)
                        .into_iter()
                        .map(|code| {
                            (self.transactions.update(|machine| machine.action_for(call, code)), code)
                        })
                        .max_by_key(|(action, _)| *action);
                    match worst {
                        None | Some((ResponseAction::Done, _)) => return Ok(answer),
                        Some((ResponseAction::Again, ErrorCode::ConcurrentTransactions)) => {
                            pause = CONCURRENT_PAUSE;
                            self.note_code(call, ErrorCode::ConcurrentTransactions);
                        }
                        Some((ResponseAction::Again, code)) => self.note_code(call, code),
                        Some((ResponseAction::Elsewhere, code)) => {
                            lock(&self.transactions.nodes).remove(whose);
                            self.note_code(call, code);
                        }
                        Some((action, code)) => {
                            return Err(self
                                .transactions
                                .update(|machine| machine.refused(call, code, "", action)));
                        }
                    }
                }
                Err(CallFailure::Find { code, what }) => {
                    let find = TxnRequest::FindCoordinator;
                    match self.transactions.update(|machine| machine.action_for(find, code)) {
                        ResponseAction::Done | ResponseAction::Again | ResponseAction::Elsewhere => {
                            self.note_code(find, code);
                        }
                        action => {
                            return Err(self
                                .transactions
                                .update(|machine| machine.refused(find, code, &what, action)));
                        }
                    }
                }
                Err(CallFailure::Request(error)) => {
                    lock(&self.transactions.nodes).remove(whose);
                    // A wrong password shows at the first login: the call returns it. Later the broker restarts, or its certificate
                    // changes.
                    let has_id = self.transactions.update(|machine| machine.producer().id >= 0);
                    if !(error.is_retriable() || error.is_security() && has_id) {
                        return Err(self.transactions.update(|machine| machine.impossible(call, error)));
                    }
                    self.note(call, &error, None);
                }
            }
            tokio::time::sleep(pause).await;
            if !self.transactions.update(|machine| (self.goes_on)(machine)) {
                return Err(self.transactions.update(|machine| machine.refuse(call.request())));
            }
        }
    }

    async fn call_once<R: Request>(
        &self,
        whose: &Coordinates,
        version_max: i16,
        make: impl Fn(i16) -> R,
    ) -> Result<(R::Response, Rc<Connection>), CallFailure> {
        let known = lock(&self.transactions.nodes).get(whose).copied();
        let node = if let Some(node) = known {
            node
        } else {
            let find = find_coordinator(self.cluster, whose.0, &whose.1);
            let node = find.await.map_err(|error| match error {
                Error::Broker { code, what } => CallFailure::Find { code, what },
                error => CallFailure::Request(error),
            })?;
            lock(&self.transactions.nodes).insert(whose.clone(), node);
            node
        };
        // The group lane is not used, because a rebalance would delay the request.
        let connection =
            self.cluster.brokers.connection(node, Lane::Control).await.map_err(CallFailure::Request)?;
        self.transactions.update(Machine::asked);
        let timeout = self.cluster.config.socket_timeout;
        let answer = connection.call(version_max, timeout, make).await.map_err(CallFailure::Request)?;
        self.transactions.update(Machine::answered);
        Ok((answer, connection))
    }

    fn backoff(&self, attempts: u32) -> Duration {
        let config = &self.cluster.config;
        config.retry_backoff.saturating_mul(1 << attempts.min(16)).min(config.retry_backoff_max)
    }

    fn note_code(&self, call: TxnRequest, code: ErrorCode) {
        self.note(call, &code, Some(code));
    }

    fn note(&self, call: TxnRequest, problem: &dyn std::fmt::Display, code: Option<ErrorCode>) {
        let problem = format!("{}: {problem}", call.request());
        tracing::debug!(problem, "asking again");
        self.transactions.update(|machine| machine.note(problem, code));
    }
}

/// The reason why there is no response.
enum CallFailure {
    /// The coordinator could not be found.
    Find { code: ErrorCode, what: String },
    /// The request failed.
    Request(Error),
}
