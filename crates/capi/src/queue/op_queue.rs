//! The queues of `rd_kafka_queue_t`: operations of a client or of one partition that wait for the application.
//!
//! A queue holds operations and has sources: fetched records and delivery reports stay in the client until a poll takes
//! them. The target of a forwarded queue uses the sources of that queue. New operations go to the last target.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::callbacks::call_gate::CallGate;
use crate::ffi::{rd_kafka_message_t, rd_kafka_queue_event_cb_t, rd_kafka_t};
use crate::messages::message::OwnedMessage;
use crate::queue::message_array::MessageArray;
use crate::queue::op::Op;

/// The interval at which a waiting thread polls its sources, so that a consumer knows that the application is polling.
const DRAW_EVERY: Duration = Duration::from_millis(500);

/// A source of operations for a queue.
pub(crate) trait OpSource: Send + Sync {
    /// Returns the next operation, if there is one.
    fn draw(&self) -> Option<Op>;
    /// Moves messages to `out` until another operation precedes them. Returns their number.
    fn fill(&self, _out: &mut [*mut rd_kafka_message_t]) -> usize {
        0
    }
    /// Adds messages to `array` until it is full, or until another operation precedes them, which then is returned.
    fn fill_array(&self, array: &mut MessageArray) -> Option<Op> {
        self.draw().and_then(|op| array.take(op))
    }
    /// Returns the number of operations, as far as it is known.
    fn len(&self) -> usize;
    /// Returns `true` if a poll has something to do, even if it returns no operation: the source signals nothing more before a poll.
    fn has_items(&self) -> bool {
        self.len() > 0
    }
}

/// The result of [`OpQueue::poll_array`].
pub(crate) enum Filled {
    /// The array has more messages.
    Messages,
    /// An operation, to be performed before the next messages.
    Op(Op),
}

impl Filled {
    fn of(op: Option<Op>) -> Self {
        op.map_or(Self::Messages, Self::Op)
    }
}

/// A queue of operations with its sources.
pub(crate) struct OpQueue {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    ops: VecDeque<Op>,
    own: Option<Arc<dyn OpSource>>,
    /// The queue's own source, and those of the queues that are forwarded to it.
    sources: Vec<Arc<dyn OpSource>>,
    feeders: Vec<Weak<OpQueue>>,
    forward: Option<Arc<OpQueue>>,
    /// The number of wake-ups. It detects operations that arrive between a check and a wait.
    rings: u64,
    waiting: u32,
    yields: bool,
    closed: bool,
    wake: WakeUp,
}

/// The notifications of an application's event loop.
#[derive(Default)]
struct WakeUp {
    io: Option<(c_int, Vec<u8>)>,
    call: Option<Arc<EventCallback>>,
    /// The application was notified, and has not polled since.
    sent: bool,
}

impl WakeUp {
    /// Returns `true` if the application is to be notified of an operation.
    fn is_due(&self) -> bool {
        !self.sent && (self.io.is_some() || self.call.is_some())
    }

    /// Writes to the application's descriptor, once until the next poll.
    fn write(&mut self) {
        if let Some((fd, payload)) = self.io.as_ref().filter(|_| !self.sent) {
            write_to(*fd, payload);
            self.sent = true;
        }
    }
}

struct EventCallback {
    function: unsafe extern "C" fn(*mut rd_kafka_t, *mut c_void),
    rk: *mut rd_kafka_t,
    opaque: *mut c_void,
    /// Closed before a queue's handle is gone or has another function: the application may free `opaque` then.
    calls: CallGate,
}

// SAFETY: the pointers are the application's, which says with `rd_kafka_queue_cb_event_enable` that any thread may call.
unsafe impl Send for EventCallback {}
// SAFETY: as above; several threads may call at once.
unsafe impl Sync for EventCallback {}

impl EventCallback {
    fn call(&self) {
        if let Some(_running) = self.calls.enter() {
            // SAFETY: the application's function and pointers, for any thread (required by the C functions that call this).
            unsafe { (self.function)(self.rk, self.opaque) };
        }
    }
}

/// Serialises changes of forwarding among all queues of all clients. The application is not called while it is locked: the
/// application may change queues, or wait for a thread that does so.
static TOPOLOGY: Mutex<()> = Mutex::new(());

/// The second part of a change of queues, which may call the application: its caller holds no lock.
#[must_use = "the threads that wait at the queue are not woken yet"]
pub(crate) struct QueueChange {
    queue: Arc<OpQueue>,
    replaced: Replaced,
    /// The queue that was the target of the forwarding.
    former: Option<Arc<OpQueue>>,
}

/// Parts of queues that a change has replaced. The end of a source may wake other queues.
#[derive(Default)]
struct Replaced {
    sources: Vec<Arc<dyn OpSource>>,
    queues: Vec<Arc<OpQueue>>,
}

impl QueueChange {
    /// Drops what was replaced, and wakes the waiting threads.
    pub(crate) fn finish(self) {
        drop(self.replaced);
        self.queue.ring();
        if let Some(former) = self.former {
            former.wake_waiting();
        }
    }
}

impl OpQueue {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), filled: Condvar::new() })
    }

    /// Draws from `source` from now on.
    pub(crate) fn set_source(self: &Arc<Self>, source: Option<Arc<dyn OpSource>>) {
        self.change_source(source).finish();
    }

    /// The same for a caller that holds a lock.
    pub(crate) fn change_source(self: &Arc<Self>, source: Option<Arc<dyn OpSource>>) -> QueueChange {
        let _topology = lock(&TOPOLOGY);
        let mut replaced = Replaced::default();
        let former = std::mem::replace(&mut self.lock().own, source);
        replaced.sources.extend(former);
        self.refresh(&mut replaced);
        QueueChange { queue: self.clone(), replaced, former: None }
    }

    /// Adds an operation to the queue at the end of the forwarding.
    pub(crate) fn push(self: &Arc<Self>, op: Op) {
        let mut queue = self.clone();
        loop {
            let mut state = queue.lock();
            let Some(next) = state.forward.clone() else {
                if state.closed {
                    drop(state);
                    return op.discard();
                }
                state.ops.push_back(op);
                drop(state);
                return queue.ring();
            };
            drop(state);
            queue = next;
        }
    }

    /// Wakes the waiting threads, and notifies the application's event loop if there is an operation.
    pub(crate) fn ring(self: &Arc<Self>) {
        let mut queue = self.clone();
        loop {
            let mut state = queue.lock();
            state.rings += 1;
            let next = state.forward.clone();
            let waits = std::mem::take(&mut state.waiting) > 0;
            let is_due = next.is_none() && state.wake.is_due();
            drop(state);
            if waits {
                queue.filled.notify_all();
            }
            if is_due {
                queue.notify();
            }
            let Some(next) = next else { return };
            queue = next;
        }
    }

    /// Notifies the application's event loop of the operations here, once until the next poll.
    fn notify(&self) {
        let (has_ops, sources) = {
            let state = self.lock();
            (!state.ops.is_empty(), state.sources.clone())
        };
        if !has_ops && !sources.iter().any(|source| source.has_items()) {
            return;
        }
        let call = {
            let mut state = self.lock();
            if !state.wake.is_due() {
                return;
            }
            state.wake.write();
            state.wake.sent = true;
            state.wake.call.clone()
        };
        if let Some(call) = call {
            call.call();
        }
    }

    /// Wakes the threads that wait at the end of the forwarding, which look where their waits continue. The application's event
    /// loop is not notified, because there is no new operation.
    fn wake_waiting(self: &Arc<Self>) {
        let end = self.end();
        let waits = {
            let mut state = end.lock();
            state.rings += 1;
            std::mem::take(&mut state.waiting) > 0
        };
        if waits {
            end.filled.notify_all();
        }
    }

    /// Returns the next operation. Waits at most `timeout`, or without a limit if it is `None`.
    pub(crate) fn poll(self: &Arc<Self>, timeout: Option<Duration>) -> Option<Op> {
        self.poll_until(timeout, || false)
    }

    /// Returns the next operation, or `None` when `enough` returns `true`. `enough` is called after each wake-up.
    pub(crate) fn poll_until(
        self: &Arc<Self>,
        timeout: Option<Duration>,
        enough: impl Fn() -> bool,
    ) -> Option<Op> {
        self.wait_for(timeout, enough, Self::take)
    }

    /// Adds messages to `array`, or returns an operation that precedes them; `None` after `timeout`.
    pub(crate) fn poll_array(
        self: &Arc<Self>,
        timeout: Option<Duration>,
        array: &mut MessageArray,
    ) -> Option<Filled> {
        self.wait_for(timeout, || false, |queue| queue.fill_array(array))
    }

    /// Waits until `take` finds something in the queue at the end of the forwarding, or until this queue or that one is closed.
    fn wait_for<T>(
        self: &Arc<Self>,
        timeout: Option<Duration>,
        enough: impl Fn() -> bool,
        mut take: impl FnMut(&Self) -> Option<T>,
    ) -> Option<T> {
        let mut queue = self.end();
        if let Some(op) = take(&queue) {
            return Some(op);
        }
        if timeout == Some(Duration::ZERO) {
            return None;
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let rings = queue.lock().rings;
            // Checked after the look at `rings`: a close and a change of the forwarding wake the threads at the former end.
            if self.lock().closed {
                return None;
            }
            let end = self.end();
            if !Arc::ptr_eq(&end, &queue) {
                queue = end;
                continue;
            }
            if let Some(op) = take(&queue) {
                return Some(op);
            }
            if enough() {
                return None;
            }
            let mut state = queue.lock();
            if state.closed || std::mem::take(&mut state.yields) {
                return None;
            }
            if state.rings != rings || state.forward.is_some() {
                continue;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return None;
            }
            let mut wait = left;
            if !state.sources.is_empty() {
                wait = Some(left.map_or(DRAW_EVERY, |left| left.min(DRAW_EVERY)));
            }
            state.waiting += 1;
            let rings = state.rings;
            let mut state = match wait {
                Some(wait) => {
                    queue.filled.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner).0
                }
                None => queue.filled.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            // A ring resets the count: one system call wakes all threads, however often the queue rings before they run.
            if state.rings == rings {
                state.waiting -= 1;
            }
        }
    }

    /// Returns the next operation: queued ones first, then those of the sources.
    fn take(&self) -> Option<Op> {
        let mut state = self.lock();
        state.wake.sent = false;
        if let Some(op) = state.ops.pop_front() {
            return Some(op);
        }
        match state.sources.len() {
            0 => None,
            1 => {
                let source = state.sources[0].clone();
                drop(state);
                source.draw()
            }
            _ => {
                let sources = state.sources.clone();
                // The next call starts with another source, so that no source starves.
                state.sources.rotate_left(1);
                drop(state);
                sources.iter().find_map(|source| source.draw())
            }
        }
    }

    /// Adds the messages of all sources to `array`, unless operations precede them.
    fn fill_array(&self, array: &mut MessageArray) -> Option<Filled> {
        let mut state = self.lock();
        state.wake.sent = false;
        if let Some(op) = state.ops.pop_front() {
            return Some(Filled::of(array.take(op)));
        }
        let before = array.len();
        if let [source] = &state.sources[..] {
            let source = source.clone();
            drop(state);
            let op = source.fill_array(array);
            return (op.is_some() || array.len() > before).then(|| Filled::of(op));
        }
        let sources = state.sources.clone();
        if !sources.is_empty() {
            // The next call starts with another source, so that no source starves.
            state.sources.rotate_left(1);
        }
        drop(state);
        for source in &sources {
            if let Some(op) = source.fill_array(array) {
                return Some(Filled::Op(op));
            }
            if !array.has_room() {
                break;
            }
        }
        (array.len() > before).then_some(Filled::Messages)
    }

    /// Takes the first of the queued operations that `is_wanted` accepts.
    pub(crate) fn take_first(&self, is_wanted: impl Fn(&Op) -> bool) -> Option<Op> {
        let mut state = self.lock();
        let at = state.ops.iter().position(is_wanted)?;
        state.ops.remove(at)
    }

    /// Moves messages to `out` until another operation precedes them. Returns their number. A queue with several
    /// sources returns its messages one by one, through [`OpQueue::poll`].
    #[inline]
    pub(crate) fn fill(&self, out: &mut [*mut rd_kafka_message_t]) -> usize {
        let mut state = self.lock();
        state.wake.sent = false;
        let source = match (&state.forward, &state.sources[..]) {
            (Some(next), _) => {
                let next = next.clone();
                drop(state);
                return next.fill(out);
            }
            (None, [source]) if state.ops.is_empty() => source.clone(),
            _ => return 0,
        };
        drop(state);
        source.fill(out)
    }

    /// Returns the next message, if no other operation precedes it.
    #[inline]
    pub(crate) fn message(&self) -> Option<OwnedMessage> {
        let mut one = [std::ptr::null_mut()];
        // SAFETY: just drawn; no other code has the pointer.
        (self.fill(&mut one) == 1).then(|| unsafe { OwnedMessage::of(one[0]) })
    }

    /// [`OpQueue::message`] for many messages: `source` is kept between the calls, so that they do not count references.
    #[inline]
    pub(crate) fn message_of(&self, source: &mut Option<Arc<dyn OpSource>>) -> Option<OwnedMessage> {
        {
            let mut state = self.lock();
            state.wake.sent = false;
            match (&state.forward, &state.sources[..], &*source) {
                (None, [now], Some(kept)) if state.ops.is_empty() && Arc::ptr_eq(now, kept) => {}
                (None, [now], _) if state.ops.is_empty() => *source = Some(now.clone()),
                _ => {
                    drop(state);
                    return self.message();
                }
            }
        }
        let mut one = [std::ptr::null_mut()];
        // SAFETY: just drawn; no other code has the pointer.
        (source.as_ref()?.fill(&mut one) == 1).then(|| unsafe { OwnedMessage::of(one[0]) })
    }

    /// Returns the number of operations and messages in the queue.
    pub(crate) fn len(self: &Arc<Self>) -> usize {
        let end = self.end();
        let (ops, sources) = {
            let state = end.lock();
            (state.ops.len(), state.sources.clone())
        };
        ops + sources.iter().map(|source| source.len()).sum::<usize>()
    }

    /// Returns the number of queued operations, without those of the sources.
    pub(crate) fn ops(self: &Arc<Self>) -> usize {
        self.end().lock().ops.len()
    }

    /// Ends one waiting poll, or the next one. As in the original, this notifies the event loop of an empty queue.
    pub(crate) fn yield_once(self: &Arc<Self>) {
        let end = self.end();
        end.lock().yields = true;
        end.ring_though_empty();
    }

    /// [`OpQueue::ring`] for a change that is no operation: it notifies the event loop of an empty queue, too.
    pub(crate) fn ring_though_empty(self: &Arc<Self>) {
        self.ring();
        let end = self.end();
        if end.len() > 0 {
            return;
        }
        let call = {
            let mut state = end.lock();
            state.wake.write();
            state.wake.call.clone()
        };
        if let Some(call) = call {
            call.call();
        }
    }

    /// Closes the queue: drops its operations, wakes the waiting threads, and ends the notifications of the application's
    /// event loop. Running calls of its function have returned after this.
    pub(crate) fn close(self: &Arc<Self>) {
        let (ops, replaced, wake, forward) = {
            let _topology = lock(&TOPOLOGY);
            let mut replaced = Replaced::default();
            let mut state = self.lock();
            state.closed = true;
            let forward = state.forward.take();
            let wake = std::mem::take(&mut state.wake);
            replaced.sources.extend(state.own.take());
            let ops = std::mem::take(&mut state.ops);
            drop(state);
            self.refresh(&mut replaced);
            if let Some(forward) = &forward {
                forward.refresh(&mut replaced);
            }
            (ops, replaced, wake, forward)
        };
        if let Some(call) = wake.call {
            call.calls.close();
        }
        self.ring();
        // Threads that wait for this queue are there.
        if let Some(forward) = forward {
            forward.wake_waiting();
        }
        ops.into_iter().for_each(Op::discard);
        drop(replaced);
    }

    /// Returns `true` if the forwarding of this queue passes `other`, or if it is `other`.
    fn leads_to(self: &Arc<Self>, other: &Arc<Self>) -> bool {
        let mut queue = self.clone();
        loop {
            if Arc::ptr_eq(&queue, other) {
                return true;
            }
            let Some(next) = queue.lock().forward.clone() else { return false };
            queue = next;
        }
    }

    /// Forwards the queue to `other`; `None` ends the forwarding. A forwarding that would be circular is ignored.
    pub(crate) fn forward_to(self: &Arc<Self>, other: Option<&Arc<Self>>) {
        if let Some(change) = self.change_forward(other) {
            change.finish();
        }
    }

    /// The same for a caller that holds a lock. Returns `None` for a forwarding that would be circular.
    pub(crate) fn change_forward(self: &Arc<Self>, other: Option<&Arc<Self>>) -> Option<QueueChange> {
        let _topology = lock(&TOPOLOGY);
        if other.is_some_and(|other| other.leads_to(self)) {
            return None;
        }
        let mut replaced = Replaced::default();
        let (old, ops) = {
            let mut state = self.lock();
            let ops = if other.is_some() { std::mem::take(&mut state.ops) } else { VecDeque::new() };
            // The operations that were notified are polled elsewhere.
            state.wake.sent = false;
            (std::mem::replace(&mut state.forward, other.cloned()), ops)
        };
        if let Some(old) = &old {
            old.lock().feeders.retain(|feeder| !std::ptr::eq(feeder.as_ptr(), Arc::as_ptr(self)));
            old.refresh(&mut replaced);
        }
        if let Some(other) = other {
            other.lock().feeders.push(Arc::downgrade(self));
            let end = other.end();
            end.lock().ops.extend(ops);
        }
        self.refresh(&mut replaced);
        Some(QueueChange { queue: self.clone(), replaced, former: old })
    }

    /// Rebuilds the list of sources, here and along the forwarding.
    fn refresh(self: &Arc<Self>, replaced: &mut Replaced) {
        let mut queue = self.clone();
        loop {
            let (own, feeders, next) = {
                let mut state = queue.lock();
                state.feeders.retain(|feeder| feeder.strong_count() > 0);
                (state.own.clone(), state.feeders.clone(), state.forward.clone())
            };
            let mut sources: Vec<_> = own.into_iter().collect();
            for feeder in feeders.iter().filter_map(Weak::upgrade) {
                sources.extend(feeder.lock().sources.iter().cloned());
                replaced.queues.push(feeder);
            }
            let former = std::mem::replace(&mut queue.lock().sources, sources);
            replaced.sources.extend(former);
            let Some(next) = next else { return };
            queue = next;
        }
    }

    /// Returns the queue at the end of the forwarding.
    fn end(self: &Arc<Self>) -> Arc<Self> {
        let mut queue = self.clone();
        loop {
            let next = queue.lock().forward.clone();
            let Some(next) = next else { return queue };
            queue = next;
        }
    }

    /// Writes a payload to a descriptor when there is an operation, once until the next poll; `None` ends that.
    pub(crate) fn enable_io(&self, io: Option<(c_int, Vec<u8>)>) {
        let mut state = self.lock();
        state.wake.sent = false;
        state.wake.io = io;
    }

    /// Calls the application when there is an operation, once until the next poll. Running calls of its former function have
    /// returned after this.
    pub(crate) fn enable_call(
        &self,
        function: rd_kafka_queue_event_cb_t,
        rk: *mut rd_kafka_t,
        opaque: *mut c_void,
    ) {
        let call = function
            .map(|function| Arc::new(EventCallback { function, rk, opaque, calls: CallGate::default() }));
        let former = {
            let mut state = self.lock();
            state.wake.sent = false;
            std::mem::replace(&mut state.wake.call, call)
        };
        if let Some(former) = former {
            former.calls.close();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes to a descriptor of the application. Bytes for a full pipe are dropped, because earlier ones wake its reader.
fn write_to(fd: c_int, payload: &[u8]) {
    // SAFETY: the descriptor is the application's and stays open; `ManuallyDrop` keeps it so.
    let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    let _ = file.write(payload);
}

/// Converts a timeout from C. A negative timeout has no limit.
pub(crate) fn timeout_of(timeout_ms: c_int) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests;
