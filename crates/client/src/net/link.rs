//! The two directions of one connection: requests from the outbox, responses to their callers.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use ottla_protocol::{Message, Request, frame};
use ottla_wire::frames::FrameBuffer;
use ottla_wire::{Buffer, Chain, Piece, WriteQueue};
use rustc_hash::FxHashMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::connector::Io;
use super::tls::explained;
use super::versions::client_throttles;
use crate::config::Config;
use crate::error::Error;
use crate::stats::{ConnectionFailure, ConnectionObserver};

/// The largest payload of one TLS record.
const TLS_RECORD_BYTES: usize = 16 << 10;

/// The state that the tasks of a connection share with its senders.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) address: String,
    pub(super) observer: ConnectionObserver,
    pub(super) config: Arc<Config>,
    pub(super) versions: RefCell<FxHashMap<i16, (i16, i16)>>,
    /// The cluster's finalized features, with the level each is at.
    pub(super) features: RefCell<FxHashMap<String, i16>>,
    next_correlation_id: Cell<i32>,
    outbox: RefCell<VecDeque<OutgoingFrame>>,
    outbox_filled: Notify,
    /// The waiter for the next frame to leave the outbox.
    outbox_falls: RefCell<Option<Arc<Notify>>>,
    waiting: RefCell<VecDeque<PendingResponse>>,
    /// Requests that wait for re-authentication.
    held: RefCell<Option<VecDeque<HeldRequest>>>,
    /// The end of throttling (KIP-219).
    muted_until: Cell<Option<Instant>>,
    /// The time of the last request.
    sent_at: Cell<Instant>,
    /// Consecutive requests without a response in time.
    unanswered: Cell<u32>,
    /// The number of responses.
    answered: Cell<u64>,
    /// The time of the last response, or of the first request after it.
    progress_at: Cell<Instant>,
    /// The last time that the broker did not answer on another connection, if it has not answered on this one since.
    suspected_at: Cell<Option<Instant>>,
    /// The callers that give up after their patience.
    pub(super) patient: Cell<usize>,
    /// The error that closed the connection.
    closed: RefCell<Option<Error>>,
    /// Notified when `closed` is set.
    ended: Notify,
}

/// A request that is held back, and the receiver of its response.
type HeldRequest = (OutgoingFrame, Option<PendingResponse>);

#[derive(Debug)]
struct OutgoingFrame {
    /// `None` for bare SASL tokens.
    correlation_id: Option<i32>,
    frame: Chain,
    /// Notified when the last byte is written, for requests without a response.
    written: Option<oneshot::Sender<()>>,
}

#[derive(Debug)]
struct PendingResponse {
    /// `None` for bare SASL tokens of brokers before 1.0, which have none.
    correlation_id: Option<i32>,
    answer: ResponseTarget,
}

/// The memory for a response, accounted by the sender of the request.
pub(crate) trait ResponseMemory: std::fmt::Debug {
    /// Returns a buffer of at least this many bytes.
    fn buffer(&self, bytes: usize) -> Buffer;
}

/// The receiver of a response, and the memory for it if it is not the connection's.
#[derive(Debug)]
pub(super) struct ResponseTarget {
    pub(super) sender: oneshot::Sender<Bytes>,
    pub(super) room: Option<Rc<dyn ResponseMemory>>,
}

impl From<oneshot::Sender<Bytes>> for ResponseTarget {
    fn from(sender: oneshot::Sender<Bytes>) -> Self {
        Self { sender, room: None }
    }
}

/// The urgency of a request while the connection authenticates.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Urgency {
    /// The authentication itself.
    Now,
    /// Every other request.
    InTurn,
}

impl Link {
    pub(super) fn new(observer: ConnectionObserver, config: Arc<Config>) -> Rc<Self> {
        Rc::new(Self {
            address: observer.address().to_owned(),
            observer,
            config,
            versions: RefCell::default(),
            features: RefCell::default(),
            next_correlation_id: Cell::new(0),
            outbox: RefCell::default(),
            outbox_filled: Notify::new(),
            outbox_falls: RefCell::default(),
            waiting: RefCell::default(),
            held: RefCell::default(),
            muted_until: Cell::new(None),
            sent_at: Cell::new(Instant::now()),
            unanswered: Cell::new(0),
            answered: Cell::new(0),
            progress_at: Cell::new(Instant::now()),
            suspected_at: Cell::new(None),
            patient: Cell::new(0),
            closed: RefCell::default(),
            ended: Notify::new(),
        })
    }

    pub(super) fn is_open(&self) -> bool {
        self.closed.borrow().is_none()
    }

    /// Waits until it is closed.
    pub(super) async fn closed(&self) {
        let ended = self.ended.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        if self.is_open() {
            ended.await;
        }
    }

    /// Encodes a request and puts it in the outbox.
    pub(super) fn send<R: Request>(
        &self,
        request: &R,
        version: i16,
        urgency: Urgency,
        written: Option<oneshot::Sender<()>>,
        answer: Option<ResponseTarget>,
    ) -> Result<(), Error> {
        if !self.is_open() {
            return Err(self.closed_error());
        }
        let correlation_id = self.next_correlation_id.get();
        self.next_correlation_id.set(correlation_id.wrapping_add(1));
        let frame = frame::encode_request(correlation_id, Some(&self.config.client_id), version, request)
            .map_err(|error| Error::Protocol { address: self.address.clone(), reason: error.to_string() })?;
        self.observer.enqueued(R::KEY, version, correlation_id, frame.len(), answer.is_some());
        self.sent_at.set(Instant::now());
        let waiting = answer.map(|answer| PendingResponse { correlation_id: Some(correlation_id), answer });
        let correlation_id = Some(correlation_id);
        self.enqueue(OutgoingFrame { correlation_id, frame, written }, waiting, urgency);
        Ok(())
    }

    /// Sends a request and waits for the response frame, ahead of held requests.
    pub(super) async fn exchange<R: Request>(&self, request: &R, version: i16) -> Result<Bytes, Error> {
        let (answer, received) = oneshot::channel();
        self.send(request, version, Urgency::Now, None, Some(answer.into()))?;
        received.await.map_err(|_| self.closed_error())
    }

    /// The same for length-prefixed bytes that are not a Kafka request: SASL before Kafka 1.0.
    pub(super) async fn exchange_bare(&self, token: &[u8]) -> Result<Bytes, Error> {
        if !self.is_open() {
            return Err(self.closed_error());
        }
        let (answer, received) = oneshot::channel();
        let waiting = PendingResponse { correlation_id: None, answer: answer.into() };
        self.enqueue(bare_frame(token), Some(waiting), Urgency::Now);
        received.await.map_err(|_| self.closed_error())
    }

    /// Sends such bytes without a response.
    pub(super) fn send_unanswered(&self, token: &[u8]) -> Result<(), Error> {
        if !self.is_open() {
            return Err(self.closed_error());
        }
        self.enqueue(bare_frame(token), None, Urgency::Now);
        Ok(())
    }

    fn enqueue(&self, outgoing: OutgoingFrame, waiting: Option<PendingResponse>, urgency: Urgency) {
        if urgency == Urgency::InTurn
            && let Some(held) = &mut *self.held.borrow_mut()
        {
            held.push_back((outgoing, waiting));
            return;
        }
        if let Some(waiting) = waiting {
            let mut all = self.waiting.borrow_mut();
            if all.is_empty() {
                self.progress_at.set(Instant::now());
            }
            all.push_back(waiting);
        }
        self.outbox.borrow_mut().push_back(outgoing);
        self.outbox_filled.notify_one();
    }

    /// From now on, only authentication requests are sent.
    pub(super) fn hold(&self) {
        self.held.borrow_mut().get_or_insert_default();
    }

    /// Returns `true` if at least this many frames wait to be written; `wake` is then notified when one of them is
    /// written.
    pub(super) fn is_backed_up(&self, frames: usize, wake: &Arc<Notify>) -> bool {
        let backed_up = self.outbox.borrow().len() >= frames;
        if backed_up {
            *self.outbox_falls.borrow_mut() = Some(wake.clone());
        }
        backed_up
    }

    /// Sends the held requests, in order.
    pub(super) fn release(&self) {
        for (outgoing, waiting) in self.held.take().unwrap_or_default() {
            self.enqueue(outgoing, waiting, Urgency::InTurn);
        }
    }

    /// Sends nothing for this time.
    fn mute(&self, throttle: Duration) {
        tracing::debug!(address = %self.address, ms = throttle.as_millis(), "throttled by the broker");
        let until = Instant::now() + throttle;
        self.muted_until.set(Some(self.muted_until.get().map_or(until, |other| other.max(until))));
    }

    /// The end of the last throttle, which may be over.
    pub(super) fn muted_until(&self) -> Option<Instant> {
        self.muted_until.get()
    }

    /// The deadline of a response after `timeout` from the end of the throttle, if it is later than `deadline`: the request may wait for
    /// that end.
    pub(super) fn deadline_after_throttle(&self, deadline: Instant, timeout: Duration) -> Option<Instant> {
        let later = self.muted_until.get()?.checked_add(timeout)?;
        (later > deadline).then_some(later)
    }

    pub(super) fn decode<R: Request>(&self, frame: Bytes, version: i16) -> Result<R::Response, Error> {
        match frame::decode_response_prefix::<R>(frame, version) {
            Ok((_, response, surplus)) => {
                if surplus > 0 {
                    self.observer.surplus_bytes(R::KEY, version, surplus);
                }
                Ok(response)
            }
            Err(error) => {
                let reason = format!("answer to {} v{version}: {error}", R::KEY);
                Err(Error::Protocol { address: self.address.clone(), reason })
            }
        }
    }

    /// The highest version of `R` that both sides support.
    pub(super) fn version_of<R: Request>(&self, version_max: i16) -> Result<i16, Error> {
        let (ours_min, ours_max) = (*R::VERSIONS.start(), (*R::VERSIONS.end()).min(version_max));
        let versions = self.versions.borrow();
        let refuse = |theirs: String| Error::Unsupported {
            address: self.address.clone(),
            reason: format!("{}: we speak versions {ours_min} to {ours_max}, {theirs}", R::KEY),
        };
        let Some(&(theirs_min, theirs_max)) = versions.get(&R::KEY.code()) else {
            return Err(refuse("the broker does not know this request".into()));
        };
        let version = ours_max.min(theirs_max);
        if version < ours_min.max(theirs_min) {
            return Err(refuse(format!("the broker {theirs_min} to {theirs_max}")));
        }
        Ok(version)
    }

    /// Applies the throttle time of a response: the client sends nothing for a while (KIP-219).
    pub(super) fn heed_throttle<R: Request>(&self, version: i16, response: &R::Response) {
        let ms = response.throttle_time_ms();
        // Before Kafka 2.0, the broker itself delayed the response.
        if ms > 0 && client_throttles(R::KEY, version) {
            self.mute(Duration::from_millis(ms as u64));
        }
    }

    /// Records a request without a response in time. Responses arrive in order, so later ones are late too: after
    /// `socket.max.fails` such requests, the connection is closed.
    pub(super) fn on_unanswered(&self, reason: String) -> Error {
        self.observer.broken(ConnectionFailure::Timeout);
        let unanswered = self.unanswered.get() + 1;
        self.unanswered.set(unanswered);
        let max = self.config.net.max_fails;
        if max > 0 && unanswered >= max {
            // The request's sender has the error; as in librdkafka, the application gets no other.
            self.observer.gave_up();
            self.close(reason);
            return self.closed_error();
        }
        Error::Transport { address: self.address.clone(), reason: reason.into() }
    }

    pub(super) fn close(&self, reason: String) {
        self.close_with(Error::Transport { address: self.address.clone(), reason: reason.into() });
    }

    /// Closes the connection; only the first reason is kept. Dropping the senders wakes all waiting tasks.
    pub(super) fn close_with(&self, error: Error) {
        self.close_as(error, self.is_idle());
    }

    /// The peer closed the connection. Brokers close idle connections, which is not an error.
    fn close_by_peer(&self, error: Error) {
        self.close_as(error, self.is_quiet());
    }

    fn close_as(&self, error: Error, idle: bool) {
        if self.closed.borrow().is_some() {
            return;
        }
        self.observer.closed(&error.to_string());
        if idle || !self.config.net.log_connection_close {
            tracing::debug!(address = %self.address, %error, idle, "connection closed");
        } else {
            tracing::warn!(address = %self.address, %error, "connection closed with requests under way");
        }
        *self.closed.borrow_mut() = Some(error);
        self.waiting.borrow_mut().clear();
        self.outbox.borrow_mut().clear();
        self.held.take();
        self.outbox_filled.notify_one();
        self.ended.notify_waiters();
    }

    pub(super) fn closed_error(&self) -> Error {
        self.closed
            .borrow()
            .clone()
            .unwrap_or_else(|| Error::Transport { address: self.address.clone(), reason: "closed".into() })
    }

    /// The memory for the next response, if the request's sender provides it.
    fn room(&self) -> Option<Rc<dyn ResponseMemory>> {
        self.waiting.borrow().front()?.answer.room.clone()
    }

    /// Returns `true` if no request waits on it, so that losing it costs nothing.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.borrow().is_empty() && self.outbox.borrow().is_empty() && self.held.borrow().is_none()
    }

    /// Returns `true` if no caller waits for a response but those that give up after their patience: others have dropped their futures.
    pub(super) fn has_only_patient_waiters(&self) -> bool {
        let waiting = self.waiting.borrow();
        let waiters = waiting.iter().filter(|pending| !pending.answer.sender.is_closed());
        self.held.borrow().is_none() && waiters.count() <= self.patient.get()
    }

    /// Records that the broker does not answer on another connection.
    pub(super) fn suspect(&self) {
        self.suspected_at.set(Some(Instant::now()));
    }

    /// Returns `true` for the request timeout after [`suspect`](Self::suspect), or until a response comes.
    pub(super) fn is_suspect(&self) -> bool {
        self.suspected_at.get().is_some_and(|at| at.elapsed() < self.config.socket_timeout)
    }

    /// Returns `true` if requests wait and no response has come for this long, throttles aside.
    pub(super) fn is_silent(&self, after: Duration) -> bool {
        let progress_at = self.progress_at.get();
        let since = self.muted_until.get().map_or(progress_at, |until| until.max(progress_at));
        !self.waiting.borrow().is_empty() && since.elapsed() >= after
    }

    /// Returns `true` if the broker may consider it idle: no request waits, or nothing was sent for
    /// `socket.timeout.ms` (librdkafka's rule; a long poll may wait all that time).
    fn is_quiet(&self) -> bool {
        self.is_idle() || self.sent_at.get().elapsed() >= self.config.socket_timeout
    }

    /// Converts an I/O error of this connection; a TLS error gets an explanation.
    fn io_error(&self, doing: &str, error: io::Error) -> Error {
        let security = &self.config.security;
        if !security.protocol.is_tls() {
            let reason = format!("{doing}: {error}").into();
            return Error::Transport { address: self.address.clone(), reason };
        }
        // A peer that has answered speaks TLS and accepts this client. Its end is one of the connection: a broker that
        // crashes, and many proxies, send no close_notify.
        if error.kind() == io::ErrorKind::UnexpectedEof && self.answered.get() > 0 {
            let reason = format!("{doing}: closed by the peer without TLS's close_notify").into();
            return Error::Transport { address: self.address.clone(), reason };
        }
        let has_certificate = security.tls.has_certificate();
        // In TLS 1.3, a client knows of its refused certificate only after the handshake.
        let at_end = if self.answered.get() == 0 && !has_certificate {
            "closed by the peer after the TLS handshake: does the listener want a client certificate? \
             (ssl.certificate.location)"
        } else {
            "closed by the peer without TLS's close_notify"
        };
        let error = explained(error, has_certificate, at_end);
        Error::transport(&self.address, &error)
    }

    /// The error for a connection that the peer closed.
    fn on_end(&self) -> Error {
        let sasl = self.config.security.protocol.is_sasl();
        // A SASL listener answers ApiVersions and closes the connection at the first request of an unauthenticated
        // client.
        let reason = if !sasl && self.answered.get() == 1 && !self.waiting.borrow().is_empty() {
            "closed by the broker after the greeting: does the listener want SASL? (security.protocol)"
        } else {
            "closed by the broker"
        };
        Error::Transport { address: self.address.clone(), reason: reason.into() }
    }

    /// The error for a peer whose first bytes show that it does not speak Kafka.
    fn on_strange_start(&self, head: &[u8]) -> Option<Error> {
        let address = self.address.clone();
        if matches!(head, [0x15 | 0x16, 3, 0..=4, ..]) {
            let reason = "the peer speaks TLS and we do not: set security.protocol to ssl or sasl_ssl";
            return Some(Error::Tls { address, reason: reason.into() });
        }
        if head.starts_with(b"HTTP") {
            let reason = "the peer is an HTTP server, not a Kafka broker".to_owned();
            return Some(Error::Protocol { address, reason });
        }
        None
    }
}

/// Length-prefixed bytes that are not a Kafka request.
fn bare_frame(token: &[u8]) -> OutgoingFrame {
    let mut frame = BytesMut::with_capacity(4 + token.len());
    frame.put_i32(token.len() as i32);
    frame.put_slice(token);
    OutgoingFrame { correlation_id: None, frame: frame.freeze().into(), written: None }
}

/// Writes frames from the outbox until the connection is closed.
pub(super) async fn write_frames(link: Rc<Link>, mut io: WriteHalf<Box<dyn Io>>) {
    let tls = link.config.security.protocol.is_tls();
    loop {
        if let Some(until) = link.muted_until.get().filter(|until| *until > Instant::now()) {
            tokio::time::sleep_until(until).await;
            continue;
        }
        let next = link.outbox.borrow_mut().pop_front();
        if let Some(wake) = link.outbox_falls.take() {
            wake.notify_one();
        }
        let Some(OutgoingFrame { correlation_id, frame, written }) = next else {
            if !link.is_open() {
                let _ = io.shutdown().await;
                return;
            }
            link.outbox_filled.notified().await;
            continue;
        };
        let result =
            if tls { write_encrypted(&mut io, frame).await } else { write_chain(&mut io, frame).await };
        if let Err(error) = result {
            link.observer.broken(ConnectionFailure::Write);
            link.close_with(link.io_error("write", error));
            return;
        }
        if let Some(correlation_id) = correlation_id {
            link.observer.written(correlation_id);
        }
        if let Some(written) = written {
            let _ = written.send(());
        }
    }
}

async fn write_chain(io: &mut WriteHalf<Box<dyn Io>>, frame: Chain) -> io::Result<()> {
    let mut queue = WriteQueue::default();
    for piece in frame.into_pieces() {
        match piece {
            Piece::Memory(bytes) => queue.push(bytes),
            Piece::File(slice) => queue.push(slice.load()?),
        }
    }
    while !queue.is_empty() {
        let n = match queue.single(usize::MAX) {
            Some(bytes) => io.write(bytes).await?,
            None => io.write_vectored(&queue.slices(usize::MAX)).await?,
        };
        queue.written(n)?;
    }
    Ok(())
}

/// Writes a frame through TLS, which copies every byte in any case. A frame that fits into one TLS record is passed
/// in one piece, so that it becomes one record and one write.
async fn write_encrypted(io: &mut WriteHalf<Box<dyn Io>>, frame: Chain) -> io::Result<()> {
    if frame.len() <= TLS_RECORD_BYTES {
        io.write_all(&frame.to_bytes()?).await?;
    } else {
        write_chain(io, frame).await?;
    }
    // Flushes bytes that remain in the TLS buffer.
    io.flush().await
}

/// Reads frames and dispatches them until the connection is closed.
pub(super) async fn read_frames(link: Rc<Link>, mut io: ReadHalf<Box<dyn Io>>) {
    let mut frames = FrameBuffer::new(link.config.receive_message_max_bytes);
    let error = loop {
        let problem = match frames.next_frame() {
            Ok(Some(frame)) => match dispatch(&link, frame, false) {
                Ok(()) => continue,
                Err(reason) => {
                    link.observer.broken(ConnectionFailure::CorrelationId);
                    Some(reason)
                }
            },
            Ok(None) => match link.room().map(|room| (room, frames.take_started())) {
                Some((room, Ok(Some((size, head))))) => match read_into(&mut io, &*room, size, &head).await {
                    Ok(frame) => match dispatch(&link, frame, true) {
                        Ok(()) => continue,
                        Err(reason) => {
                            link.observer.broken(ConnectionFailure::CorrelationId);
                            Some(reason)
                        }
                    },
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break link.on_end(),
                    Err(error) => {
                        link.observer.broken(ConnectionFailure::Read);
                        break link.io_error("read", error);
                    }
                },
                _ => None,
            },
            Err(error) => {
                let reason = format!("Invalid response size: {error}: increase receive.message.max.bytes");
                link.observer.unreadable(&reason);
                Some(reason)
            }
        };
        if link.answered.get() == 0
            && let Some(error) = link.on_strange_start(frames.spare())
        {
            break error;
        }
        if let Some(reason) = problem {
            break Error::Transport { address: link.address.clone(), reason: reason.into() };
        }
        match io.read_buf(frames.spare()).await {
            Ok(0) => return link.close_by_peer(link.on_end()),
            Ok(_) => {}
            Err(error) => {
                link.observer.broken(ConnectionFailure::Read);
                return link.close_by_peer(link.io_error("read", error));
            }
        }
    };
    link.close_with(error);
}

/// Reads the rest of a large frame into the memory of the request's sender.
async fn read_into(
    io: &mut ReadHalf<Box<dyn Io>>,
    room: &dyn ResponseMemory,
    size: usize,
    head: &[u8],
) -> io::Result<Bytes> {
    let mut buffer = room.buffer(size);
    let (begun, rest) = buffer.as_mut_slice()[..size].split_at_mut(head.len());
    begun.copy_from_slice(head);
    io.read_exact(rest).await?;
    Ok(buffer.freeze(size))
}

/// Passes a frame to the first pending request. A different correlation id means that the stream is out of sync and
/// cannot be used any more.
fn dispatch(link: &Link, frame: Bytes, in_room: bool) -> Result<(), String> {
    let waiting = link.waiting.borrow_mut().pop_front();
    link.answered.set(link.answered.get() + 1);
    link.progress_at.set(Instant::now());
    link.suspected_at.set(None);
    link.unanswered.set(0);
    let Some(waiting) = waiting else {
        return Err(format!("an answer of {} bytes, and none was due", frame.len()));
    };
    if let Some(due) = waiting.correlation_id {
        let Some(head) = frame.first_chunk::<4>() else {
            return Err(format!("an answer of {} bytes is too short for a correlation id", frame.len()));
        };
        let correlation_id = i32::from_be_bytes(*head);
        if correlation_id != due {
            return Err(format!("answer to request {correlation_id} where {due} was due"));
        }
        link.observer.received(correlation_id, frame.len());
    }
    let ResponseTarget { sender, room } = waiting.answer;
    let frame = match room {
        // The frame shares the connection's buffer; a slice would retain more memory than its size.
        Some(room) if !in_room => {
            let mut buffer = room.buffer(frame.len());
            buffer.as_mut_slice()[..frame.len()].copy_from_slice(&frame);
            buffer.freeze(frame.len())
        }
        _ => frame,
    };
    // The caller may have dropped its future.
    let _ = sender.send(frame);
    Ok(())
}

/// Closes the connection if nothing was sent on it for `max_idle`. It checks four times in that period, so that
/// sending has no extra cost.
pub(super) async fn close_when_idle(link: Rc<Link>, max_idle: Duration) {
    let mut sent = link.next_correlation_id.get();
    let mut quiet = 0;
    while link.is_open() {
        tokio::time::sleep(max_idle / 4).await;
        let now_sent = link.next_correlation_id.get();
        quiet = if now_sent == sent && link.is_idle() { quiet + 1 } else { 0 };
        sent = now_sent;
        if quiet >= 4 {
            let max_ms = max_idle.as_millis();
            link.close(format!("Connection max idle time exceeded: {max_ms} ms (connections.max.idle.ms)"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Observer;

    #[test]
    fn a_connection_is_quiet_without_requests_or_when_the_last_one_is_long_ago() {
        let mut config = Config::new("b");
        config.socket_timeout = Duration::from_secs(3);
        let config = Arc::new(config);
        let link = Link::new(Observer::new(&config, 1).connection("b:9092"), config);
        assert!(link.is_quiet(), "nothing was ever sent");
        let (answer, _pending) = oneshot::channel();
        let request = ottla_protocol::messages::api_versions::ApiVersionsRequest::default();
        link.send(&request, 0, Urgency::Now, None, Some(answer.into())).expect("open");
        link.outbox.borrow_mut().clear();
        assert!(!link.is_quiet(), "somebody waits for what was sent just now");
        link.sent_at
            .set(Instant::now().checked_sub(Duration::from_secs(3)).expect("the machine runs for longer"));
        assert!(link.is_quiet() && !link.is_idle(), "a long poll that the broker has had enough of");
    }

    #[test]
    fn the_end_of_a_tls_connection_that_has_answered_is_no_tls_error() {
        let mut config = Config::new("b");
        config.security.protocol = crate::security::SecurityProtocol::Ssl;
        let config = Arc::new(config);
        let link = Link::new(Observer::new(&config, 1).connection("b:9093"), config);
        let end = || link.io_error("read", io::ErrorKind::UnexpectedEof.into());
        let first = end();
        assert!(
            matches!(&first, Error::Tls { reason, .. } if reason.contains("client certificate")),
            "{first}"
        );
        link.answered.set(1);
        let later = end();
        assert!(
            matches!(&later, Error::Transport { reason, .. } if reason.contains("close_notify")),
            "{later}"
        );
    }
}
