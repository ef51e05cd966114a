//! A timer for loops that reckon anew at each turn when to look again.
//!
//! A timer of tokio's that becomes the earliest of its runtime wakes the runtime, by a system call, even from its own
//! thread. A loop that made one at each turn paid that for each small request: two or three for a message that is produced
//! and flushed alone.

use std::pin::Pin;

use tokio::time::{Instant, Sleep};

/// Goes off at the time that was set, or earlier: then the loop sets it again.
#[derive(Debug)]
pub(crate) struct Alarm {
    sleep: Pin<Box<Sleep>>,
    armed: Option<Instant>,
}

impl Alarm {
    /// An alarm that is not set.
    pub(crate) fn new() -> Self {
        Self { sleep: Box::pin(tokio::time::sleep_until(Instant::now())), armed: None }
    }

    /// It goes off at `at` at the latest. One that is set for an earlier time, or is not needed any more, stays as it is.
    pub(crate) fn set(&mut self, at: Option<Instant>) {
        if let Some(at) = at
            && self.armed.is_none_or(|armed| at < armed)
        {
            self.sleep.as_mut().reset(at);
            self.armed = Some(at);
        }
    }

    /// Waits until it goes off; for ever if it is not set. Cancel safe.
    pub(crate) async fn rings(&mut self) {
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
    async fn it_goes_off_in_time_and_is_not_set_later() {
        let begin = Instant::now();
        let at = |millis| Some(begin + Duration::from_millis(millis));
        let mut alarm = Alarm::new();
        alarm.set(None);
        let early = tokio::time::timeout(Duration::from_millis(1), alarm.rings()).await;
        assert!(early.is_err(), "it was not set");

        alarm.set(at(50));
        alarm.set(at(80));
        alarm.set(None);
        alarm.set(at(20));
        alarm.set(at(30));
        alarm.rings().await;
        assert_eq!(begin.elapsed().as_millis(), 20);
        alarm.set(at(30));
        alarm.rings().await;
        assert_eq!(begin.elapsed().as_millis(), 30);
        alarm.set(at(10));
        alarm.rings().await;
        assert_eq!(begin.elapsed().as_millis(), 30, "what is over goes off at once");
    }
}
