//! The connections of a node that a test has paused, as SIGSTOP pauses a process: nothing is read, started or sent.
//!
//! Requests in progress continue, and their responses wait. The nodes of a process share turns and locks: a request that kept one during
//! a pause would hold up the other nodes.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;

use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout_at};

use super::authentication::AUTHENTICATION_MAX;
use super::pending::poll_without_end;
use super::{Closed, Connection, Transport};
use crate::api::ConnectionContext;
use crate::cluster::nodes::Node;

impl<T: Transport> Connection<T> {
    /// Waits for the end of a pause, or of the connection. `flips` are the changes of its node when the connection began.
    pub(super) async fn wait_out_pause(&mut self, node: &Node, flips: u64) -> Result<(), Closed> {
        let Self { io, pending, context, charge, .. } = self;
        let (context, encrypted_max) = (&**context, io.encrypted_bytes_max());
        tokio::select! {
            biased;
            () = node.turned_since(flips) => return Err(Closed::Down),
            resumed = context.resumed() => resumed.map_err(|_| Closed::Down)?,
            () = poll_without_end(pending, encrypted_max, context) => {}
        }
        // The client could not send the rest of its request.
        if let Some(granted) = charge {
            granted.since = Instant::now();
        }
        Ok(())
    }
}

impl ConnectionContext {
    /// Returns `true` while a test has paused the node of the connection.
    pub(super) fn is_paused(&self) -> bool {
        self.cluster.node_or_removed(self.node).is_some_and(Node::is_paused)
    }

    /// Waits while the node is paused.
    ///
    /// # Errors
    /// The node or the broker ends: the client gets nothing more.
    pub(super) async fn wait_while_paused(&self) -> io::Result<()> {
        if self.is_paused() {
            // Boxed: it is rare.
            Box::pin(self.resumed()).await?;
        }
        Ok(())
    }

    /// Waits until the node is not paused. Fails as [`Self::wait_while_paused`] does.
    async fn resumed(&self) -> io::Result<()> {
        let Some(node) = self.cluster.node_or_removed(self.node) else { return Ok(()) };
        let is_open = tokio::select! {
            biased;
            () = self.cluster.serving.until(|| self.cluster.is_draining()) => false,
            () = node.resumed() => node.is_open(),
        };
        if is_open { Ok(()) } else { Err(io::Error::other("the node ended while it was paused")) }
    }
}

/// Polls work while its node is not paused. The work must have nothing that other nodes wait for.
pub(crate) async fn unless_paused<V>(node: &Node, mut work: impl Future<Output = V> + Unpin) -> V {
    loop {
        let polled = poll_fn(|cx| {
            if node.is_paused() { Poll::Ready(None) } else { Pin::new(&mut work).poll(cx).map(Some) }
        });
        match polled.await {
            Some(done) => return done,
            None => node.resumed().await,
        }
    }
}

/// Waits for a step of a handshake or of a login until its deadline. The deadline begins again if the node was paused meanwhile.
pub(crate) async fn in_time<V>(
    node: &Node,
    deadline: &mut Instant,
    step: impl Future<Output = V>,
) -> Result<V, Elapsed> {
    let mut step = pin!(step);
    let mut pause_flips = node.pause_flips();
    loop {
        let done = timeout_at(*deadline, step.as_mut()).await;
        if done.is_ok() || (!node.is_paused() && node.pause_flips() == pause_flips) {
            return done;
        }
        pause_flips = node.pause_flips();
        *deadline = Instant::now() + AUTHENTICATION_MAX;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::broker::Broker;

    /// The deadline would have passed at the end of the pause: the client had no part in it.
    #[tokio::test]
    async fn a_pause_does_not_count_for_the_deadline_of_a_login() {
        let broker = Broker::builder().memory().no_listener().start().await.expect("a broker in memory");
        let cluster = broker.cluster();
        let node = cluster.node(1).expect("a node");
        let mut deadline = Instant::now();
        let late = in_time(node, &mut deadline, std::future::pending::<()>()).await;
        assert!(late.is_err());

        node.set_paused(true);
        let step = async {
            // Polled once per deadline: it ends at the second one.
            tokio::task::yield_now().await;
            node.set_paused(false);
        };
        let mut deadline = Instant::now().checked_sub(Duration::from_secs(1)).expect("a second of uptime");
        assert!(in_time(node, &mut deadline, step).await.is_ok());
        assert!(deadline > Instant::now(), "it has begun again");
        broker.stop().await;
    }

    #[tokio::test]
    async fn work_of_a_paused_node_waits_until_it_is_resumed() {
        let broker = Broker::builder().memory().no_listener().start().await.expect("a broker in memory");
        let cluster = broker.cluster();
        let node = cluster.node(1).expect("a node");
        node.set_paused(true);
        let mut work = Box::pin(unless_paused(node, std::future::ready(7)));
        assert!(tokio::time::timeout(Duration::ZERO, work.as_mut()).await.is_err(), "it is paused");
        node.set_paused(false);
        let done = tokio::time::timeout(Duration::from_secs(30), work).await;
        assert_eq!(done, Ok(7));
        broker.stop().await;
    }
}
