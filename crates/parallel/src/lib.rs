//! Parallel record processing for a consumer group. It never commits past unfinished records.
//!
//! ```text
//!   one thread polls          one lock, taken once per work item               workers
//!   Consumer::poll --> admission --> core: tracker, lanes, retries <--> handlers of records or batches
//!        ^                                 |
//!        +---------- commits, pauses <-----+
//! ```
//!
//! A [`Processor`] is a member of a consumer group. It splits fetched batches into work items for its workers,
//! without copying records. A tracker per partition records which offsets are unfinished. The processor commits the
//! end of the contiguous finished prefix.
//!
//! In a share group ([`Builder::share_group`]), the processor acknowledges each record instead: nothing is committed.

mod admission;
mod core;
mod deadline;
#[doc(hidden)]
pub mod deliberate;
mod dispatcher;
mod error;
mod exchange;
mod held;
mod local;
mod message;
mod metrics;
mod outputs;
mod processor;
mod retry;
mod settings;
mod worker;

pub use error::{BatchFailure, Error, Failure};
pub use exchange::ShareMetrics;
#[doc(hidden)]
pub use local::LocalStop;
pub use message::{Message, Messages};
pub use metrics::{Metrics, PartitionMetrics};
pub use processor::Processor;
pub use retry::Retry;
pub use settings::{Builder, GiveUp, Mode, Order};

/// Runs the examples of the guide as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/GUIDE.md")]
mod guide {}
