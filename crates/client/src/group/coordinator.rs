//! The broker that coordinates a group: found, remembered, and found again when it moves.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ottla_protocol::messages::find_coordinator::FindCoordinatorRequest;
use ottla_protocol::{ApiKey, ErrorCode, Request};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::config::GroupProtocol;
use crate::error::Error;
use crate::log::Context;
use crate::watchdog::cause::{Cause, Trouble};

const FIND_COORDINATOR_VERSION_MAX: i16 = 6;
/// What a coordinator is asked for by its key: a group ...
pub(crate) const GROUP: i8 = 0;
/// ... or the transactions of a `transactional.id`.
pub(crate) const TRANSACTION: i8 = 1;

/// Asks which node coordinates `key`.
pub(crate) async fn find_coordinator(cluster: &Cluster, key_type: i8, key: &str) -> Result<i32, Error> {
    let request = |version: i16| {
        let mut request = FindCoordinatorRequest { key_type, ..Default::default() };
        if version >= 4 {
            request.coordinator_keys = vec![key.to_owned()];
        } else {
            key.clone_into(&mut request.key);
        }
        request
    };
    let response = cluster.call_any(FIND_COORDINATOR_VERSION_MAX, request).await?;
    // The batched form names its answers, the single form does not.
    let (code, text, node, host, port) = match response.coordinators.first() {
        Some(found) => (found.error_code, &found.error_message, found.node_id, &found.host, found.port),
        None => {
            (response.error_code, &response.error_message, response.node_id, &response.host, response.port)
        }
    };
    if code != ErrorCode::None {
        let kind = if key_type == GROUP { "group" } else { "transactional.id" };
        let detail = text.as_ref().filter(|text| !text.is_empty()).map(|text| format!(" ({text})"));
        let what = format!("coordinator of {kind} `{key}`{}", detail.unwrap_or_default());
        return Err(Error::Broker { what, code });
    }
    cluster.brokers.learn(node, host, port as u16);
    Ok(node)
}

/// What the coordinator knows this consumer as.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) member_id: String,
    /// The generation, or the member's epoch in KIP-848's protocol, while it is in one.
    pub(crate) epoch: Option<i32>,
    /// The name of a static member.
    pub(crate) instance_id: Option<String>,
}

/// A request to the coordinator, as far as it has got.
#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Finding(Instant),
    Connecting(i32),
    Asked { node: i32, api: ApiKey, since: Instant },
}

impl Call {
    /// Whether it is answered when other members have done their part.
    pub(super) const fn waits_for_members(&self) -> bool {
        matches!(self, Self::Asked { api, .. } if waits_for_members(*api))
    }
}

/// Notes how far a request has got, until it is dropped.
struct Noted<'a>(&'a Coordinator, u64);

impl Noted<'_> {
    fn at(&self, call: Call) {
        self.0.calls.borrow_mut().insert(self.1, call);
    }
}

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.0.calls.borrow_mut().remove(&self.1);
    }
}

/// A group's coordinator, and who this consumer is to it.
pub(crate) struct Coordinator {
    cluster: Rc<Cluster>,
    group: String,
    node: Cell<Option<i32>>,
    finding: tokio::sync::Mutex<()>,
    /// What is asked for at this moment.
    calls: RefCell<BTreeMap<u64, Call>>,
    next_call: Cell<u64>,
    /// What went wrong last, since when nothing goes well, and how many requests in a row were not answered.
    trouble: RefCell<Option<(Instant, Trouble)>>,
    unanswered: Cell<u32>,
    identity: RefCell<Identity>,
    is_member: Cell<bool>,
}

impl Coordinator {
    pub(crate) fn new(cluster: Rc<Cluster>, group: String) -> Self {
        let instance_id = cluster.config.group_instance_id.clone();
        Self {
            cluster,
            group,
            node: Cell::new(None),
            finding: tokio::sync::Mutex::default(),
            calls: RefCell::default(),
            next_call: Cell::new(0),
            trouble: RefCell::default(),
            unanswered: Cell::new(0),
            identity: RefCell::new(Identity { instance_id, ..Identity::default() }),
            is_member: Cell::new(false),
        }
    }

    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.cluster.config.request_timeout
    }

    /// As of now: whoever awaits something asks again.
    pub(crate) fn identity(&self) -> Identity {
        self.identity.borrow().clone()
    }

    /// This consumer is to be a member, or no longer: then it is nobody to the group.
    pub(crate) fn set_member(&self, is_member: bool) {
        self.is_member.set(is_member);
        self.went_well();
        self.leaves(true);
    }

    pub(crate) fn is_known_as(&self, member_id: &str) {
        member_id.clone_into(&mut self.identity.borrow_mut().member_id);
    }

    /// The member is in this generation or epoch.
    pub(crate) fn enters(&self, epoch: i32) {
        self.identity.borrow_mut().epoch = Some(epoch);
    }

    /// The member is in no generation any more, and maybe not known at all.
    pub(crate) fn leaves(&self, is_unknown: bool) {
        let mut identity = self.identity.borrow_mut();
        identity.epoch = None;
        if is_unknown {
            identity.member_id.clear();
        }
    }

    /// As whom to commit: generation or epoch, and member id; `None` outside any membership.
    ///
    /// # Errors
    /// A member that is in no generation has nothing that it could commit.
    pub(crate) fn member(&self) -> Result<Option<(i32, String)>, Error> {
        if !self.is_member.get() {
            return Ok(None);
        }
        let identity = self.identity.borrow();
        let epoch = identity.epoch.ok_or_else(|| Error::Broker {
            what: format!("commit to group `{}`: this member is in no generation of it", self.group),
            code: ErrorCode::IllegalGeneration,
        })?;
        Ok(Some((epoch, identity.member_id.clone())))
    }

    /// As whom to read offsets in KIP-848's protocol, whose coordinator refuses who is not up to date.
    pub(crate) fn fenced_member(&self) -> Option<(i32, String)> {
        let fences = self.cluster.config.group_protocol == GroupProtocol::Consumer;
        self.member().ok().flatten().filter(|_| fences)
    }

    /// The coordinator's node, asked for if it is not known.
    pub(crate) async fn find(&self) -> Result<i32, Error> {
        let _one_asks = self.finding.lock().await;
        if let Some(node) = self.node.get() {
            return Ok(node);
        }
        let node = find_coordinator(&self.cluster, GROUP, &self.group).await?;
        self.node.set(Some(node));
        self.debug(|| format!("coordinated by node {node}"));
        Ok(node)
    }

    /// What a refusal is about. Of a name that was taken it says what to do: only one member at a time can have it.
    pub(super) fn refused(&self, what: &str, code: ErrorCode) -> Error {
        let group = &self.group;
        let what = match (code, &self.identity.borrow().instance_id) {
            (ErrorCode::FencedInstanceId, Some(name)) => format!(
                "{what} of group `{group}`: another member took the name group.instance.id=`{name}`, and this one is out of the group for good: give each member a name of its own, or close this one before the other starts"
            ),
            (ErrorCode::UnreleasedInstanceId, Some(name)) => format!(
                "{what} of group `{group}`: another member still has the name group.instance.id=`{name}`: give each member a name of its own, or wait until the other's session runs out"
            ),
            _ => format!("{what} of group `{group}`"),
        };
        Error::Broker { what, code }
    }

    /// A line for the debug context `cgrp`.
    pub(super) fn debug(&self, text: impl FnOnce() -> String) {
        self.cluster
            .observer
            .log
            .debug(Context::Cgrp, "CGRP", || format!("group {}: {}", self.group, text()));
    }

    /// What is asked for at this moment; what waits for other members comes last.
    pub(super) fn calls(&self) -> Vec<Call> {
        let mut calls: Vec<Call> = self.calls.borrow().values().copied().collect();
        calls.sort_by_key(Call::waits_for_members);
        calls
    }

    /// Why the coordinator does not serve this consumer, and since when.
    pub(super) fn trouble(&self) -> Option<(Instant, Trouble)> {
        self.trouble.borrow().clone()
    }

    /// The coordinator has answered with an error, or has not.
    pub(super) fn went_wrong(&self, trouble: Trouble) {
        self.debug(|| trouble.text.clone());
        let mut known = self.trouble.borrow_mut();
        let since = known.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        *known = Some((since, trouble));
    }

    /// It has answered, and serves.
    pub(super) fn went_well(&self) {
        *self.trouble.borrow_mut() = None;
    }

    /// Forgets where it is: the next call asks again.
    pub(crate) fn forget(&self) {
        self.node.set(None);
    }

    /// Sends a request to the coordinator once. A transport problem or a word of its moving makes it forgotten.
    pub(crate) async fn call_once<R: Request>(
        &self,
        version_max: i16,
        timeout: Duration,
        make: impl Fn(i16) -> R,
    ) -> Result<R::Response, Error> {
        self.call_on(Lane::Group, version_max, timeout, make).await
    }

    /// [`Self::call_once`] on a connection of its own for what the coordinator may take long to answer: a broker answers
    /// the requests of one connection in order, and commits and heartbeats must not wait behind it.
    pub(crate) async fn call_on<R: Request>(
        &self,
        lane: Lane,
        version_max: i16,
        timeout: Duration,
        make: impl Fn(i16) -> R,
    ) -> Result<R::Response, Error> {
        let noted = Noted(self, self.next_call.replace(self.next_call.get() + 1));
        let began = Instant::now();
        let result = async {
            noted.at(Call::Finding(began));
            let node = self.find().await?;
            noted.at(Call::Connecting(node));
            let connection = self.cluster.brokers.connection(node, lane).await?;
            noted.at(Call::Asked { node, api: R::KEY, since: Instant::now() });
            let answering = connection.call(version_max, timeout, make);
            let Some(patience) = self.cluster.config.patience(self.unanswered.get()) else {
                return answering.await;
            };
            tokio::pin!(answering);
            loop {
                match tokio::time::timeout(patience, &mut answering).await {
                    Ok(result) => return result,
                    Err(_) if waits_for_members(R::KEY) && !self.has_moved(node, patience).await => {}
                    Err(_) => return Err(connection.give_up(R::KEY.name(), patience)),
                }
            }
        }
        .await;
        if let Err(error) = &result {
            self.forget();
            let trouble = Trouble::of(error);
            let unanswered = trouble.cause == Cause::NoAnswer;
            self.unanswered.set(self.unanswered.get() + u32::from(unanswered));
            self.went_wrong(trouble);
        } else if self.cluster.config.patience(0).is_none_or(|patience| began.elapsed() < patience) {
            // One that takes long is slow, and would be given up again.
            self.unanswered.set(0);
        }
        result
    }

    /// Whether another node coordinates the group by now; what nobody says is not so.
    async fn has_moved(&self, from: i32, patience: Duration) -> bool {
        let asking = find_coordinator(&self.cluster, GROUP, &self.group);
        matches!(tokio::time::timeout(patience, asking).await, Ok(Ok(node)) if node != from)
    }

    /// Sends a request until it is answered without an error that passes, for `request.timeout.ms` at most.
    pub(crate) async fn call<R: Request>(
        &self,
        what: &str,
        version_max: i16,
        make: impl Fn(i16) -> R,
        error_of: impl Fn(&R::Response) -> Option<ErrorCode>,
    ) -> Result<R::Response, Error> {
        let timeout = self.cluster.config.request_timeout;
        let deadline = Instant::now() + timeout;
        loop {
            let problem = match self.call_once(version_max, timeout, &make).await {
                Ok(response) => match error_of(&response) {
                    None => {
                        self.went_well();
                        return Ok(response);
                    }
                    Some(code) => {
                        if matches!(code, ErrorCode::NotCoordinator | ErrorCode::CoordinatorNotAvailable) {
                            self.forget();
                        }
                        let error = self.refused(what, code);
                        self.went_wrong(Trouble::of(&error));
                        error
                    }
                },
                Err(error) => error,
            };
            let pause = self.cluster.config.retry_backoff;
            if !problem.is_retriable() || Instant::now() + pause >= deadline {
                return Err(problem);
            }
            tracing::debug!(%problem, what, "asking the coordinator again");
            tokio::time::sleep(pause).await;
        }
    }
}

/// Requests that are answered when other members have done their part.
const fn waits_for_members(api: ApiKey) -> bool {
    matches!(api, ApiKey::JoinGroup | ApiKey::SyncGroup)
}
