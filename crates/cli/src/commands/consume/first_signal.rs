//! The first signal. It ends the reading; if it comes after that, it has no effect on the end that is under way.

use std::future::pending;
use std::pin::Pin;

use crate::failure::Failure;
use crate::signals;

/// Waits for the first signal while a command reads, and for the second one while it commits.
pub(super) struct FirstSignal<F> {
    /// `None` after the signal.
    coming: Option<Pin<Box<F>>>,
}

impl<F: Future<Output = Result<(), Failure>>> FirstSignal<F> {
    pub(super) fn new(signal: F) -> Self {
        Self { coming: Some(Box::pin(signal)) }
    }

    /// Waits for the first signal. Cancel safe.
    pub(super) async fn wait(&mut self) -> Result<(), Failure> {
        let Some(coming) = &mut self.coming else { return pending().await };
        let signal = coming.await;
        self.coming = None;
        signal
    }

    /// Waits for the last commit and for leaving the group. The second signal ends the wait.
    pub(super) async fn close(
        self,
        closing: impl Future<Output = Result<(), ottla_client::Error>>,
    ) -> Result<(), Failure> {
        tokio::select! {
            biased;
            closed = closing => closed.map_err(Failure::from),
            signal = self.second() => Err(Failure::Interrupted(signal?)),
        }
    }

    async fn second(self) -> Result<u8, Failure> {
        if let Some(first) = self.coming {
            first.await?;
        }
        signals::interrupted().await
    }
}
