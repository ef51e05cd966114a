//! The end of a log as readers see it: two atomics, and a list of those who wait for them to rise.
//!
//! A reader that spins pays one atomic load per turn. A writer without waiting readers pays one atomic load per append.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Watches the end of one log. Clones watch the same log.
#[derive(Clone)]
pub struct Tail {
    shared: Arc<Shared>,
}

struct Shared {
    end: AtomicI64,
    visible: AtomicI64,
    closed: AtomicBool,
    /// True after the log went offline because of an error.
    failed: AtomicBool,
    /// True if there are waiters. Written under the lock, read without it by writers.
    awaited: AtomicBool,
    waiters: Mutex<Waiters>,
    grown: Condvar,
}

#[derive(Default)]
struct Waiters {
    next_key: u64,
    wakers: BTreeMap<u64, Waker>,
    blocked: usize,
}

impl Tail {
    pub(crate) fn new(end: i64, visible: i64) -> Self {
        Self {
            shared: Arc::new(Shared {
                end: AtomicI64::new(end),
                visible: AtomicI64::new(visible),
                closed: AtomicBool::new(false),
                failed: AtomicBool::new(false),
                awaited: AtomicBool::new(false),
                waiters: Mutex::default(),
                grown: Condvar::new(),
            }),
        }
    }

    /// The offset of the next record to be appended.
    #[inline]
    pub fn end(&self) -> i64 {
        self.shared.end.load(Ordering::Acquire)
    }

    /// Everything below may be read: the end, or the high watermark, as configured.
    #[inline]
    pub fn visible(&self) -> i64 {
        self.shared.visible.load(Ordering::Acquire)
    }

    /// Returns whether the log was closed or deleted: nothing will grow any more.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    /// Returns whether the log went offline because of an error. It takes no lock, unlike `Log::offline_reason`.
    pub fn has_failed(&self) -> bool {
        self.shared.failed.load(Ordering::Acquire)
    }

    pub(crate) fn note_failed(&self) {
        self.shared.failed.store(true, Ordering::Release);
    }

    /// Raises the visible offset and wakes its waiters; a lower offset changes nothing.
    #[inline]
    pub fn advance_visible(&self, offset: i64) {
        // SeqCst on both sides: either the waiter that registers sees the new offset, or we see the waiter.
        if self.shared.visible.fetch_max(offset, Ordering::SeqCst) < offset
            && self.shared.awaited.load(Ordering::SeqCst)
        {
            self.wake_all();
        }
    }

    #[inline]
    pub(crate) fn set_end(&self, end: i64) {
        self.shared.end.store(end, Ordering::Release);
    }

    /// After a truncation: nothing above `end` exists any more.
    pub(crate) fn cut(&self, end: i64) {
        self.shared.end.store(end, Ordering::SeqCst);
        self.shared.visible.fetch_min(end, Ordering::SeqCst);
    }

    /// Wakes all waiters, now and later: the log will not grow any more.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.wake_all();
    }

    /// Wakes all waiters, although nothing has grown: they check their condition and wait again.
    #[cold]
    pub fn wake_all(&self) {
        let (wakers, blocked) = {
            let mut waiters = self.lock();
            self.shared.awaited.store(waiters.blocked > 0, Ordering::SeqCst);
            (std::mem::take(&mut waiters.wakers), waiters.blocked)
        };
        if blocked > 0 {
            self.shared.grown.notify_all();
        }
        wakers.into_values().for_each(Waker::wake);
    }

    /// Returns a waiter in the list of waiting tasks, for manual polling.
    pub fn waiter(&self) -> Waiter {
        Waiter { tail: self.clone(), key: None }
    }

    /// Resolves with the visible offset once it is above `seen`, or the log is closed.
    ///
    /// Dropping the future takes it off the list.
    pub fn grown(&self, seen: i64) -> Grown {
        Grown { waiter: self.waiter(), seen }
    }

    /// Blocks until the visible offset is above `seen`, the log is closed, or `timeout` has passed; returns the
    /// visible offset.
    pub fn wait_grown(&self, seen: i64, timeout: Duration) -> i64 {
        if self.visible() > seen || self.is_closed() {
            return self.visible();
        }
        let mut waiters = self.lock();
        waiters.blocked += 1;
        self.shared.awaited.store(true, Ordering::SeqCst);
        let still = |_: &mut Waiters| {
            self.shared.visible.load(Ordering::SeqCst) <= seen && !self.shared.closed.load(Ordering::SeqCst)
        };
        let waited = self.shared.grown.wait_timeout_while(waiters, timeout, still);
        let (mut waiters, _) = waited.unwrap_or_else(PoisonError::into_inner);
        waiters.blocked -= 1;
        self.shared.awaited.store(waiters.blocked > 0 || !waiters.wakers.is_empty(), Ordering::SeqCst);
        drop(waiters);
        self.visible()
    }

    /// Spins until the visible offset is above `seen`, at most `turns` times; returns the visible offset.
    #[inline]
    pub fn spin_grown(&self, seen: i64, turns: u32) -> i64 {
        for _ in 0..turns {
            let visible = self.visible();
            if visible > seen {
                return visible;
            }
            std::hint::spin_loop();
        }
        self.visible()
    }

    fn lock(&self) -> MutexGuard<'_, Waiters> {
        // No code that could panic runs under this lock.
        self.shared.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tail")
            .field("end", &self.end())
            .field("visible", &self.visible())
            .finish_non_exhaustive()
    }
}

/// A waiter for the growth of a [`Tail`]; leaves the list when dropped.
#[derive(Debug)]
pub struct Waiter {
    tail: Tail,
    key: Option<u64>,
}

impl Waiter {
    /// Ready with the visible offset when it is above `seen` or the log is closed; otherwise the task is woken when
    /// the visible offset next rises.
    pub fn poll_grown(&mut self, cx: &mut Context<'_>, seen: i64) -> Poll<i64> {
        let visible = self.tail.visible();
        if visible > seen || self.tail.is_closed() {
            return Poll::Ready(visible);
        }
        {
            let mut waiters = self.tail.lock();
            let key = *self.key.get_or_insert_with(|| {
                waiters.next_key += 1;
                waiters.next_key
            });
            match waiters.wakers.get_mut(&key) {
                Some(waker) => waker.clone_from(cx.waker()),
                None => drop(waiters.wakers.insert(key, cx.waker().clone())),
            }
            self.tail.shared.awaited.store(true, Ordering::SeqCst);
        }
        // A writer that advanced before we were on the list has not seen us: look again.
        let visible = self.tail.shared.visible.load(Ordering::SeqCst);
        if visible > seen || self.tail.shared.closed.load(Ordering::SeqCst) {
            Poll::Ready(visible)
        } else {
            Poll::Pending
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let mut waiters = self.tail.lock();
            waiters.wakers.remove(&key);
            if waiters.wakers.is_empty() && waiters.blocked == 0 {
                self.tail.shared.awaited.store(false, Ordering::SeqCst);
            }
        }
    }
}

/// Made by [`Tail::grown`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Grown {
    waiter: Waiter,
    seen: i64,
}

impl Future for Grown {
    type Output = i64;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<i64> {
        let seen = self.seen;
        self.waiter.poll_grown(cx, seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn counted() -> (Arc<Count>, Waker) {
        let count = Arc::new(Count::default());
        (count.clone(), Waker::from(count))
    }

    #[test]
    fn a_waiter_is_woken_once_when_the_tail_grows_and_not_after_it_is_dropped() {
        let tail = Tail::new(10, 10);
        let (count, waker) = counted();
        let mut cx = Context::from_waker(&waker);
        let mut waiter = tail.waiter();
        assert_eq!(waiter.poll_grown(&mut cx, 9), Poll::Ready(10));
        assert_eq!(waiter.poll_grown(&mut cx, 10), Poll::Pending);
        assert_eq!(waiter.poll_grown(&mut cx, 10), Poll::Pending);
        tail.advance_visible(10);
        assert_eq!(count.0.load(Ordering::SeqCst), 0, "nothing has grown");
        tail.advance_visible(12);
        tail.advance_visible(13);
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "the second time nobody waited");
        assert_eq!(waiter.poll_grown(&mut cx, 12), Poll::Ready(13));

        assert_eq!(waiter.poll_grown(&mut cx, 13), Poll::Pending);
        drop(waiter);
        assert!(!tail.shared.awaited.load(Ordering::SeqCst));
        tail.advance_visible(20);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn closing_ends_every_wait() {
        let tail = Tail::new(0, 0);
        let (count, waker) = counted();
        let mut grown = tail.grown(0);
        let mut cx = Context::from_waker(&waker);
        assert!(Pin::new(&mut grown).poll(&mut cx).is_pending());
        tail.close();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert_eq!(Pin::new(&mut grown).poll(&mut cx), Poll::Ready(0));
        assert_eq!(tail.wait_grown(0, Duration::from_secs(3600)), 0);
    }

    #[test]
    fn a_blocked_thread_is_woken_however_the_race_goes() {
        for _ in 0..200 {
            let tail = Tail::new(0, 0);
            let reader = tail.clone();
            let thread = std::thread::spawn(move || reader.wait_grown(0, Duration::from_secs(3600)));
            tail.advance_visible(1);
            assert_eq!(thread.join().expect("no panic"), 1);
            assert!(!tail.shared.awaited.load(Ordering::SeqCst));
        }
        assert_eq!(Tail::new(3, 3).wait_grown(3, Duration::from_millis(1)), 3, "in vain");
        assert_eq!(Tail::new(3, 3).spin_grown(3, 10), 3, "in vain");
    }
}
