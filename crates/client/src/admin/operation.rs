//! An operation under way: where its requests go, what is asked again, and until when.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use ottla_protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic, MetadataResponse};
use ottla_protocol::{ErrorCode, Request};
use tokio::time::Instant;

use super::{Node, Timeouts};
use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::error::Error;
use crate::group::coordinator::{GROUP, find_coordinator};
use crate::net::connection::Connection;

const METADATA_VERSION_MAX: i16 = 13;
/// How many groups or brokers are asked at the same time.
const AT_ONCE: usize = 16;

/// Who answers a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target<'a> {
    Any,
    Controller,
    Node(i32),
    /// The coordinator of this group.
    Group(&'a str),
}

/// Whether a request may be sent again when its connection broke, and it may have been carried out.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Repeat {
    Yes,
    No,
}

pub(super) struct Operation {
    pub(super) cluster: Rc<Cluster>,
    name: &'static str,
    started: Instant,
    deadline: Instant,
    /// How long the broker may take for a change, where it waits for others.
    at_broker: Duration,
    /// Whether brokers that cannot be reached are tried until the deadline.
    patient: bool,
    last: RefCell<Option<Error>>,
    /// Where groups were found last.
    coordinators: RefCell<BTreeMap<String, i32>>,
}

impl Operation {
    /// One that tries until its time is over.
    pub(super) fn new(cluster: Rc<Cluster>, name: &'static str, timeouts: Timeouts) -> Self {
        let request = timeouts.request.unwrap_or(cluster.config.request_timeout);
        let started = Instant::now();
        Self {
            cluster,
            name,
            started,
            deadline: started + request,
            // So that its answer comes before nobody waits for it any more.
            at_broker: timeouts.operation.unwrap_or(request.mul_f64(0.9)),
            patient: true,
            last: RefCell::default(),
            coordinators: RefCell::default(),
        }
    }

    /// One that is over when no broker can be reached.
    pub(super) fn hasty(cluster: Rc<Cluster>, name: &'static str) -> Self {
        Self { patient: false, ..Self::new(cluster, name, Timeouts::default()) }
    }

    pub(super) fn at_broker_ms(&self) -> i32 {
        i32::try_from(self.at_broker.as_millis()).unwrap_or(i32::MAX)
    }

    /// Whether a broker that has only begun what was asked has done what was asked.
    pub(super) fn is_done(&self, code: ErrorCode) -> bool {
        code == ErrorCode::RequestTimedOut && self.at_broker.is_zero()
    }

    /// Whether there is time for another attempt; waits the backoff if so.
    pub(super) async fn may_go_on(&self) -> bool {
        let pause = self.cluster.config.retry_backoff;
        if Instant::now() + pause >= self.deadline {
            return false;
        }
        tokio::time::sleep(pause).await;
        true
    }

    /// Whether the same question may be answered otherwise later, and shall be asked till then.
    pub(super) fn passes(&self, error: &Error) -> bool {
        error.is_retriable() && (self.patient || !matches!(error, Error::Unreachable { .. }))
    }

    /// Sends a request until its answer holds nothing that passes, or time is over.
    ///
    /// `versions` begins with the lowest that can say what is asked. `again` picks an error out of an answer that is
    /// to be asked for again; the last answer comes back when there is no time for it.
    pub(super) async fn call<R: Request>(
        &self,
        target: Target<'_>,
        versions: RangeInclusive<i16>,
        repeat: Repeat,
        make: impl Fn(i16) -> R,
        again: impl Fn(&R::Response) -> Option<ErrorCode>,
    ) -> Result<R::Response, Error> {
        loop {
            let sent = Cell::new(false);
            let problem = match self.attempt(target, &versions, &sent, &make).await {
                Ok(response) => match again(&response) {
                    None => return Ok(response),
                    Some(code) => {
                        self.note(Error::Broker { what: self.name.to_owned(), code });
                        if !self.may_go_on().await {
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
            self.note(problem.clone());
            if !self.may_go_on().await {
                return Err(problem);
            }
        }
    }

    /// Sends a request to a group's coordinator, as [`call`](Self::call) does, and says who that is.
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

    /// Sends a request once.
    pub(super) async fn once<R: Request>(
        &self,
        target: Target<'_>,
        versions: RangeInclusive<i16>,
        make: impl Fn(i16) -> R,
    ) -> Result<R::Response, Error> {
        let answered = self.attempt(target, &versions, &Cell::new(false), make).await;
        if let Err(problem) = &answered {
            self.note(problem.clone());
        }
        answered
    }

    /// Sends a request once, and notes whether it came that far.
    async fn attempt<R: Request>(
        &self,
        target: Target<'_>,
        versions: &RangeInclusive<i16>,
        sent: &Cell<bool>,
        make: impl Fn(i16) -> R,
    ) -> Result<R::Response, Error> {
        let attempt = async {
            let connection = self.connect(target).await?;
            at_least::<R>(&connection, versions)?;
            sent.set(true);
            connection.call(*versions.end(), self.patience(), make).await
        };
        tokio::time::timeout_at(self.until(), attempt).await.unwrap_or_else(|_| Err(self.timed_out()))
    }

    /// Metadata of these topics, or of all, with the operations we are authorized to, if that is asked for.
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

    /// Every broker by number, as of now.
    pub(super) async fn nodes(&self) -> Result<Vec<i32>, Error> {
        let metadata = self.metadata(Some(&[]), false).await?;
        let mut nodes: Vec<i32> = metadata.brokers.iter().map(|broker| broker.node_id).collect();
        nodes.sort_unstable();
        Ok(nodes)
    }

    /// The error for an operation whose time is over.
    pub(super) fn timed_out(&self) -> Error {
        let waited_ms = self.started.elapsed().as_millis();
        match self.last.borrow().as_ref() {
            Some(Error::Unreachable { brokers, reason, .. }) => {
                Error::Unreachable { brokers: brokers.clone(), waited_ms, reason: reason.clone() }
            }
            Some(last) => Error::TimedOut { what: format!("{} ({last})", self.name), waited_ms },
            None => Error::TimedOut { what: self.name.to_owned(), waited_ms },
        }
    }

    fn note(&self, problem: Error) {
        *self.last.borrow_mut() = Some(problem);
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// How long an answer is waited for before the connection is given up with everything else that waits on it: our
    /// haste is no reason for that.
    fn patience(&self) -> Duration {
        let usual = self.cluster.config.request_timeout;
        if self.is_brief() { usual } else { self.left().min(usual) }
    }

    fn is_brief(&self) -> bool {
        self.left() * 2 < self.cluster.config.request_timeout
    }

    /// A slow answer is the connection's affair, unless there is little time.
    fn until(&self) -> Instant {
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
                    // Since KRaft any broker forwards what is for the controller.
                    None => brokers.any().await,
                }
            }
            Target::Group(group) => {
                let node = find_coordinator(&self.cluster, GROUP, group).await?;
                self.coordinators.borrow_mut().insert(group.to_owned(), node);
                brokers.connection(node, Lane::Control).await
            }
        }
    }

    /// Learns brokers and controller anew.
    async fn refresh(&self) -> Result<Option<i32>, Error> {
        let response = self.cluster.describe(Some(&[])).await?;
        let controller = (response.controller_id >= 0).then_some(response.controller_id);
        self.cluster.merge(response);
        Ok(controller)
    }
}

/// Asks for each of many things, a few at the same time; answers in the order of the questions.
pub(super) async fn each<K, T, F: Future<Output = T>>(things: &[K], ask: impl Fn(&K) -> F) -> Vec<T> {
    // Collected first: a stream that borrows its closure would not live in a task.
    let asking: Vec<F> = things.iter().map(ask).collect();
    stream::iter(asking).buffered(AT_ONCE).collect().await
}

/// The code that tells that another broker is the coordinator, or this one not ready.
pub(super) fn wrong_coordinator(codes: impl IntoIterator<Item = ErrorCode>) -> Option<ErrorCode> {
    codes.into_iter().find(|code| {
        matches!(
            code,
            ErrorCode::NotCoordinator
                | ErrorCode::CoordinatorNotAvailable
                | ErrorCode::CoordinatorLoadInProgress
                | ErrorCode::UnstableOffsetCommit
        )
    })
}

/// The code that tells that another broker is the controller.
pub(super) fn wrong_controller(codes: impl IntoIterator<Item = ErrorCode>) -> Option<ErrorCode> {
    codes.into_iter().find(|code| *code == ErrorCode::NotController)
}

/// Whether the broker knows a version that can say what is asked.
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
