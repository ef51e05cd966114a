//! Standard output that a signal can stop: `ottla consume | less` ends on Ctrl-C while nothing reads the pipe.
//!
//! A write to a full pipe does not return. Therefore a separate thread writes, and the command waits for it only until
//! a signal arrives.

use std::io::{self, Write};
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
    interrupt: Interrupt,
}

impl StoppableOutput {
    /// Starts the thread that writes.
    pub(crate) fn new(interrupt: Interrupt) -> Result<Self, Failure> {
        let (writer, buffers) = sync_channel::<Vec<u8>>(1);
        let (results, written) = channel();
        let write_all = move || {
            let mut out = io::stdout();
            for mut buffer in buffers {
                let result = out.write_all(&buffer).and_then(|()| out.flush());
                buffer.clear();
                if results.send(result.map(|()| buffer)).is_err() {
                    return;
                }
            }
        };
        let spawned = std::thread::Builder::new().name("ottla-stdout".into()).spawn(write_all);
        spawned.map_err(|error| Failure::failed(format!("no thread for standard output: {error}")))?;
        Ok(Self { buffer: Vec::with_capacity(BUFFER_BYTES), writer, written, is_writing: false, interrupt })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.buffer.extend_from_slice(bytes);
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

fn ended() -> Failure {
    Failure::failed("standard output: its thread has ended")
}
