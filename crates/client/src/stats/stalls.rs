//! Current stalls that the observer detects: of brokers, requests and the sender's records, and those that consumers report.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ottla_protocol::ApiKey;
use tokio::time::Instant;

use super::Observer;
use super::facts::ClientFacts;
use crate::watchdog::{ActiveStall, Stall};

/// The reachability of a broker.
#[derive(Debug)]
pub(crate) enum Reachability {
    /// A connection is open, or there was no attempt.
    Fine,
    /// No connection is open; the text describes the attempts.
    Trying(String),
}

/// The stalls that one consumer reports, until this is dropped.
#[derive(Debug)]
pub(crate) struct ConsumerStalls {
    observer: Arc<Observer>,
    id: u64,
}

impl ConsumerStalls {
    pub(crate) fn new(observer: Arc<Observer>) -> Self {
        let id = observer.next_id.fetch_add(1, Ordering::Relaxed);
        Self { observer, id }
    }

    pub(crate) fn set(&self, stalls: Vec<ActiveStall>) {
        self.observer.state().consumers.insert(self.id, stalls);
    }
}

impl Drop for ConsumerStalls {
    fn drop(&mut self) {
        self.observer.state().consumers.remove(&self.id);
    }
}

impl Observer {
    /// Returns `true` if any broker is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.state().brokers.values().any(|broker| broker.open > 0)
    }

    /// Returns the reachability of a node.
    pub(crate) fn reach(&self, node: i32) -> Reachability {
        let state = self.state();
        let Some(address) = state.nodes.get(&node) else { return Reachability::Fine };
        match state.brokers.get(address).and_then(|broker| Some((broker, broker.attempt.as_ref()?))) {
            Some((broker, attempt)) if broker.open == 0 && broker.trying_since.is_some() => {
                let last = if attempt.failure.is_empty() { "none has ended" } else { &attempt.failure };
                let count = attempt.count;
                Reachability::Trying(format!(
                    "attempt {count} to connect to {address}; the last failure: {last}"
                ))
            }
            _ => Reachability::Fine,
        }
    }

    /// Returns all current stalls.
    pub(crate) fn active_stalls(&self, facts: &ClientFacts<'_>, now: Instant) -> Vec<ActiveStall> {
        let config = facts.config;
        let state = self.state();
        let mut stalls = Vec::new();
        for (address, broker) in &state.brokers {
            // Without recent attempts the broker is not needed.
            let wanted_for = self.stall_after + config.reconnect_backoff_max * 2;
            if let (Some(since), Some(attempt)) = (broker.trying_since, &broker.attempt)
                && broker.open == 0
                && (attempt.under_way > 0 || attempt.at + wanted_for > now)
            {
                let last = if attempt.failure.is_empty() { "none has ended" } else { &attempt.failure };
                stalls.push(ActiveStall {
                    stall: Stall::NoConnection { broker: address.clone() },
                    since: Some(since),
                    trying: format!("attempt {} to connect; the last failure: {last}", attempt.count),
                });
            }
            for ((_, correlation_id), flight) in &broker.flights {
                let Some(written) = flight.written.filter(|_| !may_take_long(flight.api)) else { continue };
                let is_long_poll = matches!(flight.api, ApiKey::Fetch | ApiKey::ShareFetch);
                let poll = if is_long_poll { config.fetch_wait_max } else { Duration::ZERO };
                if written + poll + self.stall_after <= now {
                    stalls.push(ActiveStall {
                        stall: Stall::NoAnswer {
                            broker: address.clone(),
                            request: flight.api.name(),
                            correlation_id: *correlation_id,
                        },
                        since: Some(written + poll),
                        trying: format!(
                            "waiting, for {} ms in all; then the connection is closed and the request goes again",
                            config.socket_timeout.as_millis()
                        ),
                    });
                }
            }
        }
        let reachable = state.brokers.values().any(|broker| broker.open > 0);
        for held in &state.survey.partitions {
            // Without any connection, the missing connection is the stall.
            if held.leader.is_none() && held.waiting() > 0 && (held.is_known || reachable) {
                stalls.push(ActiveStall {
                    stall: Stall::NoLeader { topic: held.topic.clone(), partition: held.partition },
                    since: None,
                    trying: format!("asking for metadata; {} records wait", held.waiting()),
                });
            }
        }
        stalls.extend(state.consumers.values().flatten().cloned());
        let (reports, memory) = (facts.unread_reports, facts.memory);
        if reports > 0 && memory.is_full {
            stalls.push(ActiveStall {
                stall: Stall::ReportsUnread,
                since: None,
                trying: format!(
                    "nothing until reports are read: {reports} reports wait; {} of {} bytes are in use",
                    memory.bytes_used, memory.bytes_max
                ),
            });
        }
        stalls
    }
}

/// Requests whose response waits for other members.
fn may_take_long(api: ApiKey) -> bool {
    matches!(api, ApiKey::JoinGroup | ApiKey::SyncGroup)
}
