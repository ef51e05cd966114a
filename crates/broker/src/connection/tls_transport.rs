//! A connection over TLS, with limits on the memory of rustls.
//!
//! rustls keeps the bytes of a message that has arrived in part, and encrypted bytes that the kernel does not take.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::Transport;
use crate::request_memory::UNFINISHED_BYTES_MAX;

/// The bytes that rustls encrypts before the kernel takes them: four records in one system call. One record at a time would take a
/// system call each.
pub(crate) const ENCRYPTED_BYTES_MAX: usize = 64 << 10;
/// The memory of a record that has arrived in part: rustls makes room for the next read.
const RECORD_MEMORY: usize = UNFINISHED_BYTES_MAX + (4 << 10);

/// A type, a version, and the size of the rest.
const RECORD_HEADER_BYTES: usize = 5;

/// The socket below TLS. It counts the bytes that rustls has received and not returned as plaintext.
#[derive(Debug)]
pub(crate) struct TlsSocket {
    stream: TcpStream,
    unfinished: usize,
    unfinished_max: usize,
    record: RecordPlace,
}

/// The place within a record that the received bytes have reached.
#[derive(Debug, Default)]
struct RecordPlace {
    header: [u8; RECORD_HEADER_BYTES],
    header_bytes: usize,
    /// The bytes of the record that have not arrived.
    left: usize,
}

impl RecordPlace {
    fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let passed = if self.left > 0 {
                let passed = self.left.min(bytes.len());
                self.left -= passed;
                passed
            } else {
                let passed = (RECORD_HEADER_BYTES - self.header_bytes).min(bytes.len());
                self.header[self.header_bytes..][..passed].copy_from_slice(&bytes[..passed]);
                self.header_bytes += passed;
                if self.header_bytes == RECORD_HEADER_BYTES {
                    self.header_bytes = 0;
                    self.left = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
                }
                passed
            };
            bytes = &bytes[passed..];
        }
    }

    /// The bytes that have arrived of a record whose end has not.
    fn arrived_bytes(&self) -> usize {
        if self.left > 0 {
            let size = usize::from(u16::from_be_bytes([self.header[3], self.header[4]]));
            RECORD_HEADER_BYTES + size - self.left
        } else {
            self.header_bytes
        }
    }

    /// The bytes that are missing at least.
    fn missing_bytes(&self) -> usize {
        if self.header_bytes > 0 { RECORD_HEADER_BYTES - self.header_bytes } else { self.left }
    }
}

impl TlsSocket {
    /// The socket of a connection that begins its handshake.
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, unfinished: 0, unfinished_max: usize::MAX, record: RecordPlace::default() }
    }

    /// The bytes that have arrived since the handshake began, or since the last plaintext.
    pub(crate) fn unfinished(&self) -> usize {
        self.unfinished
    }
}

impl AsyncRead for TlsSocket {
    /// Reads nothing at the limit. Its owner notices that, and raises the limit or ends the connection.
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = self.unfinished_max.saturating_sub(self.unfinished).min(buf.remaining());
        if room == 0 {
            return Poll::Pending;
        }
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(room));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        self.record.pass(part.filled());
        buf.advance(read);
        self.unfinished += read;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TlsSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A connection after its handshake.
#[derive(Debug)]
pub(crate) struct TlsTransport {
    /// Boxed: the connection moves, and each place that it moves through has memory of its size.
    stream: Box<TlsStream<TlsSocket>>,
    /// `true` if encrypted bytes were discarded: the peer could not read later ones.
    is_cut: bool,
}

impl TlsTransport {
    pub(crate) fn new(mut stream: TlsStream<TlsSocket>) -> Self {
        let socket = stream.get_mut().0;
        // A part of the next record may have come with the end of the handshake.
        (socket.unfinished, socket.unfinished_max) = (socket.record.arrived_bytes(), UNFINISHED_BYTES_MAX);
        Self { stream: Box::new(stream), is_cut: false }
    }
}

impl AsyncRead for TlsTransport {
    /// Fails with `WouldBlock` at the limit of [`Transport::limit_record`].
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let socket = self.stream.get_mut().0;
        match read {
            Poll::Pending if socket.unfinished >= UNFINISHED_BYTES_MAX => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "a message of TLS is too long")))
            }
            Poll::Pending if socket.unfinished >= socket.unfinished_max => {
                Poll::Ready(Err(io::ErrorKind::WouldBlock.into()))
            }
            Poll::Ready(_) => {
                // A part of the next record can have come with the end of this one.
                socket.unfinished = socket.record.arrived_bytes();
                read
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for TlsTransport {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Transport for TlsTransport {
    /// Without a `close_notify` the peer reports a cut connection, and not one that the broker has closed.
    fn say_goodbye(&mut self) {
        if self.is_cut {
            return;
        }
        let mut context = Context::from_waker(Waker::noop());
        // One attempt: a peer that reads nothing is not waited for.
        let _ = Pin::new(self).poll_shutdown(&mut context);
    }

    fn socket(&self) -> Option<&TcpStream> {
        Some(&self.stream.get_ref().0.stream)
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        self.stream.get_ref().0.stream.peer_addr().ok()
    }

    fn encrypted_bytes_max(&self) -> usize {
        ENCRYPTED_BYTES_MAX
    }

    fn has_encrypted(&self) -> bool {
        self.stream.get_ref().1.wants_write()
    }

    fn discard_encrypted(&mut self) {
        let session = self.stream.get_mut().1;
        while session.wants_write() {
            self.is_cut = true;
            if session.write_tls(&mut io::sink()).is_err() {
                return;
            }
        }
    }

    fn unfinished_bytes(&self) -> usize {
        self.stream.get_ref().0.unfinished
    }

    fn decrypted_bytes(&mut self) -> usize {
        let session = self.stream.get_mut().1;
        if session.wants_read() {
            return 0;
        }
        // Nothing new: an error is reported by the next read.
        session.process_new_packets().map_or(0, |state| state.plaintext_bytes_to_read())
    }

    fn missing_bytes(&self) -> usize {
        self.stream.get_ref().0.record.missing_bytes()
    }

    fn record_memory(&self) -> usize {
        RECORD_MEMORY
    }

    fn limit_record(&mut self, share: Option<usize>) -> bool {
        let socket = self.stream.get_mut().0;
        // A share of 16 KiB is enough for a record.
        let max = share.map_or(UNFINISHED_BYTES_MAX, |share| (share + share / 4).min(UNFINISHED_BYTES_MAX));
        socket.unfinished_max = max;
        max < UNFINISHED_BYTES_MAX && socket.unfinished >= max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_within_a_record_is_known_at_each_of_its_bytes() {
        let records = [&[23, 3, 3, 0, 3, 1, 1, 1][..], &[23, 3, 3, 0, 0], &[23, 3, 3, 1, 0]].concat();
        let missing = [4, 3, 2, 1, 3, 2, 1, 0, 4, 3, 2, 1, 0, 4, 3, 2, 1, 256];
        let arrived = [1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5];
        for split in 0..records.len() {
            let mut place = RecordPlace::default();
            place.pass(&records[..split]);
            for ((byte, missing), arrived) in records.iter().zip(missing).zip(arrived).skip(split) {
                place.pass(&[*byte]);
                assert_eq!((place.missing_bytes(), place.arrived_bytes()), (missing, arrived));
            }
        }
    }
}
