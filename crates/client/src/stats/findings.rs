//! What does not go on at this moment, as far as the observer sees it: brokers, requests, the sender's records, and what
//! each consumer has found out about itself.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ottla_protocol::ApiKey;
use tokio::time::Instant;

use super::Observer;
use crate::produce::Produce;
use crate::watchdog::{Finding, Stall};

/// How a broker stands, seen from here.
#[derive(Debug)]
pub(crate) enum Reach {
    /// A connection is open, or nobody has tried.
    Fine,
    /// None is open, and what has become of the attempts.
    Trying(String),
}

/// What one consumer has found out about itself, until this is dropped.
#[derive(Debug)]
pub(crate) struct ConsumerFindings {
    observer: Arc<Observer>,
    id: u64,
}

impl ConsumerFindings {
    pub(crate) fn new(observer: Arc<Observer>) -> Self {
        let id = observer.next_wire.fetch_add(1, Ordering::Relaxed);
        Self { observer, id }
    }

    pub(crate) fn set(&self, findings: Vec<Finding>) {
        self.observer.state().consumers.insert(self.id, findings);
    }
}

impl Drop for ConsumerFindings {
    fn drop(&mut self) {
        self.observer.state().consumers.remove(&self.id);
    }
}

impl Observer {
    /// Whether any broker is connected.
    pub(crate) fn is_connected(&self) -> bool {
        self.state().brokers.values().any(|broker| broker.open > 0)
    }

    /// Whether a node can be talked to.
    pub(crate) fn reach(&self, node: i32) -> Reach {
        let state = self.state();
        let Some(address) = state.nodes.get(&node) else { return Reach::Fine };
        match state.brokers.get(address).and_then(|broker| Some((broker, broker.attempt.as_ref()?))) {
            Some((broker, attempt)) if broker.open == 0 && broker.trying_since.is_some() => {
                let last = if attempt.failure.is_empty() { "none has ended" } else { &attempt.failure };
                let count = attempt.count;
                Reach::Trying(format!("attempt {count} to connect to {address}; the last failure: {last}"))
            }
            _ => Reach::Fine,
        }
    }

    /// Everything that does not go on at this moment.
    pub(super) fn findings(&self, produce: &Produce, now: Instant) -> Vec<Finding> {
        let config = &produce.config;
        let state = self.state();
        let mut findings = Vec::new();
        for (address, broker) in &state.brokers {
            // Nobody has tried for a while: nobody needs it.
            let wanted_for = self.stall_after + config.reconnect_backoff_max * 2;
            if let (Some(since), Some(attempt)) = (broker.trying_since, &broker.attempt)
                && broker.open == 0
                && (attempt.under_way || attempt.at + wanted_for > now)
            {
                let last = if attempt.failure.is_empty() { "none has ended" } else { &attempt.failure };
                findings.push(Finding {
                    stall: Stall::NoConnection { broker: address.clone() },
                    since: Some(since),
                    trying: format!("attempt {} to connect; the last failure: {last}", attempt.count),
                });
            }
            for ((_, correlation_id), flight) in &broker.flights {
                let Some(written) = flight.written.filter(|_| !may_take_long(flight.api)) else { continue };
                let poll = if flight.api == ApiKey::Fetch { config.fetch_wait_max } else { Duration::ZERO };
                if written + poll + self.stall_after <= now {
                    findings.push(Finding {
                        stall: Stall::NoAnswer {
                            broker: address.clone(),
                            request: flight.api.name(),
                            correlation_id: *correlation_id,
                        },
                        since: Some(written + poll),
                        trying: format!(
                            "waiting, for {} ms in all; then the connection is closed and the request goes again",
                            config.request_timeout.as_millis()
                        ),
                    });
                }
            }
        }
        let reachable = state.brokers.values().any(|broker| broker.open > 0);
        for held in &state.survey.partitions {
            // Without any connection, that is what is stuck.
            if held.leader.is_none() && held.waiting() > 0 && (held.is_known || reachable) {
                findings.push(Finding {
                    stall: Stall::NoLeader { topic: held.topic.clone(), partition: held.partition },
                    since: None,
                    trying: format!("asking for metadata; {} records wait", held.waiting()),
                });
            }
        }
        findings.extend(state.consumers.values().flatten().cloned());
        let (reports, memory) = (produce.reports.len(), &produce.queues.memory);
        if reports > 0 && memory.is_full() {
            findings.push(Finding {
                stall: Stall::ReportsUnread,
                since: None,
                trying: format!(
                    "nothing until reports are read: {reports} reports wait; {} of {} bytes are in use",
                    memory.used(),
                    memory.max()
                ),
            });
        }
        findings
    }
}

/// Requests whose answer may take as long as others please.
fn may_take_long(api: ApiKey) -> bool {
    matches!(api, ApiKey::JoinGroup | ApiKey::SyncGroup)
}
