//! Waiting in threads that have no runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::coop;
use tokio::time::Instant;

use crate::timer;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Parks the thread until `done` returns true, checked after each notification; returns `false` after `timeout`.
pub(crate) fn wait_until(timeout: Duration, notify: &Notify, mut done: impl FnMut() -> bool) -> bool {
    let deadline = timer::deadline_after(timeout);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        // Registered before the check, so that no notification between check and wait is lost.
        let mut notified = pin!(notify.notified());
        notified.as_mut().enable();
        if done() {
            return true;
        }
        loop {
            if notified.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(()) {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return done();
            }
            std::thread::park_timeout(left);
        }
    }
}

/// Runs a future to its end on the calling thread, at most until `timeout`. The future must not need a runtime.
pub(crate) fn block_on<T>(timeout: Duration, future: impl Future<Output = T>) -> Option<T> {
    let deadline = timer::deadline_after(timeout);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    // Within a task whose budget is used up, such as a handler's, the future would never be ready.
    let mut future = pin!(coop::unconstrained(future));
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(value);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}
