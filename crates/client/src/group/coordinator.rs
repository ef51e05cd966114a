//! The coordinator of a group: looked up, cached, and looked up again when it moves.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ottla_protocol::messages::find_coordinator::FindCoordinatorRequest;
use ottla_protocol::{ApiKey, ErrorCode, Request};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::config::GroupProtocol;
use crate::error::Error;
use crate::log::Context;
use crate::stats::Observer;
use crate::watchdog::cause::StallReason;

const FIND_COORDINATOR_VERSION_MAX: i16 = 6;
/// The key type of groups in FindCoordinator.
pub(crate) const GROUP: i8 = 0;
/// The key type of transactions in FindCoordinator.
pub(crate) const TRANSACTION: i8 = 1;

/// Returns `true` for a code that means that another broker is the coordinator or that this one is not ready.
pub(crate) fn is_wrong_coordinator(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::NotCoordinator
            | ErrorCode::CoordinatorNotAvailable
            | ErrorCode::CoordinatorLoadInProgress
            | ErrorCode::UnstableOffsetCommit
    )
}

/// Returns the node that coordinates `key`.
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
    // Responses from version 4 on have a list of coordinators.
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

/// The identity of this consumer at the coordinator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) member_id: String,
    /// The generation, or the member epoch in the KIP-848 protocol, while there is one.
    pub(crate) epoch: Option<i32>,
    /// The `group.instance.id` of a static member.
    pub(crate) instance_id: Option<String>,
}

/// The progress of a request to the coordinator.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestProgress {
    Finding(Instant),
    Connecting(i32),
    Sent { node: i32, api: ApiKey, since: Instant },
}

impl RequestProgress {
    /// Returns `true` if the response waits for other members.
    pub(crate) const fn waits_for_members(&self) -> bool {
        matches!(self, Self::Sent { api, .. } if waits_for_members(*api))
    }
}

/// Records a request's progress, and removes the record when it is dropped.
struct ProgressGuard<'a>(&'a Coordinator, u64);

impl ProgressGuard<'_> {
    fn at(&self, call: RequestProgress) {
        self.0.calls.borrow_mut().insert(self.1, call);
    }
}

impl Drop for ProgressGuard<'_> {
    fn drop(&mut self) {
        self.0.calls.borrow_mut().remove(&self.1);
    }
}

/// A JoinGroup request without a member id, which is in flight.
pub(crate) struct NamelessGuard<'a>(&'a Coordinator);

impl Drop for NamelessGuard<'_> {
    fn drop(&mut self) {
        self.0.nameless.send_modify(|count| *count -= 1);
    }
}

/// A group's coordinator, and this consumer's identity there.
pub(crate) struct Coordinator {
    cluster: Rc<Cluster>,
    group: String,
    own_id: String,
    node: Cell<Option<i32>>,
    finding: tokio::sync::Mutex<()>,
    /// The requests in progress.
    calls: RefCell<BTreeMap<u64, RequestProgress>>,
    next_call: Cell<u64>,
    /// The last error, the time since which no request has succeeded, and the number of consecutive requests without
    /// a response.
    trouble: RefCell<Option<(Instant, StallReason)>>,
    unanswered: Cell<u32>,
    /// The coordinator has answered a request.
    has_answered: Cell<bool>,
    /// The application knows the error that has lasted since the last response.
    is_reported: Cell<bool>,
    identity: RefCell<Identity>,
    is_member: Cell<bool>,
    /// The number of memberships that have begun or ended.
    memberships: Cell<u64>,
    /// A heartbeat that joins the group was sent, and has no response yet.
    has_asked_to_join: Cell<bool>,
    /// The JoinGroup requests that were sent without a member id and have no response yet.
    nameless: watch::Sender<usize>,
}

impl Coordinator {
    pub(crate) fn new(cluster: Rc<Cluster>, group: String) -> Self {
        let instance_id = cluster.config.group_instance_id.clone();
        let own_id = match cluster.config.group_protocol {
            GroupProtocol::Consumer => cluster.brokers.random_uuid().to_string(),
            GroupProtocol::Classic => String::new(),
        };
        let coordinator = Self {
            cluster,
            own_id,
            group,
            node: Cell::new(None),
            finding: tokio::sync::Mutex::default(),
            calls: RefCell::default(),
            next_call: Cell::new(0),
            trouble: RefCell::default(),
            unanswered: Cell::new(0),
            has_answered: Cell::new(false),
            is_reported: Cell::new(false),
            identity: RefCell::new(Identity { instance_id, ..Identity::default() }),
            is_member: Cell::new(false),
            memberships: Cell::new(0),
            has_asked_to_join: Cell::new(false),
            nameless: watch::Sender::new(0),
        };
        coordinator.debug("MEMBERID", || "updating member id \"(not-set)\" -> \"\"".into());
        coordinator
    }

    pub(crate) fn group(&self) -> &str {
        &self.group
    }

    pub(crate) fn request_timeout(&self) -> Duration {
        self.cluster.config.socket_timeout
    }

    pub(crate) fn retry_backoff(&self) -> Duration {
        self.cluster.config.retry_backoff
    }

    /// The member id in the new protocol, the same in all memberships of the consumer; empty in the classic one.
    pub(crate) fn own_id(&self) -> &str {
        &self.own_id
    }

    /// Returns the current identity, which may change at each await.
    pub(crate) fn identity(&self) -> Identity {
        self.identity.borrow().clone()
    }

    /// Starts or ends the membership; both clear the previous identity.
    pub(crate) fn set_member(&self, is_member: bool) {
        self.is_member.set(is_member);
        self.memberships.set(self.memberships.get() + 1);
        self.went_well();
        self.leaves(true);
    }

    pub(crate) fn is_known_as(&self, member_id: &str) {
        let before = std::mem::replace(&mut self.identity.borrow_mut().member_id, member_id.to_owned());
        if before != member_id {
            self.cluster.observer.is_member(member_id);
            self.debug("MEMBERID", || format!("updating member id \"{before}\" -> \"{member_id}\""));
        }
    }

    /// The member enters this generation or epoch.
    pub(crate) fn enters(&self, epoch: i32) {
        self.identity.borrow_mut().epoch = Some(epoch);
    }

    /// The member is in no generation any more; with `is_unknown`, its member id is invalid too.
    pub(crate) fn leaves(&self, is_unknown: bool) {
        self.has_asked_to_join.set(false);
        let mut identity = self.identity.borrow_mut();
        identity.epoch = None;
        if is_unknown {
            identity.member_id.clear();
        }
    }

    /// Records that a heartbeat that joins the group is sent.
    pub(crate) fn asks_to_join(&self) {
        self.has_asked_to_join.set(true);
    }

    /// Returns `true` if the coordinator knows this member, or will when it has processed the last heartbeat.
    pub(crate) fn may_know_member(&self) -> bool {
        self.has_asked_to_join.get() || self.identity.borrow().epoch.is_some()
    }

    /// The number of the current membership.
    pub(crate) fn membership(&self) -> u64 {
        self.memberships.get()
    }

    /// Counts a JoinGroup request without a member id until the result is dropped.
    pub(crate) fn count_nameless(&self) -> NamelessGuard<'_> {
        self.nameless.send_modify(|count| *count += 1);
        NamelessGuard(self)
    }

    /// Waits until no JoinGroup request without a member id is in flight.
    pub(crate) async fn wait_for_names(&self) {
        // The sender is part of `self`, so that this cannot fail.
        let _ = self.nameless.subscribe().wait_for(|count| *count == 0).await;
    }

    /// The generation or epoch and the member id for commits; `None` outside any membership.
    ///
    /// # Errors
    /// A member that is in no generation cannot commit.
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

    /// The identity for reading offsets in the KIP-848 protocol, whose coordinator refuses members with an old epoch.
    pub(crate) fn fenced_member(&self) -> Option<(i32, String)> {
        let fences = self.cluster.config.group_protocol == GroupProtocol::Consumer;
        self.member().ok().flatten().filter(|_| fences)
    }

    /// The coordinator's node, looked up if unknown.
    pub(crate) async fn find(&self) -> Result<i32, Error> {
        let _one_asks = self.finding.lock().await;
        if let Some(node) = self.node.get() {
            return Ok(node);
        }
        self.debug("CGRPQUERY", || "querying for coordinator".into());
        self.observer().group_state("query-coord");
        let node = find_coordinator(&self.cluster, GROUP, &self.group).await?;
        self.node.set(Some(node));
        self.debug("CGRPQUERY", || format!("coordinated by node {node}"));
        self.observer().coordinated_by(node);
        Ok(node)
    }

    /// The error for a refused request. For a fenced `group.instance.id`, it includes advice: only one member at a
    /// time can use the id.
    pub(crate) fn refused(&self, what: &str, code: ErrorCode) -> Error {
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

    /// Logs a line about the group. The facilities are librdkafka's, because programs search for them.
    pub(crate) fn debug(&self, facility: &'static str, text: impl FnOnce() -> String) {
        let line = || format!("Group \"{}\": {}", self.group, text());
        self.cluster.observer.log.debug(Context::Cgrp, facility, line);
    }

    pub(crate) fn observer(&self) -> &Observer {
        &self.cluster.observer
    }

    /// The requests in progress; those that wait for other members come last.
    pub(crate) fn calls(&self) -> Vec<RequestProgress> {
        let mut calls: Vec<RequestProgress> = self.calls.borrow().values().copied().collect();
        calls.sort_by_key(RequestProgress::waits_for_members);
        calls
    }

    /// Returns `true` while a request that leads to the next generation is in progress.
    pub(crate) fn is_joining(&self) -> bool {
        self.calls.borrow().values().any(RequestProgress::waits_for_members)
    }

    /// The reason why the coordinator does not serve this consumer, and the time since which it does not.
    pub(crate) fn trouble(&self) -> Option<(Instant, StallReason)> {
        self.trouble.borrow().clone()
    }

    /// Records that the coordinator returned an error or did not respond.
    pub(crate) fn went_wrong(&self, trouble: StallReason) {
        self.debug("CGRP", || trouble.text.clone());
        let mut known = self.trouble.borrow_mut();
        let since = known.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        *known = Some((since, trouble));
    }

    /// Returns `true` if the application must learn of this error: the requests are repeated, and an error that does not
    /// pass by itself is reported once until the coordinator answers again.
    pub(crate) fn must_report(&self, error: &Error) -> bool {
        !error.is_retriable() && !self.is_reported.replace(true)
    }

    /// Records a successful response.
    pub(crate) fn went_well(&self) {
        *self.trouble.borrow_mut() = None;
    }

    /// Clears the coordinator: the next call looks it up.
    pub(crate) fn forget(&self) {
        self.observer().group_state("query-coord");
        self.node.set(None);
    }

    /// Sends a request to the coordinator once. A transport error, or a response that the coordinator has moved,
    /// clears it.
    pub(crate) async fn call_once<R: Request>(
        &self,
        version_max: i16,
        timeout: Duration,
        make: impl Fn(i16) -> R,
    ) -> Result<R::Response, Error> {
        self.call_on(Lane::Group, version_max, timeout, make).await
    }

    /// [`Self::call_once`] on a separate connection, for requests with slow responses. A broker handles the requests
    /// of one connection in order, so commits and heartbeats would have to wait.
    pub(crate) async fn call_on<R: Request>(
        &self,
        lane: Lane,
        version_max: i16,
        timeout: Duration,
        make: impl Fn(i16) -> R,
    ) -> Result<R::Response, Error> {
        let noted = ProgressGuard(self, self.next_call.replace(self.next_call.get() + 1));
        let began = Instant::now();
        // Boxed: futures within futures have a limit of depth, and this one is within most of a group's.
        let result = Box::pin(async {
            noted.at(RequestProgress::Finding(began));
            let node = self.find().await?;
            noted.at(RequestProgress::Connecting(node));
            let connection = self.cluster.brokers.connection(node, lane).await?;
            noted.at(RequestProgress::Sent { node, api: R::KEY, since: Instant::now() });
            let answering = connection.call(version_max, timeout, make);
            let Some(patience) = self.cluster.config.patience(self.unanswered.get()) else {
                return answering.await;
            };
            tokio::pin!(answering);
            loop {
                match connection.answered_within(patience, answering.as_mut()).await {
                    Some(result) => return result,
                    None if waits_for_members(R::KEY) && !self.has_moved(node, patience).await => {}
                    None => {
                        self.unanswered.set(self.unanswered.get().saturating_add(1));
                        self.cluster.brokers.note_silence(connection.address());
                        return Err(connection.give_up(R::KEY.name(), patience));
                    }
                }
            }
        })
        .await;
        if result.is_ok() {
            self.has_answered.set(true);
            self.is_reported.set(false);
        }
        if let Err(error) = &result {
            self.forget();
            self.went_wrong(StallReason::of(error));
        } else if self.cluster.config.patience(0).is_none_or(|patience| began.elapsed() < patience) {
            // A slow response keeps the count, so that the client does not abandon a slow coordinator again.
            self.unanswered.set(0);
        }
        result
    }

    /// Returns `true` if another node now coordinates the group. A failed lookup counts as `false`.
    async fn has_moved(&self, from: i32, patience: Duration) -> bool {
        let asking = find_coordinator(&self.cluster, GROUP, &self.group);
        matches!(tokio::time::timeout(patience, asking).await, Ok(Ok(node)) if node != from)
    }

    /// Sends a request until it succeeds or fails with a final error, for `request.timeout.ms` at most.
    pub(crate) async fn call<R: Request>(
        &self,
        what: &str,
        version_max: i16,
        make: impl Fn(i16) -> R,
        error_of: impl Fn(&R::Response) -> Option<ErrorCode>,
    ) -> Result<R::Response, Error> {
        let timeout = self.cluster.config.socket_timeout;
        let deadline = Instant::now() + timeout;
        let mut failures = 0;
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
                        self.went_wrong(StallReason::of(&error));
                        error
                    }
                },
                Err(error) => error,
            };
            let pause = self.cluster.backoff(failures);
            failures += 1;
            // Wrong settings fail at once; a failure of TLS or SASL that follows responses may pass.
            let may_pass = problem.is_retriable() || (problem.is_security() && self.has_answered.get());
            if !may_pass || Instant::now() + pause >= deadline {
                return Err(problem);
            }
            tracing::debug!(%problem, what, "asking the coordinator again");
            tokio::time::sleep(pause).await;
        }
    }
}

#[cfg(test)]
impl Coordinator {
    /// Adds a defect: the next request fails, and a look at the identity or a note of the failure panics.
    pub(super) fn break_down(&self) {
        // No metadata names this node.
        self.node.set(Some(1));
        std::mem::forget(self.identity.borrow_mut());
        std::mem::forget(self.trouble.borrow_mut());
    }
}

/// The requests whose responses wait for other members.
const fn waits_for_members(api: ApiKey) -> bool {
    matches!(api, ApiKey::JoinGroup | ApiKey::SyncGroup)
}
