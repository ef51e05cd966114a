//! (grows in the commits that follow)

mod append;
mod cache;
mod check;
mod checkpoint;
mod config;
mod epochs;
mod error;
mod index;
mod journal;
mod log;
mod producers;
mod read;
mod recovery;
mod retention;
mod scan;
mod segment;
mod shared;
pub mod storage;
mod sync;
mod tail;

pub use append::{AppendOptions, Appended, Check, Origin};
pub use check::check_batches;
pub use config::{LogConfig, Visible};
pub use error::{AppendError, LogError, ReadError};
pub use journal::{Journal, JournalConfig, JournalError};
pub use log::Log;
pub use producers::ProducerState;
pub use read::{ColdRead, ReadPlan, ReadResult, TimestampOffset};
pub use recovery::RecoveryReport;
pub use retention::{PendingDelete, Retention};
pub use segment::BadRange;
pub use shared::{Batch, Reader, SharedLog};
pub use sync::{PendingSync, Synced};
pub use tail::{Grown, Tail, Waiter};
