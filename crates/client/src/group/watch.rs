//! The task that shows a consumer to the watchdog, every fifth of the time after which it speaks, and applies what helps.

use std::rc::Rc;

use tokio::time::Instant;

use super::Shared;
use super::polls::LastPoll;
use crate::stats::{ConsumerFindings, LOOKS};
use crate::watchdog::consumer::{ConsumerFacts, ConsumerWatch};

/// Runs until its owner drops it.
pub(super) async fn run(shared: Rc<Shared>) {
    let observer = &shared.cluster.observer;
    let after = observer.stall_after;
    if after.is_zero() {
        return;
    }
    let told = ConsumerFindings::new(observer.clone());
    let mut watch = ConsumerWatch::default();
    let mut last_poll = LastPoll::new(&shared.polls, Instant::now());
    let survey = &shared.cursors.survey;
    loop {
        tokio::time::sleep(after / LOOKS).await;
        survey.wanted.set(true);
        shared.cursors.changed.notify_one();
        survey.answered.notified().await;
        let now = Instant::now();
        let poll_age = last_poll.age(&shared.polls, now);
        let budget = &shared.inbox.budget;
        let facts = ConsumerFacts {
            partitions: survey.found.take(),
            poll_age,
            budget_used: budget.used(),
            budget_max: budget.max(),
            queued_bytes: shared.inbox.bytes(),
            group: shared
                .coordinator
                .as_ref()
                .map(|coordinator| shared.standing.facts(coordinator, observer, poll_age, after)),
        };
        let verdicts = watch.look(now, after, &facts);
        if !verdicts.restart.is_empty() {
            survey.restart.borrow_mut().extend(verdicts.restart);
            shared.cursors.changed.notify_one();
        }
        told.set(verdicts.findings);
    }
}
