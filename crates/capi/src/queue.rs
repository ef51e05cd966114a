//! `rd_kafka_queue_t`: what waits for the application, of one client or of one partition.
//!
//! A queue holds operations, and draws from sources: fetched records and delivery reports stay where the client keeps
//! them until somebody asks. A queue that is forwarded lends its sources to the other; operations go to where the
//! forwarding ends.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io::Write;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::ffi::{rd_kafka_message_t, rd_kafka_queue_event_cb_t, rd_kafka_t};
use crate::message::Owned;
use crate::op::Op;

/// A waiting thread draws from its sources at least so often: that is how a consumer knows that the application is there.
const DRAW_EVERY: Duration = Duration::from_millis(500);

/// Where a queue draws from.
pub(crate) trait Source: Send + Sync {
    /// The next operation, if there is one.
    fn draw(&self) -> Option<Op>;
    /// Draws messages into `out`, as long as nothing else comes first; says how many.
    fn fill(&self, _out: &mut [*mut rd_kafka_message_t]) -> usize {
        0
    }
    /// How many operations there are, as far as that is known.
    fn len(&self) -> usize;
}

/// What a queue handle stands for.
pub(crate) struct Queue {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    ops: VecDeque<Op>,
    own: Option<Arc<dyn Source>>,
    /// Its own, and those of the queues that are forwarded here.
    sources: Vec<Arc<dyn Source>>,
    feeders: Vec<Weak<Queue>>,
    forward: Option<Arc<Queue>>,
    /// Counts what came, so that nothing that comes between a look and a wait is missed.
    rings: u64,
    waiting: u32,
    yields: bool,
    closed: bool,
    wake: Wake,
}

/// What tells an event loop of the application.
#[derive(Default)]
struct Wake {
    io: Option<(c_int, Vec<u8>)>,
    call: Option<Call>,
}

#[derive(Clone, Copy)]
struct Call {
    function: unsafe extern "C" fn(*mut rd_kafka_t, *mut c_void),
    rk: *mut rd_kafka_t,
    opaque: *mut c_void,
}

// SAFETY: the pointers are the application's, which says with `rd_kafka_queue_cb_event_enable` that any thread may call.
unsafe impl Send for Call {}

/// Changes of who forwards to whom, of all queues, happen one at a time.
static TOPOLOGY: Mutex<()> = Mutex::new(());

impl Queue {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), filled: Condvar::new() })
    }

    /// Draws from `source` from now on.
    pub(crate) fn set_source(self: &Arc<Self>, source: Option<Arc<dyn Source>>) {
        let _topology = lock(&TOPOLOGY);
        self.lock().own = source;
        self.refresh();
        self.ring();
    }

    /// Adds an operation, where the forwarding ends.
    pub(crate) fn push(self: &Arc<Self>, op: Op) {
        let mut queue = self.clone();
        loop {
            let mut state = queue.lock();
            let Some(next) = state.forward.clone() else {
                if state.closed {
                    drop(state);
                    drop(op);
                    return;
                }
                state.ops.push_back(op);
                drop(state);
                return queue.ring();
            };
            drop(state);
            queue = next;
        }
    }

    /// Something has come: those who wait look again.
    pub(crate) fn ring(self: &Arc<Self>) {
        let mut queue = self.clone();
        loop {
            let mut state = queue.lock();
            state.rings += 1;
            let next = state.forward.clone();
            if next.is_none() || state.waiting > 0 {
                let waits = std::mem::take(&mut state.waiting) > 0;
                let call = state.wake.call;
                if let Some((fd, payload)) = &state.wake.io {
                    write_to(*fd, payload);
                }
                drop(state);
                if waits {
                    queue.filled.notify_all();
                }
                if let Some(Call { function, rk, opaque }) = call {
                    // SAFETY: the application's function and pointers, for any thread (required by the C functions
                    // that call this).
                    unsafe { function(rk, opaque) };
                }
            } else {
                drop(state);
            }
            let Some(next) = next else { return };
            queue = next;
        }
    }

    /// The next operation; waits for it for `timeout` at most, for ever without one.
    pub(crate) fn poll(self: &Arc<Self>, timeout: Option<Duration>) -> Option<Op> {
        self.poll_until(timeout, || false)
    }

    /// The same, until `enough` says so: it is asked after each ring.
    pub(crate) fn poll_until(
        self: &Arc<Self>,
        timeout: Option<Duration>,
        enough: impl Fn() -> bool,
    ) -> Option<Op> {
        let mut queue = self.end();
        if let Some(op) = queue.take() {
            return Some(op);
        }
        if timeout == Some(Duration::ZERO) {
            return None;
        }
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let rings = queue.lock().rings;
            if let Some(op) = queue.take() {
                return Some(op);
            }
            if enough() {
                return None;
            }
            let mut state = queue.lock();
            if state.closed || std::mem::take(&mut state.yields) {
                return None;
            }
            if state.forward.is_some() {
                drop(state);
                queue = self.end();
                continue;
            }
            if state.rings != rings {
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
            // Whoever rings takes everybody off the count: one system call wakes them, however often it rings until they run.
            if state.rings == rings {
                state.waiting -= 1;
            }
        }
    }

    /// What there is: operations first, then from each source.
    fn take(&self) -> Option<Op> {
        let mut state = self.lock();
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
                // Another one comes first next time: none starves the others.
                state.sources.rotate_left(1);
                drop(state);
                sources.iter().find_map(|source| source.draw())
            }
        }
    }

    /// Draws messages as long as nothing else comes first; says how many. Those of queues with several sources come one by
    /// one, by [`Queue::poll`].
    #[inline]
    pub(crate) fn fill(&self, out: &mut [*mut rd_kafka_message_t]) -> usize {
        let state = self.lock();
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

    /// The next message, if nothing else comes first.
    #[inline]
    pub(crate) fn message(&self) -> Option<Owned> {
        let mut one = [std::ptr::null_mut()];
        // SAFETY: just drawn, and given to nobody.
        (self.fill(&mut one) == 1).then(|| unsafe { Owned::of(one[0]) })
    }

    /// How much waits here.
    pub(crate) fn len(self: &Arc<Self>) -> usize {
        let end = self.end();
        let (ops, sources) = {
            let state = end.lock();
            (state.ops.len(), state.sources.clone())
        };
        ops + sources.iter().map(|source| source.len()).sum::<usize>()
    }

    /// How many operations wait here, without what sources have.
    pub(crate) fn ops(self: &Arc<Self>) -> usize {
        self.end().lock().ops.len()
    }

    /// Ends one poll that waits, or the next one.
    pub(crate) fn yield_once(self: &Arc<Self>) {
        let end = self.end();
        end.lock().yields = true;
        end.ring();
    }

    /// Nothing comes any more: what waits is thrown away, and who waits returns.
    pub(crate) fn close(self: &Arc<Self>) {
        let (ops, own) = {
            let _topology = lock(&TOPOLOGY);
            let mut state = self.lock();
            state.closed = true;
            state.forward = None;
            let own = state.own.take();
            let ops = std::mem::take(&mut state.ops);
            drop(state);
            self.refresh();
            (ops, own)
        };
        self.ring();
        drop((ops, own));
    }

    /// Sends everything to `other` from now on; `None` ends that. A circle is left out.
    pub(crate) fn forward_to(self: &Arc<Self>, other: Option<&Arc<Self>>) {
        let _topology = lock(&TOPOLOGY);
        if other.is_some_and(|other| Arc::ptr_eq(&other.end(), self)) {
            return;
        }
        let (old, ops) = {
            let mut state = self.lock();
            let ops = if other.is_some() { std::mem::take(&mut state.ops) } else { VecDeque::new() };
            (std::mem::replace(&mut state.forward, other.cloned()), ops)
        };
        if let Some(old) = old {
            old.lock().feeders.retain(|feeder| !std::ptr::eq(feeder.as_ptr(), Arc::as_ptr(self)));
            old.refresh();
        }
        if let Some(other) = other {
            other.lock().feeders.push(Arc::downgrade(self));
            let end = other.end();
            end.lock().ops.extend(ops);
        }
        self.refresh();
        self.ring();
    }

    /// Finds the sources anew, here and where this is forwarded to.
    fn refresh(self: &Arc<Self>) {
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
            }
            queue.lock().sources = sources;
            let Some(next) = next else { return };
            queue = next;
        }
    }

    /// Where the forwarding ends.
    fn end(self: &Arc<Self>) -> Arc<Self> {
        let mut queue = self.clone();
        loop {
            let next = queue.lock().forward.clone();
            let Some(next) = next else { return queue };
            queue = next;
        }
    }

    /// Writes `payload` to `fd` whenever something comes; `None` ends that.
    pub(crate) fn enable_io(&self, io: Option<(c_int, Vec<u8>)>) {
        self.lock().wake.io = io;
    }

    /// Calls the application whenever something comes.
    pub(crate) fn enable_call(
        &self,
        function: rd_kafka_queue_event_cb_t,
        rk: *mut rd_kafka_t,
        opaque: *mut c_void,
    ) {
        self.lock().wake.call = function.map(|function| Call { function, rk, opaque });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes to a descriptor of the application's. What it does not take is left out: whoever reads it has enough to read.
fn write_to(fd: c_int, payload: &[u8]) {
    // SAFETY: the descriptor is the application's and stays open; `ManuallyDrop` keeps it so.
    let mut file = ManuallyDrop::new(unsafe { File::from_raw_fd(fd) });
    let _ = file.write(payload);
}

/// C's timeouts: negative is for ever.
pub(crate) fn timeout_of(timeout_ms: c_int) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noop() -> Op {
        Op::Nothing
    }

    #[test]
    fn what_is_forwarded_comes_where_the_forwarding_ends() {
        let (main, consumer, application) = (Queue::new(), Queue::new(), Queue::new());
        main.push(noop());
        main.forward_to(Some(&consumer));
        consumer.forward_to(Some(&application));
        main.push(noop());
        assert_eq!((main.len(), application.len()), (2, 2), "asked of any of them");
        assert!(application.poll(Some(Duration::ZERO)).is_some());
        // A circle is left out, and ending the forwarding brings nothing back.
        application.forward_to(Some(&main));
        consumer.forward_to(None);
        main.push(noop());
        assert_eq!((consumer.len(), application.len()), (1, 1));
    }

    #[test]
    fn a_source_is_drawn_from_where_the_forwarding_ends() {
        struct Endless;
        impl Source for Endless {
            fn draw(&self) -> Option<Op> {
                Some(noop())
            }
            fn len(&self) -> usize {
                1
            }
        }
        let (main, consumer) = (Queue::new(), Queue::new());
        main.set_source(Some(Arc::new(Endless)));
        assert!(consumer.poll(Some(Duration::ZERO)).is_none());
        main.forward_to(Some(&consumer));
        assert!(consumer.poll(Some(Duration::ZERO)).is_some());
        main.forward_to(None);
        assert!(consumer.poll(Some(Duration::ZERO)).is_none() && main.poll(Some(Duration::ZERO)).is_some());
        main.close();
        assert!(main.poll(None).is_none(), "nobody waits at a closed queue");
    }

    #[test]
    fn who_waits_is_woken_by_an_operation_and_by_a_yield() {
        let queue = Queue::new();
        for wake in [Queue::yield_once as fn(&Arc<Queue>), |queue| queue.push(noop())] {
            let waiting = std::thread::spawn({
                let queue = queue.clone();
                move || queue.poll(Some(Duration::from_secs(60))).is_some()
            });
            while queue.lock().waiting == 0 && !waiting.is_finished() {
                std::thread::yield_now();
            }
            wake(&queue);
            waiting.join().expect("no panic");
        }
    }
}
