//! A durable log in Apache Kafka's on-disk format: segments, indexes, recovery, retention. Useful without a broker.
//!
//! ```text
//!             append --> [ checks | offsets | one write ] --> 00000000000000000000.log  .index  .timeindex
//!                              |                                        |
//!                          tail cache                             a range of a file
//!                              |                                        |
//!  a reader at the tail <------+                                        +------> a reader of the past
//! ```
//!
//! Everything here is synchronous and asks nobody for the time: `now_ms`, milliseconds since 1970, is an argument. All
//! file access goes through [`storage::Storage`]: a real directory, or a disk in memory that can be torn by a crash and
//! fail at any call.
//!
//! * [`Log`] is one partition: [`Log::append`], [`Log::read`], [`Log::pending_sync`]. It has one owner.
//! * [`SharedLog`] is a log with a lock around it, [`Reader`] follows one from any thread.
//! * [`Tail`] is the end of a log, for those who wait for it to grow: tasks, blocked threads, spinning threads.
//! * [`Journal`] is a map kept as a log, for what a broker has to remember beside the records.
//!
//! # What is durable when
//!
//! `append` returns when the bytes are in the page cache: they survive the process, not a power cut. A [`PendingSync`]
//! makes them survive that as well; it needs no lock while it runs, so that one sync serves all that was appended before
//! it. After a sync that failed the log goes offline: what the kernel could not write it may have forgotten, and only
//! opening the log anew tells what is left. Whatever opening finds is made durable before anyone reads it.
//!
//! A batch whose bytes are damaged is never a reason to drop the sound ones behind it: it is set aside, and reads of its
//! offsets fail. `docs/LOG_FORMAT.md` has the files, their bytes, and the rules of recovery.
//!
//! # A writer and a reader at the tail
//!
//! ```
//! use std::{sync::Arc, thread, time::Duration};
//! use ottla_log::{LogConfig, SharedLog, storage::fs::FsStorage};
//!
//! # let tmp = tempfile::tempdir()?;
//! # let data_dir = tmp.path();
//! let _lock = ottla_log::storage::fs::lock(data_dir)?; // one process at a time
//! let storage = Arc::new(FsStorage::new(data_dir)?);
//! let now_ms = 1_700_000_000_000;
//! let (log, report) = SharedLog::open(storage, "orders-0", LogConfig::default(), now_ms)?;
//! assert_eq!(report.truncated_bytes, 0);
//!
//! let mut reader = log.reader(log.tail().end());
//! let reading = thread::spawn(move || {
//!     // `try_next` in a loop sees a record well below a microsecond after `append` returned; this one sleeps.
//!     let batch = reader.next_blocking(Duration::from_secs(60))?.expect("in time");
//!     Ok::<_, ottla_log::ReadError>(batch.header.base_offset)
//! });
//! let appended = log.append_record(now_ms, Some(b"key"), Some(b"value"))?;
//! log.sync()?; // now it survives a power cut
//! assert_eq!(reading.join().expect("no panic")?, appended.base_offset);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod append;
mod cache;
mod check;
mod checkpoint;
mod config;
mod epochs;
mod error;
mod examine;
mod index;
mod journal;
mod log;
mod producers;
mod read;
mod recovery;
mod retention;
mod ring;
mod scan;
mod segment;
mod shared;
pub mod storage;
mod sync;
mod synced;
mod tail;
mod verify;

pub use append::{AppendOptions, Appended, Check, Origin};
pub use check::check_batches;
pub use config::{LogConfig, Visible};
pub use error::{AppendError, LogError, Loss, ReadError};
pub use examine::{LogCheck, check_log};
pub use journal::{Journal, JournalConfig, JournalError, check_journal};
pub use log::Log;
pub use producers::ProducerState;
pub use read::{ColdRead, ReadPlan, ReadResult, TimestampOffset};
pub use recovery::RecoveryReport;
pub use retention::{PendingDelete, Retention};
pub use segment::BadRange;
pub use shared::{Batch, Reader, SharedLog};
pub use sync::{PendingSync, Synced};
pub use tail::{Grown, Tail, Waiter};
pub use verify::{ScrubCursor, ScrubTask, Scrubbed};
