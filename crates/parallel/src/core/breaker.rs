//! The circuit breaker: it pauses all work after too many failures in a row.

use std::time::Duration;

use tokio::time::Instant;

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
/// work item through, whose outcome closes or reopens it.
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
    Closed { failures: u32 },
    Open { until: Instant },
    Trial,
}

impl Breaker {
    /// Without settings the breaker is always closed.
    pub(crate) fn new(settings: Option<BreakerSettings>) -> Self {
        Self { settings, state: State::Closed { failures: 0 }, opened: 0, opened_in_a_row: 0 }
    }

    /// `true` if a work item may start. A caller that receives `true` must start one or call
    /// [`Breaker::cancel_trial`].
    pub(crate) fn lets_through(&mut self, now: Instant) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until } if now < until => false,
            State::Open { .. } => {
                self.state = State::Trial;
                true
            }
            State::Trial => false,
        }
    }

    /// Cancels the trial: its work item did not start, or ended without a result.
    pub(crate) fn cancel_trial(&mut self, now: Instant) {
        if matches!(self.state, State::Trial) {
            self.state = State::Open { until: now };
        }
    }

    pub(crate) fn on_success(&mut self) {
        match &mut self.state {
            State::Closed { failures } => *failures = 0,
            State::Trial => {
                self.state = State::Closed { failures: 0 };
                self.opened_in_a_row = 0;
            }
            // This work item started before the breaker opened; only the trial after the pause closes it.
            State::Open { .. } => {}
        }
    }

    /// Counts a failure that a retry may resolve. Others say nothing about the handler's target.
    pub(crate) fn on_failure(&mut self, now: Instant) {
        let Some(settings) = self.settings else { return };
        let opens = match &mut self.state {
            State::Closed { failures } => {
                *failures += 1;
                *failures >= settings.failures
            }
            State::Trial => true,
            State::Open { .. } => false,
        };
        if opens {
            let doubled = settings.pause.saturating_mul(1 << self.opened_in_a_row.min(20));
            let pause = doubled.min(settings.pause_max).max(settings.pause);
            self.state = State::Open { until: now + pause };
            self.opened += 1;
            self.opened_in_a_row = self.opened_in_a_row.saturating_add(1);
        }
    }

    pub(crate) fn open_until(&self) -> Option<Instant> {
        match self.state {
            State::Open { until } => Some(until),
            State::Closed { .. } | State::Trial => None,
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

    #[test]
    fn one_trial_after_the_pause_closes_or_reopens_it() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let pause = Duration::from_secs(10);
        let mut breaker = Breaker::new(Some(BreakerSettings { failures: 2, pause, pause_max: pause }));
        breaker.on_failure(at(0));
        breaker.on_success();
        breaker.on_failure(at(0));
        assert!(breaker.lets_through(at(0)), "two failures, but not in a row");
        breaker.on_failure(at(1));
        assert!(!breaker.lets_through(at(10)));
        assert!(breaker.lets_through(at(11)));
        assert!(!breaker.lets_through(at(11)), "one is enough to find out");
        breaker.on_failure(at(12));
        assert!(!breaker.lets_through(at(21)));
        assert!(breaker.lets_through(at(22)));
        breaker.on_success();
        assert!(breaker.is_closed() && breaker.lets_through(at(22)));
        assert_eq!(breaker.opened(), 2);
    }

    #[test]
    fn the_pause_doubles_up_to_its_maximum_and_begins_again_after_a_success() {
        let mut now = Instant::now();
        let (pause, pause_max) = (Duration::from_secs(1), Duration::from_secs(3));
        let mut breaker = Breaker::new(Some(BreakerSettings { failures: 1, pause, pause_max }));
        let mut pauses = Vec::new();
        for _ in 0..4 {
            breaker.on_failure(now);
            let until = breaker.open_until().expect("open");
            pauses.push((until - now).as_secs());
            now = until;
            assert!(breaker.lets_through(now));
        }
        assert_eq!(pauses, [1, 2, 3, 3]);
        breaker.on_success();
        breaker.on_failure(now);
        assert_eq!(breaker.open_until(), Some(now + pause));
    }
}
