//! The task that passes a consumer's state to the watchdog, five times per `stall_after`, and restarts fetch sessions.

use std::rc::Rc;

use tokio::time::Instant;

use super::Shared;
use super::poll_activity::LastPoll;
use crate::stats::ConsumerStalls;
use crate::watchdog::LOOKS;
use crate::watchdog::consumer::{ConsumerFacts, ConsumerWatch};

/// Runs until its owner drops it.
pub(super) async fn run(shared: Rc<Shared>) {
    let observer = &shared.cluster.observer;
    let after = observer.stall_after;
    if after.is_zero() {
        return;
    }
    let stalls = ConsumerStalls::new(observer.clone());
    let mut watch = ConsumerWatch::default();
    let mut last_poll = LastPoll::new(&shared.polls, Instant::now());
    let snapshot = &shared.cursors.snapshot;
    loop {
        tokio::time::sleep(after / LOOKS).await;
        snapshot.wanted.set(true);
        shared.cursors.changed.notify_one();
        snapshot.answered.notified().await;
        let now = Instant::now();
        let poll_age = last_poll.age(&shared.polls, now);
        let budget = &shared.inbox.budget;
        let facts = ConsumerFacts {
            partitions: snapshot.found.take(),
            poll_age,
            budget_used: budget.used(),
            budget_max: budget.max(),
            queued_bytes: shared.inbox.bytes(),
            group: shared
                .coordinator
                .as_ref()
                .map(|coordinator| shared.status.facts(coordinator, observer, poll_age, after)),
        };
        let result = watch.look(now, after, &facts);
        if !result.restart.is_empty() {
            snapshot.restart.borrow_mut().extend(result.restart);
            shared.cursors.changed.notify_one();
        }
        stalls.set(result.stalls);
    }
}
