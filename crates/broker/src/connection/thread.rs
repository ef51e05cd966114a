//! The thread that serves a connection.
//!
//! Requests with very many items, and responses of many bytes in memory, take longer than all that other clients want. While there
//! is one, a thread of lower priority serves the whole connection: it receives, answers, sends and frees. Produce requests, and
//! responses with records, are what a broker is for: they do not count.

use ottla_protocol::ApiKey;

use super::{Closed, Connection, Pending, Transport, has_large_response};
use crate::cluster::Cluster;

/// Requests up to this size have few items.
const NARROW_REQUEST_BYTES_MAX: usize = 32 << 10;
/// Responses up to this size are sent by the thread that made them: a quarter of what it writes at a time.
const NARROW_RESPONSE_BYTES_MAX: usize = 256 << 10;

/// The threads of which one serves a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thread {
    /// That of all clients.
    Serving,
    /// That of long work.
    Background,
}

impl Thread {
    /// Waits for the turn of a connection that has much to do.
    pub(super) async fn take_turn(self, cluster: &Cluster) {
        match self {
            Self::Serving => cluster.take_turn().await,
            // A turn that this thread holds could last long.
            Self::Background => tokio::task::yield_now().await,
        }
    }
}

/// The reasons why a thread stops serving a connection that is not closed for an error.
#[derive(Debug)]
pub(super) enum Stop {
    Ended,
    /// The other thread continues.
    Moves,
}

impl<T: Transport> Connection<T> {
    /// Serves the connection to its end, on the threads that its requests need. `None` if the other thread panicked.
    pub(super) async fn serve(mut self) -> Option<Self> {
        let cluster = self.context.cluster.clone();
        let mut stopped = Ok(Stop::Moves);
        if self.context.sasl.is_some() {
            // Boxed: other connections need no memory for this step.
            stopped = Box::pin(self.authenticate()).await.map(|()| Stop::Moves);
        }
        while let Ok(Stop::Moves) = stopped {
            stopped = self.run(Thread::Serving).await;
            if let Ok(Stop::Moves) = stopped {
                // Boxed as well.
                let moved = Box::pin(cluster.run_future_in_background(async move {
                    let stopped = self.run(Thread::Background).await;
                    (self, stopped)
                }));
                (self, stopped) = moved.await?;
            }
        }
        if let Err(reason) = &stopped {
            tracing::debug!(node = self.context.node, %reason, "connection closed");
        }
        if !matches!(stopped, Err(Closed::Down)) && self.has_started_appends() {
            // Boxed: few connections end with such requests.
            Box::pin(self.finish_appends()).await;
        }
        Some(self)
    }

    /// Returns `true` if the other thread has to serve the next request.
    pub(super) fn leaves(&self, thread: Thread) -> bool {
        match thread {
            Thread::Serving => self.has_wide_request(),
            Thread::Background => self.pending.is_empty() && !self.has_wide_request(),
        }
    }

    /// Returns `true` if the next request, all of it or its beginning, has very many items.
    fn has_wide_request(&self) -> bool {
        let produce = ApiKey::Produce.code().to_be_bytes();
        self.frames.next_size().is_some_and(|size| size > NARROW_REQUEST_BYTES_MAX)
            && self.frames.peek(2).is_some_and(|api| *api != produce)
    }

    /// Returns `true` if the response that is to be written next takes long to write.
    pub(super) fn has_wide_response(&self) -> bool {
        let Some(Pending { api, done: Some(done), .. }) = self.pending.front() else { return false };
        let Some(chain) = done.reply.chain() else { return false };
        // Records are sent from their files.
        let has_records = matches!(api, ApiKey::Fetch | ApiKey::ShareFetch);
        chain.len() > NARROW_RESPONSE_BYTES_MAX && !has_records && has_large_response(*api, chain.len())
    }
}
