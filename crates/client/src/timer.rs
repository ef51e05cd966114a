//! Deadlines of the calls that applications await: they work on any executor.
//!
//! Inside a Tokio runtime its timers are used, whose clock a simulation can stop. Elsewhere `futures-timer` has a thread for
//! all of them, started when the first one waits.

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

/// The same with a duration from now on.
pub(crate) async fn timeout<F: Future>(duration: Duration, future: F) -> Option<F::Output> {
    timeout_at(deadline_after(duration), future).await
}

/// The instant after so long; for durations that no clock reaches, one that is as good as never.
pub(crate) fn deadline_after(duration: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);
    let now = Instant::now();
    now.checked_add(duration).unwrap_or_else(|| now + FAR)
}
