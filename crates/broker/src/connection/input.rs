//! The bytes that arrive on a connection, and the memory that they need.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::task::Poll;

use bytes::BufMut;
use ottla_wire::frames::FrameBuffer;
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use super::Transport;
use crate::memory::Charge;
use crate::request_memory::{Limits, SHARE_MAX, charge_for};

/// The bytes of a frame that are read at a time. The kernel copies them, which takes as long as some requests: other connections are
/// served before the next part.
const READ_PART_BYTES: usize = 512 << 10;

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

/// Reads what has arrived. A connection that waits holds no buffer, and what it has of a small frame in no more than its size.
pub(super) async fn receive<T: Transport>(
    io: &mut T,
    frames: &mut FrameBuffer,
    granted: &mut Option<Granted>,
    share: usize,
) -> io::Result<Received> {
    let most =
        if granted.as_ref().is_some_and(|granted| !granted.is_for_record) { READ_PART_BYTES } else { share };
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
    if read == READ_PART_BYTES {
        // The bytes are in the buffer, even if the wait ends here.
        tokio::task::yield_now().await;
    }
    Ok(Received::Bytes(read))
}
