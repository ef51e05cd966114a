//! The first part of a connection whose listener has SASL: nothing is answered but the login, within limits of its own.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use ottla_wire::Chain;
use tokio::time::Instant;

use super::input::{Received, receive};
use super::pace::{Pace, ResponseMemory};
use super::pausing::in_time;
use super::response_writer::write_response;
use super::thread::Thread;
use super::{Closed, Connection, Transport, progress};
use crate::places::too_large;
use crate::request_memory::Limits;
use crate::security::sasl::{SaslConnection, Step};

/// The time from the connection to the end of the login.
pub(crate) const AUTHENTICATION_MAX: Duration = Duration::from_secs(10);

/// The bytes of a TLS record that are received before the whole record is counted: a login has less.
const UNAUTHENTICATED_RECORD_BYTES: usize = 1 << 10;

impl<T: Transport> Connection<T> {
    /// Serves the connection until the client is authenticated.
    pub(super) async fn authenticate(&mut self) -> Result<(), Closed> {
        let context = self.context.clone();
        let cluster = &context.cluster;
        let (Some(server), Some(node)) = (&context.listener.sasl, cluster.node(context.node)) else {
            return Ok(());
        };
        if !node.is_open() {
            return Err(Closed::Down);
        }
        let request_bytes_max = cluster.config.request_bytes_max;
        self.frames.set_max(server.receive_bytes_max().min(request_bytes_max));
        self.io.limit_record(Some(UNAUTHENTICATED_RECORD_BYTES));
        let flips = (node.flips(), cluster.serving.flips());
        let mut deadline = Instant::now() + AUTHENTICATION_MAX;
        let mut place = context.listener.unauthenticated.enter();
        while context.principal.get().is_none() {
            let next = tokio::select! {
                biased;
                () = node.turned_since(flips.0) => return Err(Closed::Down),
                () = cluster.serving.turned_since(flips.1) => return Err(Closed::Down),
                () = place.evicted() => {
                    return Err(Closed::Peer("too many connections do not authenticate".to_owned()));
                }
                next = in_time(node, &mut deadline, self.authenticate_by_one()) => next,
            };
            next.map_err(|_| Closed::Peer("no authentication in time".to_owned()))??;
            let of_record = if self.io.unfinished_bytes() > 0 { self.io.record_memory() } else { 0 };
            let bytes = self.frames.arrived() + of_record;
            if !place.hold(bytes) {
                return Err(Closed::Peer(too_large(bytes)));
            }
        }
        self.frames.set_max(request_bytes_max);
        Ok(())
    }

    /// Answers the next request, or reads more of it.
    async fn authenticate_by_one(&mut self) -> Result<(), Closed> {
        let context = self.context.clone();
        context.wait_while_paused().await?;
        match self.frames.next_frame() {
            Err(error) => Err(Closed::Peer(error.to_string())),
            Ok(None) => {
                let received = receive(&mut self.io, &mut self.frames, &mut None, Limits::LOGIN).await;
                // A client that has left is noticed after the pause.
                context.wait_while_paused().await?;
                match received? {
                    Received::Bytes(0) => {
                        return Err(Closed::Peer("it was closed before authentication".to_owned()));
                    }
                    Received::Bytes(_) => self.io.limit_record(Some(UNAUTHENTICATED_RECORD_BYTES)),
                    // The caller counts it.
                    Received::NeedsMemory => self.io.limit_record(None),
                };
                Ok(())
            }
            Ok(Some(frame)) => {
                let is_raw = context.sasl.as_ref().is_some_and(SaslConnection::expects_raw_token);
                if is_raw {
                    return self.answer_raw_token(&frame).await;
                }
                self.start(frame).await?;
                while !self.pending.is_empty() {
                    progress(&mut self.pending, self.io.encrypted_bytes_max(), &context).await;
                    context.wait_while_paused().await?;
                    self.write_done(Thread::Serving).await?;
                }
                Ok(())
            }
        }
    }

    /// Answers a token that follows a handshake of version 0: neither has a header. A failure has no answer.
    async fn answer_raw_token(&mut self, token: &Bytes) -> Result<(), Closed> {
        let context = self.context.clone();
        let bytes = match context.authenticate(token).await {
            Step::Continue(bytes) | Step::Done { bytes, .. } => bytes,
            Step::Failed { text, .. } => return Err(Closed::Peer(text)),
            Step::IllegalState => return Err(Closed::Peer("a token without a handshake".to_owned())),
        };
        let mut framed = BytesMut::with_capacity(4 + bytes.len());
        framed.put_i32(i32::try_from(bytes.len()).unwrap_or(i32::MAX));
        framed.extend_from_slice(&bytes);
        let response = Chain::from(framed.freeze());
        let memory = ResponseMemory::of(&response, 0, self.io.encrypted_bytes_max(), &context);
        write_response(&mut self.io, Pace::new(&context, memory, Thread::Serving), response).await?;
        Ok(())
    }
}
