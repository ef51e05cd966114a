//! Requests to the coordinators, each repeated until its answer means something.

use std::rc::Rc;
use std::time::Duration;

use ottla_protocol::{ErrorCode, Request};

use super::error::TransactionError;
use super::machine::Machine;
use super::verdict::{Call, Verdict};
use super::{Transactions, lock};
use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::error::Error;
use crate::group::coordinator::{GROUP, TRANSACTION, find_coordinator};
use crate::net::connection::Connection;

/// The transaction before is still being ended, which takes milliseconds.
const CONCURRENT_PAUSE: Duration = Duration::from_millis(20);

/// What is coordinated: the kind and the name.
pub(super) type Coordinates = (i8, String);

/// The transaction `id`.
pub(super) fn of_transaction(id: &str) -> Coordinates {
    (TRANSACTION, id.to_owned())
}

/// The group `id`.
pub(super) fn of_group(id: &str) -> Coordinates {
    (GROUP, id.to_owned())
}

/// Talks to coordinators.
#[derive(Clone, Copy)]
pub(super) struct Calls<'a> {
    pub(super) cluster: &'a Rc<Cluster>,
    pub(super) transactions: &'a Transactions,
    /// Whether to go on: asked before each repetition.
    pub(super) goes_on: fn(&Machine) -> bool,
}

impl Calls<'_> {
    /// Sends a request to who coordinates `whose` until the answer is final; without an end of its own, because every
    /// call of the application has its deadline.
    pub(super) async fn call<R: Request>(
        &self,
        call: Call,
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
                        .map(|code| (self.transactions.update(|machine| machine.judge(call, code)), code))
                        .max_by_key(|(verdict, _)| *verdict);
                    match worst {
                        None | Some((Verdict::Done, _)) => return Ok(answer),
                        Some((Verdict::Again, ErrorCode::ConcurrentTransactions)) => {
                            pause = CONCURRENT_PAUSE;
                            self.note(call, &ErrorCode::ConcurrentTransactions);
                        }
                        Some((Verdict::Again, code)) => self.note(call, &code),
                        Some((Verdict::Elsewhere, code)) => {
                            lock(&self.transactions.nodes).remove(whose);
                            self.note(call, &code);
                        }
                        Some((verdict, code)) => {
                            return Err(self
                                .transactions
                                .update(|machine| machine.refused(call, code, "", verdict)));
                        }
                    }
                }
                Err(Failed::Find { code, what }) => {
                    let find = Call::FindCoordinator;
                    match self.transactions.update(|machine| machine.judge(find, code)) {
                        Verdict::Done | Verdict::Again | Verdict::Elsewhere => self.note(find, &code),
                        verdict => {
                            return Err(self
                                .transactions
                                .update(|machine| machine.refused(find, code, &what, verdict)));
                        }
                    }
                }
                Err(Failed::Request(error)) => {
                    lock(&self.transactions.nodes).remove(whose);
                    if !error.is_retriable() {
                        return Err(self.transactions.update(|machine| machine.impossible(call, error)));
                    }
                    self.note(call, &error);
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
    ) -> Result<(R::Response, Rc<Connection>), Failed> {
        let known = lock(&self.transactions.nodes).get(whose).copied();
        let node = if let Some(node) = known {
            node
        } else {
            let find = find_coordinator(self.cluster, whose.0, &whose.1);
            let node = find.await.map_err(|error| match error {
                Error::Broker { code, what } => Failed::Find { code, what },
                error => Failed::Request(error),
            })?;
            lock(&self.transactions.nodes).insert(whose.clone(), node);
            node
        };
        // Not the lane of groups: a rebalance holds up what comes behind it.
        let connection =
            self.cluster.brokers.connection(node, Lane::Control).await.map_err(Failed::Request)?;
        self.transactions.update(Machine::asked);
        let timeout = self.cluster.config.request_timeout;
        let answer = connection.call(version_max, timeout, make).await.map_err(Failed::Request)?;
        self.transactions.update(Machine::answered);
        Ok((answer, connection))
    }

    fn backoff(&self, attempts: u32) -> Duration {
        let config = &self.cluster.config;
        config.retry_backoff.saturating_mul(1 << attempts.min(16)).min(config.retry_backoff_max)
    }

    fn note(&self, call: Call, problem: &dyn std::fmt::Display) {
        let problem = format!("{}: {problem}", call.request());
        tracing::debug!(problem, "asking again");
        self.transactions.update(|machine| machine.note(problem));
    }
}

/// Why there is no answer.
enum Failed {
    /// The coordinator is not to be had.
    Find { code: ErrorCode, what: String },
    /// The request failed.
    Request(Error),
}
