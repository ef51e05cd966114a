//! The real client and the real broker in one thread, on virtual time, over a network and a disk that fail.
//!
//! ```text
//!   scenario::run(seed) --> producers, readers --> net (latency, slices, cuts) --> broker --> MemStorage (crashes)
//!        |                        |
//!        +-- faults, then heal    +--> history --> checker --> anomalies
//! ```
//!
//! A run is its seed: latencies, faults, crashes and every random choice of client and broker come from it, time is
//! tokio's paused clock, and nothing asks the system for anything. The same seed gives the same [`trace`], line by
//! line. docs/SIMULATION.md says how to run one.

pub mod checker;
pub mod errors;
mod faults;
mod host;
pub mod net;
mod options;
mod producer;
pub mod rates;
mod reader;
pub mod scenario;
pub mod trace;

pub use options::Options;
pub use scenario::{Report, run, run_with};
