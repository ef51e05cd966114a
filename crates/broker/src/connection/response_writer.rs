//! Writes responses: memory with vectored writes, files by `sendfile` where the transport is a plain socket.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use ottla_wire::{Chain, FileSlice, Piece, WriteQueue};
use rustix::net::SendFlags;
use tokio::io::{AsyncWriteExt, Interest};

use super::Transport;
use super::pace::Pace;

/// The bytes of a file in the page cache that are sent at a time. Each part costs a system call more.
const CACHED_PART_BYTES: usize = 1 << 20;
/// The bytes of memory that are written at a time. The kernel copies them, which takes as long as some requests: other
/// connections are served before the next part.
const MEMORY_PART_BYTES: usize = 1 << 20;
/// The same if they are copied and encrypted, which takes as long as tens of requests: one connection at a time does it.
const ENCRYPTED_PART_BYTES: usize = 256 << 10;
/// The bytes of a file in the page cache that are copied and encrypted at a time: the processor's cache holds them meanwhile.
const COPIED_PART_BYTES: usize = 64 << 10;
/// The same while memory is scarce: one record of TLS.
const COPIED_PART_BYTES_MIN: usize = 16 << 10;
/// The bytes of a file that are read from the disk at a time.
const LOADED_PART_BYTES: usize = 256 << 10;

thread_local! {
    /// The part of a file that is copied. It belongs to the thread, as a connection that waits for its peer needs none.
    static COPIED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Writes a response. While others wait for memory, a peer that does not read a response loses its connection.
pub(super) async fn write_response<T: Transport>(io: &mut T, pace: Pace<'_>, chain: Chain) -> io::Result<()> {
    let mut writer = ResponseWriter { io, pace };
    writer.write_chain(chain).await?;
    if writer.io.tcp().is_none() {
        // TLS may hold the end of a response until it is flushed.
        writer.pace.keep(writer.io.flush()).await?;
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
    pace: Pace<'a>,
}

impl<T: Transport> ResponseWriter<'_, T> {
    async fn write_chain(&mut self, chain: Chain) -> io::Result<()> {
        let mut memory = WriteQueue::default();
        for piece in chain.into_pieces() {
            match piece {
                Piece::Memory(bytes) => memory.push(bytes),
                Piece::File(slice) => {
                    self.write_before_file(&mut memory).await?;
                    self.write_file(slice).await?;
                }
            }
        }
        self.write_memory(&mut memory).await
    }

    /// Writes memory that a range of a file follows. On a plain socket the kernel keeps it for the segment with the file's first
    /// bytes: a segment of its own would wake the peer for nothing.
    async fn write_before_file(&mut self, memory: &mut WriteQueue) -> io::Result<()> {
        self.pace.begin();
        while let (Some(socket), Some(bytes)) = (self.io.tcp(), memory.single(MEMORY_PART_BYTES)) {
            self.pace.wait_while_paused().await?;
            // A socket that takes all keeps the thread no longer than one that has to be awaited.
            tokio::task::coop::consume_budget().await;
            let more = SendFlags::MORE | SendFlags::NOSIGNAL;
            match socket.try_io(Interest::WRITABLE, || Ok(rustix::net::send(socket, bytes, more)?)) {
                Ok(n) => {
                    memory.written(n)?;
                    self.pace.add_sent(n);
                    if n >= MEMORY_PART_BYTES / 2 {
                        tokio::task::yield_now().await;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Box::pin(self.pace.keep(socket.writable())).await?;
                }
                Err(error) => return Err(error),
            }
        }
        self.write_memory(memory).await
    }

    async fn write_memory(&mut self, memory: &mut WriteQueue) -> io::Result<()> {
        self.pace.begin();
        while !memory.is_empty() {
            let n = if let Some(bytes) = memory.single(MEMORY_PART_BYTES) {
                self.pace.keep(self.io.write(bytes)).await?
            } else {
                let slices = memory.slices(MEMORY_PART_BYTES);
                self.pace.keep(self.io.write_vectored(&slices)).await?
            };
            memory.written(n)?;
            self.pace.add_sent(n);
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
                // Boxed, as are other rare steps: each connection has the memory of all that are not.
                Box::pin(self.load_file(&part)).await?;
            } else if direct {
                self.send_file(&part).await?;
            } else {
                for part in parts_of(&part, ENCRYPTED_PART_BYTES) {
                    if part.len > COPIED_PART_BYTES {
                        self.pace.take_turn().await;
                    }
                    Box::pin(self.copy_file(&part)).await?;
                }
                tokio::task::yield_now().await;
            }
        }
        Ok(())
    }

    /// Sends a range of a file that is not in the page cache.
    async fn load_file(&mut self, slice: &FileSlice) -> io::Result<()> {
        for part in parts_of(slice, LOADED_PART_BYTES) {
            self.charge(part.len + part.len.min(self.io.encrypted_bytes_max())).await?;
            self.write_bytes(load_elsewhere(part).await?).await?;
            self.return_charge().await?;
        }
        Ok(())
    }

    /// Takes memory for a part of a file. A connection that waits for memory has none for which others could wait.
    async fn charge(&mut self, bytes: usize) -> io::Result<()> {
        if !self.pace.try_charge(bytes) {
            self.flush().await?;
            self.pace.charge(bytes).await?;
        }
        self.pace.begin();
        Ok(())
    }

    /// Returns the memory of a part of a file when TLS has no bytes of it.
    async fn return_charge(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.pace.return_charge();
        Ok(())
    }

    /// Waits until the kernel has all bytes that TLS has encrypted.
    async fn flush(&mut self) -> io::Result<()> {
        if self.io.has_encrypted() {
            self.pace.keep(self.io.flush()).await?;
        }
        Ok(())
    }

    /// Writes a range of a file that is in the page cache to a transport that is no plain socket. TLS encrypts the next bytes when
    /// the kernel has the earlier ones, so that it holds those of one copy at most.
    async fn copy_file(&mut self, slice: &FileSlice) -> io::Result<()> {
        let mut copied_at_a_time = COPIED_PART_BYTES;
        if self.io.encrypted_bytes_max() > 0 && !self.pace.try_charge(COPIED_PART_BYTES) {
            copied_at_a_time = COPIED_PART_BYTES_MIN;
            self.charge(COPIED_PART_BYTES_MIN).await?;
        }
        self.pace.begin();
        for mut part in parts_of(slice, copied_at_a_time) {
            while part.len > 0 {
                self.flush().await?;
                let n = self.pace.keep(poll_fn(|cx| poll_copy(self.io, &part, cx))).await?;
                if n == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                part.offset += n as u64;
                part.len -= n;
                self.pace.add_sent(n);
            }
        }
        self.return_charge().await
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
            self.pace.wait_while_paused().await?;
            self.pace.begin();
            // A socket that takes all keeps the thread no longer than one that has to be awaited.
            tokio::task::coop::consume_budget().await;
            let sent = socket.try_io(Interest::WRITABLE, || {
                let fd = slice.file.fd().ok_or(io::ErrorKind::Unsupported)?;
                let left = (end - offset) as usize;
                Ok(rustix::fs::sendfile(socket, fd, Some(&mut offset), left)?)
            });
            match sent {
                // The file was truncated while it was sent.
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Box::pin(self.pace.keep(socket.writable())).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Copies a range of a file that is in the page cache to the transport.
fn poll_copy<T: Transport>(io: &mut T, slice: &FileSlice, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    COPIED.with_borrow_mut(|copied| {
        if copied.len() < slice.len {
            copied.resize(slice.len, 0);
        }
        let bytes = &mut copied[..slice.len];
        slice.file.read_exact_at(bytes, slice.offset)?;
        Pin::new(io).poll_write(cx, bytes)
    })
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
