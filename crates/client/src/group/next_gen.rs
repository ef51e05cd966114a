//! Membership with the KIP-848 protocol: the coordinator assigns the partitions, and heartbeats carry all state.
//!
//! Two tasks share the work. [`beat`] talks to the coordinator, independently of the application. [`Member::live`]
//! applies the coordinator's target assignment: it revokes partitions first, acknowledges that, and then adds the new
//! ones.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::messages::consumer_group_heartbeat::{ConsumerGroupHeartbeatRequest, TopicPartitions};
use ottla_protocol::{ErrorCode, Uuid};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Shared;
use super::application::{Application, Late};
use super::coordinator::Coordinator;
use super::membership_status::MembershipStep;
use super::subscription::Subscription;
use super::unapplied_target::{Missing, TargetNames, UnappliedTarget};
use crate::config::Rebalance;
use crate::error::Error;
use crate::fetch::inbox::Item;
use crate::timer::wire_ms;
use crate::types::TopicPartition;
use crate::watchdog::cause::StallReason;

const VERSION_MAX: i16 = 1;
/// The first version in which the member creates its id.
const OWN_ID_VERSION: i16 = 1;
const JOINS: i32 = 0;
const LEAVES: i32 = -1;
/// The epoch with which a static member leaves temporarily.
const LEAVES_FOR_NOW: i32 = -2;
/// The pause after the coordinator refused the member.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);
/// The time between two reports of a forbidden topic, librdkafka's.
const FORBIDDEN_REPORTS: Duration = Duration::from_secs(5);

pub(super) struct Member {
    shared: Rc<Shared>,
    application: Application,
    state: Rc<State>,
    heart: JoinSet<()>,
}

/// The state that the two tasks exchange.
#[derive(Default)]
struct State {
    subscription: RefCell<Subscription>,
    /// The target assignment from the coordinator, if it is new.
    target: RefCell<Option<Vec<TopicPartitions>>>,
    /// The partitions that this member owns, if they must be reported to the coordinator.
    owned: RefCell<Option<Vec<TopicPartitions>>>,
    /// The ids of topics under which the coordinator has assigned them.
    ids: RefCell<BTreeMap<Arc<str>, Uuid>>,
    /// `true` after the first assignment of a membership.
    is_assigned: Cell<bool>,
    /// `true` if the next heartbeat carries all fields, not only the changed ones.
    in_full: Cell<bool>,
    /// The coordinator no longer knows this member.
    lost: Cell<bool>,
    refused: RefCell<Option<Error>>,
    /// Notified when the coordinator has refused the member, for a wait that must end then.
    ended: Notify,
    /// The last report of a forbidden topic.
    forbidden_at: Cell<Option<Instant>>,
    /// Notified when the coordinator's response changed the state.
    news: Notify,
    /// Notified when a heartbeat must be sent at once.
    hurry: Notify,
}

impl State {
    /// Returns `true` if the coordinator has refused the member, and [`Member::stay`] has not handled that.
    fn has_ended(&self) -> bool {
        self.lost.get() || self.refused.borrow().is_some()
    }

    /// Waits until the coordinator refuses the member.
    async fn wait_for_end(&self) {
        while !self.has_ended() {
            self.ended.notified().await;
        }
    }

    fn end(&self) {
        self.ended.notify_one();
        self.news.notify_one();
    }
}

impl Member {
    pub(super) fn new(shared: Rc<Shared>, application: Application) -> Self {
        Self { shared, application, state: Rc::default(), heart: JoinSet::new() }
    }

    pub(super) async fn live(mut self) {
        loop {
            self.begin();
            let ended = self.stay().await;
            self.heart.abort_all();
            match ended {
                Ok(Late) => {
                    let max_ms = self.shared.cluster.config.max_poll_interval.as_millis();
                    self.application.report(Error::PollIntervalExceeded { max_ms });
                    self.application.lose();
                    if let Some(coordinator) = &self.shared.coordinator
                        && let Err(error) = leave(coordinator).await
                    {
                        tracing::debug!(%error, "leaving the group");
                    }
                    self.application.comes_back().await;
                }
                Err(error) => {
                    let is_final = self.is_final(&error);
                    self.application.lose();
                    self.application.report(error);
                    if is_final {
                        return;
                    }
                    // A refused request may be granted later; the application's next poll triggers another attempt.
                    self.application.comes_back().await;
                    tokio::time::sleep(REFUSED_PAUSE).await;
                }
            }
        }
    }

    /// Returns `true` if the member does not join again: a static member that is fenced, and for librdkafka's applications any
    /// refusal that is fatal there.
    fn is_final(&self, error: &Error) -> bool {
        let Error::Broker { code, .. } = error else { return false };
        self.shared.cluster.config.group_habits.ends_member(*code)
    }

    /// Starts heartbeats as a new member.
    fn begin(&mut self) {
        let state = State { subscription: RefCell::new(self.application.subscription()), ..State::default() };
        state.in_full.set(true);
        self.state = Rc::new(state);
        if let Some(coordinator) = &self.shared.coordinator {
            coordinator.leaves(true);
            coordinator.is_known_as(coordinator.own_id());
        }
        self.heart = JoinSet::new();
        self.start_heartbeats();
    }

    fn start_heartbeats(&mut self) {
        let observer = self.shared.cluster.observer.clone();
        let heartbeats = beat(self.shared.clone(), self.state.clone());
        self.heart.spawn_local(observer.watched("heartbeats", heartbeats));
    }

    /// Applies the coordinator's responses until it refuses this member or the application polls too late.
    async fn stay(&mut self) -> Result<Late, Error> {
        let mut unapplied: Option<UnappliedTarget> = None;
        loop {
            let state = self.state.clone();
            let named = tokio::select! {
                biased;
                () = state.news.notified() => None,
                wants = self.application.wants_or_is_late() => match wants {
                    Ok(()) => {
                        *state.subscription.borrow_mut() = self.application.subscription();
                        state.in_full.set(true);
                        state.hurry.notify_one();
                        None
                    }
                    Err(Late) => return Ok(Late),
                },
                named = names_of(&self.shared, unapplied.as_mut()) => Some(named),
            };
            if let Some(error) = state.refused.borrow_mut().take() {
                return Err(error);
            }
            if state.lost.replace(false) {
                unapplied = None;
                self.lose();
                state.hurry.notify_one();
            }
            if let Some(target) = state.target.borrow_mut().take() {
                // The coordinator repeats a target: its lookup continues, unless it is over.
                let is_repeated =
                    named.is_none() && unapplied.as_ref().is_some_and(|unapplied| unapplied.target == target);
                if !is_repeated {
                    unapplied = Some(UnappliedTarget::new(&self.shared.cluster, target));
                }
                continue;
            }
            let Some(named) = named else { continue };
            let Some(current) = unapplied.take() else { continue };
            unapplied = match self.apply(current, named).await? {
                Ok(unapplied) => unapplied,
                Err(Late) => return Ok(Late),
            };
        }
    }

    /// Applies a target as far as its topics have names. Returns it if it must be applied again.
    async fn apply(
        &mut self,
        mut current: UnappliedTarget,
        named: Result<TargetNames, Error>,
    ) -> Result<Result<Option<UnappliedTarget>, Late>, Error> {
        let applied = match named {
            Ok(named) => {
                let reconciled = self.reconcile(&current.target, &named, current.is_acknowledged).await;
                reconciled.map(|in_time| (in_time, named.missing))
            }
            Err(error) => Err(error),
        };
        let error = match applied {
            Ok((Err(Late), _)) => return Ok(Err(Late)),
            Ok((Ok(()), Missing::None)) => return Ok(Ok(None)),
            Ok((Ok(()), Missing::InLookup)) => return Ok(Ok(Some(current))),
            Ok((Ok(()), Missing::Failed(error))) => {
                current.is_acknowledged = true;
                error
            }
            Err(error) if error.may_pass() || is_stale(&error) => error,
            // The next heartbeat would get the same refusal.
            Err(error) if is_unknown(&error) => {
                tracing::debug!(%error, "joining the group again");
                self.rejoin();
                return Ok(Ok(None));
            }
            Err(error) => return Err(error),
        };
        report_once(&self.shared, &error);
        tracing::debug!(%error, "taking what the coordinator gave");
        Ok(Ok(Some(current.again(&self.shared.cluster))))
    }

    /// Gives the partitions up, which other members may own, and makes the next heartbeat join.
    fn lose(&self) {
        self.shared.cluster.observer.rebalances("no longer a member");
        self.shared.step(MembershipStep::Joining);
        self.application.lose();
        self.state.is_assigned.set(false);
        self.state.in_full.set(true);
    }

    /// Joins again with the same id, after a request of this task was refused.
    fn rejoin(&mut self) {
        // A heartbeat in flight has the refused epoch.
        self.heart = JoinSet::new();
        if let Some(coordinator) = &self.shared.coordinator {
            coordinator.leaves(false);
        }
        *self.state.target.borrow_mut() = None;
        *self.state.owned.borrow_mut() = None;
        self.state.lost.set(false);
        self.lose();
        self.start_heartbeats();
    }

    /// Applies a target assignment, without the partitions of topics whose names are missing.
    async fn reconcile(
        &mut self,
        target: &[TopicPartitions],
        names: &TargetNames,
        is_acknowledged: bool,
    ) -> Result<Result<(), Late>, Error> {
        let began = Instant::now();
        let assigned = self.named(target, &names.names);
        let owned = self.shared.owned();
        let gone: Vec<_> = owned.iter().filter(|at| !assigned.contains(at)).cloned().collect();
        let new: Vec<_> = assigned.iter().filter(|at| !owned.contains(at)).cloned().collect();
        if gone.is_empty() && new.is_empty() {
            match &names.missing {
                Missing::None => {}
                Missing::InLookup => return Ok(Ok(())),
                Missing::Failed(_) => {
                    // The coordinator waits for partitions without a name that it has revoked.
                    if !is_acknowledged {
                        self.acknowledge();
                    }
                    return Ok(Ok(()));
                }
            }
        }
        let is_first = !self.state.is_assigned.get();
        let has_changed = is_first || !(gone.is_empty() && new.is_empty());
        if !(gone.is_empty() && new.is_empty()) {
            self.shared.cluster.observer.rebalances("the coordinator has changed the assignment");
        }
        let has_revoked = !gone.is_empty();
        if has_revoked {
            if let Err(Late) = self.application.give_up(gone).await {
                return Ok(Err(Late));
            }
            if self.state.has_ended() {
                return Ok(Ok(()));
            }
            self.acknowledge();
        }
        // librdkafka has an assignment after each revocation, also an empty one. The first assignment is reported in any case, but
        // not to applications that apply it themselves.
        let always = match self.shared.cluster.config.rebalance {
            Rebalance::Application => has_revoked,
            _ => owned.is_empty() && new.is_empty() && is_first,
        };
        let state = self.state.clone();
        self.application.take(new, always, || state.has_ended(), state.wait_for_end()).await?;
        if self.state.has_ended() {
            return Ok(Ok(()));
        }
        self.state.is_assigned.set(true);
        if has_changed {
            self.shared.cluster.observer.rebalanced(began.elapsed());
        }
        self.shared.step(MembershipStep::Settled);
        self.acknowledge();
        Ok(Ok(()))
    }

    /// Reports the owned partitions to the coordinator at once.
    fn acknowledge(&self) {
        *self.state.owned.borrow_mut() = Some(owned_now(&self.shared, &self.state));
        self.state.hurry.notify_one();
    }

    /// Converts topic ids to names. Of a topic without a name, only the partitions that the member owns stay: it may be new, or hidden
    /// from this client, and keeps no others from being read.
    fn named(&self, target: &[TopicPartitions], names: &BTreeMap<Uuid, Arc<str>>) -> Vec<TopicPartition> {
        let owned = self.shared.owned();
        let mut known = self.state.ids.borrow_mut();
        let mut partitions = Vec::new();
        for topic in target {
            let id = topic.topic_id;
            let found = names.get(&id);
            let earlier = || known.iter().find(|(_, of)| **of == id).map(|(name, _)| name);
            let Some(name) = found.or_else(earlier).cloned() else { continue };
            let at = |partition: &i32| TopicPartition { topic: name.clone(), partition: *partition };
            let stays = |at: &TopicPartition| found.is_some() || owned.contains(at);
            partitions.extend(topic.partitions.iter().map(at).filter(stays));
            known.insert(name, id);
        }
        partitions
    }
}

/// Waits for the names of a target's topics; without an end if there is no target.
async fn names_of(shared: &Shared, unapplied: Option<&mut UnappliedTarget>) -> Result<TargetNames, Error> {
    match unapplied {
        Some(unapplied) => unapplied.names(&shared.cluster).await,
        None => std::future::pending().await,
    }
}

/// The partitions that the member owns, also those that it is giving up, under the ids with which they were assigned.
fn owned_now(shared: &Shared, state: &State) -> Vec<TopicPartitions> {
    let ids = state.ids.borrow();
    let mut by_topic: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
    for at in shared.owned() {
        let known = || shared.cluster.topic(&at.topic).map(|layout| layout.id);
        if let Some(id) = ids.get(&at.topic).copied().or_else(known) {
            by_topic.entry(id).or_default().push(at.partition);
        }
    }
    let topic = |(topic_id, partitions)| TopicPartitions { topic_id, partitions };
    by_topic.into_iter().map(topic).collect()
}

/// Returns `true` if the member epoch is stale; the next heartbeat updates it.
pub(super) fn is_stale(error: &Error) -> bool {
    matches!(error, Error::Broker { code: ErrorCode::StaleMemberEpoch, .. })
}

/// Returns `true` if the coordinator no longer knows the member, or its epoch.
pub(super) fn is_unknown(error: &Error) -> bool {
    matches!(error.broker_code(), Some(ErrorCode::UnknownMemberId | ErrorCode::FencedMemberEpoch))
}

/// Sends heartbeats that change nothing.
pub(super) async fn keep_alive(shared: Rc<Shared>) {
    beat(shared, Rc::default()).await;
}

/// Sends heartbeats until the coordinator refuses the member.
async fn beat(shared: Rc<Shared>, state: Rc<State>) {
    let Some(coordinator) = &shared.coordinator else { return };
    let backoff = shared.cluster.config.retry_backoff;
    loop {
        let joins = coordinator.identity().epoch.is_none();
        let in_full = state.in_full.replace(false) || joins;
        // The coordinator repeats its assignment only for a heartbeat that has all fields, the owned partitions among them.
        let changed = state.owned.borrow_mut().take();
        let owned = match (joins, in_full) {
            (true, _) => Some(Vec::new()),
            (false, true) => Some(owned_now(&shared, &state)),
            (false, false) => changed,
        };
        let result = beat_once(&shared, coordinator, &state, in_full, owned).await;
        let code = match &result {
            Ok((code, _)) => {
                match code {
                    ErrorCode::None => coordinator.went_well(),
                    code => coordinator.went_wrong(StallReason::of_code(*code)),
                }
                *code
            }
            Err(error) if error.may_pass() => {
                report_once(&shared, error);
                ErrorCode::CoordinatorNotAvailable
            }
            Err(error) => return refuse(&state, error.clone()),
        };
        let pause = match code {
            ErrorCode::None => result.map_or(backoff, |(_, interval)| interval),
            ErrorCode::UnknownMemberId | ErrorCode::FencedMemberEpoch => {
                // The member rejoins with the same id after it has released all partitions.
                coordinator.leaves(false);
                *state.target.borrow_mut() = None;
                *state.owned.borrow_mut() = None;
                state.lost.set(true);
                state.end();
                // An acknowledgement may be on its way.
                while state.lost.get() {
                    state.hurry.notified().await;
                }
                continue;
            }
            code if code.is_retriable() => {
                coordinator.forget();
                state.in_full.set(true);
                tokio::time::sleep(backoff).await;
                continue;
            }
            ErrorCode::TopicAuthorizationFailed => {
                // A topic of the subscription: the member keeps the others, as in Java's client and librdkafka.
                if state.forbidden_at.get().is_none_or(|at| at.elapsed() >= FORBIDDEN_REPORTS) {
                    state.forbidden_at.set(Some(Instant::now()));
                    shared.inbox.push(Item::Error(refusal(coordinator, &state, code)));
                }
                state.in_full.set(true);
                REFUSED_PAUSE
            }
            code => return refuse(&state, refusal(coordinator, &state, code)),
        };
        let _ = tokio::time::timeout(pause, state.hurry.notified()).await;
    }
}

/// Reports a failure of TLS or SASL. The member keeps its id and its partitions: the coordinator knows it until the session
/// ends.
fn report_once(shared: &Shared, error: &Error) {
    if error.is_security()
        && shared.coordinator.as_ref().is_some_and(|coordinator| coordinator.must_report(error))
    {
        shared.inbox.push(Item::Error(error.clone()));
    }
}

fn refuse(state: &State, error: Error) {
    *state.refused.borrow_mut() = Some(error);
    state.end();
}

fn refusal(coordinator: &Coordinator, state: &State, code: ErrorCode) -> Error {
    let group = coordinator.group();
    let what = if code == ErrorCode::UnsupportedAssignor {
        format!("group `{group}`: the broker has no such group.remote.assignor")
    } else if code == ErrorCode::InvalidRegularExpression {
        let pattern = state.subscription.borrow().server_pattern().unwrap_or_default();
        format!("group `{group}`: the broker does not take `{pattern}`")
    } else {
        return coordinator.refused("heartbeat", code);
    };
    Error::Broker { what, code }
}

/// Sends one heartbeat and applies the response. Returns the error code and the time of the next heartbeat.
async fn beat_once(
    shared: &Shared,
    coordinator: &Coordinator,
    state: &State,
    in_full: bool,
    owned: Option<Vec<TopicPartitions>>,
) -> Result<(ErrorCode, Duration), Error> {
    let identity = coordinator.identity();
    let config = &shared.cluster.config;
    let subscription = state.subscription.borrow().clone();
    let joins = identity.epoch.is_none();
    let request = |version: i16| {
        if joins {
            coordinator.asks_to_join();
        }
        let knows_itself = version >= OWN_ID_VERSION || !joins;
        let mut request = ConsumerGroupHeartbeatRequest {
            group_id: coordinator.group().to_owned(),
            member_id: if knows_itself { identity.member_id.clone() } else { String::new() },
            member_epoch: identity.epoch.unwrap_or(JOINS),
            topic_partitions: owned.clone(),
            ..Default::default()
        };
        if in_full {
            request.instance_id.clone_from(&identity.instance_id);
            request.rack_id = Some(config.client_rack.clone()).filter(|rack| !rack.is_empty());
            request.rebalance_timeout_ms = wire_ms(config.max_poll_interval);
            let names = subscription.names().iter().map(ToString::to_string).collect();
            request.subscribed_topic_names = Some(names);
            // An empty pattern clears the previous one.
            let pattern = subscription.server_pattern();
            request.subscribed_topic_regex = pattern.or_else(|| (!joins && version >= 1).then(String::new));
            request.server_assignor.clone_from(&config.group_remote_assignor);
        }
        request
    };
    let response = coordinator.call_once(VERSION_MAX, config.socket_timeout, request).await?;
    if response.error_code == ErrorCode::None {
        if let Some(member_id) = &response.member_id {
            coordinator.is_known_as(member_id);
        }
        coordinator.enters(response.member_epoch);
        if let Some(assignment) = response.assignment {
            *state.target.borrow_mut() = Some(assignment.topic_partitions);
            state.news.notify_one();
        }
    }
    Ok((response.error_code, Duration::from_millis(response.heartbeat_interval_ms.max(1) as u64)))
}

/// Leaves the group with one attempt. A static member keeps its membership until its session times out (epoch -2).
pub(super) async fn leave(coordinator: &Coordinator) -> Result<(), Error> {
    if !coordinator.may_know_member() {
        return Ok(());
    }
    let identity = coordinator.identity();
    let request = |_version: i16| ConsumerGroupHeartbeatRequest {
        group_id: coordinator.group().to_owned(),
        member_id: identity.member_id.clone(),
        instance_id: identity.instance_id.clone(),
        member_epoch: if identity.instance_id.is_some() { LEAVES_FOR_NOW } else { LEAVES },
        ..Default::default()
    };
    coordinator.call_once(VERSION_MAX, coordinator.request_timeout(), request).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_stale_epoch_mends_itself_with_the_next_heartbeat() {
        let refused = |code| Error::Broker { what: "OffsetFetch".into(), code };
        assert!(is_stale(&refused(ErrorCode::StaleMemberEpoch)));
        assert!(!is_stale(&refused(ErrorCode::FencedMemberEpoch)));
    }
}
