//! A durable log in Apache Kafka's on-disk format: segments, indexes, recovery, retention. It works without a broker.
//!
//! ```text
//!             append --> [ checks | offsets | one write ] --> 00000000000000000000.log  .index  .timeindex
//!                              |                                        |
//!                          tail cache                             a range of a file
//!                              |                                        |
//!  a reader at the tail <------+                                        +------> a reader of the past
//! ```
//!
//! All functions are synchronous and use no clock: `now_ms`, milliseconds since 1970, is an argument. File access goes
//! through [`storage::Storage`]: a real directory, or a disk in memory that simulates crashes and failures.
//!
//! * [`Log`] is one partition: [`Log::append`], [`Log::read`], [`Log::pending_sync`]. It has one owner.
//! * [`SharedLog`] is a log with a lock around it. A [`Reader`] follows it from any thread.
//! * [`Tail`] is the end of a log, for waiters until it grows: tasks, blocked threads, spinning threads.
//! * [`Journal`] is a map that is stored as a log, for the state that a broker stores in addition to the records.
//!
//! # Durability
//!
//! `append` returns when the bytes are in the page cache: they survive the end of the process, but not a power cut.
//! They survive a power cut after a [`PendingSync`] has run. A sync needs no lock while it runs, and it covers all
//! batches that were appended before it. After a failed sync the log goes offline, because the kernel may have
//! dropped the pages that it could not write. Only opening the log again determines which records are left. `open`
//! makes all records that it finds durable before a reader sees them.
//!
//! A damaged batch does not invalidate the sound batches after it: it is quarantined, and reads of its offsets fail.
//! `docs/LOG_FORMAT.md` describes the files, their bytes, and the rules of recovery.
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

mod aborted;
mod append;
mod append_options;
mod bad_range;
mod cache;
mod cache_total;
mod check;
mod checkpoint;
mod close;
mod compaction;
mod config;
#[doc(hidden)]
pub mod deliberate;
mod epochs;
mod error;
mod examine;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gap;
mod index;
mod journal;
mod log;
mod marker;
mod producer_map;
mod producer_recovery;
mod producer_total;
mod producers;
mod read;
mod recovery;
mod restored;
mod retention;
mod ring;
mod roll;
mod scan;
mod segment;
mod segment_name;
mod shared;
pub mod storage;
mod swap;
mod sync;
mod sync_turn;
mod synced;
mod tail;
mod time_lookup;
mod transaction;
mod truncate;
mod txn_index;
mod verification;
mod verified;
mod verify;

pub use aborted::CommittedRead;
pub use append::Appended;
pub use append_options::{AppendOptions, Check, Origin, Transactional};
pub use bad_range::BadRange;
pub use cache_total::{CacheTotal, SharedBuffer};
pub use check::{BatchesCheck, check_batches};
pub use compaction::{
    Cleanable, CleanedGroup, Compaction, CompactionError, CompactionOptions, CompactionReport,
    PendingReplacement, ReplacedFiles,
};
pub use config::{LogConfig, Visible};
pub use error::{AppendError, LogError, Loss, ReadError, repair_step};
pub use examine::{LogCheck, check_log};
pub use gap::empty_batch;
pub use journal::{Journal, JournalConfig, JournalError, check_journal};
pub use log::Log;
pub use marker::{EndMarker, TransactionOutcome};
pub use producer_total::ProducerTotal;
pub use producers::ProducerState;
pub use read::{ColdRead, LeftOut, ReadPlan, ReadResult};
pub use recovery::RecoveryReport;
pub use retention::{
    NewestTimestamp, PendingDelete, PendingStart, Retention, RetentionStep, StoredStart, TimestampRead,
};
pub use shared::{Batch, Reader, SharedLog};
pub use sync::{PendingSync, Synced};
pub use tail::{Grown, Tail, Waiter};
pub use time_lookup::{TimeLookup, TimeLookupStep, TimestampOffset, find_by_time, find_newest};
pub use txn_index::AbortedTransaction;
pub use verification::{FirstBatch, GuardsFull, VerificationGuard};
pub use verify::{ScrubCursor, ScrubTask, Scrubbed};
