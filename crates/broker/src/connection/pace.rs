//! The pace at which a peer must read a response, and the memory that the response holds meanwhile.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;

use ottla_wire::{Chain, Piece};
use tokio::time::Instant;

use super::deadlines::{CONTENDED_TIME_MAX, CONTENTION_CHECK, contended_time_for};
use super::input::Granted;
use super::thread::Thread;
use crate::api::ConnectionContext;
use crate::memory::{Charge, Sending};

/// Responses above this size count as soon as they exist. Smaller ones count when they wait for earlier ones, or when the peer does not
/// read them at once.
const SMALL_BYTES_MAX: usize = 16 << 10;

/// The memory of a response that is not written yet.
#[derive(Debug)]
pub(super) struct ResponseMemory {
    bytes: usize,
    sending: Option<Sending>,
}

impl ResponseMemory {
    /// The memory of no response.
    pub(super) const NONE: Self = Self { bytes: 0, sending: None };

    /// Counts a response, unless it is small and within the share of its connection. `before` are the bytes of its earlier responses that
    /// are not counted.
    pub(super) fn of(
        chain: &Chain,
        before: usize,
        encrypted_max: usize,
        context: &ConnectionContext,
    ) -> Self {
        let in_memory = |piece: &Piece| if let Piece::Memory(bytes) = piece { bytes.len() } else { 0 };
        let bytes: usize = chain.pieces().iter().map(in_memory).sum();
        let bytes = bytes + bytes.min(encrypted_max);
        let is_beyond_share = before > 0 && before + bytes > context.cluster.shares.limits().share;
        let sending = (bytes > SMALL_BYTES_MAX || is_beyond_share)
            .then(|| context.cluster.memory.send(context.client_host(), bytes));
        Self { bytes, sending }
    }

    /// The bytes, unless they are counted.
    pub(super) fn uncounted_bytes(&self) -> usize {
        if self.sending.is_some() { 0 } else { self.bytes }
    }
}

/// The progress of one response, or of a part of it.
pub(super) struct Pace<'a> {
    context: &'a ConnectionContext,
    /// The memory of the response.
    bytes: usize,
    sending: Option<Sending>,
    /// The memory of the part of a file that is sent.
    charge: Option<Charge>,
    began: Instant,
    sent: usize,
    thread: Thread,
    /// The memory that the connection has for its next request.
    next: Option<NextRequest<'a>>,
}

/// The memory of the request behind that of a response.
pub(super) struct NextRequest<'a> {
    pub(super) granted: &'a mut Option<Granted>,
    /// `true` if more of the request has arrived than a connection may have without a charge.
    pub(super) has_begun: bool,
}

impl<'a> Pace<'a> {
    /// The pace of a response with this memory.
    pub(super) fn new(context: &'a ConnectionContext, memory: ResponseMemory, thread: Thread) -> Self {
        let ResponseMemory { bytes, sending } = memory;
        Self { context, bytes, sending, charge: None, began: Instant::now(), sent: 0, thread, next: None }
    }

    /// The same for a connection that may have memory for its next request.
    pub(super) fn before(self, next: NextRequest<'a>) -> Self {
        Self { next: Some(next), ..self }
    }

    /// Begins the next part.
    pub(super) fn begin(&mut self) {
        (self.began, self.sent) = (Instant::now(), 0);
    }

    /// Waits for the turn of a connection that sends much. This time is not the peer's.
    pub(super) async fn take_turn(&mut self) {
        self.thread.take_turn(&self.context.cluster).await;
        self.begin();
    }

    /// Counts bytes that the peer has accepted.
    pub(super) fn add_sent(&mut self, bytes: usize) {
        self.sent += bytes;
    }

    /// Waits while the node is paused. This time is not the peer's.
    pub(super) async fn wait_while_paused(&mut self) -> io::Result<()> {
        if self.context.is_paused() {
            self.context.wait_while_paused().await?;
            self.begin();
        }
        Ok(())
    }

    /// Takes memory for a part of a file if it is free.
    pub(super) fn try_charge(&mut self, bytes: usize) -> bool {
        self.charge = self.context.cluster.memory.try_charge(self.context.client_host(), bytes);
        self.charge.is_some()
    }

    /// Waits for memory for a part of a file. The response does not count meanwhile: requests that have memory wait until
    /// responses are sent.
    ///
    /// The memory of the connection's next request is returned if that hardly began. Else this fails after some time: connections that
    /// have some memory, and wait for more, could wait for each other.
    pub(super) async fn charge(&mut self, bytes: usize) -> io::Result<()> {
        self.sending = None;
        let mut has_next = false;
        if let Some(NextRequest { granted, has_begun }) = &mut self.next {
            granted.take_if(|granted| !*has_begun && !granted.is_for_record);
            has_next = granted.is_some();
        }
        let charge = self.context.cluster.memory.charge(self.context.client_host(), bytes);
        self.charge = Some(if has_next {
            let waited = tokio::time::timeout(CONTENDED_TIME_MAX, charge).await;
            waited.map_err(|_| {
                let text = "the response waits for memory, and the client's next request has some that others wait for";
                io::Error::new(io::ErrorKind::TimedOut, text)
            })?
        } else {
            charge.await
        });
        Ok(())
    }

    /// Returns `true` while others wait for memory that the response has.
    fn is_wanted(&self) -> bool {
        self.sending.as_ref().is_some_and(Sending::is_wanted)
            || self.charge.as_ref().is_some_and(Charge::is_wanted)
    }

    /// Returns the memory of a part of a file.
    pub(super) fn return_charge(&mut self) {
        self.charge = None;
    }

    /// Fails when the peer accepts nothing for too long, or too little while others wait for memory that it holds.
    pub(super) async fn keep<V>(&mut self, write: impl Future<Output = io::Result<V>>) -> io::Result<V> {
        let mut write = pin!(write);
        let context = self.context;
        // Most responses are taken at once: they need no timer, and no memory once they are written.
        if !context.is_paused()
            && let Poll::Ready(written) = poll_fn(|cx| Poll::Ready(write.as_mut().poll(cx))).await
        {
            return written;
        }
        if self.sending.is_none() && self.bytes > self.context.cluster.shares.limits().share {
            let memory = &self.context.cluster.memory;
            self.sending = Some(memory.send(self.context.client_host(), self.bytes));
        }
        let holds_memory = self.sending.is_some() || self.charge.is_some();
        let mut stalled_at = Instant::now() + context.cluster.config.write_timeout;
        loop {
            if context.is_paused() {
                self.wait_while_paused().await?;
                stalled_at = Instant::now() + context.cluster.config.write_timeout;
            }
            let now = Instant::now();
            let left = stalled_at.saturating_duration_since(now);
            let in_time = (self.began + contended_time_for(self.sent)).saturating_duration_since(now);
            let look = if holds_memory { left.min(in_time.max(CONTENTION_CHECK)) } else { left };
            let unpaused = poll_fn(|cx| {
                if context.is_paused() { Poll::Ready(None) } else { write.as_mut().poll(cx).map(Some) }
            });
            match tokio::time::timeout(look, unpaused).await {
                Ok(Some(written)) => return written,
                Ok(None) => continue,
                Err(_) => {}
            }
            let allowed = contended_time_for(self.sent);
            let too_slow = self.began + allowed <= Instant::now();
            if left <= look || (too_slow && self.is_wanted()) {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read its responses"));
            }
        }
    }
}
