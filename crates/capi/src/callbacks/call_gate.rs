//! Calls of an application's function from threads of the library, which end before the client does.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// Counts the running calls of a function. After [`CallGate::close`] no call starts.
#[derive(Default)]
pub(crate) struct CallGate {
    calls: Mutex<Calls>,
    returned: Condvar,
}

#[derive(Default)]
struct Calls {
    closed: bool,
    /// The thread of each running call; a call may log and so contain another.
    threads: Vec<ThreadId>,
}

/// A running call; it ends when this is dropped.
pub(crate) struct GatedCall<'a>(&'a CallGate);

impl CallGate {
    /// Starts a call, unless the gate is closed.
    pub(crate) fn enter(&self) -> Option<GatedCall<'_>> {
        let mut calls = self.lock();
        if calls.closed {
            return None;
        }
        calls.threads.push(current());
        Some(GatedCall(self))
    }

    /// Lets no further call start and waits for the running ones. Calls of the current thread return later: it may be
    /// inside the function.
    pub(crate) fn close(&self) {
        let own = current();
        let mut calls = self.lock();
        calls.closed = true;
        while calls.threads.iter().any(|thread| *thread != own) {
            calls = self.returned.wait(calls).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for GatedCall<'_> {
    fn drop(&mut self) {
        let own = current();
        let mut calls = self.0.lock();
        if let Some(at) = calls.threads.iter().rposition(|thread| *thread == own) {
            calls.threads.swap_remove(at);
        }
        drop(calls);
        self.0.returned.notify_all();
    }
}

#[allow(clippy::disallowed_methods, reason = "a shell: the id of the thread that C runs")]
fn current() -> ThreadId {
    std::thread::current().id()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_gate_lets_no_call_start() {
        let gate = CallGate::default();
        drop(gate.enter().expect("it is open"));
        gate.close();
        assert!(gate.enter().is_none());
    }

    #[test]
    fn a_call_may_close_the_gate_around_itself() {
        let gate = CallGate::default();
        let _outer = gate.enter().expect("it is open");
        let _inner = gate.enter().expect("it is open");
        gate.close();
        assert!(gate.enter().is_none());
    }
}
