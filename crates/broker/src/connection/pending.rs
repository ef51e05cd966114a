//! The requests of a connection that are not answered yet.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use ottla_protocol::ApiKey;
use tokio::time::Instant;

use super::pace::ResponseMemory;
use crate::api::{ConnectionContext, Reply, Replying};
use crate::memory::Charge;

pub(super) struct Pending {
    pub(super) api: ApiKey,
    pub(super) began: Instant,
    /// `None` once it is done. Its memory is returned then: a client can leave many responses unread.
    pub(super) reply: Option<Replying>,
    pub(super) done: Option<Done>,
    /// The memory of its frame. It is returned before the response is written, which may need memory itself.
    pub(super) charge: Option<Charge>,
}

/// A response that is not written yet.
pub(super) struct Done {
    pub(super) reply: Reply,
    /// Its bytes in memory.
    pub(super) memory: ResponseMemory,
}

impl Done {
    /// A response is counted as soon as it exists: it may have to wait for earlier ones, or for the thread that writes it. `before` are
    /// the bytes of earlier ones that are not counted.
    pub(super) fn new(
        reply: Reply,
        before: usize,
        encrypted_max: usize,
        context: &ConnectionContext,
    ) -> Self {
        let memory = reply
            .chain()
            .map_or(ResponseMemory::NONE, |chain| ResponseMemory::of(chain, before, encrypted_max, context));
        Self { reply, memory }
    }
}

/// The bytes of responses that are not written and not counted.
pub(super) fn uncounted_bytes(pending: &VecDeque<Pending>) -> usize {
    pending.iter().filter_map(|pending| pending.done.as_ref()).map(|done| done.memory.uncounted_bytes()).sum()
}

/// Returns `true` if all requests in progress wait for the lag of the node, and nothing else: the next request may be started.
pub(super) fn waits_for_lag(pending: &VecDeque<Pending>, context: &ConnectionContext) -> bool {
    let lagging = context.lagging();
    lagging > 0 && lagging == pending.iter().filter(|pending| pending.reply.is_some()).count()
}

/// Waits until the first response in the queue is ready, or until all requests in progress begin to wait only for the lag of the node:
/// the next request may be started then. Ends, too, when the last request begins to hang. Polls the others meanwhile.
pub(super) async fn progress(
    pending: &mut VecDeque<Pending>,
    encrypted_max: usize,
    context: &ConnectionContext,
) {
    let mut waited = waits_for_lag(pending, context);
    let hung = context.hangs();
    poll_fn(|cx| {
        poll_replies(pending, encrypted_max, context, cx);
        if context.hangs() && !hung {
            return Poll::Ready(());
        }
        // Their number says nothing: the lag of one can end when that of another begins.
        let waits = waits_for_lag(pending, context);
        let may_start = waits && !std::mem::replace(&mut waited, waits);
        match pending.front() {
            Some(Pending { done: None, .. }) if !may_start => Poll::Pending,
            Some(_) | None => Poll::Ready(()),
        }
    })
    .await;
}

/// Writes a response, and polls the requests behind it meanwhile: one of them can have the turn or the memory that other connections
/// wait for, and the client may take long to read.
///
/// The caller pins the write: a future that moves into another one needs its memory twice, for each connection.
pub(super) async fn write_beside(
    mut write: Pin<&mut impl Future<Output = io::Result<()>>>,
    pending: &mut VecDeque<Pending>,
    encrypted_max: usize,
    context: &ConnectionContext,
) -> io::Result<()> {
    poll_fn(|cx| {
        let written = write.as_mut().poll(cx);
        if written.is_pending() {
            poll_replies(pending, encrypted_max, context, cx);
        }
        written
    })
    .await
}

/// Polls the requests in progress while no response may be written, until it is dropped.
pub(super) async fn poll_without_end(
    pending: &mut VecDeque<Pending>,
    encrypted_max: usize,
    context: &ConnectionContext,
) {
    poll_fn(|cx| {
        poll_replies(pending, encrypted_max, context, cx);
        Poll::<()>::Pending
    })
    .await;
}

fn poll_replies(
    pending: &mut VecDeque<Pending>,
    encrypted_max: usize,
    context: &ConnectionContext,
    cx: &mut Context<'_>,
) {
    for at in 0..pending.len() {
        let Some(running) = pending[at].reply.as_mut() else { continue };
        let Poll::Ready(reply) = running.as_mut().poll(cx) else { continue };
        let before = uncounted_bytes(pending);
        (pending[at].reply, pending[at].charge) = (None, None);
        pending[at].done = Some(Done::new(reply, before, encrypted_max, context));
    }
}
