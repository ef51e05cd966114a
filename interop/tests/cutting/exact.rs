//! Cuts one connection after a chosen byte.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use ottla_client::{Connecting, Connector, Io, TcpConnector};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The connection that is cut, in the order of their opening, after so many bytes of one direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) connection: usize,
    /// 0 to the broker, 1 back.
    pub(crate) way: usize,
    pub(crate) after: u64,
}

/// Opens TCP connections, counts their bytes, and cuts one.
#[derive(Default)]
pub(crate) struct ExactCut {
    tcp: TcpConnector,
    plan: Option<Plan>,
    traffic: Arc<Mutex<Vec<[u64; 2]>>>,
}

impl ExactCut {
    pub(crate) fn new(plan: Option<Plan>) -> Self {
        Self { plan, ..Self::default() }
    }

    /// The bytes of each connection so far: to the broker, and back.
    pub(crate) fn traffic(&self) -> Vec<[u64; 2]> {
        lock(&self.traffic).clone()
    }
}

impl Connector for ExactCut {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
        Box::pin(async move {
            let io = self.tcp.connect(host, port).await?;
            let mut traffic = lock(&self.traffic);
            let connection = traffic.len();
            traffic.push([0; 2]);
            let plan = self.plan.filter(|plan| plan.connection == connection);
            Ok(Box::new(Counted { io, connection, plan, traffic: self.traffic.clone() }) as Box<dyn Io>)
        })
    }
}

struct Counted {
    io: Box<dyn Io>,
    connection: usize,
    plan: Option<Plan>,
    traffic: Arc<Mutex<Vec<[u64; 2]>>>,
}

impl Counted {
    /// The bytes of a direction that may still pass; an error once the connection is cut.
    fn room(&self, way: usize, wanted: usize) -> io::Result<usize> {
        let Some(plan) = self.plan else { return Ok(wanted) };
        let carried = lock(&self.traffic)[self.connection][plan.way];
        let left = plan.after.saturating_sub(carried);
        if left == 0 {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        Ok(if way == plan.way { wanted.min(usize::try_from(left).unwrap_or(usize::MAX)) } else { wanted })
    }

    fn carried(&self, way: usize, bytes: usize) {
        lock(&self.traffic)[self.connection][way] += bytes as u64;
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut part = vec![0; self.room(1, buf.remaining())?];
        let mut part = ReadBuf::new(&mut part);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut part))?;
        buf.put_slice(part.filled());
        self.carried(1, part.filled().len());
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let room = self.room(0, buf.len())?;
        let written = ready!(Pin::new(&mut self.io).poll_write(cx, &buf[..room]))?;
        self.carried(0, written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

fn lock(traffic: &Mutex<Vec<[u64; 2]>>) -> MutexGuard<'_, Vec<[u64; 2]>> {
    traffic.lock().unwrap_or_else(PoisonError::into_inner)
}
