//! Counters of connections and of the writes on them.

#![allow(dead_code, reason = "not every test looks at everything")]

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Counters of a client's connections.
#[derive(Default)]
pub(crate) struct Tally {
    opened: AtomicUsize,
    open: AtomicUsize,
    written: Mutex<Written>,
}

#[derive(Default)]
struct Written {
    writes: usize,
    bytes: Vec<u8>,
}

impl Tally {
    /// The total number of connections.
    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }

    /// The number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// The number of writes, and of the TLS records of application data in them.
    pub(crate) fn writes_and_records(&self) -> (usize, usize) {
        let written = self.written.lock().expect("no panic");
        let (mut at, mut records) = (0, 0);
        while let Some([kind, _, _, high, low]) = written.bytes.get(at..at + 5) {
            records += usize::from(*kind == 0x17);
            at += 5 + usize::from(u16::from_be_bytes([*high, *low]));
        }
        (written.writes, records)
    }
}

/// A connection that is counted while it exists.
pub(crate) struct Counted<T> {
    io: T,
    tally: Arc<Tally>,
}

impl<T> Counted<T> {
    pub(crate) fn new(io: T, tally: &Arc<Tally>) -> Self {
        tally.opened.fetch_add(1, Ordering::SeqCst);
        tally.open.fetch_add(1, Ordering::SeqCst);
        Self { io, tally: tally.clone() }
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.tally.open.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.io).poll_write(cx, buf);
        if let Poll::Ready(Ok(n)) = &result {
            let mut written = self.tally.written.lock().expect("no panic");
            written.writes += 1;
            written.bytes.extend_from_slice(&buf[..*n]);
        }
        result
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
