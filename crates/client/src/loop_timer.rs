//! A timer for loops that compute their next wake-up time on each iteration.
//!
//! A Tokio timer that becomes the earliest of its runtime wakes the runtime with a system call, even from its own
//! thread. A new timer per iteration would cost two or three such calls per small request, for example for a single
//! record that is produced and flushed.

use std::pin::Pin;

use tokio::time::{Instant, Sleep};

/// Expires at the time that was set, or earlier; the loop then sets it again.
#[derive(Debug)]
pub(crate) struct LoopTimer {
    sleep: Pin<Box<Sleep>>,
    armed: Option<Instant>,
}

impl LoopTimer {
    /// Creates a timer that is not set.
    pub(crate) fn new() -> Self {
        Self { sleep: Box::pin(tokio::time::sleep_until(Instant::now())), armed: None }
    }

    /// Makes the timer expire at `at` at the latest. An earlier time that is set already stays.
    pub(crate) fn set(&mut self, at: Option<Instant>) {
        if let Some(at) = at
            && self.armed.is_none_or(|armed| at < armed)
        {
            self.sleep.as_mut().reset(at);
            self.armed = Some(at);
        }
    }

    /// Waits until the timer expires, forever if it is not set. Cancel safe.
    pub(crate) async fn expired(&mut self) {
        if self.armed.is_none() {
            std::future::pending::<()>().await;
        }
        self.sleep.as_mut().await;
        self.armed = None;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_expires_in_time_and_is_not_set_later() {
        let begin = Instant::now();
        let at = |millis| Some(begin + Duration::from_millis(millis));
        let mut timer = LoopTimer::new();
        timer.set(None);
        let early = tokio::time::timeout(Duration::from_millis(1), timer.expired()).await;
        assert!(early.is_err(), "it was not set");

        timer.set(at(50));
        timer.set(at(80));
        timer.set(None);
        timer.set(at(20));
        timer.set(at(30));
        timer.expired().await;
        assert_eq!(begin.elapsed().as_millis(), 20);
        timer.set(at(30));
        timer.expired().await;
        assert_eq!(begin.elapsed().as_millis(), 30);
        timer.set(at(10));
        timer.expired().await;
        assert_eq!(begin.elapsed().as_millis(), 30, "a time in the past expires at once");
    }
}
