//! Calls whose callback runs at the moment, or was left.
//!
//! A thread has a stack of them, since a callback may poll again. C reports a callback that an exception or
//! `pthread_exit` leaves. It cannot report `longjmp`: the next polling function of the thread finds such a call by its
//! frame, which is not above the new one's.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::callbacks::prepared::Held;
use crate::callbacks::trampoline::{CallbackKind, CallbackLoop, Task};
use crate::client::handle::Handle;
use crate::queue::op::Op;

/// The arguments of so many abandoned callbacks are kept. Programs with coroutines poll from another stack while a callback
/// of this one is suspended, which looks as if it had been left.
const ABANDONED_MAX: usize = 64;

/// A call with its callback.
pub(crate) struct RunningCall {
    number: u64,
    frame: usize,
    /// The address of the client, to find its calls when it is destroyed.
    client: usize,
    pub(crate) held: Held,
    /// `None` once the call has ended or was abandoned.
    pub(crate) running: Option<Running>,
    /// The callback called `rd_kafka_yield`: the function returns after it.
    pub(crate) yields: bool,
}

pub(crate) struct Running {
    pub(crate) task: Box<dyn Task>,
    pub(crate) handle: Arc<Handle>,
}

/// Abandoned calls of all threads.
struct Abandoned(VecDeque<Box<RunningCall>>);

// SAFETY: an abandoned call has no task. Its arguments are used by the callback's thread alone, if that ever continues.
unsafe impl Send for Abandoned {}

static ABANDONED: Mutex<Abandoned> = Mutex::new(Abandoned(VecDeque::new()));

/// Calls of one thread, the innermost last. Boxed: a call moves between the list and its caller with every callback.
type Calls = Vec<Box<RunningCall>>;

thread_local! {
    static RUNNING: RefCell<Calls> = const { RefCell::new(Vec::new()) };
}

/// Numbers of calls; 0 is none.
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

impl RunningCall {
    pub(crate) fn new(frame: *const c_void, handle: Arc<Handle>, task: Box<dyn Task>, held: Held) -> Self {
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let client = Arc::as_ptr(&handle).addr();
        Self {
            number,
            frame: frame.addr(),
            client,
            held,
            running: Some(Running { task, handle }),
            yields: false,
        }
    }

    /// Ends the call without its callback's return. The arguments stay.
    fn abandon(&mut self) {
        if let Some(mut running) = self.running.take() {
            if let Some(op) = self.held.take_rest() {
                running.handle.main.push(op);
            }
            running.task.abandon(&running.handle);
        }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// The callback of `call` runs next.
pub(crate) fn push(state: &mut CallbackLoop, call: Box<RunningCall>) {
    state.call = call.number;
    if RUNNING.try_with(|calls| calls.borrow_mut().push(call)).is_err() {
        // The thread is ending and its destructors have run: it makes no callbacks any more.
        (state.call, state.kind) = (0, CallbackKind::None);
    }
}

/// The callback of a call has ended, so that it is no longer on the stack. `advance` prepares the next callback and returns
/// `true` if there is one.
#[inline]
pub(crate) fn resume(
    state: &mut CallbackLoop,
    number: u64,
    advance: impl FnOnce(&mut RunningCall, &mut CallbackLoop) -> bool,
) {
    let _ = RUNNING.try_with(|calls| {
        let Some(mut call) = take_from(calls, number) else { return };
        if advance(&mut call, state) {
            state.call = number;
            calls.borrow_mut().push(call);
        }
    });
}

/// The call ends without the return of its callback.
pub(crate) fn take(number: u64) -> Option<Box<RunningCall>> {
    RUNNING.try_with(|calls| take_from(calls, number)).ok().flatten()
}

#[inline]
fn take_from(calls: &RefCell<Calls>, number: u64) -> Option<Box<RunningCall>> {
    let mut calls = calls.borrow_mut();
    if let Some(call) = calls.pop_if(|call| call.number == number) {
        return Some(call);
    }
    let at = calls.iter().position(|call| call.number == number)?;
    Some(calls.remove(at))
}

/// A polling function begins at `frame`: the thread's calls with frames that are not above it have been left.
#[inline]
pub(crate) fn abandon_deeper(frame: *const c_void) {
    let _ = RUNNING.try_with(|calls| {
        if !calls.borrow().is_empty() {
            abandon_deeper_of(calls, frame.addr());
        }
    });
}

#[cold]
fn abandon_deeper_of(calls: &RefCell<Calls>, frame: usize) {
    loop {
        let call = calls.borrow_mut().pop_if(|call| call.frame <= frame);
        let Some(mut call) = call else { return };
        call.abandon();
        let oldest = {
            let mut abandoned = ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
            abandoned.0.push_back(call);
            if abandoned.0.len() > ABANDONED_MAX { abandoned.0.pop_front() } else { None }
        };
        drop(oldest);
    }
}

/// The client is destroyed: releases the arguments of its abandoned callbacks.
pub(crate) fn forget_abandoned(handle: &Arc<Handle>) {
    let client = Arc::as_ptr(handle).addr();
    let calls = {
        let mut abandoned = ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
        let (own, others) =
            std::mem::take(&mut abandoned.0).into_iter().partition(|call| call.client == client);
        abandoned.0 = others;
        own
    };
    drop(calls);
}

/// The innermost callback of this thread wants its function to return. Its remaining delivery reports are left to the next
/// poll. Returns `false` if no callback of this thread runs.
pub(crate) fn yield_innermost() -> bool {
    let mark = |calls: &RefCell<Calls>| {
        let mut calls = calls.borrow_mut();
        let call = calls.last_mut()?;
        call.yields = true;
        let rest = call.held.take_rest();
        let main = call.running.as_ref().map(|running| running.handle.main.clone());
        Some(rest.zip(main))
    };
    match RUNNING.try_with(mark).ok().flatten() {
        None => false,
        Some(None) => true,
        Some(Some((rest, main))) => {
            main.push(rest);
            true
        }
    }
}

/// Returns `true` if this thread is inside a rebalance callback of the client.
pub(crate) fn is_in_rebalance(handle: &Arc<Handle>) -> bool {
    let client = Arc::as_ptr(handle).addr();
    let is_inside = |calls: &RefCell<Calls>| {
        calls.borrow().iter().any(|call| call.client == client && call.held.is_of_rebalance())
    };
    RUNNING.try_with(is_inside).unwrap_or(false)
}

/// A flush takes over the reports that the client's calls in this thread have not made: one of them may have been left.
pub(crate) fn take_over_reports(handle: &Arc<Handle>) {
    for op in take_reports(handle) {
        handle.main.push(op);
    }
}

/// The client is destroyed inside a callback: its calls in this thread make no further reports.
pub(crate) fn discard_reports(handle: &Arc<Handle>) {
    take_reports(handle).into_iter().for_each(Op::discard);
}

/// Takes the reports that the client's calls in this thread have not made.
fn take_reports(handle: &Arc<Handle>) -> Vec<Op> {
    let client = Arc::as_ptr(handle).addr();
    let take = |calls: &RefCell<Calls>| -> Vec<_> {
        let mut calls = calls.borrow_mut();
        calls
            .iter_mut()
            .filter(|call| call.client == client)
            .filter_map(|call| call.held.take_rest())
            .collect()
    };
    RUNNING.try_with(take).unwrap_or_default()
}
