//! Timers for the calls that applications await; they work on any executor.
//!
//! Inside a Tokio runtime, they use its timers, whose clock a simulation can pause. Elsewhere, `futures-timer` runs
//! one thread for all timers, which starts with the first wait.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_timer::Delay;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// The future's output, or `None` if `deadline` passes first. Cancel safe if the future is.
pub(crate) async fn timeout_at<F: Future>(deadline: Instant, future: F) -> Option<F::Output> {
    if Handle::try_current().is_ok() {
        return tokio::time::timeout_at(deadline, future).await.ok();
    }
    let left = deadline.saturating_duration_since(Instant::now());
    let (mut future, mut delay) = (pin!(future), pin!(Delay::new(left)));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => delay.as_mut().poll(cx).map(|()| None),
    })
    .await
}

/// The future's output, or `None` if `duration` passes first.
pub(crate) async fn timeout<F: Future>(duration: Duration, future: F) -> Option<F::Output> {
    timeout_at(deadline_after(duration), future).await
}

/// Milliseconds in a request, at most the highest number that a field can have.
pub(crate) fn wire_ms(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// Returns the instant after `duration`, or one far in the future if the clock cannot represent it.
pub(crate) fn deadline_after(duration: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);
    let now = Instant::now();
    now.checked_add(duration).unwrap_or_else(|| now + FAR)
}
