//! A deliberate fault, for the proof that the simulation finds it: see `ottla_log::deliberate`.

#[cfg(feature = "deliberate-faults")]
mod current {
    use std::cell::Cell;

    thread_local! {
        static COMMITS_HIGHEST: Cell<bool> = const { Cell::new(false) };
    }

    /// Makes processors on this thread commit the highest finished offset, whatever is unfinished before it.
    pub fn commit_highest(faulty: bool) {
        COMMITS_HIGHEST.set(faulty);
    }

    pub(crate) fn commits_highest() -> bool {
        COMMITS_HIGHEST.get()
    }
}

#[cfg(not(feature = "deliberate-faults"))]
mod current {
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "a constant, which removes the code behind it")]
    pub(crate) const fn commits_highest() -> bool {
        false
    }
}

#[cfg(feature = "deliberate-faults")]
pub use current::commit_highest;
pub(crate) use current::commits_highest;
