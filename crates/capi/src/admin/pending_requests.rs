//! Pending requests: futures that are polled by the thread that wakes them, which is the client's engine thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};
use std::task::{Context, Poll, Wake, Waker};

use crate::ffi::panic::guard;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The pending requests of a client. They end with the client, because each keeps the engine alive while it waits.
#[derive(Default)]
pub(crate) struct PendingRequests(Mutex<Vec<Weak<Task>>>);

impl PendingRequests {
    /// Starts the work in this thread. The thread that delivers the response continues it.
    pub(crate) fn start(&self, work: impl Future<Output = ()> + Send + 'static) {
        let task = Arc::new(Task {
            work: Mutex::new(Some(Box::pin(work))),
            woken: AtomicBool::new(false),
            cancelled: AtomicBool::new(false),
        });
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task| task.strong_count() > 0);
        tasks.push(Arc::downgrade(&task));
        drop(tasks);
        task.wake();
    }

    /// Cancels the requests that are not complete.
    pub(crate) fn cancel(&self) {
        let tasks = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks.iter().filter_map(Weak::upgrade) {
            task.cancelled.store(true, Ordering::Release);
            task.wake();
        }
    }
}

struct Task {
    work: Mutex<Option<Work>>,
    woken: AtomicBool,
    cancelled: AtomicBool,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        // An exchange, not a store: the poll sees the events before each wake, and not only those before the last.
        self.woken.swap(true, Ordering::AcqRel);
        loop {
            // This thread marks the task and then tries the lock. The thread that polls unlocks and then reads the mark. The fences
            // of both ensure that one of them sees the other.
            fence(Ordering::SeqCst);
            if !self.woken.load(Ordering::Acquire) {
                return;
            }
            let mut work = match self.work.try_lock() {
                Ok(work) => work,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // The thread that polls the task polls it again.
                Err(TryLockError::WouldBlock) => return,
            };
            self.woken.swap(false, Ordering::AcqRel);
            let Some(future) = work.as_mut() else { return };
            let cancelled = self.cancelled.load(Ordering::Acquire);
            let waker = Waker::from(self.clone());
            let mut context = Context::from_waker(&waker);
            if cancelled || guard(|| Poll::Ready(()), || future.as_mut().poll(&mut context)).is_ready() {
                let done = work.take();
                drop(work);
                return drop(done);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Told(std::sync::mpsc::Sender<&'static str>);

    impl Drop for Told {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }

    #[test]
    fn what_is_cancelled_is_dropped_and_what_is_ready_runs_at_once() {
        let (told, heard) = std::sync::mpsc::channel();
        let tasks = PendingRequests::default();
        let (done, gone) = (told.clone(), Told(told));
        tasks.start(async move {
            let _ = done.send("done");
        });
        assert_eq!(heard.try_recv(), Ok("done"));
        tasks.start(async move {
            std::future::pending::<()>().await;
            drop(gone);
        });
        // The only reference: a task without a waker is dropped at once.
        assert_eq!(heard.try_recv(), Ok("dropped"));
    }

    #[test]
    fn a_task_that_waits_ends_with_its_client() {
        let (told, heard) = std::sync::mpsc::channel();
        let kept: Arc<Mutex<Option<Waker>>> = Arc::default();
        let (gone, keep) = (Told(told), kept.clone());
        let tasks = PendingRequests::default();
        tasks.start(async move {
            let _gone = gone;
            std::future::poll_fn(|context| {
                *keep.lock().expect("unpoisoned") = Some(context.waker().clone());
                Poll::<()>::Pending
            })
            .await;
        });
        assert!(heard.try_recv().is_err(), "it waits for whoever has its waker");
        tasks.cancel();
        assert_eq!(heard.try_recv(), Ok("dropped"));
    }

    /// Release and acquire did not order the mark of a wake before its look at the lock: both threads could miss the other.
    #[test]
    fn no_wake_is_lost_while_another_thread_polls() {
        for _ in 0..500 {
            let (told, heard) = std::sync::mpsc::channel();
            let kept: Arc<Mutex<Option<Waker>>> = Arc::default();
            let came = Arc::new([AtomicBool::new(false), AtomicBool::new(false)]);
            let (gone, keep, seen) = (Told(told), kept.clone(), came.clone());
            let tasks = PendingRequests::default();
            tasks.start(async move {
                let _gone = gone;
                std::future::poll_fn(|context| {
                    *keep.lock().expect("unpoisoned") = Some(context.waker().clone());
                    let all = seen.iter().all(|one| one.load(Ordering::Relaxed));
                    if all { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
            });
            let waker = kept.lock().expect("unpoisoned").clone().expect("the task waits");
            std::thread::scope(|scope| {
                for one in &*came {
                    let waker = waker.clone();
                    scope.spawn(move || {
                        one.store(true, Ordering::Relaxed);
                        waker.wake();
                    });
                }
            });
            assert_eq!(heard.try_recv(), Ok("dropped"));
        }
    }
}
