//! Requests that any broker can answer, and other requests that are answered soon.

use std::rc::Rc;
use std::time::Duration;

use ottla_protocol::Request;
use tokio::time::Instant;

use super::Cluster;
use crate::error::Error;
use crate::net::connection::Connection;
use crate::timer::deadline_after;

impl Cluster {
    /// Sends a request to any broker that responds: first the known brokers, then the bootstrap servers. Another broker is asked if one
    /// does not answer, so the request may be executed twice.
    pub(crate) async fn call_any<R: Request>(
        &self,
        version_max: i16,
        make: impl Fn(i16) -> R,
    ) -> Result<R::Response, Error> {
        Ok(self.ask_any(version_max, make).await?.0)
    }

    /// [`Self::call_any`], with the address of the broker that responded.
    pub(super) async fn ask_any<R: Request>(
        &self,
        version_max: i16,
        make: impl Fn(i16) -> R,
    ) -> Result<(R::Response, String), Error> {
        let mut timeout = self.config.socket_timeout;
        let deadline = deadline_after(timeout);
        let mut failures = 0;
        loop {
            let connection = self.brokers.any().await?;
            let error = match self.call_soon(&connection, version_max, timeout, &make).await {
                Ok(response) => return Ok((response, connection.address().to_owned())),
                Err(error) => error,
            };
            let pause = self.backoff(failures);
            failures += 1;
            timeout = deadline.saturating_duration_since(Instant::now() + pause);
            if !matches!(error, Error::TimedOut { .. }) || timeout.is_zero() {
                return Err(error);
            }
            tracing::debug!(%error, "asking another broker");
            tokio::time::sleep(pause).await;
        }
    }

    /// Sends a request that a broker answers without waiting, and that can be repeated. A broker that does not answer is abandoned before
    /// `timeout`, after the watchdog's patience; each time in a row, that is longer.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if the broker is abandoned, and those of [`Connection::call`].
    pub(crate) async fn call_soon<R: Request>(
        &self,
        connection: &Rc<Connection>,
        version_max: i16,
        timeout: Duration,
        make: impl FnOnce(i16) -> R,
    ) -> Result<R::Response, Error> {
        let (began, unanswered) = (Instant::now(), self.unanswered.get());
        let patience = self.config.patience(unanswered);
        // Boxed: futures within futures have a limit of depth.
        let result = Box::pin(connection.call_within(version_max, timeout, patience, make)).await;
        if matches!(result, Err(Error::TimedOut { .. })) {
            self.unanswered.set(unanswered.saturating_add(1));
            self.brokers.note_silence(connection.address());
        } else if result.is_ok() && self.config.patience(0).is_none_or(|patience| began.elapsed() < patience)
        {
            // A slow response keeps the count, so that the client does not abandon a slow broker again.
            self.unanswered.set(0);
        }
        result
    }
}
