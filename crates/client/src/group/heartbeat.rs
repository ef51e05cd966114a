//! The heartbeats of the classic protocol, in a separate task, so that the application cannot delay them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::heartbeat::HeartbeatRequest;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Shared;
use super::coordinator::Coordinator;
use crate::config::GroupHabits;
use crate::error::Error;
use crate::log::WARNING;
use crate::watchdog::cause::StallReason;

const HEARTBEAT_VERSION_MAX: i16 = 4;

/// The end of a generation, as a heartbeat response reports it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum GenerationEnd {
    /// The group rebalances: the member rejoins, and owns its partitions until then.
    Rebalance,
    /// The coordinator no longer knows this member or this generation.
    Lost(ErrorCode),
    /// The coordinator refuses the member, in the response to this request.
    Refused(ErrorCode, &'static str),
}

/// The commits that the coordinator refused because it no longer knows the member or its generation.
///
/// The member loses its assignment at once, as in Java's client and librdkafka: another member may own the partitions
/// before the next heartbeat is refused.
#[derive(Debug, Default)]
pub(super) struct CommitRefusals {
    last: RefCell<Option<Refusal>>,
    changed: Notify,
}

#[derive(Debug)]
struct Refusal {
    /// The generation and the member id of the commit.
    member: (i32, String),
    code: ErrorCode,
}

impl CommitRefusals {
    /// Records the error of a commit, if it ends the generation of the commit.
    pub(super) fn note(&self, member: Option<&(i32, String)>, error: &Error) {
        let Error::Broker { code, .. } = error else { return };
        let ends = matches!(
            code,
            ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration | ErrorCode::FencedInstanceId
        );
        if let (true, Some(member)) = (ends, member) {
            *self.last.borrow_mut() = Some(Refusal { member: member.clone(), code: *code });
            self.changed.notify_one();
        }
    }

    /// Waits for a refusal in the member's current generation. Refusals of earlier generations are ignored.
    async fn next(&self, coordinator: &Coordinator) -> ErrorCode {
        loop {
            if let Some(refusal) = self.last.borrow_mut().take()
                && coordinator.member().ok().flatten().as_ref() == Some(&refusal.member)
            {
                return refusal.code;
            }
            self.changed.notified().await;
        }
    }
}

/// Sends the heartbeats of one generation until it is dropped.
pub(super) struct HeartbeatTask {
    state: Rc<HeartbeatState>,
    _task: JoinSet<()>,
}

#[derive(Debug, Default)]
struct HeartbeatState {
    end: Cell<Option<GenerationEnd>>,
    changed: Notify,
}

impl HeartbeatState {
    fn end(&self, end: GenerationEnd) {
        self.end.set(Some(end));
        self.changed.notify_one();
    }
}

impl HeartbeatTask {
    pub(super) fn start(shared: Rc<Shared>) -> Self {
        let state = Rc::<HeartbeatState>::default();
        let mut task = JoinSet::new();
        let observer = shared.cluster.observer.clone();
        task.spawn_local(observer.watched("heartbeats", beat(shared, state.clone())));
        Self { state, _task: task }
    }

    /// Returns the end of the generation, if it has ended.
    pub(super) fn end(&self) -> Option<GenerationEnd> {
        self.state.end.get()
    }

    /// Waits for the generation's end.
    pub(super) async fn wait_for_end(&self) -> GenerationEnd {
        loop {
            if let Some(end) = self.end() {
                return end;
            }
            self.state.changed.notified().await;
        }
    }
}

async fn beat(shared: Rc<Shared>, state: Rc<HeartbeatState>) {
    let Some(coordinator) = &shared.coordinator else { return };
    let config = shared.cluster.config.clone();
    let mut heard_at = Instant::now();
    let mut pause = match config.group_habits {
        GroupHabits::Java => config.heartbeat_interval,
        GroupHabits::Librdkafka => Duration::ZERO,
    };
    loop {
        let next = async {
            tokio::time::sleep(std::mem::replace(&mut pause, config.heartbeat_interval)).await;
            beat_once(coordinator, config.session_timeout).await
        };
        // The coordinator gives the partitions to others after this time, whatever happens to the heartbeats.
        let heartbeat = tokio::time::timeout_at(heard_at + config.session_timeout, next);
        // During a rebalance, the member gets its next generation soon, in which the refusal has no meaning.
        let is_rebalancing = state.end.get().is_some();
        let result = tokio::select! {
            biased;
            code = shared.commit_refusals.next(coordinator), if !is_rebalancing => {
                state.end(match code {
                    ErrorCode::FencedInstanceId => GenerationEnd::Refused(code, "OffsetCommit"),
                    code => GenerationEnd::Lost(code),
                });
                return;
            }
            result = heartbeat => result,
        };
        let Ok(result) = result else {
            if config.group_habits == GroupHabits::Librdkafka {
                // Programs search for the beginning, which is librdkafka's.
                let text = format!(
                    "Consumer group session timed out after {} ms without an answer to a heartbeat: \
                     the partitions are given up, and the consumer joins again",
                    config.session_timeout.as_millis()
                );
                shared.cluster.observer.log.say(WARNING, "SESSTMOUT", text);
            }
            state.end(GenerationEnd::Lost(ErrorCode::CoordinatorNotAvailable));
            return;
        };
        let end = match result {
            Ok(ErrorCode::None) => {
                coordinator.went_well();
                heard_at = Instant::now();
                continue;
            }
            Ok(ErrorCode::RebalanceInProgress) => GenerationEnd::Rebalance,
            Ok(code @ (ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration)) => {
                GenerationEnd::Lost(code)
            }
            Ok(code) if !code.is_retriable() => GenerationEnd::Refused(code, "Heartbeat"),
            problem => {
                if let Ok(code) = problem {
                    coordinator.went_wrong(StallReason::of_code(code));
                }
                coordinator.forget();
                continue;
            }
        };
        // A member that must rejoin continues its heartbeats while the application processes its records.
        state.end(end);
        if end != GenerationEnd::Rebalance {
            return;
        }
        heard_at = Instant::now();
    }
}

async fn beat_once(coordinator: &Coordinator, timeout: Duration) -> Result<ErrorCode, Error> {
    let identity = coordinator.identity();
    let request = |_| HeartbeatRequest {
        group_id: coordinator.group().to_owned(),
        generation_id: identity.epoch.unwrap_or(-1),
        member_id: identity.member_id.clone(),
        group_instance_id: identity.instance_id.clone(),
    };
    Ok(coordinator.call_once(HEARTBEAT_VERSION_MAX, timeout, request).await?.error_code)
}
