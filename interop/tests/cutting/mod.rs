//! Cuts connections after a random number of bytes.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use ottla_client::{Connecting, Connector, Io, TcpConnector};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

const READ_BYTES_MAX: usize = 64 << 10;

/// A proxy that cuts each connection after a random number of bytes, in either direction.
pub(crate) struct Cutting {
    tcp: TcpConnector,
    random: Mutex<fastrand::Rng>,
    /// Maximum number of bytes of a connection.
    bytes_max: u64,
    cuts: Arc<AtomicU64>,
}

impl Cutting {
    pub(crate) fn new(seed: u64, bytes_max: u64) -> Self {
        let (tcp, random) = (TcpConnector::default(), Mutex::new(fastrand::Rng::with_seed(seed)));
        Self { tcp, random, bytes_max, cuts: Arc::default() }
    }

    /// The number of connections cut so far.
    pub(crate) fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }
}

struct Cut {
    io: Box<dyn Io>,
    left: u64,
    cuts: Arc<AtomicU64>,
}

impl Connector for Cutting {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
        let left = self.random.lock().expect("not poisoned").u64(1..self.bytes_max);
        Box::pin(async move {
            let io = self.tcp.connect(host, port).await?;
            Ok(Box::new(Cut { io, left, cuts: self.cuts.clone() }) as Box<dyn Io>)
        })
    }
}

impl Cut {
    fn carry(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes as u64);
        if self.left == 0 {
            self.cuts.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl AsyncRead for Cut {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let room = buf.remaining().min(usize::try_from(self.left).unwrap_or(usize::MAX)).min(READ_BYTES_MAX);
        let mut part = vec![0; room];
        let mut part = ReadBuf::new(&mut part);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        buf.put_slice(part.filled());
        self.carry(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Cut {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let part = buf.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, &buf[..part]))?;
        self.carry(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
