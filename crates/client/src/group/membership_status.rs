//! The step that a membership has reached, for the watchdog: written by the membership, read at intervals.

use std::cell::RefCell;
use std::time::Duration;

use tokio::time::Instant;

use super::coordinator::{Coordinator, RequestProgress};
use crate::stats::{Observer, Reachability};
use crate::watchdog::cause::{Cause, StallReason};
use crate::watchdog::consumer::GroupFacts;

/// A step of a membership.
#[derive(Clone, Debug)]
pub(crate) enum MembershipStep {
    /// There is no membership.
    Out,
    /// It joins, and waits for its assignment.
    Joining,
    /// It waits until the application has processed a revocation.
    GivingUp,
    /// It looks up the start offsets of its assignment.
    Taking,
    /// It consumes its assignment.
    Settled,
    /// The application does not poll: the member left the group.
    Late,
    /// The coordinator refused it; it retries when the application polls.
    Refused(StallReason),
}

impl MembershipStep {
    /// librdkafka's name of the step.
    const fn join_state(&self) -> &'static str {
        match self {
            Self::Out | Self::Late | Self::Refused(_) => "init",
            Self::Joining => "wait-join",
            Self::GivingUp => "wait-unassign-call",
            Self::Taking => "wait-assign-call",
            Self::Settled => "steady",
        }
    }

    const fn is_at_rest(&self) -> bool {
        matches!(self, Self::Out | Self::Settled)
    }
}

#[derive(Debug)]
pub(crate) struct MembershipStatus(RefCell<(MembershipStep, Instant)>);

impl MembershipStatus {
    pub(crate) fn new(now: Instant) -> Self {
        Self(RefCell::new((MembershipStep::Out, now)))
    }

    /// Enters the next step. The time of a stall starts at the first step that is not at rest.
    pub(crate) fn step(&self, step: MembershipStep, coordinator: Option<&Coordinator>) {
        if let Some(coordinator) = coordinator {
            coordinator.debug("CGRPSTATE", || format!("changed state to {step:?}"));
            coordinator.observer().join_state(step.join_state());
        }
        let mut status = self.0.borrow_mut();
        if status.0.is_at_rest() {
            status.1 = Instant::now();
        }
        status.0 = step;
    }

    pub(crate) fn facts(
        &self,
        coordinator: &Coordinator,
        observer: &Observer,
        poll_age: Duration,
        after: Duration,
    ) -> GroupFacts {
        let (step, since) = self.0.borrow().clone();
        let polls = poll_age < after;
        let (since, trouble) = match &step {
            MembershipStep::Out | MembershipStep::Settled => {
                coordinator.trouble().map_or((since, None), |(since, trouble)| (since, Some(trouble)))
            }
            MembershipStep::Refused(trouble) => {
                let text = format!("trying again when the application polls; {}", trouble.text);
                (since, Some(StallReason { cause: trouble.cause, text }))
            }
            MembershipStep::Late => (since, Some(not_polled("joining again with the next poll"))),
            MembershipStep::GivingUp if !polls => {
                (since, Some(not_polled("a revocation waits to be polled")))
            }
            MembershipStep::GivingUp => {
                (since, Some(waiting("the application gives partitions up: its next poll reports that")))
            }
            MembershipStep::Joining | MembershipStep::Taking => (since, Some(held_up(coordinator, observer))),
        };
        GroupFacts { group: coordinator.group().into(), unsettled: !step.is_at_rest(), since, trouble }
    }
}

fn not_polled(text: &str) -> StallReason {
    StallReason { cause: Cause::NotPolled, text: text.to_owned() }
}

fn waiting(text: &str) -> StallReason {
    StallReason { cause: Cause::Rebalance, text: text.to_owned() }
}

/// Returns the reason why the coordinator keeps the member waiting.
fn held_up(coordinator: &Coordinator, observer: &Observer) -> StallReason {
    let last = coordinator.trouble().map(|(_, trouble)| trouble);
    match coordinator.calls().first() {
        Some(RequestProgress::Finding(_)) | None if last.is_some() => {
            let StallReason { cause, text } = last.unwrap_or_else(|| waiting("joining"));
            StallReason {
                cause,
                text: format!("looking for the coordinator again; the last problem: {text}"),
            }
        }
        Some(RequestProgress::Finding(since)) => {
            let ms = since.elapsed().as_millis();
            StallReason {
                cause: Cause::NoCoordinator,
                text: format!("looking for the coordinator for {ms} ms"),
            }
        }
        Some(RequestProgress::Connecting(node)) => {
            let text = match observer.reach(*node) {
                Reachability::Trying(text) => text,
                Reachability::Fine => "connecting".into(),
            };
            StallReason { cause: Cause::NoConnection, text: format!("coordinator at node {node}: {text}") }
        }
        Some(call @ RequestProgress::Sent { node, api, since }) => {
            let (name, ms) = (api.name(), since.elapsed().as_millis());
            if call.waits_for_members() {
                waiting(&format!("{name} to node {node} for {ms} ms; it waits for the other members"))
            } else {
                let text = format!("{name} to node {node} for {ms} ms; then the connection is dropped");
                StallReason { cause: Cause::NoAnswer, text }
            }
        }
        None if !observer.is_connected() => {
            StallReason { cause: Cause::NoConnection, text: "connecting to any broker".into() }
        }
        None => waiting("waiting for the group to give this member its partitions"),
    }
}
