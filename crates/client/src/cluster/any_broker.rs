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
        let deadline = deadline_after(self.config.socket_timeout);
        let mut failures = 0;
        loop {
            let connection = self.brokers.any().await?;
            let patience = self.patience_of_attempt(&connection, failures, deadline);
            let error = match self.call_counted(&connection, version_max, patience, &make).await {
                Ok(response) => return Ok((response, connection.address().to_owned())),
                Err(error) => error,
            };
            let pause = self.backoff(failures);
            failures += 1;
            if !matches!(error, Error::TimedOut { .. }) || Instant::now() + pause >= deadline {
                return Err(error);
            }
            tracing::debug!(%error, "asking another broker");
            tokio::time::sleep(pause).await;
        }
    }

    /// The patience of an attempt after `failures` others: the broker's, and longer after each of them. A repetition ends at `deadline`,
    /// but has at least the shortest patience, because a wait for a connection may have used up the time.
    fn patience_of_attempt(
        &self,
        connection: &Connection,
        failures: u32,
        deadline: Instant,
    ) -> Option<Duration> {
        let unanswered = self.brokers.unanswered(connection.address());
        let patience = self.config.patience(unanswered.max(failures))?;
        if failures == 0 {
            return Some(patience);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        Some(patience.min(left.max(self.config.patience(0)?)))
    }

    /// Sends a request that a broker answers without waiting, and that can be repeated. A broker that does not answer is abandoned before
    /// the request timeout, after the watchdog's patience; each time in a row, that is longer.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if the broker is abandoned, and those of [`Connection::call`].
    pub(crate) fn call_soon<R: Request>(
        &self,
        connection: &Rc<Connection>,
        version_max: i16,
        make: impl FnOnce(i16) -> R,
    ) -> impl Future<Output = Result<R::Response, Error>> {
        let patience = self.config.patience(self.brokers.unanswered(connection.address()));
        // Not awaited here: futures within futures have a limit of depth.
        self.call_counted(connection, version_max, patience, make)
    }

    /// [`Connection::call_within`]; the broker's requests without a response in a row are counted.
    async fn call_counted<R: Request>(
        &self,
        connection: &Rc<Connection>,
        version_max: i16,
        patience: Option<Duration>,
        make: impl FnOnce(i16) -> R,
    ) -> Result<R::Response, Error> {
        let (began, address) = (Instant::now(), connection.address());
        let unanswered = self.brokers.unanswered(address);
        let timeout = self.config.socket_timeout;
        // Boxed: futures within futures have a limit of depth.
        let result = Box::pin(connection.call_within(version_max, timeout, patience, make)).await;
        if matches!(result, Err(Error::TimedOut { .. })) {
            self.brokers.set_unanswered(address, unanswered.saturating_add(1));
            self.brokers.note_silence(address);
        } else if result.is_ok() && self.config.patience(0).is_none_or(|patience| began.elapsed() < patience)
        {
            // A slow response keeps the count, so that the client does not abandon a slow broker again.
            self.brokers.set_unanswered(address, 0);
        }
        result
    }
}
