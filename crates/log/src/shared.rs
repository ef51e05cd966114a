//! A log that the threads of one process share: one appends, others read at the tail or catch up.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use ottla_wire::batch::BatchHeader;
use ottla_wire::reader::{RecordError, Records};
use ottla_wire::{BatchBuilder, Piece, Seal, Sealed};

use crate::append::Appended;
use crate::append_options::{AppendOptions, Check, Origin};
use crate::config::LogConfig;
use crate::error::{AppendError, LogError, ReadError};
use crate::log::Log;
use crate::read::{ReadPlan, ReadResult};
use crate::recovery::RecoveryReport;
use crate::ring::Ring;
use crate::storage::Storage;
use crate::tail::{Tail, Waiter};

/// The number of bytes that a reader takes at a time.
const READ_BYTES: usize = 256 * 1024;
/// Bytes of the first read after a seek, which may be the only one. Each further read is twice as long.
const FIRST_READ_BYTES: usize = 16 * 1024;

/// Attempts to take a busy lock before the thread sleeps: about ten microseconds.
const LOCK_SPINS: u32 = 500;

/// A handle to a log. Clones are handles to the same log.
///
/// ```
/// use std::sync::Arc;
/// use ottla_log::{LogConfig, SharedLog, storage::mem::MemStorage};
///
/// let (log, _) = SharedLog::open(Arc::new(MemStorage::new()), "orders-0", LogConfig::default(), 0)?;
/// let mut reader = log.reader(0);
/// log.append_record(1_700_000_000_000, Some(b"key"), Some(b"value"))?;
///
/// let batch = reader.try_next()?.expect("visible as soon as it is appended");
/// let records = batch.records(1 << 20)?;
/// let record = records.iter().next().expect("one record")?;
/// assert_eq!((record.offset, record.value), (0, Some(&b"value"[..])));
/// assert!(reader.try_next()?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedLog {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    log: Mutex<Log>,
    tail: Tail,
    ring: Arc<Ring>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Log> {
        // A panic under the lock is a bug. The next opening of the log checks the files that it has left.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock of appends and of reads at the tail. It is held for one write into the page cache, which takes
    /// less time than waking a thread.
    fn lock_soon(&self) -> MutexGuard<'_, Log> {
        for _ in 0..LOCK_SPINS {
            match self.log.try_lock() {
                Ok(log) => return log,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
        self.lock()
    }
}

impl SharedLog {
    /// Opens a log: see [`Log::open`].
    pub fn open(
        storage: Arc<dyn Storage>,
        dir: &str,
        config: LogConfig,
        now_ms: i64,
    ) -> Result<(Self, RecoveryReport), LogError> {
        let (log, report) = Log::open(storage, dir, config, now_ms)?;
        Ok((log.into(), report))
    }

    /// Appends whole v2 batches: see [`Log::append`].
    pub fn append(
        &self,
        now_ms: i64,
        batches: BytesMut,
        options: AppendOptions,
    ) -> Result<Appended, AppendError> {
        self.shared.lock_soon().append(now_ms, batches, options)
    }

    /// Appends a batch that was built in this process. Its bytes are not checked again.
    pub fn append_sealed(&self, now_ms: i64, sealed: Sealed) -> Result<Appended, AppendError> {
        let bytes = sealed.to_bytes();
        drop(sealed);
        let bytes = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        let options = AppendOptions {
            leader_epoch: 0,
            origin: Origin::Coordinator,
            check: Check::Trusted,
            ..AppendOptions::default()
        };
        self.append(now_ms, bytes, options)
    }

    /// Appends one record in its own batch. To append many records, fill a [`BatchBuilder`] instead.
    pub fn append_record(
        &self,
        now_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
    ) -> Result<Appended, AppendError> {
        let mut batch = BatchBuilder::new();
        batch.push(now_ms, key, value, &[]);
        let sealed = batch.seal(&Seal::default()).expect("without a codec nothing can fail");
        self.append_sealed(now_ms, sealed)
    }

    /// Makes all appended batches durable. Blocks until the disk has written them, without holding the lock.
    pub fn sync(&self) -> Result<i64, LogError> {
        let Some(pending) = self.with(|log| log.pending_sync()) else {
            return self.with(|log| log.check_online().map(|()| log.synced_offset()));
        };
        let synced = pending.run();
        self.with(|log| log.sync_done(synced))
    }

    /// Makes the closed segments durable, as [`SharedLog::sync`] does for all: see [`Log::pending_closed_sync`].
    ///
    /// Costs a lock and nothing else if they are durable.
    pub fn sync_closed(&self) -> Result<i64, LogError> {
        let Some(pending) = self.with(|log| log.pending_closed_sync()) else {
            return self.with(|log| log.check_online().map(|()| log.synced_offset()));
        };
        let synced = pending.run();
        self.with(|log| log.sync_done(synced))
    }

    /// Reads from `offset` on.
    pub fn reader(&self, offset: i64) -> Reader {
        Reader {
            waiter: self.shared.tail.waiter(),
            shared: self.shared.clone(),
            next_offset: offset,
            seen: offset,
            pieces: VecDeque::new(),
            ring_hint: 0,
            bytes: Bytes::new(),
            read_bytes: FIRST_READ_BYTES,
        }
    }

    /// Returns the end of the log, for waiters.
    pub fn tail(&self) -> &Tail {
        &self.shared.tail
    }

    /// Calls `f` with the log locked.
    pub fn with<T>(&self, f: impl FnOnce(&mut Log) -> T) -> T {
        f(&mut self.shared.lock())
    }

    /// Closes the log cleanly if this is its last handle and no reader is left. Otherwise returns the handle.
    pub fn close(self) -> Result<Result<(), LogError>, Self> {
        Arc::try_unwrap(self.shared)
            .map(|shared| shared.log.into_inner().unwrap_or_else(PoisonError::into_inner).close())
            .map_err(|shared| Self { shared })
    }
}

impl From<Log> for SharedLog {
    fn from(mut log: Log) -> Self {
        let tail = log.tail().clone();
        let ring = Arc::new(Ring::default());
        log.ring = Some(ring.clone());
        Self { shared: Arc::new(Shared { log: Mutex::new(log), tail, ring }) }
    }
}

/// A batch read from a log: a slice of the bytes as they were appended.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Its header.
    pub header: BatchHeader,
    /// The whole batch.
    pub bytes: Bytes,
}

impl Batch {
    /// Returns the records. Decompresses them if necessary, up to `cap` bytes.
    pub fn records(&self, cap: usize) -> Result<Records, RecordError> {
        Records::of_batch(&self.bytes, cap)
    }
}

/// Reads the visible batches of a log one by one: see [`Visible`](crate::Visible).
///
/// At the tail a batch costs one atomic load, one short lock and a reference to the bytes that were appended.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    waiter: Waiter,
    next_offset: i64,
    /// The visible offset at which there was no further batch: one that ends above it is not visible as a whole.
    seen: i64,
    pieces: VecDeque<Piece>,
    /// The probable position of the next batch in the ring.
    ring_hint: u64,
    bytes: Bytes,
    /// The size of the next read of a file.
    read_bytes: usize,
}

impl Reader {
    /// The offset after the last batch given.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// Continues at `offset`.
    pub fn seek(&mut self, offset: i64) {
        self.next_offset = offset;
        self.seen = offset;
        self.pieces.clear();
        self.bytes = Bytes::new();
        self.read_bytes = FIRST_READ_BYTES;
    }

    /// Returns the next batch, if there is one. It contains the next offset and may contain earlier ones.
    ///
    /// Cheap enough to be called in a loop: a call without a new batch costs one atomic load.
    #[inline]
    pub fn try_next(&mut self) -> Result<Option<Batch>, ReadError> {
        loop {
            if let Some(batch) = self.take()? {
                return Ok(Some(batch));
            }
            let visible = self.shared.tail.visible();
            if visible <= self.next_offset || !self.fill(visible)? {
                self.seen = visible.max(self.next_offset);
                return Ok(None);
            }
        }
    }

    /// Waits up to `timeout` for the next batch. Returns `None` after the timeout, or if the log was closed.
    pub fn next_blocking(&mut self, timeout: Duration) -> Result<Option<Batch>, ReadError> {
        if let Some(batch) = self.try_next()? {
            return Ok(Some(batch));
        }
        self.shared.tail.wait_grown(self.seen, timeout);
        self.try_next()
    }

    /// Polls for the next batch. Ready with `None` if the log was closed and all of it was read.
    ///
    /// While pending, the task is woken when there is another batch.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Batch>, ReadError>> {
        loop {
            match self.try_next() {
                Ok(None) => {}
                other => return Poll::Ready(other),
            }
            match self.waiter.poll_grown(cx, self.seen) {
                Poll::Ready(visible) if visible > self.seen => {}
                Poll::Ready(_) => return Poll::Ready(Ok(None)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Takes the next batch from the buffered bytes.
    #[inline]
    fn take(&mut self) -> Result<Option<Batch>, ReadError> {
        loop {
            if let Ok(header) = BatchHeader::parse(&self.bytes)
                && header.total_bytes() <= self.bytes.len()
            {
                let bytes = self.bytes.split_to(header.total_bytes());
                if header.last_offset() < self.next_offset {
                    continue;
                }
                self.next_offset = header.next_offset();
                return Ok(Some(Batch { header, bytes }));
            }
            // The rest is a batch that the range has cut off: the next read returns it.
            self.bytes.advance(self.bytes.len());
            match self.pieces.pop_front() {
                None => return Ok(None),
                Some(Piece::Memory(bytes)) => self.bytes = bytes,
                Some(Piece::File(slice)) => {
                    self.bytes = slice.load().map_err(|source| ReadError::Io {
                        dir: self.shared.lock().dir().to_owned(),
                        offset: self.next_offset,
                        source,
                    })?;
                }
            }
        }
    }

    /// Reads more bytes. Returns `true` if there were any.
    fn fill(&mut self, visible: i64) -> Result<bool, ReadError> {
        if let Some(bytes) = self.shared.ring.read(self.next_offset, visible, &mut self.ring_hint) {
            self.bytes = bytes;
            return Ok(true);
        }
        let read_bytes = self.read_bytes;
        self.read_bytes = (2 * read_bytes).min(READ_BYTES);
        let plan = self.shared.lock_soon().plan_read(self.next_offset, read_bytes, visible, true)?;
        let result = match plan {
            ReadPlan::Ready(result) => result,
            ReadPlan::Cold(cold) => match cold.run() {
                // The log quarantines the damaged range and continues after it if possible.
                Err(ReadError::Corrupt { .. }) => {
                    self.shared.lock().read(self.next_offset, read_bytes, visible, true)?
                }
                other => other?,
            },
        };
        let ReadResult { chain, next_offset, .. } = result;
        let moved = next_offset.is_some_and(|next| next > self.next_offset);
        if chain.is_empty() && moved {
            self.next_offset = next_offset.unwrap_or(self.next_offset);
        }
        let any = !chain.is_empty();
        self.pieces.extend(chain.into_pieces());
        Ok(any || moved)
    }
}
