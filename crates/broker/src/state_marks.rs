//! The times at which the states of groups and transactional ids have begun, for the waits of tests: a state can last for
//! microseconds.

use std::sync::atomic::{AtomicU64, Ordering};

/// The number of states that have begun in this process. It orders them without a clock.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// A time between the beginnings of states.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Mark(u64);

impl Mark {
    pub(crate) fn now() -> Self {
        Self(BEGUN.load(Ordering::SeqCst))
    }
}

/// The last beginning of each of `N` states.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginnings<const N: usize>([Mark; N]);

impl<const N: usize> Default for Beginnings<N> {
    /// No state has begun.
    fn default() -> Self {
        Self([Mark(0); N])
    }
}

impl<const N: usize> Beginnings<N> {
    /// Notes that the state with this index begins.
    pub(crate) fn note(&mut self, state: usize) {
        self.0[state] = Mark(BEGUN.fetch_add(1, Ordering::SeqCst) + 1);
    }

    /// Returns `true` if the state with this index has begun since a time.
    pub(crate) fn has_begun_since(&self, state: usize, since: Mark) -> bool {
        self.0[state] > since
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_has_begun_since_the_times_before_its_last_beginning() {
        let mut begun = Beginnings::<2>::default();
        let before = Mark::now();
        assert!(!begun.has_begun_since(0, before));
        begun.note(0);
        let between = Mark::now();
        begun.note(1);
        assert!(begun.has_begun_since(0, before) && begun.has_begun_since(1, before));
        assert!(!begun.has_begun_since(0, between) && begun.has_begun_since(1, between));
    }
}
