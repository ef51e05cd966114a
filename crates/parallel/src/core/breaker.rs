//! The circuit breaker: when everything fails, nothing is tried for a while.

use std::time::Duration;

use tokio::time::Instant;

/// What it does with failures.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct BreakerSettings {
    /// So many failures in a row open it.
    pub(crate) failures: u32,
    /// How long nothing is tried.
    pub(crate) pause: Duration,
}

/// Closed while things go well. Open, it lets nothing through until its pause is over, and then one piece of work: its
/// outcome decides.
#[derive(Debug)]
pub(crate) struct Breaker {
    settings: Option<BreakerSettings>,
    state: State,
    opened: u64,
}

#[derive(Debug)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant },
    Trying,
}

impl Breaker {
    /// Without settings it is always closed.
    pub(crate) fn new(settings: Option<BreakerSettings>) -> Self {
        Self { settings, state: State::Closed { failures: 0 }, opened: 0 }
    }

    /// Whether a piece of work may begin; who is told so begins it.
    pub(crate) fn lets_through(&mut self, now: Instant) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { until } if now < until => false,
            State::Open { .. } => {
                self.state = State::Trying;
                true
            }
            State::Trying => false,
        }
    }

    /// What let through was not begun after all, or nobody will say how it ended.
    pub(crate) fn forget_try(&mut self, now: Instant) {
        if matches!(self.state, State::Trying) {
            self.state = State::Open { until: now };
        }
    }

    pub(crate) fn on_success(&mut self) {
        match &mut self.state {
            State::Closed { failures } => *failures = 0,
            State::Trying => self.state = State::Closed { failures: 0 },
            // It began before the breaker opened: what is tried after the pause tells more.
            State::Open { .. } => {}
        }
    }

    pub(crate) fn on_failure(&mut self, now: Instant) {
        let Some(settings) = self.settings else { return };
        let opens = match &mut self.state {
            State::Closed { failures } => {
                *failures += 1;
                *failures >= settings.failures
            }
            State::Trying => true,
            State::Open { .. } => false,
        };
        if opens {
            self.state = State::Open { until: now + settings.pause };
            self.opened += 1;
        }
    }

    pub(crate) fn open_until(&self) -> Option<Instant> {
        match self.state {
            State::Open { until } => Some(until),
            State::Closed { .. } | State::Trying => None,
        }
    }

    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed { .. })
    }

    /// How often it has opened.
    pub(crate) const fn opened(&self) -> u64 {
        self.opened
    }

    /// After how many failures in a row a piece of work is not gone on with.
    pub(crate) fn failures_max(&self) -> u32 {
        self.settings.map_or(u32::MAX, |settings| settings.failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_try_after_the_pause_decides() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut breaker = Breaker::new(Some(BreakerSettings { failures: 2, pause: Duration::from_secs(10) }));
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
}
