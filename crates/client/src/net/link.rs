//! The two directions of one connection: frames out of the outbox, frames to whoever waits for them.

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
use crate::stats::{Broken, Wire};

/// What TLS puts into one record at most.
const TLS_RECORD_BYTES: usize = 16 << 10;

/// What the tasks of a connection share with those who send on it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) address: String,
    pub(super) wire: Wire,
    pub(super) config: Arc<Config>,
    pub(super) versions: RefCell<FxHashMap<i16, (i16, i16)>>,
    /// The cluster's finalized features, with the level each is at.
    pub(super) features: RefCell<FxHashMap<String, i16>>,
    next_correlation_id: Cell<i32>,
    outbox: RefCell<VecDeque<Outgoing>>,
    outbox_filled: Notify,
    /// Whom to wake when the next frame leaves the outbox.
    outbox_falls: RefCell<Option<Arc<Notify>>>,
    waiting: RefCell<VecDeque<Waiting>>,
    /// While the connection authenticates anew, what is sent waits here.
    held: RefCell<Option<VecDeque<Held>>>,
    /// Until when the broker wants to hear nothing (KIP-219).
    muted_until: Cell<Option<Instant>>,
    /// Requests in a row that were not answered in time.
    unanswered: Cell<u32>,
    /// Answers that have come.
    answered: Cell<u64>,
    /// Why the connection is closed, once it is.
    closed: RefCell<Option<Error>>,
}

/// A request whose turn has not come, and who waits for its answer.
type Held = (Outgoing, Option<Waiting>);

#[derive(Debug)]
struct Outgoing {
    /// `None` for bare SASL tokens.
    correlation_id: Option<i32>,
    frame: Chain,
    /// Told when the last byte is written, for requests without an answer.
    written: Option<oneshot::Sender<()>>,
}

#[derive(Debug)]
struct Waiting {
    /// `None` for bare SASL tokens of brokers before 1.0, which have none.
    correlation_id: Option<i32>,
    answer: AnswerTo,
}

/// Memory for an answer, from whoever asked and keeps account of it.
pub(crate) trait Room: std::fmt::Debug {
    /// A buffer of at least so many bytes.
    fn buffer(&self, bytes: usize) -> Buffer;
}

/// Who gets an answer, and the memory it is read into if it is not the connection's.
#[derive(Debug)]
pub(super) struct AnswerTo {
    pub(super) sender: oneshot::Sender<Bytes>,
    pub(super) room: Option<Rc<dyn Room>>,
}

impl From<oneshot::Sender<Bytes>> for AnswerTo {
    fn from(sender: oneshot::Sender<Bytes>) -> Self {
        Self { sender, room: None }
    }
}

/// Who may send while the connection authenticates.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Urgency {
    /// The authentication itself.
    Now,
    /// Everybody else.
    InTurn,
}

impl Link {
    pub(super) fn new(wire: Wire, config: Arc<Config>) -> Rc<Self> {
        Rc::new(Self {
            address: wire.address().to_owned(),
            wire,
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
            unanswered: Cell::new(0),
            answered: Cell::new(0),
            closed: RefCell::default(),
        })
    }

    pub(super) fn is_open(&self) -> bool {
        self.closed.borrow().is_none()
    }

    /// Encodes a request and puts it in the outbox.
    pub(super) fn send<R: Request>(
        &self,
        request: &R,
        version: i16,
        urgency: Urgency,
        written: Option<oneshot::Sender<()>>,
        answer: Option<AnswerTo>,
    ) -> Result<(), Error> {
        if !self.is_open() {
            return Err(self.closed_error());
        }
        let correlation_id = self.next_correlation_id.get();
        self.next_correlation_id.set(correlation_id.wrapping_add(1));
        let frame = frame::encode_request(correlation_id, Some(&self.config.client_id), version, request)
            .map_err(|error| Error::Protocol { address: self.address.clone(), reason: error.to_string() })?;
        self.wire.enqueued(R::KEY, version, correlation_id, frame.len(), answer.is_some());
        let waiting = answer.map(|answer| Waiting { correlation_id: Some(correlation_id), answer });
        let correlation_id = Some(correlation_id);
        self.enqueue(Outgoing { correlation_id, frame, written }, waiting, urgency);
        Ok(())
    }

    /// Sends and waits for the answer's frame, past whatever is held.
    pub(super) async fn exchange<R: Request>(&self, request: &R, version: i16) -> Result<Bytes, Error> {
        let (answer, received) = oneshot::channel();
        self.send(request, version, Urgency::Now, None, Some(answer.into()))?;
        received.await.map_err(|_| self.closed_error())
    }

    /// The same with bytes that are no Kafka request, behind their length: SASL before Kafka 1.0.
    pub(super) async fn exchange_bare(&self, token: &[u8]) -> Result<Bytes, Error> {
        if !self.is_open() {
            return Err(self.closed_error());
        }
        let (answer, received) = oneshot::channel();
        let mut frame = BytesMut::with_capacity(4 + token.len());
        frame.put_i32(token.len() as i32);
        frame.put_slice(token);
        let outgoing = Outgoing { correlation_id: None, frame: frame.freeze().into(), written: None };
        self.enqueue(outgoing, Some(Waiting { correlation_id: None, answer: answer.into() }), Urgency::Now);
        received.await.map_err(|_| self.closed_error())
    }

    fn enqueue(&self, outgoing: Outgoing, waiting: Option<Waiting>, urgency: Urgency) {
        if urgency == Urgency::InTurn
            && let Some(held) = &mut *self.held.borrow_mut()
        {
            held.push_back((outgoing, waiting));
            return;
        }
        if let Some(waiting) = waiting {
            self.waiting.borrow_mut().push_back(waiting);
        }
        self.outbox.borrow_mut().push_back(outgoing);
        self.outbox_filled.notify_one();
    }

    /// From now on only the authentication may send.
    pub(super) fn hold(&self) {
        self.held.borrow_mut().get_or_insert_default();
    }

    /// Whether so many frames wait to be written; if they do, `wake` is told when there is one less.
    pub(super) fn is_backed_up(&self, frames: usize, wake: &Arc<Notify>) -> bool {
        let backed_up = self.outbox.borrow().len() >= frames;
        if backed_up {
            *self.outbox_falls.borrow_mut() = Some(wake.clone());
        }
        backed_up
    }

    /// Lets out what was held, in order.
    pub(super) fn release(&self) {
        for (outgoing, waiting) in self.held.take().unwrap_or_default() {
            self.enqueue(outgoing, waiting, Urgency::InTurn);
        }
    }

    /// Sends nothing for so long.
    fn mute(&self, throttle: Duration) {
        tracing::debug!(address = %self.address, ms = throttle.as_millis(), "throttled by the broker");
        let until = Instant::now() + throttle;
        self.muted_until.set(Some(self.muted_until.get().map_or(until, |other| other.max(until))));
    }

    pub(super) fn muted_until(&self) -> Option<Instant> {
        self.muted_until.get()
    }

    pub(super) fn decode<R: Request>(&self, frame: Bytes, version: i16) -> Result<R::Response, Error> {
        match frame::decode_response::<R>(frame, version) {
            Ok((_, response)) => Ok(response),
            Err(error) => {
                let reason = format!("answer to {} v{version}: {error}", R::KEY);
                Err(Error::Protocol { address: self.address.clone(), reason })
            }
        }
    }

    /// The highest version of `R` that both sides speak.
    pub(super) fn version_of<R: Request>(&self, version_max: i16) -> Result<i16, Error> {
        let (ours_min, ours_max) = (*R::VERSIONS.start(), (*R::VERSIONS.end()).min(version_max));
        let versions = self.versions.borrow();
        let refuse = |theirs: String| Error::Protocol {
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

    /// Does what the broker asks in an answer: be silent for a while (KIP-219).
    pub(super) fn heed_throttle<R: Request>(&self, version: i16, response: &R::Response) {
        let ms = response.throttle_time_ms();
        // Before Kafka 2.0 the broker has waited already.
        if ms > 0 && client_throttles(R::KEY, version) {
            self.mute(Duration::from_millis(ms as u64));
        }
    }

    /// A request was not answered in time. Answers come in order, so those behind it will hardly be: after
    /// `socket.max.fails` such requests the connection is closed.
    pub(super) fn on_unanswered(&self, reason: String) -> Error {
        self.wire.broken(Broken::Timeout);
        let unanswered = self.unanswered.get() + 1;
        self.unanswered.set(unanswered);
        let max = self.config.net.max_fails;
        if max > 0 && unanswered >= max {
            self.close(reason);
            return self.closed_error();
        }
        Error::Transport { address: self.address.clone(), reason: reason.into() }
    }

    pub(super) fn close(&self, reason: String) {
        self.close_with(Error::Transport { address: self.address.clone(), reason: reason.into() });
    }

    /// Closes once; the first reason stands. Dropping the senders wakes everyone who waits.
    pub(super) fn close_with(&self, error: Error) {
        if self.closed.borrow().is_some() {
            return;
        }
        self.wire.closed(&error.to_string());
        let idle = self.is_idle();
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
    }

    pub(super) fn closed_error(&self) -> Error {
        self.closed
            .borrow()
            .clone()
            .unwrap_or_else(|| Error::Transport { address: self.address.clone(), reason: "closed".into() })
    }

    /// The memory for the next answer, if it is not the connection's.
    fn room(&self) -> Option<Rc<dyn Room>> {
        self.waiting.borrow().front()?.answer.room.clone()
    }

    /// Nobody waits for anything on it: losing it costs nothing.
    fn is_idle(&self) -> bool {
        self.waiting.borrow().is_empty() && self.outbox.borrow().is_empty() && self.held.borrow().is_none()
    }

    /// An I/O error of this connection, TLS's own in words.
    fn io_error(&self, doing: &str, error: io::Error) -> Error {
        let security = &self.config.security;
        if !security.protocol.is_tls() {
            let reason = format!("{doing}: {error}").into();
            return Error::Transport { address: self.address.clone(), reason };
        }
        let has_certificate = security.tls.has_certificate();
        let error = explained(error, has_certificate, "without saying goodbye");
        Error::transport(&self.address, &error)
    }

    /// The peer has closed.
    fn on_end(&self) -> Error {
        let sasl = self.config.security.protocol.is_sasl();
        // A SASL listener answers ApiVersions and hangs up at the first request of somebody it does not know.
        let reason = if !sasl && self.answered.get() == 1 && !self.waiting.borrow().is_empty() {
            "closed by the broker after the greeting: does the listener want SASL? (security.protocol)"
        } else {
            "closed by the broker"
        };
        Error::Transport { address: self.address.clone(), reason: reason.into() }
    }

    /// What the first bytes of a peer say that does not speak Kafka.
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

/// Writes what is in the outbox until the connection is closed.
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
        let Some(Outgoing { correlation_id, frame, written }) = next else {
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
            link.wire.broken(Broken::Write);
            link.close_with(link.io_error("write", error));
            return;
        }
        if let Some(correlation_id) = correlation_id {
            link.wire.written(correlation_id);
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
        let n = match queue.single() {
            Some(bytes) => io.write(bytes).await?,
            None => io.write_vectored(&queue.slices()).await?,
        };
        queue.written(n)?;
    }
    Ok(())
}

/// Through TLS every byte is copied anyway: what fits into one record is handed over in one piece, so that it becomes
/// one record and one write.
async fn write_encrypted(io: &mut WriteHalf<Box<dyn Io>>, frame: Chain) -> io::Result<()> {
    if frame.len() <= TLS_RECORD_BYTES {
        io.write_all(&frame.to_bytes()?).await?;
    } else {
        write_chain(io, frame).await?;
    }
    // What the socket did not take yet is in TLS's own buffer.
    io.flush().await
}

/// Reads frames and hands them out until the connection is closed.
pub(super) async fn read_frames(link: Rc<Link>, mut io: ReadHalf<Box<dyn Io>>) {
    let mut frames = FrameBuffer::new(link.config.response_bytes_max);
    let error = loop {
        let problem = match frames.next_frame() {
            Ok(Some(frame)) => match dispatch(&link, frame, false) {
                Ok(()) => continue,
                Err(reason) => {
                    link.wire.broken(Broken::CorrelationId);
                    Some(reason)
                }
            },
            Ok(None) => match link.room().map(|room| (room, frames.take_started())) {
                Some((room, Ok(Some((size, head))))) => match read_into(&mut io, &*room, size, &head).await {
                    Ok(frame) => match dispatch(&link, frame, true) {
                        Ok(()) => continue,
                        Err(reason) => {
                            link.wire.broken(Broken::CorrelationId);
                            Some(reason)
                        }
                    },
                    Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break link.on_end(),
                    Err(error) => {
                        link.wire.broken(Broken::Read);
                        break link.io_error("read", error);
                    }
                },
                _ => None,
            },
            Err(error) => Some(error.to_string()),
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
            Ok(0) => break link.on_end(),
            Ok(_) => {}
            Err(error) => {
                link.wire.broken(Broken::Read);
                break link.io_error("read", error);
            }
        }
    };
    link.close_with(error);
}

/// Reads the rest of a large frame straight into the memory of whoever asked for it.
async fn read_into(
    io: &mut ReadHalf<Box<dyn Io>>,
    room: &dyn Room,
    size: usize,
    head: &[u8],
) -> io::Result<Bytes> {
    let mut buffer = room.buffer(size);
    let (begun, rest) = buffer.as_mut_slice()[..size].split_at_mut(head.len());
    begun.copy_from_slice(head);
    io.read_exact(rest).await?;
    Ok(buffer.freeze(size))
}

/// Hands a frame to the request at the head of the line. A frame of another correlation id means that the stream is
/// out of step: nothing on it can be trusted any more.
fn dispatch(link: &Link, frame: Bytes, in_room: bool) -> Result<(), String> {
    let waiting = link.waiting.borrow_mut().pop_front();
    link.answered.set(link.answered.get() + 1);
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
        link.wire.received(correlation_id, frame.len());
    }
    let AnswerTo { sender, room } = waiting.answer;
    let frame = match room {
        // It shares the connection's buffer: a slice of it would hold more than its size.
        Some(room) if !in_room => {
            let mut buffer = room.buffer(frame.len());
            buffer.as_mut_slice()[..frame.len()].copy_from_slice(&frame);
            buffer.freeze(frame.len())
        }
        _ => frame,
    };
    // A caller that has gone away does not mind.
    let _ = sender.send(frame);
    Ok(())
}

/// Closes the connection when nothing was sent on it for `max_idle`. It looks four times in that time, so that sending
/// costs nothing.
pub(super) async fn close_when_idle(link: Rc<Link>, max_idle: Duration) {
    let mut sent = link.next_correlation_id.get();
    let mut quiet = 0;
    while link.is_open() {
        tokio::time::sleep(max_idle / 4).await;
        let now_sent = link.next_correlation_id.get();
        quiet = if now_sent == sent && link.is_idle() { quiet + 1 } else { 0 };
        sent = now_sent;
        if quiet >= 4 {
            link.close(format!("idle for {} ms (connections.max.idle.ms)", max_idle.as_millis()));
        }
    }
}
