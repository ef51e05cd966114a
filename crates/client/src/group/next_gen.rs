//! Membership by KIP-848's protocol: the coordinator shares out, and a heartbeat says and hears everything.
//!
//! Two tasks, each one line of thought. [`beat`] talks to the coordinator, whatever the application does;
//! [`Member::live`] brings what the application has in line with what the coordinator wants: it gives up first, says so,
//! and takes what is new.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ottla_protocol::messages::consumer_group_heartbeat::{ConsumerGroupHeartbeatRequest, TopicPartitions};
use ottla_protocol::{ErrorCode, Uuid};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::Shared;
use super::application::{Application, Late};
use super::coordinator::Coordinator;
use super::standing::Step;
use super::subscription::Subscription;
use crate::config::Rebalance;
use crate::consumer::TopicPartition;
use crate::error::Error;
use crate::watchdog::cause::Trouble;

const VERSION_MAX: i16 = 1;
/// From this version on the member makes its own id.
const OWN_ID_VERSION: i16 = 1;
const JOINS: i32 = 0;
const LEAVES: i32 = -1;
/// A static member that will be back.
const LEAVES_FOR_NOW: i32 = -2;
/// How long a member waits after the coordinator refused it.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

pub(super) struct Member {
    shared: Rc<Shared>,
    application: Application,
    state: Rc<State>,
    heart: JoinSet<()>,
}

/// What the two tasks tell each other.
#[derive(Default)]
struct State {
    subscription: RefCell<Subscription>,
    /// What the coordinator wants this member to own, if that is news.
    target: RefCell<Option<Vec<TopicPartitions>>>,
    /// What this member owns, if the coordinator is to be told.
    owned: RefCell<Option<Vec<TopicPartitions>>>,
    /// Whether the next heartbeat says everything, and not just what is new.
    in_full: Cell<bool>,
    /// The coordinator knows this member no more.
    lost: Cell<bool>,
    refused: RefCell<Option<Error>>,
    /// The coordinator said something.
    news: Notify,
    /// There is something to tell it.
    hurry: Notify,
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
                    let max_ms = self.shared.cluster.config.poll_interval_max.as_millis();
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
                    let fenced = matches!(&error, Error::Broker { code: ErrorCode::FencedInstanceId, .. });
                    self.application.lose();
                    self.application.report(error);
                    if fenced {
                        return;
                    }
                    // What was refused may be granted later; who polls on asks for it.
                    self.application.comes_back().await;
                    tokio::time::sleep(REFUSED_PAUSE).await;
                }
            }
        }
    }

    /// Begins to beat as somebody whom the group does not know yet.
    fn begin(&mut self) {
        let state = State { subscription: RefCell::new(self.application.subscription()), ..State::default() };
        state.in_full.set(true);
        self.state = Rc::new(state);
        if let Some(coordinator) = &self.shared.coordinator {
            let id = self.shared.cluster.brokers.random_uuid();
            coordinator.leaves(true);
            coordinator.is_known_as(&id.to_string());
        }
        self.heart = JoinSet::new();
        self.heart.spawn_local(beat(self.shared.clone(), self.state.clone()));
    }

    /// Follows the coordinator until it refuses this member or the application is late.
    async fn stay(&mut self) -> Result<Late, Error> {
        loop {
            let state = self.state.clone();
            tokio::select! {
                biased;
                () = state.news.notified() => {}
                wants = self.application.wants_or_is_late() => match wants {
                    Ok(()) => {
                        *state.subscription.borrow_mut() = self.application.subscription();
                        state.in_full.set(true);
                        state.hurry.notify_one();
                    }
                    Err(Late) => return Ok(Late),
                },
            }
            if let Some(error) = state.refused.borrow_mut().take() {
                return Err(error);
            }
            if state.lost.replace(false) {
                self.shared.step(Step::Joining);
                self.application.lose();
                state.in_full.set(true);
                state.hurry.notify_one();
            }
            let target = state.target.borrow_mut().take();
            if let Some(target) = target {
                match self.reconcile(&target).await {
                    Ok(Ok(())) => {}
                    Ok(Err(Late)) => return Ok(Late),
                    Err(error) if error.is_retriable() || is_stale(&error) => {
                        tracing::debug!(%error, "taking what the coordinator gave");
                        tokio::time::sleep(self.shared.cluster.config.retry_backoff).await;
                        state.target.borrow_mut().get_or_insert(target);
                        state.news.notify_one();
                    }
                    Err(error) => return Err(error),
                }
            }
        }
    }

    async fn reconcile(&mut self, target: &[TopicPartitions]) -> Result<Result<(), Late>, Error> {
        let assigned = self.named(target).await?;
        let owned = self.shared.owned();
        let gone: Vec<_> = owned.iter().filter(|at| !assigned.contains(at)).cloned().collect();
        let new: Vec<_> = assigned.iter().filter(|at| !owned.contains(at)).cloned().collect();
        if !gone.is_empty() {
            if let Err(Late) = self.application.give_up(gone).await {
                return Ok(Err(Late));
            }
            self.acknowledge();
        }
        // librdkafka's applications hear of no partitions in the classic protocol only.
        let says_so = self.shared.cluster.config.rebalance != Rebalance::Application;
        let first = says_so && owned.is_empty() && new.is_empty();
        self.application.take(new, first).await?;
        self.shared.step(Step::Settled);
        self.acknowledge();
        Ok(Ok(()))
    }

    /// Tells the coordinator, at once, what this member owns.
    fn acknowledge(&self) {
        let mut by_topic: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
        for at in self.shared.owned() {
            if let Some(layout) = self.shared.cluster.topic(&at.topic) {
                by_topic.entry(layout.id).or_default().push(at.partition);
            }
        }
        let topic = |(topic_id, partitions)| TopicPartitions { topic_id, partitions };
        *self.state.owned.borrow_mut() = Some(by_topic.into_iter().map(topic).collect());
        self.state.hurry.notify_one();
    }

    /// The partitions by their topics' names, which are asked for if need be.
    async fn named(&self, target: &[TopicPartitions]) -> Result<Vec<TopicPartition>, Error> {
        let cluster = &self.shared.cluster;
        let unknown: Vec<Uuid> = target
            .iter()
            .map(|topic| topic.topic_id)
            .filter(|id| cluster.topic_named_by(*id).is_none())
            .collect();
        if !unknown.is_empty() {
            let described = cluster.describe_ids(&unknown).await?;
            cluster.merge(described);
        }
        let mut partitions = Vec::new();
        for topic in target {
            let name = cluster.topic_named_by(topic.topic_id).ok_or_else(|| Error::Broker {
                what: format!("topic with id {}", topic.topic_id),
                code: ErrorCode::UnknownTopicId,
            })?;
            let at = |partition: &i32| TopicPartition { topic: name.clone(), partition: *partition };
            partitions.extend(topic.partitions.iter().map(at));
        }
        Ok(partitions)
    }
}

/// The epoch has moved on; with the next heartbeat it is right again.
fn is_stale(error: &Error) -> bool {
    matches!(error, Error::Broker { code: ErrorCode::StaleMemberEpoch, .. })
}

/// Heartbeats for as long as the coordinator takes them.
async fn beat(shared: Rc<Shared>, state: Rc<State>) {
    let Some(coordinator) = &shared.coordinator else { return };
    let backoff = shared.cluster.config.retry_backoff;
    loop {
        let in_full = state.in_full.replace(false) || coordinator.identity().epoch.is_none();
        let owned = state.owned.borrow_mut().take();
        let result = beat_once(&shared, coordinator, &state, in_full, owned.clone()).await;
        let code = match &result {
            Ok((code, _)) => {
                match code {
                    ErrorCode::None => coordinator.went_well(),
                    code => coordinator.went_wrong(Trouble::of_code(*code)),
                }
                *code
            }
            Err(error) if error.is_retriable() => ErrorCode::CoordinatorNotAvailable,
            Err(error) => return refuse(&state, error.clone()),
        };
        let pause = match code {
            ErrorCode::None => result.map_or(backoff, |(_, interval)| interval),
            ErrorCode::UnknownMemberId | ErrorCode::FencedMemberEpoch => {
                // The same member joins again, after it has let go of everything.
                coordinator.leaves(false);
                *state.target.borrow_mut() = None;
                *state.owned.borrow_mut() = None;
                state.lost.set(true);
                state.news.notify_one();
                state.hurry.notified().await;
                continue;
            }
            code if code.is_retriable() => {
                coordinator.forget();
                state.in_full.set(true);
                if let Some(owned) = owned {
                    state.owned.borrow_mut().get_or_insert(owned);
                }
                tokio::time::sleep(backoff).await;
                continue;
            }
            code => return refuse(&state, refusal(coordinator, &state, code)),
        };
        let _ = tokio::time::timeout(pause, state.hurry.notified()).await;
    }
}

fn refuse(state: &State, error: Error) {
    *state.refused.borrow_mut() = Some(error);
    state.news.notify_one();
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

/// Sends one heartbeat and takes over what the answer says; gives the error code and when the next one is due.
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
            request.rack_id = Some(config.rack.clone()).filter(|rack| !rack.is_empty());
            request.rebalance_timeout_ms = config.poll_interval_max.as_millis() as i32;
            let names = subscription.names().iter().map(ToString::to_string).collect();
            request.subscribed_topic_names = Some(names);
            // An empty one takes back what was said before.
            let pattern = subscription.server_pattern();
            request.subscribed_topic_regex = pattern.or_else(|| (!joins && version >= 1).then(String::new));
            request.server_assignor.clone_from(&config.group_remote_assignor);
            if joins {
                request.topic_partitions = Some(Vec::new());
            }
        }
        request
    };
    let response = coordinator.call_once(VERSION_MAX, config.request_timeout, request).await?;
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

/// Leaves the group at once; a static member keeps its place until its session runs out (epoch -2). Tries once.
pub(super) async fn leave(coordinator: &Coordinator) -> Result<(), Error> {
    let identity = coordinator.identity();
    if identity.epoch.is_none() {
        return Ok(());
    }
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
