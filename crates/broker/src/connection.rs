//! One connection: it reads request frames and writes the responses in the same order.
//!
//! A request is started when all earlier ones are answered, as in Apache Kafka. Produce requests are the exception:
//! their batches are appended at once and in order, and only the responses wait, so that one sync serves several.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use bytes::Bytes;
use ottla_protocol::{ApiKey, Decoder, RequestHeader};
use ottla_wire::frames::FrameBuffer;
use ottla_wire::{Chain, FileSlice, Piece, WriteQueue};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::api::{self, ConnectionContext, Reply, Replying};
use crate::cluster::Cluster;
use crate::peer::Peer;

/// Produce requests of one connection that may wait for their sync at a time.
const PIPELINED_MAX: usize = 16;
/// The memory limit for the arrays of one request: some are thirty times smaller on the wire. Hundreds of thousands
/// of partitions fit.
const DECODED_BYTES_MAX: usize = 64 << 20;

/// A byte stream that a broker can serve.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin + 'static {
    /// Returns the socket if it is a plain one, to which the kernel can send files.
    fn tcp(&self) -> Option<&TcpStream> {
        None
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
/// Spawns no tasks: dropping the future closes the connection.
pub async fn serve<T: Transport>(io: T, cluster: Arc<Cluster>, node: i32) {
    let Some(state) = cluster.node(node) else { return };
    let open = state.connections.fetch_add(1, Ordering::Relaxed);
    if open >= cluster.config.connections_max {
        tracing::warn!(
            node,
            max = cluster.config.connections_max,
            "connection refused: max.connections is reached"
        );
    } else {
        let result = Connection::new(io, cluster.clone(), node).run().await;
        if let Err(reason) = result {
            tracing::debug!(node, %reason, "connection closed");
        }
    }
    state.connections.fetch_sub(1, Ordering::Relaxed);
}

struct Connection<T> {
    io: T,
    context: Arc<ConnectionContext>,
    frames: FrameBuffer,
    pending: VecDeque<Pending>,
}

struct Pending {
    api: ApiKey,
    reply: Replying,
    done: Option<Reply>,
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

impl<T: Transport> Connection<T> {
    fn new(io: T, cluster: Arc<Cluster>, node: i32) -> Self {
        let frames = FrameBuffer::new(cluster.config.request_bytes_max);
        let peer = Peer::new(io.tcp().and_then(|socket| socket.peer_addr().ok()));
        Self {
            io,
            context: Arc::new(ConnectionContext { cluster, node, peer }),
            frames,
            pending: VecDeque::new(),
        }
    }

    async fn run(mut self) -> Result<(), Closed> {
        let cluster = self.context.cluster.clone();
        let Some(node) = cluster.node(self.context.node) else { return Ok(()) };
        let flips = (node.up.flips(), node.reachable.flips());
        if !node.is_up() || !node.reachable.is_on() {
            return Err(Closed::Down);
        }
        let idle_max = cluster.config.connection_idle_max;
        let mut idle = std::pin::pin!(tokio::time::sleep(idle_max));
        loop {
            self.start_requests().await?;
            if self.write_done().await? {
                continue;
            }
            let Self { io, frames, pending, .. } = &mut self;
            // Reading continues while a response is pending, because only a read detects that the peer has left.
            let room = pending.len() < PIPELINED_MAX && !frames.has_frame();
            tokio::select! {
                biased;
                () = node.up.turned_since(flips.0) => return Err(Closed::Down),
                () = node.reachable.turned_since(flips.1) => return Err(Closed::Down),
                () = progress(pending), if !pending.is_empty() => {}
                read = io.read_buf(frames.spare()), if room => {
                    if read? == 0 {
                        return Ok(());
                    }
                    let limit = if frames.is_mid_frame() { cluster.config.frame_timeout } else { idle_max };
                    idle.as_mut().reset(Instant::now() + limit);
                }
                () = &mut idle, if pending.is_empty() => {
                    let what = if frames.is_mid_frame() { "the rest of a frame did not come" } else { "idle" };
                    return Err(Closed::Peer(what.into()));
                }
            }
        }
    }

    /// Starts the requests that may be started.
    async fn start_requests(&mut self) -> Result<(), Closed> {
        while self.may_start() {
            match self.frames.next_frame() {
                Ok(Some(frame)) => self.start(frame).await?,
                Ok(None) => break,
                Err(error) => return Err(Closed::Peer(error.to_string())),
            }
        }
        Ok(())
    }

    /// Returns `true` if no request is in progress, or if all of them and the next one are produce requests.
    fn may_start(&self) -> bool {
        let produce = ApiKey::Produce.code().to_be_bytes();
        self.pending.is_empty()
            || (self.pending.len() < PIPELINED_MAX
                && self.pending.iter().all(|pending| pending.api == ApiKey::Produce)
                && self.frames.peek(2) == Some(&produce))
    }

    async fn start(&mut self, frame: Bytes) -> Result<(), Closed> {
        let mut input = Decoder::with_memory_max(frame.clone(), DECODED_BYTES_MAX);
        let header = RequestHeader::decode(&mut input).map_err(|error| Closed::Peer(error.to_string()))?;
        let api = header.api_key;
        tracing::trace!(node = self.context.node, api = %api, version = header.api_version, bytes = frame.len(), "request");
        let reply = api::start(self.context.clone(), header, input, frame).map_err(Closed::Peer)?;
        let mut pending = Pending { api, reply, done: None };
        // The first poll performs the append, so that appends happen in the order of arrival.
        pending.done = poll_fn(|cx| Poll::Ready(ready(pending.reply.as_mut().poll(cx)))).await;
        self.pending.push_back(pending);
        Ok(())
    }

    /// Writes the responses at the head of the queue that are ready. Returns `true` if there was one.
    async fn write_done(&mut self) -> Result<bool, Closed> {
        let mut wrote = false;
        while let Some(Pending { done: Some(_), .. }) = self.pending.front() {
            let Some(Pending { done: Some(reply), .. }) = self.pending.pop_front() else { break };
            match reply {
                Reply::Answer(chain) => write_chain(&mut self.io, chain).await?,
                Reply::Nothing => {}
                Reply::Close(reason) => return Err(Closed::Peer(reason)),
            }
            wrote = true;
        }
        Ok(wrote)
    }
}

/// Waits until the first response in the queue is ready, and polls the others meanwhile.
async fn progress(pending: &mut VecDeque<Pending>) {
    poll_fn(|cx| {
        for entry in pending.iter_mut().filter(|entry| entry.done.is_none()) {
            entry.done = ready(entry.reply.as_mut().poll(cx));
        }
        match pending.front() {
            Some(Pending { done: None, .. }) => Poll::Pending,
            Some(_) | None => Poll::Ready(()),
        }
    })
    .await;
}

fn ready<V>(poll: Poll<V>) -> Option<V> {
    match poll {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// Writes the pieces in order: memory with vectored writes, files by `sendfile` where the transport is a plain socket.
async fn write_chain<T: Transport>(io: &mut T, chain: Chain) -> io::Result<()> {
    let mut memory = WriteQueue::default();
    for piece in chain.into_pieces() {
        match piece {
            Piece::Memory(bytes) => memory.push(bytes),
            Piece::File(slice) => {
                write_memory(io, &mut memory).await?;
                write_file(io, slice).await?;
            }
        }
    }
    write_memory(io, &mut memory).await
}

async fn write_memory<T: Transport>(io: &mut T, memory: &mut WriteQueue) -> io::Result<()> {
    while !memory.is_empty() {
        let n = match memory.single() {
            Some(bytes) => io.write(bytes).await?,
            None => io.write_vectored(&memory.slices()).await?,
        };
        memory.written(n)?;
    }
    Ok(())
}

/// Sends a range of a file. A thread that may block first reads the bytes that are not in the page cache.
async fn write_file<T: Transport>(io: &mut T, slice: FileSlice) -> io::Result<()> {
    let cached = slice.file.is_cached(slice.offset, slice.len);
    if io.tcp().is_none() || slice.file.fd().is_none() || !cached {
        let bytes = if cached { slice.load()? } else { load_elsewhere(slice).await? };
        return io.write_all(&bytes).await;
    }
    let mut offset = slice.offset;
    let end = slice.offset + slice.len as u64;
    while offset < end {
        let Some(socket) = io.tcp() else { return Err(io::ErrorKind::Unsupported.into()) };
        socket.writable().await?;
        let sent = socket.try_io(Interest::WRITABLE, || {
            let fd = slice.file.fd().ok_or(io::ErrorKind::Unsupported)?;
            let left = (end - offset) as usize;
            Ok(rustix::fs::sendfile(socket, fd, Some(&mut offset), left)?)
        });
        match sent {
            // The file was truncated while it was sent.
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn load_elsewhere(slice: FileSlice) -> io::Result<Bytes> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a read from a disk blocks; simulated files are always cached"
    )]
    let loaded = tokio::task::spawn_blocking(move || slice.load()).await;
    loaded.unwrap_or_else(|error| Err(io::Error::other(error)))
}
