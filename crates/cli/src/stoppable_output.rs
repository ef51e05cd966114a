//! Standard output that a signal can stop: `ottla consume | less` ends on Ctrl-C while nothing reads the pipe.
//!
//! A write to a full pipe does not return. Therefore a separate thread writes, and the command waits for it only until
//! a signal arrives.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::signals::Interrupt;

/// Bytes that are collected before they are written.
const BUFFER_BYTES: usize = 64 << 10;
/// The interval at which a command that waits for a write checks for a signal.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Time limit of a write after a signal: enough for a reader that reads.
const GRACE: Duration = Duration::from_millis(500);

/// Standard output for many small writes, in a command that takes signals.
pub(crate) struct StoppableOutput {
    buffer: Vec<u8>,
    writer: SyncSender<Vec<u8>>,
    /// The result of each write, and its buffer for the next one.
    written: Receiver<io::Result<Vec<u8>>>,
    is_writing: bool,
    /// The number of bytes passed to [`StoppableOutput::write`].
    position: u64,
    /// The number of bytes that the reader's pipe, the file or the terminal has accepted.
    accepted: Arc<AtomicU64>,
    interrupt: Interrupt,
}

impl StoppableOutput {
    /// Starts the thread that writes.
    pub(crate) fn new(interrupt: Interrupt) -> Result<Self, Failure> {
        let (writer, buffers) = sync_channel::<Vec<u8>>(1);
        let (results, written) = channel();
        let accepted = Arc::new(AtomicU64::new(0));
        let counted = accepted.clone();
        // Without the buffer of `io::stdout`, so that each byte that counts as accepted is out of this process.
        let out = io::stdout().as_fd().try_clone_to_owned();
        let mut out = File::from(out.map_err(|error| Failure::output(&error))?);
        let write_all = move || {
            for mut buffer in buffers {
                let result = write_counted(&mut out, &buffer, &counted);
                buffer.clear();
                if results.send(result.map(|()| buffer)).is_err() {
                    return;
                }
            }
        };
        let spawned = std::thread::Builder::new().name("ottla-stdout".into()).spawn(write_all);
        spawned.map_err(|error| Failure::failed(format!("no thread for standard output: {error}")))?;
        let buffer = Vec::with_capacity(BUFFER_BYTES);
        Ok(Self { buffer, writer, written, is_writing: false, position: 0, accepted, interrupt })
    }

    /// Returns the number of bytes written so far, including those that are collected.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Returns the number of bytes that have left this process. It is the position after a successful flush.
    pub(crate) fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Acquire)
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.buffer.extend_from_slice(bytes);
        self.position += bytes.len() as u64;
        if self.buffer.len() < BUFFER_BYTES { Ok(()) } else { self.begin() }
    }

    /// Writes everything. After a signal it fails when the reader does not read.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        if !self.buffer.is_empty() {
            self.begin()?;
        }
        self.finish().map(drop)
    }

    /// Sends the buffer to the thread after the thread has written the previous one.
    fn begin(&mut self) -> Result<(), Failure> {
        let empty = self.finish()?.unwrap_or_else(|| Vec::with_capacity(BUFFER_BYTES));
        let full = std::mem::replace(&mut self.buffer, empty);
        self.writer.send(full).map_err(|_| ended())?;
        self.is_writing = true;
        Ok(())
    }

    /// Waits for the current write and returns its buffer.
    fn finish(&mut self) -> Result<Option<Vec<u8>>, Failure> {
        let mut stop_at = None;
        while self.is_writing {
            match self.written.recv_timeout(LOOK_EVERY) {
                Ok(result) => {
                    self.is_writing = false;
                    if result.is_err() {
                        // Bytes after those that failed would follow a gap.
                        self.buffer.clear();
                    }
                    return result.map(Some).map_err(|error| Failure::output(&error));
                }
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
                Err(RecvTimeoutError::Timeout) if self.interrupt.is_set() => {
                    if Instant::now() >= *stop_at.get_or_insert_with(|| Instant::now() + GRACE) {
                        self.interrupt.check()?;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Ok(None)
    }
}

/// Writes all bytes, and counts those that are written before an error too.
fn write_counted(out: &mut File, mut bytes: &[u8], accepted: &AtomicU64) -> io::Result<()> {
    while !bytes.is_empty() {
        match out.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                accepted.fetch_add(count as u64, Ordering::Release);
                bytes = bytes.get(count..).unwrap_or_default();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn ended() -> Failure {
    Failure::failed("standard output: its thread has ended")
}
