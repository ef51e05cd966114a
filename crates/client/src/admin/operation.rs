//! An operation in progress: the brokers that it calls, its retries and its deadline.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use ottla_protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use ottla_protocol::{ApiKey, ErrorCode, Message, Request};
use tokio::time::Instant;

use super::{Node, Timeouts};
use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::config::NEVER;
use crate::error::Error;
use crate::group::coordinator::{GROUP, TRANSACTION, find_coordinator, is_wrong_coordinator};
use crate::net::connection::Connection;
use crate::timer::wire_ms;

const METADATA_VERSION_MAX: i16 = 13;
/// The time for a response to arrive after the time that its request grants the broker.
const RESPONSE_MARGIN: Duration = Duration::from_secs(1);

/// The broker that a request is sent to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    Any,
    Controller,
    Node(i32),
    /// The coordinator of this group.
    Group(&'a str),
    /// The coordinator of this transactional id. Its node id is stored.
    Transaction(&'a str, &'a Cell<i32>),
}

/// The permission to send a request again if its connection broke after the broker may have executed it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Repeat {
    Yes,
    No,
}

/// The failed attempts of one call. The calls of an operation run beside each other, so each has its own backoff and its own error.
#[derive(Clone, Debug, Default)]
pub(super) struct Attempts {
    failures: Cell<u32>,
    last: RefCell<Option<Error>>,
}

impl Attempts {
    fn note(&self, problem: Error) {
        *self.last.borrow_mut() = Some(problem);
    }
}

pub(super) struct Operation {
    pub(super) cluster: Rc<Cluster>,
    name: &'static str,
    started: Instant,
    deadline: Instant,
    /// The time limit for a change that waits for other brokers.
    at_broker: Duration,
    /// `true` if unreachable brokers are retried until the deadline.
    patient: bool,
    /// The last known coordinator of each group.
    coordinators: RefCell<BTreeMap<String, i32>>,
}

impl Operation {
    /// Creates an operation that retries until its deadline.
    pub(super) fn new(cluster: Rc<Cluster>, name: &'static str, timeouts: Timeouts) -> Self {
        let request = timeouts.request.unwrap_or(cluster.config.socket_timeout).min(NEVER);
        let started = Instant::now();
        Self {
            cluster,
            name,
            started,
            deadline: started + request,
            // Shorter than the request timeout, so that the response arrives before it.
            at_broker: timeouts.operation.unwrap_or(request.mul_f64(0.9)),
            patient: true,
            coordinators: RefCell::default(),
        }
    }

    /// Creates an operation that ends when no broker can be reached.
    pub(super) fn hasty(cluster: Rc<Cluster>, name: &'static str) -> Self {
        Self { patient: false, ..Self::new(cluster, name, Timeouts::default()) }
    }

    pub(super) fn at_broker_ms(&self) -> i32 {
        wire_ms(self.at_broker)
    }

    /// Returns `true` if `code` means success: without a wait for the change, the broker reports that it has only
    /// started it.
    pub(super) fn is_done(&self, code: ErrorCode) -> bool {
        code == ErrorCode::RequestTimedOut && self.at_broker.is_zero()
    }

    /// Returns `false` if no time is left for another attempt; otherwise waits for the backoff.
    pub(super) async fn may_go_on(&self, attempts: &Attempts) -> bool {
        let failures = attempts.failures.get();
        attempts.failures.set(failures.saturating_add(1));
        let pause = self.cluster.backoff(failures);
        if Instant::now() + pause >= self.deadline {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }

    /// Returns `true` if the error may pass and the request is worth retrying.
    pub(super) fn passes(&self, error: &Error) -> bool {
        error.is_retriable() && (self.patient || !matches!(error, Error::Unreachable { .. }))
    }

    /// Sends a request until its response has no retriable error, or until the deadline.
    ///
    /// `versions` starts with the lowest version that can express the request. `again` extracts a retriable error
    /// from a response; without time for a retry, the last response is returned.
    pub(super) async fn call<R: Request>(
        &self,
        target: Target<'_>,
        versions: RangeInclusive<i16>,
        repeat: Repeat,
        make: impl Fn(i16) -> R,
        again: impl Fn(&R::Response) -> Option<ErrorCode>,
    ) -> Result<R::Response, Error> {
        let attempts = Attempts::default();
        loop {
            let sent = Cell::new(false);
            let problem = match self.attempt(target, &versions, repeat, &attempts, &sent, &make).await {
                Ok(response) => match again(&response) {
                    None => return Ok(response),
                    Some(code) => {
                        attempts.note(Error::Broker { what: self.name.to_owned(), code });
                        if !self.may_go_on(&attempts).await {
                            return Ok(response);
                        }
                        continue;
                    }
                },
                Err(error) => error,
            };
            let lost = sent.get() && repeat == Repeat::No;
            if lost || !self.passes(&problem) {
                return Err(problem);
            }
            attempts.note(problem.clone());
            if !self.may_go_on(&attempts).await {
                return Err(problem);
            }
        }
    }

    /// Sends a change of topics to the controller, as [`call`](Self::call) does. Returns the results by name.
    ///
    /// A broker refuses the topics for which the client's quota of changes has no room (KIP-599). As in Java's client, they are sent
    /// again after the pause that the response asks for. Without time for that, the broker's error is their result.
    pub(super) async fn change_topics<R: Request, V>(
        &self,
        names: impl Iterator<Item = String>,
        version_max: i16,
        make: impl Fn(&BTreeSet<String>, i16) -> R,
        again: impl Fn(&R::Response) -> Option<ErrorCode>,
        results: impl Fn(R::Response) -> Vec<(String, Result<V, Error>)>,
    ) -> Result<BTreeMap<String, Result<V, Error>>, Error> {
        let mut left: BTreeSet<String> = names.collect();
        let mut answers = BTreeMap::new();
        loop {
            let make_left = |version: i16| make(&left, version);
            // Boxed: futures within futures have a limit of depth.
            let call =
                Box::pin(self.call(Target::Controller, 0..=version_max, Repeat::No, make_left, &again));
            let answered = call.await;
            let response = match answered {
                Ok(response) => response,
                Err(error) if answers.is_empty() => return Err(error),
                // The others have their results.
                Err(error) => {
                    answers.extend(left.into_iter().map(|name| (name, Err(error.clone()))));
                    return Ok(answers);
                }
            };
            let throttle =
                Duration::from_millis(u64::try_from(response.throttle_time_ms()).unwrap_or_default());
            let pause = throttle.max(self.cluster.config.retry_backoff);
            let asked = std::mem::take(&mut left);
            for (name, result) in results(response) {
                let code = result.as_ref().err().and_then(Error::broker_code);
                if code == Some(ErrorCode::ThrottlingQuotaExceeded) && asked.contains(&name) {
                    left.insert(name.clone());
                }
                answers.insert(name, result);
            }
            if left.is_empty() || Instant::now() + pause >= self.deadline {
                return Ok(answers);
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends a request to a group's coordinator, as [`call`](Self::call) does, and returns the coordinator.
    pub(super) async fn call_coordinator<R: Request>(
        &self,
        group: &str,
        versions: RangeInclusive<i16>,
        make: impl Fn(i16) -> R,
        again: impl Fn(&R::Response) -> Option<ErrorCode>,
    ) -> Result<(Node, R::Response), Error> {
        let response = self.call(Target::Group(group), versions, Repeat::Yes, make, again).await?;
        let id = self.coordinators.borrow().get(group).copied().unwrap_or(-1);
        let (host, port) = self.cluster.brokers.address(id).unwrap_or_default();
        Ok((Node { id, host, port, rack: None }, response))
    }

    /// Sends a request once: the next of these attempts.
    pub(super) async fn once<R: Request>(
        &self,
        target: Target<'_>,
        versions: RangeInclusive<i16>,
        attempts: &Attempts,
        make: impl Fn(i16) -> R,
    ) -> Result<R::Response, Error> {
        let sent = Cell::new(false);
        let answered = self.attempt(target, &versions, Repeat::No, attempts, &sent, make).await;
        if let Err(problem) = &answered {
            attempts.note(problem.clone());
        }
        answered
    }

    /// Sends a request once, and records whether it was sent.
    async fn attempt<R: Request>(
        &self,
        target: Target<'_>,
        versions: &RangeInclusive<i16>,
        repeat: Repeat,
        attempts: &Attempts,
        sent: &Cell<bool>,
        make: impl Fn(i16) -> R,
    ) -> Result<R::Response, Error> {
        let connected = tokio::time::timeout_at(self.deadline, self.connect(target)).await;
        let connection = connected.unwrap_or_else(|_| Err(self.timed_out(attempts)))?;
        at_least::<R>(&connection, versions)?;
        sent.set(true);
        let can_move = matches!(target, Target::Any) && repeat == Repeat::Yes;
        let patience = if can_move { self.patience_before_others(&connection) } else { None };
        // Boxed: futures within futures have a limit of depth.
        let call = Box::pin(connection.call_within(*versions.end(), self.patience(R::KEY), patience, make));
        let answered = tokio::time::timeout_at(self.response_deadline(), call).await;
        if matches!(answered, Ok(Err(Error::TimedOut { .. }))) {
            self.cluster.brokers.note_silence(connection.address());
        }
        answered.unwrap_or_else(|_| Err(self.timed_out(attempts)))
    }

    /// Requests the metadata of these topics, or of all, with the authorized operations if requested.
    pub(super) async fn metadata(
        &self,
        topics: Option<&[&str]>,
        authorized: bool,
    ) -> Result<MetadataResponse, Error> {
        let make = |version: i16| {
            let topic =
                |name: &&str| MetadataRequestTopic { name: Some((*name).to_owned()), ..Default::default() };
            MetadataRequest {
                topics: match topics {
                    // In version 0 an empty list means all; from 1 on, null does.
                    None if version == 0 => Some(Vec::new()),
                    None => None,
                    Some(names) => Some(names.iter().map(topic).collect()),
                },
                allow_auto_topic_creation: false,
                include_topic_authorized_operations: authorized,
                ..Default::default()
            }
        };
        let versions = if authorized { 8 } else { 0 }..=METADATA_VERSION_MAX;
        let response = self.call(Target::Any, versions, Repeat::Yes, make, |_| None).await?;
        self.cluster.merge(response.clone());
        Ok(response)
    }

    /// The ids of all brokers, from fresh metadata.
    pub(super) async fn nodes(&self) -> Result<Vec<i32>, Error> {
        let metadata = self.metadata(Some(&[]), false).await?;
        let mut nodes: Vec<i32> = metadata.brokers.iter().map(|broker| broker.node_id).collect();
        nodes.sort_unstable();
        Ok(nodes)
    }

    /// Asks every broker. Returns the listings of those that respond, and the errors of the others by node id.
    pub(super) async fn list_at_all<T, F: Future<Output = Result<Vec<T>, Error>>>(
        &self,
        list_at: impl Fn(i32) -> F,
    ) -> Result<(Vec<T>, Vec<(i32, Error)>), Error> {
        let nodes = self.nodes().await?;
        let answers = each(&nodes, |node| list_at(*node)).await;
        let (mut listed, mut errors) = (Vec::new(), Vec::new());
        for (node, answer) in nodes.into_iter().zip(answers) {
            match answer {
                Ok(found) => listed.extend(found),
                Err(error) => errors.push((node, error)),
            }
        }
        Ok((listed, errors))
    }

    /// The error for a call that exceeded the operation's deadline.
    pub(super) fn timed_out(&self, attempts: &Attempts) -> Error {
        let waited_ms = self.started.elapsed().as_millis();
        match attempts.last.borrow().as_ref() {
            Some(Error::Unreachable { brokers, reason, .. }) => {
                Error::Unreachable { brokers: brokers.clone(), waited_ms, reason: reason.clone() }
            }
            Some(last) => Error::TimedOut { what: format!("{} ({last})", self.name), waited_ms },
            None => Error::TimedOut { what: self.name.to_owned(), waited_ms },
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// The time limit for a response, after which the connection is closed and its other requests fail. A short
    /// deadline of this operation alone is no reason to close it, and a broker has the time that the request grants it.
    fn patience(&self, api: ApiKey) -> Duration {
        let usual = self.cluster.config.socket_timeout;
        if self.is_brief() {
            return usual;
        }
        let granted =
            if has_timeout(api) { self.at_broker.saturating_add(RESPONSE_MARGIN) } else { Duration::ZERO };
        self.left().min(usual.max(granted))
    }

    /// The time after which another broker is asked, if there is one: half of the rest. `None` without a watchdog, or if little time
    /// remains.
    fn patience_before_others(&self, connection: &Connection) -> Option<Duration> {
        self.cluster.config.patience(0)?;
        let can_ask_others = !self.is_brief() && self.cluster.brokers.has_others(connection.address());
        can_ask_others.then(|| self.left() / 2)
    }

    fn is_brief(&self) -> bool {
        self.left() * 2 < self.cluster.config.socket_timeout
    }

    /// The deadline for a response: a slow response is left to the connection's timeout, unless little time remains.
    fn response_deadline(&self) -> Instant {
        if self.is_brief() { self.deadline } else { self.deadline + Duration::from_millis(100) }
    }

    async fn connect(&self, target: Target<'_>) -> Result<Rc<Connection>, Error> {
        let brokers = &self.cluster.brokers;
        match target {
            Target::Any => brokers.any().await,
            Target::Node(node) if brokers.knows(node) => brokers.connection(node, Lane::Control).await,
            Target::Node(node) => {
                Box::pin(self.refresh()).await?;
                brokers.connection(node, Lane::Control).await
            }
            Target::Controller => {
                let controller = Box::pin(self.refresh()).await?;
                match controller.filter(|node| brokers.knows(*node)) {
                    Some(node) => brokers.connection(node, Lane::Control).await,
                    // Since KRaft, any broker forwards requests to the controller.
                    None => brokers.any().await,
                }
            }
            Target::Group(group) => {
                let node = find_coordinator(&self.cluster, GROUP, group).await?;
                self.coordinators.borrow_mut().insert(group.to_owned(), node);
                brokers.connection(node, Lane::Control).await
            }
            Target::Transaction(id, coordinator) => {
                coordinator.set(find_coordinator(&self.cluster, TRANSACTION, id).await?);
                brokers.connection(coordinator.get(), Lane::Control).await
            }
        }
    }

    /// Fetches the list of brokers and the controller again.
    async fn refresh(&self) -> Result<Option<i32>, Error> {
        let response = self.cluster.describe(Some(&[])).await?;
        let controller = (response.controller_id >= 0).then_some(response.controller_id);
        self.cluster.merge(response);
        Ok(controller)
    }
}

/// Sends a request for each item, all at the same time: a few whose brokers do not answer would use up the time of the others.
/// Returns the results in the order of the items.
pub(super) async fn each<K, T, F: Future<Output = T>>(things: &[K], ask: impl Fn(&K) -> F) -> Vec<T> {
    join_all(things.iter().map(ask)).await
}

/// The code, if it means that another broker is the coordinator or that this one is not ready.
pub(super) fn wrong_coordinator(codes: impl IntoIterator<Item = ErrorCode>) -> Option<ErrorCode> {
    codes.into_iter().find(|code| is_wrong_coordinator(*code))
}

/// The code, if it means that another broker is the controller.
pub(super) fn wrong_controller(codes: impl IntoIterator<Item = ErrorCode>) -> Option<ErrorCode> {
    codes.into_iter().find(|code| *code == ErrorCode::NotController)
}

/// Returns `true` for the requests with [`Operation::at_broker_ms`]: the broker may wait that long before it responds.
fn has_timeout(api: ApiKey) -> bool {
    matches!(
        api,
        ApiKey::CreateTopics
            | ApiKey::DeleteTopics
            | ApiKey::CreatePartitions
            | ApiKey::DeleteRecords
            | ApiKey::ElectLeaders
    )
}

/// Fails if the broker does not support a version that can express the request.
fn at_least<R: Request>(connection: &Connection, versions: &RangeInclusive<i16>) -> Result<(), Error> {
    let version = connection.version_of::<R>(*versions.end())?;
    if version >= *versions.start() {
        return Ok(());
    }
    Err(Error::Unsupported {
        address: connection.address().to_owned(),
        reason: format!(
            "{}: what is asked for needs version {}, and the broker knows versions up to {version}: ask without it, or a newer broker",
            R::KEY,
            versions.start()
        ),
    })
}
