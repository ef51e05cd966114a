//! Writes responses: memory with vectored writes, files by `sendfile` where the transport is a plain socket.

use std::io;

use bytes::Bytes;
use ottla_wire::{Chain, FileSlice, Piece, WriteQueue};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::time::Instant;

use super::{CONTENTION_CHECK, Transport, contended_time_for};
use crate::cluster::Cluster;

/// Responses up to this size are not counted.
const UNCOUNTED_BYTES_MAX: usize = 16 << 10;
/// The bytes of a file in the page cache that are sent at a time. Each part costs a system call more.
const CACHED_PART_BYTES: usize = 1 << 20;
/// The bytes of memory that are written at a time. The kernel copies them, which takes as long as some requests: other
/// connections are served before the next part.
const MEMORY_PART_BYTES: usize = 1 << 20;
/// The bytes of a file in the page cache that are copied and encrypted at a time: the processor's cache holds them meanwhile.
const COPIED_PART_BYTES: usize = 64 << 10;
/// The bytes of a file that are read from the disk at a time.
const LOADED_PART_BYTES: usize = 256 << 10;

/// Writes a response. While others wait for memory, a peer that does not read a large response loses its connection.
pub(super) async fn write_response<T: Transport>(
    io: &mut T,
    cluster: &Cluster,
    chain: Chain,
) -> io::Result<()> {
    let in_files = chain.pieces().iter().any(|piece| matches!(piece, Piece::File(_)));
    // A response with files must not count while it waits for the memory of their parts.
    let counted = if in_files { 0 } else { chain.len() };
    let _sending = (counted > UNCOUNTED_BYTES_MAX).then(|| cluster.memory.send(counted));
    let holds_memory = counted > UNCOUNTED_BYTES_MAX;
    let mut writer = ResponseWriter { io, cluster, holds_memory, copied: Vec::new() };
    writer.write_chain(chain).await?;
    if writer.io.tcp().is_none() {
        // TLS may hold the end of a response until it is flushed.
        Pace::new(writer.holds_memory).keep(cluster, writer.io.flush()).await?;
    }
    Ok(())
}

/// Returns the first `bytes` of a response, or all of it if it is shorter.
pub(super) fn prefix(chain: Chain, mut bytes: usize) -> Chain {
    let mut prefix = Chain::new();
    for piece in chain.into_pieces() {
        let len = piece.len().min(bytes);
        match piece {
            Piece::Memory(part) => prefix.push_bytes(part.slice(..len)),
            Piece::File(part) => prefix.push_file(FileSlice { len, ..part }),
        }
        bytes -= len;
    }
    prefix
}

struct ResponseWriter<'a, T> {
    io: &'a mut T,
    cluster: &'a Cluster,
    /// `true` if others could use memory that this response has.
    holds_memory: bool,
    /// The part of a file that is copied.
    copied: Vec<u8>,
}

impl<T: Transport> ResponseWriter<'_, T> {
    async fn write_chain(&mut self, chain: Chain) -> io::Result<()> {
        let mut memory = WriteQueue::default();
        for piece in chain.into_pieces() {
            match piece {
                Piece::Memory(bytes) => memory.push(bytes),
                Piece::File(slice) => {
                    self.write_memory(&mut memory).await?;
                    self.write_file(slice).await?;
                }
            }
        }
        self.write_memory(&mut memory).await
    }

    async fn write_memory(&mut self, memory: &mut WriteQueue) -> io::Result<()> {
        let mut pace = Pace::new(self.holds_memory);
        while !memory.is_empty() {
            let n = if let Some(bytes) = memory.single(MEMORY_PART_BYTES) {
                pace.keep(self.cluster, self.io.write(bytes)).await?
            } else {
                let slices = memory.slices(MEMORY_PART_BYTES);
                pace.keep(self.cluster, self.io.write_vectored(&slices)).await?
            };
            memory.written(n)?;
            pace.sent += n;
            if n >= MEMORY_PART_BYTES / 2 && !memory.is_empty() {
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Sends a range of a file, in parts: a slow reader of a large range costs the memory of one part.
    async fn write_file(&mut self, slice: FileSlice) -> io::Result<()> {
        let direct = self.io.tcp().is_some() && slice.file.fd().is_some();
        for part in parts_of(&slice, CACHED_PART_BYTES) {
            if !part.file.is_cached(part.offset, part.len) {
                for part in parts_of(&part, LOADED_PART_BYTES) {
                    let _charge = self.cluster.memory.charge(part.len).await;
                    self.holds_memory = true;
                    self.write_bytes(load_elsewhere(part).await?).await?;
                    self.holds_memory = false;
                }
            } else if direct {
                self.send_file(&part).await?;
            } else {
                self.copy_file(&part).await?;
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Writes a range of a file that is in the page cache to a transport that is no plain socket.
    async fn copy_file(&mut self, slice: &FileSlice) -> io::Result<()> {
        let pace = Pace::new(self.holds_memory);
        for part in parts_of(slice, COPIED_PART_BYTES) {
            if self.copied.len() < part.len {
                self.copied.resize(part.len, 0);
            }
            let mut bytes = &mut self.copied[..part.len];
            part.file.read_exact_at(bytes, part.offset)?;
            while !bytes.is_empty() {
                let n = pace.keep(self.cluster, self.io.write(bytes)).await?;
                if n == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                bytes = &mut bytes[n..];
            }
        }
        Ok(())
    }

    async fn write_bytes(&mut self, bytes: Bytes) -> io::Result<()> {
        let mut memory = WriteQueue::default();
        memory.push(bytes);
        self.write_memory(&mut memory).await
    }

    /// Lets the kernel send a range of a file that is in the page cache.
    async fn send_file(&mut self, slice: &FileSlice) -> io::Result<()> {
        let mut offset = slice.offset;
        let end = slice.offset + slice.len as u64;
        while offset < end {
            let Some(socket) = self.io.tcp() else { return Err(io::ErrorKind::Unsupported.into()) };
            Pace::new(self.holds_memory).keep(self.cluster, socket.writable()).await?;
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
}

/// The pace at which a peer must read.
struct Pace {
    holds_memory: bool,
    began: Instant,
    sent: usize,
}

impl Pace {
    fn new(holds_memory: bool) -> Self {
        Self { holds_memory, began: Instant::now(), sent: 0 }
    }

    /// Fails when the peer accepts nothing for too long, or too little while others wait for memory that it holds.
    async fn keep<V>(&self, cluster: &Cluster, write: impl Future<Output = io::Result<V>>) -> io::Result<V> {
        let stalled_at = Instant::now() + cluster.config.write_timeout;
        let mut write = std::pin::pin!(write);
        loop {
            let left = stalled_at.saturating_duration_since(Instant::now());
            let look = if self.holds_memory { left.min(CONTENTION_CHECK) } else { left };
            if let Ok(written) = tokio::time::timeout(look, &mut write).await {
                return written;
            }
            let too_slow = self.began + contended_time_for(self.sent) <= Instant::now();
            if left <= look || (self.holds_memory && cluster.memory.is_contended() && too_slow) {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read its responses"));
            }
        }
    }
}
/// Consecutive parts of a range, of at most `bytes`.
fn parts_of(slice: &FileSlice, bytes: usize) -> impl Iterator<Item = FileSlice> + use<> {
    let FileSlice { file, offset, len } = slice.clone();
    let parts = (0..len).step_by(bytes);
    parts.map(move |at| FileSlice {
        file: file.clone(),
        offset: offset + at as u64,
        len: bytes.min(len - at),
    })
}

/// Reads bytes that are not in the page cache, on a thread that may block.
async fn load_elsewhere(slice: FileSlice) -> io::Result<Bytes> {
    #[expect(
        clippy::disallowed_methods,
        reason = "a read from a disk blocks; simulated files are always cached"
    )]
    let loaded = tokio::task::spawn_blocking(move || slice.load()).await;
    loaded.unwrap_or_else(|error| Err(io::Error::other(error)))
}
