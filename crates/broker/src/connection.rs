//! One connection: it reads request frames and writes the responses in the same order.
//!
//! A request is started when all earlier ones are answered, as in Apache Kafka. Produce requests are the exception:
//! their batches are appended at once and in order, and only the responses wait, so that one sync serves several. A response that a test
//! delays by the lag of the node counts as sent.

mod admission;
mod authentication;
mod deadlines;
mod gentle_end;
mod input;
mod pace;
mod pausing;
mod pending;
mod response_writer;
mod started_appends;
mod thread;
mod tls_transport;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::{ApiKey, ErrorTally, RequestHeader};
use ottla_wire::frames::FrameBuffer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use crate::api::{self, ConnectionContext, Reply};
use crate::cluster::Cluster;
use crate::cluster::nodes::Node;
use crate::peer::Peer;
use crate::places::Place;
use crate::quotas::{Mute, Quota};
use crate::request_memory::{Limits, decoder, is_charged};
use crate::security::Principal;
use crate::security::active_listener::ActiveListener;
use crate::security::sasl::SaslConnection;
pub(crate) use admission::admit;
pub(crate) use authentication::AUTHENTICATION_MAX;
use deadlines::{Times, contended_due, set_deadline, time_for};
use gentle_end::end_gently;
use input::{Granted, Needed, Reads, Received, closed_by_peer, needed, receive, receive_or_leave};
use pace::{NextRequest, Pace};
pub(crate) use pausing::{in_time, unless_paused};
use pending::{Done, Pending, progress, uncounted_bytes, waits_for_lag, write_beside};
use response_writer::{prefix, write_response};
use thread::{Stop, Thread};
pub(crate) use tls_transport::{ENCRYPTED_BYTES_MAX, TlsSocket, TlsTransport};

/// Produce requests of one connection that may wait for their sync at a time, and requests that may wait for the lag of their node.
const PIPELINED_MAX: usize = 16;

/// A byte stream that a broker can serve.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Returns the socket if it is a plain one, to which the kernel can send files.
    fn tcp(&self) -> Option<&TcpStream> {
        None
    }

    /// Returns the socket below, whatever is above it.
    fn socket(&self) -> Option<&TcpStream> {
        self.tcp()
    }

    /// Announces the end of the connection to the peer (TLS does), if that is possible at once.
    fn say_goodbye(&mut self) {}

    /// Returns the address of the peer, if it has one.
    fn peer_address(&self) -> Option<SocketAddr> {
        self.tcp().and_then(|socket| socket.peer_addr().ok())
    }

    /// Returns the bytes that the transport keeps at most of those that were written (TLS encrypts them first).
    fn encrypted_bytes_max(&self) -> usize {
        0
    }

    /// Returns `true` if the transport keeps bytes that were written. A flush sends them.
    fn has_encrypted(&self) -> bool {
        false
    }

    /// Frees the bytes that were written and not sent. The connection has ended.
    fn discard_encrypted(&mut self) {}

    /// Returns the bytes that have arrived of a TLS record whose end has not.
    fn unfinished_bytes(&self) -> usize {
        0
    }

    /// Returns the bytes that are decrypted and not read.
    fn decrypted_bytes(&mut self) -> usize {
        0
    }

    /// Returns the bytes that are missing at least of the TLS record of which a part has arrived.
    fn missing_bytes(&self) -> usize {
        0
    }

    /// Returns the memory of such a record at most.
    fn record_memory(&self) -> usize {
        0
    }

    /// Limits the bytes that are received of a TLS record before its end: to the share of a connection, or to a whole record. Returns
    /// `true` if the rest needs memory: a read fails with `WouldBlock` until the limit is raised.
    fn limit_record(&mut self, _share: Option<usize>) -> bool {
        false
    }
}

impl Transport for TcpStream {
    fn tcp(&self) -> Option<&TcpStream> {
        Some(self)
    }
}

impl Transport for tokio::io::DuplexStream {}

/// Serves one connection at node `node` until the peer closes it, breaks the protocol, or the node goes down.
///
/// Dropping the future closes the connection, at once or as soon as a thread for long work has noticed it.
pub async fn serve<T: Transport>(io: T, cluster: Arc<Cluster>, node: i32) {
    serve_at(io, cluster, node, ActiveListener::plaintext()).await;
}

/// Serves one connection of a listener without TLS.
pub(crate) async fn serve_at<T: Transport>(
    io: T,
    cluster: Arc<Cluster>,
    node: i32,
    listener: Arc<ActiveListener>,
) {
    let Some(state) = cluster.node(node) else { return };
    let pause = quota_pause(&io, &cluster);
    if !pause.is_zero() {
        // Boxed: other connections do not need its memory. It does not count: a quota must not fill `max.connections`.
        Box::pin(refuse(io, &cluster, pause)).await;
        return;
    }
    let Some(_admitted) = admit(&io, &cluster, state) else { return };
    serve_admitted(io, &cluster, node, listener, None).await;
}

/// Serves one connection that is within the limits. `principal` is the client's certificate.
pub(crate) async fn serve_admitted<T: Transport>(
    io: T,
    cluster: &Arc<Cluster>,
    node: i32,
    listener: Arc<ActiveListener>,
    principal: Option<Principal>,
) {
    cluster.metrics.connections_accepted.fetch_add(1, Ordering::Relaxed);
    let _share = cluster.shares.enter();
    let connection = Connection::new(io, cluster.clone(), node, listener, principal);
    let context = connection.context.clone();
    let served = connection.serve().await;
    context.end_share_sessions();
    // Thousands that end at once must not delay the others. Their memory is returned at once.
    let mut io = served.map(|Connection { io, .. }| io);
    io.iter_mut().for_each(T::discard_encrypted);
    cluster.take_turn().await;
    if let Some(mut io) = io.take() {
        io.say_goodbye();
    }
}

/// The time after which the connection is closed because its address has too many new ones (KIP-612); zero if it is served.
pub(crate) fn quota_pause<T: Transport>(io: &T, cluster: &Cluster) -> Duration {
    if !cluster.quota_use.has(Quota::ConnectionCreation) {
        return Duration::ZERO;
    }
    let address = Peer::new(io.peer_address()).ip();
    address.map_or(Duration::ZERO, |address| {
        cluster.quota_use.record_connection(&cluster.client_quotas, address)
    })
}

/// Ends a connection after its pause, or when its client has closed it, or if too many others pause.
pub(crate) async fn refuse<T: Transport>(mut io: T, cluster: &Cluster, pause: Duration) {
    let place = cluster.shares.refused.enter();
    tokio::select! {
        () = tokio::time::sleep(pause) => {}
        () = closed_by_peer(&mut io) => {}
        () = place.evicted() => {}
    }
}

struct Connection<T> {
    io: T,
    context: Arc<ConnectionContext>,
    frames: FrameBuffer,
    /// The memory of the large request or TLS record that is received.
    charge: Option<Granted>,
    /// The place for decrypted requests, if they are more than the connection's share.
    decrypted: Option<Place>,
    pending: VecDeque<Pending>,
    /// `true` once a request was started after the login.
    has_started: bool,
    /// The counts of changes of its node and of the broker between open and closed, when its first thread took it. Another change ends
    /// it, even one in the moment in which it changes its thread.
    flips: Option<(u64, u64)>,
    /// `true` once it has read what had arrived when the broker began to end.
    has_read_rest: bool,
}

/// The reasons why a connection is closed. The peer does not receive them.
#[derive(Debug, thiserror::Error)]
enum Closed {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Peer(String),
    #[error("the node is down")]
    Down,
}

/// The events that a connection awaits, besides the responses to its requests.
struct Awaited {
    limits: Limits,
    /// The memory that it needs.
    to_charge: Option<Needed>,
    reads: Reads,
    /// `true` if it looks at its deadlines.
    has_timer: bool,
    /// The time of the next look.
    look_at: Instant,
    /// The time at which it ends, if no look changes that.
    due: Option<Instant>,
}

/// A step of a connection with the requests that have arrived.
enum Progress {
    /// A response was written.
    Wrote,
    /// Requests or responses are awaited.
    None,
    /// The other thread has to continue.
    Moves,
}

impl<T: Transport> Connection<T> {
    fn new(
        io: T,
        cluster: Arc<Cluster>,
        node: i32,
        listener: Arc<ActiveListener>,
        principal: Option<Principal>,
    ) -> Self {
        let frames = FrameBuffer::new(cluster.config.request_bytes_max);
        let peer = Peer::new(io.peer_address());
        let sasl = listener.sasl.as_ref().map(|_| SaslConnection::default());
        // With SASL, the client is the one that logs in, whatever its certificate says.
        let principal = principal.filter(|_| sasl.is_none()).map(OnceLock::from).unwrap_or_default();
        Self {
            io,
            context: Arc::new(ConnectionContext {
                cluster,
                node,
                peer,
                principal,
                listener,
                sasl,
                mute: Mute::default(),
                share_connection: OnceLock::new(),
                appends: Mutex::default(),
                holds: AtomicUsize::new(0),
                hangs: AtomicBool::new(false),
                lagging: AtomicUsize::new(0),
            }),
            frames,
            charge: None,
            decrypted: None,
            pending: VecDeque::new(),
            has_started: false,
            flips: None,
            has_read_rest: false,
        }
    }

    /// Serves the connection until it ends, or until the other thread has to continue.
    async fn run(&mut self, thread: Thread) -> Result<Stop, Closed> {
        let cluster = self.context.cluster.clone();
        let Some(node) = cluster.node(self.context.node) else { return Ok(Stop::Ended) };
        let flips_now = || (node.flips(), cluster.serving.flips());
        let flips = *self.flips.get_or_insert_with(flips_now);
        if !node.is_open() {
            return Err(Closed::Down);
        }
        let mut times = Times::new();
        let mut timer = pin!(tokio::time::sleep_until(times.since));
        loop {
            let pause_flips = node.pause_flips();
            if node.flips() != flips.0 {
                return Err(Closed::Down);
            }
            if node.is_paused() {
                // Boxed, as other connections do not need its memory.
                Box::pin(self.wait_out_pause(node, flips.0)).await?;
                times = Times::new();
                continue;
            }
            match self.step(thread, node, flips.0).await? {
                Progress::Moves => return Ok(Stop::Moves),
                Progress::Wrote => {
                    times.since = Instant::now();
                    if self.frames.has_frame() && !self.has_backlog() {
                        // A client that has sent many requests at once must not delay those of others.
                        tokio::task::yield_now().await;
                    }
                    continue;
                }
                Progress::None => {}
            }
            let is_draining = cluster.is_draining();
            if is_draining && self.is_answered() {
                // Boxed: no other connection needs the memory of this step.
                Box::pin(end_gently(&mut self.io)).await;
                return Ok(Stop::Ended);
            }
            let Awaited { limits, to_charge, reads, has_timer, look_at, due } =
                self.awaited(&mut times, is_draining)?;
            let Self { io, frames, pending, charge, decrypted, context, .. } = &mut *self;
            let context = &**context;
            set_deadline(timer.as_mut(), look_at);
            tokio::select! {
                biased;
                () = node.changed_since(flips.0, pause_flips) => {}
                () = cluster.serving.turned_since(flips.1), if !is_draining => {}
                closed = evicted(decrypted.as_ref().map(Place::eviction)), if decrypted.is_some() => return Err(closed),
                () = progress(pending, io.encrypted_bytes_max(), context), if !pending.is_empty() => {}
                granted = cluster.memory.charge(context.client_host(), to_charge.map_or(0, |it| it.bytes)), if to_charge.is_some() => {
                    *charge = Some(Granted::new(granted, to_charge.is_some_and(|it| it.is_for_record)));
                }
                read = receive_or_leave(io, frames, charge, limits, reads), if reads != Reads::Nothing => match read? {
                    Received::Bytes(0) => return Ok(Stop::Ended),
                    Received::Bytes(_) => times.since = Instant::now(),
                    Received::NeedsMemory => {}
                },
                () = &mut timer, if has_timer => {
                    if due.is_none_or(|due| look_at < due) {
                        continue;
                    }
                    let reason = if times.frame_due.is_some() { "the rest of a frame did not come" } else { "idle" };
                    return Err(Closed::Peer(reason.into()));
                }
            }
        }
    }

    /// Starts and writes, unless the node goes down or the place for decrypted requests is taken away.
    async fn step(&mut self, thread: Thread, node: &Node, flips: u64) -> Result<Progress, Closed> {
        self.count_decrypted();
        let eviction = self.decrypted.as_ref().map(Place::eviction);
        tokio::select! {
            biased;
            stepped = self.start_and_write(thread) => stepped,
            () = node.turned_since(flips) => Err(Closed::Down),
            closed = evicted(eviction) => Err(closed),
        }
    }

    /// Returns the events that the connection awaits next, besides its responses.
    fn awaited(&mut self, times: &mut Times, is_draining: bool) -> Result<Awaited, Closed> {
        let Self { io, frames, pending, charge, has_started, context, .. } = self;
        let config = &context.cluster.config;
        let muted = context.mute.until().filter(|_| !is_draining);
        let limits = context.cluster.shares.limits();
        // Reading continues while a response is pending, because only a read detects that the peer has left.
        let may_wait = pending.len() < PIPELINED_MAX && muted.is_none();
        let room = may_wait && !frames.has_frame() && !is_draining;
        if muted.is_some() && frames.arrived() <= limits.share {
            charge.take_if(|granted| !granted.is_for_record);
        }
        let to_charge = needed(io, frames, charge.as_ref(), limits).filter(|_| may_wait);
        let is_mid_record = charge.as_ref().is_some_and(|granted| granted.is_for_record);
        // The time for which a frame waits for memory, or for the end of a pause, is not the peer's.
        let is_awaited = (frames.is_mid_frame() || is_mid_record) && to_charge.is_none() && muted.is_none();
        let new_due = || Instant::now() + time_for(frames.awaited().unwrap_or(0), config);
        times.frame_due = is_awaited.then(|| times.frame_due.unwrap_or_else(new_due));
        let Times { since, frame_due, ref mut keeping } = *times;
        // The first request has the deadline of a frame, and the next ones that of an idle connection.
        let limit = if *has_started { config.connection_idle_max } else { config.frame_timeout };
        // A client that has to pause is not idle.
        let due = frame_due.unwrap_or(muted.unwrap_or(since).max(since) + limit);
        let granted = charge.as_ref().filter(|_| frame_due.is_some());
        let (due, look_at) = contended_due(due, since, granted, frames.arrived());
        let kept_until = keeping.look(charge.as_mut(), frame_due.is_some() && room)?;
        let is_idle = pending.is_empty() && to_charge.is_none();
        Ok(Awaited {
            limits,
            to_charge,
            reads: match to_charge {
                _ if context.is_held() && !room => Reads::Held,
                Some(_) => Reads::WaitsForMemory,
                None if muted.is_some() => Reads::Pauses { longest: config.connection_idle_max },
                None if room => Reads::Continues,
                None => Reads::Nothing,
            },
            has_timer: (frame_due.is_some() && room) || is_idle || muted.is_some() || kept_until.is_some(),
            look_at: muted.into_iter().chain(kept_until).min().unwrap_or(look_at),
            due: kept_until.is_none().then_some(due),
        })
    }

    /// Counts requests that TLS has decrypted, more than one record of them at most. Many connections with such requests that wait for
    /// memory, or for their client to read, would hold much.
    fn count_decrypted(&mut self) {
        let shares = &self.context.cluster.shares;
        if self.io.decrypted_bytes() <= shares.limits().share {
            self.decrypted = None;
        } else if self.decrypted.is_none() {
            self.decrypted = Some(shares.decrypted.enter());
        }
    }

    /// Reads what has arrived, up to the bytes that are read at a time, without waiting: a request that the kernel has is answered.
    async fn read_rest(&mut self) -> io::Result<()> {
        let Self { io, frames, charge, context, .. } = self;
        let limits = context.cluster.shares.limits();
        if needed(io, frames, charge.as_ref(), limits).is_some() {
            return Ok(());
        }
        match poll_fn(|cx| Poll::Ready(pin!(receive(io, frames, charge, limits)).poll(cx))).await {
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(_)) | Poll::Pending => Ok(()),
        }
    }

    /// Starts the requests that may be started, and writes the responses that are ready, unless the other thread has to.
    async fn start_and_write(&mut self, thread: Thread) -> Result<Progress, Closed> {
        if self.leaves(thread) {
            return Ok(Progress::Moves);
        }
        if self.context.cluster.is_draining() && !std::mem::replace(&mut self.has_read_rest, true) {
            self.read_rest().await?;
        }
        if self.has_backlog() || (!self.has_started && self.frames.has_frame()) {
            thread.take_turn(&self.context.cluster).await;
        }
        self.has_started |= self.start_requests().await?;
        if self.has_wide_response() && thread == Thread::Serving {
            return Ok(Progress::Moves);
        }
        Ok(if self.write_done(thread).await? { Progress::Wrote } else { Progress::None })
    }

    /// Returns `true` if the next request may be started, and bytes of another one have arrived behind it. Produce requests that follow
    /// others which are in progress do not wait for another turn: those of one connection share their work.
    fn has_backlog(&self) -> bool {
        self.pending.is_empty()
            && self.frames.next_size().is_some_and(|size| self.frames.arrived() > 4 + size)
    }

    /// Starts the requests that may be started. Returns `true` if there was one.
    async fn start_requests(&mut self) -> Result<bool, Closed> {
        let mut started = false;
        while self.may_start() {
            let limits = self.context.cluster.shares.limits();
            let needed = needed(&mut self.io, &self.frames, self.charge.as_ref(), limits);
            if let Some(needed) = needed.filter(|needed| !needed.is_for_record) {
                let (memory, client) = (&self.context.cluster.memory, self.context.client_host());
                let Some(charge) = memory.try_charge(client, needed.bytes) else { break };
                self.charge = Some(Granted::new(charge, false));
            }
            match self.frames.next_frame() {
                Ok(Some(frame)) => self.start(frame).await?,
                Ok(None) => break,
                Err(error) => return Err(Closed::Peer(error.to_string())),
            }
            started = true;
        }
        Ok(started)
    }

    /// Returns `true` if each request that has arrived is answered, or waits for requests of others, or gets no response by a fault of a
    /// test.
    fn is_answered(&self) -> bool {
        if self.context.hangs() {
            return self.pending.len() == 1;
        }
        !self.frames.has_frame() && self.pending.iter().all(|pending| waits_for_others(pending.api))
    }

    /// Returns `true` if neither the client nor the node pauses, no fault of a test holds the connection, and if no request is in progress,
    /// or all of them and the next one are produce requests, or all of them wait for the lag of the node.
    fn may_start(&self) -> bool {
        let is_muted = self.context.mute.until().is_some() && !self.context.cluster.is_draining();
        if is_muted || self.context.is_paused() {
            return false;
        }
        let produce = ApiKey::Produce.code().to_be_bytes();
        let is_produce = || {
            self.pending.iter().all(|pending| pending.api == ApiKey::Produce)
                && self.frames.peek(2) == Some(&produce)
        };
        self.pending.is_empty()
            || (self.pending.len() < PIPELINED_MAX
                && !self.context.is_held()
                && (is_produce() || waits_for_lag(&self.pending, &self.context)))
    }

    async fn start(&mut self, frame: Bytes) -> Result<(), Closed> {
        let mut input = decoder(&frame, &self.context.cluster.config);
        let header = RequestHeader::decode(&mut input).map_err(|error| Closed::Peer(error.to_string()))?;
        let api = header.api_key;
        if let Some(sasl) = &self.context.sasl
            && let Some(reason) = sasl.refusal(api, self.context.principal.get().is_some())
        {
            return Err(Closed::Peer(reason));
        }
        if let Some(server) = &self.context.listener.sasl
            && let Some(reason) = server.refusal_of_size(api, frame.len())
        {
            return Err(Closed::Peer(reason));
        }
        let mut admission = None;
        if has_large_response(api, frame.len()) {
            let memory = &self.context.cluster.memory;
            let admitted = memory.room_for_response(self.context.client_host()).await;
            if admitted.has_waited() {
                // The thread looks at its sockets between two of many requests that wait.
                tokio::task::yield_now().await;
            }
            admission = Some(admitted);
        }
        tracing::trace!(node = self.context.node, api = %api, version = header.api_version, bytes = frame.len(), "request");
        let (began, bytes) = (Instant::now(), frame.len());
        let mut running = api::start(self.context.clone(), header, input, frame).map_err(Closed::Peer)?;
        self.context.cluster.metrics.arrived(api, bytes);
        let charge = self.charge.take().map(|granted| granted.charge);
        // The first poll performs the append or queues for it, so that appends happen in the order of arrival.
        let reply = poll_fn(|cx| Poll::Ready(ready(running.as_mut().poll(cx)))).await;
        self.pending.push_back(if let Some(reply) = reply {
            drop(running);
            let before = uncounted_bytes(&self.pending);
            let done = Done::new(reply, before, self.io.encrypted_bytes_max(), &self.context);
            Pending { api, began, reply: None, done: Some(done), charge: None }
        } else {
            let charge = charge.filter(|_| !waits_for_others(api));
            Pending { api, began, reply: Some(running), done: None, charge }
        });
        drop(admission);
        Ok(())
    }

    /// Writes the responses at the head of the queue that are ready. Returns `true` if there was one.
    async fn write_done(&mut self, thread: Thread) -> Result<bool, Closed> {
        let mut wrote = false;
        while let Some(Pending { done: Some(_), .. }) = self.pending.front()
            && !self.context.is_paused()
        {
            let Some(Pending { api, began, done: Some(done), .. }) = self.pending.pop_front() else { break };
            let cluster = &self.context.cluster;
            let has_begun = self.frames.arrived() > cluster.shares.limits().share;
            let next = NextRequest { granted: &mut self.charge, has_begun };
            let pace = Pace::new(&self.context, done.memory, thread).before(next);
            let (bytes, errors) = match done.reply {
                Reply::Answer(chain, errors) => {
                    let (bytes, encrypted_max) = (chain.len(), self.io.encrypted_bytes_max());
                    let write = pin!(write_response(&mut self.io, pace, chain));
                    write_beside(write, &mut self.pending, encrypted_max, &self.context).await?;
                    (bytes, errors)
                }
                Reply::AnswerAndClose(chain, errors, reason) => {
                    let bytes = chain.len();
                    write_response(&mut self.io, pace, chain).await?;
                    self.context.cluster.metrics.answered(api, began.elapsed(), bytes, &errors);
                    Box::pin(end_gently(&mut self.io)).await;
                    return Err(Closed::Peer(reason));
                }
                Reply::AnswerPart(chain, _, bytes) => {
                    write_response(&mut self.io, pace, prefix(chain, bytes)).await?;
                    // Unread requests behind it would reset the connection, and bytes that are not sent would be lost.
                    Box::pin(end_gently(&mut self.io)).await;
                    return Err(Closed::Peer("cut by an intercept within a response".into()));
                }
                Reply::Nothing => (0, ErrorTally::default()),
                Reply::Close(reason) => return Err(Closed::Peer(reason)),
            };
            self.context.cluster.metrics.answered(api, began.elapsed(), bytes, &errors);
            wrote = true;
        }
        Ok(wrote)
    }
}

/// Returns `true` for requests whose response can be large. They wait while clients do not read the responses of others. The requests
/// by which clients keep their memberships, commits and transactions wait only if they are large themselves. JoinGroup and SyncGroup
/// wait: a small one can have the subscriptions or the assignment of a whole group in its response. Records are sent from their files:
/// only a wide Fetch has a large response in memory.
fn has_large_response(api: ApiKey, bytes: usize) -> bool {
    match api {
        ApiKey::Produce | ApiKey::Heartbeat | ApiKey::ApiVersions => false,
        ApiKey::Fetch
        | ApiKey::ShareFetch
        | ApiKey::ShareAcknowledge
        | ApiKey::ListOffsets
        | ApiKey::OffsetForLeaderEpoch
        | ApiKey::SaslHandshake
        | ApiKey::SaslAuthenticate
        | ApiKey::FindCoordinator
        | ApiKey::LeaveGroup
        | ApiKey::ConsumerGroupHeartbeat
        | ApiKey::ShareGroupHeartbeat
        | ApiKey::OffsetCommit
        | ApiKey::InitProducerId
        | ApiKey::AddPartitionsToTxn
        | ApiKey::AddOffsetsToTxn
        | ApiKey::TxnOffsetCommit
        | ApiKey::EndTxn => is_charged(bytes),
        _ => true,
    }
}

/// Returns `true` for requests that wait for those of other connections. If they held memory, the others could lack it. Groups count
/// the memory that they keep of them.
fn waits_for_others(api: ApiKey) -> bool {
    matches!(api, ApiKey::JoinGroup | ApiKey::SyncGroup)
}

/// Waits until the place for decrypted requests is taken away.
async fn evicted(eviction: Option<Arc<Notify>>) -> Closed {
    match eviction {
        Some(eviction) => eviction.notified().await,
        None => std::future::pending().await,
    }
    Closed::Peer("its requests wait longest of many whose TLS records wait".to_owned())
}

fn ready<V>(poll: Poll<V>) -> Option<V> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
