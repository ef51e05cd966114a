//! The bytes that arrive on a connection, and the memory that they need.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bytes::BufMut;
use ottla_wire::frames::FrameBuffer;
use tokio::io::AsyncReadExt;
#[cfg(any(target_os = "linux", target_os = "android"))]
use tokio::io::Interest;
use tokio::time::Instant;

use super::Transport;
use crate::memory::Charge;
use crate::request_memory::{Limits, SHARE_MAX, charge_for};

/// The bytes of a request at least: its size, its API and version, and its correlation id.
const SMALLEST_FRAME_BYTES: usize = 12;
/// The bytes that TLS adds to a record at least: a header, a tag, and in TLS 1.3 the type.
const TLS_OVERHEAD_BYTES: usize = 21;

/// The memory of a request that is received, or of a TLS record.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) charge: Charge,
    pub(super) since: Instant,
    /// `true` if it is returned with the end of the record.
    pub(super) is_for_record: bool,
}

impl Granted {
    pub(super) fn new(charge: Charge, is_for_record: bool) -> Self {
        Self { charge, since: Instant::now(), is_for_record }
    }
}

/// The memory that a connection needs before it receives more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needed {
    pub(super) bytes: usize,
    pub(super) is_for_record: bool,
}

/// Returns the memory that a connection needs before it receives more, and limits its reads to its share of the uncharged memory.
pub(super) fn needed<T: Transport>(
    io: &mut T,
    frames: &FrameBuffer,
    granted: Option<&Granted>,
    limits: Limits,
) -> Option<Needed> {
    if granted.is_some() {
        io.limit_record(None);
        return None;
    }
    let is_record_large = io.limit_record(Some(limits.share));
    match charge_for(frames, limits) {
        Some(bytes) => Some(Needed { bytes: bytes.saturating_add(io.record_memory()), is_for_record: false }),
        None => is_record_large.then(|| Needed { bytes: io.record_memory(), is_for_record: true }),
    }
}

/// The result of a read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Received {
    /// So many bytes; none at the end of the connection.
    Bytes(usize),
    /// The rest of a TLS record needs memory.
    NeedsMemory,
}

/// The treatment of bytes that arrive on a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reads {
    /// Requests that have arrived wait for their turn.
    Nothing,
    /// It reads them.
    Continues,
    /// It leaves them until there is memory.
    WaitsForMemory,
    /// It leaves them, as a test holds the connection.
    Held,
    /// It leaves them until its client may send again. If the client has gone, it ends after `longest`.
    Pauses { longest: Duration },
}

/// Receives, or waits for the end of a connection that does not read.
pub(super) async fn receive_or_leave<T: Transport>(
    io: &mut T,
    frames: &mut FrameBuffer,
    granted: &mut Option<Granted>,
    limits: Limits,
    reads: Reads,
) -> io::Result<Received> {
    match reads {
        Reads::Continues => return receive(io, frames, granted, limits).await,
        Reads::WaitsForMemory => left(io, frames).await,
        Reads::Held => closed_by_peer(io).await,
        Reads::Nothing => std::future::pending().await,
        Reads::Pauses { longest } => left_in_pause(io, frames, longest).await,
    }
    Ok(Received::Bytes(0))
}

/// Waits until the peer has closed the connection, whose requests are not read.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) async fn closed_by_peer<T: Transport>(io: &mut T) {
    if let Some(socket) = io.socket()
        // The only interest that completes when the peer has closed, and not when bytes have arrived.
        && socket.ready(Interest::PRIORITY).await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// Other systems notice the end of a connection with the next read.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) async fn closed_by_peer<T: Transport>(_io: &mut T) {
    std::future::pending::<()>().await;
}

/// The bytes on the wire at least with which the next request is complete. Fewer are a part of one, or the end of TLS.
fn least_of_request(frames: &FrameBuffer, is_tls: bool) -> usize {
    let missing =
        frames.awaited().map_or(SMALLEST_FRAME_BYTES, |size| 4 + size).saturating_sub(frames.arrived());
    missing + if is_tls { TLS_OVERHEAD_BYTES } else { 0 }
}

/// Waits until the peer has closed the connection while its client pauses for a quota, and nothing more is to be answered: otherwise it
/// stays for `longest`.
///
/// Without it, connections that have ended count until the pause is over, which can take days.
#[cfg(any(target_os = "linux", target_os = "android"))]
async fn left_in_pause<T: Transport>(io: &mut T, frames: &FrameBuffer, longest: Duration) {
    closed_by_peer(io).await;
    let unread = io.socket().and_then(|socket| rustix::io::ioctl_fionread(socket).ok());
    let unread = unread.map_or(usize::MAX, |bytes| bytes as usize);
    let is_tls = io.tcp().is_none();
    let arrived = unread.saturating_add(io.unfinished_bytes());
    if arrived >= least_of_request(frames, is_tls) || io.decrypted_bytes() > 0 || frames.has_frame() {
        tokio::time::sleep(longest).await;
    }
}

/// Other systems notice the end of a connection with the next read.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
async fn left_in_pause<T: Transport>(_io: &mut T, _frames: &FrameBuffer, _longest: Duration) {
    std::future::pending::<()>().await;
}

/// Waits until the peer has closed the connection, and the rest of what it was sending can not arrive any more.
///
/// Without it, connections that have ended keep their place in the queue for memory, and what they have received.
#[cfg(any(target_os = "linux", target_os = "android"))]
async fn left<T: Transport>(io: &mut T, frames: &FrameBuffer) {
    closed_by_peer(io).await;
    if let Some(socket) = io.socket() {
        let missing = frames.awaited().map_or(0, |size| 4 + size - frames.arrived());
        let arrived = rustix::io::ioctl_fionread(socket).map_or(usize::MAX, |bytes| bytes as usize);
        let read = io.unfinished_bytes() + io.decrypted_bytes();
        if arrived.saturating_add(read) < missing || arrived < io.missing_bytes() {
            return;
        }
    }
    // All of it has arrived: it is read when there is memory.
    std::future::pending::<()>().await;
}

/// Other systems notice the end of a connection with the next read.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
async fn left<T: Transport>(_io: &mut T, _frames: &FrameBuffer) {
    std::future::pending::<()>().await;
}

/// Reads what has arrived. A connection that waits holds no buffer, and what it has of a small frame in no more than its size.
pub(super) async fn receive<T: Transport>(
    io: &mut T,
    frames: &mut FrameBuffer,
    granted: &mut Option<Granted>,
    Limits { share, part: part_max, .. }: Limits,
) -> io::Result<Received> {
    let is_charged = granted.as_ref().is_some_and(|granted| !granted.is_for_record);
    let most = if is_charged { part_max } else { share };
    let read = poll_fn(|cx| {
        let readiness = io.tcp().map_or(Poll::Ready(Ok(())), |socket| socket.poll_read_ready(cx));
        let read = match readiness {
            Poll::Ready(Ok(())) => {
                let mut part = frames.spare().limit(most);
                pin!(io.read_buf(&mut part)).poll(cx)
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        };
        // With many connections, the buffer has no more than what was read: the rest of it may wait for long.
        if !matches!(read, Poll::Ready(Ok(_))) || most < SHARE_MAX {
            frames.shrink();
        }
        read
    });
    let read = match read.await {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::NeedsMemory),
        read => read?,
    };
    granted.take_if(|granted| granted.is_for_record);
    if is_charged && read == part_max {
        // The bytes are in the buffer, even if the wait ends here.
        tokio::task::yield_now().await;
    }
    Ok(Received::Bytes(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 24 or 31 bytes of TLS's end kept the connection of a client that had left for ten minutes.
    #[test]
    fn the_end_of_tls_is_no_request() {
        let mut frames = FrameBuffer::new(1 << 20);
        assert!(least_of_request(&frames, true) > 31 && least_of_request(&frames, false) == 12);
        frames.spare().put_slice(&[0, 0, 0, 20, 1, 2]);
        assert_eq!(least_of_request(&frames, false), 18);
    }
}
