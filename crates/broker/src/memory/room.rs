//! The room for responses that are built and not sent.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::line::{ClientHost, Line};

/// The bytes of responses that are built and not sent.
#[derive(Debug)]
pub(super) struct Room {
    state: Mutex<State>,
    max: usize,
    bytes: AtomicUsize,
    /// The requests that wait for this.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    /// `true` while a request that has waited starts.
    is_admitting: bool,
    line: Line<oneshot::Sender<Admission>>,
}

/// A response that is not sent yet, which is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Sending {
    room: Arc<Room>,
    client: ClientHost,
    bytes: usize,
}

impl Sending {
    /// Returns `true` while a request waits until responses are sent, unless its client has more of them.
    pub(crate) fn is_wanted(&self) -> bool {
        self.room.waiting() > 0 && self.room.lock().line.wants_from(self.client)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.room.change(|state| {
            state.bytes -= self.bytes;
            state.line.subtract(self.client, self.bytes);
        });
    }
}

/// The start of a request whose response may be large. The next one that waits starts when this is dropped, if there is room yet.
#[derive(Debug)]
#[must_use = "the next request starts when this is dropped"]
pub(crate) struct Admission {
    /// `None` if it did not wait.
    room: Option<Arc<Room>>,
}

impl Admission {
    /// Returns `true` if there was no room at first.
    pub(crate) const fn has_waited(&self) -> bool {
        self.room.is_some()
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if let Some(room) = self.room.take() {
            room.change(|state| state.is_admitting = false);
        }
    }
}

/// The place of a request that waits, which it leaves when this is dropped.
struct PlaceInLine<'a> {
    room: &'a Arc<Room>,
    client: ClientHost,
    ticket: u64,
}

impl Drop for PlaceInLine<'_> {
    fn drop(&mut self) {
        self.room.change(|state| state.line.leave(self.client, self.ticket));
    }
}

impl Room {
    pub(super) fn new(max: usize) -> Arc<Self> {
        let (bytes, waiting) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { state: Mutex::default(), max, bytes, waiting })
    }

    /// Waits until there is room for one more response.
    pub(super) async fn enter(self: &Arc<Self>, client: ClientHost) -> Admission {
        let has_room = |state: &State| state.bytes <= self.max && state.line.is_next(client);
        if has_room(&self.lock()) {
            return Admission { room: None };
        }
        let (granted, grant) = oneshot::channel();
        let mut ticket = 0;
        self.change(|state| ticket = state.line.enter(client, granted));
        let _place = PlaceInLine { room: self, client, ticket };
        match grant.await {
            Ok(admission) => admission,
            // A waiter that is in the line is admitted.
            Err(_) => std::future::pending().await,
        }
    }

    pub(super) fn send(self: &Arc<Self>, client: ClientHost, bytes: usize) -> Sending {
        self.change(|state| {
            state.bytes += bytes;
            state.line.add(client, bytes);
        });
        Sending { room: self.clone(), client, bytes }
    }

    pub(super) fn has_room(&self) -> bool {
        self.bytes() <= self.max
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what is not sent or who waits, and admits the first in the line if there is room. Each one is admitted when the
    /// response of the one before it is counted: all at once would exceed the limit by all of theirs.
    fn change(self: &Arc<Self>, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let has_room = state.bytes <= self.max && !state.is_admitting;
        let admitted = if has_room { state.line.serve_first() } else { None };
        state.is_admitting |= admitted.is_some();
        self.bytes.store(state.bytes, Ordering::Relaxed);
        self.waiting.store(state.line.len(), Ordering::Relaxed);
        drop(state);
        if let Some((_, granted)) = admitted {
            // A request that has left meanwhile drops it, which takes the lock.
            drop(granted.send(Admission { room: Some(self.clone()) }));
        }
    }
}
