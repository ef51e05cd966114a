//! The produce requests of a connection that ends: those that were started append their batches, as in Apache Kafka.
//!
//! A producer with `acks=0` may close as soon as it has sent its records.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use ottla_protocol::ApiKey;
use tokio::sync::Mutex;

use super::{Connection, Pending, Transport};

/// The time in which they must have appended. Checks of large batches, and waits for memory, take seconds at most.
const APPENDS_MAX: Duration = Duration::from_secs(60);

impl<T: Transport> Connection<T> {
    /// Returns `true` if a produce request was started and is not done.
    pub(super) fn has_started_appends(&self) -> bool {
        self.pending.iter().any(is_open_produce)
    }

    /// Waits until the produce requests that were started have appended their batches, or until the node goes down.
    pub(super) async fn finish_appends(&mut self) {
        let Self { pending, context, flips, charge, decrypted, .. } = self;
        (*charge, *decrypted) = (None, None);
        let (Some(node), Some((flips, _))) = (context.cluster.node(context.node), *flips) else { return };
        tokio::select! {
            biased;
            () = node.turned_since(flips) => {}
            () = appended(pending, &context.appends) => {}
            () = tokio::time::sleep(APPENDS_MAX) => tracing::warn!("produce requests of a client that has left take too long"),
        }
    }
}

/// Polls the produce requests until they are done, or until all have appended: each of them has entered the queue for `appends` before
/// this call. Their responses are dropped.
async fn appended(pending: &mut VecDeque<Pending>, appends: &Mutex<()>) {
    pending.retain(is_open_produce);
    let mut last_turn = pin!(appends.lock());
    poll_fn(|cx| {
        pending.retain_mut(|request| {
            request.reply.as_mut().is_some_and(|running| running.as_mut().poll(cx).is_pending())
        });
        if pending.is_empty() || last_turn.as_mut().poll(cx).is_ready() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

fn is_open_produce(request: &Pending) -> bool {
    request.api == ApiKey::Produce && request.reply.is_some()
}
