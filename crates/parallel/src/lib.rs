//! Parallel consumption with commits that never pass unfinished work.
//!
//! ```text
//!   one thread polls          under one lock, once per piece of work            workers
//!   Consumer::poll --> admission --> core: tracker, lanes, retries <--> handlers, one by one or in batches
//!        ^                                 |
//!        +---------- commits, pauses <-----+
//! ```
//!
//! A [`Processor`] is a member of a consumer group. It hands fetched batches to its workers as they are, in pieces, and a
//! tracker remembers for each partition which offsets are not done: what is committed is the end of the contiguous
//! finished prefix, whatever was finished behind it.

mod admission;
mod core;
mod dispatcher;
mod error;
mod exchange;
mod message;
mod metrics;
mod outputs;
mod processor;
mod retry;
mod settings;
mod transaction;
mod worker;
mod writing;

pub use error::{BatchFailure, Error, Failure};
pub use message::{Message, Messages};
pub use metrics::{Metrics, PartitionMetrics};
pub use processor::Processor;
pub use retry::Retry;
pub use settings::{Builder, GiveUp, Mode, Order};

/// The examples of the guide are tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/GUIDE.md")]
mod guide {}
