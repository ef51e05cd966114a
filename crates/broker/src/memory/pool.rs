//! A part of the budget, which is lent to clients.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::line::{ClientHost, Line};

/// A part of the budget.
#[derive(Debug)]
pub(super) struct Pool {
    state: Mutex<State>,
    /// The requests that wait for it.
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct State {
    free: usize,
    line: Line<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    units: usize,
    granted: oneshot::Sender<Charge>,
}

/// Memory of the budget, which is returned when this is dropped.
#[derive(Debug)]
#[must_use = "the memory is returned when this is dropped"]
pub(crate) struct Charge {
    pool: Arc<Pool>,
    client: ClientHost,
    units: usize,
}

impl Charge {
    /// Returns `true` while a request waits for the part of the budget that this is of, unless its client has more of it. Others that wait
    /// cannot use it, or have had their share.
    pub(crate) fn is_wanted(&self) -> bool {
        self.pool.waiting() > 0 && self.pool.lock().line.wants_from(self.client)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.pool.change(|state| {
            state.free += self.units;
            state.line.subtract(self.client, self.units);
        });
    }
}

/// The place of a request that waits, which it leaves when this is dropped.
struct PlaceInLine<'a> {
    pool: &'a Arc<Pool>,
    client: ClientHost,
    ticket: u64,
}

impl Drop for PlaceInLine<'_> {
    fn drop(&mut self) {
        // Those behind it may need less.
        self.pool.change(|state| state.line.leave(self.client, self.ticket));
    }
}

impl Pool {
    pub(super) fn new(units: usize) -> Arc<Self> {
        let state = Mutex::new(State { free: units, line: Line::default() });
        Arc::new(Self { state, waiting: AtomicUsize::new(0) })
    }

    /// Takes memory if it is free, and no request waits that is before this one.
    pub(super) fn try_take(self: &Arc<Self>, client: ClientHost, units: usize) -> Option<Charge> {
        let mut state = self.lock();
        if units > state.free || !state.line.is_next(client) {
            return None;
        }
        Some(self.lend(&mut state, client, units))
    }

    /// Waits for memory. Dropping the future gives up the place in the line.
    pub(super) async fn take(self: &Arc<Self>, client: ClientHost, units: usize) -> Charge {
        let (granted, grant) = oneshot::channel();
        let mut ticket = 0;
        self.change(|state| ticket = state.line.enter(client, Waiter { units, granted }));
        let _place = PlaceInLine { pool: self, client, ticket };
        match grant.await {
            Ok(charge) => charge,
            // A waiter that is in the line is granted its memory.
            Err(_) => std::future::pending().await,
        }
    }

    pub(super) fn free(&self) -> usize {
        self.lock().free
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lend(self: &Arc<Self>, state: &mut State, client: ClientHost, units: usize) -> Charge {
        state.free -= units;
        state.line.add(client, units);
        Charge { pool: self.clone(), client, units }
    }

    /// Changes what is free or who waits, and lends what the first ones in the line can have now.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut State)) {
        let mut grants = Vec::new();
        let mut state = self.lock();
        change(&mut state);
        while state.line.first().is_some_and(|waiter| waiter.units <= state.free) {
            let Some((client, Waiter { units, granted })) = state.line.serve_first() else { break };
            grants.push((granted, self.lend(&mut state, client, units)));
        }
        self.waiting.store(state.line.len(), Ordering::Relaxed);
        drop(state);
        // A waiter that has left meanwhile drops its memory, which takes the lock.
        for (granted, charge) in grants {
            drop(granted.send(charge));
        }
    }
}
