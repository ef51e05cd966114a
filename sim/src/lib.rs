//! Runs the real client and broker in one thread, in virtual time, on a network and a disk that fail.
//!
//! ```text
//!   scenario::run(seed) --> producers, readers, groups --> net (latency, slices, cuts) --> broker --> MemStorage
//!        |                        |
//!        +-- faults, then heal    +--> history --> checker --> anomalies
//! ```
//!
//! The seed determines a run: latencies, faults, crashes and every random choice of client and broker. Time is
//! tokio's paused clock, and nothing depends on the system. The same seed gives the same [`Trace`](ottla_testkit::Trace), line by line.
//! docs/SIMULATION.md describes how to run a seed.

pub mod checker;
mod compacted;
pub mod cuts;
pub mod errors;
mod faults;
mod host;
mod options;
mod probe;
mod processor;
mod producer;
pub mod rates;
mod reader;
pub mod scenario;
mod share;
pub mod shrink;
mod topics;
mod transactions;
mod world;

pub use options::Options;
pub use scenario::{Mode, Report, run, run_with};
