//! The circuit breaker: it pauses all work after too many failures in a row.

use std::time::Duration;

use tokio::time::Instant;

use super::work::AssignmentId;
use crate::deadline::after;

/// Settings of the circuit breaker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct BreakerSettings {
    /// Number of consecutive failures that opens the breaker.
    pub(crate) failures: u32,
    /// Time that the breaker stays open at first. It doubles with each trial that fails.
    pub(crate) pause: Duration,
    /// Maximum time that the breaker stays open.
    pub(crate) pause_max: Duration,
}

/// Closed, the breaker lets all work through. Open, it lets nothing through until the pause is over. It then lets one
/// work item through, whose outcome closes or reopens it. The worker of this trial stops at the first failure.
#[derive(Debug)]
pub(crate) struct Breaker {
    settings: Option<BreakerSettings>,
    state: State,
    opened: u64,
    /// The number of times that it has opened since it was last closed.
    opened_in_a_row: u32,
}

#[derive(Debug)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    /// This work item decides. The pause has ended at this time.
    Trial {
        assignment: AssignmentId,
        age: u64,
        until: Instant,
    },
}

/// The failures of a work item that a retry may resolve, in a row. Others say nothing about the handler's target. Runs between
/// two successes are shorter than those that stop the worker, so they cannot open the breaker.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct FailureRuns {
    /// The failures before the first success, or all.
    pub(crate) first: u32,
    /// The failures after the last success; `None` without a success.
    pub(crate) last: Option<u32>,
}

impl FailureRuns {
    pub(crate) fn succeed(&mut self) {
        self.last = Some(0);
    }

    pub(crate) fn fail(&mut self) {
        *self.last.as_mut().unwrap_or(&mut self.first) += 1;
    }

    /// The failures in a row up to now.
    pub(crate) fn in_a_row(&self) -> u32 {
        self.last.unwrap_or(self.first)
    }
}

impl Breaker {
    /// Without settings the breaker is always closed.
    pub(crate) fn new(settings: Option<BreakerSettings>) -> Self {
        Self { settings, state: State::Closed { failures: 0 }, opened: 0, opened_in_a_row: 0 }
    }

    /// `true` if a work item may start.
    pub(crate) fn lets_through(&self, now: Instant) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until } => now >= until,
            State::Trial { .. } => false,
        }
    }

    /// Notes that a work item has started. After the pause it is the trial.
    pub(crate) fn on_start(&mut self, assignment: AssignmentId, age: u64) {
        if let State::Open { until } = self.state {
            self.state = State::Trial { assignment, age, until };
        }
    }

    /// Cancels the trial if it is a work item of this assignment, which has ended: its outcome may never come.
    pub(crate) fn remove(&mut self, ended: AssignmentId) {
        if let State::Trial { assignment, until, .. } = self.state
            && assignment == ended
        {
            self.state = State::Open { until };
        }
    }

    /// Applies the outcome of the work item with this age. While the breaker is not closed, only the outcome of the trial counts:
    /// other work items started before it opened.
    pub(crate) fn on_outcome(&mut self, age: u64, runs: FailureRuns, now: Instant) {
        let Some(settings) = self.settings else { return };
        let before = match self.state {
            State::Closed { failures } => failures,
            State::Trial { age: trial, until, .. } if trial == age => match runs {
                // A trial without a result, such as a record that the handler refused: the next work item is the trial.
                FailureRuns { first: 0, last: None } => {
                    self.state = State::Open { until };
                    return;
                }
                FailureRuns { first: 0, last: Some(_) } => {
                    self.opened_in_a_row = 0;
                    0
                }
                FailureRuns { .. } => return self.open(&settings, now),
            },
            State::Trial { .. } | State::Open { .. } => return,
        };
        let first = before.saturating_add(runs.first);
        let failures = runs.last.unwrap_or(first);
        self.state = State::Closed { failures };
        if failures.max(first) >= settings.failures {
            self.open(&settings, now);
        }
    }

    fn open(&mut self, settings: &BreakerSettings, now: Instant) {
        let doubled = settings.pause.saturating_mul(1 << self.opened_in_a_row.min(20));
        let pause = doubled.min(settings.pause_max).max(settings.pause);
        self.state = State::Open { until: after(now, pause) };
        self.opened += 1;
        self.opened_in_a_row = self.opened_in_a_row.saturating_add(1);
    }

    pub(crate) fn open_until(&self) -> Option<Instant> {
        match self.state {
            State::Open { until } => Some(until),
            State::Closed { .. } | State::Trial { .. } => None,
        }
    }

    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed { .. })
    }

    /// Returns the number of times that the breaker has opened.
    pub(crate) const fn opened(&self) -> u64 {
        self.opened
    }

    /// The number of consecutive failures after which a worker stops a work item.
    pub(crate) fn failures_max(&self) -> u32 {
        self.settings.map_or(u32::MAX, |settings| settings.failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNED: AssignmentId = AssignmentId { slot: 0, generation: 0 };
    const FAILED: FailureRuns = FailureRuns { first: 1, last: None };
    const SUCCEEDED: FailureRuns = FailureRuns { first: 0, last: Some(0) };

    fn breaker(failures: u32, pause_s: u64, pause_max_s: u64) -> Breaker {
        let (pause, pause_max) = (Duration::from_secs(pause_s), Duration::from_secs(pause_max_s));
        Breaker::new(Some(BreakerSettings { failures, pause, pause_max }))
    }

    #[test]
    fn one_trial_after_the_pause_closes_or_reopens_it() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut breaker = breaker(2, 10, 10);
        breaker.on_outcome(1, FAILED, at(0));
        breaker.on_outcome(2, SUCCEEDED, at(0));
        breaker.on_outcome(3, FAILED, at(0));
        assert!(breaker.lets_through(at(0)), "two failures, but not in a row");
        breaker.on_outcome(4, FAILED, at(1));
        assert!(!breaker.lets_through(at(10)));
        assert!(breaker.lets_through(at(11)));
        breaker.on_start(OWNED, 5);
        assert!(!breaker.lets_through(at(11)), "one is enough to find out");
        breaker.on_outcome(5, FAILED, at(12));
        assert!(!breaker.lets_through(at(21)));
        assert!(breaker.lets_through(at(22)));
        breaker.on_start(OWNED, 6);
        breaker.on_outcome(6, SUCCEEDED, at(22));
        assert!(breaker.is_closed() && breaker.lets_through(at(22)));
        assert_eq!(breaker.opened(), 2);
    }

    #[test]
    fn only_failures_in_a_row_open_it_also_within_a_work_item() {
        let now = Instant::now();
        let mut breaker = breaker(3, 10, 10);
        let mut runs = FailureRuns::default();
        for succeeds in [false, true, false, true, false] {
            if succeeds { runs.succeed() } else { runs.fail() }
        }
        assert_eq!((runs, runs.in_a_row()), (FailureRuns { first: 1, last: Some(1) }, 1));
        breaker.on_outcome(1, runs, now);
        assert!(breaker.is_closed(), "three failures, but not in a row");
        breaker.on_outcome(2, FailureRuns { first: 2, last: Some(0) }, now);
        assert!(!breaker.is_closed(), "three in a row, of two work items");
    }

    #[test]
    fn a_pause_without_limit_is_no_panic() {
        let now = Instant::now();
        let mut breaker = breaker(1, u64::MAX, u64::MAX);
        breaker.on_outcome(1, FAILED, now);
        assert!(!breaker.lets_through(now));
    }

    #[test]
    fn only_the_trial_or_the_end_of_its_assignment_decides() {
        let now = Instant::now();
        let mut breaker = breaker(1, 0, 0);
        breaker.on_outcome(1, FAILED, now);
        breaker.on_start(OWNED, 5);
        for runs in [SUCCEEDED, FAILED, FailureRuns::default()] {
            breaker.on_outcome(2, runs, now);
            assert!(!breaker.is_closed() && !breaker.lets_through(now), "{runs:?} of an older work item");
        }
        breaker.remove(AssignmentId { slot: 1, generation: 0 });
        assert!(!breaker.lets_through(now));
        breaker.remove(OWNED);
        assert!(breaker.lets_through(now), "the next work item is the trial");
        breaker.on_outcome(5, SUCCEEDED, now);
        assert!(!breaker.is_closed());
    }

    #[test]
    fn the_pause_doubles_up_to_its_maximum_and_begins_again_after_a_success() {
        let mut now = Instant::now();
        let mut breaker = breaker(1, 1, 3);
        let mut pauses = Vec::new();
        for age in 0..4 {
            breaker.on_outcome(age, FAILED, now);
            let until = breaker.open_until().expect("open");
            pauses.push((until - now).as_secs());
            now = until;
            assert!(breaker.lets_through(now));
            breaker.on_start(OWNED, age + 1);
        }
        assert_eq!(pauses, [1, 2, 3, 3]);
        breaker.on_outcome(4, SUCCEEDED, now);
        breaker.on_outcome(5, FAILED, now);
        assert_eq!(breaker.open_until(), Some(now + Duration::from_secs(1)));
    }
}
