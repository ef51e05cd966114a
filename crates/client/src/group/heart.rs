//! The classic protocol's heartbeats: a task of their own, so that nothing the application does can delay them.

use std::cell::Cell;
use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::heartbeat::HeartbeatRequest;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Shared;
use super::coordinator::Coordinator;
use crate::error::Error;
use crate::watchdog::cause::Trouble;

const HEARTBEAT_VERSION_MAX: i16 = 4;

/// What a heartbeat's answer means for the generation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ended {
    /// Everybody is asked to join again; the partitions are still ours until then.
    Rebalance,
    /// The coordinator does not know this member any more, or not this generation.
    Lost(ErrorCode),
    /// It will not have us.
    Refused(ErrorCode),
}

/// Beats for one generation, until it is dropped.
pub(super) struct Heart {
    ended: Rc<State>,
    _task: JoinSet<()>,
}

#[derive(Debug, Default)]
struct State {
    ended: Cell<Option<Ended>>,
    changed: Notify,
}

impl Heart {
    pub(super) fn start(shared: Rc<Shared>) -> Self {
        let ended = Rc::<State>::default();
        let mut task = JoinSet::new();
        task.spawn_local(beat(shared, ended.clone()));
        Self { ended, _task: task }
    }

    /// How the generation ended, if it did.
    pub(super) fn ended(&self) -> Option<Ended> {
        self.ended.ended.get()
    }

    /// Waits for the generation's end.
    pub(super) async fn ends(&self) -> Ended {
        loop {
            if let Some(ended) = self.ended() {
                return ended;
            }
            self.ended.changed.notified().await;
        }
    }
}

async fn beat(shared: Rc<Shared>, state: Rc<State>) {
    let Some(coordinator) = &shared.coordinator else { return };
    let config = shared.cluster.config.clone();
    let mut heard_at = Instant::now();
    loop {
        tokio::time::sleep(config.heartbeat_interval).await;
        let ended = match beat_once(coordinator, config.session_timeout).await {
            Ok(ErrorCode::None) => {
                coordinator.went_well();
                heard_at = Instant::now();
                continue;
            }
            Ok(ErrorCode::RebalanceInProgress) => Ended::Rebalance,
            Ok(code @ (ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration)) => Ended::Lost(code),
            Ok(code) if !code.is_retriable() => Ended::Refused(code),
            problem => {
                if let Ok(code) = problem {
                    coordinator.went_wrong(Trouble::of_code(code));
                }
                coordinator.forget();
                if heard_at.elapsed() <= config.session_timeout {
                    continue;
                }
                Ended::Lost(ErrorCode::CoordinatorNotAvailable)
            }
        };
        // A member that is asked to join again goes on beating while the application finishes what it has in hand.
        state.ended.set(Some(ended));
        state.changed.notify_one();
        if ended != Ended::Rebalance {
            return;
        }
        heard_at = Instant::now();
    }
}

async fn beat_once(coordinator: &Coordinator, timeout: std::time::Duration) -> Result<ErrorCode, Error> {
    let identity = coordinator.identity();
    let request = |_| HeartbeatRequest {
        group_id: coordinator.group().to_owned(),
        generation_id: identity.epoch.unwrap_or(-1),
        member_id: identity.member_id.clone(),
        group_instance_id: identity.instance_id.clone(),
    };
    Ok(coordinator.call_once(HEARTBEAT_VERSION_MAX, timeout, request).await?.error_code)
}
