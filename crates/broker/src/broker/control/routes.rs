//! Each request of a control address, and what it does to the broker.

use std::time::Duration;

use ottla_protocol::ErrorCode;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Control;
use super::bodies::{
    CoordinatorBody, FaultBody, FollowerBody, LeaderBody, NewNodeBody, NodeBody, NowBody, WaitBody, Work,
    api_of, rule_json,
};
use crate::broker::LISTEN_WITHIN;
use crate::cluster::AddNodeError;
use crate::intercept::FaultRuleError;
use crate::partition::NO_LEADER;
use crate::test_actions::{Awaited, WaitError, wait_until};

/// The states of groups, classic ones and those of KIP-848.
const GROUP_STATES: &[&str] =
    &["Empty", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable", "Dead"];
/// The states of transactional ids that this broker has; `Dead` is one without a state.
const TRANSACTION_STATES: &[&str] =
    &["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"];

/// An answer with another status than 200.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum Refusal {
    /// The request is wrong: 400.
    Invalid(String),
    /// There is no such thing: 404.
    NotFound(String),
    /// The broker cannot do it now: 409.
    Conflict(String),
    /// A wait has ended without its state: 504.
    TimedOut(WaitError),
}

impl Refusal {
    pub(super) fn status(&self) -> u16 {
        match self {
            Self::Invalid(_) => 400,
            Self::NotFound(_) => 404,
            Self::Conflict(_) => 409,
            Self::TimedOut(_) => 504,
        }
    }

    pub(super) fn json(&self) -> Value {
        match self {
            Self::Invalid(error) | Self::NotFound(error) | Self::Conflict(error) => json!({ "error": error }),
            Self::TimedOut(error) => json!({ "error": error.to_string(), "found": error.found }),
        }
    }
}

impl Control {
    /// Carries out a request.
    pub(super) async fn route(&self, method: &str, parts: &[&str], body: &[u8]) -> Result<Value, Refusal> {
        match (method, parts) {
            ("GET", []) => Ok(self.overview()),
            ("GET", ["faults"]) => Ok(json!({ "faults": self.faults() })),
            ("POST", ["faults"]) => self.add_fault(read(body)?),
            ("DELETE", ["faults"]) => {
                self.cluster().clear_intercepts();
                Ok(json!({}))
            }
            ("DELETE", ["faults", id]) => self.remove_fault(number(id)?),
            ("GET", ["clients"]) => Ok(json!({ "clients": self.clients() })),
            ("GET", ["disk-faults"]) => Ok(json!({ "disk_faults": self.disk_faults() })),
            ("POST", ["disk-faults"]) => self.add_disk_fault(read(body)?),
            ("DELETE", ["disk-faults"]) => {
                self.cluster().clear_disk_faults();
                Ok(json!({}))
            }
            ("DELETE", ["disk-faults", id]) => self.remove_disk_fault(number(id)?),
            ("POST", ["nodes"]) => self.add_asked_node(read(body)?).await,
            ("POST", ["nodes", id]) => self.change_node(number(id)?, &read(body)?).await,
            ("POST", ["leaders"]) => self.set_leader(&read(body)?),
            ("POST", ["followers"]) => self.set_follower(&read(body)?),
            ("POST", ["coordinators"]) => self.set_coordinator(&read(body)?),
            ("POST", ["now"]) => self.work_now(read(body)?).await,
            ("POST", ["wait"]) => self.wait(&read(body)?).await,
            ("GET", ["requests"]) => Ok(self.requests()),
            ("GET", ["snapshots"]) => Ok(self.snapshot_names()),
            ("POST", ["snapshots"]) => self.take_snapshot(read(body)?),
            ("DELETE", ["snapshots", name]) => self.delete_snapshot(name),
            ("POST", ["snapshots", name, "restore"]) => self.restore_snapshot(name).await,
            ("GET", ["forks"]) => Ok(self.forks()),
            ("POST", ["forks"]) => self.start_fork(read_or_empty(body)?).await,
            ("DELETE", ["forks", id]) => self.end_fork(number(id)?).await,
            _ => Err(Refusal::NotFound({
                let path = parts.join("/");
                format!("there is no {method} /{path}: see docs/TESTING.md")
            })),
        }
    }

    fn overview(&self) -> Value {
        let cluster = self.cluster();
        let node = |id| json!({ "id": id, "up": cluster.is_up(id), "paused": cluster.is_paused(id) });
        let nodes = cluster.nodes().into_iter().map(node);
        json!({
            "cluster_id": cluster.id(),
            "nodes": nodes.collect::<Vec<_>>(),
            "faults": self.faults(),
            "disk_faults": self.disk_faults(),
        })
    }

    fn faults(&self) -> Vec<Value> {
        self.cluster().faults().iter().map(|(id, rule)| rule_json(*id, rule)).collect()
    }

    fn add_fault(&self, body: FaultBody) -> Result<Value, Refusal> {
        let rule = body.rule().map_err(Refusal::Invalid)?;
        if let Some(node) = rule.node.filter(|node| !self.cluster().nodes().contains(node)) {
            return Err(Refusal::NotFound(format!("there is no node {node}")));
        }
        let id = self.cluster().add_fault(rule).map_err(|error| Refusal::Invalid(error.to_string()))?;
        Ok(json!({ "id": id }))
    }

    fn remove_fault(&self, id: u64) -> Result<Value, Refusal> {
        found(self.cluster().remove_fault(id), || {
            format!("there is no fault {id}: its last request may have come")
        })
    }

    async fn add_asked_node(&self, body: NewNodeBody) -> Result<Value, Refusal> {
        self.add_node(body.id).await.map_err(|error| match error {
            AddNodeError::InvalidId(_) => Refusal::Invalid(error.to_string()),
            AddNodeError::Exists(_) | AddNodeError::TooMany(_) | AddNodeError::NoListener(_) => {
                Refusal::Conflict(error.to_string())
            }
        })?;
        Ok(json!({ "id": body.id }))
    }

    async fn change_node(&self, id: i32, body: &NodeBody) -> Result<Value, Refusal> {
        let cluster = self.cluster();
        if !cluster.nodes().contains(&id) {
            return Err(Refusal::NotFound(format!("there is no node {id}")));
        }
        // Before the other changes: a request that is refused changes nothing.
        if body.paused == Some(true) && !body.up.unwrap_or_else(|| cluster.is_up(id)) {
            return Err(not_to_pause(id));
        }
        if let Some(up) = body.up {
            let _is_there = if up { cluster.take_up(id) } else { cluster.take_down(id) };
        }
        if let Some(reachable) = body.reachable {
            cluster.set_reachable(id, reachable);
        }
        if let Some(lag_ms) = body.lag_ms {
            cluster.set_lag(id, Duration::from_millis(lag_ms));
        }
        match body.paused {
            Some(true) if !cluster.pause(id) => return Err(not_to_pause(id)),
            Some(true) | None => {}
            Some(false) => {
                cluster.resume(id);
            }
        }
        let moves_listeners = body.up.is_some() || body.reachable.is_some();
        let followed = tokio::time::timeout(LISTEN_WITHIN, cluster.listeners_followed(id));
        if moves_listeners && followed.await.is_err() {
            return Err(Refusal::Conflict(format!("node {id} cannot listen: its address is taken")));
        }
        Ok(json!({}))
    }

    fn set_leader(&self, body: &LeaderBody) -> Result<Value, Refusal> {
        let LeaderBody { topic, partition, node } = body;
        found(self.cluster().set_leader(topic, *partition, *node), || {
            format!(
                "there is no partition {partition} of topic `{topic}`, it is offline, or node {node} is not up"
            )
        })
    }

    fn set_follower(&self, body: &FollowerBody) -> Result<Value, Refusal> {
        let FollowerBody { topic, partition, node, low, high } = body;
        let (cluster, is_follower) = (self.cluster(), *node != NO_LEADER);
        if is_follower && !cluster.nodes().contains(node) {
            return Err(Refusal::NotFound(format!("there is no node {node}")));
        }
        if !is_follower && (low.is_some() || high.is_some()) {
            return Err(Refusal::Invalid("`low` and `high` are for a follower, and node -1 is none".into()));
        }
        if let Some(below) = [*low, *high].into_iter().flatten().find(|offset| *offset < 0) {
            return Err(Refusal::Invalid(format!("`low` and `high` are offsets from 0 on, not {below}")));
        }
        if cluster.partition(topic, *partition).is_none() {
            let error = format!("there is no partition {partition} of topic `{topic}`");
            return Err(Refusal::NotFound(error));
        }
        cluster.set_follower_offsets(topic, *partition, *low, *high);
        cluster.set_follower(topic, *partition, is_follower.then_some(*node));
        Ok(json!({}))
    }

    fn set_coordinator(&self, body: &CoordinatorBody) -> Result<Value, Refusal> {
        let node = body.node;
        let is_up = self.cluster().is_up(node);
        let moved = match (&body.group, &body.transactional_id) {
            (Some(group), None) => is_up && self.cluster().set_coordinator(group, node),
            (None, Some(id)) => is_up && self.cluster().set_transaction_coordinator(id, node),
            _ => return Err(Refusal::Invalid("expected either `group` or `transactional_id`".into())),
        };
        found(moved, || format!("node {node} is not up"))
    }

    async fn work_now(&self, body: NowBody) -> Result<Value, Refusal> {
        let cluster = self.cluster();
        match (body.action, body.topic.as_deref()) {
            (Work::ApplyRetention, None) => cluster.apply_retention_now().await,
            (Work::ExpireOffsets, None) => cluster.expire_offsets_now().await,
            (Work::AbortTimedOutTransactions, None) => cluster.abort_timed_out_transactions_now().await,
            (Work::Roll, Some(topic)) => {
                let rolled = cluster.roll_now(topic).await.map_err(|code| refused(topic, code))?;
                return Ok(json!({ "rolled": rolled }));
            }
            (Work::Compact, Some(topic)) => {
                cluster.compact_now(topic).await.map_err(|code| refused(topic, code))?;
            }
            (Work::Roll | Work::Compact, None) => {
                return Err(Refusal::Invalid("`roll` and `compact` need `topic`".into()));
            }
            (_, Some(_)) => return Err(Refusal::Invalid("only `roll` and `compact` take `topic`".into())),
        }
        Ok(json!({}))
    }

    async fn wait(&self, body: &WaitBody) -> Result<Value, Refusal> {
        let within = body.within().map_err(Refusal::Invalid)?;
        let of = (&body.group, &body.transactional_id, &body.state, &body.api, body.count);
        let awaited = match of {
            (Some(group), None, Some(state), None, None) => {
                known_state(state, GROUP_STATES)?;
                Awaited::Group { id: group, state }
            }
            (None, Some(id), Some(state), None, None) => {
                known_state(state, TRANSACTION_STATES)?;
                Awaited::Transaction { id, state }
            }
            (None, None, None, Some(api), Some(count)) => {
                let api = api_of(api).map_err(Refusal::Invalid)?;
                if !self.cluster().answers(api) {
                    return Err(Refusal::Invalid(FaultRuleError::NotAnswered(api).to_string()));
                }
                Awaited::Requests { api, count }
            }
            _ => {
                let forms =
                    "expected `group` and `state`, `transactional_id` and `state`, or `api` and `count`";
                return Err(Refusal::Invalid(forms.into()));
            }
        };
        // The cluster that the broker serves now: it is another one after a restore.
        let waits = wait_until(awaited, within, |since| awaited.look(&self.cluster(), since));
        let waited = tokio::select! {
            biased;
            waited = waits => waited,
            // A fork can end before the broker that carries its requests out.
            () = self.asks.closed() => return Err(Refusal::Conflict("the broker has stopped".into())),
        };
        waited.map(|()| json!({})).map_err(Refusal::TimedOut)
    }

    fn requests(&self) -> Value {
        let counts = self.cluster().request_counts().into_iter();
        Value::Object(counts.map(|(api, count)| (api.to_string(), json!(count))).collect::<Map<_, _>>())
    }
}

/// Refuses a state that is none of these, which a wait would never see.
fn known_state(state: &str, known: &[&str]) -> Result<(), Refusal> {
    if known.iter().any(|known| known.eq_ignore_ascii_case(state)) {
        return Ok(());
    }
    Err(Refusal::Invalid(format!("`{state}` is no state: expected one of {}", known.join(", "))))
}

fn not_to_pause(node: i32) -> Refusal {
    Refusal::Conflict(format!("node {node} is not up: it cannot be paused"))
}

pub(super) fn parts_of(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// The answer to a change of a thing that may not exist.
pub(super) fn found(is_there: bool, error: impl FnOnce() -> String) -> Result<Value, Refusal> {
    if is_there { Ok(json!({})) } else { Err(Refusal::NotFound(error())) }
}

fn refused(topic: &str, code: ErrorCode) -> Refusal {
    match code {
        ErrorCode::UnknownTopicOrPartition => Refusal::NotFound(format!("there is no topic `{topic}`")),
        ErrorCode::PolicyViolation => {
            Refusal::Conflict(format!("the `cleanup.policy` of topic `{topic}` is without `compact`"))
        }
        code => Refusal::Conflict(format!("topic `{topic}`: {code}; the broker's log says more")),
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::Invalid(format!("the body: {error}")))
}

/// The same, where every field may be missing and so may the body.
fn read_or_empty<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    read(if body.is_empty() { b"{}" } else { body })
}

pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, Refusal> {
    text.parse().map_err(|_| Refusal::Invalid(format!("`{text}` is no number")))
}
