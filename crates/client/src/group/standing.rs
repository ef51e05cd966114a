//! Where a member stands with its group, for the watchdog: noted by the membership, read now and then.

use std::cell::RefCell;
use std::time::Duration;

use tokio::time::Instant;

use super::coordinator::{Call, Coordinator};
use crate::stats::{Observer, Reach};
use crate::watchdog::cause::{Cause, Trouble};
use crate::watchdog::consumer::GroupFacts;

/// What a membership is about.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// There is none.
    Out,
    /// It joins, and waits for its share.
    Joining,
    /// The application is told that it loses partitions, and is waited for.
    GivingUp,
    /// It looks up where to begin with what it was given.
    Taking,
    /// It has what it was given.
    Settled,
    /// The application does not poll: the others go on without it.
    Late,
    /// It was refused, and tries again when the application polls.
    Refused(Trouble),
}

impl Step {
    const fn is_at_rest(&self) -> bool {
        matches!(self, Self::Out | Self::Settled)
    }
}

#[derive(Debug)]
pub(super) struct Standing(RefCell<(Step, Instant)>);

impl Standing {
    pub(super) fn new(now: Instant) -> Self {
        Self(RefCell::new((Step::Out, now)))
    }

    /// The next step. Time counts from the first that is not at rest.
    pub(super) fn step(&self, step: Step, coordinator: Option<&Coordinator>) {
        if let Some(coordinator) = coordinator {
            coordinator.debug(|| format!("{step:?}"));
        }
        let mut standing = self.0.borrow_mut();
        if standing.0.is_at_rest() {
            standing.1 = Instant::now();
        }
        standing.0 = step;
    }

    pub(super) fn facts(
        &self,
        coordinator: &Coordinator,
        observer: &Observer,
        poll_age: Duration,
        after: Duration,
    ) -> GroupFacts {
        let (step, since) = self.0.borrow().clone();
        let polls = poll_age < after;
        let (since, trouble) = match &step {
            Step::Out | Step::Settled => {
                coordinator.trouble().map_or((since, None), |(since, trouble)| (since, Some(trouble)))
            }
            Step::Refused(trouble) => {
                let text = format!("trying again when the application polls; {}", trouble.text);
                (since, Some(Trouble { cause: trouble.cause, text }))
            }
            Step::Late => (since, Some(not_polled("joining again with the next poll"))),
            Step::GivingUp if !polls => (since, Some(not_polled("a revocation waits to be polled"))),
            Step::GivingUp => {
                (since, Some(waiting("the application gives partitions up: it says so with its next poll")))
            }
            Step::Joining | Step::Taking => (since, Some(held_up(coordinator, observer))),
        };
        GroupFacts { group: coordinator.group().into(), unsettled: !step.is_at_rest(), since, trouble }
    }
}

fn not_polled(text: &str) -> Trouble {
    Trouble { cause: Cause::NotPolled, text: text.to_owned() }
}

fn waiting(text: &str) -> Trouble {
    Trouble { cause: Cause::Rebalance, text: text.to_owned() }
}

/// What the coordinator is asked for and does not give.
fn held_up(coordinator: &Coordinator, observer: &Observer) -> Trouble {
    let last = coordinator.trouble().map(|(_, trouble)| trouble);
    match coordinator.calls().first() {
        Some(Call::Finding(_)) | None if last.is_some() => {
            let Trouble { cause, text } = last.unwrap_or_else(|| waiting("joining"));
            Trouble { cause, text: format!("looking for the coordinator again; the last problem: {text}") }
        }
        Some(Call::Finding(since)) => {
            let ms = since.elapsed().as_millis();
            Trouble { cause: Cause::NoCoordinator, text: format!("looking for the coordinator for {ms} ms") }
        }
        Some(Call::Connecting(node)) => {
            let text = match observer.reach(*node) {
                Reach::Trying(text) => text,
                Reach::Fine => "connecting".into(),
            };
            Trouble { cause: Cause::NoConnection, text: format!("coordinator at node {node}: {text}") }
        }
        Some(call @ Call::Asked { node, api, since }) => {
            let (name, ms) = (api.name(), since.elapsed().as_millis());
            if call.waits_for_members() {
                waiting(&format!("{name} to node {node} for {ms} ms; it waits for the other members"))
            } else {
                let text = format!("{name} to node {node} for {ms} ms; then the connection is dropped");
                Trouble { cause: Cause::NoAnswer, text }
            }
        }
        None if !observer.is_connected() => {
            Trouble { cause: Cause::NoConnection, text: "connecting to any broker".into() }
        }
        None => waiting("waiting for the group to give this member its partitions"),
    }
}
