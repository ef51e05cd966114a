//! One connection to a broker: requests go out in order, answers come back in the same order.
//!
//! Two tasks, one per direction, live as long as the connection. Any failure closes it, and every request that still
//! waits for its answer learns why.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use ottla_protocol::{ErrorCode, Message, Request, frame};
use ottla_wire::frames::FrameBuffer;
use ottla_wire::{Chain, Piece, WriteQueue};
use rustc_hash::FxHashMap;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

use super::connector::{Connector, Io};
use crate::config::Config;
use crate::error::Error;
use crate::stats::{Broken, Observer, Wire, address_of};

/// An open connection whose versions are known.
#[derive(Debug)]
pub(crate) struct Connection {
    inner: Rc<Inner>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Inner {
    address: String,
    wire: Wire,
    client_id: String,
    versions: RefCell<FxHashMap<i16, (i16, i16)>>,
    next_correlation_id: Cell<i32>,
    outbox: RefCell<VecDeque<Outgoing>>,
    outbox_filled: Notify,
    waiting: RefCell<VecDeque<Waiting>>,
    /// Why the connection is closed, once it is.
    closed: RefCell<Option<Arc<str>>>,
}

#[derive(Debug)]
struct Outgoing {
    correlation_id: i32,
    frame: Chain,
    /// Told when the last byte is written, for requests without an answer.
    written: Option<oneshot::Sender<()>>,
}

#[derive(Debug)]
struct Waiting {
    correlation_id: i32,
    answer: oneshot::Sender<Bytes>,
}

impl Connection {
    /// Connects and asks for the broker's versions, both within `socket.connection.setup.timeout.ms`.
    pub(crate) async fn open(
        connector: &dyn Connector,
        host: &str,
        port: u16,
        config: &Config,
        observer: &Arc<Observer>,
    ) -> Result<Self, Error> {
        let address = address_of(host, port);
        let opening = async {
            let io =
                connector.connect(host, port).await.map_err(|error| Error::transport(&address, &error))?;
            let connection = Self::start(io, address.clone(), config, observer.wire(&address));
            connection.greet().await?;
            Ok(connection)
        };
        tokio::time::timeout(config.connect_timeout, opening).await.unwrap_or_else(|_| {
            Err(Error::Transport {
                address: address.clone(),
                reason: format!("not connected within {} ms", config.connect_timeout.as_millis()).into(),
            })
        })
    }

    fn start(io: Box<dyn Io>, address: String, config: &Config, wire: Wire) -> Self {
        let inner = Rc::new(Inner {
            address,
            wire,
            client_id: config.client_id.clone(),
            versions: RefCell::default(),
            next_correlation_id: Cell::new(0),
            outbox: RefCell::default(),
            outbox_filled: Notify::new(),
            waiting: RefCell::default(),
            closed: RefCell::default(),
        });
        let (read_half, write_half) = tokio::io::split(io);
        let mut tasks = JoinSet::new();
        tasks.spawn_local(write_frames(inner.clone(), write_half));
        tasks.spawn_local(read_frames(inner.clone(), read_half, config.response_bytes_max));
        Self { inner, _tasks: tasks }
    }

    /// Learns the broker's versions. An old broker answers in version 0 with the error that says so (KIP-511).
    async fn greet(&self) -> Result<(), Error> {
        let request = ApiVersionsRequest {
            client_software_name: "ottla".into(),
            client_software_version: env!("CARGO_PKG_VERSION").into(),
        };
        let version = *ApiVersionsRequest::VERSIONS.end();
        let frame = self.exchange(&request, version).await?;
        let mut response = self.decode::<ApiVersionsRequest>(frame.clone(), version);
        let refused = match &response {
            Ok(response) => response.error_code == ErrorCode::UnsupportedVersion,
            // The refusal comes in version 0, whatever was asked in.
            Err(_) => true,
        };
        if refused {
            let frame = self.exchange(&ApiVersionsRequest::default(), 0).await?;
            response = self.decode::<ApiVersionsRequest>(frame, 0);
        }
        let ApiVersionsResponse { error_code, api_keys, .. } = response?;
        if error_code != ErrorCode::None {
            return Err(Error::Broker {
                what: format!("ApiVersions of {}", self.inner.address),
                code: error_code,
            });
        }
        self.inner.wire.greeted(api_keys.len());
        let mut versions = self.inner.versions.borrow_mut();
        versions.extend(api_keys.into_iter().map(|api| (api.api_key, (api.min_version, api.max_version))));
        Ok(())
    }

    /// Sends a request and waits for its answer, for `timeout` at most; after that the connection is closed, because
    /// answers come in order and this one blocks all behind it.
    ///
    /// `make` gets the version to be spoken, at most `version_max`. Dropping the future leaves the connection usable:
    /// the answer is read and thrown away.
    pub(crate) async fn call<R: Request>(
        self: &Rc<Self>,
        version_max: i16,
        timeout: Duration,
        make: impl FnOnce(i16) -> R,
    ) -> Result<R::Response, Error> {
        self.begin(version_max, make)?.answer(timeout).await
    }

    /// Puts a request in the outbox at once and returns the wait for its answer: whoever begins first is sent first.
    pub(crate) fn begin<R: Request>(
        self: &Rc<Self>,
        version_max: i16,
        make: impl FnOnce(i16) -> R,
    ) -> Result<Pending<R>, Error> {
        let version = self.version_of::<R>(version_max)?;
        let (answer, received) = oneshot::channel();
        self.send(&make(version), version, None, Some(answer))?;
        Ok(Pending { connection: self.clone(), version, received, request: PhantomData })
    }

    /// Sends a request that has no answer and waits until it is written.
    pub(crate) async fn tell<R: Request>(
        &self,
        version_max: i16,
        timeout: Duration,
        make: impl FnOnce(i16) -> R,
    ) -> Result<(), Error> {
        let version = self.version_of::<R>(version_max)?;
        let (written, done) = oneshot::channel();
        self.send(&make(version), version, Some(written), None)?;
        match tokio::time::timeout(timeout, done).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(self.inner.closed_error()),
            Err(_) => {
                self.inner.wire.broken(Broken::Timeout);
                self.inner.close(format!(
                    "{} v{version} not written within {} ms",
                    R::KEY,
                    timeout.as_millis()
                ));
                Err(self.inner.closed_error())
            }
        }
    }

    /// Whether it can still carry requests.
    pub(crate) fn is_open(&self) -> bool {
        self.inner.closed.borrow().is_none()
    }

    /// The peer's address as it was connected to.
    pub(crate) fn address(&self) -> &str {
        &self.inner.address
    }

    /// The highest version of `R` that both sides speak.
    pub(crate) fn version_of<R: Request>(&self, version_max: i16) -> Result<i16, Error> {
        let (ours_min, ours_max) = (*R::VERSIONS.start(), (*R::VERSIONS.end()).min(version_max));
        let versions = self.inner.versions.borrow();
        let refuse = |theirs: String| Error::Protocol {
            address: self.inner.address.clone(),
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

    async fn exchange<R: Request>(&self, request: &R, version: i16) -> Result<Bytes, Error> {
        let (answer, received) = oneshot::channel();
        self.send(request, version, None, Some(answer))?;
        received.await.map_err(|_| self.inner.closed_error())
    }

    fn send<R: Request>(
        &self,
        request: &R,
        version: i16,
        written: Option<oneshot::Sender<()>>,
        answer: Option<oneshot::Sender<Bytes>>,
    ) -> Result<(), Error> {
        if !self.is_open() {
            return Err(self.inner.closed_error());
        }
        let correlation_id = self.inner.next_correlation_id.get();
        self.inner.next_correlation_id.set(correlation_id.wrapping_add(1));
        let frame =
            frame::encode_request(correlation_id, Some(&self.inner.client_id), version, request).map_err(
                |error| Error::Protocol { address: self.inner.address.clone(), reason: error.to_string() },
            )?;
        self.inner.wire.enqueued(R::KEY, version, correlation_id, frame.len(), answer.is_some());
        if let Some(answer) = answer {
            self.inner.waiting.borrow_mut().push_back(Waiting { correlation_id, answer });
        }
        self.inner.outbox.borrow_mut().push_back(Outgoing { correlation_id, frame, written });
        self.inner.outbox_filled.notify_one();
        Ok(())
    }

    fn decode<R: Request>(&self, frame: Bytes, version: i16) -> Result<R::Response, Error> {
        match frame::decode_response::<R>(frame, version) {
            Ok((_, response)) => Ok(response),
            Err(error) => {
                let reason = format!("answer to {} v{version}: {error}", R::KEY);
                Err(Error::Protocol { address: self.inner.address.clone(), reason })
            }
        }
    }
}

/// A request that is on its way.
#[derive(Debug)]
#[must_use = "the answer is thrown away"]
pub(crate) struct Pending<R> {
    connection: Rc<Connection>,
    version: i16,
    received: oneshot::Receiver<Bytes>,
    request: PhantomData<R>,
}

impl<R: Request> Pending<R> {
    /// Waits for the answer, as [`Connection::call`] does.
    pub(crate) async fn answer(self, timeout: Duration) -> Result<R::Response, Error> {
        let Self { connection, version, received, .. } = self;
        match tokio::time::timeout(timeout, received).await {
            Ok(Ok(frame)) => connection.decode::<R>(frame, version),
            Ok(Err(_)) => Err(connection.inner.closed_error()),
            Err(_) => {
                connection.inner.wire.broken(Broken::Timeout);
                let waited = timeout.as_millis();
                connection.inner.close(format!("no answer to {} v{version} within {waited} ms", R::KEY));
                Err(connection.inner.closed_error())
            }
        }
    }
}

impl Inner {
    /// Closes once; the first reason stands. Dropping the senders wakes everyone who waits.
    fn close(&self, reason: String) {
        let mut closed = self.closed.borrow_mut();
        if closed.is_none() {
            self.wire.closed(&reason);
            *closed = Some(reason.into());
            drop(closed);
            self.waiting.borrow_mut().clear();
            self.outbox.borrow_mut().clear();
            self.outbox_filled.notify_one();
        }
    }

    fn closed_error(&self) -> Error {
        let reason = self.closed.borrow().clone().unwrap_or_else(|| "closed".into());
        Error::Transport { address: self.address.clone(), reason }
    }
}

async fn write_frames(inner: Rc<Inner>, mut io: WriteHalf<Box<dyn Io>>) {
    loop {
        let next = inner.outbox.borrow_mut().pop_front();
        let Some(Outgoing { correlation_id, frame, written }) = next else {
            if inner.closed.borrow().is_some() {
                let _ = io.shutdown().await;
                return;
            }
            inner.outbox_filled.notified().await;
            continue;
        };
        if let Err(error) = write_chain(&mut io, frame).await {
            inner.wire.broken(Broken::Write);
            inner.close(format!("write: {error}"));
            return;
        }
        inner.wire.written(correlation_id);
        if let Some(written) = written {
            let _ = written.send(());
        }
    }
}

async fn write_chain(io: &mut WriteHalf<Box<dyn Io>>, frame: Chain) -> std::io::Result<()> {
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

async fn read_frames(inner: Rc<Inner>, mut io: ReadHalf<Box<dyn Io>>, response_bytes_max: usize) {
    let mut frames = FrameBuffer::new(response_bytes_max);
    let reason = loop {
        match frames.next_frame() {
            Ok(Some(frame)) => match dispatch(&inner, frame) {
                Ok(()) => continue,
                Err(reason) => {
                    inner.wire.broken(Broken::CorrelationId);
                    break reason;
                }
            },
            Ok(None) => {}
            Err(error) => break error.to_string(),
        }
        match io.read_buf(frames.spare()).await {
            Ok(0) => break "closed by the broker".to_owned(),
            Ok(_) => {}
            Err(error) => {
                inner.wire.broken(Broken::Read);
                break format!("read: {error}");
            }
        }
    };
    inner.close(reason);
}

/// Hands a frame to the request at the head of the line. A frame of another correlation id means that the stream is
/// out of step: nothing on it can be trusted any more.
fn dispatch(inner: &Inner, frame: Bytes) -> Result<(), String> {
    let Some(head) = frame.first_chunk::<4>() else {
        return Err(format!("an answer of {} bytes is too short for a correlation id", frame.len()));
    };
    let correlation_id = i32::from_be_bytes(*head);
    let waiting = inner.waiting.borrow_mut().pop_front();
    match waiting {
        Some(waiting) if waiting.correlation_id == correlation_id => {
            inner.wire.received(correlation_id, frame.len());
            // A caller that has gone away does not mind.
            let _ = waiting.answer.send(frame);
            Ok(())
        }
        Some(waiting) => {
            Err(format!("answer to request {correlation_id} where {} was due", waiting.correlation_id))
        }
        None => Err(format!("answer to request {correlation_id}, and none was due")),
    }
}
