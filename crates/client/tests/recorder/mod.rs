//! A connector that records every request with its time, and counts the response bytes.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_client::{Connecting, Connector, Io, TcpConnector};
use ottla_protocol::{ApiKey, Decoder, Request, RequestHeader, decode_request};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The time limit for expected requests to arrive.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The recorded requests.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Frames without their sizes, in the order of their first bytes.
    frames: Vec<(Instant, Bytes)>,
    /// The times and ports of connection attempts.
    pub(crate) attempts: Vec<(Instant, u16)>,
    /// The number of received bytes.
    pub(crate) read_bytes: usize,
}

/// Connects over TCP and records the requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    pub(crate) seen: Arc<Mutex<Seen>>,
    /// Connections to this port fail.
    pub(crate) refused_port: Option<u16>,
    /// The first byte of this text is changed in data from a broker.
    pub(crate) damaged: Option<&'static [u8]>,
    pub(crate) gate: Arc<Mutex<Gate>>,
}

/// The gate for bytes on their way to brokers.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    shut: bool,
    waiting: Vec<Waker>,
}

impl Recorder {
    /// From now on, no connection accepts bytes.
    pub(crate) fn shut(&self) {
        self.gate.lock().expect("no panic at the gate").shut = true;
    }

    /// Connections accept bytes again.
    pub(crate) fn open(&self) {
        let mut gate = self.gate.lock().expect("no panic at the gate");
        gate.shut = false;
        gate.waiting.drain(..).for_each(Waker::wake);
    }

    pub(crate) fn look<T>(&self, at: impl FnOnce(&Seen) -> T) -> T {
        at(&self.seen.lock().expect("no panic while looking"))
    }

    /// Every request of this kind, with its header and the time it was written.
    pub(crate) fn requests<R: Request>(&self) -> Vec<(Instant, RequestHeader, R)> {
        let frames = self.look(|seen| seen.frames.clone());
        let mut found = Vec::new();
        for (at, frame) in frames {
            let mut input = Decoder::new(frame);
            let header = RequestHeader::decode(&mut input).expect("a sound header");
            if header.api_key == R::KEY {
                let version = header.api_version;
                found.push((at, header, decode_request::<R>(input, version).expect("a sound request")));
            }
        }
        found
    }

    /// The number of requests of this kind that were written.
    pub(crate) fn count(&self, key: ApiKey) -> usize {
        self.look(|seen| {
            seen.frames
                .iter()
                .filter(|(_, frame)| ApiKey::from_i16(i16::from_be_bytes([frame[0], frame[1]])) == key)
                .count()
        })
    }

    /// Waits until `count` requests of this kind were written.
    pub(crate) fn wait_for(&self, key: ApiKey, count: usize) {
        wait_until(&format!("{count} {key:?} requests"), || self.count(key) >= count);
    }
}

/// Waits until a condition holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "no {what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

impl Connector for Recorder {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
        Box::pin(async move {
            self.seen.lock().expect("no panic while looking").attempts.push((Instant::now(), port));
            if self.refused_port == Some(port) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let io = TcpConnector::default().connect(host, port).await?;
            Ok(Box::new(Recorded {
                io,
                seen: self.seen.clone(),
                unread: Vec::new(),
                damaged: self.damaged,
                gate: self.gate.clone(),
            }) as Box<dyn Io>)
        })
    }
}

struct Recorded {
    io: Box<dyn Io>,
    seen: Arc<Mutex<Seen>>,
    /// Written bytes of an incomplete frame.
    unread: Vec<u8>,
    damaged: Option<&'static [u8]>,
    pub(crate) gate: Arc<Mutex<Gate>>,
}

impl Recorded {
    fn written(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        while let Some(size) = self.unread.first_chunk::<4>() {
            let end = 4 + u32::from_be_bytes(*size) as usize;
            if self.unread.len() < end {
                break;
            }
            let frame = Bytes::copy_from_slice(&self.unread[4..end]);
            self.unread.drain(..end);
            self.seen.lock().expect("no panic while looking").frames.push((Instant::now(), frame));
        }
    }
}

impl AsyncRead for Recorded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let new = &mut buf.filled_mut()[before..];
        self.seen.lock().expect("no panic while looking").read_bytes += new.len();
        if let Some(text) = self.damaged
            && let Some(at) = new.windows(text.len()).position(|window| window == text)
        {
            new[at] ^= 1;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Recorded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        {
            let mut gate = self.gate.lock().expect("no panic at the gate");
            if gate.shut {
                gate.waiting.push(cx.waker().clone());
                return Poll::Pending;
            }
        }
        let count = ready!(Pin::new(&mut self.io).poll_write(cx, bytes))?;
        self.written(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
