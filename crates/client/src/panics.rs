//! Panics in the engine: of its own tasks, and of the application's functions that it calls.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::sync::Notify;
use tokio::task::JoinError;

/// The end of an engine by a panic of one of its tasks.
#[derive(Debug, Default)]
pub(crate) struct EngineFailure {
    has_failed: AtomicBool,
    /// Notified at the failure. The engine waits here.
    failed: Notify,
}

impl EngineFailure {
    pub(crate) fn set(&self) {
        self.has_failed.store(true, Ordering::Release);
        self.failed.notify_one();
    }

    pub(crate) fn is_set(&self) -> bool {
        self.has_failed.load(Ordering::Acquire)
    }

    /// Waits for the failure. Cancel safe.
    pub(crate) async fn wait(&self) {
        while !self.is_set() {
            self.failed.notified().await;
        }
    }
}

/// Runs `work` to its end. Returns the message of a panic, which ends it.
pub(crate) fn caught<F: Future>(work: F) -> impl Future<Output = Result<F::Output, String>> {
    // Boxed before the first poll: futures within futures have a limit of depth, and their sizes add up.
    let mut work = Box::pin(work);
    poll_fn(move |cx| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(message_of(&*panic).to_owned())),
    })
}

/// The message of the panic that ended a task, if one has.
pub(crate) fn message_of_task(ended: Result<(), JoinError>) -> Option<String> {
    let panic = ended.err()?.try_into_panic().ok()?;
    Some(message_of(&*panic).to_owned())
}

/// Calls a function of the application. A panic ends only the call, which returns `None`; the panic hook has reported it.
pub(crate) fn contained<T>(call: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(call)).ok()
}

/// A callback whose panics do not reach the task of the engine that calls it.
pub(crate) fn guarded(callback: impl Fn() + Send + Sync + 'static) -> impl Fn() + Send + Sync + 'static {
    move || {
        let _ = contained(&callback);
    }
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
