//! The tests that share a program: a program for each file would be built as long as the crate itself. `cargo xtask test` runs
//! each file in a process of its own.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

mod common;
#[path = "common/keyed.rs"]
mod keyed;

mod append_and_read;
mod compaction;
mod compaction_crash;
mod compaction_model;
mod compaction_policy;
mod compaction_segments;
mod crash;
mod disk_faults;
mod journal_damage;
mod loss;
mod model;
mod no_timestamps;
mod recovery;
mod restored;
mod retention;
mod segment_jitter;
mod shared;
mod time_lookup;
mod transactions;
mod transactions_model;
mod verify;
